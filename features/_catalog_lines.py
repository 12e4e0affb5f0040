"""Where things stand in a catalog file, so that a mistake is reported with its line."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"""\s*(?:([A-Za-z0-9_-]+)|"([^"]+)"|'([^']+)')\s*=""")


class CatalogError(ValueError):
    """A catalog file that cannot be used: where, what, and what to do. line is 0 when it has none."""

    def __init__(self, path: str, line: int, message: str) -> None:
        super().__init__(f"{path}, line {line}: {message}" if line else f"{path}: {message}")
        self.path = path
        self.line = line


@dataclass
class Located:
    """One table of the file: its first line, the lines of its keys, and what to call it in a message.

    The checking methods return a key's value in the type that their name says, or raise CatalogError at its line.
    """

    path: str
    line: int
    keys: dict[str, int]
    what: str
    inner: list[Located] = field(default_factory=list)

    def error(self, message: str, key: str | None = None) -> CatalogError:
        line = self.line if key is None else self.keys.get(key, self.line)
        return CatalogError(self.path, line, f"{self.what}: {message}")

    def parts(self, n: int) -> list[Located]:
        """Places of the n tables within; this table's own where they were written inline."""
        return self.inner if len(self.inner) == n else [self] * n

    @staticmethod
    def close(word: str, known: Iterable[str]) -> str:
        """' (did you mean ...?)' or nothing."""
        near = difflib.get_close_matches(word, list(known), n=1)
        return f" (did you mean {near[0]!r}?)" if near else ""

    def check_table(self, table: Any) -> None:
        if not isinstance(table, dict):
            raise self.error("has to be a table")

    def check_keys(self, table: Mapping[str, Any], known: Sequence[str]) -> None:
        for key in table:
            if key not in known:
                hint = self.close(key, known) or f"; known are {', '.join(known)}"
                raise self.error(f"does not know the key {key!r}{hint}", key)

    def text(self, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key)
        if not isinstance(value, str) or not value:
            raise self.error(f"needs {key}, a text", key)
        return value

    def texts(self, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            raise self.error(f"{key} is a list of texts", key)
        return tuple(value)

    def flag(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            raise self.error(f"{key} is true or false", key)
        return value

    def number(self, table: Mapping[str, Any], key: str) -> float | None:
        value = table.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self.error(f"{key} is a number", key)
        return float(value)

    def one_of(self, table: Mapping[str, Any], key: str, known: Sequence[str], default: str | None) -> str:
        value = table.get(key, default)
        if value == default and default is not None:
            return default
        if value not in known:
            found = f"{value!r} is not one of" if key in table else "missing; it is one of"
            raise self.error(f"{key}: {found} {', '.join(known)}", key)
        return str(value)

    def expression(self, table: Mapping[str, Any], name: str, key: str | None = None) -> str:
        """A regular expression that compiles."""
        value = table[name]
        if not isinstance(value, str):
            raise self.error(f"{name} is a regular expression, written as a text", key or name)
        try:
            re.compile(value)
        except re.error as error:
            raise self.error(f"{name} = {value!r} is not a regular expression: {error}", key or name) from None
        return value


@dataclass
class Places:
    """Places of all tables. Those that were written inline, without a header of their own, are on the first line."""

    path: str
    top: Located
    pattern: Located
    sources: dict[str, Located] = field(default_factory=dict)
    features: list[Located] = field(default_factory=list)

    def source(self, name: str) -> Located:
        return self.sources.get(name) or Located(self.path, 1, {}, f"source {name}")

    def feature(self, index: int) -> Located:
        if index < len(self.features):
            return self.features[index]
        return Located(self.path, 1, {}, f"feature {index + 1}")


def locate(path: str, text: str) -> Places:
    """Lines of all tables and keys. Understands what TOML allows in such a file when tables have headers; anything
    unusual is located at the nearest header above."""
    places = Places(path, Located(path, 1, {}, "the file"), Located(path, 1, {}, "[pattern]"))
    current = places.top
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            current = _enter(places, current, path, number, header[2].replace('"', ""))
        elif key := _KEY.match(line):
            current.keys.setdefault(key[1] or key[2] or key[3], number)
            if current.what == "feature ?" and key[1] == "name":
                current.what = "feature " + line.split("=", 1)[1].split("#")[0].strip().strip("\"'")
                for part in current.inner:
                    part.what = current.what
    return places


def _enter(places: Places, current: Located, path: str, number: int, name: str) -> Located:
    if name == "feature":
        places.features.append(Located(path, number, {}, "feature ?"))
        return places.features[-1]
    if name == "feature.choose" and places.features:
        owner = places.features[-1]
        owner.keys.setdefault("choose", number)
        owner.inner.append(Located(path, number, {}, owner.what))
        return owner.inner[-1]
    if name == "pattern":
        places.pattern = Located(path, number, {}, "[pattern]")
        return places.pattern
    parts = name.split(".")
    if parts[0] == "source" and len(parts) > 1:
        if len(parts) > 2 and parts[1] in places.sources:
            # [source.x.where]: its lines belong to x.
            places.sources[parts[1]].keys.setdefault(parts[2], number)
            return places.sources[parts[1]]
        places.sources[parts[1]] = Located(path, number, {}, f"source {parts[1]}")
        return places.sources[parts[1]]
    return current
