"""Decoding by walking protobuf's objects: slow and plain, one rule after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from fleetpulse.features._points import ExponentialPoints, HistogramPoints, NumberPoints, Points
from fleetpulse.features._series import Attributes, Kind
from fleetpulse.ingest._decode_series import MetricHead, sorted_attributes, summary_heads, with_quantile

NO_RECORDED_VALUE = 1
"""A bit of a point's flags."""
INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
SCALE_MIN, SCALE_MAX = -11, 20
"""At -11 two buckets span all of float64; no SDK goes above 20."""

Enter = Callable[[MetricHead, Attributes], int | None]
"""Index of the series with this head and these attributes; None when it is refused, which has been counted."""


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


class PointWalk:
    """Checks the points of one request and appends those that are sound.

    horizon_ns: a point later than this is refused.
    """

    def __init__(self, rows: Rows, refused: Counter[str], horizon_ns: int) -> None:
        self._rows = rows
        self._refused = refused
        self._horizon_ns = horizon_ns

    def walk(self, head: MetricHead, points: Sequence[Any], enter: Enter) -> None:
        for point in points:
            reason = self._unsound_time(point)
            if reason is None:
                reason = self._add(head, point, enter)
            if reason is not None:
                self._refused[reason] += 1

    def _add(self, head: MetricHead, point: Any, enter: Enter) -> str | None:
        """None when the point was taken, else why not."""
        if head.kind is Kind.HISTOGRAM:
            return self._histogram(head, point, enter)
        if head.kind is Kind.EXPONENTIAL_HISTOGRAM:
            return self._exponential(head, point, enter)
        if head.kind is Kind.SUMMARY:
            return self._summary(head, point, enter)
        return self._number(head, point, enter)

    def _unsound_time(self, point: Any) -> str | None:
        if point.flags & NO_RECORDED_VALUE:
            return "no_recorded_value"
        if isinstance(point, NumberDataPoint) and point.WhichOneof("value") is None:
            return "no_value"
        if point.time_unix_nano == 0:
            return "no_time"
        if point.time_unix_nano > self._horizon_ns:
            return "future"
        return None

    def _number(self, head: MetricHead, point: NumberDataPoint, enter: Enter) -> str | None:
        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        if not math.isfinite(value):
            return "not_finite"
        if head.monotonic and value < 0:
            return "negative"
        self._add_number(head, sorted_attributes(point.attributes), point, value, enter)
        return None

    def _add_number(self, head: MetricHead, attributes: Attributes, point: Any, value: float, enter: Enter) -> None:
        series = enter(head, attributes)
        if series is not None:
            self._rows.numbers.add(series, point.time_unix_nano, _start_ns(point), value)

    def _summary(self, head: MetricHead, point: SummaryDataPoint, enter: Enter) -> str | None:
        if point.count > INT64_MAX:
            return "count_range"
        attributes = sorted_attributes(point.attributes)
        count, total, quantile = summary_heads(head)
        self._add_number(count, attributes, point, point.count, enter)
        if not math.isfinite(point.sum):
            self._refused["not_finite"] += 1
        elif point.sum < 0:
            # Observations may be negative; their sum is then no counter.
            self._refused["negative"] += 1
        else:
            self._add_number(total, attributes, point, point.sum, enter)
        for entry in point.quantile_values:
            if not 0 <= entry.quantile <= 1:
                self._refused["quantile_range"] += 1
            elif not math.isfinite(entry.value):
                self._refused["not_finite"] += 1
            else:
                self._add_number(quantile, with_quantile(attributes, entry.quantile), point, entry.value, enter)
        return None

    def _histogram(self, head: MetricHead, point: HistogramDataPoint, enter: Enter) -> str | None:
        counts, bounds = list(point.bucket_counts), list(point.explicit_bounds)
        if max(counts, default=0) > INT64_MAX or point.count > INT64_MAX:
            return "count_range"
        if len(counts) != (len(bounds) + 1 if counts or bounds else 0):
            return "bucket_layout"
        if not all(map(math.isfinite, bounds)) or any(a >= b for a, b in pairwise(bounds)):
            return "bucket_bounds"
        if counts and sum(counts) != point.count:
            return "bucket_sum"
        series = enter(head, sorted_attributes(point.attributes))
        if series is not None:
            self._add_head(self._rows.histograms.add_head, series, point)
            self._rows.histograms.add_buckets(counts, bounds)
        return None

    def _exponential(self, head: MetricHead, point: ExponentialHistogramDataPoint, enter: Enter) -> str | None:
        positive, negative = list(point.positive.bucket_counts), list(point.negative.bucket_counts)
        if max(point.count, point.zero_count, *positive, *negative) > INT64_MAX:
            return "count_range"
        if not SCALE_MIN <= point.scale <= SCALE_MAX:
            return "scale_range"
        ends = (point.positive.offset + len(positive), point.negative.offset + len(negative))
        if max(ends) > INT32_MAX or not (math.isfinite(point.zero_threshold) and point.zero_threshold >= 0):
            return "bucket_layout"
        if point.zero_count + sum(positive) + sum(negative) != point.count:
            return "bucket_sum"
        series = enter(head, sorted_attributes(point.attributes))
        if series is not None:
            rows = self._rows.exponentials
            self._add_head(rows.add_head, series, point)
            rows.scale.append(point.scale)
            rows.zero_count.append(point.zero_count)
            rows.zero_threshold.append(point.zero_threshold)
            rows.positive_offset.append(point.positive.offset)
            rows.positive.extend(positive)
            rows.positive_at.append(len(rows.positive))
            rows.negative_offset.append(point.negative.offset)
            rows.negative.extend(negative)
            rows.negative_at.append(len(rows.negative))
        return None

    @staticmethod
    def _add_head(add_head: Callable[..., None], series: int, point: Any) -> None:
        add_head(
            series,
            point.time_unix_nano,
            _start_ns(point),
            point.count,
            _finite(point, "sum"),
            _finite(point, "min"),
            _finite(point, "max"),
        )


def _start_ns(point: Any) -> int:
    """0 for a start behind the point's own time: a clock was set back meanwhile, and the start tells nothing."""
    start: int = point.start_time_unix_nano
    return start if start <= point.time_unix_nano else 0


def _finite(point: Any, name: str) -> float:
    """An optional number of a histogram point; NaN where it is absent or not finite."""
    value: float = getattr(point, name)
    return value if point.HasField(name) and math.isfinite(value) else math.nan
