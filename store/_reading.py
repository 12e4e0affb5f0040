"""What a reader gets: one node, or a whole cluster as arrays. Whatever is not known is absent, never zero."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._vector import AGE_UNKNOWN_MS, NodeVector, Status
from fleetpulse.store._freshness import Freshness, I64Array, U8Array, judge_one
from fleetpulse.store._schema import Schema


@dataclass(frozen=True, slots=True)
class FeatureValue:
    """One feature of one node. value is None exactly when status is MISSING.

    age_ms: the reader's time minus that of the newest sample the value rests on; None where unknown.
    """

    value: float | None
    unit: str
    age_ms: int | None
    status: Status


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the detector last said of a node: score in [0, 1], high is bad, None when it could not judge."""

    time_ms: int
    score: float | None
    verdict: str


@dataclass(frozen=True, eq=False)
class NodeReading(Mapping[str, FeatureValue]):
    """One node as it was read: a mapping from feature name to FeatureValue, with every name of the schema.

    freshness was judged by the reader's clock; age_ms is that clock minus t_end, None when the store knows nothing of
    the node. vector is what was stored, also when it is too old to be given out as values. event: the node's newest
    anomaly event as published (`state` says whether it is over), None when there was none.
    """

    cluster: str | None
    node: str
    freshness: Freshness
    age_ms: int | None
    vector: NodeVector | None
    verdict: Verdict | None
    event: dict[str, Any] | None
    schema: Schema

    @property
    def x(self) -> NDArray[np.float32]:
        """(n,) float32 in the schema's order, NaN where missing; all NaN when the reading is MISSING. A fresh array."""
        if self.vector is None or self.freshness is Freshness.MISSING:
            return np.full(len(self.schema.names), np.nan, np.float32)
        return self.vector.values.astype(np.float32)

    @property
    def t_end_ms(self) -> int | None:
        return None if self.vector is None else self.vector.t_end_ns // 1_000_000

    @property
    def window_covered_ms(self) -> int | None:
        """How much of the 5-minute window the worker had seen at t_end: less than 300000 after a restart."""
        return None if self.vector is None else self.vector.window_covered_ms

    def __getitem__(self, name: str) -> FeatureValue:
        column = self.schema.columns[name]
        unit = self.schema.units[column]
        if self.vector is None or self.age_ms is None or self.freshness is Freshness.MISSING:
            return FeatureValue(None, unit, None, Status.MISSING)
        value = float(self.vector.values[column])
        status = Status(int(self.vector.status[column]))
        older_ms = int(self.vector.age_ms[column])
        age_ms = None if older_ms == AGE_UNKNOWN_MS else self.age_ms + older_ms
        if status is Status.MISSING or value != value:
            return FeatureValue(None, unit, age_ms, Status.MISSING)
        if self.freshness is Freshness.STALE:
            status = Status.STALE
        return FeatureValue(value, unit, age_ms, status)

    def __iter__(self) -> Iterator[str]:
        return iter(self.schema.names)

    def __len__(self) -> int:
        return len(self.schema.names)


@dataclass(frozen=True, eq=False)
class ClusterReading:
    """All nodes of a cluster, sorted by name, in arrays whose row i is ids[i].

    X: (n, features) float32, NaN where missing; a MISSING node's row is all NaN. ages_ms: (n,) int64, the reader's
    clock minus t_end. statuses: (n,) uint8 of Freshness. t_end_ms, window_covered_ms, scrape_interval_ms: (n,) int64.
    Each row is one version of its node; rows may be of different moments. names: the columns.
    """

    cluster: str
    ids: tuple[str, ...]
    X: NDArray[np.float32]
    ages_ms: I64Array
    statuses: U8Array
    t_end_ms: I64Array
    window_covered_ms: I64Array
    scrape_interval_ms: I64Array
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def column(self, name: str) -> NDArray[np.float32]:
        """(n,) one feature of all nodes; KeyError when the schema has no such name."""
        try:
            return self.X[:, self.names.index(name)]
        except ValueError:
            raise KeyError(name) from None


def read_vector(
    schema: Schema,
    cluster: str | None,
    node: str,
    vector: NodeVector | None,
    verdict: Verdict | None,
    event: dict[str, Any] | None,
    now_ms: int,
    max_age_ms: int | None,
) -> NodeReading:
    if vector is None:
        return NodeReading(cluster, node, Freshness.MISSING, None, None, verdict, event, schema)
    age_ms = now_ms - vector.t_end_ns // 1_000_000
    level = judge_one(age_ms, vector.scrape_interval_ms, max_age_ms)
    return NodeReading(vector.cluster, vector.node, level, age_ms, vector, verdict, event, schema)


def parse_verdict(raw: bytes) -> Verdict:
    """`<time_ms> <score or -> <verdict>`. ValueError for anything else."""
    time_ms, score, verdict = raw.decode().split(" ", 2)
    return Verdict(int(time_ms), None if score == "-" else float(score), verdict)


def parse_event(raw: bytes) -> dict[str, Any]:
    """`<time_ms> <JSON object>`. ValueError for anything else."""
    time_ms, _, text = raw.decode().partition(" ")
    int(time_ms)
    event = json.loads(text)
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")
    return event
