"""`fleetpulse settings`: every setting, its default, and what it is now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

MASK = "********"


def settings_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a table for a page, without current values.")
    ] = False,
) -> None:
    """List all settings with their defaults and current values. Passwords are not shown.

    Settings come from environment variables. When one is wrong, the list is printed all the same, then the mistake.
    """
    from fleetpulse.ingest._errors import UserError
    from fleetpulse.ingest._settings import PREFIX, Settings, load_settings
    from fleetpulse.ingest._terminal import console, print_json

    mistake: UserError | None = None
    current: Settings | None = None
    try:
        current = load_settings()
    except UserError as error:
        mistake = error
    rows = []
    for name, field in Settings.model_fields.items():
        variable = PREFIX + name.upper()
        given = next((value for key, value in os.environ.items() if key.upper() == variable), None)
        value = given if current is None and given is not None else getattr(current, name, field.default)
        row: dict[str, Any] = {
            "setting": variable,
            "value": _plain(name, value, field),
            "default": _plain(name, field.default, field),
            "from": "default" if given is None else "environment",
            "description": field.description or "",
            "choices": _choices(field),
        }
        rows.append(row)
    if markdown:
        print(_page(rows))
    elif as_json:
        for row in rows:
            print_json(row)
    else:
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("setting", "value", "default", "what it is"):
            table.add_column(heading, no_wrap=heading == "setting", overflow="fold")
        for row in rows:
            changed = row["from"] == "environment"
            cells = [row["setting"], _cell(row["value"]), _cell(row["default"]), _sentence(row)]
            table.add_row(*map(escape, cells), style="bold" if changed else None)
        console().print(table)
    if mistake is not None:
        raise mistake


def _plain(name: str, value: Any, field: FieldInfo) -> Any:
    """A value that may be shown: of an address the password is masked, any other secret as a whole."""
    from pydantic import SecretStr

    from fleetpulse.store._link import shown

    secret = isinstance(value, SecretStr) or "SecretStr" in str(field.annotation)
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not secret or text is None:
        return text
    return shown(str(text)) if name.endswith("_url") else MASK


def _choices(field: FieldInfo) -> list[str] | None:
    return [str(choice) for choice in get_args(field.annotation)] if get_origin(field.annotation) is Literal else None


def _cell(value: Any) -> str:
    return "–" if value is None else str(value)


def _sentence(row: dict[str, Any]) -> str:
    return str(row["description"]) + (f" ({', '.join(row['choices'])})" if row["choices"] else "")


def _page(rows: list[dict[str, Any]]) -> str:
    lines = ["| setting | default | what it is |", "| --- | --- | --- |"]
    for row in rows:
        default = "–" if row["default"] is None else f"`{row['default']}`"
        lines.append(f"| `{row['setting']}` | {default} | {_sentence(row)} |".replace("\n", " "))
    return "\n".join(lines)
