"""The recent points of histogram series, and what they say was observed within a window."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from fleetpulse.features._distributions import Distribution, Explicit, Exponential, merged_explicit, merged_exponential
from fleetpulse.features._quantiles import Intervals
from fleetpulse.features._readings import GAPS_FOR_INTERVAL, HOLE, typical_gap
from fleetpulse.features._samples import ACCEPTED, DUPLICATES, OUT_OF_ORDER

BASELINE, FULL, STEP, REPEATED, INVALID = range(5)
"""What a point adds: nothing (it only starts something), all it holds, what came since the point before it, nothing
(it overlaps that point), nothing (its count and its buckets disagree)."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a histogram series. low, high: its least and largest observation, NaN where absent.

    broken: count and buckets disagree.
    """

    time_ns: int
    start_ns: int
    count: int
    distribution: Distribution
    low: float
    high: float

    @property
    def broken(self) -> bool:
        return self.count < 0 or self.distribution.count != self.count

    def in_unit(self, factor: float) -> Point:
        """With bounds, least and largest multiplied. Exponential buckets stay: their edges are multiplied when read."""
        if factor == 1.0 or isinstance(self.distribution, Exponential):
            return self
        scaled = Explicit(self.distribution.bounds * factor, self.distribution.counts)
        return Point(self.time_ns, self.start_ns, self.count, scaled, self.low * factor, self.high * factor)


@dataclass
class Window:
    """What one series' window holds. origin_ns: when the first of the intervals began, -1 without one."""

    observed: list[Distribution] = field(default_factory=list)
    least: float = np.inf
    most: float = -np.inf
    count: int = 0
    elapsed_ns: int = 0
    origin_ns: int = -1
    newest_ns: int = -1
    covered_ns: int = 0
    interval_ns: int = 0
    broken: bool = False
    factor: float = 1.0


class HistogramSeries:
    """Points of one series in the order of time, no time twice; how[i] says what point i adds after point i - 1."""

    def __init__(self, delta: bool, factor: float) -> None:
        """factor turns the series' unit into the canonical one."""
        self.delta = delta
        self.factor = factor
        self.times: list[int] = []
        self.points: list[Point] = []
        self.how: list[int] = []

    def add(self, point: Point, horizon_ns: int) -> int:
        """ACCEPTED, OUT_OF_ORDER or DUPLICATES. The caller has refused late points: those up to the horizon."""
        at = bisect_left(self.times, point.time_ns)
        if at < len(self.times) and self.times[at] == point.time_ns:
            return DUPLICATES
        self.times.insert(at, point.time_ns)
        self.points.insert(at, self._sharing_bounds(point.in_unit(self.factor)))
        self.how.insert(at, BASELINE)
        for i in range(at, len(self.points)):
            self.how[i] = self._judge(i)
            if i > at and self.how[i] != INVALID:
                break
        outcome = ACCEPTED if at == len(self.times) - 1 else OUT_OF_ORDER
        self._forget_before(horizon_ns)
        return outcome

    def _sharing_bounds(self, point: Point) -> Point:
        """The point with the bounds array of the newest one where they are equal: less to hold and to compare."""
        newest = self.points[-1].distribution if self.points else None
        own = point.distribution
        if isinstance(own, Explicit) and isinstance(newest, Explicit) and own.same_layout(newest):
            return replace(point, distribution=Explicit(newest.bounds, own.counts))
        return point

    def _forget_before(self, horizon_ns: int) -> None:
        """Drop what no window that starts at the horizon or later needs: all before the last good point up to it."""
        base = self._baseline(bisect_right(self.times, horizon_ns), -1)
        if base > 0:
            del self.times[:base], self.points[:base], self.how[:base]

    def window(self, t0_ns: int, t_end_ns: int, oldest_ns: int) -> Window:
        """What was observed in (t0_ns, t_end_ns]. A point up to oldest_ns is forgotten and no baseline."""
        found = Window(factor=self.factor)
        first = bisect_right(self.times, t0_ns)
        base = self._baseline(first, oldest_ns)
        found.broken = INVALID in self.how[first:]
        good = [i for i in range(first, len(self.times)) if self.how[i] != INVALID]
        if not good:
            return found
        newest = ([base] if base >= 0 else []) + good
        recent = np.array([self.times[i] for i in newest[-GAPS_FOR_INTERVAL - 1 :]], np.int64)
        found.interval_ns = int(typical_gap(recent, 0, len(recent)))
        found.newest_ns = self.times[good[-1]]
        if self.delta:
            self._collect_delta(found, base, good, t0_ns)
        else:
            self._collect_cumulative(found, base, good, t0_ns)
        if t_end_ns - found.newest_ns <= HOLE * found.interval_ns:
            found.covered_ns += t_end_ns - found.newest_ns
        found.count = sum(part.count for part in found.observed)
        return found

    def _collect_cumulative(self, found: Window, base: int, good: Sequence[int], t0_ns: int) -> None:
        """Differences over the runs between resets: within a run they telescope to last minus first."""
        breaks = [k for k, i in enumerate(good) if self.how[i] != STEP or (k == 0 and base < 0)]
        run_start = base
        found.origin_ns = self.times[base] if base >= 0 else -1
        for k in breaks:
            i = good[k]
            previous = good[k - 1] if k else base
            self._close_run(found, run_start, previous, t0_ns)
            point = self.points[i]
            how, begin = self.how[i], self.times[previous] if previous >= 0 else point.time_ns
            if previous < 0:
                own = t0_ns < point.start_ns < point.time_ns
                how, begin = (FULL, point.start_ns) if own else (BASELINE, point.time_ns)
            if how == FULL:
                found.observed.append(point.distribution)
                found.elapsed_ns += point.time_ns - begin
                found.covered_ns += point.time_ns - max(begin, t0_ns)
            if k == 0:
                found.origin_ns = begin if how == FULL else point.time_ns
            run_start = i
        self._close_run(found, run_start, good[-1], t0_ns)

    def _close_run(self, found: Window, run_start: int, last: int, t0_ns: int) -> None:
        if run_start < 0 or last <= run_start:
            return
        found.elapsed_ns += self.times[last] - self.times[run_start]
        found.covered_ns += self.times[last] - max(self.times[run_start], t0_ns)
        step = self.points[last].distribution.minus(self.points[run_start].distribution)
        if step is not None:
            found.observed.append(step)
            return
        # A point between them of a coarser scale hid that a bucket lost counts: add up what each step shows.
        run = [point.distribution for i, point in enumerate(self.points) if run_start <= i <= last and not point.broken]
        steps = [later.minus(earlier) for earlier, later in pairwise(run)]
        found.observed += [step for step in steps if step is not None]

    def _collect_delta(self, found: Window, base: int, good: Sequence[int], t0_ns: int) -> None:
        previous_ns = self.times[base] if base >= 0 else -1
        bounded = True
        explicit: list[Explicit] = []
        exponential: list[Exponential] = []
        for i in good:
            point = self.points[i]
            if previous_ns >= 0 and 0 < point.start_ns < previous_ns:
                continue
            begin = previous_ns if previous_ns >= 0 else point.time_ns
            if 0 < point.start_ns <= point.time_ns:
                begin = point.start_ns
            if isinstance(point.distribution, Explicit):
                explicit.append(point.distribution)
            else:
                exponential.append(point.distribution)
            if point.count:
                bounded = bounded and not math.isnan(point.low + point.high)
                found.least, found.most = min(found.least, point.low), max(found.most, point.high)
            found.origin_ns = begin if found.origin_ns < 0 else found.origin_ns
            found.elapsed_ns += point.time_ns - begin
            found.covered_ns += point.time_ns - max(begin, t0_ns)
            previous_ns = point.time_ns
        found.observed += merged_explicit(explicit)
        if exponential:
            found.observed.append(merged_exponential(exponential))
        if not bounded:
            found.least, found.most = math.inf, -math.inf

    def _baseline(self, first: int, oldest_ns: int) -> int:
        """Place of the last good point before place `first` that is newer than oldest_ns; -1 when there is none."""
        for i in range(first - 1, -1, -1):
            if self.times[i] <= oldest_ns:
                break
            if self.how[i] != INVALID:
                return i
        return -1

    def _judge(self, i: int) -> int:
        """What point i adds after the good point before it."""
        point = self.points[i]
        if point.broken:
            return INVALID
        base = self._baseline(i, -1)
        if self.delta or base < 0 or point.start_ns >= point.time_ns:
            return BASELINE
        before = self.points[base]
        if point.start_ns > before.time_ns:
            return FULL
        if not point.distribution.same_layout(before.distribution):
            return FULL if point.count < before.count else BASELINE
        return FULL if point.distribution.minus(before.distribution) is None else STEP


@dataclass(frozen=True)
class NodeWindow:
    """All histograms of one set on one node, within a window.

    intervals: None without a distribution. flaw: what was left out of it, or why there is none: "no observations",
    "one bucket only", "count differs from buckets"; "" otherwise.
    """

    intervals: Intervals | None
    flaw: str
    count: int
    rate: float
    newest_ns: int
    covered_ns: int
    interval_ns: int


def merge(windows: Iterable[Window], t0_ns: int) -> NodeWindow | None:
    """The node's distribution from its series', in the order of their keys; None when none has a point in the window.

    Exponential histograms, and explicit ones of one layout, are merged exactly. Different explicit layouts are summed
    as piecewise-linear distributions.
    """
    heard = [window for window in windows if window.newest_ns >= 0 or window.broken]
    if not heard:
        return None
    good = [window for window in heard if window.newest_ns >= 0]
    parts = _parts(good)
    if any(window.broken for window in heard):
        flaw = "count differs from buckets"
    elif any(isinstance(d, Explicit) and not len(d.bounds) and d.count for w in good for d in w.observed):
        flaw = "one bucket only"
    else:
        flaw = "" if parts else "no observations"
    newest = max(heard, key=lambda window: window.newest_ns)
    return NodeWindow(
        intervals=Intervals.join(parts) if parts else None,
        flaw=flaw,
        count=sum(window.count for window in good),
        rate=_rate(good, t0_ns),
        newest_ns=newest.newest_ns,
        covered_ns=max(window.covered_ns for window in heard),
        interval_ns=newest.interval_ns,
    )


def _parts(windows: Sequence[Window]) -> list[Intervals]:
    """Intervals of everything observed that holds an observation."""
    exponential: dict[float, list[Exponential]] = {}
    loose: list[Explicit] = []
    parts = []
    for window in windows:
        explicit = [d for d in window.observed if isinstance(d, Explicit) and len(d.bounds)]
        buckets = [d for d in window.observed if isinstance(d, Exponential)]
        if buckets:
            exponential.setdefault(window.factor, []).extend(buckets)
        if window.least <= window.most:
            parts += [Intervals.of_explicit(d, window.least, window.most) for d in merged_explicit(explicit)]
        else:
            loose += explicit
    parts += [Intervals.of_explicit(d) for d in merged_explicit(loose)]
    parts += [
        Intervals.of_exponential(merged_exponential(group)).times(factor)
        for factor, group in sorted(exponential.items())
    ]
    return [part for part in parts if len(part.n)]


def _rate(windows: Sequence[Window], t0_ns: int) -> float:
    """Observations per second: each series' rate, for the share of the node's time that it was there."""
    timed = [window for window in windows if window.elapsed_ns > 0]
    if not timed:
        return np.nan
    begins = [max(window.origin_ns, t0_ns) for window in timed]
    span_ns = max(window.newest_ns for window in timed) - min(begins)
    total = 0.0
    for window, begin in zip(timed, begins, strict=True):
        total += window.count / (window.elapsed_ns / 1e9) * ((window.newest_ns - begin) / span_ns)
    return total
