"""Decoding and routing: samples a CPU second, beside a walk over protobuf's objects on the same bytes.

Every figure is the median of five rounds in one process, per CPU second. Where points go into the windows, scrapes
follow one another in time, so that nothing is a duplicate.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import TypeVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics

from fleetpulse.features import Catalog, FleetState, SeriesTable
from fleetpulse.ingest._route import Router
from support.otlp_samples import IDENTITY, NOW_NS, RECORD_MS, SECOND, key_values, make_decoder, one_resource, request

ROUNDS = 5
NODES = 50
SCRAPES = 8
REPEATS = 20
INTERVAL_MS = 5_000
NS_PER_MS = 1_000_000
WINDOW_MS = 300_000
LOOK_BACK_NS = 1_200 * SECOND
ROUTED_CPUS = 14
"""Makes records of about 8,192 points."""
STATES = ("user", "nice", "system", "interrupt", "softirq", "steal", "idle", "wait")
LABELS = Mapping[str, object]
Record = tuple[bytes, int]
"""A request, and its record's timestamp in ms."""
T = TypeVar("T")


def host(number: int, cpus: int) -> ResourceMetrics:
    """A scrape of one host, as the host receiver sends it: 48 samples and 8 for each cpu."""
    name = f"ip-192-168-{number}.us-west-2.compute.internal"
    resource: dict[str, object] = {
        "cloud.provider": "aws",
        "cloud.region": "us-west-2",
        "cloud.availability_zone": "us-west-2a",
        "host.id": f"i-03e5dd923dbca{number:04}",
        "host.name": name,
        "host.type": "t3.xlarge",
        "k8s.cluster.name": "test-cluster",
        "k8s.node.name": name,
        "os.type": "linux",
    }
    ways = [{"device": device, "direction": way} for device in ("eth0", "eth1") for way in ("receive", "transmit")]
    disks = [{"device": device, "direction": way} for device in ("nvme0n1", "nvme1n1") for way in ("read", "write")]
    mounts = [
        {"device": "/dev/nvme0n1p1", "mode": "rw", "mountpoint": mount, "state": state, "type": "xfs"}
        for mount in ("/", "/var/log", "/etc/hosts")
        for state in ("used", "free", "reserved")
    ]
    metrics = [
        total("system.cpu.time", "s", [{"cpu": f"cpu{c}", "state": s} for c in range(cpus) for s in STATES]),
        total("system.memory.usage", "By", [{"state": s} for s in ("used", "free", "buffered", "cached")], False),
        *(total(f"system.network.{what}", "By", ways) for what in ("io", "packets", "dropped", "errors")),
        *(total(f"system.disk.{what}", "By", disks) for what in ("io", "operations", "merged", "operation_time")),
        total("system.filesystem.usage", "By", mounts, False),
        *(gauge(f"system.cpu.load_average.{minutes}", "1") for minutes in ("1m", "5m", "15m")),
    ]
    return one_resource(resource, *metrics)


def total(name: str, unit: str, points: list[LABELS] | list[dict[str, str]], monotonic: bool = True) -> Metric:
    metric = Metric(name=name, description="A description of about this length.", unit=unit)
    metric.sum.aggregation_temporality = 2
    metric.sum.is_monotonic = monotonic
    for i, labels in enumerate(points):
        point = metric.sum.data_points.add(start_time_unix_nano=NOW_NS - 86_400 * SECOND, time_unix_nano=NOW_NS)
        point.attributes.extend(key_values(labels))
        point.as_double = 1.5 * i
    return metric


def gauge(name: str, unit: str) -> Metric:
    metric = Metric(name=name, description="A description of about this length.", unit=unit)
    metric.gauge.data_points.add(time_unix_nano=NOW_NS, as_double=0.5)
    return metric


def histograms(number: int, series: int) -> bytes:
    """Request durations of 15 buckets, `series` of them."""
    metric = Metric(name="http.server.request.duration", unit="s")
    metric.histogram.aggregation_temporality = 2
    for i in range(series):
        metric.histogram.data_points.add(
            start_time_unix_nano=NOW_NS - SECOND,
            time_unix_nano=NOW_NS,
            attributes=key_values({"http.route": f"/api/{i}", "http.request.method": "GET"}),
            count=sum(range(15)),
            sum=12.5,
            bucket_counts=range(15),
            explicit_bounds=[0.005 * 2**k for k in range(14)],
        )
    return request(one_resource({"host.name": f"n{number}"}, metric))


def walk(records: list[bytes], known: dict[tuple[object, ...], int]) -> list[tuple[int, int, float]]:
    """Series, time and value of every number point, by protobuf's objects: the least that a decoder has to do."""
    rows = []
    for raw in records:
        for entry in ExportMetricsServiceRequest.FromString(raw).resource_metrics:
            resource = tuple(sorted((each.key, each.value.string_value) for each in entry.resource.attributes))
            for scope in entry.scope_metrics:
                for metric in scope.metrics:
                    for point in getattr(metric, metric.WhichOneof("data") or "").data_points:
                        labels = tuple(sorted((each.key, each.value.string_value) for each in point.attributes))
                        key = (resource, scope.scope.name, metric.name, labels)
                        series = known.setdefault(key, len(known))
                        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
                        rows.append((series, point.time_unix_nano, value))
    return rows


def cpu_s(work: Callable[[T], object], rounds: Iterable[T], items: int) -> float:
    """CPU seconds an item: median over the rounds but the first, which warms up. items: in one round."""
    spent = []
    for given in rounds:
        started = time.process_time()
        work(given)
        spent.append((time.process_time() - started) / items)
    return median(spent[1:])


def scrapes(records: list[bytes], *, warm: int) -> Iterator[list[Record]]:
    """For each round, the records of SCRAPES scrapes, each INTERVAL_MS after the one before; of `warm` in the first."""
    record_ms = RECORD_MS
    before = NOW_NS.to_bytes(8, "little")
    for count in (warm, *[SCRAPES] * ROUNDS):
        made = []
        for _ in range(count):
            record_ms += INTERVAL_MS
            now = (record_ms * NS_PER_MS).to_bytes(8, "little")
            made += [(raw.replace(before, now), record_ms) for raw in records]
        yield made


class Shard:
    """A decoder, and the windows that its points go into."""

    def __init__(self) -> None:
        table = SeriesTable()
        self._decoder = make_decoder(table)
        self._state = FleetState(Catalog.load(), table, look_back_ns=LOOK_BACK_NS)

    def decode(self, given: list[Record]) -> None:
        for raw, record_ms in given:
            self._decoder.decode(raw, record_ms)

    def take(self, given: list[Record]) -> None:
        for raw, record_ms in given:
            added = self._state.add(self._decoder.decode(raw, record_ms).points, partition=0, offset=0)
            assert added.duplicates == added.late == 0, "every sample counts"


def rates(records: list[bytes], points: int) -> tuple[float, float]:
    """Millions of points a second: decoded, and with entering them into full windows. points: in a record."""
    again = [[(raw, RECORD_MS) for raw in records] * REPEATS] * (1 + ROUNDS)
    decoded = cpu_s(Shard().decode, again, points * len(records) * REPEATS)
    following = scrapes(records, warm=WINDOW_MS // INTERVAL_MS + 1)
    taken = cpu_s(Shard().take, following, points * len(records) * SCRAPES)
    return 1e-6 / decoded, 1e-6 / taken


def number_points() -> Iterator[str]:
    for cpus in (9, 25):
        records = [request(host(i, cpus)) for i in range(NODES)]
        each = len(make_decoder().decode(records[0], RECORD_MS).points.numbers.series)
        decoded, taken = rates(records, each)
        known: dict[tuple[object, ...], int] = {}
        walked = 1e-6 / cpu_s(partial(walk, known=known), [records] * (1 + ROUNDS), each * NODES)
        yield (
            f"numbers, {each} a record ({len(records[0]) / each:.0f} B each): decoded, interned and checked "
            f"{decoded:.1f} M samples/s; protobuf's objects {walked:.3f} M/s; x{decoded / walked:.0f}; "
            f"with entering them into the windows {taken:.1f} M/s"
        )


def routing() -> Iterator[str]:
    made = request(*(host(i, ROUTED_CPUS) for i in range(NODES)))
    samples = len(make_decoder().decode(made, RECORD_MS).points.numbers.series)
    router = Router(IDENTITY, "default", 1_000_000)

    def route(given: list[bytes]) -> None:
        for raw in given:
            router.slice(raw)

    spent = cpu_s(route, [[made] * 50] * (1 + ROUNDS), 50 * samples)
    yield f"route, {samples} samples of {NODES} nodes a record: {1e-6 / spent:.1f} M samples/s"


def histogram_points() -> Iterator[str]:
    decoded, taken = rates([histograms(i, 100) for i in range(20)], 100)
    yield f"histograms of 15 buckets: {decoded:.1f} M points/s; with entering them into the windows {taken:.2f} M/s"


def new_series() -> Iterator[str]:
    records = [request(host(i, 22)) for i in range(10)]
    decoder = make_decoder()
    started = time.process_time()
    series = sum(len(decoder.decode(raw, RECORD_MS).points.numbers.series) for raw in records)
    yield f"a series seen for the first time: {(time.process_time() - started) / series * 1e6:.0f} us"


def start() -> Iterator[str]:
    """The first request of a new process whose kernels are compiled already."""
    program = (
        "import time; t = time.perf_counter()\n"
        "from support.otlp_samples import RECORD_MS, fixtures, make_decoder\n"
        "decoder = make_decoder(identity=('service.name', 'host.name'))\n"
        "[decoder.decode(raw, RECORD_MS) for _, raw in fixtures()]\n"
        "print(time.perf_counter() - t)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    yield f"import, load compiled kernels, first requests: {float(result.stdout):.1f} s"


def run() -> None:
    for part in (number_points, routing, histogram_points, new_series, start):
        for line in part():
            print(line, flush=True)
