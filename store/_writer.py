"""FeatureWriter: vectors, verdicts, events and recent chunks into Redis, in few round trips, through any outage."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from fleetpulse.features._vector import NodeVector
from fleetpulse.store._errors import (
    StoreAccessError,
    StoreAddressError,
    StoreDataError,
    StoreError,
    StoreUnreachableError,
)
from fleetpulse.store._freshness import wall_clock_ms
from fleetpulse.store._keys import BUCKET_LIFE_MS, CHUNK_WINDOW_NS, EVENT_LIFE_MS, NODE_LIFE_MS, Keys
from fleetpulse.store._link import AsyncLink, Command, Reply, failure
from fleetpulse.store._outbox import Batch, Field, NodeKey, Outbox
from fleetpulse.store._slots import header

log = logging.getLogger(__name__)

VECTORS_PER_CALL = 32
"""Redis does nothing else during a script: more would be felt by whoever reads meanwhile."""
VECTORS_PER_TRIP = 1_024
CHUNKS_PER_TRIP = 64
TRIPS_AT_ONCE = 4
"""Round trips under way together: Redis works on one while the next is encoded. Their nodes differ."""
WAITING_CHUNK_BYTES_MAX = 64 << 20
RETRY_S_MIN = 0.1
RETRY_S_MAX = 1.0
SWEEP_MS = 600_000
CLUSTER_NOTE_MS = 1_000


class _Script:
    def __init__(self, name: str) -> None:
        self.text = files(__package__).joinpath(name).read_text()
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Command:
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


@dataclass
class WriterCounts:
    """Totals since the writer was made. Every vector handed over ends in exactly one of these or is `pending`."""

    accepted: int = 0
    expired: int = 0
    """Newer than what was held, but already too old to be read: only its slot was kept."""
    repeated: int = 0
    older: int = 0
    superseded: int = 0
    """Replaced by a newer one of the same node before it was sent."""
    refused: int = 0
    """Redis or another program's key stood in the way; `last_error` says how."""
    chunks: int = 0
    chunks_dropped: int = 0
    """Too large, too old, or too many while Redis was away. They remain in the topic."""
    outages: int = 0


class FeatureWriter:
    """One per process; methods may be called by several tasks at once.

    All of them return when Redis has the data or, in an outage, at once: then the newest of every node waits here and
    is written when Redis is back. None raises for what Redis does.

    healthy: whether the last attempt succeeded. pending: vectors that wait. counts, last_error: for metrics and logs.
    """

    def __init__(
        self,
        link: AsyncLink,
        keys: Keys,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        chunk_bytes_per_node: int = 4 << 20,
    ) -> None:
        self.healthy = True
        self.last_error: StoreError | None = None
        self._counts = WriterCounts()
        self._link = link
        self._keys = keys
        self._now_ms = now_ms
        self._chunk_bytes_per_node = chunk_bytes_per_node
        self._outbox = Outbox(WAITING_CHUNK_BYTES_MAX)
        self._lock = asyncio.Lock()
        self._recovery: asyncio.Task[None] | None = None
        self._closed = False
        self._scripts = {name: _Script(f"{name}.lua") for name in ("vectors", "newest", "chunk", "sweep")}
        self._by_sha = {script.sha: script for script in self._scripts.values()}
        self._swept_ms: dict[tuple[str, int, bytes, int], int] = {}
        self._noted_ms: dict[str, int] = {}

    @classmethod
    async def connect(
        cls,
        url: str = "redis://127.0.0.1:6379/0",
        prefix: str = "fp",
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        chunk_bytes_per_node: int = 4 << 20,
        timeout_s: float = 2.0,
    ) -> FeatureWriter:
        """A writer, unhealthy at first when Redis does not answer.

        Raises StoreAddressError and StoreAccessError, which waiting does not mend.
        """
        writer = cls(
            AsyncLink(url, timeout_s=timeout_s), Keys(prefix), now_ms=now_ms, chunk_bytes_per_node=chunk_bytes_per_node
        )
        try:
            await writer._run([("PING",)])
        except StoreUnreachableError as error:
            writer._lost(error)
        except BaseException:
            await writer._link.close()
            raise
        return writer

    @property
    def pending(self) -> int:
        return self._outbox.vectors

    @property
    def counts(self) -> WriterCounts:
        self._counts.superseded = self._outbox.superseded
        return self._counts

    async def write_vectors(self, vectors: Sequence[NodeVector]) -> None:
        """Hand over vectors; of a node's several, the newest. A vector whose node is "" is its cluster's own."""
        self._outbox.add_vectors(vectors)
        await self._flush()

    async def write_chunk(self, cluster: str, node: str, span_start_ns: int, raw: bytes) -> None:
        """Hand over a finished chunk. Redis keeps a node's last hour, within chunk_bytes_per_node."""
        await self.write_chunks([(cluster, node, span_start_ns, raw)])

    async def write_chunks(self, chunks: Iterable[tuple[str, str, int, bytes]]) -> None:
        """Hand over several: (cluster, node, span_start_ns, chunk). The same start again replaces what was held."""
        for chunk in chunks:
            self._outbox.add_chunk(*chunk)
        await self._flush()

    async def write_anomaly(self, event: str | bytes | Mapping[str, Any]) -> None:
        """Hand over an anomaly event: a JSON object with time_ms, cluster and node. A node's newest stays for a day.

        An event of the whole fleet is held under the empty node name. Raises ValueError for what is no event.
        """
        fields = event if isinstance(event, Mapping) else json.loads(event)
        try:
            time_ms, cluster = int(fields["time_ms"]), str(fields.get("cluster") or "")
            node = "" if fields.get("scope") == "fleet" else str(fields["node"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an anomaly event: {error!r}") from None
        text = json.dumps(fields, separators=(",", ":"))
        self._outbox.add_field("events", cluster, node, Field(time_ms, text))
        await self._flush()

    async def write_verdicts(
        self, time_ms: int, scores: Mapping[NodeKey, float], verdicts: Mapping[NodeKey, str]
    ) -> None:
        """Hand over one slide of the detector: a score in [0, 1] (absent or NaN: not judged) and a word per node."""
        for cluster, node in scores.keys() | verdicts.keys():
            score = scores.get((cluster, node))
            number = "-" if score is None or score != score else f"{score:.6f}"
            text = f"{number} {verdicts.get((cluster, node), '')}"
            self._outbox.add_field("verdicts", cluster, node, Field(time_ms, text))
        await self._flush()

    async def close(self) -> None:
        """Write what waits if Redis takes it at once, and disconnect."""
        self._closed = True
        if self._recovery is not None:
            self._recovery.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._recovery
        await self._drain()
        await self._link.close()

    async def _flush(self) -> None:
        if self.healthy and not self._closed:
            await self._drain()

    async def _drain(self) -> bool:
        """Write what waits now; False when Redis went away, with everything unwritten back in the box.

        What others add meanwhile is theirs to write: under load, there would never be an end.
        """
        async with self._lock:
            trips = max(self._outbox.vectors // VECTORS_PER_TRIP, self._outbox.chunks // CHUNKS_PER_TRIP)
            for _ in range(1 + trips // TRIPS_AT_ONCE):
                batches: list[Batch] = []
                while self._outbox and len(batches) < TRIPS_AT_ONCE:
                    batches.append(self._outbox.take(VECTORS_PER_TRIP, CHUNKS_PER_TRIP))
                ends = await asyncio.gather(*map(self._try_to_send, batches))
                lost = [end for end in ends if end is not None]
                if lost:
                    self._lost(lost[0])
                    return False
            return True

    async def _try_to_send(self, batch: Batch) -> StoreError | None:
        """Send, or put back and return why not."""
        try:
            await self._send(batch)
        except (StoreUnreachableError, StoreAccessError, StoreAddressError) as error:
            self._outbox.put_back(batch)
            return error
        except BaseException:
            self._outbox.put_back(batch)
            raise
        return None

    def _lost(self, error: StoreError) -> None:
        self.last_error = error
        if self.healthy:
            self.healthy = False
            self._counts.outages += 1
            log.warning("%s: the newest vector of each node waits here until it does", error)
        if not self._closed and (self._recovery is None or self._recovery.done()):
            self._recovery = asyncio.create_task(self._recover(), name="fleetpulse-redis-recovery")

    async def _recover(self) -> None:
        """Try again, soon at first and then every second, until everything that waits is written."""
        pause_s = RETRY_S_MIN
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)
            try:
                await self._run([("PING",)])
            except StoreError as error:
                self.last_error = error
                continue
            waited = self.pending
            try:
                if not await self._drain():
                    continue
                self.healthy = True
                log.warning("Redis answers again; %d vectors that waited are written", waited)
                # Once more, for what was handed over during the last round trip.
                if await self._drain():
                    return
            except Exception:
                # A mistake of ours must not end the attempts: without them nothing would be written any more.
                log.exception("what waits could not be written")

    async def _send(self, batch: Batch) -> None:
        """One round trip. Raises StoreUnreachableError, StoreAccessError."""
        now_ms = self._now_ms()
        calls = self._vector_calls(batch.vectors, now_ms)
        vector_calls = len(calls)
        calls.extend(self._field_calls(batch))
        first_chunk = len(calls)
        calls.extend(self._chunk_calls(batch))
        after_chunks = len(calls)
        calls.extend(self._notes(batch.vectors, now_ms))
        calls.extend(self._sweeps(batch.vectors, now_ms))
        replies = await self._run(calls)
        counts = self._counts
        for i, (call, reply) in enumerate(zip(calls, replies, strict=True)):
            vectors = (len(call) - 3 - int(call[2]) - 5) // 2 if i < vector_calls else 0
            if isinstance(reply, Exception):
                self.last_error = _reply_error(reply, call, self._link.url)
                log.error("refused: %s", self.last_error)
                counts.refused += vectors
                counts.chunks_dropped += first_chunk <= i < after_chunks
            elif i < vector_calls:
                self._count(reply, call)
            elif first_chunk <= i < after_chunks:
                counts.chunks += int(reply)
                counts.chunks_dropped += 1 - int(reply)
        counts.chunks_dropped += self._outbox.chunks_dropped
        self._outbox.chunks_dropped = 0

    def _count(self, reply: bytes, call: Command) -> None:
        letters = reply.decode()
        counts = self._counts
        counts.accepted += letters.count("a")
        counts.expired += letters.count("x")
        counts.repeated += letters.count("s")
        counts.older += letters.count("o")
        if "r" in letters:
            counts.refused += letters.count("r")
            key = str(call[3 + 4 + letters.index("r")])
            self.last_error = StoreDataError("another program's value is left alone; delete or rename it", key=key)
            log.error("%s", self.last_error)

    async def _run(self, calls: list[Command]) -> list[Reply]:
        """Replies, with scripts loaded when the server does not know them (any more)."""
        replies = await self._link.run(calls)
        unknown = [i for i, reply in enumerate(replies) if isinstance(reply, Exception) and _is_noscript(reply)]
        if unknown:
            again = await self._link.run(
                [("EVAL", self._by_sha[str(calls[i][1])].text, *calls[i][2:]) for i in unknown]
            )
            for i, reply in zip(unknown, again, strict=True):
                replies[i] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                error = failure(reply, self._link.url)
                if isinstance(error, StoreUnreachableError | StoreAccessError | StoreAddressError):
                    raise error
        return replies

    def _vector_calls(self, vectors: Iterable[NodeVector], now_ms: int) -> list[Command]:
        groups: dict[tuple[str, int, bytes, int], tuple[list[str], list[str | bytes | int]]] = {}
        calls: list[Command] = []

        def close(bucket: tuple[str, int, bytes, int]) -> None:
            cluster, number, schema, features = bucket
            keys, arguments = groups.pop(bucket)
            head: list[str | bytes | int] = [header(schema, features), schema, now_ms, NODE_LIFE_MS, BUCKET_LIFE_MS]
            own = [make(cluster, number, schema) for make in (self._keys.bulk, self._keys.ids, self._keys.index)]
            own.append(self._keys.schema(cluster, number))
            calls.append(self._scripts["vectors"].call([*own, *keys], [*head, *arguments]))

        for vector in vectors:
            place = self._keys.place(vector.cluster, vector.node)
            bucket = (vector.cluster, place.bucket, vector.schema_hash, len(vector.values))
            keys, arguments = groups.setdefault(bucket, ([], []))
            try:
                raw = vector.to_bytes()
            except (ValueError, struct.error) as error:
                # A name beyond 65535 bytes, say: it would fail again and again, and hold up all others.
                self._counts.refused += 1
                self.last_error = StoreDataError(f"a vector cannot be written: {error}", key=place.key[:200])
                log.error("%s", self.last_error)
                continue
            keys.append(place.key)
            arguments += (place.name, raw)
            if len(keys) == VECTORS_PER_CALL:
                close(bucket)
        for bucket in [bucket for bucket, (keys, _) in groups.items() if keys]:
            close(bucket)
        return calls

    def _field_calls(self, batch: Batch) -> list[Command]:
        groups: dict[tuple[str, str], list[str | int]] = {}
        for (kind, cluster, node), entry in batch.fields.items():
            place = self._keys.place(cluster, node)
            key = (
                self._keys.events(cluster, place.bucket)
                if kind == "events"
                else self._keys.verdicts(cluster, place.bucket)
            )
            groups.setdefault((kind, key), []).extend((place.name, entry.time_ms, entry.text))
        return [
            self._scripts["newest"].call([key], [EVENT_LIFE_MS if kind == "events" else BUCKET_LIFE_MS, *arguments])
            for (kind, key), arguments in groups.items()
        ]

    def _chunk_calls(self, batch: Batch) -> list[Command]:
        return [
            self._scripts["chunk"].call(
                [self._keys.chunks(cluster, node)],
                [span_start_ns, raw, CHUNK_WINDOW_NS, self._chunk_bytes_per_node, BUCKET_LIFE_MS],
            )
            for (cluster, node, span_start_ns), raw in batch.chunks.items()
        ]

    def _notes(self, vectors: Iterable[NodeVector], now_ms: int) -> list[Command]:
        """Entries in the list of clusters, at most one a second and cluster; those silent for a day are dropped."""
        newest: dict[str, int] = {}
        for vector in vectors:
            newest[vector.cluster] = max(newest.get(vector.cluster, 0), vector.t_end_ns // 1_000_000)
        due = {name: ms for name, ms in newest.items() if now_ms - self._noted_ms.get(name, 0) >= CLUSTER_NOTE_MS}
        if not due:
            return []
        self._noted_ms |= dict.fromkeys(due, now_ms)
        pairs = [part for name, ms in due.items() for part in (ms, name)]
        return [
            ("ZADD", self._keys.clusters, "GT", *pairs),
            ("ZREMRANGEBYSCORE", self._keys.clusters, 0, max(newest.values()) - EVENT_LIFE_MS),
        ]

    def _sweeps(self, vectors: Iterable[NodeVector], now_ms: int) -> list[Command]:
        """Now and then, freeing of slots in the buckets written to."""
        calls = []
        for vector in vectors:
            number = self._keys.place(vector.cluster, vector.node).bucket
            bucket = (vector.cluster, number, vector.schema_hash, len(vector.values))
            last_ms = self._swept_ms.setdefault(bucket, now_ms)
            if now_ms - last_ms < SWEEP_MS:
                continue
            self._swept_ms[bucket] = now_ms
            cluster, schema = vector.cluster, vector.schema_hash
            keys = [make(cluster, number, schema) for make in (self._keys.bulk, self._keys.ids, self._keys.index)]
            keys += [self._keys.events(cluster, number), self._keys.verdicts(cluster, number)]
            calls.append(self._scripts["sweep"].call(keys, [header(schema, len(vector.values)), BUCKET_LIFE_MS]))
        return calls


def _is_noscript(reply: Exception) -> bool:
    return "NOSCRIPT" in str(reply) or type(reply).__name__ == "NoScriptError"


def _reply_error(reply: Exception, call: Command, url: str) -> StoreError:
    key = str(call[3]) if str(call[0]).startswith("EVAL") else str(call[1])
    if "FOREIGN" in str(reply) or "WRONGTYPE" in str(reply):
        return StoreDataError("another program's value is left alone; delete or rename it", key=key)
    return StoreError(str(failure(reply, url)), key=key)
