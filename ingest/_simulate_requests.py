"""Request times of simulated services: log-normal, drawn straight into histogram buckets."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F64Array = NDArray[np.float64]
I64Array = NDArray[np.int64]

SPREAD = 0.55
"""Standard deviation of a request time's logarithm: the P99 is 3.6 times the median."""

# The normal distribution by interpolation, exact to 1e-7: fast for whole fleets, and no dependency.
_Z = np.linspace(-8.0, 8.0, 8_001)
_PHI = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in _Z.tolist()])


class RequestTimes:
    """Cumulative histograms of n nodes over the same buckets.

    edges_s: (k,) ascending. Bucket 0 ends at edges_s[0], bucket k begins at edges_s[-1].
    counts: (n, k + 1). total_s: (n,) sum of the request times, made of the drawn buckets' expected values.
    """

    def __init__(self, nodes: int, edges_s: F64Array) -> None:
        self._log_edges = np.log(edges_s)
        self._low = np.concatenate(([0.0], edges_s))
        self._high = np.concatenate((edges_s, [np.inf]))
        self.counts: I64Array = np.zeros((nodes, len(edges_s) + 1), np.int64)
        self.total_s = np.zeros(nodes)

    def observe(self, requests: I64Array, median_s: F64Array, generator: np.random.Generator) -> None:
        """requests, median_s: (n,), how many requests there were and their median time."""
        z = (self._log_edges - np.log(median_s)[:, None]) / SPREAD
        shares = _between(z)
        drawn = generator.multinomial(requests, shares)
        # Mean of a log-normal within a bucket, from its partial expectation.
        mean_s = median_s[:, None] * math.exp(SPREAD**2 / 2) * _between(z - SPREAD) / np.maximum(shares, 1e-12)
        self.counts += drawn
        self.total_s += (drawn * np.clip(mean_s, self._low, self._high)).sum(axis=1)


def _between(z: F64Array) -> F64Array:
    """(n, k) ascending edges -> (n, k + 1) shares of the normal distribution between them; rows sum to 1."""
    ends = np.interp(z, _Z, _PHI)
    n = len(ends)
    shares = np.diff(ends, axis=1, prepend=np.zeros((n, 1)), append=np.ones((n, 1)))
    shares = np.maximum(shares, 0.0)
    normalised: F64Array = shares / shares.sum(axis=1, keepdims=True)
    return normalised
