"""The compiled decoder and a plain walk over protobuf's objects agree, point for point."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.features._points import Points
from fleetpulse.features._series import SeriesTable
from fleetpulse.ingest._decode import Decoded, Decoder
from fleetpulse.ingest._otlp import OtlpError
from support.otlp_made import requests, rewritten
from support.otlp_oracle import WalkingDecoder
from support.otlp_samples import IDENTITY, RECORD_MS, SECOND, capture, fixtures, make_decoder


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
        assert mine == theirs
        # Equality takes -0.0 for 0.0 and True for 1; a key does not.
        assert list(mine.series_by_key) == list(theirs.series_by_key)


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


def test_on_the_capture() -> None:
    pair = Pair(max_skew_ns=2**61)
    first = pair.both(capture())
    assert first is not None
    assert len(first.points.numbers.series) > 6_000
    pair.both(capture())
    pair.compare_tables()


@pytest.mark.parametrize(("name", "raw"), [pytest.param(name, raw, id=name) for name, raw in fixtures()])
def test_on_recorded_requests(name: str, raw: bytes) -> None:
    # Most fixtures name no node: let the attributes that they do have name one.
    pair = Pair(identity=("host.name", "service.name", "resource-attr", "datadog.host.name"))
    for _ in range(2):
        pair.both(raw)
    pair.compare_tables()


@settings(max_examples=100, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=3))
def test_on_made_requests(made: list[bytes]) -> None:
    pair = Pair()
    for raw in (*made, *made):
        pair.both(raw)
    pair.compare_tables()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(requests(), min_size=2, max_size=4),
    st.integers(1, 3),
    st.integers(1, 2),
    st.randoms(use_true_random=False),
)
def test_at_the_limits_and_when_series_are_forgotten(
    made: list[bytes], series_per_node: int, nodes_per_shard: int, chance: random.Random
) -> None:
    pair = Pair(series_per_node=series_per_node, nodes_per_shard=nodes_per_shard)
    for raw in (*made, *made):
        pair.both(raw)
        live = [index for index, entry in enumerate(pair.tables[0].series) if entry is not None]
        pair.forget([index for index in live if chance.random() < 0.4])
        pair.compare_tables()


def test_a_rewritten_capture_is_the_same() -> None:
    message = ExportMetricsServiceRequest.FromString(capture())
    del message.resource_metrics[25:]
    raw = message.SerializeToString()
    pair = Pair(max_skew_ns=2**61)
    pair.both(raw)
    for seed in range(3):
        pair.both(rewritten(raw, ExportMetricsServiceRequest(), random.Random(seed)))
        pair.compare_tables()


def test_the_decoder_of_the_tests_is_the_compiled_one() -> None:
    assert type(make_decoder()) is Decoder
