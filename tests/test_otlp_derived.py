"""Numbers that follow from several of the node exporter's."""

from __future__ import annotations

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from fleetpulse.features._points import NumberPoints
from fleetpulse.features._series import SeriesTable
from support.otlp_samples import NOW_NS, RECORD_MS, SECOND, key_values, make_decoder, one_resource, request

GIB = 2.0**30
USED = ("system.memory.usage", "used")
MEMORY = {"MemTotal": 16, "MemFree": 5, "Buffers": 1, "Cached": 3, "SReclaimable": 1}


def gauge(name: str, *values: float, labels: dict[str, object] | None = None, time_ns: int = NOW_NS) -> Metric:
    metric = Metric(name=name)
    for i, value in enumerate(values):
        attributes = key_values(labels or {})
        metric.gauge.data_points.add(time_unix_nano=time_ns + i * SECOND, as_double=value, attributes=attributes)
    return metric


def memory(**changes: float) -> list[Metric]:
    return [gauge(f"node_memory_{name}_bytes", gib * GIB) for name, gib in (MEMORY | changes).items()]


def scrape(node: str, metrics: list[Metric]) -> bytes:
    return request(one_resource({"host.name": node}, *metrics))


def read(table: SeriesTable, points: NumberPoints) -> dict[tuple[str, str], list[float]]:
    """Values by canonical metric and state."""
    found: dict[tuple[str, str], list[float]] = {}
    for index, value in zip(points.series.tolist(), points.value.tolist(), strict=True):
        entry = table.series[index]
        assert entry is not None
        found.setdefault((entry.source.metric, entry.source.labels.get("state", "")), []).append(value)
    return found


def test_memory_in_use_is_what_the_host_receiver_would_say() -> None:
    table = SeriesTable()
    points = make_decoder(table).decode(scrape("n", memory()), RECORD_MS).points.numbers
    assert read(table, points) == {
        ("system.memory.limit", ""): [16 * GIB],
        ("system.memory.usage", "free"): [5 * GIB],
        ("system.memory.usage", "buffered"): [1 * GIB],
        ("node_memory_Cached_bytes", ""): [3 * GIB],
        ("system.memory.usage", "slab_reclaimable"): [1 * GIB],
        ("system.memory.usage", "cached"): [4 * GIB],
        USED: [6 * GIB],
    }
    assert points.time_ns.tolist() == [NOW_NS] * 7
    assert points.is_int.tolist() == [False] * 7


def test_without_one_of_its_parts_there_is_no_number() -> None:
    for missing in range(len(MEMORY)):
        table = SeriesTable()
        metrics = memory()
        del metrics[missing]
        points = make_decoder(table).decode(scrape("n", metrics), RECORD_MS).points.numbers
        assert USED not in read(table, points)
        assert len(points.series) == len(MEMORY) - 1 + (missing < 3), "what is cached needs two of them only"


def test_parts_of_other_times_and_other_nodes_are_not_mixed() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    metrics = memory()
    metrics[2] = gauge("node_memory_Buffers_bytes", GIB, time_ns=NOW_NS - SECOND)
    assert USED not in read(table, decoder.decode(scrape("n", metrics), RECORD_MS).points.numbers)
    halves = request(
        one_resource({"host.name": "a"}, *memory()[:3]),
        one_resource({"host.name": "b"}, *memory()[3:]),
    )
    assert USED not in read(table, decoder.decode(halves, RECORD_MS).points.numbers)


def test_every_time_of_a_batch_has_its_number_and_a_repeated_point_changes_nothing() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    metrics = [gauge(f"node_memory_{name}_bytes", gib * GIB, 2 * gib * GIB) for name, gib in MEMORY.items()]
    for _ in range(2):
        used = read(table, decoder.decode(scrape("n", metrics), RECORD_MS).points.numbers)[
            ("system.memory.usage", "used")
        ]
        assert used == [6 * GIB, 12 * GIB]
    assert len(table.series) == len(MEMORY) + 2


def test_filesystems_are_told_apart_by_their_labels() -> None:
    table = SeriesTable()
    metrics = []
    for mount, size, free, avail in (("/", 100.0, 40.0, 35.0), ("/data", 1000.0, 900.0, 850.0)):
        labels: dict[str, object] = {"device": "/dev/sda", "fstype": "ext4", "mountpoint": mount}
        for name, value in (("size", size), ("free", free), ("avail", avail)):
            metrics.append(gauge(f"node_filesystem_{name}_bytes", value, labels=labels))
    points = make_decoder(table).decode(scrape("n", metrics), RECORD_MS).points.numbers
    found = {}
    for index, value in zip(points.series.tolist(), points.value.tolist(), strict=True):
        entry = table.series[index]
        assert entry is not None
        if entry.source.metric == "system.filesystem.usage":
            labels_found = dict(entry.source.labels)
            assert labels_found.pop("device") == "/dev/sda"
            assert labels_found.pop("type") == "ext4"
            found[labels_found.pop("mountpoint"), labels_found.pop("state")] = value
            assert labels_found == {}
    assert found == {
        ("/", "used"): 60.0,
        ("/", "free"): 35.0,
        ("/", "reserved"): 5.0,
        ("/data", "used"): 100.0,
        ("/data", "free"): 850.0,
        ("/data", "reserved"): 50.0,
    }


def test_a_difference_below_zero_is_zero() -> None:
    table = SeriesTable()
    metrics = [gauge("node_memory_SwapTotal_bytes", 0.0), gauge("node_memory_SwapFree_bytes", 1.0)]
    points = make_decoder(table).decode(scrape("n", metrics), RECORD_MS).points.numbers
    assert read(table, points)[("system.paging.usage", "used")] == [0.0]


def test_a_derived_series_counts_towards_the_limit() -> None:
    table = SeriesTable()
    decoder = make_decoder(table, series_per_node=len(MEMORY))
    for _ in range(2):
        decoded = decoder.decode(scrape("n", memory()), RECORD_MS)
        assert decoded.refused == {"series_limit": 2}
        assert len(decoded.points.numbers.series) == len(MEMORY)


def test_forgotten_series_come_back() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    raw = scrape("n", memory())
    before = read(table, decoder.decode(raw, RECORD_MS).points.numbers)
    for gone in ([5], [6], [0, 2], range(7)):
        decoder.forget(gone)
        assert read(table, decoder.decode(raw, RECORD_MS).points.numbers) == before
    assert len(table.series) == len(MEMORY) + 2
