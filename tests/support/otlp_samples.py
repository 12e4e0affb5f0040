"""Requests and fixtures for the tests of decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import zstandard
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics

from fleetpulse.features._series import SeriesTable
from fleetpulse.ingest._decode import Decoder
from fleetpulse.ingest._otlp_json import json_to_proto

DATA = Path(__file__).parents[1] / "data" / "otlp"
IDENTITY = ("k8s.node.name", "host.name", "host.id")
SECOND = 1_000_000_000
RECORD_MS = 1_700_000_000_000
NOW_NS = RECORD_MS * 1_000_000


def make_decoder(table: SeriesTable | None = None, **changes: Any) -> Decoder:
    arguments: dict[str, Any] = {
        "identity": IDENTITY,
        "default_cluster": "default",
        "pool_by": ("host.type", "cloud.region"),
        "max_skew_ns": 60 * SECOND,
        "series_per_node": 50_000,
        "nodes_per_shard": 20_000,
    }
    return Decoder(SeriesTable() if table is None else table, **(arguments | changes))


def any_value(value: object) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
        case dict():
            return AnyValue(kvlist_value=KeyValueList(values=key_values(value)))
    return AnyValue()


def key_values(attributes: Mapping[str, object]) -> list[KeyValue]:
    return [KeyValue(key=name, value=any_value(value)) for name, value in attributes.items()]


def one_resource(resource: Mapping[str, object], *metrics: Metric) -> ResourceMetrics:
    made = ResourceMetrics()
    made.resource.attributes.extend(key_values(resource))
    scope = made.scope_metrics.add()
    scope.scope.name = "tests"
    scope.metrics.extend(metrics)
    return made


def request(*resources: ResourceMetrics) -> bytes:
    return ExportMetricsServiceRequest(resource_metrics=resources).SerializeToString()


def fixtures() -> Iterator[tuple[str, bytes]]:
    """Name and protobuf bytes of every recorded request."""
    for path in sorted(DATA.rglob("*.json")):
        yield path.relative_to(DATA).as_posix(), json_to_proto(path.read_bytes())
    for path in sorted(DATA.rglob("*.pb")):
        yield path.relative_to(DATA).as_posix(), path.read_bytes()


def capture() -> bytes:
    """The beginning of a recording of a small Kubernetes cluster, one request of 2.9 MB."""
    with zstandard.ZstdDecompressor().stream_reader((DATA / "captures" / "hipstershop-start.zst").read_bytes()) as raw:
        framed = raw.read()
    assert len(framed) == 4 + int.from_bytes(framed[:4], "big")
    return framed[4:]
