"""What is in a vector's window, what it says of its coverage and age, and what late and repeated samples change."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from fleetpulse.features import Status
from fleetpulse.features._series import Kind
from fleetpulse.features._vector import AGE_UNKNOWN_MS
from support.feature_rig import EPOCH_S, NS, Histogram, Number, Rig, catalog_of, columns

CATALOG = catalog_of(
    "[source.g]\nmetrics = ['g']\n[source.h]\nmetrics = ['h']\n[source.c]\nmetrics = ['c']\n"
    "[source.worst]\nmetrics = ['g']\neach = ['disk']\nacross = 'max'\n"
    "[source.size]\nmetrics = ['h']\neach = ['disk']\nacross = 'max'\n"
    "[source.present]\nmetrics = ['g']\ncombine = 'count'\n"
    "[source.twos]\nmetrics = ['g']\ncombine = 'count'\nvalue_is = 2\n"
    "[source.average]\nmetrics = ['g']\ncombine = 'mean'\n"
    + columns(
        "last: of = 'g'; aggregate = 'last'",
        "mean: of = 'g'; aggregate = 'mean'",
        "mean_1m: of = 'g'; aggregate = 'mean'; window = '1m'",
        "min: of = 'g'; aggregate = 'min'",
        "max: of = 'g'; aggregate = 'max'",
        "std: of = 'g'; aggregate = 'std'",
        "slope: of = 'g'; aggregate = 'slope'",
        "p50: of = 'g'; aggregate = 'p50'",
        "p99: of = 'g'; aggregate = 'p99'",
        "high: of = 'g'; aggregate = 'share_above'; above = 0.5",
        "share: of = 'g'; per = 'h'; aggregate = 'last'",
        "worst: of = 'worst'; per = 'size'; aggregate = 'last'",
        "present: of = 'present'; aggregate = 'last'",
        "twos: of = 'twos'; aggregate = 'last'",
        "average: of = 'average'; aggregate = 'last'",
        "rate: of = 'c'; aggregate = 'rate'",
        "quietest: of = 'c'; aggregate = 'min'",
    )
)


def fed(values: list[tuple[float, float]], metric: str = "g") -> Rig:
    rig = Rig(CATALOG)
    series = rig.gauge(metric) if metric == "g" else rig.series(metric)
    for time_s, value in values:
        rig.send(Number(series, time_s, value))
    return rig


def test_window_is_open_at_its_start_and_closed_at_its_end() -> None:
    rig = fed([(0, 100.0), (150, 1.0), (300, 2.0)])
    assert (rig.value("max"), rig.value("min")) == (2.0, 1.0)


@pytest.mark.parametrize("name", ["mean", "min", "max", "std", "slope", "p50", "p99", "high"])
def test_aggregates_of_a_regular_gauge_are_the_plain_ones(name: str) -> None:
    values = [0.1, 0.9, 0.3, 0.7, 0.6]
    rig = fed([(60.0 * i, x) for i, x in enumerate([5.0, *values])])
    centre = sum(values) / 5
    wanted = {
        "mean": centre,
        "min": 0.1,
        "max": 0.9,
        "std": math.sqrt(sum((x - centre) ** 2 for x in values) / 5),
        "slope": sum((i - 2) * x for i, x in enumerate(values)) / 10 / 60,
        "p50": 0.6,
        "p99": 0.7 + 0.96 * 0.2,
        "high": 0.6,
    }
    assert rig.value(name) == pytest.approx(wanted[name])


def test_mean_is_weighted_by_time() -> None:
    """Ten samples of 1 within ten seconds do not outweigh what a slow scrape saw over the rest."""
    rig = fed([(0, 0.0), (100, 0.0), (200, 0.0), *((200 + i, 1.0) for i in range(1, 11)), (300, 0.0)])
    short_gap = 1  # the usual interval: what the sample after a hole speaks for
    assert rig.value("mean") == pytest.approx(10 / (10 + 3 * short_gap), rel=1e-6)
    steady = fed([(0, 0.0), (10, 1.0), (20, 1.0), (35, 0.0)])
    assert steady.value("mean") == pytest.approx((0 * 10 + 10 + 10 + 0 * 15) / 45)


def test_mean_at_a_large_offset_keeps_its_digits() -> None:
    rig = fed([(i, 1e8 + (i % 2)) for i in range(301)])
    assert rig.value("mean") == pytest.approx(1e8 + 0.5)
    assert rig.value("std") == pytest.approx(0.5)


def test_constant_value_has_itself_as_mean_and_no_deviation() -> None:
    rig = fed([(7 * i, 0.1) for i in range(40)])
    assert rig.value("mean") == np.float32(0.1)
    assert rig.value("std") == 0


def test_s4_missing_point_makes_a_gauge_partial_and_a_rate_stays_right() -> None:
    times = (0, 60, 120, 240, 300)
    gauge = fed([(t, 7.0) for t in times])
    assert gauge.value("mean") == 7.0
    assert gauge.status("mean") is Status.PARTIAL
    assert gauge.vector().window_covered_ms == 240_000
    counter = fed([(t, 2.0 * t) for t in times], "c")
    assert counter.value("rate") == pytest.approx(2)
    assert counter.value("quietest") == pytest.approx(2)
    assert counter.status("rate") is Status.OK


def test_s4_nothing_spikes_when_points_resume() -> None:
    rig = Rig(CATALOG)
    series = rig.series("c")
    for t in (0, 60, 120, 240, 300, 360, 420):
        rig.send(Number(series, t, 2.0 * t))
        if t:
            assert rig.value("rate") == pytest.approx(2)


def test_s30_vector_says_how_much_of_the_window_it_covers() -> None:
    rig = Rig(CATALOG)
    series = rig.gauge("g")
    covered = []
    for t in range(0, 330, 10):
        rig.send(Number(series, t, 1.0))
        covered.append(rig.vector().window_covered_ms // 1000)
    assert covered[0] == 0
    assert covered[1:30] == list(range(20, 310, 10))
    assert set(covered[30:]) == {300}
    assert rig.status("mean") is Status.OK
    assert rig.vector().scrape_interval_ms == 10_000


def test_value_is_partial_until_its_window_has_been_seen() -> None:
    rig = Rig(CATALOG)
    series = rig.gauge("g")
    seen = {}
    for t in range(0, 310, 10):
        rig.send(Number(series, t, 1.0))
        seen[t] = (rig.status("mean"), rig.status("mean_1m"), rig.status("last"))
    assert seen[20] == (Status.PARTIAL, Status.PARTIAL, Status.OK)
    assert seen[60] == (Status.PARTIAL, Status.OK, Status.OK)
    assert seen[300] == (Status.OK, Status.OK, Status.OK)


def test_value_turns_stale_with_its_age_and_then_missing() -> None:
    rig = Rig(CATALOG)
    series, clock = rig.gauge("g"), rig.series("c")
    for t in range(0, 310, 10):
        rig.send(Number(series, t, 1.0), Number(clock, t, t))
    stages = []
    for t in range(310, 640, 5):
        rig.send(Number(clock, t, t))
        vector = rig.vector()
        column = CATALOG.index("last")
        stages.append((t - 300, Status(int(vector.status[column]))))
        if stages[-1][1] is not Status.MISSING:
            assert vector.age_ms[column] == (t - 300) * 1000
        else:
            assert vector.age_ms[column] == AGE_UNKNOWN_MS
            assert math.isnan(vector.values[column])
    assert all(status is Status.OK for age, status in stages if age <= 25)
    assert all(status is Status.STALE for age, status in stages if 25 < age < 300)
    assert all(status is Status.MISSING for age, status in stages if age >= 300)


def test_missing_is_never_zero() -> None:
    rig = Rig()
    series = rig.gauge("no.feature.uses.this")
    rig.send(Number(series, 0, 1.0))
    vector = rig.vector()
    told = [rig.catalog.index("cluster_time_sine"), rig.catalog.index("cluster_time_cosine")]
    others = [column for column in range(127) if column not in told]
    assert all(math.isnan(vector.values[column]) for column in others)
    assert set(vector.status[others]) == {Status.MISSING}
    assert vector.window_covered_ms == 0


def test_s8_newest_first_gives_the_same_vector_as_sorted() -> None:
    samples = [(float(t), math.sin(t)) for t in range(0, 290, 29)]
    in_order = fed(samples)
    one_by_one = fed(samples[::-1])
    at_once = Rig(CATALOG)
    series = at_once.gauge("g")
    added = at_once.send(*(Number(series, t, x) for t, x in samples[::-1]))
    assert (added.accepted, added.out_of_order) == (10, 9)
    assert in_order.bits() == one_by_one.bits() == at_once.bits()


def test_s3_repeated_requests_change_nothing_and_are_counted() -> None:
    rng = random.Random(1)
    rig = Rig()
    used = rig.series("system.cpu.time", {"cpu": "0", "state": "user"})
    unused = rig.gauge("no.feature.uses.this")
    histogram = rig.series("request.duration", kind=Kind.HISTOGRAM)
    other = rig.series("another.duration", kind=Kind.HISTOGRAM)
    request = [
        sample
        for t in (0, 10, 20, 30, 40)
        for sample in (
            Number(used, t, t),
            Number(unused, t, t),
            Histogram(histogram, t, [1.0], [t, t]),
            Histogram(other, t, [1.0], [t, t]),
        )
    ]
    assert rig.send(*request).accepted == 20
    before = rig.vector().to_bytes()
    again = rig.send(*request)
    assert (again.accepted, again.duplicates, again.dirty) == (0, 20, set())
    rng.shuffle(request)
    parts = [request[:3], request[3:11], request[11:]]
    assert sum(rig.send(*part).duplicates for part in parts) == 20
    assert rig.vector().to_bytes() == before


def test_repeated_time_with_another_value_changes_nothing() -> None:
    rig = fed([(0, 1.0), (10, 2.0)])
    before = rig.vector().to_bytes()
    assert rig.send(Number(0, 10, 99.0)).duplicates == 1
    assert rig.vector().to_bytes() == before


def test_late_sample_changes_no_vector() -> None:
    rig = fed([(0, 1.0), (400, 2.0)])
    before = rig.vector().to_bytes()
    added = rig.send(Number(0, 100, 99.0), Number(rig.gauge("g", {"new": "one"}), 50, 5.0))
    assert (added.accepted, added.late, added.dirty) == (0, 2, set())
    assert rig.vector().to_bytes() == before
    assert rig.send(Number(0, 100.001, 99.0)).accepted == 1, "just inside the window"


def test_lateness_is_judged_by_what_was_known_before_the_record() -> None:
    samples = [(float(t), float(t)) for t in range(0, 1000, 100)]
    sorted_rig = fed(samples)
    at_once = Rig(CATALOG)
    series = at_once.gauge("g")
    assert at_once.send(*(Number(series, t, x) for t, x in samples[::-1])).late == 0
    assert at_once.bits() == sorted_rig.bits()


def test_vector_carries_the_record_of_its_last_accepted_sample() -> None:
    rig = fed([(0, 1.0), (10, 2.0)])
    assert (rig.vector().partition, rig.vector().offset) == (3, 1)
    rig.send(Number(0, 10, 2.0))
    assert rig.vector().offset == 1
    rig.send(Number(0, 5, 2.0))
    assert rig.vector().offset == 3
    assert rig.vector().t_end_ns == (EPOCH_S + 10) * NS


def test_any_series_moves_the_nodes_time_and_no_other_nodes() -> None:
    rig = Rig(CATALOG)
    mine, unused, theirs = rig.gauge("g"), rig.gauge("unused"), rig.gauge("g", node="m")
    rig.send(Number(mine, 0, 1.0), Number(theirs, 0, 5.0))
    added = rig.send(Number(unused, 20, 0.0))
    assert added.dirty == {rig.table.node_by_id[("c", "n")]}
    assert rig.vector().t_end_ns == (EPOCH_S + 20) * NS
    assert rig.vector("m").t_end_ns == EPOCH_S * NS
    assert (rig.value("last"), rig.value("last", "m")) == (1.0, 5.0)


def test_series_that_has_ended_is_no_longer_summed() -> None:
    rig = Rig(CATALOG)
    stays, goes = rig.gauge("g", {"pod": "a"}), rig.gauge("g", {"pod": "b"})
    for t in range(0, 100, 10):
        rig.send(Number(stays, t, 1.0), Number(goes, t, 10.0))
    assert (rig.value("last"), rig.value("present")) == (11.0, 2.0)
    for t in range(100, 130, 10):
        rig.send(Number(stays, t, 1.0))
    assert (rig.value("last"), rig.value("present")) == (1.0, 1.0)
    assert rig.value("max") == 11.0


def test_two_reporters_of_one_machine_count_once() -> None:
    rig = Rig()
    labels = {"device": "eth0", "direction": "receive"}
    first, second = (rig.series("system.network.io", labels, resource=name) for name in ("one", "two"))
    pods = [rig.series("k8s.pod.cpu.time", resource=name) for name in ("pod a", "pod b")]
    for t in range(0, 310, 10):
        rig.send(*(Number(series, t, 100 * t) for series in (first, second, *pods)))
    for feature in ("network_receive_bytes_5m", "network_receive_bytes_1m", "network_receive_bytes_p99_5m"):
        assert rig.value(feature) == pytest.approx(100)
    assert rig.value("pods_cpu_cores_5m") == pytest.approx(200)
    assert rig.value("pods_count") == 2


def test_collector_that_comes_back_under_another_name_makes_no_spike() -> None:
    rig = Rig()
    labels = {"device": "eth0", "direction": "receive"}
    before = rig.series("system.network.io", labels, resource="one")
    after = rig.series("system.network.io", labels, resource="two")
    memory = [
        rig.series("system.memory.usage", {"state": "used"}, monotonic=False, resource=name) for name in ("one", "two")
    ]
    for t in range(0, 510, 10):
        old = t <= 250
        rig.send(Number(before if old else after, t, 100 * t), Number(memory[0 if old else 1], t, 7.0))
        if t:
            assert rig.value("network_receive_bytes_5m") <= 100.001, t
            assert rig.value("network_receive_bytes_p99_5m") <= 100.001, t
            assert rig.value("memory_capacity_bytes") == 7.0, t


def test_series_with_other_phases_are_summed_scrape_by_scrape() -> None:
    rig = Rig(CATALOG)
    early, delayed = rig.gauge("g", {"pod": "a"}), rig.gauge("g", {"pod": "b"})
    for t in range(0, 310, 10):
        rig.send(Number(early, t, 1.0))
        rig.send(Number(delayed, t + 0.004, 10.0))
    assert (rig.value("min"), rig.value("max"), rig.value("mean")) == (11.0, 11.0, 11.0)


def test_rates_of_series_with_other_phases_are_summed_scrape_by_scrape() -> None:
    rig = Rig(CATALOG)
    first, second = rig.series("c", {"pod": "a"}), rig.series("c", {"pod": "b"})
    for t in range(0, 310, 10):
        rig.send(Number(first, t, t))
        rig.send(Number(second, t + 4.0, 10 * t))
    assert rig.value("quietest") == pytest.approx(11)
    assert rig.value("rate") == pytest.approx(11, rel=0.02)


def test_share_is_taken_group_by_group() -> None:
    rig = Rig(CATALOG)
    sizes = {"a": (90.0, 100.0), "b": (10.0, 1000.0)}
    for disk, (used, size) in sizes.items():
        rig.send(Number(rig.gauge("g", {"disk": disk}), 0, used), Number(rig.gauge("h", {"disk": disk}), 0, size))
    assert rig.value("worst") == pytest.approx(0.9)
    assert rig.value("share") == pytest.approx(100 / 1100)


def test_count_of_a_value_is_zero_when_none_has_it() -> None:
    rig = Rig(CATALOG)
    phases = [rig.gauge("g", {"pod": str(i)}) for i in range(4)]
    rig.send(*(Number(series, 0, value) for series, value in zip(phases, (1, 2, 2, 4), strict=True)))
    assert (rig.value("twos"), rig.value("present"), rig.value("average")) == (2.0, 4.0, 2.25)
    rig.send(*(Number(series, 10, 1) for series in phases))
    assert rig.value("twos") == 0.0


def test_silent_series_is_forgotten_and_vectors_do_not_notice() -> None:
    forgetful, keeping = Rig(CATALOG), Rig(CATALOG)
    for rig in (forgetful, keeping):
        silent, lively = rig.series("c", {"a": "1"}), rig.series("c", {"a": "2"})
        rig.send(Number(silent, 0, 5))
        for t in range(0, 1_500, 100):
            rig.send(Number(lively, t, t))
            if rig is forgetful:
                gone = rig.state.forget_silent()
                assert gone == ([silent] if t == 1_300 else [])
                rig.table.forget(gone)
        rig.send(Number(rig.series("c", {"a": "1"}), 1_450, 900))
    assert forgetful.bits() == keeping.bits()


def test_place_of_a_forgotten_series_serves_another() -> None:
    rig = Rig(CATALOG)
    silent, clock = rig.gauge("g"), rig.series("c")
    rig.send(Number(silent, 0, 7.0))
    for t in range(0, 1_600, 200):
        rig.send(Number(clock, t, t))
    rig.table.forget(rig.state.forget_silent())
    assert rig.gauge("h") == silent
    rig.send(Number(silent, 1_400, 3.0))
    assert rig.status("last") is Status.MISSING


def test_forgotten_node_starts_anew() -> None:
    rig = fed([(0, 1.0), (1_000, 2.0)])
    node = rig.table.node_by_id[("c", "n")]
    rig.state.forget_node(node)
    rig.table.forget([0])
    assert rig.state.t_end_ns(node) == 0
    series = rig.gauge("g")
    assert rig.send(Number(series, 0, 5.0)).accepted == 1
    assert rig.value("last") == 5.0


def test_time_of_day_is_told_in_utc() -> None:
    rig = Rig()
    series = rig.gauge("anything")
    second = EPOCH_S % 86_400
    rig.send(Number(series, 0, 1.0))
    assert rig.value("cluster_time_sine") == pytest.approx(math.sin(2 * math.pi * second / 86_400), rel=1e-6)
    assert rig.value("cluster_time_cosine") == pytest.approx(math.cos(2 * math.pi * second / 86_400), rel=1e-6)
    assert rig.status("cluster_pending_pods") is Status.MISSING
