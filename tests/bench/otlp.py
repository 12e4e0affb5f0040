"""Decoding and routing: samples a CPU second, beside a walk over protobuf's objects on the same bytes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics

from fleetpulse.ingest._route import Router
from support.otlp_samples import IDENTITY, NOW_NS, RECORD_MS, SECOND, key_values, make_decoder, one_resource, request

ROUNDS = 5
NODES = 50
STATES = ("user", "nice", "system", "interrupt", "softirq", "steal", "idle", "wait")
LABELS = Mapping[str, object]


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


def cpu_s(work: Callable[[], object], repeat: int) -> float:
    """CPU seconds of one call: median of five times the mean of `repeat`."""
    work()
    spent = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(repeat):
            work()
        spent.append((time.process_time() - started) / repeat)
    return median(spent)


def number_points() -> Iterator[str]:
    for cpus in (9, 25):
        records = [request(host(i, cpus)) for i in range(NODES)]
        decoder = make_decoder()
        samples = sum(len(decoder.decode(raw, RECORD_MS).points.numbers.series) for raw in records)

        def decode(records: list[bytes] = records, decoder: object = decoder) -> None:
            for raw in records:
                decoder.decode(raw, RECORD_MS)  # type: ignore[attr-defined]

        fast = samples / cpu_s(decode, 20)
        known: dict[tuple[object, ...], int] = {}
        slow = samples / cpu_s(lambda records=records, known=known: walk(records, known), 1)  # type: ignore[misc]
        size = len(records[0]) / (samples / NODES)
        yield (
            f"numbers, {samples // NODES} a record ({size:.0f} B each): {fast / 1e6:.1f} M samples/s; "
            f"protobuf's objects {slow / 1e6:.3f} M/s; x{fast / slow:.0f}"
        )


def routing() -> Iterator[str]:
    made = request(*(host(i, 12) for i in range(NODES)))
    samples = len(make_decoder().decode(made, RECORD_MS).points.numbers.series)
    router = Router(IDENTITY, "default", 1_000_000)
    spent = cpu_s(lambda: router.slice(made), 30)
    yield f"route, {samples} samples of {NODES} nodes a record: {samples / spent / 1e6:.1f} M samples/s"


def histogram_points() -> Iterator[str]:
    records = [histograms(i, 100) for i in range(20)]
    decoder = make_decoder()

    def decode() -> None:
        for raw in records:
            decoder.decode(raw, RECORD_MS)

    spent = cpu_s(decode, 20) / (20 * 100)
    yield f"histograms of 15 buckets: {1e-6 / spent:.1f} M points/s"


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
