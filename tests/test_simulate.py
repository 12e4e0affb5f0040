"""The simulated fleet: the same for the same seed, valid OTLP, and numbers that agree with one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, Metric

from fleetpulse.ingest._simulate import SERIES_PER_NODE, Fleet, node_name
from fleetpulse.ingest._simulate_faults import parse_fault
from fleetpulse.ingest._simulate_requests import SPREAD, RequestTimes

START_MS = 1_772_359_200_000
NAMES = [node_name(i) for i in range(30)]

Series = tuple[str, ...]
"""Node, pod, metric, then attribute=value in the order sent."""


def fleet(nodes: int = 30, seed: int = 7, faults: Iterable[str] = (), interval_s: float = 1.0) -> Fleet:
    return Fleet(
        nodes, seed, interval_s, [parse_fault(text, NAMES) for text in faults], START_MS, history_s=600, cluster="c"
    )


def metrics_of(requests: Iterable[bytes]) -> Iterator[tuple[str, str, Metric]]:
    for request in requests:
        for resource in ExportMetricsServiceRequest.FromString(request).resource_metrics:
            named = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    yield named["k8s.node.name"], named.get("k8s.pod.name", "")[:5], metric


def numbers_of(requests: Iterable[bytes]) -> dict[Series, float]:
    """Values of gauges and sums, and the counts of histograms."""
    found: dict[Series, float] = {}
    for node, pod, metric in metrics_of(requests):
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            labels = tuple(f"{pair.key}={pair.value.string_value}" for pair in point.attributes)
            series = (node, pod, metric.name, *labels)
            assert series not in found, "a series has one point a collection"
            if metric.WhichOneof("data") in ("gauge", "sum"):
                found[series] = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            else:
                found[series] = point.count
    return found


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    one, same, other = fleet(6, seed=1), fleet(6, seed=1), fleet(6, seed=2)
    for k in range(3):
        t_ms = START_MS + 1000 * k
        collected = one.collect(t_ms)
        assert collected == same.collect(t_ms)
        assert collected != other.collect(t_ms)


def test_what_is_sent_is_what_protobuf_itself_would_write() -> None:
    simulated = fleet(nodes=3)
    simulated.collect(START_MS)
    for request in simulated.collect(START_MS + 1000):
        message = ExportMetricsServiceRequest.FromString(request)
        # A field that protobuf does not know, or one written twice, would come back longer or shorter.
        assert len(message.SerializeToString()) == len(request)
        assert ExportMetricsServiceRequest.FromString(message.SerializeToString()) == message


def test_every_node_has_the_same_hundred_and_more_series() -> None:
    by_node: dict[str, set[Series]] = {}
    for series in numbers_of(fleet(8).collect(START_MS)):
        by_node.setdefault(series[0], set()).add(series[1:])
    assert sorted(by_node) == NAMES[:8]
    assert {len(found) for found in by_node.values()} == {SERIES_PER_NODE}
    assert len(set.union(*by_node.values())) == SERIES_PER_NODE
    assert 100 <= SERIES_PER_NODE <= 160


def test_requests_hold_twenty_nodes_and_a_node_keeps_its_key() -> None:
    simulated = fleet(faults=["silent:3@+1/1"])
    keys: dict[str, set[bytes]] = {}
    for k in range(3):
        for key, request in simulated.collect_keyed(START_MS + 1000 * k):
            nodes = {node for node, _, _ in metrics_of([request])}
            assert len(nodes) <= 20
            for node in nodes:
                keys.setdefault(node, set()).add(key)
    assert {len(found) for found in keys.values()} == {1}
    assert len(set.union(*keys.values())) == 2


@pytest.mark.parametrize("interval_s", [0.01, 1.0, 60.0])
def test_times_rise_and_are_of_the_moment_asked_for(interval_s: float) -> None:
    simulated = fleet(nodes=4, interval_s=interval_s)
    last: dict[str, int] = {}
    for k in range(5):
        t_ms = START_MS + round(interval_s * 1000) * k
        times: dict[str, set[int]] = {}
        for node, _, metric in metrics_of(simulated.collect(t_ms)):
            for point in getattr(metric, metric.WhichOneof("data")).data_points:
                times.setdefault(node, set()).add(point.time_unix_nano)
                assert metric.WhichOneof("data") == "gauge" or 0 < point.start_time_unix_nano < min(times[node])
        for node, found in times.items():
            assert len(found) == 1, "one scrape, one time"
            (at_ns,) = found
            assert 0 <= t_ms * 1_000_000 - at_ns <= 1_000_000_000 * min(interval_s, 1)
            assert at_ns > last.get(node, 0)
            last[node] = at_ns


def test_collections_closer_than_the_interval_are_refused() -> None:
    simulated = fleet(nodes=1)
    simulated.collect(START_MS)
    with pytest.raises(ValueError, match="less than the interval"):
        simulated.collect(START_MS + 999)


@pytest.mark.parametrize("interval_ms", [10, 1_000, 60_000])
def test_counters_never_fall_under_any_fault(interval_ms: int) -> None:
    kinds = ("noisy-neighbour:0", "memory-leak:1", "disk-saturation:2", "packet-loss:3", "latency-step:4", "fleet-step")
    faults = [f"{kind}@+{k}s/20sx{size}" for kind in kinds for k, size in ((0, 1), (5, 90))]
    simulated = fleet(nodes=6, faults=faults, interval_s=interval_ms / 1000)
    last: dict[Series, float] = {}
    last_counts: dict[Series, list[int]] = {}
    for k in range(12):
        for node, pod, metric in metrics_of(simulated.collect(START_MS - 2_000 + interval_ms * k)):
            kind = metric.WhichOneof("data")
            if kind in ("histogram", "exponential_histogram"):
                (point,) = getattr(metric, kind).data_points
                counts = point.bucket_counts if kind == "histogram" else point.positive.bucket_counts
                assert sum(counts) == point.count
                if kind == "exponential_histogram":
                    spread = [0] * 400
                    spread[point.positive.offset + 200 : point.positive.offset + 200 + len(counts)] = counts
                    counts = spread
                assert all(
                    now >= before for now, before in zip(counts, last_counts.get((node, pod), counts), strict=True)
                )
                assert point.sum >= last.get((node, pod), 0)
                last_counts[node, pod], last[node, pod] = list(counts), point.sum
                assert getattr(metric, kind).aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
            elif kind == "sum" and metric.sum.is_monotonic:
                for point in metric.sum.data_points:
                    series = (node, pod, metric.name, str(point.attributes))
                    value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
                    assert value >= last.get(series, 0), series
                    last[series] = value
    assert last


def increases(simulated: Fleet, seconds: int, first_s: int = 0) -> tuple[dict[Series, float], dict[Series, float]]:
    """Increase of everything over so many seconds, and the last values."""
    before = numbers_of(simulated.collect(START_MS + 1000 * first_s))
    for k in range(1, seconds):
        simulated.collect(START_MS + 1000 * (first_s + k))
    after = numbers_of(simulated.collect(START_MS + 1000 * (first_s + seconds)))
    return {series: after[series] - value for series, value in before.items()}, after


def test_a_nodes_numbers_agree_with_one_another() -> None:
    grown, now = increases(fleet(nodes=5), 60)
    for node in NAMES[:5]:

        def total(values: dict[Series, float], metric: str, *labels: str, node: str = node) -> float:
            found = [v for s, v in values.items() if s[0] == node and s[2] == metric and {*labels} <= {*s[3:]}]
            assert found, (metric, labels)
            return sum(found)

        # Four processors for sixty seconds, in states; each rounds down to a tick.
        assert total(grown, "system.cpu.time") == pytest.approx(240, abs=4.5)
        busy = total(grown, "system.cpu.time") - sum(
            total(grown, "system.cpu.time", f"state={state}") for state in ("idle", "wait")
        )
        assert total(grown, "k8s.node.cpu.time") == pytest.approx(busy - 0.0025 * 240, abs=0.5)
        assert 0.5 * busy < total(grown, "k8s.pod.cpu.time") < 0.95 * busy
        assert total(grown, "container.cpu.cfs.periods") == pytest.approx(3 * 600, rel=0.02)
        memory = sum(
            total(now, "system.memory.usage", f"state={state}") for state in ("used", "free", "buffered", "cached")
        )
        assert memory == pytest.approx(16 * 2**30, abs=4 * 4096)
        assert total(now, "k8s.pod.memory.working_set") < total(now, "system.memory.usage", "state=used")
        for disk in ("nvme0n1", "nvme1n1"):
            waiting = total(grown, "system.disk.weighted_io_time", f"device={disk}")
            assert waiting == pytest.approx(total(grown, "system.disk.operation_time", f"device={disk}"), abs=0.01)
            assert 0 < total(grown, "system.disk.io_time", f"device={disk}") < 60
        carried = total(grown, "system.network.io") / total(grown, "system.network.packets")
        assert 60 < carried < 9_000
        assert total(grown, "k8s.pod.network.io") < total(grown, "system.network.io")
        for resource in ("cpu", "memory", "io"):
            assert 0 < total(grown, "system.pressure.total", f"resource={resource}", "kind=some") < 60
        assert total(grown, "http.server.request.duration") > 1_000


def test_nodes_differ_and_share_their_load() -> None:
    simulated = fleet(nodes=12, interval_s=60)
    busy = []
    for hour in range(0, 24, 3):
        first = numbers_of(simulated.collect(START_MS + hour * 3_600_000))
        later = numbers_of(simulated.collect(START_MS + hour * 3_600_000 + 60_000))
        busy.append([later[n, "", "k8s.node.cpu.time"] - first[n, "", "k8s.node.cpu.time"] for n in NAMES[:12]])
    shares = np.array(busy) / 240
    assert 0.05 < shares.min() < shares.max() < 0.95
    assert np.std(shares, axis=1).min() > 0.02, "nodes differ"
    assert np.ptp(shares.mean(axis=1)) > 0.2, "a day has its course"
    assert simulated.names == NAMES[:12]


OWN = {
    "noisy-neighbour": ("system.cpu.time", "state=steal"),
    "disk-saturation": ("system.disk.weighted_io_time", "device=nvme1n1"),
    "packet-loss": ("system.network.dropped", "direction=receive"),
    "memory-leak": ("system.memory.usage", "state=used"),
}


@pytest.mark.parametrize("kind", OWN)
def test_a_fault_moves_its_own_number_of_its_own_node_while_it_lasts(kind: str) -> None:
    simulated = fleet(nodes=8, faults=[f"{kind}:{NAMES[5]}@+30/60x2"])
    metric, label = OWN[kind]

    def excess(first_s: int) -> float:
        """How many times its peers' median the node's number is."""
        grown, now = increases(simulated, 12, first_s)
        values = now if kind == "memory-leak" else grown
        mine = {s[0]: v for s, v in values.items() if s[2] == metric and label in s}
        assert len(mine) == 8
        peers = float(np.median([v for node, v in mine.items() if node != NAMES[5]]))
        # A healthy node drops a packet now and then.
        return mine[NAMES[5]] / max(1.0 if kind == "packet-loss" else 0.001, peers)

    before, during, after = excess(0), excess(60), excess(95)
    assert 0.3 < before < 2 or kind == "packet-loss"
    assert during > before * (1.04 if kind == "memory-leak" else 10)
    assert after < during * (0.99 if kind == "memory-leak" else 0.1)


@pytest.mark.parametrize(("kind", "factor"), [("latency-step", 2.5), ("disk-saturation", 2), ("noisy-neighbour", 2)])
def test_a_fault_lengthens_requests(kind: str, factor: float) -> None:
    simulated = fleet(nodes=3, faults=[f"{kind}:1@+30"])

    def mean_s(first_s: int) -> np.ndarray:
        model = simulated._model
        simulated.collect(START_MS + 1000 * first_s)
        before = model.frontend.total_s.copy(), model.frontend.counts.sum(axis=1)
        for k in range(1, 11):
            simulated.collect(START_MS + 1000 * (first_s + k))
        times: np.ndarray = (model.frontend.total_s - before[0]) / (model.frontend.counts.sum(axis=1) - before[1])
        return times

    healthy, faulty = mean_s(0), mean_s(40)
    assert faulty[1] / healthy[1] > factor
    assert faulty[0] / healthy[0] < 1.3


def test_a_fleet_step_moves_all_nodes() -> None:
    simulated = fleet(nodes=8, faults=["fleet-step@+30x1"])
    before, _ = increases(simulated, 25)
    after, _ = increases(simulated, 25, 31)
    ratios = [after[node, "", "k8s.node.cpu.time"] / before[node, "", "k8s.node.cpu.time"] for node in NAMES[:8]]
    assert min(ratios) > 1.15


def test_a_silent_node_is_left_out_and_its_counters_go_on_meanwhile() -> None:
    simulated, whole = fleet(nodes=3, faults=["silent:1@+1/2"]), fleet(nodes=3)
    for k in range(4):
        found = {node for node, _, _ in metrics_of(simulated.collect(START_MS + 1000 * k))}
        assert found == {NAMES[0], NAMES[2]} | ({NAMES[1]} if k in (0, 3) else set())
        whole.collect(START_MS + 1000 * k)
    assert simulated.collect(START_MS + 4000) == whole.collect(START_MS + 4000)
    alone = fleet(nodes=1, faults=["silent:0@+0"])
    assert alone.collect(START_MS) == []


def test_counters_begin_with_healthy_days() -> None:
    ill = fleet(nodes=2, faults=["noisy-neighbour:0@+0", "disk-saturation:1@+0"])
    well = fleet(nodes=2)
    assert ill.collect(START_MS) == well.collect(START_MS)
    assert ill.collect(START_MS + 1000) != well.collect(START_MS + 1000)


def test_request_times_are_those_of_a_log_normal() -> None:
    edges_s = np.geomspace(0.001, 10, 400)
    times = RequestTimes(2, edges_s)
    generator = np.random.default_rng(5)
    drawn = generator.lognormal(np.log(0.05), SPREAD, 200_000)
    times.observe(np.array([200_000, 0]), np.array([0.05, 1.0]), generator)
    assert times.counts[1].sum() == 0
    assert times.total_s[1] == 0
    assert times.total_s[0] == pytest.approx(drawn.sum(), rel=0.01)
    # The sum does not hang on fine buckets.
    coarse = RequestTimes(1, np.array([0.06]))
    coarse.observe(np.array([200_000]), np.array([0.05]), generator)
    assert coarse.total_s[0] == pytest.approx(drawn.sum(), rel=0.01)
    for share in (0.1, 0.5, 0.9, 0.99):
        upper = edges_s[np.searchsorted(np.cumsum(times.counts[0]), share * 200_000)]
        assert upper == pytest.approx(np.quantile(drawn, share), rel=0.04)
