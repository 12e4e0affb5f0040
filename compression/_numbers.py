"""Codes of single unsigned numbers, for Numba kernels. Layout: FORMAT.md, "Numbers"."""

from __future__ import annotations

import numpy as np
from numba import njit

from fleetpulse.compression._bits import (
    ALL_ONES,
    ONE,
    ZERO,
    U64Array,
    borrowing,
    get,
    leading_zeros,
    look,
    peek,
    put,
    signed,
)

RICE_ONES_MAX = 32
"""A Rice quotient of this or more is written as that many ones and the whole value in 64 bits."""
CODE_PARAMETER_MAX = 62
"""The largest k of put_rice and put_elias."""


@borrowing
def bit_length(value: np.uint64) -> int:
    return 64 - leading_zeros(value)


@borrowing
def put_number(words: U64Array, at: int, value: np.uint64) -> int:
    """Any uint64: its bit length in 6 bits, then its bits below the highest. A length of 63 or 64 is written as 63,
    and all 64 bits follow."""
    length = bit_length(value)
    if length >= 63:
        return put(words, put(words, at, np.uint64(63), 6), value, 64)
    at = put(words, at, np.uint64(length), 6)
    if length <= 1:
        return at
    return put(words, at, value ^ (ONE << np.uint64(length - 1)), length - 1)


@borrowing
def get_number(words: U64Array, at: int) -> tuple[int, np.uint64]:
    length = signed(get(words, at, 6))
    at += 6
    if length == 63:
        return at + 64, peek(words, at)
    if length <= 1:
        return at, np.uint64(length)
    return at + length - 1, get(words, at, length - 1) | (ONE << np.uint64(length - 1))


@borrowing
def number_bits(value: np.uint64) -> int:
    length = bit_length(value)
    return 70 if length >= 63 else 6 + max(length - 1, 0)


@borrowing
def put_count(words: U64Array, at: int, count: int) -> int:
    """A number that is mostly small: Elias gamma of count + 1. 0 <= count < 2**32."""
    value = np.uint64(count + 1)
    length = bit_length(value)
    return put(words, at + length - 1, value, length)


@borrowing
def get_count(words: U64Array, at: int) -> tuple[int, int]:
    """(position, count). More than 32 zeros are no count: then it is -1."""
    zeros = leading_zeros(peek(words, at))
    if zeros > 32:
        return at + zeros, -1
    return at + 2 * zeros + 1, signed(get(words, at + zeros, zeros + 1)) - 1


@borrowing
def count_bits(count: int) -> int:
    return 2 * bit_length(np.uint64(count + 1)) - 1


@njit(cache=True, inline="always")
def put_rice(words: U64Array, at: int, value: np.uint64, k: int) -> int:
    """The value without its k low bits as so many ones and a zero, then the low bits."""
    over = value >> np.uint64(k)
    if over >= np.uint64(RICE_ONES_MAX):
        at = put(words, at, ALL_ONES >> np.uint64(64 - RICE_ONES_MAX), RICE_ONES_MAX)
        at = put(words, at, value, 64)
    else:
        ones = signed(over)
        low = value & ((ONE << np.uint64(k)) - ONE)
        head = (ONE << np.uint64(ones + 1)) - np.uint64(2)
        if ones + 1 + k <= 64:
            at = put(words, at, (head << np.uint64(k)) | low, ones + 1 + k)
        else:
            at = put(words, put(words, at, head, ones + 1), low, k)
    return at


@njit(cache=True, inline="always")
def next_rice(words: U64Array, at: int, k: int) -> tuple[int, np.uint64]:
    """(position behind it, value). Of `look`'s kind: at most 96 bits on."""
    ahead = look(words, at)
    ones = leading_zeros(~ahead)
    if ones >= RICE_ONES_MAX:
        value = look(words, at + RICE_ONES_MAX)
        at += RICE_ONES_MAX + 64
    else:
        used = ones + 1
        low = ahead << np.uint64(used) if used + k <= 64 else look(words, at + used)
        value = (np.uint64(ones) << np.uint64(k)) | ((low >> ONE) >> np.uint64(63 - k))
        at += used + k
    return at, value


@njit(cache=True, inline="always")
def put_elias(words: U64Array, at: int, value: np.uint64, k: int) -> int:
    """The bit length of the value without its k low bits as so many ones and a zero, its bits below the highest, the
    low bits."""
    over = value >> np.uint64(k)
    ones = bit_length(over)
    at = put(words, at, (ALL_ONES >> np.uint64(64 - ones)) if ones else ZERO, ones) + 1
    if ones > 1:
        at = put(words, at, over ^ (ONE << np.uint64(ones - 1)), ones - 1)
    return put(words, at, value & ((ONE << np.uint64(k)) - ONE), k)


@njit(cache=True, inline="always")
def next_elias(words: U64Array, at: int, k: int) -> tuple[int, np.uint64]:
    """(position behind it, value). Of `look`'s kind: at most 190 bits on."""
    ahead = look(words, at)
    ones = leading_zeros(~ahead)
    more = max(ones - 1, 0)
    top = (ONE << np.uint64(more)) if ones else ZERO
    at += ones + 1
    if ones + 1 + more + k <= 64:
        ahead <<= np.uint64(ones + 1)
        over = top | ((ahead >> ONE) >> np.uint64(63 - more))
        ahead <<= np.uint64(more)
    else:
        over = top | ((look(words, at) >> ONE) >> np.uint64(63 - more))
        ahead = look(words, at + more)
    at += more + k
    return at, (over << np.uint64(k)) | ((ahead >> ONE) >> np.uint64(63 - k))
