"""Nodes that stop sending while their peers go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fleetpulse.anomaly._event import Event, Reason
from fleetpulse.anomaly._presence import SECOND_NS, Presence
from fleetpulse.anomaly._settings import DetectorSettings
from fleetpulse.anomaly._tracks import Finding, Track
from fleetpulse.features._series import NodeId
from fleetpulse.features._vector import NodeVector

CRITICAL_AFTER_NS = 180 * SECOND_NS
"""From here on readers of vectors call the node missing."""
_RATIO = 4.0
_MANY_MIN = 3
_MANY_SHARE = 0.2


class Silence:
    """Open silences: of nodes, and of many nodes at once as one of the fleet (a collector or a partition is gone).

    A pool that is silent as a whole is not seen here, because its event time stands still.
    """

    def __init__(self, pool: str, settings: DetectorSettings) -> None:
        self.nodes: dict[NodeId, Track] = {}
        self.fleet = Track("fleet", pool, None)
        self._pool = pool
        self._settings = settings

    def hear(
        self,
        t_ns: int,
        nodes: Sequence[NodeId],
        vectors: Sequence[NodeVector],
        here: Presence,
        was_judged: Callable[[NodeId], bool],
    ) -> list[Event]:
        """What this slide tells. Only a node that was judged before is missed: one that was part of the pool."""
        t_ms = t_ns // 1_000_000
        silent = np.flatnonzero(here.silent).tolist()
        missed = [i for i in silent if nodes[i] not in self.nodes and was_judged(nodes[i])]
        events = self._hear_fleet(t_ms, missed, len(silent), len(nodes), here)
        for i in silent:
            track = self.nodes.get(nodes[i])
            if track is not None:
                events += self._tell(t_ms, track, vectors[i], here, i)
        if self.fleet.event is None and len(silent) < len(nodes):
            for i in missed:
                track = self.nodes[nodes[i]] = Track("node", self._pool, nodes[i])
                events.append(track.open(t_ms, _finding(vectors[i], here, i), "warning"))
        back = [node for node, gone in zip(nodes, here.silent, strict=True) if not gone and node in self.nodes]
        return events + [self.nodes.pop(node).resolve(t_ms, 0.0) for node in back]

    def _hear_fleet(self, t_ms: int, missed: list[int], silent: int, nodes: int, here: Presence) -> list[Event]:
        if self.fleet.event is not None:
            return [] if are_many(2 * silent, nodes, _MANY_SHARE) else [self.fleet.resolve(t_ms, 0.0)]
        if silent == nodes or not are_many(len(missed), nodes, _MANY_SHARE):
            return []
        limits = max(float(here.age_ns[i] / here.limit_ns[i]) for i in missed)
        reason = Reason("silent_nodes", float(len(missed)), 0.0, "{node}", limits)
        return [self.fleet.open(t_ms, Finding(_RATIO, "silence", (reason,)), "critical")]

    def _tell(self, t_ms: int, track: Track, vector: NodeVector, here: Presence, i: int) -> list[Event]:
        assert track.event is not None
        severity = "critical" if here.age_ns[i] > CRITICAL_AFTER_NS else "warning"
        old = t_ms - track.event.time_ms >= self._settings.update_every_s * 1000
        if severity == track.event.severity and not old:
            return []
        return [track.tell(t_ms, _finding(vector, here, i), severity)]


def are_many(count: int, of: int, share: float) -> bool:
    """Whether so many at once are one story: more than a share, and more than three in a small pool."""
    return count > max(_MANY_MIN, share * of)


def _finding(vector: NodeVector, here: Presence, i: int) -> Finding:
    """The age of the last sample against the scrape interval; its deviation is in limits of silence, not in sigmas."""
    age_s = float(here.age_ns[i] / SECOND_NS)
    limits = float(here.age_ns[i] / here.limit_ns[i])
    return Finding(
        _RATIO, "silence", (Reason("last_sample_age", age_s, vector.scrape_interval_ms / 1000, "s", limits),)
    )
