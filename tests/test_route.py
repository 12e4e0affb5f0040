"""Slicing by node: nothing is lost, nothing is changed, and no slice is too large for Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics

from fleetpulse.features._series import NodeId
from fleetpulse.ingest._otlp import length_field
from fleetpulse.ingest._route import Router
from support.otlp_samples import IDENTITY, NOW_NS, capture, key_values, one_resource, request

CAPTURE = capture()


def router(record_bytes_max: int = 1_000_000) -> Router:
    return Router(IDENTITY, "default", record_bytes_max)


def metric(name: str, points: int, *, kind: str = "gauge", label: str = "") -> Metric:
    made = Metric(name=name, description="d", unit="By")
    data = getattr(made, kind)
    if kind != "gauge":
        data.aggregation_temporality = 2
    for i in range(points):
        point = data.data_points.add(time_unix_nano=NOW_NS + i)
        point.attributes.extend(key_values({"label": label, "i": i}))
        if kind in ("gauge", "sum"):
            point.as_int = i
    if kind == "sum":
        made.sum.is_monotonic = True
    return made


def flat(raw: bytes) -> Iterator[tuple[bytes, ...]]:
    """Every point of a request together with all that is said about it."""
    for entry in ExportMetricsServiceRequest.FromString(raw).resource_metrics:
        for scope in entry.scope_metrics:
            for each in scope.metrics:
                data = getattr(each, each.WhichOneof("data"))
                points = list(data.data_points)
                del data.data_points[:]
                head = [entry.resource, scope.scope, each]
                common = tuple(part.SerializeToString(deterministic=True) for part in head)
                schemas = (entry.schema_url.encode(), scope.schema_url.encode())
                for point in points:
                    yield (*common, *schemas, point.SerializeToString(deterministic=True))


def node_of(raw: bytes) -> set[str]:
    nodes = set()
    for entry in ExportMetricsServiceRequest.FromString(raw).resource_metrics:
        attributes = {each.key: each.value.string_value for each in entry.resource.attributes}
        nodes.add(attributes.get("k8s.node.name") or attributes["host.name"])
    return nodes


def test_each_slice_holds_its_node_s_resources_byte_for_byte() -> None:
    sliced = router(10_000_000).slice(CAPTURE)
    assert sliced.oversized == 0
    entries = ExportMetricsServiceRequest.FromString(CAPTURE).resource_metrics
    wanted: dict[str, list[bytes]] = {}
    for entry in entries:
        names = {each.key: each.value.string_value for each in entry.resource.attributes}
        if "k8s.node.name" in names:
            wanted.setdefault(names["k8s.node.name"], []).append(entry.SerializeToString())
    assert {node.node: raw for node, raw in sliced.slices} == {
        name: b"".join(length_field(1, part) for part in parts) for name, parts in wanted.items()
    }
    assert {node.cluster for node, _ in sliced.slices} == {"test-cluster"}
    assert sliced.unattributed == len(entries) - sum(map(len, wanted.values()))


def test_unknown_fields_and_field_order_survive_in_a_slice() -> None:
    resource = length_field(1, length_field(1, length_field(1, b"host.name") + length_field(2, length_field(1, b"n"))))
    entry = length_field(3, b"schema") + length_field(100, b"new") + resource + length_field(2, b"\x78\x05")
    sliced = router().slice(length_field(15, b"later") + length_field(1, entry))
    assert sliced.slices == [(NodeId("default", "n"), length_field(1, entry))]


def test_a_resource_in_two_parts_is_one_resource() -> None:
    name = length_field(1, length_field(1, length_field(1, b"host.name") + length_field(2, length_field(1, b"n"))))
    other = length_field(1, length_field(1, length_field(1, b"os.type") + length_field(2, length_field(1, b"l"))))
    for parts in (name + other, other + name):
        assert router().slice(length_field(1, parts)).slices == [(NodeId("default", "n"), length_field(1, parts))]


def test_resources_without_a_node_are_counted_and_go_nowhere() -> None:
    entries = [one_resource({"service.name": "s"}, metric("m", 1)) for _ in range(2)]
    sliced = router().slice(request(*entries, ResourceMetrics()))
    assert (sliced.slices, sliced.unattributed) == ([], 3)
    named = [one_resource({"host.name": name}, metric("m", 1)) for name in "ab"]
    assert [node.node for node, _ in router().slice(request(*named)).slices] == ["a", "b"]


def test_a_slice_is_cut_between_metrics_when_it_is_too_large() -> None:
    entries = [
        one_resource({"host.name": "n", "part": part}, *(metric(f"{part}{i}", 20) for i in range(10)))
        for part in ("x", "y")
    ]
    raw = request(*entries)
    sliced = router(3_000).slice(raw)
    assert sliced.oversized == 0
    assert len(sliced.slices) > 3
    assert all(len(piece) <= 3_000 for _, piece in sliced.slices)
    assert {node for node, _ in sliced.slices} == {NodeId("default", "n")}
    assert [each for _, piece in sliced.slices for each in flat(piece)] == list(flat(raw))
    names = Counter(name for _, piece in sliced.slices for name in _names(piece))
    assert set(names.values()) == {1}, "no metric is torn while there is room for it whole"


def _names(raw: bytes) -> list[str]:
    request_ = ExportMetricsServiceRequest.FromString(raw)
    return [m.name for entry in request_.resource_metrics for scope in entry.scope_metrics for m in scope.metrics]


@pytest.mark.parametrize("kind", ["gauge", "sum", "histogram", "exponential_histogram", "summary"])
def test_a_metric_is_cut_between_points_when_it_is_too_large_itself(kind: str) -> None:
    made = metric("m", 200, kind=kind) if kind != "summary" else Metric(name="m")
    if kind == "summary":
        for i in range(200):
            made.summary.data_points.add(time_unix_nano=NOW_NS + i, attributes=key_values({"i": i}))
    entry = one_resource({"host.name": "n"}, metric("before", 1), made, metric("behind", 1))
    entry.schema_url = "resource schema"
    entry.scope_metrics[0].schema_url = "scope schema"
    raw = request(entry)
    sliced = router(1_000).slice(raw)
    assert sliced.oversized == 0
    assert all(len(piece) <= 1_000 for _, piece in sliced.slices)
    assert [each for _, piece in sliced.slices for each in flat(piece)] == list(flat(raw))


def test_a_point_that_is_too_large_alone_is_passed_on_and_counted() -> None:
    made = metric("m", 3)
    made.gauge.data_points[1].attributes.extend(key_values({"long": "x" * 5_000}))
    raw = request(one_resource({"host.name": "n"}, made))
    sliced = router(1_000).slice(raw)
    assert sliced.oversized == 1
    assert sorted(len(piece) > 1_000 for _, piece in sliced.slices) == [False] * (len(sliced.slices) - 1) + [True]
    assert [each for _, piece in sliced.slices for each in flat(piece)] == list(flat(raw))


@settings(max_examples=30, deadline=None)
@given(st.integers(200, 60_000), st.integers(1, 12))
def test_whatever_the_limit_nothing_is_lost_or_repeated(record_bytes_max: int, count: int) -> None:
    entries = ExportMetricsServiceRequest.FromString(CAPTURE).resource_metrics[:count]
    raw = request(*entries)
    pieces = [piece for _, piece in router(record_bytes_max).slice(raw).slices]
    pooled = Counter(each for piece in pieces for each in flat(piece))
    nameless = router().slice(raw).unattributed
    wanted = Counter(
        flat(request(*(e for e in entries if any(a.key == "k8s.node.name" for a in e.resource.attributes))))
    )
    assert nameless == sum(not any(a.key == "k8s.node.name" for a in e.resource.attributes) for e in entries)
    assert pooled == wanted
    assert all(len(node_of(piece)) == 1 for piece in pieces)


def test_many_different_resources_do_not_pile_up() -> None:
    sut = router()
    for start in range(0, 32_000, 4_000):
        entries = [one_resource({"host.name": f"n{start + i}"}) for i in range(4_000)]
        assert len(sut.slice(request(*entries)).slices) == 4_000
    assert sut.kept <= 16_384 + 4_000, "what one request has is kept together"
