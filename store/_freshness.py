"""How old is too old, judged at the moment of reading by the reader's clock (design page, section 5)."""

from __future__ import annotations

import time
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fleetpulse.store._keys import FRESH_GRACE_MS, FRESH_INTERVALS, MISSING_AFTER_MS

AHEAD_MS_MAX = 60_000
"""A t_end further ahead of the reader's clock than ingest lets samples be is not fresh: one of the clocks is wrong."""

I64Array = NDArray[np.int64]
U8Array = NDArray[np.uint8]


class Freshness(IntEnum):
    """Whether a reading may be acted on. MISSING means unknown: never idle, never zero."""

    MISSING = 0
    FRESH = 1
    STALE = 2


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def judge(ages_ms: I64Array, intervals_ms: I64Array, max_age_ms: int | None = None) -> U8Array:
    """Freshness of each age. Both limits are inclusive.

    ages_ms: (n,) now minus t_end. FRESH up to two scrape intervals and 5 s, STALE up to 180 s, MISSING after.
    max_age_ms makes everything older MISSING; it cannot extend the 180 s. An age of less than -60 s is STALE.
    """
    limit = MISSING_AFTER_MS if max_age_ms is None else min(MISSING_AFTER_MS, max_age_ms)
    fresh = (ages_ms <= FRESH_INTERVALS * intervals_ms + FRESH_GRACE_MS) & (ages_ms >= -AHEAD_MS_MAX)
    levels = np.where(fresh, np.uint8(Freshness.FRESH), np.uint8(Freshness.STALE))
    levels[ages_ms > limit] = Freshness.MISSING
    return levels


def judge_one(age_ms: int, interval_ms: int, max_age_ms: int | None = None) -> Freshness:
    """The same for one age, without arrays."""
    limit = MISSING_AFTER_MS if max_age_ms is None else min(MISSING_AFTER_MS, max_age_ms)
    if age_ms > limit:
        return Freshness.MISSING
    if -AHEAD_MS_MAX <= age_ms <= FRESH_INTERVALS * interval_ms + FRESH_GRACE_MS:
        return Freshness.FRESH
    return Freshness.STALE
