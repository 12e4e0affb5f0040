"""The XOR chunk of Prometheus: one series, millisecond times, delta-of-delta and XOR.

Source: Pelkonen et al., "Gorilla: A Fast, Scalable, In-Memory Time Series Database" (VLDB 2015), in the form that
Prometheus gives it (tsdb/docs/format/chunks.md); the layout is also in FORMAT.md.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from fleetpulse.compression._bits import (
    ONE,
    ZERO,
    I64Array,
    U64Array,
    bytes_of,
    get,
    leading_zeros,
    peek,
    put,
    signed,
    trailing_zeros,
    unzigzag,
    words_of,
    zigzag,
)
from fleetpulse.compression._errors import ChunkError

SAMPLES_MAX = 0xFFFF
"""The header counts samples in 16 bits."""

_HEADER_BITS = 16
_FIRST_BITS_MAX = 80 + 64
_SAMPLE_BITS_MAX = 80 + 2 + 5 + 6 + 64
NO_WINDOW = 0xFF

_DONE, _RAN_OUT, _VARINT, _WINDOW = 0, 1, 2, 3
_FAULTS = {
    _RAN_OUT: "the chunk ends before its last sample",
    _VARINT: "a varint is longer than 64 bits",
    _WINDOW: "leading zeros and significant bits of a value exceed 64",
}


def gorilla_encode(times_ms: ArrayLike, values: ArrayLike) -> bytes:
    """The bytes that Prometheus' XOR chunk holds after these samples have been appended.

    times_ms: (n,) int64, in any order, repeats allowed. values: (n,) float64, every bit is kept. n <= 65535, otherwise
    ChunkError. Cost: O(n), one pass.
    """
    times = np.ascontiguousarray(times_ms, np.int64)
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    if times.ndim != 1 or times.shape != bits.shape:
        raise ChunkError(f"times {times.shape} and values {bits.shape} must be one-dimensional and of one length")
    if len(times) > SAMPLES_MAX:
        raise ChunkError(f"{len(times)} samples; an XOR chunk counts up to {SAMPLES_MAX}")
    words = np.zeros((_HEADER_BITS + _FIRST_BITS_MAX + _SAMPLE_BITS_MAX * len(times)) // 64 + 2, np.uint64)
    return bytes_of(words, _encode(times, bits, words))


def gorilla_decode(raw: bytes | memoryview) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(times_ms, values) of an XOR chunk, every bit as appended.

    Reads what Prometheus' own iterator reads, including chunks whose appender was reopened. ChunkError with the bit
    offset for anything else: too short, bytes after the last sample, fill bits that are not zero.
    """
    if len(raw) < _HEADER_BITS // 8:
        raise ChunkError("the chunk is shorter than its header", 0)
    bits = 8 * len(raw)
    count = int.from_bytes(raw[:2], "big")
    if count == 0:
        if bits > _HEADER_BITS:
            raise ChunkError("bytes follow the last sample", _HEADER_BITS)
        return np.empty(0, np.int64), np.empty(0, np.float64)
    # A first sample takes 9 bytes at least, every later one 2 bits: no larger count is worth an array.
    if bits < _HEADER_BITS + 72 + 2 * (count - 1):
        raise ChunkError(_FAULTS[_RAN_OUT], bits)
    times = np.empty(count, np.int64)
    values = np.empty(count, np.uint64)
    words = words_of(raw)
    at, fault = _decode(words, bits, times, values)
    if fault:
        raise ChunkError(_FAULTS[fault], min(at, bits))
    if bits - at >= 8:
        raise ChunkError("bytes follow the last sample", at)
    if get(words, at, bits - at):
        raise ChunkError("the bits that fill the last byte are not zero", at)
    return times, values.view(np.float64)


@njit(cache=True)
def _encode(times: I64Array, bits: U64Array, words: U64Array) -> int:
    """Write the chunk into zeroed words, which are long enough for the longest code of every sample."""
    n = len(times)
    at = put(words, 0, np.uint64(n), _HEADER_BITS)
    if n == 0:
        return at
    at = _put_uvarint(words, at, zigzag(times[0]))
    at = put(words, at, bits[0], 64)
    if n == 1:
        return at
    # Differences wrap at 64 bits, as Go's do.
    delta = times[1] - times[0]
    at = _put_uvarint(words, at, np.uint64(delta))
    leading = NO_WINDOW
    trailing = 0
    at, leading, trailing = put_xor(words, at, bits[1] ^ bits[0], leading, trailing)
    for i in range(2, n):
        step = times[i] - times[i - 1]
        at = _put_dod(words, at, step - delta)
        delta = step
        at, leading, trailing = put_xor(words, at, bits[i] ^ bits[i - 1], leading, trailing)
    return at


@njit(cache=True)
def _decode(words: U64Array, end: int, times: I64Array, bits: U64Array) -> tuple[int, int]:
    """Fill times and bits (n >= 1 of each) from words that hold end bits. Returns (position, fault)."""
    n = len(times)
    at, raw, good = _get_uvarint(words, _HEADER_BITS)
    if not good:
        return at, _VARINT if at <= end else _RAN_OUT
    times[0] = unzigzag(raw)
    bits[0] = peek(words, at)
    at += 64
    if n == 1 or at > end:
        return at, _RAN_OUT if at > end else _DONE
    start = at
    at, raw, good = _get_uvarint(words, at)
    if not good:
        return start, _VARINT if at <= end else _RAN_OUT
    delta = signed(raw)
    times[1] = times[0] + delta
    # Until the first window is written, "same window" means all 64 bits: so read chunks whose appender was reopened
    # before that.
    leading = 0
    width = 64
    at, value, leading, width = get_xor(words, at, bits[0], leading, width)
    bits[1] = value
    for i in range(2, n):
        if at > end or leading < 0:
            break
        at, dod = _get_dod(words, at)
        delta += dod
        times[i] = times[i - 1] + delta
        at, value, leading, width = get_xor(words, at, value, leading, width)
        bits[i] = value
    if at > end:
        return at, _RAN_OUT
    return at, _WINDOW if leading < 0 else _DONE


@njit(cache=True)
def put_xor(words: U64Array, at: int, change: np.uint64, leading: int, trailing: int) -> tuple[int, int, int]:
    """Append the XOR of two values. Returns the position and the window that now holds (leading, trailing zeros)."""
    if change == ZERO:
        return at + 1, leading, trailing
    above = min(leading_zeros(change), 31)
    below = trailing_zeros(change)
    if leading != NO_WINDOW and above >= leading and below >= trailing:
        at = put(words, at, np.uint64(2), 2)
        return put(words, at, change >> np.uint64(trailing), 64 - leading - trailing), leading, trailing
    width = 64 - above - below
    # A width of 64 is written as 0: a change of no bits was dealt with above.
    head = (np.uint64(3) << np.uint64(11)) | np.uint64(above << 6) | np.uint64(width & 63)
    at = put(words, at, head, 13)
    return put(words, at, change >> np.uint64(below), width), above, below


@njit(cache=True)
def get_xor(words: U64Array, at: int, before: np.uint64, leading: int, width: int) -> tuple[int, np.uint64, int, int]:
    """Read the value that follows before. Returns (position, value, leading zeros, width) of the window.

    leading is -1 when the window is impossible; the position is then that of the code.
    """
    ahead = peek(words, at)
    if ahead >> np.uint64(63) == ZERO:
        return at + 1, before, leading, width
    if ahead >> np.uint64(62) == np.uint64(2):
        at += 2
    else:
        leading = signed((ahead >> np.uint64(57)) & np.uint64(31))
        width = signed((ahead >> np.uint64(51)) & np.uint64(63))
        if width == 0:
            width = 64
        if leading + width > 64:
            return at, before, -1, width
        at += 13
    change = get(words, at, width) << np.uint64(64 - leading - width)
    return at + width, before ^ change, leading, width


@njit(cache=True)
def _put_dod(words: U64Array, at: int, dod: int) -> int:
    if dod == 0:
        return at + 1
    if -8191 <= dod <= 8192:
        return put(words, at, np.uint64(0b10 << 14) | np.uint64(dod & 0x3FFF), 16)
    if -65535 <= dod <= 65536:
        return put(words, at, np.uint64(0b110 << 17) | np.uint64(dod & 0x1FFFF), 20)
    if -524287 <= dod <= 524288:
        return put(words, at, np.uint64(0b1110 << 20) | np.uint64(dod & 0xFFFFF), 24)
    return put(words, put(words, at, np.uint64(0b1111), 4), np.uint64(dod), 64)


@njit(cache=True)
def _get_dod(words: U64Array, at: int) -> tuple[int, int]:
    ahead = peek(words, at)
    ones = leading_zeros(~ahead)
    if ones == 0:
        return at + 1, 0
    if ones >= 4:
        return at + 68, signed(peek(words, at + 4))
    width = 14 if ones == 1 else 17 if ones == 2 else 20
    head = ones + 1
    dod = signed((ahead << np.uint64(head)) >> np.uint64(64 - width))
    # A bucket reaches from -(2**(width-1) - 1) to 2**(width-1): the highest bit alone is positive.
    if dod > 1 << (width - 1):
        dod -= 1 << width
    return at + head + width, dod


@njit(cache=True)
def _put_uvarint(words: U64Array, at: int, value: np.uint64) -> int:
    """Seven bits a byte, the lowest first, the highest bit set on all bytes but the last."""
    while value >= np.uint64(0x80):
        at = put(words, at, (value & np.uint64(0x7F)) | np.uint64(0x80), 8)
        value >>= np.uint64(7)
    return put(words, at, value, 8)


@njit(cache=True)
def _get_uvarint(words: U64Array, at: int) -> tuple[int, np.uint64, bool]:
    """(position behind it, value, True); False when it does not fit 64 bits."""
    value = ZERO
    for i in range(10):
        byte = get(words, at, 8)
        at += 8
        if i == 9 and byte > ONE:
            break
        value |= (byte & np.uint64(0x7F)) << np.uint64(7 * i)
        if byte < np.uint64(0x80):
            return at, value, True
    return at, value, False
