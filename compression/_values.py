"""Columns of values in few bits: the shortest of constant, reference, integers, decimal, XOR and raw.

Kernels over flat arrays: `bits` holds the values of all columns behind each other, a float64 as its bits and an int64
in two's complement, column c at starts[c] to starts[c + 1]. Layout: FORMAT.md, "Column".
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fleetpulse.compression._bits import (
    ONE,
    ZERO,
    I64Array,
    U64Array,
    borrowing,
    float_of_bits,
    get,
    leading_zeros,
    look,
    peek,
    put,
    signed,
    trailing_zeros,
    unzigzag,
    zigzag,
)
from fleetpulse.compression._decimals import (
    EXPONENT_BITS,
    EXPONENT_MAX,
    NOT_DECIMAL,
    POWERS,
    decimal_bits,
    exponent_of,
    exponents_to_try,
    from_decimal,
    get_corrections,
    put_corrections,
    to_decimal,
)
from fleetpulse.compression._gorilla import NO_WINDOW, put_xor
from fleetpulse.compression._integers import PACKED, Plan, get_run, plan_run, put_run
from fleetpulse.compression._numbers import (
    bit_length,
    count_bits,
    get_count,
    get_number,
    number_bits,
    put_count,
    put_number,
)

CONSTANT, REFERENCE, INTEGERS, DECIMAL, XOR, RAW = range(6)
MODE_BITS = 3

RECENT = 8
"""A run is compared with so many runs before it, of columns with the same times."""
COMPARED = 48
"""So many of their first values are compared; the one that looks best is tried in full."""

AGAINST_BITS_MIN = 40
"""A run that takes no more is not compared: the reference, a first value and a code are about as long."""

COLUMN_BITS_MAX = 64
"""More than a column takes beside 64 bits a sample: raw is always among the choices."""

DONE, RAN_OUT, BAD_MODE, BAD_REFERENCE, BAD_DECIMAL, BAD_RUN, BAD_WINDOW = range(7)

BoolArray = NDArray[np.bool_]
Choice = tuple[int, int, int, Plan]
"""A run as it is written: bits, how many columns back the one lies that it is taken against (0 for none), the sign
that one is added with (1 or -1), and the form of the remaining run."""


@borrowing
def xor_column_bits(bits: U64Array) -> int:
    """What the column takes in mode XOR."""
    total = 64
    leading, trailing = 64, 64
    for i in range(1, len(bits)):
        change = bits[i] ^ bits[i - 1]
        total += 1
        if change != ZERO:
            above, below = min(leading_zeros(change), 31), trailing_zeros(change)
            total += 1
            if above < leading or below < trailing:
                leading, trailing = above, below
                total += 11
            total += 64 - leading - trailing
    return total


@borrowing
def single_bits(bits: np.uint64, is_int: bool) -> int:
    """What put_single takes."""
    if is_int:
        return number_bits(zigzag(signed(bits)))
    exponent = exponent_of(bits)
    if exponent == NOT_DECIMAL:
        return 65
    mantissa = int(np.rint(float_of_bits(bits) * POWERS[exponent]))
    return min(65, 1 + EXPONENT_BITS + number_bits(zigzag(mantissa)))


@borrowing
def put_single(words: U64Array, at: int, bits: np.uint64, is_int: bool) -> int:
    """Append one value: an int64 as a number; a float64 as a decimal or, when that is not shorter, as its bits."""
    if is_int:
        return put_number(words, at, zigzag(signed(bits)))
    if single_bits(bits, is_int) >= 65:
        return put(words, at + 1, bits, 64)
    exponent = exponent_of(bits)
    mantissa = int(np.rint(float_of_bits(bits) * POWERS[exponent]))
    at = put(words, at, np.uint64(32 | exponent), 1 + EXPONENT_BITS)
    return put_number(words, at, zigzag(mantissa))


@borrowing
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


@borrowing
def own_steps_bits(run: I64Array) -> int:
    """A rough measure of how much the run's first steps hold."""
    total = 0
    for i in range(1, min(len(run), COMPARED)):
        total += bit_length(zigzag(run[i] - run[i - 1]))
    return total


@borrowing
def steps_bits(run: I64Array, other: I64Array, enough: int) -> tuple[int, int]:
    """The same measure of run - other and of run + other; where it is not below `enough`, it may be anything such."""
    less, more = 0, 0
    for i in range(1, min(len(run), COMPARED)):
        step, theirs = run[i] - run[i - 1], other[i] - other[i - 1]
        less += bit_length(zigzag(step - theirs))
        more += bit_length(zigzag(step + theirs))
        if less >= enough and more >= enough:
            break
    return less, more


@njit(cache=True)
def choose_run(
    run: I64Array, runs: I64Array, starts: I64Array, column: int, recent: I64Array, scratch: I64Array
) -> Choice:
    """The shortest form of the run by itself or against one of the recent columns, whose runs are in `runs`.

    recent: indexes of columns of the same length, -1 for none. scratch: (3, n or more).
    """
    n = len(run)
    plan = plan_run(run, scratch[0], scratch[1])
    best: Choice = (1 + plan[4], 0, 1, plan)
    if best[0] <= AGAINST_BITS_MIN:
        return best
    least = own_steps_bits(run)
    against, sign = -1, 1
    for other in recent:
        if other >= 0:
            less, more = steps_bits(run, runs[starts[other] : starts[other + 1]], least)
            if less < least:
                least, against, sign = less, other, 1
            if more < least:
                least, against, sign = more, other, -1
    if against >= 0:
        remaining = scratch[2][:n]
        remaining[:] = run - sign * runs[starts[against] : starts[against + 1]]
        plan = plan_run(remaining, scratch[0], scratch[1])
        taken = 2 + count_bits(column - against - 1) + plan[4]
        if taken < best[0]:
            best = (taken, column - against, sign, plan)
    return best


@njit(cache=True)
def put_choice(
    words: U64Array, at: int, run: I64Array, runs: I64Array, start: int, choice: Choice, scratch: I64Array
) -> int:
    """Append the run as chosen. start: where in `runs` the column begins that it is taken against."""
    _, back, sign, plan = choice
    if back == 0:
        return put_run(words, at + 1, run, plan, scratch[0], scratch[1])
    at = put(words, at, ONE, 1)
    at = put_count(words, at, back - 1)
    at = put(words, at, np.uint64(sign < 0), 1)
    remaining = scratch[2][: len(run)]
    remaining[:] = run - sign * runs[start : start + len(run)]
    return put_run(words, at, remaining, plan, scratch[0], scratch[1])


@borrowing
def get_choice(
    words: U64Array, at: int, end: int, runs: I64Array, starts: I64Array, has_run: BoolArray, c: int
) -> tuple[int, int]:
    """Fill the run of column c in runs. Returns (position, fault)."""
    run = runs[starts[c] : starts[c + 1]]
    begin = at
    against, sign = -1, 1
    if get(words, at, 1) == ONE:
        at, back = get_count(words, at + 1)
        against = c - back - 1
        if back < 0 or against < 0 or not has_run[against] or starts[against + 1] - starts[against] != len(run):
            return begin, BAD_REFERENCE
        sign = 1 - 2 * signed(get(words, at, 1))
    at, good = get_run(words, at + 1, end, run)
    if not good:
        return at, BAD_RUN if at <= end else RAN_OUT
    if against >= 0:
        theirs = runs[starts[against] : starts[against + 1]]
        for i in range(len(run)):
            run[i] += sign * theirs[i]
    has_run[c] = True
    return at, DONE


@njit(cache=True)
def choose_decimal(
    column: U64Array,
    runs: I64Array,
    starts: I64Array,
    c: int,
    recent: I64Array,
    scratch: I64Array,
    odd: I64Array,
) -> tuple[int, int, Choice]:
    """(bits, exponent, form) of a float column as decimals, its mantissas left in runs; exponent -1 when it is none."""
    plan: Plan = (1, 1, PACKED, 0, 0)
    choice: Choice = (0, 0, 1, plan)
    mantissas = runs[starts[c] : starts[c + 1]]
    low, high = exponents_to_try(column)
    if low == NOT_DECIMAL:
        return 0, NOT_DECIMAL, choice
    odd_count, taken = to_decimal(column, low, mantissas, odd)
    choice = choose_run(mantissas, runs, starts, c, recent, scratch)
    best, exponent = EXPONENT_BITS + taken + choice[0], low
    # More digits can only help when there are corrections to avoid.
    if high != low and odd_count:
        _, taken = to_decimal(column, high, mantissas, odd)
        other = choose_run(mantissas, runs, starts, c, recent, scratch)
        if EXPONENT_BITS + taken + other[0] < best:
            return EXPONENT_BITS + taken + other[0], high, other
        to_decimal(column, low, mantissas, odd)
    return best, exponent, choice


@borrowing
def all_equal(column: U64Array) -> bool:
    first = column[0]
    for value in column:  # noqa: SIM110  # Numba knows no any() of a generator.
        if value != first:
            return False
    return True


@njit(cache=True)
def put_columns(
    words: U64Array, at: int, bits: U64Array, starts: I64Array, is_int: BoolArray, back: I64Array, group: I64Array
) -> int:
    """Append all columns.

    back[c] is how many columns back an equal one of the same type stands, 0 for none. Columns of one group have the
    same times and follow each other.
    """
    longest = 1
    for c in range(len(is_int)):
        longest = max(longest, starts[c + 1] - starts[c])
    runs = np.empty(len(bits), np.int64)
    scratch = np.empty((3, longest), np.int64)
    odd = np.empty(longest, np.int64)
    recent = np.full(RECENT, -1, np.int64)
    filled = 0
    plan: Plan = (1, 1, PACKED, 0, 0)
    for c in range(len(is_int)):
        if c and group[c] != group[c - 1]:
            recent[:] = -1
        column = bits[starts[c] : starts[c + 1]]
        run = runs[starts[c] : starts[c + 1]]
        n = len(column)
        if n == 0:
            continue
        mode, best, exponent = RAW, 64 * n, 0
        choice: Choice = (0, 0, 1, plan)
        if back[c] > 0 and count_bits(back[c] - 1) <= best:
            mode, best = REFERENCE, count_bits(back[c] - 1)
        if all_equal(column):
            if single_bits(column[0], is_int[c]) < best:
                mode = CONSTANT
        elif mode != REFERENCE and is_int[c]:
            for i in range(n):
                run[i] = signed(column[i])
            choice = choose_run(run, runs, starts, c, recent, scratch)
            if choice[0] < best:
                mode = INTEGERS
        elif mode != REFERENCE:
            taken, exponent, choice = choose_decimal(column, runs, starts, c, recent, scratch, odd)
            if exponent != NOT_DECIMAL and taken < best:
                mode, best = DECIMAL, taken
            # XOR takes a bit a value and the first one in any case.
            if 63 + n < best and xor_column_bits(column) < best:
                mode = XOR
        at = put(words, at, np.uint64(mode), MODE_BITS)
        if mode == CONSTANT:
            at = put_single(words, at, column[0], is_int[c])
        elif mode == REFERENCE:
            at = put_count(words, at, back[c] - 1)
        elif mode == XOR:
            at = put_xor_column(words, at, column)
        elif mode == RAW:
            for i in range(n):
                at = put(words, at, column[i], 64)
        else:
            if mode == DECIMAL:
                count, _ = to_decimal(column, exponent, run, odd)
                at = put_corrections(words, at, column, exponent, run, odd, count)
            at = put_choice(words, at, run, runs, starts[c - choice[1]], choice, scratch)
            recent[filled % RECENT] = c
            filled += 1
    return at


@borrowing
def put_xor_column(words: U64Array, at: int, column: U64Array) -> int:
    at = put(words, at, column[0], 64)
    leading, trailing = NO_WINDOW, 0
    for i in range(1, len(column)):
        at, leading, trailing = put_xor(words, at, column[i] ^ column[i - 1], leading, trailing)
    return at


@borrowing
def get_xor_column(words: U64Array, at: int, end: int, column: U64Array) -> tuple[int, int]:
    """Fill the column. Returns (position, fault)."""
    value = peek(words, at)
    at += 64
    column[0] = value
    shift, width = 0, 64
    for i in range(1, len(column)):
        if at > end:
            break
        ahead = look(words, at)
        if ahead >> np.uint64(63) == ZERO:
            at += 1
        else:
            if ahead >> np.uint64(62) == np.uint64(2):
                at += 2
            else:
                width = signed((ahead >> np.uint64(51)) & np.uint64(63))
                width = 64 if width == 0 else width
                shift = 64 - width - signed((ahead >> np.uint64(57)) & np.uint64(31))
                if shift < 0:
                    return at, BAD_WINDOW
                at += 13
            value ^= (look(words, at) >> np.uint64(64 - width)) << np.uint64(shift)
            at += width
        column[i] = value
    return at, DONE if at <= end else RAN_OUT


@njit(cache=True)
def get_columns(
    words: U64Array, at: int, end: int, bits: U64Array, starts: I64Array, is_int: BoolArray, ends: I64Array
) -> tuple[int, int]:
    """Fill bits with the values of all columns, and ends with the position behind each.

    Returns (position, fault); the position says where it went wrong.
    """
    runs = np.empty(len(bits), np.int64)
    has_run = np.zeros(len(is_int), np.bool_)
    fault = DONE
    for c in range(len(is_int)):
        column = bits[starts[c] : starts[c + 1]]
        run = runs[starts[c] : starts[c + 1]]
        n = len(column)
        ends[c] = at
        if n == 0:
            continue
        begin = at
        mode = signed(get(words, at, MODE_BITS))
        at += MODE_BITS
        if mode == CONSTANT:
            at, value, good = get_single(words, at, is_int[c])
            column[:] = value
            fault = DONE if good else BAD_DECIMAL
        elif mode == REFERENCE:
            at, back = get_count(words, at)
            other = c - back - 1
            if back < 0 or other < 0 or is_int[other] != is_int[c] or starts[other + 1] - starts[other] != n:
                return begin, BAD_REFERENCE
            column[:] = bits[starts[other] : starts[other + 1]]
        elif mode == INTEGERS and is_int[c]:
            at, fault = get_choice(words, at, end, runs, starts, has_run, c)
            for i in range(n):
                column[i] = np.uint64(run[i])
        elif mode == DECIMAL and not is_int[c]:
            at, exponent, count, corrections_at = get_corrections(words, at, end, n)
            if exponent == NOT_DECIMAL:
                return begin, BAD_DECIMAL
            at, fault = get_choice(words, at, end, runs, starts, has_run, c)
            if fault == DONE:
                from_decimal(words, corrections_at, exponent, count, run, column)
        elif mode == XOR and not is_int[c]:
            at, fault = get_xor_column(words, at, end, column)
        elif mode == RAW:
            if at + 64 * n > end:
                return end + 1, RAN_OUT
            for i in range(n):
                column[i] = peek(words, at + 64 * i)
            at += 64 * n
        else:
            return begin, BAD_MODE
        if fault != DONE:
            return at, fault
        if at > end:
            return at, RAN_OUT
        ends[c] = at
    return at, DONE
