"""A slow and plain twin of the feature state: keeps every sample of the log, and works everything out from lists.

It knows the rules of the design page and nothing of the arrays. Numbers only; histograms have tests of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from fleetpulse.features import Catalog, SeriesTable, Status
from fleetpulse.features._catalog import QUANTILES, Feature, Measure, SeriesSet
from fleetpulse.features._series import Kind, Series, Temporality
from support.feature_rig import Number, at_ns

S = 1_000_000_000
WINDOW_NS = 300 * S
NAN = math.nan


class Kept(NamedTuple):
    time: int
    start: int
    value: float | int


class Reading(NamedTuple):
    """begin: where the interval of the reading begins. value: level or rate. step: what a counter grew by."""

    time: int
    begin: int
    value: float
    step: float


@dataclass
class Member:
    """One series as a member of a set: what its window says."""

    mode: str
    group: tuple[str, ...]
    slot: object
    base: int | None
    base_value: float
    readings: list[Reading]
    interval: int
    usual: int = 0
    """The interval, or the node's where the series has none."""

    @property
    def hold(self) -> int:
        return 2 * self.usual + 5 * S

    def since(self, t0: int) -> list[Reading]:
        return [r for r in self.readings if r.time > t0]

    def counted(self, t0: int) -> list[Reading]:
        """Readings after t0 that count there: not one that stands on a start before t0."""
        orphan = self.readings[0] if self.mode == "cumulative" and self.base is None and self.readings else None
        return [r for r in self.since(t0) if r is not orphan or r.begin > t0]


class Answer(NamedTuple):
    value: float
    status: Status
    newest: int


class Oracle:
    def __init__(self, catalog: Catalog, table: SeriesTable, look_back_s: int) -> None:
        self.catalog = catalog
        self.table = table
        self.look_back_ns = look_back_s * S
        self.kept: dict[int, dict[int, Kept]] = {}
        self.t_end: dict[int, int] = {}

    def series(self, index: int) -> Series:
        found = self.table.series[index]
        assert found is not None
        return found

    def send(self, record: Sequence[Number]) -> None:
        before = dict(self.t_end)
        for sample in record:
            node = self.series(sample.series).node_index
            time = at_ns(sample.time_s)
            kept = self.kept.setdefault(sample.series, {})
            if (node in before and time <= before[node] - WINDOW_NS) or time in kept:
                continue
            kept[time] = Kept(time, at_ns(sample.start_s), sample.value)
            self.t_end[node] = max(time, self.t_end.get(node, 0))

    def answers(self, node: int) -> list[Answer]:
        return [self._answer(feature, node) for feature in self.catalog.features]

    # ---- features

    def _answer(self, feature: Feature, node: int) -> Answer:
        best: tuple[int, Answer] | None = None
        for measure in feature.measures:
            answer = self._measured(measure, feature, node)
            if math.isnan(answer.value) or (best is not None and measure.rank > best[0]):
                continue
            if best is None or measure.rank < best[0] or answer.value > best[1].value:
                best = measure.rank, answer
        return best[1] if best else Answer(NAN, Status.MISSING, 0)

    def _measured(self, measure: Measure, feature: Feature, node: int) -> Answer:
        t_end = self.t_end[node]
        t0 = t_end - feature.window_ns
        of = self._members(measure.of, node)
        per = self._members(measure.per, node) if measure.per is not None else []
        none = Answer(NAN, Status.MISSING, 0)
        if not of or (measure.per is not None and not per):
            return none
        if measure.aggregate in ("last", "rate", "increase"):
            value = self._over_window(measure, of, per, t0, t_end)
        else:
            value = self._aggregated(measure, feature, of, per, t0)
        if math.isnan(value):
            return none
        if feature.bounds is not None:
            value = min(max(value, feature.bounds[0]), feature.bounds[1])
        newest, due = max(((m.readings[-1].time, -i) for i, m in enumerate(of) if m.readings))
        interval = of[-due].usual
        known = max(covered(m, t0, t_end) for m in of)
        level_divides = measure.aggregate in ("rate", "increase") and bool(per) and per[0].mode == "level"
        if per and measure.aggregate != "last" and not level_divides:
            known = min(known, max(covered(m, t0, t_end) for m in per))
        if t_end - newest > 2 * interval + 5 * S:
            return Answer(value, Status.STALE, newest)
        if measure.aggregate != "last" and known < 0.95 * feature.window_ns:
            return Answer(value, Status.PARTIAL, newest)
        return Answer(value, Status.OK, newest)

    def _over_window(self, measure: Measure, of: list[Member], per: list[Member], t0: int, t_end: int) -> float:
        kind = measure.aggregate
        per_kind, per_t0 = kind, t0
        if per and (kind == "last" or per[0].mode == "level"):
            per_kind, per_t0 = "last", t_end - WINDOW_NS

        def group(members: list[Member], series_set: SeriesSet, kind: str, t0: int, label: tuple[str, ...]) -> float:
            return combine(series_set.combine, window_values(members, kind, t0, series_set, label))

        found = []
        for label in sorted({m.group for m in of}):
            x = group(of, measure.of, kind, t0, label)
            if measure.per is not None:
                divisor_label = label if measure.per.each == measure.of.each else ()
                divisor = group(per, measure.per, per_kind, per_t0, divisor_label)
                x = quotient(measure, x, divisor)
            found.append(x)
        return combine(measure.of.across, found)

    def _aggregated(self, measure: Measure, feature: Feature, of: list[Member], per: list[Member], t0: int) -> float:
        known = [m.usual for m in of if m.usual]
        step = min(known) if known else 0
        scrapes = scrapes_of(of, step // 2)
        points: list[tuple[int, float, float]] = []
        begins = [m.base for m in of if m.base is not None]
        begins += [
            m.readings[0].begin
            for m in of
            if m.base is None and m.mode != "level" and m.readings and m.readings[0].begin < m.readings[0].time
        ]
        previous = max(begins) if begins else None
        for t in scrapes:
            x = self._at(measure, of, per, t, step // 2)
            since = previous
            if since is None or (of[0].mode == "level" and t - since > 1.5 * step):
                since = t - step
            previous = t
            if t > t0 and not math.isnan(x):
                points.append((t, x, (t - max(since, t0)) / S))
        return aggregated(measure.aggregate, points, feature.above)

    def _at(self, measure: Measure, of: list[Member], per: list[Member], t: int, tolerance: int) -> float:
        def group(members: Iterable[Member], series_set: SeriesSet, label: tuple[str, ...]) -> float:
            slots: dict[object, tuple[float, int]] = {}
            for m in members:
                if m.group == label:
                    x, when = at_scrape(m, t, tolerance, series_set)
                    if not math.isnan(x) and (m.slot not in slots or when > slots[m.slot][1]):
                        slots[m.slot] = x, when
            return combine(series_set.combine, [x for x, _ in slots.values()])

        found = []
        for label in sorted({m.group for m in of}):
            x = group(of, measure.of, label)
            if measure.per is not None:
                x = quotient(measure, x, group(per, measure.per, label if measure.per.each == measure.of.each else ()))
            found.append(x)
        return combine(measure.of.across, found)

    # ---- series

    def _members(self, series_set: SeriesSet, node: int) -> list[Member]:
        indexes = [
            i for i in self.kept if self.series(i).node_index == node and series_set.takes(self.series(i).source)
        ]
        indexes.sort(key=lambda i: self.series(i).identity.key)
        members = [self._member(i, series_set, node) for i in indexes]
        for m in members:
            m.usual = m.interval or self._pace(node)
        first_of_slot = {m.slot: i for i, m in reversed(list(enumerate(members)))}
        return sorted(members, key=lambda m: (m.group, first_of_slot[m.slot]))

    def _member(self, index: int, series_set: SeriesSet, node: int) -> Member:
        source = self.series(index).source
        mode = "level"
        if source.temporality is Temporality.DELTA:
            mode = "delta"
        elif (source.kind is Kind.SUM and source.monotonic) or series_set.counter:
            mode = "cumulative"
        t_end = self.t_end[node]
        samples = sorted(k for k in self.kept[index].values() if math.isfinite(k.value))
        before = [k for k in samples if t_end - self.look_back_ns < k.time <= t_end - WINDOW_NS]
        base = before[-1] if before else None
        window = [k for k in samples if k.time > t_end - WINDOW_NS]
        readings = read(mode, base, window, t_end - WINDOW_NS, source.scale)
        times = ([base.time] if base else []) + [r.time for r in readings]
        gaps = sorted(b - a for a, b in list(pairwise(times))[-15:])
        return Member(
            mode=mode,
            group=tuple(source.labels.get(label, "") for label in series_set.each),
            slot=(source.metric, tuple(sorted(source.labels.items()))) if series_set.once else index,
            base=base.time if base else None,
            base_value=base.value * source.scale if base else NAN,
            readings=readings,
            interval=gaps[(len(gaps) - 1) // 2] if gaps else 0,
        )

    def _pace(self, node: int) -> int:
        members = {}
        for series_set in self.catalog.sets:
            for i in self.kept:
                if self.series(i).node_index == node and series_set.takes(self.series(i).source):
                    members[self.series(i).identity.key] = self._member(i, series_set, node)
        paced = [members[key] for key in sorted(members) if members[key].interval]
        return max(paced, key=lambda m: len(m.readings)).interval if paced else 0


def read(mode: str, base: Kept | None, window: list[Kept], t0: int, scale: float) -> list[Reading]:
    readings: list[Reading] = []
    previous = base
    for k in window:
        if mode == "delta" and previous is not None and 0 < k.start < previous.time:
            continue
        begin = previous.time if previous else k.time
        step: float = 0
        if mode == "delta":
            step = k.value
            if 0 < k.start <= k.time:
                begin = k.start
        elif mode == "cumulative" and previous is None:
            if t0 < k.start < k.time:
                begin, step = k.start, max(k.value, 0)
        elif mode == "cumulative" and previous is not None:
            if k.start >= k.time:
                begin = k.time
            elif k.start > previous.time:
                step = max(k.value, 0)
            elif k.value >= previous.value:
                step = k.value - previous.value
            elif float(previous.value) - float(k.value) >= 0.01 * previous.value:
                step = max(k.value, 0)
        value = k.value * scale
        if mode != "level":
            value = step * scale / ((k.time - begin) / S) if k.time > begin else NAN
        readings.append(Reading(k.time, begin, value, step * scale))
        previous = k
    return readings


def covered(m: Member, t0: int, t_end: int) -> int:
    inside = m.since(t0)
    if not inside:
        return 0
    total = 0
    for r in m.counted(t0):
        begin = r.begin
        orphan = m.base is None and r is m.readings[0]
        if m.mode == "level" and (orphan or r.time - begin > 1.5 * m.interval):
            begin = r.time - m.interval
        total += r.time - max(begin, t0)
    if t_end - inside[-1].time <= 1.5 * m.interval:
        total += t_end - inside[-1].time
    return total


def window_values(
    members: list[Member], kind: str, t0: int, series_set: SeriesSet, group: tuple[str, ...]
) -> list[float]:
    """What each slot of a group adds to it over (t0, t_end]."""
    heard = [(m, m.since(t0)) for m in members if m.since(t0)]
    newest = max((rs[-1].time for _, rs in heard), default=0)
    lives = {}
    for m, rs in heard:
        counted = m.counted(t0)
        elapsed = sum(r.time - r.begin for r in counted)
        if m.mode != "level" and elapsed > 0:
            first = rs[0].time if rs[0] not in counted else rs[0].begin
            lives[id(m)] = (max(first, t0), rs[-1].time, elapsed)
    span = max(end for _, end, _ in lives.values()) - min(begin for begin, _, _ in lives.values()) if lives else 0
    slots: dict[object, list[tuple[float, int]]] = {}
    for m, rs in heard:
        if m.group != group:
            continue
        if kind == "last":
            if newest - rs[-1].time <= m.hold:
                x = rs[-1].value
                if series_set.combine == "count":
                    x = float(series_set.value_is is None or x == series_set.value_is)
                slots.setdefault(m.slot, []).append((x, rs[-1].time))
        elif m.mode != "level" and (kind == "increase" or id(m) in lives):
            begin, end, elapsed = lives.get(id(m), (0, 0, 0))
            x = sum(r.step for r in m.counted(t0))
            if kind == "rate":
                x = x / (elapsed / S) * ((end - begin) / span)
            slots.setdefault(m.slot, []).append((x, end - begin))
    if kind == "last":
        return [max(said, key=lambda pair: pair[1])[0] for said in slots.values()]
    added = []
    for said in slots.values():
        life = sum(life for _, life in said)
        added.append(sum(x for x, _ in said) * (span / life if life > span else 1))
    return added


def scrapes_of(members: list[Member], tolerance: int) -> list[int]:
    found: list[int] = []
    for m in members:
        first = not found
        for r in m.readings:
            if first or all(abs(r.time - t) > tolerance for t in found):
                found.append(r.time)
    return sorted(found)


def at_scrape(m: Member, t: int, tolerance: int, series_set: SeriesSet) -> tuple[float, int]:
    """(value, time of the sample that says it)."""
    counting = series_set.combine == "count"
    if m.mode == "level" or counting:
        known = [(r.time, r.value) for r in m.readings if r.time <= t + tolerance]
        if m.base is not None:
            known.insert(0, (m.base, m.base_value))
        if not known or t - known[-1][0] > m.hold:
            return NAN, 0
        when, x = known[-1]
        return float(series_set.value_is is None or x == series_set.value_is) if counting else x, when
    later = [r for r in m.readings if r.time >= t - tolerance]
    if later:
        return (later[0].value, later[0].time) if later[0].begin < t else (NAN, 0)
    if m.readings and t - m.readings[-1].time <= m.hold:
        return m.readings[-1].value, m.readings[-1].time
    return NAN, 0


def combine(how: str, values: Iterable[float]) -> float:
    known = [x for x in values if not math.isnan(x)]
    if not known:
        return NAN
    mean = math.fsum(known) / len(known)
    combined: dict[str, Callable[[], float]] = {
        "sum": lambda: math.fsum(known),
        "mean": lambda: mean,
        "min": lambda: min(known),
        "max": lambda: max(known),
        "std": lambda: math.sqrt(math.fsum((x - mean) ** 2 for x in known) / len(known)),
        "count": lambda: math.fsum(known),
    }
    return combined[how]()


def quotient(measure: Measure, of: float, per: float) -> float:
    if math.isnan(of) or math.isnan(per):
        return NAN
    if per == 0:
        if of == 0:
            return NAN if measure.at_zero is None else measure.at_zero
        return 0.0 if measure.complement else NAN
    return max(0.0, 1 - of / per) if measure.complement else of / per


def aggregated(how: str, points: list[tuple[int, float, float]], above: float | None) -> float:
    """points: (time, value, seconds it speaks for), in order of time."""
    if not points:
        return NAN
    values = [x for _, x, _ in points]
    weights = math.fsum(w for _, _, w in points)
    n = len(values)
    mean = math.fsum(values) / n
    if how == "mean":
        return math.fsum(x * w for _, x, w in points) / weights if weights else mean
    if how == "min":
        return min(values)
    if how == "max":
        return max(values)
    if how == "std":
        return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / n) if n > 1 else NAN
    if how == "slope":
        seconds = [(t - points[0][0]) / S for t, _, _ in points]
        centre = math.fsum(seconds) / n
        spread = math.fsum((t - centre) ** 2 for t in seconds)
        cross = math.fsum((t - centre) * (x - mean) for t, x in zip(seconds, values, strict=True))
        return cross / spread if n > 2 and spread else NAN
    if how == "share_above":
        assert above is not None
        return math.fsum(w for _, x, w in points if x > above) / weights if weights else NAN
    ordered = sorted(values)
    rank = QUANTILES[how] * (n - 1)
    below = math.floor(rank)
    if below + 1 >= n:
        return ordered[-1]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (rank - below)
