"""One pool's detector: vectors of one slide in, scores, verdicts and events out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fleetpulse.anomaly._baselines import Baselines, Comparison
from fleetpulse.anomaly._columns import OBSERVATIONS_MIN, Columns
from fleetpulse.anomaly._event import Event, Reason
from fleetpulse.anomaly._model import Model, ModelError, TrainingData
from fleetpulse.anomaly._presence import SECOND_NS, Presence, presence
from fleetpulse.anomaly._reasons import choose, explains, reasons_of
from fleetpulse.anomaly._reservoir import Reservoir
from fleetpulse.anomaly._settings import DetectorSettings
from fleetpulse.anomaly._silence import Silence, are_many
from fleetpulse.anomaly._tracks import Finding, Track
from fleetpulse.features._catalog import Catalog
from fleetpulse.features._series import NodeId
from fleetpulse.features._vector import NodeVector, Status

F32 = NDArray[np.float32]
Mask = NDArray[np.bool_]

NORMAL = "normal"
SUSPECT = "suspect"
"""Over the threshold, not for long enough to be an event."""
ANOMALOUS = "anomalous"
SILENT = "silent"
INSUFFICIENT = "insufficient data"
VERDICTS = (NORMAL, SUSPECT, ANOMALOUS, SILENT, INSUFFICIENT)

JUDGED_COLUMNS_MIN = 5
MISSING_SHARE_MAX = 0.2
_MISSING_DEVIATION = np.float32(4.0)
"""What a missing value counts as that used to be there: more than a whole normal vector shows, less than alarms."""
_FOREST_EVIDENCE = 5.0
"""Sigmas of at least one feature without which the forest alone is not believed: there would be no reason to give."""
_YOUNG_MODEL_NS = 1800 * SECOND_NS
"""Span of training below which a forest's ratio is less than half believed: it has seen one mood of the pool."""
_CANDIDATES = 12
"""Columns that may be the forest's reasons: the farthest out, none less than half as far as the first."""
_FLEET_ALONG_MIN = 0.6
_FLEET_TOGETHER = 1.5
_STORM_SHARE = 0.25
_RETRY_NS = 60 * SECOND_NS
_ROW_SPACING_NS = 30 * SECOND_NS
_ROW_KEEP_NS = 24 * 3600 * SECOND_NS
_SLIDES_PER_DAY = 17_280


@dataclass
class Slide:
    """What one slide says. scores: judged nodes only, in [0, 1], higher is worse, 0.5 is the threshold; a node that
    cannot be judged has none. verdicts: every node's, one of VERDICTS."""

    scores: dict[NodeId, float] = field(default_factory=dict)
    verdicts: dict[NodeId, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


class Detector:
    """Pure: event time is the only clock, and equal slides give equal results in any order of nodes.

    model: a trained forest, or None; until there is one, peers and guard serve. One of another schema is refused with
    ModelError.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        pool: str,
        seed: int,
        settings: DetectorSettings | None = None,
        model: Model | None = None,
    ) -> None:
        self.pool = pool
        self.seed = seed
        self.settings = settings or DetectorSettings()
        whole = Columns.of_catalog(catalog)
        self._whole = whole
        self._picked = np.flatnonzero(whole.judged)
        self.columns = whole.select(self._picked)
        self.baselines = Baselines(self.columns.spread_min, self.settings)
        self._ids: dict[str, dict[str, NodeId]] = {}
        self.deviating: dict[NodeId, Track] = {}
        self.fleet = Track("fleet", pool, None)
        self.silence = Silence(pool, self.settings)
        self.first_ns: int | None = None
        self.now_ns: int | None = None
        self.trained_ns: int | None = None
        self.rows_trained = 0
        self.reservoir = Reservoir(
            len(self._picked),
            self.settings.reservoir_rows,
            spacing_ns=_ROW_SPACING_NS,
            keep_ns=_ROW_KEEP_NS,
            seed=seed,
        )
        self.model: Model | None = None
        if model is not None:
            self._take(model)

    @property
    def schema_hash(self) -> bytes:
        return self._whole.schema_hash

    # --- one slide ---

    def slide(self, t_ns: int, vectors: Sequence[NodeVector]) -> Slide:
        """Judge the newest vector of every node of the pool at t_ns; call in the order of time.

        A node whose vector is old is passed too: its age is what silence is seen by. A node that is left out is not
        judged, and forgotten after a while. Vectors must have the catalog's schema.
        """
        newest = self._newest_by_node(vectors)
        nodes = sorted(newest)
        ordered = [newest[node] for node in nodes]
        assert all(vector.schema_hash == self._whole.schema_hash for vector in ordered), "vectors of another schema"
        self.now_ns = t_ns
        if self.first_ns is None and nodes:
            self.first_ns = t_ns
        slide = Slide()
        self._forget(t_ns, set(nodes), slide)
        if not nodes:
            return slide
        here = presence(t_ns, ordered, self.settings)
        slide.events += self.silence.hear(t_ns, nodes, ordered, here, self._was_judged)
        width = len(self._whole.names)
        values = np.concatenate([vector.values for vector in ordered]).reshape(-1, width)
        status = np.concatenate([vector.status for vector in ordered]).reshape(-1, width)
        levels, partial = self._levels(ordered, values, status, here.judged)
        memory = self.baselines.nodes
        rows = memory.rows(nodes)
        t_end = np.fromiter((vector.t_end_ns for vector in ordered), np.int64, len(nodes))
        new = here.judged & (t_end > memory.newest_ns[rows])
        memory.newest_ns[rows] = np.maximum(t_end, memory.newest_ns[rows])
        seen = self.baselines.compare(rows, levels, partial)
        self._judge(t_ns, nodes, here, seen, values[:, self._picked], new, slide)
        slide.events.sort(key=lambda event: (event.scope != "fleet", event.cluster, event.node, event.id))
        return slide

    def _newest_by_node(self, vectors: Sequence[NodeVector]) -> dict[NodeId, NodeVector]:
        newest: dict[NodeId, NodeVector] = {}
        for vector in vectors:
            # Ids are kept: ten thousand new tuples a slide would wake the garbage collector for nothing.
            ids = self._ids.setdefault(vector.cluster, {})
            node = ids.get(vector.node)
            if node is None:
                node = ids[vector.node] = NodeId(vector.cluster, vector.node)
            held = newest.get(node)
            if held is None or held.t_end_ns < vector.t_end_ns:
                newest[node] = vector
        return newest

    def _levels(
        self, vectors: Sequence[NodeVector], values: F32, status: NDArray[np.uint8], judged: Mask
    ) -> tuple[F32, Mask]:
        """(n, f) levels of the judged columns, NaN for what cannot be relied on, and which of them are partial.

        Left out: missing and stale values; values whose window the node does not cover yet, because sums, quantiles
        and slopes of a growing window move by themselves; quantiles of few observations.
        """
        whole = self._whole
        covered = np.array([vector.window_covered_ms for vector in vectors], np.int64)
        usable = np.isfinite(values) & ((status == Status.OK) | (status == Status.PARTIAL))
        usable &= judged[:, None] & (covered[:, None] >= whole.window_ms - 1000)
        counted = whole.count_of >= 0
        if counted.any():
            observations = np.nan_to_num(values[:, whole.count_of[counted]], nan=0.0)
            usable[:, counted] &= observations >= OBSERVATIONS_MIN
        usable, values = usable[:, self._picked], values[:, self._picked]
        levels = self.columns.levels(np.where(usable, values, np.float32(np.nan)).astype(np.float32))
        return levels, usable & (status[:, self._picked] == Status.PARTIAL)

    def _judge(
        self,
        t_ns: int,
        nodes: list[NodeId],
        here: Presence,
        seen: Comparison,
        values: F32,
        new: Mask,
        slide: Slide,
    ) -> None:
        t_ms = t_ns // 1_000_000
        by_forest, forest_rows = self._forest(seen, here.judged)
        worst = np.nan_to_num(seen.ratio, nan=0.0).max(axis=1, initial=0.0).astype(np.float64)
        ratio = np.maximum(worst, by_forest)
        lacking = self._lacking(seen) & here.judged
        over = new & (ratio >= 1)
        # Of nodes hit together some cross the threshold a slide sooner: those on their way count too.
        leaning = new & (ratio >= self.settings.resolve_below) & ~self._opened(nodes, self.deviating)
        storm = bool((over & leaning).any()) and are_many(int(leaning.sum()), int(here.judged.sum()), _STORM_SHARE)
        self._judge_fleet(t_ms, seen, values, here.judged, leaning if storm else None, slide)
        followed = np.fromiter((node in self.deviating for node in nodes), np.bool_, len(nodes))
        # What is missing must not end an event.
        for i in np.flatnonzero(over | (new & followed & ~lacking)):
            self._follow(t_ms, nodes[i], int(i), seen, values, (float(worst[i]), float(by_forest[i])), storm, slide)
        opened = self._opened(nodes, self.deviating)
        self._tell(nodes, here, np.maximum(ratio, self._missing_ratio(seen)), lacking, opened, slide)
        self._accept(t_ms, nodes, seen, opened, over)
        calm = here.judged & ~opened
        self.baselines.learn(seen, new, calm, pool_calm=self.fleet.event is None)
        if not storm and self.fleet.event is None:
            self._remember_rows(t_ns, nodes, new & calm & ~over, forest_rows, seen)

    def _follow(
        self,
        t_ms: int,
        node: NodeId,
        i: int,
        seen: Comparison,
        values: F32,
        ratios: tuple[float, float],
        storm: bool,
        slide: Slide,
    ) -> None:
        """One more slide of a node that is, or was of late, out of bounds. ratios: by its columns, by the forest."""
        track = self.deviating.setdefault(node, Track("node", self.pool, node))
        ratio = max(ratios)
        if self.fleet.event is not None and track.event is None:
            # A node must stand out from a pool in motion.
            ratio /= 2
        finding = self._finding(i, seen, values, ratio, forest=ratios[1] > ratios[0])
        event = track.step(t_ms, finding, self.settings, may_open=not storm)
        if event is not None:
            slide.events.append(event)
        if track.is_over(t_ms):
            del self.deviating[node]

    def _tell(
        self, nodes: list[NodeId], here: Presence, ratio: NDArray[np.float64], lacking: Mask, opened: Mask, slide: Slide
    ) -> None:
        """Scores and verdicts of all nodes; an open event stands, whatever goes missing meanwhile."""
        silent = here.silent & self._opened(nodes, self.silence.nodes)
        conditions = (silent, ~here.judged, opened, lacking, ratio >= 1)
        verdicts = np.select(conditions, (3, 4, 2, 4, 1), 0)
        slide.verdicts = dict(zip(nodes, map(VERDICTS.__getitem__, verdicts.tolist()), strict=True))
        scored = here.judged & (~lacking | opened)
        scores = (ratio / (1.0 + ratio)).tolist()
        slide.scores = {nodes[i]: scores[i] for i in np.flatnonzero(scored).tolist()}

    def _opened(self, nodes: list[NodeId], tracks: dict[NodeId, Track]) -> Mask:
        """(n,) nodes with an open event among the tracks."""
        opened = {node for node, track in tracks.items() if track.event is not None}
        if not opened:
            return np.zeros(len(nodes), np.bool_)
        return np.fromiter((node in opened for node in nodes), np.bool_, len(nodes))

    def _lacking(self, seen: Comparison) -> Mask:
        """(n,) nodes that cannot be called normal: too little comparable, or too much gone that used to be there."""
        comparable = np.count_nonzero(~np.isnan(seen.ratio), axis=1)
        lacking = comparable < min(JUDGED_COLUMNS_MIN, len(self._picked))
        if not seen.missing.any():
            return np.asarray(lacking)
        missing = np.count_nonzero(seen.missing, axis=1)
        usual = missing + np.count_nonzero(seen.ready, axis=1)
        lacking |= missing > MISSING_SHARE_MAX * usual
        known = seen.known
        for group in range(int(self.columns.group.max()) + 1):
            members = self.columns.group == group
            lacking |= seen.missing[:, members].any(axis=1) & ~known[:, members].any(axis=1)
        return np.asarray(lacking)

    def _missing_ratio(self, seen: Comparison) -> NDArray[np.float64]:
        """(n,) the least that missing values count for: what they last showed, and more than a normal vector shows."""
        least = np.zeros(len(seen.rows))
        some = np.flatnonzero(seen.missing.any(axis=1))
        if len(some):
            held = np.where(seen.missing[some], self.baselines.nodes.cells.ratio[seen.rows[some]], np.float32(0))
            least[some] = np.maximum(held.max(axis=1), float(_MISSING_DEVIATION) / self.settings.sigmas)
        return least

    # --- the forest ---

    def _forest(self, seen: Comparison, judged: Mask) -> tuple[NDArray[np.float64], F32]:
        """(n,) ratio by the forest, 0 without one, and the (n, f) deviations it saw, NaN where unknown."""
        rows = np.where(np.isnan(seen.ratio), np.float32(np.nan), seen.deviation).astype(np.float32)
        ratio = np.zeros(len(rows))
        if self.model is None:
            return ratio, rows
        chosen = judged & (np.count_nonzero(~np.isnan(rows), axis=1) >= JUDGED_COLUMNS_MIN)
        if chosen.any():
            filled = np.where(seen.missing, _MISSING_DEVIATION, rows).astype(np.float32)[chosen]
            found = self.model.ratio(filled) / (1 + _YOUNG_MODEL_NS / max(self.model.to_ns - self.model.from_ns, 1))
            evident = np.nan_to_num(np.abs(rows[chosen]), nan=0.0).max(axis=1) >= _FOREST_EVIDENCE
            # Without evidence the score may show it, the threshold is not crossed.
            ratio[chosen] = np.where(evident, found, np.minimum(found, 0.9))
        return ratio, rows

    def _finding(self, i: int, seen: Comparison, values: F32, ratio: float, *, forest: bool) -> Finding:
        """ratio and its reasons for node i."""
        if ratio < self.settings.resolve_below:
            return Finding(ratio, "peers", ())
        if forest:
            chosen = choose(self.columns, self._forest_weights(seen, i), at_most=3)
            detector = "forest"
        else:
            chosen = choose(self.columns, explains(seen.ratio[i]))
            detector = "guard" if chosen and seen.by_guard[i, chosen[0]] else "peers"
        away = (seen.levels[i] - seen.expected[i]) / self.columns.spread_min
        deviations = np.where(np.isnan(seen.deviation[i]), away, seen.deviation[i])
        return Finding(ratio, detector, reasons_of(self.columns, chosen, values[i], seen.expected[i], deviations))

    def _forest_weights(self, seen: Comparison, i: int) -> NDArray[np.float64]:
        """(f,) by how much the forest's ratio falls when a feature is put to its expected value."""
        assert self.model is not None
        row = seen.deviation[i]
        size = np.nan_to_num(np.abs(row), nan=0.0)
        candidates = np.argsort(-size, kind="stable")[:_CANDIDATES]
        candidates = candidates[size[candidates] >= size[candidates[0]] / 2]
        tried = np.repeat(row[None], len(candidates) + 1, axis=0)
        tried[np.arange(len(candidates)), candidates] = 0
        ratios = self.model.ratio(tried)
        weights = np.zeros(len(row))
        # Ties, and a forest that has gone flat far outside, are ordered by size.
        weights[candidates] = np.maximum(ratios[-1] - ratios[:-1], 0) + 1e-6 * size[candidates]
        return weights

    # --- the pool as a whole ---

    def _judge_fleet(
        self, t_ms: int, seen: Comparison, values: F32, judged: Mask, storm: Mask | None, slide: Slide
    ) -> None:
        """storm: (n,) nodes that went out of bounds together, when they are many."""
        # The slope of a load that all share is the load's, not a shift of the pool; that shows in the levels.
        together = (seen.shared.along >= _FLEET_ALONG_MIN) & ~self.columns.is_slope
        moved = np.where(together, seen.shared.ratio, np.float32(0))
        by_group = np.zeros(int(self.columns.group.max()) + 1)
        np.maximum.at(by_group, self.columns.group, moved)
        by_group.sort()
        # Three kinds of features that move together are a shift sooner than one that moves alone.
        ratio = max(float(by_group[-1]), _FLEET_TOGETHER * float(by_group[-3])) if len(by_group) > 2 else by_group[-1]
        weights: NDArray[np.floating] = explains(moved)
        if storm is not None and ratio < 1:
            # Many nodes at once, though not most: one story all the same.
            ratio = 1.0
            weights = np.median(np.nan_to_num(seen.ratio[storm], nan=0.0), axis=0)
        reasons: tuple[Reason, ...] = ()
        if ratio >= self.settings.resolve_below:
            subjects = judged if storm is None else storm
            reasons = self._fleet_reasons(choose(self.columns, weights), seen, values, subjects)
        event = self.fleet.step(t_ms, Finding(ratio, "peers", reasons), self.settings)
        if event is not None:
            slide.events.append(event)

    def _fleet_reasons(self, chosen: list[int], seen: Comparison, values: F32, subjects: Mask) -> tuple[Reason, ...]:
        """Values and expectations are those of the median of the nodes concerned."""
        reasons = []
        for column in chosen:
            known = subjects & ~np.isnan(seen.levels[:, column])
            if not known.any():
                continue
            level = float(np.median(seen.levels[known, column]))
            change = float(seen.shared.change[column])
            spread = float(seen.shared.spread[column])
            if abs(change) < spread:
                change = level - float(np.median(seen.expected[known, column]))
            reasons.append(
                Reason(
                    feature=self.columns.names[column],
                    value=float(np.median(values[known, column])),
                    expected=self.columns.value(column, level - change),
                    unit=self.columns.units[column],
                    deviation=change / spread,
                )
            )
        return tuple(reasons)

    def _accept(self, t_ms: int, nodes: list[NodeId], seen: Comparison, opened: Mask, over: Mask) -> None:
        """What has stayed for long where it moved to is what is expected from now on; the event resolves by itself."""
        event = self.fleet.event
        if event is not None and t_ms - event.opened_ms >= self.settings.accept_fleet_s * 1000:
            self.baselines.accept_level(seen.shared)
            for i in np.flatnonzero(over & ~opened):
                self.baselines.accept_node(seen, int(i))
        for i in np.flatnonzero(opened):
            held = self.deviating[nodes[i]].event
            assert held is not None
            if t_ms - held.opened_ms >= self.settings.accept_node_s * 1000:
                self.baselines.accept_node(seen, int(i))

    def _was_judged(self, node: NodeId) -> bool:
        row = self.baselines.nodes.row_of.get(node)
        return row is not None and bool(self.baselines.nodes.cells.count[row].any())

    # --- training ---

    def _remember_rows(self, t_ns: int, nodes: list[NodeId], normal: Mask, rows: F32, seen: Comparison) -> None:
        usable = normal & (np.count_nonzero(seen.ready, axis=1) >= JUDGED_COLUMNS_MIN)
        due = [i for i in np.flatnonzero(usable) if self.reservoir.is_due(nodes[i], t_ns)]
        self.reservoir.offer(t_ns, [nodes[i] for i in due], rows[due])

    def training_request(self) -> TrainingData | None:
        """What a forest is to be trained on, when one is due; None otherwise.

        Due: after train_after_s, with rows enough, when there is none, when what was seen has doubled, or when the
        forest is old.
        """
        now_ns = self.now_ns
        if now_ns is None or self.first_ns is None or len(self.reservoir) < self.settings.rows_min:
            return None
        if now_ns - self.first_ns < self.settings.train_after_s * SECOND_NS:
            return None
        if self.model is None:
            # The last one may have failed, or not have fitted.
            if self.trained_ns is not None and now_ns - self.trained_ns < _RETRY_NS:
                return None
        elif self.trained_ns is not None:
            old = now_ns - self.trained_ns >= self.settings.retrain_every_s * SECOND_NS
            doubled = len(self.reservoir) >= 2 * self.rows_trained
            if not old and not doubled:
                return None
        rows, times_ns = self.reservoir.sample()
        self.trained_ns, self.rows_trained = now_ns, len(self.reservoir)
        return self.training_data(rows, times_ns)

    def training_data(self, rows: F32, times_ns: NDArray[np.int64]) -> TrainingData:
        """rows: (n, f) deviations of normal vectors; times_ns: (n,)."""
        return TrainingData(
            schema_hash=self._whole.schema_hash,
            pool=self.pool,
            group=self.columns.group,
            rows=rows,
            times_ns=times_ns,
            budget_per_row=self.settings.false_events_per_node_day * 12 / _SLIDES_PER_DAY,
        )

    def adopt(self, model: Model) -> None:
        """Use this forest from the next slide on. Open events stay open; raises ModelError when it does not fit."""
        self._take(model)

    def _take(self, model: Model) -> None:
        if model.schema_hash != self._whole.schema_hash:
            raise ModelError(
                f"made for schema {model.schema_hash.hex()}, the catalog here is {self._whole.schema_hash.hex()}"
            )
        if not np.array_equal(model.group, self.columns.group):
            raise ModelError("made for other groups of columns")
        self.model = model
        if self.trained_ns is None:
            self.trained_ns, self.rows_trained = model.to_ns, model.rows

    # --- memory ---

    def _forget(self, t_ns: int, present: set[NodeId], slide: Slide) -> None:
        """Nodes that have not been passed for forget_s. What was open about them ends: nobody else would end it."""
        limit = t_ns - self.settings.forget_s * SECOND_NS
        memory = self.baselines.nodes
        gone = [node for node, row in memory.row_of.items() if node not in present and memory.newest_ns[row] < limit]
        memory.forget(gone)
        self.reservoir.forget(gone)
        for node in gone:
            for tracks in (self.deviating, self.silence.nodes):
                track = tracks.pop(node, None)
                if track is not None and track.event is not None:
                    slide.events.append(track.resolve(t_ns // 1_000_000, 0.0))
            self._ids.get(node.cluster, {}).pop(node.node, None)

    def snapshot(self) -> bytes:
        """Everything but the model and the reservoir, which the models topic and the next hours give again."""
        from fleetpulse.anomaly._snapshot import save

        return save(self)

    @classmethod
    def restore(
        cls,
        raw: bytes,
        catalog: Catalog,
        *,
        pool: str,
        seed: int,
        settings: DetectorSettings | None = None,
        model: Model | None = None,
    ) -> Detector:
        """A detector that goes on where snapshot was taken. Raises ModelError for bytes that do not fit."""
        from fleetpulse.anomaly._snapshot import load

        detector = cls(catalog, pool=pool, seed=seed, settings=settings, model=model)
        load(detector, raw)
        return detector
