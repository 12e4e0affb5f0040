"""How well scores rank what is labelled. Scores are high when bad; labels 0 or 1; ties are one step of the curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Labels = NDArray[np.bool_]

BUFFER_STEPS = 11


def average_precision(labels: Labels, scores: F64) -> float | None:
    """Mean of precision over the recalls reached, no point adjustment. None when nothing is labelled. O(n log n)."""
    positives = int(labels.sum())
    if positives == 0:
        return None
    hits, picked = _steps(labels.astype(np.float64), scores)
    return float(np.sum(np.diff(hits, prepend=0.0) * hits / picked) / positives)


def volume_under_pr(labels: Labels, scores: F64, *, buffer_rows: int) -> float | None:
    """Area under the range-aware precision-recall curve, averaged over buffers of 0 to buffer_rows rows.

    Rows near a labelled interval count in part, sqrt(1 - distance / buffer) within half a buffer; recall is weighted by
    the share of intervals hit at all. Source: Paparrizos et al., "Volume Under the Surface", VLDB 2022, section 4.
    None when nothing is labelled.
    """
    if not labels.any():
        return None
    lengths = np.unique(np.linspace(0, buffer_rows, BUFFER_STEPS).astype(int))
    return float(np.mean([_range_area(labels, scores, int(length)) for length in lengths]))


def labelled_intervals(labels: Labels) -> list[tuple[int, int]]:
    """(first row, row after the last) of every run of labelled rows."""
    edges = np.diff(labels.astype(np.int8), prepend=0, append=0)
    return list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True))


def _steps(weights: F64, scores: F64) -> tuple[F64, F64]:
    """At each distinct score from the top: sum of weights and number of rows at or above it."""
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    return np.cumsum(weights[order])[last], (last + 1).astype(np.float64)


def _range_area(labels: Labels, scores: F64, buffer: int) -> float:
    soft = labels.astype(np.float64)
    half = buffer // 2
    ramp = np.sqrt(1 - np.arange(1, half + 1) / buffer) if half else np.zeros(0)
    peaks = []
    for first, end in labelled_intervals(labels):
        after, before = ramp[: len(labels) - end], ramp[:first]
        soft[end : end + len(after)] += after
        soft[first - len(before) : first] += before[::-1]
        peaks.append(scores[first - len(before) : end + len(after)].max())
    soft = np.minimum(soft, 1.0)
    total = (labels.sum() + soft.sum()) / 2
    hits, picked = _steps(soft, scores)
    thresholds = np.sort(np.unique(scores))[::-1]
    found = np.searchsorted(np.sort(-np.array(peaks)), -thresholds, side="right") / len(peaks)
    recall = np.minimum(hits / total, 1.0) * found
    return float(np.sum(np.diff(recall, prepend=0.0) * hits / picked))
