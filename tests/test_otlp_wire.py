"""The kernels' lowest layer, each against something slow and obvious."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetpulse.ingest import _decode_wire as wire
from fleetpulse.ingest._decode_known import KnownSeries, empty_table
from fleetpulse.ingest._decode_table import UNKNOWN, find, find_series, insert
from fleetpulse.ingest._otlp import OtlpError, read_fields, read_varint

SECRET = np.int64(0x1234567890ABCDEF), np.int64(0x0FEDCBA987654321)
BEGIN = np.int64(0x5851F42D4C957F2D), np.int64(0x14057B7EF767814F)


def array(raw: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(raw, np.uint8)


UTF8 = [
    "",
    "plain",
    "größe",
    "日本語",
    "🙂" * 5,
    "x" * 7 + "é",
    "x" * 8 + "é",
    "\x00",
    "\u07ff\u0800\uffff\U00010000\U0010ffff",
]


@pytest.mark.parametrize("text", UTF8)
def test_utf8_is_utf8(text: str) -> None:
    raw = text.encode()
    assert wire.is_utf8(array(raw), 0, len(raw))
    for stop in range(len(raw)):
        assert wire.is_utf8(array(raw), 0, stop) == _decodes(raw[:stop])


PIECES = "6161616161616161 c3a9 e0a080 ed9fbf eda080 f0908080 f48fbfbf f4908080 c080 c1bf 80 ff e282 f5808080 e09fbf"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([bytes.fromhex(piece) for piece in PIECES.split()]), max_size=6))
def test_utf8_is_what_python_decodes(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    assert wire.is_utf8(array(raw), 0, len(raw)) == _decodes(raw)


def _decodes(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=14))
def test_varints_are_read_as_in_python(raw: bytes) -> None:
    value, at = wire.read_varint(array(raw), 0, len(raw))
    try:
        wanted: object = read_varint(raw, 0, len(raw))
    except OtlpError as error:
        wanted = error.reason
    assert (wire.ERRORS[at][0] if at < 0 else (value % 2**64, at)) == wanted


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=1, max_size=20))
def test_fields_are_read_as_in_python(raw: bytes) -> None:
    tag, body, end = wire.read_field(array(raw), 0, len(raw))
    try:
        field = next(read_fields(raw, 0, len(raw)))
        wanted: object = (field.number, field.wire, field.body, field.stop)
    except OtlpError as error:
        wanted = error.reason
    assert (wire.ERRORS[end][0] if end < 0 else (tag >> 3, tag & 7, body, end)) == wanted


def digest(raw: bytes, start: int = 0, stop: int | None = None) -> tuple[int, int]:
    end = len(raw) if stop is None else stop
    return wire.hash_range(array(raw), np.int64(start), np.int64(end), *BEGIN, *SECRET)  # type: ignore[no-any-return]


def test_a_hash_sees_every_bit_every_length_and_the_order() -> None:
    raw = random.Random(3).randbytes(70)
    seen = set()
    for size in range(len(raw)):
        for variant in (raw[:size], bytes(size), raw[:size] + b"\x00"):
            seen.add((variant, digest(variant)))
        for bit in range(8 * size):
            flipped = bytearray(raw[:size])
            flipped[bit // 8] ^= 1 << bit % 8
            seen.add((bytes(flipped), digest(bytes(flipped))))
    count = len({variant for variant, _ in seen})
    for half in (0, 1):
        assert len({found[half] for _, found in seen}) == count, "each half tells all of them apart"


def test_a_hash_does_not_depend_on_what_lies_around() -> None:
    raw = random.Random(4).randbytes(64)
    for size in range(33):
        alone = digest(raw[20 : 20 + size])
        assert digest(raw, 20, 20 + size) == alone
        assert digest(b"\xff" * 20 + raw[20 : 20 + size] + b"\xff" * 20, 20, 20 + size) == alone


def test_another_secret_gives_another_hash() -> None:
    raw = array(b"some bytes of a series")
    ends = np.int64(0), np.int64(len(raw)), *BEGIN
    mine = wire.hash_range(raw, *ends, *SECRET)
    theirs = wire.hash_range(raw, *ends, SECRET[0] + 2, SECRET[1])
    assert mine[0] != theirs[0]
    assert mine[1] != theirs[1]


def test_the_table_finds_what_was_entered_also_when_hashes_crowd() -> None:
    table = empty_table(64)
    chance = random.Random(6)
    entered = {(chance.choice((1, 65, 129)), chance.getrandbits(60)): value for value in range(30)}
    for (h1, h2), value in entered.items():
        assert insert(table, h1, h2, value, 0)
        assert not insert(table, h1, h2, value, 0)
    for (h1, h2), value in entered.items():
        assert table[find(table, h1, h2), 2] == value + 1
    assert find(table, 1, 5) == UNKNOWN


def test_a_forgotten_series_is_not_found_under_its_old_hash() -> None:
    known = KnownSeries()
    known.learn([(11, 12, 0), (21, 22, 1)], 2, 2)
    assert [find_series(known.table, known.keys, *hashes, np.int64(9)) for hashes in ((11, 12), (21, 22))] == [0, 1]
    known.forget([0])
    assert find_series(known.table, known.keys, 11, 12, np.int64(0)) == UNKNOWN
    assert find_series(known.table, known.keys, 21, 22, np.int64(0)) == 1
    known.learn([(31, 32, 0)], 2, 2)
    assert find_series(known.table, known.keys, 11, 12, np.int64(0)) == UNKNOWN
    assert find_series(known.table, known.keys, 31, 32, np.int64(9)) == 0


def test_a_table_that_fills_keeps_the_living_and_drops_the_forgotten() -> None:
    known = KnownSeries()
    for generation in range(200):
        base = 100 * generation
        known.learn([(base + i, 7, i) for i in range(1, 100)], 100, 100)
        if generation < 199:
            known.forget(list(range(1, 100)))
    assert len(known.table) <= 8_192
    assert [find_series(known.table, known.keys, 19_900 + i, 7, np.int64(0)) for i in range(1, 100)] == list(
        range(1, 100)
    )
