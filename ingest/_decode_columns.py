"""Columns of points, filled row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetpulse.features._points import ExponentialPoints, HistogramPoints, NumberPoints, Points


@dataclass
class NumberRows:
    series: list[int] = field(default_factory=list)
    time_ns: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    integer: list[int] = field(default_factory=list)
    is_int: list[bool] = field(default_factory=list)

    def add(self, series: int, time_ns: int, start_ns: int, value: int | float) -> None:
        whole = isinstance(value, int)
        self.series.append(series)
        self.time_ns.append(time_ns)
        self.start_ns.append(start_ns)
        self.value.append(float(value))
        self.integer.append(int(value) if whole else 0)
        self.is_int.append(whole)

    def points(self) -> NumberPoints:
        return NumberPoints(
            series=np.array(self.series, np.int32),
            time_ns=np.array(self.time_ns, np.int64),
            start_ns=np.array(self.start_ns, np.int64),
            value=np.array(self.value, np.float64),
            integer=np.array(self.integer, np.int64),
            is_int=np.array(self.is_int, np.bool_),
        )


@dataclass
class _HistogramHeadRows:
    """What both kinds of histogram points have."""

    series: list[int] = field(default_factory=list)
    time_ns: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add_head(
        self, series: int, time_ns: int, start_ns: int, count: int, total: float, low: float, high: float
    ) -> None:
        self.series.append(series)
        self.time_ns.append(time_ns)
        self.start_ns.append(start_ns)
        self.count.append(count)
        self.total.append(total)
        self.low.append(low)
        self.high.append(high)


@dataclass
class HistogramRows(_HistogramHeadRows):
    count_at: list[int] = field(default_factory=lambda: [0])
    counts: list[int] = field(default_factory=list)
    bound_at: list[int] = field(default_factory=lambda: [0])
    bounds: list[float] = field(default_factory=list)

    def add_buckets(self, counts: Sequence[int], bounds: Sequence[float]) -> None:
        self.counts.extend(counts)
        self.count_at.append(len(self.counts))
        self.bounds.extend(bounds)
        self.bound_at.append(len(self.bounds))

    def points(self) -> HistogramPoints:
        return HistogramPoints(
            series=np.array(self.series, np.int32),
            time_ns=np.array(self.time_ns, np.int64),
            start_ns=np.array(self.start_ns, np.int64),
            count=np.array(self.count, np.int64),
            total=np.array(self.total, np.float64),
            low=np.array(self.low, np.float64),
            high=np.array(self.high, np.float64),
            count_at=np.array(self.count_at, np.int64),
            counts=np.array(self.counts, np.int64),
            bound_at=np.array(self.bound_at, np.int64),
            bounds=np.array(self.bounds, np.float64),
        )


@dataclass
class ExponentialRows(_HistogramHeadRows):
    scale: list[int] = field(default_factory=list)
    zero_count: list[int] = field(default_factory=list)
    zero_threshold: list[float] = field(default_factory=list)
    positive_offset: list[int] = field(default_factory=list)
    positive_at: list[int] = field(default_factory=lambda: [0])
    positive: list[int] = field(default_factory=list)
    negative_offset: list[int] = field(default_factory=list)
    negative_at: list[int] = field(default_factory=lambda: [0])
    negative: list[int] = field(default_factory=list)

    def points(self) -> ExponentialPoints:
        return ExponentialPoints(
            series=np.array(self.series, np.int32),
            time_ns=np.array(self.time_ns, np.int64),
            start_ns=np.array(self.start_ns, np.int64),
            count=np.array(self.count, np.int64),
            total=np.array(self.total, np.float64),
            low=np.array(self.low, np.float64),
            high=np.array(self.high, np.float64),
            scale=np.array(self.scale, np.int32),
            zero_count=np.array(self.zero_count, np.int64),
            zero_threshold=np.array(self.zero_threshold, np.float64),
            positive_offset=np.array(self.positive_offset, np.int32),
            positive_at=np.array(self.positive_at, np.int64),
            positive=np.array(self.positive, np.int64),
            negative_offset=np.array(self.negative_offset, np.int32),
            negative_at=np.array(self.negative_at, np.int64),
            negative=np.array(self.negative, np.int64),
        )


@dataclass
class Rows:
    numbers: NumberRows = field(default_factory=NumberRows)
    histograms: HistogramRows = field(default_factory=HistogramRows)
    exponentials: ExponentialRows = field(default_factory=ExponentialRows)

    def points(self) -> Points:
        return Points(self.numbers.points(), self.histograms.points(), self.exponentials.points())
