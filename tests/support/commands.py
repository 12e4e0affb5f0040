"""Running a command's function as the console would, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._settings import load_settings


@dataclass
class Done:
    code: int
    out: str
    err: str

    def json(self) -> list[Any]:
        """The objects of standard output, one a line, each without NaN."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is not JSON")

        return [json.loads(line, parse_constant=refuse) for line in self.out.splitlines()]


class Commands:
    """Settings of a test, and commands run under them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._monkeypatch.setenv("COLUMNS", "200")

    def set(self, **settings: str) -> None:
        for name, value in settings.items():
            self._monkeypatch.setenv(f"FLEETPULSE_{name.upper()}", value)

    def run(self, command: Callable[..., None] | typer.Typer, *words: str) -> Done:
        load_settings.cache_clear()
        app = command
        if not isinstance(app, typer.Typer):
            app = typer.Typer(pretty_exceptions_enable=False)
            app.command()(command)
        result = CliRunner().invoke(app, list(words))
        load_settings.cache_clear()
        if isinstance(result.exception, UserError):
            text = str(result.exception)
            assert "\n" not in text, "what the user reads is one line"
            return Done(2, result.stdout, f"{result.stderr}fleetpulse: {text}\n")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)
