"""What the readers of OTLP bytes share: the error they raise, and the wire format's first layer in plain Python.

Source: Protocol Buffers, "Encoding"; opentelemetry/proto/metrics/v1/metrics.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)

RESOURCE_METRICS = 1
"""The field of a request."""

DEPTH_MAX = 64
"""Messages inside messages. OTLP's own need ten, an attribute's arrays and maps the rest; protobuf gives up at 100."""


class OtlpError(ValueError):
    """Bytes that are not an OTLP metrics request.

    reason: a short slug for counters and the dead letter's header: empty, truncated, varint, field_number, wire_type,
    group, nesting, utf8, not_metrics, json. at: byte offset at which reading ended, None where it is unknown.
    """

    def __init__(self, reason: str, text: str, at: int | None = None) -> None:
        super().__init__(text if at is None else f"{text} (byte {at})")
        self.reason = reason
        self.at = at


class Field(NamedTuple):
    """One field of a message: its bytes are raw[start:stop], its payload raw[body:stop]."""

    number: int
    wire: int
    start: int
    body: int
    stop: int


def read_varint(raw: bytes, at: int, stop: int) -> tuple[int, int]:
    """The varint at `at` and the place behind it. At most 64 bits; raises OtlpError `truncated` or `varint`."""
    value = shift = 0
    start = at
    while at < stop:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise OtlpError("varint", "a number has more than 64 bits", start)
            return value, at
        shift += 7
        if shift == 70:
            raise OtlpError("varint", "a number has more than ten bytes", start)
    raise OtlpError("truncated", "the bytes end inside a number", start)


def read_fields(raw: bytes, start: int, stop: int) -> Iterator[Field]:
    """The fields of the message raw[start:stop], in their order. Raises OtlpError; groups are refused."""
    at = start
    while at < stop:
        head = at
        tag, body = read_varint(raw, at, stop)
        number, wire = tag >> 3, tag & 7
        if number == 0 or tag >> 32 or body - head > 5:
            raise OtlpError("field_number", f"field number {number} is outside 1 to 536870911", head)
        if wire == LENGTH:
            size_at = body
            size, body = read_varint(raw, size_at, stop)
            if body - size_at > 5:
                raise OtlpError("varint", "a length has more than five bytes", size_at)
            at = body + size
        elif wire == VARINT:
            at = read_varint(raw, body, stop)[1]
        elif wire == FIXED64:
            at = body + 8
        elif wire == FIXED32:
            at = body + 4
        elif wire in (START_GROUP, END_GROUP):
            raise OtlpError("group", f"field {number} is a group, which OTLP has none of", head)
        else:
            raise OtlpError("wire_type", f"field {number} has wire type {wire}, which does not exist", head)
        if at > stop:
            raise OtlpError("truncated", f"field {number} is longer than what contains it", head)
        yield Field(number, wire, head, body, at)


def read_request(request: bytes) -> list[Field]:
    """The ResourceMetrics of a request. Raises OtlpError, also when there is none.

    An unknown field at the top is skipped if there is a known one: a later version of the protocol may add it.
    """
    if not request:
        raise OtlpError("empty", "the record has no value")
    found = []
    for field in read_fields(request, 0, len(request)):
        if field.number == RESOURCE_METRICS:
            if field.wire != LENGTH:
                raise OtlpError("wire_type", "field 1 of a metrics request is no message", field.start)
            found.append(field)
    if not found:
        raise OtlpError("not_metrics", "the bytes hold no resource metrics", 0)
    return found


def length_field(number: int, body: bytes) -> bytes:
    """A field that holds a message, a string or bytes."""
    return _varint(number << 3 | LENGTH) + _varint(len(body)) + body


def length_field_size(body_size: int) -> int:
    """Bytes of such a field with a number below 16."""
    return 1 + len(_varint(body_size)) + body_size


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
