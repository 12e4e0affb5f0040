"""The catalog as arrays that a compiled loop can follow, and one node's series sorted into them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._aggregates import INCREASE, LAST, QUANTILE, RATE
from fleetpulse.features._catalog import AGGREGATES, COMBINES, QUANTILES, Catalog, Measure, SeriesSet
from fleetpulse.features._points import I32Array
from fleetpulse.features._readings import CUMULATIVE, DELTA, LEVEL, SHORT_NS
from fleetpulse.features._series import Kind, Series, Source, Temporality
from fleetpulse.features._timelines import NONE

SIGNAL = np.dtype(
    [
        ("of", np.int64),
        ("per", np.int64),
        ("alike", np.bool_),
        ("complement", np.bool_),
        ("walked", np.bool_),
        ("across", np.int64),
        ("of_combine", np.int64),
        ("per_combine", np.int64),
        ("of_value", np.float64),
        ("per_value", np.float64),
        ("at_zero", np.float64),
        ("first_use", np.int64),
        ("end_use", np.int64),
    ],
    align=True,
)
"""A set of series, or the quotient of two, as one series.

of, per: the sets; per is NONE without a divisor. alike: both split into the same groups. complement: 1 minus the
quotient is taken. walked: some use needs the value at each scrape. across, of_combine, per_combine: of COMBINES.
of_value, per_value: the value that a count counts, NaN where it counts every series. at_zero: what a quotient of zeros
is. first_use, end_use: the range of its uses.
"""

USE = np.dtype(
    [
        ("feature", np.int64),
        ("rank", np.int64),
        ("measure", np.int64),
        ("code", np.int64),
        ("short", np.int64),
        ("argument", np.float64),
        ("low", np.float64),
        ("high", np.float64),
    ],
    align=True,
)
"""An aggregate of a signal for a feature: its column, the rank and the place of the measure in it, the aggregate,
whether the window is the short one, its q or bound, and between what the value is clipped."""

MEMBER = np.dtype([("series", np.int32), ("mode", np.int32), ("scale", np.float64)], align=True)
"""A series with a way to read it."""

ENTRY = np.dtype([("member", np.int32), ("group", np.int32), ("slot", np.int32)], align=True)
"""A member in a set."""


class Program(NamedTuple):
    """What the catalog asks for, the same for every node. Histograms are not in it.

    signals: of SIGNAL. uses: of USE, those of one signal together.
    """

    signals: NDArray[np.void]
    uses: NDArray[np.void]

    @classmethod
    def of(cls, catalog: Catalog) -> Program:
        number = {series_set.name: index for index, series_set in enumerate(catalog.sets)}
        by_signal: dict[tuple[int, int, bool, float | None], list[tuple[float, ...]]] = {}
        free = (-np.inf, np.inf)
        for column, feature in enumerate(catalog.features):
            for place, measure in enumerate(feature.measures):
                if measure.of.histogram:
                    continue
                code = min(AGGREGATES.index(measure.aggregate), QUANTILE)
                short = int(feature.window_ns == SHORT_NS)
                argument = QUANTILES.get(measure.aggregate, feature.above or 0.0)
                use = column, measure.rank, place, code, short, argument, *(feature.bounds or free)
                by_signal.setdefault(_signal(measure, number), []).append(use)
        signals = np.zeros(len(by_signal), SIGNAL)
        uses: list[tuple[float, ...]] = []
        for signal, ((of, per, complement, at_zero), wanted) in zip(signals, by_signal.items(), strict=True):
            dividend = catalog.sets[of]
            signal["of"], signal["per"], signal["complement"] = of, per, complement
            signal["walked"] = any(use[3] not in (LAST, RATE, INCREASE) for use in wanted)
            signal["across"], signal["of_combine"] = COMBINES.index(dividend.across), COMBINES.index(dividend.combine)
            signal["of_value"] = np.nan if dividend.value_is is None else dividend.value_is
            signal["at_zero"] = np.nan if at_zero is None else at_zero
            if per != NONE:
                divisor = catalog.sets[per]
                signal["alike"] = dividend.each == divisor.each
                signal["per_combine"] = COMBINES.index(divisor.combine)
                signal["per_value"] = np.nan if divisor.value_is is None else divisor.value_is
            signal["first_use"], signal["end_use"] = len(uses), len(uses) + len(wanted)
            uses += wanted
        return cls(signals, np.array(uses, USE))


def _signal(measure: Measure, number: dict[str, int]) -> tuple[int, int, bool, float | None]:
    per = NONE if measure.per is None else number[measure.per.name]
    return number[measure.of.name], per, measure.complement, measure.at_zero


def reading_of(source: Source, series_set: SeriesSet) -> int:
    """How a series of this source is read when it is a member of this set."""
    if source.kind is Kind.GAUGE:
        return CUMULATIVE if series_set.counter else LEVEL
    if source.temporality is Temporality.DELTA:
        return DELTA
    return CUMULATIVE if source.monotonic or series_set.counter else LEVEL


class Plan(NamedTuple):
    """One node's used series, in the order of their keys, and the sets they belong to.

    members: of MEMBER. The members of set k are in entries[set_at[k]:set_at[k + 1]], of ENTRY, sorted by group, slot
    and key; groups are numbered in the order of their labels, and sets that split by the same labels number them alike.
    In one slot, which its first member names, are series that several reporters have of one thing: only where the set's
    metrics are of the machine itself (SeriesSet.once); elsewhere each series has a slot of its own.
    """

    members: NDArray[np.void]
    set_at: I32Array
    entries: NDArray[np.void]


def plan_node(
    catalog: Catalog, chosen: Iterable[tuple[int, Series, tuple[int, ...]]]
) -> tuple[Plan, dict[str, list[int]]]:
    """The plan of a node, and by histogram set the indexes of its series in the order of their keys.

    chosen: (series index, series, indexes of the sets that take it).
    """
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
    rows = [(index, mode, scale) for (index, mode), scale in zip(members, scales, strict=True)]
    placed = [(member, group, slot) for group, slot, member in flat]
    return Plan(np.array(rows, MEMBER), np.array(set_at, np.int32), np.array(placed, ENTRY)), histograms
