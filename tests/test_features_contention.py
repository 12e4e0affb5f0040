"""Contention: the ratio, its source, and when it is not known."""

from __future__ import annotations

import pytest

from fleetpulse.features import NodeVector, Status
from support.feature_rig import Number, Rig

RESOURCES = ("cpu", "memory", "disk", "network")


class FiveMinutes(Rig):
    """What the helpers below say becomes one record of five minutes, sampled every ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.samples: list[Number] = []

    def vector(self, node: str = "n") -> NodeVector:
        if self.samples:
            self.send(*self.samples)
            self.samples = []
        return super().vector(node)


def grown(rig: FiveMinutes, metric: str, per_second: float, labels: dict[str, str] | None = None) -> None:
    series = rig.series(metric, labels)
    rig.samples += [Number(series, t, 1000.0 + per_second * t) for t in range(0, 310, 10)]


def level(rig: FiveMinutes, metric: str, value: float, labels: dict[str, str] | None = None) -> None:
    series = rig.gauge(metric, labels)
    rig.samples += [Number(series, t, value) for t in range(0, 310, 10)]


def pressure(rig: FiveMinutes, resource: str, share: float) -> None:
    grown(rig, "system.pressure.total", share, {"resource": resource, "kind": "some"})


def cores(rig: FiveMinutes, n: int, steal: float = 0.0) -> None:
    for cpu in range(n):
        grown(rig, "system.cpu.time", 1.0 - steal, {"cpu": str(cpu), "state": "idle"})
        grown(rig, "system.cpu.time", steal, {"cpu": str(cpu), "state": "steal"})


def source(rig: Rig, feature: str) -> str | None:
    return rig.vector().sources.get(feature)


def test_s9_throttled_share_of_periods() -> None:
    rig = Rig()
    periods, throttled = rig.series("container.cpu.cfs.periods"), rig.series("container.cpu.cfs.throttled_periods")
    rig.send(Number(periods, 0, 1_000), Number(throttled, 0, 7))
    rig.send(Number(periods, 60, 1_600), Number(throttled, 60, 547))
    assert rig.value("contention_cpu_5m") == pytest.approx(0.9)
    assert source(rig, "contention_cpu_5m") == "throttled"
    assert rig.value("contention_cpu_high_share_5m") == 1.0


def test_s9_throttling_not_reported_is_null() -> None:
    rig = Rig()
    periods = rig.series("container.cpu.cfs.periods")
    rig.send(Number(periods, 0, 1_000), Number(periods, 60, 1_600))
    assert rig.status("contention_cpu_5m") is Status.MISSING
    assert source(rig, "contention_cpu_5m") is None


def test_s9_no_period_at_all_is_null() -> None:
    rig = Rig()
    periods, throttled = rig.series("container.cpu.cfs.periods"), rig.series("container.cpu.cfs.throttled_periods")
    rig.send(Number(periods, 0, 1_000), Number(throttled, 0, 7))
    rig.send(Number(periods, 60, 1_000), Number(throttled, 60, 7))
    assert rig.status("contention_cpu_5m") is Status.MISSING


@pytest.mark.parametrize(("resource", "named"), [("cpu", "cpu"), ("memory", "memory"), ("disk", "io")])
def test_s10_pressure_totals_are_used_where_they_exist(resource: str, named: str) -> None:
    rig = FiveMinutes()
    cores(rig, 2, steal=0.5)
    grown(rig, "system.disk.io_time", 0.1, {"device": "sda"})
    grown(rig, "system.disk.weighted_io_time", 1.0, {"device": "sda"})
    pressure(rig, named, 0.07)
    assert rig.value(f"contention_{resource}_5m") == pytest.approx(0.07)
    assert source(rig, f"contention_{resource}_5m") == "pressure"
    assert rig.value(f"contention_{resource}_high_share_5m") == 0.0


def test_s10_without_pressure_number_and_source_differ_and_memory_is_null() -> None:
    rig = FiveMinutes()
    cores(rig, 2, steal=0.5)
    grown(rig, "system.disk.io_time", 0.25, {"device": "sda"})
    grown(rig, "system.disk.weighted_io_time", 1.0, {"device": "sda"})
    assert rig.value("contention_cpu_5m") == pytest.approx(0.5)
    assert source(rig, "contention_cpu_5m") == "steal"
    assert rig.value("contention_disk_5m") == pytest.approx(0.75)
    assert source(rig, "contention_disk_5m") == "waiting"
    assert rig.status("contention_memory_5m") is Status.MISSING


def test_s10_without_any_source_all_are_null_and_coverage_is_none() -> None:
    rig = Rig()
    rig.send(Number(rig.gauge("unused"), 0, 1.0))
    for resource in RESOURCES:
        assert rig.status(f"contention_{resource}_5m") is Status.MISSING
    assert rig.vector().sources == {}
    assert rig.vector().window_covered_ms == 0


@pytest.mark.parametrize(
    ("steal", "throttled", "load", "wanted", "named"),
    [
        (0.3, 0.2, 4.0, 0.3, "steal"),
        (0.3, 0.6, 4.0, 0.6, "throttled"),
        (0.3, 0.6, 20.0, 0.8, "run_queue"),
        (0.0, 0.0, 0.0, 0.0, "steal"),
    ],
)
def test_cpu_takes_the_largest_measure_of_saturation(
    steal: float, throttled: float, load: float, wanted: float, named: str
) -> None:
    rig = FiveMinutes()
    cores(rig, 4, steal)
    level(rig, "system.cpu.load_average.1m", load)
    grown(rig, "container.cpu.cfs.periods", 10.0)
    grown(rig, "container.cpu.cfs.throttled_periods", 10.0 * throttled)
    assert rig.value("contention_cpu_5m") == pytest.approx(wanted)
    assert source(rig, "contention_cpu_5m") == named
    assert rig.status("contention_cpu_5m") is Status.OK
    assert rig.value("contention_cpu_1m") == pytest.approx(wanted)


def test_high_share_is_the_part_of_the_window_above_a_tenth() -> None:
    rig = Rig()
    series = rig.series("system.pressure.total", {"resource": "cpu", "kind": "some"})
    total = 0.0
    for t in range(0, 310, 10):
        total += 10 * (0.5 if t > 225 else 0.02)
        rig.send(Number(series, t, total))
    assert rig.value("contention_cpu_high_share_5m") == pytest.approx(80 / 300)


def test_network_is_dropped_over_offered_packets() -> None:
    rig = FiveMinutes()
    for direction, packets, dropped in (("receive", 90.0, 10.0), ("transmit", 80.0, 20.0)):
        labels = {"device": "eth0", "direction": direction}
        grown(rig, "system.network.packets", packets, labels)
        grown(rig, "system.network.dropped", dropped, labels)
    assert rig.value("contention_network_5m") == pytest.approx(30 / 200)
    assert source(rig, "contention_network_5m") == "dropped"


def test_idle_disk_and_network_contend_for_nothing() -> None:
    rig = FiveMinutes()
    for metric in ("system.disk.io_time", "system.disk.weighted_io_time"):
        grown(rig, metric, 0.0, {"device": "sda"})
    for metric in ("system.network.packets", "system.network.dropped"):
        grown(rig, metric, 0.0, {"device": "eth0", "direction": "receive"})
    assert (rig.value("contention_disk_5m"), rig.value("contention_network_5m")) == (0.0, 0.0)


def test_contention_stays_between_zero_and_one() -> None:
    rig = FiveMinutes()
    pressure(rig, "cpu", 1.3)
    assert rig.value("contention_cpu_5m") == 1.0
