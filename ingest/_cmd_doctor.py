"""`fleetpulse doctor`: what is missing, and what to do about it."""

from __future__ import annotations

from typing import Annotated

import typer

MARKS = {"ok": "[green]ok  [/]", "warning": "[yellow]note[/]", "problem": "[red]BAD [/]"}


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one check a line.")] = False,
) -> None:
    """Check broker, topics, Redis, codecs and clocks, and say what to do. Exits with 1 when something is wrong."""
    from rich.markup import escape

    from fleetpulse.ingest._checks import run_checks
    from fleetpulse.ingest._settings import load_settings
    from fleetpulse.ingest._terminal import console, print_json

    settings = load_settings()
    out = console()
    wrong = notes = 0
    for check in run_checks(settings):
        wrong += check.state == "problem"
        notes += check.state == "warning"
        if as_json:
            print_json({"check": check.name, "state": check.state, "found": check.found, "do": check.do})
            continue
        out.print(f"{MARKS[check.state]} {escape(check.name)}: {escape(check.found)}", soft_wrap=True)
        if check.do:
            out.print(f"     {escape(check.do)}", soft_wrap=True)
    if not as_json:
        noted = f", {notes} to note" if notes else ""
        out.print(f"{wrong} to put right{noted}." if wrong else f"Nothing is wrong{noted}.")
    if wrong:
        raise typer.Exit(1)
