"""Quantiles of histograms: the window's own observations, merged over services, with bounds and marks."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from fleetpulse.features import Status
from fleetpulse.features._distributions import Explicit, Side, merged_exponential
from fleetpulse.features._distributions import Exponential as Buckets
from fleetpulse.features._quantiles import Intervals, quantile
from fleetpulse.features._series import Kind, Temporality
from support.feature_rig import Exponential, Histogram, Rig, catalog_of, columns

BOUNDS = [0.1, 1.0, 10.0]
DELTA = Temporality.DELTA


def service(rig: Rig, name: str = "a", *, temporality: Temporality | None = None, scale: float = 1.0) -> int:
    return rig.series("request.duration", {"service": name}, kind=Kind.HISTOGRAM, temporality=temporality, scale=scale)


def exponential_service(rig: Rig, name: str = "a", scale: float = 1.0) -> int:
    return rig.series("request.duration", {"service": name}, kind=Kind.EXPONENTIAL_HISTOGRAM, scale=scale)


def quantiles(rig: Rig, q: str = "p99") -> tuple[float, float, float]:
    return tuple(rig.value(f"request_{q}{part}_5m") for part in ("", "_low", "_high"))  # type: ignore[return-value]


# ---- windows of explicit histograms


def test_s5_quantile_comes_from_the_windows_observations() -> None:
    rig = Rig()
    series = service(rig)
    rig.send(Histogram(series, 0, BOUNDS, [1000, 0, 0, 1000]))
    rig.send(Histogram(series, 60, BOUNDS, [1300, 0, 0, 1000]))
    assert rig.value("request_count_5m") == 300
    assert quantiles(rig) == pytest.approx((0.099, 0.0, 0.1))
    assert rig.value("request_p99_saturated_5m") == 0.0


def test_s24_one_bucket_is_marked_and_bounded() -> None:
    rig = Rig()
    series = service(rig)
    bounds = [5.0, 10.0, 25.0]
    rig.send(Histogram(series, 0, bounds, [0, 0, 0, 0]), Histogram(series, 60, bounds, [1000, 0, 0, 0]))
    value, low, high = quantiles(rig)
    assert (low, high) == (0.0, 5.0)
    assert 0 < value <= 5
    assert rig.vector().sources["request_p99_5m"] == "single bucket"


def test_s24_largest_observation_bounds_increments() -> None:
    rig = Rig()
    series = service(rig, temporality=DELTA)
    rig.send(Histogram(series, 60, [5.0, 10.0], [1000, 0, 0], start_s=0, low=0.04, high=0.12))
    value, low, high = quantiles(rig)
    assert (low, high) == pytest.approx((0.04, 0.12))
    assert 0.04 <= value <= 0.12 + 1e-6


@pytest.mark.parametrize("temporality", [DELTA, Temporality.CUMULATIVE])
def test_s25_above_the_last_bound_is_saturated(temporality: Temporality) -> None:
    rig = Rig()
    series = service(rig, temporality=temporality)
    rig.send(Histogram(series, 0, BOUNDS, [0, 0, 0, 0], start_s=-1))
    rig.send(Histogram(series, 60, BOUNDS, [500, 300, 180, 20], start_s=-1 if temporality is not DELTA else 0))
    assert rig.value("request_p99_5m") == 10.0
    assert rig.value("request_p99_low_5m") == 10.0
    assert rig.status("request_p99_high_5m") is Status.MISSING
    assert rig.value("request_p99_saturated_5m") == 1.0
    assert rig.vector().sources["request_p99_5m"] == "saturated"
    assert rig.value("request_p90_high_5m") == 10.0, "the 90th percentile is not"


NULLS = {
    "empty window": ([100, 5, 1, 0], [100, 5, 1, 0], BOUNDS, None, "no observations"),
    "one bucket only": ([100], [400], [], None, "one bucket only"),
    "no buckets": ([], [], [], 400, "one bucket only"),
    "count differs": ([1, 0, 0, 0], [300, 0, 0, 0], BOUNDS, 299, "count differs from buckets"),
}


@pytest.mark.parametrize("name", NULLS)
def test_s26_null_with_a_reason(name: str) -> None:
    first, last, bounds, count, reason = NULLS[name]
    rig = Rig()
    series = service(rig)
    rig.send(Histogram(series, 0, bounds, first, start_s=0, count=None if count is None else 1))
    rig.send(Histogram(series, 60, bounds, last, start_s=0, count=count))
    vector = rig.vector()
    for part in ("p50", "p90", "p99", "p99_low", "p99_high", "p99_saturated"):
        column = rig.catalog.index(f"request_{part}_5m")
        assert math.isnan(vector.values[column])
        assert vector.status[column] == Status.MISSING
    assert vector.sources["request_p99_5m"] == reason


def test_broken_point_of_one_service_leaves_the_other_partial() -> None:
    rig = Rig()
    good, bad = service(rig, "good"), service(rig, "bad")
    for t in range(0, 360, 60):
        rig.send(Histogram(good, t, BOUNDS, [t, 0, 0, 0]), Histogram(bad, t, BOUNDS, [t, 0, 0, 0], count=t + 1))
    assert rig.value("request_p99_5m") == pytest.approx(0.099)
    assert rig.status("request_p99_5m") is Status.PARTIAL
    assert rig.vector().sources["request_p99_5m"] == "single bucket"


CUMULATIVE: dict[str, tuple[Sequence[tuple[float, list[float], list[int], float | None]], int]] = {
    "growth": ([(0, [1.0], [10, 10], None), (60, [1.0], [12, 11], None)], 3),
    "first point, start inside": ([(60, [1.0], [5, 5], 10.0)], 10),
    "first point, start long ago": ([(60, [1.0], [5, 5], -9e4)], 0),
    "start equals time": ([(60, [1.0], [5, 5], 60.0)], 0),
    "declared reset": ([(0, [1.0], [10, 10], -9e4), (60, [1.0], [20, 20], 30.0)], 40),
    "undeclared reset": ([(0, [1.0], [10, 10], None), (60, [1.0], [3, 2], None)], 5),
    "undeclared reset seen in one bucket": ([(0, [1.0], [10, 10], None), (60, [1.0], [3, 30], None)], 33),
    "reset between growths": (
        [(0, [1.0], [10, 0], None), (60, [1.0], [15, 0], None), (120, [1.0], [2, 0], None), (180, [1.0], [6, 0], None)],
        5 + 2 + 4,
    ),
    "layout change is a new baseline": (
        [(0, [1.0], [10, 10], -9e4), (60, [2.0], [30, 30], -9e4), (120, [2.0], [31, 30], -9e4)],
        1,
    ),
    "layout change with a new start counts in full": ([(0, [1.0], [10, 10], -9e4), (60, [2.0], [3, 3], 30.0)], 6),
    "layout change with a drop counts in full": ([(0, [1.0], [10, 10], None), (60, [2.0], [3, 3], None)], 6),
    "layout there and back": (
        [
            (0, [1.0], [10, 0], None),
            (60, [2.0], [20, 0], None),
            (120, [1.0], [30, 0], None),
            (180, [1.0], [31, 1], None),
        ],
        2,
    ),
}


@pytest.mark.parametrize("name", CUMULATIVE)
def test_cumulative_histograms_count_what_came(name: str) -> None:
    points, count = CUMULATIVE[name]
    rig = Rig()
    series = service(rig)
    for time_s, bounds, counts, start_s in points:
        rig.send(Histogram(series, time_s, bounds, counts, start_s))
    assert rig.value("request_count_5m") == count
    mirrored = Rig()
    series = service(mirrored)
    for time_s, bounds, counts, start_s in reversed(points):
        mirrored.send(Histogram(series, time_s, bounds, counts, start_s))
    assert mirrored.bits() == rig.bits()


def test_increments_count_and_overlap_is_a_repetition() -> None:
    rig = Rig()
    series = service(rig, temporality=DELTA)
    rig.send(Histogram(series, 60, BOUNDS, [6, 0, 0, 0], start_s=0))
    rig.send(Histogram(series, 90, BOUNDS, [99, 0, 0, 0], start_s=30))
    rig.send(Histogram(series, 120, BOUNDS, [12, 0, 0, 0], start_s=60))
    assert rig.value("request_count_5m") == 18
    assert rig.value("request_rate_1m") == pytest.approx(12 / 60)


def test_window_slides_over_histograms() -> None:
    rig = Rig()
    series = service(rig)
    total = 0
    for minute in range(15):
        total += minute
        rig.send(Histogram(series, 60 * minute, BOUNDS, [total, 0, 0, 0]))
    assert rig.value("request_count_5m") == 10 + 11 + 12 + 13 + 14
    assert rig.value("request_rate_1m") == pytest.approx(14 / 60)
    assert rig.status("request_count_5m") is Status.OK
    assert rig.vector().window_covered_ms == 300_000
    assert rig.vector().scrape_interval_ms == 60_000


def test_bounds_are_turned_into_the_canonical_unit() -> None:
    rig = Rig()
    explicit = service(rig, "ms", temporality=DELTA, scale=0.001)
    rig.send(Histogram(explicit, 60, [100.0, 1000.0], [0, 50, 0], start_s=0, low=200, high=900))
    assert quantiles(rig) == pytest.approx((0.893, 0.2, 0.9))
    rig = Rig()
    series = exponential_service(rig, "ms", scale=0.001)
    rig.send(Exponential(series, 0, 0, {}), Exponential(series, 60, 0, {9: 10}))
    assert quantiles(rig)[1:] == pytest.approx((0.512, 1.024))


# ---- several services


def test_s27_merged_quantile_lies_between_what_each_layout_implies() -> None:
    rng = random.Random(27)
    for _ in range(20):
        rig = Rig()
        layouts = [sorted(rng.sample(range(1, 50), rng.randint(1, 6))) for _ in range(2)]
        alone = []
        for name, layout in zip("ab", layouts, strict=True):
            counts = [rng.randint(0, 40) for _ in layout] + [0]
            counts[0] += 1
            for target in (rig, own := Rig()):
                series = service(target, name, temporality=DELTA)
                target.send(Histogram(series, 60, [float(x) for x in layout], counts, start_s=0))
            alone.append(quantiles(own))
        value, low, high = quantiles(rig)
        assert min(a[1] for a in alone) <= low <= value <= high <= max(a[2] for a in alone), layouts
        assert min(a[0] for a in alone) - 1e-6 <= value <= max(a[0] for a in alone) + 1e-6


def test_same_layouts_of_two_services_are_summed_exactly() -> None:
    rig, pooled = Rig(), Rig()
    for name, counts in (("a", [5, 90, 3, 0]), ("b", [500, 1, 0, 2])):
        rig.send(Histogram(service(rig, name, temporality=DELTA), 60, BOUNDS, counts, start_s=0))
    pooled.send(Histogram(service(pooled, temporality=DELTA), 60, BOUNDS, [505, 91, 3, 2], start_s=0))
    assert rig.bits() == pooled.bits()


def test_explicit_and_exponential_services_are_merged() -> None:
    rig = Rig()
    rig.send(Histogram(service(rig, "a", temporality=DELTA), 60, [1.0, 2.0], [0, 100, 0], start_s=0))
    series = exponential_service(rig, "b")
    rig.send(Exponential(series, 0, 0, {}), Exponential(series, 60, 0, {3: 100}))
    assert rig.value("request_count_5m") == 200
    value, low, high = quantiles(rig)
    assert (low, high) == (8.0, 16.0)
    assert value == pytest.approx(8 * 2**0.98)
    assert rig.value("request_p50_5m") == pytest.approx(2.0)


# ---- exponential histograms


def bucket_of(x: float, scale: int) -> int:
    """Index of the bucket (base**k, base**(k + 1)] that holds x, found by stepping: slow and plain."""
    width = 2.0**-scale
    k = math.floor(math.log2(x) / width) - 2
    while 2.0 ** ((k + 1) * width) < x:
        k += 1
    return k


def histogram_of(values: Sequence[float], scale: int, zero_threshold: float) -> Buckets:
    positive = Counter(bucket_of(x, scale) for x in values if x > zero_threshold)
    negative = Counter(bucket_of(-x, scale) for x in values if x < -zero_threshold)
    zeros = sum(abs(x) <= zero_threshold for x in values)
    return Buckets(scale, zeros, zero_threshold, side(positive), side(negative))


def side(buckets: Counter[int]) -> Side:
    if not buckets:
        return Side(0, np.zeros(0, np.int64))
    first = min(buckets)
    return Side(first, np.array([buckets[k] for k in range(first, max(buckets) + 1)], np.int64))


def as_dict(histogram: Buckets) -> dict[str, object]:
    sides = {
        name: {s.offset + i: int(n) for i, n in enumerate(s.counts) if n}
        for name, s in (("+", histogram.positive), ("-", histogram.negative))
    }
    return {"scale": histogram.scale, "zeros": histogram.zero_count, **sides}


@pytest.mark.parametrize("seed", range(8))
def test_s6_merged_exponential_histograms_equal_that_of_the_pooled_values(seed: int) -> None:
    rng = random.Random(seed)
    parts, pooled = [], []
    for scale, zero_threshold in ((3, 0.0), (1, 0.001), (rng.randint(-2, 8), 0.0)):
        values = [rng.choice((1, 1, -1)) * 10 ** rng.uniform(-5, 3) for _ in range(200)] + [0.0] * rng.randint(0, 5)
        parts.append(histogram_of(values, scale, zero_threshold))
        pooled += values
    merged = merged_exponential(parts)
    assert merged.scale == min(part.scale for part in parts)
    assert merged.zero_threshold >= 0.001
    assert merged.count == len(pooled), "no count is lost"
    # The threshold is raised to the edge of a bucket; up to there everything counts as zero.
    assert as_dict(merged) == as_dict(histogram_of(pooled, merged.scale, merged.zero_threshold))


def test_s6_negative_offset_and_negative_range_through_the_state() -> None:
    catalog = catalog_of(
        "[source.x]\nmetrics = ['x']\nhistogram = true\n"
        + columns(
            "count: of = 'x'; aggregate = 'increase'",
            "p50: of = 'x'; aggregate = 'p50'",
            "p50_low: of = 'x'; aggregate = 'p50'; give = 'low'",
            "p999: of = 'x'; aggregate = 'p999'",
        )
    )
    rig = Rig(catalog)
    fine = rig.series("x", {"s": "fine"}, kind=Kind.EXPONENTIAL_HISTOGRAM, temporality=DELTA)
    coarse = rig.series("x", {"s": "coarse"}, kind=Kind.EXPONENTIAL_HISTOGRAM, temporality=DELTA)
    rig.send(
        Exponential(fine, 60, 3, {-20: 5, -9: 1}, {4: 30}, zero_count=2, zero_threshold=1e-6, start_s=0),
        Exponential(coarse, 60, 1, {0: 1, 7: 1}, {}, zero_count=1, zero_threshold=1e-3, start_s=0),
    )
    assert rig.value("count") == 5 + 1 + 30 + 2 + 1 + 1 + 1
    assert rig.value("p50_low") == pytest.approx(-(2**1.0))
    assert -2.0 <= rig.value("p50") <= -(2**0.5) + 1e-6
    assert rig.value("p999") == pytest.approx(16, rel=0.03)


def test_cumulative_exponential_may_change_its_scale() -> None:
    rig = Rig()
    series = exponential_service(rig)
    rig.send(Exponential(series, 0, 4, {-3: 2, 10: 5}), Exponential(series, 60, 2, {-1: 3, 2: 9}))
    assert rig.value("request_count_5m") == 1 + 4
    assert quantiles(rig)[1:] == pytest.approx((2 ** (2 / 4), 2 ** (3 / 4)))


def test_scale_there_and_back_hides_no_reset() -> None:
    rig = Rig()
    series = exponential_service(rig)
    rig.send(
        Exponential(series, 0, 2, {4: 5, 5: 0}),
        Exponential(series, 60, 0, {1: 7}),
        Exponential(series, 120, 2, {4: 0, 5: 9}),
    )
    assert rig.value("request_count_5m") == 4


def test_absurd_bucket_indexes_stay_bounded() -> None:
    far = Buckets(20, 0, 0.0, Side(-(2**30), np.array([1], np.int64)), Side(0, np.zeros(0, np.int64)))
    near = Buckets(20, 0, 0.0, Side(2**30, np.array([1], np.int64)), Side(0, np.zeros(0, np.int64)))
    merged = merged_exponential([far, near])
    assert merged.count == 2
    assert len(merged.positive.counts) <= 2048


# ---- quantiles against the values themselves


@pytest.mark.parametrize("seed", range(6))
def test_quantile_bounds_hold_the_true_quantile(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.sort(rng.lognormal(0, 1.5, 500))
    bounds = np.sort(rng.choice([0.01, 0.1, 0.5, 1, 2, 5, 10, 100, 1000], 5, replace=False))
    bounds[-1] = 1e6
    counts = np.histogram(values, np.concatenate(([0], bounds)))[0]
    explicit = Intervals.of_explicit(Explicit(bounds, np.append(counts, 0).astype(np.int64)))
    fine = Intervals.of_exponential(histogram_of(values.tolist(), 3, 0.0))
    for q in (0.5, 0.9, 0.95, 0.99):
        true = values[math.ceil(q * len(values)) - 1]
        for intervals in (explicit, fine):
            found = quantile(intervals, q)
            assert found.low <= found.value <= found.high
            assert found.low <= true <= found.high
        assert quantile(fine, q).value == pytest.approx(true, rel=2 ** (1 / 8) - 1)


def test_general_inversion_equals_the_simple_one() -> None:
    """Cut one layout's buckets in two halves: the general path must find what the simple one finds."""
    explicit = Explicit(np.array([1.0, 2.0, 5.0, 9.0]), np.array([4, 40, 8, 20, 0], np.int64))
    whole = Intervals.of_explicit(explicit)
    halves = Intervals(whole.low, whole.high, whole.n / 2, whole.even_in_log)
    twice = Intervals.join([halves, halves])
    for q in (0.01, 0.1, 0.5, 0.61, 0.9, 0.99):
        assert quantile(twice, q).value == pytest.approx(quantile(whole, q).value, rel=1e-12)
