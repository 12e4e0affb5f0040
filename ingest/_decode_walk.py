"""Decoding by walking protobuf's objects: slow and plain, one rule after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from fleetpulse.features._series import Attributes, Kind
from fleetpulse.ingest._decode_columns import Rows
from fleetpulse.ingest._decode_series import MetricHead, sorted_attributes, summary_heads, with_quantile

NO_RECORDED_VALUE = 1
"""A bit of a point's flags."""
INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
SCALE_MIN, SCALE_MAX = -11, 20
"""At -11 two buckets span all of float64; no SDK goes above 20."""

Enter = Callable[[MetricHead, Attributes], int | None]
"""Index of the series with this head and these attributes; None when it is refused, which has been counted."""


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
