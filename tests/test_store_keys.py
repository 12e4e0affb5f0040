"""The key layout, and the page that describes it."""

from __future__ import annotations

import re
import struct
import zlib
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetpulse.features._vector import AGE_UNKNOWN_MS, NodeVector, VectorError
from fleetpulse.store import StoreAddressError
from fleetpulse.store._keys import BUCKETS, Keys, bucket_of
from fleetpulse.store._slots import header, parse_slots

PAGE = files("fleetpulse.store").joinpath("KEYS.md").read_text()


def _block(name: str) -> str:
    found = re.search(rf"```{name}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_pages_vector_is_what_the_code_writes_and_reads() -> None:
    raw = bytes.fromhex(_block("vector"))
    vector = NodeVector.from_bytes(raw)
    assert (vector.node, vector.cluster, vector.pool) == ("node 1", "eu/prod", "m5")
    assert vector.schema_hash == bytes(range(16))
    assert (vector.t_end_ns, vector.partition, vector.offset) == (1790000000123456789, 3, 41)
    assert (vector.window_covered_ms, vector.scrape_interval_ms) == (300_000, 10_000)
    assert vector.values[0] == 0.25
    assert np.isnan(vector.values[1])
    assert vector.status.tolist() == [1, 0]
    assert vector.age_ms.tolist() == [250, AGE_UNKNOWN_MS]
    assert vector.sources == {"cpu_contention": "psi"}
    assert vector.to_bytes() == raw


def test_the_pages_table_of_a_vector_gives_every_offset() -> None:
    """Read with nothing but the table: what a program in another language does."""
    raw = bytes.fromhex(_block("vector"))
    assert raw[:4] == b"FPV1"
    (n,) = struct.unpack_from("<H", raw, 4)
    lengths = struct.unpack_from("<4H", raw, 6)
    t_end_ns, offset, partition, seen_ms, interval_ms = struct.unpack_from("<qqIII", raw, 32)
    assert (t_end_ns, offset, partition, seen_ms, interval_ms) == (1790000000123456789, 41, 3, 300_000, 10_000)
    at = 64 + 9 * n
    assert raw[at : at + sum(lengths)].decode() == "node 1eu/prodm5cpu_contention=psi"
    assert struct.unpack("<I", raw[-4:])[0] == zlib.crc32(raw[:-4])


def test_the_pages_bulk_key_is_what_the_code_reads() -> None:
    vector, raw = bytes.fromhex(_block("vector")), bytes.fromhex(_block("bulk"))
    assert raw == header(bytes(range(16)), 2) + vector[32 : 64 + 4 * 2]
    slots = parse_slots(raw, b"node%201\n", bytes(range(16)), 2).slots
    assert slots["t_end_ns"].tolist() == [1790000000123456789]
    assert slots["scrape_interval_ms"].tolist() == [10_000]
    assert slots["x"][0, 0] == 0.25


def test_the_pages_key_is_the_codes_key() -> None:
    assert Keys("fp").node("eu/prod", "node 1") == _block("keys").strip()
    for kind in ("clusters", "node", "bulk", "ids", "schema", "verdicts", "events", "chunks", "index"):
        assert f":{kind}" in PAGE


@pytest.mark.parametrize(
    ("bulk_cut", "ids", "what"),
    [(1, b"a\n", "cut"), (0, b"a\nb\n", "1 slots for 2 nodes"), (0, b"", "1 slots for 0 nodes")],
)
def test_a_bulk_key_of_another_length_is_refused(bulk_cut: int, ids: bytes, what: str) -> None:
    raw = bytes.fromhex(_block("bulk"))
    with pytest.raises(ValueError, match=what):
        parse_slots(raw[: len(raw) - bulk_cut], ids, bytes(range(16)), 2)


def test_a_vector_damaged_anywhere_is_refused() -> None:
    raw = bytes.fromhex(_block("vector"))
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1
        with pytest.raises(VectorError):
            NodeVector.from_bytes(bytes(damaged))
    for size in range(len(raw)):
        with pytest.raises(VectorError):
            NodeVector.from_bytes(raw[:size])


NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@settings(deadline=None, max_examples=100)
@given(cluster=NAMES, node=NAMES, other=NAMES)
def test_names_of_any_characters_make_one_tag_and_their_own_key(cluster: str, node: str, other: str) -> None:
    keys = Keys("fp")
    key = keys.node(cluster, node)
    tag = re.search(r"\{(.*?)\}", key)
    assert tag is not None
    assert tag.group(1) == tag.group(1).strip("{}")
    assert key.count("{") == key.count("}") == 1
    assert 0 <= bucket_of(node) < BUCKETS
    schema = bytes(16)
    bucket = bucket_of(node)
    for of_bucket in (
        keys.bulk(cluster, bucket, schema),
        keys.ids(cluster, bucket, schema),
        keys.index(cluster, bucket, schema),
        keys.schema(cluster, bucket),
        keys.events(cluster, bucket),
        keys.verdicts(cluster, bucket),
        keys.chunks(cluster, node),
    ):
        assert of_bucket.startswith(key[: key.index("}") + 1])
    assert (keys.node(cluster, other) == key) == (other == node)


@pytest.mark.parametrize("prefix", ["", "a b", "a{b}", "a:b", "ä", "x" * 65])
def test_a_prefix_that_would_break_the_keys_is_refused(prefix: str) -> None:
    with pytest.raises(StoreAddressError, match="prefix"):
        Keys(prefix)
