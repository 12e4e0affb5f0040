"""From a series' samples to readings: what each sample says of the time since the one before it.

A reading of a level is its value; a reading of a counter is an increase over an interval, and the rate that makes. Both
are functions of the samples of the window in order of time, and of the last one before it.
Source of the rules for resets and first points: OpenTelemetry metrics data model, "Resets and Gaps".
"""

from __future__ import annotations

import numpy as np

from fleetpulse.features._kernel import borrowing
from fleetpulse.features._points import BoolArray, F64Array, I64Array
from fleetpulse.features._timelines import first_after

SHORT_NS = 60_000_000_000
LONG_NS = 300_000_000_000
"""The two windows. Everything else about time follows from LONG_NS: lateness, what is kept, what is covered."""

LEVEL, CUMULATIVE, DELTA = 0, 1, 2
"""How a series is read: as it stands, as a running total, as increments."""

ALONE, INTEGERS, FLOATS = 0, 1, 2
"""How a counter's reading goes on from the one before it."""

DIP = 0.01
"""A running total that falls by less than this share of itself has not been reset: /proc/stat's iowait and idle do it.
It counts as no increase."""

GAPS_FOR_INTERVAL = 15
HOLE = 1.5
"""A gap longer than this many usual intervals is a hole: a level says nothing about what lies in it."""


@borrowing
def typical_gap(times: I64Array, lo: int, hi: int) -> int:
    """Lower median of the last 15 distances between times[lo:hi]; 0 when there are not two."""
    n = min(hi - lo - 1, GAPS_FOR_INTERVAL)
    for i in range(n):
        gap = times[hi - 1 - i] - times[hi - 2 - i]
        less, equal = 0, 0
        for j in range(n):
            other = times[hi - 1 - j] - times[hi - 2 - j]
            if other < gap:
                less += 1
            elif other == gap:
                equal += 1
        if less <= (n - 1) // 2 < less + equal:
            return int(gap)
    return 0


@borrowing
def increase(previous: float, previous_int: int, value: float, value_int: int, both_int: bool) -> float:
    """From one running total to the next, both of one unbroken start. Integers are differenced as integers."""
    if both_int:
        if value_int >= previous_int:
            return float(value_int - previous_int)
    elif value >= previous:
        return value - previous
    if previous - value < DIP * previous:
        return 0.0
    return max(value, 0.0)


@borrowing
def window_of(
    times: I64Array, floats: F64Array, is_int: BoolArray, lo: int, hi: int, t0: int, oldest: int
) -> tuple[int, int]:
    """(first sample after t0, its baseline), both as positions in lo..hi.

    The baseline is the last finite sample in (oldest, t0]; -1 when there is none.
    """
    first = first_after(times, lo, hi, t0)
    for i in range(first - 1, lo - 1, -1):
        if times[i] <= oldest:
            break
        if is_int[i] or np.isfinite(floats[i]):
            return first, i
    return first, -1


@borrowing
def read_series(  # type: ignore[no-untyped-def]
    times, starts, integers, floats, is_int, lo, hi, mode, scale, t0, oldest,
    at, out_time, out_begin, out_value, out_step, out_float, out_integer, out_run,
):  # fmt: skip
    """Readings of one series' window (t0, times[hi - 1]], written from position `at` on.

    out_time: when. out_begin: where the interval of the reading begins; out_begin == out_time for a sample that only
    starts one. out_value: level, or increase per second (NaN where there is no interval). out_step: by how much the
    series grew, unscaled; 0 for levels. out_float, out_integer: the sample. out_run: for a counter whether it goes on
    from the reading before, as integers (INTEGERS) or as floats (FLOATS), or stands for itself (ALONE).
    Place `at` holds the baseline; out_begin is -1 there when there is none. Returns the number of places written.
    Samples that are not finite are passed over. Of two overlapping increments the later one is a repetition.
    """
    first, base = window_of(times, floats, is_int, lo, hi, t0, oldest)
    n = at + 1
    out_time[at] = out_begin[at] = -1
    out_value[at] = np.nan
    out_step[at] = 0.0
    out_run[at] = ALONE
    known = base >= 0
    previous_time = 0
    previous = 0.0
    previous_integer = 0
    previous_is_int = False
    if known:
        previous_time = times[base]
        previous_is_int = is_int[base]
        previous_integer = integers[base]
        previous = float(previous_integer) if previous_is_int else floats[base]
        out_time[at] = out_begin[at] = previous_time
        out_float[at], out_integer[at] = previous, previous_integer
        if mode == LEVEL:
            out_value[at] = previous * scale
    for i in range(first, hi):
        value = float(integers[i]) if is_int[i] else floats[i]
        if not np.isfinite(value):
            continue
        t = times[i]
        start = starts[i]
        begin = previous_time if known else t
        step, run = 0.0, ALONE
        if mode == CUMULATIVE:
            if not known:
                if t0 < start < t:
                    begin, step = start, max(value, 0.0)
            elif start >= t:
                begin = t
            elif start > previous_time:
                step = max(value, 0.0)
            else:
                step = increase(previous, previous_integer, value, integers[i], previous_is_int and is_int[i])
                if previous_is_int == is_int[i]:
                    if is_int[i]:
                        run = INTEGERS if integers[i] >= previous_integer else ALONE
                    else:
                        run = FLOATS if value >= previous else ALONE
        elif mode == DELTA:
            if known and 0 < start < previous_time:
                continue
            step = value
            if 0 < start <= t:
                begin = start
        out_time[n] = t
        out_begin[n] = begin
        out_step[n] = step
        out_run[n] = run
        out_float[n], out_integer[n] = value, integers[i]
        if mode == LEVEL:
            out_value[n] = value * scale
        else:
            out_value[n] = rate(step, scale, t - begin)
        n += 1
        known = True
        previous_time, previous, previous_integer, previous_is_int = t, value, integers[i], is_int[i]
    return n - at


@borrowing
def rate(step: float, scale: float, elapsed: int) -> float:
    """Scaled increase per second; NaN where no time passed."""
    return step * scale / (elapsed / 1e9) if elapsed > 0 else np.nan


@borrowing
def counts_nothing(begin: I64Array, lo: int, i: int, mode: int, t0: int) -> bool:
    """Whether reading i stands on a start that lies before this window: what it counts may have happened earlier."""
    return mode == CUMULATIVE and i == lo + 1 and begin[lo] < 0 and begin[i] <= t0


@borrowing
def covered(time: I64Array, begin: I64Array, lo: int, hi: int, mode: int, interval: int, t0: int, t_end: int) -> int:
    """Nanoseconds of (t0, t_end] that the readings lo+1..hi speak for; lo is the baseline's place.

    A counter speaks for the whole interval of each increase. A level speaks for the usual interval before it at
    most. The time since the newest reading counts while the next one is not overdue.
    """
    if hi <= lo + 1 or time[hi - 1] <= t0:
        return 0
    total = 0
    for i in range(lo + 1, hi):
        if time[i] <= t0 or counts_nothing(begin, lo, i, mode, t0):
            continue
        since = begin[i]
        if mode == LEVEL and ((i == lo + 1 and begin[lo] < 0) or time[i] - since > HOLE * interval):
            since = time[i] - interval
        total += time[i] - max(since, t0)
    if t_end - time[hi - 1] <= HOLE * interval:
        total += t_end - time[hi - 1]
    return total


@borrowing
def totals(  # type: ignore[no-untyped-def]
    time, begin, step, sample, integer, run, lo, hi, mode, t0
):  # fmt: skip
    """(increase, nanoseconds it took, when those began) of one counter's readings after t0; the increase unscaled.

    Readings that go on from each other add the difference of the last and the sample before the first. The beginning
    is that of the first interval, which may lie before t0; -1 without readings.
    """
    total = 0.0
    elapsed = 0
    origin = -1
    since = -1  # The reading that the present run began with.
    for i in range(lo + 1, hi):
        if time[i] <= t0:
            continue
        if counts_nothing(begin, lo, i, mode, t0):
            origin = time[i]
            continue
        if origin < 0:
            origin = begin[i]
        elapsed += time[i] - begin[i]
        if run[i] == ALONE:
            if since >= 0:
                total += grown(sample, integer, run[i - 1], since, i - 1)
            since = -1
            total += step[i]
        elif since < 0:
            since = i - 1
    if since >= 0:
        total += grown(sample, integer, run[hi - 1], since, hi - 1)
    return total, elapsed, origin


@borrowing
def grown(sample: F64Array, integer: I64Array, run: int, first: int, last: int) -> float:
    """From one sample of an unbroken run to a later one."""
    if run == INTEGERS:
        return float(integer[last] - integer[first])
    return float(sample[last] - sample[first])
