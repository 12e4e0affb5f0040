"""The detector's core over one recording: rows of plain columns, no pool, no catalog.

A row is looked at three ways: against the training data, against the recording's own recent past, and, when the
training data repeat themselves with a period, against the same phase of the periods before. Each way is taken with and
without the load that the columns share, over two lengths of trailing time. All of it goes to one forest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetpulse.anomaly._forest import Forest
from fleetpulse.anomaly._load import SharedLoad
from fleetpulse.anomaly._summary import ENERGY_MAX, summarise
from fleetpulse.anomaly._train import threshold_for

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

TRAILING_ROWS = (6, 24)
RECENT_ROWS = 72
PERIODS = 5
LOAD_SHARE = 0.5
_SPREAD_MIN = 1e-3
"""Of columns scaled to about 1. A column that was constant in training is measured by this when it moves."""
_REST_SPREAD_MIN = 0.05
_KNOWN_MIN = 16
_PERIOD_MIN = 0.6
"""Autocorrelation from which a recording counts as periodic."""
_BLOCKS = 12


@dataclass(frozen=True)
class RecordingScores:
    """Of the test rows. anomaly: (n,), 0 typical, 1 at the threshold for the budget, higher is worse. deviations:
    (n, f) in sigmas, against the training data and without shared load, for reasons. period: rows, 0 for none."""

    anomaly: F64
    deviations: F32
    period: int


def score_recording(train: F64, test: F64, *, seed: int, budget_per_row: float) -> RecordingScores:
    """Causal: the score of a test row uses train and test rows up to it. NaN is a missing value, and counts nowhere.

    train: (m, f), m >= 64; test: (n, f) that follows it. The same input gives the same scores.
    """
    m = len(train)
    rows = np.concatenate((train, test)).astype(np.float64)
    # Of a column that training hardly knows nothing can be said.
    rows[:, np.count_nonzero(~np.isnan(train), axis=0) < _KNOWN_MIN] = np.nan
    middle = _per_column(np.nanmedian, train)
    spread = np.maximum(_per_column(np.nanstd, train), _SPREAD_MIN)
    level = (rows - middle) / spread
    period = find_period(level[:m])
    ways = [(level, 0), (_standardised(_against_recent(level), 0, m), 0)]
    if period:
        first = PERIODS * period
        ways.append((_standardised(_against_season(level, period), first, m), first))
    rests = [_without_load(way, first, m) for way, first in ways]
    both = [x for (way, _), rest in zip(ways, rests, strict=True) for x in (way, rest)]
    blocks = [_trailing_energy(x, length) for x in both for length in TRAILING_ROWS]
    usable = max(first for _, first in ways)
    energies = np.concatenate(blocks, axis=1)
    group = np.repeat(np.arange(len(blocks), dtype=np.int32), rows.shape[1])
    shapes = summarise(energies, group)
    seen = np.arange(usable, m)
    held = (np.arange(len(seen)) * _BLOCKS // max(len(seen), 1)) % 3 == 1
    forest = Forest.grow(shapes[seen[~held]], seed=seed)
    held_scores = forest.anomaly(shapes[seen[held]])
    typical, threshold = float(np.median(held_scores)), threshold_for(held_scores, forest.ceiling(), budget_per_row)
    anomaly = (forest.anomaly(shapes[m:]) - typical) / (threshold - typical)
    return RecordingScores(np.maximum(anomaly, 0.0), rests[0][m:].astype(np.float32), period)


def find_period(rows: F64) -> int:
    """Rows after which standardised training rows repeat themselves; 0 when they do not.

    The first clear peak of the columns' mean autocorrelation behind its first valley. At least four periods are asked
    for besides those that the baseline needs.
    """
    n = len(rows)
    filled = np.clip(np.nan_to_num(rows, nan=0.0), -10, 10)
    filled = filled - filled.mean(axis=0)
    power = np.abs(np.fft.rfft(filled, 2 * n, axis=0)) ** 2
    lags = n // (PERIODS + 4)
    total = np.fft.irfft(power, axis=0)[: lags + 1].sum(axis=1)
    if lags < 8 or total[0] <= 0:
        return 0
    correlation = total / total[0] * n / (n - np.arange(lags + 1))
    valley = int(np.argmin(correlation[: lags // 2 + 1]))
    best = float(correlation[valley:].max())
    if best < _PERIOD_MIN:
        return 0
    near = max(lags // 50, 2)
    for lag in range(valley + 1, lags):
        around = correlation[max(lag - near, 0) : lag + near + 1]
        if correlation[lag] >= 0.8 * best and correlation[lag] == around.max():
            return lag
    return 0


def _against_recent(level: F64) -> F64:
    """Each row minus an exponential mean of the rows before it; missing values leave the mean as it was."""
    recent = np.empty_like(level)
    mean = np.nan_to_num(level[0], nan=0.0)
    pace = 1.0 / RECENT_ROWS
    for i, row in enumerate(level):
        recent[i] = mean
        mean = mean + pace * np.nan_to_num(row - mean, nan=0.0)
    return level - recent


def _against_season(level: F64, period: int) -> F64:
    """Each row minus the median of the rows one to PERIODS periods before; zero for the first PERIODS periods."""
    past = np.stack([level[: len(level) - PERIODS * period + k * period][k * period :] for k in range(PERIODS)])
    expected = _per_column(np.nanmedian, past)
    away = np.zeros_like(level)
    away[PERIODS * period :] = level[PERIODS * period :] - expected
    return away


def _standardised(way: F64, first: int, m: int) -> F64:
    known = way[first:m]
    middle = _per_column(np.nanmedian, known)
    return (way - middle) / np.maximum(_per_column(np.nanstd, known), _REST_SPREAD_MIN)


def _without_load(way: F64, first: int, m: int) -> F64:
    """What is left of each column when the load that training rows share is taken out."""
    rows = way.astype(np.float32)
    load = SharedLoad.learn(rows[first:m], share=LOAD_SHARE, components_max=rows.shape[1] // 2)
    return _standardised(load.remove(rows).astype(np.float64), first, m)


def _trailing_energy(deviations: F64, length: int) -> F32:
    """log(1 + mean square of the last `length` rows), missing values left out."""
    known = ~np.isnan(deviations)
    # No square counts for more than makes the mean reach its bound, so that the running sum stays exact enough.
    squares = np.minimum(np.where(known, deviations, 0.0) ** 2, ENERGY_MAX * length)
    mean = _trailing_sum(squares, length) / np.maximum(_trailing_sum(known.astype(np.float64), length), 1.0)
    return np.log1p(np.clip(mean, 0.0, ENERGY_MAX)).astype(np.float32)


def _trailing_sum(rows: F64, length: int) -> F64:
    """Sum of each row and the length - 1 before it."""
    running = np.cumsum(rows, axis=0)
    total = running.copy()
    total[length:] -= running[:-length]
    return total


def _per_column(statistic, rows: F64) -> F64:  # type: ignore[no-untyped-def]
    """A NaN-skipping statistic over axis 0; 0 for what has no value at all."""
    empty = np.isnan(rows).all(axis=0)
    return np.asarray(statistic(np.where(empty, 0.0, rows), axis=0))
