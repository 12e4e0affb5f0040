"""The whole flow with a real broker, a real Redis and a worker in its own process."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fleetpulse.compression import decode_chunk
from fleetpulse.features import NodeVector
from fleetpulse.ingest._shard import OfflinePipeline
from fleetpulse.store import Freshness
from support.pipeline import Deployment, Record, deploy, newest_vectors, same_bits, wait_until
from support.requests import NS, gauge, host_scrape, number_point, request, resource_metrics

pytestmark = pytest.mark.e2e
BOOT_AGO_S = 5_000
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


class Scrape(NamedTuple):
    time_ns: int
    number: int
    raw: bytes


def scrapes(nodes: int, seconds: int, end_ns: int, *, every_s: int = 5) -> list[Scrape]:
    """`seconds` of scrapes up to end_ns, one request a node, in the order of time."""
    boot_ns = end_ns - BOOT_AGO_S * NS
    return [
        Scrape(time_ns, number, request(host_scrape(f"node-{number:02}", number, time_ns, boot_ns)))
        for time_ns in range(end_ns - seconds * NS, end_ns + 1, every_s * NS)
        for number in range(nodes)
    ]


def as_records(made: list[Scrape]) -> list[Record]:
    """Without keys; a node's records are in one partition, as a collector's are, so that they stay in order."""
    return [(None, scrape.raw, scrape.time_ns // 1_000_000, scrape.number % 4) for scrape in made]


def offline(made: list[Scrape], deployment: Deployment) -> dict[tuple[str, str], NodeVector]:
    pipeline = OfflinePipeline(deployment.settings)
    for scrape in made:
        pipeline.feed(scrape.raw, scrape.time_ns // 1_000_000)
    return {(vector.cluster, vector.node): vector for vector in pipeline.finish().vectors}


def await_vectors(deployment: Deployment, nodes: int, end_ns: int) -> dict[tuple[str, str], NodeVector]:
    """What the features topic holds once all nodes have reached end_ns."""
    with deployment.store() as store:

        def all_there() -> bool:
            reading = store.cluster("default")
            return len(reading) >= nodes and bool((reading.t_end_ms >= end_ns // 1_000_000).all())

        def schema_there() -> bool:
            return "default" in store.clusters()

        wait_until(schema_there, "the first vector", timeout_s=120, log=deployment.log)
        wait_until(all_there, f"vectors of {nodes} nodes at the end", log=deployment.log)
    return newest_vectors(deployment.read(deployment.settings.topic("features")))


@pytest.fixture(scope="module")
def end_ns() -> int:
    # Whole seconds, so that chunks of a minute end where the test says.
    return time.time_ns() // NS * NS


@pytest.fixture(scope="module")
def flow(
    broker: str, redis_url: str, session_timeout_s: str, end_ns: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, list[Scrape]]]:
    """One worker, and records of ten nodes in every codec, two resources without identity and one poison record."""
    deployment = deploy(
        broker,
        redis_url,
        f"flow{end_ns}",
        tmp_path_factory.mktemp("flow"),
        chunk_span_s="60",
        session_timeout_s=session_timeout_s,
    )
    made = scrapes(10, 360, end_ns)
    with deployment.worker():
        for codec, part in zip(CODECS, _split(made, len(CODECS)), strict=True):
            deployment.produce(as_records(part), compression=codec)
        nobody = resource_metrics({}, [gauge("system.cpu.load_average.1m", [number_point(end_ns, 1.0)])])
        now_ms = end_ns // 1_000_000
        deployment.produce([(None, b"\xff\xff\xff not OTLP", now_ms, 1), (None, request(nobody, nobody), now_ms, 1)])
        yield deployment, made


def _split(made: list[Scrape], parts: int) -> list[list[Scrape]]:
    size = -(-len(made) // parts)
    return [made[at : at + size] for at in range(0, len(made), size)]


def test_vectors_equal_those_of_the_offline_core_through_every_codec(
    flow: tuple[Deployment, list[Scrape]], end_ns: int
) -> None:
    deployment, made = flow
    published = await_vectors(deployment, 10, end_ns)
    expected = offline(made, deployment)
    assert published.keys() == expected.keys()
    for node, vector in expected.items():
        assert same_bits(published[node], vector), node
    with deployment.store() as store:
        for (cluster, node), vector in expected.items():
            reading = store.node(node, cluster)
            assert reading.vector is not None
            assert same_bits(reading.vector, vector)
            assert reading.window_covered_ms == 300_000


def test_chunks_hold_the_samples_that_were_sent(flow: tuple[Deployment, list[Scrape]], end_ns: int) -> None:
    deployment, _ = flow
    await_vectors(deployment, 10, end_ns)
    chunks = [decode_chunk(record.value) for record in deployment.read(deployment.settings.topic("chunks"))]
    spans = {(chunk.node, chunk.span_start_ns) for chunk in chunks}
    assert len(spans) == len(chunks), "each span of a node is published once"
    whole = [chunk for chunk in chunks if chunk.span_start_ns > end_ns - 300 * NS]
    assert {chunk.node for chunk in whole} == {f"node-{number:02}" for number in range(10)}
    boot_ns = end_ns - BOOT_AGO_S * NS
    for chunk in whole:
        number = int(chunk.node.removeprefix("node-"))
        (column,) = [
            column
            for column in chunk.columns
            if column.labels["__name__"] == "system.network.io" and column.labels["direction"] == "receive"
        ]
        times = column.times_ns.tolist()
        first = -(-(chunk.span_start_ns - end_ns) // (5 * NS)) * 5 * NS + end_ns
        assert times == list(range(first, chunk.span_start_ns + 60 * NS, 5 * NS))
        assert column.values.tolist() == [int((t - boot_ns) / NS * 1000) * (number + 1) for t in times]


def test_a_record_that_is_not_otlp_goes_to_the_dead_letters_and_nothing_else_stops(
    flow: tuple[Deployment, list[Scrape]], end_ns: int
) -> None:
    deployment, made = flow
    await_vectors(deployment, 10, end_ns)
    source = deployment.settings.source_topic
    (letter,) = deployment.read(deployment.settings.topic("deadletter"))
    headers = {name: value.decode() for name, value in letter.headers}
    assert letter.value == b"\xff\xff\xff not OTLP"
    assert headers["topic"] == source
    assert headers["partition"] == "1"
    records = deployment.read(source)
    assert records[[(r.partition, r.offset) for r in records].index((1, int(headers["offset"])))].value == letter.value
    assert headers["reason"]
    ends = {p: max(r.offset for r in group) + 1 for p, group in itertools.groupby(records, lambda r: r.partition)}
    wait_until(lambda: deployment.committed(source) == ends, "no lag", timeout_s=20, log=deployment.log)
    assert sum(ends.values()) == len(made) + 2


def test_resources_without_identity_have_no_vector(flow: tuple[Deployment, list[Scrape]], end_ns: int) -> None:
    deployment, _ = flow
    published = await_vectors(deployment, 10, end_ns)
    assert {node for _, node in published} == {f"node-{number:02}" for number in range(10)}


def test_a_silent_stream_turns_stale_and_then_missing_by_the_readers_clock(
    flow: tuple[Deployment, list[Scrape]], end_ns: int
) -> None:
    deployment, _ = flow
    await_vectors(deployment, 10, end_ns)
    seen = []
    for age_s in (0, 14, 16, 179, 181):
        with deployment.store(now_ms=lambda age_s=age_s: end_ns // 1_000_000 + age_s * 1000) as store:
            reading = store.node("node-03", "default")
            seen.append(reading.freshness)
            assert (reading["cpu_busy_share_5m"].value is None) == (age_s == 181)
    assert seen == [Freshness.FRESH, Freshness.FRESH, Freshness.STALE, Freshness.STALE, Freshness.MISSING]
    with deployment.store() as store:
        unknown = store.node("nobody", "default")
        assert unknown.freshness is Freshness.MISSING
        assert all(value.value is None for value in unknown.values())


def test_a_killed_worker_is_replaced_without_a_trace_in_the_vectors(
    broker: str, redis_url: str, session_timeout_s: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Killed with -9 at minute 3 of 6; its successor reads the rest: vectors as of one undisturbed worker."""
    end_ns = time.time_ns() // NS * NS
    deployment = deploy(
        broker, redis_url, topic_prefix, tmp_path, chunk_span_s="60", session_timeout_s=session_timeout_s
    )
    made = scrapes(8, 360, end_ns)
    half = [record for record in made if record[0] <= end_ns - 180 * NS]
    first = deployment.start_worker()
    try:
        deployment.produce(as_records(half))
        await_vectors(deployment, 8, half[-1][0])
    finally:
        first.kill()
        first.wait()
    deployment.produce(as_records(made[len(half) :]))
    with deployment.worker():
        published = await_vectors(deployment, 8, end_ns)
        expected = offline(made, deployment)
        for node, vector in expected.items():
            assert same_bits(published[node], vector), node
        chunks = deployment.read(deployment.settings.topic("chunks"))
        bytes_by_span: dict[tuple[bytes, bytes], set[bytes]] = {}
        for record in chunks:
            bytes_by_span.setdefault((record.key, dict(record.headers)["span_start_ns"]), set()).add(record.value)
        assert bytes_by_span
        assert all(len(versions) == 1 for versions in bytes_by_span.values())


def test_partitions_and_workers_do_not_change_the_vectors(
    broker: str, redis_url: str, session_timeout_s: str, topic_prefix: str, tmp_path: Path
) -> None:
    """The same records into one partition of one worker, and scattered over four partitions of two workers."""
    end_ns = time.time_ns() // NS * NS
    made = scrapes(6, 100, end_ns)
    random.Random(5).shuffle(made)
    together = deploy(
        broker, redis_url, f"{topic_prefix}a", tmp_path, partitions="1", session_timeout_s=session_timeout_s
    )
    apart = deploy(broker, redis_url, f"{topic_prefix}b", tmp_path, session_timeout_s=session_timeout_s)
    together.produce([(None, scrape.raw, scrape.time_ns // 1_000_000, 0) for scrape in made])
    apart.produce([(None, scrape.raw, scrape.time_ns // 1_000_000, i % 4) for i, scrape in enumerate(made)])
    with together.worker():
        one = await_vectors(together, 6, end_ns)
    with apart.worker(), apart.worker():
        two = await_vectors(apart, 6, end_ns)
    assert one.keys() == two.keys()
    for node in one:
        assert same_bits(one[node], two[node]), node
