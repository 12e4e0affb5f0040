"""What a series is: its identity, and where it belongs.

Source: OpenTelemetry metrics data model, "Timeseries Model"; design page, section 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

AttributeValue = str | bool | int | float | bytes
Attributes = tuple[tuple[str, AttributeValue], ...]
"""Attributes sorted by name; a value of another type (array, map) stands here as its JSON text."""


class NodeId(NamedTuple):
    """A machine. Two clusters may use the same node name."""

    cluster: str
    node: str


class Kind(IntEnum):
    GAUGE = 1
    SUM = 2
    HISTOGRAM = 3
    EXPONENTIAL_HISTOGRAM = 4
    SUMMARY = 5


class Temporality(IntEnum):
    UNSPECIFIED = 0
    DELTA = 1
    CUMULATIVE = 2


@dataclass(frozen=True)
class SeriesIdentity:
    """One stream: everything that makes two points belong to the same series.

    Not part of it: attribute order, int or double, bucket layout.
    """

    node: NodeId
    resource: Attributes
    scope: str
    metric: str
    unit: str
    kind: Kind
    temporality: Temporality
    monotonic: bool
    attributes: Attributes

    @cached_property
    def key(self) -> bytes:
        """16 bytes, the same in every process: series of a node are combined in the order of their keys."""
        parts = (
            *self.node,
            repr(self.resource),
            self.scope,
            self.metric,
            self.unit,
            f"{int(self.kind)},{int(self.temporality)},{int(self.monotonic)}",
            repr(self.attributes),
        )
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            raw = part.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(4, "little"))
            digest.update(raw)
        return digest.digest()


@dataclass(frozen=True)
class Source:
    """What the catalog selects by: a series under its canonical name, whatever its receiver called it.

    metric and labels use the spelling of the OpenTelemetry host, kubelet, container and cluster receivers
    (`system.cpu.time` with `cpu` and `state`); scale turns the series' unit into the canonical one
    (value * scale). kind, temporality and monotonic say how it is to be read, after aliasing: a Prometheus
    counter that arrives as a gauge is a cumulative monotonic sum here.
    """

    metric: str
    unit: str
    labels: Mapping[str, str]
    kind: Kind
    temporality: Temporality
    monotonic: bool
    scale: float = 1.0


@dataclass(slots=True)
class Series:
    """One entry of a shard's series table."""

    identity: SeriesIdentity
    source: Source
    node_index: int
    newest_ns: int = 0
    """Time of the newest accepted sample; 0 before the first."""


@dataclass
class SeriesTable:
    """All series of a shard, by index, with the nodes they belong to.

    An index is reused after its series has been forgotten. nodes and series hold None at freed places.
    """

    series: list[Series | None] = field(default_factory=list)
    nodes: list[NodeId | None] = field(default_factory=list)
    series_by_key: dict[bytes, int] = field(default_factory=dict)
    node_by_id: dict[NodeId, int] = field(default_factory=dict)
    series_by_node: dict[int, set[int]] = field(default_factory=dict)
