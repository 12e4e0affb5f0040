"""OTLP requests from templates: everything but times and values is encoded once.

Times, numbers and the counts of explicit histograms are fixed-width in OTLP's protobuf, so a node's whole collection is
a byte string with 8-byte slots to fill. Exponential histograms have varint counts and are written each time.

Source: opentelemetry-proto, metrics/v1/metrics.proto (field numbers), and the Protocol Buffers encoding guide.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from fleetpulse.ingest._otlp import length_field

SLOT = bytes(8)

# Tags, number << 3 | wire type.
_START, _TIME, _AS_DOUBLE, _AS_INT = b"\x11", b"\x19", b"\x21", b"\x31"
_HISTOGRAM_COUNT, _HISTOGRAM_SUM = b"\x21", b"\x29"
_CUMULATIVE, _MONOTONIC = b"\x10\x02", b"\x18\x01"

_NUMBER_ATTRIBUTES = 7
_HISTOGRAM_COUNTS, _HISTOGRAM_BOUNDS, _HISTOGRAM_ATTRIBUTES = 6, 7, 9
_EXPONENTIAL_ATTRIBUTES, _EXPONENTIAL_POSITIVE = 1, 8
_GAUGE, _SUM, _HISTOGRAM, _EXPONENTIAL = 5, 7, 9, 10

_fixed64 = struct.Struct("<Q").pack
_double = struct.Struct("<d").pack
_sfixed64 = struct.Struct("<q").pack


class Shape(Enum):
    """What a metric of numbers is."""

    GAUGE = "gauge"
    UP_DOWN = "sum that may fall"
    COUNTER = "monotonic cumulative sum"


@dataclass(frozen=True)
class Piece:
    """Encoded bytes with 8-byte slots: offsets of those that take the time, and of those that take values, in order."""

    raw: bytes
    times: tuple[int, ...] = ()
    values: tuple[int, ...] = ()


def joined(pieces: Iterable[Piece]) -> Piece:
    parts: list[bytes] = []
    times: list[int] = []
    values: list[int] = []
    at = 0
    for piece in pieces:
        parts.append(piece.raw)
        times.extend(offset + at for offset in piece.times)
        values.extend(offset + at for offset in piece.values)
        at += len(piece.raw)
    return Piece(b"".join(parts), tuple(times), tuple(values))


def enclosed(number: int, piece: Piece) -> Piece:
    """The piece as the content of a message field."""
    raw = length_field(number, piece.raw)
    head = len(raw) - len(piece.raw)
    return Piece(raw, tuple(at + head for at in piece.times), tuple(at + head for at in piece.values))


def attributes(number: int, pairs: Mapping[str, str]) -> bytes:
    """Repeated KeyValue fields of string values."""
    return b"".join(
        length_field(number, _text(1, key) + length_field(2, _text(1, value))) for key, value in pairs.items()
    )


def resource(pairs: Mapping[str, str]) -> bytes:
    """A ResourceMetrics' resource field."""
    return length_field(1, attributes(1, pairs))


def scope(name: str) -> bytes:
    """A ScopeMetrics' scope field."""
    return length_field(1, _text(1, name))


def number_metric(
    name: str, unit: str, shape: Shape, *, integer: bool, points: Sequence[Mapping[str, str]], start_ns: int
) -> Piece:
    """A ScopeMetrics' metric field, one point for each set of attributes. A gauge's points have no start."""
    start = b"" if shape is Shape.GAUGE else _START + _fixed64(start_ns)
    tag = _AS_INT if integer else _AS_DOUBLE
    body = [
        enclosed(
            1, joined((Piece(start), _time_slot(), _value_slot(tag), Piece(attributes(_NUMBER_ATTRIBUTES, pairs))))
        )
        for pairs in points
    ]
    if shape is not Shape.GAUGE:
        body.append(Piece(_CUMULATIVE + (_MONOTONIC if shape is Shape.COUNTER else b"")))
    return _metric(name, unit, _GAUGE if shape is Shape.GAUGE else _SUM, joined(body))


def histogram_metric(
    name: str, unit: str, *, bounds: Sequence[float], point: Mapping[str, str], start_ns: int
) -> Piece:
    """A metric field with one explicit-bucket point. Value slots: count, sum, then len(bounds) + 1 counts."""
    n = len(bounds) + 1
    counts = enclosed(_HISTOGRAM_COUNTS, Piece(SLOT * n, (), tuple(range(0, 8 * n, 8))))
    data_point = joined(
        (
            Piece(_START + _fixed64(start_ns)),
            _time_slot(),
            _value_slot(_HISTOGRAM_COUNT),
            _value_slot(_HISTOGRAM_SUM),
            counts,
            Piece(length_field(_HISTOGRAM_BOUNDS, b"".join(map(_double, bounds)))),
            Piece(attributes(_HISTOGRAM_ATTRIBUTES, point)),
        )
    )
    return _metric(name, unit, _HISTOGRAM, joined((enclosed(1, data_point), Piece(_CUMULATIVE))))


def exponential_metric(
    name: str,
    unit: str,
    *,
    point: bytes,
    start_ns: int,
    time_ns: int,
    total: float,
    scale: int,
    offset: int,
    counts: Sequence[int],
) -> bytes:
    """A metric field with one exponential point, positive range only. point: its encoded attributes."""
    positive = b"\x08" + varint(zigzag(offset)) + length_field(2, b"".join(map(varint, counts)))
    data_point = b"".join(
        (
            point,
            _START,
            _fixed64(start_ns),
            _TIME,
            _fixed64(time_ns),
            b"\x21" + _fixed64(sum(counts)),
            b"\x29" + _double(total),
            b"\x30" + varint(zigzag(scale)),
            length_field(_EXPONENTIAL_POSITIVE, positive),
        )
    )
    return _metric(name, unit, _EXPONENTIAL, Piece(length_field(1, data_point) + _CUMULATIVE)).raw


def exponential_attributes(pairs: Mapping[str, str]) -> bytes:
    return attributes(_EXPONENTIAL_ATTRIBUTES, pairs)


def varint(value: int) -> bytes:
    """value >= 0."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


class Sheet:
    """The templates of n nodes, filled together.

    Every piece must have the same number of time and of value slots.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        whole = joined(pieces)
        self._bytes = np.frombuffer(whole.raw, np.uint8).copy()
        self._ends = np.cumsum([0, *(len(piece.raw) for piece in pieces)]).tolist()
        self._times = _slot_bytes(whole.times)
        self._values = _slot_bytes(whole.values)
        self.values_per_node = len(whole.values) // len(pieces)
        self._times_per_node = len(whole.times) // len(pieces)

    def fill(self, times_ns: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        """times_ns: (n,). values: (n, values_per_node), the bits of doubles where a slot is a double's."""
        repeated = np.repeat(times_ns.astype("<i8"), self._times_per_node)
        self._bytes[self._times] = repeated.view(np.uint8).reshape(-1, 8)
        self._bytes[self._values] = np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(-1, 8)

    def node(self, index: int) -> bytes:
        return self._bytes[self._ends[index] : self._ends[index + 1]].tobytes()


def _slot_bytes(offsets: Sequence[int]) -> NDArray[np.int64]:
    """(slots, 8): the place of every byte of every slot."""
    return np.asarray(offsets, np.int64)[:, None] + np.arange(8)


def _metric(name: str, unit: str, kind: int, data: Piece) -> Piece:
    return enclosed(2, joined((Piece(_text(1, name) + _text(3, unit)), enclosed(kind, data))))


def _time_slot() -> Piece:
    return Piece(_TIME + SLOT, (1,))


def _value_slot(tag: bytes) -> Piece:
    return Piece(tag + SLOT, (), (1,))


def _text(number: int, text: str) -> bytes:
    return length_field(number, text.encode()) if text else b""
