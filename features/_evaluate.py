"""One node's numbers: from the samples of its used series to the value, age and status of every feature."""

from __future__ import annotations

import numpy as np
from numba import njit

from fleetpulse.features._aggregates import INCREASE, LAST, RATE, aggregate
from fleetpulse.features._combining import (
    COUNT,
    at_scrapes,
    finish,
    hold_of,
    push,
    quotient,
    scrapes,
    weigh,
)
from fleetpulse.features._points import I64Array
from fleetpulse.features._program import (
    CODE,
    COMPLEMENT,
    END_USE,
    FEATURE,
    FIRST_USE,
    LONG_NS,
    MEASURE,
    OF,
    PER,
    RANK,
    SHORT,
    SHORT_NS,
    SPLIT_ALIKE,
    WALK,
)
from fleetpulse.features._readings import LEVEL, covered, read_series, totals, typical_gap
from fleetpulse.features._samples import first_after

ENOUGH = 0.95
"""Share of its window that a value has to speak for, to be OK rather than PARTIAL."""

MISSING, OK, PARTIAL, STALE = range(4)
"""As in Status."""

NO_TIME = -1


@njit(cache=True)
def read_members(  # type: ignore[no-untyped-def]
    times, starts, integers, floats, is_int, offset, length, member_series, member_mode, member_scale,
    t_end, oldest, time, begin, value, step,
):  # fmt: skip
    """The readings of all of a node's members at t_end, and what they make over both windows.

    times .. length: the shard's samples (SampleArrays, Samples). member_*: NodePlan. oldest: samples up to this time
    are forgotten. time .. step take the readings (see read_series); they have room for one place more a member than it
    has samples.
    Returns spans (3, members) int64: where each member's readings begin and end in those arrays, and its usual
    interval; and for both windows, the long one first, speaks, elapsed, origin (2, members) int64 and total
    (2, members) float64: see covered and totals.
    """
    n_members = len(member_series)
    spans = np.zeros((3, n_members), np.int64)
    speaks = np.zeros((2, n_members), np.int64)
    elapsed = np.zeros((2, n_members), np.int64)
    origin = np.zeros((2, n_members), np.int64)
    total = np.zeros((2, n_members))
    at = int(np.int64(0))  # A literal would have Numba compile what is called with it twice.
    for m in range(n_members):
        s = member_series[m]
        mode = member_mode[m]
        n = read_series(
            times, starts, integers, floats, is_int, offset[s], offset[s] + length[s], mode, member_scale[m],
            t_end - LONG_NS, oldest, at, time, begin, value, step,
        )  # fmt: skip
        lo, hi = at, at + n
        at = hi
        interval = typical_gap(time, lo if begin[lo] >= 0 else lo + 1, hi)
        spans[0, m], spans[1, m], spans[2, m] = lo, hi, interval
        for w in range(2):
            t0 = t_end - (SHORT_NS if w else LONG_NS)
            speaks[w, m] = covered(time, begin, lo, hi, mode, interval, t0, t_end)
            if mode != LEVEL:
                total[w, m], elapsed[w, m], origin[w, m] = totals(time, begin, step, lo, hi, mode, t0)
    return spans, speaks, elapsed, origin, total


@njit(cache=True)
def evaluate(  # type: ignore[no-untyped-def]
    spans, speaks, elapsed, origin, total, time, begin, said_by, member_mode,
    set_at, entry_member, entry_group, entry_slot,
    signals, at_zero, uses, argument, set_combine, set_across, set_value, bounds, t_end,
):  # fmt: skip
    """All features of one node at t_end.

    spans .. total: from read_members, with its time, begin and value (here said_by). member_mode .. entry_slot:
    NodePlan. signals .. bounds: Program.
    Returns (value, status, newest, measure, usual interval of the node, covered), the first four by feature; covered
    in nanoseconds of the long window.
    """
    lo, hi = spans[0], spans[1]
    n_members = len(member_mode)
    t0 = np.empty(2, np.int64)
    t0[0], t0[1] = t_end - LONG_NS, t_end - SHORT_NS
    pace = node_interval(lo, hi, spans[2])
    interval = np.empty(n_members, np.int64)
    for m in range(n_members):
        interval[m] = spans[2, m] if spans[2, m] > 0 else pace
    heard = 0
    for m in range(n_members):
        heard = max(heard, speaks[0, m])
    room = hi[n_members - 1] if n_members else 0

    n_features = len(bounds)
    value = np.empty(n_features)
    for f in range(n_features):
        value[f] = np.nan
    status = np.zeros(n_features, np.uint8)
    newest = np.zeros(n_features, np.int64)
    measure = np.zeros(n_features, np.int64)
    rank = np.zeros(n_features, np.int64)
    scrape = np.empty(room, np.int64)
    spare = np.empty(room, np.int64)
    for k in range(len(signals)):
        of, per = signals[k, OF], signals[k, PER]
        members = entry_member[set_at[of] : set_at[of + 1]]
        if len(members) == 0 or (per >= 0 and set_at[per] == set_at[per + 1]):
            continue
        walked = scrape[:0]
        said = np.empty(0)
        before, step = NO_TIME, 0
        if signals[k, WALK]:
            step = usual(interval, members)
            walked = scrape[: scrapes(members, time, lo, hi, step // 2, scrape, spare)]
            said = walk(
                signals[k], at_zero[k], walked, step // 2, time, begin, said_by, lo, hi,
                member_mode, interval, set_at, entry_member, entry_group, entry_slot,
                set_combine, set_across, set_value,
            )  # fmt: skip
            before = beginning(members, time, begin, lo, hi, member_mode)
        weight_s = np.empty(len(walked))
        for u in range(signals[k, FIRST_USE], signals[k, END_USE]):
            w, code, f = uses[u, SHORT], uses[u, CODE], uses[u, FEATURE]
            if code in (LAST, RATE, INCREASE):
                x = over_window(
                    signals[k], at_zero[k], code, w, t0, time, said_by, lo, hi, member_mode, interval,
                    total, elapsed, origin, set_at, entry_member, entry_group, entry_slot,
                    set_combine, set_across, set_value,
                )  # fmt: skip
            else:
                weigh(walked, before, member_mode[members[0]], step, t0[w], weight_s)
                skip = first_after(walked, 0, len(walked), t0[w])
                x = aggregate(code, walked[skip:], said[skip:], weight_s[skip:], argument[u])
            if np.isnan(x):
                continue
            x = min(max(x, bounds[f, 0]), bounds[f, 1])
            if status[f] != MISSING and (uses[u, RANK] > rank[f] or (uses[u, RANK] == rank[f] and x <= value[f])):
                continue
            latest, due = freshest(members, time, lo, hi, interval)
            if latest <= t0[w]:
                continue
            known = longest(speaks[w], members)
            if per >= 0 and code != LAST:
                divisors = entry_member[set_at[per] : set_at[per + 1]]
                if code not in (RATE, INCREASE) or member_mode[divisors[0]] != LEVEL:
                    known = min(known, longest(speaks[w], divisors))
            value[f], newest[f], rank[f], measure[f] = x, latest, uses[u, RANK], uses[u, MEASURE]
            if t_end - latest > hold_of(due):
                status[f] = STALE
            elif code != LAST and known < ENOUGH * (t_end - t0[w]):
                status[f] = PARTIAL
            else:
                status[f] = OK
    return value, status, newest, measure, pace, heard


@njit(cache=True)
def node_interval(lo: I64Array, hi: I64Array, interval: I64Array) -> int:
    """Usual interval of the series with the most samples in the window, the first of them; 0 when none has two."""
    most, found = 0, 0
    for m in range(len(lo)):
        if interval[m] > 0 and hi[m] - lo[m] > most:
            most, found = hi[m] - lo[m], interval[m]
    return found


@njit(cache=True)
def longest(speaks: I64Array, members: I64Array) -> int:
    """How much of the window the member speaks for that speaks for most."""
    found = 0
    for m in members:
        found = max(found, speaks[m])
    return found


@njit(cache=True)
def usual(interval: I64Array, members: I64Array) -> int:
    """The shortest usual interval among members; 0 when none is known."""
    found = 0
    for m in members:
        if interval[m] > 0 and (found == 0 or interval[m] < found):
            found = interval[m]
    return found


@njit(cache=True)
def freshest(members: I64Array, time: I64Array, lo: I64Array, hi: I64Array, interval: I64Array) -> tuple[int, int]:
    """(time of the newest reading of any member, usual interval of that member)."""
    latest, due = -1, 0
    for m in members:
        if hi[m] > lo[m] + 1 and time[hi[m] - 1] > latest:
            latest, due = time[hi[m] - 1], interval[m]
    return latest, due


@njit(cache=True)
def beginning(members: I64Array, time: I64Array, begin: I64Array, lo: I64Array, hi: I64Array, mode) -> int:  # type: ignore[no-untyped-def]
    """When the time began that the first scrape of a set speaks for; -1 when no member says."""
    found = -1
    for m in members:
        if begin[lo[m]] >= 0:
            found = max(found, time[lo[m]])
        elif mode[m] != LEVEL and hi[m] > lo[m] + 1 and begin[lo[m] + 1] < time[lo[m] + 1]:
            found = max(found, begin[lo[m] + 1])
    return found


@njit(cache=True)
def run_of(entry_group: I64Array, group: int, start: int, end: int) -> tuple[int, int]:
    """The range of a set's entries that belong to one group; the set's entries are start..end, sorted by group."""
    while start < end and entry_group[start] < group:
        start += 1
    stop = start
    while stop < end and entry_group[stop] == group:
        stop += 1
    return start, stop


@njit(cache=True)
def walk(  # type: ignore[no-untyped-def]
    signal, at_zero, scrape, tolerance, time, begin, value, lo, hi, mode, interval,
    set_at, entry_member, entry_group, entry_slot, set_combine, set_across, set_value,
):  # fmt: skip
    """The combined value at each scrape, (len(scrape),) float64, NaN where there is none."""
    of, per = signal[OF], signal[PER]
    n = np.zeros(len(scrape), np.int64)
    a = np.zeros(len(scrape))
    b = np.zeros(len(scrape))
    end = set_at[of + 1]
    i = set_at[of]
    j = set_at[per] if per >= 0 else 0
    divisor = np.empty(0)
    while i < end:
        i, stop = run_of(entry_group, entry_group[i], i, end)
        group = together(
            scrape, tolerance, i, stop, set_combine[of], set_value[of],
            time, begin, value, lo, hi, mode, interval, entry_member, entry_slot,
        )  # fmt: skip
        if per >= 0:
            if signal[SPLIT_ALIKE] or len(divisor) == 0:
                j, j_stop = j, set_at[per + 1]
                if signal[SPLIT_ALIKE]:
                    j, j_stop = run_of(entry_group, entry_group[i], j, set_at[per + 1])
                divisor = together(
                    scrape, tolerance, j, j_stop, set_combine[per], set_value[per],
                    time, begin, value, lo, hi, mode, interval, entry_member, entry_slot,
                )  # fmt: skip
            for k in range(len(scrape)):
                group[k] = quotient(group[k], divisor[k], signal[COMPLEMENT] != 0, at_zero)
        for k in range(len(scrape)):
            if not np.isnan(group[k]):
                x = 1.0 if set_across[of] == COUNT else group[k]
                n[k], a[k], b[k] = push(set_across[of], n[k], a[k], b[k], x)
        i = stop
    said = np.empty(len(scrape))
    for k in range(len(scrape)):
        said[k] = finish(set_across[of], n[k], a[k], b[k])
    return said


@njit(cache=True)
def together(  # type: ignore[no-untyped-def]
    scrape, tolerance, start, stop, combine, wanted, time, begin, value, lo, hi, mode, interval,
    entry_member, entry_slot,
):  # fmt: skip
    """The series entry_member[start:stop] combined at each scrape. Of those in one slot the newest sample speaks."""
    room = len(scrape)
    n = np.zeros(room, np.int64)
    a = np.zeros(room)
    b = np.zeros(room)
    x = np.empty(room)
    when = np.zeros(room, np.int64)
    said = np.empty(room)
    said_when = np.zeros(room, np.int64)
    presence = combine == COUNT
    for e in range(start, stop):
        m = entry_member[e]
        at_scrapes(scrape, tolerance, time, begin, value, lo[m], hi[m], mode[m], interval[m], presence, x, when)
        opens = e == start or entry_slot[e] != entry_slot[e - 1]
        closes = e + 1 == stop or entry_slot[e] != entry_slot[e + 1]
        for k in range(room):
            if opens or (not np.isnan(x[k]) and (np.isnan(said[k]) or when[k] > said_when[k])):
                said[k], said_when[k] = x[k], when[k]
            if closes and not np.isnan(said[k]):
                known = said[k]
                if presence:
                    known = 1.0 if np.isnan(wanted) or known == wanted else 0.0
                n[k], a[k], b[k] = push(combine, n[k], a[k], b[k], known)
    for k in range(room):
        x[k] = finish(combine, n[k], a[k], b[k])
    return x


@njit(cache=True)
def over_window(  # type: ignore[no-untyped-def]
    signal, at_zero, code, w, t0, time, value, lo, hi, mode, interval, total, elapsed, origin,
    set_at, entry_member, entry_group, entry_slot, set_combine, set_across, set_value,
):  # fmt: skip
    """LAST, RATE or INCREASE of a signal over window w; NaN when missing.

    A counter is divided by the same of a counter, and by the last value of a level.
    """
    of, per = signal[OF], signal[PER]
    end = set_at[of + 1]
    i = set_at[of]
    span = span_of(code, w, t0[w], entry_member[i:end], time, lo, hi, interval, elapsed, origin)
    j, j_end, j_code, j_w, j_span = 0, 0, code, w, 0
    if per >= 0:
        j, j_end = set_at[per], set_at[per + 1]
        if code == LAST or mode[entry_member[j]] == LEVEL:
            j_code, j_w = LAST, 0
        j_span = span_of(j_code, j_w, t0[j_w], entry_member[j:j_end], time, lo, hi, interval, elapsed, origin)
    n, a, b = 0, 0.0, 0.0
    while i < end:
        i, stop = run_of(entry_group, entry_group[i], i, end)
        x = group_over_window(
            code, w, t0[w], span, i, stop, set_combine[of], set_value[of],
            time, value, lo, hi, mode, interval, total, elapsed, origin, entry_member, entry_slot,
        )  # fmt: skip
        if per >= 0:
            first, last = j, j_end
            if signal[SPLIT_ALIKE]:
                first, last = run_of(entry_group, entry_group[i], j, j_end)
            divisor = group_over_window(
                j_code, j_w, t0[j_w], j_span, first, last, set_combine[per], set_value[per],
                time, value, lo, hi, mode, interval, total, elapsed, origin, entry_member, entry_slot,
            )  # fmt: skip
            x = quotient(x, divisor, signal[COMPLEMENT] != 0, at_zero)
        if not np.isnan(x):
            n, a, b = push(set_across[of], n, a, b, 1.0 if set_across[of] == COUNT else x)
        i = stop
    return finish(set_across[of], n, a, b)


@njit(cache=True)
def span_of(code, w, t0, members, time, lo, hi, interval, elapsed, origin):  # type: ignore[no-untyped-def]
    """LAST: time of the set's newest reading. RATE: nanoseconds from its first interval's beginning to its newest
    reading, within the window. 0 when there is none."""
    newest, first = 0, 0
    for m in members:
        if hi[m] <= lo[m] + 1 or time[hi[m] - 1] <= t0:
            continue
        if code == LAST:
            newest = max(newest, time[hi[m] - 1])
        elif elapsed[w, m] > 0:
            newest = max(newest, time[hi[m] - 1])
            since = max(origin[w, m], t0)
            first = since if first == 0 else min(first, since)
    return newest - first


@njit(cache=True)
def group_over_window(  # type: ignore[no-untyped-def]
    code, w, t0, span, start, stop, combine, wanted,
    time, value, lo, hi, mode, interval, total, elapsed, origin, entry_member, entry_slot,
):  # fmt: skip
    """One group's LAST, RATE or INCREASE. A rate counts for the share of the set's time that its series was there.

    Of the series in one slot the newest says LAST. Of counters in one slot, those that overlap in time are averaged,
    and those that follow each other added up.
    """
    n, a, b = 0, 0.0, 0.0
    x, newest, here = np.nan, 0, 0
    for e in range(start, stop):
        m = entry_member[e]
        last = hi[m] - 1
        if e == start or entry_slot[e] != entry_slot[e - 1]:
            x, newest, here = np.nan, 0, 0
        if last > lo[m] and time[last] > t0:
            if code == LAST:
                if span - time[last] <= hold_of(interval[m]) and time[last] > newest:
                    x, newest = value[last], time[last]
                    if combine == COUNT:
                        x = 1.0 if np.isnan(wanted) or x == wanted else 0.0
            elif mode[m] != LEVEL:
                there = time[last] - max(origin[w, m], t0) if elapsed[w, m] > 0 else 0
                share = total[w, m]
                if code == RATE:
                    share = share / (elapsed[w, m] / 1e9) * (there / span) if there > 0 else np.nan
                if not np.isnan(share):
                    x = share if np.isnan(x) else x + share
                    here += there
        if e + 1 == stop or entry_slot[e] != entry_slot[e + 1]:
            if here > span:
                x *= span / here
            if not np.isnan(x):
                n, a, b = push(combine, n, a, b, x)
    return finish(combine, n, a, b)
