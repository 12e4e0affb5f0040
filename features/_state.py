"""The state of a shard: points of records in, the vectors of its nodes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._catalog import Catalog
from fleetpulse.features._combining import hold_of
from fleetpulse.features._distributions import Explicit, Exponential, Side
from fleetpulse.features._evaluate import ENOUGH, MISSING, Answers, evaluate
from fleetpulse.features._facts import Shard
from fleetpulse.features._histogram_features import HistogramFeatures, Reading
from fleetpulse.features._histograms import HistogramSeries, Point
from fleetpulse.features._plans import Plans
from fleetpulse.features._points import ExponentialPoints, F64Array, HistogramPoints, I64Array, Points
from fleetpulse.features._program import Program, plan_node
from fleetpulse.features._readings import LONG_NS
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
from fleetpulse.features._timelines import NONE
from fleetpulse.features._vector import AGE_UNKNOWN_MS, NodeVector, Status

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
_DAY_S = 86_400
_BATCH = 1_024
"""Vectors that are made in one go: enough to hide what a call costs, few enough for the processor's cache."""

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
    What is worked out for a vector is kept for the node's next one, where samples since then leave it as it was;
    without shortcuts all is worked out anew, to the same bits.
    """

    def __init__(self, catalog: Catalog, table: SeriesTable, *, look_back_ns: int, shortcuts: bool = True) -> None:
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
        self._choices: list[tuple[int, ...]] = []
        self._choice_of: dict[tuple[int, ...], int] = {}
        self._clock = NodeClock.empty(64)
        self._stamps: dict[int, tuple[int, int]] = {}
        self._plans = Plans(self._program, len(catalog.sets))
        self._histogram_plans: dict[int, dict[str, list[int]]] = {}
        self.shortcuts = shortcuts

    def add(self, points: Points, *, partition: int, offset: int) -> Added:
        """Take one record's points. Their series must be in the table."""
        self._samples.hold(len(self._table.series), len(self._table.nodes))
        self._clock.hold(len(self._table.nodes))
        self._plans.hold(len(self._table.nodes))
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
        return self.vectors([node_index])[0]

    def vectors(self, node_indexes: Sequence[int]) -> list[NodeVector]:
        """The vectors of these nodes, each of which has had a sample, in this order. Cheaper than one by one."""
        found: list[NodeVector] = []
        for start in range(0, len(node_indexes), _BATCH):
            found += self._batch(node_indexes[start : start + _BATCH])
        return found

    def _batch(self, nodes: Sequence[int]) -> list[NodeVector]:
        for index in nodes:
            if not self._plans.laid[index]:
                self._lay_plan(index)
        chosen = np.array(nodes, np.int64)
        t_end = self._clock.t_end_ns[chosen]
        assert (t_end > 0).all(), "a node has a vector once it has had a sample"
        answers = self._evaluate(chosen)
        value, status, newest, measure, pace, covered, _ = answers
        choices = np.where(status[:, self._choosers] != MISSING, measure[:, self._choosers], NONE)
        marks = self._fill_histograms(nodes, answers) if self._histogram_plans else {}
        self._tell_time(t_end, value, status, newest)
        missing = np.isnan(value)
        status[missing] = Status.MISSING
        values = value.astype(np.float32)
        age_ms = np.where(missing, AGE_UNKNOWN_MS, (t_end[:, None] - newest) // NS_PER_MS).astype(np.uint32)
        covered_ms = np.minimum(covered, LONG_NS) // NS_PER_MS
        pace_ms = np.rint(pace / NS_PER_MS).astype(np.int64)
        told: dict[bytes, dict[str, str]] = {}
        vectors = []
        rows = zip(nodes, t_end.tolist(), covered_ms.tolist(), pace_ms.tolist(), strict=True)
        for i, (index, t_end_ns, window_covered_ms, interval_ms) in enumerate(rows):
            node = self._table.nodes[index]
            assert node is not None, "the table knows every node that has a series"
            key = choices[i].tobytes()
            sources = told.get(key)
            if sources is None:
                sources = told[key] = self._sources(choices[i])
            partition, offset = self._stamps[index]
            vectors.append(
                NodeVector(
                    node.node,
                    node.cluster,
                    self._table.pools.get(index, "default"),
                    self._catalog.schema_hash,
                    t_end_ns,
                    partition,
                    offset,
                    window_covered_ms,
                    interval_ms,
                    values[i],
                    status[i],
                    age_ms[i],
                    sources | marks[i] if i in marks else dict(sources),
                )
            )
        return vectors

    def _sources(self, choices: I64Array) -> dict[str, str]:
        """Which measure each feature that chooses has, by name; NONE for those without a value."""
        sources = {}
        for column, measure in zip(self._choosers, choices.tolist(), strict=True):
            if measure != NONE:
                feature = self._catalog.features[column]
                sources[feature.name] = feature.measures[measure].name
        return sources

    def forget_silent(self) -> list[int]:
        """Drop series that have been silent for longer than the look-back of their node's event time.

        Returns their indexes; the caller removes them from the table. Vectors do not depend on when this is called.
        """
        known = np.flatnonzero(self._samples.series["kind"] != UNKNOWN)
        newest = self._samples.series["newest_ns"][known]
        t_end = self._clock.t_end_ns[self._samples.series["node"][known]]
        # A series whose first sample was late has none: it is as silent as its node has been alive.
        silent = known[(t_end > 0) & (t_end - newest > self._look_back_ns)]
        for series in silent:
            self._forget(int(series))
        return [int(series) for series in silent]

    def forget_node(self, node_index: int) -> None:
        """Drop everything of a node; the caller removes its series from the table."""
        all_series = self._samples.series
        for series in np.flatnonzero((all_series["kind"] != UNKNOWN) & (all_series["node"] == node_index)):
            self._forget(int(series))
        if node_index < len(self._clock.t_end_ns):
            self._clock.t_end_ns[node_index] = self._clock.t_next_ns[node_index] = 0
        self._stamps.pop(node_index, None)

    def _forget(self, index: int) -> None:
        one = self._samples.series[index]
        if one["kind"] != UNUSED:
            self._plans.lift(int(one["node"]))
        self._samples.leave(index)
        self._histograms.pop(index, None)

    def _meet(self, index: int) -> None:
        """Enter a series that is new to the state: decide once which features use it."""
        series = self._table.series[index]
        assert series is not None, "the decoder enters a series before it hands over its points"
        sets = self._catalog.select(series.source)
        delta = series.source.temporality is Temporality.DELTA
        kind = UNUSED
        if sets:
            kind = DISTRIBUTION if self._catalog.sets[sets[0]].histogram else NUMBER
            self._plans.lift(series.node_index)
            if kind == DISTRIBUTION:
                self._histograms[index] = HistogramSeries(delta, series.source.scale)
        chosen = self._choice_of.setdefault(sets, len(self._choices))
        if chosen == len(self._choices):
            self._choices.append(sets)
        self._samples.enter(index, kind, series.node_index, delta=delta, chosen=chosen)

    def _add_histograms(self, points: _P, point_of: Callable[[_P, int], Point]) -> None:
        clock, samples, series = self._clock, self._samples, self._samples.series
        for i, index in enumerate(points.series.tolist()):
            if series[index]["kind"] == UNKNOWN:
                self._meet(index)
            node, time_ns = int(series[index]["node"]), int(points.time_ns[i])
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
                series[index]["newest_ns"] = max(int(series[index]["newest_ns"]), time_ns)

    def _lay_plan(self, node: int) -> None:
        """Sort a node's used series into the sets of the catalog."""
        all_series = self._samples.series
        chosen = []
        for index in self._table.series_by_node[node]:
            series = self._table.series[index]
            if series is not None and index < len(all_series) and all_series[index]["kind"] in (NUMBER, DISTRIBUTION):
                chosen.append((index, series, self._choices[all_series[index]["chosen"]]))
        plan, histograms = plan_node(self._catalog, chosen)
        self._plans.lay(node, plan)
        self._histogram_plans.pop(node, None)
        if histograms:
            self._histogram_plans[node] = histograms

    def _evaluate(self, nodes: I64Array) -> Answers:
        samples, plans = self._samples, self._plans
        answers = Answers.empty(len(nodes), len(self._catalog.features))
        shard = Shard(
            samples.series, samples.lines, samples.first_line, samples.times.columns[0], samples.starts.columns[0],
            samples.integers, samples.floats, samples.flags,
        )  # fmt: skip
        rows = np.arange(len(nodes))
        while len(rows):
            answers.unkept[:] = False
            evaluate(
                nodes, rows, self._clock.t_end_ns, self._look_back_ns, shard, plans.arrays, self._program,
                plans.kept, plans.kept_values, self.shortcuts, answers,
            )  # fmt: skip
            rows = np.flatnonzero(answers.unkept)
            for node in nodes[rows]:
                plans.make_room(int(node))
        return answers

    def _fill_histograms(self, nodes: Sequence[int], answers: Answers) -> dict[int, dict[str, str]]:
        """Fill the columns that rest on histograms; returns what to publish beside them, by row."""
        marks: dict[int, dict[str, str]] = {}
        for i, node in enumerate(nodes):
            plan = self._histogram_plans.get(node)
            if plan is None:
                continue
            t_end = int(self._clock.t_end_ns[node])
            oldest = t_end - self._look_back_ns
            for reading in self._histogram_features.read(plan, self._histograms, t_end, oldest):
                column = reading.column
                pace = answers.pace[i] = answers.pace[i] or reading.interval_ns
                answers.covered[i] = max(int(answers.covered[i]), reading.covered_ns)
                answers.value[i, column], answers.newest[i, column] = reading.value, reading.newest_ns
                answers.status[i, column] = self._status(reading, t_end, int(pace))
                if reading.mark:
                    marks.setdefault(i, {})[self._catalog.features[column].name] = reading.mark
        return marks

    def _status(self, reading: Reading, t_end: int, pace: int) -> Status:
        if t_end - reading.newest_ns > hold_of(reading.interval_ns or pace):
            return Status.STALE
        window_ns = self._catalog.features[reading.column].window_ns
        if reading.flawed or reading.covered_ns < ENOUGH * window_ns:
            return Status.PARTIAL
        return Status.OK

    def _tell_time(self, t_end: I64Array, value: F64Array, status: NDArray[np.uint8], newest: I64Array) -> None:
        """Fill the columns of the time of day, in UTC: the zone of the cluster is not known here."""
        second, row = np.unique(t_end // NS_PER_S % _DAY_S, return_inverse=True)
        angle = 2.0 * math.pi * second / _DAY_S
        told = {
            "time_of_day_sine": [math.sin(a) for a in angle.tolist()],
            "time_of_day_cosine": [math.cos(a) for a in angle.tolist()],
        }
        for column, context in self._contexts:
            if context in told:
                value[:, column] = np.array(told[context])[row]
                status[:, column], newest[:, column] = Status.OK, t_end


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
