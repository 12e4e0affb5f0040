"""What to ask Redis and how to read the answers, without a connection: shared by both readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import numpy as np

from fleetpulse.features._series import NodeId
from fleetpulse.features._vector import NodeVector
from fleetpulse.store._errors import AmbiguousNodeError, SchemaMismatchError, StoreDataError
from fleetpulse.store._freshness import Freshness, judge
from fleetpulse.store._keys import BUCKETS, CHUNK_SPAN_NS_MAX, Keys
from fleetpulse.store._link import Command, Reply, failure
from fleetpulse.store._reading import ClusterReading, NodeReading, Verdict, parse_event, parse_verdict, read_vector
from fleetpulse.store._schema import Schema
from fleetpulse.store._slots import RowOrder, Slots, parse_slots

T = TypeVar("T")


@dataclass(frozen=True)
class Query(Generic[T]):
    """Commands for one round trip, and what their replies mean. parse raises StoreError."""

    commands: list[Command]
    parse: Callable[[list[Reply]], T]


class Queries:
    """All questions of a reader with one schema and clock."""

    def __init__(self, keys: Keys, schema: Schema, now_ms: Callable[[], int], url: str) -> None:
        self.keys = keys
        self.schema = schema
        self._now_ms = now_ms
        self._url = url
        self._orders: dict[str, RowOrder] = {}

    def nodes(self, wanted: Sequence[NodeId], max_age_ms: int | None) -> Query[list[NodeReading]]:
        """Readings in the order asked; an unknown node's is MISSING."""
        commands: list[Command] = []
        for cluster, node in wanted:
            place = self.keys.place(cluster, node)
            commands.append(("GET", place.key))
            commands.append(("HGET", self.keys.verdicts(cluster, place.bucket), place.name))
            commands.append(("HGET", self.keys.events(cluster, place.bucket), place.name))

        def parse(replies: list[Reply]) -> list[NodeReading]:
            found = [self._value(command, reply) for command, reply in zip(commands, replies, strict=True)]
            now_ms = self._now_ms()
            readings = []
            for i, (cluster, node) in enumerate(wanted):
                raw, verdict, event = found[3 * i : 3 * i + 3]
                readings.append(
                    read_vector(
                        self.schema,
                        cluster,
                        node,
                        None if raw is None else self._vector(str(commands[3 * i][1]), cluster, node, raw),
                        None if verdict is None else _parsed(parse_verdict, verdict, commands[3 * i + 1]),
                        None if event is None else _parsed(parse_event, event, commands[3 * i + 2]),
                        now_ms,
                        max_age_ms,
                    )
                )
            return readings

        return Query(commands, parse)

    def cluster(self, cluster: str, max_age_ms: int | None) -> Query[ClusterReading]:
        """Every node of the cluster in one round trip."""
        schema = self.schema
        commands: list[Command] = [
            (
                "MGET",
                self.keys.bulk(cluster, bucket, schema.schema_hash),
                self.keys.ids(cluster, bucket, schema.schema_hash),
                self.keys.schema(cluster, bucket),
            )
            for bucket in range(BUCKETS)
        ]

        def parse(replies: list[Reply]) -> ClusterReading:
            buckets: list[Slots] = []
            other: tuple[bytes, str] | None = None
            for command, reply in zip(commands, replies, strict=True):
                bulk, ids, marker = self._value(command, reply)
                if marker is not None and marker != schema.schema_hash:
                    other = marker, str(command[3])
                if bulk is not None and ids is not None:
                    try:
                        buckets.append(parse_slots(bulk, ids, schema.schema_hash, len(schema.names)))
                    except ValueError as error:
                        raise StoreDataError(f"not a cluster's vectors: {error}", key=str(command[1])) from None
                elif marker == schema.schema_hash or (bulk is None) != (ids is None):
                    key = str(command[1] if bulk is None else command[2])
                    raise StoreDataError("the value is gone or of another type", key=key)
            reading = self._rows(cluster, buckets, max_age_ms)
            # While workers are upgraded, vectors of both catalogs are there, each complete; only when ours have
            # ended is the answer that the other side has moved on.
            if other is not None and not np.any(reading.statuses != Freshness.MISSING):
                raise SchemaMismatchError(schema.schema_hash, other[0], key=other[1])
            return reading

        return Query(commands, parse)

    def clusters(self) -> Query[dict[str, int]]:
        """Cluster name -> Unix ms of its newest t_end."""
        command: Command = ("ZRANGE", self.keys.clusters, 0, -1, "WITHSCORES")

        def parse(replies: list[Reply]) -> dict[str, int]:
            pairs = self._value(command, replies[0])
            flat = [part for pair in pairs for part in (pair if isinstance(pair, tuple | list) else (pair,))]
            return {name.decode(): int(float(score)) for name, score in zip(flat[::2], flat[1::2], strict=True)}

        return Query([command], parse)

    def verdicts(self, cluster: str) -> Query[dict[str, Verdict]]:
        """Node -> what the detector last said of it."""
        return self._fields([self.keys.verdicts(cluster, bucket) for bucket in range(BUCKETS)], parse_verdict)

    def events(self, cluster: str) -> Query[dict[str, dict[str, Any]]]:
        """Node -> its newest anomaly event; under the empty name, the newest of the fleet."""
        return self._fields([self.keys.events(cluster, bucket) for bucket in range(BUCKETS)], parse_event)

    def chunks(self, cluster: str, node: str, since_ns: int) -> Query[list[bytes]]:
        """The node's recent chunks that may hold samples after since_ns, oldest first."""
        command: Command = ("HGETALL", self.keys.chunks(cluster, node))

        def parse(replies: list[Reply]) -> list[bytes]:
            held = self._value(command, replies[0])
            try:
                starts = sorted((int(start), raw) for start, raw in held.items())
            except ValueError as error:
                raise StoreDataError(f"not a node's chunks: {error}", key=str(command[1])) from None
            return [raw for start, raw in starts if start + CHUNK_SPAN_NS_MAX > since_ns]

        return Query([command], parse)

    def pick(self, node: str, readings: Sequence[NodeReading]) -> NodeReading:
        """The one reading of a node asked for without its cluster, from those of all clusters."""
        found = [reading for reading in readings if reading.vector is not None]
        if len(found) > 1:
            raise AmbiguousNodeError(node, tuple(sorted(str(reading.cluster) for reading in found)))
        if found:
            return found[0]
        return NodeReading(None, node, Freshness.MISSING, None, None, None, None, self.schema)

    def _value(self, command: Command, reply: Reply) -> Any:
        if not isinstance(reply, Exception):
            return reply
        if "WRONGTYPE" in str(reply):
            raise StoreDataError("the value is of another type than fleetpulse's", key=str(command[1]))
        raise failure(reply, self._url)

    def _vector(self, key: str, cluster: str, node: str, raw: bytes) -> NodeVector:
        try:
            vector = NodeVector.from_bytes(raw)
        except ValueError as error:
            raise StoreDataError(str(error), key=key) from None
        if vector.schema_hash != self.schema.schema_hash:
            raise SchemaMismatchError(self.schema.schema_hash, vector.schema_hash, key=key)
        if (vector.cluster, vector.node) != (cluster, node) or len(vector.values) != len(self.schema.names):
            raise StoreDataError(f"it is a vector of {vector.cluster}/{vector.node}", key=key)
        return vector

    def _rows(self, cluster: str, buckets: Sequence[Slots], max_age_ms: int | None) -> ClusterReading:
        if cluster not in self._orders and len(self._orders) >= 1_000:
            self._orders.clear()
        order = self._orders.setdefault(cluster, RowOrder())
        order.update([bucket.names for bucket in buckets])
        n = len(order.ids)
        X = np.empty((n, len(self.schema.names)), np.float32)
        numbers = {name: np.empty(n, np.int64) for name in ("t_end_ns", "window_covered_ms", "scrape_interval_ms")}
        for bucket, rows in zip(buckets, order.rows, strict=True):
            X[rows] = bucket.slots["x"]
            for name, column in numbers.items():
                column[rows] = bucket.slots[name]
        t_end_ms = numbers["t_end_ns"] // 1_000_000
        ages_ms = self._now_ms() - t_end_ms
        statuses = judge(ages_ms, numbers["scrape_interval_ms"], max_age_ms)
        X[statuses == Freshness.MISSING] = np.nan
        return ClusterReading(
            cluster,
            order.ids,
            X,
            ages_ms,
            statuses,
            t_end_ms,
            numbers["window_covered_ms"],
            numbers["scrape_interval_ms"],
            self.schema.names,
        )

    def _fields(self, keys: Sequence[str], read: Callable[[bytes], T]) -> Query[dict[str, T]]:
        commands: list[Command] = [("HGETALL", key) for key in keys]

        def parse(replies: list[Reply]) -> dict[str, T]:
            found: dict[str, T] = {}
            for command, reply in zip(commands, replies, strict=True):
                for name, raw in self._value(command, reply).items():
                    found[unquote(name.decode())] = _parsed(read, raw, command)
            return found

        return Query(commands, parse)


def _parsed(read: Callable[[bytes], T], raw: bytes, command: Command) -> T:
    try:
        return read(raw)
    except ValueError as error:
        raise StoreDataError(f"a field is not fleetpulse's: {error}", key=str(command[1])) from None
