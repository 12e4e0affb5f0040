"""The XOR chunk of Prometheus: one series, millisecond times, delta-of-delta and XOR.

Source: Pelkonen et al., "Gorilla: A Fast, Scalable, In-Memory Time Series Database" (VLDB 2015), in the form that
Prometheus gives it (tsdb/docs/format/chunks.md); the layout is also in FORMAT.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from fleetpulse.compression._bits import (
    ONE,
    ZERO,
    I64Array,
    U64Array,
    borrowing,
    bytes_of,
    get,
    leading_zeros,
    look,
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
_FIRST_BITS_MIN = 8 + 64
_LATER_BITS_MIN = 2
NO_WINDOW = 0xFF

_DONE, _RAN_OUT, _VARINT, _WINDOW, _BEHIND, _FILL = range(6)
_FAULTS = {
    _RAN_OUT: "the chunk ends before its last sample",
    _VARINT: "a varint is longer than 64 bits",
    _WINDOW: "leading zeros and significant bits of a value exceed 64",
    _BEHIND: "bytes follow the last sample",
    _FILL: "the bits that fill the last byte are not zero",
}

# What an appender knows of the samples so far: the position behind them, their number, the last time and step, the last
# value's bits in two's complement, and the window's zeros above and below (NO_WINDOW above: there is none).
_AT, _COUNT, _TIME, _STEP, _VALUE, _LEADING, _TRAILING = range(7)


def gorilla_encode(times_ms: ArrayLike, values: ArrayLike) -> bytes:
    """The bytes that Prometheus' XOR chunk holds after these samples have been appended.

    times_ms: (n,) int64, in any order, repeats allowed. values: (n,) float64, every bit is kept. n <= 65535, otherwise
    ChunkError. Cost: O(n), one pass.
    """
    times, bits = _samples(times_ms, values)
    _check_count(len(times))
    words = np.zeros(_words_for(len(times)), np.uint64)
    state = _new_state()
    _append(words, state, times, bits)
    return bytes_of(words, int(state[_AT]))


def gorilla_decode(raw: bytes | memoryview) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(times_ms, values) of an XOR chunk, every bit as appended.

    Reads what Prometheus' own iterator reads, including chunks whose appender was reopened. ChunkError with the bit
    offset for anything else: too short, bytes after the last sample, fill bits that are not zero.
    """
    count = _count_of(raw)
    times = np.empty(count, np.int64)
    values = np.empty(count, np.float64)
    at, fault = _decode(words_of(raw), 0, 8 * len(raw), times, values.view(np.uint64), _new_state())
    if fault:
        raise ChunkError(_FAULTS[fault], at)
    return times, values


def gorilla_encode_many(times_ms: ArrayLike, values: ArrayLike, starts: ArrayLike) -> list[bytes]:
    """A chunk, as gorilla_encode's, of each of many series that lie behind each other.

    times_ms, values: (n,), all samples. starts: (series + 1,) int64 from 0 to n; series i is starts[i]:starts[i + 1].
    """
    times, bits = _samples(times_ms, values)
    places = np.ascontiguousarray(starts, np.int64)
    if places.ndim != 1 or not len(places) or places[0] != 0 or places[-1] != len(times):
        raise ChunkError(f"starts must go from 0 to {len(times)}, the number of samples")
    lengths = np.diff(places)
    if len(lengths) and lengths.min() < 0:
        raise ChunkError("starts must not decrease")
    _check_count(int(lengths.max(initial=0)))
    words = np.zeros(int(np.sum((_HEADER_BITS + _FIRST_BITS_MAX + _SAMPLE_BITS_MAX * lengths) // 64 + 2)), np.uint64)
    ends = np.empty(len(lengths), np.int64)
    used = _append_many(words, times, bits, places, ends)
    every = words[:used].astype(">u8").tobytes()
    chunks = []
    at = 0
    for end in ends.tolist():
        chunks.append(every[at : (end + 7) >> 3])
        at = (end + 63) >> 6 << 3
    return chunks


def gorilla_decode_many(
    chunks: Sequence[bytes],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """(times_ms, values, starts) of many chunks: of chunk i, the samples starts[i]:starts[i + 1].

    ChunkError as gorilla_decode's for one that is none; it says which.
    """
    starts = np.zeros(len(chunks) + 1, np.int64)
    np.cumsum([_count_of(raw, number) for number, raw in enumerate(chunks)], out=starts[1:])
    begins = np.zeros(len(chunks) + 1, np.int64)
    np.cumsum([8 * len(raw) for raw in chunks], out=begins[1:])
    times = np.empty(starts[-1], np.int64)
    values = np.empty(starts[-1], np.float64)
    words = words_of(b"".join(chunks))
    number, at, fault = _decode_many(words, begins, starts, times, values.view(np.uint64), _new_state())
    if fault:
        raise ChunkError(f"chunk {number}: {_FAULTS[fault]}", at)
    return times, values, starts


class GorillaAppender:
    """Appends samples to an XOR chunk one batch after the other; where they are divided changes no byte.

    raw: a chunk to go on with, as gorilla_encode or a GorillaAppender made it; ChunkError for bytes that are none.
    """

    def __init__(self, raw: bytes = bytes(_HEADER_BITS // 8)) -> None:
        self._state = _new_state()
        count = _count_of(raw)
        at, fault = _decode(
            words_of(raw), 0, 8 * len(raw), np.empty(count, np.int64), np.empty(count, np.uint64), self._state
        )
        if fault:
            raise ChunkError(_FAULTS[fault], at)
        self._words = words_of(raw)

    def __len__(self) -> int:
        return int(self._state[_COUNT])

    def append(self, times_ms: ArrayLike, values: ArrayLike) -> None:
        """times_ms: (n,) int64; values: (n,) float64. ChunkError, and nothing is appended, beyond 65535 samples."""
        times, bits = _samples(times_ms, values)
        _check_count(len(self) + len(times))
        needed = int(self._state[_AT]) // 64 + _words_for(len(times))
        if needed > len(self._words):
            grown = np.zeros(2 * needed, np.uint64)
            grown[: len(self._words)] = self._words
            self._words = grown
        _append(self._words, self._state, times, bits)

    def to_bytes(self) -> bytes:
        """The chunk so far; appending may go on."""
        return bytes_of(self._words, int(self._state[_AT]))


def _samples(times_ms: ArrayLike, values: ArrayLike) -> tuple[I64Array, U64Array]:
    times = np.ascontiguousarray(times_ms, np.int64)
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    if times.ndim != 1 or times.shape != bits.shape:
        raise ChunkError(f"times {times.shape} and values {bits.shape} must be one-dimensional and of one length")
    return times, bits


def _check_count(count: int) -> None:
    if count > SAMPLES_MAX:
        raise ChunkError(f"{count} samples; an XOR chunk counts up to {SAMPLES_MAX}")


def _words_for(count: int) -> int:
    """Words that so many samples may take at most, the header included."""
    return (_HEADER_BITS + _FIRST_BITS_MAX + _SAMPLE_BITS_MAX * count) // 64 + 2


def _new_state() -> I64Array:
    state = np.zeros(7, np.int64)
    state[_AT] = _HEADER_BITS
    state[_LEADING] = NO_WINDOW
    return state


def _count_of(raw: bytes | memoryview, number: int | None = None) -> int:
    """Samples that the header announces; ChunkError when so many do not fit, so that no array is made for them."""
    which = "" if number is None else f"chunk {number}: "
    if len(raw) < _HEADER_BITS // 8:
        raise ChunkError(f"{which}the chunk is shorter than its header", 0)
    count = raw[0] << 8 | raw[1]
    bits = 8 * len(raw)
    if count == 0:
        if bits > _HEADER_BITS:
            raise ChunkError(f"{which}{_FAULTS[_BEHIND]}", _HEADER_BITS)
    elif bits < _HEADER_BITS + _FIRST_BITS_MIN + _LATER_BITS_MIN * (count - 1):
        raise ChunkError(f"{which}{_FAULTS[_RAN_OUT]}", bits)
    return count


@borrowing
def _append(words: U64Array, state: I64Array, times: I64Array, bits: U64Array) -> None:
    """Go on with the chunk that begins at the first word; the words behind it are zeros, and enough of them."""
    state[_AT] = _append_at(words, 0, state, times, bits)


@njit(cache=True)
def _append_many(words: U64Array, times: I64Array, bits: U64Array, starts: I64Array, ends: I64Array) -> int:
    """Write the chunks, each from a word's beginning on; ends gets where each ends. Returns the number of words."""
    word = 0
    state = np.empty(7, np.int64)
    for i in range(len(ends)):
        state[:] = 0
        state[_LEADING] = NO_WINDOW
        state[_AT] = 64 * word + _HEADER_BITS
        part = slice(starts[i], starts[i + 1])
        ends[i] = _append_at(words, word, state, times[part], bits[part])
        word = (ends[i] + 63) >> 6
    return word


@borrowing
def _append_at(words: U64Array, word: int, state: I64Array, times: I64Array, bits: U64Array) -> int:
    """Append the samples to the chunk that begins at the word, and bring all but the position of the state up to date.

    Returns the position behind them.
    """
    n = len(times)
    at: int = state[_AT]
    count = state[_COUNT]
    time, step, value = state[_TIME], state[_STEP], np.uint64(state[_VALUE])
    leading, trailing = state[_LEADING], state[_TRAILING]
    for i in range(n):
        # Differences wrap at 64 bits, as Go's do.
        now = times[i] - time
        time = times[i]
        change = bits[i] ^ value
        value = bits[i]
        if count > 1:
            at = _put_dod(words, at, now - step)
            at, leading, trailing = put_xor(words, at, change, leading, trailing)
        elif count == 1:
            at = _put_uvarint(words, at, np.uint64(now))
            at, leading, trailing = put_xor(words, at, change, leading, trailing)
        else:
            at = _put_uvarint(words, at, zigzag(time))
            at = put(words, at, value, 64)
        step = now
        count += 1
    state[_COUNT] = count
    state[_TIME], state[_STEP], state[_VALUE] = time, step, signed(value)
    state[_LEADING], state[_TRAILING] = leading, trailing
    words[word] = (words[word] & np.uint64(0xFFFFFFFFFFFF)) | (np.uint64(count) << np.uint64(48))
    return at


@borrowing
def _decode_many(
    words: U64Array, begins: I64Array, starts: I64Array, times: I64Array, bits: U64Array, state: I64Array
) -> tuple[int, int, int]:
    """Fill times and bits of all chunks; begins says where each begins. Returns (chunk, position in it, fault)."""
    for i in range(len(starts) - 1):
        part = slice(starts[i], starts[i + 1])
        at, fault = _decode(words, begins[i], begins[i + 1], times[part], bits[part], state)
        if fault:
            return i, at, fault
    return 0, 0, _DONE


@borrowing
def _decode(words: U64Array, begin: int, end: int, times: I64Array, bits: U64Array, state: I64Array) -> tuple[int, int]:
    """Fill times and bits from the chunk of so many samples in the words' bits from begin to end, and state with what
    an appender goes on from. Returns (where the chunk went wrong, counted from its begin; fault)."""
    n = len(times)
    at, fault, leading, width = _decode_samples(words, begin, end, times, bits)
    if at > end:
        return end - begin, _RAN_OUT
    if fault == _DONE:
        if end - at >= 8:
            fault = _BEHIND
        elif get(words, at, end - at) != ZERO:
            fault = _FILL
    state[_AT], state[_COUNT] = at - begin, n
    if n:
        state[_TIME], state[_VALUE] = times[n - 1], signed(bits[n - 1])
    if n > 1:
        state[_STEP] = times[n - 1] - times[n - 2]
    state[_LEADING], state[_TRAILING] = leading, 64 - width - leading if leading != NO_WINDOW else 0
    return at - begin, fault


@borrowing
def _decode_samples(
    words: U64Array, begin: int, end: int, times: I64Array, bits: U64Array
) -> tuple[int, int, int, int]:
    """Returns (position, fault, leading zeros and width of the window, NO_WINDOW when there is none)."""
    n = len(times)
    at = begin + _HEADER_BITS
    if n == 0:
        return at, _DONE, NO_WINDOW, 0
    at, raw, good = _get_uvarint(words, at)
    if not good:
        return at, _VARINT, NO_WINDOW, 0
    time = unzigzag(raw)
    value = peek(words, at)
    times[0] = time
    bits[0] = value
    at += 64
    if n == 1 or at > end:
        return at, _DONE, NO_WINDOW, 0
    start = at
    at, raw, good = _get_uvarint(words, at)
    if not good:
        return start if at <= end else at, _VARINT, NO_WINDOW, 0
    step = signed(raw)
    # Until the first window is written, "same window" means all 64 bits: so read chunks whose appender was reopened
    # before that.
    shift, width, some = 0, 64, False
    for i in range(1, n):
        if at > end:
            break
        ahead = look(words, at)
        if i > 1:
            # At most 24 bits of what is ahead are the time's, and 13 the head of the value's.
            ones = leading_zeros(~ahead)
            if ones == 0:
                at += 1
                ahead <<= ONE
            elif ones < 4:
                bucket = 14 if ones == 1 else 17 if ones == 2 else 20
                ahead <<= np.uint64(ones + 1)
                dod = signed(ahead >> np.uint64(64 - bucket))
                # A bucket reaches from -(2**(bucket-1) - 1) to 2**(bucket-1): the highest bit alone is positive.
                if dod > 1 << (bucket - 1):
                    dod -= 1 << bucket
                step += dod
                ahead <<= np.uint64(bucket)
                at += ones + 1 + bucket
            else:
                step += signed(look(words, at + 4))
                at += 68
                ahead = look(words, at)
        time += step
        times[i] = time
        if ahead >> np.uint64(63) == ZERO:
            at += 1
        else:
            if ahead >> np.uint64(62) == np.uint64(2):
                at += 2
            else:
                some = True
                width = signed((ahead >> np.uint64(51)) & np.uint64(63))
                width = 64 if width == 0 else width
                shift = 64 - width - signed((ahead >> np.uint64(57)) & np.uint64(31))
                if shift < 0:
                    return at, _WINDOW, NO_WINDOW, 0
                at += 13
            value ^= (look(words, at) >> np.uint64(64 - width)) << np.uint64(shift)
            at += width
        bits[i] = value
    return at, _DONE, 64 - width - shift if some else NO_WINDOW, width


@borrowing
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


@borrowing
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


@borrowing
def _put_uvarint(words: U64Array, at: int, value: np.uint64) -> int:
    """Seven bits a byte, the lowest first, the highest bit set on all bytes but the last."""
    while value >= np.uint64(0x80):
        at = put(words, at, (value & np.uint64(0x7F)) | np.uint64(0x80), 8)
        value >>= np.uint64(7)
    return put(words, at, value, 8)


@borrowing
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
