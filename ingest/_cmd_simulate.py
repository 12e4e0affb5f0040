"""`fleetpulse simulate`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetpulse.ingest._errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from fleetpulse.ingest._settings import Settings
    from fleetpulse.ingest._simulate import Fleet
    from fleetpulse.ingest._simulate_faults import Fault

INTERRUPTED = 130
INTERVAL_MS_MIN = 10
HISTORY_MS_MAX = 86_400_000
BEHIND_MS_MAX = 60_000
"""Further behind the clock than this, collections are left out: the machine is too slow for what was asked."""
ZSTD_SUFFIX = ".zst"

Write = Callable[[bytes, bytes, int], None]
"""Takes a key, a request and the time of its collection in ms."""


def simulate_command(
    nodes: Annotated[int, typer.Option(min=1, max=10_000, help="Nodes of the fleet: sim-node-000 and so on.")] = 60,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Time between collections, 10ms or more.")] = "1s",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same fleet and the same noise.")] = 1,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:NODE@+SECONDS[/DURATION][xSIZE]",
            help="What goes wrong, SECONDS after the live start. KIND: noisy-neighbour, memory-leak, disk-saturation, "
            "packet-loss, latency-step, silent, fleet-step (NODE: all). NODE: a name or a number from 0. SIZE 1 is "
            "plain to see. May be repeated.",
            show_default=False,
        ),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Write this much of the past at once at the start, so that windows are full.",
            show_default=False,
        ),
    ] = None,
    history_interval: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Time between the history's collections; a longer one spares whoever reads it. Default: --interval.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after this long. Default: until Ctrl-C.", show_default=False)
    ] = None,
    cluster: Annotated[str, typer.Option(help="Name of the cluster that the nodes belong to.")] = "sim",
    topic: Annotated[
        str | None, typer.Option(help="Topic to write to, instead of FLEETPULSE_SOURCE_TOPIC.", show_default=False)
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(help="Kafka brokers, instead of FLEETPULSE_KAFKA_BOOTSTRAP.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a recording for `fleetpulse replay` instead: length-prefixed protobuf, zstd if the name ends "
            "in .zst, as fast as possible. Needs --seconds.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --out: the live start, like 2026-03-01T09:00:00Z; the same options give the same bytes then. "
            "Default: now.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Simulate a fleet: host, container and request metrics as OTLP, with faults on demand."""
    from rich.console import Console

    from fleetpulse.ingest._durations import parse_duration
    from fleetpulse.ingest._simulate import Fleet, node_name
    from fleetpulse.ingest._simulate_faults import parse_fault
    from fleetpulse.ingest._stopping import termination_interrupts

    interval_ms = parse_duration(interval)
    if interval_ms < INTERVAL_MS_MIN:
        raise UserError(f"--interval {interval} is too short: {INTERVAL_MS_MIN}ms is the least")
    history_ms = 0 if history is None or history.strip() in ("0", "0s", "0m") else parse_duration(history)
    if history_ms > HISTORY_MS_MAX:
        raise UserError(f"--history {history} is too long: a day is the most")
    history_step_ms = interval_ms if history_interval is None else parse_duration(history_interval)
    if history_step_ms < interval_ms:
        raise UserError(f"--history-interval {history_interval} is shorter than --interval {interval}: make it longer")
    if out is not None and seconds is None:
        raise UserError("--out without an end would fill the disk: add --seconds")
    if start is not None and out is None:
        raise UserError("--start is for recordings: a live fleet starts now; leave it out, or add --out")
    names = [node_name(i) for i in range(nodes)]
    faults = [parse_fault(text, names) for text in fault or ()]
    settings = _settings(topic, bootstrap)
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        with termination_interrupts(), _opened(out, settings, console) as write:
            start_ms = time.time_ns() // 1_000_000 if start is None else _start_ms(start)
            fleet = Fleet(
                nodes, seed, interval_ms / 1000, faults, start_ms, cluster=cluster, history_s=history_ms / 1000
            )
            back = history_ms // history_step_ms
            for i in range(back):
                _collect(fleet, start_ms - (back - i) * history_step_ms, write, settings.record_bytes_max)
            if back:
                console.print(f"wrote {back} collections of the past {history}; live from here")
            moments = _moments(start_ms, interval_ms, seconds, live=out is None, console=console)
            for t_ms in _telling_faults(moments, faults, names, start_ms, console):
                _collect(fleet, t_ms, write, settings.record_bytes_max)
    except KeyboardInterrupt:
        # Without --seconds there is no other end.
        raise typer.Exit(0 if seconds is None else INTERRUPTED) from None


def _settings(topic: str | None, bootstrap: str | None) -> Settings:
    from fleetpulse.ingest._settings import load_settings

    given = {"source_topic": topic, "kafka_bootstrap": bootstrap}
    return load_settings().model_copy(update={name: value for name, value in given.items() if value is not None})


def _start_ms(text: str) -> int:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"--start {text} is no time: write it like 2026-03-01T09:00:00Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _collect(fleet: Fleet, t_ms: int, write: Write, record_bytes_max: int) -> None:
    from fleetpulse.ingest._route import _cut as cut_request

    for key, request in fleet.collect_keyed(t_ms):
        pieces = (request,) if len(request) <= record_bytes_max else cut_request(request, record_bytes_max, 0)
        for piece in pieces:
            write(key, piece, t_ms)


def _moments(start_ms: int, interval_ms: int, seconds: float | None, *, live: bool, console: Console) -> Iterator[int]:
    """Times of collection: live, each when it has come; else at once."""
    end_ms = None if seconds is None else start_ms + round(seconds * 1000)
    t_ms = start_ms
    while end_ms is None or t_ms < end_ms:
        if live:
            behind_ms = time.time_ns() // 1_000_000 - t_ms
            if behind_ms < 0:
                time.sleep(-behind_ms / 1000)
            elif behind_ms > BEHIND_MS_MAX:
                left_out = behind_ms // interval_ms
                console.print(
                    f"{behind_ms // 1000} s behind: {left_out} collections are left out; ask for fewer nodes or a "
                    "longer interval"
                )
                t_ms += left_out * interval_ms
        yield t_ms
        t_ms += interval_ms


def _telling_faults(
    moments: Iterator[int], faults: Sequence[Fault], names: Sequence[str], start_ms: int, console: Console
) -> Iterator[int]:
    """The moments; says on standard error when a fault begins or ends."""
    active = [False] * len(faults)
    for t_ms in moments:
        for i, fault in enumerate(faults):
            now = fault.active(t_ms - start_ms)
            if now != active[i]:
                active[i] = now
                where = "all nodes" if fault.node is None else names[fault.node]
                does = "begins" if now else "ends"
                console.print(f"+{(t_ms - start_ms) / 1000:g} s: {fault.kind} on {where} {does}")
        yield t_ms


@contextmanager
def _opened(out: Path | None, settings: Settings, console: Console) -> Iterator[Write]:
    if out is not None:
        with _recording(out, console) as write:
            yield write
        return
    from fleetpulse.ingest._produce import RecordProducer, hush_kafka_logs

    hush_kafka_logs()
    producer = RecordProducer(settings)
    try:
        with producer:
            console.print(f"writing to topic {producer.topic} at {settings.kafka_bootstrap}; Ctrl-C ends it")
            yield lambda key, request, t_ms: producer.send(request, timestamp_ms=t_ms, key=key)
    finally:
        console.print(f"wrote {producer.sent_records:,} records ({producer.sent_bytes:,} bytes)")


@contextmanager
def _recording(out: Path, console: Console) -> Iterator[Write]:
    """The file appears under its name only when it is whole."""
    import zstandard

    part = out.with_name(out.name + ".part")
    requests = 0
    try:
        with part.open("wb") as file:
            compressed = out.suffix == ZSTD_SUFFIX
            sink = zstandard.ZstdCompressor().stream_writer(file, closefd=False) if compressed else file

            def write(_key: bytes, request: bytes, _t_ms: int) -> None:
                nonlocal requests
                sink.write(len(request).to_bytes(4, "big"))
                sink.write(request)
                requests += 1

            yield write
            if compressed:
                sink.close()
        part.replace(out)
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}): choose another file or make room") from None
    finally:
        part.unlink(missing_ok=True)
    console.print(f"wrote {requests:,} requests ({out.stat().st_size:,} bytes) to {out}")
