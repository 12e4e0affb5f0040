"""The bulk key: a header and one slot per node, read as arrays (layout in KEYS.md)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

MAGIC = b"FPB1"
_HEADER = struct.Struct("<4sHHII16s")
SLOT_HEAD_BYTES = 32


def header(schema_hash: bytes, features: int) -> bytes:
    """32 bytes: magic, number of features, 0, size of a slot, 0, schema hash."""
    return _HEADER.pack(MAGIC, features, 0, SLOT_HEAD_BYTES + 4 * features, 0, schema_hash)


def slot_type(features: int) -> np.dtype[Any]:
    """A slot: the second half of a vector's head and its values, byte for byte."""
    return np.dtype(
        [
            ("t_end_ns", "<i8"),
            ("offset", "<i8"),
            ("partition", "<u4"),
            ("window_covered_ms", "<u4"),
            ("scrape_interval_ms", "<u4"),
            ("reserved", "<u4"),
            ("x", "<f4", (features,)),
        ]
    )


@dataclass(frozen=True)
class Slots:
    """One bucket. names: (n,) percent-encoded; slots: (n,) of slot_type, a view of what Redis sent."""

    names: bytes
    slots: NDArray[Any]


def parse_slots(bulk: bytes, ids: bytes, schema_hash: bytes, features: int) -> Slots:
    """Raises ValueError for a header of something else, or a length that fits neither slots nor names."""
    wanted = header(schema_hash, features)
    if bulk[: len(wanted)] != wanted:
        raise ValueError("it is not a bulk key of this schema")
    kind = slot_type(features)
    count, rest = divmod(len(bulk) - len(wanted), kind.itemsize)
    if rest:
        raise ValueError(f"it is cut: {rest} bytes after {count} whole slots")
    if ids.count(b"\n") != count:
        raise ValueError(f"it has {count} slots for {ids.count(bytes([10]))} nodes")
    return Slots(ids, np.frombuffer(bulk, kind, count, len(wanted)))


class RowOrder:
    """Rows of a cluster's nodes, sorted by name. Kept from one read to the next, because names seldom change."""

    def __init__(self) -> None:
        self._names: tuple[bytes, ...] | None = None
        self.ids: tuple[str, ...] = ()
        self.rows: list[NDArray[np.int64]] = []
        """Per bucket: (n,) the row of each slot."""

    def update(self, names: Sequence[bytes]) -> None:
        if self._names == tuple(names):
            return
        per_bucket = [[unquote(name) for name in block.decode().split("\n")[:-1]] for block in names]
        ids = [name for bucket in per_bucket for name in bucket]
        order = sorted(range(len(ids)), key=ids.__getitem__)
        row_of = np.empty(len(ids), np.int64)
        row_of[order] = np.arange(len(ids))
        ends = np.cumsum([0, *(len(bucket) for bucket in per_bucket)]).tolist()
        self.ids = tuple(ids[i] for i in order)
        self.rows = [row_of[start:end] for start, end in pairwise(ends)]
        self._names = tuple(names)
