"""The compiled decoder and a plain walk over protobuf's objects agree, point for point."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.ingest._decode import Decoder
from support.otlp_made import requests, rewritten
from support.otlp_pair import Pair
from support.otlp_samples import capture, fixtures, make_decoder


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


@settings(deadline=None)
@given(st.lists(requests(), min_size=1, max_size=3))
def test_on_made_requests(made: list[bytes]) -> None:
    """About 200 requests; 2,000 of them with --hypothesis-profile=long, as in `make fuzz`."""
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
