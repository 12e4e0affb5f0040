"""`fleetpulse replay`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetpulse.ingest._errors import UserError

if TYPE_CHECKING:
    from rich.progress import Progress

    from fleetpulse.features import NodeVector
    from fleetpulse.ingest._replay import Recording, SourceRecord
    from fleetpulse.ingest._settings import Settings

INTERRUPTED = 130
SHOWN = (
    ("cpu", "cpu_busy_share_5m"),
    ("memory", "memory_used_share_5m"),
    ("disk", "disk_busy_share_5m"),
    ("received B/s", "network_receive_bytes_5m"),
    ("cpu cont.", "contention_cpu_5m"),
    ("request p99", "request_p99_5m"),
)
"""Heading and feature of the table's columns, as far as the catalog has them."""


def replay_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Recordings by the Collector's file exporter: JSON lines or length-prefixed protobuf, plain or "
            "compressed with zstd or gzip.",
            show_default=False,
        ),
    ],
    retime: Annotated[
        bool,
        typer.Option("--retime", help="Move all times by one amount, so that the recording is of now: see --history."),
    ] = False,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="With --retime: how long before now the first sample is (30s, 5m). Default: 0 with --speed, else the "
            "recording's length, so that its last sample is of now.",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            help="1 plays as recorded, 2 twice as fast; what is due in the past leaves at once. Default: as fast as "
            "possible.",
            show_default=False,
        ),
    ] = None,
    loop: Annotated[
        bool, typer.Option("--loop", help="Begin again at the end, the times moved on, until Ctrl-C. Needs --speed.")
    ] = False,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Run the pipeline in this process, without Kafka and Redis; print the vectors."),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="With --offline: each node's final vector as one JSON object a line, and on standard error one object "
            "that counts what was refused.",
        ),
    ] = False,
    topic: Annotated[
        str | None, typer.Option(help="Topic to write to, instead of FLEETPULSE_SOURCE_TOPIC.", show_default=False)
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(help="Kafka brokers, instead of FLEETPULSE_KAFKA_BOOTSTRAP.", show_default=False)
    ] = None,
) -> None:
    """Play recordings of OTLP metrics into the source topic, in the order of their times.

    A node's records have one key, so that they keep their order. Nothing is written before every file has been read.
    """
    from fleetpulse.ingest._stopping import termination_interrupts

    settings = _settings(topic, bootstrap)
    history_ms = _check_options(retime, history, speed, loop, offline, as_json)
    try:
        with termination_interrupts(), _progress(quiet=as_json) as progress:
            recording = _read(files, settings, progress)
            with recording:
                shift_ns = _shift_ns(recording, history_ms, speed) if retime else 0
                if offline:
                    result = _feed(recording, settings, shift_ns, progress)
                else:
                    _write(recording, settings, shift_ns, speed, loop, retime, progress)
        if offline:
            _print_offline(*result, as_json)
    except KeyboardInterrupt:
        # A loop has no other end.
        raise typer.Exit(0 if loop else INTERRUPTED) from None


def _settings(topic: str | None, bootstrap: str | None) -> Settings:
    from fleetpulse.ingest._settings import load_settings

    given = {"source_topic": topic, "kafka_bootstrap": bootstrap}
    return load_settings().model_copy(update={name: value for name, value in given.items() if value is not None})


def _check_options(
    retime: bool, history: str | None, speed: float | None, loop: bool, offline: bool, as_json: bool
) -> int | None:
    """The history in ms. Raises UserError for options that do not go together."""
    from fleetpulse.ingest._durations import parse_duration

    if as_json and not offline:
        raise UserError("--json prints vectors, which only --offline computes here: add --offline")
    if offline and (speed is not None or loop):
        raise UserError("--offline runs as fast as it can: leave out --speed and --loop")
    if history is not None and not retime:
        raise UserError("--history says where --retime moves the recording: add --retime")
    if speed is not None and not 0 < speed < float("inf"):
        raise UserError(f"--speed {speed:g} is no speed: write a number above 0, like 1 or 10")
    if loop and speed is None:
        raise UserError("--loop without --speed would write without end as fast as it can: add --speed 1")
    if history is None:
        return None
    return 0 if history.strip() in ("0", "0s", "0m") else parse_duration(history)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        yield progress


def _read(files: Sequence[Path], settings: Settings, progress: Progress) -> Recording:
    from fleetpulse.ingest._replay import Recording

    recording = Recording(identity=settings.identity.split(","), default_cluster=settings.cluster)
    try:
        for path in files:
            size = path.stat().st_size if path.exists() else None
            task = progress.add_task(f"reading {path.name}", total=size)
            recording.read(path, lambda done, task=task: progress.update(task, completed=done))  # type: ignore[misc]
            progress.remove_task(task)
    except BaseException:
        recording.__exit__()
        raise
    return recording


def _shift_ns(recording: Recording, history_ms: int | None, speed: float | None) -> int:
    if history_ms is not None:
        history_ns = history_ms * 1_000_000
    else:
        history_ns = recording.last_ns - recording.first_ns if speed is None else 0
    return time.time_ns() - history_ns - recording.first_ns


def _tracked(
    records: Iterator[SourceRecord], recording: Recording, progress: Progress, doing: str, loop: bool = False
) -> Iterator[SourceRecord]:
    task = progress.add_task(doing, total=None if loop else recording.resources)
    for record in records:
        yield record
        progress.advance(task, record.resources)


def _write(
    recording: Recording,
    settings: Settings,
    shift_ns: int,
    speed: float | None,
    loop: bool,
    retime: bool,
    progress: Progress,
) -> None:
    from fleetpulse.ingest._produce import RecordProducer, hush_kafka_logs
    from fleetpulse.ingest._replay import Playback, paced, passes

    hush_kafka_logs()
    with RecordProducer(settings) as producer:
        now_ns = time.time_ns()
        playback = Playback(speed, now_ns, now_ns if retime else recording.first_ns)
        records = passes(recording, record_bytes_max=settings.record_bytes_max, shift_ns=shift_ns, loop=loop)
        _note(progress, f"{_what(recording)}; samples of {_span(recording, shift_ns)}")
        if producer.created:
            _note(progress, f"created topic {producer.topic} with {settings.partitions} partitions")
        for record in _tracked(
            paced(records, playback, now_ns=time.time_ns, wait_s=time.sleep), recording, progress, "writing", loop
        ):
            producer.send(record.value, timestamp_ms=record.timestamp_ms, key=record.key)
    _note(progress, f"wrote {producer.sent_records} records ({producer.sent_bytes:,} bytes) to topic {producer.topic}")


def _note(progress: Progress, text: str) -> None:
    progress.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _what(recording: Recording) -> str:
    return (
        f"{recording.points:,} points in {recording.resources:,} resources of {len(recording.nodes)} nodes"
        f" ({recording.unattributed} resources name no node)"
    )


def _span(recording: Recording, shift_ns: int) -> str:
    return f"{_utc(recording.first_ns + shift_ns)} to {_utc(recording.last_ns + shift_ns)}"


def _utc(time_ns: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _feed(
    recording: Recording, settings: Settings, shift_ns: int, progress: Progress
) -> tuple[tuple[str, ...], list[NodeVector], dict[str, int]]:
    """Names of the features, the final vectors, and what was refused."""
    from fleetpulse.ingest._shard import OfflinePipeline

    pipeline = OfflinePipeline(settings)
    records = recording.records(record_bytes_max=settings.record_bytes_max, shift_ns=shift_ns)
    last: dict[tuple[str, str], NodeVector] = {}
    for record in _tracked(records, recording, progress, "computing"):
        for vector in pipeline.feed(record.value, record.timestamp_ms).vectors:
            last[vector.cluster, vector.node] = vector
    result = pipeline.finish()
    # A node that fell silent long before the recording's end has been forgotten by then; its last vector stands.
    last |= {(vector.cluster, vector.node): vector for vector in result.vectors}
    return tuple(pipeline.catalog.names), [last[node] for node in sorted(last)], dict(result.refused)


def _print_offline(names: tuple[str, ...], vectors: list[NodeVector], refused: dict[str, int], as_json: bool) -> None:
    if as_json:
        for vector in vectors:
            print(json.dumps(vector_object(names, vector), allow_nan=False))
        print(json.dumps(refused), file=sys.stderr)
        return
    _print_table(names, vectors)
    counts = ", ".join(f"{name} {count:,}" for name, count in refused.items())
    print(f"refused or set aside: {counts}", file=sys.stderr)


def vector_object(names: Sequence[str], vector: NodeVector) -> dict[str, Any]:
    """A vector as the JSON that `replay --offline --json` prints. A missing value is None."""
    import math

    from fleetpulse.features import Status

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "node": vector.node,
        "cluster": vector.cluster,
        "t_end_ms": vector.t_end_ns // 1_000_000,
        "window_covered_ms": vector.window_covered_ms,
        "features": {name: number(float(value)) for name, value in zip(names, vector.values, strict=True)},
        "status": {name: Status(int(code)).name.lower() for name, code in zip(names, vector.status, strict=True)},
    }


def _print_table(names: tuple[str, ...], vectors: list[NodeVector]) -> None:
    from rich.table import Table

    from fleetpulse.features import Status
    from fleetpulse.ingest._terminal import console, number_text

    shown = [(heading, names.index(name)) for heading, name in SHOWN if name in names]
    table = Table(title=f"Final vectors of {len(vectors)} nodes", title_justify="left")
    for heading in ("node", "cluster"):
        table.add_column(heading, no_wrap=True)
    for heading in ("newest sample", "window", *(heading for heading, _ in shown), "known"):
        table.add_column(heading, justify="right", no_wrap=True)
    for vector in vectors:
        known = sum(int(code) != Status.MISSING for code in vector.status)
        table.add_row(
            vector.node,
            vector.cluster,
            _utc(vector.t_end_ns),
            f"{vector.window_covered_ms / 1000:g} s",
            *(number_text(float(vector.values[column])) for _, column in shown),
            f"{known} of {len(names)}",
        )
    console().print(table)
