"""A request's bytes into columns of points.

What is refused, by reason, each counted in points: no_recorded_value, no_value, no_time, future (more than max_skew
after its record), not_finite, negative (of a monotonic sum), count_range (beyond int64), bucket_layout (counts do not
fit bounds), bucket_bounds (not finite, or not increasing), bucket_sum (buckets do not add up to the count),
scale_range, quantile_range, no_temporality, no_data (a metric without, or of an unknown kind: counted once),
series_limit, node_limit.

Kept all the same, and counted as cardinality_overflow: points of a series with otel.metric.overflow, into which an
SDK folds what its own limit leaves no room for. They are real totals; the attribute stays among the source's labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    SummaryDataPoint,
)

from fleetpulse.features._points import Points
from fleetpulse.features._series import Attributes, Kind, NodeId, SeriesIdentity, SeriesTable, Source
from fleetpulse.ingest._aliases import load_aliases
from fleetpulse.ingest._decode_derived import Derived
from fleetpulse.ingest._decode_known import KnownBlobs, KnownSeries, new_state
from fleetpulse.ingest._decode_output import NO_POINTS, Output
from fleetpulse.ingest._decode_scan import scan
from fleetpulse.ingest._decode_series import (
    SHARED_MAX,
    Family,
    MetricHead,
    is_overflow,
    make_head,
    sorted_attributes,
    summary_heads,
    with_quantile,
)
from fleetpulse.ingest._decode_table import (
    COUNTERS,
    J_METRIC_START,
    J_METRIC_STOP,
    J_RESOURCE_METRICS_START,
    J_RESOURCE_METRICS_STOP,
    J_SCOPE_START,
    J_SCOPE_STOP,
    MISSES,
    NEW_BLOBS,
    PART_COUNT,
    PART_QUANTILE,
    PART_SUM,
    REASON,
    REASONS,
    REJECTED,
    RESOURCE_METRICS,
    RESOURCES,
    UNATTRIBUTED,
    X_ATTRIBUTES_START,
    X_ATTRIBUTES_STOP,
    X_H1,
    X_H2,
    X_KIND,
    X_METRIC_START,
    X_METRIC_STOP,
    X_MONOTONIC,
    X_PART,
    X_POINT_START,
    X_POINT_STOP,
    X_QUANTILE,
    X_RESOURCE,
    X_SCOPE,
    X_TEMPORALITY,
    mark_refused,
)
from fleetpulse.ingest._decode_wire import ERROR_AT, ERRORS, GROW, UNREADY, I64Array
from fleetpulse.ingest._otlp import OtlpError, length_field, read_fields

NS_PER_MS = 1_000_000
INT64_MAX = 2**63 - 1
UNSPECIFIED_TEMPORALITY = "unspecified_temporality"

_METRICS, _DATA = 2, frozenset({5, 7, 9, 10, 11})
_POINTS: dict[int, type[Message]] = {
    Kind.GAUGE: NumberDataPoint,
    Kind.SUM: NumberDataPoint,
    Kind.HISTOGRAM: HistogramDataPoint,
    Kind.EXPONENTIAL_HISTOGRAM: ExponentialHistogramDataPoint,
    Kind.SUMMARY: SummaryDataPoint,
}


def _no_counts() -> Counter[str]:
    """An empty Counter, in a third of the time that Counter() takes: every record makes one."""
    return Counter.__new__(Counter)


@dataclass(slots=True)
class Decoded:
    """points: in the order of the request. refused: points by reason, see the module.

    rejected: for the dead letter, (reason, request): metrics that cannot be read, each as a request of its own with
    its resource and scope, so that it can be sent again. unattributed: resources that name no node.
    refused_by_node: of refused, what a limit left out, by node.
    """

    points: Points
    refused: Counter[str] = field(default_factory=_no_counts)
    rejected: list[tuple[str, bytes]] = field(default_factory=list)
    unattributed: int = 0
    refused_by_node: dict[NodeId, Counter[str]] = field(default_factory=dict)


class Decoder:
    """Decodes requests in the order of their records and keeps the series table of one shard.

    identity: resource attributes that may name the node, the first present wins. pool_by: resource attributes that
    together name its pool. unattributed_as: the node of resources that name none; without it their points are left
    out and the resources counted. A series enters the table with its first sound point. Not for use by two threads at
    once.
    """

    def __init__(
        self,
        table: SeriesTable,
        *,
        identity: Sequence[str],
        default_cluster: str,
        pool_by: Sequence[str],
        max_skew_ns: int,
        series_per_node: int,
        nodes_per_shard: int,
        unattributed_as: NodeId | None = None,
    ) -> None:
        self._table = table
        table.series_per_node = series_per_node
        table.nodes_per_shard = nodes_per_shard
        self._max_skew_ns = max_skew_ns
        self._aliases = load_aliases()
        self._blobs = KnownBlobs(identity, default_cluster, pool_by, unattributed_as=unattributed_as)
        self._known = KnownSeries()
        self._output = Output()
        self._state = new_state()
        self._derived = Derived(self._aliases)
        self._attributes: dict[bytes, tuple[Attributes, str]] = {}
        self._sources: dict[tuple[object, ...], Source] = {}
        self._overflow: set[int] = set()
        self._pooled: dict[int, tuple[str, ...]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays kept from request to request."""
        return self._output.nbytes + self._known.nbytes + self._blobs.table.nbytes

    def decode(self, request: bytes, record_ms: int) -> Decoded:
        """record_ms: the Kafka record's timestamp, against which a sample is in the future.

        Raises OtlpError for bytes that are no metrics request; then nothing of it is used.
        """
        if not request:
            raise OtlpError("empty", "the record has no value")
        horizon_ns = record_ms * NS_PER_MS + self._max_skew_ns
        if not 0 <= horizon_ns <= INT64_MAX:
            horizon_ns = 0 if horizon_ns < 0 else INT64_MAX
        request, refused = self._scan(request, horizon_ns)
        counters: list[int] = self._state[:REASON].tolist()
        if counters[RESOURCE_METRICS] == 0:
            raise OtlpError("not_metrics", "the bytes hold no resource metrics", 0)
        decoded = Decoded(NO_POINTS, unattributed=counters[UNATTRIBUTED])
        if refused:
            decoded.refused.update(
                {name: n for name, n in zip(REASONS, self._state[REASON:COUNTERS].tolist(), strict=True) if n}
            )
        resolved = self._resolve(request, counters[MISSES], decoded) if counters[MISSES] else None
        decoded.points = self._output.points(counters, resolved)
        if self._derived.roles:
            enter = partial(self._enter, decoded)
            decoded.points.numbers = self._derived.add(decoded.points.numbers, enter)
        if self._overflow:
            self._count_overflow(decoded)
        self._name_pools(counters[RESOURCES])
        if counters[REJECTED]:
            rows = self._output.rejected[: counters[REJECTED]].tolist()
            decoded.rejected = [(UNSPECIFIED_TEMPORALITY, _request_of(request, row)) for row in rows]
        if self._output.is_oversized:
            self._output = Output()
        return decoded

    def forget(self, indexes: Iterable[int]) -> None:
        """Remove series that the state has forgotten, and nodes left without any."""
        series = list(indexes)
        self._known.forget(series)
        self._overflow.difference_update(series)
        self._derived.forget(series)
        for node_index in self._table.forget(series):
            self._pooled.pop(node_index, None)

    def _scan(self, request: bytes, horizon_ns: int) -> tuple[bytes, int]:
        """Fill output and state. Returns the request whose bytes they refer to, which may be another one in form, and
        how many points were refused."""
        state, out = self._state, self._output
        raw = np.frombuffer(request, np.uint8)
        fresh = False
        while True:
            refused = scan(
                raw,
                horizon_ns,
                out.first_number,
                state,
                self._blobs.table,
                self._known.table,
                self._known.keys,
                out.numbers,
                out.histograms,
                out.exponentials,
                out.ragged,
                out.misses,
                out.new_blobs,
                out.rejected,
                out.resources,
            )
            if refused >= 0:
                return request, refused
            if refused == GROW:
                out.grow(state)
            elif refused != UNREADY:
                reason, text = ERRORS[refused]
                raise OtlpError(reason, text, int(state[ERROR_AT]))
            elif state[NEW_BLOBS]:
                # Dropping all is for the first round only: what the request has must stay until it is read.
                if not fresh and self._blobs.are_too_many(len(self._table.series_by_key)):
                    self._blobs.clear()
                else:
                    self._blobs.learn(request, out.new_blobs[: state[NEW_BLOBS]])
                fresh = True
            else:
                request = _regular(request)
                raw = np.frombuffer(request, np.uint8)

    def _resolve(self, request: bytes, count: int, decoded: Decoded) -> I64Array:
        """By miss, the series it is; -1 where a limit leaves no room for it."""
        misses = self._output.misses[:count]
        resolved = np.zeros(count, np.int64)
        if self._known.refused_count and mark_refused(misses, count, self._known.refused, resolved):
            self._count_refused(misses[resolved < 0, X_RESOURCE], decoded)
        families: dict[tuple[int, int, int, int], Family] = {}
        seen: dict[tuple[int, int], int] = {}
        refused: list[tuple[int, int]] = []
        places = np.flatnonzero(resolved == 0)
        for i, row in zip(places.tolist(), misses[places].tolist(), strict=True):
            key = (row[X_H1], row[X_H2])
            series = seen.get(key)
            if series is None:
                series = self._series(request, row, families, decoded)
                if series >= 0:
                    seen[key] = series
                else:
                    refused.append(key)
            resolved[i] = series
        hashes = [(h1, h2, series) for (h1, h2), series in seen.items()]
        if hashes:
            self._known.learn(hashes, len(self._table.series_by_key), len(self._table.series))
        if refused:
            self._known.refuse(refused)
        return resolved

    def _count_refused(self, resources: I64Array, decoded: Decoded) -> None:
        """Count points of series that are known to be refused. resources: the ids of theirs."""
        indexes, counts = np.unique(resources, return_counts=True)
        for resource, count in zip(indexes.tolist(), counts.tolist(), strict=True):
            node = self._blobs.resources[resource].node
            assert node is not None
            self._refuse(node, count, decoded)

    def _refuse(self, node: NodeId, count: int, decoded: Decoded) -> None:
        reason = self._table.refusal(node)
        assert reason is not None, "a series that was refused stays so until another is forgotten"
        decoded.refused[reason] += count
        decoded.refused_by_node.setdefault(node, Counter())[reason] += count

    def _series(
        self, request: bytes, row: list[int], families: dict[tuple[int, int, int, int], Family], decoded: Decoded
    ) -> int:
        key = (row[X_RESOURCE], row[X_SCOPE], row[X_METRIC_START], row[X_PART])
        family = families.get(key)
        if family is None:
            resource = self._blobs.resources[row[X_RESOURCE]]
            assert resource.node is not None
            head = _part(row, _head_of(request, row))
            family = Family(resource.node, resource.attributes, self._blobs.scopes[row[X_SCOPE]], head)
            families[key] = family
        attributes, text = self._attributes_of(request, row)
        identity = family.identity(attributes, text)
        series = self._table.series_by_key.get(identity.key)
        if series is not None:
            return series
        return self._add(identity, family.source(identity, text, self._sources), decoded)

    def _attributes_of(self, request: bytes, row: list[int]) -> tuple[Attributes, str]:
        """A point's attributes and their repr. Those spelled alike are one object, whatever series they are of."""
        start, stop = row[X_ATTRIBUTES_START], row[X_ATTRIBUTES_STOP]
        lie_together = start <= stop
        raw = request[start:stop] if lie_together else request[row[X_POINT_START] : row[X_POINT_STOP]]
        found = self._attributes.get(raw) if lie_together else None
        if found is None:
            point = _POINTS[row[X_KIND]].FromString(raw)
            attributes = sorted_attributes(point.attributes)  # type: ignore[attr-defined]
            found = (attributes, repr(attributes))
            if lie_together:
                if len(self._attributes) >= SHARED_MAX:
                    self._attributes.clear()
                self._attributes[raw] = found
        if row[X_PART] == PART_QUANTILE:
            attributes = with_quantile(found[0], float(np.int64(row[X_QUANTILE]).view(np.float64)))
            return attributes, repr(attributes)
        return found

    def _enter(self, decoded: Decoded, identity: SeriesIdentity) -> int:
        """Index of this series, which is entered when it is new; -1 when a limit leaves no room, which is counted."""
        series = self._table.series_by_key.get(identity.key)
        return self._add(identity, self._aliases.source(identity), decoded) if series is None else series

    def _add(self, identity: SeriesIdentity, source: Source, decoded: Decoded) -> int:
        if self._table.refusal(identity.node) is not None:
            self._refuse(identity.node, 1, decoded)
            return -1
        series = self._table.add(identity, source)
        self._derived.learn(series, identity)
        if is_overflow(identity.attributes):
            self._overflow.add(series)
        return series

    def _count_overflow(self, decoded: Decoded) -> None:
        overflow = np.fromiter(self._overflow, np.int32, len(self._overflow))
        points = decoded.points
        for columns in (points.numbers, points.histograms, points.exponentials):
            count = int(np.count_nonzero(np.isin(columns.series, overflow)))
            if count:
                decoded.refused["cardinality_overflow"] += count

    def _name_pools(self, count: int) -> None:
        """Let the request's resources say what pools their nodes are in; a node that has no series is not there."""
        resources = self._output.resources
        if count == 1:
            self._name_pool(int(resources[0]))
            return
        before = -1
        for index in resources[:count].tolist():
            if index != before:
                self._name_pool(index)
            before = index

    def _name_pool(self, index: int) -> None:
        resource = self._blobs.resources[index]
        assert resource.node is not None
        node_index = self._table.node_by_id.get(resource.node)
        if node_index is not None and self._pooled.get(node_index) is not resource.pool_parts:
            self._pooled[node_index] = resource.pool_parts
            self._table.name_pool(node_index, resource.pool_parts)


def _part(row: list[int], head: MetricHead) -> MetricHead:
    """Head of the series meant: the metric's own, or one of those that a summary is split into."""
    if row[X_KIND] != Kind.SUMMARY:
        return head
    count, total, quantile = summary_heads(head)
    return {int(PART_COUNT): count, int(PART_SUM): total, int(PART_QUANTILE): quantile}[row[X_PART]]


def _head_of(request: bytes, row: list[int]) -> MetricHead:
    """A metric's head, from the fields beside its data, which may be long."""
    fields = read_fields(request, row[X_METRIC_START], row[X_METRIC_STOP])
    metric = Metric.FromString(b"".join(request[each.start : each.stop] for each in fields if each.number not in _DATA))
    return make_head(metric.name, metric.unit, Kind(row[X_KIND]), row[X_TEMPORALITY], bool(row[X_MONOTONIC]))


def _request_of(request: bytes, row: list[int]) -> bytes:
    """A request with one metric only, and all that is said above it."""

    def beside_metrics(start: int, stop: int) -> bytes:
        fields = read_fields(request, start, stop)
        return b"".join(request[each.start : each.stop] for each in fields if each.number != _METRICS)

    metric = length_field(_METRICS, request[row[J_METRIC_START] : row[J_METRIC_STOP]])
    scope = beside_metrics(row[J_SCOPE_START], row[J_SCOPE_STOP]) + metric
    resource = beside_metrics(row[J_RESOURCE_METRICS_START], row[J_RESOURCE_METRICS_STOP])
    return length_field(1, resource + length_field(_METRICS, scope))


def _regular(request: bytes) -> bytes:
    """The same request with every message in one piece: protobuf merges one that comes in several."""
    try:
        return ExportMetricsServiceRequest.FromString(request).SerializeToString()
    except DecodeError as error:
        raise OtlpError("protobuf", str(error)) from None
