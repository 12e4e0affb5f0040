"""`fleetpulse anomalies`: which nodes were wrong, since when, and why."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fleetpulse.ingest._topic_reader import TopicReader

STATE_STYLES = {"opened": "bold red", "updated": "red", "resolved": "green"}
REASONS_SHOWN = 3


def anomalies_command(
    since: Annotated[str, typer.Option("--since", help="How far back: 30m, 1h, 7d.")] = "1h",
    node: Annotated[str | None, typer.Option("--node", help="Only events of this node.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only events of this cluster.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing events as they come, until Ctrl-C.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as JSON, one a line.")] = False,
) -> None:
    """Show anomalies from the topic: one line each, with its newest state, and the features that explain it.

    With --follow or --json every event is printed: opened, updated, resolved.
    """
    from fleetpulse.ingest._durations import parse_duration
    from fleetpulse.ingest._settings import load_settings
    from fleetpulse.ingest._terminal import console, note, print_json
    from fleetpulse.ingest._topic_reader import read_topic

    since_ms = time.time_ns() // 1_000_000 - parse_duration(since)
    settings = load_settings()
    out = console()
    with read_topic(settings, settings.topic("anomalies"), since_ms) as reader:
        if follow:
            with contextlib.suppress(KeyboardInterrupt):
                for event in _events(reader, since_ms, node, cluster, follow=True):
                    if as_json:
                        print_json(event)
                    else:
                        out.print(_line(event), soft_wrap=True)
                    sys.stdout.flush()
            return
        events = sorted(_events(reader, since_ms, node, cluster, follow=False), key=lambda event: event["time_ms"])
    if as_json:
        for event in events:
            print_json(event)
    elif events:
        out.print(_table(events))
    else:
        about = " ".join(["", *(f"of {word}" for word in (node, cluster) if word is not None)])
        note(f"No anomalies{about} in the last {since}.")


def _events(
    reader: TopicReader, since_ms: int, node: str | None, cluster: str | None, *, follow: bool
) -> Iterator[dict[str, Any]]:
    """Events of the topic, each once: a worker that was killed repeats what it had written after its last commit."""
    from fleetpulse.ingest._terminal import note

    seen: set[tuple[str, str, int]] = set()
    together: list[dict[str, Any]] = []
    for record in reader.records(follow=follow):
        if record is None:
            yield from sorted(together, key=lambda event: event["time_ms"])
            together.clear()
            continue
        event = _parsed(record.value)
        if event is None:
            note(f"Skipped what is no event: {record.topic} partition {record.partition} offset {record.offset}")
            continue
        identity = (event["id"], event["state"], event["time_ms"])
        if event["time_ms"] < since_ms or identity in seen:
            continue
        seen.add(identity)
        if (node is None or event["node"] == node) and (cluster is None or event["cluster"] == cluster):
            together.append(event)


def _parsed(value: bytes | None) -> dict[str, Any] | None:
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    texts = ("id", "state", "scope", "cluster", "node", "pool", "severity", "detector")
    if not isinstance(event, dict) or not all(isinstance(event.get(name), str) for name in texts):
        return None
    if not all(isinstance(event.get(name), int) for name in ("time_ms", "opened_ms")):
        return None
    return event if isinstance(event.get("reasons"), list) else None


def _table(events: list[dict[str, Any]]) -> Any:
    """One row per anomaly, the newest last."""
    from rich.table import Table

    from fleetpulse.ingest._terminal import age_text, number_text, time_text

    newest: dict[str, dict[str, Any]] = {}
    for event in events:
        newest[event["id"]] = event
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("opened", "lasted", "state", "severity", "node", "cluster", "score", "found by", "why"):
        table.add_column(
            heading, no_wrap=heading != "why", justify="right" if heading in ("lasted", "score") else "left"
        )
    for event in sorted(newest.values(), key=lambda event: event["opened_ms"]):
        state = "over" if event["state"] == "resolved" else "open"
        table.add_row(
            time_text(event["opened_ms"]),
            age_text(event["time_ms"] - event["opened_ms"]),
            state,
            event["severity"],
            _plain(_subject(event)),
            _plain(event["cluster"]),
            number_text(event.get("score")),
            event["detector"],
            _plain(_why(event, "\n")),
            style=STATE_STYLES.get(event["state"]),
        )
    return table


def _line(event: dict[str, Any]) -> str:
    from fleetpulse.ingest._terminal import number_text, time_text

    style = STATE_STYLES.get(event["state"], "default")
    where = _plain(f"{event['cluster']}/{_subject(event)}")
    why = _plain(_why(event, ", "))
    score = number_text(event.get("score"))
    return f"{time_text(event['time_ms'])} [{style}]{event['state']:8}[/] {event['severity']} {where} {score} {why}"


def _subject(event: dict[str, Any]) -> str:
    return str(event["node"]) if event["scope"] == "node" else f"all of pool {event['pool']}"


def _why(event: dict[str, Any], between: str) -> str:
    from fleetpulse.ingest._terminal import number_text

    reasons = []
    for reason in event["reasons"][:REASONS_SHOWN]:
        value, expected = number_text(reason.get("value")), number_text(reason.get("expected"))
        reasons.append(
            f"{reason.get('feature')} {value} {reason.get('unit') or ''} (expected {expected})".replace("  ", " ")
        )
    more = len(event["reasons"]) - REASONS_SHOWN
    return between.join(reasons) + (f"{between}and {more} more" if more > 0 else "")


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
