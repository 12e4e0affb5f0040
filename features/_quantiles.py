"""Quantiles of merged distributions, with what their buckets prove about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetpulse.features._distributions import Explicit, Exponential
from fleetpulse.features._points import BoolArray, F64Array


@dataclass(frozen=True)
class Intervals:
    """Observations known to lie in intervals; n of them in (low, high], evenly in the value or, where even_in_log, in
    its logarithm. low may be -inf, high inf. All arrays have shape (k,)."""

    low: F64Array
    high: F64Array
    n: F64Array
    even_in_log: BoolArray

    @classmethod
    def join(cls, parts: Sequence[Intervals]) -> Intervals:
        return cls(
            np.concatenate([part.low for part in parts]),
            np.concatenate([part.high for part in parts]),
            np.concatenate([part.n for part in parts]),
            np.concatenate([part.even_in_log for part in parts]),
        )

    def times(self, factor: float) -> Intervals:
        """All ends multiplied by a positive factor."""
        return Intervals(self.low * factor, self.high * factor, self.n, self.even_in_log)

    @classmethod
    def of_explicit(cls, histogram: Explicit, least: float = -np.inf, most: float = np.inf) -> Intervals:
        """least, most: what is known of the observations besides. A first bucket that ends above zero begins at zero
        when nothing says otherwise: what explicit buckets count (durations, sizes) is not negative."""
        bounds = histogram.bounds
        floor = 0.0 if len(bounds) and bounds[0] > 0.0 else -np.inf
        low = np.concatenate(([floor], bounds))
        high = np.concatenate((bounds, [np.inf]))
        filled = histogram.counts > 0
        low, high, n = low[filled], high[filled], histogram.counts[filled].astype(np.float64)
        if least <= most:
            low = np.where(high >= least, np.maximum(low, least), low)
            high = np.where(low <= most, np.minimum(high, most), high)
        return cls(low, high, n, np.zeros(len(n), np.bool_))

    @classmethod
    def of_exponential(cls, histogram: Exponential) -> Intervals:
        lower, upper = histogram.negative.edges(histogram.scale)
        negative = -upper[::-1], -lower[::-1], histogram.negative.counts[::-1]
        zero_low = -histogram.zero_threshold if negative[2].any() else 0.0
        positive = (*histogram.positive.edges(histogram.scale), histogram.positive.counts)
        low = np.concatenate((negative[0], [zero_low], positive[0]))
        high = np.concatenate((negative[1], [histogram.zero_threshold], positive[1]))
        n = np.concatenate((negative[2], [histogram.zero_count], positive[2])).astype(np.float64)
        even_in_log = np.ones(len(n), np.bool_)
        even_in_log[len(negative[2])] = False
        filled = n > 0
        return cls(low[filled], high[filled], n[filled], even_in_log[filled])


@dataclass(frozen=True)
class Quantile:
    """value lies in [low, high]. saturated: high is infinite, and value is the least that it can be.

    single_bucket: all observations lie in one bucket, so that the value is a guess within its bounds.
    """

    value: float
    low: float
    high: float
    saturated: bool
    single_bucket: bool


def quantile(intervals: Intervals, q: float) -> Quantile:
    """The q-quantile, 0 < q < 1, of at least one observation.

    low and high are the quantiles with every observation at the lower, the upper end of its interval.
    """
    rank = q * intervals.n.sum()
    low = _of_points(intervals.low, intervals.n, rank)
    high = _of_points(intervals.high, intervals.n, rank)
    single = len(np.unique(intervals.low)) == 1 and len(np.unique(intervals.high)) == 1
    if np.isinf(high):
        return Quantile(low, low, high, True, single)
    return Quantile(min(max(_inverse(intervals, rank), low), high), low, high, False, single)


def _of_points(at: F64Array, n: F64Array, rank: float) -> float:
    order = np.argsort(at, kind="stable")
    reached = np.searchsorted(np.cumsum(n[order]), rank, side="left")
    return float(at[order[min(int(reached), len(order) - 1)]])


def _inverse(intervals: Intervals, rank: float) -> float:
    """Where the sum of the distributions reaches the rank."""
    if (intervals.low[1:] >= intervals.high[:-1]).all():
        reached = np.cumsum(intervals.n)
        k = min(int(np.searchsorted(reached, rank, side="left")), len(reached) - 1)
        before = reached[k - 1] if k else 0.0
        low, high = float(intervals.low[k]), float(intervals.high[k])
        return _between(low, high, (rank - before) / float(intervals.n[k]), bool(intervals.even_in_log[k]))
    edges = np.unique(np.concatenate((intervals.low, intervals.high)))
    edges = edges[np.isfinite(edges)]
    shares = _shares_below(intervals, edges)
    reached = intervals.n @ shares
    k = int(np.searchsorted(reached, rank, side="left"))
    if k == 0 or k == len(edges):
        return float(edges[min(k, len(edges) - 1)])
    # Between two edges only the intervals across both grow; what sits on the right edge alone is a jump there.
    across = (intervals.low <= edges[k - 1]) & (intervals.high >= edges[k]) & (intervals.low < intervals.high)
    grown = float((intervals.n * (shares[:, k] - shares[:, k - 1]))[across].sum())
    share = min((rank - reached[k - 1]) / grown, 1.0) if grown > 0.0 else 1.0
    return _between(float(edges[k - 1]), float(edges[k]), share, bool(intervals.even_in_log[across].all()))


def _between(low: float, high: float, share: float, in_log: bool) -> float:
    """The point that `share` of an interval's observations lie below; its upper end when it has no lower one."""
    if np.isinf(low) or low == high:
        return high
    if in_log and low * high > 0.0:
        return low * math.pow(high / low, share)
    return low + (high - low) * share


def _shares_below(intervals: Intervals, edges: F64Array) -> F64Array:
    """(intervals, edges): share of each interval's observations at or below each edge.

    All observations of an interval without a finite end, or without a width, sit at its upper end.
    """
    low, high = intervals.low[:, None], intervals.high[:, None]
    spread = np.isfinite(low) & np.isfinite(high) & (low < high)
    low_end, high_end = np.where(spread, low, 0.0), np.where(spread, high, 1.0)
    inside = np.clip(edges[None, :], low_end, high_end)
    shares = (inside - low_end) / (high_end - low_end)
    in_log = intervals.even_in_log[:, None] & (low_end * high_end > 0.0)
    if in_log.any():
        one = np.where(in_log, low_end, 1.0)
        ratio = np.where(in_log, high_end, 2.0) / one
        shares = np.where(in_log, np.log(np.where(in_log, inside, 1.0) / one) / np.log(ratio), shares)
    below: F64Array = np.where(spread, shares, edges[None, :] >= high)
    return below
