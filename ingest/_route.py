"""Slicing a request by node without decoding its samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from fleetpulse.features._series import NodeId
from fleetpulse.ingest._otlp import LENGTH, Field, OtlpError, length_field, length_field_size, read_fields, read_request
from fleetpulse.ingest._otlp_resource import node_of, parse_resource, plain_texts

RESOURCE = 1
RESOURCES_KEPT = 16_384
RESOURCE_BYTES_KEPT_MAX = 4_096
"""Greater resources are read anew each time, which bounds the memory of the kept ones to 64 MB."""

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
        self._identity = tuple(identity)
        self._default_cluster = default_cluster
        self._record_bytes_max = record_bytes_max
        self._kept_node = lru_cache(RESOURCES_KEPT)(self._node)

    def slice(self, request: bytes) -> Sliced:
        """Raises OtlpError when the top level or a resource cannot be read; then nothing of the request is used."""
        by_node: dict[NodeId, list[bytes]] = {}
        unattributed = 0
        for entry in read_request(request):
            node = self._node_of(request, entry)
            if node is None:
                unattributed += 1
            else:
                by_node.setdefault(node, []).append(request[entry.start : entry.stop])
        slices: list[tuple[NodeId, bytes]] = []
        oversized = 0
        for node, parts in by_node.items():
            for piece in self._pieces(parts):
                slices.append((node, piece))
                oversized += len(piece) > self._record_bytes_max
        return Sliced(slices, unattributed, oversized)

    @property
    def kept(self) -> int:
        """Resources whose node is remembered; at most RESOURCES_KEPT."""
        return self._kept_node.cache_info().currsize

    def _node_of(self, request: bytes, entry: Field) -> NodeId | None:
        # A message field that occurs twice is merged, and merging messages is joining their bytes.
        resource = b""
        at = entry.body
        for field in read_fields(request, entry.body, entry.stop):
            if field.number <= 3 and field.wire != LENGTH:
                raise OtlpError("wire_type", f"field {field.number} of ResourceMetrics is no message", field.start)
            if field.number == RESOURCE:
                resource += request[field.body : field.stop]
                at = field.body
        try:
            return self._kept_node(resource) if len(resource) <= RESOURCE_BYTES_KEPT_MAX else self._node(resource)
        except OtlpError as error:
            raise OtlpError(error.reason, "a resource cannot be read", at) from None

    def _node(self, resource: bytes) -> NodeId | None:
        return node_of(plain_texts(parse_resource(resource, 0).attributes), self._identity, self._default_cluster)

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
