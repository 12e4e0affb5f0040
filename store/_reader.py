"""FeatureStore and AsyncFeatureStore: what a scheduler reads with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from fleetpulse.features._series import NodeId
from fleetpulse.store._freshness import wall_clock_ms
from fleetpulse.store._keys import Keys
from fleetpulse.store._link import AsyncLink, Link, failure
from fleetpulse.store._queries import Queries, Query
from fleetpulse.store._reading import ClusterReading, NodeReading, Verdict
from fleetpulse.store._schema import CatalogLike, Schema

T = TypeVar("T")
AnyNode = str | tuple[str, str]
"""A node's name, or (cluster, name), which NodeId is too."""

CLUSTERS_KEPT_MS = 5_000


class _Reader:
    """What both readers have in common: the age limit, and what is known of the clusters."""

    def __init__(
        self, url: str, prefix: str, catalog: CatalogLike | None, now_ms: Callable[[], int], max_age_ms: int | None
    ) -> None:
        self._queries = Queries(Keys(prefix), Schema.of(catalog), now_ms, url)
        self._now_ms = now_ms
        self._max_age_ms = max_age_ms
        self._clusters: tuple[str, ...] = ()
        self._clusters_at_ms: int | None = None

    @property
    def schema(self) -> Schema:
        return self._queries.schema

    def _limit(self, max_age_ms: int | None) -> int | None:
        limits = [limit for limit in (self._max_age_ms, max_age_ms) if limit is not None]
        return min(limits) if limits else None

    def _clusters_known(self) -> bool:
        """Whether the list of clusters was asked for lately."""
        return self._clusters_at_ms is not None and 0 <= self._now_ms() - self._clusters_at_ms < CLUSTERS_KEPT_MS

    def _remember(self, clusters: dict[str, int]) -> dict[str, int]:
        self._clusters = tuple(clusters)
        self._clusters_at_ms = self._now_ms()
        return clusters

    def _candidates(self, node: AnyNode) -> list[NodeId]:
        if isinstance(node, str):
            return [NodeId(cluster, node) for cluster in self._clusters]
        return [NodeId(*node)]

    def _many(self, ids: list[AnyNode], max_age_ms: int | None) -> Query[list[NodeReading]]:
        """One query for nodes of which some are asked for without their cluster."""
        per_node = [self._candidates(node) for node in ids]
        query = self._queries.nodes([one for several in per_node for one in several], self._limit(max_age_ms))

        def parse(replies: list[Any]) -> list[NodeReading]:
            readings = query.parse(replies)
            picked, at = [], 0
            for node, several in zip(ids, per_node, strict=True):
                part = readings[at : at + len(several)]
                at += len(several)
                picked.append(self._queries.pick(node, part) if isinstance(node, str) else part[0])
            return picked

        return Query(query.commands, parse)


def _named(node: AnyNode, cluster: str | None) -> AnyNode:
    return NodeId(cluster, node) if cluster is not None and isinstance(node, str) else node


class FeatureStore(_Reader):
    """Synchronous reader, for any number of threads. Every method raises StoreError, and nothing is ever made up."""

    def __init__(self, link: Link, **options: Any) -> None:
        super().__init__(link.url, **options)
        self._link = link

    @classmethod
    def connect(
        cls,
        url: str = "redis://127.0.0.1:6379/0",
        prefix: str = "fp",
        *,
        catalog: CatalogLike | None = None,
        max_age_ms: int | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        timeout_s: float = 2.0,
    ) -> FeatureStore:
        """Connect and check that Redis answers.

        catalog: the one the scheduler's model was made for; None: the one that comes with fleetpulse.
        max_age_ms: whatever is older reads as MISSING; it can only tighten the 180 s.
        Raises StoreAddressError, StoreUnreachableError, StoreAccessError.
        """
        options: dict[str, Any] = {"prefix": prefix, "catalog": catalog, "now_ms": now_ms, "max_age_ms": max_age_ms}
        store = cls(Link(url, timeout_s=timeout_s), **options)
        reply = store._link.run([("PING",)])[0]
        if isinstance(reply, Exception):
            raise failure(reply, url)
        return store

    def node(self, node: AnyNode, cluster: str | None = None, *, max_age_ms: int | None = None) -> NodeReading:
        """One node. Without a cluster all are searched; AmbiguousNodeError when several have a node of that name."""
        return self.nodes([_named(node, cluster)], max_age_ms=max_age_ms)[0]

    def nodes(
        self, ids: Iterable[AnyNode], cluster: str | None = None, *, max_age_ms: int | None = None
    ) -> list[NodeReading]:
        """Several nodes in one round trip, in the order asked."""
        wanted = [_named(node, cluster) for node in ids]
        if any(isinstance(node, str) for node in wanted) and not self._clusters_known():
            self.clusters()
        return self._ask(self._many(wanted, max_age_ms))

    def cluster(self, name: str, *, max_age_ms: int | None = None) -> ClusterReading:
        """All nodes of a cluster as arrays; of an unknown cluster, no rows."""
        return self._ask(self._queries.cluster(name, self._limit(max_age_ms)))

    def clusters(self) -> dict[str, int]:
        """Cluster name -> Unix ms of its newest vector."""
        return self._remember(self._ask(self._queries.clusters()))

    def verdicts(self, cluster: str) -> dict[str, Verdict]:
        """Node -> the detector's last word on it."""
        return self._ask(self._queries.verdicts(cluster))

    def events(self, cluster: str) -> dict[str, dict[str, Any]]:
        """Node -> its newest anomaly event as published; "" -> the newest of the whole fleet."""
        return self._ask(self._queries.events(cluster))

    def chunks(self, node: str, cluster: str, since_ns: int = 0) -> list[bytes]:
        """Recent chunks of a node that may hold samples after since_ns, oldest first."""
        return self._ask(self._queries.chunks(cluster, node, since_ns))

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> FeatureStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, query: Query[T]) -> T:
        return query.parse(self._link.run(query.commands) if query.commands else [])


class AsyncFeatureStore(_Reader):
    """The same for asyncio; see FeatureStore."""

    def __init__(self, link: AsyncLink, **options: Any) -> None:
        super().__init__(link.url, **options)
        self._link = link

    @classmethod
    async def connect(
        cls,
        url: str = "redis://127.0.0.1:6379/0",
        prefix: str = "fp",
        *,
        catalog: CatalogLike | None = None,
        max_age_ms: int | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        timeout_s: float = 2.0,
    ) -> AsyncFeatureStore:
        options: dict[str, Any] = {"prefix": prefix, "catalog": catalog, "now_ms": now_ms, "max_age_ms": max_age_ms}
        store = cls(AsyncLink(url, timeout_s=timeout_s), **options)
        try:
            reply = (await store._link.run([("PING",)]))[0]
            if isinstance(reply, Exception):
                raise failure(reply, url)
        except BaseException:
            await store._link.close()
            raise
        return store

    async def node(self, node: AnyNode, cluster: str | None = None, *, max_age_ms: int | None = None) -> NodeReading:
        return (await self.nodes([_named(node, cluster)], max_age_ms=max_age_ms))[0]

    async def nodes(
        self, ids: Iterable[AnyNode], cluster: str | None = None, *, max_age_ms: int | None = None
    ) -> list[NodeReading]:
        wanted = [_named(node, cluster) for node in ids]
        if any(isinstance(node, str) for node in wanted) and not self._clusters_known():
            await self.clusters()
        return await self._ask(self._many(wanted, max_age_ms))

    async def cluster(self, name: str, *, max_age_ms: int | None = None) -> ClusterReading:
        return await self._ask(self._queries.cluster(name, self._limit(max_age_ms)))

    async def clusters(self) -> dict[str, int]:
        return self._remember(await self._ask(self._queries.clusters()))

    async def verdicts(self, cluster: str) -> dict[str, Verdict]:
        return await self._ask(self._queries.verdicts(cluster))

    async def events(self, cluster: str) -> dict[str, dict[str, Any]]:
        return await self._ask(self._queries.events(cluster))

    async def chunks(self, node: str, cluster: str, since_ns: int = 0) -> list[bytes]:
        return await self._ask(self._queries.chunks(cluster, node, since_ns))

    async def close(self) -> None:
        await self._link.close()

    async def __aenter__(self) -> AsyncFeatureStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(self, query: Query[T]) -> T:
        return query.parse(await self._link.run(query.commands) if query.commands else [])
