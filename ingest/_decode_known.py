"""What a decoder has seen before: resources, scopes and series, by the hash of their bytes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

from fleetpulse.features._series import Attributes, NodeId
from fleetpulse.ingest._decode_series import scope_text, sorted_attributes
from fleetpulse.ingest._decode_table import (
    B_H1,
    B_H2,
    B_IS_SCOPE,
    B_START,
    B_STOP,
    K_COLUMNS,
    K_GENERATION,
    NO_NODE,
    S1,
    S2,
    S3,
    S4,
    T_COLUMNS,
    T_EXTRA,
    T_VALUE,
    X_COLUMNS,
    insert,
    insert_all,
    insert_series,
    mark_refused,
    rehash,
)
from fleetpulse.ingest._decode_wire import STATE_SIZE, I64Array
from fleetpulse.ingest._otlp_resource import node_of, parse_resource, plain_texts

BLOBS_KEPT = 16_384
HASHES_KEPT = 65_536
"""How many resources and scopes, and how many series' hashes, are kept at least before all are dropped."""
REFUSED_KEPT = 500_000
"""Hashes of refused series that are remembered, in 32 MB. One more than this is worked out each time it comes."""


@dataclass(frozen=True)
class KnownResource:
    """node: None for a resource that names none. pool_parts: a value for each pool attribute, "" where it has none.
    attributes are empty when only the node is asked for."""

    node: NodeId | None
    attributes: Attributes
    pool_parts: tuple[str, ...]


class KnownBlobs:
    """Resources and scopes by their bytes. table: see _decode_table; a value is an index into resources or scopes."""

    def __init__(
        self,
        identity: Sequence[str],
        default_cluster: str,
        pool_by: Sequence[str],
        *,
        with_attributes: bool = True,
        unattributed_as: NodeId | None = None,
    ) -> None:
        self._identity = tuple(identity)
        self._default_cluster = default_cluster
        self._pool_by = tuple(pool_by)
        self._with_attributes = with_attributes
        self._unattributed_as = unattributed_as
        self.clear()

    def clear(self) -> None:
        self.resources: list[KnownResource] = []
        self.scopes: list[str] = []
        self.table = empty_table(1_024)

    def __len__(self) -> int:
        return len(self.resources) + len(self.scopes)

    def are_too_many(self, live: int) -> bool:
        """live: series in the table, of which each has a resource and a scope."""
        return len(self) > max(BLOBS_KEPT, 2 * live)

    def learn(self, request: bytes, rows: I64Array) -> None:
        """Enter the new blobs that a scan has noted and checked; one may be noted more than once."""
        if 2 * (len(self) + len(rows)) > len(self.table):
            table = empty_table(4 * (len(self) + len(rows)))
            for h1, h2, value, extra in self.table[self.table[:, T_VALUE] != 0].tolist():
                insert(table, h1, h2, value - 1, extra)
            self.table = table
        seen: set[tuple[int, int]] = set()
        for row in rows.tolist():
            key = (row[B_H1], row[B_H2])
            if key in seen:
                continue
            seen.add(key)
            raw = request[row[B_START] : row[B_STOP]]
            if row[B_IS_SCOPE]:
                self.scopes.append(scope_text(InstrumentationScope.FromString(raw)))
                insert(self.table, *key, len(self.scopes) - 1, 0)
            else:
                resource = self.read_resource(raw, row[B_START])
                self.resources.append(resource)
                insert(self.table, *key, len(self.resources) - 1, NO_NODE if resource.node is None else 0)

    def read_resource(self, raw: bytes, at: int) -> KnownResource:
        """at: where it begins in its request, for the error. Raises OtlpError."""
        message = parse_resource(raw, at)
        texts = plain_texts(message.attributes)
        node = node_of(texts, self._identity, self._default_cluster) or self._unattributed_as
        parts = tuple(texts.get(name, "") for name in self._pool_by)
        return KnownResource(node, sorted_attributes(message.attributes) if self._with_attributes else (), parts)


class KnownSeries:
    """Hashes of series' bytes -> their indexes. table, keys: see _decode_table.

    A series has a hash for every spelling of its bytes: attributes in another order, another description. Those of
    forgotten series are recognised by their generation and dropped when room is needed.
    refused: hashes of series for which a limit left no room, so that a flood of them costs little. They stay refused
    until a series is forgotten.
    """

    def __init__(self) -> None:
        self.table = empty_table(4_096)
        self.keys = np.zeros((1_024, K_COLUMNS), np.int64)
        self._entered = 0
        self.refused = empty_table(2)
        self.refused_count = 0

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + self.keys.nbytes + self.refused.nbytes

    def learn(self, hashes: list[tuple[int, int, int]], live: int, places: int) -> None:
        """Enter (h1, h2, series). live: series in the table; places: length of the table, freed places included."""
        if places > len(self.keys):
            grown = np.zeros((2 * places, K_COLUMNS), np.int64)
            grown[: len(self.keys)] = self.keys
            self.keys = grown
        if 2 * (self._entered + len(hashes)) > len(self.table):
            self.make_room(len(hashes), live)
        self._entered += insert_series(self.table, self.keys, np.array(hashes, np.int64).reshape(-1, 3))

    def refuse(self, hashes: list[tuple[int, int]]) -> None:
        """Remember that these are refused, as far as there is room."""
        del hashes[max(REFUSED_KEPT - self.refused_count, 0) :]
        if 2 * (self.refused_count + len(hashes)) > len(self.refused):
            grown = empty_table(4 * (self.refused_count + len(hashes)))
            insert_all(grown, self.refused[self.refused[:, T_VALUE] != 0, :2].copy())
            self.refused = grown
        self.refused_count += insert_all(self.refused, np.array(hashes, np.int64).reshape(-1, 2))

    def forget(self, series: Sequence[int]) -> None:
        self.refused = empty_table(2)
        self.refused_count = 0
        places = np.array(series, np.int64)
        places = places[places < len(self.keys)]
        self.keys[places] = np.array([0, 0, 1]) + self.keys[places] * np.array([0, 0, 1])

    def make_room(self, new: int, live: int) -> None:
        """Make the table large enough for so many new hashes, without those of forgotten series."""
        kept = int(np.count_nonzero(self._stands()))
        bound = max(HASHES_KEPT, 4 * live)
        if kept + new > bound:
            # More spellings than there can reasonably be: start over, they are learned again as they come.
            kept = 0
        table = empty_table(4 * (kept + new))
        self._entered = rehash(self.table, table, self.keys) if kept else 0
        self.table = table

    def _stands(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        value = self.table[:, T_VALUE] - 1
        stands: np.ndarray[tuple[int], np.dtype[np.bool_]] = (value >= 0) & (
            self.table[:, T_EXTRA] == self.keys[np.maximum(value, 0), K_GENERATION]
        )
        return stands


def empty_table(rows: int) -> I64Array:
    """An empty hash table with a power of two of rows, at least so many."""
    return np.zeros((1 << max(rows - 1, 1).bit_length(), T_COLUMNS), np.int64)


def new_state() -> I64Array:
    """A state array with a secret of its own for the hashes. The secret decides where things lie, not what they are."""
    state = np.zeros(STATE_SIZE, np.int64)
    for place in (S1, S2, S3, S4):
        state[place] = int.from_bytes(secrets.token_bytes(8), "little", signed=True)
    return state


def warm_up_tables() -> None:
    """Compile the kernels, or load them from the cache on disk, that a small and well-behaved fleet does not reach."""
    known = KnownSeries()
    known.learn([(1, 1, 0)], 1, 1)
    known.make_room(0, 1)
    known.refuse([(2, 2)])
    mark_refused(np.zeros((1, X_COLUMNS), np.int64), 1, known.refused, np.zeros(1, np.int64))
    insert(empty_table(2), 1, 1, 0, 0)
