"""Cost of the feature state: per sample taken in, and per vector."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from fleetpulse.features import Catalog, FleetState, NodeId, SeriesTable
from fleetpulse.features._points import NumberPoints, Points
from fleetpulse.features._series import Kind, SeriesIdentity, Source, Temporality
from support.feature_rig import points_of

NS = 1_000_000_000
NODES = 65
CPUS = 12
"""Makes about 150 series a node, most of which some feature uses."""


def host_series() -> Iterator[tuple[str, dict[str, str], Kind, bool]]:
    """(metric, labels, kind, monotonic) of a small host, as the host receiver reports it."""
    for cpu in range(CPUS):
        for state in ("user", "nice", "system", "interrupt", "softirq", "steal", "idle", "wait"):
            yield "system.cpu.time", {"cpu": f"cpu{cpu}", "state": state}, Kind.SUM, True
    for state in ("used", "free", "buffered", "cached", "slab_reclaimable", "slab_unreclaimable"):
        yield "system.memory.usage", {"state": state}, Kind.SUM, False
    for device in ("nvme0n1", "nvme1n1"):
        for direction in ("read", "write"):
            for metric in ("io", "operations", "operation_time"):
                yield f"system.disk.{metric}", {"device": device, "direction": direction}, Kind.SUM, True
        yield "system.disk.io_time", {"device": device}, Kind.SUM, True
        yield "system.disk.weighted_io_time", {"device": device}, Kind.SUM, True
    for direction in ("receive", "transmit"):
        for metric in ("io", "packets", "errors", "dropped"):
            yield f"system.network.{metric}", {"device": "eth0", "direction": direction}, Kind.SUM, True
    for resource in ("cpu", "memory", "io"):
        yield "system.pressure.total", {"resource": resource, "kind": "some"}, Kind.SUM, True
    for minutes in ("1m", "5m", "15m"):
        yield f"system.cpu.load_average.{minutes}", {}, Kind.GAUGE, False
    for n in range(14):
        yield "some.application.metric", {"n": str(n)}, Kind.GAUGE, False


def fleet(nodes: int) -> tuple[FleetState, SeriesTable]:
    table = SeriesTable()
    for node in range(nodes):
        for metric, labels, kind, monotonic in host_series():
            temporality = Temporality.UNSPECIFIED if kind is Kind.GAUGE else Temporality.CUMULATIVE
            attributes = tuple(sorted(labels.items()))
            identity = SeriesIdentity(
                NodeId("c", f"n{node}"), (), "", metric, "1", kind, temporality, monotonic, attributes
            )
            table.add(identity, Source(metric, "1", labels, kind, temporality, monotonic))
    return FleetState(Catalog.load(), table, look_back_ns=1_200 * NS), table


def scrape(series: np.ndarray, time_s: int) -> Points:
    """One record: every series of a node, at one time."""
    n = len(series)
    integer = np.full(n, 1_000 + time_s, np.int64)
    numbers = NumberPoints(
        series.astype(np.int32),
        np.full(n, (1_700_000_000 + time_s) * NS, np.int64),
        np.full(n, 1_600_000_000 * NS, np.int64),
        integer.astype(np.float64),
        integer,
        np.ones(n, np.bool_),
    )
    nothing = points_of([])
    return Points(numbers, nothing.histograms, nothing.exponentials)


def measure(nodes: int, scrapes: int) -> tuple[float, float, int]:
    """(nanoseconds a sample, milliseconds a vector, series a node) with a full window of `scrapes` samples a series."""
    state, table = fleet(nodes)
    members = [np.array(sorted(table.series_by_node[node])) for node in range(nodes)]
    interval_s = 300 // scrapes
    state.add(scrape(members[0], 0), partition=0, offset=0)
    state.vector(0)
    samples, added_s = 0, 0.0
    for step in range(1, scrapes + 1):
        records = [scrape(members[node], step * interval_s) for node in range(nodes)]
        began = time.process_time()
        for record in records:
            state.add(record, partition=0, offset=step)
        added_s += time.process_time() - began
        samples += nodes * len(members[0])
    for node in range(nodes):
        state.vector(node)
    began = time.process_time()
    for node in range(nodes):
        state.vector(node)
    return added_s / samples * 1e9, (time.process_time() - began) / nodes * 1e3, len(members[0])


def run() -> None:
    """Print the table. CPU time of this process, so that neighbours on the machine disturb little."""
    print(f"{'nodes':>6} {'series a node':>14} {'samples a series':>17} {'ns a sample':>12} {'ms a vector':>12}")
    for nodes, scrapes in ((65, 300), (65, 60), (200, 60), (65, 30)):
        sample_ns, vector_ms, series = measure(nodes, scrapes)
        print(f"{nodes:>6} {series:>14} {scrapes:>17} {sample_ns:>12.0f} {vector_ms:>12.2f}")
        if (nodes, scrapes) == (NODES, 300):
            share = nodes * (series * sample_ns / 1e9 + vector_ms / 1e3)
            note = f"{nodes} nodes at one scrape and one vector a second"
    print(f"{note}: {100 * share:.0f} % of a core")


if __name__ == "__main__":
    run()
