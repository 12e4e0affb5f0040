"""Vectors of a made-up fleet, one set each 5 s, as the feature stage would publish them.

Levels carry what real ones do: nodes that differ, a load that all share and that drifts, and noise that the sliding
windows smooth. A fault adds to the raw signal, so that it enters a 5-minute feature gradually.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._catalog import Catalog
from fleetpulse.features._vector import AGE_UNKNOWN_MS, NodeVector, Status

SLIDE_S = 5
_STATUS = np.array([Status.OK, Status.MISSING], np.uint8)
_AGE_MS = np.array([0, AGE_UNKNOWN_MS], np.uint32)
"""By whether a value is missing."""
START_NS = 1_790_000_000 * 1_000_000_000
CATALOG = Catalog.load()

TYPICAL: Mapping[str, tuple[float, float]] = {
    # feature without its window: (typical raw value, relative noise of one sample)
    "cpu_busy_share": (0.35, 0.1),
    "cpu_user_share": (0.25, 0.1),
    "cpu_system_share": (0.08, 0.1),
    "cpu_wait_share": (0.01, 0.3),
    "cpu_steal_share": (0.002, 0.5),
    "cpu_load": (0.5, 0.2),
    "cpu_throttled_share": (0.02, 0.5),
    "memory_used_share": (0.55, 0.01),
    "memory_used_share_max": (0.56, 0.01),
    "memory_available_bytes": (30e9, 0.01),
    "memory_capacity_bytes": (64e9, 0.0),
    "disk_read_bytes": (3e6, 0.5),
    "disk_write_bytes": (8e6, 0.4),
    "disk_busy_share": (0.12, 0.2),
    "disk_queue": (0.3, 0.3),
    "network_receive_bytes": (20e6, 0.2),
    "network_transmit_bytes": (25e6, 0.2),
    "network_receive_dropped": (0.0, 0.0),
    "pressure_cpu": (0.03, 0.3),
    "pressure_io": (0.02, 0.4),
    "contention_cpu": (0.03, 0.3),
    "contention_disk": (0.1, 0.3),
    "request_p50": (0.02, 0.05),
    "request_p99": (0.2, 0.15),
    "request_rate": (80.0, 0.1),
    "request_count": (24_000.0, 0.1),
    "processes_running": (3.0, 0.3),
    "processes_context_switches": (20_000.0, 0.1),
}
SHARED_LOAD = ("cpu_", "network_receive_bytes", "network_transmit_bytes", "request_rate", "request_count", "processes_")

Fault = Callable[[str, float, float], float]
"""(signal, its raw value, seconds since the fault began) -> raw value."""


def signal_of(feature: str) -> str:
    return feature.removesuffix("_5m").removesuffix("_1m")


@dataclass
class MadeUpFleet:
    """faults: node index -> (start_s, Fault); start_s counts from the first slide. fleet_fault: of all nodes.

    covered_ms grows from 0 unless `warm`. Rows are deterministic in seed.
    """

    nodes: int
    seed: int = 1
    warm: bool = True
    faults: dict[int, tuple[float, Fault]] = field(default_factory=dict)
    fleet_fault: tuple[float, Fault] | None = None
    silent: dict[int, tuple[float, float]] = field(default_factory=dict)
    differ: float = 0.25
    pool: str = "general"

    def __post_init__(self) -> None:
        print(f"fleet seed {self.seed}")
        self.random = np.random.default_rng(self.seed)
        self.signals = sorted({signal_of(f.name) for f in CATALOG.features} & TYPICAL.keys())
        self.picked = {window_s: self._columns(window) for window_s, window in ((300, "5m"), (60, "1m"))}
        base = np.array([TYPICAL[s][0] for s in self.signals])
        self.base = base * np.exp(self.differ * self.random.standard_normal((self.nodes, len(base))))
        self.noise = np.array([TYPICAL[s][1] for s in self.signals])
        self.loaded = np.array([s.startswith(SHARED_LOAD) for s in self.signals])
        self.is_share = np.array([s.endswith("share") or "pressure" in s or "contention" in s for s in self.signals])
        self.history: list[NDArray[np.float64]] = []
        self.t_s = 0
        self.held: dict[int, NodeVector] = {}

    def _columns(self, window: str) -> tuple[list[int], list[int]]:
        """Columns of the catalog with this window, and the signals they show."""
        shown = [(i, signal_of(f.name)) for i, f in enumerate(CATALOG.features) if f.window == window]
        shown = [(i, signal) for i, signal in shown if signal in self.signals]
        return [i for i, _ in shown], [self.signals.index(signal) for _, signal in shown]

    def slides(self, seconds: int) -> Iterator[tuple[int, list[NodeVector]]]:
        """(t_ns, newest vector of every node) for so long."""
        for _ in range(seconds // SLIDE_S):
            self.t_s += SLIDE_S
            yield START_NS + self.t_s * 1_000_000_000, self._step()

    def _step(self) -> list[NodeVector]:
        noise = np.exp(self.noise * self.random.standard_normal(self.base.shape))
        load = 1.0 + 0.3 * np.sin(2 * np.pi * self.t_s / 86_400)
        raw = self.base * noise * np.where(self.loaded, load, 1.0)
        for node in range(self.nodes):
            for start_s, fault in [f for f in (self.faults.get(node), self.fleet_fault) if f is not None]:
                if self.t_s > start_s:
                    raw[node] = [fault(s, v, self.t_s - start_s) for s, v in zip(self.signals, raw[node], strict=True)]
        raw[:, self.is_share] = np.clip(raw[:, self.is_share], 0, 1)
        self.history.append(raw)
        del self.history[: -300 // SLIDE_S]
        window = np.stack(self.history)
        means = {300: window.mean(axis=0), 60: window[-60 // SLIDE_S :].mean(axis=0)}
        values = np.full((self.nodes, len(CATALOG.features)), np.nan, np.float32)
        for window_s, (columns, signals) in self.picked.items():
            values[:, columns] = means[window_s][:, signals]
        for node in range(self.nodes):
            start_s, end_s = self.silent.get(node, (np.inf, np.inf))
            if not start_s < self.t_s <= end_s:
                self.held[node] = vector_of(
                    f"node-{node:03}",
                    values[node],
                    t_end_ns=START_NS + self.t_s * 1_000_000_000,
                    covered_ms=300_000 if self.warm else min(self.t_s * 1000, 300_000),
                    pool=self.pool,
                )
        return [self.held[node] for node in range(self.nodes)]


def vector_of(
    node: str, values: NDArray[np.float32], *, t_end_ns: int, covered_ms: int = 300_000, pool: str = "general"
) -> NodeVector:
    """NaN is missing, everything else OK."""
    missing = np.isnan(values)
    return NodeVector(
        node=node,
        cluster="c1",
        pool=pool,
        schema_hash=CATALOG.schema_hash,
        t_end_ns=t_end_ns,
        partition=0,
        offset=t_end_ns // 5_000_000_000,
        window_covered_ms=covered_ms,
        scrape_interval_ms=5000,
        values=values,
        status=_STATUS[missing.view(np.uint8)],
        age_ms=_AGE_MS[missing.view(np.uint8)],
        sources={},
    )


def adding(**changes: float) -> Fault:
    """A step: these signals rise by so much."""
    return lambda signal, value, _: value + changes.get(signal, 0.0)


def scaling(**factors: float) -> Fault:
    return lambda signal, value, _: value * factors.get(signal, 1.0)


def ramping(per_second: float, *signals: str) -> Fault:
    """Signals grow by this share of themselves each second."""
    return lambda signal, value, since_s: value * (1 + per_second * since_s) if signal in signals else value


DISK_SATURATION = adding(
    disk_busy_share=0.85, disk_queue=12.0, contention_disk=0.8, pressure_io=0.5, cpu_wait_share=0.2
)
NOISY_NEIGHBOUR = adding(
    cpu_steal_share=0.3, cpu_throttled_share=0.4, contention_cpu=0.5, cpu_load=3.0, pressure_cpu=0.4
)
LATENCY_STEP = scaling(request_p50=6.0, request_p99=5.0)
PACKET_LOSS = adding(network_receive_dropped=400.0)
MEMORY_LEAK: Fault = ramping(0.002, "memory_used_share", "memory_used_share_max")


def names_of(reasons: Sequence[object]) -> list[str]:
    return [reason.feature for reason in reasons]  # type: ignore[attr-defined]
