"""The sampler: what /proc says is what arrives, on schedule, with boot as the start of counters, at a known cost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from google.protobuf import json_format
from kafka import KafkaConsumer
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource

from fleetpulse.ingest import _sampler, _sampler_linux, _sampler_portable
from fleetpulse.ingest._cmd_sampler import sampler_command
from fleetpulse.ingest._durations import format_duration, parse_duration
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._sampler import HOST_SCOPE, SELF_SCOPE, Sampler
from fleetpulse.ingest._sampler_metrics import INSTRUMENTS, SELF_INSTRUMENTS, Readings, Source
from support.commands import Commands

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
Series = tuple[str, frozenset[tuple[str, str]]]


def series(readings: Readings) -> dict[Series, float]:
    """Readings as a table; each series once."""
    table = {(name, frozenset(labels.items())): value for name, points in readings.items() for labels, value in points}
    assert len(table) == sum(map(len, readings.values()))
    return table


def key(name: str, **labels: str) -> Series:
    return name, frozenset(labels.items())


class Memory(MetricExporter):
    """Keeps collections."""

    def __init__(self) -> None:
        super().__init__()
        self.collections: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **kwargs: Any) -> MetricExportResult:
        self.collections.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
        pass

    def names(self) -> list[set[str]]:
        return [
            {
                metric.name
                for of_resource in collection.resource_metrics
                for of_scope in of_resource.scope_metrics
                for metric in of_scope.metrics
            }
            for collection in self.collections
        ]


class Fake:
    """A source of one gauge; `read` can be made to fail."""

    def __init__(self, name: str = "fake", every_ms: int = 10, metric: str = "system.uptime") -> None:
        self.name, self.every_ms, self._metric = name, every_ms, metric
        self.reads = 0
        self.error: Exception | None = None

    def read(self) -> Readings:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return {self._metric: [({}, self.reads)]}


def sampler(
    *sources: Source, interval_ms: int = 1_000, exporter: MetricExporter | None = None
) -> tuple[Sampler, list[str]]:
    notes: list[str] = []
    made = Sampler(
        exporter or Memory(), interval_ms=interval_ms, resource=Resource({}), sources=sources, note=notes.append
    )
    return made, notes


# ---- what the kernel's files mean


def test_stat() -> None:
    text = (
        "cpu  30 2 3 4 5 6 7 8 9 10\ncpu0 10 1 2 300 4 5 6 7 8 9\ncpu11 20 1 1 100 1 1 1 1 1 1\nintr 5 1 2\n"
        "ctxt 777\nbtime 1700000000\nprocesses 55\nprocs_running 3\nprocs_blocked 1\nsoftirq 9 1\n"
    )
    table = series(_sampler_linux.parse_stat(text, 100))
    states = ("user", "nice", "system", "idle", "wait", "interrupt", "softirq", "steal")
    for state, ticks in zip(states, (10, 1, 2, 300, 4, 5, 6, 7), strict=True):
        assert table[key("system.cpu.time", cpu="cpu0", state=state)] == ticks / 100
    assert table[key("system.cpu.time", cpu="cpu11", state="idle")] == 1.0
    assert table[key("system.cpu.context_switches")] == 777
    assert table[key("system.processes.created")] == 55
    assert table[key("system.processes.count", status="running")] == 3
    assert table[key("system.processes.count", status="blocked")] == 1
    assert len(table) == 16 + 4


def test_memory_states_add_up() -> None:
    text = (
        "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nBuffers: 50 kB\nCached: 300 kB\nSwapCached: 1 kB\n"
        "SwapTotal: 20 kB\nSwapFree: 12 kB\nDirty: 7 kB\nSReclaimable: 40 kB\nSUnreclaim: 30 kB\nHugePages_Total: 0\n"
    )
    table = series(_sampler_linux.parse_meminfo(text))
    kb = {
        dict(labels)["state"]: value / 1024 for (name, labels), value in table.items() if name == "system.memory.usage"
    }
    assert kb == {
        "free": 100,
        "buffered": 50,
        "cached": 340,
        "used": 510,
        "slab_reclaimable": 40,
        "slab_unreclaimable": 30,
    }
    swap = {dict(labels)["state"]: value / 1024 for (name, labels), value in table.items() if "paging" in name}
    assert swap == {"used": 7, "free": 12, "cached": 1}
    assert table[key("system.linux.memory.available")] == 600 * 1024
    assert table[key("system.linux.memory.dirty")] == 7 * 1024
    assert table[key("system.memory.limit")] == 1000 * 1024


def test_vmstat() -> None:
    text = "nr_free_pages 9\npgpgin 41\npgpgout 80\npswpin 3\npswpout 4\npgfault 1000\npgmajfault 60\noom_kill 2\n"
    table = series(_sampler_linux.parse_vmstat(text))
    assert table == {
        key("system.paging.faults", type="major"): 60,
        key("system.paging.faults", type="minor"): 940,
        key("system.paging.operations", direction="page_in", type="major"): 3,
        key("system.paging.operations", direction="page_out", type="major"): 4,
        key("system.paging.operations", direction="page_in", type="minor"): 10,
        key("system.paging.operations", direction="page_out", type="minor"): 20,
        key("system.memory.oom_kills"): 2,
    }
    # Kernels before 4.13 do not count kills.
    assert "system.memory.oom_kills" not in _sampler_linux.parse_vmstat(text.replace("oom_kill 2\n", ""))


def test_pressure_totals_are_seconds() -> None:
    text = "some avg10=0.00 avg60=0.39 avg300=0.23 total=4735660\nfull avg300=0.00 total=9007199254\n"
    assert _sampler_linux.parse_pressure(text, "io") == [
        ({"resource": "io", "kind": "some"}, 4.73566),
        ({"resource": "io", "kind": "full"}, 9007.199254),
    ]


def test_diskstats_with_old_and_new_columns() -> None:
    old = "   8 0 sda 10 2 300 40 50 6 700 80 9 1000 1100\n"
    new = " 259 0 nvme0n1 1 0 8 1 0 0 0 0 0 1 1 5 0 40 2 3 1\n"
    idle = "   8 16 sdb 0 0 0 0 0 0 0 0 0 0 0\n"
    partition = "   8 1 sda1 10 2 300 40 50 6 700 80 9 1000 1100\n"
    table = series(_sampler_linux.parse_diskstats(old + new + idle + partition, lambda device: device != "sda1"))
    assert {dict(labels)["device"] for _, labels in table} == {"sda", "nvme0n1"}
    for direction, operations, merged, sectors, time_s in (("read", 10, 2, 300, 0.04), ("write", 50, 6, 700, 0.08)):
        assert table[key("system.disk.operations", device="sda", direction=direction)] == operations
        assert table[key("system.disk.merged", device="sda", direction=direction)] == merged
        assert table[key("system.disk.io", device="sda", direction=direction)] == sectors * 512
        assert table[key("system.disk.operation_time", device="sda", direction=direction)] == time_s
    assert table[key("system.disk.pending_operations", device="sda")] == 9
    assert table[key("system.disk.io_time", device="sda")] == 1.0
    assert table[key("system.disk.weighted_io_time", device="sda")] == 1.1


def test_each_byte_of_a_disk_is_counted_once(tmp_path: Path) -> None:
    """Partitions have no folder of their own under block; a mapped device names the devices it is made of."""
    for device in ("sda", "dm-0", "md0", "cciss!c0d0", "loop0"):
        (tmp_path / "block" / device / "slaves").mkdir(parents=True)
    (tmp_path / "block/dm-0/slaves/sda").touch()
    source = _sampler_linux.DiskSource(10, "/proc", str(tmp_path))
    wanted = [
        device for device in ("sda", "sda1", "dm-0", "md0", "cciss/c0d0", "loop0", "zram0") if source._is_wanted(device)
    ]
    assert wanted == ["sda", "md0", "cciss/c0d0"]


def test_network_devices() -> None:
    text = (
        "Inter-|   Receive                            |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier\n"
        "  eth0: 1 2 3 4 0 0 0 9 10 11 12 13 0 0 0 0\n"
        "vethlong:123 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        "  ifb0: 0 0 0 0 0 0 0 7 0 0 0 0 0 0 0 0\n"
    )
    table = series(_sampler_linux.parse_net_dev(text))
    received = [table[key(f"system.network.{what}", device="eth0", direction="receive")] for what in NETWORK]
    sent = [table[key(f"system.network.{what}", device="eth0", direction="transmit")] for what in NETWORK]
    assert (received, sent) == ([1, 2, 3, 4], [10, 11, 12, 13])
    assert {dict(labels)["device"] for _, labels in table} == {"eth0", "vethlong"}


NETWORK = ("io", "packets", "errors", "dropped")


def test_tcp() -> None:
    text = (
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Tcp: RtoAlgorithm RtoMin CurrEstab InSegs OutSegs RetransSegs\nTcp: 1 200 5 100 90 8\n"
    )
    table = series(_sampler_linux.parse_snmp(text))
    assert table[key("system.network.tcp.segments", direction="transmit")] == 90
    assert table[key("system.network.tcp.retransmits")] == 8
    assert table[key("system.network.connections", protocol="tcp", state="ESTABLISHED")] == 5
    table = series(_sampler_linux.parse_sockstat("sockets: used 14\nTCP: inuse 1 orphan 0 tw 68 alloc 1 mem 140\n"))
    assert table == {key("system.network.connections", protocol="tcp", state="TIME_WAIT"): 68}


def test_numa_and_rdma(tmp_path: Path) -> None:
    node = tmp_path / "devices/system/node/node1"
    node.mkdir(parents=True)
    (node / "numastat").write_text(
        "numa_hit 5\nnuma_miss 4\nnuma_foreign 3\ninterleave_hit 2\nlocal_node 1\nother_node 6\n"
    )
    (node / "meminfo").write_text("Node 1 MemTotal: 10 kB\nNode 1 MemFree: 4 kB\nNode 1 MemUsed: 6 kB\n")
    table = series(_sampler_linux.NumaSource(1_000, str(tmp_path)).read())
    assert table[key("system.numa.allocations", numa_node="1", outcome="miss")] == 4
    assert table[key("system.numa.allocations", numa_node="1", outcome="other")] == 6
    assert table[key("system.numa.memory.usage", numa_node="1", state="used")] == 6 * 1024
    port = tmp_path / "class/infiniband/mlx5_0/ports/1/counters"
    port.mkdir(parents=True)
    for name, value in (("port_rcv_data", 3), ("port_xmit_data", 5), ("port_xmit_wait", 7)):
        (port / name).write_text(f"{value}\n")
    assert series(_sampler_linux.RdmaSource(1_000, str(tmp_path)).read()) == {
        key("system.rdma.io", device="mlx5_0", port="1", direction="receive"): 12,
        key("system.rdma.io", device="mlx5_0", port="1", direction="transmit"): 20,
        key("system.rdma.transmit_wait", device="mlx5_0", port="1"): 7,
    }


def test_cpu_time_does_not_step_back_by_a_little() -> None:
    times = _sampler_linux.SteadyTimes()
    seen = [times.steady([({}, value)])[0][1] for value in (10.0, 10.5, 10.2, 10.4, 10.6, 3.0, 3.1)]
    assert seen == [10.0, 10.5, 10.5, 10.5, 10.6, 3.0, 3.1]


# ---- this machine, against psutil


def bracketed(read: Callable[[], Readings], name: str, labels: dict[str, str], other: Callable[[], float]) -> bool:
    """Whether our counter lies between another program's readings before and after."""
    before, ours, after = other(), series(read())[key(name, **labels)], other()
    return before - 1e-6 <= ours <= after + 1e-6


@linux_only
def test_counters_agree_with_psutil() -> None:
    sources = {source.name: source for source in _sampler.machine_sources()}
    nic = max(psutil.net_io_counters(pernic=True).items(), key=lambda item: item[1].bytes_recv)[0]
    disks = series(sources["disk"].read())
    checks: list[tuple[str, str, dict[str, str], Callable[[], float]]] = [
        ("cpu", "system.cpu.time", {"cpu": "cpu0", "state": "user"}, lambda: psutil.cpu_times(percpu=True)[0].user),
        ("cpu", "system.cpu.time", {"cpu": "cpu0", "state": "idle"}, lambda: psutil.cpu_times(percpu=True)[0].idle),
        ("cpu", "system.cpu.context_switches", {}, lambda: psutil.cpu_stats().ctx_switches),
        (
            "network",
            "system.network.io",
            {"device": nic, "direction": "receive"},
            lambda: psutil.net_io_counters(pernic=True)[nic].bytes_recv,
        ),
        (
            "network",
            "system.network.packets",
            {"device": nic, "direction": "transmit"},
            lambda: psutil.net_io_counters(pernic=True)[nic].packets_sent,
        ),
    ]
    for device in sorted({dict(labels)["device"] for _, labels in disks})[:1]:
        checks.append(
            (
                "disk",
                "system.disk.io",
                {"device": device, "direction": "write"},
                lambda device=device: psutil.disk_io_counters(perdisk=True)[device].write_bytes,  # type: ignore[misc]
            )
        )
    for source, name, labels, other in checks:
        assert bracketed(sources[source].read, name, labels, other), (name, labels)


@linux_only
def test_levels_agree_with_psutil() -> None:
    readings: Readings = {}
    for source in _sampler.machine_sources():
        if source.name in {"memory", "load", "file systems", "processes", "cpu", "uptime"}:
            for name, points in source.read().items():
                readings.setdefault(name, []).extend(points)
    table, memory, root = series(readings), psutil.virtual_memory(), psutil.disk_partitions()[0]
    used = sum(table[key("system.memory.usage", state=state)] for state in ("used", "free", "buffered", "cached"))
    assert used == memory.total == table[key("system.memory.limit")]
    assert table[key("system.linux.memory.available")] == pytest.approx(memory.available, rel=0.1)
    assert table[key("system.cpu.load_average.15m")] == pytest.approx(psutil.getloadavg()[2], abs=0.5)
    assert table[key("system.uptime")] == pytest.approx(time.time() - psutil.boot_time(), abs=3)
    processes = sum(value for (name, _), value in table.items() if name == "system.processes.count")
    assert processes == pytest.approx(len(psutil.pids()), abs=20)
    device = key(
        "system.filesystem.usage",
        device=root.device,
        mountpoint=min((part.mountpoint for part in psutil.disk_partitions() if part.device == root.device), key=len),
        type=root.fstype,
        mode="ro" if "ro" in root.opts.split(",") else "rw",
        state="free",
    )
    assert table[device] == pytest.approx(psutil.disk_usage(dict(device[1])["mountpoint"]).free, rel=0.05)


@linux_only
def test_what_psutil_reads_without_proc_has_the_same_names_and_values() -> None:
    table = series(_sampler_portable.PsutilSource(10).read())
    ours = series(
        {name: points for source in _sampler_linux.linux_sources()[:4] for name, points in source.read().items()}
    )
    for cpu in range(psutil.cpu_count() or 1):
        for state in _sampler_linux.CPU_STATES:
            series_key = key("system.cpu.time", cpu=f"cpu{cpu}", state=state)
            assert table[series_key] == pytest.approx(ours[series_key], abs=1)
    network = {series_key for series_key in ours if series_key[0] == "system.network.io"}
    assert network <= table.keys()
    assert {name for name, _ in table} <= INSTRUMENTS.keys()


@linux_only
def test_every_reading_has_an_instrument() -> None:
    for source in _sampler.machine_sources():
        try:
            assert source.read().keys() <= INSTRUMENTS.keys(), source.name
        except OSError:
            continue


# ---- collections


def test_missing_and_forbidden_sources_are_left_out_with_one_note(tmp_path: Path) -> None:
    gone, forbidden, works = Fake("gone"), Fake("forbidden"), Fake("works")
    gone.error = FileNotFoundError(2, "No such file or directory", "/proc/pressure/cpu")
    forbidden.error = PermissionError(13, "Permission denied", "/proc/vmstat")
    made, notes = sampler(gone, forbidden, works)
    for tick in range(3):
        made.collect(tick * 1_000)
    assert (gone.reads, forbidden.reads, works.reads) == (1, 1, 3)
    (note,) = notes
    assert "gone (No such file or directory), forbidden (Permission denied)" in note


def test_source_that_fails_later_is_noted_once_and_tried_again() -> None:
    source = Fake()
    made, notes = sampler(source)
    made.collect(0)
    source.error = OSError(5, "Input/output error")
    made.collect(1_000)
    made.collect(2_000)
    source.error = None
    made.collect(3_000)
    assert source.reads == 4
    assert len(notes) == 1
    assert "fake cannot be read any more (Input/output error)" in notes[0]


@linux_only
def test_kernel_without_pressure_totals(tmp_path: Path) -> None:
    source = _sampler_linux.PressureSource(1_000, str(tmp_path))
    with pytest.raises(FileNotFoundError):
        source.read()
    # Where only some of the files are there or may be read, those are read.
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/memory").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n")
    assert series(source.read()) == {key("system.pressure.total", resource="memory", kind="some"): 5e-6}


def test_slow_sources_are_read_less_often_and_give_no_old_values() -> None:
    memory = Memory()
    fast, slow = Fake("fast", 10, "system.uptime"), Fake("slow", 1_000, "system.cpu.frequency")
    made, _ = sampler(fast, slow, interval_ms=10, exporter=memory)
    for tick in range(201):
        made.collect(tick * 10)
    assert (fast.reads, slow.reads) == (201, 3)
    names = [names for names in memory.names() if "system.cpu.frequency" in names]
    assert len(names) == 3
    assert made.samples == 201 + 3 + 3 * 8


def test_metrics_that_need_not_be_sent_often_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    rare = Fake("rare", 10, "system.network.dropped")
    made, _ = sampler(rare, interval_ms=10, exporter=memory)
    for tick in range(21):
        made.collect(tick * 10)
    assert sum("system.network.dropped" in names for names in memory.names()) == 3


def test_at_a_second_all_samples_of_a_tick_have_one_time() -> None:
    memory = Memory()
    made, _ = sampler(Fake("one", 10), Fake("two", 1_000, "system.cpu.frequency"), exporter=memory)
    made.collect(0)
    (collection,) = memory.collections
    times = {
        point.time_unix_nano
        for of_resource in collection.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        for point in metric.data.data_points
    }
    assert len(times) == 1


class Clock:
    """Time that passes only while someone waits or works; stands in for the module `time`, and for an Event."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def process_time(self) -> float:
        return self.now_s / 100

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_sampler, "time", made)
    return made


@pytest.mark.parametrize(
    ("took_ms", "due", "missed"),
    [
        ({}, [0, 50, 100, 150, 200, 250, 300, 350, 400, 450], 0),
        # Late, but in time for the next tick.
        ({100: 49}, [0, 50, 100, 150, 200, 250, 300, 350, 400, 450], 0),
        # Past one tick: that one is made up for at once, none is missed.
        ({100: 70}, [0, 50, 100, 150, 200, 250, 300, 350, 400, 450], 0),
        ({100: 130}, [0, 50, 100, 200, 250, 300, 350, 400, 450], 1),
        # Past the end: ticks that would not have come are not missed.
        ({350: 900}, [0, 50, 100, 150, 200, 250, 300, 350], 2),
    ],
)
def test_ticks_are_multiples_of_the_interval(
    clock: Clock, took_ms: dict[int, int], due: list[int], missed: int
) -> None:
    made, _ = sampler(interval_ms=50)
    ticks: list[tuple[int, float]] = []

    def collect(tick_ms: int) -> int:
        ticks.append((tick_ms, 1_000 * (clock.now_s - 1_000)))
        clock.now_s += took_ms.get(tick_ms, 3) / 1_000
        return 0

    made.collect = collect  # type: ignore[method-assign]
    made.run(clock, seconds=0.5)  # type: ignore[arg-type]
    assert [tick_ms for tick_ms, _ in ticks] == due
    assert made.ticks_missed == missed
    # Never before its time; nothing adds up, so that the tick after a late one is on time again.
    assert all(at_ms >= tick_ms - 1e-6 for tick_ms, at_ms in ticks)
    assert ticks[-1][1] == pytest.approx(due[-1])


def test_stop_ends_a_long_interval_at_once() -> None:
    made, _ = sampler(Fake(), interval_ms=60_000)
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    started = time.monotonic()
    cost = made.run(stop)
    assert time.monotonic() - started < 2
    assert cost.collections == 1


def test_cost_is_reported_by_span(clock: Clock) -> None:
    made, _ = sampler(Fake(), interval_ms=20)
    costs: list[_sampler.Cost] = []
    whole = made.run(clock, seconds=0.5, report_s=0.125, report=costs.append)  # type: ignore[arg-type]
    assert [cost.collections for cost in costs] == [8, 6, 6]
    assert (whole.collections, whole.ticks_missed) == (25, 0)
    assert whole.seconds == pytest.approx(0.48)
    assert whole.cpu_s == pytest.approx(whole.seconds / 100)
    assert "25 collections of 1 samples" in whole.line()
    assert "CPU 1.00 % of one core" in whole.line()


def test_resource_names_the_machine_and_yields_to_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)
    attributes = _sampler.machine_resource({}).attributes
    assert attributes["host.name"]
    assert attributes["os.type"] == sys.platform
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=renamed,host.type=m5.large")
    attributes = _sampler.machine_resource({"host.type": "c5.large", "k8s.node.name": "n"}).attributes
    named = {name: attributes[name] for name in ("host.name", "host.type", "k8s.node.name")}
    assert named == {"host.name": "renamed", "host.type": "c5.large", "k8s.node.name": "n"}


# ---- through the command and a broker


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, broker: str, topic_prefix: str) -> Iterator[Commands]:
    made = Commands(monkeypatch)
    made.set(kafka_bootstrap=broker, source_topic=f"{topic_prefix}.otlp", partitions="1")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield made
    assert before == {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


def consumed(bootstrap: str, topic: str) -> list[Any]:
    """All records of a topic of one partition."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=1_000
    )
    try:
        return list(consumer)
    finally:
        consumer.close()


@linux_only
def test_machine_to_consumer(commands: Commands, broker: str, topic_prefix: str) -> None:
    boot_ns = int(psutil.boot_time()) * 1_000_000_000
    before_s = psutil.cpu_times()
    began_ns = time.time_ns()
    done = commands.run(
        sampler_command, "--interval", "50ms", "--batch", "200ms", "--seconds", "1.2", "--resource", "k8s.node.name=n1"
    )
    ended_ns = time.time_ns()
    after_s = psutil.cpu_times()
    assert done.code == 0
    assert "in all, " in done.err
    assert "0 records lost" in done.err
    records = consumed(broker, f"{topic_prefix}.otlp")
    assert 2 <= len(records) <= 8
    assert f" {len(records)} records, " in done.err
    points: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Any]] = {}
    kinds: dict[str, tuple[str, str]] = {}
    for record in records:
        assert record.key is None
        newest_ns = 0
        for of_resource in ExportMetricsServiceRequest.FromString(record.value).resource_metrics:
            resource = {pair.key: pair.value.string_value for pair in of_resource.resource.attributes}
            assert resource["k8s.node.name"] == "n1"
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    kind = metric.WhichOneof("data")
                    kinds[metric.name] = (kind, metric.unit)
                    for point in getattr(metric, kind).data_points:
                        labels = tuple(sorted((pair.key, pair.value.string_value) for pair in point.attributes))
                        points.setdefault((of_scope.scope.name, metric.name, labels), []).append(point)
                        newest_ns = max(newest_ns, point.time_unix_nano)
        assert record.timestamp == newest_ns // 1_000_000
    for (scope, name, labels), found in points.items():
        instrument = INSTRUMENTS.get(name) or SELF_INSTRUMENTS[name]
        assert kinds[name] == ("gauge" if instrument.kind == "gauge" else "sum", instrument.unit)
        times = [point.time_unix_nano for point in found]
        assert times == sorted(set(times)), (name, labels)
        assert all(began_ns <= at <= ended_ns for at in times)
        if instrument.kind != "gauge" and scope == HOST_SCOPE:
            assert {point.start_time_unix_nano for point in found} == {boot_ns}
        if instrument.kind == "counter":
            values = [getattr(point, point.WhichOneof("value")) for point in found]
            assert values == sorted(values), (name, labels)
            assert values[0] >= 0
    cpu = [found for (_, name, labels), found in points.items() if name == "system.cpu.time"]
    assert len(cpu) == 8 * (psutil.cpu_count() or 1)
    told = re.search(r"in all, .* (\d+) collections .* (\d+) ticks missed", done.err)
    assert told is not None
    collections, missed = int(told[1]), int(told[2])
    assert collections + missed == 24
    assert {len(found) for found in cpu} == {collections}
    user = sum(
        found[-1].as_double
        for (_, name, labels), found in points.items()
        if name == "system.cpu.time" and dict(labels)["state"] == "user"
    )
    # The machine's total as psutil adds it up, of a moment later.
    assert before_s.user - 0.1 <= user <= after_s.user + 0.1
    own = {name: found for (scope, name, _), found in points.items() if scope == SELF_SCOPE}
    assert own.keys() == SELF_INSTRUMENTS.keys()
    assert own["process.memory.usage"][0].as_int > 10_000_000


def test_once_and_stdout_is_the_collectors_file_form(commands: Commands, tmp_path: Path) -> None:
    done = commands.run(sampler_command, "--stdout", "--interval", "50ms", "--seconds", "0.8")
    requests = [json_format.ParseDict(line, ExportMetricsServiceRequest()) for line in done.json()]
    assert len(requests) >= 2
    (line,) = commands.run(sampler_command, "--stdout", "--once").json()
    scope = line["resourceMetrics"][0]["scopeMetrics"][0]
    metric = next(metric for metric in scope["metrics"] if "sum" in metric)
    # Enumerations are numbers and 64-bit integers strings, as OTLP/JSON wants.
    assert metric["sum"]["aggregationTemporality"] == 2
    assert isinstance(metric["sum"]["dataPoints"][0]["timeUnixNano"], str)
    assert json.dumps(line)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--interval", "5ms"), "10ms is the shortest"),
        (("--interval", "1"), "write 1s or 1ms"),
        (("--resource", "node"), "'node' is not name=value"),
        (("--bootstrap", "127.0.0.1:1"), "No Kafka broker answers at 127.0.0.1:1"),
    ],
)
def test_what_the_user_can_mend_is_said_in_time(commands: Commands, words: tuple[str, ...], told: str) -> None:
    started = time.monotonic()
    done = commands.run(sampler_command, *words)
    assert done.code == 2
    assert told in done.err
    assert time.monotonic() - started < 8


def test_told_to_stop_it_sends_what_it_has(broker: str, topic_prefix: str) -> None:
    code = "import typer, fleetpulse.ingest._cmd_sampler as c; typer.run(c.sampler_command)"
    topic = f"{topic_prefix}.otlp"
    words = ["--interval", "100ms", "--batch", "1m", "--bootstrap", broker, "--topic", topic]
    environment = {**os.environ, "FLEETPULSE_PARTITIONS": "1"}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *words], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        # The note that the topic was created or the machine lacks something comes before or with the first tick.
        process.stderr.readline()
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        told = process.stderr.read()
        assert process.wait(10) == 0
    assert "in all, " in told
    (record,) = consumed(broker, topic)
    times = {
        point.time_unix_nano
        for of_resource in ExportMetricsServiceRequest.FromString(record.value).resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        for point in metric.sum.data_points
        if metric.name == "system.network.io"
    }
    assert len(times) >= 5


# ---- durations


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10ms", 10),
        ("1s", 1_000),
        ("1.5s", 1_500),
        ("0.001s", 1),
        ("5m", 300_000),
        ("1m30s", 90_000),
        (" 2H ", 7_200_000),
        ("7d", 604_800_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text) == ms
    assert parse_duration(format_duration(ms)) == ms


@pytest.mark.parametrize("text", ["", "5", "1.5", "s", "5 s", "1x", "-1s", "0s", "0.5ms", "1s!", "1e3s", "٣s", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_duration(text)
