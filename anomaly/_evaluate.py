"""The detector judged on labelled recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetpulse.anomaly._curves import average_precision, labelled_intervals, volume_under_pr
from fleetpulse.anomaly._recording import score_recording
from fleetpulse.anomaly._settings import DetectorSettings

F64 = NDArray[np.float64]

DAY_S = 86_400
BUFFER_ROWS = 40
TRAIN_ROWS_MIN = 64
REASONS = 3


@dataclass(frozen=True)
class Recording:
    """One node's rows at even distances. train: (m, f), unlabelled, before test. test: (n, f). NaN is missing.

    labels: (n,) bool. reasons: (first row, row after the last) of a labelled interval -> columns, from 0, that explain
    it; may be empty.
    """

    name: str
    train: F64
    test: F64
    labels: NDArray[np.bool_]
    reasons: Mapping[tuple[int, int], frozenset[int]]


@dataclass(frozen=True)
class RecordingReport:
    """average_precision, vus_pr: None when nothing is labelled. found: labelled intervals with an event open before
    their end. delay_rows: median rows from an interval's start to the event that found it. false_events: events that
    touch no labelled interval. reasons_right: share of the intervals with reasons where one of the three columns that
    stand out most is among them."""

    name: str
    rows: int
    labelled_rows: int
    average_precision: float | None
    vus_pr: float | None
    intervals: int
    found: int
    delay_rows: float | None
    events: int
    false_events: int
    false_events_per_day: float
    reasons_right: float | None


@dataclass(frozen=True)
class Report:
    """Means are over the recordings with labels, each counting once."""

    recordings: tuple[RecordingReport, ...]
    mean_average_precision: float | None
    mean_vus_pr: float | None
    found_share: float | None
    false_events_per_day: float

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self)


def evaluate(
    recordings: Iterable[Recording], *, interval_s: float, seed: int, settings: DetectorSettings | None = None
) -> Report:
    """Causal, one configuration for all, no point adjustment. interval_s: time from row to row, for the false-alarm
    budget and what is told per day."""
    rules = settings or DetectorSettings()
    reports = tuple(_judge(recording, interval_s, seed, rules) for recording in recordings)
    intervals = sum(report.intervals for report in reports)
    days = sum(report.rows for report in reports) * interval_s / DAY_S
    return Report(
        recordings=reports,
        mean_average_precision=_mean(report.average_precision for report in reports),
        mean_vus_pr=_mean(report.vus_pr for report in reports),
        found_share=sum(report.found for report in reports) / intervals if intervals else None,
        false_events_per_day=sum(report.false_events for report in reports) / days if days else 0.0,
    )


def events_of(anomaly: F64, settings: DetectorSettings) -> list[tuple[int, int]]:
    """(row of opening, row of resolving or the end) of every event, by the hysteresis of settings, a row for a slide.

    anomaly: (n,), 1 at the threshold.
    """
    events, over, under, opened = [], 0, 0, -1
    for row, ratio in enumerate(anomaly):
        if opened < 0:
            over = over + 1 if ratio >= 1 else 0
            if over == settings.open_slides:
                opened, over, under = row, 0, 0
        else:
            under = under + 1 if ratio < settings.resolve_below else 0
            if under == settings.resolve_slides:
                events.append((opened, row))
                opened = -1
    if opened >= 0:
        events.append((opened, len(anomaly)))
    return events


def _judge(recording: Recording, interval_s: float, seed: int, settings: DetectorSettings) -> RecordingReport:
    budget = settings.false_events_per_node_day * settings.resolve_slides * interval_s / DAY_S
    scores = score_recording(recording.train, recording.test, seed=seed, budget_per_row=budget)
    events = events_of(scores.anomaly, settings)
    intervals = labelled_intervals(recording.labels)
    delays = [delay for first, end in intervals if (delay := _delay(events, first, end)) is not None]
    wrong = [event for event in events if not recording.labels[event[0] : event[1]].any()]
    days = len(recording.test) * interval_s / DAY_S
    return RecordingReport(
        name=recording.name,
        rows=len(recording.test),
        labelled_rows=int(recording.labels.sum()),
        average_precision=average_precision(recording.labels, scores.anomaly),
        vus_pr=volume_under_pr(recording.labels, scores.anomaly, buffer_rows=BUFFER_ROWS),
        intervals=len(intervals),
        found=len(delays),
        delay_rows=float(median(delays)) if delays else None,
        events=len(events),
        false_events=len(wrong),
        false_events_per_day=len(wrong) / days if days else 0.0,
        reasons_right=_reasons_right(recording, scores.anomaly, scores.deviations),
    )


def _delay(events: list[tuple[int, int]], first: int, end: int) -> int | None:
    """Rows until an event is open within [first, end); None when there is none."""
    return next((max(opened - first, 0) for opened, resolved in events if opened < end and resolved > first), None)


def _reasons_right(recording: Recording, anomaly: F64, deviations: NDArray[np.float32]) -> float | None:
    """At each interval's worst row."""
    right = []
    for (first, end), columns in recording.reasons.items():
        if not columns or first >= end:
            continue
        row = first + int(np.argmax(anomaly[first:end]))
        size = np.nan_to_num(np.abs(deviations[row]), nan=0.0)
        named = set(np.argsort(-size, kind="stable")[:REASONS].tolist())
        right.append(bool(named & columns))
    return fmean(right) if right else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
