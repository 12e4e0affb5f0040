"""KafkaMetricExporter: what the SDK collected is what a consumer decodes; failures are reported, in time, once."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics._internal.exemplar import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from fleetpulse.ingest._embedded import embedded_broker
from fleetpulse.ingest._exporter import KafkaMetricExporter
from fleetpulse.ingest._exporter_request import RequestBatch

CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA
RESOURCE = Resource({"host.name": "node-1", "ports": (1, 2), "ready": True}, "https://example.org/resource")
SCOPE = InstrumentationScope("tests", "1.2", "https://example.org/scope", {"team": "blue"})

ATTRIBUTES: dict[str, Any] = {
    "text": "größe",
    "empty": "",
    "true": True,
    "one": 1,
    "int_min": -(2**63),
    "too_large": 2**63,
    "float": 1.0,
    "bytes": b"\x00\xff",
    "none": None,
    "list": ("a", 1, False, (2.5,)),
    "map": {"inner": {"deep": 7}},
}


def plain_value(value: Any) -> Any:
    """An AnyValue as (kind, value): 1, 1.0 and True are three things."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return kind, [plain_value(inner) for inner in value.array_value.values]
    if kind == "kvlist_value":
        return kind, plain_pairs(value.kvlist_value.values)
    return kind, getattr(value, kind)


def plain_pairs(pairs: Any) -> dict[str, Any]:
    assert len({pair.key for pair in pairs}) == len(pairs)
    return {pair.key: plain_value(pair.value) for pair in pairs}


def expected_value(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return "array_value", [expected_value(inner) for inner in value]
    if isinstance(value, dict):
        return "kvlist_value", {key: expected_value(inner) for key, inner in value.items()}
    if type(value) is int and not -(2**63) <= value < 2**63:
        return "string_value", str(value)
    return f"{ {str: 'string', bool: 'bool', int: 'int', float: 'double', bytes: 'bytes'}[type(value)] }_value", value


def points_of(request: bytes) -> list[tuple[Any, ...]]:
    """Every point of a request with all that surrounds it, in the order of the bytes."""
    message = ExportMetricsServiceRequest.FromString(request)
    points = []
    for of_resource in message.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                around = (
                    plain_pairs(of_resource.resource.attributes),
                    of_resource.schema_url,
                    (of_scope.scope.name, of_scope.scope.version, plain_pairs(of_scope.scope.attributes)),
                    of_scope.schema_url,
                    (metric.name, metric.description, metric.unit, kind),
                    getattr(data, "aggregation_temporality", None),
                    getattr(data, "is_monotonic", None),
                )
                points += [(*around, point) for point in data.data_points]
    return points


def metrics(*data: Any, resource: Resource = RESOURCE, scope: InstrumentationScope = SCOPE) -> MetricsData:
    named = [Metric(f"m{number}", f"metric {number}", "By", each) for number, each in enumerate(data)]
    scope_metrics = ScopeMetrics(scope, named, scope.schema_url or "")
    return MetricsData([ResourceMetrics(resource, [scope_metrics], resource.schema_url)])


def number(value: float, time_ns: int = 20, attributes: Any = None, start_ns: Any = 10) -> NumberDataPoint:
    return NumberDataPoint(attributes, start_ns, time_ns, value)


def encode(*collections: MetricsData, **options: Any) -> bytes:
    batch = RequestBatch(bytes_max=10_000_000, **options)
    for collection in collections:
        assert batch.add(collection) == []
    taken = batch.take()
    assert taken is not None
    return taken[0]


def test_frame_names_and_attributes_of_every_type() -> None:
    request = encode(metrics(Gauge([number(1.5, attributes=ATTRIBUTES, start_ns=None)])))
    ((resource, resource_schema, scope, scope_schema, metric, temporality, monotonic, point),) = points_of(request)
    assert resource == {key: expected_value(value) for key, value in RESOURCE.attributes.items()}
    assert (resource_schema, scope_schema) == ("https://example.org/resource", "https://example.org/scope")
    assert scope == ("tests", "1.2", {"team": ("string_value", "blue")})
    assert (metric, temporality, monotonic) == (("m0", "metric 0", "By", "gauge"), None, None)
    assert plain_pairs(point.attributes) == {key: expected_value(value) for key, value in ATTRIBUTES.items()}
    assert (point.start_time_unix_nano, point.time_unix_nano, point.as_double) == (0, 20, 1.5)


@pytest.mark.parametrize("value", [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 0.0, -0.0, 1e-308, math.inf, math.nan])
def test_numbers_keep_type_and_every_bit(value: float) -> None:
    for started in (None, 10):
        ((*_, point),) = points_of(encode(metrics(Sum([number(value, start_ns=started)], CUMULATIVE, True))))
        kind = "as_int" if isinstance(value, int) else "as_double"
        assert point.WhichOneof("value") == kind
        assert math.copysign(1, getattr(point, kind)) == math.copysign(1, value)
        assert getattr(point, kind) == value or (math.isnan(value) and math.isnan(getattr(point, kind)))
        assert point.start_time_unix_nano == (started or 0)


def test_integer_beyond_int64_becomes_a_double() -> None:
    ((*_, point),) = points_of(encode(metrics(Gauge([number(2**64)]))))
    assert point.as_double == 2.0**64


@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
@pytest.mark.parametrize("monotonic", [True, False])
def test_sums_keep_temporality_and_monotonicity(temporality: AggregationTemporality, monotonic: bool) -> None:
    ((*_, wire_temporality, wire_monotonic, _),) = points_of(encode(metrics(Sum([number(1)], temporality, monotonic))))
    assert (wire_temporality, wire_monotonic) == (2 if temporality is CUMULATIVE else 1, monotonic)


def test_histograms_of_both_kinds() -> None:
    exemplar = Exemplar({"user": "x"}, 0.3, 15, 0xABC, 0xDEF)
    explicit = HistogramDataPoint({"a": 1}, 10, 20, 5, 7.5, [1, 4, 0], [0.5, 1.0], 0.25, 0.9, [exemplar])
    bare = HistogramDataPoint({}, 10, 20, 0, 0, [0, 0], [1.0], math.inf, -math.inf)
    exponential = ExponentialHistogramDataPoint(
        {"b": "c"}, 10, 20, 9, -3.5, 3, 2, Buckets(-4, [1, 2]), Buckets(7, [4]), 1, -8.0, 2.0
    )
    request = encode(metrics(Histogram([explicit, bare], DELTA), ExponentialHistogram([exponential], CUMULATIVE)))
    first, second, third = (row[-1] for row in points_of(request))
    assert (first.count, first.sum, list(first.bucket_counts), list(first.explicit_bounds)) == (
        5,
        7.5,
        [1, 4, 0],
        [0.5, 1],
    )
    assert (first.min, first.max) == (0.25, 0.9)
    (found,) = first.exemplars
    assert (found.as_double, found.time_unix_nano, found.span_id[-2:], found.trace_id[-2:]) == (
        0.3,
        15,
        b"\x0a\xbc",
        b"\x0d\xef",
    )
    assert (second.HasField("min"), second.HasField("max"), list(second.bucket_counts)) == (False, False, [0, 0])
    assert (third.scale, third.zero_count, third.flags, third.count, third.sum) == (3, 2, 1, 9, -3.5)
    assert (third.positive.offset, list(third.positive.bucket_counts)) == (-4, [1, 2])
    assert (third.negative.offset, list(third.negative.bucket_counts)) == (7, [4])
    assert (third.min, third.max) == (-8, 2)
    assert [row[5] for row in points_of(request)] == [1, 1, 2]


def test_collections_in_one_request_share_names_and_lose_no_point() -> None:
    one = Gauge([number(1, 20, {"k": "a"}), number(2, 20, {"k": "b"})])
    two = Gauge([number(3, 30, {"k": "a"}), number(4, 30, {"k": "b"})])
    batched = encode(metrics(one), metrics(two))
    assert [row[-1].as_int for row in points_of(batched)] == [1, 2, 3, 4]
    message = ExportMetricsServiceRequest.FromString(batched)
    assert len(message.resource_metrics[0].scope_metrics[0].metrics) == 1
    assert len(batched) < len(encode(metrics(one))) + len(encode(metrics(two)))


def test_metrics_that_differ_in_anything_stay_apart() -> None:
    other_resource = Resource({"host.name": "node-2"})
    other_scope = InstrumentationScope("tests", "1.3", "https://example.org/scope", {"team": "blue"})
    gauge, total = Gauge([number(1)]), Sum([number(1)], CUMULATIVE, True)
    request = encode(
        metrics(gauge),
        metrics(total),
        metrics(Sum([number(1)], DELTA, True)),
        metrics(gauge, resource=other_resource),
        metrics(gauge, scope=other_scope),
    )
    message = ExportMetricsServiceRequest.FromString(request)
    shape = [[len(scope.metrics) for scope in resource.scope_metrics] for resource in message.resource_metrics]
    assert shape == [[3, 1], [1]]


def test_start_time_is_replaced_for_cumulative_sums_of_the_named_scope_only() -> None:
    data = (
        Sum([number(1)], CUMULATIVE, True),
        Sum([number(1)], DELTA, True),
        Gauge([number(1, start_ns=None)]),
    )
    starts = [row[-1].start_time_unix_nano for row in points_of(encode(metrics(*data), starts_ns={"tests": 7}))]
    assert starts == [7, 10, 0]
    starts = [row[-1].start_time_unix_nano for row in points_of(encode(metrics(*data), starts_ns={"other": 7}))]
    assert starts == [10, 10, 0]


def test_attributes_changed_by_their_owner_are_encoded_anew() -> None:
    attributes = {"k": "a"}
    batch = RequestBatch(bytes_max=10_000)
    batch.add(metrics(Gauge([number(1, attributes=attributes)])))
    attributes["k"] = "b"
    batch.add(metrics(Gauge([number(2, attributes=attributes)])))
    taken = batch.take()
    assert taken is not None
    assert [plain_pairs(row[-1].attributes)["k"][1] for row in points_of(taken[0])] == ["a", "b"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=40)), max_size=12), min_size=1, max_size=5),
    st.integers(150, 2_000),
)
def test_requests_stay_under_the_limit_and_lose_no_point(shape: list[list[tuple[int, str]]], bytes_max: int) -> None:
    """Whatever the collections look like: what is not refused arrives once, and no request is too large."""
    batch = RequestBatch(bytes_max=bytes_max)
    requests: list[tuple[bytes, int]] = []
    values = 0
    for collection in shape:
        data = []
        for metric in range(4):
            texts = [text for index, text in collection if index == metric]
            data.append(Gauge([number(values + at, 100 + values + at, {"t": text}) for at, text in enumerate(texts)]))
            values += len(texts)
        requests += batch.add(metrics(*data))
    last = batch.take()
    requests += [last] if last is not None else []
    rows = [points_of(request) for request, _ in requests]
    assert sum(len(row) for row in rows) + batch.refused == values
    found = [row[-1].as_int for each in rows for row in each]
    assert len(set(found)) == len(found)
    for (request, newest_ns), each in zip(requests, rows, strict=True):
        assert len(request) <= bytes_max
        assert newest_ns == max(row[-1].time_unix_nano for row in each)


def test_point_larger_than_a_record_is_refused_and_its_neighbours_are_not() -> None:
    batch = RequestBatch(bytes_max=1_000)
    gauge = Gauge([number(1), number(2, attributes={"long": "x" * 2_000}), number(3)])
    taken = batch.add(metrics(gauge))
    last = batch.take()
    assert last is not None
    assert [row[-1].as_int for request, _ in [*taken, last] for row in points_of(request)] == [1, 3]
    assert batch.refused == 1


# ---- through a broker


@pytest.fixture
def topic(topic_prefix: str) -> str:
    return f"{topic_prefix}.otlp"


def records(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    try:
        found = []
        for record in consumer:
            found.append(record)
            if len(found) == count:
                break
        return sorted(found, key=lambda record: record.timestamp)
    finally:
        consumer.close()


@pytest.fixture
def exporters() -> Iterator[list[KafkaMetricExporter]]:
    opened: list[KafkaMetricExporter] = []
    yield opened
    for exporter in opened:
        exporter.shutdown(timeout_millis=2_000)


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_sdk_to_consumer(broker: str, topic: str, compression: str | None) -> None:
    """The SDK's own periodic reader, every kind of instrument, decoded on the other side."""
    exporter = KafkaMetricExporter(broker, topic=topic, compression=compression)
    memory = InMemoryMetricReader()
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
    exponential = View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())
    provider = MeterProvider([reader, memory], resource=RESOURCE, views=[exponential], shutdown_on_exit=False)
    meter = provider.get_meter("tests", "1.2")
    meter.create_counter("counter", unit="By").add(5, {"k": "v"})
    meter.create_up_down_counter("updown").add(-2)
    meter.create_gauge("gauge").set(2.5)
    meter.create_histogram("histogram", unit="s").record(0.3, {"route": "/"})
    meter.create_histogram("exponential").record(12.0)

    def watch(options: CallbackOptions) -> list[Observation]:
        return [Observation(7, {"cpu": "cpu0"}), Observation(8, {"cpu": "cpu1"})]

    meter.create_observable_counter("watched", [watch])
    sent_ms = time.time_ns() // 1_000_000
    assert provider.force_flush()
    provider.shutdown()

    (record,) = records(broker, topic, 1)
    assert record.key is None
    assert abs(record.timestamp - sent_ms) < 5_000
    rows = {(row[4][0], tuple(plain_pairs(row[-1].attributes).items())): row for row in points_of(record.value)}
    assert record.timestamp == max(row[-1].time_unix_nano for row in rows.values()) // 1_000_000
    names = sorted(name for name, _ in rows)
    assert names == ["counter", "exponential", "gauge", "histogram", "updown", "watched", "watched"]
    kinds = {row[4][0]: (row[4][3], row[5], row[6]) for row in rows.values()}
    assert kinds == {
        "counter": ("sum", 2, True),
        "updown": ("sum", 2, False),
        "gauge": ("gauge", None, None),
        "histogram": ("histogram", 2, None),
        "exponential": ("exponential_histogram", 2, None),
        "watched": ("sum", 2, True),
    }
    assert exporter.sent_records == 1
    assert exporter.sent_bytes == len(record.value)


def test_collections_are_batched_by_count(broker: str, topic: str, exporters: list[KafkaMetricExporter]) -> None:
    exporter = KafkaMetricExporter(broker, topic=topic, batch_collections=3)
    exporters.append(exporter)
    for at in range(7):
        assert exporter.export(metrics(Gauge([number(at, time_ns=at * 10**6)]))) is MetricExportResult.SUCCESS
    assert exporter.force_flush()
    found = records(broker, topic, 3)
    assert [[row[-1].as_int for row in points_of(record.value)] for record in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [record.timestamp for record in found] == [2, 5, 6]


def test_collections_are_batched_by_age_and_size(broker: str, topic: str, exporters: list[KafkaMetricExporter]) -> None:
    exporter = KafkaMetricExporter(broker, topic=topic, batch_collections=1_000, batch_ms=150, record_bytes_max=20_000)
    exporters.append(exporter)
    exporter.export(metrics(Gauge([number(0)])))
    time.sleep(0.2)
    exporter.export(metrics(Gauge([number(1)])))
    assert exporter.sent_records == 1
    exporter.export(metrics(Gauge([number(at, attributes={"k": f"{at:0500}"}) for at in range(100)])))
    assert exporter.force_flush()
    found = records(broker, topic, 4)
    assert min(len(points_of(record.value)) for record in found) == 2
    assert sum(len(points_of(record.value)) for record in found) == 102
    assert all(len(record.value) <= 20_000 for record in found)


def test_unreachable_broker_is_a_failure_in_time_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    exporter = KafkaMetricExporter("127.0.0.1:1", connect_timeout_ms=400)
    caplog.set_level(logging.ERROR, logger="fleetpulse")
    started = time.monotonic()
    for _ in range(3):
        assert exporter.export(metrics(Gauge([number(1)])), timeout_millis=300) is MetricExportResult.FAILURE
    exporter.shutdown(timeout_millis=500)
    assert time.monotonic() - started < 2
    assert exporter.lost_records == 3
    ours = [record.message for record in caplog.records if record.name.startswith("fleetpulse")]
    assert len(ours) == 1
    assert "127.0.0.1:1" in ours[0]
    assert exporter.export(metrics(Gauge([number(1)]))) is MetricExportResult.FAILURE


def test_value_that_cannot_be_encoded_is_a_failure_not_an_exception(
    broker: str, topic: str, exporters: list[KafkaMetricExporter]
) -> None:
    exporter = KafkaMetricExporter(broker, topic=topic)
    exporters.append(exporter)
    odd: Any = "not a number"
    assert exporter.export(metrics(Gauge([number(odd)]))) is MetricExportResult.FAILURE
    assert exporter.export(metrics(Gauge([number(4)]))) is MetricExportResult.SUCCESS


def suspend(pid: int) -> None:
    """Returns when the process stands still: the signal alone only asks for it."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_broker_that_stops_answering_and_comes_back(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """Flush and shutdown keep their time-outs while nothing answers, losses are reported once, and then it goes on."""
    caplog.set_level(logging.WARNING, logger="fleetpulse")
    with embedded_broker() as broker:
        exporter = KafkaMetricExporter(
            broker.bootstrap, topic=topic, wait=False, delivery_timeout_ms=2_500, pending_bytes_max=300
        )
        assert exporter.export(metrics(Gauge([number(0)]))) is MetricExportResult.SUCCESS
        assert exporter.force_flush(5_000)
        suspend(broker.pid)
        assert exporter.export(metrics(Gauge([number(1)]))) is MetricExportResult.SUCCESS
        started = time.monotonic()
        assert not exporter.force_flush(200)
        assert time.monotonic() - started < 1
        # Another record does not fit beside the one that waits.
        assert exporter.export(metrics(Gauge([number(2)]))) is MetricExportResult.FAILURE
        deadline = time.monotonic() + 12
        while exporter.lost_records < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert exporter.lost_records == 2
        assert exporter.export(metrics(Gauge([number(3)]))) is MetricExportResult.FAILURE
        os.kill(broker.pid, signal.SIGCONT)
        while exporter.export(metrics(Gauge([number(4)]))) is MetricExportResult.FAILURE:
            assert time.monotonic() < deadline + 8
            time.sleep(0.2)
        assert exporter.force_flush(5_000)
        suspend(broker.pid)
        exporter.export(metrics(Gauge([number(5)])))
        started = time.monotonic()
        exporter.shutdown(timeout_millis=300)
        assert time.monotonic() - started < 1.5
        os.kill(broker.pid, signal.SIGCONT)
    ours = [record.message for record in caplog.records if record.name.startswith("fleetpulse")]
    assert [message.split()[1] for message in ours][:2] == ["could", "records"]


def test_preferred_temporality_is_cumulative_unless_said(broker: str) -> None:
    reader = PeriodicExportingMetricReader(KafkaMetricExporter(broker), export_interval_millis=math.inf)
    assert set(reader._instrument_class_temporality.values()) == {CUMULATIVE}
    exporter = KafkaMetricExporter(broker, preferred_temporality={Counter: DELTA})
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
    assert DELTA in reader._instrument_class_temporality.values()
