"""What the detector remembers of each node and of the pool: slow, robust baselines of levels.

A level is compared as residual = level - location - shared, where location is the node's own and shared is the median
of all ready nodes' (level - location): the load that the pool has in common, relative to when the baselines began.
A column that loses its peers has `shared` moved into the locations, so that no residual jumps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._series import NodeId

F32 = NDArray[np.float32]


@dataclass
class Cells:
    """Per node row and column, (rows, f). count: slides learned. location: slow mean of what is to be expected;
    deviation: slow mean of |residual|. lowest, highest: of the levels learned (inf, -inf before the first).
    ratio: residual over threshold when last known, for the time a value is missing."""

    count: NDArray[np.uint16]
    location: F32
    deviation: F32
    lowest: F32
    highest: F32
    ratio: F32

    @classmethod
    def empty(cls, rows: int, columns: int) -> Cells:
        shape = (rows, columns)
        return cls(
            count=np.zeros(shape, np.uint16),
            location=np.zeros(shape, np.float32),
            deviation=np.zeros(shape, np.float32),
            lowest=np.full(shape, np.inf, np.float32),
            highest=np.full(shape, -np.inf, np.float32),
            ratio=np.zeros(shape, np.float32),
        )

    def take(self, rows: NDArray[np.int64]) -> Cells:
        """Copies of these rows."""
        return Cells(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def put(self, rows: NDArray[np.int64], cells: Cells) -> None:
        for f in fields(self):
            getattr(self, f.name)[rows] = getattr(cells, f.name)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


class NodeMemory:
    """Cells by node. A row is reused after its node has been forgotten."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.cells = Cells.empty(0, columns)
        self.newest_ns = np.zeros(0, np.int64)
        """By row: t_end of the newest vector that was used."""
        self.row_of: dict[NodeId, int] = {}
        self._free: list[int] = []

    def rows(self, nodes: Sequence[NodeId]) -> NDArray[np.int64]:
        """Row of each node; new nodes get one."""
        new = [node for node in nodes if node not in self.row_of]
        if len(new) > len(self._free):
            self._grow(len(new) - len(self._free))
        for node in new:
            self.row_of[node] = self._free.pop()
        return np.fromiter((self.row_of[node] for node in nodes), np.int64, len(nodes))

    def forget(self, nodes: Iterable[NodeId]) -> None:
        for node in nodes:
            row = self.row_of.pop(node, None)
            if row is None:
                continue
            self.cells.put(np.array([row]), Cells.empty(1, self.columns))
            self.newest_ns[row] = 0
            self._free.append(row)

    def _grow(self, needed: int) -> None:
        before = len(self.newest_ns)
        after = max(before + needed, 2 * before, 16)
        more = Cells.empty(after - before, self.columns)
        self.cells = Cells(
            **{name: np.concatenate((array, getattr(more, name))) for name, array in self.cells.arrays().items()}
        )
        self.newest_ns = np.concatenate((self.newest_ns, np.zeros(after - before, np.int64)))
        self._free.extend(range(after - 1, before - 1, -1))


@dataclass
class PoolMemory:
    """Per column, (f,) float32 unless said. shared: the shared move of the last slide. level, wobble: slow mean of
    shared and of its absolute change. spread: slow standard deviation of residuals among nodes, quick to rise.
    lowest, highest: of all levels learned. has_peers: whether shared is in use. slides: slides that the
    column was learned in, int64."""

    shared: F32
    level: F32
    wobble: F32
    spread: F32
    lowest: F32
    highest: F32
    has_peers: NDArray[np.bool_]
    slides: NDArray[np.int64]

    @classmethod
    def empty(cls, columns: int) -> PoolMemory:
        def zeros() -> F32:
            return np.zeros(columns, np.float32)

        return cls(
            shared=zeros(),
            level=zeros(),
            wobble=zeros(),
            spread=zeros(),
            lowest=np.full(columns, np.inf, np.float32),
            highest=np.full(columns, -np.inf, np.float32),
            has_peers=np.zeros(columns, np.bool_),
            slides=np.zeros(columns, np.int64),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {f.name: getattr(self, f.name) for f in fields(self)}
