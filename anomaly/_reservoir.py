"""A bounded sample of recent normal residuals to train on."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._series import NodeId

F32 = NDArray[np.float32]


class Reservoir:
    """At most `capacity` rows, chosen by a hash of node and time: what is kept does not depend on the order of arrival.

    Rows: (f,) float32, NaN for no value. One of a node in every `spacing_ns`, because vectors of overlapping windows
    repeat each other, and no older than `keep_ns`.
    """

    def __init__(self, columns: int, capacity: int, *, spacing_ns: int, keep_ns: int, seed: int) -> None:
        self.spacing_ns = spacing_ns
        self._keep_ns = keep_ns
        self._capacity = capacity
        self._seed = seed
        self._rows = np.zeros((0, columns), np.float32)
        self._times = np.zeros(0, np.int64)
        self._ranks = np.zeros(0, np.uint64)
        self._last: dict[NodeId, int] = {}
        self.offered = 0

    def __len__(self) -> int:
        return len(self._times)

    def is_due(self, node: NodeId, t_ns: int) -> bool:
        """Whether enough time has passed since the node's last row."""
        return t_ns - self._last.get(node, -(1 << 62)) >= self.spacing_ns

    def offer(self, t_ns: int, nodes: list[NodeId], rows: F32) -> None:
        """rows: (n, f), one for each node, all of time t_ns; the caller has asked is_due."""
        if not nodes:
            return
        self.offered += len(nodes)
        for node in nodes:
            self._last[node] = t_ns
        ranks = np.array([self._rank(node, t_ns) for node in nodes], np.uint64)
        self._rows = np.concatenate((self._rows, rows.astype(np.float32)))
        self._times = np.concatenate((self._times, np.full(len(nodes), t_ns, np.int64)))
        self._ranks = np.concatenate((self._ranks, ranks))
        fresh = self._times > t_ns - self._keep_ns
        if not fresh.all():
            self._keep(np.flatnonzero(fresh))
        # A tenth more than the capacity may wait, so that not every slide sorts.
        if len(self) > self._capacity + self._capacity // 10:
            self._keep(np.argsort(self._ranks, kind="stable")[: self._capacity])

    def forget(self, nodes: list[NodeId]) -> None:
        for node in nodes:
            self._last.pop(node, None)

    def sample(self) -> tuple[F32, NDArray[np.int64]]:
        """Copies of the (n, f) rows and their (n,) times, in an order that does not depend on that of arrival."""
        order = np.lexsort((self._ranks, self._times))
        if len(order) > self._capacity:
            kept = np.sort(np.argsort(self._ranks, kind="stable")[: self._capacity])
            order = order[np.isin(order, kept)]
        return self._rows[order], self._times[order]

    def _keep(self, chosen: NDArray[np.intp]) -> None:
        self._rows, self._times, self._ranks = self._rows[chosen], self._times[chosen], self._ranks[chosen]

    def _rank(self, node: NodeId, t_ns: int) -> int:
        text = f"{self._seed}|{node.cluster}|{node.node}|{t_ns}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
