"""One node's feature vector, and its bytes (the layout is in store/KEYS.md)."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

MAGIC = b"FPV1"
AGE_UNKNOWN_MS = 0xFFFFFFFF
_HEAD = struct.Struct("<4sHHHHHH16sqqIIIi")
"""magic, features, lengths of node, cluster, pool and of the sources text, reserved, schema hash; t_end_ns, offset,
partition, window_covered_ms, scrape_interval_ms, reserved. 64 bytes: the values behind it are aligned, and its second
half together with the values is what a bulk key holds of the node."""


class Status(IntEnum):
    """How much a value knows. A scheduler may rely on OK; PARTIAL saw less than the whole window."""

    MISSING = 0
    OK = 1
    PARTIAL = 2
    STALE = 3


class VectorError(ValueError):
    """Bytes that are not a feature vector."""


@dataclass(slots=True)
class NodeVector:
    """What is known of one node at t_end_ns, a pure function of the log up to (partition, offset).

    values: (n,) float32, NaN where missing. status: (n,) uint8 of Status. age_ms: (n,) uint32, t_end minus the
    newest sample the value rests on, AGE_UNKNOWN_MS where missing.
    window_covered_ms: how much of the 5-minute window has been seen. scrape_interval_ms: median distance of the
    node's scrapes in the window, 0 while unknown. sources: for features that choose among sources (contention),
    feature name -> the source used.
    """

    node: str
    cluster: str
    pool: str
    schema_hash: bytes
    t_end_ns: int
    partition: int
    offset: int
    window_covered_ms: int
    scrape_interval_ms: int
    values: NDArray[np.float32]
    status: NDArray[np.uint8]
    age_ms: NDArray[np.uint32]
    sources: dict[str, str]

    def to_bytes(self) -> bytes:
        """Little-endian: head, values, age_ms, status, the four texts, CRC-32 of everything before it."""
        node, cluster, pool = (text.encode() for text in (self.node, self.cluster, self.pool))
        sources = "\n".join(f"{name}={source}" for name, source in sorted(self.sources.items())).encode()
        n = len(self.values)
        head = _HEAD.pack(
            MAGIC,
            n,
            len(node),
            len(cluster),
            len(pool),
            len(sources),
            0,
            self.schema_hash,
            self.t_end_ns,
            self.offset,
            self.partition,
            self.window_covered_ms,
            self.scrape_interval_ms,
            0,
        )
        body = b"".join(
            (
                head,
                np.ascontiguousarray(self.values, "<f4").tobytes(),
                np.ascontiguousarray(self.age_ms, "<u4").tobytes(),
                np.ascontiguousarray(self.status, "u1").tobytes(),
                node,
                cluster,
                pool,
                sources,
            )
        )
        return body + zlib.crc32(body).to_bytes(4, "little")

    @classmethod
    def from_bytes(cls, raw: bytes) -> NodeVector:
        """Raises VectorError for anything but a whole, undamaged vector."""
        if len(raw) < _HEAD.size + 4 or raw[:4] != MAGIC:
            raise VectorError(f"not a feature vector: {len(raw)} bytes, starting with {raw[:4]!r}")
        (
            _,
            n,
            n_node,
            n_cluster,
            n_pool,
            n_sources,
            _,
            schema_hash,
            t_end_ns,
            offset,
            partition,
            covered_ms,
            interval_ms,
            _,
        ) = _HEAD.unpack_from(raw)
        text_at = _HEAD.size + 9 * n
        if len(raw) != text_at + n_node + n_cluster + n_pool + n_sources + 4:
            raise VectorError(f"a feature vector of {n} features has another length than {len(raw)} bytes")
        if zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
            raise VectorError("a feature vector's checksum does not match: its bytes are damaged")
        values = np.frombuffer(raw, "<f4", n, _HEAD.size)
        age_ms = np.frombuffer(raw, "<u4", n, _HEAD.size + 4 * n)
        status = np.frombuffer(raw, "u1", n, _HEAD.size + 8 * n)
        texts = []
        for length in (n_node, n_cluster, n_pool, n_sources):
            texts.append(raw[text_at : text_at + length].decode())
            text_at += length
        node, cluster, pool, sources = texts
        return cls(
            node=node,
            cluster=cluster,
            pool=pool,
            schema_hash=schema_hash,
            t_end_ns=t_end_ns,
            partition=partition,
            offset=offset,
            window_covered_ms=covered_ms,
            scrape_interval_ms=interval_ms,
            values=values,
            status=status,
            age_ms=age_ms,
            sources=dict(line.split("=", 1) for line in sources.split("\n") if line),
        )
