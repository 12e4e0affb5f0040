"""What becomes of a data point: the rules of the metrics data model, one row each."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    SummaryDataPoint,
)

from fleetpulse.features._series import Kind, SeriesTable, Temporality
from fleetpulse.ingest._decode import Decoded
from fleetpulse.ingest._otlp import OtlpError
from support.otlp_samples import NOW_NS, RECORD_MS, SECOND, key_values, make_decoder, one_resource, request

HOST = {"host.name": "a"}


def decode(metric: Metric, table: SeriesTable | None = None) -> Decoded:
    return make_decoder(table).decode(request(one_resource(HOST, metric)), RECORD_MS)


def gauge(**point: object) -> Metric:
    metric = Metric(name="m")
    metric.gauge.data_points.add(**point)
    return metric


def total(temporality: int = 2, monotonic: bool = True, **point: object) -> Metric:
    metric = Metric(name="m")
    metric.sum.aggregation_temporality = temporality
    metric.sum.is_monotonic = monotonic
    metric.sum.data_points.add(**point)
    return metric


def histogram(temporality: int = 2, **point: object) -> Metric:
    metric = Metric(name="m")
    metric.histogram.aggregation_temporality = temporality
    metric.histogram.data_points.add(**({"time_unix_nano": NOW_NS} | point))
    return metric


def exponential(**point: object) -> Metric:
    metric = Metric(name="m")
    metric.exponential_histogram.aggregation_temporality = 2
    metric.exponential_histogram.data_points.add(**({"time_unix_nano": NOW_NS} | point))
    return metric


def buckets(offset: int, *counts: int) -> ExponentialHistogramDataPoint.Buckets:
    return ExponentialHistogramDataPoint.Buckets(offset=offset, bucket_counts=counts)


REFUSED = {
    "flag alone": (gauge(time_unix_nano=NOW_NS, as_int=1, flags=1), "no_recorded_value"),
    "flag among others": (gauge(time_unix_nano=NOW_NS, as_int=1, flags=0x103), "no_recorded_value"),
    "flag on a histogram": (histogram(flags=1), "no_recorded_value"),
    "flag on an exponential histogram": (exponential(flags=1), "no_recorded_value"),
    "no value": (gauge(time_unix_nano=NOW_NS), "no_value"),
    "no value, no time": (gauge(), "no_value"),
    "no time": (gauge(as_double=1.0), "no_time"),
    "no time on a histogram": (histogram(time_unix_nano=0), "no_time"),
    "a minute and a nanosecond ahead": (gauge(as_int=1, time_unix_nano=NOW_NS + 60 * SECOND + 1), "future"),
    "beyond int64": (gauge(as_int=1, time_unix_nano=2**64 - 1), "future"),
    "gauge of NaN": (gauge(as_double=math.nan, time_unix_nano=NOW_NS), "not_finite"),
    "counter of NaN": (total(as_double=math.nan, time_unix_nano=NOW_NS), "not_finite"),
    "counter of infinity": (total(as_double=math.inf, time_unix_nano=NOW_NS), "not_finite"),
    "counter below zero": (total(as_int=-1, time_unix_nano=NOW_NS), "negative"),
    "delta counter below zero": (total(1, as_double=-0.5, time_unix_nano=NOW_NS), "negative"),
    "counts without bounds": (histogram(count=3, bucket_counts=[1, 2]), "bucket_layout"),
    "bounds without counts": (histogram(count=3, explicit_bounds=[1.0]), "bucket_layout"),
    "as many counts as bounds": (histogram(count=1, bucket_counts=[1], explicit_bounds=[1.0]), "bucket_layout"),
    "equal bounds": (histogram(count=0, bucket_counts=[0] * 3, explicit_bounds=[1.0, 1.0]), "bucket_bounds"),
    "falling bounds": (histogram(count=0, bucket_counts=[0] * 3, explicit_bounds=[2.0, 1.0]), "bucket_bounds"),
    "bound of NaN": (histogram(count=0, bucket_counts=[0, 0], explicit_bounds=[math.nan]), "bucket_bounds"),
    "bound of infinity": (histogram(count=0, bucket_counts=[0, 0], explicit_bounds=[math.inf]), "bucket_bounds"),
    "buckets below the count": (histogram(count=4, bucket_counts=[1, 2], explicit_bounds=[1.0]), "bucket_sum"),
    "buckets above the count": (histogram(count=2, bucket_counts=[1, 2], explicit_bounds=[1.0]), "bucket_sum"),
    "buckets that wrap around": (
        histogram(count=0, bucket_counts=[2**63 - 1, 2**63 - 1, 2], explicit_bounds=[1.0, 2.0]),
        "bucket_sum",
    ),
    "count beyond int64": (histogram(count=2**63), "count_range"),
    "bucket beyond int64": (
        histogram(count=0, bucket_counts=[2**63, 2**63], explicit_bounds=[1.0]),
        "count_range",
    ),
    "exponential buckets below the count": (exponential(count=9, zero_count=1, positive=buckets(0, 3)), "bucket_sum"),
    "exponential bucket beyond int64": (exponential(positive=buckets(0, 2**63, 2**63)), "count_range"),
    "scale too fine": (exponential(scale=21), "scale_range"),
    "scale too coarse": (exponential(scale=-12), "scale_range"),
    "bucket index beyond int32": (exponential(count=1, positive=buckets(2**31 - 1, 1)), "bucket_layout"),
    "threshold below zero": (exponential(zero_threshold=-1.0), "bucket_layout"),
    "threshold of NaN": (exponential(zero_threshold=math.nan), "bucket_layout"),
    "metric without data": (Metric(name="m"), "no_data"),
}


@pytest.mark.parametrize(("metric", "reason"), REFUSED.values(), ids=REFUSED)
def test_point_is_refused_with_its_reason_and_makes_no_series(metric: Metric, reason: str) -> None:
    table = SeriesTable()
    decoded = decode(metric, table)
    assert decoded.refused == {reason: 1}
    assert decoded.rejected == []
    assert len(decoded.points.numbers.series) + len(decoded.points.histograms.series) == 0
    assert len(decoded.points.exponentials.series) == 0
    assert table.series_by_key == {}
    assert table.node_by_id == {}


KEPT = {
    "a minute ahead": gauge(as_int=1, time_unix_nano=NOW_NS + 60 * SECOND),
    "an hour old": gauge(as_int=1, time_unix_nano=NOW_NS - 3600 * SECOND),
    "flags without the first bit": gauge(as_int=1, time_unix_nano=NOW_NS, flags=0xFFFFFFFE),
    "gauge below zero": gauge(as_double=-1.0, time_unix_nano=NOW_NS),
    "up-down counter below zero": total(monotonic=False, as_int=-1, time_unix_nano=NOW_NS),
    "delta": total(1, as_int=1, time_unix_nano=NOW_NS),
}


@pytest.mark.parametrize("metric", KEPT.values(), ids=KEPT)
def test_point_is_kept(metric: Metric) -> None:
    decoded = decode(metric)
    assert decoded.refused == {}
    assert len(decoded.points.numbers.series) == 1


@pytest.mark.parametrize("temporality", [0, 3, 2**31 - 1])
@pytest.mark.parametrize("make", [total, histogram], ids=["sum", "histogram"])
def test_unspecified_temporality_goes_to_the_dead_letter_as_a_request_of_its_own(
    temporality: int, make: Callable[..., Metric]
) -> None:
    metric = make(temporality, time_unix_nano=NOW_NS)
    good = gauge(as_int=1, time_unix_nano=NOW_NS)
    decoded = make_decoder().decode(request(one_resource(HOST, metric, good)), RECORD_MS)
    assert decoded.refused == {"no_temporality": 1}
    assert len(decoded.points.numbers.series) == 1
    ((reason, raw),) = decoded.rejected
    assert reason == "unspecified_temporality"
    assert ExportMetricsServiceRequest.FromString(raw).resource_metrics[0] == one_resource(HOST, metric)


def test_a_sum_without_points_needs_no_temporality() -> None:
    metric = Metric(name="m")
    metric.sum.is_monotonic = True
    decoded = decode(metric)
    assert (decoded.refused, decoded.rejected) == ({}, [])


def test_integers_beyond_2_to_53_stay_exact() -> None:
    value = 2**53 + 1
    numbers = decode(total(as_int=value, time_unix_nano=NOW_NS, start_time_unix_nano=5)).points.numbers
    assert numbers.integer.tolist() == [value]
    assert numbers.is_int.tolist() == [True]
    assert numbers.value.tolist() == [float(value)]
    assert (numbers.time_ns.tolist(), numbers.start_ns.tolist()) == ([NOW_NS], [5])
    assert [column.dtype for column in (numbers.series, numbers.time_ns, numbers.value)] == [
        np.int32,
        np.int64,
        np.float64,
    ]


def test_a_start_behind_the_point_is_no_start() -> None:
    points = decode(total(as_int=1, time_unix_nano=NOW_NS, start_time_unix_nano=NOW_NS + 1)).points
    assert points.numbers.start_ns.tolist() == [0]


def test_explicit_histogram_arrives_whole() -> None:
    metric = histogram(
        count=6, sum=2.5, min=0.1, max=9.0, bucket_counts=[1, 2, 3], explicit_bounds=[1.0, 5.0], start_time_unix_nano=7
    )
    metric.histogram.data_points.add(time_unix_nano=NOW_NS + 1, count=4, sum=math.inf)
    metric.histogram.data_points.add(time_unix_nano=NOW_NS + 2, count=2, bucket_counts=[2])
    points = decode(metric).points.histograms
    assert points.count.tolist() == [6, 4, 2]
    assert points.start_ns.tolist() == [7, 0, 0]
    np.testing.assert_array_equal(points.total, [2.5, np.nan, np.nan])
    np.testing.assert_array_equal(points.low, [0.1, np.nan, np.nan])
    np.testing.assert_array_equal(points.high, [9.0, np.nan, np.nan])
    assert points.counts.tolist() == [1, 2, 3, 2]
    assert points.count_at.tolist() == [0, 3, 3, 4]
    assert points.bounds.tolist() == [1.0, 5.0]
    assert points.bound_at.tolist() == [0, 2, 2, 2]


def test_exponential_histogram_arrives_whole() -> None:
    metric = exponential(
        count=11,
        sum=1.0,
        scale=-3,
        zero_count=1,
        zero_threshold=0.5,
        positive=buckets(-4, 1, 0, 2),
        negative=buckets(2, 7),
    )
    metric.exponential_histogram.data_points.add(time_unix_nano=NOW_NS, scale=20)
    points = decode(metric).points.exponentials
    assert points.scale.tolist() == [-3, 20]
    assert points.zero_count.tolist() == [1, 0]
    assert points.zero_threshold.tolist() == [0.5, 0.0]
    assert points.positive_offset.tolist() == [-4, 0]
    assert points.positive.tolist() == [1, 0, 2]
    assert points.positive_at.tolist() == [0, 3, 3]
    assert points.negative_offset.tolist() == [2, 0]
    assert points.negative.tolist() == [7]
    assert points.negative_at.tolist() == [0, 1, 1]


def summary(**changes: object) -> Metric:
    metric = Metric(name="rpc", unit="s")
    point = SummaryDataPoint(time_unix_nano=NOW_NS, start_time_unix_nano=3, count=8, sum=2.0)
    point.attributes.extend(key_values({"method": "get"}))
    point.quantile_values.add(quantile=0.5, value=0.25)
    point.quantile_values.add(quantile=0.99, value=1.5)
    metric.summary.data_points.append(point)
    for name, value in changes.items():
        setattr(metric.summary.data_points[0], name, value)
    return metric


def test_summary_becomes_two_counters_and_a_gauge_for_each_quantile() -> None:
    table = SeriesTable()
    decoded = decode(summary(), table)
    numbers = decoded.points.numbers
    assert numbers.value.tolist() == [8.0, 2.0, 0.25, 1.5]
    assert numbers.is_int.tolist() == [True, False, False, False]
    assert set(numbers.start_ns.tolist()) == {3}
    sources = [table.series[index].source for index in numbers.series]  # type: ignore[union-attr]
    assert [source.metric for source in sources] == ["rpc.count", "rpc.sum", "rpc", "rpc"]
    assert [source.kind for source in sources] == [Kind.SUM, Kind.SUM, Kind.GAUGE, Kind.GAUGE]
    assert [source.temporality for source in sources[:2]] == [Temporality.CUMULATIVE] * 2
    assert [source.monotonic for source in sources] == [True, True, False, False]
    assert [source.labels for source in sources] == [
        {"method": "get"},
        {"method": "get"},
        {"method": "get", "quantile": "0.5"},
        {"method": "get", "quantile": "0.99"},
    ]


def test_a_summary_is_refused_part_by_part() -> None:
    metric = summary(sum=math.nan)
    metric.summary.data_points[0].quantile_values[0].value = math.nan
    metric.summary.data_points[0].quantile_values[1].quantile = 99.0
    decoded = decode(metric)
    assert decoded.points.numbers.value.tolist() == [8.0]
    assert decoded.refused == {"not_finite": 2, "quantile_range": 1}
    assert decode(summary(flags=1)).refused == {"no_recorded_value": 1}
    assert decode(summary(sum=-1.0)).refused == {"negative": 1}
    assert decode(summary(count=2**63)).refused == {"count_range": 1}


def test_overflow_series_are_kept_marked_and_counted() -> None:
    metric = gauge(as_int=1, time_unix_nano=NOW_NS)
    metric.gauge.data_points[0].attributes.extend(key_values({"otel.metric.overflow": True}))
    table = SeriesTable()
    decoded = decode(metric, table)
    assert decoded.refused == {"cardinality_overflow": 1}
    assert len(decoded.points.numbers.series) == 1
    assert table.series[0] is not None
    assert table.series[0].source.labels == {"otel.metric.overflow": "true"}


def test_points_keep_the_order_of_the_request() -> None:
    metric = Metric(name="m")
    times = [NOW_NS - i * SECOND for i in (3, 1, 2, 0)]
    metric.gauge.data_points.extend(NumberDataPoint(time_unix_nano=time, as_int=1) for time in times)
    assert decode(metric).points.numbers.time_ns.tolist() == times


def test_a_histogram_point_without_anything_but_a_time_counts_nothing() -> None:
    metric = Metric(name="m")
    metric.histogram.aggregation_temporality = 1
    metric.histogram.data_points.append(HistogramDataPoint(time_unix_nano=NOW_NS))
    assert decode(metric).points.histograms.count.tolist() == [0]


def test_points_that_were_handed_out_stay_as_they_are() -> None:
    """Number points lie where they were decoded; neither later requests, read or refused, nor a flood touch them."""
    chance = random.Random(8)
    decoder = make_decoder(series_per_node=3_000)
    held = []
    for k in range(300):
        count = chance.choice((0, 1, 7, 100, 2_000)) if k % 50 else 9_000
        metric = Metric(name="m")
        for i in range(count):
            value = {"as_int": k} if (i + k) % 2 else {"as_double": float(k)}
            labels = key_values({"i": i, "k": k % 3})
            metric.gauge.data_points.add(time_unix_nano=NOW_NS - k, start_time_unix_nano=k, attributes=labels, **value)
        raw = request(one_resource({"host.name": f"n{k % 2}"}, metric))
        numbers = decoder.decode(raw, RECORD_MS).points.numbers
        held.append((k, numbers, [getattr(numbers, name).tolist() for name in numbers.__slots__]))
        with pytest.raises(OtlpError):
            decoder.decode(raw + b"\x0a\x7f", RECORD_MS)
    for k, numbers, before in held:
        assert [getattr(numbers, name).tolist() for name in numbers.__slots__] == before
        assert set(numbers.value.tolist()) <= {float(k)}
        assert (numbers.integer[numbers.is_int] == k).all()
        assert set(numbers.time_ns.tolist()) <= {NOW_NS - k}
        assert set(numbers.start_ns.tolist()) <= {k}
