"""What a series is: its identity, and where it belongs.

Source: OpenTelemetry metrics data model, "Timeseries Model"; design page, section 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import zip_longest
from typing import Literal, NamedTuple, TypeVar

DEFAULT_POOL = "default"

_Entry = TypeVar("_Entry")

AttributeValue = str | bool | int | float | bytes
Attributes = tuple[tuple[str, AttributeValue], ...]
"""Attributes sorted by name; a value of another type (array, map, none) stands here as its JsonText."""


class JsonText(str):
    """An array, a map or no value, as JSON. It does not make the same series as a string that spells the same."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"json{super().__repr__()}"


class NodeId(NamedTuple):
    """A machine. Two clusters may use the same node name."""

    cluster: str
    node: str


class Kind(IntEnum):
    GAUGE = 1
    SUM = 2
    HISTOGRAM = 3
    EXPONENTIAL_HISTOGRAM = 4
    SUMMARY = 5


class Temporality(IntEnum):
    UNSPECIFIED = 0
    DELTA = 1
    CUMULATIVE = 2


@dataclass(frozen=True)
class SeriesIdentity:
    """One stream: everything that makes two points belong to the same series.

    Not part of it: attribute order, int or double, bucket layout.
    """

    node: NodeId
    resource: Attributes
    scope: str
    metric: str
    unit: str
    kind: Kind
    temporality: Temporality
    monotonic: bool
    attributes: Attributes

    @cached_property
    def key(self) -> bytes:
        """16 bytes, the same in every process: series of a node are combined in the order of their keys."""
        return key_of(self.head_digest(), repr(self.attributes))

    def head_digest(self) -> hashlib.blake2b:
        """Of everything but the attributes, which the series of one metric have in common."""
        digest = hashlib.blake2b(digest_size=16)
        kind = f"{int(self.kind)},{int(self.temporality)},{int(self.monotonic)}"
        for part in (*self.node, repr(self.resource), self.scope, self.metric, self.unit, kind):
            _add_text(digest, part)
        return digest


def key_of(head: hashlib.blake2b, attributes: str) -> bytes:
    """A series' key from the digest of its head, which is used up, and the text of its attributes."""
    _add_text(head, attributes)
    return head.digest()


def _add_text(digest: hashlib.blake2b, text: str) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    digest.update(len(raw).to_bytes(4, "little"))
    digest.update(raw)


@dataclass(frozen=True)
class Source:
    """What the catalog selects by: a series under its canonical name, whatever its receiver called it.

    metric and labels use the spelling of the OpenTelemetry host, kubelet, container and cluster receivers
    (`system.cpu.time` with `cpu` and `state`); scale turns the series' unit into the canonical one
    (value * scale). kind, temporality and monotonic say how it is to be read, after aliasing: a Prometheus
    counter that arrives as a gauge is a cumulative monotonic sum here.
    """

    metric: str
    unit: str
    labels: Mapping[str, str]
    kind: Kind
    temporality: Temporality
    monotonic: bool
    scale: float = 1.0


@dataclass(slots=True)
class Series:
    """One entry of a shard's series table."""

    identity: SeriesIdentity
    source: Source
    node_index: int
    newest_ns: int = 0
    """Time of the newest accepted sample; 0 before the first."""


@dataclass
class SeriesTable:
    """All series of a shard, by index, with the nodes they belong to.

    An index is reused after its series has been forgotten. series and nodes hold None at freed places. A node is
    here as long as it has a series. series_per_node and nodes_per_shard are the bounds; None for no bound.
    pools: by node index, the name of the node's pool, "default" when its resources do not say.
    """

    series: list[Series | None] = field(default_factory=list)
    nodes: list[NodeId | None] = field(default_factory=list)
    series_by_key: dict[bytes, int] = field(default_factory=dict)
    node_by_id: dict[NodeId, int] = field(default_factory=dict)
    series_by_node: dict[int, set[int]] = field(default_factory=dict)
    pools: dict[int, str] = field(default_factory=dict)
    series_per_node: int | None = None
    nodes_per_shard: int | None = None
    _free_series: list[int] = field(default_factory=list)
    _free_nodes: list[int] = field(default_factory=list)
    _pool_parts: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def refusal(self, node: NodeId) -> Literal["series_limit", "node_limit"] | None:
        """Why a new series of this node would not be taken; None when it would."""
        index = self.node_by_id.get(node)
        if index is None:
            full = self.nodes_per_shard is not None and len(self.node_by_id) >= self.nodes_per_shard
            return "node_limit" if full else None
        full = self.series_per_node is not None and len(self.series_by_node[index]) >= self.series_per_node
        return "series_limit" if full else None

    def add(self, identity: SeriesIdentity, source: Source) -> int:
        """Index of the series, which is entered when it is new, and its node with it.

        A new series must be within the bounds: the caller has asked `refusal`.
        """
        known = self.series_by_key.get(identity.key)
        if known is not None:
            return known
        assert self.refusal(identity.node) is None, "the caller asks before it adds"
        node_index = self.node_by_id.get(identity.node)
        if node_index is None:
            node_index = self._place(self.nodes, self._free_nodes, identity.node)
            self.node_by_id[identity.node] = node_index
            self.series_by_node[node_index] = set()
            self.pools[node_index] = DEFAULT_POOL
        index = self._place(self.series, self._free_series, Series(identity, source, node_index))
        self.series_by_key[identity.key] = index
        self.series_by_node[node_index].add(index)
        return index

    def forget(self, indexes: Iterable[int]) -> list[int]:
        """Remove these series, and the nodes that are left without one. Returns the indexes of those nodes.

        An index that holds no series is skipped.
        """
        freed_nodes = []
        for index in indexes:
            entry = self.series[index]
            if entry is None:
                continue
            self.series[index] = None
            self._free_series.append(index)
            del self.series_by_key[entry.identity.key]
            left = self.series_by_node[entry.node_index]
            left.discard(index)
            if not left:
                self._forget_node(entry.node_index, entry.identity.node)
                freed_nodes.append(entry.node_index)
        return freed_nodes

    def name_pool(self, node_index: int, parts: Sequence[str]) -> None:
        """Take what one resource says of its node's pool: a value for each pool attribute, "" where it says nothing.

        For every attribute the newest value that is not empty counts, because not every receiver's resource carries
        all of them. The pool is named by the values joined with "/".
        """
        before = self._pool_parts.get(node_index, ())
        after = tuple(new or old for new, old in zip_longest(parts, before, fillvalue=""))
        if after != before:
            self._pool_parts[node_index] = after
            self.pools[node_index] = "/".join(filter(None, after)) or DEFAULT_POOL

    def _forget_node(self, node_index: int, node: NodeId) -> None:
        self.nodes[node_index] = None
        self._free_nodes.append(node_index)
        del self.node_by_id[node]
        del self.series_by_node[node_index]
        del self.pools[node_index]
        self._pool_parts.pop(node_index, None)

    @staticmethod
    def _place(entries: list[_Entry | None], free: list[int], entry: _Entry) -> int:
        """Put an entry at the place freed last, or at the end."""
        if not free:
            entries.append(entry)
            return len(entries) - 1
        index = free.pop()
        entries[index] = entry
        return index
