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

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics, ScopeMetrics

from fleetpulse.features._points import Points
from fleetpulse.features._series import Attributes, NodeId, SeriesTable
from fleetpulse.ingest._aliases import load_aliases
from fleetpulse.ingest._decode_columns import Rows
from fleetpulse.ingest._decode_series import (
    MetricHead,
    is_overflow,
    metric_head,
    scope_text,
    series_identity,
    sorted_attributes,
)
from fleetpulse.ingest._decode_walk import PointWalk
from fleetpulse.ingest._otlp_resource import node_of, plain_texts
from fleetpulse.ingest._otlp_strict import parse_request

NS_PER_MS = 1_000_000
UNSPECIFIED_TEMPORALITY = "unspecified_temporality"


@dataclass
class Decoded:
    """points: in the order of the request. refused: points by reason, see the module.

    rejected: for the dead letter, (reason, request): metrics that cannot be read, each as a request of its own with
    its resource and scope, so that it can be sent again. unattributed: resources that name no node.
    refused_by_node: of refused, what a limit left out, by node.
    """

    points: Points
    refused: Counter[str] = field(default_factory=Counter)
    rejected: list[tuple[str, bytes]] = field(default_factory=list)
    unattributed: int = 0
    refused_by_node: dict[NodeId, Counter[str]] = field(default_factory=dict)


class Decoder:
    """Decodes requests in the order of their records and keeps the series table of one shard.

    identity: resource attributes that may name the node, the first present wins. pool_by: resource attributes that
    together name its pool. A series enters the table with its first sound point.
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
    ) -> None:
        self._table = table
        table.series_per_node = series_per_node
        table.nodes_per_shard = nodes_per_shard
        self._identity = tuple(identity)
        self._default_cluster = default_cluster
        self._pool_by = tuple(pool_by)
        self._max_skew_ns = max_skew_ns
        self._aliases = load_aliases()

    def decode(self, request: bytes, record_ms: int) -> Decoded:
        """record_ms: the Kafka record's timestamp, against which a sample is in the future.

        Raises OtlpError for bytes that are no metrics request; then nothing of it is used.
        """
        message = parse_request(request)
        rows = Rows()
        decoded = Decoded(rows.points())
        walk = PointWalk(rows, decoded.refused, record_ms * NS_PER_MS + self._max_skew_ns)
        for entry in message.resource_metrics:
            texts = plain_texts(entry.resource.attributes)
            node = node_of(texts, self._identity, self._default_cluster)
            if node is None:
                decoded.unattributed += 1
                continue
            self._resource(node, entry, walk, decoded)
            index = self._table.node_by_id.get(node)
            if index is not None:
                self._table.name_pool(index, [texts.get(name, "") for name in self._pool_by])
        decoded.points = rows.points()
        return decoded

    def forget(self, indexes: Iterable[int]) -> None:
        """Remove series that the state has forgotten, and nodes left without any."""
        self._table.forget(indexes)

    def _resource(self, node: NodeId, entry: ResourceMetrics, walk: PointWalk, decoded: Decoded) -> None:
        resource = sorted_attributes(entry.resource.attributes)
        for scope in entry.scope_metrics:
            text = scope_text(scope.scope)
            for metric in scope.metrics:
                head = metric_head(metric)
                if head is None:
                    decoded.refused["no_data"] += 1
                    continue
                points = getattr(metric, metric.WhichOneof("data") or "").data_points
                if head.needs_temporality:
                    if points:
                        decoded.refused["no_temporality"] += len(points)
                        decoded.rejected.append((UNSPECIFIED_TEMPORALITY, _request_of(entry, scope, metric)))
                    continue
                walk.walk(head, points, partial(self._enter, decoded, node, resource, text))

    def _enter(
        self,
        decoded: Decoded,
        node: NodeId,
        resource: Attributes,
        scope: str,
        head: MetricHead,
        attributes: Attributes,
    ) -> int | None:
        identity = series_identity(node, resource, scope, head, attributes)
        index = self._table.series_by_key.get(identity.key)
        if index is None:
            reason = self._table.refusal(node)
            if reason is not None:
                decoded.refused[reason] += 1
                decoded.refused_by_node.setdefault(node, Counter())[reason] += 1
                return None
            index = self._table.add(identity, self._aliases.source(identity))
        if is_overflow(attributes):
            decoded.refused["cardinality_overflow"] += 1
        return index


def _request_of(entry: ResourceMetrics, scope: ScopeMetrics, metric: Metric) -> bytes:
    """A request with one metric only, under its resource and scope."""
    request = ExportMetricsServiceRequest()
    copy = request.resource_metrics.add(resource=entry.resource, schema_url=entry.schema_url)
    copy.scope_metrics.add(scope=scope.scope, schema_url=scope.schema_url, metrics=[metric])
    return request.SerializeToString()
