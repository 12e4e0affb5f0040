"""All samples of recordings as columns, whatever their times: for measuring and for looking, not for the pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fleetpulse.compression import Column
from fleetpulse.features._series import NodeId, SeriesTable
from fleetpulse.ingest._chunks import OpenChunks
from fleetpulse.ingest._decode import INT64_MAX, Decoder

UNATTRIBUTED = NodeId("", "")
"""Stands for the resources that name no node."""

_ANY_NUMBER = 1 << 40


@dataclass(frozen=True, eq=False)
class RecordedSpan:
    """What a chunk would hold: the columns of one node over one span of event time."""

    node: NodeId
    span_start_ns: int
    columns: list[Column]


class RecordedSamples:
    """Takes requests in any order and of any age. repeated: samples of a series and time that had come before.

    refused: points that have nothing to store, by reason, as the decoder names them.
    """

    def __init__(self, *, identity: Sequence[str], default_cluster: str, span_ns: int) -> None:
        self.refused: Counter[str] = Counter()
        self._taken = 0
        self._span_ns = span_ns
        self._table = SeriesTable()
        self._decoder = Decoder(
            self._table,
            identity=identity,
            default_cluster=default_cluster,
            pool_by=(),
            max_skew_ns=INT64_MAX,
            series_per_node=_ANY_NUMBER,
            nodes_per_shard=_ANY_NUMBER,
            unattributed_as=UNATTRIBUTED,
        )
        self._open = OpenChunks(self._table, span_ns=span_ns, window_ns=INT64_MAX)

    def add(self, requests: Iterable[bytes]) -> None:
        """Raises OtlpError for the first that is no metrics request."""
        for request in requests:
            decoded = self._decoder.decode(request, 0)
            self.refused += decoded.refused
            self.refused.update(reason for reason, _ in decoded.rejected)
            self._open.add(decoded.points, lambda _node: 0)

    @property
    def samples(self) -> int:
        """How many came, repeated ones included; a histogram point is several."""
        return self._open.samples

    def spans(self) -> Iterator[RecordedSpan]:
        """By cluster, node and time."""
        for node_id, node in sorted(self._table.node_by_id.items()):
            for number, columns in self._open.columns(node).items():
                yield RecordedSpan(node_id, number * self._span_ns, columns)
