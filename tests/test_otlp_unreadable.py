"""Bytes that are no metrics request: refused with a reason and a place, nothing kept, memory bounded (S14)."""

from __future__ import annotations

import random
import resource as process
from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from fleetpulse.features._series import SeriesTable
from fleetpulse.ingest._otlp import OtlpError, length_field
from fleetpulse.ingest._route import Router
from support.otlp_pair import make_oracle
from support.otlp_samples import IDENTITY, NOW_NS, RECORD_MS, capture, key_values, make_decoder, one_resource, request


def _good() -> bytes:
    metric = Metric(name="m")
    metric.gauge.data_points.add(time_unix_nano=NOW_NS, as_int=1, attributes=key_values({"a": "b"}))
    return request(one_resource({"host.name": "n"}, metric))


GOOD = _good()


def _nested(depth: int, innermost: bytes = b"") -> bytes:
    """A request whose one attribute holds arrays in arrays: 7 + 2 * depth messages in each other."""
    value = innermost
    for _ in range(depth):
        value = length_field(5, length_field(1, value))
    attribute = length_field(1, b"a") + length_field(2, value)
    point = length_field(7, attribute) + b"\x19" + NOW_NS.to_bytes(8, "little") + b"\x31" + bytes(8)
    metric = length_field(1, b"m") + length_field(5, length_field(1, point))
    resource = length_field(1, length_field(1, length_field(1, b"host.name") + length_field(2, length_field(1, b"n"))))
    return length_field(1, resource + length_field(2, length_field(2, metric)))


def _traces() -> bytes:
    message = ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add(name="s", trace_id=bytes(range(128, 144)))
    span.start_time_unix_nano = span.end_time_unix_nano = NOW_NS
    message.resource_spans[0].resource.attributes.extend(key_values({"host.name": "n"}))
    return message.SerializeToString()


def _logs() -> bytes:
    message = ExportLogsServiceRequest()
    message.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=NOW_NS, severity_number=9)
    message.resource_logs[0].resource.attributes.extend(key_values({"host.name": "n"}))
    return message.SerializeToString()


def _swap(old: bytes, new: bytes) -> bytes:
    """The good request with one run of bytes replaced by another of the same length."""
    assert GOOD.count(old) == 1
    assert len(old) == len(new)
    return GOOD.replace(old, new)


def _group_inside() -> bytes:
    resource = length_field(1, length_field(1, length_field(1, b"host.name") + length_field(2, length_field(1, b"n"))))
    return length_field(1, resource + length_field(2, length_field(2, length_field(1, b"m") + b"\x7b\x7c")))


UNREADABLE: dict[str, tuple[Callable[[], bytes], set[str]]] = {
    "empty": (lambda: b"", {"empty"}),
    "truncated by one": (lambda: GOOD[:-1], {"truncated"}),
    "half": (lambda: GOOD[: len(GOOD) // 2], {"truncated"}),
    "its first byte": (lambda: GOOD[:1], {"truncated"}),
    "followed by text": (lambda: GOOD + b"garbage", {"wire_type"}),
    "followed by zeros": (lambda: GOOD + bytes(8), {"field_number"}),
    "followed by a truncated copy": (lambda: GOOD + GOOD[:-3], {"truncated"}),
    "text": (lambda: b"hello, world", {"group", "wire_type", "truncated"}),
    "an unknown field only": (lambda: length_field(15, b"abc"), {"not_metrics"}),
    "a group": (lambda: GOOD + b"\x7b\x7c", {"group"}),
    "a group inside a metric": (_group_inside, {"group"}),
    "a varint of eleven bytes": (lambda: GOOD + b"\x78" + b"\xff" * 10 + b"\x01", {"varint"}),
    "traces": (_traces, {"wire_type", "group", "truncated", "utf8"}),
    "logs": (_logs, {"wire_type"}),
    "resource metrics of another wire type": (lambda: b"\x09" + bytes(8), {"wire_type"}),
    "a time of another wire type": (
        lambda: _swap(b"\x19" + NOW_NS.to_bytes(8, "little"), b"\x1a\x07" + bytes(7)),
        {"wire_type"},
    ),
    "a metric's name that is not UTF-8": (lambda: _swap(b"\x0a\x01m", b"\x0a\x01\xff"), {"utf8"}),
    "an attribute that is not UTF-8": (lambda: _swap(b"\x0a\x01b", b"\x0a\x01\xff"), {"utf8"}),
    "attributes 100 deep": (lambda: _nested(100), {"nesting"}),
    "attributes 10,000 deep": (lambda: _nested(10_000), {"nesting"}),
}


@pytest.mark.parametrize(("make", "reasons"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_bytes_are_refused_and_the_next_record_is_read(make: Callable[[], bytes], reasons: set[str]) -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    raw = make()
    with pytest.raises(OtlpError) as caught:
        decoder.decode(raw, RECORD_MS)
    assert caught.value.reason in reasons
    assert caught.value.at is None or 0 <= caught.value.at <= len(raw)
    assert table.series == []
    assert decoder.decode(GOOD, RECORD_MS).points.numbers.integer.tolist() == [1]


def test_the_error_says_where() -> None:
    with pytest.raises(OtlpError) as caught:
        make_decoder().decode(GOOD + bytes(8), RECORD_MS)
    assert caught.value.at == len(GOOD)
    assert f"byte {len(GOOD)}" in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "depth"),
    [(_nested(0), 7), (_nested(28), 63), (_nested(28, length_field(5, b"")), 64), (_nested(29), 65)],
)
def test_messages_may_nest_64_deep(raw: bytes, depth: int) -> None:
    for decoder in (make_decoder(), make_oracle()):
        if depth <= 64:
            assert decoder.decode(raw, RECORD_MS).points.numbers.integer.tolist() == [0]
        else:
            with pytest.raises(OtlpError) as caught:
                decoder.decode(raw, RECORD_MS)
            assert caught.value.reason == "nesting"


def test_an_error_behind_good_points_leaves_no_series() -> None:
    metric = Metric(name="m")
    for i in range(50):
        metric.gauge.data_points.add(time_unix_nano=NOW_NS, as_int=i, attributes=key_values({"i": i}))
    raw = request(one_resource({"host.name": "n"}, metric))
    bad = raw + GOOD.replace(b"\x0a\x01b", b"\x0a\x01\xff")
    table = SeriesTable()
    decoder = make_decoder(table)
    with pytest.raises(OtlpError):
        decoder.decode(bad, RECORD_MS)
    assert (table.series, table.nodes) == ([], [])


def test_30_mb_of_random_bytes_cost_no_memory() -> None:
    raw = random.Random(14).randbytes(30_000_000)
    router = Router(IDENTITY, "default", 1_000_000)
    decoder = make_decoder()
    before = process.getrusage(process.RUSAGE_SELF).ru_maxrss
    for start in range(20):
        with pytest.raises(OtlpError):
            decoder.decode(raw[start:], RECORD_MS)
        with pytest.raises(OtlpError):
            router.slice(raw[start:])
    grown_kb = process.getrusage(process.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 64_000


def test_every_truncation_of_a_request_is_refused_or_read() -> None:
    table = SeriesTable()
    decoder = make_decoder(table)
    for stop in range(1, len(GOOD)):
        with pytest.raises(OtlpError):
            decoder.decode(GOOD[:stop], RECORD_MS)
    assert table.series == []


def test_the_router_refuses_what_it_cannot_walk() -> None:
    router = Router(IDENTITY, "default", 1_000_000)
    resource_not_utf8 = GOOD.replace(b"\x0a\x01n", b"\x0a\x01\xff")
    for raw in (b"", GOOD[:-1], GOOD + b"garbage", length_field(15, b""), b"\x0a\x02\x08\x01", resource_not_utf8):
        with pytest.raises(OtlpError):
            router.slice(raw)


def test_the_capture_cut_anywhere_is_refused_without_a_trace() -> None:
    raw = capture()[:200_000]
    with pytest.raises(OtlpError) as caught:
        Router(IDENTITY, "default", 1_000_000).slice(raw)
    assert caught.value.reason == "truncated"
