"""`fleetpulse features`: what a scheduler would read, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fleetpulse.store import ClusterReading, FeatureStore, NodeReading

SHOWN = (
    ("cpu busy", "cpu_busy_share_5m"),
    ("memory", "memory_used_share_5m"),
    ("p99", "request_p99_5m"),
    ("cpu cont.", "contention_cpu_5m"),
    ("mem cont.", "contention_memory_5m"),
    ("disk cont.", "contention_disk_5m"),
    ("net cont.", "contention_network_5m"),
)
"""Columns of the table of nodes; a catalog that has no such feature has no such column."""
STYLES = {"fresh": "green", "ok": "", "partial": "yellow", "stale": "yellow", "missing": "dim"}


def features_command(
    node: Annotated[str | None, typer.Argument(help="A node's name; without it, all nodes are listed.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only this cluster.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """Show feature vectors as a scheduler reads them: values, units, ages and what is missing."""
    from fleetpulse.ingest._open_store import find_node, open_store
    from fleetpulse.ingest._settings import load_settings

    with open_store(load_settings()) as store:
        if node is None:
            _show_nodes(store, cluster, as_json)
        else:
            home, name = find_node(store, node, cluster)
            _show_node(store.node(name, home), store.cluster(home), as_json)


def _show_nodes(store: FeatureStore, cluster: str | None, as_json: bool) -> None:
    from rich.table import Table

    from fleetpulse.ingest._terminal import age_text, console, note, number_text, print_json
    from fleetpulse.store import Freshness

    readings = [store.cluster(name) for name in ([cluster] if cluster is not None else sorted(store.clusters()))]
    if not any(len(reading) for reading in readings):
        note("There are no vectors in Redis yet: `fleetpulse doctor` says what is missing.")
        return
    shown = [(heading, name) for heading, name in SHOWN if name in store.schema.columns]
    table = Table(box=None, pad_edge=False)
    table.add_column("node", no_wrap=True)
    table.add_column("cluster", no_wrap=True)
    for heading in ("status", "age", *(heading for heading, _ in shown), "anomaly"):
        table.add_column(heading, justify="left" if heading == "status" else "right", no_wrap=True)
    for reading in readings:
        verdicts = store.verdicts(reading.cluster)
        for row, name in enumerate(reading.ids):
            status = Freshness(int(reading.statuses[row])).name.lower()
            verdict = verdicts.get(name)
            if as_json:
                print_json(_row(reading, row, status) | {"verdict": _verdict(verdict)})
                continue
            values = [number_text(float(reading.column(feature)[row])) for _, feature in shown]
            score = None if verdict is None else verdict.score
            cells = [name, reading.cluster, f"[{STYLES[status]}]{status}[/]", age_text(int(reading.ages_ms[row]))]
            table.add_row(*cells, *values, number_text(score), style="red" if _is_anomalous(verdict) else None)
    if not as_json:
        console().print(table)


def _show_node(reading: NodeReading, cluster: ClusterReading, as_json: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from fleetpulse.ingest._terminal import age_text, console, number_text, print_json

    if as_json:
        print_json(_whole(reading, cluster))
        return
    row = cluster.ids.index(reading.node)
    level = reading.freshness.name.lower()
    out = console()
    out.print(f"[bold]{escape(reading.node)}[/]  in cluster {escape(str(reading.cluster))}")
    style = STYLES[level] or "default"
    out.print(f"  [{style}]{level}[/], {age_text(int(cluster.ages_ms[row]))} old")
    vector = reading.vector
    if vector is not None:
        covered, interval = age_text(vector.window_covered_ms), age_text(vector.scrape_interval_ms)
        out.print(f"  {covered} of the window seen, scraped every {interval}, pool {escape(vector.pool)}")
    if reading.verdict is not None:
        verdict = reading.verdict
        out.print(f"  anomaly score {number_text(verdict.score)}: {escape(verdict.verdict)}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("feature", "value", "unit", "age", "status", "source"):
        table.add_column(heading, justify="right" if heading in ("value", "age") else "left", no_wrap=True)
    for name, value in reading.items():
        status = value.status.name.lower()
        source = "" if vector is None else vector.sources.get(name, "")
        cells = [name, number_text(value.value), value.unit, age_text(value.age_ms), status, source]
        table.add_row(*map(escape, cells), style=STYLES[status] or None)
    out.print(table)


def _is_anomalous(verdict: Any) -> bool:
    return verdict is not None and verdict.verdict == "anomalous"


def _verdict(verdict: Any) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {"score": verdict.score, "verdict": verdict.verdict, "time_ms": verdict.time_ms}


def _row(reading: ClusterReading, row: int, status: str) -> dict[str, Any]:
    return {
        "node": reading.ids[row],
        "cluster": reading.cluster,
        "freshness": status,
        "age_ms": int(reading.ages_ms[row]),
        "t_end_ms": int(reading.t_end_ms[row]),
        "window_covered_ms": int(reading.window_covered_ms[row]),
        "features": dict(zip(reading.names, reading.X[row].tolist(), strict=True)),
    }


def _whole(reading: NodeReading, cluster: ClusterReading) -> dict[str, Any]:
    row = cluster.ids.index(reading.node)
    vector = reading.vector
    known: dict[str, Any] = {}
    if vector is not None:
        known = {
            "scrape_interval_ms": vector.scrape_interval_ms,
            "pool": vector.pool,
            "partition": vector.partition,
            "offset": vector.offset,
            "sources": vector.sources,
        }
    return {
        "node": reading.node,
        "cluster": reading.cluster,
        "freshness": reading.freshness.name.lower(),
        "age_ms": int(cluster.ages_ms[row]),
        "t_end_ms": int(cluster.t_end_ms[row]),
        "window_covered_ms": int(cluster.window_covered_ms[row]),
        **known,
        "features": {
            name: {
                "value": value.value,
                "unit": value.unit,
                "age_ms": value.age_ms,
                "status": value.status.name.lower(),
            }
            for name, value in reading.items()
        },
        "verdict": _verdict(reading.verdict),
        "event": reading.event,
    }
