"""Real receivers' and exporters' names arrive at the catalog's sources."""

from __future__ import annotations

import gzip
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from fleetpulse.features._series import Kind, NodeId, SeriesIdentity, SeriesTable, Source, Temporality
from fleetpulse.ingest._aliases import AliasError, load_aliases, parse_aliases
from support.otlp_samples import RECORD_MS, capture, make_decoder

E2E = Path(__file__).parent / "data" / "prometheus_text" / "e2e-output.txt.gz"
ALIASES = tomllib.loads(resources.files("fleetpulse.ingest").joinpath("aliases.toml").read_text())
CATALOG = tomllib.loads(resources.files("fleetpulse.features").joinpath("catalog.toml").read_text())


def source(
    name: str,
    attributes: dict[str, Any] | None = None,
    unit: str = "",
    kind: Kind = Kind.GAUGE,
    temporality: Temporality = Temporality.UNSPECIFIED,
    monotonic: bool = False,
) -> Source:
    identity = SeriesIdentity(
        NodeId("c", "n"), (), "", name, unit, kind, temporality, monotonic, tuple(sorted((attributes or {}).items()))
    )
    return load_aliases().source(identity)


def counter(name: str, attributes: dict[str, Any] | None = None, unit: str = "") -> Source:
    return source(name, attributes, unit, Kind.SUM, Temporality.CUMULATIVE, monotonic=True)


ROWS = [
    # name on the wire, its unit and attributes, canonical metric, its labels, scale
    ("system.cpu.time", "s", {"cpu": "cpu0", "state": "wait"}, "system.cpu.time", {"cpu": "cpu0", "state": "wait"}, 1),
    (
        "system.cpu.time",
        "s",
        {"cpu.logical_number": 3, "cpu.mode": "iowait"},
        "system.cpu.time",
        {"cpu": "3", "state": "wait"},
        1,
    ),
    ("system.network.packet.dropped", "{packet}", {"network.interface.name": "eth0", "network.io.direction": "receive"},
     "system.network.dropped", {"device": "eth0", "direction": "receive"}, 1),
    ("system.network.dropped", "{packets}", {"device": "eth0", "direction": "receive"},
     "system.network.dropped", {"device": "eth0", "direction": "receive"}, 1),
    ("system.memory.usage", "By", {"system.memory.state": "buffers"}, "system.memory.usage", {"state": "buffered"}, 1),
    ("system.memory.usage", "KiBy", {"state": "used"}, "system.memory.usage", {"state": "used"}, 1024),
    ("system.disk.io", "By", {"system.device": "sda", "disk.io.direction": "read"},
     "system.disk.io", {"device": "sda", "direction": "read"}, 1),
    ("system.paging.operations", "{operation}", {"system.paging.direction": "in", "system.paging.type": "major"},
     "system.paging.operations", {"direction": "page_in", "type": "major"}, 1),
    ("system.network.connection.count", "{connection}",
     {"network.transport": "tcp", "network.connection.state": "time_wait"},
     "system.network.connections", {"protocol": "tcp", "state": "TIME_WAIT"}, 1),
    ("system_cpu_time_seconds_total", "", {"cpu": "0", "state": "user"},
     "system.cpu.time", {"cpu": "0", "state": "user"}, 1),
    ("system_memory_usage_bytes", "", {"state": "used"}, "system.memory.usage", {"state": "used"}, 1),
    ("system_cpu_time", "s", {"cpu_mode": "kernel"}, "system.cpu.time", {"state": "system"}, 1),
    ("http.server.request.duration", "s", {}, "request.duration", {}, 1),
    ("http.server.duration", "ms", {}, "request.duration", {}, 1e-3),
    ("http.server.duration", "", {}, "request.duration", {}, 1e-3),
    ("http.server.duration", "us", {}, "request.duration", {}, 1e-6),
    ("rpc.server.duration", "ms", {}, "request.duration", {}, 1e-3),
    ("rpc.server.call.duration", "s", {}, "request.duration", {}, 1),
    ("http_server_request_duration_seconds", "", {}, "request.duration", {}, 1),
    ("k8s.pod.network.io", "By", {"interface": "eth0", "direction": "receive"},
     "k8s.pod.network.io", {"device": "eth0", "direction": "receive"}, 1),
    ("k8s.container.restart.count", "{restart}", {}, "k8s.container.restarts", {}, 1),
    ("node_cpu_seconds_total", "", {"cpu": "0", "mode": "iowait"}, "system.cpu.time", {"cpu": "0", "state": "wait"}, 1),
    ("node_cpu_seconds", "", {"cpu": "0", "mode": "irq"}, "system.cpu.time", {"cpu": "0", "state": "interrupt"}, 1),
    ("node_disk_written_bytes_total", "bytes", {"device": "sda"},
     "system.disk.io", {"device": "sda", "direction": "write"}, 1),
    ("node_filesystem_avail_bytes", "", {"device": "/dev/sda1", "fstype": "ext4", "mountpoint": "/"},
     "system.filesystem.usage", {"device": "/dev/sda1", "type": "ext4", "mountpoint": "/", "state": "free"}, 1),
    ("node_pressure_memory_stalled_seconds_total", "", {}, "system.pressure.total",
     {"resource": "memory", "kind": "full"}, 1),
    ("node_memory_numa_MemUsed", "", {"node": "1"}, "system.numa.memory.usage", {"numa_node": "1", "state": "used"}, 1),
    ("node_infiniband_port_data_received_bytes_total", "", {"device": "mlx4_0", "port": "1"},
     "system.rdma.io", {"device": "mlx4_0", "port": "1", "direction": "receive"}, 1),
    ("container_cpu_usage_seconds_total", "", {"container": "a", "pod": "p", "id": "/x/y"},
     "container.cpu.time", {"container": "a", "pod": "p", "id": "/x/y"}, 1),
    ("container_cpu_usage_seconds_total", "", {"pod": "p", "id": "/x"},
     "k8s.pod.cpu.time", {"pod": "p", "id": "/x"}, 1),
    ("container_cpu_usage_seconds_total", "", {"id": "/"}, "k8s.node.cpu.time", {"id": "/"}, 1),
    ("container_cpu_usage_seconds_total", "", {"id": "/system.slice"},
     "container_cpu_usage_seconds_total", {"id": "/system.slice"}, 1),
    ("container_network_receive_bytes_total", "", {"pod": "p", "interface": "eth0"},
     "k8s.pod.network.io", {"pod": "p", "device": "eth0", "direction": "receive"}, 1),
    ("kube_pod_container_resource_requests", "", {"resource": "memory", "unit": "byte"},
     "k8s.container.memory_request", {"resource": "memory", "unit": "byte"}, 1),
    ("kube_pod_status_phase", "", {"phase": "Failed"}, "k8s.pod.phase", {"phase": "Failed"}, 4),
    ("DCGM_FI_DEV_GPU_UTIL", "", {"gpu": "0"}, "hw.gpu.utilization", {"gpu": "0"}, 0.01),
    ("DCGM_FI_DEV_FB_USED", "", {"gpu": "0"}, "hw.gpu.memory.usage", {"gpu": "0"}, 2**20),
    ("DCGM_FI_DEV_GPU_TEMP", "", {"gpu": "0"}, "hw.temperature", {"gpu": "0", "hw.type": "gpu"}, 1),
    ("my.own.metric", "ms", {"cpu.mode": "iowait"}, "my.own.metric", {"cpu.mode": "iowait"}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "unit", "attributes", "metric", "labels", "scale"), ROWS)
def test_name_unit_and_labels_become_canonical(
    name: str, unit: str, attributes: dict[str, Any], metric: str, labels: dict[str, str], scale: float
) -> None:
    got = source(name, attributes, unit)
    assert (got.metric, got.labels, got.scale) == (metric, labels, scale)
    assert got.unit == ALIASES["metrics"].get(metric, unit)


def test_an_untyped_counter_is_read_as_a_counter() -> None:
    for kind, temporality in ((Kind.GAUGE, Temporality.UNSPECIFIED), (Kind.SUM, Temporality.CUMULATIVE)):
        got = source("node_vmstat_pgmajfault", kind=kind, temporality=temporality)
        assert (got.kind, got.temporality, got.monotonic) == (Kind.SUM, Temporality.CUMULATIVE, True)
    delta = source("node_vmstat_pgmajfault", kind=Kind.SUM, temporality=Temporality.DELTA, monotonic=True)
    assert delta.temporality is Temporality.DELTA
    gauge = source("node_load1")
    assert (gauge.kind, gauge.monotonic) == (Kind.GAUGE, False)


def test_resource_attributes_that_name_a_pod_become_labels() -> None:
    resource = (("host.name", "n"), ("k8s.pod.name", "p"))
    attributes = (("direction", "receive"), ("interface", "eth0"))
    identity = SeriesIdentity(
        NodeId("c", "n"), resource, "", "k8s.pod.network.io", "By", Kind.SUM, Temporality.CUMULATIVE, True, attributes
    )
    labels = {"k8s.pod.name": "p", "direction": "receive", "device": "eth0"}
    assert load_aliases().source(identity).labels == labels


def catalog_metrics() -> set[str]:
    return {metric for each in CATALOG["source"].values() for metric in each["metrics"]}


def test_every_metric_the_catalog_selects_has_a_unit_here() -> None:
    assert catalog_metrics() <= set(ALIASES["metrics"])


def _exporter_names() -> set[str]:
    with gzip.open(E2E, "rt", encoding="utf-8") as text:
        return {line.split()[2] for line in text if line.startswith("# TYPE")}


LEFT_OUT_OF_THE_RECORDING = {
    # Their values change from run to run, or the machine of the recording has no such device.
    *(f"node_filesystem_{what}" for what in ("size_bytes", "free_bytes", "avail_bytes", "files", "files_free")),
    *(f"node_network_{way}_{what}_total" for way in ("receive", "transmit") for what in ("bytes", "packets")),
    "node_memory_MemAvailable_bytes",
}


def test_node_exporter_names_are_spelled_as_it_prints_them() -> None:
    listed = {name for name in ALIASES["aliases"]["node-exporter"] if isinstance(name, str)}
    assert listed - _exporter_names() <= LEFT_OUT_OF_THE_RECORDING


@pytest.mark.parametrize(
    "group",
    [
        "node_(cpu_seconds|disk_(read|writ|io_)|load|pressure_(cpu|memory|io))[a-z_0-9]*",
        "node_infiniband_port_(data|discards|errors)_[a-z_]*",
        "node_memory_numa_(MemUsed|MemFree|numa_(hit|miss|foreign)_total|local_node_total|other_node_total)",
        "node_nf_conntrack_entries(_limit)?",
    ],
)
def test_whole_families_of_the_node_exporter_are_mapped(group: str) -> None:
    names = {name for name in _exporter_names() if re.fullmatch(group, name)}
    assert len(names) >= 2
    canonical = set(ALIASES["metrics"])
    assert {name for name in names if counter(name).metric not in canonical} == set()


def test_the_capture_needs_no_alias() -> None:
    table = SeriesTable()
    decoder = make_decoder(table, max_skew_ns=2**62)
    decoded = decoder.decode(capture(), RECORD_MS)
    assert decoded.refused == {}
    found: dict[str, Source] = {}
    for entry in table.series:
        assert entry is not None
        assert entry.source.metric == entry.identity.metric
        assert entry.source.scale == 1.0
        found[entry.source.metric] = entry.source
    known = {name for name in found if name.startswith(("system.", "k8s.", "container."))}
    assert known <= set(ALIASES["metrics"])
    assert len(known) > 50
    for name in known:
        assert found[name].unit == ALIASES["metrics"][name]
    assert {"system.cpu.time", "system.network.io", "k8s.pod.cpu.time"} <= known & catalog_metrics()


HEAD = '[metrics]\n"m" = "s"\n[labels]\n[values]\n[resource_labels]\n'

BROKEN = {
    "unknown canonical metric": '"a" = "b"',
    "unknown word": '"a" = { metric = "m", lables = {} }',
    "no metric": '"a" = { unit = "s" }',
    "units of different kinds": '"a" = { metric = "m", unit = "By" }',
    "no regular expression": '"a" = { metric = "m", when = { x = "(" } }',
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN)
def test_a_mistake_in_the_table_is_named(line: str) -> None:
    text = f"{HEAD}[aliases.test]\n{line}\n"
    with pytest.raises(AliasError, match="test: a"):
        parse_aliases(text)


@pytest.mark.parametrize(
    "entry", ['metric = "x"\nplus = ["a"]', 'metric = "m"', 'metric = "m"\nplus = ["a"]\nmore = 1']
)
def test_a_mistake_in_a_derivation_is_named(entry: str) -> None:
    text = f"{HEAD}[aliases]\n[[derived]]\n{entry}\n"
    with pytest.raises(AliasError, match="derived: "):
        parse_aliases(text)
