"""Requests that Hypothesis makes: every kind of point, sound and unsound, in every order of fields."""

from __future__ import annotations

import math
import random
from typing import Any

from google.protobuf.message import Message
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    SummaryDataPoint,
)

from fleetpulse.ingest._otlp import LENGTH, length_field, read_fields
from support.otlp_samples import NOW_NS, SECOND, any_value

names = st.sampled_from(["", "a", "b", "host.name", "k8s.cluster.name", "otel.metric.overflow", "größe", "x" * 40])
texts = st.sampled_from(["", "n1", "n2", "ü", "a much longer value than the others, of several words", "\x00"])
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), texts, st.binary(max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(names, inner, max_size=2)),
    max_leaves=4,
)
times = st.one_of(
    st.integers(NOW_NS - 400 * SECOND, NOW_NS),
    st.sampled_from([0, 1, NOW_NS, NOW_NS + 60 * SECOND, NOW_NS + 60 * SECOND + 1, 2**63, 2**64 - 1]),
)
flags = st.sampled_from([0, 0, 0, 0, 1, 2, 3, 2**32 - 1])
doubles = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.5, -1.0, math.nan, math.inf]))
counts = st.one_of(st.integers(0, 5), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1]))


@st.composite
def attributes(draw: st.DrawFn) -> list[KeyValue]:
    pairs = draw(st.lists(st.tuples(names, values), max_size=3))
    return [KeyValue(key=name, value=any_value(value)) for name, value in pairs]


def _head(draw: st.DrawFn, point: Any) -> None:
    point.time_unix_nano = draw(times)
    if draw(st.booleans()):
        point.start_time_unix_nano = draw(times)
    point.flags = draw(flags)
    point.attributes.extend(draw(attributes()))


def _exemplars(draw: st.DrawFn, point: Any) -> None:
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        exemplar = point.exemplars.add(time_unix_nano=draw(times), trace_id=b"t" * 16, as_double=draw(doubles))
        exemplar.filtered_attributes.extend(draw(attributes()))


@st.composite
def number_points(draw: st.DrawFn) -> NumberDataPoint:
    point = NumberDataPoint()
    _head(draw, point)
    _exemplars(draw, point)
    match draw(st.sampled_from("didin")):
        case "i":
            point.as_int = draw(st.integers(-(2**63), 2**63 - 1))
        case "d":
            point.as_double = draw(doubles)
    return point


@st.composite
def histogram_points(draw: st.DrawFn) -> HistogramDataPoint:
    point = HistogramDataPoint()
    _head(draw, point)
    _exemplars(draw, point)
    point.bucket_counts.extend(draw(st.lists(counts, max_size=4)))
    size = draw(st.sampled_from([max(len(point.bucket_counts) - 1, 0)] * 4 + [0, 3]))
    bounds = sorted(draw(st.lists(st.floats(-1e9, 1e9), min_size=size, max_size=size, unique=True)))
    point.explicit_bounds.extend(bounds if draw(st.integers(0, 5)) else [draw(doubles) for _ in bounds])
    point.count = min(sum(point.bucket_counts), 2**64 - 1) if draw(st.integers(0, 4)) else draw(counts)
    for name in ("sum", "min", "max"):
        if draw(st.booleans()):
            setattr(point, name, draw(doubles))
    return point


@st.composite
def exponential_points(draw: st.DrawFn) -> ExponentialHistogramDataPoint:
    point = ExponentialHistogramDataPoint()
    _head(draw, point)
    _exemplars(draw, point)
    point.scale = draw(st.sampled_from([0, 3, -4, 20, -11, 21, -12, -(2**31)]))
    point.zero_count = draw(counts)
    for side in (point.positive, point.negative):
        if draw(st.booleans()):
            side.offset = draw(st.sampled_from([0, 5, -7, 2**31 - 1, -(2**31)]))
            side.bucket_counts.extend(draw(st.lists(counts, max_size=4)))
    whole = point.zero_count + sum(point.positive.bucket_counts) + sum(point.negative.bucket_counts)
    point.count = min(whole, 2**64 - 1) if draw(st.integers(0, 4)) else draw(counts)
    if draw(st.booleans()):
        point.zero_threshold = draw(doubles)
    for name in ("sum", "min", "max"):
        if draw(st.booleans()):
            setattr(point, name, draw(doubles))
    return point


@st.composite
def summary_points(draw: st.DrawFn) -> SummaryDataPoint:
    point = SummaryDataPoint()
    _head(draw, point)
    point.count = draw(counts)
    point.sum = draw(doubles)
    for _ in range(draw(st.integers(0, 3))):
        quantile = draw(st.sampled_from([0.0, 0.5, 0.99, 1.0, 1.5, -0.0, -0.1, math.nan]))
        point.quantile_values.add(quantile=quantile, value=draw(doubles))
    return point


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    metric = Metric(name=draw(names), description=draw(texts), unit=draw(st.sampled_from(["", "s", "By"])))
    metric.metadata.extend(draw(st.sampled_from([[], []])) or (draw(attributes()) if draw(st.booleans()) else []))
    kind, points = draw(
        st.sampled_from(
            [
                ("gauge", number_points),
                ("sum", number_points),
                ("sum", number_points),
                ("histogram", histogram_points),
                ("exponential_histogram", exponential_points),
                ("summary", summary_points),
                ("", number_points),
            ]
        )
    )
    if kind:
        data = getattr(metric, kind)
        data.data_points.extend(draw(st.lists(points(), max_size=4)))
        if kind not in ("gauge", "summary"):
            data.aggregation_temporality = draw(st.sampled_from([1, 2, 2, 2, 0, 3, -1]))
        if kind == "sum":
            data.is_monotonic = draw(st.booleans())
        data.SetInParent()
    return metric


@st.composite
def resources(draw: st.DrawFn) -> ResourceMetrics:
    made = ResourceMetrics(schema_url=draw(texts))
    node = draw(st.sampled_from(["", "n1", "n1", "n2", "n3"]))
    if node:
        made.resource.attributes.add(key="host.name", value=any_value(node))
    made.resource.attributes.extend(draw(attributes()))
    for _ in range(draw(st.integers(0, 2))):
        scope = ScopeMetrics(schema_url=draw(texts))
        if draw(st.booleans()):
            scope.scope.name = draw(names)
            scope.scope.version = draw(texts)
            scope.scope.attributes.extend(draw(attributes()))
        scope.metrics.extend(draw(st.lists(metrics(), max_size=3)))
        made.scope_metrics.append(scope)
    return made


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Protobuf bytes; as often as not rewritten as no serializer of ours would."""
    message = ExportMetricsServiceRequest(resource_metrics=draw(st.lists(resources(), max_size=4)))
    raw = message.SerializeToString()
    if not draw(st.booleans()):
        return raw
    return rewritten(raw, message, random.Random(draw(st.integers(0, 2**32))))


def rewritten(raw: bytes, message: Message, chance: random.Random) -> bytes:
    """The same message otherwise: fields shuffled, packed ones unpacked or in pieces, unknown ones added, messages cut
    in two, long varints. Only what protobuf reads as equal."""
    fields = {field.number: field for field in message.DESCRIPTOR.fields}
    parts: list[bytes] = []
    order: list[tuple[int, bytes]] = []
    for each in read_fields(raw, 0, len(raw)):
        field = fields[each.number]
        body = raw[each.body : each.stop]
        if field.message_type is not None:
            inner = field.message_type._concrete_class()
            body = rewritten(body, inner, chance)
            if not field.is_repeated and chance.random() < 0.1:
                cut = [part.stop for part in read_fields(body, 0, len(body))]
                at = chance.choice(cut) if cut else 0
                order.append((each.number, _field(each.number, body[:at], chance)))
                body = body[at:]
            order.append((each.number, _field(each.number, body, chance)))
        elif field.is_repeated and each.wire == LENGTH and field.type != field.TYPE_STRING:
            order += [(each.number, part) for part in _repacked(each.number, body, field.type, chance)]
        else:
            order.append((each.number, raw[each.start : each.stop]))
    if chance.random() < 0.2:
        order.append(
            (100, chance.choice([b"\xa0\x06\x05", b"\xa1\x06" + bytes(8), b"\xa2\x06\x02hi", b"\xa5\x06" + bytes(4)]))
        )
    by_number: dict[int, list[bytes]] = {}
    for number, part in order:
        by_number.setdefault(number, []).append(part)
    slots = [number for number, _ in order]
    chance.shuffle(slots)
    for number in slots:
        parts.append(by_number[number].pop(0))
    return b"".join(parts)


def _field(number: int, body: bytes, chance: random.Random) -> bytes:
    plain = length_field(number, body)
    if len(body) < 128 and number < 16 and chance.random() < 0.1:
        return plain[:1] + bytes([len(body) | 0x80, 0x80, 0x00]) + body
    return plain


def _repacked(number: int, body: bytes, kind: int, chance: random.Random) -> list[bytes]:
    """A packed run as it is, in two runs, or one by one."""
    if kind == 4:  # uint64: varints
        items, item = [], b""
        for byte in body:
            item += bytes([byte])
            if byte < 0x80:
                items.append(item)
                item = b""
        wire = 0
    else:
        items = [body[i : i + 8] for i in range(0, len(body), 8)]
        wire = 1
    match chance.randrange(3):
        case 0:
            return [length_field(number, body)]
        case 1:
            at = chance.randrange(len(items) + 1)
            return [length_field(number, b"".join(items[:at])), length_field(number, b"".join(items[at:]))]
    return [bytes([number << 3 | wire]) + item for item in items]
