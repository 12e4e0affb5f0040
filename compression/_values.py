"""Columns of values in few bits: the shortest of constant, reference, integer run, decimal, XOR and raw.

Kernels over flat arrays: `bits` holds the values of all columns behind each other, a float64 as its bits and an int64
in two's complement, column c at starts[c] to starts[c + 1]. Layout: FORMAT.md, "Column".
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fleetpulse.compression._bits import (
    ZERO,
    I64Array,
    U64Array,
    bits_of_float,
    float_of_bits,
    get,
    peek,
    put,
    signed,
    unzigzag,
    zigzag,
)
from fleetpulse.compression._gorilla import NO_WINDOW, get_xor, put_xor
from fleetpulse.compression._integers import (
    count_bits,
    get_count,
    get_number,
    get_run,
    number_bits,
    plan_run,
    put_count,
    put_number,
    put_run,
)

CONSTANT, REFERENCE, INTEGERS, DECIMAL, XOR, RAW = range(6)
MODE_BITS = 3

EXPONENT_MAX = 22
"""Powers of ten up to this one are exact in float64."""
POWERS = np.array([float(10**e) for e in range(EXPONENT_MAX + 1)])
MANTISSA_MAX = float(1 << 53)
NOT_DECIMAL = -1
EXPONENT_BITS = 5
PROBES = 16
"""How many values are asked for their exponent before the column's is chosen."""

COLUMN_BITS_MAX = 192
"""More than a column takes beside 64 bits a sample: raw is always among the choices."""

DONE, RAN_OUT, BAD_MODE, BAD_REFERENCE, BAD_DECIMAL, BAD_RUN, BAD_WINDOW = range(7)

BoolArray = NDArray[np.bool_]


@njit(cache=True)
def exponent_of(bits: np.uint64, least: int) -> int:
    """The smallest e >= least with value == m / 10**e for an integer m of at most 53 bits, bit for bit; else -1."""
    value = float_of_bits(bits)
    if not np.isfinite(value):
        return NOT_DECIMAL
    for e in range(least, EXPONENT_MAX + 1):
        scaled = np.rint(value * POWERS[e])
        if abs(scaled) > MANTISSA_MAX:
            return NOT_DECIMAL
        if decimal_bits(int(scaled), e) == bits:
            return e
    return NOT_DECIMAL


@njit(cache=True)
def decimal_bits(mantissa: int, exponent: int) -> np.uint64:
    """The bits of mantissa / 10**exponent, rounded once as IEEE 754 says."""
    return bits_of_float(np.float64(mantissa) / POWERS[exponent])


@njit(cache=True)
def common_exponent(bits: U64Array) -> int:
    """The exponent that suits a sample of the values; -1 when less than three quarters of those are decimal."""
    n = len(bits)
    probes = min(n, PROBES)
    exponent, strange = 0, 0
    for i in range(probes):
        at = i * n // probes
        found = exponent_of(bits[at], exponent)
        if found == NOT_DECIMAL:
            found = exponent_of(bits[at], 0)
        if found == NOT_DECIMAL:
            strange += 1
        exponent = max(exponent, found)
    return NOT_DECIMAL if 4 * strange > probes else exponent


@njit(cache=True)
def to_decimal(bits: U64Array, exponent: int, run: I64Array, odd: I64Array) -> int:
    """Write the mantissas into run and the places of values that do not come back exactly into odd.

    Returns how many are odd. At such a place the run repeats the mantissa before it (0 at the start).
    """
    count = 0
    before = 0
    for i in range(len(bits)):
        scaled = np.rint(float_of_bits(bits[i]) * POWERS[exponent])
        fits = abs(scaled) <= MANTISSA_MAX  # False for NaN
        mantissa = int(scaled) if fits else 0
        if fits and decimal_bits(mantissa, exponent) == bits[i]:
            before = mantissa
        else:
            odd[count] = i
            count += 1
        run[i] = before
    return count


@njit(cache=True)
def odd_bits(odd: I64Array, count: int) -> int:
    """What the places and values of the exceptions take, their number included."""
    total = count_bits(count) + 64 * count
    before = -1
    for i in range(count):
        total += count_bits(odd[i] - before - 1)
        before = odd[i]
    return total


@njit(cache=True)
def xor_column_bits(bits: U64Array) -> int:
    """What the column takes in mode XOR beside the mode."""
    total = 64
    leading, trailing = NO_WINDOW, 0
    scratch = np.empty(3, np.uint64)
    for i in range(1, len(bits)):
        scratch[:] = ZERO
        taken, leading, trailing = put_xor(scratch, 0, bits[i] ^ bits[i - 1], leading, trailing)
        total += taken
    return total


@njit(cache=True)
def single_bits(bits: np.uint64, is_int: bool) -> int:
    """What put_single takes."""
    if is_int:
        return number_bits(zigzag(signed(bits)))
    exponent = exponent_of(bits, 0)
    if exponent == NOT_DECIMAL:
        return 65
    mantissa = int(np.rint(float_of_bits(bits) * POWERS[exponent]))
    return min(65, 1 + EXPONENT_BITS + number_bits(zigzag(mantissa)))


@njit(cache=True)
def put_single(words: U64Array, at: int, bits: np.uint64, is_int: bool) -> int:
    """Append one value: an int64 as a number; a float64 as a decimal or, when that is not shorter, as its bits."""
    if is_int:
        return put_number(words, at, zigzag(signed(bits)))
    if single_bits(bits, is_int) >= 65:
        return put(words, at + 1, bits, 64)
    exponent = exponent_of(bits, 0)
    mantissa = int(np.rint(float_of_bits(bits) * POWERS[exponent]))
    at = put(words, at, np.uint64(32 | exponent), 1 + EXPONENT_BITS)
    return put_number(words, at, zigzag(mantissa))


@njit(cache=True)
def get_single(words: U64Array, at: int, is_int: bool) -> tuple[int, np.uint64, bool]:
    """(position, value, False when its exponent does not exist)."""
    if is_int:
        at, raw = get_number(words, at)
        return at, np.uint64(unzigzag(raw)), True
    if get(words, at, 1) == ZERO:
        return at + 65, peek(words, at + 1), True
    exponent = signed(get(words, at + 1, EXPONENT_BITS))
    if exponent > EXPONENT_MAX:
        return at, ZERO, False
    at, raw = get_number(words, at + 1 + EXPONENT_BITS)
    return at, decimal_bits(unzigzag(raw), exponent), True


@njit(cache=True)
def put_columns(words: U64Array, at: int, bits: U64Array, starts: I64Array, is_int: BoolArray, back: I64Array) -> int:
    """Append all columns. back[c] is how many columns back an equal one of the same type stands, 0 for none."""
    longest = 1
    for c in range(len(is_int)):
        longest = max(longest, starts[c + 1] - starts[c])
    run = np.empty(longest, np.int64)
    odd = np.empty(longest, np.int64)
    steps = np.empty(longest, np.int64)
    rest = np.empty(longest, np.int64)
    for c in range(len(is_int)):
        column = bits[starts[c] : starts[c + 1]]
        n = len(column)
        if n == 0:
            continue
        mode, best = RAW, 64 * n
        if back[c] > 0 and count_bits(back[c] - 1) <= best:
            mode, best = REFERENCE, count_bits(back[c] - 1)
        if np.all(column == column[0]):
            if single_bits(column[0], is_int[c]) < best:
                mode = CONSTANT
        elif mode != REFERENCE:
            exponent, strange = 0, 0
            order, factor, code, parameter = 0, 1, 0, 0
            if is_int[c]:
                for i in range(n):
                    run[i] = signed(column[i])
                order, factor, code, parameter, taken = plan_run(run[:n], steps, rest)
                if taken < best:
                    mode, best = INTEGERS, taken
            else:
                taken = xor_column_bits(column)
                if taken < best:
                    mode, best = XOR, taken
                exponent = common_exponent(column)
                if exponent != NOT_DECIMAL:
                    strange = to_decimal(column, exponent, run, odd)
                    order, factor, code, parameter, taken = plan_run(run[:n], steps, rest)
                    taken += EXPONENT_BITS + odd_bits(odd, strange)
                    if taken < best:
                        mode, best = DECIMAL, taken
            if mode in (INTEGERS, DECIMAL):
                at = put(words, at, np.uint64(mode), MODE_BITS)
                if mode == DECIMAL:
                    at = put(words, at, np.uint64(exponent), EXPONENT_BITS)
                    at = put_odd(words, at, column, odd, strange)
                at = put_run(words, at, run[:n], order, factor, code, parameter, steps, rest)
                continue
        at = put(words, at, np.uint64(mode), MODE_BITS)
        if mode == CONSTANT:
            at = put_single(words, at, column[0], is_int[c])
        elif mode == REFERENCE:
            at = put_count(words, at, back[c] - 1)
        elif mode == XOR:
            at = put(words, at, column[0], 64)
            leading, trailing = NO_WINDOW, 0
            for i in range(1, n):
                at, leading, trailing = put_xor(words, at, column[i] ^ column[i - 1], leading, trailing)
        else:
            for i in range(n):
                at = put(words, at, column[i], 64)
    return at


@njit(cache=True)
def put_odd(words: U64Array, at: int, column: U64Array, odd: I64Array, count: int) -> int:
    at = put_count(words, at, count)
    before = -1
    for i in range(count):
        at = put_count(words, at, odd[i] - before - 1)
        at = put(words, at, column[odd[i]], 64)
        before = odd[i]
    return at


@njit(cache=True)
def get_columns(
    words: U64Array, at: int, end: int, bits: U64Array, starts: I64Array, is_int: BoolArray
) -> tuple[int, int]:
    """Fill bits with the values of all columns. Returns (position, fault); the position says where it went wrong."""
    longest = 1
    for c in range(len(is_int)):
        longest = max(longest, starts[c + 1] - starts[c])
    run = np.empty(longest, np.int64)
    for c in range(len(is_int)):
        column = bits[starts[c] : starts[c + 1]]
        n = len(column)
        if n == 0:
            continue
        begin = at
        mode = signed(get(words, at, MODE_BITS))
        at += MODE_BITS
        if mode == CONSTANT:
            at, value, good = get_single(words, at, is_int[c])
            if not good:
                return begin, BAD_DECIMAL
            column[:] = value
        elif mode == REFERENCE:
            at, distance = get_count(words, at)
            other = c - distance - 1
            if distance < 0 or other < 0 or is_int[other] != is_int[c] or starts[other + 1] - starts[other] != n:
                return begin, BAD_REFERENCE
            column[:] = bits[starts[other] : starts[other + 1]]
        elif mode == INTEGERS and is_int[c]:
            at, good = get_run(words, at, end, run[:n])
            if not good:
                return at, BAD_RUN if at <= end else RAN_OUT
            for i in range(n):
                column[i] = np.uint64(run[i])
        elif mode == DECIMAL and not is_int[c]:
            at, fault = get_decimal(words, at, end, run[:n], column)
            if fault != DONE:
                return at, fault
        elif mode == XOR and not is_int[c]:
            value = peek(words, at)
            at += 64
            column[0] = value
            leading, width = 0, 64
            for i in range(1, n):
                at, value, leading, width = get_xor(words, at, value, leading, width)
                column[i] = value
                if leading < 0 or at > end:
                    break
            if leading < 0:
                return at, BAD_WINDOW
        elif mode == RAW:
            if at + 64 * n > end:
                return end + 1, RAN_OUT
            for i in range(n):
                column[i] = peek(words, at + 64 * i)
            at += 64 * n
        else:
            return begin, BAD_MODE
        if at > end:
            return at, RAN_OUT
    return at, DONE


@njit(cache=True)
def get_decimal(words: U64Array, at: int, end: int, run: I64Array, column: U64Array) -> tuple[int, int]:
    begin = at
    exponent = signed(get(words, at, EXPONENT_BITS))
    at, count = get_count(words, at + EXPONENT_BITS)
    n = len(column)
    if exponent > EXPONENT_MAX or count < 0 or count > n:
        return begin, BAD_DECIMAL
    odd_at = at
    for _ in range(count):
        at, gap = get_count(words, at)
        at += 64
        if gap < 0:
            return begin, BAD_DECIMAL
        if at > end:
            return at, RAN_OUT
    at, good = get_run(words, at, end, run)
    if not good:
        return at, BAD_RUN if at <= end else RAN_OUT
    for i in range(n):
        column[i] = decimal_bits(run[i], exponent)
    place = -1
    for _ in range(count):
        odd_at, gap = get_count(words, odd_at)
        place += gap + 1
        if place >= n:
            return begin, BAD_DECIMAL
        column[place] = peek(words, odd_at)
        odd_at += 64
    return at, DONE
