"""How commands print: ages, numbers, times and lines of JSON."""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime
from typing import Any

from rich.console import Console

ABSENT = "–"


def console(*, error: bool = False) -> Console:
    """A console that neither cuts nor folds what goes into a pipe."""
    stream = sys.stderr if error else sys.stdout
    made = Console(file=stream, highlight=False, soft_wrap=False)
    if not stream.isatty():
        made.width = 240
    return made


def note(text: str) -> None:
    """A line for the person, beside the data."""
    print(text, file=sys.stderr)


def print_json(value: Any) -> None:
    """One line; a number that JSON does not have becomes null."""
    print(json.dumps(_without_nan(value), ensure_ascii=False, separators=(", ", ": "), allow_nan=False))


def age_text(ms: int | None) -> str:
    """350 ms, 2.5 s, 3 min 20 s, 2 h 5 min, 3 d 4 h; an age below zero is `0 ms`."""
    if ms is None:
        return ABSENT
    if ms < 1_000:
        return f"{max(0, ms)} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(ms // 1000, 60)
    if minutes < 120:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def number_text(value: float | None) -> str:
    """Four significant digits, thousands as k, M, G, T; absent as a dash."""
    if value is None or math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    for factor, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * factor or (factor > 1e3 and abs(value) >= factor):
            return f"{value / factor:.4g}{suffix}"
    return f"{value:.4g}"


def time_text(ms: int) -> str:
    """Local time of day, with the date when it is not today's."""
    moment = datetime.fromtimestamp(ms / 1000)
    today = datetime.now().date() == moment.date()
    return moment.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
