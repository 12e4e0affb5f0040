"""The same store on a Redis Cluster of three servers, and through Sentinel."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import redis

from fleetpulse.ingest._embedded import _redis_binary
from fleetpulse.ingest._errors import UserError
from fleetpulse.store import AsyncFeatureStore, FeatureStore, FeatureWriter, StoreUnreachableError
from support.vectors import CATALOG, NOW_MS, vector
from support.watched import free_port

SLOTS = 16_384


def _free_ports(count: int) -> list[int]:
    """Free ports; the bus of a cluster is 10,000 higher, where outgoing connections can be: it is asked for too."""
    chance, found = Random(), set[int]()
    while len(found) < count:
        port = free_port(chance)
        with socket.socket() as bus, contextlib.suppress(OSError):
            bus.bind(("127.0.0.1", port + 10_000))
            found.add(port)
    return sorted(found)


@contextlib.contextmanager
def _server(port: int, folder: Path, *words: str) -> Iterator[redis.Redis]:
    try:
        binary = _redis_binary()
    except UserError as error:
        pytest.skip(str(error))
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--loglevel", "warning"]
    process = subprocess.Popen([binary, *words, *options], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port, retry=None, socket_timeout=5) as client:

            def answers() -> bool:
                with contextlib.suppress(redis.ConnectionError):
                    return bool(client.ping())
                return False

            _await(answers)
            yield client
    finally:
        process.kill()
        process.wait()


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def cluster_url(tmp_path: Path) -> Iterator[str]:
    ports = _free_ports(3)
    with contextlib.ExitStack() as stack:
        clients = []
        for i, port in enumerate(ports):
            folder = tmp_path / str(port)
            folder.mkdir()
            client = stack.enter_context(_server(port, folder, "--cluster-enabled", "yes", "--save", ""))
            slots = range(SLOTS * i // 3, SLOTS * (i + 1) // 3)
            client.execute_command("CLUSTER", "ADDSLOTS", *slots)
            # Without its own epoch, two servers would dispute the first one's slots.
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            clients.append(client)
        for client in clients[1:]:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0])
        _await(lambda: all("cluster_state:ok" in _cluster_info(client) for client in clients))
        yield f"redis+cluster://127.0.0.1:{ports[1]}"


def _cluster_info(client: redis.Redis) -> str:
    info = client.execute_command("CLUSTER INFO")
    return f"cluster_state:{info['cluster_state']}" if isinstance(info, dict) else bytes(info).decode()


def _use(url: str) -> None:
    """Everything once: write, read back with both readers, refuse what is older."""

    async def work() -> None:
        writer = await FeatureWriter.connect(url, now_ms=lambda: NOW_MS)
        await writer.write_vectors([vector(f"n{i:03d}", value=i) for i in range(200)])
        await writer.write_vectors([vector(f"n{i:03d}", value=-1, t_ms=NOW_MS - 1) for i in range(200)])
        await writer.write_chunk("c1", "n001", 0, b"chunk")
        await writer.write_verdicts(NOW_MS, {("c1", "n001"): 0.5}, {("c1", "n001"): "normal"})
        await writer.write_anomaly({"time_ms": 1, "cluster": "c1", "node": "n001"})
        assert writer.healthy, writer.last_error
        assert (writer.counts.accepted, writer.counts.older, writer.counts.chunks) == (200, 200, 1)
        await writer.close()
        store = await AsyncFeatureStore.connect(url, catalog=CATALOG, now_ms=lambda: NOW_MS)
        assert (await store.cluster("c1")).X[:, 0].tolist() == list(range(200))
        assert [reading["f0"].value for reading in await store.nodes(["n003", ("c1", "n150")])] == [3, 150]
        await store.close()

    asyncio.run(work())
    with FeatureStore.connect(url, catalog=CATALOG, now_ms=lambda: NOW_MS) as store:
        assert store.cluster("c1").X[:, 0].tolist() == list(range(200))
        reading = store.node("n001")
        assert reading.verdict is not None
        assert reading.event is not None
        assert store.chunks("n001", "c1") == [b"chunk"]


def test_a_redis_cluster_holds_the_store_and_spreads_it(cluster_url: str) -> None:
    _use(cluster_url)
    with redis.RedisCluster.from_url(cluster_url.replace("+cluster", "")) as client:
        sizes = [client.get_redis_connection(node).dbsize() for node in client.get_primaries()]
    assert min(sizes) > 0
    assert len(sizes) == 3


def test_a_master_is_found_through_sentinel(tmp_path: Path) -> None:
    master, watcher = _free_ports(2)
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(f"sentinel monitor prod 127.0.0.1 {master} 1\n")
    with _server(master, tmp_path, "--save", ""), _server(watcher, tmp_path, str(configuration), "--sentinel"):
        _use(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{watcher}/prod/0")
        with pytest.raises(StoreUnreachableError):
            FeatureStore.connect(f"redis+sentinel://127.0.0.1:{watcher}/other", catalog=CATALOG)


@pytest.mark.parametrize("url", ["redis+cluster://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/prod"])
def test_no_server_of_a_cluster_or_sentinel_is_an_outage_like_any_other(url: str) -> None:
    with pytest.raises(StoreUnreachableError):
        FeatureStore.connect(url, catalog=CATALOG)

    async def work() -> None:
        writer = await FeatureWriter.connect(url)
        await writer.write_vectors([vector("a")])
        assert (writer.healthy, writer.pending) == (False, 1)
        await writer.close()

    asyncio.run(work())
