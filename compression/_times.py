"""The time columns of a chunk: each stored once, in full or as the part of another that it takes.

Layout: FORMAT.md, "Time column".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fleetpulse.compression._bits import ONE, I64Array, U64Array, borrowing, get, put
from fleetpulse.compression._integers import get_run, plan_run, put_run
from fleetpulse.compression._numbers import count_bits, get_count, put_count

BoolArray = NDArray[np.bool_]

BASES_TRIED = 8
"""A column that misses scrapes is compared with so many longer ones; more would cost the square of their number."""

BITMAP, RUNS = 0, 1

DONE, RAN_OUT, BAD_COUNT, BAD_RUN, BAD_BASE, BAD_MASK, BAD_ORDER = range(7)


def bases_of(columns: Sequence[I64Array]) -> list[int]:
    """For every time column the index of the shortest earlier one that holds all its times; -1 for none.

    columns: distinct and strictly increasing, longer ones first. A column with a base is nobody's base.
    """
    holders: dict[int, list[int]] = {}
    bases = []
    for index, times in enumerate(columns):
        base = -1
        if len(times):
            for candidate in holders.get(int(times[0]), ())[-BASES_TRIED:]:
                held = columns[candidate]
                places = np.searchsorted(held, times)
                if places[-1] < len(held) and np.array_equal(held[places], times):
                    base = candidate
        bases.append(base)
        if base < 0:
            for time_ns in times.tolist():
                holders.setdefault(time_ns, []).append(index)
    return bases


def mask_of(base: I64Array, times: I64Array) -> BoolArray:
    """Which of the base's times the column takes."""
    mask = np.zeros(len(base), np.bool_)
    mask[np.searchsorted(base, times)] = True
    return mask


@borrowing
def run_lengths_bits(mask: BoolArray) -> int:
    """What the mask takes as lengths of its runs, beside the flag."""
    total, length = 0, 0
    now = True
    for taken in mask:
        if taken != now:
            total += count_bits(length)
            now, length = taken, 0
        length += 1
    return total + count_bits(length)


@njit(cache=True)
def put_times(words: U64Array, at: int, times: I64Array, origin: int, mask: BoolArray, base: int) -> int:
    """Append one time column: in full, or as the mask of column `base` when there is one (>= 0) and that is shorter."""
    n = len(times)
    shifted = times - origin
    steps = np.empty(n + 1, np.int64)
    rest = np.empty(n + 1, np.int64)
    plan = plan_run(shifted, steps, rest)
    full = plan[4] + count_bits(n)
    if base >= 0:
        runs = run_lengths_bits(mask)
        if count_bits(base + 1) + 1 + min(runs, len(mask)) <= full + 1:
            at = put_count(words, at, base + 1)
            if len(mask) <= runs:
                at = put(words, at, np.uint64(BITMAP), 1)
                for taken in mask:
                    at = put(words, at, np.uint64(taken), 1)
                return at
            at = put(words, at, np.uint64(RUNS), 1)
            length = 0
            now = True
            for taken in mask:
                if taken != now:
                    at = put_count(words, at, length)
                    now, length = taken, 0
                length += 1
            return put_count(words, at, length)
    at = put_count(words, at, 0)
    at = put_count(words, at, n)
    return put_run(words, at, shifted, plan, steps, rest)


@borrowing
def get_full(words: U64Array, at: int, end: int, origin: int, times: I64Array) -> tuple[int, int]:
    """Fill times with a column stored in full, its count already read."""
    begin = at
    at, good = get_run(words, at, end, times)
    if not good:
        return at, BAD_RUN if at <= end else RAN_OUT
    for i in range(len(times)):
        times[i] += origin
        if i and times[i] <= times[i - 1]:
            return begin, BAD_ORDER
    return at, DONE


@borrowing
def get_mask(words: U64Array, at: int, end: int, mask: BoolArray) -> tuple[int, int]:
    """Fill mask with what a column takes of its base."""
    n = len(mask)
    kind = get(words, at, 1)
    at += 1
    if kind != ONE:
        for i in range(n):
            mask[i] = get(words, at + i, 1) == ONE
        return at + n, DONE if at + n <= end else RAN_OUT
    begin = at
    place = 0
    now = True
    while True:
        at, length = get_count(words, at)
        if at > end:
            return at, RAN_OUT
        if length < 0 or place + length > n or (length == 0 and place > 0):
            return begin, BAD_MASK
        for i in range(place, place + length):
            mask[i] = now
        place += length
        if place == n:
            return at, DONE
        now = not now
