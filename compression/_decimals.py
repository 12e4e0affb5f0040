"""Float64 as integers over a power of ten, with the distance to the true value where the division misses it.

Kernels. A value's decimal form with exponent e is the mantissa m = round(value * 10**e), and comes back as the float64
nearest to m / 10**e plus a correction counted in bit patterns, which is 0 for what was written with e digits, and
small for sums of such numbers. No value is trusted to come back: the encoder divides and compares each.
"""

from __future__ import annotations

import numpy as np

from fleetpulse.compression._bits import (
    I64Array,
    U64Array,
    bits_of_float,
    borrowing,
    float_of_bits,
    get,
    put,
    signed,
    unzigzag,
    zigzag,
)
from fleetpulse.compression._numbers import count_bits, get_count, get_number, number_bits, put_count, put_number

EXPONENT_MAX = 22
"""Powers of ten up to this one are exact in float64."""
POWERS = np.array([float(10**e) for e in range(EXPONENT_MAX + 1)])
EXPONENT_BITS = 5
NOT_DECIMAL = -1

_MANTISSA_MAX = float(1 << 53)
_PROBES = 16
"""How many values are asked for their exponent before the column's is chosen."""
# A value that is so many bit patterns from a short decimal is taken for a sum of short decimals.
_NEAR = 16
_NEAR_EXPONENT_MAX = 9
_NEAR_MANTISSA_MAX = float(1 << 42)


@borrowing
def decimal_bits(mantissa: int, exponent: int) -> np.uint64:
    """The bits of mantissa / 10**exponent, both exact in float64, rounded once as IEEE 754 says."""
    return bits_of_float(np.float64(mantissa) / POWERS[exponent])


@borrowing
def exponent_of(bits: np.uint64) -> int:
    """The smallest e with value == m / 10**e for an integer m of at most 53 bits, bit for bit; -1 for none."""
    value = float_of_bits(bits)
    if not np.isfinite(value):
        return NOT_DECIMAL
    for e in range(EXPONENT_MAX + 1):
        scaled = np.rint(value * POWERS[e])
        if abs(scaled) > _MANTISSA_MAX:
            return NOT_DECIMAL
        if decimal_bits(int(scaled), e) == bits:
            return e
    return NOT_DECIMAL


@borrowing
def near_exponent_of(bits: np.uint64) -> int:
    """The smallest e for which the value is near m / 10**e, for a short m; -1 for none."""
    value = float_of_bits(bits)
    if not np.isfinite(value):
        return NOT_DECIMAL
    for e in range(_NEAR_EXPONENT_MAX + 1):
        scaled = np.rint(value * POWERS[e])
        if abs(scaled) > _NEAR_MANTISSA_MAX:
            return NOT_DECIMAL
        if abs(signed(bits) - signed(decimal_bits(int(scaled), e))) <= _NEAR:
            return e
    return NOT_DECIMAL


@borrowing
def exponents_to_try(bits: U64Array) -> tuple[int, int]:
    """Two exponents that suit a sample of the values: with corrections, and so that most need none. Often the same.

    (-1, -1) when more than half of the sample is not decimal in either way.
    """
    n = len(bits)
    probes = min(n, _PROBES)
    low, high, strange = 0, 0, 0
    for i in range(probes):
        probe = bits[i * n // probes]
        exact, near = exponent_of(probe), near_exponent_of(probe)
        if exact == NOT_DECIMAL and near == NOT_DECIMAL:
            strange += 1
        low = max(low, near if near != NOT_DECIMAL else exact)
        high = max(high, exact if exact != NOT_DECIMAL else near)
    return (NOT_DECIMAL, NOT_DECIMAL) if 2 * strange > probes else (low, high)


@borrowing
def to_decimal(bits: U64Array, exponent: int, mantissas: I64Array, odd: I64Array) -> tuple[int, int]:
    """Fill mantissas, and odd with the places that need a correction. Returns (their number, bits they take).

    A value without a mantissa of 53 bits (NaN is one) repeats the one before it, or 0.
    """
    count, taken, last = 0, 0, -1
    before = 0
    for i in range(len(bits)):
        scaled = np.rint(float_of_bits(bits[i]) * POWERS[exponent])
        if abs(scaled) <= _MANTISSA_MAX:  # False for NaN
            before = int(scaled)
        mantissas[i] = before
        correction = signed(bits[i] - decimal_bits(before, exponent))
        if correction != 0:
            odd[count] = i
            count += 1
            taken += count_bits(i - last - 1) + number_bits(zigzag(correction))
            last = i
    return count, taken + count_bits(count)


@borrowing
def put_corrections(
    words: U64Array, at: int, bits: U64Array, exponent: int, mantissas: I64Array, odd: I64Array, count: int
) -> int:
    """Append exponent, number of corrections, and for each how many values lie before it and the correction."""
    at = put(words, at, np.uint64(exponent), EXPONENT_BITS)
    at = put_count(words, at, count)
    last = -1
    for place in odd[:count]:
        at = put_count(words, at, place - last - 1)
        correction = signed(bits[place] - decimal_bits(mantissas[place], exponent))
        at = put_number(words, at, zigzag(correction))
        last = place
    return at


@borrowing
def get_corrections(words: U64Array, at: int, end: int, n: int) -> tuple[int, int, int, int]:
    """Skip over them: (position behind, exponent, their number, where the first begins).

    The exponent is -1 when it does not exist, or a correction lies behind the last value.
    """
    exponent = signed(get(words, at, EXPONENT_BITS))
    at, count = get_count(words, at + EXPONENT_BITS)
    if exponent > EXPONENT_MAX or count < 0 or count > n:
        return at, NOT_DECIMAL, 0, at
    first = at
    place = -1
    for _ in range(count):
        at, gap = get_count(words, at)
        at, _raw = get_number(words, at)
        place += gap + 1
        if gap < 0 or place >= n or at > end:
            return at, NOT_DECIMAL, 0, first
    return at, exponent, count, first


@borrowing
def from_decimal(words: U64Array, at: int, exponent: int, count: int, mantissas: I64Array, bits: U64Array) -> None:
    """Fill bits from mantissas and the corrections that begin at this position and have been skipped over once."""
    power = POWERS[exponent]
    for i in range(len(bits)):
        bits[i] = bits_of_float(np.float64(mantissas[i]) / power)
    place = -1
    for _ in range(count):
        at, gap = get_count(words, at)
        at, raw = get_number(words, at)
        place += gap + 1
        bits[place] += np.uint64(unzigzag(raw))
