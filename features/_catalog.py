"""The feature catalog: which columns a vector has, and which series each rests on.

catalog.toml says how its rows are written.

A file of the user's own has the same form. With `extends = "default"` at its top, its rows follow the default 127 and
may use the default's sources and patterns.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from fleetpulse.features._catalog_lines import CatalogError, Located, locate
from fleetpulse.features._series import Kind, Source, Temporality

WINDOWS_NS = {"5m": 300_000_000_000, "1m": 60_000_000_000}
COMBINES = ("sum", "mean", "min", "max", "std", "count")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
AGGREGATES = ("last", "mean", "min", "max", "std", "slope", "rate", "increase", "share_above", *QUANTILES)
HISTOGRAM_AGGREGATES = ("rate", "increase", *QUANTILES)
GIVES = ("value", "low", "high", "saturated")
CONTEXTS = ("time_of_day_sine", "time_of_day_cosine", "pending_pods", "region_load")

_Conditions = list[tuple[str, Callable[[str], re.Match[str] | None]]]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SOURCE_KEYS = ("metrics", "where", "except", "each", "combine", "across", "value_is", "counter", "histogram")
_MEASURE_KEYS = ("of", "per", "aggregate", "give", "complement", "at_zero")
_FEATURE_KEYS = ("name", "group", "unit", "window", "doc", "bounds", "above", "context", "choose", *_MEASURE_KEYS)
_CHOICE_KEYS = ("name", "rank", *_MEASURE_KEYS)


def _compiled(pairs: Sequence[tuple[str, str]]) -> _Conditions:
    return [(label, re.compile(expression).fullmatch) for label, expression in pairs]


@dataclass(frozen=True)
class SeriesSet:
    """The series that one [source.<name>] selects, and how they become one number.

    where, leave_out: (label, regular expression) pairs; the expression has to match the whole value, and an absent
    label counts as "". each: labels whose values split the set into groups. combine works within a group, across
    between groups. once: series with equal labels are reports of one thing, of which one counts.
    """

    name: str
    metrics: tuple[str, ...]
    where: tuple[tuple[str, str], ...]
    leave_out: tuple[tuple[str, str], ...]
    each: tuple[str, ...]
    combine: str
    across: str
    value_is: float | None
    counter: bool
    histogram: bool
    once: bool

    def takes(self, source: Source) -> bool:
        """Whether a series with this source belongs here.

        Never taken: unspecified temporality, summaries, and delta sums that may fall, whose level cannot be known.
        """
        if source.metric not in self.metrics:
            return False
        if (source.kind in (Kind.HISTOGRAM, Kind.EXPONENTIAL_HISTOGRAM)) is not self.histogram:
            return False
        if source.kind is Kind.SUMMARY or (
            source.kind is not Kind.GAUGE and source.temporality is Temporality.UNSPECIFIED
        ):
            return False
        if source.kind is Kind.SUM and source.temporality is Temporality.DELTA and not source.monotonic:
            return False
        labels = source.labels
        wanted, unwanted = self._conditions
        return all(match(labels.get(label, "")) for label, match in wanted) and not any(
            match(labels.get(label, "")) for label, match in unwanted
        )

    @cached_property
    def _conditions(self) -> tuple[_Conditions, _Conditions]:
        return _compiled(self.where), _compiled(self.leave_out)


@dataclass(frozen=True)
class Measure:
    """One way to compute a feature: an aggregate of `of`, divided by `per` when there is one.

    Among a feature's measures the lowest rank that has a value wins, within a rank the largest value.
    """

    name: str
    rank: int
    of: SeriesSet
    per: SeriesSet | None
    aggregate: str
    give: str
    complement: bool
    at_zero: float | None


@dataclass(frozen=True)
class Feature:
    """One column. bounds: the closed range that values are clipped to. context: set instead of measures when the value
    comes from the time or the fleet; above: the bound of share_above.
    chooses: several sources may serve, and the one used is published with the value."""

    name: str
    unit: str
    group: str
    doc: str
    window: str
    bounds: tuple[float, float] | None
    above: float | None
    context: str | None
    measures: tuple[Measure, ...]
    chooses: bool

    @property
    def window_ns(self) -> int:
        return WINDOWS_NS[self.window]

    @property
    def from_fleet(self) -> bool:
        """True when only the cluster's vector can hold the value: it is missing in a node's."""
        return self.context in ("pending_pods", "region_load")


@dataclass(frozen=True)
class Catalog:
    """An ordered set of features. sets: every series set that some feature uses, each once."""

    features: tuple[Feature, ...]
    sets: tuple[SeriesSet, ...]
    path: str

    @classmethod
    def load(cls, path: str | None = None) -> Catalog:
        """The packaged default, or a file of the user's own. Raises CatalogError, which names file and line."""
        if path is None:
            return _Reader("catalog.toml", _default_text()).read()
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CatalogError(path, 0, f"cannot be read ({error}); give the path of a TOML file") from None
        return _Reader(path, text).read()

    @cached_property
    def schema_hash(self) -> bytes:
        """16 bytes of everything that gives the columns their order and meaning; docs and groups are left out."""
        meaning = []
        for feature in self.features:
            row = asdict(feature)
            del row["doc"], row["group"], row["chooses"]
            meaning.append(row)
        text = json.dumps(meaning, sort_keys=True, ensure_ascii=True)
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def _sets_by_metric(self) -> dict[str, list[int]]:
        by_metric: dict[str, list[int]] = {}
        for index, series_set in enumerate(self.sets):
            for metric in series_set.metrics:
                by_metric.setdefault(metric, []).append(index)
        return by_metric

    def index(self, name: str) -> int:
        """Column of a feature. Raises KeyError."""
        return self._index[name]

    def select(self, source: Source) -> tuple[int, ...]:
        """Indexes into `sets` of those that take a series of this source."""
        candidates = self._sets_by_metric.get(source.metric, ())
        return tuple(index for index in candidates if self.sets[index].takes(source))

    def to_markdown(self) -> str:
        """The page docs/features.md."""
        from fleetpulse.features._catalog_page import render

        return render(self)


def _default_text() -> str:
    return resources.files("fleetpulse.features").joinpath("catalog.toml").read_text(encoding="utf-8")


class _Reader:
    """Turns one file's text into a Catalog, or says what is wrong with it and where."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.patterns: dict[str, str] = {}
        self.once = ""
        self.sets: dict[str, SeriesSet] = {}
        self.features: list[Feature] = []
        self.by_meaning: dict[tuple[object, ...], str] = {}

    def read(self) -> Catalog:
        try:
            document = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"line (\d+)", str(error))
            line = int(found[1]) if found else self.text.count("\n") + 1
            raise CatalogError(self.path, line, f"not TOML: {error}") from None
        places = locate(self.path, self.text)
        top = places.top
        top.check_keys(document, ("extends", "once", "pattern", "source", "feature"))
        if "extends" in document:
            if document["extends"] != "default":
                raise CatalogError(self.path, 1, 'extends can only be "default"')
            base = _Reader("catalog.toml", _default_text())
            base.read()
            self.patterns, self.sets, self.features = base.patterns, base.sets, base.features
            self.once = base.once
            self.by_meaning = base.by_meaning
        for label, table in (("pattern", dict), ("source", dict), ("feature", list)):
            if not isinstance(document.get(label, table()), table):
                raise CatalogError(self.path, 1, f"{label} has the wrong form; see the packaged catalog.toml")
        patterns = document.get("pattern", {})
        for name in patterns:
            self.patterns[name] = places.pattern.expression(patterns, name)
        if "once" in document:
            self.once = top.expression(document, "once")
        for name, table in document.get("source", {}).items():
            self._add_set(name, table, places.source(name))
        rows = document.get("feature", [])
        if not rows and not self.features:
            raise CatalogError(self.path, 1, "has no [[feature]]; a catalog needs at least one")
        for index, row in enumerate(rows):
            self._add_feature(row, places.feature(index))
        used = [m for feature in self.features for m in feature.measures]
        sets = {s.name: s for m in used for s in (m.of, m.per) if s is not None}
        return Catalog(tuple(self.features), tuple(sets.values()), self.path)

    def _add_set(self, name: str, table: Any, at: Located) -> None:
        at.check_table(table)
        at.check_keys(table, _SOURCE_KEYS)
        if name in self.sets:
            raise at.error("there already is a source of this name; choose another")
        if not _NAME.fullmatch(name):
            raise at.error("a source's name is made of lower-case letters, digits and _")
        metrics = at.texts(table, "metrics")
        if not metrics:
            raise at.error("needs metrics: a list of canonical metric names", "metrics")
        combine = at.one_of(table, "combine", COMBINES, "sum")
        value_is = at.number(table, "value_is")
        if value_is is not None and combine != "count":
            raise at.error('value_is goes with combine = "count"', "value_is")
        self.sets[name] = SeriesSet(
            name=name,
            metrics=metrics,
            where=self._conditions(table, "where", at),
            leave_out=self._conditions(table, "except", at),
            each=at.texts(table, "each"),
            combine=combine,
            across=at.one_of(table, "across", COMBINES, "sum"),
            value_is=value_is,
            counter=at.flag(table, "counter"),
            histogram=at.flag(table, "histogram"),
            once=all(re.fullmatch(self.once, metric) for metric in metrics),
        )

    def _conditions(self, table: Mapping[str, Any], key: str, at: Located) -> tuple[tuple[str, str], ...]:
        conditions = table.get(key, {})
        if not isinstance(conditions, dict):
            raise at.error(f"{key} is a table of label = expression", key)
        found = []
        for label in sorted(conditions):
            expression = conditions[label]
            if isinstance(expression, str) and expression.startswith("@"):
                if expression[1:] not in self.patterns:
                    raise at.error(f"there is no pattern {expression[1:]!r} in [pattern]", key)
                expression = self.patterns[expression[1:]]
            found.append((label, at.expression({label: expression}, label, key)))
        return tuple(found)

    def _add_feature(self, row: Any, at: Located) -> None:
        at.check_table(row)
        at.check_keys(row, _FEATURE_KEYS)
        name = at.text(row, "name")
        if not _NAME.fullmatch(name):
            raise at.error("a feature's name is made of lower-case letters, digits and _", "name")
        if any(feature.name == name for feature in self.features):
            raise at.error("there already is a feature of this name; choose another", "name")
        context = at.one_of(row, "context", CONTEXTS, "") or None
        ways = [key for key in ("of", "choose", "context") if key in row]
        if len(ways) != 1:
            raise at.error("needs exactly one of: of, choose, context")
        above = at.number(row, "above")
        if context is not None:
            measures: tuple[Measure, ...] = ()
        elif "choose" in row:
            measures = self._choices(row, at, above)
        else:
            measures = self._measures(row, at, above, 0, None)
        feature = Feature(
            name=name,
            unit=at.text(row, "unit"),
            group=at.text(row, "group"),
            doc=at.text(row, "doc"),
            window=at.one_of(row, "window", tuple(WINDOWS_NS), "5m"),
            bounds=_bounds(row, at),
            above=above,
            context=context,
            measures=measures,
            chooses="choose" in row or len(measures) > 1,
        )
        alike = self.by_meaning.setdefault(_meaning(feature), name)
        if alike != name:
            raise at.error(f"computes the same as {alike!r}; no two features may be alike")
        self.features.append(feature)

    def _choices(self, row: Mapping[str, Any], at: Located, above: float | None) -> tuple[Measure, ...]:
        choices = row["choose"]
        if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
            raise at.error("choose is a list of tables, [[feature.choose]]", "choose")
        measures: list[Measure] = []
        for choice, place in zip(choices, at.parts(len(choices)), strict=True):
            place.check_keys(choice, _CHOICE_KEYS)
            rank = place.number(choice, "rank")
            if rank is None:
                raise place.error("needs a rank: the lowest that is reported wins")
            measures += self._measures(choice, place, above, int(rank), place.text(choice, "name"))
        if len({measure.of.histogram for measure in measures}) > 1:
            raise at.error("cannot choose between histograms and other series", "choose")
        return tuple(measures)

    def _measures(
        self, row: Mapping[str, Any], at: Located, above: float | None, rank: int, name: str | None
    ) -> tuple[Measure, ...]:
        """One measure for each pair of `of` and `per`, in the order they are to be tried."""
        ofs = self._named_sets(row, "of", at)
        pers: Sequence[SeriesSet | None] = self._named_sets(row, "per", at) if "per" in row else (None,)
        pairs = [(of, per) for of in ofs for per in pers]
        if name is not None and len(pairs) > 1:
            raise at.error("a choice names one source; add another [[feature.choose]] instead", "of")
        measures = []
        for index, (of, per) in enumerate(pairs):
            label = of.name if len(ofs) > 1 or per is None else per.name
            measure = Measure(
                name=label if name is None else name,
                rank=rank + index,
                of=of,
                per=per,
                aggregate=at.one_of(row, "aggregate", AGGREGATES, None),
                give=at.one_of(row, "give", GIVES, "value"),
                complement=at.flag(row, "complement"),
                at_zero=at.number(row, "at_zero"),
            )
            _check_measure(measure, above, at)
            measures.append(measure)
        return tuple(measures)

    def _named_sets(self, row: Mapping[str, Any], key: str, at: Located) -> list[SeriesSet]:
        names = (row[key],) if isinstance(row.get(key), str) else at.texts(row, key)
        if not names:
            raise at.error(f"needs {key}: the name of a [source.<name>]")
        for name in names:
            if name not in self.sets:
                raise at.error(f"there is no source {name!r}{at.close(name, self.sets)}", key)
        return [self.sets[name] for name in names]


def _bounds(row: Mapping[str, Any], at: Located) -> tuple[float, float] | None:
    if "bounds" not in row:
        return None
    bounds = row["bounds"]
    if isinstance(bounds, list) and len(bounds) == 2 and all(type(b) in (int, float) for b in bounds):
        low, high = float(bounds[0]), float(bounds[1])
        if low < high:
            return low, high
    raise at.error("bounds is a list of two numbers, the lower first", "bounds")


def _check_measure(measure: Measure, above: float | None, at: Located) -> None:
    """What single keys cannot tell: whether they go together."""
    histogram = measure.of.histogram
    if histogram and measure.aggregate not in HISTOGRAM_AGGREGATES:
        raise at.error(f"of a histogram one can take {', '.join(HISTOGRAM_AGGREGATES)}", "aggregate")
    if histogram and measure.per is not None:
        raise at.error("a histogram cannot be divided; leave out per", "per")
    if measure.per is not None and measure.per.histogram:
        raise at.error("cannot divide by a histogram", "per")
    if measure.give != "value" and not (histogram and measure.aggregate in QUANTILES):
        raise at.error("give goes with a quantile of a histogram", "give")
    if (measure.aggregate == "share_above") != (above is not None):
        raise at.error('above (a number) and aggregate = "share_above" go together', "aggregate")
    if measure.aggregate in ("rate", "increase") and "count" in (measure.of.combine, measure.of.across):
        raise at.error("a count of series has no rate", "aggregate")
    if measure.per is None and (measure.complement or measure.at_zero is not None):
        raise at.error("complement and at_zero go with per", "of")
    if measure.per is not None and measure.per.each not in ((), measure.of.each):
        raise at.error("per must split by the same labels as of, or not at all (each)", "per")


def _meaning(feature: Feature) -> tuple[object, ...]:
    """What a feature computes, whatever it and its sources are called."""
    plain = tuple(
        (m.rank, _anonymous(m.of), m.per and _anonymous(m.per), m.aggregate, m.give, m.complement, m.at_zero)
        for m in feature.measures
    )
    return feature.window, feature.above, feature.context, plain


def _anonymous(series_set: SeriesSet) -> SeriesSet:
    return replace(series_set, name="")
