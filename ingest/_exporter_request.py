"""opentelemetry-sdk metrics -> ExportMetricsServiceRequest bytes, several collections in one request.

The frame (resources, scopes, metrics, numbers) is written here, with the encodings of names and attribute sets
remembered, because a sampler collects the same series a hundred times a second; the parts that are rare or intricate
(attribute values, histograms, exemplars) are left to opentelemetry-proto's classes. Points of one metric from several
collections share one Metric message, so a batch carries each name once.

Source: opentelemetry-proto, metrics/v1/metrics.proto (field numbers) and the protobuf encoding guide.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    Sum,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope as Scope

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
REMEMBERED_MAX = 20_000

# Numbers of the fields that are written here; all are length-delimited unless said.
REQUEST_RESOURCE_METRICS = 1
RESOURCE_METRICS_RESOURCE, RESOURCE_METRICS_SCOPE_METRICS, RESOURCE_METRICS_SCHEMA_URL = 1, 2, 3
SCOPE_METRICS_SCOPE, SCOPE_METRICS_METRICS, SCOPE_METRICS_SCHEMA_URL = 1, 2, 3
METRIC_NAME, METRIC_DESCRIPTION, METRIC_UNIT = 1, 2, 3
METRIC_GAUGE, METRIC_SUM, METRIC_HISTOGRAM, METRIC_EXPONENTIAL = 5, 7, 9, 10
DATA_POINTS, DATA_TEMPORALITY, DATA_MONOTONIC = 1, 2, 3
POINT_ATTRIBUTES, POINT_EXEMPLARS = 7, 5

# A number point's tail: start time (2, fixed64), time (3, fixed64), value (4, double or 6, sfixed64); little-endian.
_STARTED_INT = struct.Struct("<BQBQBq")
_STARTED_DOUBLE = struct.Struct("<BQBQBd")
_INT = struct.Struct("<BQBq")
_DOUBLE = struct.Struct("<BQBd")
_START, _TIME, _AS_DOUBLE, _AS_INT = 2 << 3 | 1, 3 << 3 | 1, 4 << 3 | 1, 6 << 3 | 1

# The longest tag and length around a message whose size fits a Kafka record.
_HEADER_BYTES_MAX = 6


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _delimited(field_number: int, payload: bytes) -> bytes:
    return _varint(field_number << 3 | 2) + _varint(len(payload)) + payload


def _text(field_number: int, text: str | None) -> bytes:
    return _delimited(field_number, text.encode("utf-8", "replace")) if text else b""


def any_value(value: object) -> AnyValue:
    """An attribute value as OTLP's AnyValue; None is the empty value. An integer outside int64 becomes text."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value.encode("utf-8", "replace").decode())
    if isinstance(value, int):
        return AnyValue(int_value=value) if INT64_MIN <= value <= INT64_MAX else AnyValue(string_value=str(value))
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if value is None:
        return AnyValue()
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=key_values(value)))
    if isinstance(value, Sequence):
        return AnyValue(array_value=ArrayValue(values=[any_value(inner) for inner in value]))
    return AnyValue(string_value=str(value))


def key_values(attributes: Mapping[str, Any] | None) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in (attributes or {}).items()]


def _attributes_bytes(attributes: Mapping[str, Any] | None) -> bytes:
    return b"".join(_delimited(POINT_ATTRIBUTES, pair.SerializeToString()) for pair in key_values(attributes))


def _exemplars(point: NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint) -> Iterator[pb.Exemplar]:
    for exemplar in point.exemplars or ():
        message = pb.Exemplar(
            time_unix_nano=exemplar.time_unix_nano, filtered_attributes=key_values(exemplar.filtered_attributes)
        )
        if isinstance(exemplar.value, int) and INT64_MIN <= exemplar.value <= INT64_MAX:
            message.as_int = exemplar.value
        else:
            message.as_double = exemplar.value
        if exemplar.span_id is not None and exemplar.trace_id is not None:
            message.span_id = exemplar.span_id.to_bytes(8, "big")
            message.trace_id = exemplar.trace_id.to_bytes(16, "big")
        yield message


def _set_extremes(
    message: pb.HistogramDataPoint | pb.ExponentialHistogramDataPoint,
    point: HistogramDataPoint | ExponentialHistogramDataPoint,
) -> None:
    """The SDK says "not recorded" with an infinite minimum and maximum."""
    if point.min is not None and math.isfinite(point.min):
        message.min = point.min
    if point.max is not None and math.isfinite(point.max):
        message.max = point.max


def _histogram_point(point: HistogramDataPoint) -> bytes:
    message = pb.HistogramDataPoint(
        attributes=key_values(point.attributes),
        start_time_unix_nano=point.start_time_unix_nano or 0,
        time_unix_nano=point.time_unix_nano,
        count=point.count,
        sum=point.sum,
        bucket_counts=point.bucket_counts,
        explicit_bounds=point.explicit_bounds,
        exemplars=_exemplars(point),
    )
    _set_extremes(message, point)
    return message.SerializeToString()


def _exponential_point(point: ExponentialHistogramDataPoint) -> bytes:
    buckets = pb.ExponentialHistogramDataPoint.Buckets
    message = pb.ExponentialHistogramDataPoint(
        attributes=key_values(point.attributes),
        start_time_unix_nano=point.start_time_unix_nano or 0,
        time_unix_nano=point.time_unix_nano,
        count=point.count,
        sum=point.sum,
        scale=point.scale,
        zero_count=point.zero_count,
        positive=buckets(offset=point.positive.offset, bucket_counts=point.positive.bucket_counts),
        negative=buckets(offset=point.negative.offset, bucket_counts=point.negative.bucket_counts),
        flags=point.flags,
        exemplars=_exemplars(point),
    )
    _set_extremes(message, point)
    return message.SerializeToString()


@dataclass(slots=True)
class _MetricBatch:
    """Points of one metric. `head` is everything before the points, `tail` what follows them inside the point list."""

    head: bytes
    data_field: int
    tail: bytes
    points: list[bytes] = field(default_factory=list)

    def encoded(self) -> bytes:
        parts: list[bytes] = []
        for point in self.points:
            size = len(point)
            parts.append(b"\x0a" + (bytes((size,)) if size < 0x80 else _varint(size)))
            parts.append(point)
        parts.append(self.tail)
        return self.head + _delimited(self.data_field, b"".join(parts))


_MetricKey = tuple[bytes, bytes, str, str | None, str | None, int, bytes]


class RequestBatch:
    """Collects points until a request is taken.

    `size_bytes` is an upper bound of the request's size. `refused` counts points that alone exceed the limit or whose
    kind of data is unknown.
    """

    def __init__(self, *, bytes_max: int, starts_ns: Mapping[str, int] | None = None) -> None:
        """bytes_max: no request gets larger; a collection that is, is split between points.

        starts_ns: start times (ns since the epoch) that replace the SDK's own for sums of the named instrumentation
        scopes. The SDK starts a cumulative sum at its first measurement, which is wrong for a counter that the kernel
        has kept since boot.
        """
        self.bytes_max = bytes_max
        self.refused = 0
        self._starts_ns = dict(starts_ns or {})
        # Encodings by the object's identity; the object is kept, so that its identity stays its own.
        self._resources: dict[int, tuple[Resource, bytes]] = {}
        self._scopes: dict[int, tuple[Scope, bytes]] = {}
        self._attributes: dict[int, tuple[Mapping[str, Any] | None, dict[str, Any], bytes]] = {}
        self._clear()

    def _clear(self) -> None:
        self._metrics: dict[_MetricKey, _MetricBatch] = {}
        self._groups: set[tuple[bytes, bytes]] = set()
        self._known_resources: set[bytes] = set()
        self.size_bytes = 0
        self.points = 0
        self.collections = 0
        self.newest_ns = 0

    def add(self, metrics_data: MetricsData) -> list[tuple[bytes, int]]:
        """Add one collection. Returns the requests that had to be taken on the way because they were full, each with
        its newest point's time in ns."""
        taken: list[tuple[bytes, int]] = []
        for resource_metrics in metrics_data.resource_metrics:
            resource = self._resource_bytes(resource_metrics.resource, resource_metrics.schema_url)
            for scope_metrics in resource_metrics.scope_metrics:
                scope = self._scope_bytes(scope_metrics.scope, scope_metrics.schema_url)
                start_ns = self._starts_ns.get(scope_metrics.scope.name)
                for metric in scope_metrics.metrics:
                    self._add_metric(resource, scope, metric, start_ns, taken)
        self.collections += 1
        return taken

    def take(self) -> tuple[bytes, int] | None:
        """The request of everything added since the last one and its newest point's time (ns); None when empty."""
        if not self.points:
            self._clear()
            return None
        request, newest_ns = self._encoded(), self.newest_ns
        self._clear()
        return request, newest_ns

    def _encoded(self) -> bytes:
        by_resource: dict[bytes, dict[bytes, list[bytes]]] = {}
        for (resource, scope, *_), batch in self._metrics.items():
            metrics = by_resource.setdefault(resource, {}).setdefault(scope, [])
            metrics.append(_delimited(SCOPE_METRICS_METRICS, batch.encoded()))
        return b"".join(
            _delimited(
                REQUEST_RESOURCE_METRICS,
                resource
                + b"".join(
                    _delimited(RESOURCE_METRICS_SCOPE_METRICS, scope + b"".join(metrics))
                    for scope, metrics in scopes.items()
                ),
            )
            for resource, scopes in by_resource.items()
        )

    def _add_metric(
        self, resource: bytes, scope: bytes, metric: Metric, start_ns: int | None, taken: list[tuple[bytes, int]]
    ) -> None:
        data_field, tail, start_ns = self._kind(metric, start_ns)
        if data_field == 0:
            self.refused += 1
            return
        key = (resource, scope, metric.name, metric.description, metric.unit, data_field, tail)
        batch: _MetricBatch | None = None
        for time_ns, point in self._points(metric.data, start_ns):
            size = len(point) + _HEADER_BYTES_MAX
            if batch is None or self.size_bytes + size > self.bytes_max:
                batch = self._room(key, size, taken)
                if batch is None:
                    self.refused += 1
                    continue
            batch.points.append(point)
            self.size_bytes += size
            self.points += 1
            self.newest_ns = max(self.newest_ns, time_ns)

    def _room(self, key: _MetricKey, point_bytes: int, taken: list[tuple[bytes, int]]) -> _MetricBatch | None:
        """The metric's batch with room for a point; takes the request when it is full. None when the point is too
        large for a request of its own."""
        batch, cost = self._opened(key)
        if self.size_bytes + cost + point_bytes > self.bytes_max:
            full = self.take()
            if full is not None:
                taken.append(full)
            batch, cost = self._opened(key)
            if cost + point_bytes > self.bytes_max:
                return None
        resource, scope = key[:2]
        self._metrics[key] = batch
        self._groups.add((resource, scope))
        self._known_resources.add(resource)
        self.size_bytes += cost
        return batch

    def _opened(self, key: _MetricKey) -> tuple[_MetricBatch, int]:
        """The metric's batch, new if absent, and what opening it adds to the size."""
        batch = self._metrics.get(key)
        if batch is not None:
            return batch, 0
        resource, scope, name, description, unit, data_field, tail = key
        head = _text(METRIC_NAME, name) + _text(METRIC_DESCRIPTION, description) + _text(METRIC_UNIT, unit)
        batch = _MetricBatch(head, data_field, tail)
        cost = len(head) + len(tail) + 2 * _HEADER_BYTES_MAX
        if (resource, scope) not in self._groups:
            cost += len(scope) + _HEADER_BYTES_MAX
        if resource not in self._known_resources:
            cost += len(resource) + _HEADER_BYTES_MAX
        return batch, cost

    @staticmethod
    def _kind(metric: Metric, start_ns: int | None) -> tuple[int, bytes, int | None]:
        """Field number of the metric's data, the bytes that follow its points, the start time that replaces its own."""
        data: object = metric.data
        if isinstance(data, Gauge):
            return METRIC_GAUGE, b"", None
        if isinstance(data, Sum):
            temporality = bytes((DATA_TEMPORALITY << 3, int(data.aggregation_temporality)))
            monotonic = bytes((DATA_MONOTONIC << 3, 1)) if data.is_monotonic else b""
            delta = data.aggregation_temporality is AggregationTemporality.DELTA
            return METRIC_SUM, temporality + monotonic, None if delta else start_ns
        if isinstance(data, Histogram):
            return METRIC_HISTOGRAM, bytes((DATA_TEMPORALITY << 3, int(data.aggregation_temporality))), None
        if isinstance(data, ExponentialHistogram):
            return METRIC_EXPONENTIAL, bytes((DATA_TEMPORALITY << 3, int(data.aggregation_temporality))), None
        return 0, b"", None

    def _points(
        self, data: Sum | Gauge | Histogram | ExponentialHistogram, start_ns: int | None
    ) -> Iterator[tuple[int, bytes]]:
        """Each point's time and bytes."""
        if isinstance(data, Sum | Gauge):
            for number in data.data_points:
                yield number.time_unix_nano, self._number_point(number, start_ns or number.start_time_unix_nano)
        elif isinstance(data, Histogram):
            for histogram in data.data_points:
                yield histogram.time_unix_nano, _histogram_point(histogram)
        else:
            for exponential in data.data_points:
                yield exponential.time_unix_nano, _exponential_point(exponential)

    def _number_point(self, point: NumberDataPoint, start_ns: int | None) -> bytes:
        value, time_ns = point.value, point.time_unix_nano
        if isinstance(value, int) and INT64_MIN <= value <= INT64_MAX:
            tail = (
                _STARTED_INT.pack(_START, start_ns, _TIME, time_ns, _AS_INT, value)
                if start_ns
                else _INT.pack(_TIME, time_ns, _AS_INT, value)
            )
        else:
            tail = (
                _STARTED_DOUBLE.pack(_START, start_ns, _TIME, time_ns, _AS_DOUBLE, value)
                if start_ns
                else _DOUBLE.pack(_TIME, time_ns, _AS_DOUBLE, value)
            )
        if point.exemplars:
            tail += b"".join(_delimited(POINT_EXEMPLARS, each.SerializeToString()) for each in _exemplars(point))
        return self._remembered_attributes(point.attributes) + tail

    def _remembered_attributes(self, attributes: Mapping[str, Any] | None) -> bytes:
        found = self._attributes.get(id(attributes))
        if found is not None and found[1] == attributes:
            return found[2]
        if len(self._attributes) >= REMEMBERED_MAX:
            self._attributes.clear()
        encoded = _attributes_bytes(attributes)
        # The copy notices an object that its owner has changed since.
        self._attributes[id(attributes)] = (attributes, dict(attributes or {}), encoded)
        return encoded

    def _resource_bytes(self, resource: Resource, schema_url: str | None) -> bytes:
        """The resource's and its schema's fields of a ResourceMetrics message."""
        found = self._resources.get(id(resource))
        if found is not None:
            return found[1]
        if len(self._resources) >= REMEMBERED_MAX:
            self._resources.clear()
        message = ResourceMessage(attributes=key_values(resource.attributes))
        encoded = _delimited(RESOURCE_METRICS_RESOURCE, message.SerializeToString())
        encoded += _text(RESOURCE_METRICS_SCHEMA_URL, schema_url)
        self._resources[id(resource)] = (resource, encoded)
        return encoded

    def _scope_bytes(self, scope: Scope, schema_url: str | None) -> bytes:
        """The scope's and its schema's fields of a ScopeMetrics message."""
        found = self._scopes.get(id(scope))
        if found is not None:
            return found[1]
        if len(self._scopes) >= REMEMBERED_MAX:
            self._scopes.clear()
        message = InstrumentationScope(
            name=scope.name, version=scope.version or "", attributes=key_values(scope.attributes)
        )
        encoded = _delimited(SCOPE_METRICS_SCOPE, message.SerializeToString())
        encoded += _text(SCOPE_METRICS_SCHEMA_URL, schema_url)
        self._scopes[id(scope)] = (scope, encoded)
        return encoded
