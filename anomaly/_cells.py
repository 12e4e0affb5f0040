"""The loops over nodes and columns. One pass each, no temporaries; what they compute is said in _baselines.py.

In all of them rows: (n,) int64 are the nodes' rows in memory, levels: (n, f) float32 with NaN for not known, and
per-column arrays have shape (f,).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Mask = NDArray[np.bool_]
INDEX = NDArray[np.int64]

MEAN_TO_SIGMA = 1.2533
"""Mean absolute deviation to standard deviation, for normal data."""
YOUNG = 60.0
YOUNG_ALONE = 360.0
"""Slides after which a baseline's threshold has come down to twice its final value: vectors of overlapping windows say
little about how far a node wanders."""
GUARD_SPREADS = 30.0
GUARD_SLIDES = 24
GUARD_WIDTH_MIN = 8.0
CONSTANT_SLIDES = 120
CONSTANT_DEVIATION = 1 / 16
CONSTANT_SPREAD = 1e-3
CONSTANT_SHARPER = 4.0
"""Cells that have hardly ever moved (by this share of the least spread), in columns that do not move elsewhere in the
pool either, are measured so much more sharply. Their deviation says it, not their range: a move through a 5-minute
window begins in steps so small that a range would have grown before it shows."""
LEARN_FULLY = 2.0
LEARN_NOTHING = 5.0
COUNT_MAX = 65_000


@njit(cache=True, nogil=True)
def away_from_own(rows: INDEX, levels: F32, count: NDArray[np.uint16], location: F32, ready_slides: int) -> F32:
    """(n, f) level minus the node's own location; NaN where not known or the baseline is not ready."""
    n, f = levels.shape
    away = np.empty((n, f), np.float32)
    for i in range(n):
        row = rows[i]
        for j in range(f):
            away[i, j] = levels[i, j] - location[row, j] if count[row, j] >= ready_slides else np.nan
    return away


@njit(cache=True, nogil=True)
def compare_cells(
    rows: INDEX,
    levels: F32,
    away: F32,
    partial: Mask,
    count: NDArray[np.uint16],
    location: F32,
    own_deviation: F32,
    lowest: F32,
    highest: F32,
    peers: Mask,
    shared: F32,
    typical: F32,
    spread_min: F32,
    pool_spread: F32,
    pool_lowest: F32,
    pool_highest: F32,
    pool_slides: NDArray[np.int64],
    limits: NDArray[np.float64],
) -> tuple[F32, F32, F32, F32, Mask]:
    """(deviation, spread, ratio, expected, by_guard), each (n, f); see Comparison.

    limits: sigmas, sigmas_alone, ready_slides, ready_slides_alone. typical: the least spread of each column at present.
    """
    n, f = levels.shape
    sigmas, sigmas_alone, ready_slides, ready_alone = limits[0], limits[1], limits[2], limits[3]
    deviation = np.full((n, f), np.nan, np.float32)
    spread = np.empty((n, f), np.float32)
    ratio = np.full((n, f), np.nan, np.float32)
    expected = np.empty((n, f), np.float32)
    by_guard = np.zeros((n, f), np.bool_)
    for i in range(n):
        row = rows[i]
        for j in range(f):
            age = float(count[row, j])
            low, high = lowest[row, j], highest[row, j]
            own_spread = own_deviation[row, j] * MEAN_TO_SIGMA
            still = own_spread < spread_min[j] * CONSTANT_DEVIATION and pool_spread[j] < CONSTANT_SPREAD
            constant = still and age >= CONSTANT_SLIDES
            width = spread_min[j] / CONSTANT_SHARPER if constant else max(typical[j], own_spread)
            spread[i, j] = width
            expected[i, j] = location[row, j] + shared[j]
            level = levels[i, j]
            if level != level:
                continue
            is_ready = age >= ready_slides
            found = np.nan
            if is_ready:
                sigma = (away[i, j] - shared[j]) / width
                deviation[i, j] = sigma
                if peers[j]:
                    found = abs(sigma) / (sigmas * (1.0 + YOUNG / age))
                elif age >= ready_alone:
                    found = abs(sigma) / (sigmas_alone * (1.0 + YOUNG_ALONE / age))
            outside = max(level - max(pool_highest[j], high), min(pool_lowest[j], low) - level)
            if outside > 0.0:
                range_width = pool_highest[j] - pool_lowest[j]
                old_enough = pool_slides[j] >= GUARD_SLIDES if peers[j] else age >= 2 * ready_alone
                wide_enough = is_ready or range_width > GUARD_WIDTH_MIN * spread_min[j]
                if old_enough and wide_enough and range_width < np.inf:
                    guard = outside / max(range_width, GUARD_SPREADS * spread_min[j])
                    if not found >= guard:
                        found = guard
                        by_guard[i, j] = True
            if constant and found >= 1.0:
                by_guard[i, j] = True
            ratio[i, j] = found / 2 if partial[i, j] else found
    return deviation, spread, ratio, expected, by_guard


@njit(cache=True, nogil=True)
def learn_cells(
    rows: INDEX,
    levels: F32,
    deviation: F32,
    spread: F32,
    ratio: F32,
    new: Mask,
    chosen: Mask,
    shared: F32,
    count: NDArray[np.uint16],
    location: F32,
    own_deviation: F32,
    lowest: F32,
    highest: F32,
    pool_lowest: F32,
    pool_highest: F32,
    ready_slides: int,
    memory_slides: int,
) -> Mask:
    """Take the chosen nodes' levels into their cells and the pool's range, in place. (f,) columns learned anywhere.

    new, chosen: (n,). A column that a new vector lacks is unlearned as slowly as it was learned.
    A level counts in full up to LEARN_FULLY sigmas and not at all from LEARN_NOTHING on, nor when it is flagged.
    """
    n, f = levels.shape
    learned = np.zeros(f, np.bool_)
    for i in range(n):
        if not new[i]:
            continue
        row = rows[i]
        for j in range(f):
            level = levels[i, j]
            if level != level:
                if count[row, j] > 0:
                    count[row, j] = min(count[row, j], memory_slides) - 1
                continue
            if not chosen[i] or ratio[i, j] >= 1.0:
                continue
            is_ready = count[row, j] >= ready_slides
            weight = 1.0
            if is_ready:
                weight = (LEARN_NOTHING - abs(deviation[i, j])) / (LEARN_NOTHING - LEARN_FULLY)
                if weight <= 0.0:
                    continue
                weight = min(weight, 1.0)
            residual = level - shared[j] - location[row, j]
            first = count[row, j] == 0
            if count[row, j] < COUNT_MAX:
                count[row, j] += 1
            pace = weight / min(count[row, j], memory_slides)
            size = abs(residual)
            if is_ready:
                size = min(size, LEARN_NOTHING * spread[i, j])
            location[row, j] += pace * residual
            if not first:
                # The first value has nothing to stray from.
                own_deviation[row, j] += pace * (size - own_deviation[row, j])
            lowest[row, j] = min(lowest[row, j], level)
            highest[row, j] = max(highest[row, j], level)
            pool_lowest[j] = min(pool_lowest[j], level)
            pool_highest[j] = max(pool_highest[j], level)
            learned[j] = True
    return learned
