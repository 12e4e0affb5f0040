"""The sampler: this machine's metrics as OpenTelemetry instruments, collected on a schedule of its own.

    sources (/proc, /sys, psutil) --read once per tick--> observable instruments --SDK--> MetricExporter

Sources that are read equally often share a meter provider, so that a tick costs nothing for what is not due: at
intervals of a second and more there is one provider, and all samples of a tick bear one time. Counters are cumulative
since boot: the SDK stamps a sum with the time of its own first measurement, so the exporter replaces that start time
(`starts_ns`), or a restart of the sampler would look like a restart of the machine.
"""

from __future__ import annotations

import math
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import (
    AlwaysOffExemplarFilter,
    Exemplar,
    ExemplarReservoir,
    MeterProvider,
    ObservableCounter,
    ObservableGauge,
    ObservableUpDownCounter,
)
from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader, MetricsData, ResourceMetrics
from opentelemetry.sdk.metrics.view import View
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.util.types import Attributes

from fleetpulse.ingest._exporter import KafkaMetricExporter
from fleetpulse.ingest._sampler_linux import linux_sources
from fleetpulse.ingest._sampler_metrics import INSTRUMENTS, SELF_INSTRUMENTS, Readings, Source
from fleetpulse.ingest._sampler_portable import FilesystemSource, portable_sources

HOST_SCOPE = "fleetpulse.sampler.host"
SELF_SCOPE = "fleetpulse.sampler.self"
INTERVAL_MS_MIN = 10
FILESYSTEMS_EVERY_MS = 1_000
# A machine of 512 CPUs has 4,096 series of CPU time; the SDK's own limit is 2,000.
SERIES_PER_INSTRUMENT_MAX = 100_000


@dataclass(frozen=True)
class Cost:
    """What the sampler did and took in a span of time. CPU is that of the whole process, all threads."""

    seconds: float
    collections: int
    samples: int
    ticks_missed: int
    records: int
    bytes: int
    records_lost: int
    cpu_s: float

    def line(self) -> str:
        """One line for a person."""
        span = max(self.seconds, 1e-9)
        each = self.samples / self.collections if self.collections else 0
        return (
            f"{self.seconds:.0f} s: {self.collections} collections of {each:.0f} samples, {self.records} records, "
            f"{self.bytes / span / 1000:.1f} kB/s, CPU {100 * self.cpu_s / span:.2f} % of one core, "
            f"{self.ticks_missed} ticks missed, {self.records_lost} records lost"
        )


def machine_sources() -> list[Source]:
    """The sources of the system that this runs on."""
    found = linux_sources() if sys.platform == "linux" else portable_sources()
    return [*found, FilesystemSource(FILESYSTEMS_EVERY_MS)]


def machine_resource(extra: Mapping[str, str]) -> Resource:
    """The resource of this machine: host.name, host.id, host.arch, os.type, host.type where known.

    OTEL_RESOURCE_ATTRIBUTES adds to it and overrides it, and `extra` overrides both. Nothing that changes with an
    upgrade of the sampler is in it, because a resource is part of every series' identity.
    """
    own: dict[str, str] = {
        "host.name": socket.gethostname(),
        "host.arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os.type": platform.system().lower(),
    }
    machine_id = _first_line("/etc/machine-id") or _first_line("/var/lib/dbus/machine-id")
    if machine_id:
        own["host.id"] = machine_id
    # On EC2 the product is the instance type; other clouds say only whose machine it is.
    if _first_line("/sys/class/dmi/id/sys_vendor") == "Amazon EC2":
        product = _first_line("/sys/class/dmi/id/product_name")
        if product:
            own["host.type"] = product
    return Resource(own).merge(OTELResourceDetector().detect()).merge(Resource(dict(extra)))


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().partition("\n")[0].strip()
    except OSError:
        return ""


def counter_starts_ns() -> dict[str, int]:
    """Scope -> since when its counters count: the machine's since boot, our own since our start."""
    return {
        HOST_SCOPE: int(psutil.boot_time()) * 1_000_000_000,
        SELF_SCOPE: int(psutil.Process().create_time() * 1000) * 1_000_000,
    }


class _NoExemplars(ExemplarReservoir):
    """Keeps none: a machine's counters belong to no trace."""

    def offer(self, value: float, time_unix_nano: int, attributes: Attributes, context: Context) -> None:
        pass

    def collect(self, point_attributes: Attributes) -> list[Exemplar]:
        return []


class _Group(MetricReader):
    """The sources of one period, their instruments, and the reader that collects them."""

    def __init__(self, period_ms: int, exporter: MetricExporter, resource: Resource) -> None:
        limits: Any = dict.fromkeys(
            (ObservableCounter, ObservableUpDownCounter, ObservableGauge), SERIES_PER_INSTRUMENT_MAX
        )
        super().__init__(
            preferred_temporality=exporter._preferred_temporality,
            preferred_aggregation=exporter._preferred_aggregation,
            cardinality_limits=limits,
        )
        self.period_ms, self.due_ms = period_ms, 0
        self.sources: list[Source] = []
        self._collected: list[ResourceMetrics] = []
        self._readings: Readings = {}
        self._every_ms: dict[str, int] = {}
        self._metric_due_ms: dict[str, int] = {}
        provider = MeterProvider(
            [self],
            resource=resource,
            exemplar_filter=AlwaysOffExemplarFilter(),
            views=[View(instrument_name="*", exemplar_reservoir_factory=lambda _: lambda **_: _NoExemplars())],
            shutdown_on_exit=False,
        )
        self._meters = {scope: provider.get_meter(scope) for scope in (HOST_SCOPE, SELF_SCOPE)}

    def through_instruments(self, readings: Readings, tick_ms: int) -> tuple[int, list[ResourceMetrics]]:
        """Number of samples among the readings that are due, and what the SDK makes of them."""
        due: Readings = {}
        for name, points in readings.items():
            if self._metric_due_ms.get(name, 0) <= tick_ms:
                if name not in self._metric_due_ms:
                    self._create(name)
                self._metric_due_ms[name] = tick_ms + self._every_ms[name]
                due[name] = points
        self._readings, self._collected = due, []
        if due:
            self.collect()
        return sum(map(len, due.values())), self._collected

    def _create(self, name: str) -> None:
        """An instrument is made when its first reading arrives: an empty one costs time at every tick."""
        instrument = INSTRUMENTS.get(name)
        meter = self._meters[HOST_SCOPE if instrument else SELF_SCOPE]
        instrument = instrument or SELF_INSTRUMENTS[name]
        create = {
            "counter": meter.create_observable_counter,
            "updown": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }[instrument.kind]

        def observe(_: CallbackOptions) -> list[Observation]:
            return [Observation(value, labels) for labels, value in self._readings.get(name, ())]

        create(name, [observe], unit=instrument.unit, description=instrument.description)
        self._every_ms[name] = instrument.every_ms

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        self._collected = list(metrics_data.resource_metrics)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Nothing is held."""


class _OwnSource:
    """What the sampler itself costs."""

    name = "sampler"
    every_ms = 1_000

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._process = psutil.Process()

    def read(self) -> Readings:
        cpu, cost = os.times(), self._sampler.cost()
        return {
            "process.cpu.time": [({"state": "user"}, cpu.user), ({"state": "system"}, cpu.system)],
            "process.memory.usage": [({}, self._process.memory_info().rss)],
            "fleetpulse.sampler.collections": [({}, cost.collections)],
            "fleetpulse.sampler.ticks_missed": [({}, cost.ticks_missed)],
            "fleetpulse.sampler.records": [({}, cost.records)],
            "fleetpulse.sampler.bytes": [({}, cost.bytes)],
            "fleetpulse.sampler.records_lost": [({}, cost.records_lost)],
        }


class Sampler:
    """Reads sources on absolute ticks and exports them. One thread runs it."""

    def __init__(
        self,
        exporter: MetricExporter,
        *,
        interval_ms: int,
        resource: Resource,
        sources: Iterable[Source],
        note: Callable[[str], None],
    ) -> None:
        """note: told, once each, of what this machine does not have or does not allow."""
        assert interval_ms >= INTERVAL_MS_MIN
        self.interval_ms = interval_ms
        self.collections = self.samples = self.ticks_missed = 0
        self._exporter = exporter
        self._note = note
        self._seen: set[str] = set()
        self._failing: set[str] = set()
        self._started_s, self._started_cpu_s = time.monotonic(), time.process_time()
        self._groups: dict[int, _Group] = {}
        for source in (*sources, _OwnSource(self)):
            period_ms = max(source.every_ms, interval_ms)
            if period_ms not in self._groups:
                self._groups[period_ms] = _Group(period_ms, exporter, resource)
            self._groups[period_ms].sources.append(source)

    def collect(self, tick_ms: int) -> int:
        """Read what is due at `tick_ms` (ms since the start) and export it. Returns the number of samples."""
        samples = 0
        collected: list[ResourceMetrics] = []
        skipped: list[str] = []
        for group in self._groups.values():
            if group.due_ms > tick_ms:
                continue
            # From the schedule, not from the time of the read, so that no lateness adds up.
            group.due_ms = tick_ms + group.period_ms
            readings: Readings = {}
            for source in list(group.sources):
                reason = self._read(source, readings)
                if reason and source.name not in self._seen:
                    group.sources.remove(source)
                    skipped.append(f"{source.name} ({reason})")
            count, metrics = group.through_instruments(readings, tick_ms)
            samples += count
            collected += metrics
        if collected:
            # A failure is counted and logged by the exporter.
            self._exporter.export(MetricsData(collected))
        if skipped:
            self._note(f"not on this machine, or not for this user, and left out: {', '.join(skipped)}")
        self.collections += 1
        self.samples += samples
        return samples

    def _read(self, source: Source, into: Readings) -> str:
        """Add the source's readings. Returns why it could not be read, or nothing."""
        try:
            readings = source.read()
        except (OSError, ValueError, KeyError, IndexError, psutil.Error) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            if source.name in self._seen and source.name not in self._failing:
                self._failing.add(source.name)
                self._note(f"{source.name} cannot be read any more ({reason}); tried again at every tick")
            return reason
        self._seen.add(source.name)
        for name, points in readings.items():
            if points:
                into.setdefault(name, []).extend(points)
        return ""

    def cost(self, since: Cost | None = None) -> Cost:
        """Everything since the start, or since an earlier cost of the whole."""
        kafka = self._exporter if isinstance(self._exporter, KafkaMetricExporter) else None
        whole = Cost(
            seconds=time.monotonic() - self._started_s,
            collections=self.collections,
            samples=self.samples,
            ticks_missed=self.ticks_missed,
            records=kafka.sent_records if kafka else 0,
            bytes=kafka.sent_bytes if kafka else 0,
            records_lost=kafka.lost_records if kafka else 0,
            cpu_s=time.process_time() - self._started_cpu_s,
        )
        if since is None:
            return whole
        return Cost(**{name: value - getattr(since, name) for name, value in vars(whole).items()})

    def run(
        self,
        stop: threading.Event,
        *,
        seconds: float | None = None,
        report_s: float = 10.0,
        report: Callable[[Cost], None] | None = None,
    ) -> Cost:
        """Collect at every multiple of the interval since now, until `stop` is set or `seconds` are over.

        A tick that passes while an earlier one is still being collected is missed, not made up for. `report` gets the
        cost of each `report_s`. Returns the cost of the whole.
        """
        started_s, tick = time.monotonic(), 0
        end = None if seconds is None else math.ceil(1000 * seconds / self.interval_ms)
        reported, report_at_s = self.cost(), started_s + report_s
        while not stop.is_set() and (end is None or tick < end):
            tick_ms = tick * self.interval_ms
            if stop.wait(max(0.0, started_s + tick_ms / 1000 - time.monotonic())):
                break
            self.collect(tick_ms)
            now_s = time.monotonic()
            reached = int((now_s - started_s) * 1000) // self.interval_ms
            reached = reached if end is None else min(reached, end)
            self.ticks_missed += max(0, reached - tick - 1)
            tick = max(tick + 1, reached)
            if report is not None and now_s >= report_at_s:
                report(self.cost(reported))
                reported, report_at_s = self.cost(), report_at_s + report_s
        return self.cost()
