"""One partition's worth of the pipeline, without Kafka, Redis or a clock: records in, vectors and chunks out.

The worker and the offline replay run this same code. Everything that it returns is a function of the records it was
given and their order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fleetpulse.features import Catalog, FleetState, NodeVector
from fleetpulse.features._series import SeriesTable
from fleetpulse.ingest._chunks import OpenChunks, SealedChunk
from fleetpulse.ingest._decode import Decoder
from fleetpulse.ingest._open_store import load_catalog
from fleetpulse.ingest._otlp import OtlpError
from fleetpulse.ingest._otlp_json import json_to_proto, looks_like_json
from fleetpulse.ingest._route import Router
from fleetpulse.ingest._settings import Settings

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
WINDOW_NS = 300 * NS_PER_S
SLIDE_NS = 5 * NS_PER_S
SWEEP_MS = 30_000
"""How often, in record time, silent series and nodes are looked for."""


@dataclass(frozen=True)
class Refused:
    """Something that could not be read, for the dead-letter topic."""

    offset: int
    reason: str
    detail: str
    raw: bytes


@dataclass
class Outputs:
    """What became due. Vectors of one node are in the order of their time."""

    vectors: list[NodeVector] = field(default_factory=list)
    chunks: list[SealedChunk] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


class Shard:
    """State of one partition of the nodes topic.

    Records must come in the order of their offsets; one that was applied before is skipped. Records below publish_from
    rebuild the state and return nothing; after the last of them every node is due once.
    """

    def __init__(self, settings: Settings, catalog: Catalog, *, partition: int, publish_from: int = 0) -> None:
        self.partition = partition
        self.publish_from = publish_from
        self.next_offset = 0
        self.newest_record_ms = 0
        self.counts: Counter[str] = Counter()
        """accepted, duplicates, out_of_order, late, records, dead_letters, and every refusal by its reason."""
        self.table = SeriesTable()
        self._decoder = Decoder(
            self.table,
            identity=settings.identity.split(","),
            default_cluster=settings.cluster,
            pool_by=settings.pool_by.split(","),
            max_skew_ns=settings.max_skew_s * NS_PER_S,
            series_per_node=settings.series_per_node,
            nodes_per_shard=settings.nodes_per_shard,
        )
        self._state = FleetState(catalog, self.table, look_back_ns=settings.look_back_s * NS_PER_S)
        self._chunks = OpenChunks(self.table, span_ns=settings.chunk_span_s * NS_PER_S, window_ns=WINDOW_NS)
        self._look_back_ms = settings.look_back_s * 1000
        self._dirty: set[int] = set()
        self._published_ns: dict[int, int] = {}
        self._swept_ms = 0
        self._rebuilding = publish_from > 0

    @property
    def has_dirty_nodes(self) -> bool:
        return bool(self._dirty) and not self._rebuilding

    @property
    def open_samples(self) -> int:
        return self._chunks.samples

    def newest_ns(self) -> int:
        """Newest accepted sample of any node; 0 before the first."""
        return max((self._state.t_end_ns(node) for node in self._live_nodes()), default=0)

    def apply(self, offset: int, timestamp_ms: int, value: bytes | None) -> Outputs:
        """Take one record: an OTLP request of one or more nodes, as route wrote it."""
        out = Outputs()
        if offset < self.next_offset:
            return out
        if self._rebuilding and offset >= self.publish_from:
            self._end_rebuild()
        self.next_offset = offset + 1
        self.newest_record_ms = max(self.newest_record_ms, timestamp_ms)
        self.counts["records"] += 1
        try:
            decoded = self._decoder.decode(value or b"", timestamp_ms)
        except OtlpError as error:
            self._refuse(out, offset, error.reason, str(error), value or b"")
            return self._finish(out)
        for reason, metric in decoded.rejected:
            self._refuse(out, offset, reason, "one metric of a request", metric)
        self.counts.update(decoded.refused)
        if decoded.unattributed:
            self.counts["unattributed"] += decoded.unattributed
        self._chunks.add(decoded.points, self._state.t_end_ns)
        added = self._state.add(decoded.points, partition=self.partition, offset=offset)
        for name in ("accepted", "duplicates", "out_of_order", "late"):
            self.counts[name] += getattr(added, name)
        for node in sorted(added.dirty):
            t_end_ns = self._state.t_end_ns(node)
            self._dirty.add(node)
            if t_end_ns - self._published_ns.setdefault(node, t_end_ns) >= SLIDE_NS:
                self._publish(node, out)
            out.chunks.extend(self._chunks.seal(node, t_end_ns))
        if timestamp_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms = timestamp_ms
            self._sweep(out)
        return self._finish(out)

    def drain(self) -> list[NodeVector]:
        """Vectors of every node that has samples its last vector did not have."""
        if self._rebuilding:
            if self.next_offset < self.publish_from:
                return []
            self._end_rebuild()
        nodes = sorted(self._dirty)
        self._dirty.clear()
        self._published_ns.update((node, self._state.t_end_ns(node)) for node in nodes)
        return self._state.vectors(nodes)

    def vectors(self) -> list[NodeVector]:
        """The vector of every node as it stands."""
        return self._state.vectors([node for node in self._live_nodes() if self._state.t_end_ns(node) > 0])

    def seal_all(self) -> list[SealedChunk]:
        """Chunks of everything still open, as they stand."""
        return [
            chunk
            for node in self._live_nodes()
            for chunk in self._chunks.seal(node, self._state.t_end_ns(node), whole=True)
        ]

    def open_chunks(self, nodes: list[int]) -> list[SealedChunk]:
        """The open span of each of these nodes as it stands, for readers that cannot wait for its end."""
        return [chunk for node in nodes for chunk in self._chunks.snapshot(node, self._state.t_end_ns(node))]

    def nodes(self) -> list[int]:
        return self._live_nodes()

    def _live_nodes(self) -> list[int]:
        return sorted(self.table.node_by_id.values())

    def _publish(self, node: int, out: Outputs) -> None:
        self._published_ns[node] = self._state.t_end_ns(node)
        self._dirty.discard(node)
        if not self._rebuilding:
            out.vectors.append(self._state.vector(node))

    def _end_rebuild(self) -> None:
        """From here on outputs count. What was due when the last worker ended is due again: readers keep the newer."""
        self._rebuilding = False
        self._dirty.update(node for node in self._live_nodes() if self._state.t_end_ns(node) > 0)

    def _finish(self, out: Outputs) -> Outputs:
        return Outputs() if self._rebuilding else out

    def _refuse(self, out: Outputs, offset: int, reason: str, detail: str, raw: bytes) -> None:
        self.counts["dead_letters"] += 1
        self.counts[reason] += 1
        out.refused.append(Refused(offset, reason, detail, raw))

    def _sweep(self, out: Outputs) -> None:
        """Forget series silent for the look-back of their node, and nodes silent for it in record time."""
        for node in self._live_nodes():
            t_end_ns = self._state.t_end_ns(node)
            if t_end_ns and t_end_ns // NS_PER_MS + self._look_back_ms < self.newest_record_ms:
                out.chunks.extend(self._chunks.seal(node, t_end_ns, whole=True))
                if node in self._dirty:
                    # Its last vector is still owed; what it says of its age tells the rest.
                    self._publish(node, out)
                self._published_ns.pop(node, None)
                self._state.forget_node(node)
                self._forget(list(self.table.series_by_node.get(node, ())))
        self._forget(self._state.forget_silent())

    def _forget(self, series: list[int]) -> None:
        for index in series:
            self._chunks.forget(index)
        self._decoder.forget(series)


@dataclass
class OfflineResult:
    """vectors: the final one of every node, by cluster and name. refused: counts by reason, and duplicates, late, …"""

    vectors: list[NodeVector]
    refused: dict[str, int]


REFUSALS_ALWAYS_TOLD = ("unattributed", "duplicates", "late", "dead_letters")


class OfflinePipeline:
    """route and shard in this process, without Kafka or Redis."""

    def __init__(self, settings: Settings) -> None:
        self._router = make_router(settings)
        self.catalog = load_catalog(settings)
        self._shard = Shard(settings, self.catalog, partition=0)
        self._offset = 0
        self.counts: Counter[str] = Counter()

    def feed(self, record: bytes, timestamp_ms: int) -> Outputs:
        """One record of the source topic. Returns what became due on the way, as the worker would publish it."""
        out = Outputs()
        try:
            sliced = self._router.slice(as_proto(record, "auto"))
        except OtlpError as error:
            self.counts["dead_letters"] += 1
            self.counts[error.reason] += 1
            out.refused.append(Refused(self._offset, error.reason, str(error), record))
            return out
        self.counts["unattributed"] += sliced.unattributed
        for _, request in sliced.slices:
            part = self._shard.apply(self._offset, timestamp_ms, request)
            out.vectors += part.vectors
            out.chunks += part.chunks
            out.refused += part.refused
            self._offset += 1
        return out

    def finish(self) -> OfflineResult:
        counts = self.counts + self._shard.counts
        told = {name: counts[name] for name in REFUSALS_ALWAYS_TOLD}
        told |= {name: n for name, n in sorted(counts.items()) if n and name not in ("accepted", "records")}
        vectors = sorted(self._shard.vectors(), key=lambda vector: (vector.cluster, vector.node))
        return OfflineResult(vectors, told)

    def seal_all(self) -> list[SealedChunk]:
        return self._shard.seal_all()


def make_router(settings: Settings) -> Router:
    return Router(settings.identity.split(","), settings.cluster, settings.record_bytes_max)


def as_proto(record: bytes, source_format: str) -> bytes:
    """The record as protobuf, whatever the source topic's encoding. Raises OtlpError."""
    if source_format == "otlp_json" or (source_format == "auto" and looks_like_json(record)):
        return json_to_proto(record)
    return record
