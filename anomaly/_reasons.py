"""The few features that explain a ratio."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetpulse.anomaly._columns import Columns
from fleetpulse.anomaly._event import Reason

REASONS_MAX = 5
_SAID_ENOUGH = 0.5
"""A feature that is less far over its threshold than this share of the threshold explains nothing."""
_SUFFIX = re.compile(r"(_(share|high|low|max|min|p\d+|1m|5m|slope))+$")


def choose(columns: Columns, weights: NDArray[np.floating], *, at_most: int = REASONS_MAX) -> list[int]:
    """Columns by falling weight, one of each quantity: disk_busy_share_1m says the same as disk_busy_share_5m.

    weights: (f,), NaN or 0 for what explains nothing. Ties go to the earlier column.
    """
    order = np.argsort(-np.nan_to_num(weights, nan=0.0), kind="stable")
    chosen: list[int] = []
    said: set[str] = set()
    for column in order:
        if not weights[column] > 0 or len(chosen) == at_most:
            break
        quantity = _SUFFIX.sub("", columns.names[column])
        if quantity not in said:
            said.add(quantity)
            chosen.append(int(column))
    return chosen


def reasons_of(
    columns: Columns,
    chosen: Sequence[int],
    values: NDArray[np.float32],
    expected_levels: NDArray[np.float32],
    deviations: NDArray[np.float32],
) -> tuple[Reason, ...]:
    """Reasons for these columns of one node; all arrays (f,)."""
    return tuple(
        Reason(
            feature=columns.names[column],
            value=float(values[column]),
            expected=columns.value(column, float(expected_levels[column])),
            unit=columns.units[column],
            deviation=float(deviations[column]),
        )
        for column in chosen
    )


def explains(ratio: NDArray[np.floating]) -> NDArray[np.floating]:
    """(f,) the weights of columns that are far enough out to be named; 0 for the others."""
    return np.where(np.nan_to_num(ratio, nan=0.0) >= _SAID_ENOUGH, ratio, 0.0)
