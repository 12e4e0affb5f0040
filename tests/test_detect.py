"""How vectors of several sources become slides."""

from __future__ import annotations

import numpy as np
import pytest

from fleetpulse.features import Catalog, NodeVector, Status
from fleetpulse.ingest._detect import IDLE_MS, SETTLE_MS, SLIDE_NS, DetectShard

START_NS = 1_700_000_000 * 1_000_000_000


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def vector(catalog: Catalog, node: str, t_end_ns: int, partition: int, schema: bytes | None = None) -> bytes:
    n = len(catalog.features)
    return NodeVector(
        node=node,
        cluster="c",
        pool="p",
        schema_hash=schema or catalog.schema_hash,
        t_end_ns=t_end_ns,
        partition=partition,
        offset=0,
        window_covered_ms=300_000,
        scrape_interval_ms=5_000,
        values=np.full(n, 0.5, np.float32),
        status=np.full(n, Status.OK, np.uint8),
        age_ms=np.zeros(n, np.uint32),
        sources={},
    ).to_bytes()


class Feed:
    """Applies vectors with consecutive offsets."""

    def __init__(self, catalog: Catalog, publish_from: int = 0) -> None:
        self.catalog = catalog
        self.shard = DetectShard(catalog, seed=1, train_after_s=120, publish_from=publish_from)
        self.offset = 0

    def apply(self, node: str, slide: int, partition: int, now_ms: int) -> None:
        self.shard.apply(self.offset, vector(self.catalog, node, START_NS + slide * SLIDE_NS, partition), now_ms)
        self.offset += 1

    def judged(self, now_ms: int) -> list[tuple[int, bool]]:
        return [((s.t_ns - START_NS) // SLIDE_NS, s.publish) for s in self.shard.slides(now_ms)]


def test_a_slide_waits_for_the_slower_source(catalog: Catalog) -> None:
    feed = Feed(catalog)
    for slide in range(1, 5):
        feed.apply("a", slide, 0, now_ms=0)
    feed.apply("b", 1, 1, now_ms=0)
    feed.apply("b", 2, 1, now_ms=0)
    assert feed.judged(SETTLE_MS) == [(1, True), (2, True)]
    feed.apply("b", 4, 1, now_ms=SETTLE_MS)
    assert feed.judged(SETTLE_MS) == [(3, True), (4, True)]


def test_a_source_that_went_away_is_not_waited_for(catalog: Catalog) -> None:
    feed = Feed(catalog)
    feed.apply("b", 1, 1, now_ms=0)
    for slide in range(1, 4):
        feed.apply("a", slide, 0, now_ms=IDLE_MS)
    assert feed.judged(IDLE_MS + SETTLE_MS) == [(1, True), (2, True), (3, True)]


def test_a_pool_waits_for_sources_that_have_not_delivered_yet(catalog: Catalog) -> None:
    """Catching up, one partition is read before another: the nodes of the other are not silent."""
    feed = Feed(catalog)
    for slide in range(1, 100):
        feed.apply("a", slide, 0, now_ms=0)
    assert feed.judged(SETTLE_MS - 1) == []
    for slide in range(1, 100):
        feed.apply("b", slide, 1, now_ms=SETTLE_MS - 1)
    assert feed.judged(SETTLE_MS) == []
    slides = feed.shard.slides(2 * SETTLE_MS)
    assert len(slides) == 99
    assert [event for slide in slides for event in slide.slide.events] == []


def test_a_node_further_back_in_a_backlog_is_not_silent_and_a_live_one_that_stops_is(catalog: Catalog) -> None:
    """Two nodes of one source: in the backlog b is a minute behind; later, live, it really stops."""
    feed = Feed(catalog)
    now_ms = (START_NS + 97 * SLIDE_NS) // 1_000_000
    for slide in range(1, 101):
        feed.apply("a", slide, 0, now_ms)
        feed.apply("b", max(1, slide - 12) if slide <= 80 else slide, 0, now_ms)
    slides = feed.shard.slides(now_ms + SETTLE_MS)
    assert [event for slide in slides for event in slide.slide.events] == []

    events = []
    for slide in range(101, 160):
        now_ms = (START_NS + slide * SLIDE_NS) // 1_000_000 + 1000
        feed.apply("a", slide, 0, now_ms)
        if slide < 130:
            feed.apply("b", slide, 0, now_ms)
        events += [event for judged in feed.shard.slides(now_ms) for event in judged.slide.events]
    assert [(event.node, event.detector, event.state) for event in events] == [("b", "silence", "opened")]


def test_slides_below_publish_from_are_silent(catalog: Catalog) -> None:
    feed = Feed(catalog, publish_from=2)
    for slide in range(1, 5):
        feed.apply("a", slide, 0, now_ms=0)
    assert feed.judged(SETTLE_MS) == [(1, False), (2, False), (3, True), (4, True)]


def test_a_vector_of_another_schema_is_not_judged(catalog: Catalog) -> None:
    shard = DetectShard(catalog, seed=1, train_after_s=120)
    shard.apply(0, vector(catalog, "a", START_NS, 0, schema=bytes(16)), now_ms=0)
    shard.apply(1, b"rubbish", now_ms=0)
    assert shard.unreadable == 2
    assert shard.slides(SETTLE_MS) == []


def test_memory_goes_on_where_it_was_taken(catalog: Catalog) -> None:
    feed = Feed(catalog)
    for slide in range(1, 10):
        feed.apply("a", slide, 0, now_ms=0)
    feed.judged(SETTLE_MS)
    memories = {"p": feed.shard.pools["p"].snapshot()}
    again = DetectShard(catalog, seed=1, train_after_s=120, memories=memories)
    for offset, slide in enumerate(range(1, 13)):
        again.apply(offset, vector(catalog, "a", START_NS + slide * SLIDE_NS, 0), 0)
    assert [(s.t_ns - START_NS) // SLIDE_NS for s in again.slides(SETTLE_MS)] == [10, 11, 12]
    assert again.notes == []


def test_memory_that_does_not_fit_is_told_and_left(catalog: Catalog) -> None:
    shard = DetectShard(catalog, seed=1, train_after_s=120, memories={"p": b"rubbish"}, models={"p": b"rubbish"})
    shard.apply(0, vector(catalog, "a", START_NS, 0), 0)
    assert len(shard.slides(SETTLE_MS)) == 1
    assert len(shard.notes) == 2
