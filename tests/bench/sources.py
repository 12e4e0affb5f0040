"""The simulated fleet: what it costs to make its telemetry, beside the time that telemetry stands for."""

from __future__ import annotations

import time

from fleetpulse.ingest._simulate import Fleet

START_MS = 1_790_000_000_000
INTERVAL_S = 1.0
COLLECTIONS = 20


def run() -> None:
    """Prints the figures. A few seconds."""
    for nodes in (60, 1_000):
        fleet = Fleet(nodes, 1, INTERVAL_S, [], START_MS)
        fleet.collect(START_MS)
        started_s = time.process_time()
        size = 0
        for k in range(1, 1 + COLLECTIONS):
            size += sum(len(request) for request in fleet.collect(START_MS + round(1000 * INTERVAL_S * k)))
        share = (time.process_time() - started_s) / (COLLECTIONS * INTERVAL_S)
        print(f"{nodes:>5} simulated nodes every {INTERVAL_S:g} s: {100 * share:.1f} % of a core, {size:,} B of OTLP")
