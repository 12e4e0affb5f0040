"""The labels of a chunk's series, as tables over its strings. Layout: FORMAT.md, "Identities".

Series with the same label names share a table. A label is a column of it: which of its different values a series has,
in order. Labels that another one settles (a pod's UID by its name) only say which value goes with which; for the
others, the value that followed the last time is expected, and only surprises are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fleetpulse.compression._bits import I64Array, U64Array, borrowing, bytes_of, get, put, signed, words_of
from fleetpulse.compression._bytes import Reader
from fleetpulse.compression._errors import ChunkError
from fleetpulse.compression._labels import SeriesLabels
from fleetpulse.compression._numbers import bit_length, count_bits, get_count, put_count
from fleetpulse.compression._texts import decode_texts, encode_texts

SERIES_MAX = 1 << 18
LABELS_MAX = 1 << 22
"""The labels of all series of a chunk together."""
WEIGHT_KEPT = 1 << 17
"""So many labels are remembered from chunk to chunk: some ten nodes of 500 series, in some 20 MB."""

K = TypeVar("K")
V = TypeVar("V")

_Written = tuple[I64Array, int]
"""A column of a table written as a sequence: ids by first appearance, and how many different ones."""


@dataclass(slots=True)
class _Table:
    names: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)


def encode_identities(series: Sequence[SeriesLabels]) -> bytes:
    """The block of these series. ChunkError when they exceed what a reader accepts (the _MAX of this folder)."""
    key = tuple(series)
    block = _written.get(key)
    if block is None:
        block = _encode(key)
        _written.keep(key, block, _weight(key, block))
    return block


def decode_identities(block: bytes, offset: int) -> tuple[SeriesLabels, ...]:
    """The labels of all series, in stored order. offset: where the block begins in its chunk, in bits, for errors."""
    series = _read.get(block)
    if series is None:
        series = _decode(block, offset)
        _read.keep(block, series, _weight(series, block))
    return series


def forget_identities() -> None:
    """Back to a process that has seen no chunk yet."""
    _written.clear()
    _read.clear()


def _weight(series: Sequence[SeriesLabels], block: bytes) -> int:
    return sum(map(len, series)) + len(series) + len(block) // 16


class _Recent(Generic[K, V]):
    """Results of the last calls: a node's next chunk mostly has the series of the one before.

    The oldest go when together they weigh more than WEIGHT_KEPT.
    """

    def __init__(self) -> None:
        self._results: dict[K, tuple[V, int]] = {}
        self._weight = 0
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        found = self._results.get(key)
        return None if found is None else found[0]

    def clear(self) -> None:
        with self._lock:
            self._results.clear()
            self._weight = 0

    def keep(self, key: K, result: V, weight: int) -> None:
        with self._lock:
            if weight > WEIGHT_KEPT or key in self._results:
                return
            self._results[key] = result, weight
            self._weight += weight
            while self._weight > WEIGHT_KEPT:
                self._weight -= self._results.pop(next(iter(self._results)))[1]


_written: _Recent[tuple[SeriesLabels, ...], bytes] = _Recent()
_read: _Recent[bytes, tuple[SeriesLabels, ...]] = _Recent()


def _encode(series: Sequence[SeriesLabels]) -> bytes:
    if len(series) > SERIES_MAX:
        raise ChunkError(f"{len(series)} series; a chunk holds up to {SERIES_MAX}")
    if sum(map(len, series)) > LABELS_MAX:
        raise ChunkError(f"the series have more than {LABELS_MAX} labels together")
    numbers: dict[tuple[str, ...], int] = {}
    tables: list[_Table] = []
    table_of = []
    for labels in series:
        names = tuple([name for name, _ in labels.stored])
        number = numbers.setdefault(names, len(tables))
        if number == len(tables):
            tables.append(_Table(names))
        tables[number].rows.append(tuple([value for _, value in labels.stored]))
        table_of.append(number)
    out = bytearray()
    texts = {text for table in tables for texts in (table.names, *table.rows) for text in texts}
    number_of = encode_texts(out, texts)
    out += _Writer(number_of, tables, len(series)).tables(table_of)
    return bytes(out)


def _decode(block: bytes, offset: int) -> tuple[SeriesLabels, ...]:
    reader = Reader(block, 0, len(block), offset)
    texts = decode_texts(reader)
    at = offset + 8 * reader.at
    return _TableReader(texts, reader.take(reader.end - reader.at), at).series()


def _number_width(texts: int) -> int:
    """How many bits the number of a string takes."""
    return max(texts - 1, 0).bit_length()


class _Writer:
    def __init__(self, number_of: dict[str, int], tables: list[_Table], series: int) -> None:
        self._number_of = number_of
        self._width = _number_width(len(number_of))
        self._tables = tables
        # A row of a column is at most a miss, an index and the number of a new string.
        cells = sum(len(table.names) * (len(table.rows) + 2) for table in tables) + series + len(tables) + 2
        self._words = np.zeros(cells * 80 // 64 + 2, np.uint64)
        self._at = 0

    def tables(self, table_of: list[int]) -> bytes:
        self._at = put_count(self._words, 0, len(table_of))
        self._sequence(np.array(table_of, np.int64))
        for table in self._tables:
            self._at = put_count(self._words, self._at, len(table.names))
            self._texts(table.names)
            written: list[_Written] = []
            for values in zip(*table.rows, strict=True):
                known: dict[str, int] = {}
                ids = np.array([known.setdefault(value, len(known)) for value in values], np.int64)
                self._column(ids, list(known), written)
        return bytes_of(self._words, self._at)

    def _column(self, ids: I64Array, values: list[str], before: list[_Written]) -> None:
        """Append a column; `before` are those that were written as sequences, to which this one may be added."""
        settled_by, settled_values = self._settled_by(ids, values, before)
        if settled_by >= 0:
            self._bits(1, 1)
            self._bits(settled_by, _number_width(len(before)))
            self._texts(settled_values)
            return
        if before:
            self._bits(0, 1)
        self._sequence(ids)
        self._texts(values)
        before.append((ids, len(values)))

    def _settled_by(self, ids: I64Array, values: list[str], before: list[_Written]) -> tuple[int, list[str]]:
        """The earlier column of the fewest different values that settles this one, with the value for each of them;
        -1 when there is none or the column is shorter by itself."""
        best, best_values = -1, values
        least = int(sequence_bits(ids)) + self._width * len(values) - _number_width(len(before))
        for number, (others, others_known) in enumerate(before):
            if others_known * self._width >= least:
                continue
            first = np.empty(others_known, np.int64)
            first[others[::-1]] = ids[::-1]
            if np.array_equal(first[others], ids):
                least = others_known * self._width
                best, best_values = number, [values[i] for i in first.tolist()]
        return best, best_values

    def _bits(self, value: int, width: int) -> None:
        self._at = put(self._words, self._at, np.uint64(value), width)

    def _texts(self, texts: Sequence[str]) -> None:
        numbers = np.array([self._number_of[text] for text in texts], np.int64)
        self._at = put_numbers(self._words, self._at, numbers, self._width)

    def _sequence(self, ids: I64Array) -> None:
        self._at = put_sequence(self._words, self._at, ids)


class _TableReader:
    """Reads the tables. offset: where they begin in the chunk, in bits, for errors."""

    def __init__(self, texts: list[str], raw: bytes, offset: int) -> None:
        self._texts_by_number = texts
        self._width = _number_width(len(texts))
        self._words = words_of(raw)
        self._end = 8 * len(raw)
        self._offset = offset
        self._at = 0

    def series(self) -> tuple[SeriesLabels, ...]:
        table_of, table_count = self._sequence(self._count(SERIES_MAX))
        left = LABELS_MAX
        rows = np.bincount(table_of, minlength=table_count)
        tables = []
        for number in range(table_count):
            tables.append(self._table(int(rows[number]), left))
            left -= len(tables[-1].names) * int(rows[number])
        if self._end - self._at >= 8 or get(self._words, self._at, self._end - self._at):
            raise self._error("bits follow the last table")
        pending = [iter(table.rows) for table in tables]
        return tuple(
            [SeriesLabels(dict(zip(tables[t].names, next(pending[t]), strict=True))) for t in table_of.tolist()]
        )

    def _table(self, rows: int, labels_left: int) -> _Table:
        names = tuple(self._texts(self._count(labels_left // rows)))
        if len(set(names)) < len(names):
            raise self._error("a label name occurs twice in a series")
        written: list[_Written] = []
        texts = []
        for _ in names:
            if written and self._bits(1):
                by = self._bits(_number_width(len(written)))
                if by >= len(written):
                    raise self._error(f"column {by} of {len(written)}")
                ids, known = written[by]
            else:
                ids, known = self._sequence(rows)
                written.append((ids, known))
            values = self._texts(known)
            texts.append([values[i] for i in ids.tolist()])
        return _Table(names, list(zip(*texts, strict=True)) if names else [()] * rows)

    def _sequence(self, length: int) -> tuple[I64Array, int]:
        ids: NDArray[np.int64] = np.empty(length, np.int64)
        at, known = get_sequence(self._words, self._at, self._end, ids)
        if known < 0:
            raise self._error("a sequence that cannot be, or that runs out")
        self._at = at
        return ids, known

    def _texts(self, count: int) -> list[str]:
        if self._width * count > self._end - self._at or (count and not self._texts_by_number):
            raise self._error(f"{count} strings announced, and too little follows")
        numbers: NDArray[np.int64] = np.empty(count, np.int64)
        self._at = get_numbers(self._words, self._at, numbers, self._width)
        try:
            return [self._texts_by_number[number] for number in numbers.tolist()]
        except IndexError:
            raise self._error(f"a string beyond the {len(self._texts_by_number)} there are") from None

    def _count(self, most: int) -> int:
        at, count = get_count(self._words, self._at)
        if not 0 <= count <= most:
            raise self._error(f"a number that must lie between 0 and {most} does not")
        self._at = at
        return int(count)

    def _bits(self, width: int) -> int:
        value = int(get(self._words, self._at, width))
        self._at += width
        if self._at > self._end:
            raise self._error("the identities end too early")
        return value

    def _error(self, message: str) -> ChunkError:
        return ChunkError(message, self._offset + min(self._at, self._end))


@borrowing
def put_numbers(words: U64Array, at: int, numbers: I64Array, width: int) -> int:
    """Append the numbers in so many bits each."""
    for number in numbers:
        at = put(words, at, np.uint64(number), width)
    return at


@borrowing
def get_numbers(words: U64Array, at: int, numbers: I64Array, width: int) -> int:
    """Fill numbers, of so many bits each (less than 64)."""
    for i in range(len(numbers)):
        numbers[i] = signed(get(words, at, width))
        at += width
    return at


@njit(cache=True)
def put_sequence(words: U64Array, at: int, ids: I64Array) -> int:
    """Append ids, numbered by first appearance: how many come as expected, the one that does not, and so on.

    Expected is what followed the same id the last time; the same id again when nothing has yet.
    """
    n = len(ids)
    follower = np.full(n, -1, np.int64)
    known, hits = 1, 0
    for i in range(1, n):
        before = ids[i - 1]
        expected = follower[before] if follower[before] >= 0 else before
        follower[before] = ids[i]
        if ids[i] == expected:
            hits += 1
            continue
        at = put_count(words, at, hits)
        at = put(words, at, np.uint64(ids[i]), bit_length(np.uint64(known)))
        known = max(known, ids[i] + 1)
        hits = 0
    return put_count(words, at, hits) if n > 1 else at


@njit(cache=True)
def sequence_bits(ids: I64Array) -> int:
    """What put_sequence takes."""
    n = len(ids)
    follower = np.full(n, -1, np.int64)
    known, hits, total = 1, 0, 0
    for i in range(1, n):
        before = ids[i - 1]
        expected = follower[before] if follower[before] >= 0 else before
        follower[before] = ids[i]
        if ids[i] == expected:
            hits += 1
            continue
        total += count_bits(hits) + bit_length(np.uint64(known))
        known = max(known, ids[i] + 1)
        hits = 0
    return total + count_bits(hits)


@njit(cache=True)
def get_sequence(words: U64Array, at: int, end: int, ids: I64Array) -> tuple[int, int]:
    """Fill ids. Returns (position, how many different ones); -1 for a sequence that cannot be."""
    n = len(ids)
    if n == 0:
        return at, 0
    follower = np.full(n, -1, np.int64)
    ids[0] = 0
    if n == 1:
        return at, 1
    known = 1
    at, hits = get_count(words, at)
    for i in range(1, n):
        before = ids[i - 1]
        expected = follower[before] if follower[before] >= 0 else before
        if hits == 0:
            width = bit_length(np.uint64(known))
            expected = signed(get(words, at, width))
            at, hits = get_count(words, at + width)
            if expected > known or at > end:
                return at, -1
            known = max(known, expected + 1)
        else:
            hits -= 1
        ids[i] = expected
        follower[before] = expected
    return at, known if hits == 0 and at <= end else -1
