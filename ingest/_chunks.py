"""Open chunks: every sample of a shard, kept until its span of event time is over, then compressed per node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from fleetpulse.compression import Column, SeriesLabels, encode_chunk
from fleetpulse.features._points import BoolArray, ExponentialPoints, F64Array, HistogramPoints, I64Array, Points
from fleetpulse.features._series import Series, SeriesTable

SEAL_AFTER_NS = 60_000_000_000
"""A span is sealed when its node's newest sample is this far beyond it."""


CHUNK_BYTES_MAX = 900_000
"""A larger chunk is divided: a broker takes a record of a million bytes by default."""
LATER_PARTS = 500
"""First part number of the samples that came after sealing but inside the window."""


@dataclass(frozen=True)
class SealedChunk:
    """One of the parts of a span's samples; nearly always there is one, part 0."""

    cluster: str
    node: str
    span_start_ns: int
    part: int
    t_end_ns: int
    raw: bytes


@dataclass
class _Block:
    """Samples of one span in arrival order; column is series * COLUMNS + which number of the point it is."""

    column: I64Array
    time_ns: I64Array
    value: F64Array
    integer: I64Array
    is_int: BoolArray


COLUMNS = 1 << 20
"""A histogram point is stored as one column per bucket; a series has at most this many columns."""


@dataclass
class _Span:
    blocks: list[_Block] = field(default_factory=list)
    sealed_blocks: int = -1
    """How many of the blocks the sealed chunk held; -1 while it is open."""


class OpenChunks:
    """Collects samples per node and span; a pure function of the samples and their order, never of the clock.

    span_ns: length of a span, aligned to the epoch. window_ns: nothing older than this before a node's newest sample is
    accepted, so that a span is final once it lies that far back.
    """

    def __init__(self, table: SeriesTable, *, span_ns: int, window_ns: int) -> None:
        self._table = table
        self._span_ns = span_ns
        self._window_ns = window_ns
        self._spans: dict[int, dict[int, _Span]] = defaultdict(dict)
        self._columns: dict[int, dict[tuple[str, str], int]] = {}
        self._known_labels: dict[int, SeriesLabels] = {}
        self.samples = 0

    def add(self, points: Points, t_end_ns: Callable[[int], int]) -> None:
        """Take the points of one record. t_end_ns tells a node's newest accepted sample before this record, or 0."""
        for block, series in self._blocks(points):
            nodes = self._nodes_of(series)
            for node in np.unique(nodes):
                oldest = t_end_ns(int(node)) - self._window_ns
                mask = (nodes == node) & (block.time_ns > oldest)
                spans = block.time_ns // self._span_ns
                for span in np.unique(spans[mask]):
                    pick = mask & (spans == span)
                    held = self._spans[int(node)].setdefault(int(span), _Span())
                    held.blocks.append(
                        _Block(
                            block.column[pick],
                            block.time_ns[pick],
                            block.value[pick],
                            block.integer[pick],
                            block.is_int[pick],
                        )
                    )
                    self.samples += int(pick.sum())

    def seal(self, node: int, t_end_ns: int, *, whole: bool = False) -> list[SealedChunk]:
        """Chunks of the node that are due at t_end_ns; with whole, everything that is still open (the node is gone)."""
        due: list[SealedChunk] = []
        spans = self._spans.get(node)
        if spans is None:
            return due
        for number in sorted(spans):
            span = spans[number]
            end_ns = (number + 1) * self._span_ns
            if span.sealed_blocks < 0 and (whole or t_end_ns >= end_ns + SEAL_AFTER_NS):
                due += self._encode(node, number, 0, t_end_ns, _first_of_each(span.blocks))
                span.sealed_blocks = len(span.blocks)
            if span.sealed_blocks >= 0 and (whole or t_end_ns >= end_ns + self._window_ns):
                if len(span.blocks) > span.sealed_blocks:
                    later = _without(_first_of_each(span.blocks), _first_of_each(span.blocks[: span.sealed_blocks]))
                    if len(later.column):
                        due += self._encode(node, number, LATER_PARTS, t_end_ns, later)
                self.samples -= sum(len(block.column) for block in span.blocks)
                del spans[number]
        if not spans:
            del self._spans[node]
        return due

    def snapshot(self, node: int, t_end_ns: int) -> list[SealedChunk]:
        """The newest open span of the node as it stands, for readers that cannot wait for its end."""
        spans = self._spans.get(node)
        if not spans:
            return []
        number = max(spans)
        if spans[number].sealed_blocks >= 0:
            return []
        return self._encode(node, number, 0, t_end_ns, _first_of_each(spans[number].blocks))

    def columns(self, node: int) -> dict[int, list[Column]]:
        """Of each span that is held, by its number, the columns that its chunk is made of."""
        spans = self._spans.get(node, {})
        return {number: self._columns_of(_first_of_each(span.blocks)) for number, span in sorted(spans.items())}

    def forget(self, series: int) -> None:
        """The series index will be used for another series. Only called once its samples are sealed."""
        for place in (0, *self._columns.pop(series, {}).values()):
            self._known_labels.pop(series * COLUMNS + place, None)

    def _encode(self, node: int, span: int, part: int, t_end_ns: int, samples: _Block) -> list[SealedChunk]:
        name = self._table.nodes[node]
        assert name is not None, "a node is freed only after its chunks are sealed"
        columns = self._columns_of(samples)
        span_start_ns = span * self._span_ns
        raws = _within_limit(name.cluster, name.node, span_start_ns, self._span_ns, columns)
        return [
            SealedChunk(name.cluster, name.node, span_start_ns, number, t_end_ns, raw)
            for number, raw in enumerate(raws, part)
        ]

    def _columns_of(self, samples: _Block) -> list[Column]:
        columns = []
        starts = np.flatnonzero(np.diff(samples.column, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(samples.column)], strict=True):
            labels = self._labels(int(samples.column[start]))
            if labels is None:
                continue
            exact = bool(samples.is_int[start:stop].all())
            columns.append(
                Column(
                    labels=labels,
                    times_ns=samples.time_ns[start:stop],
                    values=samples.integer[start:stop] if exact else samples.value[start:stop],
                )
            )
        return columns

    def _labels(self, column: int) -> SeriesLabels | None:
        known = self._known_labels.get(column)
        if known is not None:
            return known
        entry = self._table.series[column // COLUMNS]
        if entry is None:
            return None
        labels = series_labels(entry)
        extra = column % COLUMNS
        if extra:
            names = {place: name for name, place in self._columns[column // COLUMNS].items()}
            suffix, label = names[extra]
            labels["__name__"] += suffix
            if label:
                key, _, value = label.partition("=")
                labels[key] = value
        made = self._known_labels[column] = SeriesLabels(labels)
        return made

    def _nodes_of(self, series: I64Array) -> I64Array:
        distinct, inverse = np.unique(series, return_inverse=True)
        nodes = np.empty(len(distinct), np.int64)
        for i, index in enumerate(distinct):
            entry = self._table.series[index]
            assert entry is not None, "points refer to live series"
            nodes[i] = entry.node_index
        return nodes[inverse]

    def _column(self, series: int, suffix: str, label: str) -> int:
        places = self._columns.setdefault(series, {})
        place = places.setdefault((suffix, label), len(places) + 1)
        return series * COLUMNS + place

    def _blocks(self, points: Points) -> Iterator[tuple[_Block, I64Array]]:
        numbers = points.numbers
        if len(numbers.series):
            series = numbers.series.astype(np.int64)
            yield (
                _Block(series * COLUMNS, numbers.time_ns, numbers.value, numbers.integer, numbers.is_int),
                series,
            )
        for block in (self._histogram_block(points.histograms), self._exponential_block(points.exponentials)):
            if len(block.column):
                yield block, block.column // COLUMNS

    def _histogram_block(self, points: HistogramPoints) -> _Block:
        rows = _Rows()
        for i, series in enumerate(points.series.tolist()):
            time_ns = int(points.time_ns[i])
            self._common(rows, series, time_ns, points, i)
            bounds = points.bounds[points.bound_at[i] : points.bound_at[i + 1]].tolist()
            counts = points.counts[points.count_at[i] : points.count_at[i + 1]].tolist()
            for bound, count in zip([*map(repr, bounds), "+Inf"], counts, strict=False):
                rows.add_int(self._column(series, ".bucket", f"le={bound}"), time_ns, count)
        return rows.block()

    def _exponential_block(self, points: ExponentialPoints) -> _Block:
        rows = _Rows()
        for i, series in enumerate(points.series.tolist()):
            time_ns = int(points.time_ns[i])
            self._common(rows, series, time_ns, points, i)
            rows.add_int(self._column(series, ".zero_count", ""), time_ns, int(points.zero_count[i]))
            scale = int(points.scale[i])
            for sign, offset, at, counts in (
                ("", points.positive_offset, points.positive_at, points.positive),
                ("-", points.negative_offset, points.negative_at, points.negative),
            ):
                for k, count in enumerate(counts[at[i] : at[i + 1]].tolist(), int(offset[i])):
                    column = self._column(series, ".bucket", f"exponential_bucket={sign}{scale}:{k}")
                    rows.add_int(column, time_ns, count)
        return rows.block()

    def _common(
        self, rows: _Rows, series: int, time_ns: int, points: HistogramPoints | ExponentialPoints, i: int
    ) -> None:
        rows.add_int(self._column(series, ".count", ""), time_ns, int(points.count[i]))
        for suffix, values in ((".sum", points.total), (".min", points.low), (".max", points.high)):
            value = float(values[i])
            if value == value:
                rows.add_float(self._column(series, suffix, ""), time_ns, value)


class _Rows:
    def __init__(self) -> None:
        self._rows: list[tuple[int, int, float, int, bool]] = []

    def add_int(self, column: int, time_ns: int, value: int) -> None:
        self._rows.append((column, time_ns, float(value), value, True))

    def add_float(self, column: int, time_ns: int, value: float) -> None:
        self._rows.append((column, time_ns, value, 0, False))

    def block(self) -> _Block:
        columns = list(zip(*self._rows, strict=True)) if self._rows else [(), (), (), (), ()]
        return _Block(
            np.array(columns[0], np.int64),
            np.array(columns[1], np.int64),
            np.array(columns[2], np.float64),
            np.array(columns[3], np.int64),
            np.array(columns[4], np.bool_),
        )


def _within_limit(cluster: str, node: str, span_start_ns: int, span_ns: int, columns: list[Column]) -> list[bytes]:
    """The columns as one chunk, or as several when it would be too large. A function of the columns alone."""
    raw = encode_chunk(cluster, node, span_start_ns, span_ns, columns)
    if len(raw) <= CHUNK_BYTES_MAX:
        return [raw]
    if len(columns) > 1:
        columns = sorted(columns, key=lambda column: sorted(column.labels.items()))
        halves = [columns[: len(columns) // 2], columns[len(columns) // 2 :]]
    else:
        (only,) = columns
        middle = len(only.times_ns) // 2
        halves = [
            [Column(labels=only.labels, times_ns=only.times_ns[part], values=only.values[part])]
            for part in (slice(None, middle), slice(middle, None))
        ]
    return [raw for half in halves for raw in _within_limit(cluster, node, span_start_ns, span_ns, half)]


def series_labels(series: Series) -> dict[str, str]:
    """Labels of a series in a chunk: `__name__`, point attributes as they are, resource attributes as resource.X."""
    identity = series.identity
    labels = {f"resource.{name}": str(value) for name, value in identity.resource}
    labels |= {name: str(value) for name, value in identity.attributes}
    labels["__name__"] = identity.metric
    if identity.unit:
        labels["__unit__"] = identity.unit
    labels["__kind__"] = f"{identity.kind.name.lower()}"
    if identity.monotonic:
        labels["__monotonic__"] = identity.temporality.name.lower()
    if identity.scope:
        labels["__scope__"] = identity.scope
    return labels


def _first_of_each(blocks: list[_Block]) -> _Block:
    """All samples by column and time, of repeated ones the first that arrived."""
    column = np.concatenate([block.column for block in blocks])
    time_ns = np.concatenate([block.time_ns for block in blocks])
    order = np.lexsort((time_ns, column))
    column, time_ns = column[order], time_ns[order]
    first = np.ones(len(column), np.bool_)
    first[1:] = (column[1:] != column[:-1]) | (time_ns[1:] != time_ns[:-1])
    order = order[first]
    return _Block(
        column[first],
        time_ns[first],
        np.concatenate([block.value for block in blocks])[order],
        np.concatenate([block.integer for block in blocks])[order],
        np.concatenate([block.is_int for block in blocks])[order],
    )


def _without(all_samples: _Block, held: _Block) -> _Block:
    """Those of all_samples whose (column, time) is not in held."""
    known = set(zip(held.column.tolist(), held.time_ns.tolist(), strict=True))
    pairs = zip(all_samples.column.tolist(), all_samples.time_ns.tolist(), strict=True)
    new = np.fromiter((pair not in known for pair in pairs), np.bool_, len(all_samples.column))
    return _Block(
        all_samples.column[new],
        all_samples.time_ns[new],
        all_samples.value[new],
        all_samples.integer[new],
        all_samples.is_int[new],
    )
