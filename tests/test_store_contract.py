"""What the store promises, on Redis, through the synchronous and the asynchronous reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest
import redis

from fleetpulse.store import (
    AmbiguousNodeError,
    AsyncFeatureStore,
    FeatureStore,
    FeatureWriter,
    Freshness,
    SchemaMismatchError,
    Status,
    StoreDataError,
)
from fleetpulse.store._keys import Keys, bucket_of
from support.vectors import CATALOG, FEATURES, NOW_MS, MadeUpCatalog, vector

T = TypeVar("T")
S = 1_000


class _Blocking:
    """AsyncFeatureStore with methods that can be called like FeatureStore's."""

    def __init__(self, run: Callable[[Awaitable[Any]], Any], store: AsyncFeatureStore) -> None:
        self._run, self._store = run, store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)
        return lambda *args, **more: self._run(method(*args, **more))


class Rig:
    """A writer, readers, a clock that tests set, and a plain client to look behind the scenes."""

    def __init__(self, url: str, prefix: str, kind: str) -> None:
        self.url, self.prefix, self.kind = url, prefix, kind
        self.now_ms = NOW_MS
        self.loop = asyncio.new_event_loop()
        self.client = redis.Redis.from_url(url)
        self.keys = Keys(prefix)
        self.writer: FeatureWriter = self.run(FeatureWriter.connect(url, prefix, now_ms=lambda: self.now_ms))
        self.store = self.reader()
        self._open: list[Any] = [self.store]

    def run(self, work: Awaitable[T]) -> T:
        return self.loop.run_until_complete(work)

    def reader(self, **options: Any) -> Any:
        options = {"catalog": CATALOG, "now_ms": lambda: self.now_ms} | options
        if self.kind == "sync":
            store: Any = FeatureStore.connect(self.url, self.prefix, **options)
        else:
            store = _Blocking(self.run, self.run(AsyncFeatureStore.connect(self.url, self.prefix, **options)))
        self.__dict__.setdefault("_open", []).append(store)
        return store

    def write(self, *vectors: Any) -> None:
        self.run(self.writer.write_vectors(vectors))

    def close(self) -> None:
        for store in self._open:
            store.close()
        self.run(self.writer.close())
        self.client.close()
        self.loop.close()


@pytest.fixture(params=["sync", "async"])
def rig(request: pytest.FixtureRequest, redis_url: str, redis_prefix: str) -> Iterator[Rig]:
    rig = Rig(redis_url, redis_prefix, request.param)
    yield rig
    rig.close()


def test_what_was_written_is_read(rig: Rig) -> None:
    rig.write(vector("a", value=0.5, t_ms=NOW_MS - 2 * S))
    reading = rig.store.node("a", "c1")
    assert (reading.cluster, reading.node, reading.freshness, reading.age_ms) == ("c1", "a", Freshness.FRESH, 2 * S)
    assert (reading.t_end_ms, reading.window_covered_ms) == (NOW_MS - 2 * S, 300_000)
    value = reading["f0"]
    assert (value.value, value.unit, value.age_ms, value.status) == (0.5, "s", 2_500, Status.OK)
    assert list(reading) == [f"f{i}" for i in range(FEATURES)]
    assert reading.x.dtype == np.float32
    assert reading.x[:-1].tolist() == [0.5] * (FEATURES - 1)


def test_a_missing_value_is_none_and_nan_never_zero(rig: Rig) -> None:
    rig.write(vector("a"))
    reading = rig.store.node("a", "c1")
    last = reading[f"f{FEATURES - 1}"]
    assert (last.value, last.status) == (None, Status.MISSING)
    assert np.isnan(reading.x[-1])
    assert np.isnan(rig.store.cluster("c1").X[0, -1])


def test_an_unknown_node_is_missing_with_every_name(rig: Rig) -> None:
    rig.write(vector("a"))
    for reading in (rig.store.node("b", "c1"), rig.store.node("b"), rig.store.node(("c9", "a"))):
        assert (reading.freshness, reading.age_ms, reading.vector) == (Freshness.MISSING, None, None)
        assert np.isnan(reading.x).all()
        assert all(reading[name].value is None for name in reading)
        with pytest.raises(KeyError):
            reading["no such feature"]


def test_nodes_are_read_in_the_order_asked_with_unknown_ones_in_place(rig: Rig) -> None:
    rig.write(vector("a", value=1), vector("b", value=2), vector("b", value=3, cluster="c2"))
    readings = rig.store.nodes(["a", ("c2", "b"), "nowhere", ("c1", "b")])
    assert [reading["f0"].value for reading in readings] == [1, 3, None, 2]
    assert rig.store.nodes([]) == []


def test_a_name_in_two_clusters_needs_its_cluster(rig: Rig) -> None:
    rig.write(vector("a", value=1), vector("a", value=2, cluster="c2"))
    with pytest.raises(AmbiguousNodeError, match="c1, c2"):
        rig.store.node("a")
    assert rig.store.node("a", "c2")["f0"].value == 2
    assert rig.store.clusters() == {"c1": NOW_MS, "c2": NOW_MS}


def test_a_cluster_is_read_as_arrays_sorted_by_name(rig: Rig) -> None:
    names = [f"node {i:03d}/ä" for i in range(200)]
    rig.write(*(vector(name, value=i, t_ms=NOW_MS - i) for i, name in reversed(list(enumerate(names)))))
    rig.write(vector("elsewhere", cluster="c2"))
    reading = rig.store.cluster("c1")
    assert reading.ids == tuple(names)
    assert reading.X.shape == (200, FEATURES)
    assert reading.X.dtype == np.float32
    assert reading.X[:, 0].tolist() == list(range(200))
    assert reading.column("f1").tolist() == list(range(200))
    assert reading.ages_ms.tolist() == list(range(200))
    assert set(reading.statuses.tolist()) == {Freshness.FRESH}
    assert reading.window_covered_ms.tolist() == [300_000] * 200


def test_an_unknown_cluster_has_no_rows(rig: Rig) -> None:
    reading = rig.store.cluster("nowhere")
    assert reading.ids == ()
    assert reading.X.shape == (0, FEATURES)


def test_nodes_that_join_later_appear_in_the_next_read(rig: Rig) -> None:
    for count in (1, 5, 40):
        rig.write(*(vector(f"n{i}", value=i) for i in range(count)))
        reading = rig.store.cluster("c1")
        assert sorted(reading.ids) == sorted(f"n{i}" for i in range(count))
        assert [f"n{int(value)}" for value in reading.X[:, 0]] == list(reading.ids)


def test_s28_fresh_then_stale_then_missing_by_the_readers_clock(rig: Rig) -> None:
    """Two intervals of 10 s and 5 s are fresh, 180 s the end; limits belong to the better side."""
    rig.write(vector("a", value=7))
    wanted = [
        (0, Freshness.FRESH, Status.OK),
        (25_000, Freshness.FRESH, Status.OK),
        (25_001, Freshness.STALE, Status.STALE),
        (180_000, Freshness.STALE, Status.STALE),
        (180_001, Freshness.MISSING, Status.MISSING),
    ]
    for age_ms, freshness, status in wanted:
        rig.now_ms = NOW_MS + age_ms
        reading, cluster = rig.store.node("a", "c1"), rig.store.cluster("c1")
        assert (reading.freshness, reading["f0"].status, reading.age_ms) == (freshness, status, age_ms)
        assert cluster.statuses.tolist() == [freshness]
        assert cluster.ages_ms.tolist() == [age_ms]
        known = freshness is not Freshness.MISSING
        assert (reading["f0"].value == 7, reading.x[0] == 7, cluster.X[0, 0] == 7) == (known, known, known)
    rig.now_ms = NOW_MS + 3_000_000
    assert rig.store.cluster("c1").ids == ("a",)


def test_unknown_scrape_interval_leaves_five_seconds(rig: Rig) -> None:
    rig.write(vector("a", interval_ms=0))
    rig.now_ms = NOW_MS + 5_000
    assert rig.store.node("a", "c1").freshness is Freshness.FRESH
    rig.now_ms = NOW_MS + 5_001
    assert rig.store.node("a", "c1").freshness is Freshness.STALE


def test_a_clock_that_is_far_behind_makes_nothing_fresh(rig: Rig) -> None:
    rig.write(vector("a"))
    rig.now_ms = NOW_MS - 60_000
    assert rig.store.node("a", "c1").freshness is Freshness.FRESH
    rig.now_ms = NOW_MS - 60_001
    assert rig.store.node("a", "c1").freshness is Freshness.STALE
    assert rig.store.cluster("c1").statuses.tolist() == [Freshness.STALE]


def test_max_age_tightens_and_cannot_widen(rig: Rig) -> None:
    rig.write(vector("a"))
    rig.now_ms = NOW_MS + 8_000
    assert rig.store.node("a", "c1", max_age_ms=8_000).freshness is Freshness.FRESH
    assert rig.store.node("a", "c1", max_age_ms=7_999).freshness is Freshness.MISSING
    assert rig.store.cluster("c1", max_age_ms=7_999).statuses.tolist() == [Freshness.MISSING]
    strict = rig.reader(max_age_ms=5_000)
    assert strict.node("a", "c1").freshness is Freshness.MISSING
    assert strict.node("a", "c1", max_age_ms=60_000).freshness is Freshness.MISSING
    rig.now_ms = NOW_MS + 200_000
    assert rig.store.node("a", "c1", max_age_ms=10**9).freshness is Freshness.MISSING


def test_t3_t2_t1_leaves_t3_and_rejects_two(rig: Rig) -> None:
    for i in (3, 2, 1):
        rig.write(vector("a", value=i, t_ms=NOW_MS + i, offset=10 - i))
    assert rig.store.node("a", "c1")["f0"].value == 3
    assert rig.store.cluster("c1").X[0, 0] == 3
    assert (rig.writer.counts.accepted, rig.writer.counts.older) == (1, 2)


@pytest.mark.parametrize(
    ("partition", "offset", "taken"),
    [
        pytest.param(0, 6, True, id="later offset of the same partition"),
        pytest.param(0, 5, False, id="same offset"),
        pytest.param(0, 4, False, id="earlier offset of the same partition"),
        pytest.param(1, 4, True, id="earlier offset of another partition"),
        pytest.param(0, 2**40, True, id="offset beyond 32 bits"),
    ],
)
def test_at_equal_t_end(rig: Rig, partition: int, offset: int, taken: bool) -> None:
    rig.write(vector("a", value=1, offset=5))
    rig.write(vector("a", value=2, partition=partition, offset=offset))
    wanted = 2 if taken else 1
    assert rig.store.node("a", "c1")["f0"].value == wanted
    assert rig.store.cluster("c1").X[0, 0] == wanted


@pytest.mark.parametrize("step_ns", [1, 2**32, -1, -(2**32)])
def test_t_end_is_compared_to_the_nanosecond(rig: Rig, step_ns: int) -> None:
    first, second = vector("a", value=1, offset=5), vector("a", value=2, offset=9 if step_ns < 0 else 1)
    second.t_end_ns += step_ns
    rig.write(first)
    rig.write(second)
    wanted = 2 if step_ns > 0 else 1
    assert rig.store.node("a", "c1")["f0"].value == wanted
    assert rig.store.cluster("c1").X[0, 0] == wanted


def test_a_key_lives_until_240_s_after_t_end_however_often_it_is_written(rig: Rig) -> None:
    key = rig.keys.node("c1", "a")
    rig.write(vector("a"))
    assert 239_000 < rig.client.pttl(key) <= 240_000
    rig.now_ms = NOW_MS + 100_000
    rig.write(vector("a"))
    rig.write(vector("a", t_ms=NOW_MS - 1))
    assert 239_000 < rig.client.pttl(key) <= 240_000, "neither the same nor an older vector gives a new life"
    rig.write(vector("a", t_ms=NOW_MS + 100))
    assert 139_000 < rig.client.pttl(key) <= 140_100, "its life counts from t_end"
    assert (rig.writer.counts.repeated, rig.writer.counts.older) == (1, 1)


def test_a_vector_that_is_long_over_is_not_written_and_takes_no_place(rig: Rig) -> None:
    rig.write(vector("a", t_ms=NOW_MS - 240_000))
    assert rig.writer.counts.expired == 1
    assert rig.client.exists(rig.keys.node("c1", "a")) == 0
    assert rig.store.cluster("c1").statuses.tolist() == [Freshness.MISSING]
    assert np.isnan(rig.store.cluster("c1").X).all()


def test_an_evicted_key_does_not_let_an_older_vector_in(rig: Rig) -> None:
    rig.write(vector("a", value=2, t_ms=NOW_MS))
    rig.client.delete(rig.keys.node("c1", "a"))
    rig.write(vector("a", value=1, t_ms=NOW_MS - 1))
    assert rig.store.node("a", "c1").freshness is Freshness.MISSING
    rig.now_ms = NOW_MS + 100_000
    rig.write(vector("a", value=2, t_ms=NOW_MS))
    assert rig.store.node("a", "c1")["f0"].value == 2
    assert 139_000 < rig.client.pttl(rig.keys.node("c1", "a")) <= 140_000


@pytest.mark.parametrize("lost", ["bulk", "ids", "index"])
def test_a_bulk_key_whose_parts_were_evicted_is_built_again(rig: Rig, lost: str) -> None:
    nodes = [vector(f"n{i}", value=i) for i in range(30)]
    rig.write(*nodes)
    for bucket in range(16):
        rig.client.delete(getattr(rig.keys, lost)("c1", bucket, CATALOG.schema_hash))
    if lost != "index":
        with pytest.raises(StoreDataError):
            rig.store.cluster("c1")
    rig.write(*(vector(f"n{i}", value=i, offset=2) for i in range(30)))
    assert len(rig.store.cluster("c1")) == 30


def test_s30_a_restarted_workers_vector_says_how_much_it_has_seen(rig: Rig) -> None:
    rig.write(vector("a", covered_ms=40_000))
    assert rig.store.node("a", "c1").window_covered_ms == 40_000
    assert rig.store.cluster("c1").window_covered_ms.tolist() == [40_000]
    rig.write(vector("a", t_ms=NOW_MS + 1))
    assert rig.store.node("a", "c1").window_covered_ms == 300_000


@pytest.mark.parametrize("other", [MadeUpCatalog(FEATURES + 1), MadeUpCatalog(FEATURES, "reordered")])
def test_s31_a_reader_of_another_catalog_refuses_and_names_both_hashes(rig: Rig, other: MadeUpCatalog) -> None:
    rig.write(vector("a"))
    reader = rig.reader(catalog=other)
    for read in (lambda: reader.node("a", "c1"), lambda: reader.cluster("c1"), lambda: reader.node("a")):
        with pytest.raises(SchemaMismatchError) as caught:
            read()
        assert other.schema_hash.hex() in str(caught.value)
        assert CATALOG.schema_hash.hex() in str(caught.value)
        assert (caught.value.ours, caught.value.theirs) == (other.schema_hash, CATALOG.schema_hash)
        assert caught.value.key is not None


def test_while_workers_are_upgraded_old_readers_see_whole_old_vectors_then_refuse(rig: Rig) -> None:
    new = MadeUpCatalog(FEATURES + 1)
    rig.write(vector("a", value=1), vector("b", value=2))
    rig.write(vector("a", value=9, t_ms=NOW_MS + 1, catalog=new))
    assert rig.store.cluster("c1").X[:, 0].tolist() == [1, 2]
    assert rig.reader(catalog=new).cluster("c1").ids == ("a",)
    with pytest.raises(SchemaMismatchError):
        rig.store.node("a", "c1")
    rig.now_ms = NOW_MS + 200_000
    with pytest.raises(SchemaMismatchError):
        rig.store.cluster("c1")


def test_an_old_workers_late_vector_does_not_replace_a_new_workers(rig: Rig) -> None:
    new = MadeUpCatalog(FEATURES + 1)
    rig.write(vector("a", value=1, t_ms=NOW_MS, catalog=new))
    rig.write(vector("a", value=2, t_ms=NOW_MS - 1))
    assert rig.reader(catalog=new).node("a", "c1")["f0"].value == 1


def test_a_vector_that_cannot_be_written_does_not_hold_up_others(rig: Rig) -> None:
    rig.write(vector("x" * 70_000), vector("a"))
    assert (rig.writer.counts.refused, rig.writer.counts.accepted, rig.writer.pending) == (1, 1, 0)
    assert isinstance(rig.writer.last_error, StoreDataError)


def test_the_clusters_own_vector_is_read_under_the_empty_name_and_is_no_node(rig: Rig) -> None:
    rig.write(vector("", value=5), vector("a"))
    assert rig.store.node("", "c1")["f0"].value == 5
    assert rig.store.cluster("c1").ids == ("a",)


def test_events_and_verdicts_of_a_node_come_with_its_reading(rig: Rig) -> None:
    event = {
        "id": "e",
        "state": "opened",
        "scope": "node",
        "cluster": "c1",
        "node": "a",
        "time_ms": 2_000,
        "score": 0.9,
    }
    rig.write(vector("a"), vector("b"))
    rig.run(rig.writer.write_anomaly(json.dumps(event)))
    rig.run(rig.writer.write_anomaly(event | {"state": "updated", "time_ms": 1_000}))
    rig.run(rig.writer.write_anomaly({"scope": "fleet", "cluster": "c1", "time_ms": 3_000}))
    scores = {("c1", "a"): 0.75, ("c1", "b"): float("nan")}
    words = {("c1", "a"): "anomalous", ("c1", "b"): "insufficient data"}
    rig.run(rig.writer.write_verdicts(NOW_MS, scores, words))
    rig.run(rig.writer.write_verdicts(NOW_MS - 1, {("c1", "a"): 0.1}, {("c1", "a"): "normal"}))
    reading = rig.store.node("a", "c1")
    assert reading.event == event, "an older event, repeated, does not replace a newer one"
    assert (reading.verdict.time_ms, reading.verdict.score, reading.verdict.verdict) == (NOW_MS, 0.75, "anomalous")
    unjudged = rig.store.node("b", "c1").verdict
    assert (unjudged.score, unjudged.verdict) == (None, "insufficient data")
    assert set(rig.store.verdicts("c1")) == {"a", "b"}
    assert set(rig.store.events("c1")) == {"a", ""}


@pytest.mark.parametrize("raw", ["[]", "{}", '{"time_ms": 1, "scope": "node", "cluster": "c"}', "not json"])
def test_what_is_no_event_is_refused(rig: Rig, raw: str) -> None:
    with pytest.raises(ValueError, match=r"event|Expecting"):
        rig.run(rig.writer.write_anomaly(raw))


MINUTE_NS = 60_000_000_000


def test_the_last_hour_of_chunks_is_kept_and_read_from_a_moment_on(rig: Rig) -> None:
    rig.run(rig.writer.write_chunks([("c1", "a", i * 10 * MINUTE_NS, b"chunk %d" % i) for i in (3, 0, 1, 2, 7, 8)]))
    rig.run(rig.writer.write_chunk("c1", "a", 30 * MINUTE_NS, b"chunk 3 again"))
    assert rig.store.chunks("a", "c1") == [b"chunk 2", b"chunk 3 again", b"chunk 7", b"chunk 8"]
    assert rig.store.chunks("a", "c1", since_ns=80 * MINUTE_NS) == [b"chunk 7", b"chunk 8"]
    assert rig.store.chunks("b", "c1") == []


def test_chunks_stay_within_their_budget_the_newest_first(redis_url: str, redis_prefix: str) -> None:
    async def work() -> tuple[list[bytes], int, int]:
        writer = await FeatureWriter.connect(redis_url, redis_prefix, chunk_bytes_per_node=100)
        for i in range(4):
            await writer.write_chunk("c1", "a", i * 10 * MINUTE_NS, bytes([i]) * 40)
        await writer.write_chunk("c1", "a", 40 * MINUTE_NS, bytes(101))
        await writer.write_chunk("c1", "b", 0, b"b")
        store = await AsyncFeatureStore.connect(redis_url, redis_prefix, catalog=CATALOG)
        chunks = await store.chunks("a", "c1")
        await store.close()
        await writer.close()
        return chunks, writer.counts.chunks, writer.counts.chunks_dropped

    chunks, kept, dropped = asyncio.run(work())
    assert chunks == [bytes([2]) * 40, bytes([3]) * 40], "one that is too large for all does not push others out"
    assert (kept, dropped) == (5, 1)


def test_slots_of_nodes_gone_for_an_hour_are_freed(rig: Rig) -> None:
    nodes = [f"n{i}" for i in range(40)]
    rig.write(*(vector(name, value=1) for name in nodes))
    rig.run(rig.writer.write_verdicts(NOW_MS, {("c1", name): 0.5 for name in nodes}, {}))
    later_ms = NOW_MS + 3_700_000
    rig.now_ms = later_ms
    rig.write(*(vector(name, value=2, t_ms=later_ms) for name in nodes[:20]))
    reading = rig.store.cluster("c1")
    alone = {bucket_of(name) for name in nodes[20:]} - {bucket_of(name) for name in nodes[:20]}
    left = [name for name in reading.ids if name in nodes[20:]]
    assert {bucket_of(name) for name in left} == alone, "a bucket that nobody writes to ends as a whole"
    assert set(nodes[:20]) <= set(reading.ids)
    assert reading.X[[reading.ids.index(name) for name in nodes[:20]], 0].tolist() == [2] * 20
    assert set(rig.store.verdicts("c1")) == set(nodes[:20]) | set(left)
    rig.write(vector("n0", value=3, t_ms=later_ms + 1), vector("new", value=4, t_ms=later_ms + 1))
    again = rig.store.cluster("c1")
    assert again.X[again.ids.index("n0"), 0] == 3
    assert again.X[again.ids.index("new"), 0] == 4


def test_every_key_is_under_the_prefix_and_ends_by_itself(rig: Rig) -> None:
    rig.write(vector("a"))
    rig.run(rig.writer.write_chunk("c1", "a", 0, b"x"))
    rig.run(rig.writer.write_verdicts(1, {("c1", "a"): 0.5}, {}))
    rig.run(rig.writer.write_anomaly({"time_ms": 1, "cluster": "c1", "node": "a"}))
    keys = sorted(key.decode() for key in rig.client.scan_iter(match=f"{rig.prefix}*"))
    assert len(keys) == 9
    assert [key for key in keys if rig.client.pttl(key) < 0] == [f"{rig.prefix}:clusters"]
