"""Forms of a request that no serializer writes and every parser has to read: fields apart, messages in pieces."""

from __future__ import annotations

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint

from fleetpulse.ingest._decode import Decoded
from fleetpulse.ingest._otlp import length_field
from support.otlp_pair import Pair
from support.otlp_samples import NOW_NS, key_values

TIME = b"\x19" + NOW_NS.to_bytes(8, "little")
NAME = length_field(1, b"m")
CUMULATIVE = b"\x10\x02"
GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY = 5, 7, 9, 10, 11
ATTRIBUTES = {GAUGE: 7, SUM: 7, HISTOGRAM: 9, EXPONENTIAL: 1, SUMMARY: 7}


def attribute(number: int, name: str, value: object) -> bytes:
    return length_field(number, key_values({name: value})[0].SerializeToString())


HOST = attribute(1, "host.name", "n")


def request(*metrics: bytes, resource: bytes = length_field(1, HOST), scope: bytes = b"") -> bytes:
    inside = scope + b"".join(length_field(2, metric) for metric in metrics)
    return length_field(1, resource + length_field(2, inside))


def both(raw: bytes) -> tuple[Pair, Decoded]:
    """Decode twice with decoder and oracle: the second time from what is known."""
    pair = Pair()
    pair.both(raw)
    decoded = pair.both(raw)
    assert decoded is not None
    pair.compare_tables()
    return pair, decoded


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_attributes_that_lie_apart_all_count(kind: int) -> None:
    value = b"\x31" + bytes(8) if kind in (GAUGE, SUM) else b""
    number = ATTRIBUTES[kind]
    points = b""
    for a, b in ((1, 1), (1, 2), (2, 1), (2, 2)):
        parts = attribute(number, "a", a), attribute(number, "b", b)
        points += length_field(1, parts[0] + TIME + parts[1] + value)
        points += length_field(1, TIME + parts[0] + value + attribute(number, "c", 3) + b"\x11" + bytes(8) + parts[1])
    data = points if kind in (GAUGE, SUMMARY) else points + CUMULATIVE
    _, decoded = both(request(NAME + length_field(kind, data)))
    columns = {HISTOGRAM: decoded.points.histograms, EXPONENTIAL: decoded.points.exponentials}
    series = columns.get(kind, decoded.points.numbers).series.tolist()
    assert len(set(series)) == (16 if kind == SUMMARY else 8)


def test_a_resource_in_two_pieces_is_one() -> None:
    metric = NAME + length_field(GAUGE, length_field(1, TIME + b"\x31" + bytes(8)))
    other = attribute(1, "os.type", "linux")
    for first, second in ((HOST, other), (other, HOST)):
        pair, decoded = both(request(metric, resource=length_field(1, first) + length_field(1, second)))
        entry = pair.tables[0].series[decoded.points.numbers.series[0]]
        assert entry is not None
        assert dict(entry.identity.resource) == {"host.name": "n", "os.type": "linux"}


def test_a_scope_in_two_pieces_is_one() -> None:
    metric = NAME + length_field(GAUGE, length_field(1, TIME + b"\x31" + bytes(8)))
    scope = length_field(1, length_field(1, b"name")) + length_field(1, length_field(2, b"7"))
    pair, _ = both(request(metric, scope=scope))
    assert pair.tables[0].series[0] is not None
    assert pair.tables[0].series[0].identity.scope == "name@7"


def test_data_in_two_pieces_is_one() -> None:
    point = length_field(1, TIME + b"\x31" + bytes(8))
    pieces = length_field(SUM, point) + NAME + length_field(SUM, CUMULATIVE) + length_field(SUM, point)
    _, decoded = both(request(pieces))
    assert len(decoded.points.numbers.series) == 2
    assert decoded.rejected == []


def test_of_two_kinds_of_data_the_last_counts() -> None:
    point = length_field(1, TIME + b"\x31" + bytes(8))
    _, decoded = both(request(NAME + length_field(GAUGE, point + point) + length_field(SUM, CUMULATIVE + point)))
    assert len(decoded.points.numbers.series) == 1


@pytest.mark.parametrize("side", [8, 9])
def test_buckets_in_two_pieces_are_one(side: int) -> None:
    buckets = ExponentialHistogramDataPoint.Buckets(offset=3, bucket_counts=[1, 2]).SerializeToString()
    more = ExponentialHistogramDataPoint.Buckets(bucket_counts=[4]).SerializeToString()
    count = b"\x21" + (7).to_bytes(8, "little")
    point = length_field(1, length_field(side, buckets) + TIME + count + length_field(side, more))
    _, decoded = both(request(NAME + length_field(EXPONENTIAL, CUMULATIVE + point)))
    points = decoded.points.exponentials
    assert (points.positive if side == 8 else points.negative).tolist() == [1, 2, 4]
    assert (points.positive_offset if side == 8 else points.negative_offset).tolist() == [3]


def test_the_last_of_a_repeated_number_counts() -> None:
    earlier = b"\x19" + bytes(8)
    value = b"\x31" + (5).to_bytes(8, "little")
    double = b"\x21" + bytes(8)
    _, decoded = both(request(NAME + length_field(GAUGE, length_field(1, earlier + double + TIME + value))))
    assert decoded.points.numbers.integer.tolist() == [5]
    assert decoded.points.numbers.is_int.tolist() == [True]
    _, decoded = both(request(NAME + length_field(GAUGE, length_field(1, value + TIME + double))))
    assert decoded.points.numbers.is_int.tolist() == [False]


def test_long_forms_of_tags_and_lengths_are_read() -> None:
    point = b"\x99\x80\x00" + TIME[1:] + b"\xb1\x00" + (5).to_bytes(8, "little")
    data = b"\x8a\x00" + bytes([len(point) | 0x80, 0x80, 0x00]) + point
    _, decoded = both(request(NAME + length_field(GAUGE, data)))
    assert decoded.points.numbers.integer.tolist() == [5]
