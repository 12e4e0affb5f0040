"""`fleetpulse series`: raw samples of a node from its compressed chunks, drawn in the terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fleetpulse.ingest._chunk_series import StoredSeries

DRAWN_MAX = 8


def series_command(
    node: Annotated[str, typer.Argument(help="A node's name.")],
    metric: Annotated[
        str | None, typer.Argument(help="A metric as its collector calls it; without it, all are listed.")
    ] = None,
    last: Annotated[str, typer.Option("--last", help="How far back: 30m, 1h.")] = "30m",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="NAME=VALUE", help="Only series with this label; repeat it for more."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="The node's cluster, when several have such a node.")
    ] = None,
    rate: Annotated[
        bool | None,
        typer.Option(
            "--rate/--raw",
            help="Counters as change per second, or as they are. Default: drawn as rates, printed as they are.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one series a line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values, one sample a line.")] = False,
) -> None:
    """Show the raw samples behind a node's features, decoded from the chunks of the last hour in Redis.

    Every sample is exact, to the nanosecond and the bit, as the collector sent it.
    """
    from fleetpulse.ingest._chunk_series import as_rate, load_series
    from fleetpulse.ingest._durations import format_duration, parse_duration
    from fleetpulse.ingest._errors import UserError
    from fleetpulse.ingest._open_store import find_node, open_store
    from fleetpulse.ingest._settings import load_settings

    since_ns = time.time_ns() - parse_duration(last) * 1_000_000
    wanted = dict(_pair(text) for text in label or ())
    if as_json and as_csv:
        raise UserError("choose one of --json and --csv")
    configuration = load_settings()
    with open_store(configuration) as store:
        home, name = find_node(store, node, cluster)
        every = load_series(store.chunks(name, home, since_ns), since_ns)
    if not every:
        raise UserError(
            f"Redis has no samples of {name} in the last {last}: a node's samples come there in chunks of "
            f"{format_duration(configuration.chunk_span_s * 1000)}, a little after its end, and stay for an hour"
        )
    if metric is None:
        _list_metrics(every, as_json)
        return
    chosen = [one for one in every if one.name == metric and _has(one.labels, wanted)]
    if not chosen:
        raise UserError(_why_none(every, name, metric, wanted, last))
    to_data = as_json or as_csv
    if rate or (rate is None and not to_data):
        chosen = [as_rate(one) if one.counter else one for one in chosen]
    if as_json:
        _print_json(chosen)
    elif as_csv:
        _print_csv(chosen)
    else:
        _draw(chosen)


def _pair(text: str) -> tuple[str, str]:
    from fleetpulse.ingest._errors import UserError

    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UserError(f"--label {text!r} is not NAME=VALUE")
    return name, value


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())


def _why_none(every: Sequence[StoredSeries], node: str, metric: str, wanted: Mapping[str, str], last: str) -> str:
    import difflib

    names = sorted({one.name for one in every})
    if metric in names:
        known: dict[str, set[str]] = {}
        for one in every:
            if one.name == metric:
                for name in wanted:
                    known.setdefault(name, set()).add(one.labels.get(name, ""))
        values = "; ".join(f"{name} is one of {', '.join(sorted(found))}" for name, found in known.items())
        return f"no series of {metric} on {node} has these labels: {values}"
    near = difflib.get_close_matches(metric, names, 3, 0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"`fleetpulse series {node}` lists what there is"
    return f"{node} has no metric {metric} in the last {last}: {hint}"


def _list_metrics(every: Sequence[StoredSeries], as_json: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from fleetpulse.ingest._terminal import console, print_json

    metrics: dict[str, list[StoredSeries]] = {}
    for one in every:
        metrics.setdefault(one.name, []).append(one)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("metric", "unit", "kind", "series", "samples"):
        table.add_column(heading, justify="right" if heading in ("series", "samples") else "left", no_wrap=True)
    for name, several in sorted(metrics.items()):
        unit, kind, samples = several[0].unit, several[0].kind, sum(len(one.times_ns) for one in several)
        if as_json:
            print_json({"metric": name, "unit": unit, "kind": kind, "series": len(several), "samples": samples})
        else:
            table.add_row(escape(name), escape(unit), kind, str(len(several)), str(samples))
    if not as_json:
        console().print(table)


def _print_json(chosen: Sequence[StoredSeries]) -> None:
    from fleetpulse.ingest._terminal import print_json

    for one in chosen:
        print_json({"labels": dict(one.labels), "times_ns": one.times_ns.tolist(), "values": one.values.tolist()})


def _print_csv(chosen: Sequence[StoredSeries]) -> None:
    import csv
    import sys

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("metric", "labels", "time_ns", "value"))
    for one in chosen:
        labels = json.dumps(dict(sorted(one.own_labels.items())), ensure_ascii=False)
        for time_ns, value in zip(one.times_ns.tolist(), one.values.tolist(), strict=True):
            writer.writerow((one.name, labels, time_ns, repr(value)))


def _draw(chosen: Sequence[StoredSeries]) -> None:
    from rich.markup import escape

    from fleetpulse.ingest._chunk_series import telling_labels
    from fleetpulse.ingest._plot import axis, columns_for, plot
    from fleetpulse.ingest._terminal import console, note, number_text

    out = console()
    start_ns = min(int(one.times_ns[0]) for one in chosen)
    end_ns = max(int(one.times_ns[-1]) for one in chosen)
    width = columns_for([one.times_ns for one in chosen], max(20, min(out.width, 160) - 12))
    for one, labels in list(zip(chosen, telling_labels(chosen), strict=True))[:DRAWN_MAX]:
        described = "  ".join(f"{name}={value}" for name, value in labels.items())
        out.print(f"[bold]{escape(one.name)}[/] {escape(one.unit)}  [cyan]{escape(described)}[/]", soft_wrap=True)
        rows, low, high = plot(one.times_ns, one.values, start_ns, end_ns, width)
        for i, row in enumerate(rows):
            mark = number_text(high) if i == 0 else number_text(low) if i == len(rows) - 1 else ""
            out.print(f"{mark:>10} {row}", markup=False, soft_wrap=True)
        out.print(f"{'':>10} {axis(start_ns, end_ns, width)}", markup=False, soft_wrap=True)
    if len(chosen) > DRAWN_MAX:
        note(f"{len(chosen) - DRAWN_MAX} more series are not drawn: choose with --label, or print them with --csv.")
