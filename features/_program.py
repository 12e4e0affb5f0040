"""The catalog as arrays that a compiled loop can follow, and one node's series sorted into them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._aggregates import INCREASE, LAST, QUANTILE, RATE
from fleetpulse.features._catalog import AGGREGATES, COMBINES, QUANTILES, Catalog, Measure, SeriesSet
from fleetpulse.features._points import F64Array, I32Array, I64Array
from fleetpulse.features._readings import CUMULATIVE, DELTA, LEVEL
from fleetpulse.features._series import Kind, Series, Source, Temporality

SHORT_NS = 60_000_000_000
LONG_NS = 300_000_000_000
"""The two windows. Everything else about time follows from LONG_NS: lateness, what is kept, what is covered."""

OF, PER, SPLIT_ALIKE, COMPLEMENT, WALK, FIRST_USE, END_USE = range(7)
"""Columns of Program.signals: the two sets (-1: none), whether both split into the same groups, whether the complement
is taken, whether some use needs the value at each scrape, and the range of its uses."""

FEATURE, RANK, MEASURE, CODE, SHORT = range(5)
"""Columns of Program.uses: the feature's column, the rank and the place of the measure in it, the aggregate, and
whether the window is the short one."""


@dataclass(frozen=True)
class Program:
    """What the catalog asks for, the same for every node. Histograms are not in it.

    signals: (n, 7) int64. at_zero: (n,), NaN where a quotient of zeros is missing. uses: (m, 5) int64, those of one
    signal together. argument: (m,), the q or the bound. set_combine, set_across: (sets,) int64 of COMBINES.
    set_value: (sets,), NaN where every series counts. bounds: (features, 2), infinite where there are none.
    """

    signals: I64Array
    at_zero: F64Array
    uses: I64Array
    argument: F64Array
    set_combine: I64Array
    set_across: I64Array
    set_value: F64Array
    bounds: F64Array

    @classmethod
    def of(cls, catalog: Catalog) -> Program:
        number = {series_set.name: index for index, series_set in enumerate(catalog.sets)}
        by_signal: dict[tuple[int, int, bool, float | None], list[tuple[tuple[int, ...], float]]] = {}
        for column, feature in enumerate(catalog.features):
            for place, measure in enumerate(feature.measures):
                if measure.of.histogram:
                    continue
                signal = _signal(measure, number)
                short = feature.window_ns == SHORT_NS
                code = AGGREGATES.index(measure.aggregate)
                argument = QUANTILES.get(measure.aggregate, feature.above or 0.0)
                by_signal.setdefault(signal, []).append(
                    ((column, measure.rank, place, min(code, QUANTILE), int(short)), argument)
                )
        signals: list[tuple[int, ...]] = []
        uses: list[tuple[int, ...]] = []
        arguments: list[float] = []
        for (of, per, complement, _), wanted in by_signal.items():
            walk = any(use[CODE] not in (LAST, RATE, INCREASE) for use, _ in wanted)
            alike = per >= 0 and catalog.sets[of].each == catalog.sets[per].each
            signals.append((of, per, int(alike), int(complement), int(walk), len(uses), len(uses) + len(wanted)))
            uses += [use for use, _ in wanted]
            arguments += [argument for _, argument in wanted]
        free = (-np.inf, np.inf)
        return cls(
            signals=np.array(signals, np.int64).reshape(-1, 7),
            at_zero=np.array([np.nan if key[3] is None else key[3] for key in by_signal], np.float64),
            uses=np.array(uses, np.int64).reshape(-1, 5),
            argument=np.array(arguments, np.float64),
            set_combine=np.array([COMBINES.index(s.combine) for s in catalog.sets], np.int64),
            set_across=np.array([COMBINES.index(s.across) for s in catalog.sets], np.int64),
            set_value=np.array([np.nan if s.value_is is None else s.value_is for s in catalog.sets], np.float64),
            bounds=np.array([feature.bounds or free for feature in catalog.features], np.float64).reshape(-1, 2),
        )


def _signal(measure: Measure, number: dict[str, int]) -> tuple[int, int, bool, float | None]:
    per = -1 if measure.per is None else number[measure.per.name]
    return number[measure.of.name], per, measure.complement, measure.at_zero


def reading_of(source: Source, series_set: SeriesSet) -> int:
    """How a series of this source is read when it is a member of this set."""
    if source.kind is Kind.GAUGE:
        return CUMULATIVE if series_set.counter else LEVEL
    if source.temporality is Temporality.DELTA:
        return DELTA
    return CUMULATIVE if source.monotonic or series_set.counter else LEVEL


@dataclass(frozen=True)
class NodePlan:
    """One node's used series, in the order of their keys, and the sets they belong to.

    A member is a series with a way to read it. member_series: (members,) indexes. member_mode, member_scale: likewise.
    The members of set k are entry_member[set_at[k]:set_at[k + 1]], sorted by group, slot and key; entry_group numbers
    the groups in the order of their labels, and sets that split by the same labels number them alike. In one slot,
    which entry_slot names by its first member, are series that several reporters have of one thing: only where the
    set's metrics are of the machine itself (SeriesSet.once); elsewhere each series has a slot of its own.
    histograms: by histogram set, the indexes of its series in the order of their keys.
    """

    member_series: I32Array
    member_mode: NDArray[np.int8]
    member_scale: F64Array
    set_at: I64Array
    entry_member: I64Array
    entry_group: I64Array
    entry_slot: I64Array
    histograms: dict[str, list[int]]

    @classmethod
    def of(cls, catalog: Catalog, chosen: Iterable[tuple[int, Series, tuple[int, ...]]]) -> NodePlan:
        """chosen: (series index, series, indexes of the sets that take it)."""
        in_order = sorted(chosen, key=lambda item: item[1].identity.key)
        members: dict[tuple[int, int], int] = {}
        scales: list[float] = []
        entries: list[list[tuple[tuple[str, ...], int, int]]] = [[] for _ in catalog.sets]
        slots: dict[tuple[int, str, tuple[tuple[str, str], ...]], int] = {}
        histograms: dict[str, list[int]] = {}
        labels_seen: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for index, series, sets in in_order:
            for k in sets:
                series_set = catalog.sets[k]
                if series_set.histogram:
                    histograms.setdefault(series_set.name, []).append(index)
                    continue
                member = members.setdefault((index, reading_of(series.source, series_set)), len(members))
                if member == len(scales):
                    scales.append(series.source.scale)
                values = tuple(series.source.labels.get(label, "") for label in series_set.each)
                labels_seen.setdefault(series_set.each, set()).add(values)
                slot = member
                if series_set.once:
                    thing = k, series.source.metric, tuple(sorted(series.source.labels.items()))
                    slot = slots.setdefault(thing, member)
                entries[k].append((values, slot, member))
        group_of = {each: {v: i for i, v in enumerate(sorted(values))} for each, values in labels_seen.items()}
        set_at: list[int] = [0]
        flat: list[tuple[int, int, int]] = []
        for k, members_of_set in enumerate(entries):
            numbers = group_of.get(catalog.sets[k].each, {})
            flat += sorted((numbers[values], slot, member) for values, slot, member in members_of_set)
            set_at.append(len(flat))
        return cls(
            member_series=np.array([index for index, _ in members], np.int32),
            member_mode=np.array([mode for _, mode in members], np.int8),
            member_scale=np.array(scales, np.float64),
            set_at=np.array(set_at, np.int64),
            entry_member=np.array([member for _, _, member in flat], np.int64),
            entry_group=np.array([group for group, _, _ in flat], np.int64),
            entry_slot=np.array([slot for _, slot, _ in flat], np.int64),
            histograms=histograms,
        )
