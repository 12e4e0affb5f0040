"""Damaged requests: refused by the decoder when the oracle refuses them, read alike when it reads them.

The long version, and the one with every array index checked:

    PYTHONPATH=tests python tests/test_otlp_fuzz.py 1000000
    NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=.cache/bounds PYTHONPATH=tests python tests/test_otlp_fuzz.py 100000
"""

from __future__ import annotations

import random
import sys
from collections import Counter

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.features._series import SeriesTable
from fleetpulse.ingest._otlp import OtlpError
from fleetpulse.ingest._route import Router
from support.otlp_mutate import mutations
from support.otlp_pair import Pair
from support.otlp_samples import RECORD_MS, capture, fixtures, make_decoder, request

IDENTITY = ("host.name", "service.name", "resource-attr", "k8s.node.name")
SEED = 20
ROUNDS = 2_500


def seeds() -> list[bytes]:
    """Small requests of every kind."""
    found = [raw for _, raw in fixtures()]
    for entry in ExportMetricsServiceRequest.FromString(capture()).resource_metrics[:400:40]:
        del entry.scope_metrics[2:]
        for scope in entry.scope_metrics:
            del scope.metrics[3:]
        found.append(request(entry))
    return [raw for raw in found if 0 < len(raw) < 3_000]


def test_damaged_requests_are_read_as_the_oracle_reads_them_or_refused_by_both() -> None:
    pair = Pair(identity=IDENTITY)
    stream = mutations(seeds(), random.Random(SEED))
    read = 0
    for i in range(ROUNDS):
        raw = next(stream)
        try:
            read += pair.both(raw) is not None
        except BaseException:
            print(f"seed {SEED}, mutation {i}: {raw.hex()}")
            raise
    pair.compare_tables()
    assert ROUNDS // 20 < read < ROUNDS // 2, "the mutations are neither too tame nor too wild to find anything"


def test_whatever_a_router_passes_on_it_can_read_again() -> None:
    stream = mutations(seeds(), random.Random(SEED + 1))
    router = Router(IDENTITY, "default", 700)
    passed = 0
    for i in range(ROUNDS):
        raw = next(stream)
        try:
            sliced = router.slice(raw)
        except OtlpError:
            continue
        for node, piece in sliced.slices:
            again = router.slice(piece)
            assert [node for node, _ in again.slices] == [node], f"seed {SEED + 1}, mutation {i}: {raw.hex()}"
            passed += 1
    assert passed > ROUNDS // 20


def run(rounds: int) -> Counter[str]:
    """Decoder and router alone, as fast as they go. Returns how often each outcome was seen."""
    table = SeriesTable()
    decoder = make_decoder(table, identity=IDENTITY)
    router = Router(IDENTITY, "default", 700)
    seen: Counter[str] = Counter()
    stream = mutations(seeds(), random.Random(SEED + 2))
    for i in range(rounds):
        raw = next(stream)
        try:
            decoder.decode(raw, RECORD_MS)
            seen["read"] += 1
        except OtlpError as error:
            seen[error.reason] += 1
        try:
            router.slice(raw)
            seen["router: read"] += 1
        except OtlpError as error:
            seen[f"router: {error.reason}"] += 1
        if i % 1_000 == 999:
            decoder.forget([index for index, entry in enumerate(table.series) if entry is not None])
    return seen


if __name__ == "__main__":
    for outcome, count in run(int(sys.argv[1])).most_common():
        print(f"{count:9,}  {outcome}")
