"""Runs of int64 in few bits: times, integer columns, and decimal columns once scaled.

A run is its first value and what is left after differencing (0, 1 or 2 times) and dividing by a common factor, in one
of three codes. The encoder tries them and keeps the shortest. Differences wrap at 64 bits, so every run of int64 comes
back exactly. Layout: FORMAT.md, "Integer run".
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fleetpulse.compression._bits import (
    ONE,
    ZERO,
    I64Array,
    U64Array,
    borrowing,
    get,
    look,
    put,
    signed,
    unzigzag,
    zigzag,
)
from fleetpulse.compression._numbers import (
    CODE_PARAMETER_MAX,
    RICE_ONES_MAX,
    bit_length,
    get_number,
    next_elias,
    next_rice,
    number_bits,
    put_elias,
    put_number,
    put_rice,
)

PACKED, RICE, ELIAS = 0, 1, 2
"""Codes of the rest: a fixed width above a base; Rice; the bit length in unary, then the bits (Elias gamma)."""
APART, GAPS = 4, 8
"""Added to a code: zeros are not written in it. With APART every value has a bit before it that is 0 for a zero; with
GAPS, every other value has before it how many zeros come first."""
CODE_BITS = 4
PARAMETER_BITS = 6
WIDTH_BITS = 7

Plan = tuple[int, int, int, int, int]
"""How a run is written: order, factor, code, the parameter of RICE and ELIAS, and the bits that all of it takes."""


@borrowing
def _magnitude(value: int) -> np.uint64:
    return np.uint64(-value) if value < 0 else np.uint64(value)


@borrowing
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


@borrowing
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
    code, parameter, best = PACKED, 0, packed_bits(lowest, highest, n)
    k, bits = best_elias(lengths, n)
    if bits < best:
        code, parameter, best = ELIAS, k, bits
    k, bits = best_rice(rest, total, n, False, best)
    if bits < best:
        code, parameter, best = RICE, k, bits
    if zeros == 0:
        return code, parameter, best
    left = n - zeros
    where, zero_bits = APART, n
    _, bits = best_gaps(rest)
    if bits < n:
        where, zero_bits = GAPS, bits
    bits = zero_bits + packed_bits(lowest_apart, highest_apart, left)
    if bits < best:
        code, parameter, best = where | PACKED, 0, bits
    k, bits = best_elias(lengths_apart, left)
    if zero_bits + bits < best:
        code, parameter, best = where | ELIAS, k, zero_bits + bits
    k, bits = best_rice(rest, total - left, left, True, best - zero_bits)
    if zero_bits + bits < best:
        code, parameter, best = where | RICE, k, zero_bits + bits
    return code, parameter, best


@borrowing
def packed_bits(lowest: int, highest: int, n: int) -> int:
    """What n values in this range take, packed."""
    return number_bits(zigzag(lowest)) + WIDTH_BITS + n * bit_length(np.uint64(highest - lowest))


@njit(cache=True)
def best_gaps(rest: I64Array) -> tuple[int, int]:
    """(k, bits with the parameter) of the shortest ELIAS code of the gaps: the zeros before each value that is none,
    and those behind the last such value unless that ends the rest."""
    lengths = np.zeros(65, np.int64)
    gap, count = 0, 0
    for value in rest:
        if value == 0:
            gap += 1
            continue
        lengths[bit_length(np.uint64(gap))] += 1
        count += 1
        gap = 0
    if gap:
        lengths[bit_length(np.uint64(gap))] += 1
        count += 1
    return best_elias(lengths, count)


@borrowing
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


@borrowing
def best_elias(lengths: I64Array, n: int) -> tuple[int, int]:
    """(k, bits with the parameter) of the shortest ELIAS code; lengths[b] values have b significant bits."""
    longer = n - lengths[0]
    bits = lengths[0]
    for length in range(1, 65):
        bits += 2 * length * lengths[length]
    k, best = 0, bits
    for candidate in range(1, CODE_PARAMETER_MAX + 1):
        # One low bit more for all; two less of the length for those that are longer, one less for those that fit now.
        longer -= lengths[candidate]
        bits += n - 2 * longer - lengths[candidate]
        if bits < best:
            k, best = candidate, bits
    return k, best + PARAMETER_BITS


@borrowing
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


@borrowing
def rough_bits(steps: I64Array) -> tuple[int, int, int]:
    """About what the rests of orders 0, 1 and 2 take, to tell which orders are worth a closer look: the bits that are
    in them and one and a half for each to say how many, or what they take packed."""
    n = len(steps)
    codes = n + n // 2
    total, before = 0, steps[0]
    zero, one, two = 0, 0, 0
    low0, high0, low1, high1, low2, high2 = 0, 0, before, before, 0, 0
    for step in steps:
        total += step
        zero += bit_length(zigzag(total))
        low0, high0 = min(low0, total), max(high0, total)
        one += bit_length(zigzag(step))
        low1, high1 = min(low1, step), max(high1, step)
        change = step - before
        two += bit_length(zigzag(change))
        low2, high2 = min(low2, change), max(high2, change)
        before = step
    return (
        min(zero + codes, n * bit_length(np.uint64(high0 - low0))),
        min(one + codes, n * bit_length(np.uint64(high1 - low1))),
        min(two + codes, n * bit_length(np.uint64(high2 - low2))),
    )


@njit(cache=True)
def plan_run(run: I64Array, steps: I64Array, rest: I64Array) -> Plan:
    """The shortest form of the run. steps and rest are scratch, at least as long as run."""
    n = len(run)
    if n <= 1:
        return 1, 1, PACKED, 0, number_bits(zigzag(run[0])) if n else 0
    factor = steps_of(run, steps)
    head = number_bits(zigzag(run[0])) + 2 + 1 + CODE_BITS + (number_bits(np.uint64(factor)) if factor != 1 else 0)
    best_order, best_code, best_parameter, best = -1, 0, 0, 0
    rough = rough_bits(steps[: n - 1])
    enough = min(rough) + n // 4
    for order in (1, 0, 2):
        if rough[order] > enough:
            continue
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
    at = put(words, at, np.uint64(code), CODE_BITS)
    return put_rest(words, at, left, code, parameter)


@njit(cache=True)
def put_rest(words: U64Array, at: int, rest: I64Array, code: int, parameter: int) -> int:
    """Append the rest in a code, whose number is not written, its parameters first."""
    kind = code & 3
    some_apart = code > 3
    base, width, gaps_k = 0, 0, 0
    if kind == PACKED:
        lowest, highest, lowest_apart, highest_apart = bounds_of(rest)
        base = lowest_apart if some_apart else lowest
        width = bit_length(np.uint64((highest_apart if some_apart else highest) - base))
        at = put_number(words, at, zigzag(base))
        at = put(words, at, np.uint64(width), WIDTH_BITS)
    else:
        at = put(words, at, np.uint64(parameter), PARAMETER_BITS)
    if code & GAPS:
        gaps_k, _ = best_gaps(rest)
        at = put(words, at, np.uint64(gaps_k), PARAMETER_BITS)
    gap = 0
    for value in rest:
        if some_apart:
            if code & APART:
                at = put(words, at, np.uint64(value != 0), 1)
            if value == 0:
                gap += 1
                continue
            if code & GAPS:
                at = put_elias(words, at, np.uint64(gap), gaps_k)
                gap = 0
        if kind == PACKED:
            at = put(words, at, np.uint64(value - base), width)
            continue
        z = zigzag(value) - ONE if some_apart else zigzag(value)
        at = put_rice(words, at, z, parameter) if kind == RICE else put_elias(words, at, z, parameter)
    if code & GAPS and gap:
        at = put_elias(words, at, np.uint64(gap), gaps_k)
    return at


@borrowing
def get_run(words: U64Array, at: int, end: int, run: I64Array) -> tuple[int, bool]:
    """Fill run from the stream. False: an order or code that does not exist, or the stream ran out; then the
    position says where."""
    n = len(run)
    if n == 0:
        return at, True
    at, raw = get_number(words, at)
    first = unzigzag(raw)
    run[0] = first
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
    if order == 2:
        at, raw = get_number(words, at)
        step = unzigzag(raw)
    code = signed(get(words, at, CODE_BITS))
    at += CODE_BITS
    if order > 2 or code & 3 > ELIAS or code >> 2 > 2:
        return start, False
    # The run holds the rest until it is summed up.
    if order == 2:
        run[1] = 0
        at, good = get_rest(words, at, end, code, run[2:])
    else:
        at, good = get_rest(words, at, end, code, run[1:])
    if not good:
        return at, False
    value = first
    if order == 0:
        for i in range(1, n):
            run[i] = first + run[i] * factor
    elif order == 1:
        for i in range(1, n):
            value += run[i] * factor
            run[i] = value
    else:
        for i in range(1, n):
            step += run[i]
            value += step * factor
            run[i] = value
    return at, True


@borrowing
def get_rest(words: U64Array, at: int, end: int, code: int, rest: I64Array) -> tuple[int, bool]:
    """Fill rest from the stream; False as for get_run."""
    begin = at
    kind = code & 3
    base, k = 0, 0
    if kind == PACKED:
        at, raw = get_number(words, at)
        base = unzigzag(raw)
        k = signed(get(words, at, WIDTH_BITS))
        at += WIDTH_BITS
    else:
        k = signed(get(words, at, PARAMETER_BITS))
        at += PARAMETER_BITS
    if k > (64 if kind == PACKED else CODE_PARAMETER_MAX):
        return begin, False
    if code & GAPS:
        gaps_k = signed(get(words, at, PARAMETER_BITS))
        if gaps_k > CODE_PARAMETER_MAX:
            return begin, False
        return get_between_gaps(words, at + PARAMETER_BITS, end, kind, base, k, gaps_k, rest)
    if code & APART:
        return get_apart(words, at, end, kind, base, k, rest)
    return get_plain(words, at, end, kind, base, k, rest)


@borrowing
def get_plain(words: U64Array, at: int, end: int, kind: int, base: int, k: int, rest: I64Array) -> tuple[int, bool]:
    """Fill rest with values that all are in the code."""
    n = len(rest)
    if kind == PACKED:
        if at + n * k > end:
            return end + 1, False
        if k == 0:
            rest[:] = base
            return at, True
        for i in range(n):
            rest[i] = signed(look(words, at) >> np.uint64(64 - k)) + base
            at += k
    elif kind == RICE:
        for i in range(n):
            if at > end:
                return at, False
            at, z = next_rice(words, at, k)
            rest[i] = unzigzag(z)
    else:
        for i in range(n):
            if at > end:
                return at, False
            at, z = next_elias(words, at, k)
            rest[i] = unzigzag(z)
    return at, at <= end


@borrowing
def get_apart(words: U64Array, at: int, end: int, kind: int, base: int, k: int, rest: I64Array) -> tuple[int, bool]:
    """Fill rest with values that have a bit before them, 0 for a zero."""
    for i in range(len(rest)):
        if at > end:
            return at, False
        ahead = look(words, at)
        at += 1
        if ahead >> np.uint64(63) == ZERO:
            rest[i] = 0
        elif kind == PACKED:
            rest[i] = signed(look(words, at) >> np.uint64(64 - k)) + base if k else base
            at += k
        elif kind == RICE:
            at, z = next_rice(words, at, k)
            rest[i] = unzigzag(z + ONE)
        else:
            at, z = next_elias(words, at, k)
            rest[i] = unzigzag(z + ONE)
    return at, at <= end


@borrowing
def get_between_gaps(
    words: U64Array, at: int, end: int, kind: int, base: int, k: int, gaps_k: int, rest: I64Array
) -> tuple[int, bool]:
    """Fill rest with values that have before them the number of zeros that come first."""
    n = len(rest)
    i = 0
    while i < n:
        if at > end:
            return at, False
        at, raw = next_elias(words, at, gaps_k)
        gap = signed(min(raw, np.uint64(n - i)))
        for zero in range(i, i + gap):
            rest[zero] = 0
        i += gap
        if i == n:
            break
        if kind == PACKED:
            rest[i] = signed(look(words, at) >> np.uint64(64 - k)) + base if k else base
            at += k
        elif kind == RICE:
            at, z = next_rice(words, at, k)
            rest[i] = unzigzag(z + ONE)
        else:
            at, z = next_elias(words, at, k)
            rest[i] = unzigzag(z + ONE)
        i += 1
    return at, at <= end
