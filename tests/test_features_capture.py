"""A recording of real collectors: how many features a node has, and that their numbers are those of the points."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.features import Catalog, FleetState, NodeVector, SeriesTable, Status
from fleetpulse.ingest._decode import Decoder
from fleetpulse.ingest._otlp_files import read_requests

NS = 1_000_000_000
IDENTITY = ["k8s.node.name", "host.name", "host.id"]
BUSY = {"user", "nice", "system", "interrupt", "softirq", "steal"}

Plain = dict[tuple[str, ...], list[tuple[int, float]]]
"""Points by (node, metric, label values...)."""


@cache
def recording() -> list[bytes]:
    path = resources.files("fleetpulse.ingest").joinpath("recordings/hipstershop-otelmetrics.zst")
    return [recorded.request for recorded in read_requests(Path(str(path)))]


@cache
def vectors() -> dict[str, NodeVector]:
    table = SeriesTable()
    state = FleetState(Catalog.load(), table, look_back_ns=1_200 * NS)
    decoder = Decoder(
        table,
        identity=IDENTITY,
        default_cluster="default",
        pool_by=["host.type"],
        max_skew_ns=600 * NS,
        series_per_node=50_000,
        nodes_per_shard=100,
    )
    for offset, request in enumerate(recording()):
        points = decoder.decode(request, 1_656_096_100_000).points
        state.add(points, partition=0, offset=offset)
    found = [state.vector(index) for index in table.node_by_id.values()]
    return {vector.node: vector for vector in found}


@cache
def plain_points() -> Plain:
    """The recording's number points, walked object by object."""
    points: Plain = defaultdict(list)
    for raw in recording():
        for resource_metrics in ExportMetricsServiceRequest.FromString(raw).resource_metrics:
            attributes = {a.key: a.value.string_value for a in resource_metrics.resource.attributes}
            node = next((attributes[name] for name in IDENTITY if attributes.get(name)), "")
            for scope_metrics in resource_metrics.scope_metrics:
                for metric in scope_metrics.metrics:
                    for point in getattr(metric, metric.WhichOneof("data")).data_points:
                        labels = sorted((a.key, a.value.string_value) for a in point.attributes)
                        value = getattr(point, point.WhichOneof("value"))
                        key = (node, metric.name, *(v for _, v in labels))
                        points[key].append((point.time_unix_nano, float(value)))
    return points


def increases(vector: NodeVector, metric: str) -> dict[tuple[str, ...], tuple[float, float]]:
    """By label values: (what a counter grew by over the vector's window, and in how many seconds)."""
    found = {}
    for (node, name, *labels), points in plain_points().items():
        if (node, name) != (vector.node, metric):
            continue
        points = sorted(points)
        before = [p for p in points if p[0] <= vector.t_end_ns - 300 * NS]
        first = (before or points)[-1 if before else 0]
        found[tuple(labels)] = (points[-1][1] - first[1], (points[-1][0] - first[0]) / NS)
    return found


def value(vector: NodeVector, name: str) -> float:
    return float(vector.values[Catalog.load().index(name)])


def nodes() -> list[str]:
    return sorted(vectors())


def test_recording_has_four_nodes_and_sixty_features_of_each_are_ok() -> None:
    assert len(nodes()) == 4
    for vector in vectors().values():
        counts = Counter(vector.status.tolist())
        assert counts[Status.OK] >= 60, counts
        assert counts[Status.OK] + counts[Status.MISSING] == 127, "there is nothing half known about a whole window"
        assert (vector.status[np.isnan(vector.values)] == Status.MISSING).all()
        assert vector.window_covered_ms == 300_000
        assert vector.scrape_interval_ms == pytest.approx(10_000, abs=5)


@pytest.mark.parametrize("at", range(4))
def test_cpu_share_is_that_of_the_points(at: int) -> None:
    vector = vectors()[nodes()[at]]
    grown = increases(vector, "system.cpu.time")
    busy = sum(x for (_, state), (x, _) in grown.items() if state in BUSY)
    assert value(vector, "cpu_busy_share_5m") == pytest.approx(busy / sum(x for x, _ in grown.values()), rel=1e-4)


@pytest.mark.parametrize("direction", ["receive", "transmit"])
@pytest.mark.parametrize("at", range(4))
def test_network_rate_is_that_of_the_physical_interfaces(at: int, direction: str) -> None:
    vector = vectors()[nodes()[at]]
    grown = increases(vector, "system.network.io")
    physical = [x / s for (device, way), (x, s) in grown.items() if device.startswith("eth") and way == direction]
    assert physical
    assert value(vector, f"network_{direction}_bytes_5m") == pytest.approx(sum(physical), rel=1e-4)


@pytest.mark.parametrize("at", range(4))
def test_working_set_and_pods_are_those_of_the_kubelet(at: int) -> None:
    vector = vectors()[nodes()[at]]
    (working_set,) = (p for key, p in plain_points().items() if key[:2] == (vector.node, "k8s.node.memory.working_set"))
    t0 = vector.t_end_ns - 300 * NS
    times, window = zip(*sorted(p for p in working_set if p[0] > t0), strict=True)
    assert value(vector, "memory_working_set_max_bytes_5m") == pytest.approx(max(window))
    mean = np.average(window, weights=np.diff(times, prepend=t0))
    assert value(vector, "memory_working_set_bytes_5m") == pytest.approx(mean, rel=1e-6)
    assert 3 <= value(vector, "pods_count") <= 11
