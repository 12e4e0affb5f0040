"""Programs of the test that looks for torn reads: `alternate.py write|node|bulk URL PREFIX COUNT`.

The writer gives every node of a handful all values 1 at odd milliseconds and all values 2 at even ones. A reader prints
`ready`, checks every reading until nothing new has come for a while, and prints how many it made and how many versions
it saw. COUNT is how many versions the writer writes, or how many seconds a reader waits for the first.
"""

from __future__ import annotations

import asyncio
import sys
import time

import numpy as np

from fleetpulse.store import FeatureStore, FeatureWriter
from support.vectors import CATALOG, NOW_MS, vector

NODES = [f"n{i}" for i in range(6)]
START_MS = NOW_MS - 50_000


async def write(url: str, prefix: str, count: int) -> None:
    writer = await FeatureWriter.connect(url, prefix, now_ms=lambda: NOW_MS)
    for t_ms in range(START_MS + 1, START_MS + 1 + count):
        await writer.write_vectors([vector(node, t_ms=t_ms, value=2 - t_ms % 2) for node in NODES])
    await writer.close()
    assert writer.counts.accepted == len(NODES) * count, writer.counts


def read(kind: str, url: str, prefix: str, seconds: float) -> None:
    reads, versions, last = 0, set(), dict.fromkeys(NODES, 0)
    with FeatureStore.connect(url, prefix, catalog=CATALOG, now_ms=lambda: NOW_MS) as store:
        print("ready", flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if kind == "node":
                reading = store.node(NODES[0], "c1")
                rows = [] if reading.t_end_ms is None else [(NODES[0], reading.t_end_ms, reading.x)]
            else:
                cluster = store.cluster("c1")
                rows = list(zip(cluster.ids, cluster.t_end_ms.tolist(), cluster.X, strict=True))
            for node, t_ms, x in rows:
                assert np.unique(x[:-1]).tolist() == [2 - t_ms % 2], f"torn: {node} at {t_ms}: {x}"
                assert t_ms >= last[node], f"{node} went back from {last[node]} to {t_ms}"
                if t_ms > last[node]:
                    end = time.monotonic() + 1.0
                last[node] = t_ms
                versions.add(t_ms)
                reads += 1
    print(reads, len(versions))


if __name__ == "__main__":
    what, url, prefix, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    if what == "write":
        asyncio.run(write(url, prefix, count))
    else:
        read(what, url, prefix, count)
