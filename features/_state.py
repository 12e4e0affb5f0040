"""The state of a shard: points of records in, the vectors of its nodes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._catalog import Catalog
from fleetpulse.features._combining import hold_of
from fleetpulse.features._distributions import Explicit, Exponential, Side
from fleetpulse.features._evaluate import ENOUGH, evaluate, read_members
from fleetpulse.features._histogram_features import HistogramFeatures, Reading
from fleetpulse.features._histograms import HistogramSeries, Point
from fleetpulse.features._points import ExponentialPoints, F64Array, HistogramPoints, I64Array, Points
from fleetpulse.features._program import LONG_NS, NodePlan, Program
from fleetpulse.features._samples import (
    ACCEPTED,
    DISTRIBUTION,
    DUPLICATES,
    LATE,
    NUMBER,
    OUT_OF_ORDER,
    UNKNOWN,
    UNUSED,
    NodeClock,
    Samples,
)
from fleetpulse.features._series import SeriesTable, Temporality
from fleetpulse.features._vector import AGE_UNKNOWN_MS, NodeVector, Status

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
_DAY_S = 86_400

_P = TypeVar("_P", HistogramPoints, ExponentialPoints)


@dataclass(frozen=True)
class Added:
    """What became of one record's points: accepted + duplicates + late is their number.

    out_of_order: those of the accepted that were older than their series' newest. An increment that overlaps an
    earlier one counts among the duplicates. dirty: indexes of nodes with an accepted sample.
    """

    accepted: int
    duplicates: int
    out_of_order: int
    late: int
    dirty: set[int]


class FleetState:
    """Series state and vectors of the nodes of one partition. Pure and synchronous.

    A node's t_end is its newest accepted sample, of any series. Its window is (t_end - 300 s, t_end]. A sample that is
    300 s or more older than the node's t_end was when its record arrived is late: it is counted and changes nothing. A
    repeated (series, time) changes nothing, whatever its value.
    A vector is a function of the samples accepted so far, not of their order or batching. Samples older than
    look_back_ns before t_end play no part in it, so that a state rebuilt from that much of the log gives the same bits.
    """

    def __init__(self, catalog: Catalog, table: SeriesTable, *, look_back_ns: int) -> None:
        assert look_back_ns > LONG_NS, "the look-back has to be longer than the window"
        self._catalog = catalog
        self._table = table
        self._look_back_ns = look_back_ns
        self._program = Program.of(catalog)
        self._histogram_features = HistogramFeatures(catalog)
        self._choosers = [i for i, feature in enumerate(catalog.features) if feature.chooses]
        self._contexts = [(i, feature.context) for i, feature in enumerate(catalog.features) if feature.context]
        self._samples = Samples()
        self._histograms: dict[int, HistogramSeries] = {}
        self._sets: dict[int, tuple[int, ...]] = {}
        self._clock = NodeClock.empty(64)
        self._stamps: dict[int, tuple[int, int]] = {}
        self._used: dict[int, set[int]] = {}
        self._plans: dict[int, NodePlan] = {}
        self._scratch = np.zeros((4, 1024), np.int64)

    def add(self, points: Points, *, partition: int, offset: int) -> Added:
        """Take one record's points. Their series must be in the table."""
        self._samples.hold(len(self._table.series))
        self._clock.hold(len(self._table.nodes))
        clock = self._clock
        clock.begin()
        self._samples.add(points.numbers, clock, LONG_NS, self._meet)
        self._add_histograms(points.histograms, explicit_point)
        self._add_histograms(points.exponentials, exponential_point)
        dirty = clock.settle()
        for node in dirty:
            self._stamps[node] = (partition, offset)
        counts = clock.counts
        return Added(
            accepted=int(counts[ACCEPTED] + counts[OUT_OF_ORDER]),
            duplicates=int(counts[DUPLICATES]),
            out_of_order=int(counts[OUT_OF_ORDER]),
            late=int(counts[LATE]),
            dirty=set(dirty),
        )

    def t_end_ns(self, node_index: int) -> int:
        """Time of the node's newest accepted sample; 0 before the first."""
        return int(self._clock.t_end_ns[node_index]) if node_index < len(self._clock.t_end_ns) else 0

    def vector(self, node_index: int) -> NodeVector:
        """The node's vector as it stands, stamped with its last record that had an accepted sample."""
        t_end = self.t_end_ns(node_index)
        node = self._table.nodes[node_index]
        assert node is not None, "the table knows every node that has a series"
        assert t_end > 0, "a node has a vector once it has had a sample"
        plan = self._plan(node_index)
        value, status, newest, measure, pace, heard = self._evaluate(plan, t_end)
        sources = {}
        for column in self._choosers:
            if status[column]:
                feature = self._catalog.features[column]
                sources[feature.name] = feature.measures[measure[column]].name
        for reading in self._read_histograms(plan, t_end):
            column = reading.column
            pace = pace or reading.interval_ns
            heard = max(heard, reading.covered_ns)
            value[column], newest[column] = reading.value, reading.newest_ns
            status[column] = self._status(reading, t_end, pace)
            if reading.mark:
                sources[self._catalog.features[column].name] = reading.mark
        self._tell_time(t_end, value, status, newest)
        missing = np.isnan(value)
        status[missing] = Status.MISSING
        partition, offset = self._stamps[node_index]
        return NodeVector(
            node=node.node,
            cluster=node.cluster,
            pool=self._table.pools.get(node_index, "default"),
            schema_hash=self._catalog.schema_hash,
            t_end_ns=t_end,
            partition=partition,
            offset=offset,
            window_covered_ms=min(heard, LONG_NS) // NS_PER_MS,
            scrape_interval_ms=round(pace / NS_PER_MS),
            values=value.astype(np.float32),
            status=status,
            age_ms=np.where(missing, AGE_UNKNOWN_MS, (t_end - newest) // NS_PER_MS).astype(np.uint32),
            sources=sources,
        )

    def forget_silent(self) -> list[int]:
        """Drop series that have been silent for longer than the look-back of their node's event time.

        Returns their indexes; the caller removes them from the table. Vectors do not depend on when this is called.
        """
        known = np.flatnonzero(self._samples.kind != UNKNOWN)
        newest = self._samples.newest_ns[known]
        t_end = self._clock.t_end_ns[self._samples.node[known]]
        # A series whose first sample was late has none: it is as silent as its node has been alive.
        silent = known[(t_end > 0) & (t_end - newest > self._look_back_ns)]
        for series in silent:
            self._forget(int(series))
        return [int(series) for series in silent]

    def forget_node(self, node_index: int) -> None:
        """Drop everything of a node; the caller removes its series from the table."""
        for series in np.flatnonzero((self._samples.kind != UNKNOWN) & (self._samples.node == node_index)):
            self._forget(int(series))
        if node_index < len(self._clock.t_end_ns):
            self._clock.t_end_ns[node_index] = self._clock.t_next_ns[node_index] = 0
        self._stamps.pop(node_index, None)

    def _forget(self, series: int) -> None:
        node = int(self._samples.node[series])
        self._samples.leave(series)
        self._histograms.pop(series, None)
        self._sets.pop(series, None)
        if series in self._used.get(node, ()):
            self._used[node].discard(series)
            self._plans.pop(node, None)

    def _meet(self, index: int) -> None:
        """Enter a series that is new to the state: decide once which features use it."""
        series = self._table.series[index]
        assert series is not None, "the decoder enters a series before it hands over its points"
        sets = self._catalog.select(series.source)
        delta = series.source.temporality is Temporality.DELTA
        kind = UNUSED
        if sets:
            kind = DISTRIBUTION if self._catalog.sets[sets[0]].histogram else NUMBER
            self._sets[index] = sets
            self._used.setdefault(series.node_index, set()).add(index)
            self._plans.pop(series.node_index, None)
            if kind == DISTRIBUTION:
                self._histograms[index] = HistogramSeries(delta, series.source.scale)
        self._samples.enter(index, kind, series.node_index, delta=delta)

    def _add_histograms(self, points: _P, point_of: Callable[[_P, int], Point]) -> None:
        clock, samples = self._clock, self._samples
        for i, index in enumerate(points.series.tolist()):
            if samples.kind[index] == UNKNOWN:
                self._meet(index)
            node, time_ns = int(samples.node[index]), int(points.time_ns[i])
            if clock.is_late(node, time_ns, LONG_NS):
                clock.counts[LATE] += 1
                continue
            if index in self._histograms:
                outcome = self._histograms[index].add(point_of(points, i), int(clock.t_end_ns[node]) - LONG_NS)
            else:
                outcome = samples.remember(index, time_ns)
            clock.counts[outcome] += 1
            if outcome != DUPLICATES:
                clock.accept(node, time_ns)
                samples.newest_ns[index] = max(int(samples.newest_ns[index]), time_ns)

    def _plan(self, node_index: int) -> NodePlan:
        plan = self._plans.get(node_index)
        if plan is None:
            entries = ((index, self._table.series[index]) for index in self._used.get(node_index, ()))
            plan = NodePlan.of(
                self._catalog, [(i, series, self._sets[i]) for i, series in entries if series is not None]
            )
            self._plans[node_index] = plan
        return plan

    def _evaluate(self, plan: NodePlan, t_end: int):  # type: ignore[no-untyped-def]
        samples, arrays, program = self._samples, self._samples.arrays, self._program
        room = int(samples.length[plan.member_series].sum()) + len(plan.member_series)
        if room > self._scratch.shape[1]:
            self._scratch = np.zeros((4, 2 * room), np.int64)
        time, begin = self._scratch[0], self._scratch[1]
        value, step = self._scratch[2].view(np.float64), self._scratch[3].view(np.float64)
        spans, speaks, elapsed, origin, total = read_members(
            arrays.times, arrays.starts, arrays.integers, arrays.floats, arrays.is_int, samples.offset, samples.length,
            plan.member_series, plan.member_mode, plan.member_scale,
            t_end, t_end - self._look_back_ns, time, begin, value, step,
        )  # fmt: skip
        return evaluate(
            spans, speaks, elapsed, origin, total, time, begin, value,
            plan.member_mode, plan.set_at, plan.entry_member, plan.entry_group, plan.entry_slot,
            program.signals, program.at_zero, program.uses, program.argument,
            program.set_combine, program.set_across, program.set_value, program.bounds, t_end,
        )  # fmt: skip

    def _read_histograms(self, plan: NodePlan, t_end: int) -> Iterator[Reading]:
        if not plan.histograms:
            return iter(())
        return self._histogram_features.read(plan.histograms, self._histograms, t_end, t_end - self._look_back_ns)

    def _status(self, reading: Reading, t_end: int, pace: int) -> Status:
        if t_end - reading.newest_ns > hold_of(reading.interval_ns or pace):
            return Status.STALE
        window_ns = self._catalog.features[reading.column].window_ns
        if reading.flawed or reading.covered_ns < ENOUGH * window_ns:
            return Status.PARTIAL
        return Status.OK

    def _tell_time(self, t_end: int, value: F64Array, status: NDArray[np.uint8], newest: I64Array) -> None:
        """Fill the columns of the time of day, in UTC: the zone of the cluster is not known here."""
        angle = 2.0 * math.pi * (t_end // NS_PER_S % _DAY_S) / _DAY_S
        told = {"time_of_day_sine": math.sin(angle), "time_of_day_cosine": math.cos(angle)}
        for column, context in self._contexts:
            if context in told:
                value[column], status[column], newest[column] = told[context], Status.OK, t_end


def explicit_point(points: HistogramPoints, i: int) -> Point:
    """Point i, with copies of its buckets. One without buckets has a single one that holds everything."""
    bounds = points.bounds[points.bound_at[i] : points.bound_at[i + 1]].copy()
    counts = points.counts[points.count_at[i] : points.count_at[i + 1]].copy()
    if not len(counts):
        counts = points.count[i : i + 1].copy()
    return Point(
        time_ns=int(points.time_ns[i]),
        start_ns=int(points.start_ns[i]),
        count=int(points.count[i]),
        distribution=Explicit(bounds, counts),
        low=float(points.low[i]),
        high=float(points.high[i]),
    )


def exponential_point(points: ExponentialPoints, i: int) -> Point:
    """Point i, with copies of its buckets."""
    positive = points.positive[points.positive_at[i] : points.positive_at[i + 1]].copy()
    negative = points.negative[points.negative_at[i] : points.negative_at[i + 1]].copy()
    return Point(
        time_ns=int(points.time_ns[i]),
        start_ns=int(points.start_ns[i]),
        count=int(points.count[i]),
        distribution=Exponential(
            scale=int(points.scale[i]),
            zero_count=int(points.zero_count[i]),
            zero_threshold=float(points.zero_threshold[i]),
            positive=Side(int(points.positive_offset[i]), positive),
            negative=Side(int(points.negative_offset[i]), negative),
        ),
        low=float(points.low[i]),
        high=float(points.high[i]),
    )
