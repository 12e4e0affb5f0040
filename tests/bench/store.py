"""The store: 10,000 nodes written and read, beside a Redis hash of 127 fields per node holding the same data.

The hashes are measured on a part of the nodes, and their figures scaled up: all of them take half a minute.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event

import numpy as np
import redis

from fleetpulse.features import NodeVector
from fleetpulse.ingest._embedded import embedded_redis
from fleetpulse.store import FeatureStore, FeatureWriter

NODES = 10_000
HASHED = 2_000
FEATURES = 127
ROUNDS = 5
READS = 3_000
CLUSTER = "bench"


@dataclass(frozen=True)
class _Feature:
    name: str
    unit: str = "1"


class _Catalog:
    features = tuple(_Feature(f"feature_{i:03d}") for i in range(FEATURES))
    schema_hash = hashlib.blake2b(b"bench", digest_size=16).digest()


def _vectors(count: int, t_ms: int, seed: int = 7) -> list[NodeVector]:
    values = np.random.default_rng(seed).random((count, FEATURES), np.float32)
    status, age_ms = np.ones(FEATURES, np.uint8), np.full(FEATURES, 500, np.uint32)
    return [
        NodeVector(
            node=f"node-{i:05d}",
            cluster=CLUSTER,
            pool="default",
            schema_hash=_Catalog.schema_hash,
            t_end_ns=t_ms * 1_000_000,
            partition=0,
            offset=i,
            window_covered_ms=300_000,
            scrape_interval_ms=10_000,
            values=values[i],
            status=status,
            age_ms=age_ms,
            sources={},
        )
        for i in range(count)
    ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and client CPU of one call, in ms."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def _best(work: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float]:
    measured = [_timed(work) for _ in range(rounds)]
    return min(wall for wall, _ in measured), min(cpu for _, cpu in measured)


def _line(what: str, figure: str, wanted: str = "") -> None:
    print(f"  {what:<62}{figure:>24}  {wanted}")


def _write_rounds(url: str) -> tuple[float, float]:
    """The best round of writing all nodes, each with a newer vector, made before the clock starts."""
    loop = asyncio.new_event_loop()
    writer = loop.run_until_complete(FeatureWriter.connect(url))
    start_ms = _now_ms()
    rounds = [_vectors(NODES, start_ms + i) for i in range(ROUNDS)]
    measured = [_timed(lambda v=vectors: loop.run_until_complete(writer.write_vectors(v))) for vectors in rounds]
    accepted = writer.counts.accepted
    loop.run_until_complete(writer.close())
    loop.close()
    assert accepted == ROUNDS * NODES, writer.counts
    return min(wall for wall, _ in measured), min(cpu for _, cpu in measured)


def _write_for(url: str, started: Event, stop: Event) -> None:
    """Writes every node at 2,000 vectors a second, 200 at a time: a fleet of 10,000 scraped every 5 s."""

    async def work() -> None:
        writer = await FeatureWriter.connect(url)
        vectors = _vectors(NODES, _now_ms())
        at = 0
        while not stop.is_set():
            turn = time.monotonic()
            for vector in vectors[at : at + 200]:
                vector.t_end_ns = time.time_ns()
            await writer.write_vectors(vectors[at : at + 200])
            at = (at + 200) % NODES
            started.set()
            await asyncio.sleep(max(0.0, 0.1 - (time.monotonic() - turn)))
        await writer.close()

    asyncio.run(work())


def _node_latencies(store: FeatureStore) -> np.ndarray:
    """ms of READS single reads at 1,000 a second."""
    took = np.empty(READS)
    due = time.perf_counter()
    for i in range(READS):
        due += 1e-3
        pause = due - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        start = time.perf_counter()
        store.node(f"node-{i * 7919 % NODES:05d}", CLUSTER)
        took[i] = (time.perf_counter() - start) * 1e3
    return took


def _write_hashes(client: redis.Redis, vectors: list[NodeVector]) -> None:
    """What a feature store does: a hash per node, a field per feature, without any comparison of times."""
    names = [feature.name for feature in _Catalog.features]
    for at in range(0, len(vectors), 1_000):
        pipe = client.pipeline(transaction=False)
        for vector in vectors[at : at + 1_000]:
            fields = dict(zip(names, vector.values.tolist(), strict=True))
            pipe.hset(f"hash:{vector.node}", mapping=fields)
            pipe.expire(f"hash:{vector.node}", 240)
        pipe.execute()


def _read_hashes(client: redis.Redis) -> np.ndarray:
    names = [feature.name.encode() for feature in _Catalog.features]
    X = np.empty((HASHED, FEATURES), np.float32)
    for at in range(0, HASHED, 1_000):
        pipe = client.pipeline(transaction=False)
        for i in range(at, at + 1_000):
            pipe.hgetall(f"hash:node-{i:05d}")
        for i, fields in enumerate(pipe.execute(), at):
            X[i] = [float(fields[name]) for name in names]
    return X


_IMPORT = """
import resource
before = resource.getrusage(resource.RUSAGE_SELF)
import fleetpulse.store
after = resource.getrusage(resource.RUSAGE_SELF)
print(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
"""


def _import_ms() -> float:
    return min(float(subprocess.check_output([sys.executable, "-c", _IMPORT])) for _ in range(ROUNDS))


def run() -> None:
    """Prints the figures. About 15 s; an embedded Redis of its own on loopback."""
    print(f"store: {NODES:,} nodes of {FEATURES} features, loopback Redis, best of {ROUNDS}")
    _line("import fleetpulse.store: CPU", f"{_import_ms():.0f} ms", "wanted: 300 ms or less")
    with embedded_redis() as server, redis.Redis.from_url(server.url) as client:

        def used() -> int:
            return int(client.info("memory")["used_memory"])

        empty = used()
        wall, cpu = _write_rounds(server.url)
        ours_bytes = used() - empty
        _line("write all nodes, compare-and-set, node and bulk keys", f"{wall:.0f} ms", "wanted: 400 ms or less")
        _line("  CPU of the client", f"{cpu:.0f} ms", "wanted: 250 ms or less")
        with FeatureStore.connect(server.url, catalog=_Catalog) as store:
            reading = store.cluster(CLUSTER)
            read, _ = _best(lambda: store.cluster(CLUSTER), 10)
            _line("read the cluster: ids, X, ages, statuses", f"{read:.1f} ms", "wanted: 30 ms or less")
            context = multiprocessing.get_context("spawn")
            started, stop = context.Event(), context.Event()
            process = context.Process(target=_write_for, args=(server.url, started, stop), daemon=True)
            process.start()
            started.wait(20)
            took = _node_latencies(store)
            busy, _ = _best(lambda: store.cluster(CLUSTER), 10)
            stop.set()
            process.join(10)
            _line("one node, 1,000 reads/s beside 2,000 writes/s: median", f"{np.median(took):.2f} ms")
            _line("  99th percentile", f"{np.quantile(took, 0.99):.2f} ms", "wanted: 1 ms or less")
            _line("the cluster, beside the same writes", f"{busy:.1f} ms")
        vectors = _vectors(NODES, _now_ms())[:HASHED]
        before, scale = used(), NODES / HASHED
        hash_wall, hash_cpu = (scale * ms for ms in _timed(lambda: _write_hashes(client, vectors)))
        hash_bytes = scale * (used() - before)
        found: list[np.ndarray] = []
        hash_read = scale * _timed(lambda: found.append(_read_hashes(client)))[0]
        assert np.array_equal(found[0], reading.X[:HASHED]), "both hold the same data"
        _line(
            "127-field hash per node: write (no compare-and-set)",
            f"{hash_wall:.0f} ms",
            f"{hash_wall / wall:.1f} x ours",
        )
        _line("  CPU of the client", f"{hash_cpu:.0f} ms", f"{hash_cpu / cpu:.1f} x ours")
        _line("127-field hash per node: read all", f"{hash_read:.0f} ms", f"{hash_read / read:.0f} x ours")
        ratio = f"{hash_bytes / ours_bytes:.1f} x ours ({ours_bytes / 1e6:.0f} MB: vectors, ages, statuses, bulk)"
        _line("127-field hash per node: memory of Redis", f"{hash_bytes / 1e6:.0f} MB", ratio)


if __name__ == "__main__":
    run()
