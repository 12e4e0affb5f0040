"""From normal deviations to a model. Slow and pure: the shell runs it beside the event loop."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from fleetpulse.anomaly._forest import Forest
from fleetpulse.anomaly._load import SharedLoad
from fleetpulse.anomaly._model import F32, Model, TrainingData, library_versions
from fleetpulse.anomaly._summary import energy, summarise

ROWS_MIN = 16
LOAD_SHARE = 0.5
LOAD_COMPONENTS_MAX = 6
_BLOCKS = 12
_TAIL = 0.1
_REACH = 0.6
_APART_MIN = 0.05
"""Typical and threshold are never closer: a forest of rows that are all alike has no scale of its own."""
_GROW_MAX = 20_000


def train(data: TrainingData, seed: int) -> Model:
    """The same rows and seed give the same model. Rows must be at least ROWS_MIN.

    Every third stretch of time is held out: neither load nor forest see it, and its scores set the threshold. Rows of
    overlapping windows lie in the same stretch, so that held-out scores are not those of near copies.
    """
    assert len(data.rows) >= ROWS_MIN, "the caller asks for more rows before it trains"
    order = _in_order(data)
    rows = data.rows[order]
    held = (np.arange(len(rows)) * _BLOCKS // len(rows)) % 3 == 1
    known = np.asarray(~np.isnan(rows).all(axis=0))
    load = SharedLoad.learn(rows[~held], share=LOAD_SHARE, components_max=LOAD_COMPONENTS_MAX)
    grown_on = _spread_over(rows[~held], _GROW_MAX)
    forest = Forest.grow(summarise(energy(load.remove(grown_on)), data.group), seed=seed)
    scores = forest.anomaly(summarise(energy(load.remove(rows[held])), data.group))
    typical = float(np.median(scores))
    return Model(
        schema_hash=data.schema_hash,
        pool=data.pool,
        group=data.group,
        known=known,
        load=load,
        forest=forest,
        typical=typical,
        threshold=threshold_for(scores, forest.ceiling(), data.budget_per_row),
        rows=len(rows),
        from_ns=int(data.times_ns[order[0]]),
        to_ns=int(data.times_ns[order[-1]]),
        versions=library_versions(),
    )


def threshold_for(scores: NDArray[np.float64], ceiling: float, budget: float) -> float:
    """Where a held-out row would lie above with probability `budget`.

    Held-out rows are far fewer than 1 / budget, so their upper tenth is continued as an exponential tail. A forest's
    scores are bounded, an exponential's are not: the threshold stays below the ceiling, the score of a row that is
    extreme in everything, or nothing could ever be flagged.
    """
    largest = float(scores.max())
    start = float(np.quantile(scores, 1 - _TAIL))
    above = scores[scores > start]
    mean_excess = float((above - start).mean()) if len(above) else 0.0
    continued = start + mean_excess * float(np.log(_TAIL / min(budget, _TAIL)))
    found = max(largest, min(continued, largest + _REACH * (ceiling - largest)))
    return max(found, float(np.median(scores)) + _APART_MIN)


def _in_order(data: TrainingData) -> NDArray[np.intp]:
    """By time, and within a time by the rows themselves: how the caller ordered them changes nothing. Of equal rows
    the earliest stays, because a node that stands still would fill the sample with itself, unless all of it is such.
    """
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in np.ascontiguousarray(data.rows)]
    keys = np.frombuffer(b"".join(digests), np.uint64)
    order = np.lexsort((keys, data.times_ns))
    _, first = np.unique(keys[order], return_index=True)
    return order[np.sort(first)] if len(first) >= ROWS_MIN else order


def _spread_over(rows: F32, at_most: int) -> F32:
    if len(rows) <= at_most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, at_most).astype(np.intp)]
