"""What waits to be written: of every node only the newest, so that an outage of any length needs bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fleetpulse.features._vector import NodeVector

NodeKey = tuple[str, str]
"""(cluster, node)"""


def newer(vector: NodeVector, than: NodeVector) -> bool:
    """The rule of the store: later t_end; at equal t_end a later offset of the same partition, or another partition."""
    if vector.t_end_ns != than.t_end_ns:
        return vector.t_end_ns > than.t_end_ns
    return vector.partition != than.partition or vector.offset > than.offset


@dataclass(frozen=True, slots=True)
class Field:
    """A node's newest event or verdict: text with its time."""

    time_ms: int
    text: str


@dataclass
class Batch:
    """What one flush carries. fields: (events or verdicts, cluster, node) -> Field."""

    vectors: list[NodeVector] = field(default_factory=list)
    fields: dict[tuple[str, str, str], Field] = field(default_factory=dict)
    chunks: dict[tuple[str, str, int], bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.vectors or self.fields or self.chunks)


class Outbox:
    """Vectors and fields are bounded by the number of nodes, chunks by chunk_bytes_max: the oldest are dropped."""

    def __init__(self, chunk_bytes_max: int) -> None:
        self._vectors: dict[NodeKey, NodeVector] = {}
        self._fields: dict[tuple[str, str, str], Field] = {}
        self._chunks: dict[tuple[str, str, int], bytes] = {}
        self._chunk_bytes = 0
        self._chunk_bytes_max = chunk_bytes_max
        self.superseded = 0
        """Vectors that a newer one of their node replaced before they were written, or that came after it."""
        self.chunks_dropped = 0

    @property
    def vectors(self) -> int:
        return len(self._vectors)

    @property
    def chunks(self) -> int:
        return len(self._chunks)

    def __bool__(self) -> bool:
        return bool(self._vectors or self._fields or self._chunks)

    def add_vectors(self, vectors: Iterable[NodeVector]) -> None:
        for vector in vectors:
            key = (vector.cluster, vector.node)
            held = self._vectors.get(key)
            if held is not None:
                self.superseded += 1
                if not newer(vector, held):
                    continue
            self._vectors[key] = vector

    def add_field(self, kind: str, cluster: str, node: str, entry: Field) -> None:
        held = self._fields.get((kind, cluster, node))
        if held is None or entry.time_ms >= held.time_ms:
            self._fields[kind, cluster, node] = entry

    def add_chunk(self, cluster: str, node: str, span_start_ns: int, raw: bytes) -> None:
        key = (cluster, node, span_start_ns)
        self._chunk_bytes += len(raw) - len(self._chunks.pop(key, b""))
        self._chunks[key] = raw
        while self._chunk_bytes > self._chunk_bytes_max:
            oldest = min(self._chunks, key=lambda waiting: waiting[2])
            self._chunk_bytes -= len(self._chunks.pop(oldest))
            self.chunks_dropped += 1

    def take(self, vectors_max: int, chunks_max: int) -> Batch:
        """Up to so many of the longest waiting vectors and chunks, and all fields, out of the box."""
        batch = Batch(fields=self._fields)
        self._fields = {}
        for node in list(self._vectors)[:vectors_max]:
            batch.vectors.append(self._vectors.pop(node))
        for chunk in list(self._chunks)[:chunks_max]:
            raw = self._chunks.pop(chunk)
            self._chunk_bytes -= len(raw)
            batch.chunks[chunk] = raw
        return batch

    def put_back(self, batch: Batch) -> None:
        """Return what could not be written, beneath whatever newer has come meanwhile."""
        later = list(self._vectors.values())
        self._vectors = {(vector.cluster, vector.node): vector for vector in batch.vectors}
        self.add_vectors(later)
        newer_fields, self._fields = self._fields, dict(batch.fields)
        for (kind, cluster, node), entry in newer_fields.items():
            self.add_field(kind, cluster, node, entry)
        for (cluster, node, span_start_ns), raw in batch.chunks.items():
            if (cluster, node, span_start_ns) not in self._chunks:
                self.add_chunk(cluster, node, span_start_ns, raw)
