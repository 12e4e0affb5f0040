"""When a node's samples become chunks, and what is in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from fleetpulse.compression import decode_chunk
from fleetpulse.features import NumberPoints, Points
from fleetpulse.features._points import ExponentialPoints, HistogramPoints
from fleetpulse.features._series import Kind, NodeId, SeriesIdentity, SeriesTable, Source, Temporality
from fleetpulse.ingest import _chunks
from fleetpulse.ingest._chunks import LATER_PARTS, OpenChunks, SealedChunk
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._shard import OfflinePipeline
from support.otlp_samples import RECORD_MS, one_resource, request

NS = 1_000_000_000
SPAN_NS = 60 * NS
WINDOW_NS = 300 * NS
START_NS = 1_700_000_040 * NS
assert START_NS % SPAN_NS == 0


def table_of(series: int) -> SeriesTable:
    table = SeriesTable()
    for i in range(series):
        identity = SeriesIdentity(
            NodeId("c", "n"), (("host.name", "n"),), "", f"m{i}", "1", Kind.GAUGE, Temporality.UNSPECIFIED, False, ()
        )
        table.add(identity, Source(identity.metric, "1", {}, Kind.GAUGE, Temporality.UNSPECIFIED, False))
    return table


def points(rows: list[tuple[int, int, float]]) -> Points:
    """From (series, time in ns, value)."""
    series, times, values = (list(column) for column in zip(*rows, strict=True))
    n = len(rows)
    none, no_time = np.zeros(0), np.zeros(0, np.int64)
    at = np.zeros(1, np.int64)
    index = np.zeros(0, np.int32)
    return Points(
        NumberPoints(
            np.array(series, np.int32),
            np.array(times, np.int64),
            np.zeros(n, np.int64),
            np.array(values, np.float64),
            np.zeros(n, np.int64),
            np.zeros(n, np.bool_),
        ),
        HistogramPoints(index, no_time, no_time, no_time, none, none, none, at, no_time, at, none),
        ExponentialPoints(
            *(index, no_time, no_time, no_time, none, none, none, index, no_time, none),
            *(index, at, no_time, index, at, no_time),
        ),
    )


def contents(chunk: SealedChunk) -> dict[str, list[tuple[int, float]]]:
    return {
        column.labels["__name__"]: list(zip(column.times_ns.tolist(), column.values.tolist(), strict=True))
        for column in decode_chunk(chunk.raw).columns
    }


@pytest.fixture
def chunks() -> OpenChunks:
    return OpenChunks(table_of(2), span_ns=SPAN_NS, window_ns=WINDOW_NS)


def test_a_span_is_sealed_a_minute_after_its_end_in_the_nodes_own_time(chunks: OpenChunks) -> None:
    chunks.add(points([(0, START_NS, 1.0), (1, START_NS + NS, 2.0)]), lambda _: 0)
    end_ns = START_NS + SPAN_NS
    assert chunks.seal(0, end_ns + 59 * NS) == []
    (chunk,) = chunks.seal(0, end_ns + 60 * NS)
    assert (chunk.span_start_ns, chunk.part) == (START_NS, 0)
    assert contents(chunk) == {"m0": [(START_NS, 1.0)], "m1": [(START_NS + NS, 2.0)]}
    assert chunks.seal(0, end_ns + 120 * NS) == [], "once"


def test_bytes_do_not_depend_on_order_repetition_or_batching() -> None:
    rows = [(s, START_NS + t * NS, float(s + t)) for t in range(20) for s in (0, 1)]
    sealed = []
    for batches in ([rows], [rows[::-1], rows[:7]], [[row] for row in rows[10:] + rows[:10] + rows[3:5]]):
        made = OpenChunks(table_of(2), span_ns=SPAN_NS, window_ns=WINDOW_NS)
        for batch in batches:
            made.add(points(batch), lambda _: 0)
        sealed.append(made.seal(0, START_NS + 2 * SPAN_NS))
    assert sealed[0] == sealed[1] == sealed[2]
    assert len(sealed[0]) == 1


def test_what_comes_after_sealing_but_inside_the_window_is_a_part_of_its_own(chunks: OpenChunks) -> None:
    chunks.add(points([(0, START_NS, 1.0)]), lambda _: 0)
    t_end_ns = START_NS + 2 * SPAN_NS
    chunks.seal(0, t_end_ns)
    chunks.add(points([(0, START_NS, 9.0), (0, START_NS + 5 * NS, 3.0)]), lambda _: t_end_ns)
    assert chunks.seal(0, START_NS + SPAN_NS + WINDOW_NS - 1) == []
    (later,) = chunks.seal(0, START_NS + SPAN_NS + WINDOW_NS)
    assert later.part == LATER_PARTS
    assert contents(later) == {"m0": [(START_NS + 5 * NS, 3.0)]}, "not what the first part has"
    assert chunks.samples == 0


def test_a_sample_older_than_the_window_is_in_no_chunk(chunks: OpenChunks) -> None:
    t_end_ns = START_NS + WINDOW_NS
    chunks.add(points([(0, START_NS, 1.0), (1, START_NS + NS, 2.0)]), lambda _: t_end_ns)
    (chunk,) = chunks.seal(0, t_end_ns, whole=True)
    assert contents(chunk) == {"m1": [(START_NS + NS, 2.0)]}


def test_a_chunk_that_would_be_too_large_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_chunks, "CHUNK_BYTES_MAX", 2_000)
    random = np.random.default_rng(1)
    rows = [(s, START_NS + t * NS // 10, float(random.normal())) for t in range(500) for s in (0, 1)]
    made = OpenChunks(table_of(2), span_ns=SPAN_NS, window_ns=WINDOW_NS)
    made.add(points(rows), lambda _: 0)
    parts = made.seal(0, START_NS + 2 * SPAN_NS)
    assert [part.part for part in parts] == list(range(len(parts)))
    assert len(parts) > 2
    assert all(len(part.raw) <= 2_000 for part in parts)
    found = [(name, *sample) for part in parts for name, samples in contents(part).items() for sample in samples]
    assert sorted(found) == sorted((f"m{s}", t, v) for s, t, v in rows)


def test_an_index_that_is_used_again_has_the_labels_of_its_new_series() -> None:
    table = table_of(1)
    chunks = OpenChunks(table, span_ns=SPAN_NS, window_ns=WINDOW_NS)
    chunks.add(points([(0, START_NS, 1.0)]), lambda _: 0)
    (first,) = chunks.seal(0, START_NS, whole=True)
    assert contents(first) == {"m0": [(START_NS, 1.0)]}
    chunks.forget(0)
    held = table.series[0]
    assert held is not None
    table.series[0] = replace(held, identity=replace(held.identity, metric="other"))
    chunks.add(points([(0, START_NS, 1.0)]), lambda _: 0)
    (second,) = chunks.seal(0, START_NS, whole=True)
    assert contents(second) == {"other": [(START_NS, 1.0)]}


def test_all_columns_are_there_for_who_asks(chunks: OpenChunks) -> None:
    chunks.add(points([(0, START_NS, 1.0), (1, START_NS, 2.0), (1, START_NS + SPAN_NS, 3.0)]), lambda _: 0)
    found = chunks.columns(0)
    number = START_NS // SPAN_NS
    assert {span: [column.values.tolist() for column in columns] for span, columns in found.items()} == {
        number: [[1.0], [2.0]],
        number + 1: [[3.0]],
    }
    assert chunks.columns(5) == {}


def test_a_node_that_is_gone_leaves_no_labels_behind() -> None:
    pipeline = OfflinePipeline(Settings.model_validate({"chunk_span_s": 60}))
    minute_ms = 60_000
    for name, metric, minute in (("gone", "old", 0), ("here", "new", 30), ("later", "newest", 60), ("here", "new", 61)):
        gauge = Metric(name=metric)
        gauge.gauge.data_points.add(time_unix_nano=(RECORD_MS + minute * minute_ms) * 1_000_000, as_double=minute)
        pipeline.feed(request(one_resource({"host.name": name}, gauge)), RECORD_MS + minute * minute_ms)
    pipeline.finish()
    found = {}
    for chunk in pipeline.seal_all():
        found |= {
            column.labels["resource.host.name"]: column.labels["__name__"] for column in decode_chunk(chunk.raw).columns
        }
    assert found == {"later": "newest", "here": "new"}
