"""The XOR chunk against Prometheus' own library, against a slow twin, and against bytes that are no chunk."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetpulse.compression import (
    ChunkError,
    GorillaAppender,
    gorilla_decode,
    gorilla_decode_many,
    gorilla_encode,
    gorilla_encode_many,
)
from support.xor_twin import encode_slowly

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "compression" / "xor_golden.json").read_text()
)["cases"]
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BITS64 = st.integers(0, (1 << 64) - 1)


def arrays(times: list[int], bits: list[int]) -> tuple[Any, Any]:
    return np.array(times, np.int64), np.array(bits, np.uint64).view(np.float64)


def same(raw: bytes, times: list[int], bits: list[int]) -> bool:
    decoded_times, values = gorilla_decode(raw)
    return decoded_times.tolist() == times and values.view(np.uint64).tolist() == bits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_prometheus_reads_and_writes_the_same_bytes(case: dict[str, Any]) -> None:
    bits = [int(value, 16) for value in case["values"]]
    raw = bytes.fromhex(case["chunk"])
    assert same(raw, case["times_ms"], bits)
    if not case.get("reopened"):
        assert gorilla_encode(*arrays(case["times_ms"], bits)).hex() == case["chunk"]


def test_the_golden_cases_cover_what_is_special() -> None:
    values = {value for case in CASES for value in case["values"]}
    special = {"7ff0000000000002", "fff4deadbeef1234", "8000000000000000", "7ff0000000000000", "fff0000000000000"}
    assert special | {"0000000000000001"} <= values
    times = {time for case in CASES for time in case["times_ms"]}
    assert {-(1 << 63), (1 << 63) - 1} <= times
    assert {0, 1} <= {len(case["values"]) for case in CASES}
    assert any(case.get("reopened") for case in CASES)


SAMPLES = st.lists(
    st.tuples(INT64 | st.integers(0, 100_000), BITS64 | st.sampled_from([0, 1 << 63, 0x3FF0000000000000])), max_size=40
)


@settings(deadline=None, max_examples=60)
@given(SAMPLES)
def test_every_bit_comes_back_and_the_slow_twin_agrees(samples: list[tuple[int, int]]) -> None:
    times, bits = [t for t, _ in samples], [b for _, b in samples]
    raw = gorilla_encode(*arrays(times, bits))
    assert raw == encode_slowly(times, bits)
    assert same(raw, times, bits)


@settings(deadline=None, max_examples=60)
@given(SAMPLES, st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=6))
def test_an_appender_that_is_resumed_changes_no_byte(
    samples: list[tuple[int, int]], cuts: list[tuple[int, bool]]
) -> None:
    times, values = arrays([t for t, _ in samples], [b for _, b in samples])
    appender = GorillaAppender()
    done = 0
    for cut, reopened in sorted(cuts):
        appender.append(times[done:cut], values[done:cut])
        done = max(done, min(cut, len(times)))
        assert appender.to_bytes() == gorilla_encode(times[:done], values[:done])
        if reopened:
            appender = GorillaAppender(appender.to_bytes())
    appender.append(times[done:], values[done:])
    assert appender.to_bytes() == gorilla_encode(times, values)
    assert len(appender) == len(times)


def test_an_appender_refuses_what_is_no_chunk_or_does_not_fit_and_keeps_what_it_has() -> None:
    with pytest.raises(ChunkError, match="fill"):
        GorillaAppender(WHOLE[:-1] + bytes([WHOLE[-1] | 1]))
    appender = GorillaAppender(WHOLE)
    with pytest.raises(ChunkError, match="65536 samples"):
        appender.append(np.arange(65_533), np.zeros(65_533))
    assert appender.to_bytes() == WHOLE


@settings(deadline=None, max_examples=40)
@given(st.lists(SAMPLES, max_size=5))
def test_many_series_at_once_are_the_chunks_of_each(several: list[list[tuple[int, int]]]) -> None:
    each = [arrays([t for t, _ in samples], [b for _, b in samples]) for samples in several]
    every = [sample for samples in several for sample in samples]
    times, values = arrays([t for t, _ in every], [b for _, b in every])
    starts = np.cumsum([0, *map(len, several)])
    chunks = gorilla_encode_many(times, values, starts)
    assert chunks == [gorilla_encode(*one) for one in each]
    decoded_times, decoded_values, decoded_starts = gorilla_decode_many(chunks)
    assert decoded_starts.tolist() == starts.tolist()
    assert decoded_times.tolist() == times.tolist()
    assert decoded_values.view(np.uint64).tolist() == values.view(np.uint64).tolist()


@pytest.mark.parametrize("starts", [[], [0], [0, 2], [1, 3], [0, 2, 1, 3], [[0, 3]]], ids=str)
def test_starts_that_do_not_divide_the_samples_are_refused(starts: Any) -> None:
    with pytest.raises(ChunkError, match="starts must"):
        gorilla_encode_many([1, 2, 3], [1.0, 2.0, 3.0], starts)


def test_of_many_chunks_the_one_that_is_none_is_named() -> None:
    short = WHOLE[:2] + bytes(11)
    for bad, message, bit in ((short[:-1], "ends before", 96), (b"\0", "shorter", 0), (WHOLE + b"\0", "follow", None)):
        with pytest.raises(ChunkError, match=f"chunk 2: .*{message}") as caught:
            gorilla_decode_many([WHOLE, WHOLE, bad, WHOLE])
        assert caught.value.bit_offset == (WHOLE_BITS if bit is None else bit)


def test_the_count_of_samples_ends_at_16_bits() -> None:
    times = np.arange(65_535, dtype=np.int64)
    assert len(gorilla_decode(gorilla_encode(times, np.zeros(65_535)))[0]) == 65_535
    with pytest.raises(ChunkError, match="65536 samples") as caught:
        gorilla_encode(np.arange(65_536), np.zeros(65_536))
    assert caught.value.bit_offset is None


def test_times_and_values_of_different_lengths_are_refused() -> None:
    with pytest.raises(ChunkError, match="one length"):
        gorilla_encode([1, 2], [1.0])


WHOLE = gorilla_encode([1_000, 2_000, 3_000], [1.0, 1.0, 2.5])
WHOLE_BITS = 140


@pytest.mark.parametrize(
    ("raw", "message", "bit"),
    [
        (b"", "shorter than its header", 0),
        (b"\x00", "shorter than its header", 0),
        (b"\x00\x00\x00", "follow the last sample", 16),
        (b"\x00\x01", "ends before", 16),
        (WHOLE[:-1], "ends before", 8 * len(WHOLE) - 8),
        (WHOLE + b"\0", "follow the last sample", WHOLE_BITS),
        (WHOLE[:-1] + bytes([WHOLE[-1] | 1]), "fill", WHOLE_BITS),
        (b"\x00\x01" + b"\xff" * 9 + b"\x02" + bytes(8), "varint", 96),
        # Two samples; the second's window would have 31 leading zeros and 63 bits.
        (b"\x00\x02\x00" + bytes(8) + b"\x00" + (0b11_11111_111111 << 3).to_bytes(2, "big") + bytes(8), "exceed", 96),
        (b"\xff\xff" + bytes(9), "ends before", 88),
    ],
)
def test_other_bytes_are_refused_with_the_bit_they_fail_at(raw: bytes, message: str, bit: int) -> None:
    with pytest.raises(ChunkError, match=message) as caught:
        gorilla_decode(raw)
    assert caught.value.bit_offset == bit
    assert caught.value.byte_offset == bit // 8


def test_mutated_chunks_are_read_or_refused() -> None:
    seed = 20
    rng = random.Random(seed)
    chunks = [bytes.fromhex(case["chunk"]) for case in CASES]
    refused = 0
    for number in range(4_000):
        raw = bytearray(rng.choice(chunks))
        for _ in range(rng.randint(1, 3)):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        del raw[rng.randint(len(raw) // 2, len(raw)) :]
        offset = _refused_at(bytes(raw))
        refused += offset is not None
        assert offset is None or 0 <= offset <= 8 * len(raw), f"seed {seed}, mutation {number}: {raw.hex()}"
    assert refused > 1_000


def _refused_at(raw: bytes) -> int | None:
    """The bit offset of the refusal; None when the bytes are a chunk of as many samples as they say."""
    try:
        times, values = gorilla_decode(raw)
    except ChunkError as error:
        return -1 if error.bit_offset is None else error.bit_offset
    assert len(times) == len(values) == int.from_bytes(raw[:2], "big")
    return None
