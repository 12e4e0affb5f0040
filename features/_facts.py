"""What each of a node's series says over both windows, in numbers that the features are made of.

Most series are steady: on all rows of their timeline's window, and a counter without a break. What they say follows
from a few of their samples and from their timeline, whatever the number of rows. Everything else is read sample by
sample (see _readings), with the same bits where both ways are open.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fleetpulse.features._kernel import borrowing
from fleetpulse.features._points import BoolArray, F64Array, I64Array
from fleetpulse.features._readings import (
    CUMULATIVE,
    DELTA,
    LEVEL,
    LONG_NS,
    SHORT_NS,
    covered,
    rate,
    read_series,
    totals,
    typical_gap,
)
from fleetpulse.features._timelines import ABSENT, INTEGER, NEVER, NONE, place, row_after, start_of

NO_TIME = np.iinfo(np.int64).min


class Shard(NamedTuple):
    """The samples of a shard: see Samples."""

    series: NDArray[np.void]
    lines: NDArray[np.void]
    first_line: NDArray[np.int32]
    times: I64Array
    starts: I64Array
    integers: I64Array
    floats: F64Array
    flags: NDArray[np.uint8]


LINE_FACTS = np.dtype(
    [
        ("index", np.int64),
        ("lo", np.int64),
        ("hi", np.int64),
        ("first", np.int64),
        ("usable", np.bool_),
        ("based", np.bool_),
        ("oldest_ns", np.int64),
        ("newest_ns", np.int64),
        ("newest_at", np.int64),
        ("before_at", np.int64),
        ("before_ns", np.int64),
        ("interval", np.int64),
        ("shortest", np.int64),
    ],
    align=True,
)
"""A timeline of a node at its t_end, by slot.

index: which it is. lo, hi: its rows from the baseline to the newest lie there in time and begin, which are as
read_series makes them for a steady series: lo is the baseline's place, and begin[lo] is -1 without one. first: the row
of place lo + 1. usable: whether a series may be steady on it at all. based: whether there is a baseline. oldest_ns: its
time, or else that of the first row; newest_ns: of the newest one, which is at newest_at in the ring, and the row before
it at before_at, NONE without one, of time before_ns. interval: usual distance of the rows, 0 while unknown; shortest:
the least, NEVER without two.
"""

LINE_WINDOW = np.dtype(
    [("level_speaks", np.int64), ("counter_speaks", np.int64), ("since_at", np.int64), ("origin", np.int64)], align=True
)
"""One of both windows of a timeline. level_speaks, counter_speaks: see covered. since_at: where the row lies from which
an increase is counted, NONE when no row is in the window; origin: its time."""

FACTS = np.dtype(
    [
        ("steady", np.bool_),
        ("slot", np.int64),
        ("interval", np.int64),
        ("latest", np.int64),
        ("last", np.float64),
        ("count", np.int64),
        ("lo", np.int64),
        ("hi", np.int64),
    ],
    align=True,
)
"""A member of a node's plan at its t_end.

steady: see above. slot: its timeline's. interval: its usual one, 0 while unknown. latest, last: time and value of its
newest reading, NO_TIME and NaN without one. count: readings, the baseline's place included. lo, hi: the range of its
readings, when they have been made.
"""

WINDOW_FACTS = np.dtype(
    [("speaks", np.int64), ("total", np.float64), ("elapsed", np.int64), ("origin", np.int64)], align=True
)
"""One of both windows of a member: see covered and totals; total is scaled."""


class Readings(NamedTuple):
    """Places for readings, see read_series; and for the samples of one series as it wants them."""

    time: I64Array
    begin: I64Array
    value: F64Array
    step: F64Array
    sample: F64Array
    integer: I64Array
    run: I64Array
    series_time: I64Array
    series_start: I64Array
    series_integer: I64Array
    series_float: F64Array
    series_is_int: BoolArray


@njit(cache=True)
def no_readings(n, rows):  # type: ignore[no-untyped-def]
    return Readings(
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows),
        np.empty(rows, np.bool_),
    )


@borrowing
def size_of(node, first_line, all_lines):  # type: ignore[no-untyped-def]
    """(timelines, rows of all of them, rows of the longest) of a node."""
    n, rows, most = 0, 0, 0
    index = first_line[node]
    while index != NONE:
        line = all_lines[index]
        n, rows, most = n + 1, rows + line.length, max(most, line.length)
        index = line.next
    return n, rows, most


@borrowing
def read_lines(node, t_end, oldest, all_lines, first_line, times, lines, over, time, begin):  # type: ignore[no-untyped-def]
    """Fill lines, of LINE_FACTS, and over, (2, n) of LINE_WINDOW, with the node's timelines, time and begin with their
    rows."""
    at = int(np.int64(0))  # A literal would have Numba compile what is called with it twice.
    slot = 0
    index = first_line[node]
    while index != NONE:
        line, out = all_lines[index], lines[slot]
        line.slot = slot
        n = line.length
        first = row_after(line, times, t_end - LONG_NS)
        lo = at
        time[lo] = begin[lo] = -1
        if first > 0:
            time[lo] = begin[lo] = times[line.times_at + place(line, first - 1)]
        at += 1
        for row in range(first, n):
            time[at] = times[line.times_at + place(line, row)]
            begin[at] = time[at - 1] if begin[at - 1] >= 0 else time[at]
            at += 1
        known = lo if first > 0 else lo + 1
        out.index, out.lo, out.hi, out.first, out.based = index, lo, at, first, first > 0
        out.usable = first < n and (first == 0 or time[lo] > oldest)
        out.interval, out.shortest = typical_gap(time, known, at), NEVER
        for i in range(known + 1, at):
            out.shortest = min(out.shortest, time[i] - time[i - 1])
        if n > 0:
            out.oldest_ns, out.newest_ns = times[line.times_at + place(line, max(first - 1, 0))], time[at - 1]
            out.newest_at, out.before_at, out.before_ns = place(line, n - 1), NONE, 0
            if n > 1:
                out.before_at = place(line, n - 2)
                out.before_ns = times[line.times_at + out.before_at]
        for w in range(2):
            t0 = t_end - (SHORT_NS if w else LONG_NS)
            window = over[w, slot]
            window.level_speaks = covered(time, begin, lo, at, LEVEL, out.interval, t0, t_end)
            window.counter_speaks = covered(time, begin, lo, at, CUMULATIVE, out.interval, t0, t_end)
            after = row_after(line, times, t0)
            window.since_at, window.origin = NONE, -1
            if after < n:
                window.since_at = place(line, max(after - 1, 0))
                window.origin = times[line.times_at + window.since_at]
        slot += 1
        index = line.next


@borrowing
def read_steady(  # type: ignore[no-untyped-def]
    members, t_end, series, all_lines, starts, integers, floats, flags, lines, line_over, facts, over
):  # fmt: skip
    """Find out which members are steady, and fill facts, of FACTS, and over, (2, n) of WINDOW_FACTS, for those.

    A series is steady when it is on all rows of its timeline's window, baseline included, and is no increments nor a
    counter with a break.
    """
    for m in range(len(members)):
        one, fact, mode = series[members[m].series], facts[m], members[m].mode
        fact.steady = False
        if one.line == NONE or mode == DELTA:
            continue
        slot = all_lines[one.line].slot
        line = lines[slot]
        if not line.usable or one.newest_ns != line.newest_ns or one.odd_ns >= line.oldest_ns:
            continue
        if mode == CUMULATIVE and one.break_ns > line.oldest_ns:
            continue
        if not line.based:
            start = start_of(one, place(all_lines[one.line], line.first), starts)
            if one.base_ns > 0 or (mode == CUMULATIVE and t_end - LONG_NS < start < line.oldest_ns):
                continue
        newest = one.at + line.newest_at
        is_integer = flags[newest] == INTEGER
        fact.steady, fact.slot, fact.interval = True, slot, line.interval
        fact.latest, fact.count = line.newest_ns, line.hi - line.lo
        if mode == LEVEL:
            fact.last = (float(integers[newest]) if is_integer else floats[newest]) * members[m].scale
            for w in range(2):
                window = over[w, m]
                window.speaks = line_over[w, slot].level_speaks
                window.total, window.elapsed, window.origin = 0.0, 0, 0
            continue
        fact.last = np.nan
        if line.before_at != NONE:
            before = one.at + line.before_at
            step = float(integers[newest] - integers[before]) if is_integer else floats[newest] - floats[before]
            fact.last = rate(step, members[m].scale, line.newest_ns - line.before_ns)
        for w in range(2):
            window, lined = over[w, m], line_over[w, slot]
            window.speaks, window.origin = lined.counter_speaks, lined.origin
            window.total, window.elapsed = 0.0, 0
            if lined.since_at != NONE:
                since = one.at + lined.since_at
                total = float(integers[newest] - integers[since]) if is_integer else floats[newest] - floats[since]
                window.total, window.elapsed = total * members[m].scale, line.newest_ns - lined.origin


@borrowing
def read_row(row, slot, members, series, line, times, integers, floats, flags, facts, reading):  # type: ignore[no-untyped-def]
    """The values of the readings at a row of a timeline, by member, of those that are steady on it."""
    newest = row == line.length - 1
    now, before, elapsed = place(line, row), NONE, 0
    if row > 0:
        before = place(line, row - 1)
        elapsed = times[line.times_at + now] - times[line.times_at + before]
    for m in range(len(members)):
        if not facts[m].steady or facts[m].slot != slot:
            continue
        if newest:
            reading[m] = facts[m].last
            continue
        at, scale = series[members[m].series].at, members[m].scale
        is_integer = flags[at + now] == INTEGER
        if members[m].mode == LEVEL:
            reading[m] = (float(integers[at + now]) if is_integer else floats[at + now]) * scale
        elif before == NONE:
            reading[m] = np.nan
        elif is_integer:
            reading[m] = rate(float(integers[at + now] - integers[at + before]), scale, elapsed)
        else:
            reading[m] = rate(floats[at + now] - floats[at + before], scale, elapsed)


@borrowing
def read_any(one, mode, scale, m, t_end, oldest, at, shard, readings, facts, over):  # type: ignore[no-untyped-def]
    """The facts of any member, with its readings from place `at` on; returns the place after them."""
    n = 0
    if one.base_ns > 0:
        readings.series_time[0], readings.series_start[0] = one.base_ns, 0
        readings.series_integer[0], readings.series_float[0] = one.base_integer, one.base_float
        readings.series_is_int[0] = one.base_flag == INTEGER
        n = 1
    if one.line != NONE:
        line = shard.lines[one.line]
        for row in range(line.length):
            where = place(line, row)
            flag = shard.flags[one.at + where]
            if flag != ABSENT:
                readings.series_time[n] = shard.times[line.times_at + where]
                readings.series_start[n] = start_of(one, where, shard.starts)
                readings.series_integer[n] = shard.integers[one.at + where]
                readings.series_float[n] = shard.floats[one.at + where]
                readings.series_is_int[n] = flag == INTEGER
                n += 1
    time, begin = readings.time, readings.begin
    lo = at
    hi = lo + read_series(
        readings.series_time, readings.series_start, readings.series_integer, readings.series_float,
        readings.series_is_int, int(np.int64(0)), n, mode, scale, t_end - LONG_NS, oldest,
        at, time, begin, readings.value, readings.step, readings.sample, readings.integer, readings.run,
    )  # fmt: skip
    interval = typical_gap(time, lo if begin[lo] >= 0 else lo + 1, hi)
    fact = facts[m]
    fact.lo, fact.hi, fact.interval, fact.count = lo, hi, interval, hi - lo
    heard = hi > lo + 1
    fact.latest = time[hi - 1] if heard else NO_TIME
    fact.last = readings.value[hi - 1] if heard else np.nan
    for w in range(2):
        t0 = t_end - (SHORT_NS if w else LONG_NS)
        window = over[w, m]
        window.speaks = covered(time, begin, lo, hi, mode, interval, t0, t_end)
        window.total, window.elapsed, window.origin = 0.0, 0, 0
        if mode != LEVEL:
            total, elapsed, origin = totals(
                time, begin, readings.step, readings.sample, readings.integer, readings.run, lo, hi, mode, t0
            )
            window.total, window.elapsed, window.origin = total * scale, elapsed, origin
    return hi
