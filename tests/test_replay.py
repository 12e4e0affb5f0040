"""A recording played back is the same points, in the order of time, moved and paced exactly."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, ResourceMetrics

from fleetpulse.ingest import _replay
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._otlp_files import read_requests
from fleetpulse.ingest._replay import GATHER_NS, LOOP_GAP_NS, Playback, Recording, SourceRecord, paced, passes, shifted

CAPTURE = Path(__file__).parent / "data" / "captures" / "hipstershop-60s.zst"
IDENTITY = ("k8s.node.name", "host.name", "host.id")
S = 1_000_000_000
T0 = 1_700_000_000 * S


def recording_of(*paths: Path) -> Recording:
    recording = Recording(identity=IDENTITY, default_cluster="default")
    for path in paths:
        recording.read(path)
    return recording


@pytest.fixture(scope="module")
def capture() -> Recording:
    return recording_of(CAPTURE)


def resource_metrics_of(requests: Iterable[bytes]) -> list[ResourceMetrics]:
    return [
        resource
        for request in requests
        for resource in ExportMetricsServiceRequest.FromString(request).resource_metrics
    ]


def points_of(resources: Iterable[ResourceMetrics]) -> Counter[tuple[object, ...]]:
    """Every point together with everything that it stands in."""
    found: Counter[tuple[object, ...]] = Counter()
    for resource in resources:
        around = (resource.resource.SerializeToString(), resource.schema_url)
        for scope_metrics in resource.scope_metrics:
            scope = (scope_metrics.scope.SerializeToString(), scope_metrics.schema_url)
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                temporality = getattr(data, "aggregation_temporality", None), getattr(data, "is_monotonic", None)
                what = (metric.name, metric.description, metric.unit, kind, *temporality)
                found.update((around, scope, what, point.SerializeToString()) for point in data.data_points)
    return found


def newest(resource: ResourceMetrics) -> int:
    return max(point.time_unix_nano for point in _points(resource))


def _points(resource: ResourceMetrics) -> Iterable[Any]:
    for scope_metrics in resource.scope_metrics:
        for metric in scope_metrics.metrics:
            yield from getattr(metric, metric.WhichOneof("data")).data_points


def one_point(node: str | None, time_ns: int, value: int = 0) -> bytes:
    """A serialized ResourceMetrics; node None is one without identity."""
    message = ResourceMetrics()
    if node is not None:
        message.resource.attributes.add(key="host.name").value.string_value = node
    message.scope_metrics.add().metrics.add(name="m").gauge.data_points.add(time_unix_nano=time_ns, as_int=value)
    return message.SerializeToString()


def write_framed(path: Path, messages: Sequence[Sequence[bytes]]) -> Path:
    """Each message is a list of serialized ResourceMetrics."""
    with path.open("wb") as file:
        for resources in messages:
            raw = MetricsData(resource_metrics=map(ResourceMetrics.FromString, resources)).SerializeToString()
            file.write(len(raw).to_bytes(4, "big") + raw)
    return path


def test_the_capture_is_what_its_page_says(capture: Recording) -> None:
    assert (capture.resources, capture.points, capture.unattributed, len(capture.nodes)) == (598, 13_043, 36, 4)


@pytest.mark.parametrize("record_bytes_max", [1_000_000, 20_000])
def test_records_hold_exactly_the_recorded_points(capture: Recording, record_bytes_max: int) -> None:
    records = list(capture.records(record_bytes_max=record_bytes_max))
    recorded = resource_metrics_of(found.request for found in read_requests(CAPTURE))
    assert points_of(resource_metrics_of(record.value for record in records)) == points_of(recorded)
    assert max(len(record.value) for record in records) <= record_bytes_max
    assert any(len(record.value) > record_bytes_max * 0.9 for record in records) or record_bytes_max > 500_000


def test_a_resource_stays_whole_when_it_fits(capture: Recording) -> None:
    recorded = resource_metrics_of(found.request for found in read_requests(CAPTURE))
    played = resource_metrics_of(record.value for record in capture.records(record_bytes_max=1_000_000))
    order = sorted(range(len(recorded)), key=lambda i: newest(recorded[i]))
    by_time = [recorded[i].SerializeToString() for i in order]
    assert Counter(by_time) == Counter(resource.SerializeToString() for resource in played)


def test_records_come_in_the_order_of_time_with_their_newest_point_as_timestamp(capture: Recording) -> None:
    records = list(capture.records(record_bytes_max=1_000_000))
    last_by_key: dict[bytes | None, int] = {}
    oldest_allowed = 0
    for record in records:
        times = [newest(resource) for resource in resource_metrics_of([record.value])]
        assert times == sorted(times)
        assert times[0] >= last_by_key.get(record.key, 0)
        last_by_key[record.key] = times[-1]
        assert record.time_ns == times[-1]
        assert record.timestamp_ms == times[-1] // 1_000_000
        assert times[-1] - times[0] <= GATHER_NS
        assert times[0] >= oldest_allowed
        oldest_allowed = max(oldest_allowed, times[0] - GATHER_NS)


def test_a_record_is_of_one_node_and_its_key_names_it(capture: Recording) -> None:
    keys = set()
    for record in capture.records(record_bytes_max=1_000_000):
        keys.add(record.key)
        for resource in resource_metrics_of([record.value]):
            attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            node = attributes.get("k8s.node.name")
            assert record.key == (None if node is None else f"test-cluster/{node}".encode())
    assert len(keys) == 5


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_records_do_not_depend_on_how_a_recording_was_cut_into_messages_and_files(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32))
    chance = random.Random(seed)
    resources = [
        one_point(chance.choice(["a", "b", None]), T0 + chance.randrange(0, 20) * S // 10, value) for value in range(40)
    ]
    with tempfile.TemporaryDirectory() as folder:
        whole = recording_of(write_framed(Path(folder) / "whole", [resources]))
        cuts = sorted(chance.sample(range(1, 40), 3))
        parts = [resources[a:b] for a, b in zip([0, *cuts], [*cuts, 40], strict=True)]
        cut = recording_of(
            write_framed(Path(folder) / "first", parts[:2]), write_framed(Path(folder) / "second", parts[2:])
        )
        with whole, cut:
            assert list(cut.records(record_bytes_max=99_999)) == list(whole.records(record_bytes_max=99_999))


def test_a_spooled_recording_gives_the_same_records(capture: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_replay, "SPOOL_BYTES_MAX", 1_000)
    with recording_of(CAPTURE) as spooled:
        assert list(spooled.records(record_bytes_max=1_000_000)) == list(capture.records(record_bytes_max=1_000_000))


def test_what_waits_to_be_packed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_framed(tmp_path / "r", [[one_point(node, T0, i) for i, node in enumerate("abab" * 5)]])
    with recording_of(path) as recording:
        assert [record.resources for record in recording.records(record_bytes_max=99_999)] == [10, 10]
        monkeypatch.setattr(_replay, "GATHERED_BYTES_MAX", 3 * len(one_point("a", T0)))
        bounded = [record.resources for record in recording.records(record_bytes_max=99_999)]
        assert sum(bounded) == 20
        assert max(bounded) <= 4


def test_a_resource_without_time_goes_with_the_one_before_it(tmp_path: Path) -> None:
    path = write_framed(
        tmp_path / "r",
        [[one_point("a", 0, 1), one_point("a", T0 + 5 * S, 2), one_point("a", 0, 3), one_point("a", T0, 4)]],
    )
    with recording_of(path) as recording:
        values = [
            point.as_int
            for record in recording.records(record_bytes_max=99_999)
            for resource in resource_metrics_of([record.value])
            for point in _points(resource)
        ]
        assert values == [4, 1, 2, 3]
        assert (recording.first_ns, recording.last_ns) == (T0, T0 + 5 * S)


def test_a_time_beyond_int64_orders_nothing(tmp_path: Path) -> None:
    path = write_framed(tmp_path / "r", [[one_point("a", T0), one_point("a", 2**64 - 1)]])
    with recording_of(path) as recording:
        assert recording.last_ns == T0
        assert sum(record.resources for record in recording.records(record_bytes_max=99_999)) == 2


def test_a_recording_without_any_time_is_refused(tmp_path: Path) -> None:
    path = write_framed(tmp_path / "r", [[one_point("a", 0)]])
    with recording_of(path) as recording, pytest.raises(UserError, match="has a time"):
        list(recording.records(record_bytes_max=99_999))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x00\x00\x00\x02\x12\x00", "byte 0 .*no metrics request"),
        (b"\x00\x00\x00\x04\x0a\x02\x0a\x09", "byte 0 .*no OTLP metrics"),
        (b'{"resourceLogs": []}\n', "holds no metrics"),
    ],
)
def test_a_file_of_something_else_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(UserError, match=told):
        recording_of(tmp_path / "r")


def everything_at(time_ns: int, start_ns: int) -> ResourceMetrics:
    """Every kind of point with exemplars, and a point without times."""
    message = ResourceMetrics(schema_url="u")
    metrics = message.scope_metrics.add().metrics
    times = {"time_unix_nano": time_ns, "start_time_unix_nano": start_ns}
    exemplars: list[Message | dict[str, Any]] = [{"time_unix_nano": time_ns, "as_int": 1, "trace_id": b"t" * 16}]
    metrics.add(name="g").gauge.data_points.add(**times, as_int=2**60 + 1, exemplars=exemplars)
    metrics.add(name="s").sum.data_points.add(**times, as_double=0.1, exemplars=exemplars)
    metrics.add(name="h").histogram.data_points.add(**times, count=3, bucket_counts=[1, 2], exemplars=exemplars)
    metrics.add(name="e").exponential_histogram.data_points.add(**times, scale=-2, exemplars=exemplars)
    metrics.add(name="q").summary.data_points.add(**times, count=9)
    metrics.add(name="none").gauge.data_points.add(flags=1)
    metrics.add(name="no data")
    return message


@pytest.mark.parametrize("shift_ns", [1, -1, 123_456_789_012_345_678, -T0])
def test_shifting_moves_every_time_exactly_and_nothing_else(shift_ns: int) -> None:
    time_ns, start_ns = T0 + 123_456_789, T0 - 7
    moved = ResourceMetrics.FromString(shifted(everything_at(time_ns, start_ns).SerializeToString(), shift_ns))
    assert moved == everything_at(time_ns + shift_ns, max(1, start_ns + shift_ns))


def test_a_field_of_a_later_protocol_survives_shifting() -> None:
    raw = everything_at(T0, T0).SerializeToString() + b"\xa2\x06\x03new"
    assert b"\xa2\x06\x03new" in shifted(raw, 5)


def test_shifting_a_recording_shifts_its_points_and_its_records(capture: Recording) -> None:
    shift_ns = 10**17 + 1
    plain = list(capture.records(record_bytes_max=1_000_000))
    moved = list(capture.records(record_bytes_max=1_000_000, shift_ns=shift_ns))
    assert [(record.time_ns - shift_ns, record.key) for record in moved] == [
        (record.time_ns, record.key) for record in plain
    ]
    back = [
        ResourceMetrics.FromString(shifted(resource.SerializeToString(), -shift_ns))
        for resource in resource_metrics_of(record.value for record in moved)
    ]
    assert back == resource_metrics_of(record.value for record in plain)


def at_seconds(*times: float) -> list[SourceRecord]:
    return [SourceRecord(b"", T0 + round(time * S), None, 1) for time in times]


class Clock:
    """Stands still but for waiting; remembers when each record left."""

    def __init__(self) -> None:
        self.now = 5_000 * S

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.now += round(seconds * S)

    def departures(self, records: list[SourceRecord], playback: Playback) -> list[float]:
        began = self.now
        return [
            round((self.now - began) / S, 6)
            for _ in paced(records, playback, now_ns=lambda: self.now, wait_s=self.wait)
        ]


@pytest.mark.parametrize(
    ("speed", "reference_s", "departures"),
    [
        (None, 0, [0, 0, 0, 0]),
        (1.0, 0, [0, 1.5, 1.5, 60]),
        (10.0, 0, [0, 0.15, 0.15, 6]),
        (0.5, 0, [0, 3, 3, 120]),
        (1.0, 20, [0, 0, 0, 40]),
        (2.0, 1, [0, 0.25, 0.25, 29.5]),
    ],
)
def test_each_record_leaves_when_it_is_due(speed: float | None, reference_s: int, departures: list[float]) -> None:
    clock = Clock()
    playback = Playback(speed, clock.now, T0 + reference_s * S)
    assert clock.departures(at_seconds(0, 1.5, 1.4, 60), playback) == departures


def test_a_loop_begins_again_after_the_end(tmp_path: Path) -> None:
    path = write_framed(tmp_path / "r", [[one_point("a", T0), one_point("a", T0 + 60 * S)]])
    with recording_of(path) as recording:
        played = passes(recording, record_bytes_max=99_999, shift_ns=7, loop=True)
        times = [next(played).time_ns for _ in range(5)]
        again_ns = 60 * S + LOOP_GAP_NS
        assert times == [T0 + 7 + k * again_ns + offset for k in range(3) for offset in (0, 60 * S)][:5]
        assert len(list(passes(recording, record_bytes_max=99_999, shift_ns=0, loop=False))) == 2
