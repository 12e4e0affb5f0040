"""The worker: a Faust app of three agents (route, shard, detect), each of which hands a batch of records to plain
synchronous code, awaits what that code wants written, and then commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from faust.types import TP

from fleetpulse.anomaly import Event, train
from fleetpulse.features import NodeVector
from fleetpulse.ingest._checks import check_modules
from fleetpulse.ingest._chunks import SealedChunk
from fleetpulse.ingest._dead_letters import rounds_of
from fleetpulse.ingest._delivery import Message, dead_letter, send
from fleetpulse.ingest._detect import DetectShard, PoolSlide
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._faust_app import group_refusal, make_app
from fleetpulse.ingest._models import read_models
from fleetpulse.ingest._open_store import load_catalog
from fleetpulse.ingest._otlp import OtlpError
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._shard import NS_PER_MS, WINDOW_NS, Refused, Shard, as_proto, make_router
from fleetpulse.ingest._telemetry import WorkerTelemetry
from fleetpulse.ingest._topics import ensure_topics
from fleetpulse.ingest._transport import Record, RecordBatch
from fleetpulse.ingest._warmup import warm_up
from fleetpulse.store import FeatureWriter, StoreError

log = logging.getLogger("fleetpulse.worker")

MEMORY_EVERY_S = 60
OPEN_CHUNKS_PER_TICK = 10
"""Nodes of a partition whose unfinished chunks are encoded in a second: some milliseconds."""
SAMPLE_OUTCOMES = ("accepted", "duplicates", "out_of_order", "late")


@dataclass
class _ShardSlot:
    """A shard with what the worker must know around it. The lock keeps outputs and commits in order."""

    shard: Shard
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    published_at: float = 0.0
    counted: Counter[str] = field(default_factory=Counter)
    open_written: dict[int, float] = field(default_factory=dict)
    """Node index -> when its unfinished chunk was last put into Redis."""
    oldest_unpublished_ms: int | None = None


@dataclass
class _DetectSlot:
    shard: DetectShard
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    training: dict[str, asyncio.Task[None]] = field(default_factory=dict)


class Worker:
    """Everything of one worker process. run() returns when it was asked to stop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.catalog = load_catalog(settings)
        self.telemetry = WorkerTelemetry()
        self._router = make_router(settings)
        self._shards: dict[int, _ShardSlot] = {}
        self._detectors: dict[int, _DetectSlot] = {}
        self._models: dict[str, bytes] = {}
        self._memories: dict[str, bytes] = {}
        self._models_read_at = -float(MEMORY_EVERY_S)
        self._writer: FeatureWriter | None = None
        self._failure: BaseException | None = None
        self._busy = 0
        self._idle = asyncio.Event()
        self._topics = frozenset({settings.source_topic, settings.topic("nodes"), settings.topic("features")})
        self.app = self._make_app()

    # --- StateKeeper: what the consumer asks on every assignment ---

    def next_offset(self, topic: str, partition: int) -> int | None:
        slot = self._slot(topic, partition)
        return None if slot is None else slot.shard.next_offset

    def look_back_ms(self, topic: str) -> int:
        if topic == self.settings.source_topic:
            return 0
        return self.settings.look_back_s * 1000 + WINDOW_NS // 1_000_000

    def keep_only(self, assigned: set[tuple[str, int]]) -> None:
        nodes, features = self.settings.topic("nodes"), self.settings.topic("features")
        for partition in [p for p in self._shards if (nodes, p) not in assigned]:
            del self._shards[partition]
        for partition in [p for p in self._detectors if (features, p) not in assigned]:
            for task in self._detectors.pop(partition).training.values():
                task.cancel()
        counts = Counter(topic for topic, _ in assigned)
        for topic in self._topics:
            self.telemetry.partitions.labels(topic).set(counts[topic])
        log.info("partitions assigned", extra={"partitions": dict(counts)})

    def lost_records(self, topic: str, partition: int, first: int, last: int) -> None:
        self.telemetry.lost.labels(topic).inc(last - first + 1)
        log.warning(
            "records were deleted by retention before they were read: what they said is not in any vector",
            extra={"topic": topic, "partition": partition, "first": first, "last": last},
        )

    def _slot(self, topic: str, partition: int) -> _ShardSlot | _DetectSlot | None:
        if topic == self.settings.topic("nodes"):
            return self._shards.get(partition)
        if topic == self.settings.topic("features"):
            return self._detectors.get(partition)
        return None

    # --- Faust ---

    def _make_app(self) -> Any:
        settings = self.settings
        app = make_app(settings, self, self._topics)
        for topic, handle in (
            (settings.source_topic, self._route),
            (settings.topic("nodes"), self._shard),
            (settings.topic("features"), self._detect),
        ):
            self._add_agent(app, topic, handle)
        app.task(self._publish_often)
        app.task(self._tick)
        finish_current: Any = self._finish_current
        app.on_partitions_revoked.connect(finish_current)
        return app

    def _add_agent(self, app: Any, name: str, handle: Callable[[RecordBatch], Awaitable[None]]) -> None:
        topic = app.topic(
            name, key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw", acks=False
        )

        async def agent(stream: Any) -> None:
            async for batch in stream:
                if batch.generation != app.consumer_generation_id:
                    # Fetched before a rebalance: whoever has the partition now reads it again.
                    continue
                self._busy += 1
                self._idle.clear()
                try:
                    await handle(batch)
                except Exception as error:
                    await self._fail(error)
                    return
                finally:
                    self._busy -= 1
                    if not self._busy:
                        self._idle.set()

        agent.__name__ = handle.__name__.strip("_")
        app.agent(topic, name=agent.__name__)(agent)

    async def _finish_current(self, _app: Any, revoked: Iterable[TP], **_: Any) -> None:
        """Let batches in hand be finished before the partitions go, so that less is done twice."""
        if self._busy:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), 5.0)

    async def _fail(self, error: BaseException) -> None:
        """An error of our own: nothing more is committed, the process ends, and a restart replays from the log."""
        if self._failure is None:
            self._failure = error
            if not isinstance(error, UserError):
                log.critical("the worker stops after an unexpected error", exc_info=error)
            os.kill(os.getpid(), signal.SIGTERM)

    # --- route ---

    async def _route(self, batch: RecordBatch) -> None:
        messages: list[Message] = []
        nodes_topic = self.settings.topic("nodes")
        unattributed = 0
        size = 0
        for record in batch.records:
            value = record.value or b""
            size += len(value)
            try:
                sliced = self._router.slice(as_proto(value, self.settings.source_format))
            except OtlpError as error:
                refused = Refused(record.offset, error.reason, str(error), value)
                messages.append(self._dead_letter(batch, record, refused))
                continue
            unattributed += sliced.unattributed
            for node, request in sliced.slices:
                if len(request) > self.settings.record_bytes_max:
                    # Nothing smaller than one point: a point of this size is not telemetry.
                    refused = Refused(record.offset, "oversized", f"{len(request)} bytes of one point", request)
                    messages.append(self._dead_letter(batch, record, refused))
                    continue
                key = f"{node.cluster}/{node.node}".encode()
                messages.append((nodes_topic, key, request, record.timestamp_ms, rounds_of(record.headers)))
        if unattributed:
            self.telemetry.refused.labels("unattributed").inc(unattributed)
        self._count_read(batch, size)
        await self._send(messages)
        await self._commit(batch.topic, batch.partition, batch.next_offset)

    # --- shard ---

    async def _shard(self, batch: RecordBatch) -> None:
        slot = self._shards.get(batch.partition)
        if slot is None:
            shard = Shard(self.settings, self.catalog, partition=batch.partition, publish_from=batch.publish_from)
            slot = self._shards[batch.partition] = _ShardSlot(shard)
            log.info(
                "partition started",
                extra={
                    "partition": batch.partition,
                    "from": batch.records[0].offset,
                    "publish_from": batch.publish_from,
                },
            )
        async with slot.lock:
            # What another worker finished while it had the partition is silent here.
            slot.shard.publish_from = max(slot.shard.publish_from, batch.publish_from)
            vectors: list[NodeVector] = []
            chunks: list[SealedChunk] = []
            messages: list[Message] = []
            started = time.monotonic()
            for record in batch.records:
                out = slot.shard.apply(record.offset, record.timestamp_ms, record.value)
                vectors += out.vectors
                chunks += out.chunks
                messages += [self._dead_letter(batch, record, refused) for refused in out.refused]
                if time.monotonic() - started > 0.05:
                    # Heartbeats, the other agents and the metrics endpoint go on during a long batch.
                    await asyncio.sleep(0)
                    started = time.monotonic()
            self._count_read(batch, sum(len(record.value or b"") for record in batch.records))
            if slot.oldest_unpublished_ms is None and slot.shard.has_dirty_nodes:
                slot.oldest_unpublished_ms = batch.records[0].timestamp_ms
            due = time.monotonic() - slot.published_at >= self.settings.publish_ms / 1000
            await self._publish(slot, vectors, chunks, messages, drain=due)

    async def _publish_often(self) -> None:
        """Publish nodes whose samples came just after their last vector."""
        wait_s = self.settings.publish_ms / 1000
        while not self.app.should_stop:
            await self.app.sleep(wait_s / 2)
            for slot in list(self._shards.values()):
                if slot.shard.has_dirty_nodes and time.monotonic() - slot.published_at >= wait_s:
                    try:
                        async with slot.lock:
                            await self._publish(slot, [], [], [], drain=True)
                    except Exception as error:
                        await self._fail(error)
                        return

    async def _publish(
        self,
        slot: _ShardSlot,
        vectors: list[NodeVector],
        chunks: list[SealedChunk],
        messages: list[Message],
        *,
        drain: bool,
    ) -> None:
        """Write what is due, then commit. Without drain nodes may stay dirty, and what they rest on uncommitted."""
        shard = slot.shard
        topic = self.settings.topic("nodes")
        if drain:
            vectors = vectors + shard.drain()
            slot.published_at = time.monotonic()
        features_topic, chunks_topic = self.settings.topic("features"), self.settings.topic("chunks")
        for vector in vectors:
            messages.append((features_topic, vector.pool.encode(), vector.to_bytes(), vector.t_end_ns // 1_000_000, []))
        for chunk in chunks:
            headers = [("span_start_ns", str(chunk.span_start_ns).encode()), ("part", str(chunk.part).encode())]
            key = f"{chunk.cluster}/{chunk.node}".encode()
            messages.append((chunks_topic, key, chunk.raw, chunk.t_end_ns // 1_000_000, headers))
        await self._send(messages)
        writer = self._writer
        assert writer is not None, "agents run after the writer was started"
        if vectors:
            newest = {(vector.cluster, vector.node): vector for vector in vectors}
            await writer.write_vectors(list(newest.values()))
        if chunks:
            await writer.write_chunks(_as_kept(chunk) for chunk in chunks)
            self.telemetry.chunk_bytes.inc(sum(len(chunk.raw) for chunk in chunks))
        self.telemetry.vectors.inc(len(vectors))
        self.telemetry.chunks.inc(len(chunks))
        if vectors and slot.oldest_unpublished_ms is not None:
            self.telemetry.publication.observe(max(0.0, time.time() - slot.oldest_unpublished_ms / 1000))
            slot.oldest_unpublished_ms = None
        self._count_shard(slot)
        if not shard.has_dirty_nodes and shard.next_offset > shard.publish_from:
            await self._commit(topic, shard.partition, shard.next_offset)

    # --- detect ---

    async def _detect(self, batch: RecordBatch) -> None:
        slot = self._detectors.get(batch.partition)
        if slot is None:
            await self._load_models()
            shard = DetectShard(
                self.catalog,
                seed=self.settings.seed,
                train_after_s=self.settings.train_after_s,
                publish_from=batch.publish_from,
                models=self._models,
                memories=self._memories,
            )
            slot = self._detectors[batch.partition] = _DetectSlot(shard)
        async with slot.lock:
            slot.shard.publish_from = max(slot.shard.publish_from, batch.publish_from)
            for record in batch.records:
                slot.shard.apply(record.offset, record.value, _now_ms())
            self._count_read(batch, sum(len(record.value or b"") for record in batch.records))
            await self._judge(slot)
            if slot.shard.next_offset > slot.shard.publish_from:
                await self._commit(batch.topic, batch.partition, slot.shard.next_offset)

    async def _judge(self, slot: _DetectSlot) -> None:
        for note in slot.shard.notes:
            log.warning(note)
        slot.shard.notes.clear()
        for judged in slot.shard.slides(_now_ms()):
            await self._publish_slide(judged)
            self._train_if_asked(slot, judged.pool)

    async def _publish_slide(self, judged: PoolSlide) -> None:
        if not judged.publish:
            return
        topic = self.settings.topic("anomalies")
        events: Sequence[Event] = judged.slide.events
        await self._send(
            [(topic, judged.pool.encode(), event.to_json().encode(), event.time_ms, []) for event in events]
        )
        assert self._writer is not None
        scores = {(node.cluster, node.node): score for node, score in judged.slide.scores.items()}
        verdicts = {(node.cluster, node.node): verdict for node, verdict in judged.slide.verdicts.items()}
        await self._writer.write_verdicts(judged.t_ns // 1_000_000, scores, verdicts)
        for event in events:
            await self._writer.write_anomaly(event.to_json())
            self.telemetry.events.labels(event.state, event.scope).inc()
            log.info(
                "anomaly %s",
                event.state,
                extra={"scope": event.scope, "node": event.node, "pool": event.pool, "score": round(event.score, 3)},
            )

    def _train_if_asked(self, slot: _DetectSlot, pool: str) -> None:
        task = slot.training.get(pool)
        if task is not None and not task.done():
            return
        data = slot.shard.pools[pool].training_request()
        if data is None:
            return

        async def run() -> None:
            started = time.monotonic()
            model = await asyncio.to_thread(train, data, self.settings.seed)
            slot.shard.pools[pool].adopt(model)
            raw = model.to_bytes()
            self._models[pool] = raw
            await self._send([(self.settings.topic("models"), f"model/{pool}".encode(), raw, _now_ms(), [])])
            self.telemetry.training.labels(pool).set(time.monotonic() - started)
            log.info("forest trained", extra={"pool": pool, "seconds": round(time.monotonic() - started, 1)})

        def done(finished: asyncio.Task[None]) -> None:
            if not finished.cancelled() and finished.exception() is not None:
                log.error("training failed; the guard and the peers go on", exc_info=finished.exception())

        slot.training[pool] = asyncio.create_task(run())
        slot.training[pool].add_done_callback(done)

    async def _load_models(self) -> None:
        if time.monotonic() - self._models_read_at < MEMORY_EVERY_S:
            return
        self._models_read_at = time.monotonic()
        models, memories = await read_models(self.settings)
        self._models.update(models)
        self._memories.update(memories)

    async def _tick(self) -> None:
        """Once a second: slides whose slow source went away, gauges; every minute the detectors' memory."""
        remembered_at = time.monotonic()
        while not self.app.should_stop:
            await self.app.sleep(1.0)
            try:
                for slot in list(self._detectors.values()):
                    async with slot.lock:
                        await self._judge(slot)
                if time.monotonic() - remembered_at >= MEMORY_EVERY_S:
                    remembered_at = time.monotonic()
                    await self._remember()
                await self._write_open_chunks()
                self._set_gauges()
            except Exception as error:
                await self._fail(error)
                return

    async def _write_open_chunks(self) -> None:
        """A few nodes' unfinished chunks, those not written for longest; bounded, however many nodes there are."""
        every_s = self.settings.open_chunk_s
        if not every_s or self._writer is None or not self._writer.healthy:
            return
        now = time.monotonic()
        for slot in list(self._shards.values()):
            nodes = slot.shard.nodes()
            slot.open_written = {node: slot.open_written.get(node, 0.0) for node in nodes}
            due = sorted((at, node) for node, at in slot.open_written.items() if now - at >= every_s)
            chosen = [node for _, node in due[:OPEN_CHUNKS_PER_TICK]]
            slot.open_written |= dict.fromkeys(chosen, now)
            await self._writer.write_chunks(_as_kept(chunk) for chunk in slot.shard.open_chunks(chosen))

    async def _remember(self) -> None:
        topic = self.settings.topic("models")
        for slot in list(self._detectors.values()):
            for pool, detector in slot.shard.pools.items():
                self._memories[pool] = detector.snapshot()
                await self._send([(topic, f"memory/{pool}".encode(), self._memories[pool], _now_ms(), [])])

    # --- shared ---

    async def _send(self, messages: Sequence[Message]) -> None:
        await send(self.app.producer, messages)

    async def _commit(self, topic: str, partition: int, next_offset: int) -> None:
        await self.app.consumer.commit_offsets({TP(topic, partition): next_offset})

    def _dead_letter(self, batch: RecordBatch, record: Record, refused: Refused) -> Message:
        self.telemetry.dead_letters.labels(refused.reason).inc()
        return dead_letter(
            self.settings.topic("deadletter"),
            refused,
            source_topic=batch.topic,
            partition=batch.partition,
            timestamp_ms=record.timestamp_ms,
            came_with=record.headers,
        )

    def _count_read(self, batch: RecordBatch, size: int) -> None:
        self.telemetry.records.labels(batch.topic).inc(len(batch.records))
        self.telemetry.record_bytes.labels(batch.topic).inc(size)

    def _count_shard(self, slot: _ShardSlot) -> None:
        counts = slot.shard.counts
        for name, n in counts.items():
            new = n - slot.counted[name]
            if not new:
                continue
            if name in SAMPLE_OUTCOMES:
                self.telemetry.samples.labels(name).inc(new)
            elif name not in ("records", "dead_letters"):
                self.telemetry.refused.labels(name).inc(new)
        slot.counted = Counter(counts)

    def _set_gauges(self) -> None:
        t = self.telemetry
        shards = [slot.shard for slot in self._shards.values()]
        t.series.set(sum(len(shard.table.series_by_key) for shard in shards))
        t.nodes.set(sum(len(shard.table.node_by_id) for shard in shards))
        t.chunk_samples.set(sum(shard.open_samples for shard in shards))
        now_ns = time.time_ns()
        for shard in shards:
            newest_ns = shard.newest_ns()
            if newest_ns:
                t.lag.labels(str(shard.partition)).set((now_ns - newest_ns) / 1e9)
        if self._writer is not None:
            t.redis_up.set(1 if self._writer.healthy else 0)
            t.redis_pending.set(self._writer.pending)

    def run(self) -> None:
        """Blocks until SIGTERM or SIGINT. Raises UserError for what the user can mend."""
        for check in check_modules():
            if check.state == "problem":
                raise UserError(f"{check.name} {check.found}: {check.do}")
        for note in ensure_topics(self.settings):
            log.info(note)
        asyncio.run(self._check_redis())
        if self.settings.metrics_port:
            self.telemetry.serve(self.settings.metrics_host, self.settings.metrics_port)
        started = time.monotonic()
        warm_up()
        log.info("kernels ready", extra={"seconds": round(time.monotonic() - started, 1)})
        asyncio.run(self._run())
        if isinstance(self._failure, UserError):
            raise self._failure
        if self._failure is not None:
            raise UserError(
                f"the worker stopped after an unexpected error ({self._failure!r}); its log has the details. "
                "Nothing is lost: a restart replays from the last commit"
            )

    async def _run(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        self._writer = await self._connect_writer()
        app = self.app
        starting = asyncio.create_task(app.start())
        stopping = asyncio.create_task(stop.wait())
        watching = asyncio.create_task(self._watch_group())
        try:
            # Starting lasts until the group has given it partitions; it can be asked to stop before.
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                starting.result()
                log.info("worker started", extra={"group": self.settings.consumer_group, "pid": os.getpid()})
            await stopping
        finally:
            log.info("stopping")
            for task in (starting, stopping, watching):
                task.cancel()
            if self._failure is None:
                for slot in list(self._shards.values()):
                    async with slot.lock:
                        await self._publish(slot, [], [], [], drain=True)
            await app.stop()
            await self._writer.close()

    async def _watch_group(self) -> None:
        """Ends the worker when its group refuses it, with what to do."""
        while True:
            await asyncio.sleep(1.0)
            error = self.app.consumer.group_error()
            if error is not None:
                await self._fail(group_refusal(self.settings, error))
                return

    async def _connect_writer(self) -> FeatureWriter:
        try:
            return await FeatureWriter.connect(self.settings.redis_url.get_secret_value(), self.settings.redis_prefix)
        except StoreError as error:
            raise UserError(f"Redis: {error} (FLEETPULSE_REDIS_URL)") from None

    async def _check_redis(self) -> None:
        """An outage later on is ridden out; a Redis that is not there at the start is most likely a wrong address."""
        writer = await self._connect_writer()
        healthy, why = writer.healthy, writer.last_error
        await writer.close()
        if not healthy:
            raise UserError(f"Redis: {why} (FLEETPULSE_REDIS_URL)")


def _as_kept(chunk: SealedChunk) -> tuple[str, str, int, bytes]:
    """As Redis keeps it. A later part of a span stands beside the first, as if a millisecond on."""
    return chunk.cluster, chunk.node, chunk.span_start_ns + chunk.part * NS_PER_MS, chunk.raw


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
