"""A stream of bits in an array of 64-bit words, most significant bit first, for Numba kernels.

A writer starts from zeroed words and a position of 0, every `put_` returns the next position, and the caller has made
the array long enough. A reader may run past the end: it reads zeros there, its position keeps growing, and the caller
compares it with the number of bits once per sample or column. So reading needs no check per field, and never leaves
the array.

Values are uint64 and positions int64: mixing the two makes Numba compute in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.core import cgutils, types
from numba.core.options import DefaultOptions
from numba.extending import intrinsic
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])

U64Array = NDArray[np.uint64]
I64Array = NDArray[np.int64]

_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
_borrowing: Any = njit(cache=True, **_UNCOUNTED)


def borrowing(kernel: F) -> F:
    """Decorator for a kernel that makes no array and returns none: it only borrows its caller's.

    Numba otherwise counts a reference to every array on each call, with two atomic instructions, which is most of what
    a small function costs. A Numba without the option compiles the same code, slower.
    """
    return cast("F", _borrowing(kernel))


ZERO = np.uint64(0)
ONE = np.uint64(1)
ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


SPARE_WORDS = 8
"""Words of zeros behind a stream that is read, for what overruns it between two comparisons with its end."""


def words_of(raw: bytes | memoryview) -> U64Array:
    """The bytes as words, followed by zeros to the end of a word and SPARE_WORDS words of zeros."""
    padded = bytes(raw) + bytes(-len(raw) % 8 + 8 * SPARE_WORDS)
    return np.frombuffer(padded, ">u8").astype(np.uint64)


def bytes_of(words: U64Array, bits: int) -> bytes:
    """The first bits of the words as bytes, the last of them filled with zeros."""
    return words[: (bits + 63) // 64].astype(">u8").tobytes()[: (bits + 7) // 8]


@intrinsic
def _leading_zeros(typing_context: Any, value: Any) -> Any:
    """Number of zero bits above the highest one of a uint64; 64 for zero."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], cgutils.false_bit)

    return types.int64(types.uint64), build


leading_zeros = cast("Callable[[np.uint64], int]", _leading_zeros)


@intrinsic
def _trailing_zeros(typing_context: Any, value: Any) -> Any:
    """Number of zero bits below the lowest one of a uint64; 64 for zero."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.false_bit)

    return types.int64(types.uint64), build


trailing_zeros = cast("Callable[[np.uint64], int]", _trailing_zeros)


@intrinsic
def _bits_of_float(typing_context: Any, value: Any) -> Any:
    """The 64 bits of a float64."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.uint64))

    return types.uint64(types.float64), build


bits_of_float = cast("Callable[[float], np.uint64]", _bits_of_float)


@intrinsic
def _float_of_bits(typing_context: Any, value: Any) -> Any:
    """The float64 of 64 bits."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.uint64), build


float_of_bits = cast("Callable[[np.uint64], float]", _float_of_bits)


@borrowing
def signed(value: np.uint64) -> int:
    """The same 64 bits in two's complement."""
    return np.int64(value)  # type: ignore[return-value]  # to the kernels an int is an int64


@borrowing
def put(words: U64Array, at: int, value: np.uint64, width: int) -> int:
    """Append the low bits of value, width of them (0 to 64); the bits above must be zero."""
    if width == 0:
        return at
    word = at >> 6
    free = 64 - (at & 63)
    if width <= free:
        words[word] |= value << np.uint64(free - width)
    else:
        words[word] |= value >> np.uint64(width - free)
        words[word + 1] |= value << np.uint64(64 - (width - free))
    return at + width


@njit(cache=True, inline="always")
def look(words: U64Array, at: int) -> np.uint64:
    """The 64 bits that follow, for loops that have compared their position with the end of the stream.

    They may have gone on from there by 384 bits: words_of leaves room for that. It becomes a part of the caller's
    code, because a call that takes an array costs more than the reading does.
    """
    word = np.uint64(at) >> np.uint64(6)
    skip = np.uint64(at) & np.uint64(63)
    ahead: np.uint64 = (words[word] << skip) | ((words[word + np.uint64(1)] >> np.uint64(1)) >> (np.uint64(63) - skip))
    return ahead


@borrowing
def peek(words: U64Array, at: int) -> np.uint64:
    """The 64 bits that follow."""
    word = at >> 6
    if word + 1 >= len(words):
        return ZERO
    skip = at & 63
    ahead: np.uint64 = words[word] << np.uint64(skip)
    if skip:
        ahead |= words[word + 1] >> np.uint64(64 - skip)
    return ahead


@borrowing
def get(words: U64Array, at: int, width: int) -> np.uint64:
    """The next bits, width of them (0 to 64)."""
    if width == 0:
        return ZERO
    return peek(words, at) >> np.uint64(64 - width)


@borrowing
def zigzag(value: int) -> np.uint64:
    """0, -1, 1, -2, ... as 0, 1, 2, 3, ...; any int64."""
    return np.uint64(value << 1) ^ np.uint64(value >> 63)


@borrowing
def unzigzag(value: np.uint64) -> int:
    return signed(value >> ONE) ^ -signed(value & ONE)
