"""The plans of a shard's nodes in flat arrays, so that one compiled call makes the vectors of many nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetpulse.features._blocks import Blocks
from fleetpulse.features._evaluate import KEPT
from fleetpulse.features._points import F64Array, I32Array, I64Array
from fleetpulse.features._program import ENTRY, MEMBER, Plan, Program
from fleetpulse.features._timelines import NONE

_ROUND = 16
"""Blocks of plans come in multiples of so many places, so that one that was given back finds a taker."""


class PlanArrays(NamedTuple):
    """set_at: (nodes, sets + 1), see Plan. members_at, n_members, entries_at: by node, where its members and entries
    are in those of all nodes."""

    set_at: NDArray[np.int32]
    members_at: I64Array
    n_members: I32Array
    entries_at: I64Array
    members: NDArray[np.void]
    entries: NDArray[np.void]


class Plans:
    """Plans by node, and room for what is kept of their signals (see KEPT).

    laid: by node index whether its plan stands.
    """

    def __init__(self, program: Program, sets: int) -> None:
        self._walked = np.flatnonzero(program.signals["walked"])
        self.laid: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._members_at: I64Array = np.zeros(0, np.int64)
        self._n_members: I32Array = np.zeros(0, np.int32)
        self._entries_at: I64Array = np.zeros(0, np.int64)
        self._set_at: NDArray[np.int32] = np.zeros((0, sets + 1), np.int32)
        self._members = Blocks(MEMBER)
        self._entries = Blocks(ENTRY)
        self._signals = len(program.signals)
        self.kept: NDArray[Any] = np.zeros((0, self._signals), KEPT)
        self._values = Blocks(np.float64)

    def hold(self, n_nodes: int) -> None:
        """Make room for node indexes below n_nodes."""
        have = len(self.laid)
        if n_nodes <= have:
            return
        for name in ("laid", "_members_at", "_n_members", "_entries_at", "_set_at", "kept"):
            old = getattr(self, name)
            new = np.zeros((max(n_nodes, have + have // 4), *old.shape[1:]), old.dtype)
            new[:have] = old
            setattr(self, name, new)

    @property
    def arrays(self) -> PlanArrays:
        members, entries = self._members.columns[0], self._entries.columns[0]
        return PlanArrays(self._set_at, self._members_at, self._n_members, self._entries_at, members, entries)

    @property
    def kept_values(self) -> F64Array:
        return self._values.columns[0]

    @property
    def size_bytes(self) -> int:
        """Of all arrays, with what they hold in reserve."""
        by_node = (self._set_at, self._members_at, self._n_members, self._entries_at, self.kept)
        blocks = (self._members, self._entries, self._values)
        return sum(array.nbytes for array in by_node) + sum(block.size_bytes for block in blocks)

    def lay(self, node: int, plan: Plan) -> None:
        """Enter a node's plan."""
        assert not self.laid[node], "what a node's last plan held has been given back"
        self.laid[node] = True
        self._set_at[node] = plan.set_at
        members, entries = len(plan.members), len(plan.entries)
        self._n_members[node] = members
        at = self._members_at[node] = self._members.take(_rounded(members))
        self._members.columns[0][at : at + members] = plan.members
        at = self._entries_at[node] = self._entries.take(_rounded(entries))
        self._entries.columns[0][at : at + entries] = plan.entries
        self.kept[node] = np.zeros((), KEPT)

    def lift(self, node: int) -> None:
        """Give back a node's plan, if it has one: its series have changed."""
        if node >= len(self.laid) or not self.laid[node]:
            return
        self.laid[node] = False
        self._members.give(int(self._members_at[node]), _rounded(int(self._n_members[node])))
        self._entries.give(int(self._entries_at[node]), _rounded(int(self._set_at[node, -1])))
        for signal in self._walked:
            one = self.kept[node, signal]
            if one["room"]:
                self._values.give(int(one["at"]), int(one["room"]))

    def make_room(self, node: int) -> None:
        """Places for as many values of a node's signals as were wanted when its last vector was made."""
        for signal in self._walked:
            one = self.kept[node, signal]
            room, wanted = int(one["room"]), int(one["wanted"])
            if wanted != room:
                if room:
                    self._values.give(int(one["at"]), room)
                one["at"], one["room"], one["line"] = self._values.take(wanted), wanted, NONE


def _rounded(n: int) -> int:
    return -(-n // _ROUND) * _ROUND
