"""What a series of points adds up to: resets, first points, integers, increments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from fleetpulse.features import Status
from fleetpulse.features._series import Temporality
from support.feature_rig import Number, Rig, catalog_of, columns

CATALOG = catalog_of(
    '[source.c]\nmetrics = ["c"]\n[source.restarts]\nmetrics = ["restarts"]\ncounter = true\n'
    + columns(
        "increase: of = 'c'; aggregate = 'increase'",
        "rate: of = 'c'; aggregate = 'rate'",
        "increase_1m: of = 'c'; aggregate = 'increase'; window = '1m'",
        "rate_1m: of = 'c'; aggregate = 'rate'; window = '1m'",
        "highest: of = 'c'; aggregate = 'max'",
        "restarts: of = 'restarts'; aggregate = 'increase'",
    )
)

Point = tuple[float, float | int] | tuple[float, float | int, float]
NO = float("nan")

# name: points (time, value[, start]), the increase and the rate of the 5-minute window that the last one ends.
CUMULATIVE: dict[str, tuple[Sequence[Point], float, float]] = {
    "plain": ([(0, 10), (60, 12), (120, 16)], 6, 6 / 120),
    "S7a start inside the window": ([(100, 50, 40)], 50, 50 / 60),
    "S7b start equals time": ([(100, 10**9, 100)], 0, NO),
    "S7c start two days ago": ([(100, 10**9, -172_800)], 0, NO),
    "start unknown": ([(100, 10**9)], 0, NO),
    "baseline then growth": ([(100, 10**9, 100), (160, 10**9 + 7, 100)], 7, 7 / 60),
    "declared reset counts in full": ([(0, 100, -500), (60, 110, -500), (120, 7, 90)], 17, 17 / 120),
    "declared reset to a higher value": ([(0, 100, -500), (60, 500, 30)], 500, 500 / 60),
    "undeclared reset counts in full": ([(0, 100), (60, 110), (120, 7)], 17, 17 / 120),
    "undeclared reset to zero": ([(0, 100), (60, 0), (120, 3)], 3, 3 / 120),
    "dip under one percent": ([(0, 1000), (60, 991), (120, 994)], 3, 3 / 120),
    "dip of one percent is a reset": ([(0, 1000), (60, 990)], 990, 990 / 60),
    "zero point at a restart": ([(0, 100, -500), (60, 0, 60), (120, 9, 60)], 9, 9 / 60),
    "start equal to the last time is no reset": ([(0, 100), (60, 130, 0)], 30, 0.5),
    "hole": ([(0, 0), (60, 60), (240, 240)], 240, 1.0),
    "S11 integers beyond 2**53": ([(0, 2**53 + 1), (60, 2**53 + 4)], 3, 3 / 60),
    "integers near 2**62": ([(0, 2**62 + 1), (60, 2**62 + 2)], 1, 1 / 60),
    "S12 integer then double": ([(0, 5), (60, 7.5), (120, 9)], 4, 4 / 120),
    "not a number is passed over": ([(0, 5), (60, math.nan), (120, 9)], 4, 4 / 120),
    "no change": ([(0, 5), (60, 5)], 0, 0),
}


@pytest.mark.parametrize("name", CUMULATIVE)
def test_cumulative_points_add_up(name: str) -> None:
    points, increase, rate = CUMULATIVE[name]
    rig = Rig(CATALOG)
    series = rig.series("c")
    for point in points:
        rig.send(Number(series, *point))
    assert rig.value("increase") == pytest.approx(increase, rel=1e-6)
    assert rig.value("rate") == pytest.approx(rate, rel=1e-6, nan_ok=True)


DELTA: dict[str, tuple[Sequence[Point], float, float]] = {
    "plain": ([(60, 3, 0), (120, 4, 60)], 7, 7 / 120),
    "hole between": ([(60, 3, 0), (180, 4, 120)], 7, 7 / 120),
    "without starts": ([(60, 3), (120, 4), (180, 5)], 12, 12 / 120),
    "overlap is a repetition": ([(60, 3, 0), (90, 100, 30), (120, 4, 60)], 7, 7 / 120),
    "double values": ([(60, 0.25, 0), (120, 0.5, 60)], 0.75, 0.75 / 120),
}


@pytest.mark.parametrize("name", DELTA)
def test_increments_add_up(name: str) -> None:
    points, increase, rate = DELTA[name]
    rig = Rig(CATALOG)
    series = rig.series("c", temporality=Temporality.DELTA)
    for point in points:
        rig.send(Number(series, *point))
    assert rig.value("increase") == pytest.approx(increase)
    assert rig.value("rate") == pytest.approx(rate)


def test_overlapping_increments_are_judged_in_order_of_time() -> None:
    rig = Rig(CATALOG)
    series = rig.series("c", temporality=Temporality.DELTA)
    assert rig.send(Number(series, 90, 100, 30)).duplicates == 0
    assert rig.send(Number(series, 60, 3, 0)).duplicates == 0
    assert rig.value("increase") == 3
    assert rig.send(Number(series, 100, 50, 80)).duplicates == 1
    assert rig.value("increase") == 3 + 50


@pytest.mark.parametrize("phase_s", [0, 0.001, 7, 30, 59.999])
def test_one_a_minute_is_five_in_five_minutes_at_any_phase(phase_s: float) -> None:
    """The node's time goes on by another series, so that the window lies anywhere against the counter's samples."""
    rig = Rig(CATALOG)
    counter, clock = rig.series("c"), rig.gauge("clock")
    for minute in range(12):
        rig.send(Number(counter, 60 * minute, 1000 + minute))
    rig.send(Number(clock, 660 + phase_s, 0))
    assert rig.value("increase") == 5
    assert rig.value("rate") == pytest.approx(1 / 60)


def test_baseline_may_lie_far_before_the_window() -> None:
    rig = Rig(CATALOG)
    series = rig.series("c")
    rig.send(Number(series, 0, 0))
    rig.send(Number(series, 1_000, 500))
    assert rig.value("increase") == 500
    assert rig.value("rate") == pytest.approx(0.5)


def test_sample_before_the_look_back_is_no_baseline() -> None:
    rig = Rig(CATALOG, look_back_s=1_000)
    series = rig.series("c")
    rig.send(Number(series, 0, 0))
    rig.send(Number(series, 1_000, 500))
    assert rig.value("increase") == 0
    assert math.isnan(rig.value("rate"))


def test_short_window_does_not_count_what_began_before_it() -> None:
    rig = Rig(CATALOG)
    series = rig.series("c")
    rig.send(Number(series, 290, 50, 100))
    assert (rig.value("increase"), rig.value("increase_1m")) == (50, 0)
    rig.send(Number(series, 300, 58, 100))
    assert (rig.value("increase"), rig.value("increase_1m")) == (58, 8)
    assert rig.value("rate_1m") == pytest.approx(0.8)


def test_rate_of_a_sum_counts_each_series_for_the_time_it_was_there() -> None:
    """Ten short-lived containers, one after the other, that use one core each make one core, not ten."""
    rig = Rig(CATALOG)
    for i in range(10):
        series = rig.series("c", {"container": str(i)})
        begin = 30.0 * i
        rig.send(Number(series, begin + 30, 30.0, begin + 0.001))
    assert rig.value("increase") == pytest.approx(300)
    assert rig.value("rate") == pytest.approx(1, rel=1e-3)


def test_gauge_that_is_really_a_counter_can_be_read_as_one() -> None:
    rig = Rig(CATALOG)
    series = rig.gauge("restarts")
    for time_s, value in ((0, 4), (60, 4), (120, 6)):
        rig.send(Number(series, time_s, value))
    assert rig.value("restarts") == 2


def test_gauge_has_no_rate() -> None:
    rig = Rig(CATALOG)
    series = rig.gauge("c")
    for time_s in range(5):
        rig.send(Number(series, time_s, time_s))
    assert rig.status("rate") is Status.MISSING
    assert rig.status("increase") is Status.MISSING


def test_scale_turns_the_series_unit_into_the_canonical_one() -> None:
    rig = Rig(CATALOG)
    series = rig.series("c", scale=0.001)
    rig.send(Number(series, 0, 0), Number(series, 60, 60_000))
    assert rig.value("rate") == pytest.approx(1)
    assert rig.value("highest") == pytest.approx(1)


def test_counter_at_a_large_offset_loses_nothing() -> None:
    rig = Rig(CATALOG)
    series = rig.series("c")
    for i in range(301):
        rig.send(Number(series, i, 2**60 + 3 * i))
    assert rig.value("increase") == 900
    assert rig.value("rate") == 3
