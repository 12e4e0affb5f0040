"""Levels against what is to be expected of them: own baseline, peers, and the range ever seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetpulse.anomaly._cells import (
    INDEX,
    LEARN_FULLY,
    LEARN_NOTHING,
    MEAN_TO_SIGMA,
    away_from_own,
    compare_cells,
    learn_cells,
)
from fleetpulse.anomaly._medians import TO_SIGMA, column_median, column_quantile
from fleetpulse.anomaly._memory import NodeMemory, PoolMemory
from fleetpulse.anomaly._settings import DetectorSettings

F32 = NDArray[np.float32]
Mask = NDArray[np.bool_]

SPREAD_PEERS_MIN = 8
"""Nodes whose spread says how far one may stray; fewer are no sample."""
_RISE = np.float32(1 / 24)
_FALL = np.float32(1 / 720)
_POOL_SLIDES = 240
"""Memory of the pool's own level, 20 min: daily load passes slowly, a deploy does not."""
_WOBBLE_SLIDES = 1440
_YOUNG_POOL = np.float32(30.0)
"""As YOUNG of cells; a median of many nodes wanders less than a node."""
_CROSS_SIGMAS = np.float32(15.0)
_CROSS_GAP = np.float32(5.0)
_SHARED_SPREADS = np.float32(5 / 2)


@dataclass
class SharedMove:
    """What all nodes do together, (f,). has_peers: enough nodes are ready for their median to count. level: that median
    of (level - location). change, spread, ratio: its distance from its own recent level, what that is measured by, and
    the distance over its threshold (0 without peers). along: share of ready nodes that took part. cross: standard
    deviation of the nodes' residuals at this moment, 0 when there are too few."""

    has_peers: Mask
    level: F32
    change: F32
    spread: F32
    ratio: F32
    along: F32
    cross: F32


@dataclass
class Comparison:
    """Of n nodes and f columns, (n, f) unless said, in the caller's order of nodes.

    rows: (n,) their rows in memory. levels: NaN for not known. ready: there is a level and a baseline. spread: what a
    residual is measured by. deviation: residual in sigmas, NaN when not ready. expected: level. ratio: |deviation| over
    its threshold, or the guard's when that is larger; 1 and up is flagged, NaN when nothing can be said. by_guard: the
    ratio is the guard's. missing: not known, though the node used to report it.
    """

    rows: INDEX
    levels: F32
    ready: Mask
    spread: F32
    deviation: F32
    expected: F32
    ratio: F32
    by_guard: Mask
    missing: Mask
    shared: SharedMove

    @property
    def known(self) -> Mask:
        return ~np.isnan(self.levels)


class Baselines:
    """Memory of nodes and pool, compared with and learned from one slide at a time."""

    def __init__(self, spread_min: F32, settings: DetectorSettings) -> None:
        self.spread_min = spread_min
        self.settings = settings
        self.nodes = NodeMemory(len(spread_min))
        self.pool = PoolMemory.empty(len(spread_min))
        self._limits = np.array(
            (settings.sigmas, settings.sigmas_alone, settings.ready_slides, settings.ready_slides_alone), np.float64
        )

    def compare(self, rows: INDEX, levels: F32, partial: Mask) -> Comparison:
        """levels: (n, f), NaN where not known. partial: levels that saw less than their window count half.

        Moves nothing but what keeps residuals continuous when a column loses its peers. A threshold is high while a
        baseline is young. The guard's ratio is the distance outside everything that node and pool have shown, over
        what is tolerated; a range needs time to be one: two minutes of a pool, an hour of a node without peers.
        Constants are measured more sharply.
        """
        settings, pool, cells = self.settings, self.pool, self.nodes.cells
        away = away_from_own(rows, levels, cells.count, cells.location, settings.ready_slides)
        ready = ~np.isnan(away)
        peers = np.count_nonzero(ready, axis=0) >= settings.peers_min
        lost = pool.has_peers & ~peers
        if lost.any():
            self._leave_peers(lost)
            away[:, lost] = away_from_own(rows, levels, cells.count, cells.location, settings.ready_slides)[:, lost]
        shared = self._shared(away, ready, peers)
        typical = np.maximum(self.spread_min, np.maximum(shared.cross, pool.spread))
        deviation, spread, ratio, expected, by_guard = compare_cells(
            rows,
            levels,
            away,
            partial,
            cells.count,
            cells.location,
            cells.deviation,
            cells.lowest,
            cells.highest,
            peers,
            shared.level,
            typical,
            self.spread_min,
            pool.spread,
            pool.lowest,
            pool.highest,
            pool.slides,
            self._limits,
        )
        known = ~np.isnan(levels)
        fresh = known & ~ready
        if fresh.any():
            cross_ratio, middle = self._cross(levels, fresh)
            ratio = np.where(fresh, np.fmax(ratio, cross_ratio), ratio)
            expected = np.where(fresh, middle, expected)
        return Comparison(
            rows=rows,
            levels=levels,
            ready=ready,
            spread=spread,
            deviation=deviation,
            expected=expected,
            ratio=ratio,
            by_guard=by_guard,
            missing=~known & (cells.count[rows] >= settings.ready_slides),
            shared=shared,
        )

    def learn(self, seen: Comparison, new: Mask, calm: Mask, *, pool_calm: bool) -> None:
        """Take in what was compared. new: (n,) nodes with a vector not learned before. calm: (n,) nodes that nothing is
        wrong with. Of a calm node's columns the far ones are not learned either, and the less the farther they are."""
        cells, pool, shared = self.nodes.cells, self.pool, seen.shared
        cells.ratio[seen.rows] = np.where(seen.known, np.nan_to_num(seen.ratio, nan=0.0), cells.ratio[seen.rows])
        pool.has_peers, pool.shared = shared.has_peers, shared.level
        learned = learn_cells(
            seen.rows,
            seen.levels,
            seen.deviation,
            seen.spread,
            seen.ratio,
            new,
            new & calm,
            shared.level,
            cells.count,
            cells.location,
            cells.deviation,
            cells.lowest,
            cells.highest,
            pool.lowest,
            pool.highest,
            self.settings.ready_slides,
            self.settings.memory_slides,
        )
        pool.slides += learned
        if not new.any():
            return
        pool.spread += np.where(shared.cross > pool.spread, _RISE, _FALL) * (shared.cross - pool.spread)
        if pool_calm:
            self._learn_level(shared)

    def accept_level(self, shared: SharedMove) -> None:
        """The pool stays where it moved to."""
        self.pool.level = shared.level.copy()

    def accept_node(self, seen: Comparison, i: int) -> None:
        """Node i stays where it is: its baseline starts again from its present levels."""
        row, levels = seen.rows[i], seen.levels[i]
        known = ~np.isnan(levels)
        cells = self.nodes.cells
        cells.location[row] = np.where(known, levels - seen.shared.level, cells.location[row])
        cells.count[row] = np.minimum(cells.count[row], self.settings.ready_slides)
        cells.lowest[row] = np.fmin(cells.lowest[row], levels)
        cells.highest[row] = np.fmax(cells.highest[row], levels)

    def _leave_peers(self, lost: Mask) -> None:
        self.nodes.cells.location[:, lost] += self.pool.shared[lost]
        self.pool.level[lost] -= self.pool.shared[lost]
        self.pool.shared[lost] = 0
        self.pool.has_peers[lost] = False

    def _shared(self, away: F32, ready: Mask, peers: Mask) -> SharedMove:
        pool = self.pool
        middle, n_ready = column_median(away)
        level = np.where(peers, middle, np.float32(0)).astype(np.float32)
        cross = np.zeros_like(level)
        if len(away) >= SPREAD_PEERS_MIN:
            width, _ = column_median(np.abs(away - level))
            cross = np.where(n_ready >= SPREAD_PEERS_MIN, width * TO_SIGMA, np.float32(0)).astype(np.float32)
        change = np.where(peers, level - pool.level, np.float32(0)).astype(np.float32)
        spread = np.maximum(pool.wobble * np.float32(MEAN_TO_SIGMA), self.spread_min * _SHARED_SPREADS)
        age = np.maximum(pool.slides, 1).astype(np.float32)
        threshold = np.float32(self.settings.sigmas_fleet) * (1 + _YOUNG_POOL / age) * spread
        old_enough = peers & (pool.slides >= self.settings.ready_slides)
        ratio = np.where(old_enough, np.abs(change) / threshold, np.float32(0)).astype(np.float32)
        along = np.zeros_like(level)
        for column in np.flatnonzero(ratio >= self.settings.resolve_below / 2):
            moved = (away[:, column] - pool.level[column]) * np.sign(change[column])
            part = np.count_nonzero(moved >= np.abs(change[column]) / 2)
            along[column] = part / n_ready[column]
        return SharedMove(peers, level, change, spread, ratio, along, cross)

    def _cross(self, levels: F32, fresh: Mask) -> tuple[F32, F32]:
        """Ratio and expected level of cells without a baseline yet, from the peers at this moment alone.

        Nodes of a pool may do different work, so only a value that stands apart from all but a tenth of them, by
        several times their own distances, counts; and none where most do not differ at all.
        """
        middle, n_known = column_median(levels)
        distance = np.abs(levels - middle)
        width, _ = column_median(distance)
        outer, _ = column_quantile(distance, 0.9)
        tolerated = np.maximum(_CROSS_SIGMAS * np.maximum(width * TO_SIGMA, self.spread_min), _CROSS_GAP * outer)
        usable = fresh & (n_known >= SPREAD_PEERS_MIN) & (outer > self.spread_min)
        ratio = np.where(usable, distance / tolerated, np.float32(np.nan)).astype(np.float32)
        return ratio, np.broadcast_to(middle, levels.shape)

    def _learn_level(self, shared: SharedMove) -> None:
        pool = self.pool
        sigmas = np.abs(shared.change) / shared.spread
        # As for cells, so that a ramp is not learned before it is told.
        weight = np.clip((LEARN_NOTHING - sigmas) / (LEARN_NOTHING - LEARN_FULLY), 0, 1).astype(np.float32)
        weight[~shared.has_peers | (shared.ratio >= 1)] = 0
        age = np.clip(pool.slides, 1, _POOL_SLIDES).astype(np.float32)
        slower = np.clip(pool.slides, 1, _WOBBLE_SLIDES).astype(np.float32)
        pool.level += weight * shared.change / age
        pool.wobble += weight * (np.abs(shared.change) - pool.wobble) / slower
