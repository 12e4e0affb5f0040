"""The demo: every part as its own process, a live table of what comes out, and a verdict at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fleetpulse.ingest._embedded import embedded_broker, embedded_redis
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._watchdog import die_with_parent
from fleetpulse.store import ClusterReading, FeatureStore, Freshness, StoreError

CAPTURE = "hipstershop-otelmetrics.zst"
CAPTURE_CLUSTER = "test-cluster"
FLEET_CLUSTER = "sim"
HOST_CLUSTER = "this-machine"
CAPTURE_HISTORY_S = 120
FLEET_HISTORY_S = 360
FAULTS = (("disk-saturation", 7, 40), ("noisy-neighbour", 23, 50))
"""Kind, node and seconds after the fleet goes live."""
ROWS = 14
SHOWN = (
    ("cpu", "cpu_busy_share_5m"),
    ("cpu p99", "cpu_busy_share_p99_5m"),
    ("memory", "memory_used_share_5m"),
    ("cpu cont.", "contention_cpu_5m"),
    ("disk cont.", "contention_disk_5m"),
    ("req. p99", "request_p99_5m"),
)


@dataclass
class Part:
    """A child process, its log and how it is called."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


class Parts:
    """Child processes that end with this one, the source of records first, the worker last."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self.parts: list[Part] = []

    def start(self, name: str, *arguments: str) -> Part:
        path = self._folder / f"{name}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "fleetpulse.ingest", *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the demo alone: it stops the parts in order.
                start_new_session=True,
                # When the demo is killed with -9, nobody else would end them.
                preexec_fn=die_with_parent,
            )
        part = Part(name, process, path)
        self.parts.append(part)
        return part

    def check(self) -> None:
        """Raises UserError when a part ended with an error."""
        for part in self.parts:
            if part.process.poll() not in (None, 0):
                tail = "\n  ".join(part.log.read_text(errors="replace").splitlines()[-8:])
                raise UserError(f"the {part.name} ended with code {part.process.returncode}; its last words:\n  {tail}")

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for part in reversed(self.parts):
            if part.process.poll() is None:
                part.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        for part in reversed(self.parts):
            try:
                part.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                part.process.kill()
                part.process.wait()


@dataclass
class Seen:
    """What the demo promises to show."""

    first_vector_s: float | None = None
    nodes: dict[str, set[str]] = field(default_factory=dict)
    flagged: dict[str, dict[str, Any]] = field(default_factory=dict)
    other: dict[str, dict[str, Any]] = field(default_factory=dict)


def run_demo(
    *,
    seconds: int | None,
    nodes: int,
    capture: Path | None,
    kafka: str | None,
    redis_url: str | None,
    logs: Path | None,
) -> int:
    console = Console()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = logs or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleetpulse-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        recording = capture or stack.enter_context(as_file(files("fleetpulse.ingest") / "recordings" / CAPTURE))
        if not recording.exists():
            raise UserError(f"{recording} is not there: give --capture the path of a recording")
        console.print("[bold]fleetpulse demo[/] — starting services and parts (the first run compiles kernels) ...")
        bootstrap = kafka or stack.enter_context(embedded_broker()).bootstrap
        redis_url = redis_url or stack.enter_context(embedded_redis()).url
        console.print(f"  Kafka at {bootstrap}, Redis at {redis_url}, logs in {folder}")
        parts = stack.enter_context(Parts(_environment(bootstrap, redis_url), folder))
        _start_parts(parts, recording, nodes)
        store = stack.enter_context(FeatureStore.connect(redis_url, "fp-demo"))
        seen = Seen()
        wanted = _fault_nodes(nodes)
        with contextlib.suppress(KeyboardInterrupt):
            _watch(console, store, parts, seen, wanted, started, seconds)
        return _verdict(console, store, seen, wanted, nodes)


def _environment(bootstrap: str, redis_url: str) -> dict[str, str]:
    """The parts' environment: ours without FLEETPULSE_* of the user's, which mean another deployment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETPULSE_")}
    return environment | {
        "FLEETPULSE_KAFKA_BOOTSTRAP": bootstrap,
        "FLEETPULSE_REDIS_URL": redis_url,
        "FLEETPULSE_REDIS_PREFIX": "fp-demo",
        "FLEETPULSE_TOPIC_PREFIX": "fleetpulse-demo",
        "FLEETPULSE_SOURCE_TOPIC": "otlp_metrics_demo",
        "FLEETPULSE_CONSUMER_GROUP": "fleetpulse-demo",
        "FLEETPULSE_PARTITIONS": "4",
        "FLEETPULSE_CLUSTER": HOST_CLUSTER,
        "FLEETPULSE_CHUNK_SPAN_S": "120",
        "FLEETPULSE_SESSION_TIMEOUT_S": "6",
        "FLEETPULSE_METRICS_PORT": str(_free_port()),
        "PYTHONUNBUFFERED": "1",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start_parts(parts: Parts, recording: Path, nodes: int) -> None:
    parts.start("worker", "worker")
    parts.start("sampler", "sampler", "--interval", "1s")
    parts.start("replay", "replay", str(recording), "--retime", "--history", f"{CAPTURE_HISTORY_S}s", "--speed", "1")
    faults = [f"{kind}:{node % nodes}@+{after}" for kind, node, after in FAULTS]
    parts.start(
        "fleet",
        "simulate",
        *("--nodes", str(nodes), "--interval", "5s", "--seed", "1", "--history", f"{FLEET_HISTORY_S}s"),
        *(argument for fault in faults for argument in ("--fault", fault)),
    )


def _fault_nodes(nodes: int) -> dict[str, str]:
    """Node name -> fault, by the simulator's own naming."""
    from fleetpulse.ingest._simulate import node_name

    return {node_name(node % nodes): kind for kind, node, _ in FAULTS}


def _watch(
    console: Console,
    store: FeatureStore,
    parts: Parts,
    seen: Seen,
    wanted: dict[str, str],
    started: float,
    seconds: int | None,
) -> None:
    live = console.is_terminal
    with _screen(console) as screen:
        told = 0.0
        while seconds is None or time.monotonic() - started < seconds:
            parts.check()
            readings = _read(store)
            elapsed = time.monotonic() - started
            _note(console, store, readings, seen, wanted, elapsed)
            if live and screen is not None:
                screen.update(Group(_headline(readings, elapsed), _table(store, readings, seen)))
            elif elapsed - told >= 10:
                told = elapsed
                console.print(_headline(readings, elapsed))
            time.sleep(1)


@contextlib.contextmanager
def _screen(console: Console) -> Iterator[Live | None]:
    if console.is_terminal:
        with Live(console=console, refresh_per_second=2) as screen:
            yield screen
    else:
        yield None


def _read(store: FeatureStore) -> list[ClusterReading]:
    try:
        return [store.cluster(name) for name in sorted(store.clusters())]
    except StoreError:
        # The worker has not written its schema yet.
        return []


def _note(
    console: Console,
    store: FeatureStore,
    readings: Sequence[ClusterReading],
    seen: Seen,
    wanted: dict[str, str],
    elapsed: float,
) -> None:
    for reading in readings:
        fresh = {node for node, status in zip(reading.ids, reading.statuses, strict=True) if status == Freshness.FRESH}
        seen.nodes.setdefault(reading.cluster, set()).update(fresh)
        if fresh and seen.first_vector_s is None:
            seen.first_vector_s = elapsed
            console.print(f"  first fresh vectors after {elapsed:.0f} s")
        for node, event in store.events(reading.cluster).items():
            held = seen.flagged if node in wanted and reading.cluster == FLEET_CLUSTER else seen.other
            key = str(event["id"])
            if key not in held and event["state"] != "resolved":
                console.print(Text.from_markup(f"  [red]anomaly[/] {_event_line(event)}"))
            held[key] = event


def _event_line(event: dict[str, Any]) -> str:
    reasons = ", ".join(
        f"{reason['feature']} = {_number(reason['value'])} (expected {_number(reason['expected'])}) {reason['unit']}"
        for reason in event["reasons"][:3]
    )
    where = event["node"] or f"the pool {event['pool']}"
    return f"{where}: {event['state']}, {event['severity']}, by {event['detector']}: {reasons}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _headline(readings: Sequence[ClusterReading], elapsed: float) -> str:
    clusters = "   ".join(
        f"{reading.cluster}: {int((reading.statuses == Freshness.FRESH).sum())} of {len(reading)} nodes fresh"
        for reading in readings
    )
    return f"  {elapsed:4.0f} s   {clusters or 'waiting for the first vectors ...'}"


def _table(store: FeatureStore, readings: Sequence[ClusterReading], seen: Seen) -> Table:
    table = Table(title="nodes, the most anomalous first", title_justify="left")
    for heading in ("node", "cluster", "age", "status", *(heading for heading, _ in SHOWN), "anomaly"):
        table.add_column(heading, justify="left" if heading in ("node", "cluster", "status") else "right", no_wrap=True)
    rows = []
    for reading in readings:
        verdicts = store.verdicts(reading.cluster)
        columns = [reading.column(name) if name in reading.names else None for _, name in SHOWN]
        for i, node in enumerate(reading.ids):
            verdict = verdicts.get(node)
            score = -1.0 if verdict is None or verdict.score is None else verdict.score
            values = [_cell(None if column is None else float(column[i])) for column in columns]
            status = Freshness(int(reading.statuses[i])).name.lower()
            mark = "–" if score < 0 else f"{score:.2f}"
            bad = verdict is not None and verdict.verdict == "anomalous"
            cells = [node, reading.cluster, f"{reading.ages_ms[i] / 1000:.1f} s", status, *values, mark]
            rows.append((reading.cluster == FLEET_CLUSTER, -score, node, bad, cells))
    for _, _, _, bad, cells in sorted(rows)[:ROWS]:
        table.add_row(*cells, style="red" if bad else None)
    return table


def _cell(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.3g}"


def _verdict(console: Console, store: FeatureStore, seen: Seen, wanted: dict[str, str], nodes: int) -> int:
    """What was seen against what was promised; 0 when all of it came."""
    console.print()
    checks = [
        ("this machine's vectors", len(seen.nodes.get(HOST_CLUSTER, ())) >= 1),
        ("the replayed cluster's vectors (4 nodes)", len(seen.nodes.get(CAPTURE_CLUSTER, ())) >= 4),
        (f"the simulated fleet's vectors ({nodes} nodes)", len(seen.nodes.get(FLEET_CLUSTER, ())) >= nodes),
    ]
    for node, kind in wanted.items():
        events = [event for event in seen.flagged.values() if event["node"] == node]
        checks.append((f"{kind} on {node} flagged", bool(events)))
    for text, held in checks:
        console.print(f"  [{'green' if held else 'red'}]{'yes' if held else 'NO '}[/]  {text}")
    for event in seen.flagged.values():
        console.print(f"       {_event_line(event)}")
    if seen.other:
        console.print(f"  events that no fault was planted for: {len(seen.other)}")
        for event in seen.other.values():
            console.print(f"       {_event_line(event)}")
    _show_reading(console, store, next(iter(wanted)))
    return 0 if all(held for _, held in checks) else 1


def _show_reading(console: Console, store: FeatureStore, node: str) -> None:
    console.print("\n  A scheduler reads the same like this:\n")
    console.print(
        "      from fleetpulse.store import FeatureStore\n"
        "      with FeatureStore.connect(url) as store:\n"
        f'          node = store.node("{node}", "{FLEET_CLUSTER}")\n',
        markup=False,
        highlight=False,
    )
    try:
        reading = store.node(node, FLEET_CLUSTER)
    except StoreError as error:
        console.print(f"      {error}")
        return
    console.print(f"      node.freshness -> {reading.freshness.name}, node.age_ms -> {reading.age_ms}")
    for _, name in SHOWN:
        if name in reading:
            value = reading[name]
            console.print(f'      node["{name}"] -> {_number(value.value)} {value.unit}, {value.status.name.lower()}')
    console.print()


__all__ = ["run_demo"]
