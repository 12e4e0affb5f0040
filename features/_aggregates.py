"""Aggregates of one combined series over a window: value[i] is what the scrape at time_ns[i] said, NaN where nothing.

Each is a function of the values in the order of time; sums are taken about the first value, so that a large offset
costs no digits.
"""

from __future__ import annotations

import numpy as np

from fleetpulse.features._kernel import borrowing
from fleetpulse.features._points import F64Array, I64Array

LAST, MEAN, MIN, MAX, STD, SLOPE, RATE, INCREASE, SHARE_ABOVE, QUANTILE = range(10)
"""Numbers of the catalog's AGGREGATES, in their order; QUANTILE and above are its quantiles."""


@borrowing
def mean(value: F64Array, weight_s: F64Array) -> float:
    """Weighted by time; the plain mean when no scrape has a weight."""
    n, origin, total, weights, plain = 0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(value)):
        if np.isnan(value[i]):
            continue
        if n == 0:
            origin = value[i]
        n += 1
        plain += value[i] - origin
        total += (value[i] - origin) * weight_s[i]
        weights += weight_s[i]
    if n == 0:
        return np.nan
    return origin + (total / weights if weights > 0.0 else plain / n)


@borrowing
def share_above(value: F64Array, weight_s: F64Array, bound: float) -> float:
    """Share of the time that is known in which the value lay above the bound."""
    above, weights = 0.0, 0.0
    for i in range(len(value)):
        if np.isnan(value[i]):
            continue
        weights += weight_s[i]
        if value[i] > bound:
            above += weight_s[i]
    return above / weights if weights > 0.0 else np.nan


@borrowing
def deviation(value: F64Array) -> float:
    """Standard deviation of the population; NaN for fewer than two values."""
    n, centre, squares = 0, 0.0, 0.0
    for x in value:
        if np.isnan(x):
            continue
        n += 1
        step = x - centre
        centre += step / n
        squares += step * (x - centre)
    return np.sqrt(squares / n) if n >= 2 else np.nan


@borrowing
def slope(time_ns: I64Array, value: F64Array) -> float:
    """Least-squares slope per second; NaN for fewer than three values."""
    n, first, mean_t, mean_x, cross, spread = 0, 0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(value)):
        if np.isnan(value[i]):
            continue
        if n == 0:
            first = time_ns[i]
        n += 1
        t = (time_ns[i] - first) / 1e9
        step_t = t - mean_t
        mean_t += step_t / n
        mean_x += (value[i] - mean_x) / n
        cross += step_t * (value[i] - mean_x)
        spread += step_t * (t - mean_t)
    return cross / spread if n >= 3 and spread > 0.0 else np.nan


@borrowing
def extreme(value: F64Array, largest: bool) -> float:
    found = np.nan
    for x in value:
        if not np.isnan(x) and (np.isnan(found) or (x > found if largest else x < found)):
            found = x
    return found


@borrowing
def select(value: F64Array, n: int, k: int) -> None:
    """Reorder value[:n] so that value[k] is where sorting would put it, with none before it larger and none after it
    smaller (Hoare's quickselect)."""
    lo, hi = 0, n - 1
    while lo < hi:
        pivot = value[(lo + hi) // 2]
        i, j = lo, hi
        while i <= j:
            while value[i] < pivot:
                i += 1
            while value[j] > pivot:
                j -= 1
            if i <= j:
                value[i], value[j] = value[j], value[i]
                i += 1
                j -= 1
        if k <= j:
            hi = j
        elif k >= i:
            lo = i
        else:
            return


@borrowing
def quantile(value: F64Array, q: float, known: F64Array) -> float:
    """Exact, with linear interpolation between neighbours in rank, as numpy.quantile does.

    known: room for the values.
    """
    n = 0
    for x in value:
        if not np.isnan(x):
            known[n] = x
            n += 1
    if n == 0:
        return np.nan
    rank = q * (n - 1)
    below = int(rank)
    select(known, n, below)
    if below + 1 >= n:
        return float(known[below])
    above = known[below + 1]
    for i in range(below + 2, n):
        above = min(above, known[i])
    return float(known[below] + (above - known[below]) * (rank - below))


@borrowing
def aggregate(code, time_ns, value, weight_s, skip, argument, room):  # type: ignore[no-untyped-def]
    """One aggregate of all but the first `skip`; argument is the bound of SHARE_ABOVE or the q of QUANTILE.

    room: as many places as there are values.
    """
    value, weight_s = value[skip:], weight_s[skip:]
    if code == MEAN:
        return mean(value, weight_s)
    if code == MIN:
        return extreme(value, False)
    if code == MAX:
        return extreme(value, True)
    if code == STD:
        return deviation(value)
    if code == SLOPE:
        return slope(time_ns[skip:], value)
    if code == SHARE_ABOVE:
        return share_above(value, weight_s, argument)
    return quantile(value, argument, room)
