"""What a simulated node reports: resources, scopes, metrics and their points, in the spelling of the receivers.

The node's own metrics are those of the Collector's host metrics receiver, the kubelet's and the cluster's of
kubeletstats and k8s_cluster, CFS numbers and pressure totals as the catalog names them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from fleetpulse.ingest._simulate_wire import Shape

CPUS = 4
PODS = 3
CPU_STATES = ("user", "system", "nice", "softirq", "interrupt", "steal", "wait", "idle")
MEMORY_STATES = ("used", "free", "buffered", "cached", "slab_reclaimable", "slab_unreclaimable")
DISKS = ("nvme0n1", "nvme1n1")
POD_NAMES = ("frontend", "cart", "batch")
HOST_TYPE = "m6i.xlarge"
REGION = "eu-central-1"

REQUEST_METRIC = "http.server.request.duration"
REQUEST_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
REQUEST_ATTRIBUTES = {"http.request.method": "GET", "http.response.status_code": "200", "url.scheme": "http"}
FRONTEND_ROUTE = {**REQUEST_ATTRIBUTES, "http.route": "/product/{id}"}
CART_ROUTE = {**REQUEST_ATTRIBUTES, "http.route": "/cart"}

HOST_RECEIVER = "github.com/open-telemetry/opentelemetry-collector-contrib/receiver/hostmetricsreceiver"
KUBELET_RECEIVER = "github.com/open-telemetry/opentelemetry-collector-contrib/receiver/kubeletstatsreceiver"
CLUSTER_RECEIVER = "github.com/open-telemetry/opentelemetry-collector-contrib/receiver/k8sclusterreceiver"
REQUEST_SCOPE = "io.opentelemetry.http"


@dataclass(frozen=True)
class NumberMetric:
    """quantum: what the reporter counts in (a clock tick, a millisecond); values are whole multiples, rounded down."""

    name: str
    unit: str
    shape: Shape
    quantum: float
    points: tuple[Mapping[str, str], ...] = ({},)

    @property
    def integer(self) -> bool:
        return self.quantum == 1


@dataclass(frozen=True)
class Section:
    """One resource of a node. name tells apart metrics of the same name. histogram: the frontend's requests."""

    name: str
    scopes: tuple[tuple[str, tuple[NumberMetric, ...]], ...]
    pod: int | None = None
    histogram: bool = False


def _each(label: str, values: tuple[str, ...], **more: str) -> tuple[Mapping[str, str], ...]:
    return tuple({label: value, **more} for value in values)


def _across(*axes: tuple[str, tuple[str, ...]]) -> tuple[Mapping[str, str], ...]:
    """Every combination, the last axis fastest."""
    points: list[dict[str, str]] = [{}]
    for label, values in axes:
        points = [{**point, label: value} for point in points for value in values]
    return tuple(points)


_RECEIVE_TRANSMIT = ("direction", ("receive", "transmit"))
_READ_WRITE = ("direction", ("read", "write"))
_DEVICE = ("device", DISKS)
_ROOT = {"device": "/dev/nvme0n1p1", "mode": "rw", "mountpoint": "/", "type": "ext4"}
_CONTAINERS = {"device": "/dev/nvme1n1", "mode": "rw", "mountpoint": "/var/lib/containerd", "type": "xfs"}

GAUGE, UP_DOWN, COUNTER = Shape.GAUGE, Shape.UP_DOWN, Shape.COUNTER

_HOST = (
    (
        "cpu",
        (
            NumberMetric(
                "system.cpu.time",
                "s",
                COUNTER,
                0.01,
                _across(("cpu", tuple(f"cpu{i}" for i in range(CPUS))), ("state", CPU_STATES)),
            ),
            NumberMetric("system.cpu.context_switches", "{switches}", COUNTER, 1),
        ),
    ),
    (
        "load",
        tuple(NumberMetric(f"system.cpu.load_average.{span}", "{thread}", GAUGE, 0.01) for span in ("1m", "5m", "15m")),
    ),
    (
        "memory",
        (
            NumberMetric("system.memory.usage", "By", UP_DOWN, 1, _each("state", MEMORY_STATES)),
            NumberMetric("system.linux.memory.available", "By", UP_DOWN, 1),
        ),
    ),
    (
        "paging",
        (
            NumberMetric("system.paging.faults", "{faults}", COUNTER, 1, _each("type", ("major", "minor"))),
            NumberMetric(
                "system.paging.operations",
                "{operations}",
                COUNTER,
                1,
                _each("direction", ("page_in", "page_out"), type="major"),
            ),
        ),
    ),
    (
        "disk",
        (
            NumberMetric("system.disk.io", "By", COUNTER, 1, _across(_DEVICE, _READ_WRITE)),
            NumberMetric("system.disk.operations", "{operations}", COUNTER, 1, _across(_DEVICE, _READ_WRITE)),
            NumberMetric("system.disk.operation_time", "s", COUNTER, 0.001, _across(_DEVICE, _READ_WRITE)),
            NumberMetric("system.disk.io_time", "s", COUNTER, 0.001, _across(_DEVICE)),
            NumberMetric("system.disk.weighted_io_time", "s", COUNTER, 0.001, _across(_DEVICE)),
            NumberMetric("system.disk.pending_operations", "{operations}", UP_DOWN, 1, _across(_DEVICE)),
        ),
    ),
    (
        "filesystem",
        (
            NumberMetric(
                "system.filesystem.usage",
                "By",
                UP_DOWN,
                1,
                (
                    *(_ROOT | {"state": state} for state in ("used", "free", "reserved")),
                    *(_CONTAINERS | {"state": state} for state in ("used", "free")),
                ),
            ),
            NumberMetric(
                "system.filesystem.inodes.usage",
                "{inodes}",
                UP_DOWN,
                1,
                tuple(_ROOT | {"state": state} for state in ("used", "free")),
            ),
        ),
    ),
    (
        "network",
        (
            *(
                NumberMetric(
                    f"system.network.{what}", unit, COUNTER, 1, _across(("device", ("eth0",)), _RECEIVE_TRANSMIT)
                )
                for what, unit in (
                    ("io", "By"),
                    ("packets", "{packets}"),
                    ("dropped", "{packets}"),
                    ("errors", "{errors}"),
                )
            ),
            NumberMetric(
                "system.network.connections",
                "{connections}",
                UP_DOWN,
                1,
                _each("state", ("ESTABLISHED", "TIME_WAIT", "CLOSE_WAIT", "LISTEN"), protocol="tcp"),
            ),
        ),
    ),
    (
        "processes",
        (
            NumberMetric(
                "system.processes.count", "{processes}", UP_DOWN, 1, _each("status", ("running", "sleeping", "blocked"))
            ),
            NumberMetric("system.processes.created", "{processes}", COUNTER, 1),
        ),
    ),
    (
        "pressure",
        (
            NumberMetric(
                "system.pressure.total",
                "s",
                COUNTER,
                1e-6,
                (
                    {"resource": "cpu", "kind": "some"},
                    {"resource": "memory", "kind": "some"},
                    {"resource": "memory", "kind": "full"},
                    {"resource": "io", "kind": "some"},
                    {"resource": "io", "kind": "full"},
                ),
            ),
        ),
    ),
)

_KUBELET_NODE = (
    NumberMetric("k8s.node.cpu.time", "s", COUNTER, 1e-9),
    NumberMetric("k8s.node.memory.available", "By", GAUGE, 1),
    NumberMetric("k8s.node.memory.rss", "By", GAUGE, 1),
    NumberMetric("k8s.node.memory.working_set", "By", GAUGE, 1),
    NumberMetric("k8s.node.filesystem.usage", "By", GAUGE, 1),
    NumberMetric("k8s.node.filesystem.capacity", "By", GAUGE, 1),
)
_CLUSTER_NODE = (
    NumberMetric("k8s.node.allocatable_cpu", "{cpu}", GAUGE, 1e-3),
    NumberMetric("k8s.node.allocatable_memory", "By", GAUGE, 1),
)
_KUBELET_POD = (
    NumberMetric("k8s.pod.cpu.time", "s", COUNTER, 1e-9),
    NumberMetric("k8s.pod.memory.working_set", "By", GAUGE, 1),
    NumberMetric("k8s.pod.network.io", "By", COUNTER, 1, _across(("interface", ("eth0",)), _RECEIVE_TRANSMIT)),
)
_CLUSTER_POD = (NumberMetric("k8s.pod.phase", "", GAUGE, 1),)
_KUBELET_CONTAINER = (
    NumberMetric("container.cpu.time", "s", COUNTER, 1e-9),
    NumberMetric("container.cpu.cfs.periods", "{periods}", COUNTER, 1),
    NumberMetric("container.cpu.cfs.throttled_periods", "{periods}", COUNTER, 1),
    NumberMetric("container.memory.working_set", "By", GAUGE, 1),
)
_CLUSTER_CONTAINER = (
    NumberMetric("k8s.container.cpu_request", "{cpu}", GAUGE, 1e-3),
    NumberMetric("k8s.container.cpu_limit", "{cpu}", GAUGE, 1e-3),
    NumberMetric("k8s.container.memory_request", "By", GAUGE, 1),
    NumberMetric("k8s.container.memory_limit", "By", GAUGE, 1),
    NumberMetric("k8s.container.restarts", "{restart}", GAUGE, 1),
)

SECTIONS = (
    Section(
        "host",
        (
            *((f"{HOST_RECEIVER}/internal/scraper/{name}scraper", metrics) for name, metrics in _HOST),
            (KUBELET_RECEIVER, _KUBELET_NODE),
            (CLUSTER_RECEIVER, _CLUSTER_NODE),
        ),
    ),
    *(
        Section(f"pod{i}", ((KUBELET_RECEIVER, _KUBELET_POD), (CLUSTER_RECEIVER, _CLUSTER_POD)), pod=i)
        for i in range(PODS)
    ),
    *(
        Section(
            f"container{i}", ((KUBELET_RECEIVER, _KUBELET_CONTAINER), (CLUSTER_RECEIVER, _CLUSTER_CONTAINER)), pod=i
        )
        for i in range(PODS)
    ),
    Section("frontend", ((REQUEST_SCOPE, ()),), pod=0, histogram=True),
)
"""In the order in which a node's values are laid out. The cart service's exponential histogram comes after them."""

SERIES_PER_NODE = 2 + sum(
    len(metric.points) for section in SECTIONS for _, metrics in section.scopes for metric in metrics
)


def node_name(index: int) -> str:
    return f"sim-node-{index:03d}"


def host_attributes(cluster: str, index: int) -> dict[str, str]:
    name = node_name(index)
    return {
        "k8s.cluster.name": cluster,
        "k8s.node.name": name,
        "host.name": name,
        "host.type": HOST_TYPE,
        "cloud.region": REGION,
        "cloud.availability_zone": f"{REGION}{'abc'[index % 3]}",
        "os.type": "linux",
    }


def pod_attributes(cluster: str, index: int, pod: int) -> dict[str, str]:
    name = POD_NAMES[pod]
    # Named after what it is, so that a second run of the same fleet continues the same series.
    uid = uuid.uuid5(uuid.NAMESPACE_OID, f"{cluster}/{index}/{name}")
    return {
        "k8s.cluster.name": cluster,
        "k8s.node.name": node_name(index),
        "k8s.namespace.name": "shop",
        "k8s.pod.name": f"{name}-{uid.hex[:5]}",
        "k8s.pod.uid": str(uid),
    }


def container_attributes(cluster: str, index: int, pod: int) -> dict[str, str]:
    attributes = pod_attributes(cluster, index, pod)
    container_id = uuid.uuid5(uuid.NAMESPACE_OID, attributes["k8s.pod.uid"]).hex * 2
    return {**attributes, "k8s.container.name": POD_NAMES[pod], "container.id": container_id}


def service_attributes(cluster: str, index: int, pod: int) -> dict[str, str]:
    return {**pod_attributes(cluster, index, pod), "service.name": POD_NAMES[pod], "service.namespace": "shop"}
