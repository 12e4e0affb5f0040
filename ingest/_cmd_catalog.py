"""`fleetpulse catalog`: what the columns of a vector mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fleetpulse.features import Feature


def catalog_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/features.md.")] = False,
) -> None:
    """List the features of a vector, in their order: name, unit, window, what each is computed from.

    FLEETPULSE_CATALOG names a catalog file of your own; the default has 127 features.
    """
    from fleetpulse.ingest._open_store import load_catalog
    from fleetpulse.ingest._settings import load_settings

    catalog = load_catalog(load_settings())
    if markdown:
        print(catalog.to_markdown().rstrip("\n"))
        return
    from fleetpulse.ingest._terminal import console, note, print_json

    if as_json:
        columns = [{"column": column, **_described(feature)} for column, feature in enumerate(catalog.features)]
        print_json({"schema_hash": catalog.schema_hash.hex(), "features": columns})
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("#", "feature", "unit", "window", "what it is"):
        table.add_column(heading, justify="right" if heading == "#" else "left", no_wrap=heading != "what it is")
    group = ""
    for column, feature in enumerate(catalog.features):
        if feature.group != group:
            group = feature.group
            table.add_row("", f"[bold]{escape(group)}[/]")
        table.add_row(str(column), *map(escape, (feature.name, feature.unit, feature.window, feature.doc)))
    console().print(table)
    note(f"{len(catalog.features)} features, schema {catalog.schema_hash.hex()}")


def _described(feature: Feature) -> dict[str, Any]:
    metrics = sorted({metric for measure in feature.measures for metric in measure.of.metrics})
    return {
        "name": feature.name,
        "unit": feature.unit,
        "group": feature.group,
        "window": feature.window,
        "doc": feature.doc,
        "bounds": feature.bounds,
        "metrics": metrics,
    }
