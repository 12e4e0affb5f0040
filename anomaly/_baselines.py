"""Levels against what is to be expected of them: own baseline, peers, and the range ever seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetpulse.anomaly._medians import TO_SIGMA, column_median, column_quantile
from fleetpulse.anomaly._memory import COUNT_MAX, Cells, NodeMemory, PoolMemory
from fleetpulse.anomaly._settings import DetectorSettings

F32 = NDArray[np.float32]
Mask = NDArray[np.bool_]
INDEX = NDArray[np.intp]

MEAN_TO_SIGMA = np.float32(1.2533)
"""Mean absolute deviation to standard deviation, for normal data."""
SPREAD_PEERS_MIN = 8
"""Nodes whose spread says how far one may stray; fewer are no sample."""
_YOUNG = 60.0
_YOUNG_ALONE = 360.0
"""Slides after which a baseline's threshold has come down to twice its final value: vectors of overlapping windows say
little about how far a node wanders."""
_LEARN_FULLY = np.float32(2.0)
_LEARN_NOTHING = np.float32(5.0)
_RISE = np.float32(1 / 24)
_FALL = np.float32(1 / 720)
_POOL_SLIDES = 240
"""Memory of the pool's own level, 20 min: daily load passes slowly, a deploy does not."""
_CROSS_SIGMAS = np.float32(15.0)
_CROSS_GAP = np.float32(5.0)
_GUARD_SPREADS = np.float32(30.0)
_GUARD_SLIDES = 24
_CONSTANT_SLIDES = 120
_CONSTANT_SHARPER = np.float32(4.0)


@dataclass
class Comparison:
    """Of n nodes and f columns, (n, f) unless said; n = len(rows), in the caller's order.

    rows: their rows in memory. known: there is a level. residual: level minus expected, NaN when not ready. spread:
    what residual is measured by. deviation: residual / spread in sigmas, NaN when not comparable. expected: level.
    ratio: |deviation| over its threshold, NaN when not comparable: 1 and up is flagged. by_guard: the guard's ratio is
    the larger one. missing: not known, though the node used to report it. count: slides learned.
    shared: (f,) the pool's common move; shared_ratio: (f,) that move's change over its threshold, 0 without peers.
    moved_along: (f,) share of ready nodes that took part in it.
    """

    rows: INDEX
    known: Mask
    levels: F32
    residual: F32
    spread: F32
    deviation: F32
    expected: F32
    ratio: F32
    by_guard: Mask
    missing: Mask
    ready: Mask
    peers: Mask
    shared: F32
    shared_change: F32
    shared_spread: F32
    shared_ratio: F32
    moved_along: F32
    cross_spread: F32


class Baselines:
    """Memory of nodes and pool, compared with and learned from one slide at a time."""

    def __init__(self, spread_min: F32, settings: DetectorSettings) -> None:
        self.spread_min = spread_min
        self.settings = settings
        self.nodes = NodeMemory(len(spread_min))
        self.pool = PoolMemory.empty(len(spread_min))

    def compare(self, rows: INDEX, levels: F32, partial: Mask) -> Comparison:
        """levels: (n, f), NaN where not known. partial: levels that saw less than their window count half.

        Moves nothing but what keeps residuals continuous when a column loses its peers.
        """
        settings, pool = self.settings, self.pool
        known = ~np.isnan(levels)
        cells = self.nodes.cells.take(rows)
        ready = known & (cells.count >= settings.ready_slides)
        peers = np.count_nonzero(ready, axis=0) >= settings.peers_min
        self._leave_peers(pool.has_peers & ~peers, rows, cells)
        away = np.where(ready, levels - cells.location, np.float32(np.nan))
        middle, n_ready = column_median(away)
        shared = np.where(peers, middle, np.float32(0)).astype(np.float32)
        residual = away - shared
        cross = np.zeros_like(shared)
        if len(rows) >= SPREAD_PEERS_MIN:
            width, _ = column_median(np.abs(residual))
            cross = np.where(n_ready >= SPREAD_PEERS_MIN, width * TO_SIGMA, np.float32(0)).astype(np.float32)
        typical = np.maximum(self.spread_min, np.maximum(cross, pool.spread))
        spread = np.maximum(typical, cells.deviation * MEAN_TO_SIGMA)
        constant = self._constant(cells)
        spread = np.where(constant, self.spread_min / _CONSTANT_SHARPER, spread).astype(np.float32)
        deviation = residual / spread
        ratio = self._ratio(np.abs(deviation), cells.count, peers)
        guard = self._guard(levels, cells, ready, peers)
        by_guard = (guard > np.nan_to_num(ratio, nan=0.0)) | (constant & (ratio >= 1))
        ratio = np.where(ready | (guard > 0), np.fmax(ratio, guard), ratio)
        expected = cells.location + shared
        fresh = known & ~ready
        if fresh.any():
            cross_ratio, cross_expected = self._cross(levels, fresh, by_guard)
            ratio = np.where(fresh, np.fmax(ratio, cross_ratio), ratio)
            expected = np.where(fresh, cross_expected, expected)
        ratio = np.where(partial, ratio / 2, ratio).astype(np.float32)
        change, change_spread, change_ratio, along = self._shared_change(shared, away, ready, peers, cross)
        return Comparison(
            rows=rows,
            known=known,
            levels=levels,
            residual=residual,
            spread=spread,
            deviation=deviation,
            expected=expected.astype(np.float32),
            ratio=ratio,
            by_guard=by_guard,
            missing=~known & (cells.count >= settings.ready_slides),
            ready=ready,
            peers=peers,
            shared=shared,
            shared_change=change,
            shared_spread=change_spread,
            shared_ratio=change_ratio,
            moved_along=along,
            cross_spread=cross,
        )

    def learn(self, seen: Comparison, new: Mask, calm: Mask, *, pool_calm: bool) -> None:
        """Take in what was compared. new: (n,) nodes with a vector not learned before. calm: (n,) nodes that nothing is
        wrong with. Of a calm node's columns the far ones are not learned either, and the less the farther they are."""
        held = self.nodes.cells.ratio[seen.rows]
        self.nodes.cells.ratio[seen.rows] = np.where(seen.known, np.nan_to_num(seen.ratio, nan=0.0), held)
        rows = seen.rows[new & calm]
        if len(rows):
            self._learn_cells(rows, seen, new & calm)
        pool = self.pool
        pool.has_peers = seen.peers
        pool.shared = seen.shared
        if not new.any():
            return
        step = np.where(seen.cross_spread > pool.spread, _RISE, _FALL)
        pool.spread += step * (seen.cross_spread - pool.spread)
        if pool_calm:
            self._learn_level(seen)

    def accept_level(self, level: F32) -> None:
        """The pool stays where it moved to."""
        self.pool.level = level.copy()

    def accept_node(self, row: int, levels: F32, shared: F32) -> None:
        """The node stays where it is: its baseline starts again from these levels."""
        known = ~np.isnan(levels)
        cells = self.nodes.cells
        cells.location[row] = np.where(known, levels - shared, cells.location[row])
        cells.count[row] = np.minimum(cells.count[row], self.settings.ready_slides)
        for array, choose in ((cells.lowest, np.fmin), (cells.highest, np.fmax)):
            array[row] = choose(array[row], np.where(known, levels, array[row]))

    def _leave_peers(self, lost: Mask, rows: INDEX, cells: Cells) -> None:
        if not lost.any():
            return
        self.nodes.cells.location[:, lost] += self.pool.shared[lost]
        self.pool.level[lost] -= self.pool.shared[lost]
        self.pool.shared[lost] = 0
        self.pool.has_peers[lost] = False
        cells.location = self.nodes.cells.location[rows]

    def _ratio(self, size: F32, count: NDArray[np.uint16], peers: Mask) -> F32:
        """(n, f) |deviation| over a threshold that is high while a baseline is young; NaN when not comparable."""
        settings = self.settings
        age = np.maximum(count.astype(np.float32), 1)
        threshold = np.where(
            peers,
            np.float32(settings.sigmas) * (1 + np.float32(_YOUNG) / age),
            np.float32(settings.sigmas_alone) * (1 + np.float32(_YOUNG_ALONE) / age),
        )
        old_enough = count >= np.where(peers, settings.ready_slides, settings.ready_slides_alone)
        return np.where(old_enough, size / threshold, np.float32(np.nan)).astype(np.float32)

    def _constant(self, cells: Cells) -> Mask:
        """Cells that have never moved, in columns that do not move elsewhere in the pool either."""
        still = (cells.highest - cells.lowest < np.float32(1e-4)) & (cells.count >= _CONSTANT_SLIDES)
        return still & (self.pool.spread < np.float32(1e-3))

    def _guard(self, levels: F32, cells: Cells, ready: Mask, peers: Mask) -> F32:
        """(n, f) distance outside everything that node and pool have shown, over what is tolerated; 0 inside.

        A range needs time to be one: two minutes of a pool, an hour of a node without peers.
        """
        settings, pool = self.settings, self.pool
        low, high = np.minimum(pool.lowest, cells.lowest), np.maximum(pool.highest, cells.highest)
        alone_long_enough = cells.count >= 2 * settings.ready_slides_alone
        enough = np.where(peers, pool.slides >= _GUARD_SLIDES, alone_long_enough)
        width = pool.highest - pool.lowest
        # A node that is new may bring columns that no other node uses.
        enough = enough & (ready | (width > 8 * self.spread_min)) & np.isfinite(width)
        outside = np.fmax(levels - high, low - levels)
        tolerated = np.maximum(width, _GUARD_SPREADS * self.spread_min)
        with np.errstate(invalid="ignore"):
            return np.where(enough & (outside > 0), outside / tolerated, np.float32(0)).astype(np.float32)

    def _cross(self, levels: F32, fresh: Mask, by_guard: Mask) -> tuple[F32, F32]:
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

    def _shared_change(self, shared: F32, away: F32, ready: Mask, peers: Mask, cross: F32) -> tuple[F32, F32, F32, F32]:
        """How far the pool's common move is from its own recent level: change, spread, ratio, share of nodes along."""
        pool = self.pool
        change = np.where(peers, shared - pool.level, np.float32(0))
        spread = np.maximum(pool.wobble * MEAN_TO_SIGMA, self.spread_min * np.float32(5 / 3))
        age = np.maximum(pool.slides, 1).astype(np.float32)
        threshold = np.float32(self.settings.sigmas_fleet) * (1 + np.float32(_YOUNG) / age) * spread
        old_enough = peers & (pool.slides >= self.settings.ready_slides)
        ratio = np.where(old_enough, np.abs(change) / threshold, np.float32(0))
        with np.errstate(invalid="ignore"):
            along = ready & ((away - pool.level) * np.sign(change) >= np.abs(change) / 2)
        share = np.count_nonzero(along, axis=0) / np.maximum(np.count_nonzero(ready, axis=0), 1)
        return change.astype(np.float32), spread, ratio.astype(np.float32), share.astype(np.float32)

    def _learn_cells(self, rows: INDEX, seen: Comparison, chosen: Mask) -> None:
        cells = self.nodes.cells.take(rows)
        known, ready = seen.known[chosen], seen.ready[chosen]
        levels, deviation = seen.levels[chosen], np.abs(seen.deviation[chosen])
        flagged = np.nan_to_num(seen.ratio[chosen], nan=0.0) >= 1
        weight = np.clip((_LEARN_NOTHING - deviation) / (_LEARN_NOTHING - _LEARN_FULLY), 0, 1)
        weight = np.where(ready, weight, np.float32(1)).astype(np.float32)
        weight[~known | flagged] = 0
        learned = weight > 0
        count = np.minimum(cells.count.astype(np.int64) + learned, COUNT_MAX)
        pace = weight / np.clip(count, 1, self.settings.memory_slides)
        residual = np.where(known, levels - seen.shared - cells.location, np.float32(0))
        step = np.where(learned, pace * residual, np.float32(0))
        bounded = np.where(ready, np.minimum(np.abs(residual), 5 * seen.spread[chosen]), np.abs(residual))
        # The first value has nothing to stray from.
        stray = np.where(learned & (cells.count > 0), pace * (bounded - cells.deviation), np.float32(0))
        cells.location += step.astype(np.float32)
        cells.deviation += stray.astype(np.float32)
        cells.count = count.astype(np.uint16)
        cells.lowest = np.where(learned, np.fmin(cells.lowest, levels), cells.lowest)
        cells.highest = np.where(learned, np.fmax(cells.highest, levels), cells.highest)
        self.nodes.cells.put(rows, cells)
        inside = np.where(learned, levels, np.float32(np.nan))
        pool = self.pool
        some = learned.any(axis=0)
        pool.lowest = np.fmin(pool.lowest, np.fmin.reduce(inside, axis=0))
        pool.highest = np.fmax(pool.highest, np.fmax.reduce(inside, axis=0))
        pool.slides += some
        pool.seen += np.count_nonzero(learned, axis=0)

    def _learn_level(self, seen: Comparison) -> None:
        pool = self.pool
        calm = seen.peers & (seen.shared_ratio < 1)
        age = np.clip(pool.slides, 1, _POOL_SLIDES).astype(np.float32)
        pace = np.where(calm, 1 / age, 0)
        size = np.minimum(np.abs(seen.shared_change), 5 * seen.shared_spread)
        pool.level += (pace * seen.shared_change).astype(np.float32)
        pool.wobble += (pace * (size - pool.wobble)).astype(np.float32)
