"""Is it a metrics request, to the last field? In plain Python, driven by protobuf's own description of the messages."""

from __future__ import annotations

from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.ingest._otlp import (
    DEPTH_MAX,
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    OtlpError,
    read_fields,
    read_request,
    read_varint,
)

_WIRES = {
    FieldDescriptor.TYPE_DOUBLE: FIXED64,
    FieldDescriptor.TYPE_FIXED64: FIXED64,
    FieldDescriptor.TYPE_SFIXED64: FIXED64,
    FieldDescriptor.TYPE_FLOAT: FIXED32,
    FieldDescriptor.TYPE_FIXED32: FIXED32,
    FieldDescriptor.TYPE_SFIXED32: FIXED32,
    FieldDescriptor.TYPE_STRING: LENGTH,
    FieldDescriptor.TYPE_BYTES: LENGTH,
    FieldDescriptor.TYPE_MESSAGE: LENGTH,
}


def parse_request(raw: bytes) -> ExportMetricsServiceRequest:
    """The request as protobuf objects. Raises OtlpError.

    Stricter than protobuf: a known field of another wire type is refused, not skipped, and so are groups. Otherwise
    the bytes of a trace, a log or of something else can pass as a request without metrics.
    """
    read_request(raw)
    _check(raw, 0, len(raw), _shape(ExportMetricsServiceRequest.DESCRIPTOR), 0)
    try:
        return ExportMetricsServiceRequest.FromString(raw)
    except DecodeError:
        # Lengths, nesting and wire types are right, so that a string is not UTF-8.
        raise OtlpError("utf8", "a string is not UTF-8") from None


class _Shape:
    """A message type: by field number, its wire type, whether it may be packed, and the type of a message field."""

    def __init__(self) -> None:
        self.fields: dict[int, tuple[int, bool, _Shape | None]] = {}


@cache
def _shape(descriptor: Descriptor) -> _Shape:
    shapes: dict[str, _Shape] = {}

    def build(message: Descriptor) -> _Shape:
        if message.full_name in shapes:
            return shapes[message.full_name]
        shape = shapes[message.full_name] = _Shape()
        for field in message.fields:
            wire = _WIRES.get(field.type, VARINT)
            inner = build(field.message_type) if field.message_type is not None else None
            shape.fields[field.number] = (wire, wire != LENGTH and field.is_repeated, inner)
        return shape

    return build(descriptor)


def _check(raw: bytes, start: int, stop: int, shape: _Shape, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise OtlpError("nesting", f"messages nest deeper than {DEPTH_MAX}", start)
    for field in read_fields(raw, start, stop):
        known = shape.fields.get(field.number)
        if known is None:
            continue
        wire, packable, inner = known
        if packable and field.wire == LENGTH:
            _check_packed(raw, field.body, field.stop, wire)
        elif field.wire != wire:
            raise OtlpError("wire_type", f"field {field.number} has wire type {field.wire}, not {wire}", field.start)
        elif inner is not None:
            _check(raw, field.body, field.stop, inner, depth + 1)


def _check_packed(raw: bytes, start: int, stop: int, wire: int) -> None:
    if wire == VARINT:
        at = start
        while at < stop:
            at = read_varint(raw, at, stop)[1]
    elif (stop - start) % (8 if wire == FIXED64 else 4):
        raise OtlpError("truncated", "a packed field ends inside a number", stop)
