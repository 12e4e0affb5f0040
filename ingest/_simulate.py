"""A simulated fleet: OTLP requests of many nodes, the same for the same seed, with faults on demand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleetpulse.ingest._otlp import length_field
from fleetpulse.ingest._simulate_faults import Effects, Fault, effects
from fleetpulse.ingest._simulate_model import (
    EXPONENTIAL_FIRST,
    EXPONENTIAL_SCALE,
    F64Array,
    NodeModel,
)
from fleetpulse.ingest._simulate_schema import (
    CART_ROUTE,
    FRONTEND_ROUTE,
    REQUEST_BOUNDS,
    REQUEST_METRIC,
    REQUEST_SCOPE,
    SECTIONS,
    SERIES_PER_NODE,
    NumberMetric,
    Section,
    container_attributes,
    host_attributes,
    node_name,
    pod_attributes,
    service_attributes,
)
from fleetpulse.ingest._simulate_wire import (
    Piece,
    Sheet,
    enclosed,
    exponential_attributes,
    exponential_metric,
    histogram_metric,
    joined,
    number_metric,
    resource,
    scope,
)

__all__ = ["NODES_PER_REQUEST", "SERIES_PER_NODE", "Fleet", "node_name"]

NODES_PER_REQUEST = 20
PHASE_MS_MAX = 1_000
"""Nodes are scraped up to this long (or an interval) before the moment they are asked for."""

_RESOURCE_METRICS, _SCOPE_METRICS = 1, 2
_CART_POD = 1
_DAY_S = 86_400
_NS_PER_S = 1_000_000_000


class Fleet:
    """n nodes of one cluster and one pool, named node_name(0) ... node_name(n - 1).

    Pure: the clock is an argument. The same arguments and the same sequence of collect calls give the same bytes.
    """

    def __init__(
        self,
        nodes: int,
        seed: int,
        interval_s: float,
        faults: Sequence[Fault],
        start_ms: int,
        *,
        cluster: str = "sim",
        history_s: float = 0.0,
        nodes_per_request: int = NODES_PER_REQUEST,
    ) -> None:
        """start_ms: the moment that faults count from. history_s: how long before it collections may begin; counters
        have been running for days by then. interval_s: the shortest distance between collections."""
        self.names = [node_name(i) for i in range(nodes)]
        self._faults = tuple(faults)
        self._start_ms = start_ms
        self._interval_ms = interval_s * 1000
        self._nodes_per_request = nodes_per_request
        self._model = NodeModel(nodes, seed, start_ms)
        self._clock = np.random.default_rng([seed, 1])
        self._phase_ms = self._clock.uniform(0, 0.75 * min(self._interval_ms, PHASE_MS_MAX), nodes)
        self._last_ms: int | None = None
        self._times_ns = np.zeros(nodes, np.int64)
        uptime_ns = ((self._model.uptime_days * _DAY_S + history_s) * _NS_PER_S).astype(np.int64)
        # Boot times lie on whole hundredths of a second, as the kernel tells them.
        self._boot_ns = (start_ms * 1_000_000 - uptime_ns) // 10_000_000 * 10_000_000
        self._sheet = Sheet([_node_piece(cluster, i, int(self._boot_ns[i])) for i in range(nodes)])
        self._cart_head = [resource(service_attributes(cluster, i, _CART_POD)) for i in range(nodes)]
        self._cart_point = exponential_attributes(CART_ROUTE)

    def collect(self, t_ms: int) -> list[bytes]:
        """One collection of every node that is not silent, at t_ms or up to PHASE_MS_MAX before: OTLP requests of up to
        nodes_per_request nodes each.

        t_ms rises by at least the interval from call to call; ValueError otherwise.
        """
        return [request for _, request in self.collect_keyed(t_ms)]

    def collect_keyed(self, t_ms: int) -> list[tuple[bytes, bytes]]:
        """As collect, each request with a record key. A node is always in requests of the same key."""
        happening = effects(self._faults, len(self.names), t_ms - self._start_ms)
        times_ns = self._advance(t_ms, happening)
        requests = []
        for first in range(0, len(self.names), self._nodes_per_request):
            group = range(first, min(first + self._nodes_per_request, len(self.names)))
            parts = [self._node(i, int(times_ns[i])) for i in group if not happening.silent[i]]
            if parts:
                requests.append((f"fleet-{self.names[first]}".encode(), b"".join(parts)))
        return requests

    def _advance(self, t_ms: int, happening: Effects) -> NDArray[np.int64]:
        """Each node's time of collection."""
        nodes = len(self.names)
        jitter_ms = self._clock.uniform(0, 0.01 * min(self._interval_ms, PHASE_MS_MAX), nodes)
        times_ns = t_ms * 1_000_000 - ((self._phase_ms + jitter_ms) * 1_000_000).astype(np.int64)
        if self._last_ms is None:
            # What the counters hold from boot on is from healthy days.
            happening = effects((), nodes, 0)
            elapsed_s = (times_ns - self._boot_ns) / _NS_PER_S
        elif t_ms - self._last_ms < self._interval_ms:
            raise ValueError(f"collections at {self._last_ms} and {t_ms} ms are less than the interval apart")
        else:
            elapsed_s = (times_ns - self._times_ns) / _NS_PER_S
        self._last_ms, self._times_ns = t_ms, times_ns
        values = self._model.advance(t_ms, elapsed_s, happening)
        self._sheet.fill(times_ns, self._columns(values))
        return times_ns

    def _columns(self, values: dict[tuple[str, str], F64Array]) -> NDArray[np.int64]:
        """(n, values_per_node): the bits of all values, in the order of the templates' slots."""
        columns: list[NDArray[np.int64]] = []
        for section in SECTIONS:
            for _, metrics in section.scopes:
                columns.extend(_bits(metric, values[section.name, metric.name]) for metric in metrics)
            if section.histogram:
                times = self._model.frontend
                total = times.total_s.view(np.int64)[:, None]
                columns += [times.counts.sum(axis=1)[:, None], total, times.counts]
        return np.concatenate(columns, axis=1)

    def _node(self, index: int, time_ns: int) -> bytes:
        return self._sheet.node(index) + self._cart(index, time_ns)

    def _cart(self, index: int, time_ns: int) -> bytes:
        counts = self._model.cart.counts[index]
        filled = np.flatnonzero(counts)
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, -1)
        metric = exponential_metric(
            REQUEST_METRIC,
            "s",
            point=self._cart_point,
            start_ns=int(self._boot_ns[index]),
            time_ns=time_ns,
            total=float(self._model.cart.total_s[index]),
            scale=EXPONENTIAL_SCALE,
            offset=EXPONENTIAL_FIRST + first,
            counts=counts[first : last + 1].tolist(),
        )
        scoped = length_field(_SCOPE_METRICS, scope(REQUEST_SCOPE) + metric)
        return length_field(_RESOURCE_METRICS, self._cart_head[index] + scoped)


def _bits(metric: NumberMetric, values: F64Array) -> NDArray[np.int64]:
    if metric.integer:
        return np.floor(values).astype(np.int64)
    per_unit = round(1 / metric.quantum)
    return (np.floor(values * per_unit) / per_unit).view(np.int64)


def _node_piece(cluster: str, index: int, boot_ns: int) -> Piece:
    return joined([_section_piece(section, cluster, index, boot_ns) for section in SECTIONS])


def _section_piece(section: Section, cluster: str, index: int, boot_ns: int) -> Piece:
    """A ResourceMetrics field."""
    pieces = [Piece(resource(_resource_attributes(section, cluster, index)))]
    for scope_name, metrics in section.scopes:
        content = [Piece(scope(scope_name))]
        content += [
            number_metric(
                metric.name,
                metric.unit,
                metric.shape,
                integer=metric.integer,
                points=metric.points,
                start_ns=boot_ns,
            )
            for metric in metrics
        ]
        if section.histogram:
            content.append(
                histogram_metric(REQUEST_METRIC, "s", bounds=REQUEST_BOUNDS, point=FRONTEND_ROUTE, start_ns=boot_ns)
            )
        pieces.append(enclosed(_SCOPE_METRICS, joined(content)))
    return enclosed(_RESOURCE_METRICS, joined(pieces))


def _resource_attributes(section: Section, cluster: str, index: int) -> dict[str, str]:
    if section.pod is None:
        return host_attributes(cluster, index)
    if section.histogram:
        return service_attributes(cluster, index, section.pod)
    if section.name.startswith("container"):
        return container_attributes(cluster, index, section.pod)
    return pod_attributes(cluster, index, section.pod)
