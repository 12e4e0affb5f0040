"""Load that moves many columns at once, learned from normal residuals and taken out of new ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = NDArray[np.float32]
CLIP = np.float32(5.0)
"""Deviations beyond this count as this much when the directions are learned."""
SPREAD_MIN = np.float32(0.5)


@dataclass(frozen=True)
class SharedLoad:
    """components: (k, f) float32, orthonormal rows; spread: (f,) float32 > 0, of what remains of normal rows.

    Columns that were constant or never known in training have zeros in components and a spread of 1.
    """

    components: F32
    spread: F32

    @classmethod
    def learn(cls, rows: F32, *, share: float, components_max: int) -> SharedLoad:
        """Principal components of (n, f) deviations, as few as explain `share` of their variance.

        NaN counts as zero, what was expected, which is the only choice that pulls no direction anywhere.
        """
        filled = np.clip(np.nan_to_num(rows, nan=0.0), -CLIP, CLIP).astype(np.float64)
        second = filled.T @ filled / max(len(filled), 1)
        variance, vectors = np.linalg.eigh(second)
        variance, vectors = np.maximum(variance[::-1], 0.0), vectors[:, ::-1]
        total = variance.sum()
        wanted = int(np.searchsorted(np.cumsum(variance), share * total) + 1) if total > 0 else 0
        kept = min(wanted, components_max, rows.shape[1] // 4)
        components = np.ascontiguousarray(vectors[:, :kept].T).astype(np.float32)
        # eigh leaves the sign open; the largest entry is made positive so that equal rows give equal bytes.
        for component in components:
            component *= np.sign(component[np.argmax(np.abs(component))])
        load = cls(components, np.ones(rows.shape[1], np.float32))
        rest = load.remove(rows)
        typical = np.nanquantile(np.abs(np.where(np.isnan(rest).all(axis=0), 1.0, rest)), 0.68, axis=0)
        return cls(components, np.maximum(typical, SPREAD_MIN).astype(np.float32))

    def remove(self, rows: F32) -> F32:
        """(n, f) deviations -> (n, f), without the shared part and over the spread; NaN stays NaN.

        Each row on its own: the same bits whatever rows are beside it.
        """
        return np.asarray(_remove(np.ascontiguousarray(rows, np.float32), self.components, self.spread))


@njit(cache=True, nogil=True)
def _remove(rows: F32, components: F32, spread: F32) -> F32:
    n, f = rows.shape
    rest = np.empty((n, f), np.float32)
    weights = np.empty(len(components))
    for i in range(n):
        for k in range(len(components)):
            total = 0.0
            for j in range(f):
                value = rows[i, j]
                if value == value:
                    total += min(max(value, -50.0), 50.0) * components[k, j]
            weights[k] = total
        for j in range(f):
            value = float(rows[i, j])
            for k in range(len(components)):
                value -= weights[k] * components[k, j]
            rest[i, j] = value / spread[j]
    return rest
