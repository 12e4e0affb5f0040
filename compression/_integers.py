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
"""Codes of the rest: a fixed width above a base; Rice; the bit length in unary, then the bits (Elias gamma)."""
APART = 4
"""Added to a code: every value has a bit before it that is 0 for a zero, which then needs no more."""
CODE_BITS = 3
PARAMETER_BITS = 6

Plan = tuple[int, int, int, int, int]
"""How a run is written: order, factor, code, the code's parameter, and the bits that all of it takes."""

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
    """(code, parameter, bits): the shortest code of the rest, parameters included.

    Rice's parameter is estimated from the mean, the others' is the best there is. Ties: the one tried first.
    """
    n = len(rest)
    lowest, highest, lowest_apart, highest_apart = bounds_of(rest)
    lengths = np.zeros(65, np.int64)
    lengths_apart = np.zeros(65, np.int64)
    total = 0.0
    zeros = 0
    for value in rest:
        z = zigzag(value)
        lengths[bit_length(z)] += 1
        if z == ZERO:
            zeros += 1
        else:
            total += np.float64(z)
            lengths_apart[bit_length(z - ONE)] += 1
    width = bit_length(np.uint64(highest - lowest))
    code, parameter, best = PACKED, width, number_bits(zigzag(lowest)) + 7 + n * width
    k, bits = best_elias(lengths, n)
    if bits < best:
        code, parameter, best = ELIAS, k, bits
    k, bits = best_rice(rest, total, n, False, best)
    if bits < best:
        code, parameter, best = RICE, k, bits
    if zeros == 0:
        return code, parameter, best
    left = n - zeros
    width = bit_length(np.uint64(highest_apart - lowest_apart))
    bits = n + number_bits(zigzag(lowest_apart)) + 7 + left * width
    if bits < best:
        code, parameter, best = APART | PACKED, width, bits
    k, bits = best_elias(lengths_apart, left)
    if n + bits < best:
        code, parameter, best = APART | ELIAS, k, n + bits
    k, bits = best_rice(rest, total - left, left, True, best - n)
    if n + bits < best:
        code, parameter, best = APART | RICE, k, n + bits
    return code, parameter, best


@njit(cache=True)
def bounds_of(rest: I64Array) -> tuple[int, int, int, int]:
    """(lowest, highest) of all values and of those that are not zero; (0, 0) of none."""
    lowest, highest, lowest_apart, highest_apart = 0, 0, 0, 0
    some, some_apart = False, False
    for value in rest:
        if not some:
            lowest, highest, some = value, value, True
        lowest, highest = min(lowest, value), max(highest, value)
        if value != 0:
            if not some_apart:
                lowest_apart, highest_apart, some_apart = value, value, True
            lowest_apart, highest_apart = min(lowest_apart, value), max(highest_apart, value)
    return lowest, highest, lowest_apart, highest_apart


@njit(cache=True)
def best_elias(lengths: I64Array, n: int) -> tuple[int, int]:
    """(k, bits with the parameter) of the shortest ELIAS code; lengths[b] values have b significant bits."""
    longer = n - lengths[0]
    bits = lengths[0]
    for length in range(1, 65):
        bits += 2 * length * lengths[length]
    k, best = 0, bits
    for candidate in range(1, 63):
        # One low bit more for all; two less of the length for those that are longer, one less for those that fit now.
        longer -= lengths[candidate]
        bits += n - 2 * longer - lengths[candidate]
        if bits < best:
            k, best = candidate, bits
    return k, best + PARAMETER_BITS


@njit(cache=True)
def best_rice(rest: I64Array, total: float, n: int, apart: bool, enough: int) -> tuple[int, int]:
    """(k, bits with the parameter) of a good Rice code of the n values, total their sum as unsigned numbers.

    With apart, zeros are left out and the others are one less. When it cannot be shorter than `enough`, bits may be
    anything that is not.
    """
    if n == 0:
        return 0, PARAMETER_BITS
    guess = bit_length(np.uint64(min(0.69 * total / n, 2.0**61)))
    k, best = 0, enough
    for candidate in range(max(guess - 1, 0), guess + 1):
        bits = PARAMETER_BITS + n * (candidate + 1)
        if bits >= best:
            continue
        for value in rest:
            z = zigzag(value)
            if apart:
                if z == ZERO:
                    continue
                z -= ONE
            over = z >> np.uint64(candidate)
            if over >= np.uint64(RICE_ONES_MAX):
                bits += RICE_ONES_MAX + 64 - (candidate + 1)
            else:
                bits += signed(over)
        if bits < best:
            k, best = candidate, bits
    return k, best


@njit(cache=True)
def plan_run(run: I64Array, steps: I64Array, rest: I64Array) -> Plan:
    """The shortest form of the run. steps and rest are scratch, at least as long as run."""
    n = len(run)
    if n <= 1:
        return 1, 1, PACKED, 0, number_bits(zigzag(run[0])) if n else 0
    factor = steps_of(run, steps)
    head = number_bits(zigzag(run[0])) + 2 + 1 + CODE_BITS + (number_bits(np.uint64(factor)) if factor != 1 else 0)
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
def put_run(words: U64Array, at: int, run: I64Array, plan: Plan, steps: I64Array, rest: I64Array) -> int:
    """Append the run in the planned form; its length is not written. steps and rest are scratch as for plan_run."""
    order, factor, code, parameter, _ = plan
    n = len(run)
    if n == 0:
        return at
    at = put_number(words, at, zigzag(run[0]))
    if n == 1:
        return at
    steps_of(run, steps)
    at = put(words, at, np.uint64(order), 2)
    at = put(words, at, np.uint64(1 if factor != 1 else 0), 1)
    if factor != 1:
        at = put_number(words, at, np.uint64(factor))
    if order == 2:
        at = put_number(words, at, zigzag(steps[0]))
    left = rest[: rest_of(steps[: n - 1], order, rest)]
    apart = code >= APART
    kind = code & ~APART
    at = put(words, at, np.uint64(code), CODE_BITS)
    if kind == PACKED:
        lowest, _, lowest_apart, _ = bounds_of(left)
        base = lowest_apart if apart else lowest
        at = put_number(words, at, zigzag(base))
        at = put(words, at, np.uint64(parameter), 7)
        for value in left:
            if apart:
                at = put(words, at, np.uint64(value != 0), 1)
                if value == 0:
                    continue
            at = put(words, at, np.uint64(value - base), parameter)
        return at
    at = put(words, at, np.uint64(parameter), PARAMETER_BITS)
    for value in left:
        z = zigzag(value)
        if apart:
            at = put(words, at, np.uint64(value != 0), 1)
            if value == 0:
                continue
            z -= ONE
        at = put_rice(words, at, z, parameter) if kind == RICE else put_elias(words, at, z, parameter)
    return at


@njit(cache=True)
def put_rice(words: U64Array, at: int, value: np.uint64, k: int) -> int:
    """The value without its k low bits as so many ones and a zero, then the low bits."""
    over = value >> np.uint64(k)
    if over >= np.uint64(RICE_ONES_MAX):
        at = put(words, at, ALL_ONES >> np.uint64(64 - RICE_ONES_MAX), RICE_ONES_MAX)
        return put(words, at, value, 64)
    ones = signed(over)
    at = put(words, at, (ONE << np.uint64(ones + 1)) - np.uint64(2), ones + 1)
    return put(words, at, value & ((ONE << np.uint64(k)) - ONE), k)


@njit(cache=True)
def get_rice(words: U64Array, at: int, k: int) -> tuple[int, np.uint64]:
    ones = leading_zeros(~peek(words, at))
    if ones >= RICE_ONES_MAX:
        return at + RICE_ONES_MAX + 64, peek(words, at + RICE_ONES_MAX)
    at += ones + 1
    return at + k, (np.uint64(ones) << np.uint64(k)) | get(words, at, k)


@njit(cache=True)
def put_elias(words: U64Array, at: int, value: np.uint64, k: int) -> int:
    """The bit length of the value without its k low bits as so many ones and a zero, its bits below the highest, the
    low bits."""
    over = value >> np.uint64(k)
    ones = bit_length(over)
    at = put(words, at, ALL_ONES >> np.uint64(64 - ones), ones) if ones else at
    at += 1
    if ones > 1:
        at = put(words, at, over ^ (ONE << np.uint64(ones - 1)), ones - 1)
    return put(words, at, value & ((ONE << np.uint64(k)) - ONE), k)


@njit(cache=True)
def get_elias(words: U64Array, at: int, k: int) -> tuple[int, np.uint64]:
    ones = leading_zeros(~peek(words, at))
    at += ones + 1
    over = np.uint64(ones)
    if ones > 1:
        over = get(words, at, ones - 1) | (ONE << np.uint64(ones - 1))
        at += ones - 1
    return at + k, (over << np.uint64(k)) | get(words, at, k)


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
    code = signed(get(words, at, CODE_BITS))
    at += CODE_BITS
    apart = code >= APART
    kind = code & ~APART
    base = 0
    width = PARAMETER_BITS
    if kind == PACKED:
        at, raw = get_number(words, at)
        base = unzigzag(raw)
        width = 7
    k = signed(get(words, at, width))
    at += width
    if order > 2 or kind > ELIAS or k > (64 if kind == PACKED else 62):
        return start, False
    for i in range(first, n):
        if at > end:
            return at, False
        value = 0
        if apart and get(words, at, 1) == ZERO:
            at += 1
        else:
            at += apart
            if kind == PACKED:
                value = signed(get(words, at, k)) + base
                at += k
            else:
                at, z = get_rice(words, at, k) if kind == RICE else get_elias(words, at, k)
                value = unzigzag(z + ONE if apart else z)
        if order == 0:
            run[i] = run[0] + value * factor
        elif order == 1:
            run[i] = run[i - 1] + value * factor
        else:
            step += value
            run[i] = run[i - 1] + step * factor
    return at, at <= end
