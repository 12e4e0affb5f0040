"""Where everything is in Redis. The page KEYS.md beside this file says the same for other languages."""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple
from urllib.parse import quote

from fleetpulse.store._errors import StoreAddressError

BUCKETS = 16
"""Buckets of a cluster. A node's bucket follows from its name alone, so that it is found without asking, stays where it
is when partitions are added, and is the same for every writer. All keys of a bucket share a hash tag."""

FRESH_GRACE_MS = 5_000
FRESH_INTERVALS = 2
MISSING_AFTER_MS = 180_000
NODE_LIFE_MS = 240_000
"""A node's key expires this long after its t_end: a minute after every reader has begun to call it MISSING."""
BUCKET_LIFE_MS = 3_600_000
"""A bucket's other keys expire this long after their last write; a node that much older than the newest has no slot."""
EVENT_LIFE_MS = 86_400_000
CHUNK_WINDOW_NS = 3_600_000_000_000
CHUNK_SPAN_NS_MAX = 900_000_000_000

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Place(NamedTuple):
    """Where a node is. name: its percent-encoded name, as index and ids hold it."""

    bucket: int
    name: str
    key: str


class Keys:
    """Names of all keys below a prefix of letters, digits, `_`, `.` and `-`. Raises StoreAddressError for another."""

    def __init__(self, prefix: str = "fp") -> None:
        if not _PREFIX.fullmatch(prefix):
            raise StoreAddressError(f"a key prefix has 1 to 64 letters, digits, '_', '.' and '-', not {prefix!r}")
        self.prefix = prefix
        self.clusters = f"{prefix}:clusters"
        self._places: dict[tuple[str, str], Place] = {}

    def tag(self, cluster: str, bucket: int) -> str:
        return f"{self.prefix}:{{{quote(cluster, safe='')}/{bucket:02d}}}"

    def place(self, cluster: str, node: str) -> Place:
        known = self._places.get((cluster, node))
        if known is None:
            bucket, name = bucket_of(node), quote(node, safe="")
            known = Place(bucket, name, f"{self.tag(cluster, bucket)}:node:{name}")
            if len(self._places) >= 100_000:
                self._places.clear()
            self._places[cluster, node] = known
        return known

    def node(self, cluster: str, node: str) -> str:
        """String: the node's vector. The empty node name stands for the cluster's own vector."""
        return self.place(cluster, node).key

    def bulk(self, cluster: str, bucket: int, schema: bytes) -> str:
        """String: a header and one slot per node."""
        return f"{self.tag(cluster, bucket)}:bulk:{schema.hex()}"

    def ids(self, cluster: str, bucket: int, schema: bytes) -> str:
        """String: the nodes' names in the order of their slots."""
        return f"{self.tag(cluster, bucket)}:ids:{schema.hex()}"

    def index(self, cluster: str, bucket: int, schema: bytes) -> str:
        """Hash: name to slot number, for writers."""
        return f"{self.tag(cluster, bucket)}:index:{schema.hex()}"

    def schema(self, cluster: str, bucket: int) -> str:
        """String: schema hash of the last vector written to the bucket."""
        return f"{self.tag(cluster, bucket)}:schema"

    def events(self, cluster: str, bucket: int) -> str:
        """Hash: name to the node's newest anomaly event."""
        return f"{self.tag(cluster, bucket)}:events"

    def verdicts(self, cluster: str, bucket: int) -> str:
        """Hash: name to the node's newest anomaly score and verdict."""
        return f"{self.tag(cluster, bucket)}:verdicts"

    def chunks(self, cluster: str, node: str) -> str:
        """Hash: start of the span in Unix ns to the chunk's bytes."""
        place = self.place(cluster, node)
        return f"{self.tag(cluster, place.bucket)}:chunks:{place.name}"


def bucket_of(node: str) -> int:
    """CRC-32 (that of zlib) of the node's name in UTF-8, modulo the number of buckets."""
    return zlib.crc32(node.encode()) % BUCKETS
