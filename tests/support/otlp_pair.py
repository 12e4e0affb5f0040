"""The compiled decoder beside its oracle."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.features._points import Points
from fleetpulse.features._series import SeriesTable
from fleetpulse.ingest._decode import Decoded, Decoder
from fleetpulse.ingest._otlp import OtlpError
from support.otlp_oracle import WalkingDecoder
from support.otlp_samples import IDENTITY, RECORD_MS, SECOND


def make_oracle() -> WalkingDecoder:
    return Pair().oracle


class Pair:
    """Both decoders, each with a table of its own."""

    def __init__(self, **changes: Any) -> None:
        arguments: dict[str, Any] = {
            "identity": IDENTITY,
            "default_cluster": "default",
            "pool_by": ("host.type", "a"),
            "max_skew_ns": 60 * SECOND,
            "series_per_node": 50_000,
            "nodes_per_shard": 20_000,
        } | changes
        self.tables = SeriesTable(), SeriesTable()
        self.decoder = Decoder(self.tables[0], **arguments)
        self.oracle = WalkingDecoder(self.tables[1], **arguments)

    def both(self, raw: bytes) -> Decoded | None:
        """Decode with both and compare; None when both refuse."""
        try:
            wanted = self.oracle.decode(raw, RECORD_MS)
        except OtlpError:
            with pytest.raises(OtlpError):
                self.decoder.decode(raw, RECORD_MS)
            return None
        got = self.decoder.decode(raw, RECORD_MS)
        assert_equal_points(got.points, wanted.points)
        assert got.refused == wanted.refused
        assert got.refused_by_node == wanted.refused_by_node
        assert got.unattributed == wanted.unattributed
        assert [(reason, plain(request)) for reason, request in got.rejected] == [
            (reason, plain(request)) for reason, request in wanted.rejected
        ]
        return got

    def forget(self, series: list[int]) -> None:
        self.decoder.forget(series)
        self.oracle.forget(series)

    def compare_tables(self) -> None:
        mine, theirs = self.tables
        # As text: an attribute may be NaN, which equals nothing, and equality takes -0.0 for 0.0 and True for 1.
        assert list(map(repr, mine.series)) == list(map(repr, theirs.series))
        assert list(mine.series_by_key) == list(theirs.series_by_key)
        for column in fields(mine):
            if column.name != "series":
                assert getattr(mine, column.name) == getattr(theirs, column.name), column.name


def plain(request: bytes) -> bytes:
    message = ExportMetricsServiceRequest.FromString(request)
    message.DiscardUnknownFields()
    return message.SerializeToString(deterministic=True)


def assert_equal_points(got: Points, wanted: Points) -> None:
    for kind in ("numbers", "histograms", "exponentials"):
        mine, theirs = getattr(got, kind), getattr(wanted, kind)
        for column in fields(mine):
            a, b = getattr(mine, column.name), getattr(theirs, column.name)
            assert a.dtype == b.dtype, (kind, column.name)
            assert a.flags.c_contiguous, (kind, column.name)
            if a.dtype == np.float64:
                # Bit for bit, but for the payload of a NaN that stands for an absent number.
                a, b = (np.where(np.isnan(each), np.nan, each).view(np.int64) for each in (a, b))
            np.testing.assert_array_equal(a, b, err_msg=f"{kind}.{column.name}")
