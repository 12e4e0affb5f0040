"""What the detector knows of a vector's columns before it has seen a value.

Values become *levels*: asinh(value / (2 * small)), linear near zero and logarithmic far above `small`, so that load
that multiplies adds, that a busy node and an idle one wobble alike, and that a rate which leaves zero for less than
`small` does not count as a jump. `small` and the least spread come from unit, bounds and aggregate of the feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._catalog import HISTOGRAM_AGGREGATES, QUANTILES, Catalog, Feature

F32 = NDArray[np.float32]
VALUE_MAX = np.float32(1e30)

_SMALL_BY_UNIT = {
    "1": 0.1,
    "By": 64 * 2.0**20,
    "By/s": 64 * 2.0**10,
    "s": 0.002,
    "Cel": 100.0,
    "W": 20.0,
}
_SMALL_SLOPE = {"1/s": 5e-4, "By/s": 2.0**23}
"""Large, so that slopes stay on the linear side: they wander around zero, and their size says how far."""
SPREAD_MIN = 0.02
"""Two per cent, for values above `small`: the least standard deviation that anything is measured by."""
_SPREAD_MIN_COUNT = 0.1
OBSERVATIONS_MIN = 50.0
"""A quantile of fewer observations is not compared with anything."""


@dataclass(frozen=True)
class Columns:
    """Per column, (f,). small, spread_min: > 0, in values and in levels. judged: whether it is compared at all.
    is_slope: it tells change, not level. window_ms: what a node's window must cover before the value counts. count_of:
    column with the number of observations behind a quantile, -1 for none. group: index of the column's group."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    group: NDArray[np.int32]
    judged: NDArray[np.bool_]
    small: F32
    spread_min: F32
    is_slope: NDArray[np.bool_]
    window_ms: NDArray[np.int64]
    count_of: NDArray[np.int32]
    schema_hash: bytes

    @classmethod
    def of_catalog(cls, catalog: Catalog) -> Columns:
        """What only repeats another column, tells the time, or shows what the scheduler placed is not judged."""
        features = catalog.features
        groups = sorted({feature.group for feature in features})
        return cls(
            names=tuple(feature.name for feature in features),
            units=tuple(feature.unit for feature in features),
            group=np.array([groups.index(feature.group) for feature in features], np.int32),
            judged=np.array([_is_judged(feature) for feature in features], np.bool_),
            small=np.array([_small(feature) for feature in features], np.float32),
            spread_min=np.array([_spread_min(feature) for feature in features], np.float32),
            is_slope=np.array([_is_slope(feature) for feature in features], np.bool_),
            window_ms=np.array([feature.window_ns // 1_000_000 for feature in features], np.int64),
            count_of=np.array([_count_of(feature, features) for feature in features], np.int32),
            schema_hash=catalog.schema_hash,
        )

    def select(self, picked: NDArray[np.intp]) -> Columns:
        """Only these columns; count_of, which points into the whole, is gone."""
        return Columns(
            names=tuple(self.names[index] for index in picked),
            units=tuple(self.units[index] for index in picked),
            group=self.group[picked],
            judged=self.judged[picked],
            small=self.small[picked],
            spread_min=self.spread_min[picked],
            is_slope=self.is_slope[picked],
            window_ms=self.window_ms[picked],
            count_of=np.full(len(picked), -1, np.int32),
            schema_hash=self.schema_hash,
        )

    def levels(self, values: F32) -> F32:
        """(n, f) values -> (n, f) levels; NaN stays NaN."""
        clipped = np.clip(values, -VALUE_MAX, VALUE_MAX)
        return np.asarray(np.arcsinh(clipped / (2 * self.small)), np.float32)

    def value(self, column: int, level: float) -> float:
        """The value at a level: inverse of levels for one column."""
        return float(np.sinh(min(max(level, -80.0), 80.0)) * 2.0 * float(self.small[column]))


def _aggregates(feature: Feature) -> set[str]:
    return {measure.aggregate for measure in feature.measures}


def _is_judged(feature: Feature) -> bool:
    if feature.context is not None or any(measure.give != "value" for measure in feature.measures):
        return False
    return feature.group != "pods" or _aggregates(feature) == {"increase"}


def _is_slope(feature: Feature) -> bool:
    return "slope" in _aggregates(feature)


def _small(feature: Feature) -> float:
    if _is_slope(feature):
        return _SMALL_SLOPE.get(feature.unit, 1.0)
    if feature.bounds is not None:
        return 0.05 * (feature.bounds[1] - feature.bounds[0])
    return _SMALL_BY_UNIT.get(feature.unit, 1.0)


def _spread_min(feature: Feature) -> float:
    aggregates = _aggregates(feature)
    if feature.unit.startswith("{") and feature.bounds is None and "increase" in aggregates:
        return _SPREAD_MIN_COUNT
    return SPREAD_MIN


def _count_of(feature: Feature, features: Sequence[Feature]) -> int:
    """Column of the number of observations in the histogram that this quantile is read from."""
    for measure in feature.measures:
        if measure.aggregate not in QUANTILES or not measure.of.histogram:
            continue
        assert measure.aggregate in HISTOGRAM_AGGREGATES
        for index, other in enumerate(features):
            if any(
                m.aggregate == "increase" and m.of.name == measure.of.name and m.per is None for m in other.measures
            ):
                return index
    return -1
