"""`fleetpulse replay`, and the producer it writes with."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.ingest._cmd_replay import replay_command
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._produce import RecordProducer, hush_kafka_logs
from fleetpulse.ingest._replay import Recording
from fleetpulse.ingest._settings import Settings
from support.commands import Commands

CAPTURE = Path(__file__).parent / "data" / "captures" / "hipstershop-60s.zst"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(monkeypatch)


def read_topic(bootstrap: str, topic: str) -> list[Any]:
    from kafka import KafkaConsumer

    with KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
        from kafka import TopicPartition

        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[Any] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for records in consumer.poll(timeout_ms=1_000).values():
                found += records
        return found


@pytest.fixture
def source(broker: str, topic_prefix: str, commands: Commands) -> tuple[str, str]:
    topic = f"{topic_prefix}.source"
    commands.set(kafka_bootstrap=broker, source_topic=topic, partitions="3")
    return broker, topic


def test_a_recording_arrives_in_a_topic_that_is_created(source: tuple[str, str], commands: Commands) -> None:
    done = commands.run(replay_command, str(CAPTURE))
    assert done.code == 0, done.err
    assert done.out == ""
    assert "with 3 partitions" in done.err
    assert "13,043 points in 598 resources of 4 nodes (36 resources name no node)" in done.err
    records = read_topic(*source)
    with Recording(identity=["k8s.node.name"], default_cluster="default") as recording:
        recording.read(CAPTURE)
        planned = list(recording.records(record_bytes_max=1_000_000))
    assert sorted((record.timestamp, record.key, record.value) for record in records if record.key) == sorted(
        (record.timestamp_ms, record.key, record.value) for record in planned if record.key
    )
    assert len(records) == len(planned)
    # A node's records are in one partition, in their order.
    for key in {record.key for record in planned if record.key}:
        mine = [record for record in records if record.key == key]
        assert len({record.partition for record in mine}) == 1
        assert [record.value for record in sorted(mine, key=lambda record: record.offset)] == [
            record.value for record in planned if record.key == key
        ]


@pytest.mark.parametrize(
    ("options", "first_before_s"),
    [(("--history", "10m", "--speed", "1000"), 600), (("--history", "0s", "--speed", "1000"), 0), ((), 60.554951)],
    ids=["a given history", "no history", "without speed the last sample is of now"],
)
def test_retiming_moves_the_first_sample_before_now(
    options: tuple[str, ...], first_before_s: float, source: tuple[str, str], commands: Commands
) -> None:
    before_s = time.time()
    done = commands.run(replay_command, str(CAPTURE), "--retime", *options)
    assert done.code == 0, done.err
    first_ns = min(
        point.time_unix_nano
        for record in read_topic(*source)
        for resource in ExportMetricsServiceRequest.FromString(record.value).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in getattr(metric, metric.WhichOneof("data")).data_points
    )
    assert before_s <= first_ns / 1e9 + first_before_s + 0.001 <= time.time()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--json",), "add --offline"),
        (("--offline", "--speed", "1"), "leave out --speed"),
        (("--history", "5m"), "add --retime"),
        (("--speed", "0"), "above 0"),
        (("--loop",), "add --speed"),
        (("--retime", "--history", "5"), "has no unit"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...], told: str, commands: Commands) -> None:
    done = commands.run(replay_command, str(CAPTURE), *words)
    assert done.code == 2
    assert told in done.err


def test_nothing_is_written_when_one_of_the_files_is_bad(
    source: tuple[str, str], tmp_path: Path, commands: Commands
) -> None:
    (tmp_path / "cut").write_bytes(CAPTURE.read_bytes()[:-100])
    done = commands.run(replay_command, str(CAPTURE), str(tmp_path / "cut"))
    assert done.code == 2
    assert "inside compressed data" in done.err
    with RecordProducer(Settings(kafka_bootstrap=source[0], source_topic=source[1], partitions=1)) as producer:
        assert producer.created


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_wrong_broker_address_is_one_line_within_seconds(commands: Commands) -> None:
    address = f"127.0.0.1:{free_port()}"
    before_s = time.monotonic()
    done = commands.run(replay_command, str(CAPTURE), "--bootstrap", address)
    assert time.monotonic() - before_s < 9
    assert done.code == 2
    assert f"No Kafka broker answers at {address}" in done.err
    assert done.err.count("\n") == 1


def settings_of(source: tuple[str, str], **more: Any) -> Settings:
    return Settings(kafka_bootstrap=source[0], source_topic=source[1], partitions=1, **more)


def test_the_producer_waits_while_too_much_is_unacknowledged(source: tuple[str, str]) -> None:
    most = 0
    with RecordProducer(settings_of(source), pending_bytes_max=50_000) as producer:
        for i in range(40):
            producer.send(bytes(20_000), timestamp_ms=i)
            most = max(most, producer._pending_bytes)
    assert most <= 50_000
    assert (producer.sent_records, producer.sent_bytes) == (40, 800_000)
    assert [record.timestamp for record in read_topic(*source)] == list(range(40))


def test_a_record_larger_than_the_limit_is_an_error_that_says_so(source: tuple[str, str]) -> None:
    with (
        pytest.raises(UserError, match="lower FLEETPULSE_RECORD_BYTES_MAX"),
        RecordProducer(settings_of(source, record_bytes_max=10_000)) as producer,
    ):
        producer.send(bytes(50_000), timestamp_ms=1)


def test_a_lost_record_is_an_error_of_the_next_send_and_of_leaving(
    source: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hush_kafka_logs()

    class NotLeaderError(Exception):
        pass

    class Lost:
        """A future that has failed."""

        def add_callback(self, *_: object) -> None:
            pass

        def add_errback(self, errback: Callable[..., None], *arguments: object) -> None:
            errback(*arguments, NotLeaderError())

    producer = RecordProducer(settings_of(source))
    monkeypatch.setattr(producer._producer, "send", lambda *_, **__: Lost())
    producer.send(b"x", timestamp_ms=1)
    with pytest.raises(UserError, match=r"did not take a record .*NotLeaderError"):
        producer.send(b"y", timestamp_ms=2)
    with pytest.raises(UserError, match="did not take a record"):
        producer.__exit__(None, None, None)
