"""What waits while Redis is away."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetpulse.features._vector import NodeVector
from fleetpulse.store._outbox import Batch, Field, Outbox
from support.vectors import NOW_MS, vector


def _drained(box: Outbox) -> Batch:
    batch = box.take(10**6, 10**6)
    assert not box
    return batch


@settings(deadline=None, max_examples=60)
@given(
    writes=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3)), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_taking_and_putting_back_loses_nothing_and_keeps_the_newest(
    writes: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    """With one partition the newest is the largest (t_end, offset), whatever was taken and came back meanwhile."""
    box, out, newest = Outbox(100), None, {}
    for i, (node, t_ms, offset) in enumerate(writes):
        if i in cuts:
            if out is not None:
                box.put_back(out)
            out = box.take(1, 1)
        box.add_vectors([vector(node, t_ms=NOW_MS + t_ms, offset=offset)])
        newest[node] = max(newest.get(node, (0, 0)), (NOW_MS + t_ms, offset))
    if out is not None:
        box.put_back(out)
    left = {v.node: (v.t_end_ns // 1_000_000, v.offset) for v in _drained(box).vectors}
    assert left == newest


def test_at_equal_t_end_another_partition_is_newer() -> None:
    box = Outbox(0)
    box.add_vectors([vector("a", partition=0, offset=9, value=1), vector("a", partition=1, offset=2, value=2)])
    batch = _drained(box)
    assert [v.values[0] for v in batch.vectors] == [2]
    box.add_vectors([vector("a", partition=0, offset=9, value=3)])
    box.put_back(batch)
    assert [v.values[0] for v in _drained(box).vectors] == [3], "what came later stays above what came back"


def test_chunks_are_bounded_by_bytes_and_the_oldest_go() -> None:
    box = Outbox(100)
    for start in (30, 10, 20, 40):
        box.add_chunk("c", "n", start, bytes(30))
    assert box.chunks_dropped == 1
    box.add_chunk("c", "n", 40, bytes(39))
    batch = box.take(0, 2)
    box.add_chunk("c", "m", 50, bytes(90))
    box.put_back(batch)
    kept = _drained(box).chunks
    assert sum(map(len, kept.values())) <= 100
    assert ("c", "m", 50) in kept
    assert box.chunks_dropped == 4


def test_the_newest_field_of_a_node_stays() -> None:
    box = Outbox(0)
    box.add_field("events", "c", "n", Field(2, "two"))
    batch = _drained(box)
    box.add_field("events", "c", "n", Field(1, "one"))
    box.put_back(batch)
    box.add_field("verdicts", "c", "n", Field(1, "verdict"))
    fields = _drained(box).fields
    assert {key[0]: entry.text for key, entry in fields.items()} == {"events": "two", "verdicts": "verdict"}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_at_most_so_many_are_taken_and_the_longest_waiting_first(count: int) -> None:
    box = Outbox(0)
    vectors: list[NodeVector] = [vector(f"n{i}") for i in range(3)]
    box.add_vectors(vectors)
    assert box.take(count, 0).vectors == vectors[:count]
    assert box.vectors == 3 - min(count, 3)
