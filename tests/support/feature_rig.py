"""A FleetState with series made by hand: times in seconds, values as they are, records as lists."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fleetpulse.features import Added, Catalog, FleetState, NodeId, NodeVector, SeriesTable, Status
from fleetpulse.features._points import ExponentialPoints, HistogramPoints, NumberPoints, Points
from fleetpulse.features._series import Kind, SeriesIdentity, Source, Temporality

NS = 1_000_000_000
EPOCH_S = 1_700_000_000
"""Times of tests count from here, so that they are as large as real ones."""
LOOK_BACK_S = 1_200


def at_ns(time_s: float | None) -> int:
    """0 for None, which is how a point without a start arrives."""
    return 0 if time_s is None else EPOCH_S * NS + round(time_s * NS)


class Number(NamedTuple):
    series: int
    time_s: float
    value: float | int
    start_s: float | None = None


@dataclass
class Histogram:
    """bounds and counts; count is that of counts unless it is to be wrong."""

    series: int
    time_s: float
    bounds: Sequence[float]
    counts: Sequence[int]
    start_s: float | None = None
    count: int | None = None
    low: float = float("nan")
    high: float = float("nan")


@dataclass
class Exponential:
    """Buckets as index -> count."""

    series: int
    time_s: float
    scale: int
    positive: Mapping[int, int]
    negative: Mapping[int, int] = field(default_factory=dict)
    zero_count: int = 0
    zero_threshold: float = 0.0
    start_s: float | None = None


Sample = Number | Histogram | Exponential


def points_of(record: Sequence[Sample]) -> Points:
    """The columns that a decoder would hand over for these samples, in their order."""
    return Points(
        _numbers([sample for sample in record if isinstance(sample, Number)]),
        _histograms([sample for sample in record if isinstance(sample, Histogram)]),
        _exponentials([sample for sample in record if isinstance(sample, Exponential)]),
    )


def _stamps(samples: Sequence[Sample]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.array([sample.series for sample in samples], np.int32),
        np.array([at_ns(sample.time_s) for sample in samples], np.int64),
        np.array([at_ns(sample.start_s) for sample in samples], np.int64),
    )


def _numbers(samples: Sequence[Number]) -> NumberPoints:
    is_int = np.array([isinstance(sample.value, int) for sample in samples], np.bool_)
    integer = [sample.value if isinstance(sample.value, int) else 0 for sample in samples]
    return NumberPoints(
        *_stamps(samples),
        np.array([float(sample.value) for sample in samples], np.float64),
        np.array(integer, np.int64),
        is_int,
    )


def _ends(rows: Sequence[Sequence[float]]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)


def _flat(rows: Sequence[Sequence[float]], dtype: type) -> np.ndarray:
    return np.array([x for row in rows for x in row], dtype)


def _histograms(samples: Sequence[Histogram]) -> HistogramPoints:
    counts = [sample.counts for sample in samples]
    bounds = [sample.bounds for sample in samples]
    total = [sum(sample.counts) if sample.count is None else sample.count for sample in samples]
    return HistogramPoints(
        *_stamps(samples),
        count=np.array(total, np.int64),
        total=np.full(len(samples), np.nan),
        low=np.array([sample.low for sample in samples], np.float64),
        high=np.array([sample.high for sample in samples], np.float64),
        count_at=_ends(counts),
        counts=_flat(counts, np.int64),
        bound_at=_ends(bounds),
        bounds=_flat(bounds, np.float64),
    )


def _dense(buckets: Mapping[int, int]) -> tuple[int, list[int]]:
    if not buckets:
        return 0, []
    first = min(buckets)
    return first, [buckets.get(index, 0) for index in range(first, max(buckets) + 1)]


def _exponentials(samples: Sequence[Exponential]) -> ExponentialPoints:
    positive = [_dense(sample.positive) for sample in samples]
    negative = [_dense(sample.negative) for sample in samples]
    count = [sample.zero_count + sum(sample.positive.values()) + sum(sample.negative.values()) for sample in samples]
    unknown = np.full(len(samples), np.nan)
    return ExponentialPoints(
        *_stamps(samples),
        count=np.array(count, np.int64),
        total=unknown,
        low=unknown,
        high=unknown,
        scale=np.array([sample.scale for sample in samples], np.int32),
        zero_count=np.array([sample.zero_count for sample in samples], np.int64),
        zero_threshold=np.array([sample.zero_threshold for sample in samples], np.float64),
        positive_offset=np.array([offset for offset, _ in positive], np.int32),
        positive_at=_ends([counts for _, counts in positive]),
        positive=_flat([counts for _, counts in positive], np.int64),
        negative_offset=np.array([offset for offset, _ in negative], np.int32),
        negative_at=_ends([counts for _, counts in negative]),
        negative=_flat([counts for _, counts in negative], np.int64),
    )


@cache
def _default_catalog() -> Catalog:
    return Catalog.load()


class Rig:
    """A state, its table, and a node named "n" unless another is asked for."""

    def __init__(
        self, catalog: Catalog | None = None, look_back_s: int = LOOK_BACK_S, *, shortcuts: bool = True
    ) -> None:
        self.catalog = _default_catalog() if catalog is None else catalog
        self.table = SeriesTable()
        self.state = FleetState(self.catalog, self.table, look_back_ns=look_back_s * NS, shortcuts=shortcuts)
        self.offset = 0

    def series(
        self,
        metric: str,
        labels: Mapping[str, str] | None = None,
        *,
        kind: Kind = Kind.SUM,
        temporality: Temporality | None = None,
        monotonic: bool = True,
        node: str = "n",
        scale: float = 1.0,
        resource: str = "",
    ) -> int:
        labels = labels or {}
        if temporality is None:
            temporality = Temporality.UNSPECIFIED if kind is Kind.GAUGE else Temporality.CUMULATIVE
        monotonic = monotonic and kind is Kind.SUM
        identity = SeriesIdentity(
            NodeId("c", node),
            (("r", resource),),
            "",
            metric,
            "1",
            kind,
            temporality,
            monotonic,
            tuple(sorted(labels.items())),
        )
        return self.table.add(identity, Source(metric, "1", labels, kind, temporality, monotonic, scale))

    def gauge(self, metric: str, labels: Mapping[str, str] | None = None, **more: str) -> int:
        return self.series(metric, labels, kind=Kind.GAUGE, **more)  # type: ignore[arg-type]

    def send(self, *record: Sample) -> Added:
        added = self.state.add(points_of(record), partition=3, offset=self.offset)
        self.offset += 1
        return added

    def vector(self, node: str = "n") -> NodeVector:
        return self.state.vector(self.table.node_by_id[NodeId("c", node)])

    def value(self, feature: str, node: str = "n") -> float:
        return float(self.vector(node).values[self.catalog.index(feature)])

    def status(self, feature: str, node: str = "n") -> Status:
        return Status(int(self.vector(node).status[self.catalog.index(feature)]))

    def bits(self, node: str = "n") -> bytes:
        """The vector's bytes with the offset taken out, which does depend on the number of records."""
        vector = self.vector(node)
        vector.offset = 0
        return vector.to_bytes()


def catalog_of(text: str) -> Catalog:
    """A catalog from the text of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalog.toml"
        path.write_text(text, encoding="utf-8")
        return Catalog.load(str(path))


def columns(*rows: str) -> str:
    """[[feature]] tables from lines such as "rate_5m: of = 'c'; aggregate = 'rate'"."""
    text = ""
    for row in rows:
        name, _, keys = row.partition(":")
        text += f'\n[[feature]]\nname = "{name}"\ngroup = "test"\nunit = "1"\ndoc = "Under test."\n'
        text += "\n".join(key.strip() for key in keys.split(";")) + "\n"
    return text
