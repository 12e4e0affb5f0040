"""Where the samples of a shard lie: rows of scrapes, which the series that are scraped together share.

A collector stamps everything of one scrape with one time. Series of a node whose samples come at the same times lie on
one timeline: its row r is one time, and each of its series has a place for that row. A timeline is a ring of
`capacity` rows, the oldest at `head`; row r is at place (head + r) % capacity of the timeline's times and of each of
its series' columns. A row's place in a column is ABSENT when the series was not in that scrape.

Which series share a timeline follows from how their samples arrived, and so does nothing else: what a vector says is a
function of the samples alone.
"""

from __future__ import annotations

import numpy as np

from fleetpulse.features._kernel import borrowing
from fleetpulse.features._points import I64Array

ABSENT, FLOAT, INTEGER, NOT_FINITE = range(4)
"""What the flag of a place says of the sample there: none, integers or floats hold it, or it is NaN or infinite."""

NONE = -1
NEVER = np.iinfo(np.int64).max

SERIES = np.dtype(
    [
        ("kind", np.uint8),
        ("delta", np.uint8),
        ("base_flag", np.uint8),
        ("missed", np.uint8),
        ("node", np.int32),
        ("line", np.int32),
        ("next", np.int32),
        ("recent_row", np.int32),
        ("chosen", np.int32),
        ("at", np.int64),
        ("starts_at", np.int64),
        ("start_ns", np.int64),
        ("newest_ns", np.int64),
        ("odd_ns", np.int64),
        ("break_ns", np.int64),
        ("base_ns", np.int64),
        ("base_integer", np.int64),
        ("base_float", np.float64),
    ],
    align=True,
)
"""One series.

kind: see Samples. delta: its points are increments. node: whose it is. newest_ns: time of its newest accepted sample, 0
before the first. recent_row: see Samples. chosen: which sets take it, a number of Samples.choices.

Of a series of numbers: line, next: its timeline, NONE before its first sample, and the next series on it. at: where its
column begins. starts_at: where the column of its start times begins; NONE while all its samples start at start_ns.
missed: how many of its samples in a row came when it was absent from the row before.
odd_ns: time of the newest row before newest_ns at which it has no finite sample, 0 for none.
break_ns: time of the newest sample that does not simply continue the running total before it: it starts anew, is less,
has another type, or follows an odd row; 0 for none. Kept for series that are not increments.
base_ns, base_flag, base_integer, base_float: the newest finite sample of rows that have been dropped; base_ns is 0
without one.
"""

LINE = np.dtype(
    [
        ("node", np.int32),
        ("first", np.int32),
        ("next", np.int32),
        ("capacity", np.int32),
        ("head", np.int32),
        ("length", np.int32),
        ("times_at", np.int64),
        ("touched_ns", np.int64),
        ("slot", np.int64),
    ],
    align=True,
)
"""One timeline.

node, first, next: whose it is, the first of its series, and the node's next timeline; NONE ends both lists.
touched_ns: rows of this time and later may have changed since the node's last vector, NEVER when none has. slot: its
number among its node's, while a vector is made.
"""

MISSED_MAX = 4
"""A series that came alone so often has times of its own, and moves to another timeline."""


@borrowing
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


@borrowing
def place(line, row):  # type: ignore[no-untyped-def]
    """Where a row, 0 <= row <= capacity, lies in the ring."""
    at = line.head + row
    return at - line.capacity if at >= line.capacity else at


@borrowing
def row_after(line, times, t):  # type: ignore[no-untyped-def]
    """The first row whose time is after t; the number of rows when none is."""
    lo, hi = 0, line.length
    while lo < hi:
        middle = (lo + hi) // 2
        if times[line.times_at + place(line, middle)] <= t:
            lo = middle + 1
        else:
            hi = middle
    return lo


@borrowing
def is_finite(flag):  # type: ignore[no-untyped-def]
    return flag in (FLOAT, INTEGER)


@borrowing
def add_row(line, row, t, series, times, starts, integers, flags):  # type: ignore[no-untyped-def]
    """A row of time t before row `row`, in which every series is absent. There has to be room for it."""
    line.length += 1
    last = line.length - 1
    for r in range(last, row, -1):
        times[line.times_at + place(line, r)] = times[line.times_at + place(line, r - 1)]
    new = place(line, row)
    times[line.times_at + new] = t
    s = line.first
    while s != NONE:
        one = series[s]
        for r in range(last, row, -1):
            to, since = place(line, r), place(line, r - 1)
            flags[one.at + to] = flags[one.at + since]
            integers[one.at + to] = integers[one.at + since]
            if one.starts_at != NONE:
                starts[one.starts_at + to] = starts[one.starts_at + since]
        flags[one.at + new] = ABSENT
        if t < one.newest_ns:
            one.odd_ns = max(one.odd_ns, t)
        s = one.next


@borrowing
def drop_rows(line, horizon_ns, series, times, integers, floats, flags):  # type: ignore[no-untyped-def]
    """Drop the rows that no window starting at the horizon or later can need; returns how many.

    The last row up to the horizon stays. A series that has no finite sample there keeps its newest one as its base.
    """
    n = row_after(line, times, horizon_ns) - 1
    if n <= 0:
        return 0
    kept_ns = times[line.times_at + place(line, n)]
    s = line.first
    while s != NONE:
        one = series[s]
        if one.newest_ns < kept_ns or (one.odd_ns >= kept_ns and not is_finite(flags[one.at + place(line, n)])):
            for r in range(n - 1, -1, -1):
                at = one.at + place(line, r)
                if is_finite(flags[at]):
                    one.base_ns, one.base_flag = times[line.times_at + place(line, r)], flags[at]
                    if flags[at] == INTEGER:
                        one.base_integer = integers[at]
                    else:
                        one.base_float = floats[at]
                    break
        s = one.next
    line.head = place(line, n)
    line.length -= n
    return n


@borrowing
def start_of(one, at, starts):  # type: ignore[no-untyped-def]
    """Start time of the series' sample at place `at` of its column."""
    return one.start_ns if one.starts_at == NONE else starts[one.starts_at + at]


@borrowing
def judge(one, line, row, times, starts, integers, floats, flags):  # type: ignore[no-untyped-def]
    """Take the series' sample of this row, which has none after it, into odd_ns and break_ns."""
    now = place(line, row)
    t = times[line.times_at + now]
    if flags[one.at + now] == NOT_FINITE:
        one.odd_ns = t
    if row == 0:
        return
    before = place(line, row - 1)
    previous_ns = times[line.times_at + before]
    if not is_finite(flags[one.at + before]):
        one.odd_ns = max(one.odd_ns, previous_ns)
    if one.delta:
        return
    start = start_of(one, now, starts)
    whole = start <= previous_ns and flags[one.at + now] == flags[one.at + before]
    if whole and flags[one.at + now] == INTEGER:
        whole = integers[one.at + now] >= integers[one.at + before]
    elif whole:
        whole = flags[one.at + now] == FLOAT and floats[one.at + now] >= floats[one.at + before]
    if not whole:
        one.break_ns = t


@borrowing
def judge_again(one, line, times, starts, integers, floats, flags):  # type: ignore[no-untyped-def]
    """odd_ns and break_ns of all the series' rows, after a sample that came out of order."""
    one.odd_ns = one.break_ns = 0
    for row in range(line.length):
        now = place(line, row)
        if times[line.times_at + now] > one.newest_ns:
            break
        if flags[one.at + now] == ABSENT:
            one.odd_ns = times[line.times_at + now]
        else:
            judge(one, line, row, times, starts, integers, floats, flags)


@borrowing
def unroll(column, at, to, line):  # type: ignore[no-untyped-def]
    """Copy the rows of a ring that begins at `at` to `to`, oldest first."""
    for row in range(line.length):
        column[to + row] = column[at + place(line, row)]


@borrowing
def line_for(lines, first, times, flags, one, t):  # type: ignore[no-untyped-def]
    """The timeline, of the list that begins at `first`, whose newest row is of time t; NONE without one.

    It must have a row for every sample of series `one`, which may lie on another one.
    """
    found = first
    while found != NONE:
        line = lines[found]
        n = line.length
        now = found != one.line and n > 0 and times[line.times_at + place(line, n - 1)] == t
        if now and (one.line == NONE or has_rows_of(line, one, lines[one.line], times, flags)):
            return found
        found = line.next
    return NONE


@borrowing
def has_rows_of(line, one, old, times, flags):  # type: ignore[no-untyped-def]
    """Whether a timeline has a row for every sample of series `one`, which lies on the timeline `old`."""
    for row in range(old.length):
        at = place(old, row)
        if flags[one.at + at] != ABSENT:
            t = times[old.times_at + at]
            there = row_after(line, times, t) - 1
            if there < 0 or times[line.times_at + place(line, there)] != t:
                return False
    return True


@borrowing
def copy_series(one, old, line, at, starts_at, times, starts, integers, flags):  # type: ignore[no-untyped-def]
    """Copy the samples of series `one` from timeline `old` to a column of `line` at `at`, `starts_at`.

    The line has rows for all of them, or none at all: then it gets them. Where `one` has no timeline yet, `old` is of
    no matter.
    """
    if line.length == 0 and one.line != NONE:
        for row in range(old.length):
            if flags[one.at + place(old, row)] != ABSENT:
                times[line.times_at + line.length] = times[old.times_at + place(old, row)]
                line.length += 1
    for row in range(line.length):
        flags[at + place(line, row)] = ABSENT
    if one.line == NONE:
        return
    for row in range(old.length):
        since = place(old, row)
        if flags[one.at + since] == ABSENT:
            continue
        to = place(line, row_after(line, times, times[old.times_at + since]) - 1)
        flags[at + to] = flags[one.at + since]
        integers[at + to] = integers[one.at + since]
        if starts_at != NONE:
            starts[starts_at + to] = starts[one.starts_at + since]
