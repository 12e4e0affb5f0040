"""The oracle of decoding: plain walks over protobuf's objects, one rule after the other, slow and obvious."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics, ScopeMetrics

from fleetpulse.features._series import Attributes, NodeId, SeriesTable
from fleetpulse.ingest._aliases import load_aliases
from fleetpulse.ingest._decode import UNSPECIFIED_TEMPORALITY, Decoded
from fleetpulse.ingest._decode_series import (
    MetricHead,
    is_overflow,
    metric_head,
    scope_text,
    series_identity,
    sorted_attributes,
)
from fleetpulse.ingest._otlp_resource import node_of, plain_texts
from support.otlp_strict import parse_request
from support.otlp_walk import PointWalk, Rows

NS_PER_MS = 1_000_000


class WalkingDecoder:
    """The same as Decoder, one plain rule after the other, over protobuf's objects."""

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
        pools: list[tuple[NodeId, list[str]]] = []
        for entry in message.resource_metrics:
            texts = plain_texts(entry.resource.attributes)
            node = node_of(texts, self._identity, self._default_cluster)
            if node is None:
                decoded.unattributed += 1
                continue
            self._resource(node, entry, walk, decoded)
            pools.append((node, [texts.get(name, "") for name in self._pool_by]))
        for node, parts in pools:
            index = self._table.node_by_id.get(node)
            if index is not None:
                self._table.name_pool(index, parts)
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
    request = ExportMetricsServiceRequest(resource_metrics=[entry])
    (copy,) = request.resource_metrics
    del copy.scope_metrics[:]
    copy.scope_metrics.append(scope)
    (copied,) = copy.scope_metrics
    del copied.metrics[:]
    copied.metrics.append(metric)
    return request.SerializeToString()
