"""`fleetpulse simulate`, and how faults are written."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.ingest._cmd_simulate import simulate_command
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._otlp_files import read_requests
from fleetpulse.ingest._replay import Recording
from fleetpulse.ingest._simulate import SERIES_PER_NODE, node_name
from fleetpulse.ingest._simulate_faults import Fault, effects, parse_fault
from support.commands import Commands

NAMES = [node_name(i) for i in range(12)]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(monkeypatch)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("disk-saturation:7@+60", Fault("disk-saturation", 7, 60_000, None)),
        ("silent:sim-node-003@+0", Fault("silent", 3, 0, None)),
        ("silent:3@+0s", Fault("silent", 3, 0, None)),
        ("packet-loss:0@+1.5/30x2", Fault("packet-loss", 0, 1_500, 31_500, 2.0)),
        ("memory-leak:11@+2m/1m30sx0.25", Fault("memory-leak", 11, 120_000, 210_000, 0.25)),
        ("latency-step:1@+500msx3", Fault("latency-step", 1, 500, None, 3.0)),
        (" noisy-neighbour:2@+1/1 ", Fault("noisy-neighbour", 2, 1_000, 2_000)),
        ("fleet-step@+9", Fault("fleet-step", None, 9_000, None)),
        ("fleet-step:all@+9x0.5", Fault("fleet-step", None, 9_000, None, 0.5)),
    ],
)
def test_faults_as_they_are_written(text: str, fault: Fault) -> None:
    assert parse_fault(text, NAMES) == fault


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is not KIND"),
        ("disk-saturation", "is not KIND"),
        ("disk-saturation:3@60", "is not KIND"),
        ("disk:3@+60", "'disk' is none of noisy-neighbour, "),
        ("silent@+60", "names no node"),
        ("silent:@+60", "names no node"),
        ("silent:12@+60", "only 12 nodes, 0 to 11"),
        ("silent:-1@+60", "no node '-1'"),
        ("silent:web-1@+60", "no node 'web-1'; they are sim-node-000 to sim-node-011"),
        ("silent:3@+soon", "'soon' is not a duration"),
        ("silent:3@+60/0", "lasts no time"),
        ("silent:3@+60/0m", "lasts no time"),
        ("silent:3@+60x", "is not KIND"),
        ("silent:3@+60x0", "the size '0'"),
        ("silent:3@+60xnan", "the size 'nan'"),
        ("silent:3@+60x-2", "the size '-2'"),
        ("fleet-step:3@+60", "all nodes"),
    ],
)
def test_a_fault_that_is_not_one_is_told_why(text: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_fault(text, NAMES)
    assert told in str(caught.value)


def test_faults_of_any_size_stay_possible() -> None:
    faults = [parse_fault(f"{kind}:0@+0x100", NAMES) for kind in ("noisy-neighbour", "packet-loss", "memory-leak")]
    found = effects([*faults, *faults], 2, 3_600_000)
    for share in (found.steal, found.throttled, found.loss):
        assert 0.4 < share[0] <= 0.9
        assert share[1] == 0


def test_a_recording_is_the_same_for_the_same_options_and_can_be_replayed(tmp_path: Path, commands: Commands) -> None:
    words = ["--nodes", "4", "--seconds", "5", "--history", "20s", "--interval", "500ms", "--fault", "silent:2@+2/1"]
    words += ["--start", "2026-03-01T09:00:00Z", "--cluster", "elsewhere"]
    for name in ("one", "two"):
        done = commands.run(simulate_command, *words, "--out", str(tmp_path / name))
        assert done.code == 0, done.err
        assert "+2 s: silent on sim-node-002 begins" in done.err
        assert "+3 s: silent on sim-node-002 ends" in done.err
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with Recording(identity=["k8s.node.name"], default_cluster="default") as recording:
        recording.read(tmp_path / "one")
        assert {tuple(node) for node in recording.nodes} == {("elsewhere", node) for node in NAMES[:4]}
        assert recording.unattributed == 0
        assert recording.points == SERIES_PER_NODE * (4 * 50 - 2)
        assert 24 <= (recording.last_ns - recording.first_ns) / 1e9 <= 25


def test_a_history_may_be_coarser(tmp_path: Path, commands: Commands) -> None:
    words = ["--nodes", "1", "--seconds", "3", "--history", "1m", "--history-interval", "10s"]
    assert commands.run(simulate_command, *words, "--out", str(tmp_path / "r")).code == 0
    with Recording(identity=["k8s.node.name"], default_cluster="default") as recording:
        recording.read(tmp_path / "r")
        assert recording.points == SERIES_PER_NODE * (6 + 3)
        assert 61 <= (recording.last_ns - recording.first_ns) / 1e9 <= 63


def test_a_compressed_recording_holds_the_same(tmp_path: Path, commands: Commands) -> None:
    words = ["--nodes", "2", "--seconds", "2", "--start", "2026-03-01T09:00:00+01:00"]
    for name in ("plain", "small.zst"):
        assert commands.run(simulate_command, *words, "--out", str(tmp_path / name)).code == 0
    plain, small = tmp_path / "plain", tmp_path / "small.zst"
    assert [found.request for found in read_requests(plain)] == [found.request for found in read_requests(small)]
    assert small.stat().st_size < plain.stat().st_size / 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "small.zst"]


def test_requests_obey_the_record_limit(tmp_path: Path, commands: Commands) -> None:
    commands.set(record_bytes_max="10000")
    out = tmp_path / "r"
    assert commands.run(simulate_command, "--nodes", "3", "--seconds", "1", "--out", str(out)).code == 0
    requests = [found.request for found in read_requests(out)]
    assert max(map(len, requests)) <= 10_000
    nodes: Counter[str] = Counter()
    for request in requests:
        for resource in ExportMetricsServiceRequest.FromString(request).resource_metrics:
            named = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    nodes[named["k8s.node.name"]] += len(getattr(metric, metric.WhichOneof("data")).data_points)
    assert nodes == dict.fromkeys(NAMES[:3], SERIES_PER_NODE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--interval", "5ms"), "10ms is the least"),
        (("--interval", "5"), "has no unit"),
        (("--history", "2d"), "a day is the most"),
        (("--history", "1m", "--history-interval", "500ms"), "shorter than --interval 1s"),
        (("--out", "x"), "add --seconds"),
        (("--start", "2026-03-01T09:00:00Z"), "add --out"),
        (("--out", "x", "--seconds", "1", "--start", "yesterday"), "write it like"),
        (("--out", "/nowhere/x", "--seconds", "1"), "cannot be written"),
        (("--nodes", "12", "--fault", "silent:12@+1"), "only 12 nodes"),
    ],
)
def test_options_that_cannot_be_meant(words: tuple[str, ...], told: str, commands: Commands, tmp_path: Path) -> None:
    done = commands.run(simulate_command, *(str(tmp_path / word) if word == "x" else word for word in words))
    assert done.code == 2
    assert told in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_fleet_goes_live_in_a_topic(broker: str, topic_prefix: str, commands: Commands) -> None:
    from kafka import KafkaConsumer, TopicPartition

    topic = f"{topic_prefix}.source"
    commands.set(kafka_bootstrap=broker, source_topic=topic, partitions="2")
    words = ["--nodes", "25", "--interval", "200ms", "--seconds", "1", "--history", "4s"]
    done = commands.run(simulate_command, *words)
    assert done.code == 0, done.err
    with KafkaConsumer(bootstrap_servers=broker, enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in (0, 1)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        records = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for found in consumer.poll(timeout_ms=1_000).values():
                records += found
    # 20 collections of the past and 5 live ones, each of two requests.
    assert len(records) == 2 * 25
    times = sorted({record.timestamp for record in records})
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {200}
    for key in {record.key for record in records}:
        mine = [record for record in records if record.key == key]
        assert len({record.partition for record in mine}) == 1
        assert [record.timestamp for record in mine] == times
