"""The group chunk: one node, one span of time, all its series, times stored once. Layout: FORMAT.md."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetpulse.compression import _times, _values
from fleetpulse.compression._bits import bytes_of, get, words_of
from fleetpulse.compression._bytes import Reader, put_text, put_uvarint
from fleetpulse.compression._errors import ChunkError
from fleetpulse.compression._identities import decode_identities, encode_identities
from fleetpulse.compression._labels import Labels, SeriesLabels
from fleetpulse.compression._numbers import get_count, put_count

MAGIC = b"FPC"
VERSION = 1
SAMPLES_MAX = 1 << 24
"""Samples of a chunk, over all columns: what a reader has to make room for."""

Values = NDArray[np.float64] | NDArray[np.int64]

_CHECKSUM_BYTES = 4
_INTEGERS = np.dtype(np.int64)
_FLOATS = np.dtype(np.float64)
_TIME_FAULTS = {
    _times.RAN_OUT: "the chunk ends inside a time column",
    _times.BAD_RUN: "a time column has a code that does not exist",
    _times.BAD_MASK: "a time column takes more than its base has",
    _times.BAD_ORDER: "the times of a column do not increase",
}
_VALUE_FAULTS = {
    _values.RAN_OUT: "the chunk ends inside a column",
    _values.BAD_MODE: "a column has a mode that does not exist for its type",
    _values.BAD_REFERENCE: "a column refers to one that is not there or not alike",
    _values.BAD_DECIMAL: "a decimal column has an exponent or exceptions that cannot be",
    _values.BAD_RUN: "a column has a code that does not exist",
    _values.BAD_WINDOW: "leading zeros and significant bits of a value exceed 64",
}


@dataclass(eq=False, slots=True)
class Column:
    """Samples of one series: times_ns (n,) int64, strictly increasing; values (n,) float64 or int64."""

    labels: Mapping[str, str]
    times_ns: NDArray[np.int64]
    values: Values


@dataclass(eq=False, slots=True)
class Chunk:
    """Columns of one node over span_start_ns to span_start_ns + span_ns, in the order they are stored.

    Columns with the same times share one array.
    """

    cluster: str
    node: str
    span_start_ns: int
    span_ns: int
    columns: list[Column]


class Sizes(NamedTuple):
    """What the parts of a chunk take, in bits; they add up to all of it."""

    header: int
    identities: int
    times: int
    values: int


class _Entry(NamedTuple):
    """A column ready to be stored. Entries compare in the order of columns."""

    order: str
    stored: Labels
    values: bytes
    labels: SeriesLabels


def encode_chunk(cluster: str, node: str, span_start_ns: int, span_ns: int, columns: Sequence[Column]) -> bytes:
    """The chunk of these columns: the same bytes whatever their order.

    Columns may be empty, and two may have the same labels: both are kept. ChunkError when times and values of a column
    differ in length, times do not strictly increase, values are neither float64 nor int64, or the whole is larger than
    a reader would accept (2**24 samples).
    """
    if not (-(1 << 63) <= span_start_ns < 1 << 63 and 0 <= span_ns < 1 << 63):
        raise ChunkError(f"a span of {span_ns} ns from {span_start_ns} does not fit 64 bits")
    groups = _groups(columns)
    entries = [entry for group in groups for entry in (*group.floats, *group.integers)]
    samples = sum(len(entry.values) // 8 for entry in entries)
    if samples > SAMPLES_MAX:
        raise ChunkError(f"{samples} samples; a chunk holds up to {SAMPLES_MAX}")

    out = bytearray(MAGIC)
    out.append(VERSION)
    put_text(out, cluster)
    put_text(out, node)
    put_uvarint(out, (span_start_ns << 1) ^ (span_start_ns >> 63))
    put_uvarint(out, span_ns)
    identities = encode_identities([entry.labels for entry in entries])
    put_uvarint(out, len(identities))
    out += identities
    out += _encode_samples(span_start_ns, groups, entries)
    out += zlib.crc32(out).to_bytes(_CHECKSUM_BYTES, "big")
    return bytes(out)


def decode_chunk(raw: bytes | memoryview) -> Chunk:
    """What encode_chunk was given, every bit of every value and time, columns in stored order.

    ChunkError for any other bytes: wrong magic, a version this reader does not know, checksum, or contents that
    cannot be. Allocates no more than 2**24 samples whatever the bytes announce.
    """
    return _decode(bytes(raw))[0]


def chunk_sizes(raw: bytes | memoryview) -> Sizes:
    """Where the bits of a chunk go. Decodes all of it; ChunkError as decode_chunk."""
    return _decode(bytes(raw))[1]


def column_bits(raw: bytes | memoryview) -> NDArray[np.int64]:
    """How many bits each column takes, in stored order; together Sizes.values. ChunkError as decode_chunk."""
    return _decode(bytes(raw))[2]


class _Group(NamedTuple):
    """Columns with the same times."""

    times: NDArray[np.int64]
    floats: list[_Entry]
    integers: list[_Entry]


def _groups(columns: Iterable[Column]) -> list[_Group]:
    """The columns in stored order: longer times first, as bases precede their parts."""
    by_times: dict[bytes, _Group] = {}
    before = b""
    group: _Group | None = None
    for column in columns:
        times, values = np.asarray(column.times_ns), np.asarray(column.values)
        is_int = values.dtype == _INTEGERS
        if times.ndim != 1 or times.shape != values.shape:
            raise ChunkError(f"{_name(column)}: times {times.shape} and values {values.shape} must be of one length")
        if times.dtype != _INTEGERS or not (is_int or values.dtype == _FLOATS):
            raise ChunkError(
                f"{_name(column)}: times are {times.dtype} and values {values.dtype}, not int64 and float64 or int64"
            )
        raw = times.tobytes()
        # Columns of one scrape mostly follow each other, and comparing is cheaper than hashing.
        if group is None or raw != before:
            group = by_times.get(raw)
        before = raw
        if group is None:
            if not np.all(times[1:] > times[:-1]):
                raise ChunkError(f"{_name(column)}: the times do not strictly increase")
            group = by_times[raw] = _Group(np.frombuffer(raw, np.int64), [], [])
        labels = column.labels if isinstance(column.labels, SeriesLabels) else SeriesLabels(column.labels)
        (group.integers if is_int else group.floats).append(
            _Entry(labels.order, labels.stored, values.tobytes(), labels)
        )
    groups = sorted(by_times.values(), key=lambda group: (-len(group.times), group.times.tolist()))
    for group in groups:
        group.floats.sort()
        group.integers.sort()
    return groups


def _name(column: Column) -> str:
    return f"column {column.labels.get('__name__', dict(column.labels))}"


def _encode_samples(span_start_ns: int, groups: list[_Group], entries: list[_Entry]) -> bytes:
    """The bit stream of the chunk: time columns with the numbers of their columns, then the columns."""
    times_of = [group.times for group in groups]
    flat = np.frombuffer(b"".join([entry.values for entry in entries]), np.uint64)
    longest_bits = sum(64 * len(times) + 320 for times in times_of) + 64 * len(flat)
    longest_bits += (_values.COLUMN_BITS_MAX) * len(entries) + 256
    words = np.zeros(longest_bits // 64 + 2, np.uint64)
    at = put_count(words, 0, len(groups))
    no_mask = np.empty(0, np.bool_)
    for group, base in zip(groups, _times.bases_of(times_of), strict=True):
        mask = _times.mask_of(times_of[base], group.times) if base >= 0 else no_mask
        at = _times.put_times(words, at, group.times, span_start_ns, mask, base)
        at = put_count(words, at, len(group.floats))
        at = put_count(words, at, len(group.integers))
    counts = [count for group in groups for count in (len(group.floats), len(group.integers))]
    columns = np.array(counts, np.int64).reshape(-1, 2)
    starts = np.zeros(len(entries) + 1, np.int64)
    np.cumsum(np.repeat([len(times) for times in times_of], columns.sum(axis=1)), out=starts[1:])
    is_int = np.repeat(np.tile([False, True], len(groups)), columns.ravel())
    group_of = np.repeat(np.arange(len(groups)), columns.sum(axis=1))
    at = _values.put_columns(words, at, flat, starts, is_int, _references(entries, is_int), group_of)
    return bytes_of(words, at)


def _references(entries: list[_Entry], is_int: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many columns back the last one with the same type and values stands; 0 for none."""
    seen: dict[tuple[bool, bytes], int] = {}
    back = np.zeros(len(entries), np.int64)
    for number, key in enumerate(zip(is_int.tolist(), [entry.values for entry in entries], strict=True)):
        if key in seen:
            back[number] = number - seen[key]
        seen[key] = number
    return back


def _decode(raw: bytes) -> tuple[Chunk, Sizes, NDArray[np.int64]]:
    end = len(raw) - _CHECKSUM_BYTES
    if end < len(MAGIC) + 1 or raw[: len(MAGIC)] != MAGIC:
        raise ChunkError("no group chunk: it does not begin with FPC", 0)
    if raw[len(MAGIC)] != VERSION:
        raise ChunkError(f"version {raw[len(MAGIC)]} of the group chunk; this reader knows {VERSION}", 8 * len(MAGIC))
    if zlib.crc32(raw[:end]) != int.from_bytes(raw[end:], "big"):
        raise ChunkError("the checksum does not fit the bytes", 8 * end)
    reader = Reader(raw, len(MAGIC) + 1, end)
    cluster, node = reader.text(), reader.text()
    start = reader.uvarint()
    span_start_ns = (start >> 1) ^ -(start & 1)
    span_ns = reader.uvarint()
    length = reader.count(1)
    identities_at = reader.at
    labels = decode_identities(reader.take(length), 8 * identities_at)
    samples = _Samples(raw[reader.at : end], 8 * reader.at, span_start_ns)
    columns = samples.columns(labels)
    sizes = Sizes(
        header=8 * (identities_at + _CHECKSUM_BYTES) + samples.filled,
        identities=8 * length,
        times=samples.time_bits,
        values=samples.value_bits,
    )
    column_bits = np.diff(samples.column_ends, prepend=samples.time_bits)
    return Chunk(cluster, node, span_start_ns, span_ns, columns), sizes, column_bits


class _Samples:
    """Reads the bit stream. offset: where it begins in the chunk, in bits, for errors."""

    def __init__(self, raw: bytes, offset: int, origin: int) -> None:
        self._words = words_of(raw)
        self._end = 8 * len(raw)
        self._offset = offset
        self._origin = origin
        self._at = 0
        self.time_bits = self.value_bits = self.filled = 0
        self.column_ends = np.empty(0, np.int64)

    def columns(self, labels: Sequence[SeriesLabels]) -> list[Column]:
        groups = self._groups(len(labels))
        self.time_bits = self._at
        counts = np.array([(floats, integers) for _, floats, integers in groups], np.int64).reshape(-1, 2)
        of_group = counts.sum(axis=1)
        if of_group.sum() != len(labels):
            raise self._error(f"{len(labels)} series and {of_group.sum()} columns", self._at)
        starts = np.zeros(len(labels) + 1, np.int64)
        np.cumsum(np.repeat([len(times) for times, _, _ in groups], of_group), out=starts[1:])
        is_int = np.repeat(np.tile([False, True], len(groups)), counts.ravel())
        bits = np.empty(starts[-1], np.uint64)
        self.column_ends = np.empty(len(labels), np.int64)
        at, fault = _values.get_columns(self._words, self._at, self._end, bits, starts, is_int, self.column_ends)
        if fault:
            raise self._error(_VALUE_FAULTS[fault], at)
        self.value_bits = at - self._at
        self.filled = self._end - at
        if self.filled >= 8 or get(self._words, at, self.filled):
            raise self._error("bits follow the last column", at)
        as_floats, as_integers = bits.view(np.float64), bits.view(np.int64)
        columns = []
        number = start = 0
        for times, floats, integers in groups:
            n = len(times)
            for values, count in ((as_floats, floats), (as_integers, integers)):
                for one in labels[number : number + count]:
                    columns.append(Column(one, times, values[start : start + n]))
                    start += n
                number += count
        return columns

    def _groups(self, column_count: int) -> list[tuple[NDArray[np.int64], int, int]]:
        groups: list[tuple[NDArray[np.int64], int, int]] = []
        columns_left, samples_left = column_count, SAMPLES_MAX
        for _ in range(self._count(column_count)):
            base = self._count(len(groups)) - 1
            times = self._full_times(samples_left) if base < 0 else self._part_of(groups[base][0])
            times.flags.writeable = False
            floats = self._count(columns_left)
            ints = self._count(columns_left - floats)
            columns_left -= floats + ints
            samples_left -= len(times) * (floats + ints)
            if samples_left < 0 or floats + ints == 0:
                raise self._error(f"a time column for no column, or more than {SAMPLES_MAX} samples", self._at)
            groups.append((times, floats, ints))
        return groups

    def _full_times(self, most: int) -> NDArray[np.int64]:
        times = np.empty(self._count(most), np.int64)
        at, fault = _times.get_full(self._words, self._at, self._end, self._origin, times)
        return self._checked(times, at, fault)

    def _part_of(self, base: NDArray[np.int64]) -> NDArray[np.int64]:
        mask = np.empty(len(base), np.bool_)
        at, fault = _times.get_mask(self._words, self._at, self._end, mask)
        self._checked(base, at, fault)
        return base[mask]

    def _checked(self, times: NDArray[np.int64], at: int, fault: int) -> NDArray[np.int64]:
        if fault:
            raise self._error(_TIME_FAULTS[fault], at)
        self._at = at
        return times

    def _count(self, most: int) -> int:
        at, count = get_count(self._words, self._at)
        if at > self._end:
            raise self._error("the chunk ends before its columns", self._end)
        if not 0 <= count <= most:
            raise self._error(f"a number that must lie between 0 and {most} does not", self._at)
        self._at = at
        return int(count)

    def _error(self, message: str, at: int) -> ChunkError:
        return ChunkError(message, self._offset + min(at, self._end))
