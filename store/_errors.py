"""What can go wrong between us and Redis. Every error is a StoreError; `key` names the key it is about."""

from __future__ import annotations


class StoreError(Exception):
    """Something about the store. key: the Redis key concerned, or None."""

    def __init__(self, text: str, *, key: str | None = None) -> None:
        super().__init__(text if key is None else f"{text} (key {key})")
        self.key = key


class StoreAddressError(StoreError, ValueError):
    """A URL or prefix that cannot be used. Nothing has been sent."""


class StoreUnreachableError(StoreError, ConnectionError):
    """No Redis answers there, or not in time."""


class StoreAccessError(StoreError, PermissionError):
    """Redis refuses us: wrong user or password, or an ACL that does not allow a command or key."""


class StoreDataError(StoreError, ValueError):
    """A key holds something else than it should: another type, a truncated value, another program's."""


class SchemaMismatchError(StoreError):
    """Vectors of another catalog than the reader's. They are not returned, because their columns mean other things."""

    def __init__(self, ours: bytes, theirs: bytes, *, key: str) -> None:
        super().__init__(
            f"the vectors there were made by a catalog with schema {theirs.hex()}, this reader's has {ours.hex()}: "
            "use the workers' catalog, or upgrade the older side",
            key=key,
        )
        self.ours = ours
        self.theirs = theirs


class AmbiguousNodeError(StoreError, LookupError):
    """A node name that several clusters use, asked for without a cluster."""

    def __init__(self, node: str, clusters: tuple[str, ...]) -> None:
        super().__init__(f"node {node!r} exists in clusters {', '.join(clusters)}: say which one you mean")
        self.node = node
        self.clusters = clusters
