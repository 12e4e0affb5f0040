"""Slicing a request by node without decoding its samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleetpulse.features._series import NodeId
from fleetpulse.ingest._decode_known import KnownBlobs, new_state
from fleetpulse.ingest._decode_table import B_COLUMNS, COUNTERS, IRREGULAR, NEW_BLOBS, RESOURCE_METRICS
from fleetpulse.ingest._decode_wire import ERROR_AT, ERRORS, GROW, U8Array
from fleetpulse.ingest._otlp import (
    LENGTH,
    Field,
    OtlpError,
    length_field,
    length_field_size,
    read_fields,
    read_request,
)
from fleetpulse.ingest._route_scan import F_COLUMNS, find_entries

RESOURCE = 1

DIVISIBLE = (frozenset({1}), frozenset({2}), frozenset({2}), frozenset({5, 7, 9, 10, 11}), frozenset({1}))
"""By depth, the fields along which a message may be cut: request, ResourceMetrics, ScopeMetrics, Metric (gauge, sum,
histogram, exponential histogram, summary) and its data points. Everything else of a message goes into every piece."""
METRIC_DEPTH = 3


@dataclass(frozen=True)
class Sliced:
    """slices: a node and a request that holds nothing but its ResourceMetrics, in their order in the source.

    A node has more than one slice when one would be too large. unattributed: resources that name no node.
    oversized: slices larger than the limit all the same, because a single point is.
    """

    slices: list[tuple[NodeId, bytes]]
    unattributed: int
    oversized: int = 0


class Router:
    """Finds each ResourceMetrics' node and copies the bytes as they are.

    identity: resource attributes that may name the node, the first present wins. Reads the request's top level and
    the resources, no scope and no metric, unless a slice is larger than record_bytes_max and has to be cut.
    """

    def __init__(self, identity: Sequence[str], default_cluster: str, record_bytes_max: int) -> None:
        self._record_bytes_max = record_bytes_max
        self._known = KnownBlobs(identity, default_cluster, (), with_attributes=False)
        self._state = new_state()
        self._new = np.empty((64, B_COLUMNS), np.int64)
        self._entries = np.empty((256, F_COLUMNS), np.int64)

    def slice(self, request: bytes) -> Sliced:
        """Raises OtlpError when the top level or a resource cannot be read; then nothing of the request is used."""
        by_node: dict[NodeId, list[bytes]] = {}
        unattributed = 0
        for node, start, stop in self._nodes(request):
            if node is None:
                unattributed += 1
            else:
                by_node.setdefault(node, []).append(request[start:stop])
        slices: list[tuple[NodeId, bytes]] = []
        oversized = 0
        for node, parts in by_node.items():
            for piece in self._pieces(parts):
                slices.append((node, piece))
                oversized += len(piece) > self._record_bytes_max
        return Sliced(slices, unattributed, oversized)

    @property
    def kept(self) -> int:
        """Resources whose node is remembered."""
        return len(self._known)

    def _nodes(self, request: bytes) -> Iterator[tuple[NodeId | None, int, int]]:
        """Node, start and stop of each ResourceMetrics."""
        if not request:
            raise OtlpError("empty", "the record has no value")
        self._scan(request, np.frombuffer(request, np.uint8))
        count = int(self._state[RESOURCE_METRICS])
        if count == 0:
            raise OtlpError("not_metrics", "the bytes hold no resource metrics", 0)
        if self._state[IRREGULAR]:
            # Rare enough to be done slowly.
            for entry in read_request(request):
                yield self._node_of_pieces(request, entry), entry.start, entry.stop
            return
        resources = self._known.resources
        for index, start, stop in self._entries[:count].tolist():
            yield resources[index].node, start, stop

    def _scan(self, request: bytes, raw: U8Array) -> None:
        """Fill entries and state, with every resource known."""
        state = self._state
        fresh = False
        while True:
            state[:COUNTERS] = 0
            code = find_entries(raw, state, self._known.table, self._new, self._entries)
            if code == GROW:
                if state[NEW_BLOBS] == len(self._new):
                    self._new = np.empty((4 * len(self._new), B_COLUMNS), np.int64)
                else:
                    self._entries = np.empty((4 * len(self._entries), F_COLUMNS), np.int64)
            elif code < 0:
                reason, text = ERRORS[code]
                raise OtlpError(reason, text, int(state[ERROR_AT]))
            elif not state[NEW_BLOBS]:
                return
            elif not fresh and self._known.are_too_many(0):
                self._known.clear()
                fresh = True
            else:
                self._known.learn(request, self._new[: state[NEW_BLOBS]])
                fresh = True

    def _node_of_pieces(self, request: bytes, entry: Field) -> NodeId | None:
        """The node of a resource that may come in pieces: merging messages is joining their bytes."""
        fields = read_fields(request, entry.body, entry.stop)
        resource = b"".join(request[field.body : field.stop] for field in fields if field.number == RESOURCE)
        return self._known.read_resource(resource, entry.body).node

    def _pieces(self, parts: list[bytes]) -> Iterator[bytes]:
        whole = b"".join(parts)
        if len(whole) <= self._record_bytes_max:
            yield whole
        else:
            yield from _cut(whole, self._record_bytes_max, 0)


def _cut(message: bytes, size_max: int, depth: int) -> Iterator[bytes]:
    """Messages of at most size_max bytes that together say what `message` says, the order kept.

    A piece is larger only where a single point is, together with what every piece repeats.
    """
    divisible = DIVISIBLE[depth]
    fields = list(read_fields(message, 0, len(message)))
    items = [field for field in fields if field.number in divisible]
    if not items or (depth == METRIC_DEPTH and len(items) > 1):
        yield message
        return
    common = b"".join(message[field.start : field.stop] for field in fields if field.number not in divisible)
    held: list[bytes] = []
    held_size = len(common)
    for part in _items(message, items, size_max - len(common), depth):
        if held and held_size + len(part) > size_max:
            yield common + b"".join(held)
            held, held_size = [], len(common)
        held.append(part)
        held_size += len(part)
    yield common + b"".join(held)


def _items(message: bytes, items: Iterable[Field], size_max: int, depth: int) -> Iterator[bytes]:
    """The divisible fields, those larger than size_max cut one level deeper."""
    for item in items:
        if item.stop - item.start <= size_max or item.wire != LENGTH or depth + 1 == len(DIVISIBLE):
            yield message[item.start : item.stop]
            continue
        body = message[item.body : item.stop]
        overhead = length_field_size(len(body)) - len(body)
        for piece in _cut(body, size_max - overhead, depth + 1):
            yield length_field(item.number, piece)
