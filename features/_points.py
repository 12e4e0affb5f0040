"""Columns of points: what a decoded request hands to the series state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

I32Array = NDArray[np.int32]
I64Array = NDArray[np.int64]
F64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(slots=True)
class NumberPoints:
    """n points of gauges and sums, in the order of their arrival. All arrays have shape (n,).

    series: index into the shard's SeriesTable.
    time_ns, start_ns: Unix nanoseconds; start_ns is 0 where the point has none.
    value: float64; where is_int, the nearest float64 of `integer`, which is exact.
    """

    series: I32Array
    time_ns: I64Array
    start_ns: I64Array
    value: F64Array
    integer: I64Array
    is_int: BoolArray


@dataclass(slots=True)
class HistogramPoints:
    """n points of explicit-bucket histograms.

    count: (n,) int64. total: (n,) the point's `sum`; low, high: (n,) its min and max. All three NaN where absent.
    counts: (sum of bucket numbers,) int64; those of point i are counts[count_at[i]:count_at[i+1]].
    bounds: likewise by bound_at; a point of k bounds has k + 1 counts, or none of either.
    """

    series: I32Array
    time_ns: I64Array
    start_ns: I64Array
    count: I64Array
    total: F64Array
    low: F64Array
    high: F64Array
    count_at: I64Array
    counts: I64Array
    bound_at: I64Array
    bounds: F64Array


@dataclass(slots=True)
class ExponentialPoints:
    """n points of exponential histograms.

    Bucket k of the positive range holds (base**k, base**(k+1)], base = 2**(2**-scale); the first stored one is
    k = positive_offset[i]. positive_at and negative_at delimit each point's counts as in HistogramPoints.
    Source: OpenTelemetry metrics data model, "ExponentialHistogram".
    """

    series: I32Array
    time_ns: I64Array
    start_ns: I64Array
    count: I64Array
    total: F64Array
    low: F64Array
    high: F64Array
    scale: I32Array
    zero_count: I64Array
    zero_threshold: F64Array
    positive_offset: I32Array
    positive_at: I64Array
    positive: I64Array
    negative_offset: I32Array
    negative_at: I64Array
    negative: I64Array


@dataclass(slots=True)
class Points:
    """All points of one record. Summaries arrive as numbers: `name.count`, `name.sum` and, per quantile, gauges."""

    numbers: NumberPoints
    histograms: HistogramPoints
    exponentials: ExponentialPoints
