"""Damaged requests: refused by the decoder when the oracle refuses them, read alike when it reads them.

`make fuzz` is the long version, also with every array index checked.
"""

from __future__ import annotations

import random

from fleetpulse.ingest._otlp import OtlpError
from fleetpulse.ingest._route import Router
from support.otlp_fuzz import IDENTITY, SLICE_BYTES, Fuzz, seeds
from support.otlp_mutate import mutations
from support.otlp_pair import Pair

SEED = 20
ROUNDS = 2_500
LONG_ROUNDS = 20_000


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
    router = Router(IDENTITY, "default", SLICE_BYTES)
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


def test_decoder_and_router_agree_on_damaged_requests() -> None:
    """The short form of `make fuzz`."""
    fuzz = Fuzz(SEED + 2)
    last = (0, b"")

    def before(number: int, raw: bytes) -> None:
        nonlocal last
        last = number, raw

    try:
        fuzz.run(LONG_ROUNDS, before)
    except BaseException:
        print(f"seed {SEED + 2}, record {last[0]}: {last[1].hex()}")
        raise
    assert fuzz.outcomes["read"] > LONG_ROUNDS // 10
    assert fuzz.outcomes.keys() > {"truncated", "wire_type", "group", "utf8", "field_number", "varint", "not_metrics"}
