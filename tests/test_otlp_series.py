"""Which points are one series, whose node they are, and how many a shard keeps."""

from __future__ import annotations

import random
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

from fleetpulse.features._series import NodeId, SeriesTable
from fleetpulse.ingest import _decode_known
from support.otlp_samples import NOW_NS, RECORD_MS, any_value, key_values, make_decoder, one_resource, request


def gauge(name: str, *labels: dict[str, object], value: float = 1.0) -> Metric:
    metric = Metric(name=name)
    for each in labels or ({},):
        metric.gauge.data_points.add(time_unix_nano=NOW_NS, as_double=value, attributes=key_values(each))
    return metric


def test_attribute_order_is_not_identity() -> None:
    attributes = key_values({"a": 1, "b": "x", "c": True, "d": [1, "y"], "e": {"k": 1.5, "j": b"z"}})
    resource = key_values({"host.name": "n", "os.type": "linux"})
    shuffle = random.Random(5).shuffle
    table = SeriesTable()
    decoder = make_decoder(table)
    for _ in range(5):
        entry = one_resource({}, gauge("m", {}))
        entry.resource.attributes.extend(resource)
        entry.scope_metrics[0].metrics[0].gauge.data_points[0].attributes.extend(attributes)
        decoder.decode(request(entry), RECORD_MS)
        shuffle(attributes)
        shuffle(resource)
    assert len(table.series) == 1


def test_int_or_double_is_not_identity_and_neither_is_the_bucket_layout() -> None:
    numbers = Metric(name="m")
    numbers.gauge.data_points.add(time_unix_nano=NOW_NS, as_int=1)
    numbers.gauge.data_points.add(time_unix_nano=NOW_NS + 1, as_double=2.0)
    histogram = Metric(name="h")
    histogram.histogram.aggregation_temporality = 2
    histogram.histogram.data_points.add(time_unix_nano=NOW_NS, bucket_counts=[0, 0], explicit_bounds=[1.0])
    histogram.histogram.data_points.add(time_unix_nano=NOW_NS, bucket_counts=[0, 0], explicit_bounds=[2.0])
    table = SeriesTable()
    points = make_decoder(table).decode(request(one_resource({"host.name": "n"}, numbers, histogram)), RECORD_MS).points
    assert points.numbers.series.tolist() == [0, 0]
    assert points.numbers.is_int.tolist() == [True, False]
    assert points.histograms.series.tolist() == [1, 1]


def _variants() -> dict[str, bytes]:
    """Requests that differ from the first in one part of the identity."""
    made = {}

    def add(name: str, resource: dict[str, object], metric: Metric, scope: dict[str, object] | None = None) -> None:
        entry = one_resource({"host.name": "n"} | resource, metric)
        message = entry.scope_metrics[0].scope
        for key, value in (scope or {}).items():
            if key == "attributes":
                assert isinstance(value, dict)
                message.attributes.extend(key_values(value))
            else:
                setattr(message, key, value)
        made[name] = request(entry)

    def total(temporality: int, monotonic: bool) -> Metric:
        metric = Metric(name="m")
        metric.sum.aggregation_temporality = temporality
        metric.sum.is_monotonic = monotonic
        metric.sum.data_points.add(time_unix_nano=NOW_NS, as_int=1)
        return metric

    add("plain", {}, gauge("m"))
    add("resource attribute", {"x": "1"}, gauge("m"))
    add("cluster", {"k8s.cluster.name": "c"}, gauge("m"))
    add("scope name", {}, gauge("m"), {"name": "other"})
    add("scope version", {}, gauge("m"), {"version": "1"})
    add("scope name that looks like a version", {}, gauge("m"), {"name": "tests@1"})
    add("scope attribute", {}, gauge("m"), {"attributes": {"x": "1"}})
    add("scope attribute of another type", {}, gauge("m"), {"attributes": {"x": 1}})
    add("metric", {}, gauge("m2"))
    unit = gauge("m")
    unit.unit = "s"
    add("unit", {}, unit)
    for temporality in (1, 2):
        for monotonic in (False, True):
            add(f"sum {temporality} {monotonic}", {}, total(temporality, monotonic))
    for value in ("1", 1, 1.0, True, "true", b"1", ["1"], '["1"]', {"a": 1}, [["a", 1]], '{"map": [["a", 1]]}', None):
        add(f"attribute {value!r}", {}, gauge("m", {"x": value}))
    add("attribute 'null'", {}, gauge("m", {"x": "null"}))
    add("empty attribute", {}, gauge("m", {"x": ""}))
    return made


def test_every_part_of_the_identity_makes_another_series() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    variants = _variants()
    for _ in range(2):
        seen = [decoder.decode(raw, RECORD_MS).points.numbers.series.tolist() for raw in variants.values()]
        assert seen == [[i] for i in range(len(variants))]


def test_description_schema_and_metadata_are_not_identity() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    decoder.decode(request(one_resource({"host.name": "n"}, gauge("m"))), RECORD_MS)
    metric = gauge("m")
    metric.description = "other words"
    metric.metadata.extend(key_values({"prometheus.type": "gauge"}))
    entry = one_resource({"host.name": "n"}, metric)
    entry.schema_url = entry.scope_metrics[0].schema_url = "https://example.com/1.2"
    entry.resource.dropped_attributes_count = 3
    assert decoder.decode(request(entry), RECORD_MS).points.numbers.series.tolist() == [0]


def test_resources_without_identity_are_counted_and_never_merged() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    nameless = [one_resource({"service.name": "s"}, gauge("m", value=value)) for value in (1.0, 2.0)]
    decoded = decoder.decode(request(*nameless), RECORD_MS)
    assert decoded.unattributed == 2
    assert len(decoded.points.numbers.series) == 0
    assert table.nodes == []
    named = [one_resource({"service.name": "s", "host.name": n}, gauge("m")) for n in ("a", "b")]
    decoded = decoder.decode(request(*named), RECORD_MS)
    assert decoded.unattributed == 0
    assert table.nodes == [NodeId("default", "a"), NodeId("default", "b")]


@pytest.mark.parametrize(
    ("resource", "node"),
    [
        ({"host.id": "i", "host.name": "h", "k8s.node.name": "k"}, NodeId("default", "k")),
        ({"host.id": "i", "host.name": "h"}, NodeId("default", "h")),
        ({"host.id": "i", "host.name": ""}, NodeId("default", "i")),
        ({"host.id": 17}, NodeId("default", "17")),
        ({"host.name": "h", "k8s.cluster.name": "c"}, NodeId("c", "h")),
        ({"host.name": ["h"]}, None),
        ({"service.name": "h"}, None),
        ({}, None),
    ],
)
def test_the_first_identity_attribute_that_is_present_names_the_node(
    resource: dict[str, object], node: NodeId | None
) -> None:
    table = SeriesTable()
    decoded = make_decoder(table).decode(request(one_resource(resource, gauge("m"))), RECORD_MS)
    assert table.nodes == ([] if node is None else [node])
    assert decoded.unattributed == (node is None)


def test_the_order_of_identity_attributes_is_a_setting() -> None:
    table = SeriesTable()
    entry = one_resource({"host.id": "i", "host.name": "h"}, gauge("m"))
    make_decoder(table, identity=("host.id", "host.name")).decode(request(entry), RECORD_MS)
    assert table.nodes == [NodeId("default", "i")]


def test_a_node_s_limit_holds_and_leaves_other_nodes_alone() -> None:
    table = SeriesTable()
    decoder = make_decoder(table, series_per_node=10)
    flood = gauge("flood", *({"i": i} for i in range(1000)))
    quiet = gauge("quiet", *({"i": i} for i in range(5)))
    entries = [one_resource({"host.name": "loud"}, flood), one_resource({"host.name": "calm"}, quiet)]
    decoded = decoder.decode(request(*entries), RECORD_MS)
    assert decoded.refused == {"series_limit": 990}
    assert decoded.refused_by_node == {NodeId("default", "loud"): {"series_limit": 990}}
    assert sorted(len(series) for series in table.series_by_node.values()) == [5, 10]
    again = decoder.decode(request(*entries), RECORD_MS)
    assert again.refused == {"series_limit": 990}
    assert again.points.numbers.series.tolist() == decoded.points.numbers.series.tolist()


def test_the_limit_of_nodes_holds() -> None:
    table = SeriesTable()
    decoder = make_decoder(table, nodes_per_shard=2)
    entries = [one_resource({"host.name": name}, gauge("m", {"i": 1}, {"i": 2})) for name in ("a", "b", "c", "a")]
    decoded = decoder.decode(request(*entries), RECORD_MS)
    assert decoded.refused == {"node_limit": 2}
    assert decoded.refused_by_node == {NodeId("default", "c"): {"node_limit": 2}}
    assert table.nodes == [NodeId("default", "a"), NodeId("default", "b")]
    assert len(decoded.points.numbers.series) == 6


def test_forgotten_series_make_room_and_their_nodes_go_with_them() -> None:
    table = SeriesTable()
    decoder = make_decoder(table, series_per_node=2, nodes_per_shard=1)
    first = request(one_resource({"host.name": "a"}, gauge("m", {"i": 1}, {"i": 2})))
    second = request(one_resource({"host.name": "b"}, gauge("m", {"i": 3})))
    decoder.decode(first, RECORD_MS)
    assert decoder.decode(second, RECORD_MS).refused == {"node_limit": 1}
    decoder.forget([0])
    assert table.nodes == [NodeId("default", "a")]
    assert decoder.decode(second, RECORD_MS).refused == {"node_limit": 1}
    decoder.forget([1, 1])
    assert table.nodes == [None]
    assert table.series == [None, None]
    assert (table.series_by_key, table.node_by_id, table.series_by_node, table.pools) == ({}, {}, {}, {})
    decoded = decoder.decode(second, RECORD_MS)
    assert decoded.refused == {}
    assert table.nodes == [NodeId("default", "b")]
    index = decoded.points.numbers.series[0]
    assert index in (0, 1)
    entry = table.series[index]
    assert entry is not None
    assert entry.identity.attributes == (("i", 3),)
    # The first node's series are new when it comes back, under whatever index is free.
    decoder.forget([int(index)])
    seen = decoder.decode(first, RECORD_MS).points.numbers.series.tolist()
    assert [table.series[i].identity.attributes for i in seen] == [(("i", 1),), (("i", 2),)]  # type: ignore[union-attr]


def test_places_are_reused_when_names_churn() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    for generation in range(50):
        entries = [one_resource({"host.name": f"{generation}-{i}"}, gauge("m")) for i in range(4)]
        series = decoder.decode(request(*entries), RECORD_MS).points.numbers.series
        decoder.forget(series.tolist())
    assert len(table.series) <= 4
    assert len(table.nodes) <= 4


def test_a_flood_is_refused_again_at_little_cost_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    table = SeriesTable()
    decoder = make_decoder(table, series_per_node=100)
    worked_out: list[int] = []
    work_out = decoder._series

    def counted(*given: Any) -> int:
        worked_out.append(work_out(*given))
        return worked_out[-1]

    monkeypatch.setattr(decoder, "_series", counted)
    flood = gauge("flood", *({"i": i} for i in range(5_000)))
    calm = gauge("quiet", {}, {"i": 1})
    raw = request(one_resource({"host.name": "loud"}, flood), one_resource({"host.name": "calm"}, calm))
    for _ in range(3):
        decoded = decoder.decode(raw, RECORD_MS)
        assert decoded.refused == {"series_limit": 4_900}
        assert decoded.refused_by_node == {NodeId("default", "loud"): {"series_limit": 4_900}}
        assert decoded.points.numbers.series.tolist() == list(range(102))
    assert len(worked_out) == 5_002, "what was refused once is not worked out again"
    decoder.forget([7, 9])
    assert decoder.decode(raw, RECORD_MS).refused == {"series_limit": 4_900}
    entry = table.series[7]
    assert entry is not None
    assert entry.identity.attributes == (("i", 9),)


def test_memory_of_a_decoder_does_not_grow_with_names_that_come_and_go() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    sizes = []
    for generation in range(25):
        entries = [
            one_resource({"host.name": f"node-{generation}-{i}"}, gauge("m", *({"i": k} for k in range(20))))
            for i in range(50)
        ]
        series = decoder.decode(request(*entries), RECORD_MS).points.numbers.series
        sizes.append(decoder.nbytes)
        decoder.forget(series.tolist())
    assert max(sizes[10:]) <= 2 * sizes[5]


def test_memory_of_a_decoder_does_not_grow_with_spellings_of_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decode_known, "HASHES_KEPT", 500)
    monkeypatch.setattr(_decode_known, "BLOBS_KEPT", 20)
    table = SeriesTable()
    decoder = make_decoder(table)
    sizes = []
    for generation in range(90):
        metrics = []
        for i in range(8):
            metric = gauge("m", {"a": 1, "b": 2})
            metric.description = f"{generation} {i}"
            metrics.append(metric)
        entries = []
        for i in range(30):
            entry = one_resource({"host.name": "n"}, *metrics)
            entry.resource.dropped_attributes_count = generation * 30 + i
            entries.append(entry)
        assert set(decoder.decode(request(*entries), RECORD_MS).points.numbers.series.tolist()) == {0}
        sizes.append(decoder.nbytes)
    assert len(table.series) == 1
    assert max(sizes) <= 1.2 * max(sizes[:5])


def _pools(*resources: dict[str, object]) -> list[str]:
    table = SeriesTable()
    decoder = make_decoder(table)
    names = []
    for resource in resources:
        decoder.decode(request(one_resource({"host.name": "n"} | resource, gauge("m"))), RECORD_MS)
        names.append(table.pools[0])
    return names


def test_a_pool_is_named_by_the_newest_values_that_are_not_empty() -> None:
    assert _pools({}, {"host.type": "m5"}, {"cloud.region": "eu"}, {}, {"host.type": "", "cloud.region": "us"}) == [
        "default",
        "m5",
        "m5/eu",
        "m5/eu",
        "m5/us",
    ]


def test_series_keys_are_the_same_in_every_table() -> None:
    raw = request(one_resource({"host.name": "n"}, gauge("m", {"a": 1, "b": None})))
    keys = []
    for _ in range(2):
        table = SeriesTable()
        make_decoder(table).decode(raw, RECORD_MS)
        keys.append(list(table.series_by_key))
    assert keys[0] == keys[1]
    assert [len(key) for key in keys[0]] == [16]


def test_a_repeated_attribute_name_does_not_depend_on_order() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    values = ["b", "a"]
    for order in (values, values[::-1]):
        point = NumberDataPoint(time_unix_nano=NOW_NS, as_int=1)
        for value in order:
            point.attributes.add(key="x", value=any_value(value))
        metric = Metric(name="m")
        metric.gauge.data_points.append(point)
        decoder.decode(request(one_resource({"host.name": "n"}, metric)), RECORD_MS)
    assert len(table.series) == 1
