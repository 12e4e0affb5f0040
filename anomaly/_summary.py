"""What a forest is given: how far out, in few and dense numbers.

A forest splits at random columns. One column gone wrong among a hundred would rarely be asked for; among the largest
and the means of a dozen groups it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
ENERGY_MAX = 1e4
_NUMBERS = 3
_TOP = 3


def energy(deviations: F32) -> F32:
    """log(1 + deviation²), with the square held at 10,000: a deviation of 100 is as bad as it gets. NaN stays."""
    return np.asarray(np.log1p(np.minimum(deviations.astype(np.float64) ** 2, ENERGY_MAX)), np.float32)


def summarise(energies: F32, group: NDArray[np.int32]) -> F32:
    """(n, f) energies -> (n, summary_width) float32: of each group and then of all columns the largest, the mean of
    the three largest and the mean. NaN counts as nothing, in a mean too."""
    filled = np.nan_to_num(energies, nan=0.0)
    parts = []
    for index in range(int(group.max()) + 1):
        parts += _numbers(filled[:, group == index])
    parts += _numbers(filled)
    return np.stack(parts, axis=1).astype(np.float32)


def summary_width(group: NDArray[np.int32]) -> int:
    return _NUMBERS * (int(group.max()) + 2)


def _numbers(members: F32) -> list[F32]:
    n, f = members.shape
    if f == 0:
        return [np.zeros(n, np.float32)] * _NUMBERS
    top = min(_TOP, f)
    largest = np.partition(members, f - top, axis=1)[:, f - top :]
    # Sorted, so that the sum does not depend on the order of columns.
    largest.sort(axis=1)
    return [largest[:, -1], largest.mean(axis=1), members.mean(axis=1, dtype=np.float64).astype(np.float32)]
