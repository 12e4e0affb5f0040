"""`fleetpulse sampler`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fleetpulse.ingest._errors import UserError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

    from fleetpulse.ingest._exporter import KafkaMetricExporter
    from fleetpulse.ingest._sampler import Cost, Sampler
    from fleetpulse.ingest._settings import Settings

BATCH_MS = 500
SHUTDOWN_MS = 5_000


def sampler_command(
    interval: Annotated[str, typer.Option(help="Time between collections, from 10ms up.")] = "1s",
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="End after this long; without it, at Ctrl-C.", show_default=False)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Collect once, then end.")] = False,
    batch: Annotated[
        str | None,
        typer.Option(
            help="Collections made within this time share a record. Default: 500ms; 0 is a record for each.",
            show_default=False,
        ),
    ] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A resource attribute, like k8s.node.name=node-7; may be repeated. More come from "
            "OTEL_RESOURCE_ATTRIBUTES.",
            show_default=False,
        ),
    ] = None,
    to_stdout: Annotated[
        bool, typer.Option("--stdout", help="Print OTLP/JSON, one collection a line, instead of writing to Kafka.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show what the sampler costs.")] = False,
    topic: Annotated[
        str | None, typer.Option(help="Topic to write to, instead of FLEETPULSE_SOURCE_TOPIC.", show_default=False)
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(help="Kafka brokers, instead of FLEETPULSE_KAFKA_BOOTSTRAP.", show_default=False)
    ] = None,
) -> None:
    """Send this machine's own metrics: CPU, memory, pressure, disks, file systems, network, processes.

    They bear the names and labels of the OpenTelemetry Collector's host metrics receiver. What sampling costs is shown
    on standard error every ten seconds and at the end, and sent as metrics of its own.
    """
    from fleetpulse.ingest._durations import parse_duration
    from fleetpulse.ingest._sampler import INTERVAL_MS_MIN, counter_starts_ns

    interval_ms = parse_duration(interval)
    if interval_ms < INTERVAL_MS_MIN:
        raise UserError(f"an interval of {interval} is too short: {INTERVAL_MS_MIN}ms is the shortest")
    batch_ms = BATCH_MS if batch is None else 0 if batch.strip() in ("0", "0s", "0ms") else parse_duration(batch)
    attributes = _attributes(resource or [])
    seconds = 0.001 if once else seconds
    if to_stdout:
        from fleetpulse.ingest._sampler_json import JsonLinesExporter

        _sample(JsonLinesExporter(sys.stdout, counter_starts_ns()), interval_ms, seconds, attributes, quiet=True)
        return
    settings = _settings(topic, bootstrap)
    exporter = _connected(settings, interval_ms, batch_ms)
    try:
        sampler = _sample(exporter, interval_ms, seconds, attributes, quiet=quiet)
    finally:
        exporter.shutdown(SHUTDOWN_MS)
    if not quiet:
        _tell(f"in all, {sampler.cost().line()}")
    if exporter.lost_records and not exporter.sent_records:
        raise UserError(
            f"Kafka at {settings.kafka_bootstrap} took no record of topic {settings.source_topic}: check that the "
            "broker runs and that this user may write to the topic"
        )


def _attributes(given: list[str]) -> dict[str, str]:
    attributes = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UserError(f"--resource {text!r} is not name=value, like k8s.node.name=node-7")
        attributes[name.strip()] = value.strip()
    return attributes


def _settings(topic: str | None, bootstrap: str | None) -> Settings:
    from fleetpulse.ingest._settings import load_settings

    given = {"source_topic": topic, "kafka_bootstrap": bootstrap}
    return load_settings().model_copy(update={name: value for name, value in given.items() if value is not None})


def _connected(settings: Settings, interval_ms: int, batch_ms: int) -> KafkaMetricExporter:
    """An exporter with an open connection and a topic to write to. Raises UserError within about five seconds."""
    from kafka.errors import KafkaError

    from fleetpulse.ingest._exporter import KafkaMetricExporter
    from fleetpulse.ingest._produce import ensure_source_topic, hush_kafka_logs
    from fleetpulse.ingest._sampler import counter_starts_ns
    from fleetpulse.ingest._topics import kafka_security

    hush_kafka_logs()
    if ensure_source_topic(settings):
        _tell(f"created topic {settings.source_topic} with {settings.partitions} partitions")
    security = kafka_security(settings)
    if settings.kafka_ca_file is not None:
        security["ssl_cafile"] = settings.kafka_ca_file
    exporter = KafkaMetricExporter(
        settings.kafka_bootstrap,
        topic=settings.source_topic,
        batch_collections=max(1, batch_ms // interval_ms),
        batch_ms=batch_ms,
        record_bytes_max=settings.record_bytes_max,
        # A slow broker must not hold up the schedule.
        wait=False,
        starts_ns=counter_starts_ns(),
        security=security,
    )
    try:
        exporter.connect()
    except (KafkaError, OSError, ValueError) as error:
        exporter.shutdown(0)
        raise UserError(
            f"Topic {settings.source_topic} at {settings.kafka_bootstrap} cannot be written to "
            f"({type(error).__name__}): check the address that the broker advertises, and this user's rights"
        ) from None
    return exporter


def _sample(
    exporter: MetricExporter, interval_ms: int, seconds: float | None, attributes: dict[str, str], *, quiet: bool
) -> Sampler:
    """Run until the time is over or someone says stop, either of which is a good end."""
    import threading

    from fleetpulse.ingest._sampler import Sampler, machine_resource, machine_sources
    from fleetpulse.ingest._stopping import termination_interrupts

    _calm_garbage_collector()
    sampler = Sampler(
        exporter,
        interval_ms=interval_ms,
        resource=machine_resource(attributes),
        sources=machine_sources(),
        note=_tell,
    )
    try:
        with termination_interrupts():
            sampler.run(threading.Event(), seconds=seconds, report=None if quiet else _show)
    except KeyboardInterrupt:
        pass
    return sampler


def _calm_garbage_collector() -> None:
    """A tick makes and drops a few hundred objects, none of them in cycles: without this, each tick would set off a
    collection, and some of those would walk all modules."""
    import gc

    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _show(cost: Cost) -> None:
    _tell(cost.line())


def _tell(text: str) -> None:
    print(f"sampler: {text}", file=sys.stderr, flush=True)
