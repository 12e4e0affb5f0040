"""Slides: the newest vectors of a pool's nodes, brought to one event time and judged together.

A pool's vectors come from several partitions of the nodes topic, read by several workers, each at its own pace. A slide
at time T is judged when every source that still delivers has passed T, with each node's newest vector not after T. So a
worker that catches up does not make the others' nodes look silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetpulse.anomaly import Detector, DetectorSettings, Model, ModelError, Slide
from fleetpulse.features import Catalog, NodeId, NodeVector, VectorError

NS_PER_MS = 1_000_000
SLIDE_NS = 5_000_000_000
IDLE_MS = 30_000
"""A source that delivered nothing for this long, by the worker's clock, is not waited for: longer than a rebalance."""
SETTLE_MS = 15_000
"""How long a pool waits, by the worker's clock, after a source appeared that it had not heard of. While workers catch
up, the first partition may be far ahead of those that have not delivered yet: their nodes are not silent."""
LIVE_MS = 30_000
LIVE_SLIDES = 6
"""Silence is heard only once this many slides in a row were of the last LIVE_MS. While a backlog is worked off, nodes
whose records are further back in it look silent and are not: they are left out of a slide instead."""
HEARD_NS = 25_000_000_000
FORGET_NS = 1_200_000_000_000
"""A node without a vector for this long is no longer part of its pool."""
SLIDES_KEPT = 512
"""Slides that may wait for a slow source; beyond that the oldest is judged without it."""


@dataclass
class PoolSlide:
    """One judged slide. publish is False while memory is rebuilt from the log."""

    pool: str
    t_ns: int
    slide: Slide
    publish: bool


@dataclass
class _Source:
    newest_ns: int
    seen_ms: int


@dataclass
class _Pool:
    detector: Detector
    newest: dict[NodeId, NodeVector] = field(default_factory=dict)
    """As of the last slide."""
    waiting: dict[int, dict[NodeId, NodeVector]] = field(default_factory=dict)
    """By slide number, the newest vector of each node in (slide - 5 s, slide]."""
    sources: dict[int, _Source] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    """By slide number, the newest offset that is part of it."""
    settled_ms: int = 0
    live_slides: int = 0
    last_slide: int = 0


class DetectShard:
    """The pools of one partition of the features topic.

    models, memories: by pool, the newest published model and snapshot; what does not fit (another schema, another
    version) is left out and told in `notes`.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        seed: int,
        train_after_s: int,
        publish_from: int = 0,
        models: Mapping[str, bytes] | None = None,
        memories: Mapping[str, bytes] | None = None,
    ) -> None:
        self.publish_from = publish_from
        self.next_offset = 0
        self.unreadable = 0
        self.notes: list[str] = []
        self._catalog = catalog
        self._seed = seed
        self._settings = DetectorSettings(train_after_s=train_after_s)
        self._models = dict(models or {})
        self._memories = dict(memories or {})
        self._pools: dict[str, _Pool] = {}

    @property
    def pools(self) -> dict[str, Detector]:
        return {name: pool.detector for name, pool in self._pools.items()}

    def apply(self, offset: int, value: bytes | None, now_ms: int) -> None:
        """Take one vector. Those of another schema are counted as unreadable: their columns mean something else."""
        if offset < self.next_offset:
            return
        self.next_offset = offset + 1
        try:
            vector = NodeVector.from_bytes(value or b"")
        except VectorError:
            self.unreadable += 1
            return
        if vector.schema_hash != self._catalog.schema_hash:
            self.unreadable += 1
            return
        pool = self._pools.get(vector.pool)
        if pool is None:
            detector = self._new_detector(vector.pool)
            # A detector that remembers has judged up to its newest slide; the log before that only fills the windows.
            pool = self._pools[vector.pool] = _Pool(detector, last_slide=(detector.now_ns or 0) // SLIDE_NS)
        source = pool.sources.get(vector.partition)
        if source is None:
            source = pool.sources[vector.partition] = _Source(0, now_ms)
            pool.settled_ms = now_ms + SETTLE_MS
        source.newest_ns = max(source.newest_ns, vector.t_end_ns)
        source.seen_ms = now_ms
        node = NodeId(vector.cluster, vector.node)
        number = -(-vector.t_end_ns // SLIDE_NS)
        if number <= pool.last_slide:
            # Too late for its slide: it may still be the newest that the next one sees of its node.
            number = pool.last_slide + 1
        pool.offsets[number] = offset
        slot = pool.waiting.setdefault(number, {})
        held = slot.get(node)
        if held is None or held.t_end_ns <= vector.t_end_ns:
            slot[node] = vector

    def slides(self, now_ms: int) -> list[PoolSlide]:
        """Judge every slide that is due, in the order of time."""
        judged = []
        for name, pool in self._pools.items():
            if now_ms < pool.settled_ms and len(pool.waiting) <= SLIDES_KEPT:
                continue
            active = [source.newest_ns for source in pool.sources.values() if now_ms - source.seen_ms < IDLE_MS]
            due_ns = min(active) if active else max(source.newest_ns for source in pool.sources.values())
            due = due_ns // SLIDE_NS
            if len(pool.waiting) > SLIDES_KEPT:
                due = max(due, sorted(pool.waiting)[-SLIDES_KEPT])
            for number in sorted(n for n in pool.waiting if n <= due):
                judged.append(self._judge(name, pool, number, now_ms))
        return judged

    def _judge(self, name: str, pool: _Pool, number: int, now_ms: int) -> PoolSlide:
        for node, vector in pool.waiting.pop(number).items():
            held = pool.newest.get(node)
            if held is None or held.t_end_ns <= vector.t_end_ns:
                pool.newest[node] = vector
        pool.last_slide = number
        t_ns = number * SLIDE_NS
        for node in [node for node, vector in pool.newest.items() if vector.t_end_ns < t_ns - FORGET_NS]:
            del pool.newest[node]
        pool.live_slides = pool.live_slides + 1 if t_ns // NS_PER_MS >= now_ms - LIVE_MS else 0
        vectors = list(pool.newest.values())
        if pool.live_slides < LIVE_SLIDES:
            vectors = [vector for vector in vectors if t_ns - vector.t_end_ns <= _heard_ns(vector)]
        slide = pool.detector.slide(t_ns, vectors)
        return PoolSlide(name, t_ns, slide, publish=pool.offsets.pop(number) >= self.publish_from)

    def _new_detector(self, pool: str) -> Detector:
        model = None
        if pool in self._models:
            try:
                model = Model.from_bytes(self._models[pool], self._catalog.schema_hash)
            except ModelError as error:
                self.notes.append(f"model of pool {pool} not used, a new one will be trained: {error}")
        if pool in self._memories:
            try:
                return Detector.restore(
                    self._memories[pool],
                    self._catalog,
                    pool=pool,
                    seed=self._seed,
                    settings=self._settings,
                    model=model,
                )
            except ModelError as error:
                self.notes.append(f"memory of pool {pool} not used: {error}")
        return Detector(self._catalog, pool=pool, seed=self._seed, settings=self._settings, model=model)


def _heard_ns(vector: NodeVector) -> int:
    """How old a node's newest sample may be before anyone would call the node silent."""
    return max(HEARD_NS, 3 * vector.scrape_interval_ms * NS_PER_MS)
