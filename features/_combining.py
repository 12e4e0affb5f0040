"""How the series of one set become one: at every scrape, over a window, and as they last stood.

Series come in the order of their keys, groups in the order of their labels, so that the sums' bits do not depend on
how samples arrived.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from fleetpulse.features._kernel import borrowing
from fleetpulse.features._points import F64Array, I64Array
from fleetpulse.features._readings import HOLE, LEVEL

SUM, MEAN, MIN, MAX, STD, COUNT = range(6)
"""Numbers of the catalog's COMBINES, in their order. A count is a sum of ones."""

HOLD_NS = 5_000_000_000
"""A series that has missed two of its usual intervals and this much has ended: it is no longer part of a sum."""


@njit(cache=True)
def hold_of(interval: int) -> int:
    return 2 * interval + HOLD_NS


@borrowing
def push(op: int, n: int, a: float, b: float, x: float) -> tuple[int, float, float]:
    """One more value in an accumulator (n, a, b), which starts as zeros. b is used by STD only (Welford's method)."""
    if n == 0:
        return 1, x, 0.0
    n += 1
    if op == MIN:
        return n, min(a, x), 0.0
    if op == MAX:
        return n, max(a, x), 0.0
    if op == STD:
        mean = a + (x - a) / n
        return n, mean, b + (x - a) * (x - mean)
    return n, a + x, 0.0


@borrowing
def finish(op: int, n: int, a: float, b: float) -> float:
    """The accumulator's value; NaN when nothing was pushed. STD is of the population."""
    if n == 0:
        return np.nan
    if op == MEAN:
        return a / n
    if op == STD:
        return math.sqrt(b / n)
    return a


@borrowing
def quotient(of: float, per: float, complement: bool, at_zero: float) -> float:
    """of / per, or max(0, 1 - of / per). Both zero: at_zero. Only `per` zero: an infinite quotient, which no one can
    use; its complement is 0."""
    if np.isnan(of) or np.isnan(per):
        return np.nan
    if per == 0.0:
        if of == 0.0:
            return at_zero
        return 0.0 if complement else np.nan
    return max(0.0, 1.0 - of / per) if complement else of / per


@borrowing
def times_of(start, stop, entries, facts, time, tolerance, out, spare):  # type: ignore[no-untyped-def]
    """The times at which a set was scraped: those of its first series, and others' that have none within tolerance.

    The set is entries[start:stop]; facts say where its members' readings are in `time`. Returns the number of times;
    they are in out, ascending. The baselines' places are left out. out and spare need room for all readings of the set.
    """
    n = 0
    for e in range(start, stop):
        fact = facts[entries[e].member]
        i, j, k = 0, fact.lo + 1, 0
        grew = False
        while j < fact.hi:
            while i < n and out[i] <= time[j]:
                spare[k] = out[i]
                k += 1
                i += 1
            near = (k > 0 and time[j] - spare[k - 1] <= tolerance) or (i < n and out[i] - time[j] <= tolerance)
            if n == 0 or not near:
                spare[k] = time[j]
                k += 1
                grew = True
            j += 1
        if grew:
            while i < n:
                spare[k] = out[i]
                k += 1
                i += 1
            n = k
            for i in range(n):
                out[i] = spare[i]
    return n


@borrowing
def at_scrapes(
    scrape: I64Array, tolerance: int, time: I64Array, begin: I64Array, value: F64Array,
    lo: int, hi: int, mode: int, interval: int, presence: bool, out: F64Array, when: I64Array,
) -> None:  # fmt: skip
    """What one series says at each scrape, NaN where it says nothing; and the time of the sample that says it.

    A level says its newest value, while it has not ended. A counter says the rate of the interval that the scrape lies
    in, or of its last one while it has not ended. presence: 1 where it has a sample at all.
    """
    hold = hold_of(interval)
    last = lo if begin[lo] >= 0 else -1
    i = lo + 1
    for k in range(len(scrape)):
        t = scrape[k]
        out[k] = np.nan
        if mode == LEVEL or presence:
            while i < hi and time[i] <= t + tolerance:
                last = i
                i += 1
            if last >= 0 and t - time[last] <= hold:
                out[k] = 1.0 if presence and mode != LEVEL else value[last]
                when[k] = time[last]
        else:
            while i < hi and time[i] < t - tolerance:
                i += 1
            if i < hi:
                if begin[i] < t:
                    out[k] = value[i]
                    when[k] = time[i]
            elif hi > lo + 1 and t - time[hi - 1] <= hold:
                out[k] = value[hi - 1]
                when[k] = time[hi - 1]


@borrowing
def weigh(scrape: I64Array, before: int, mode: int, interval: int, t0: int, out: F64Array) -> None:
    """Seconds of the window that each scrape speaks for: the time since the scrape before it, for a level the usual
    interval at most. before: when the time of the first one began; -1 when that is not known. 0 for scrapes up to t0.
    """
    previous = before
    for k in range(len(scrape)):
        t = scrape[k]
        since = previous
        if previous < 0 or (mode == LEVEL and t - previous > HOLE * interval):
            since = t - interval
        out[k] = (t - max(since, t0)) / 1e9 if t > t0 else 0.0
        previous = t
