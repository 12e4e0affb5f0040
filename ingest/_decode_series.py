"""From protobuf's messages to series: the part of decoding that is done once per series, not per point."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from fleetpulse.features._series import (
    Attributes,
    AttributeValue,
    JsonText,
    Kind,
    NodeId,
    SeriesIdentity,
    Source,
    Temporality,
    key_of,
)
from fleetpulse.ingest._aliases import attribute_text, load_aliases

OVERFLOW_ATTRIBUTE = "otel.metric.overflow"

SHARED_MAX = 65_536
"""Attributes and sources that are kept to be shared by series, at most; then all are dropped, and kept anew."""

KINDS = {
    "gauge": Kind.GAUGE,
    "sum": Kind.SUM,
    "histogram": Kind.HISTOGRAM,
    "exponential_histogram": Kind.EXPONENTIAL_HISTOGRAM,
    "summary": Kind.SUMMARY,
}


@dataclass(frozen=True)
class MetricHead:
    """What a metric says of all its points."""

    name: str
    unit: str
    kind: Kind
    temporality: Temporality
    monotonic: bool

    @property
    def needs_temporality(self) -> bool:
        """Sums and histograms mean nothing without; a gauge and a summary have none."""
        return self.kind not in (Kind.GAUGE, Kind.SUMMARY) and self.temporality is Temporality.UNSPECIFIED


def metric_head(metric: Metric) -> MetricHead | None:
    """None for a metric without data, or with data of a kind that is not known here."""
    which = metric.WhichOneof("data")
    if which is None:
        return None
    data = getattr(metric, which)
    return make_head(
        metric.name,
        metric.unit,
        KINDS[which],
        getattr(data, "aggregation_temporality", 0),
        getattr(data, "is_monotonic", False),
    )


def make_head(name: str, unit: str, kind: Kind, temporality: int, monotonic: bool) -> MetricHead:
    """temporality: as on the wire; a number that OTLP does not define is as good as none."""
    if kind is Kind.SUMMARY:
        return MetricHead(name, unit, kind, Temporality.CUMULATIVE, True)
    known = Temporality(temporality) if temporality in (1, 2) else Temporality.UNSPECIFIED
    return MetricHead(name, unit, kind, known, monotonic)


def series_identity(
    node: NodeId, resource: Attributes, scope: str, head: MetricHead, attributes: Attributes
) -> SeriesIdentity:
    return SeriesIdentity(
        node, resource, scope, head.name, head.unit, head.kind, head.temporality, head.monotonic, attributes
    )


class Family:
    """All series of one metric under one resource and scope. They differ in their attributes only."""

    def __init__(self, node: NodeId, resource: Attributes, scope: str, head: MetricHead) -> None:
        self._bare = series_identity(node, resource, scope, head, ())
        self._digest = self._bare.head_digest()
        self._aliases = load_aliases()
        bare = self._bare
        seen = [pair for pair in resource if pair[0] in self._aliases.resource_labels]
        self._source_key = (bare.metric, bare.unit, bare.kind, bare.temporality, bare.monotonic, repr(seen))

    def identity(self, attributes: Attributes, text: str) -> SeriesIdentity:
        """text: repr(attributes)."""
        bare = self._bare
        made = SeriesIdentity(
            bare.node,
            bare.resource,
            bare.scope,
            bare.metric,
            bare.unit,
            bare.kind,
            bare.temporality,
            bare.monotonic,
            attributes,
        )
        # Known already, so that the property need not work it out from the start.
        made.__dict__["key"] = key_of(self._digest.copy(), text)
        return made

    def source(self, identity: SeriesIdentity, text: str, known: dict[tuple[object, ...], Source]) -> Source:
        """The source of a series of this family. known: those made before, which nodes with the same metrics share."""
        key = (*self._source_key, text)
        source = known.get(key)
        if source is None:
            if len(known) >= SHARED_MAX:
                known.clear()
            source = known[key] = self._aliases.source(identity)
        return source


def summary_heads(head: MetricHead) -> tuple[MetricHead, MetricHead, MetricHead]:
    """The series a summary is split into: how many, their sum, and the readings of its quantiles."""
    count = MetricHead(f"{head.name}.count", "1", Kind.SUMMARY, Temporality.CUMULATIVE, True)
    total = MetricHead(f"{head.name}.sum", head.unit, Kind.SUMMARY, Temporality.CUMULATIVE, True)
    quantile = MetricHead(head.name, head.unit, Kind.SUMMARY, Temporality.UNSPECIFIED, False)
    return count, total, quantile


def with_quantile(attributes: Attributes, quantile: float) -> Attributes:
    """The attributes of a summary's quantile, which is a label as in Prometheus: "0.5"."""
    return _sorted([*attributes, ("quantile", repr(quantile))])


def scope_text(scope: InstrumentationScope) -> str:
    """A scope in one line: name@version{attributes}. Different scopes have different texts."""
    text = _quoted(scope.name)
    if scope.version:
        text += f"@{_quoted(scope.version)}"
    if scope.attributes:
        text += f"{{{sorted_attributes(scope.attributes)!r}}}"
    return text


def sorted_attributes(attributes: Iterable[KeyValue]) -> Attributes:
    return _sorted((attribute.key, _value(attribute.value)) for attribute in attributes)


def is_overflow(attributes: Attributes) -> bool:
    """Whether the series stands for all that an SDK's cardinality limit left no room for."""
    return (OVERFLOW_ATTRIBUTE, True) in attributes


def _sorted(attributes: Iterable[tuple[str, AttributeValue]]) -> Attributes:
    # By the value as well: a name may be repeated, against the rules, and the order on the wire must not matter.
    return tuple(sorted(attributes, key=lambda attribute: (attribute[0], repr(attribute[1]))))


def _value(value: AnyValue) -> AttributeValue:
    which = value.WhichOneof("value")
    if which in ("string_value", "bool_value", "int_value", "double_value", "bytes_value"):
        plain: AttributeValue = getattr(value, which)
        return plain
    return JsonText(json.dumps(_plain(value), sort_keys=True))


def _plain(value: AnyValue) -> object:
    """A nested value as JSON has it, with the type named where JSON would lose it."""
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [_plain(inner) for inner in value.array_value.values]
    if which == "kvlist_value":
        return {"map": [[inner.key, _plain(inner.value)] for inner in _by_key(value.kvlist_value.values)]}
    if which == "bytes_value":
        return {"bytes": attribute_text(value.bytes_value)}
    plain: object = getattr(value, which)
    return plain


def _by_key(entries: Iterable[KeyValue]) -> list[KeyValue]:
    return sorted(entries, key=lambda entry: (entry.key, entry.value.SerializeToString(deterministic=True)))


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("@", "%40").replace("{", "%7B")
