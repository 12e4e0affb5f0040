"""OTLP/JSON means what the same request in protobuf means (S13)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from fleetpulse.ingest._otlp import OtlpError, length_field
from fleetpulse.ingest._otlp_json import json_to_proto, looks_like_json
from support.otlp_samples import (
    DATA,
    NOW_NS,
    RECORD_MS,
    any_value,
    capture,
    fixtures,
    make_decoder,
    one_resource,
    request,
)


def point(**changes: Any) -> dict[str, Any]:
    return {"timeUnixNano": str(NOW_NS), "asInt": "7"} | changes


def tree(total: dict[str, Any]) -> dict[str, Any]:
    attributes = [{"key": "host.name", "value": {"stringValue": "n"}}]
    return {
        "resourceMetrics": [
            {"resource": {"attributes": attributes}, "scopeMetrics": [{"metrics": [{"name": "m", "sum": total}]}]}
        ]
    }


def read(total: dict[str, Any]) -> ExportMetricsServiceRequest:
    return ExportMetricsServiceRequest.FromString(json_to_proto(json.dumps(tree(total)).encode()))


def wanted() -> ExportMetricsServiceRequest:
    metric = Metric(name="m")
    metric.sum.aggregation_temporality = 2
    metric.sum.is_monotonic = True
    metric.sum.data_points.add(time_unix_nano=NOW_NS, as_int=7)
    entry = one_resource({"host.name": "n"}, metric)
    entry.scope_metrics[0].ClearField("scope")
    return ExportMetricsServiceRequest(resource_metrics=[entry])


SPELLINGS: dict[str, dict[str, Any]] = {
    "as the specification says": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [point()]},
    "enum by name": {
        "aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE",
        "isMonotonic": True,
        "dataPoints": [point()],
    },
    "64-bit integers as numbers": {
        "aggregationTemporality": 2,
        "isMonotonic": True,
        "dataPoints": [{"timeUnixNano": NOW_NS, "asInt": 7}],
    },
    "unknown fields": {
        "aggregationTemporality": 2,
        "isMonotonic": True,
        "dataPoints": [point(later={"x": [1, None]})],
        "alsoLater": 1,
    },
    "snake case": {
        "aggregation_temporality": 2,
        "is_monotonic": True,
        "data_points": [{"time_unix_nano": str(NOW_NS), "as_int": "7"}],
    },
    "nulls": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [point(attributes=None)]},
}


@pytest.mark.parametrize("total", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_is_the_same_request(total: dict[str, Any]) -> None:
    assert read(total) == wanted()


def test_ids_of_exemplars_are_hexadecimal_and_other_bytes_base64() -> None:
    exemplar = {"asDouble": 1.5, "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}
    attribute = {"key": "b", "value": {"bytesValue": "AAH/"}}
    made = read({"dataPoints": [point(exemplars=[exemplar], attributes=[attribute])]})
    got = made.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0]
    assert got.exemplars[0].trace_id.hex() == exemplar["traceId"]
    assert got.exemplars[0].span_id.hex() == exemplar["spanId"]
    assert got.attributes[0].value == any_value(b"\x00\x01\xff")


def test_integers_beyond_2_to_53_and_odd_doubles_are_exact() -> None:
    made = read({"dataPoints": [point(asInt=str(2**53 + 1)), point(asInt=-(2**63)), {"asDouble": "NaN"}]})
    points = made.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points
    assert [p.as_int for p in points[:2]] == [2**53 + 1, -(2**63)]
    assert points[2].as_double != points[2].as_double


def _json_fixtures() -> list[str]:
    return [path.relative_to(DATA).as_posix() for path in sorted(DATA.rglob("*.json"))]


@pytest.mark.parametrize("name", _json_fixtures())
def test_recorded_json_gives_the_same_points_as_its_protobuf(name: str) -> None:
    raw = (DATA / name).read_bytes()
    assert looks_like_json(raw)
    proto = json_to_proto(raw)
    assert not looks_like_json(proto)
    decoded = make_decoder().decode(proto, RECORD_MS)
    numbers = json.loads(raw)
    count = sum(
        len(data.get("dataPoints", []))
        for entry in numbers["resourceMetrics"]
        for scope in entry["scopeMetrics"]
        for metric in scope["metrics"]
        for data in metric.values()
        if isinstance(data, dict)
    )
    message = ExportMetricsServiceRequest.FromString(proto)
    kept = sum(
        len(getattr(metric, metric.WhichOneof("data")).data_points)
        for entry in message.resource_metrics
        for scope in entry.scope_metrics
        for metric in scope.metrics
        if metric.WhichOneof("data")
    )
    assert kept == count
    assert decoded.unattributed in (0, len(message.resource_metrics))


def test_a_pair_of_fixtures_recorded_in_both_encodings_is_equal() -> None:
    for name in ("metrics_gauge", "metrics_sum", "metrics_mixed"):
        folder = DATA / "otlp2parquet"
        binary = ExportMetricsServiceRequest.FromString((folder / f"{name}.pb").read_bytes())
        text = ExportMetricsServiceRequest.FromString(json_to_proto((folder / f"{name}.json").read_bytes()))
        assert text == binary, name


def test_a_request_written_as_json_comes_back() -> None:
    message = ExportMetricsServiceRequest.FromString(capture())
    del message.resource_metrics[5:]
    text = json.dumps(MessageToDict(message, use_integers_for_enums=True)).encode()
    assert ExportMetricsServiceRequest.FromString(json_to_proto(text)) == message


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "json"),
        (b'{"resourceMetrics": [}', "json"),
        (b'{"resourceMetrics": 5}', "json"),
        (b'{"resourceMetrics": [{"resource": 5}]}', "json"),
        (
            b'{"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m", "sum": {"isMonotonic": "x"}}]}]}]}',
            "json",
        ),
        (b"\xff\xfe{", "json"),
        (b"[]", "not_metrics"),
        (b"{}", "not_metrics"),
        (b'{"resourceSpans": []}', "not_metrics"),
        (b'{"resourceMetrics": ' + b"[" * 100_000, "nesting"),
        (
            b'{"resourceMetrics": [{"resource": {"attributes": [{"key": "a", "value": '
            + b'{"arrayValue": {"values": [' * 200
            + b"{}"
            + b"]}}" * 200
            + b"}]}}]}",
            "json",
        ),
        (json.dumps(tree({"dataPoints": [{"exemplars": [{"traceId": "xyz"}]}]})).encode(), "json"),
        (json.dumps(tree({"dataPoints": [{"timeUnixNano": str(2**64)}]})).encode(), "json"),
    ],
)
def test_other_text_is_refused_with_a_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(OtlpError) as caught:
        json_to_proto(raw)
    assert caught.value.reason == reason


def test_json_is_told_from_protobuf() -> None:
    for text in (b"{}", b' \n\t{"a": 1}', b"\xef\xbb\xbf{}", b'\n{\n"resourceMetrics": []}', b" " * 1000 + b"{}"):
        assert looks_like_json(text), text
    for name, raw in fixtures():
        assert not looks_like_json(raw), name
    for raw in (b"", b"\n", b"[]", b"hello", length_field(1, length_field(1, b'"' * 121))):
        assert not looks_like_json(raw), raw


def test_a_protobuf_request_that_spells_white_space_and_a_brace_is_no_json() -> None:
    entry = one_resource({"host.name": "n"})
    entry.schema_url = "x" * 300
    for size in range(40, 200):
        entry.schema_url = "x" * size
        raw = request(entry)
        if raw[1] == ord("{"):
            break
    else:
        pytest.fail("no size gave a second byte of '{'")
    assert not looks_like_json(raw)
