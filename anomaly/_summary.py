"""What a forest is given: how far out, in few and dense numbers.

A forest splits at random columns. One column gone wrong among a hundred would rarely be asked for; among the largest
and the means of a dozen groups it is.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = NDArray[np.float32]
ENERGY_MAX = 1e4
_NUMBERS = 3
"""Numbers told of each group, and the largest columns that the second of them is the mean of."""


def summary_width(group: NDArray[np.int32]) -> int:
    return _NUMBERS * (int(group.max()) + 2)


@njit(cache=True, nogil=True)
def energy(deviations: F32) -> F32:
    """log(1 + deviation²), with the square held at 10,000: a deviation of 100 is as bad as it gets. NaN stays."""
    n, f = deviations.shape
    energies = np.empty((n, f), np.float32)
    for i in range(n):
        for j in range(f):
            deviation = float(deviations[i, j])
            energies[i, j] = math.log1p(min(deviation * deviation, ENERGY_MAX)) if deviation == deviation else np.nan
    return energies


def summarise(energies: F32, group: NDArray[np.int32]) -> F32:
    """(n, f) energies >= 0 -> (n, summary_width) float32: of each group and then of all columns the largest, the mean
    of the three largest and the mean. NaN counts as nothing, in a mean too; an empty group is zeros.
    """
    sizes = np.append(np.bincount(group), len(group)).astype(np.int64)
    return np.asarray(_summarise(np.ascontiguousarray(energies, np.float32), group, sizes))


@njit(cache=True, nogil=True)
def _summarise(energies: F32, group: NDArray[np.int32], sizes: NDArray[np.int64]) -> F32:
    """sizes: (groups + 1,) columns of each group, and of all."""
    n, f = energies.shape
    groups = len(sizes) - 1
    summary = np.zeros((n, _NUMBERS * (groups + 1)), np.float32)
    top = np.empty((groups + 1, _NUMBERS))
    total = np.empty(groups + 1)
    for i in range(n):
        top[:] = 0.0
        total[:] = 0.0
        for j in range(f):
            value = energies[i, j]
            if value != value:
                continue
            for whole in range(2):
                g = groups if whole else int(group[j])
                total[g] += value
                place = _NUMBERS
                while place > 0 and value > top[g, place - 1]:
                    place -= 1
                for k in range(_NUMBERS - 1, place, -1):
                    top[g, k] = top[g, k - 1]
                if place < _NUMBERS:
                    top[g, place] = value
        for g in range(groups + 1):
            if sizes[g] == 0:
                continue
            largest = 0.0
            for k in range(_NUMBERS):
                largest += top[g, k]
            summary[i, _NUMBERS * g] = top[g, 0]
            summary[i, _NUMBERS * g + 1] = largest / min(sizes[g], _NUMBERS)
            summary[i, _NUMBERS * g + 2] = total[g] / sizes[g]
    return summary
