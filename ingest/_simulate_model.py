"""How simulated nodes behave: one load drives processors, memory, disks, network, pods and request times.

The nodes share a daily curve and a slow common noise; each has its own weight and its own slow and fast noise. What a
node reports follows from its demand, so that the numbers agree with one another: a queue for processors lengthens
requests, a saturated disk blocks processes and raises the waiting share, and so on. Nothing here is measured from a
real fleet; the aim is plausible sizes, and signs and proportions that are right.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fleetpulse.ingest._simulate_faults import Effects
from fleetpulse.ingest._simulate_requests import RequestTimes
from fleetpulse.ingest._simulate_schema import CPUS, PODS, REQUEST_BOUNDS

F64Array = NDArray[np.float64]

MEMORY_BYTES = 16 * 2**30
ROOT_BYTES = 100 * 2**30
CONTAINERS_BYTES = 500 * 2**30
ROOT_INODES = 6_553_600

EXPONENTIAL_SCALE = 3
EXPONENTIAL_FIRST = -104
"""Index of the first bucket that is kept: it begins at 2**(-104/8) s, 0.12 ms. The last one ends at 8 s."""
EXPONENTIAL_EDGES_S: F64Array = 2.0 ** (np.arange(EXPONENTIAL_FIRST + 1, 25) / 2**EXPONENTIAL_SCALE)

TYPICAL_LOAD = 0.45
_PACKET_BYTES = 850
_POD_CPU = np.array([0.45, 0.25, 0.12])
_POD_MEMORY = np.array([0.40, 0.26, 0.16])
_POD_NETWORK = np.array([0.60, 0.30, 0.05])
_POD_THROTTLED = np.array([1.0, 0.9, 0.6])
"""How much of a fault's throttling each pod gets."""
_CPU_REQUESTS, _CPU_LIMITS = np.array([1.0, 0.5, 0.5]), np.array([2.0, 1.0, 1.0])
_MEMORY_REQUESTS = np.array([4.0, 3.0, 2.0]) * 2**30
_MEMORY_LIMITS = np.array([8.0, 6.0, 15.0]) * 2**30
_LEAKING_POD = 2
# Rates at TYPICAL_LOAD and well seconds an operation, (disk, read or write). The second disk holds the containers.
_DISK_RATES = np.array([[3.0, 14.0], [110.0, 72.0]])
_DISK_SECONDS = np.array([[0.00030, 0.0008], [0.00035, 0.0009]])
_DISK_BYTES = np.array([[20_480, 16_384], [24_576, 32_768]])
# User, system, nice, softirq and interrupt, as shares of busy time.
_CPU_MIX = np.array([0.70, 0.19, 0.03, 0.05, 0.03])
_LOAD_SPANS_S = np.array([60.0, 300.0, 900.0])
_CFS_PERIODS_PER_S = 10

Key = tuple[str, str]
"""Section and metric, as the schema names them."""


class NodeModel:
    """State of n nodes. The same seed and the same calls give the same numbers."""

    def __init__(self, nodes: int, seed: int, start_ms: int) -> None:
        self.nodes = nodes
        self._start_ms = start_ms
        self._random = np.random.default_rng(seed)
        normal = self._random.standard_normal
        self.uptime_days: F64Array = self._random.uniform(2, 40, nodes)
        self._weight = np.exp(0.10 * normal(nodes))
        self._mix = _CPU_MIX * np.exp(0.08 * normal((nodes, 5)))
        self._mix /= self._mix.sum(axis=1, keepdims=True)
        self._disk_speed = np.exp(0.05 * normal((nodes, 1, 1)))
        self._memory_base = 0.02 * normal(nodes)
        self._root_used = 0.28 + 0.03 * normal(nodes)
        self._containers_used = 0.35 + 0.05 * normal(nodes)
        self._request_pace = np.exp(0.05 * normal(nodes))
        self._common = np.zeros(1)
        self._slow = np.zeros(nodes)
        self._fast = np.zeros(nodes)
        self._cores = np.zeros((nodes, CPUS))
        self._memory_drift = np.zeros(nodes)
        self._lasting_load = np.full(nodes, TYPICAL_LOAD)
        self._load_average = np.zeros((nodes, 3))
        self._pressure_io = np.zeros(nodes)
        self._pressure_memory = np.zeros(nodes)
        self._totals: dict[Key, F64Array] = {}
        self._values: dict[Key, F64Array] = {}
        self.frontend = RequestTimes(nodes, np.array(REQUEST_BOUNDS))
        self.cart = RequestTimes(nodes, EXPONENTIAL_EDGES_S)

    def advance(self, t_ms: int, elapsed_s: F64Array, effects: Effects) -> dict[Key, F64Array]:
        """Values at t_ms, elapsed_s (n,) after the last ones: (n, points) by metric, counters as totals.

        Not yet whole multiples of what the reporter counts in. The first call's elapsed_s is the nodes' uptime.
        """
        self._values = {}
        load = self._load(t_ms, elapsed_s, effects)
        disk_busy = self._disks(load, elapsed_s, effects)
        short = self._memory(load, elapsed_s, effects)
        busy, queue, available = self._processors(load, disk_busy, elapsed_s, effects)
        self._filesystems(t_ms, load)
        self._network(load, elapsed_s, effects)
        self._pods(busy, elapsed_s, effects)
        blocked = disk_busy**8
        slowdown = effects.latency * (
            1
            + 1.2 * (busy / available) ** 6
            + 5 * queue / CPUS
            + 0.8 * effects.steal
            + 2.5 * blocked
            + 12 * effects.loss
            + 8 * short
        )
        self._requests(load, slowdown, elapsed_s)
        return self._values

    def _load(self, t_ms: int, elapsed_s: F64Array, effects: Effects) -> F64Array:
        """Work on offer, as a share of the processors; above 1 is more than they can do."""
        day = 2 * math.pi * (t_ms % 86_400_000) / 86_400_000
        daily = 0.44 + 0.16 * math.sin(day - 2 * math.pi * 9 / 24) + 0.05 * math.sin(2 * day - 4 * math.pi * 7 / 24)
        self._common = self._drifted(self._common, elapsed_s[:1], 180, 0.03)
        self._slow = self._drifted(self._slow, elapsed_s, 90, 0.05)
        self._fast = self._drifted(self._fast, elapsed_s, 4, 0.05)
        noise = (1 + self._common) * (1 + self._slow) * (1 + self._fast)
        load: F64Array = np.clip(daily * self._weight * noise * effects.demand, 0.02, 2.0)
        self._lasting_load += (load - self._lasting_load) * (1 - np.exp(-elapsed_s / 60))
        return load

    def _disks(self, load: F64Array, elapsed_s: F64Array, effects: Effects) -> F64Array:
        """Busy share of the containers' disk."""
        wanted = _DISK_RATES * (0.3 + 0.7 * load / TYPICAL_LOAD)[:, None, None]
        wanted = wanted * np.exp(0.12 * self._random.standard_normal(wanted.shape))
        seconds = _DISK_SECONDS * self._disk_speed * np.exp(0.05 * self._random.standard_normal(wanted.shape))
        seconds[:, 1] *= effects.disk[:, None]
        offered = (wanted * seconds).sum(axis=2)
        busy = _soft_minimum(offered, 0.985)
        operations = self._events(wanted * (busy / offered)[:, :, None], elapsed_s)
        in_service = operations * seconds
        queueing = 1 + 3 * busy**4
        waiting = in_service * queueing[:, :, None]
        self._count("host", "system.disk.operations", operations)
        self._count("host", "system.disk.io", operations * _DISK_BYTES)
        self._count("host", "system.disk.operation_time", waiting)
        self._count("host", "system.disk.io_time", np.minimum(in_service.sum(axis=2), 0.999 * elapsed_s[:, None]))
        self._count("host", "system.disk.weighted_io_time", waiting.sum(axis=2))
        self._set("host", "system.disk.pending_operations", self._random.poisson(busy * queueing))
        stalled = 0.004 + 0.04 * busy[:, 1] + 0.55 * busy[:, 1] ** 8
        stalled *= np.exp(0.1 * self._random.standard_normal(self.nodes))
        self._pressure_io = np.clip(stalled, 0, 0.95) * elapsed_s
        return busy[:, 1]

    def _memory(self, load: F64Array, elapsed_s: F64Array, effects: Effects) -> F64Array:
        """How short memory is: 0 well, 1 exhausted."""
        self._memory_drift = self._drifted(self._memory_drift, elapsed_s, 300, 0.006)
        own = 0.30 + 0.12 * self._lasting_load / TYPICAL_LOAD + self._memory_base + self._memory_drift
        used = np.minimum(own + effects.leaked, 0.965)
        buffered = np.full(self.nodes, 0.015)
        cached = np.minimum(0.33 - 0.5 * self._memory_base, 1 - used - buffered - 0.015)
        free = 1 - used - buffered - cached
        reclaimable, unreclaimable = 0.022 + 0.1 * self._memory_drift, np.full(self.nodes, 0.011)
        available = free + 0.9 * cached + reclaimable
        shares = np.stack((used, free, buffered, cached, reclaimable, unreclaimable), axis=1)
        self._set("host", "system.memory.usage", _pages(shares * MEMORY_BYTES))
        self._set("host", "system.linux.memory.available", _pages(available * MEMORY_BYTES))
        self._set("host", "k8s.node.memory.available", _pages(available * MEMORY_BYTES))
        self._set("host", "k8s.node.memory.working_set", _pages((used + 0.1 * cached) * MEMORY_BYTES))
        self._set("host", "k8s.node.memory.rss", _pages(0.9 * used * MEMORY_BYTES))
        pods = own[:, None] * _POD_MEMORY * MEMORY_BYTES
        pods[:, _LEAKING_POD] += (used - own).clip(0) * MEMORY_BYTES
        for pod in range(PODS):
            self._set(f"pod{pod}", "k8s.pod.memory.working_set", _pages(pods[:, pod] * 1.002))
            self._set(f"container{pod}", "container.memory.working_set", _pages(pods[:, pod]))
        short: F64Array = np.clip((used - 0.88) / 0.085, 0, 1)
        faults = self._events(np.stack((0.3 + 300 * short, 400 + 2500 * load), axis=1), elapsed_s)
        self._count("host", "system.paging.faults", faults)
        moved = self._events(np.stack((0.2 + 250 * short, 120 * short), axis=1), elapsed_s)
        self._count("host", "system.paging.operations", moved)
        noise = np.exp(0.3 * self._random.standard_normal(self.nodes))
        self._pressure_memory = np.minimum(0.0002 * noise + 0.5 * short, 0.95) * elapsed_s
        return short

    def _processors(
        self, load: F64Array, disk_busy: F64Array, elapsed_s: F64Array, effects: Effects
    ) -> tuple[F64Array, F64Array, F64Array]:
        """Busy, queued and available processors."""
        steal = np.clip(0.002 + 0.0006 * np.abs(self._random.standard_normal(self.nodes)) + effects.steal, 0, 0.7)
        available = CPUS * (1 - steal)
        wanted = CPUS * (load + effects.crowd)
        busy = _soft_minimum(wanted, 0.99 * available)
        queue = np.maximum(wanted - busy, 0)
        blocked = disk_busy**8
        self._cores = self._drifted(self._cores, elapsed_s[:, None], 15, 0.08)
        uneven = 1 + self._cores - self._cores.mean(axis=1, keepdims=True)
        room = (1 - steal)[:, None]
        core_busy = np.clip((busy / CPUS)[:, None] * uneven, 0, room)
        core_wait = np.minimum((0.003 + 0.06 * disk_busy + 0.12 * blocked)[:, None], 0.95 * (room - core_busy))
        states = np.concatenate(
            (
                core_busy[:, :, None] * self._mix[:, None, :],
                np.broadcast_to(steal[:, None, None], (self.nodes, CPUS, 1)),
                core_wait[:, :, None],
                (room - core_busy - core_wait)[:, :, None],
            ),
            axis=2,
        )
        self._count("host", "system.cpu.time", states * elapsed_s[:, None, None])
        self._count("host", "k8s.node.cpu.time", CPUS * core_busy.mean(axis=1) * elapsed_s)
        self._count(
            "host", "system.cpu.context_switches", self._events(2_000 + 9_000 * load + 3_000 * queue, elapsed_s)
        )
        runnable = busy + 4 * queue + 4 * blocked
        kept = np.exp(-elapsed_s[:, None] / _LOAD_SPANS_S)
        self._load_average = self._load_average * kept + runnable[:, None] * (1 - kept)
        for i, span in enumerate(("1m", "5m", "15m")):
            self._set("host", f"system.cpu.load_average.{span}", self._load_average[:, i])
        stalled = 0.003 + 0.04 * (busy / available) ** 6 + 0.6 * queue / CPUS + 0.7 * effects.steal
        stalled *= np.exp(0.1 * self._random.standard_normal(self.nodes))
        cpu, io, memory = np.clip(stalled, 0, 0.95) * elapsed_s, self._pressure_io, self._pressure_memory
        self._count("host", "system.pressure.total", np.stack((cpu, memory, 0.4 * memory, io, 0.6 * io), axis=1))
        running = 1 + self._random.poisson(0.8 * busy + 2 * queue)
        sleeping = np.round(215 + 2 * self._random.standard_normal(self.nodes))
        waiting = self._random.poisson(0.05 + 5 * blocked)
        self._set("host", "system.processes.count", np.stack((running, sleeping, waiting), axis=1))
        self._count("host", "system.processes.created", self._events(4 + 8 * load, elapsed_s))
        return busy, queue, available

    def _filesystems(self, t_ms: int, load: F64Array) -> None:
        since_start_s = (t_ms - self._start_ms) / 1000
        root = self._root_used * ROOT_BYTES + 3_000 * since_start_s
        containers = self._containers_used * CONTAINERS_BYTES + 40_000 * since_start_s + 2**24 * load
        reserved = np.full(self.nodes, 0.05 * ROOT_BYTES)
        self._set(
            "host",
            "system.filesystem.usage",
            _pages(
                np.stack(
                    (root, ROOT_BYTES - root - reserved, reserved, containers, CONTAINERS_BYTES - containers), axis=1
                )
            ),
        )
        inodes = np.floor(root / 40_000)
        self._set("host", "system.filesystem.inodes.usage", np.stack((inodes, ROOT_INODES - inodes), axis=1))
        self._set("host", "k8s.node.filesystem.usage", _pages(root))
        self._set("host", "k8s.node.filesystem.capacity", np.full(self.nodes, ROOT_BYTES))
        self._set("host", "k8s.node.allocatable_cpu", np.full(self.nodes, CPUS - 0.08))
        self._set("host", "k8s.node.allocatable_memory", np.full(self.nodes, 0.93 * MEMORY_BYTES))

    def _network(self, load: F64Array, elapsed_s: F64Array, effects: Effects) -> None:
        through = (load / TYPICAL_LOAD * (1 - np.minimum(3 * effects.loss, 0.8)))[:, None]
        rates = np.array([22e6, 15e6]) * through * np.exp(0.06 * self._random.standard_normal((self.nodes, 2)))
        packets = self._events(rates / _PACKET_BYTES, elapsed_s)
        loss = effects.loss[:, None]
        sent = packets * _PACKET_BYTES
        self._count("host", "system.network.io", sent)
        self._count("host", "system.network.packets", packets)
        dropped = self._events(0.05 + rates / _PACKET_BYTES * loss * (1.0, 0.4), elapsed_s)
        self._count("host", "system.network.dropped", dropped)
        self._count("host", "system.network.errors", self._events(rates / _PACKET_BYTES * loss * 0.1, elapsed_s))
        noise = self._random.standard_normal(self.nodes)
        waiting = self._random.poisson(2 + 400 * effects.loss)
        connections = (180 + 400 * load + 5 * noise, 60 + 150 * load, waiting, np.full(self.nodes, 24))
        self._set("host", "system.network.connections", np.stack(connections, axis=1))
        for pod in range(PODS):
            self._count(f"pod{pod}", "k8s.pod.network.io", sent * _POD_NETWORK[pod])

    def _pods(self, busy: F64Array, elapsed_s: F64Array, effects: Effects) -> None:
        usage = busy[:, None] * _POD_CPU * (1 - 0.5 * effects.throttled[:, None] * _POD_THROTTLED)
        throttled = np.clip(
            0.004 + 0.02 * (usage / _CPU_LIMITS) ** 4 + effects.throttled[:, None] * _POD_THROTTLED, 0, 0.98
        )
        throttled *= np.exp(-0.1 * np.abs(self._random.standard_normal(throttled.shape)))
        for pod in range(PODS):
            container = f"container{pod}"
            self._count(f"pod{pod}", "k8s.pod.cpu.time", 1.005 * usage[:, pod] * elapsed_s)
            self._set(f"pod{pod}", "k8s.pod.phase", np.full(self.nodes, 2))
            self._count(container, "container.cpu.time", usage[:, pod] * elapsed_s)
            self._count(container, "container.cpu.cfs.periods", _CFS_PERIODS_PER_S * elapsed_s)
            self._count(
                container, "container.cpu.cfs.throttled_periods", _CFS_PERIODS_PER_S * throttled[:, pod] * elapsed_s
            )
            for name, values in (
                ("cpu_request", _CPU_REQUESTS),
                ("cpu_limit", _CPU_LIMITS),
                ("memory_request", _MEMORY_REQUESTS),
                ("memory_limit", _MEMORY_LIMITS),
            ):
                self._set(container, f"k8s.container.{name}", np.full(self.nodes, values[pod]))
            self._set(container, "k8s.container.restarts", np.zeros(self.nodes))

    def _requests(self, load: F64Array, slowdown: F64Array, elapsed_s: F64Array) -> None:
        for times, rate, median_s in ((self.frontend, 70.0, 0.022), (self.cart, 120.0, 0.005)):
            requests = self._random.poisson(rate * load / TYPICAL_LOAD * elapsed_s)
            times.observe(requests, median_s * self._request_pace * slowdown, self._random)

    def _drifted(self, state: F64Array, elapsed_s: F64Array, span_s: float, size: float) -> F64Array:
        """An Ornstein-Uhlenbeck noise's next value: stationary deviation `size`, forgotten over span_s."""
        kept = np.exp(-elapsed_s / span_s)
        drifted: F64Array = state * kept + size * np.sqrt(1 - kept**2) * self._random.standard_normal(state.shape)
        return drifted

    def _events(self, rate: F64Array, elapsed_s: F64Array) -> F64Array:
        """Numbers of events at these rates a second, (n, ...)."""
        over = elapsed_s.reshape(-1, *(1 for _ in rate.shape[1:]))
        drawn: F64Array = self._random.poisson(rate * over).astype(np.float64)
        return drawn

    def _set(self, section: str, metric: str, values: F64Array | NDArray[np.int64]) -> None:
        self._values[section, metric] = values.reshape(self.nodes, -1).astype(np.float64)

    def _count(self, section: str, metric: str, increase: F64Array) -> None:
        flat = increase.reshape(self.nodes, -1)
        total = self._totals.get((section, metric), 0.0) + flat
        self._totals[section, metric] = self._values[section, metric] = total


def _soft_minimum(wanted: F64Array, limit: F64Array | float) -> F64Array:
    """Nearly the smaller of both, bending before the limit as a queue does."""
    power = 8
    bent: F64Array = wanted / (1 + (wanted / limit) ** power) ** (1 / power)
    return bent


def _pages(size_bytes: F64Array) -> F64Array:
    """Whole pages of 4 KiB."""
    return np.floor(size_bytes / 4096) * 4096
