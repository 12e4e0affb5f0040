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
    scrapes,
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
from fleetpulse.features._points import BoolArray, F64Array, I64Array
from fleetpulse.features._readings import LEVEL, LONG_NS, SHORT_NS
from fleetpulse.features._timelines import NEVER, NONE, first_after, place

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


class Answers(NamedTuple):
    """Rows by node; all but pace and covered have a column by feature.

    value: NaN where missing. newest: time of the newest sample it rests on. measure: which of the feature's measures
    it is. pace: the node's usual interval, 0 while unknown. covered: nanoseconds of the long window that the series
    speaks for that speaks for most. unkept: whether values at scrapes found no room to be kept.
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
def evaluate(  # type: ignore[no-untyped-def]
    nodes, t_end_ns, look_back_ns, shard, plans, program, kept, kept_value, shortcuts, out
):  # fmt: skip
    """All features of some nodes.

    nodes: (n,) indexes. t_end_ns: by node. shard: Shard. plans: PlanArrays. program: Program. kept: (nodes, signals) of
    KEPT, kept_value: what they point to. shortcuts: False reads every series and every scrape anew, which gives the
    same bits, slower. out: Answers, as Answers.empty makes them.
    """
    series, all_lines, first_line, times = shard.series, shard.lines, shard.first_line, shard.times
    lines, line_over = np.empty(8, LINE_FACTS), np.empty((2, 8), LINE_WINDOW)
    facts, over, wanted = np.empty(256, FACTS), np.empty((2, 256), WINDOW_FACTS), np.empty(256, np.bool_)
    readings = no_readings(1024, 128)
    time, begin, weight_s = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty((4, 1024))
    said, scrape, spare = np.empty(128), np.empty(1024, np.int64), np.empty(1024, np.int64)
    set_slot, steady = np.empty(plans.set_at.shape[1] - 1, np.int64), np.empty(len(program.signals), np.bool_)
    for i in range(len(nodes)):
        node = nodes[i]
        t_end = t_end_ns[node]
        oldest = t_end - look_back_ns
        set_at = plans.set_at[node]
        members = plans.members[plans.members_at[node] : plans.members_at[node] + plans.n_members[node]]
        entries = plans.entries[plans.entries_at[node] : plans.entries_at[node] + set_at[-1]]
        n_lines, n_rows, most = size_of(node, first_line, all_lines)
        if n_lines > len(lines):
            lines, line_over = np.empty(2 * n_lines, LINE_FACTS), np.empty((2, 2 * n_lines), LINE_WINDOW)
        if n_rows + n_lines > len(time):
            room = 2 * (n_rows + n_lines)
            time, begin, weight_s = np.empty(room, np.int64), np.empty(room, np.int64), np.empty((4, room))
        room = 2 * len(members)
        if room > 2 * len(facts):
            facts, over, wanted = np.empty(room, FACTS), np.empty((2, room), WINDOW_FACTS), np.empty(room, np.bool_)
        if most > len(said):
            said = np.empty(2 * most)
        read_lines(node, t_end, oldest, all_lines, first_line, times, lines, line_over, time, begin)
        if shortcuts:
            read_steady(
                members, t_end, series, all_lines, shard.starts, shard.integers, shard.floats, shard.flags,
                lines, line_over, facts, over,
            )  # fmt: skip
        else:
            for m in range(len(members)):
                facts[m].steady = False
        choose(program.signals, set_at, entries, len(members), facts, lines, set_slot, steady, wanted)
        room = room_for(members, series, all_lines, wanted)
        if room > len(readings.time) or most + 1 > len(readings.series_time):
            readings = no_readings(2 * room, 2 * (most + 1))
            scrape, spare = np.empty(2 * room, np.int64), np.empty(2 * room, np.int64)
        at = int(np.int64(0))  # A literal would have Numba compile what is called with it twice.
        for m in range(len(members)):
            if wanted[m]:
                one, member = series[members[m].series], members[m]
                at = read_any(one, member.mode, member.scale, m, t_end, oldest, at, shard, readings, facts, over)
        out.pace[i], out.covered[i] = settle(len(members), facts, over)
        answer(
            i, node, t_end, shard, set_at, members, entries, program, lines, line_over, facts, over, readings,
            set_slot, steady, time, begin, weight_s, said, scrape, spare, kept[node], kept_value, out,
        )  # fmt: skip
        for slot in range(n_lines):
            all_lines[lines[slot].index].touched_ns = NEVER


@njit(cache=True)
def choose(signals, set_at, entries, members, facts, lines, set_slot, steady, wanted):  # type: ignore[no-untyped-def]
    """Which signals are steady at their scrapes, and which members have to be read for those that are not.

    set_slot: by set, the timeline that all its members are steady on, NONE without one. A signal is steady when its
    sets are so on one timeline, and no two rows of it lie within the tolerance to which scrapes are told apart.
    """
    for m in range(members):
        wanted[m] = not facts[m].steady
    for k in range(len(set_slot)):
        set_slot[k] = NONE
        for e in range(set_at[k], set_at[k + 1]):
            fact = facts[entries[e].member]
            slot = fact.slot if fact.steady else NONE
            if slot == NONE or (e > set_at[k] and slot != set_slot[k]):
                set_slot[k] = NONE
                break
            set_slot[k] = slot
    for k in range(len(signals)):
        signal = signals[k]
        slot = set_slot[signal.of]
        steady[k] = slot != NONE and (signal.per == NONE or set_slot[signal.per] == slot)
        steady[k] = steady[k] and lines[slot].shortest > lines[slot].interval // 2
        if signal.walked and not steady[k]:
            for j in (signal.of, signal.per):
                if j != NONE:
                    for e in range(set_at[j], set_at[j + 1]):
                        wanted[entries[e].member] = True


@njit(cache=True)
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


@njit(cache=True)
def room_for(members, series, all_lines, wanted):  # type: ignore[no-untyped-def]
    """Places for the readings of the members that are wanted."""
    room = 0
    for m in range(len(members)):
        if wanted[m]:
            line = series[members[m].series].line
            room += 2 + (all_lines[line].length if line != NONE else 0)
    return room


@njit(cache=True)
def answer(  # type: ignore[no-untyped-def]
    i, node, t_end, shard, set_at, members, entries, program, lines, line_over, facts, over, readings,
    set_slot, steady, time, begin, weight_s, said, scrape, spare, kept, kept_value, out,
):  # fmt: skip
    """Fill row i of the answers with the features of one node."""
    signals, uses = program.signals, program.uses
    value, status, newest, measure = out.value[i], out.status[i], out.newest[i], out.measure[i]
    rank = np.zeros(len(value), np.int64)
    weighed = np.zeros((len(lines), 2, 2), np.bool_)
    for k in range(len(signals)):
        signal = signals[k]
        of, of_end, per, per_end = set_at[signal.of], set_at[signal.of + 1], 0, 0
        if signal.per != NONE:
            per, per_end = set_at[signal.per], set_at[signal.per + 1]
        if of == of_end or (signal.per != NONE and per == per_end):
            continue
        mode = members[entries[of].member].mode
        levels = 1 if mode == LEVEL else 0
        step, before, slot = 0, NO_TIME, set_slot[signal.of]
        walked, at_walked, weight = scrape[:0], said[:0], weight_s[0, :0]
        lo, hi = 0, 0
        if signal.walked:
            step = usual(of, of_end, entries, facts)
            if steady[k]:
                lo, hi = lines[slot].lo, lines[slot].hi
                walked, before = time[lo + 1 : hi], begin[lo]
                at_walked = said[: hi - lo - 1]
                index = lines[slot].index
                if walk_steady(
                    signal, of, of_end, per, per_end, members, entries, facts, shard, shard.lines[index], index,
                    lines[slot].first, kept[k], kept_value, at_walked,
                ):  # fmt: skip
                    out.unkept[i] = True
            else:
                kept[k].known_ns = 0
                n = scrapes(of, of_end, entries, facts, readings.time, step // 2, scrape, spare)
                walked = scrape[:n]
                at_walked = walk(signal, of, of_end, per, per_end, walked, step // 2, members, entries, facts, readings)
                before = beginning(of, of_end, members, entries, facts, readings.time, readings.begin)
                weight = np.empty(n)
        latest, due = freshest(of, of_end, entries, facts)
        for u in range(signal.first_use, signal.end_use):
            use = uses[u]
            w, code, f = use.short, use.code, use.feature
            t0 = t_end - (SHORT_NS if w else LONG_NS)
            if code in (LAST, RATE, INCREASE):
                x = over_window(signal, of, of_end, per, per_end, code, w, t_end, members, entries, facts, over)
            else:
                if steady[k]:
                    weight = weight_s[2 * levels + w, lo + 1 : hi]
                if not steady[k] or not weighed[slot, levels, w]:
                    weigh(walked, before, mode, step, t0, weight)
                    if steady[k]:
                        weighed[slot, levels, w] = True
                skip = first_after(walked, 0, len(walked), t0)
                x = aggregate(code, walked, at_walked, weight, skip, use.argument)
            if np.isnan(x):
                continue
            x = min(max(x, use.low), use.high)
            if status[f] != MISSING and (use.rank > rank[f] or (use.rank == rank[f] and x <= value[f])):
                continue
            if latest <= t0:
                continue
            known = longest(of, of_end, entries, over[w])
            if signal.per != NONE and code != LAST:
                level_divides = code in (RATE, INCREASE) and members[entries[per].member].mode == LEVEL
                if not level_divides:
                    known = min(known, longest(per, per_end, entries, over[w]))
            value[f], newest[f], rank[f], measure[f] = x, latest, use.rank, use.measure
            if t_end - latest > hold_of(due):
                status[f] = STALE
            elif code != LAST and known < ENOUGH * (t_end - t0):
                status[f] = PARTIAL
            else:
                status[f] = OK


@njit(cache=True)
def longest(start, stop, entries, over):  # type: ignore[no-untyped-def]
    """How much of the window the member speaks for that speaks for most."""
    found = 0
    for e in range(start, stop):
        found = max(found, over[entries[e].member].speaks)
    return found


@njit(cache=True)
def usual(start, stop, entries, facts):  # type: ignore[no-untyped-def]
    """The shortest usual interval among members; 0 when none is known."""
    found = 0
    for e in range(start, stop):
        interval = facts[entries[e].member].interval
        if interval > 0 and (found == 0 or interval < found):
            found = interval
    return found


@njit(cache=True)
def freshest(start, stop, entries, facts):  # type: ignore[no-untyped-def]
    """(time of the newest reading of any member, usual interval of that member)."""
    latest, due = NO_TIME, 0
    for e in range(start, stop):
        fact = facts[entries[e].member]
        if fact.latest > latest:
            latest, due = fact.latest, fact.interval
    return latest, due


@njit(cache=True)
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


@njit(cache=True)
def run_of(entries, group, start, end):  # type: ignore[no-untyped-def]
    """The range of a set's entries that belong to one group; the set's entries are start..end, sorted by group."""
    while start < end and entries[start].group < group:
        start += 1
    stop = start
    while stop < end and entries[stop].group == group:
        stop += 1
    return start, stop


@njit(cache=True)
def walk_steady(  # type: ignore[no-untyped-def]
    signal, of, of_end, per, per_end, members, entries, facts, shard, line, index, first, kept, kept_value, said
):  # fmt: skip
    """The combined value of a steady signal at each row from `first` on, into `said`; whether there is no room to keep
    them.

    What a steady signal says at a row follows from that row and the one before it alone. So a value that was kept
    holds until a row up to its own is touched.
    """
    series, times, integers, floats, flags = shard.series, shard.times, shard.integers, shard.floats, shard.flags
    has_room = kept.room == line.capacity
    known_ns = min(kept.known_ns, line.touched_ns - 1) if has_room and kept.line == index else NO_TIME
    newest = line.length - 1
    reading = np.empty(len(members))
    for row in range(first, line.length):
        where = place(line, row)
        if times[line.times_at + where] <= known_ns:
            said[row - first] = kept_value[kept.at + where]
            continue
        for e in range(of, of_end):
            m = entries[e].member
            reading[m] = facts[m].last
            if row < newest:
                reading[m] = read_row(row, members, m, series, line, times, integers, floats, flags)
        for e in range(per, per_end):
            m = entries[e].member
            reading[m] = facts[m].last
            if row < newest:
                reading[m] = read_row(row, members, m, series, line, times, integers, floats, flags)
        said[row - first] = steady_at(signal, of, of_end, per, per_end, members, entries, reading)
        if has_room:
            kept_value[kept.at + where] = said[row - first]
    kept.line, kept.wanted = index, line.capacity
    kept.known_ns = times[line.times_at + place(line, newest)] if has_room else 0
    return not has_room


@njit(cache=True)
def steady_at(signal, of, of_end, per, per_end, members, entries, reading):  # type: ignore[no-untyped-def]
    """The combined value of a steady signal at one row, where its members read as given; NaN where there is none."""
    divisor = np.nan
    if signal.per != NONE and not signal.alike:
        divisor = steady_group(signal.per_combine, signal.per_value, per, per_end, members, entries, reading)
    n, a, b = 0, 0.0, 0.0
    while of < of_end:
        of, stop = run_of(entries, entries[of].group, of, of_end)
        x = steady_group(signal.of_combine, signal.of_value, of, stop, members, entries, reading)
        if signal.per != NONE:
            if signal.alike:
                per, per_stop = run_of(entries, entries[of].group, per, per_end)
                divisor = steady_group(signal.per_combine, signal.per_value, per, per_stop, members, entries, reading)
            x = quotient(x, divisor, signal.complement, signal.at_zero)
        if not np.isnan(x):
            n, a, b = push(signal.across, n, a, b, 1.0 if signal.across == COUNT else x)
        of = stop
    return finish(signal.across, n, a, b)


@njit(cache=True)
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


@njit(cache=True)
def walk(signal, of, of_end, per, per_end, scrape, tolerance, members, entries, facts, readings):  # type: ignore[no-untyped-def]
    """The combined value at each scrape, (len(scrape),) float64, NaN where there is none."""
    n = np.zeros(len(scrape), np.int64)
    a = np.zeros(len(scrape))
    b = np.zeros(len(scrape))
    divisor = np.empty(0)
    if signal.per != NONE and not signal.alike:
        divisor = together(
            signal.per_combine, signal.per_value, per, per_end, scrape, tolerance, members, entries, facts, readings
        )
    while of < of_end:
        of, stop = run_of(entries, entries[of].group, of, of_end)
        group = together(
            signal.of_combine, signal.of_value, of, stop, scrape, tolerance, members, entries, facts, readings
        )
        if signal.per != NONE:
            if signal.alike:
                per, per_stop = run_of(entries, entries[of].group, per, per_end)
                divisor = together(
                    signal.per_combine, signal.per_value, per, per_stop,
                    scrape, tolerance, members, entries, facts, readings,
                )  # fmt: skip
            for k in range(len(scrape)):
                group[k] = quotient(group[k], divisor[k], signal.complement, signal.at_zero)
        for k in range(len(scrape)):
            if not np.isnan(group[k]):
                n[k], a[k], b[k] = push(signal.across, n[k], a[k], b[k], 1.0 if signal.across == COUNT else group[k])
        of = stop
    said = np.empty(len(scrape))
    for k in range(len(scrape)):
        said[k] = finish(signal.across, n[k], a[k], b[k])
    return said


@njit(cache=True)
def together(  # type: ignore[no-untyped-def]
    combine, wanted, start, stop, scrape, tolerance, members, entries, facts, readings
):  # fmt: skip
    """The series of entries[start:stop] combined at each scrape. Of those in one slot the newest sample speaks."""
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
        m = entries[e].member
        at_scrapes(
            scrape, tolerance, readings.time, readings.begin, readings.value, facts[m].lo, facts[m].hi,
            members[m].mode, facts[m].interval, presence, x, when,
        )  # fmt: skip
        opens = e == start or entries[e].slot != entries[e - 1].slot
        closes = e + 1 == stop or entries[e].slot != entries[e + 1].slot
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
def over_window(signal, of, of_end, per, per_end, code, w, t_end, members, entries, facts, over):  # type: ignore[no-untyped-def]
    """LAST, RATE or INCREASE of a signal over window w; NaN when missing.

    A counter is divided by the same of a counter, and by the last value of a level.
    """
    t0 = t_end - (SHORT_NS if w else LONG_NS)
    over_of, over_per = over[w], over[w]
    span = span_of(code, of, of_end, t0, entries, facts, over_of)
    per_code, per_t0, per_span = code, t0, 0
    divisor = np.nan
    if signal.per != NONE:
        if code == LAST or members[entries[per].member].mode == LEVEL:
            per_code, per_t0, over_per = LAST, t_end - LONG_NS, over[0]
        per_span = span_of(per_code, per, per_end, per_t0, entries, facts, over_per)
        if not signal.alike:
            divisor = group_over_window(
                per_code, signal.per_combine, signal.per_value, per, per_end, per_t0, per_span,
                members, entries, facts, over_per,
            )  # fmt: skip
    n, a, b = 0, 0.0, 0.0
    while of < of_end:
        of, stop = run_of(entries, entries[of].group, of, of_end)
        x = group_over_window(
            code, signal.of_combine, signal.of_value, of, stop, t0, span, members, entries, facts, over_of
        )
        if signal.per != NONE:
            if signal.alike:
                per, per_stop = run_of(entries, entries[of].group, per, per_end)
                divisor = group_over_window(
                    per_code, signal.per_combine, signal.per_value, per, per_stop, per_t0, per_span,
                    members, entries, facts, over_per,
                )  # fmt: skip
            x = quotient(x, divisor, signal.complement, signal.at_zero)
        if not np.isnan(x):
            n, a, b = push(signal.across, n, a, b, 1.0 if signal.across == COUNT else x)
        of = stop
    return finish(signal.across, n, a, b)


@njit(cache=True)
def span_of(code, start, stop, t0, entries, facts, over):  # type: ignore[no-untyped-def]
    """LAST: time of the set's newest reading. RATE: nanoseconds from its first interval's beginning to its newest
    reading, within the window. 0 when there is none."""
    newest, first = 0, 0
    for e in range(start, stop):
        m = entries[e].member
        latest = facts[m].latest
        if latest <= t0:
            continue
        if code == LAST:
            newest = max(newest, latest)
        elif over[m].elapsed > 0:
            newest = max(newest, latest)
            since = max(over[m].origin, t0)
            first = since if first == 0 else min(first, since)
    return newest - first


@njit(cache=True)
def group_over_window(  # type: ignore[no-untyped-def]
    code, combine, wanted, start, stop, t0, span, members, entries, facts, over
):  # fmt: skip
    """One group's LAST, RATE or INCREASE. A rate counts for the share of the set's time that its series was there.

    Of the series in one slot the newest says LAST. Of counters in one slot, those that overlap in time are averaged,
    and those that follow each other added up.
    """
    n, a, b = 0, 0.0, 0.0
    x, newest, here = np.nan, 0, 0
    for e in range(start, stop):
        m = entries[e].member
        fact, window = facts[m], over[m]
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
