"""Who is here, who is judged, who has gone silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetpulse.anomaly._settings import DetectorSettings
from fleetpulse.features._vector import NodeVector

Mask = NDArray[np.bool_]
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Presence:
    """(n,) per node. age_ns: slide time minus the newest vector's. judged: fresh, with enough of its window covered.
    silent: for so long without a vector that it counts as gone. limit_ns: from which age that is."""

    age_ns: NDArray[np.int64]
    judged: Mask
    silent: Mask
    limit_ns: NDArray[np.int64]


def presence(t_ns: int, vectors: Sequence[NodeVector], settings: DetectorSettings) -> Presence:
    """A node is fresh up to two of its scrape intervals and 15 s, which leaves room for a late record."""
    n = len(vectors)
    age = np.fromiter((t_ns - vector.t_end_ns for vector in vectors), np.int64, n)
    interval = np.fromiter((vector.scrape_interval_ms * 1_000_000 for vector in vectors), np.int64, n)
    covered = np.fromiter((vector.window_covered_ms for vector in vectors), np.int64, n)
    limit = np.maximum(settings.silent_after_s * SECOND_NS, 3 * interval + 5 * SECOND_NS)
    fresh = age <= np.minimum(2 * interval + 15 * SECOND_NS, limit)
    return Presence(
        age_ns=age,
        judged=fresh & (covered >= settings.covered_min_s * 1000),
        silent=age > limit,
        limit_ns=limit,
    )
