"""Features of histograms: counts, rates, and quantiles with their bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fleetpulse.features._catalog import QUANTILES, Catalog, Feature, Measure
from fleetpulse.features._histograms import HistogramSeries, NodeWindow, merge
from fleetpulse.features._quantiles import Quantile, quantile


@dataclass(frozen=True)
class Reading:
    """The value of one column; NaN when it is missing. flawed: it had to leave something out.

    mark: what to publish beside it: "saturated", "single bucket", or why something is missing; "" for nothing.
    """

    column: int
    value: float
    newest_ns: int
    covered_ns: int
    interval_ns: int
    flawed: bool
    mark: str


class HistogramFeatures:
    """The columns of a catalog that rest on histograms, and how to fill them."""

    def __init__(self, catalog: Catalog) -> None:
        self._columns: dict[tuple[str, int], list[tuple[int, Feature, Measure]]] = {}
        for column, feature in enumerate(catalog.features):
            for measure in feature.measures:
                if measure.of.histogram:
                    key = measure.of.name, feature.window_ns
                    self._columns.setdefault(key, []).append((column, feature, measure))

    def read(
        self, members: Mapping[str, list[int]], series: Mapping[int, HistogramSeries], t_end_ns: int, oldest_ns: int
    ) -> Iterator[Reading]:
        """members: by set name, the indexes of the node's series in the order of their keys.

        Of a feature's measures the first that has a value is read.
        """
        filled: set[int] = set()
        for (name, window_ns), columns in self._columns.items():
            if name not in members:
                continue
            t0_ns = t_end_ns - window_ns
            node = merge((series[index].window(t0_ns, t_end_ns, oldest_ns) for index in members[name]), t0_ns)
            if node is None:
                continue
            quantiles: dict[float, Quantile] = {}
            for column, feature, measure in columns:
                reading = _read(node, column, measure, quantiles)
                if column not in filled:
                    if not np.isnan(reading.value):
                        filled.add(column)
                    yield _clipped(reading, feature)


def _read(node: NodeWindow, column: int, measure: Measure, quantiles: dict[float, Quantile]) -> Reading:
    value, mark = np.nan, ""
    if measure.aggregate == "increase":
        value = float(node.count)
    elif measure.aggregate == "rate":
        value = node.rate
    elif node.intervals is None:
        mark = node.flaw if measure.give == "value" else ""
    else:
        q = QUANTILES[measure.aggregate]
        found = quantiles.get(q)
        if found is None:
            found = quantiles[q] = quantile(node.intervals, q)
        value = _given(found, measure.give)
        if measure.give == "value":
            mark = "saturated" if found.saturated else "single bucket" if found.single_bucket else node.flaw
    if not np.isfinite(value):
        value = np.nan
    flawed = bool(node.flaw) and node.flaw != "no observations"
    return Reading(column, value, node.newest_ns, node.covered_ns, node.interval_ns, flawed, mark)


def _given(found: Quantile, give: str) -> float:
    if give == "low":
        return found.low
    if give == "high":
        return found.high
    if give == "saturated":
        return float(found.saturated)
    return found.value


def _clipped(reading: Reading, feature: Feature) -> Reading:
    if feature.bounds is None or np.isnan(reading.value):
        return reading
    value = min(max(reading.value, feature.bounds[0]), feature.bounds[1])
    return Reading(
        reading.column,
        value,
        reading.newest_ns,
        reading.covered_ns,
        reading.interval_ns,
        reading.flawed,
        reading.mark,
    )
