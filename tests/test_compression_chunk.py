"""Group chunks: every bit comes back, in any order of columns, and a reader made from the page alone agrees."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fleetpulse.compression as package
from fleetpulse.compression import (
    Chunk,
    ChunkError,
    Column,
    SeriesLabels,
    chunk_sizes,
    column_bits,
    decode_chunk,
    encode_chunk,
)
from fleetpulse.compression import _chunk as chunk_module
from fleetpulse.compression import _identities as identities_module
from support.chunk_twin import TwinChunk, read_slowly

SPAN_NS = 600_000_000_000
START_NS = 1_700_000_400_000_000_000
PAGE = Path(package.__file__).with_name("FORMAT.md").read_text()


def encode(columns: Sequence[Column]) -> bytes:
    return encode_chunk("c", "n", START_NS, SPAN_NS, columns)


def contents(columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """Columns as values that compare by bits, in an order that does not depend on theirs."""
    return sorted(
        (sorted(c.labels.items()), c.values.dtype.kind, c.times_ns.tolist(), c.values.view(np.uint64).tolist())
        for c in columns
    )


def twin_contents(chunk: TwinChunk) -> list[tuple[Any, ...]]:
    return sorted((sorted(c.labels.items()), "i" if c.is_int else "f", c.times, c.bits) for c in chunk.columns)


def scrapes(n: int, seed: int = 1) -> Any:
    jitter = np.random.default_rng(seed).integers(-2_000_000, 2_000_000, n)
    return START_NS + np.arange(n, dtype=np.int64) * 10_000_000_000 + jitter


def floats(*values: float) -> Any:
    return np.array(values, np.float64)


def of_bits(*bits: int) -> Any:
    return np.array(bits, np.uint64).view(np.float64)


def column(values: Any, times: Any = None, **labels: str) -> Column:
    return Column(labels, scrapes(len(values)) if times is None else times, values)


# Arbitrary columns.

VALUES = st.one_of(
    st.tuples(st.just("f"), st.lists(st.integers(0, (1 << 64) - 1), min_size=12, max_size=12)),
    st.tuples(st.just("d"), st.lists(st.integers(-99_999, 99_999), min_size=12, max_size=12)),
    st.tuples(st.just("z"), st.lists(st.sampled_from([0, 0, 0, 1, 5_000]), min_size=12, max_size=12)),
    st.tuples(st.just("i"), st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=12, max_size=12)),
    st.tuples(st.just("s"), st.lists(st.integers(-3, 3), min_size=12, max_size=12)),
)
LABELS = st.dictionaries(
    st.sampled_from(["__name__", "cpu", "resource.host.name", "resource.k8s.pod.uid"]),
    st.sampled_from(["", "a", "ab", "ä", "\ud800", "0123abcd", "05ed9f87-f1a0-492d-a24d-fa99b7ab9b56"]),
    max_size=4,
)
TIMES = st.lists(
    st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(START_NS, START_NS + 40), unique=True, min_size=12, max_size=12
)
COLUMNS = st.lists(
    st.tuples(LABELS, VALUES, st.integers(0, 2), st.lists(st.booleans(), min_size=12, max_size=12)), max_size=6
)


def columns_of(times: list[list[int]], drawn: list[Any]) -> list[Column]:
    columns = []
    for labels, (kind, numbers), which, taken in drawn:
        picked = np.array(taken) if which else np.ones(12, np.bool_)
        if kind == "f":
            values: Any = of_bits(*numbers)
        elif kind in "dz":
            values = np.array(numbers, np.float64) / 100
        else:
            values = np.cumsum(np.array(numbers, np.int64)) if kind == "s" else np.array(numbers, np.int64)
        columns.append(Column(labels, np.array(sorted(times[which // 2]), np.int64)[picked], values[picked]))
    return columns


@settings(deadline=None, max_examples=120)
@given(st.tuples(TIMES, TIMES), COLUMNS, st.randoms(use_true_random=False))
def test_every_bit_comes_back_whatever_the_order_of_columns(
    times: tuple[list[int], list[int]], drawn: list[Any], chance: random.Random
) -> None:
    columns = columns_of(list(times), drawn)
    raw = encode(columns)
    assert contents(decode_chunk(raw).columns) == contents(columns)
    assert twin_contents(read_slowly(raw)) == contents(columns)
    assert sum(chunk_sizes(raw)) == 8 * len(raw)
    assert sum(column_bits(raw)) == chunk_sizes(raw).values
    chance.shuffle(columns)
    assert encode(columns) == raw
    stored = decode_chunk(raw).columns
    assert encode(stored) == raw


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-9, 9), min_size=1, max_size=80),
    st.sampled_from([1, 3, 512, 4_096, 1 << 40]),
    st.integers(0, 3),
)
@example([0, 1 << 62, -(1 << 63), (1 << 63) - 1, 0, -1], 1, 0)
def test_runs_of_integers_come_back_at_every_order_and_factor(numbers: list[int], factor: int, sums: int) -> None:
    values = np.array(numbers, np.int64) * np.int64(factor)
    for _ in range(sums):
        values = np.cumsum(values)
    columns = [column(values, np.arange(len(values), dtype=np.int64), x="1")]
    raw = encode(columns)
    assert contents(decode_chunk(raw).columns) == contents(columns)
    assert twin_contents(read_slowly(raw)) == contents(columns)


# What a chunk promises, case by case.


def fields(raw: bytes, name: str) -> list[str]:
    return [field.value for field in read_slowly(raw).fields if field.name == name]


COUNTER = np.cumsum(np.random.default_rng(3).integers(1, 1_000, 60))
FALLING = (1 << 61) - 4_096 * COUNTER
NOISE = np.random.default_rng(4).random(60)
ANY_BITS = of_bits(*np.random.default_rng(5).integers(0, 1 << 63, 60))
SPARSE = np.repeat([5, 6, 9_000_000_000, 12], [15, 20, 5, 20])


@pytest.mark.parametrize(
    ("columns", "modes", "bits_max"),
    [
        pytest.param([column(np.full(60, 7))], "0", 20, id="constant"),
        pytest.param([column(of_bits(*[0x7FF4DEADBEEF0001] * 60))], "0", 80, id="constant NaN"),
        pytest.param([column(NOISE, a="1"), column(NOISE, a="2")], "4 1", 60 * 66, id="equal column"),
        pytest.param([column(COUNTER)], "2", 60 * 12, id="counter"),
        pytest.param([column(COUNTER * 4_096)], "2", 60 * 12, id="counter of pages"),
        pytest.param([column(SPARSE)], "2", 190, id="mostly still"),
        pytest.param([column(COUNTER / 100)], "3", 60 * 12, id="decimals"),
        pytest.param([column(np.cumsum(COUNTER / 10))], "3", 60 * 18, id="sums of decimals"),
        pytest.param([column(np.append(COUNTER / 100, np.nan))], "3", 60 * 14, id="decimals and one NaN"),
        pytest.param([column(np.repeat(NOISE[:6], 10))], "4", 60 + 6 * 80, id="steps of any float"),
        pytest.param(
            [column(of_bits(*np.random.default_rng(5).integers(0, 1 << 63, 60)))], "5", 64 * 60, id="any bits"
        ),
        pytest.param([column(COUNTER * 4_096, a="1"), column(FALLING, a="2")], "2 2", 60 * 13, id="used and free"),
    ],
)
def test_each_kind_of_column_takes_the_mode_it_is_short_in(columns: list[Column], modes: str, bits_max: int) -> None:
    raw = encode(columns)
    assert " ".join(fields(raw, "mode")) == modes
    assert chunk_sizes(raw).values <= bits_max + 3 * len(columns)
    assert contents(decode_chunk(raw).columns) == contents(columns)


def test_integers_beyond_2_to_53_stay_integers() -> None:
    values = np.array([(1 << 60) + 1, (1 << 60) + 2, -(1 << 63), (1 << 63) - 1], np.int64)
    (stored,) = decode_chunk(encode([column(values)])).columns
    assert stored.values.dtype == np.int64
    assert stored.values.tolist() == values.tolist()


def test_columns_with_the_same_times_store_and_share_them_once() -> None:
    times = scrapes(60)
    one = chunk_sizes(encode([column(COUNTER, times, a="1")]))
    many = chunk_sizes(encode([column(COUNTER + k, times.copy(), a=str(k)) for k in range(50)]))
    assert many.times - one.times <= 16
    first, second = decode_chunk(encode([column(COUNTER, times, a="1"), column(NOISE, times, a="2")])).columns
    assert first.times_ns is second.times_ns
    assert not first.times_ns.flags.writeable


@pytest.mark.parametrize(
    "missing",
    [[5], [0], [59], [0, 1, 2], list(range(30, 60)), [3, 9, 17, 18, 40], list(range(0, 60, 2)), list(range(1, 60, 2))],
    ids=str,
)
def test_missing_scrapes_take_a_bit_each_at_most(missing: list[int]) -> None:
    times = scrapes(60)
    whole = column(COUNTER, times, a="1")
    part = column(np.delete(COUNTER, missing), np.delete(times, missing), a="2")
    raw = encode([whole, part])
    assert chunk_sizes(raw).times - chunk_sizes(encode([whole])).times <= 60 + 10
    assert contents(decode_chunk(raw).columns) == contents([whole, part])


def test_two_columns_with_the_same_labels_are_both_kept() -> None:
    columns = [column(floats(1, 2), x="1"), column(floats(1, 3), x="1"), column(np.array([1, 2]), x="1")]
    raw = encode(columns)
    assert contents(decode_chunk(raw).columns) == contents(columns)
    assert encode(columns[::-1]) == raw


def test_chunks_of_no_columns_and_columns_of_no_samples() -> None:
    assert decode_chunk(encode([])).columns == []
    empty = [column(np.empty(0), np.empty(0, np.int64), a="1"), column(np.empty(0, np.int64), np.empty(0, np.int64))]
    assert contents(decode_chunk(encode([*empty, column(COUNTER)])).columns) == contents([*empty, column(COUNTER)])


def test_header_fields_come_back() -> None:
    chunk = decode_chunk(encode_chunk("eu-west/ü", "", -(1 << 63), (1 << 63) - 1, []))
    assert (chunk.cluster, chunk.node, chunk.span_start_ns, chunk.span_ns) == (
        "eu-west/ü",
        "",
        -(1 << 63),
        (1 << 63) - 1,
    )


def test_labels_that_follow_from_others_cost_little() -> None:
    def labels(i: int, more: bool) -> dict[str, str]:
        pod = {"resource.pod": f"pod-{i % 20}", "__name__": f"metric.{i // 20}"}
        return pod | ({"resource.zone": "a", "resource.uid": f"{i % 20:08x}-0000-4000-8000-{0:012}"} if more else {})

    few = chunk_sizes(encode([Column(labels(i, False), scrapes(1), floats(1)) for i in range(400)])).identities
    many = chunk_sizes(encode([Column(labels(i, True), scrapes(1), floats(1)) for i in range(400)])).identities
    # 20 UUIDs of 16 bytes, their numbers, and two short strings more; nothing per series.
    assert many - few <= 8 * (20 * 16 + 20 + 60)


def test_what_is_remembered_of_identities_changes_no_byte_and_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    written, read = identities_module._Recent[Any, Any](), identities_module._Recent[Any, Any]()
    monkeypatch.setattr(identities_module, "_written", written)
    monkeypatch.setattr(identities_module, "_read", read)
    monkeypatch.setattr(identities_module, "WEIGHT_KEPT", 200)
    sets = [[column(COUNTER + k, a=str(k), b=f"{number}") for k in range(20)] for number in range(6)]
    first = [encode(columns) for columns in sets]
    assert [encode(columns) for columns in reversed(sets)] == first[::-1]
    for raw, columns in [*zip(first, sets, strict=True)] * 2:
        assert contents(decode_chunk(raw).columns) == contents(columns)
    assert 1 <= len(written._results) <= 3
    assert 1 <= len(read._results) <= 3
    one, other = decode_chunk(first[-1]), decode_chunk(first[-1])
    assert one.columns[0].labels is other.columns[0].labels


def test_a_damaged_block_of_identities_is_refused_as_often_as_it_comes() -> None:
    bad = patched(VARIED, "name", 0, "1111")
    for _ in range(2):
        with pytest.raises(ChunkError, match="a string beyond the") as caught:
            decode_chunk(bad)
        assert caught.value.bit_offset is not None
        assert caught.value.bit_offset > 200


def test_labels_are_a_mapping_that_compares_with_any_other() -> None:
    plain = {"b": "2", "resource.a": "1", "a": "3"}
    labels = SeriesLabels(plain)
    assert labels == plain
    assert plain == labels
    assert labels == SeriesLabels(dict(reversed(plain.items())))
    assert hash(labels) == hash(SeriesLabels(dict(reversed(plain.items()))))
    assert labels != plain | {"a": "4"}
    assert (dict(labels), len(labels), labels.get("a"), "c" in labels) == (plain, 3, "3", False)
    (stored,) = decode_chunk(encode([Column(plain, scrapes(1), floats(1))])).columns
    assert stored.labels == plain


# What is refused.


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Column({"__name__": "x"}, np.array([1, 2]), floats(1)), "column x: times .* one length"),
        (Column({}, np.array([[1]]), np.array([[1.0]])), "one length"),
        (Column({}, np.array([2, 1]), floats(1, 2)), "strictly increase"),
        (Column({}, np.array([1, 1]), floats(1, 2)), "strictly increase"),
        (Column({}, np.array([1, 2]), np.array([1, 2], np.int32)), "int32"),
        (Column({}, np.array([1.0, 2.0]), floats(1, 2)), "times are float64"),  # type: ignore[arg-type]
    ],
)
def test_columns_that_cannot_be_stored_are_refused(bad: Column, message: str) -> None:
    with pytest.raises(ChunkError, match=message) as caught:
        encode([bad])
    assert caught.value.bit_offset is None


def test_more_samples_than_a_reader_accepts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = encode([column(COUNTER, a="1"), column(COUNTER, a="2")])
    monkeypatch.setattr(chunk_module, "SAMPLES_MAX", 119)
    with pytest.raises(ChunkError, match="120 samples"):
        encode([column(COUNTER, a="1"), column(COUNTER, a="2")])
    with pytest.raises(ChunkError, match="119 samples"):
        decode_chunk(raw)


def sealed(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "big")


GOOD = encode([column(COUNTER, a="1"), column(NOISE, a="2"), column(COUNTER[:-1] / 10, scrapes(60)[:-1], a="3")])


@pytest.mark.parametrize(
    ("raw", "message", "bit"),
    [
        (b"", "does not begin with FPC", 0),
        (b"FPC\x01", "does not begin with FPC", 0),
        (b"XYZ" + GOOD[3:], "does not begin with FPC", 0),
        (sealed(b"FPC\x02" + GOOD[4:-4]), "version 2 .* knows 1", 24),
        (GOOD[:-1], "checksum", 8 * len(GOOD) - 40),
        (GOOD[:40] + bytes([GOOD[40] ^ 1]) + GOOD[41:], "checksum", 8 * len(GOOD) - 32),
        (sealed(b"FPC\x01\x05abc"), "5 bytes announced, 3 there", 40),
        (sealed(GOOD[:-4] + b"\0"), "bits follow the last column", None),
        (sealed(GOOD[:-40]), "ends inside a column", None),
    ],
)
def test_other_bytes_are_refused_with_the_place(raw: bytes, message: str, bit: int | None) -> None:
    with pytest.raises(ChunkError, match=message) as caught:
        decode_chunk(raw)
    assert caught.value.bit_offset is not None
    assert 0 <= caught.value.bit_offset <= 8 * len(raw)
    assert bit is None or caught.value.bit_offset == bit


def gamma(count: int) -> str:
    digits = format(count + 1, "b")
    return "0" * (len(digits) - 1) + digits


def patched(raw: bytes, name: str, which: int, digits: str) -> bytes:
    """The chunk with these binary digits in the place of a field, and a checksum that fits."""
    field = [field for field in read_slowly(raw).fields if field.name == name][which]
    text = format(int.from_bytes(raw[:-4], "big"), f"0{8 * len(raw) - 32}b")
    text = text[: field.bit] + digits + text[field.bit + field.width :]
    text += "0" * (-len(text) % 8)
    return sealed(int(text, 2).to_bytes(len(text) // 8, "big"))


VARIED = encode(
    [
        Column({"__name__": "a", "x": "1"}, scrapes(20), FALLING[:20]),
        Column({"__name__": "b", "x": "2"}, scrapes(20)[:15], np.append(COUNTER[:14] / 10, np.nan)),
        Column({"__name__": "b", "x": "1"}, scrapes(20), FALLING[:20]),
        Column({"__name__": "c", "x": "2"}, scrapes(20), FALLING[:20] + np.arange(20) % 3),
        Column({"__name__": "d", "x": "2", "y": "3"}, scrapes(20), SPARSE[:20]),
        Column({"__name__": "e", "x": "2", "y": "3"}, scrapes(20), NOISE[:20]),
    ]
)


@pytest.mark.parametrize(
    ("name", "which", "digits", "message"),
    [
        ("texts", 0, format(120, "08b"), "120 items announced"),
        ("series", 0, gamma((1 << 18) + 1), "must lie between 0 and 262144"),
        ("tables", 0, "0" * 40, "must lie between|sequence"),
        ("name", 0, "1111", "a string beyond the"),
        ("name", 1, "0011", "occurs twice|beyond"),
        ("time columns", 0, gamma(7), "must lie between 0 and 6"),
        ("base", 0, gamma(1), "must lie between 0 and 0"),
        ("base", 1, gamma(2), "must lie between 0 and 1"),
        ("length", 0, gamma((1 << 24) + 1), "must lie between 0 and 16777216"),
        ("length", 0, gamma(1 << 23), "more than 16777216 samples|ends inside a time column|code that"),
        ("mask run", 0, gamma(21), "takes more than its base has"),
        ("mask run", 1, gamma(1_000_000), "takes more than its base has"),
        ("mask run", 1, gamma(0), "takes more than its base has"),
        ("floats", 0, gamma(7), "must lie between 0 and 6"),
        ("integers", 0, gamma(6), "must lie between 0 and 5"),
        ("order", 0, "11", "time column has a code"),
        ("code", 0, "0011", "time column has a code"),
        ("code", 0, "1100", "time column has a code"),
        ("order", 1, "11", "a column has a code"),
        ("code", 1, "0111", "a column has a code"),
        ("mode", 0, "110", "a mode that does not exist"),
        ("mode", 0, "010", "a mode that does not exist for its type"),
        ("mode", 1, "011", "a mode that does not exist for its type"),
        ("back", 0, gamma(5), "not there or not alike"),
        ("back", 0, gamma((1 << 32) - 2), "not there or not alike"),
        ("back", 0, "0" * 60, "not there or not alike"),
        ("exponent", 0, "10111", "exponent or exceptions"),
        ("corrections", 0, gamma(16), "exponent or exceptions"),
        ("values between", 0, gamma(15), "exponent or exceptions"),
        ("values between", 0, "0" * 60, "exponent or exceptions"),
    ],
)
def test_fields_that_cannot_be_are_refused(name: str, which: int, digits: str, message: str) -> None:
    with pytest.raises(ChunkError, match=message) as caught:
        decode_chunk(patched(VARIED, name, which, digits))
    assert caught.value.bit_offset is not None


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (encode([column(np.append(COUNTER[:20], COUNTER[:20]), np.arange(40))]), "code"),
        (encode([column(ANY_BITS[:5], np.array([0, 5, 6, 50, 51]))]), "time column"),
    ],
)
def test_a_parameter_too_large_is_refused(raw: bytes, message: str) -> None:
    parameter = "k" if fields(raw, "k") else "width"
    width = [field.width for field in read_slowly(raw).fields if field.name == parameter][-1]
    with pytest.raises(ChunkError, match=message):
        decode_chunk(patched(raw, parameter, -1, "1" * width))


def test_times_that_do_not_increase_are_refused() -> None:
    raw = encode([column(floats(1, 2), np.array([START_NS, START_NS + 1]))])
    # The only step is 1, in Elias with k = 1; two zeros stand for a step of 0.
    assert [fields(raw, name)[0] for name in ("order", "code", "k", "rest")] == ["1", "2", "1", "1"]
    with pytest.raises(ChunkError, match="do not increase"):
        decode_chunk(patched(raw, "rest", 0, "00"))


def _read_or_refused(raw: bytes) -> tuple[Chunk | None, int | None]:
    try:
        return decode_chunk(raw), None
    except ChunkError as error:
        return None, -1 if error.bit_offset is None else error.bit_offset


def test_mutated_chunks_with_a_fitting_checksum_are_read_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # A reader of small chunks only: a mutation may announce millions of samples, and must not be believed.
    monkeypatch.setattr(chunk_module, "SAMPLES_MAX", 4_000)
    seed = 7
    chance = random.Random(seed)
    times = scrapes(30)
    sources = [GOOD, encode([]), encode([column(floats(*NOISE[:5], np.nan, -0.0))])]
    many = [
        Column({"__name__": f"m{k % 3}", "resource.pod": f"p{k // 3}"}, times[k % 4 :], values[k % 4 : 30])
        for k in range(12)
        for values in (COUNTER * 512, FALLING, COUNTER / 8, NOISE, SPARSE, np.cumsum(COUNTER / 10))
    ]
    sources.append(encode(many))
    refused = 0
    for number in range(3_000):
        body = bytearray(chance.choice(sources)[:-4])
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(4, len(body))
            body[place] = chance.choice([body[place] ^ (1 << chance.randrange(8)), chance.randrange(256), 0, 255])
        if chance.random() < 0.2:
            del body[chance.randint(4, len(body)) :]
        chunk, offset = _read_or_refused(sealed(bytes(body)))
        if chunk is None:
            refused += 1
            assert offset is not None
            assert 0 <= offset <= 8 * len(body) + 32, f"seed {seed}, mutation {number}: {body.hex()}"
        else:
            assert sum(len(c.values) for c in chunk.columns) <= 4_000
            assert all(len(c.values) == len(c.times_ns) for c in chunk.columns)
    assert refused > 1_000


def test_random_bytes_are_refused() -> None:
    chance = random.Random(8)
    for length in range(200):
        raw = sealed(b"FPC\x01" + chance.randbytes(length))
        chunk, offset = _read_or_refused(raw)
        assert chunk is None or chunk.columns == []
        assert offset is None or 0 <= offset <= 8 * len(raw)


# The page.


def test_the_page_s_example_is_what_the_code_writes_and_reads_field_by_field() -> None:
    example_text = PAGE[PAGE.index("### Example") :]
    block = re.search(r"```text\n(.*?)```", example_text, re.DOTALL)
    assert block is not None
    raw = bytes.fromhex(block.group(1))
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([^|]+) \| ([^|]*) \|$", example_text, re.MULTILINE)
    chunk = read_slowly(raw)
    assert [(int(bit), int(width), name, value) for bit, width, name, value in rows] == [*chunk.fields]
    # The fields follow each other without a hole, from the first bit to the last.
    ends = [field.bit + field.width for field in chunk.fields]
    assert [0, *ends] == [*(field.bit for field in chunk.fields), 8 * len(raw)]

    start_ns = 1_700_000_040_000_000_000
    times = start_ns + np.array([1_000_000_000, 16_000_000_000, 31_000_000_000, 46_000_000_007])
    columns = [
        Column({"__name__": "load"}, times, floats(0.5, 0.75, 0.75, 1)),
        Column({"__name__": "free", "numa": "0"}, times, np.array([4_096, 8_192, 8_192, 12_288])),
        Column({"__name__": "up", "numa": "0"}, times, np.array([1, 1, 1, 1])),
    ]
    assert encode_chunk("c", "n1", start_ns, 60_000_000_000, columns).hex() == raw.hex()
    decoded = decode_chunk(raw)
    assert contents(decoded.columns) == contents(columns) == twin_contents(chunk)
    assert (decoded.cluster, decoded.node, decoded.span_start_ns, decoded.span_ns) == ("c", "n1", start_ns, 60 * 10**9)
