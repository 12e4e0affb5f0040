"""Runs of int64 in few bits: times, integer columns, and decimal columns once scaled.

A run is its first value and what is left after differencing (0, 1 or 2 times) and dividing by a common factor, in one
of three codes. The encoder tries them and keeps the shortest. Differences wrap at 64 bits, so every run of int64 comes
back exactly. Layout: FORMAT.md, "Integer run".
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fleetpulse.compression._bits import (
    ALL_ONES,
    ONE,
    ZERO,
    I64Array,
    U64Array,
    get,
    leading_zeros,
    peek,
    put,
    signed,
    unzigzag,
    zigzag,
)

PACKED, RICE, ELIAS = 0, 1, 2
"""Codes of the rest: a fixed width above a base; Rice with parameter k; bit length in unary after the k low bits."""

RICE_ONES_MAX = 32
"""A Rice quotient of this or more is written as that many ones and the whole value in 64 bits."""


@njit(cache=True)
def bit_length(value: np.uint64) -> int:
    return 64 - leading_zeros(value)


@njit(cache=True)
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


@njit(cache=True)
def get_number(words: U64Array, at: int) -> tuple[int, np.uint64]:
    length = signed(get(words, at, 6))
    at += 6
    if length == 63:
        return at + 64, peek(words, at)
    if length <= 1:
        return at, np.uint64(length)
    return at + length - 1, get(words, at, length - 1) | (ONE << np.uint64(length - 1))


@njit(cache=True)
def number_bits(value: np.uint64) -> int:
    length = bit_length(value)
    return 70 if length >= 63 else 6 + max(length - 1, 0)


@njit(cache=True)
def put_count(words: U64Array, at: int, count: int) -> int:
    """A number that is mostly small: Elias gamma of count + 1. 0 <= count < 2**32."""
    value = np.uint64(count + 1)
    length = bit_length(value)
    return put(words, at + length - 1, value, length)


@njit(cache=True)
def get_count(words: U64Array, at: int) -> tuple[int, int]:
    """(position, count). More than 32 zeros are no count: then it is -1."""
    zeros = leading_zeros(peek(words, at))
    if zeros > 32:
        return at + zeros, -1
    return at + 2 * zeros + 1, signed(get(words, at + zeros, zeros + 1)) - 1


@njit(cache=True)
def count_bits(count: int) -> int:
    return 2 * bit_length(np.uint64(count + 1)) - 1


@njit(cache=True)
def _magnitude(value: int) -> np.uint64:
    return np.uint64(-value) if value < 0 else np.uint64(value)


@njit(cache=True)
def steps_of(run: I64Array, steps: I64Array) -> int:
    """Write the len(run) - 1 differences, divided by their greatest common divisor, into steps; return the divisor.

    It is 1 when all values are equal, or when it would not fit 62 bits.
    """
    n = len(run)
    found = ZERO
    for i in range(1, n):
        steps[i - 1] = run[i] - run[i - 1]
        if found != ONE:
            other = _magnitude(steps[i - 1])
            while other != ZERO:
                found, other = other, found % other
    if found <= ONE or bit_length(found) > 62:
        return 1
    factor = signed(found)
    for i in range(n - 1):
        steps[i] //= factor
    return factor


@njit(cache=True)
def rest_of(steps: I64Array, order: int, rest: I64Array) -> int:
    """Write what the given order leaves of the steps into rest. Returns how many values that is.

    Order 0 takes each value against the first, 1 against the one before, 2 each step against the step before; the
    first step of order 2 is not part of the rest.
    """
    n = len(steps)
    if order == 2:
        for i in range(1, n):
            rest[i - 1] = steps[i] - steps[i - 1]
        return n - 1
    total = 0
    for i in range(n):
        total = steps[i] if order == 1 else total + steps[i]
        rest[i] = total
    return n


@njit(cache=True)
def choose_code(rest: I64Array) -> tuple[int, int, int]:
    """(code, parameter, bits): the shortest code of the rest, its parameter's bits included. Ties: the lower code."""
    n = len(rest)
    lowest = rest[0] if n else 0
    highest = lowest
    total = 0.0
    lengths = np.zeros(65, np.int64)
    for i in range(n):
        value = rest[i]
        lowest = min(lowest, value)
        highest = max(highest, value)
        z = zigzag(value)
        total += np.float64(z)
        lengths[bit_length(z)] += 1
    width = bit_length(np.uint64(highest - lowest))
    code, parameter = PACKED, width
    best = number_bits(zigzag(lowest)) + 7 + n * width

    guess = bit_length(np.uint64(min(total / max(n, 1), 2.0**62)))
    for k in range(max(guess - 2, 0), min(guess + 1, 62) + 1):
        bits = 6 + n * (k + 1)
        for i in range(n):
            quotient = zigzag(rest[i]) >> np.uint64(k)
            bits += RICE_ONES_MAX + 64 - (k + 1) if quotient >= np.uint64(RICE_ONES_MAX) else signed(quotient)
        if bits < best:
            code, parameter, best = RICE, k, bits
    for k in range(63):
        bits = 6 + n * k
        for length in range(65):
            over = length - k
            bits += lengths[length] * (2 * over if over > 0 else 1)
        if bits < best:
            code, parameter, best = ELIAS, k, bits
    return code, parameter, best


@njit(cache=True)
def plan_run(run: I64Array, steps: I64Array, rest: I64Array) -> tuple[int, int, int, int, int]:
    """(order, factor, code, parameter, bits) of the shortest form; bits counts everything.

    steps and rest are at least as long as run. steps holds the scaled steps afterwards, as put_run needs them.
    """
    n = len(run)
    if n <= 1:
        return 1, 1, PACKED, 0, number_bits(zigzag(run[0])) if n else 0
    factor = steps_of(run, steps)
    head = number_bits(zigzag(run[0])) + 5 + (number_bits(np.uint64(factor)) if factor != 1 else 0)
    best_order, best_code, best_parameter, best = -1, 0, 0, 0
    for order in (1, 0, 2):
        left = rest[: rest_of(steps[: n - 1], order, rest)]
        code, parameter, bits = choose_code(left)
        bits += head
        if order == 2:
            bits += number_bits(zigzag(steps[0]))
        if best_order < 0 or bits < best:
            best_order, best_code, best_parameter, best = order, code, parameter, bits
    return best_order, factor, best_code, best_parameter, best


@njit(cache=True)
def put_run(
    words: U64Array,
    at: int,
    run: I64Array,
    order: int,
    factor: int,
    code: int,
    parameter: int,
    steps: I64Array,
    rest: I64Array,
) -> int:
    """Append the run as plan_run chose, with the steps it left; the run's length is not written."""
    n = len(run)
    if n == 0:
        return at
    at = put_number(words, at, zigzag(run[0]))
    if n == 1:
        return at
    at = put(words, at, np.uint64(order), 2)
    at = put(words, at, np.uint64(1 if factor != 1 else 0), 1)
    if factor != 1:
        at = put_number(words, at, np.uint64(factor))
    if order == 2:
        at = put_number(words, at, zigzag(steps[0]))
    left = rest[: rest_of(steps[: n - 1], order, rest)]
    at = put(words, at, np.uint64(code), 2)
    if code == PACKED:
        lowest = left[0] if len(left) else 0
        for value in left:
            lowest = min(lowest, value)
        at = put_number(words, at, zigzag(lowest))
        at = put(words, at, np.uint64(parameter), 7)
        for value in left:
            at = put(words, at, np.uint64(value - lowest), parameter)
        return at
    at = put(words, at, np.uint64(parameter), 6)
    low_bits = (ONE << np.uint64(parameter)) - ONE
    for value in left:
        z = zigzag(value)
        over = z >> np.uint64(parameter)
        if code == RICE:
            if over >= np.uint64(RICE_ONES_MAX):
                at = put(words, at, ALL_ONES >> np.uint64(64 - RICE_ONES_MAX), RICE_ONES_MAX)
                at = put(words, at, z, 64)
                continue
            ones = signed(over)
            at = put(words, at, (ONE << np.uint64(ones + 1)) - np.uint64(2), ones + 1)
        else:
            ones = bit_length(over)
            if ones == 64:
                at = put(words, at, ALL_ONES, 64) + 1
            else:
                at = put(words, at, (ONE << np.uint64(ones)) - ONE, ones) + 1
            if ones > 1:
                at = put(words, at, over ^ (ONE << np.uint64(ones - 1)), ones - 1)
        at = put(words, at, z & low_bits, parameter)
    return at


@njit(cache=True)
def get_run(words: U64Array, at: int, end: int, run: I64Array) -> tuple[int, bool]:
    """Fill run from the stream. False: an order or code that does not exist, or the stream ran out; then the
    position says where."""
    n = len(run)
    if n == 0:
        return at, True
    at, raw = get_number(words, at)
    run[0] = unzigzag(raw)
    if n == 1:
        return at, at <= end
    start = at
    order = signed(get(words, at, 2))
    scaled = get(words, at + 2, 1) == ONE
    at += 3
    factor = 1
    if scaled:
        at, raw = get_number(words, at)
        factor = signed(raw)
    step = 0
    first = 1
    if order == 2:
        at, raw = get_number(words, at)
        step = unzigzag(raw)
        run[1] = run[0] + step * factor
        first = 2
    code = signed(get(words, at, 2))
    at += 2
    if order > 2 or code > ELIAS:
        return start, False
    lowest = 0
    width = 6
    if code == PACKED:
        at, raw = get_number(words, at)
        lowest = unzigzag(raw)
        width = 7
    k = signed(get(words, at, width))
    at += width
    if k > 64 or (code != PACKED and k > 62):
        return start, False
    for i in range(first, n):
        if at > end:
            return at, False
        if code == PACKED:
            value = signed(get(words, at, k)) + lowest
            at += k
        else:
            ones = leading_zeros(~peek(words, at))
            if code == RICE:
                if ones >= RICE_ONES_MAX:
                    z = peek(words, at + RICE_ONES_MAX)
                    at += RICE_ONES_MAX + 64
                else:
                    at += ones + 1
                    z = (np.uint64(ones) << np.uint64(k)) | get(words, at, k)
                    at += k
            else:
                at += ones + 1
                over = np.uint64(ones)
                if ones > 1:
                    over = get(words, at, ones - 1) | (ONE << np.uint64(ones - 1))
                    at += ones - 1
                z = (over << np.uint64(k)) | get(words, at, k)
                at += k
            value = unzigzag(z)
        if order == 0:
            run[i] = run[0] + value * factor
        elif order == 1:
            run[i] = run[i - 1] + value * factor
        else:
            step += value
            run[i] = run[i - 1] + step * factor
    return at, at <= end
