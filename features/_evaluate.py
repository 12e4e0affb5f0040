"""From the samples of nodes' used series to the value, age and status of every feature."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fleetpulse.features._aggregates import INCREASE, LAST, RATE, aggregate
from fleetpulse.features._combining import (
    COUNT,
    at_scrapes,
    finish,
    hold_of,
    push,
    quotient,
    times_of,
    weigh,
)
from fleetpulse.features._facts import (
    FACTS,
    LINE_FACTS,
    LINE_WINDOW,
    WINDOW_FACTS,
    no_readings,
    read_any,
    read_lines,
    read_row,
    read_steady,
    size_of,
)
from fleetpulse.features._kernel import borrowing
from fleetpulse.features._points import BoolArray, F64Array, I64Array
from fleetpulse.features._readings import LEVEL, LONG_NS, SHORT_NS
from fleetpulse.features._timelines import NEVER, NONE, first_after, place, row_after

ENOUGH = 0.95
"""Share of its window that a value has to speak for, to be OK rather than PARTIAL."""

MISSING, OK, PARTIAL, STALE = range(4)
"""As in Status."""

NO_TIME = -1

KEPT = np.dtype(
    [("at", np.int64), ("known_ns", np.int64), ("line", np.int32), ("room", np.int32), ("wanted", np.int32)]
)
"""What is kept of a signal between one vector of its node and the next: its values at the scrapes of a timeline.

They lie as that timeline's rows do, from place `at` on; those up to known_ns are valid, 0 for none. line: which
timeline. room: how many places there are; wanted: how many there should be.
"""


SET_FACTS = np.dtype(
    [
        ("slot", np.int64),
        ("single", np.bool_),
        ("latest", np.int64),
        ("due", np.int64),
        ("usual", np.int64),
        ("row", np.int64),
        ("row_value", np.float64),
    ],
    align=True,
)
"""A set of a node at its t_end; all but slot only where it has members.

slot: the timeline that all its members are steady on, NONE without one. single: all are in one group. latest, due: time
of the newest reading of any member, and the usual interval of that one. usual: the shortest usual interval. row,
row_value: what all its members make together at the row that was asked for last.
"""

SET_WINDOW = np.dtype(
    [
        ("speaks", np.int64),
        ("since", np.int64),
        ("until", np.int64),
    ],
    align=True,
)
"""One of both windows of a set.

speaks: how much of it the member speaks for that speaks for most. since, until: when the first interval of a counter
begins within the window, and the newest reading of one; 0 without one.
"""

TOGETHER = np.dtype([("known", np.bool_), ("value", np.float64)], align=True)
"""LAST, RATE or INCREASE of all members of a set together over one of both windows, if it is known yet."""


SUM = np.dtype([("n", np.int64), ("a", np.float64), ("b", np.float64)], align=True)
"""An accumulator, see push."""


class Scrapes(NamedTuple):
    """Places for one signal at each of its scrapes: when, what all say together, and what leads there."""

    time: I64Array
    spare_time: I64Array
    value: F64Array
    spare: F64Array
    weight_s: F64Array
    group: F64Array
    divisor: F64Array
    across: NDArray[np.void]
    within: NDArray[np.void]
    heard: F64Array
    heard_ns: I64Array
    said: F64Array
    said_ns: I64Array


class Answers(NamedTuple):
    """Rows by node; all but pace and covered have a column by feature.

    value: NaN where missing. newest: time of the newest sample it rests on. measure: which of the feature's measures
    it is. pace: the node's usual interval, 0 while unknown. covered: nanoseconds of the long window that the series
    speaks for that speaks for most. unkept: the node has no vector yet: there is no room for what is to be kept.
    """

    value: F64Array
    status: NDArray[np.uint8]
    newest: I64Array
    measure: I64Array
    pace: I64Array
    covered: I64Array
    unkept: BoolArray

    @classmethod
    def empty(cls, nodes: int, features: int) -> Answers:
        return cls(
            np.full((nodes, features), np.nan),
            np.zeros((nodes, features), np.uint8),
            np.zeros((nodes, features), np.int64),
            np.zeros((nodes, features), np.int64),
            np.zeros(nodes, np.int64),
            np.zeros(nodes, np.int64),
            np.zeros(nodes, np.bool_),
        )


@njit(cache=True)
def no_scrapes(n):  # type: ignore[no-untyped-def]
    return Scrapes(
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n, SUM),
        np.empty(n, SUM),
        np.empty(n),
        np.empty(n, np.int64),
        np.empty(n),
        np.empty(n, np.int64),
    )


@njit(cache=True)
def evaluate(  # type: ignore[no-untyped-def]
    nodes, rows, t_end_ns, look_back_ns, shard, plans, program, kept, kept_value, shortcuts, out
):  # fmt: skip
    """All features of some nodes.

    nodes: (n,) indexes. rows: for which of those. t_end_ns: by node. shard: Shard. plans: PlanArrays. program: Program.
    kept: (nodes, signals) of KEPT, kept_value: what they point to. shortcuts: False reads every series and every scrape
    anew, which gives the same bits, slower. out: Answers, as Answers.empty makes them.
    """
    series, all_lines, first_line, times = shard.series, shard.lines, shard.first_line, shard.times
    lines, line_over = np.empty(8, LINE_FACTS), np.empty((2, 8), LINE_WINDOW)
    facts, over, wanted = np.empty(256, FACTS), np.empty((2, 256), WINDOW_FACTS), np.empty(256, np.bool_)
    reading, readings = np.empty(256), no_readings(1024, 128)
    time, begin, weight_s = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty((4, 1024))
    scrapes = no_scrapes(1024)
    n_features = out.value.shape[1]
    rank, weighed = np.empty(n_features, np.int64), np.empty((8, 4), np.bool_)
    n_sets = plans.set_at.shape[1] - 1
    sets, set_over = np.empty(n_sets, SET_FACTS), np.empty((2, n_sets), SET_WINDOW)
    whole = np.empty((2, 3, n_sets), TOGETHER)
    steady = np.empty(len(program.signals), np.bool_)
    for i in rows:
        node = nodes[i]
        t_end = t_end_ns[node]
        oldest = t_end - look_back_ns
        set_at = plans.set_at[node]
        members = plans.members[plans.members_at[node] : plans.members_at[node] + plans.n_members[node]]
        entries = plans.entries[plans.entries_at[node] : plans.entries_at[node] + set_at[-1]]
        n_lines, n_rows, most = size_of(node, first_line, all_lines)
        if n_lines > len(lines):
            lines, line_over = np.empty(2 * n_lines, LINE_FACTS), np.empty((2, 2 * n_lines), LINE_WINDOW)
            weighed = np.empty((2 * n_lines, 4), np.bool_)
        if n_rows + n_lines > len(time):
            room = 2 * (n_rows + n_lines)
            time, begin, weight_s = np.empty(room, np.int64), np.empty(room, np.int64), np.empty((4, room))
        if len(members) > len(facts):
            room = 2 * len(members)
            facts, over, wanted = np.empty(room, FACTS), np.empty((2, room), WINDOW_FACTS), np.empty(room, np.bool_)
            reading = np.empty(room)
        read_lines(node, t_end, oldest, all_lines, first_line, times, lines, line_over, time, begin)
        if shortcuts:
            read_steady(
                members, t_end, series, all_lines, shard.starts, shard.integers, shard.floats, shard.flags,
                lines, line_over, facts, over,
            )  # fmt: skip
        else:
            for m in range(len(members)):
                facts[m].steady = False
        choose(program.signals, set_at, entries, len(members), facts, lines, sets, steady, wanted)
        if not room_is_kept(program.signals, steady, sets, lines, all_lines, kept[node]):
            out.unkept[i] = True
            continue
        room = room_for(members, series, all_lines, wanted)
        if room > len(readings.time) or most + 1 > len(readings.series_time):
            readings = no_readings(2 * room, 2 * (most + 1))
        room = max(room, most)
        if room > len(scrapes.time):
            scrapes = no_scrapes(2 * room)
        at = int(np.int64(0))  # A literal would have Numba compile what is called with it twice.
        for m in range(len(members)):
            if wanted[m]:
                one, member = series[members[m].series], members[m]
                at = read_any(one, member.mode, member.scale, m, t_end, oldest, at, shard, readings, facts, over)
        out.pace[i], out.covered[i] = settle(len(members), facts, over)
        read_sets(set_at, entries, t_end, facts, over, sets, set_over, whole)
        for slot in range(n_lines):
            line = all_lines[lines[slot].index]
            keep(
                slot, lines[slot], line, program.signals, steady, set_at, members, entries, series, times,
                shard.integers, shard.floats, shard.flags, facts, sets, reading, kept[node], kept_value,
            )  # fmt: skip
            line.touched_ns = NEVER
        answer(
            t_end, all_lines, set_at, members, entries, program.signals, program.uses, lines, facts, over, readings,
            sets, set_over, whole, steady, time, begin, rank, weighed, weight_s, scrapes, kept[node], kept_value,
            out.value[i], out.status[i], out.newest[i], out.measure[i],
        )  # fmt: skip


@borrowing
def choose(signals, set_at, entries, members, facts, lines, sets, steady, wanted):  # type: ignore[no-untyped-def]
    """Which signals are steady at their scrapes, and which members have to be read for those that are not.

    A signal is steady when its sets are so on one timeline, and no two rows of it lie within the tolerance to which
    scrapes are told apart.
    """
    for m in range(members):
        wanted[m] = not facts[m].steady
    for k in range(len(sets)):
        found = NONE
        for e in range(set_at[k], set_at[k + 1]):
            fact = facts[entries[e].member]
            slot = fact.slot if fact.steady else NONE
            if slot == NONE or (e > set_at[k] and slot != found):
                found = NONE
                break
            found = slot
        sets[k].slot = found
    for k in range(len(signals)):
        signal = signals[k]
        slot = sets[signal.of].slot
        steady[k] = slot != NONE and (signal.per == NONE or sets[signal.per].slot == slot)
        steady[k] = steady[k] and lines[slot].shortest > lines[slot].interval // 2
        if signal.walked and not steady[k]:
            for j in (signal.of, signal.per):
                if j != NONE:
                    for e in range(set_at[j], set_at[j + 1]):
                        wanted[entries[e].member] = True


@borrowing
def room_is_kept(signals, steady, sets, lines, all_lines, kept):  # type: ignore[no-untyped-def]
    """Whether there is room for the values of all steady signals; where there is not, how much is wanted is set."""
    found = True
    for k in range(len(signals)):
        if signals[k].walked and steady[k]:
            kept[k].wanted = all_lines[lines[sets[signals[k].of].slot].index].capacity
            found = found and kept[k].room == kept[k].wanted
    return found


@borrowing
def settle(members, facts, over):  # type: ignore[no-untyped-def]
    """Give members without a usual interval that of the node; returns (that, how much of the long window is covered).

    The node's is that of the series with the most samples in the window, the first of them; 0 when none has two.
    """
    most, pace, heard = 0, 0, 0
    for m in range(members):
        if facts[m].interval > 0 and facts[m].count > most:
            most, pace = facts[m].count, facts[m].interval
    for m in range(members):
        if facts[m].interval == 0:
            facts[m].interval = pace
        heard = max(heard, over[0, m].speaks)
    return pace, heard


@borrowing
def room_for(members, series, all_lines, wanted):  # type: ignore[no-untyped-def]
    """Places for the readings of the members that are wanted."""
    room = 0
    for m in range(len(members)):
        if wanted[m]:
            line = series[members[m].series].line
            room += 2 + (all_lines[line].length if line != NONE else 0)
    return room


@borrowing
def read_sets(set_at, entries, t_end, facts, over, sets, set_over, whole):  # type: ignore[no-untyped-def]
    """Fill sets, of SET_FACTS, and set_over, (2, n) of SET_WINDOW, for the sets that have members.

    Nothing is known yet of whole, (2, 3, n) of TOGETHER.
    """
    for k in range(len(sets)):
        start, stop = set_at[k], set_at[k + 1]
        if start == stop:
            continue
        out = sets[k]
        out.single = entries[start].group == entries[stop - 1].group
        out.latest, out.due, out.usual, out.row = NO_TIME, 0, 0, NONE
        for e in range(start, stop):
            fact = facts[entries[e].member]
            if fact.latest > out.latest:
                out.latest, out.due = fact.latest, fact.interval
            if fact.interval > 0 and (out.usual == 0 or fact.interval < out.usual):
                out.usual = fact.interval
        for w in range(2):
            t0 = t_end - (SHORT_NS if w else LONG_NS)
            window = set_over[w, k]
            speaks, since, until = 0, 0, 0
            for e in range(start, stop):
                m = entries[e].member
                speaks = max(speaks, over[w, m].speaks)
                if over[w, m].elapsed > 0 and facts[m].latest > t0:
                    until = max(until, facts[m].latest)
                    first = max(over[w, m].origin, t0)
                    since = first if since == 0 else min(since, first)
            window.speaks, window.since, window.until = speaks, since, until
            for c in range(3):
                whole[w, c, k].known = False


@borrowing
def keep(  # type: ignore[no-untyped-def]
    slot, lined, line, signals, steady, set_at, members, entries, series, times, integers, floats, flags,
    facts, sets, reading, kept, kept_value,
):  # fmt: skip
    """Work out what the steady signals of one timeline say at the rows for which that is not kept yet.

    What a steady signal says at a row follows from that row and the one before it alone. So a value that was kept
    holds until a row up to its own is touched. lined: the timeline's LINE_FACTS. reading: room for all members.
    """
    newest_ns = lined.newest_ns
    known_ns = newest_ns
    for k in range(len(signals)):
        if not signals[k].walked:
            continue
        if not steady[k]:
            if slot == 0:
                kept[k].known_ns = 0
        elif sets[signals[k].of].slot == slot:
            one = kept[k]
            one.known_ns = min(one.known_ns, line.touched_ns - 1) if one.line == lined.index else 0
            one.line = lined.index
            known_ns = min(known_ns, one.known_ns)
    for row in range(max(lined.first, row_after(line, times, known_ns)), line.length):
        where = place(line, row)
        t = times[line.times_at + where]
        read_row(row, slot, members, series, line, times, integers, floats, flags, facts, reading)
        for k in range(len(signals)):
            if signals[k].walked and steady[k] and sets[signals[k].of].slot == slot and kept[k].known_ns < t:
                said = steady_at(signals[k], row, set_at, members, entries, sets, reading)
                kept_value[kept[k].at + where] = said
    for k in range(len(signals)):
        if signals[k].walked and steady[k] and sets[signals[k].of].slot == slot:
            kept[k].known_ns = newest_ns


@borrowing
def answer(  # type: ignore[no-untyped-def]
    t_end, all_lines, set_at, members, entries, signals, uses, lines, facts, over, readings,
    sets, set_over, whole, steady, time, begin, rank, weighed, weight_s, scrapes, kept, kept_value,
    value, status, newest, measure,
):  # fmt: skip
    """The features of one node: value, status, newest and measure are its rows of the answers."""
    weighed[:] = False
    for k in range(len(signals)):
        signal = signals[k]
        of, of_end, per, per_end = set_at[signal.of], set_at[signal.of + 1], 0, 0
        if signal.per != NONE:
            per, per_end = set_at[signal.per], set_at[signal.per + 1]
        if of == of_end or (signal.per != NONE and per == per_end):
            continue
        mode = members[entries[of].member].mode
        levels = 1 if mode == LEVEL else 0
        step, before, slot = sets[signal.of].usual, NO_TIME, sets[signal.of].slot
        walked, said, weight = scrapes.time[:0], scrapes.value[:0], scrapes.weight_s[:0]
        lo, hi = 0, 0
        if signal.walked and steady[k]:
            lo, hi = lines[slot].lo, lines[slot].hi
            walked, before = time[lo + 1 : hi], begin[lo]
            said = scrapes.value[: hi - lo - 1]
            line = all_lines[lines[slot].index]
            for r in range(hi - lo - 1):
                said[r] = kept_value[kept[k].at + place(line, lines[slot].first + r)]
        elif signal.walked:
            n = times_of(of, of_end, entries, facts, readings.time, step // 2, scrapes.time, scrapes.spare_time)
            walked, said, weight = scrapes.time[:n], scrapes.value[:n], scrapes.weight_s[:n]
            walk(signal, of, of_end, per, per_end, n, step // 2, members, entries, facts, readings, scrapes)
            before = beginning(of, of_end, members, entries, facts, readings.time, readings.begin)
        for u in range(signal.first_use, signal.end_use):
            use = uses[u]
            w, code, f = use.short, use.code, use.feature
            t0 = t_end - (SHORT_NS if w else LONG_NS)
            if code in (LAST, RATE, INCREASE):
                x = over_window(signal, code, w, t_end, set_at, members, entries, facts, over, sets, set_over, whole)
            else:
                if steady[k]:
                    weight = weight_s[2 * levels + w, lo + 1 : hi]
                if not steady[k] or not weighed[slot, 2 * levels + w]:
                    weigh(walked, before, mode, step, t0, weight)
                    if steady[k]:
                        weighed[slot, 2 * levels + w] = True
                skip = first_after(walked, 0, len(walked), t0)
                x = aggregate(code, walked, said, weight, skip, use.argument, scrapes.spare)
            if np.isnan(x):
                continue
            x = min(max(x, use.low), use.high)
            if status[f] != MISSING and (use.rank > rank[f] or (use.rank == rank[f] and x <= value[f])):
                continue
            latest = sets[signal.of].latest
            if latest <= t0:
                continue
            known = set_over[w, signal.of].speaks
            if signal.per != NONE and code != LAST:
                level_divides = code in (RATE, INCREASE) and members[entries[per].member].mode == LEVEL
                if not level_divides:
                    known = min(known, set_over[w, signal.per].speaks)
            value[f], newest[f], rank[f], measure[f] = x, latest, use.rank, use.measure
            if t_end - latest > hold_of(sets[signal.of].due):
                status[f] = STALE
            elif code != LAST and known < ENOUGH * (t_end - t0):
                status[f] = PARTIAL
            else:
                status[f] = OK


@borrowing
def beginning(start, stop, members, entries, facts, time, begin):  # type: ignore[no-untyped-def]
    """When the time began that the first scrape of a set speaks for; -1 when no member says."""
    found = NO_TIME
    for e in range(start, stop):
        m = entries[e].member
        lo, hi = facts[m].lo, facts[m].hi
        if begin[lo] >= 0:
            found = max(found, time[lo])
        elif members[m].mode != LEVEL and hi > lo + 1 and begin[lo + 1] < time[lo + 1]:
            found = max(found, begin[lo + 1])
    return found


@borrowing
def run_of(entries, group, start, end):  # type: ignore[no-untyped-def]
    """The range of a set's entries that belong to one group; the set's entries are start..end, sorted by group."""
    while start < end and entries[start].group < group:
        start += 1
    stop = start
    while stop < end and entries[stop].group == group:
        stop += 1
    return start, stop


@borrowing
def steady_at(signal, row, set_at, members, entries, sets, reading):  # type: ignore[no-untyped-def]
    """The combined value of a steady signal at one row, where its members read as given; NaN where there is none."""
    of, of_end, per, per_end = set_at[signal.of], set_at[signal.of + 1], 0, 0
    if signal.per != NONE:
        per, per_end = set_at[signal.per], set_at[signal.per + 1]
    n, a, b = 0, 0.0, 0.0
    while of < of_end:
        group, stop = entries[of].group, of_end
        if sets[signal.of].single:
            x = steady_set(
                sets[signal.of], signal.of_combine, signal.of_value, row, of, stop, members, entries, reading
            )
        else:
            of, stop = run_of(entries, group, of, of_end)
            x = steady_group(signal.of_combine, signal.of_value, of, stop, members, entries, reading)
        if signal.per != NONE:
            if not signal.alike or (sets[signal.per].single and entries[per].group == group):
                divisor = steady_set(
                    sets[signal.per], signal.per_combine, signal.per_value, row, per, per_end,
                    members, entries, reading,
                )  # fmt: skip
            else:
                per, per_stop = run_of(entries, group, per, per_end)
                divisor = steady_group(signal.per_combine, signal.per_value, per, per_stop, members, entries, reading)
            x = quotient(x, divisor, signal.complement, signal.at_zero)
        if not np.isnan(x):
            n, a, b = push(signal.across, n, a, b, 1.0 if signal.across == COUNT else x)
        of = stop
    return finish(signal.across, n, a, b)


@borrowing
def steady_set(one, combine, wanted, row, start, stop, members, entries, reading):  # type: ignore[no-untyped-def]
    """What all members of a set make together at one row: several signals ask."""
    if one.row != row:
        one.row, one.row_value = row, steady_group(combine, wanted, start, stop, members, entries, reading)
    return one.row_value


@borrowing
def steady_group(combine, wanted, start, stop, members, entries, reading):  # type: ignore[no-untyped-def]
    """The steady series of entries[start:stop] combined at one row. Of those in one slot the first speaks."""
    n, a, b, said = 0, 0.0, 0.0, np.nan
    for e in range(start, stop):
        m = entries[e].member
        if e == start or entries[e].slot != entries[e - 1].slot:
            said = np.nan
        if np.isnan(said):
            said = 1.0 if combine == COUNT and members[m].mode != LEVEL else reading[m]
        if (e + 1 == stop or entries[e].slot != entries[e + 1].slot) and not np.isnan(said):
            known = said
            if combine == COUNT:
                known = 1.0 if np.isnan(wanted) or known == wanted else 0.0
            n, a, b = push(combine, n, a, b, known)
    return finish(combine, n, a, b)


@borrowing
def walk(  # type: ignore[no-untyped-def]
    signal, of, of_end, per, per_end, n, tolerance, members, entries, facts, readings, scrapes
):  # fmt: skip
    """The combined value at each of the first n scrapes, into scrapes.value; NaN where there is none."""
    across = scrapes.across[:n]
    for k in range(n):
        across[k].n, across[k].a, across[k].b = 0, 0.0, 0.0
    if signal.per != NONE and not signal.alike:
        together(
            signal.per_combine, signal.per_value, per, per_end, n, tolerance, members, entries, facts, readings,
            scrapes, scrapes.divisor,
        )  # fmt: skip
    while of < of_end:
        of, stop = run_of(entries, entries[of].group, of, of_end)
        together(
            signal.of_combine, signal.of_value, of, stop, n, tolerance, members, entries, facts, readings,
            scrapes, scrapes.group,
        )  # fmt: skip
        if signal.per != NONE and signal.alike:
            per, per_stop = run_of(entries, entries[of].group, per, per_end)
            together(
                signal.per_combine, signal.per_value, per, per_stop, n, tolerance, members, entries, facts, readings,
                scrapes, scrapes.divisor,
            )  # fmt: skip
        for k in range(n):
            x = scrapes.group[k]
            if signal.per != NONE:
                x = quotient(x, scrapes.divisor[k], signal.complement, signal.at_zero)
            if not np.isnan(x):
                one = 1.0 if signal.across == COUNT else x
                across[k].n, across[k].a, across[k].b = push(signal.across, across[k].n, across[k].a, across[k].b, one)
        of = stop
    for k in range(n):
        scrapes.value[k] = finish(signal.across, across[k].n, across[k].a, across[k].b)


@borrowing
def together(  # type: ignore[no-untyped-def]
    combine, wanted, start, stop, n, tolerance, members, entries, facts, readings, scrapes, out
):  # fmt: skip
    """The series of entries[start:stop] combined at each of the first n scrapes, into out.

    Of those in one slot the newest sample speaks.
    """
    within, heard, heard_ns = scrapes.within, scrapes.heard, scrapes.heard_ns
    said, said_ns = scrapes.said, scrapes.said_ns
    for k in range(n):
        within[k].n, within[k].a, within[k].b = 0, 0.0, 0.0
    presence = combine == COUNT
    for e in range(start, stop):
        m = entries[e].member
        at_scrapes(
            scrapes.time[:n], tolerance, readings.time, readings.begin, readings.value, facts[m].lo, facts[m].hi,
            members[m].mode, facts[m].interval, presence, heard, heard_ns,
        )  # fmt: skip
        opens = e == start or entries[e].slot != entries[e - 1].slot
        closes = e + 1 == stop or entries[e].slot != entries[e + 1].slot
        for k in range(n):
            if opens or (not np.isnan(heard[k]) and (np.isnan(said[k]) or heard_ns[k] > said_ns[k])):
                said[k], said_ns[k] = heard[k], heard_ns[k]
            if closes and not np.isnan(said[k]):
                known = said[k]
                if presence:
                    known = 1.0 if np.isnan(wanted) or known == wanted else 0.0
                within[k].n, within[k].a, within[k].b = push(combine, within[k].n, within[k].a, within[k].b, known)
    for k in range(n):
        out[k] = finish(combine, within[k].n, within[k].a, within[k].b)


@borrowing
def over_window(  # type: ignore[no-untyped-def]
    signal, code, w, t_end, set_at, members, entries, facts, over, sets, set_over, whole
):  # fmt: skip
    """LAST, RATE or INCREASE of a signal over window w; NaN when missing.

    A counter is divided by the same of a counter, and by the last value of a level.
    """
    of, of_end, per, per_end = set_at[signal.of], set_at[signal.of + 1], 0, 0
    per_code, per_w = code, w
    if signal.per != NONE:
        per, per_end = set_at[signal.per], set_at[signal.per + 1]
        if code == LAST or members[entries[per].member].mode == LEVEL:
            per_code, per_w = LAST, 0
    n, a, b = 0, 0.0, 0.0
    while of < of_end:
        group, stop = entries[of].group, of_end
        if sets[signal.of].single:
            x = set_over_window(
                signal.of, code, w, t_end, signal.of_combine, signal.of_value, of, stop,
                members, entries, facts, over, sets, set_over, whole,
            )  # fmt: skip
        else:
            of, stop = run_of(entries, group, of, of_end)
            x = group_over_window(
                signal.of, code, w, t_end, signal.of_combine, signal.of_value, of, stop,
                members, entries, facts, over, sets, set_over,
            )  # fmt: skip
        if signal.per != NONE:
            if not signal.alike or (sets[signal.per].single and entries[per].group == group):
                divisor = set_over_window(
                    signal.per, per_code, per_w, t_end, signal.per_combine, signal.per_value, per, per_end,
                    members, entries, facts, over, sets, set_over, whole,
                )  # fmt: skip
            else:
                per, per_stop = run_of(entries, group, per, per_end)
                divisor = group_over_window(
                    signal.per, per_code, per_w, t_end, signal.per_combine, signal.per_value, per, per_stop,
                    members, entries, facts, over, sets, set_over,
                )  # fmt: skip
            x = quotient(x, divisor, signal.complement, signal.at_zero)
        if not np.isnan(x):
            n, a, b = push(signal.across, n, a, b, 1.0 if signal.across == COUNT else x)
        of = stop
    return finish(signal.across, n, a, b)


@borrowing
def set_over_window(  # type: ignore[no-untyped-def]
    k, code, w, t_end, combine, wanted, start, stop, members, entries, facts, over, sets, set_over, whole
):  # fmt: skip
    """What all members of set k make together over window w: several signals ask."""
    one = whole[w, 0 if code == LAST else 1 if code == RATE else 2, k]
    if not one.known:
        one.known = True
        one.value = group_over_window(
            k, code, w, t_end, combine, wanted, start, stop, members, entries, facts, over, sets, set_over
        )
    return one.value


@borrowing
def group_over_window(  # type: ignore[no-untyped-def]
    k, code, w, t_end, combine, wanted, start, stop, members, entries, facts, over, sets, set_over
):  # fmt: skip
    """LAST, RATE or INCREASE of one group of set k.

    A rate counts for the share of the set's time that its series was there.

    Of the series in one slot the newest says LAST. Of counters in one slot, those that overlap in time are averaged,
    and those that follow each other added up.
    """
    t0 = t_end - (SHORT_NS if w else LONG_NS)
    span = max(sets[k].latest, 0) if code == LAST else set_over[w, k].until - set_over[w, k].since
    n, a, b = 0, 0.0, 0.0
    x, newest, here = np.nan, 0, 0
    for e in range(start, stop):
        m = entries[e].member
        fact, window = facts[m], over[w, m]
        if e == start or entries[e].slot != entries[e - 1].slot:
            x, newest, here = np.nan, 0, 0
        if fact.latest > t0:
            if code == LAST:
                if span - fact.latest <= hold_of(fact.interval) and fact.latest > newest:
                    x, newest = fact.last, fact.latest
                    if combine == COUNT:
                        x = 1.0 if np.isnan(wanted) or x == wanted else 0.0
            elif members[m].mode != LEVEL:
                there = fact.latest - max(window.origin, t0) if window.elapsed > 0 else 0
                share = window.total
                if code == RATE:
                    share = share / (window.elapsed / 1e9) * (there / span) if there > 0 else np.nan
                if not np.isnan(share):
                    x = share if np.isnan(x) else x + share
                    here += there
        if e + 1 == stop or entries[e].slot != entries[e + 1].slot:
            if here > span:
                x *= span / here
            if not np.isnan(x):
                n, a, b = push(combine, n, a, b, x)
    return finish(combine, n, a, b)
