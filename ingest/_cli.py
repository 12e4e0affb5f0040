"""The `fleetpulse` console command."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from fleetpulse.ingest._errors import UserError

app = typer.Typer(
    name="fleetpulse",
    help="OpenTelemetry metrics from Kafka in; honest feature vectors of every node in Redis, and anomalies with "
    "reasons, out. Settings come from the environment: see `fleetpulse settings`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = {
    "demo": "_cmd_demo",
    "worker": "_cmd_worker",
    "sampler": "_cmd_sampler",
    "replay": "_cmd_replay",
    "simulate": "_cmd_simulate",
    "features": "_cmd_features",
    "anomalies": "_cmd_anomalies",
    "series": "_cmd_series",
    "deadletter": "_cmd_deadletter",
    "catalog": "_cmd_catalog",
    "settings": "_cmd_settings",
    "evaluate": "_cmd_evaluate",
    "doctor": "_cmd_doctor",
    "warmup": "_cmd_warmup",
}
"""Command -> module of its function, which is named COMMAND_command and imports what is heavy only when it runs. In its
place there may be a Typer app of that name, for a command that has commands of its own."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fleetpulse {version('fleetpulse')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


for _name, _module in COMMANDS.items():
    _command = getattr(importlib.import_module(f"fleetpulse.ingest.{_module}"), f"{_name}_command")
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(_command)


def main() -> None:
    """Runs a command; what the user can mend is one line on standard error and exit code 2."""
    try:
        app(standalone_mode=True)
    except UserError as error:
        print(f"fleetpulse: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:
        # The reader of our output (head, say) has seen enough.
        sys.stderr.close()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
