"""The recent samples of every number series of a shard, in flat arrays, and the rules by which a sample enters them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fleetpulse.features._points import BoolArray, F64Array, I32Array, I64Array, NumberPoints

UNKNOWN, UNUSED, NUMBER, DISTRIBUTION = 0, 1, 2, 3
"""What a series index stands for: not seen yet, no feature uses it, numbers, histograms."""

RECENT = 8
"""Times kept of a series that no feature uses, so that its repeated samples are counted as such."""

_FIRST_BLOCK = 8
ACCEPTED, DUPLICATES, OUT_OF_ORDER, LATE = range(4)


@dataclass
class SampleArrays:
    """Columns of all blocks. A sample is integers[i] where is_int[i], else floats[i]; both are views of one array.

    Within a block the first `length` places hold samples in order of time, no time twice.
    """

    times: I64Array
    starts: I64Array
    integers: I64Array
    floats: F64Array
    is_int: BoolArray

    @classmethod
    def empty(cls, n: int) -> SampleArrays:
        integers = np.zeros(n, np.int64)
        return cls(
            np.zeros(n, np.int64), np.zeros(n, np.int64), integers, integers.view(np.float64), np.zeros(n, np.bool_)
        )

    def grown(self, n: int) -> SampleArrays:
        larger = SampleArrays.empty(n)
        for name in ("times", "starts", "integers", "is_int"):
            old = getattr(self, name)
            getattr(larger, name)[: len(old)] = old
        return larger

    def move(self, source: int, target: int, n: int) -> None:
        for column in (self.times, self.starts, self.integers, self.is_int):
            column[target : target + n] = column[source : source + n].copy()


@dataclass
class NodeClock:
    """Event time by node, and what became of one record's samples.

    t_end_ns: newest accepted time before the record, 0 before the first; lateness is judged by it, so that the order
    of samples within a record does not matter. t_next_ns: the same with the record's samples. changed: whether the
    record brought a node an accepted sample. counts: by outcome.
    """

    t_end_ns: I64Array
    t_next_ns: I64Array
    changed: BoolArray
    counts: I64Array

    @classmethod
    def empty(cls, n: int) -> NodeClock:
        return cls(np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_), np.zeros(4, np.int64))

    def hold(self, n_nodes: int) -> None:
        """Make room for node indexes below n_nodes."""
        have = len(self.t_end_ns)
        if n_nodes > have:
            larger = NodeClock.empty(max(n_nodes, 2 * have))
            larger.t_end_ns[:have] = self.t_end_ns
            larger.t_next_ns[:have] = self.t_next_ns
            self.t_end_ns, self.t_next_ns, self.changed = larger.t_end_ns, larger.t_next_ns, larger.changed

    def begin(self) -> None:
        """A new record."""
        self.counts[:] = 0
        self.changed[:] = False

    def settle(self) -> list[int]:
        """The record has been entered: its times hold from now on. Returns the nodes that got a sample."""
        nodes = np.flatnonzero(self.changed)
        self.t_end_ns[nodes] = self.t_next_ns[nodes]
        return [int(node) for node in nodes]

    def is_late(self, node: int, time_ns: int, window_ns: int) -> bool:
        return bool(self.t_end_ns[node] > 0 and time_ns <= self.t_end_ns[node] - window_ns)

    def accept(self, node: int, time_ns: int) -> None:
        self.changed[node] = True
        self.t_next_ns[node] = max(int(self.t_next_ns[node]), time_ns)


class Samples:
    """Samples by series index.

    kind, node: what each series is and whose. delta: whether its points are increments.
    offset, capacity, length: the block of a NUMBER series.
    recent_row, recent: for an UNUSED series the row of its newest times, ascending, 0 where none.
    newest_ns: time of the newest accepted sample of any series, 0 before the first.
    """

    def __init__(self) -> None:
        self.arrays = SampleArrays.empty(1024)
        self.used = 0
        self.kind: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.node: I32Array = np.zeros(0, np.int32)
        self.delta: BoolArray = np.zeros(0, np.bool_)
        self.offset: I64Array = np.zeros(0, np.int64)
        self.capacity: I64Array = np.zeros(0, np.int64)
        self.length: I64Array = np.zeros(0, np.int64)
        self.newest_ns: I64Array = np.zeros(0, np.int64)
        self.recent_row: I32Array = np.zeros(0, np.int32)
        self.recent: I64Array = np.zeros((0, RECENT), np.int64)
        self._free_blocks: dict[int, list[int]] = {}
        self._free_rows: list[int] = []
        self._rows = 0

    def hold(self, n_series: int) -> None:
        """Make room for series indexes below n_series."""
        have = len(self.kind)
        if n_series <= have:
            return
        size = max(n_series, 2 * have, 64)
        for name in ("kind", "node", "delta", "offset", "capacity", "length", "newest_ns", "recent_row"):
            old = getattr(self, name)
            new = np.zeros(size, old.dtype)
            new[:have] = old
            setattr(self, name, new)

    def enter(self, series: int, kind: int, node: int, *, delta: bool) -> None:
        self.kind[series] = kind
        self.node[series] = node
        self.delta[series] = delta
        self.newest_ns[series] = 0
        self.length[series] = 0
        if kind == NUMBER:
            self.capacity[series] = _FIRST_BLOCK
            self.offset[series] = self._block(_FIRST_BLOCK)
        elif kind == UNUSED:
            self.recent_row[series] = self._row()

    def leave(self, series: int) -> None:
        if self.kind[series] == NUMBER:
            self._free_blocks.setdefault(int(self.capacity[series]), []).append(int(self.offset[series]))
        elif self.kind[series] == UNUSED:
            self._free_rows.append(int(self.recent_row[series]))
        self.kind[series] = UNKNOWN

    def _grow(self, series: int) -> None:
        """A larger block for a series whose samples fill theirs."""
        old, n = int(self.capacity[series]), int(self.length[series])
        size = old + old // 2 if old >= 64 else 2 * old
        target = self._block(size)
        at = int(self.offset[series])
        self.arrays.move(at, target, n)
        self._free_blocks.setdefault(old, []).append(at)
        self.offset[series], self.capacity[series] = target, size

    def remember(self, series: int, time_ns: int) -> int:
        """Enter a point of an UNUSED series; returns its outcome."""
        return int(_remember(self.recent[self.recent_row[series]], time_ns))

    def add(self, points: NumberPoints, clock: NodeClock, window_ns: int, meet: Callable[[int], None]) -> None:
        """Enter the points of one record. The clock takes the outcome. meet: enters a series that is UNKNOWN."""
        at = 0
        while True:
            arrays = self.arrays
            at = _insert(
                points.series, points.time_ns, points.start_ns, points.value, points.integer, points.is_int, at,
                self.kind, self.node, self.delta, self.offset, self.capacity, self.length, self.newest_ns,
                self.recent_row, self.recent,
                arrays.times, arrays.starts, arrays.integers, arrays.floats, arrays.is_int,
                clock.t_end_ns, clock.t_next_ns, clock.changed, window_ns, clock.counts,
            )  # fmt: skip
            if at == len(points.series):
                return
            series = int(points.series[at])
            if self.kind[series] == UNKNOWN:
                meet(series)
            else:
                self._grow(series)

    def _block(self, size: int) -> int:
        free = self._free_blocks.get(size)
        if free:
            return free.pop()
        at = self.used
        self.used += size
        if self.used > len(self.arrays.times):
            self.arrays = self.arrays.grown(max(self.used, 2 * len(self.arrays.times)))
        return at

    def _row(self) -> int:
        if self._free_rows:
            row = self._free_rows.pop()
        else:
            row = self._rows
            self._rows += 1
            if row >= len(self.recent):
                larger = np.zeros((max(64, 2 * row), RECENT), np.int64)
                larger[: len(self.recent)] = self.recent
                self.recent = larger
        self.recent[row] = 0
        return row


@njit(cache=True)
def first_after(times: I64Array, lo: int, hi: int, t: int) -> int:
    """The first place in lo..hi, where times ascend, that holds a time after t; hi when none does.

    Numba's own searchsorted takes a second to compile.
    """
    while lo < hi:
        middle = (lo + hi) // 2
        if times[middle] <= t:
            lo = middle + 1
        else:
            hi = middle
    return lo


@njit(cache=True)
def _forget_before(  # type: ignore[no-untyped-def]
    horizon_ns, times, starts, integers, floats, ints, at, n
):  # fmt: skip
    """Drop the first samples of a block that no window starting at the horizon or later can need; returns how many.

    Needed are the samples after the horizon, and the last finite one up to it.
    """
    drop = 0
    for i in range(n):
        if times[at + i] > horizon_ns:
            break
        if ints[at + i] or np.isfinite(floats[at + i]):
            drop = i
    if drop > 0:
        for i in range(at, at + n - drop):
            times[i] = times[i + drop]
            starts[i] = starts[i + drop]
            integers[i] = integers[i + drop]
            ints[i] = ints[i + drop]
    return drop


@njit(cache=True)
def _insert(  # type: ignore[no-untyped-def]
    series, time_ns, start_ns, value, integer, is_int, first,
    kind, node, delta, offset, capacity, length, newest_ns,
    recent_row, recent,
    times, starts, integers, floats, ints,
    t_end_ns, t_next_ns, changed, window_ns, counts,
):  # fmt: skip
    """Insert points[first:] until one finds its series UNKNOWN or its block full of samples that are still needed.

    Returns the position of that point, or the number of points.
    """
    for i in range(first, len(series)):
        s = series[i]
        if kind[s] == UNKNOWN:
            return i
        t = time_ns[i]
        owner = node[s]
        if t_end_ns[owner] > 0 and t <= t_end_ns[owner] - window_ns:
            counts[LATE] += 1
            continue
        if kind[s] == UNUSED:
            outcome = _remember(recent[recent_row[s]], t)
        else:
            at, n = offset[s], length[s]
            j = n
            if n > 0 and times[at + n - 1] >= t:
                j = first_after(times, at, at + n, t) - at
            if j > 0 and times[at + j - 1] == t:
                outcome = DUPLICATES
            else:
                if n == capacity[s]:
                    drop = _forget_before(
                        t_end_ns[owner] - window_ns, times, starts, integers, floats, ints, at, n
                    )  # fmt: skip
                    # What is dropped lies before the horizon, and this point after it: j does not fall below 0.
                    n, j = n - drop, j - drop
                    length[s] = n
                    if n > 0.75 * capacity[s]:
                        return i
                for k in range(at + n, at + j, -1):
                    times[k] = times[k - 1]
                    starts[k] = starts[k - 1]
                    integers[k] = integers[k - 1]
                    ints[k] = ints[k - 1]
                times[at + j] = t
                starts[at + j] = start_ns[i]
                ints[at + j] = is_int[i]
                if is_int[i]:
                    integers[at + j] = integer[i]
                else:
                    floats[at + j] = value[i]
                length[s] = n + 1
                outcome = ACCEPTED if j == n else OUT_OF_ORDER
                if delta[s] and j > 0 and 0 < start_ns[i] < times[at + j - 1]:
                    # It is kept, because order of time decides which of two overlapping increments counts.
                    counts[DUPLICATES] += 1
                    counts[outcome] -= 1
        counts[outcome] += 1
        if outcome != DUPLICATES:
            changed[owner] = True
            newest_ns[s] = max(newest_ns[s], t)
            t_next_ns[owner] = max(t_next_ns[owner], t)
    return len(series)


@njit(cache=True)
def _remember(row: I64Array, t: int) -> int:
    """Enter a time among a series' newest; a time older than all of a full row counts as repeated.

    That may be wrong for a sample that is very late, but a retry is by far the likelier cause, and no number depends
    on it.
    """
    if t <= row[0]:
        return DUPLICATES
    j = RECENT
    while j > 0 and row[j - 1] > t:
        j -= 1
    if j > 0 and row[j - 1] == t:
        return DUPLICATES
    for k in range(j - 1):
        row[k] = row[k + 1]
    row[j - 1] = t
    return ACCEPTED if j == RECENT else OUT_OF_ORDER
