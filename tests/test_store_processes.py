"""Writer and readers in separate processes, and a Redis that goes away and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fleetpulse.ingest._embedded import _redis_binary
from fleetpulse.store import AsyncFeatureStore, FeatureWriter, Freshness
from support.vectors import CATALOG, NOW_MS, vector

TESTS = Path(__file__).parent


def test_s29_a_reader_never_sees_two_versions_mixed(redis_url: str, redis_prefix: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    program = str(TESTS / "support" / "alternate.py")

    def start(what: str, count: str) -> subprocess.Popen[str]:
        command = [sys.executable, program, what, redis_url, redis_prefix, count]
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    running = {what: start(what, "30") for what in ("node", "bulk")}
    for process in running.values():
        assert process.stdout is not None
        process.stdout.readline()
    running["write"] = start("write", "300")
    said = {}
    for what, process in running.items():
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, f"{what}: {err}"
        said[what] = [int(word) for word in out.split()]
    for what in ("node", "bulk"):
        reads, versions = said[what]
        assert reads >= versions > 20, "the reader must have seen the writer at work"


class Server:
    """A Redis server at one port that can be stopped, started again, and made to hang."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"]
        self.process = subprocess.Popen([_redis_binary(), *options], stdout=subprocess.DEVNULL)
        with redis.Redis.from_url(self.url, retry=None) as client:
            for _ in range(200):
                try:
                    if client.ping():
                        return
                except redis.ConnectionError:
                    time.sleep(0.02)
        raise AssertionError("redis-server did not start")

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def hang(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.stop()


NODES = 200


async def _load(writer: FeatureWriter, stop: asyncio.Event, latest: list[int]) -> list[float]:
    """Write every node every 20 ms; how long each call took, in seconds."""
    took = []
    while not stop.is_set():
        latest[0] += 1
        start = time.monotonic()
        t_ms = NOW_MS + latest[0]
        await writer.write_vectors([vector(f"n{i}", t_ms=t_ms, value=latest[0]) for i in range(NODES)])
        took.append(time.monotonic() - start)
        await asyncio.sleep(0.02)
    return took


@pytest.mark.parametrize("outage", ["restart", "hang"])
def test_s32_an_outage_under_load_keeps_the_newest_of_each_node_and_catches_up(server: Server, outage: str) -> None:
    async def work() -> None:
        writer = await FeatureWriter.connect(server.url, now_ms=lambda: NOW_MS, timeout_s=0.5)
        stop, latest = asyncio.Event(), [0]
        load = asyncio.create_task(_load(writer, stop, latest))
        await asyncio.sleep(0.3)
        assert writer.healthy
        (server.stop if outage == "restart" else server.hang)()
        await asyncio.sleep(1.5)
        assert not writer.healthy
        assert writer.last_error is not None
        assert writer.pending == NODES, "the newest of each node, no more"
        before = latest[0]
        (server.start if outage == "restart" else server.go_on)()
        # Another worker, with a newer vector of a node, is there first: what waited must not replace it.
        other = await FeatureWriter.connect(server.url, now_ms=lambda: NOW_MS)
        await other.write_vectors([vector("n0", t_ms=NOW_MS + 50_000, value=-1)])
        returned = time.monotonic()
        while not writer.healthy and time.monotonic() - returned < 5:
            await asyncio.sleep(0.02)
        assert writer.healthy
        stop.set()
        took = await load
        assert writer.pending == 0
        assert latest[0] > before > 5, "the load went on during the outage"
        assert sorted(took)[-3] < 0.4, "in an outage, calls return at once"
        store = await AsyncFeatureStore.connect(server.url, catalog=CATALOG, now_ms=lambda: NOW_MS)
        reading = await store.cluster("c1")
        assert len(reading) == NODES
        values = dict(zip(reading.ids, reading.X[:, 0].tolist(), strict=True))
        assert values.pop("n0") == -1
        assert set(values.values()) == {latest[0]}
        assert writer.counts.outages == 1
        for closing in (store, other, writer):
            await closing.close()

    asyncio.run(work())


def test_a_writer_that_starts_before_redis_delivers_when_it_comes(server: Server) -> None:
    async def work() -> None:
        server.stop()
        writer = await FeatureWriter.connect(server.url, now_ms=lambda: NOW_MS)
        assert not writer.healthy
        await writer.write_vectors([vector("a", value=1)])
        await writer.write_vectors([vector("a", value=2, offset=2)])
        await writer.write_vectors([vector("a", value=3, t_ms=NOW_MS - 1)])
        await writer.write_chunk("c1", "a", 0, b"chunk")
        await writer.write_verdicts(NOW_MS, {("c1", "a"): 0.5}, {("c1", "a"): "normal"})
        await writer.write_anomaly({"time_ms": 1, "cluster": "c1", "node": "a"})
        assert (writer.pending, writer.counts.superseded) == (1, 2)
        server.start()
        for _ in range(100):
            if writer.healthy:
                break
            await asyncio.sleep(0.05)
        store = await AsyncFeatureStore.connect(server.url, catalog=CATALOG, now_ms=lambda: NOW_MS)
        reading = await store.node("a", "c1")
        assert (reading.freshness, reading["f0"].value) == (Freshness.FRESH, 2)
        assert reading.verdict is not None
        assert reading.event is not None
        assert await store.chunks("a", "c1") == [b"chunk"]
        await store.close()
        await writer.close()

    asyncio.run(work())


def test_closing_in_an_outage_ends_soon_and_says_what_was_left(server: Server) -> None:
    async def work() -> None:
        writer = await FeatureWriter.connect(server.url, now_ms=lambda: NOW_MS)
        server.stop()
        await writer.write_vectors([vector("a")])
        start = time.monotonic()
        await writer.close()
        assert time.monotonic() - start < 3
        assert writer.pending == 1

    asyncio.run(work())
