"""Medians of columns with holes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
TO_SIGMA = np.float32(1.4826)
"""Median absolute deviation to standard deviation, for normal data."""
_ROWS_MAX = 1024


def column_quantile(values: F32, q: float) -> tuple[F32, NDArray[np.int64]]:
    """(f,) the q-quantile of each column's numbers (mean of the two nearest for q = 0.5), and how many there are.

    values: (n, f) float32, NaN for no value. NaN where there is none. Of more than 1,024 rows, evenly spaced ones are
    used: row order decides which, so the caller sorts. O(n f log n).
    """
    known = np.count_nonzero(~np.isnan(values), axis=0)
    if len(values) > _ROWS_MAX:
        values = values[np.linspace(0, len(values) - 1, _ROWS_MAX).astype(np.intp)]
    if not len(values):
        return np.full(values.shape[1], np.nan, np.float32), known
    ordered = np.sort(values.T, axis=1)
    count = np.count_nonzero(~np.isnan(ordered), axis=1)
    at = q * np.maximum(count - 1, 0)
    low, high = np.floor(at).astype(np.intp), np.ceil(at).astype(np.intp)
    columns = np.arange(len(ordered))
    picked = (ordered[columns, low] + ordered[columns, high]) / np.float32(2)
    return picked.astype(np.float32), known


def column_median(values: F32) -> tuple[F32, NDArray[np.int64]]:
    """Median and count of the numbers in each column; see column_quantile."""
    return column_quantile(values, 0.5)
