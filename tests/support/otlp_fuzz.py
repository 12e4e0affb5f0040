"""What holds of decoder and router whatever bytes they are given. For tests/test_otlp_fuzz.py and `make fuzz`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.features._points import Points
from fleetpulse.features._series import SeriesTable
from fleetpulse.ingest._decode import Decoded
from fleetpulse.ingest._otlp import OtlpError
from fleetpulse.ingest._route import Router, Sliced
from support.otlp_mutate import mutations
from support.otlp_samples import RECORD_MS, capture, fixtures, make_decoder, request

IDENTITY = ("host.name", "service.name", "resource-attr", "k8s.node.name")
SLICE_BYTES = 700
SERIES_PER_NODE = 400
NODES = 60
FORGET_EVERY = 2_000
DECODER_BYTES_MAX = 16_000_000
"""Of the arrays that a decoder keeps. Its first ones take 1 MB."""


def seeds() -> list[bytes]:
    """Small requests of every kind."""
    found = [raw for _, raw in fixtures()]
    for entry in ExportMetricsServiceRequest.FromString(capture()).resource_metrics[:400:40]:
        del entry.scope_metrics[2:]
        for scope in entry.scope_metrics:
            del scope.metrics[3:]
        found.append(request(entry))
    return [raw for raw in found if 0 < len(raw) < 3_000]


class Fuzz:
    """One decoder and one router for all records, as in a worker. seed: of the damage; the same one does the same."""

    def __init__(self, seed: int) -> None:
        self._stream = mutations(seeds(), random.Random(seed))
        self._table = SeriesTable()
        limits = {"series_per_node": SERIES_PER_NODE, "nodes_per_shard": NODES}
        self._decoder = make_decoder(self._table, identity=IDENTITY, **limits)
        self._router = Router(IDENTITY, "default", SLICE_BYTES)
        self.outcomes: Counter[str] = Counter()

    def run(self, rounds: int, before: Callable[[int, bytes], None] = lambda number, raw: None) -> None:
        """before: told each record before it is read, so that one that ends the process is known."""
        for number in range(1, rounds + 1):
            raw = next(self._stream)
            before(number, raw)
            self._take(raw)
            if number % FORGET_EVERY == 0:
                assert self._decoder.nbytes < DECODER_BYTES_MAX
                self._decoder.forget([i for i, entry in enumerate(self._table.series) if entry is not None])

    def _take(self, raw: bytes) -> None:
        decoded = self._decode(raw)
        try:
            sliced = self._router.slice(raw)
        except OtlpError as error:
            self.outcomes[f"router: {error.reason}"] += 1
            assert decoded is None, "the router looks at a part of what the decoder looks at"
            return
        self.outcomes["router: read"] += 1
        if decoded is not None:
            self._compare(decoded, sliced)

    def _decode(self, raw: bytes) -> Decoded | None:
        try:
            decoded = self._decoder.decode(raw, RECORD_MS)
        except OtlpError as error:
            self.outcomes[error.reason] += 1
            return None
        self.outcomes["read"] += 1
        points = decoded.points
        for columns in (points.numbers, points.histograms, points.exponentials):
            assert all(0 <= series < len(self._table.series) for series in columns.series.tolist())
            assert (columns.time_ns > 0).all()
        assert np.isfinite(points.numbers.value).all()
        assert sum(points.histograms.counts.tolist()) == sum(
            count
            for count, places in zip(
                points.histograms.count.tolist(), np.diff(points.histograms.count_at).tolist(), strict=True
            )
            if places
        )
        return decoded

    def _compare(self, decoded: Decoded, sliced: Sliced) -> None:
        """What the router passes on is as much as was there, node by node."""
        assert decoded.unattributed == sliced.unattributed
        parts = [self._decoder.decode(piece, RECORD_MS) for _, piece in sliced.slices]
        assert sum(part.unattributed for part in parts) == 0
        assert sum(map(_taken, parts)) == _taken(decoded)


def _taken(decoded: Decoded) -> int:
    """Points of a request, read or refused. An overflow is counted beside its point, a metric without data at all."""
    refused = sum(n for reason, n in decoded.refused.items() if reason not in ("cardinality_overflow", "no_data"))
    return refused + _rows(decoded.points)


def _rows(points: Points) -> int:
    return len(points.numbers.series) + len(points.histograms.series) + len(points.exponentials.series)
