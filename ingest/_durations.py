"""Durations as people write them on a command line: 10ms, 1s, 1.5s, 5m, 1m30s, 2h, 7d."""

from __future__ import annotations

import re
from fractions import Fraction

from fleetpulse.ingest._errors import UserError

MS_PER_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)


def parse_duration(text: str) -> int:
    """Whole milliseconds, at least 1. Parts may follow one another (1m30s).

    Raises UserError for a number without a unit, an unknown unit, or a duration that is not a whole positive number of
    milliseconds.
    """
    words = text.strip().lower()
    parts = _PART.findall(words)
    if not parts or "".join(number + unit for number, unit in parts) != words:
        if re.fullmatch(r"\d+(\.\d+)?", words):
            raise UserError(f"the duration {text!r} has no unit: write {words}s or {words}ms, say")
        raise UserError(
            f"{text!r} is not a duration: write a number and one of {', '.join(MS_PER_UNIT)}, like 10ms, 1s, 5m"
        )
    total = sum((Fraction(number) * MS_PER_UNIT[unit] for number, unit in parts), Fraction(0))
    if total.denominator != 1 or total < 1:
        raise UserError(f"{text!r} is not a whole number of milliseconds above 0")
    return int(total)


def format_duration(ms: int) -> str:
    """The shortest form that parse_duration reads back: 90000 -> 1m30s, 1500 -> 1s500ms, 0 -> 0ms."""
    if ms == 0:
        return "0ms"
    text, left = "", ms
    for unit, size in sorted(MS_PER_UNIT.items(), key=lambda item: -item[1]):
        count, left = divmod(left, size)
        if count:
            text += f"{count}{unit}"
    return text
