"""Other names of the catalog's sources: receivers, semantic-convention versions, Prometheus exporters.

The table itself is aliases.toml, whose head explains its entries.
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from fleetpulse.features._series import AttributeValue, Kind, SeriesIdentity, Source, Temporality

UNITS = {
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "ns": ("s", 1e-9),
    "min": ("s", 60.0),
    "h": ("s", 3600.0),
    "By": ("By", 1.0),
    "kBy": ("By", 1e3),
    "MBy": ("By", 1e6),
    "GBy": ("By", 1e9),
    "KiBy": ("By", 1024.0),
    "MiBy": ("By", 1024.0**2),
    "GiBy": ("By", 1024.0**3),
    "bit": ("By", 0.125),
    "seconds": ("s", 1.0),
    "milliseconds": ("s", 1e-3),
    "bytes": ("By", 1.0),
    "1": ("1", 1.0),
    "%": ("1", 0.01),
    "percent": ("1", 0.01),
    "mW": ("W", 1e-3),
    "W": ("W", 1.0),
    "J": ("J", 1.0),
    "mJ": ("J", 1e-3),
    "MHz": ("Hz", 1e6),
    "Hz": ("Hz", 1.0),
    "Cel": ("Cel", 1.0),
}
"""Units by their UCUM codes, and Prometheus' words for them: base unit, and what one of it is in the base unit."""

PROMETHEUS_UNITS = {
    "s": "seconds",
    "By": "bytes",
    "1": "ratio",
    "Hz": "hertz",
    "W": "watts",
    "J": "joules",
    "Cel": "celsius",
}


class AliasError(ValueError):
    """aliases.toml is not as its head says. Names the entry."""


@dataclass(frozen=True)
class Alias:
    """What one name means.

    unit: of the values, where the series does not say. scale: overrides what the units say. labels: the receiver's
    attribute -> ours; constant: labels that the name implies; values: by our label, the receiver's value -> ours.
    when: attribute -> expression that its whole value has to match, "" being that of an absent one. counter: it is a
    cumulative monotonic sum, whatever it arrives as.
    """

    metric: str
    unit: str
    scale: float | None = None
    when: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    constant: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    counter: bool = False

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(re.fullmatch(wanted, attributes.get(name, "")) for name, wanted in self.when.items())


@dataclass(frozen=True)
class Derivation:
    """A canonical metric with constant labels: the sum of some gauges less the sum of others.

    labels: the parts' attribute -> ours.
    """

    metric: str
    plus: tuple[str, ...]
    minus: tuple[str, ...] = ()
    constant: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AliasTable:
    """units: canonical metric -> its unit. aliases: by the name on the wire; the first that matches counts.

    labels, values: for every canonical metric. derivations: by the name of a part, with the part's sign.
    """

    units: Mapping[str, str]
    aliases: Mapping[str, tuple[Alias, ...]]
    labels: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]]
    resource_labels: Mapping[str, str]
    derivations: Mapping[str, tuple[tuple[Derivation, int], ...]] = field(default_factory=dict)

    def source(self, identity: SeriesIdentity) -> Source:
        """The series under its canonical name. One that the table does not know keeps its own name, unit and labels."""
        attributes = {name: attribute_text(value) for name, value in identity.attributes}
        candidates = self.aliases.get(identity.metric, ())
        alias = next((alias for alias in candidates if alias.matches(attributes)), None)
        metric = alias.metric if alias else identity.metric
        unit = self.units.get(metric)
        labels = self._labels(identity, attributes, alias, canonical=unit is not None)
        kind, temporality, monotonic = identity.kind, identity.temporality, identity.monotonic
        if identity.kind is Kind.SUMMARY:
            # Its parts are series of their own: the totals count up, the quantiles are readings.
            kind = Kind.SUM if monotonic else Kind.GAUGE
        if alias and alias.counter and kind in (Kind.GAUGE, Kind.SUM) and temporality is not Temporality.DELTA:
            kind, temporality, monotonic = Kind.SUM, Temporality.CUMULATIVE, True
        return Source(
            metric=metric,
            unit=identity.unit if unit is None else unit,
            labels=labels,
            kind=kind,
            temporality=temporality,
            monotonic=monotonic,
            scale=1.0 if unit is None else _scale(identity.unit, unit, alias),
        )

    def _labels(
        self, identity: SeriesIdentity, attributes: Mapping[str, str], alias: Alias | None, *, canonical: bool
    ) -> dict[str, str]:
        resource = dict(identity.resource)
        labels = {
            label: attribute_text(resource[name]) for name, label in self.resource_labels.items() if name in resource
        }
        if not canonical:
            return labels | dict(attributes)
        renames = {**self.labels, **alias.labels} if alias else self.labels
        labels |= {renames.get(name, name): text for name, text in attributes.items()}
        for spelling in (self.values, alias.values if alias else {}):
            for label, texts in spelling.items():
                if label in labels:
                    labels[label] = texts.get(labels[label], labels[label])
        return labels | dict(alias.constant) if alias else labels


@cache
def load_aliases() -> AliasTable:
    """The packaged table. Raises AliasError."""
    return parse_aliases(resources.files("fleetpulse.ingest").joinpath("aliases.toml").read_text("utf-8"))


def parse_aliases(text: str) -> AliasTable:
    """Raises AliasError, or tomllib.TOMLDecodeError."""
    table = tomllib.loads(text)
    units: dict[str, str] = table["metrics"]
    aliases: dict[str, tuple[Alias, ...]] = {}
    for metric, unit in units.items():
        for name in _prometheus_names(metric, unit):
            aliases[name] = (Alias(metric, unit),)
    for section, entries in table["aliases"].items():
        for name, entry in entries.items():
            found = tuple(
                _alias(f"{section}: {name}", each, units) for each in (entry if isinstance(entry, list) else [entry])
            )
            for spelling in _with_and_without_total(name):
                aliases[spelling] = found
    labels = dict(table["labels"])
    labels |= {name.replace(".", "_"): label for name, label in table["labels"].items()}
    derivations = _derivations(table.get("derived", []), units)
    return AliasTable(units, aliases, labels, table["values"], table["resource_labels"], derivations)


def attribute_text(value: AttributeValue) -> str:
    """An attribute's value as a label has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _alias(place: str, entry: Mapping[str, object] | str, units: Mapping[str, str]) -> Alias:
    words = {"metric": entry} if isinstance(entry, str) else dict(entry)
    metric = words.pop("metric", None)
    if not isinstance(metric, str) or metric not in units:
        raise AliasError(f"{place}: its metric {metric!r} is not one of [metrics]")
    words.setdefault("unit", units[metric])
    try:
        alias = Alias(metric, **words)
        for expression in alias.when.values():
            re.compile(expression)
    except (TypeError, re.error) as error:
        raise AliasError(f"{place}: {error}") from None
    if alias.scale is None and _base(alias.unit) != _base(units[metric]):
        raise AliasError(f"{place}: cannot turn {alias.unit} into {units[metric]}, say its scale")
    return alias


def _derivations(
    entries: list[dict[str, Any]], units: Mapping[str, str]
) -> dict[str, tuple[tuple[Derivation, int], ...]]:
    by_part: dict[str, tuple[tuple[Derivation, int], ...]] = {}
    for entry in entries:
        place = f"derived: {entry.get('metric')}"
        if entry.get("metric") not in units:
            raise AliasError(f"{place}: its metric is not one of [metrics]")
        try:
            derivation = Derivation(**entry | {sign: tuple(entry.get(sign, ())) for sign in ("plus", "minus")})
        except TypeError as error:
            raise AliasError(f"{place}: {error}") from None
        if not derivation.plus:
            raise AliasError(f"{place}: it has no parts in plus")
        for part, sign in (*((part, 1) for part in derivation.plus), *((part, -1) for part in derivation.minus)):
            by_part[part] = (*by_part.get(part, ()), (derivation, sign))
    return by_part


def _scale(unit: str, into: str, alias: Alias | None) -> float:
    if alias is not None and alias.scale is not None:
        return alias.scale
    given = unit if _base(unit) == _base(into) else alias.unit if alias is not None else into
    if given == into:
        return 1.0
    return UNITS[given][1] / UNITS[into][1]


def _base(unit: str) -> str:
    return UNITS[unit][0] if unit in UNITS else unit


def _prometheus_names(metric: str, unit: str) -> list[str]:
    """A canonical metric as a Prometheus exporter of the collector spells it."""
    name = metric.replace(".", "_")
    word = PROMETHEUS_UNITS.get(unit)
    names = {name, f"{name}_total"}
    if word is not None and not name.endswith(f"_{word}"):
        names |= {f"{name}_{word}", f"{name}_{word}_total"}
    return sorted(names - {metric})


def _with_and_without_total(name: str) -> list[str]:
    """A Prometheus counter may have its suffix or, by the receiver's choice, not."""
    return [name, name.removesuffix("_total")] if name.endswith("_total") else [name]
