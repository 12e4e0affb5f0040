"""Small OTLP requests for tests, made with the official protobuf classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint, ResourceMetrics

NS = 1_000_000_000
Number = int | float


def attributes(values: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in values.items()]


def number_point(time_ns: int, value: Number, start_ns: int = 0, **labels: str) -> NumberDataPoint:
    point = NumberDataPoint(time_unix_nano=time_ns, start_time_unix_nano=start_ns, attributes=attributes(labels))
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value
    return point


def gauge(name: str, points: Iterable[NumberDataPoint], unit: str = "1") -> Metric:
    metric = Metric(name=name, unit=unit)
    metric.gauge.data_points.extend(points)
    return metric


def counter(name: str, points: Iterable[NumberDataPoint], unit: str = "1", *, monotonic: bool = True) -> Metric:
    metric = Metric(name=name, unit=unit)
    metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    metric.sum.is_monotonic = monotonic
    metric.sum.data_points.extend(points)
    return metric


def resource_metrics(resource: Mapping[str, str], metrics: Iterable[Metric]) -> ResourceMetrics:
    made = ResourceMetrics()
    made.resource.attributes.extend(attributes(resource))
    scope = made.scope_metrics.add()
    scope.scope.name = "tests"
    scope.metrics.extend(metrics)
    return made


def request(*resources: ResourceMetrics) -> bytes:
    return ExportMetricsServiceRequest(resource_metrics=resources).SerializeToString()


def host_scrape(node: str | None, number: int, time_ns: int, boot_ns: int, *, cpus: int = 2) -> ResourceMetrics:
    """One scrape of a host whose values are plain functions of its number and the time. node None: no identity."""
    elapsed = (time_ns - boot_ns) / NS
    busy = 0.1 + 0.02 * (number % 20)
    cpu = [
        number_point(time_ns, elapsed * (busy if state == "user" else 1 - busy), boot_ns, cpu=f"cpu{c}", state=state)
        for c in range(cpus)
        for state in ("user", "idle")
    ]
    memory = [
        number_point(time_ns, (number + 1) * 2**20 * weight, state=state)
        for state, weight in (("used", 300), ("free", 500), ("cached", 200))
    ]
    network = [
        number_point(time_ns, int(elapsed * 1000) * (number + 1), boot_ns, device="eth0", direction=direction)
        for direction in ("receive", "transmit")
    ]
    resource = {} if node is None else {"host.name": node, "host.type": "m5", "cloud.region": "eu"}
    return resource_metrics(
        resource,
        [
            counter("system.cpu.time", cpu, "s"),
            counter("system.memory.usage", memory, "By", monotonic=False),
            counter("system.network.io", network, "By"),
            gauge("system.cpu.load_average.1m", [number_point(time_ns, 0.5 + busy)], "{thread}"),
        ],
    )
