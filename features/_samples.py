"""The recent samples of every number series of a shard, in flat arrays, and the rules by which a sample enters them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._blocks import Blocks
from fleetpulse.features._kernel import borrowing
from fleetpulse.features._points import BoolArray, F64Array, I32Array, I64Array, NumberPoints
from fleetpulse.features._timelines import (
    ABSENT,
    FLOAT,
    INTEGER,
    LINE,
    MISSED_MAX,
    NONE,
    NOT_FINITE,
    SERIES,
    add_row,
    copy_series,
    drop_rows,
    judge,
    judge_again,
    line_for,
    place,
    row_after,
    unroll,
)

UNKNOWN, UNUSED, NUMBER, DISTRIBUTION = 0, 1, 2, 3
"""What a series index stands for: not seen yet, no feature uses it, numbers, histograms."""

RECENT = 8
"""Times kept of a series that no feature uses, so that its repeated samples are counted as such."""

ACCEPTED, DUPLICATES, OUT_OF_ORDER, LATE = range(4)
DONE, MEET, PLACE, MOVE, GROW, STARTS = range(6)
"""Why _insert stopped: all points are in; or the point's series has not been met, has no timeline, has to leave its
timeline, finds that full of rows that are still needed, or needs a column for its start times."""

_ROWS_MIN = 8
_GROWTH_MAX = 8


@dataclass
class NodeClock:
    """Event time by node, and what became of one record's samples.

    t_end_ns: newest accepted time before the record, 0 before the first; lateness is judged by it, so that the order
    of samples within a record does not matter. t_next_ns: the same with the record's samples. changed: whether the
    record brought a node an accepted sample; touched[1 : touched[0] + 1] are those nodes. counts: by outcome.
    """

    t_end_ns: I64Array
    t_next_ns: I64Array
    changed: BoolArray
    touched: I64Array
    counts: I64Array

    @classmethod
    def empty(cls, n: int) -> NodeClock:
        return cls(
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
            np.zeros(n, np.bool_),
            np.zeros(n + 1, np.int64),
            np.zeros(4, np.int64),
        )

    def hold(self, n_nodes: int) -> None:
        """Make room for node indexes below n_nodes. Between records only."""
        have = len(self.t_end_ns)
        if n_nodes > have:
            larger = NodeClock.empty(max(n_nodes, 2 * have))
            larger.t_end_ns[:have] = self.t_end_ns
            larger.t_next_ns[:have] = self.t_next_ns
            self.t_end_ns, self.t_next_ns = larger.t_end_ns, larger.t_next_ns
            self.changed, self.touched = larger.changed, larger.touched

    def begin(self) -> None:
        """A new record."""
        self.counts[:] = 0

    def settle(self) -> list[int]:
        """The record has been entered: its times hold from now on. Returns the nodes that got a sample, ascending."""
        nodes = np.sort(self.touched[1 : 1 + int(self.touched[0])])
        self.touched[0] = 0
        self.changed[nodes] = False
        self.t_end_ns[nodes] = self.t_next_ns[nodes]
        found: list[int] = nodes.tolist()
        return found

    def is_late(self, node: int, time_ns: int, window_ns: int) -> bool:
        return bool(self.t_end_ns[node] > 0 and time_ns <= self.t_end_ns[node] - window_ns)

    def accept(self, node: int, time_ns: int) -> None:
        if not self.changed[node]:
            self.changed[node] = True
            self.touched[0] += 1
            self.touched[self.touched[0]] = node
        self.t_next_ns[node] = max(int(self.t_next_ns[node]), time_ns)


class Samples:
    """Samples by series index, on the timelines of their nodes (see _timelines).

    series: (n,) of SERIES; its kind is UNKNOWN .. DISTRIBUTION. lines: (n,) of LINE. first_line: (nodes,) int32, the
    first of each node's timelines, NONE without one. times: blocks of rows' times, by timeline. values, flags: columns
    of samples by series; a sample is an integer or a float, both views of one array. starts: columns of start times.
    recent: for the UNUSED series in recent_row its newest times, ascending, 0 where none.
    """

    def __init__(self) -> None:
        self.series: NDArray[Any] = np.zeros(0, SERIES)
        self.lines: NDArray[Any] = np.zeros(0, LINE)
        self.first_line: I32Array = np.full(0, NONE, np.int32)
        self.times = Blocks(np.int64)
        self.values = Blocks(np.int64, np.uint8)
        self.starts = Blocks(np.int64)
        self.recent: I64Array = np.zeros((0, RECENT), np.int64)
        self._free_lines: list[int] = []
        self._free_rows: list[int] = []
        self._rows = 0

    @property
    def integers(self) -> I64Array:
        return self.values.columns[0]

    @property
    def floats(self) -> F64Array:
        return self.values.columns[0].view(np.float64)

    @property
    def flags(self) -> NDArray[np.uint8]:
        return self.values.columns[1]

    @property
    def size_bytes(self) -> int:
        """Of all arrays, with what they hold in reserve."""
        blocks = self.times.size_bytes + self.values.size_bytes + self.starts.size_bytes
        return blocks + self.series.nbytes + self.lines.nbytes + self.first_line.nbytes + self.recent.nbytes

    def hold(self, n_series: int, n_nodes: int) -> None:
        """Make room for series and node indexes below these."""
        have = len(self.series)
        if n_series > have:
            series = np.zeros(max(n_series, have + have // 4, 64), SERIES)
            series[:have] = self.series
            self.series = series
        have = len(self.first_line)
        if n_nodes > have:
            first_line = np.full(max(n_nodes, 2 * have), NONE, np.int32)
            first_line[:have] = self.first_line
            self.first_line = first_line

    def enter(self, index: int, kind: int, node: int, *, delta: bool, chosen: int) -> None:
        self.series[index] = np.zeros((), SERIES)
        one = self.series[index]
        one["kind"], one["node"], one["delta"], one["chosen"] = kind, node, delta, chosen
        one["line"] = one["next"] = one["starts_at"] = NONE
        if kind == UNUSED:
            one["recent_row"] = self._row()

    def leave(self, index: int) -> None:
        one = self.series[index]
        if one["kind"] == NUMBER and one["line"] != NONE:
            self._leave_line(index)
        elif one["kind"] == UNUSED:
            self._free_rows.append(int(one["recent_row"]))
        one["kind"] = UNKNOWN

    def remember(self, index: int, time_ns: int) -> int:
        """Enter a point of an UNUSED series; returns its outcome."""
        return int(_remember(self.recent[self.series[index]["recent_row"]], time_ns))

    def add(self, points: NumberPoints, clock: NodeClock, window_ns: int, meet: Callable[[int], None]) -> None:
        """Enter the points of one record. The clock takes the outcome. meet: enters a series that is UNKNOWN."""
        at = 0
        while True:
            at, why = _insert(
                points.series, points.time_ns, points.start_ns, points.value, points.integer, points.is_int, at,
                self.series, self.lines, self.times.columns[0], self.starts.columns[0],
                self.integers, self.floats, self.flags, self.recent,
                clock.t_end_ns, clock.t_next_ns, clock.changed, clock.touched, window_ns, clock.counts,
            )  # fmt: skip
            if why == DONE:
                return
            series, time_ns = int(points.series[at]), int(points.time_ns[at])
            if why == MEET:
                meet(series)
            elif why in (PLACE, MOVE):
                self._move(series, time_ns)
            elif why == GROW:
                self._grow(int(self.series[series]["line"]), window_ns)
            else:
                self._keep_starts(series)

    def _move(self, index: int, time_ns: int) -> None:
        """Put a series, with the samples it has, on the timeline that has its times and now time_ns, or a new one."""
        one = self.series[index]
        node, old = int(one["node"]), int(one["line"])
        target = line_for(self.lines, self.first_line[node], self.times.columns[0], self.flags, one, time_ns)
        if target == NONE:
            rows = 0 if old == NONE else int(self.lines[old]["length"])
            target = self._new_line(node, _ROWS_MIN * (1 + rows // _ROWS_MIN))
        line = self.lines[target]
        capacity = int(line["capacity"])
        at = self.values.take(capacity)
        starts_at = NONE if one["starts_at"] == NONE else self.starts.take(capacity)
        copy_series(
            one, self.lines[old if old != NONE else target], line, at, starts_at,
            self.times.columns[0], self.starts.columns[0], self.integers, self.flags,
        )  # fmt: skip
        if old != NONE:
            self._leave_line(index)
        one["line"], one["at"], one["starts_at"], one["missed"] = target, at, starts_at, 0
        one["next"], line["first"] = line["first"], index
        judge_again(
            one, line, self.times.columns[0], self.starts.columns[0], self.integers, self.floats, self.flags
        )  # fmt: skip

    def _new_line(self, node: int, capacity: int) -> int:
        if not self._free_lines:
            have = len(self.lines)
            lines = np.zeros(max(16, have + have // 4), LINE)
            lines[:have] = self.lines
            self.lines = lines
            self._free_lines = list(range(len(lines) - 1, have - 1, -1))
        index = self._free_lines.pop()
        line = self.lines[index]
        line["node"], line["first"], line["next"] = node, NONE, self.first_line[node]
        line["capacity"], line["head"], line["length"], line["touched_ns"] = capacity, 0, 0, NONE
        line["times_at"] = self.times.take(capacity)
        self.first_line[node] = index
        return index

    def _leave_line(self, index: int) -> None:
        """Take a series from its timeline, which goes with the last of them."""
        one = self.series[index]
        line = self.lines[one["line"]]
        capacity = int(line["capacity"])
        self.values.give(int(one["at"]), capacity)
        if one["starts_at"] != NONE:
            self.starts.give(int(one["starts_at"]), capacity)
        line["touched_ns"] = NONE
        if line["first"] == index:
            line["first"] = one["next"]
        else:
            before = self.series[line["first"]]
            while before["next"] != index:
                before = self.series[before["next"]]
            before["next"] = one["next"]
        if line["first"] == NONE:
            self._drop_line(int(one["line"]))
        one["line"] = NONE

    def _drop_line(self, index: int) -> None:
        line = self.lines[index]
        node = int(line["node"])
        self.times.give(int(line["times_at"]), int(line["capacity"]))
        if self.first_line[node] == index:
            self.first_line[node] = line["next"]
        else:
            before = self.lines[self.first_line[node]]
            while before["next"] != index:
                before = self.lines[before["next"]]
            before["next"] = line["next"]
        self._free_lines.append(index)

    def _grow(self, index: int, window_ns: int) -> None:
        """Larger columns for a timeline, as many rows as a window has at the pace of those it holds."""
        line = self.lines[index]
        old, n = int(line["capacity"]), int(line["length"])
        times = self.times.columns[0][int(line["times_at"]) : int(line["times_at"]) + old]
        span_ns = int(times.max() - times.min())
        wanted = max(old + old // 2, min(window_ns * (n - 1) // max(span_ns, 1) + 3, _GROWTH_MAX * old))
        capacity = -(-wanted // _ROWS_MIN) * _ROWS_MIN
        index_of_series = int(line["first"])
        while index_of_series != NONE:
            one = self.series[index_of_series]
            at = self.values.take(capacity)
            for column in self.values.columns:
                unroll(column, one["at"], at, line)
            self.values.give(int(one["at"]), old)
            one["at"] = at
            if one["starts_at"] != NONE:
                starts_at = self.starts.take(capacity)
                unroll(self.starts.columns[0], one["starts_at"], starts_at, line)
                self.starts.give(int(one["starts_at"]), old)
                one["starts_at"] = starts_at
            index_of_series = int(one["next"])
        times_at = self.times.take(capacity)
        unroll(self.times.columns[0], line["times_at"], times_at, line)
        self.times.give(int(line["times_at"]), old)
        line["times_at"], line["capacity"], line["head"], line["touched_ns"] = times_at, capacity, 0, NONE

    def _keep_starts(self, index: int) -> None:
        """Give a series a column for its start times; so far they are all the same."""
        one = self.series[index]
        capacity = int(self.lines[one["line"]]["capacity"])
        at = self.starts.take(capacity)
        self.starts.columns[0][at : at + capacity] = one["start_ns"]
        one["starts_at"] = at

    def _row(self) -> int:
        if self._free_rows:
            row = self._free_rows.pop()
        else:
            row = self._rows
            self._rows += 1
            if row >= len(self.recent):
                larger = np.zeros((max(64, row + row // 4), RECENT), np.int64)
                larger[: len(self.recent)] = self.recent
                self.recent = larger
        self.recent[row] = 0
        return row


@borrowing
def _insert(  # type: ignore[no-untyped-def]
    index, time_ns, start_ns, value, integer, is_int, first,
    series, lines, times, starts, integers, floats, flags, recent,
    t_end_ns, t_next_ns, changed, touched, window_ns, counts,
):  # fmt: skip
    """Insert points[first:] until one needs something that only its caller can give.

    Returns the position of that point and what it needs, or the number of points and DONE.
    """
    for i in range(first, len(index)):
        one = series[index[i]]
        if one.kind == UNKNOWN:
            return i, MEET
        t, start, owner = time_ns[i], start_ns[i], one.node
        if t_end_ns[owner] > 0 and t <= t_end_ns[owner] - window_ns:
            counts[LATE] += 1
            continue
        if one.kind == UNUSED:
            outcome = _remember(recent[one.recent_row], t)
            counts[outcome] += 1
            if outcome == DUPLICATES:
                continue
        else:
            if one.line == NONE:
                return i, PLACE
            if one.missed >= MISSED_MAX:
                return i, MOVE
            line = lines[one.line]
            n = line.length
            row = n
            if n > 0 and times[line.times_at + place(line, n - 1)] >= t:
                row = row_after(line, times, t - 1)
            here = row < n and times[line.times_at + place(line, row)] == t
            if here and flags[one.at + place(line, row)] != ABSENT:
                counts[DUPLICATES] += 1
                continue
            if start != one.start_ns and one.starts_at == NONE:
                if one.newest_ns == 0:
                    one.start_ns = start
                else:
                    return i, STARTS
            if not here:
                if n == line.capacity:
                    row -= drop_rows(line, t_end_ns[owner] - window_ns, series, times, integers, floats, flags)
                    if line.length == line.capacity:
                        return i, GROW
                add_row(line, row, t, series, times, starts, integers, flags)
            at = place(line, row)
            if is_int[i]:
                integers[one.at + at] = integer[i]
                flags[one.at + at] = INTEGER
            else:
                floats[one.at + at] = value[i]
                flags[one.at + at] = FLOAT if np.isfinite(value[i]) else NOT_FINITE
            if one.starts_at != NONE:
                starts[one.starts_at + at] = start
            line.touched_ns = min(line.touched_ns, t)
            outcome = ACCEPTED if t > one.newest_ns else OUT_OF_ORDER
            overlaps = one.delta and 0 < start < _time_before(one, line, row, times, flags)
            if outcome == ACCEPTED:
                one.newest_ns = t
                alone = row > 0 and flags[one.at + place(line, row - 1)] == ABSENT
                one.missed = one.missed + 1 if alone else 0
                judge(one, line, row, times, starts, integers, floats, flags)
            else:
                judge_again(one, line, times, starts, integers, floats, flags)
            # An increment that overlaps is kept, because order of time decides which of two of them counts.
            counts[DUPLICATES if overlaps else outcome] += 1
        if not changed[owner]:
            changed[owner] = True
            touched[0] += 1
            touched[touched[0]] = owner
        one.newest_ns = max(one.newest_ns, t)
        t_next_ns[owner] = max(t_next_ns[owner], t)
    return len(index), DONE


@borrowing
def _time_before(one, line, row, times, flags):  # type: ignore[no-untyped-def]
    """Time of the series' sample before that of a row, 0 without one."""
    for r in range(row - 1, -1, -1):
        at = place(line, r)
        if flags[one.at + at] != ABSENT:
            return times[line.times_at + at]
    return one.base_ns


@borrowing
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
