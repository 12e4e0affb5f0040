"""`fleetpulse deadletter`, against a broker: what it lists, and what it sends again."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fleetpulse.ingest._cli import app as console
from fleetpulse.ingest._cmd_deadletter import deadletter_command
from fleetpulse.ingest._dead_letters import KEPT_BYTES_MAX, RESUBMITTED, Place, letter_headers, letter_value
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._topics import connect_admin, ensure_topics
from support.commands import Commands
from support.pipeline import deploy, wait_until
from support.requests import NS, counter, gauge, number_point, request, resource_metrics

NOW_MS = time.time_ns() // 1_000_000
MINUTE_MS = 60_000
Publish = Callable[..., None]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, broker: str, topic_prefix: str) -> Commands:
    commands = Commands(monkeypatch)
    commands.set(kafka_bootstrap=broker, topic_prefix=topic_prefix, source_topic=f"{topic_prefix}.otlp", partitions="2")
    return commands


@pytest.fixture
def configured(commands: Commands) -> Settings:
    """Settings of the test; topics exist."""
    settings = Settings()
    ensure_topics(settings)
    return settings


@pytest.fixture
def publish(configured: Settings) -> Publish:
    """Puts a letter into the dead-letter topic, as a worker does."""
    offsets = itertools.count(100)

    def publish(
        raw: bytes,
        *,
        reason: str = "truncated",
        age_ms: int = MINUTE_MS,
        offset: int | None = None,
        came_with: Any = (),
        topic: str | None = None,
        letter_partition: int = 0,
    ) -> None:
        at = next(offsets) if offset is None else offset
        headers = letter_headers(
            topic or configured.source_topic, 1, at, reason, f"{reason} (byte 3)", len(raw), came_with
        )
        _produce(
            configured, configured.topic("deadletter"), letter_value(raw), NOW_MS - age_ms, headers, letter_partition
        )

    return publish


def _produce(
    settings: Settings, topic: str, value: bytes, time_ms: int, headers: Any = (), partition: int = 0
) -> tuple[int, int]:
    """Partition and offset of what was written."""
    producer = KafkaProducer(bootstrap_servers=settings.kafka_bootstrap, max_request_size=4_000_000)
    sent = producer.send(topic, value, partition=partition, timestamp_ms=time_ms, headers=list(headers)).get(10)
    producer.close()
    return sent.partition, sent.offset


def _source(settings: Settings) -> list[Any]:
    """Records of the source topic."""
    consumer = KafkaConsumer(bootstrap_servers=settings.kafka_bootstrap, auto_offset_reset="earliest")
    partitions = [TopicPartition(settings.source_topic, number) for number in (0, 1)]
    consumer.assign(partitions)
    records: list[Any] = []
    quiet = 0
    while quiet < 2:
        polled = consumer.poll(150)
        quiet = 0 if polled else quiet + 1
        records += itertools.chain.from_iterable(polled.values())
    consumer.close()
    return sorted(records, key=lambda record: record.value)


def test_letters_are_rows_with_origin_reason_size_and_first_bytes_the_newest_last(
    commands: Commands, publish: Publish
) -> None:
    publish(b"\xff\xff\xff not OTLP", reason="varint", age_ms=MINUTE_MS)
    publish(b"[red]{" + b"x" * 1_000, reason="json", age_ms=5 * MINUTE_MS)
    done = commands.run(deadletter_command)
    older, newer = done.out.splitlines()[1:]
    assert done.code == 0
    _, _, behind_topic = older.partition(".otlp")
    assert older.split()[0] == "1"
    assert behind_topic.split()[:4] == ["1", "101", "json", "1,006"]
    assert "[red]{xxxxxx" in older
    assert newer.split()[0] == "0"
    assert "ff ff ff 20 6e 6f 74 20 4f 54 4c 50  ... not OTLP" in newer


def test_letters_are_chosen_by_reason_and_age_and_the_newest_by_limit(commands: Commands, publish: Publish) -> None:
    for age in (50, 40, 30, 20):
        publish(b"a", reason="json" if age == 30 else "truncated", age_ms=age * MINUTE_MS)
    chosen = {
        words: [letter["letter"] for letter in commands.run(deadletter_command, *words.split(), "--json").json()]
        for words in ("", "--reason json", "--reason json --reason truncated --limit 2", "--since 45m", "--since 35m")
    }
    assert chosen == {
        "": ["0", "1", "2", "3"],
        "--reason json": ["2"],
        "--reason json --reason truncated --limit 2": ["2", "3"],
        "--since 45m": ["1", "2", "3"],
        "--since 35m": ["2", "3"],
    }
    done = commands.run(deadletter_command, "--limit", "1")
    assert "3 older ones are not shown: --limit 4 shows all" in done.err
    assert len(done.out.splitlines()) == 2


def test_json_says_all_that_is_known_and_what_is_no_letter_is_skipped(
    commands: Commands, configured: Settings, publish: Publish
) -> None:
    publish(b"\x00\xffab", reason="group", offset=7)
    _produce(configured, configured.topic("deadletter"), b"no headers", NOW_MS)
    done = commands.run(deadletter_command, "--json")
    assert done.json() == [
        {
            "letter": "0",
            "time_ms": NOW_MS - MINUTE_MS,
            "topic": configured.source_topic,
            "partition": 1,
            "offset": 7,
            "reason": "group",
            "detail": "group (byte 3)",
            "size_bytes": 4,
            "kept_bytes": 4,
            "first_bytes": "00ff6162",
            "resubmitted": [],
            "failed_again_as": None,
        }
    ]
    assert "Skipped 1 records" in done.err


def test_a_letter_that_a_killed_worker_wrote_twice_is_one_but_two_metrics_of_a_record_are_two(
    commands: Commands, publish: Publish
) -> None:
    for raw in (b"first metric", b"second metric", b"first metric"):
        publish(raw, reason="unspecified_temporality", offset=5)
    letters = commands.run(deadletter_command, "--json").json()
    assert [(letter["letter"], letter["size_bytes"]) for letter in letters] == [("0", 12), ("1", 13)]


def test_show_prints_headers_and_bytes_and_raw_writes_them(commands: Commands, publish: Publish) -> None:
    raw = bytes(range(256)) * 300
    publish(raw, reason="wire_type")
    text = commands.run(deadletter_command, "show", "0").out
    assert "wire_type: wire_type (byte 3)" in text
    assert "76,800, of which the first 65,536 were kept" in text
    assert "00000040  40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f  @ABCDEFGHIJKLMNO" in text
    (letter,) = commands.run(deadletter_command, "show", "0", "--json").json()
    assert base64.b64decode(letter["value"]) == raw[:KEPT_BYTES_MAX]
    absent = commands.run(deadletter_command, "show", "1")
    assert (absent.code, "no dead letter 1" in absent.err) == (2, True)


def test_a_dry_run_sends_nothing_and_says_what_it_would(
    commands: Commands, configured: Settings, publish: Publish
) -> None:
    publish(b"a")
    done = commands.run(deadletter_command, "resubmit", "--all")
    assert done.code == 0
    assert "would be sent" in done.out
    assert "Would send 1 of 1 letters" in done.err
    assert "--yes" in done.err
    assert _source(configured) == []


def test_chosen_letters_go_to_the_source_topic_with_their_bytes_times_and_what_they_were(
    commands: Commands, configured: Settings, publish: Publish
) -> None:
    publish(b"a", age_ms=30 * MINUTE_MS, reason="json", offset=11)
    publish(b"b", age_ms=20 * MINUTE_MS)
    publish(b"c", age_ms=10 * MINUTE_MS, reason="json", topic=configured.topic("nodes"))
    done = commands.run(deadletter_command, "resubmit", "--reason", "json", "--yes", "--json")
    assert [(letter["letter"], letter["sent"], letter["obstacle"]) for letter in done.json()] == [
        ("0", True, None),
        ("2", True, None),
    ]
    records = _source(configured)
    assert [(r.value, NOW_MS - r.timestamp) for r in records] == [(b"a", 30 * MINUTE_MS), (b"c", 10 * MINUTE_MS)]
    ((name, raw),) = records[0].headers
    assert name == RESUBMITTED
    assert raw.decode() == (
        f'{{"letter": "0", "topic": "{configured.source_topic}", "partition": 1, "offset": 11, "reason": "json"}}'
    )
    named = commands.run(deadletter_command, "resubmit", "1", "--yes")
    assert "Sent 1 of 1 letters" in named.err
    assert [record.value for record in _source(configured)] == [b"a", b"b", b"c"]


def test_a_letter_that_failed_again_is_told_apart_and_sent_only_when_asked(
    commands: Commands, configured: Settings, publish: Publish
) -> None:
    publish(b"a", offset=1)
    commands.run(deadletter_command, "resubmit", "0", "--yes")
    (record,) = _source(configured)
    publish(b"a", offset=record.offset + 500, came_with=[*record.headers, ("other", b"x")])
    first, second = commands.run(deadletter_command, "--json").json()
    assert first["failed_again_as"] == "1"
    assert [(each["letter"], each["offset"]) for each in second["resubmitted"]] == [("0", 1)]
    rows = commands.run(deadletter_command).out
    assert "failed as 1" in rows
    assert "1 x before" in rows
    done = commands.run(deadletter_command, "resubmit", "--all", "--yes")
    assert "sent before, and failed again as letter 1" in done.out
    assert "sent once before: --again sends it once more" in done.out
    assert "Sent 0 of 2 letters" in done.err
    assert "Sent 1 of 2" in commands.run(deadletter_command, "resubmit", "--all", "--again", "--yes").err
    again = [record for record in _source(configured) if len(record.headers) == 2]
    assert len(again) == 1
    assert [b'"letter": "0"' in raw for _, raw in again[0].headers] == [True, False]


def test_what_a_letter_cut_off_is_taken_from_its_record_while_that_is_there(
    commands: Commands, configured: Settings, publish: Publish
) -> None:
    whole = b"w" * KEPT_BYTES_MAX + b"end"
    _, offset = _produce(configured, configured.source_topic, whole, NOW_MS, partition=1)
    publish(whole, offset=offset)
    publish(whole + b"!", offset=offset)
    publish(whole, offset=offset + 1)
    publish(whole, offset=offset, topic="no-such-topic")
    done = commands.run(deadletter_command, "resubmit", "--all", "--yes", "--json").json()
    assert [(letter["sent"], "64 KiB were kept" in (letter["obstacle"] or "")) for letter in done] == [
        (True, False),
        (False, True),
        (False, True),
        (False, True),
    ]
    assert sorted((record.value == whole, len(record.headers)) for record in _source(configured)) == [
        (True, 0),
        (True, 1),
    ]


def test_what_cannot_be_read_or_written_anyway_stays_where_it_is(commands: Commands, publish: Publish) -> None:
    publish(b"")
    publish(b"x" * 10_001)
    publish(b"\x0a\x02xy")
    commands.set(record_bytes_max="10000", source_format="otlp_json")
    steps = commands.run(deadletter_command, "resubmit", "--all", "--yes", "--json").json()
    assert [(step["sent"], step["obstacle"].split(":")[0].split("=")[0]) for step in steps] == [
        (False, "empty"),
        (False, "larger than FLEETPULSE_RECORD_BYTES_MAX"),
        (False, "not JSON, and FLEETPULSE_SOURCE_FORMAT is otlp_json"),
    ]


def test_letters_of_a_topic_with_several_partitions_are_named_by_both_numbers(
    commands: Commands, topic_prefix: str
) -> None:
    settings = Settings()
    admin = connect_admin(settings)
    admin.create_topics([NewTopic(settings.topic("deadletter"), 3, 1)])
    admin.close()
    ensure_topics(settings)
    for partition in (2, 0, 2):
        headers = letter_headers("t", 0, partition, "json", "", 2, ())
        _produce(
            settings, settings.topic("deadletter"), b"%d%d" % (partition, len(headers)), NOW_MS, headers, partition
        )
    _produce(settings, settings.topic("deadletter"), b"zz", NOW_MS, letter_headers("t", 0, 9, "json", "", 2, ()), 2)
    assert [letter["letter"] for letter in commands.run(deadletter_command, "--json").json()] == ["0", "2:0", "2:2"]
    done = commands.run(deadletter_command, "resubmit", "2:2", "0", "--yes", "--json").json()
    assert [(letter["letter"], letter["sent"]) for letter in done] == [("0", True), ("2:2", True)]
    assert [record.value for record in _source(settings)] == [b"06", b"zz"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["resubmit"], "say which letters"),
        (["resubmit", "5", "--yes"], "there is no such dead letter: 5; nothing was sent"),
        (["resubmit", "0", "--reason", "no-such", "--yes"], "with reason no-such: 0; nothing was sent"),
        (["resubmit", "0", "--all"], "leave one of them out"),
        (["resubmit", "x"], "'x' is no letter"),
        (["show", "-1:3"], "No such option"),
        (["show", ":3"], "':3' is no letter"),
        (["--reason", "json", "resubmit", "--all"], "options stand behind the command"),
        (["--since", "yesterday"], "not a duration"),
    ],
)
def test_what_was_meant_and_cannot_be_is_one_line(
    commands: Commands, configured: Settings, publish: Publish, words: list[str], told: str
) -> None:
    publish(b"a")
    done = commands.run(deadletter_command, *words)
    assert done.code == 2
    assert told in done.err
    assert _source(configured) == []


def test_none_are_said_and_a_topic_that_is_absent_too(commands: Commands) -> None:
    done = commands.run(deadletter_command)
    assert done.code == 2
    assert "a worker creates it" in done.err
    ensure_topics(Settings())
    assert "No dead letters." in commands.run(deadletter_command).err
    done = commands.run(deadletter_command, "resubmit", "--reason", "json", "--since", "1h")
    assert (done.code, "No dead letters with reason json in the last 1h." in done.err) == (0, True)


def test_the_console_has_the_command_with_its_own(commands: Commands, publish: Publish) -> None:
    publish(b"a")
    assert "resubmit" in commands.run(console, "deadletter", "--help").out
    assert len(commands.run(console, "deadletter", "--json").json()) == 1


@pytest.mark.parametrize("place", [Place(0, 0), Place(0, 17), Place(3, 17)])
def test_a_letters_name_says_where_it_is(place: Place) -> None:
    assert Place.parse(str(place)) == place
    assert Place.parse(f"{place.partition}:{place.offset}") == place


@pytest.mark.e2e
def test_what_a_worker_refused_is_read_after_its_setting_was_mended_or_comes_back_marked(
    monkeypatch: pytest.MonkeyPatch,
    broker: str,
    redis_url: str,
    session_timeout_s: str,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """JSON is refused while the source is said to be protobuf; a sum without temporality is refused whatever is set."""
    deployment = deploy(broker, redis_url, topic_prefix, tmp_path, session_timeout_s=session_timeout_s)
    settings = deployment.settings
    commands = Commands(monkeypatch)
    for name, value in deployment.environment.items():
        if name.startswith("FLEETPULSE_"):
            monkeypatch.setenv(name, value)
    time_ns = time.time_ns() // NS * NS
    sound, unspecified = (
        resource_metrics({"host.name": "n1"}, [metric])
        for metric in (
            gauge("system.cpu.load_average.1m", [number_point(time_ns, 1.0)]),
            counter("system.network.io", [number_point(time_ns, 1)]),
        )
    )
    unspecified.scope_metrics[0].metrics[0].sum.aggregation_temporality = 0
    text = MessageToJson(ExportMetricsServiceRequest(resource_metrics=[sound])).encode()
    deployment.produce([(None, raw, time_ns // 1_000_000, 0) for raw in (text, request(unspecified))])

    def letters(count: int) -> list[Any]:
        found: list[Any] = []

        def are_there() -> bool:
            found[:] = commands.run(deadletter_command, "--json").json()
            return len(found) == count

        wait_until(are_there, f"{count} letters", log=deployment.log)
        return sorted(found, key=lambda letter: int(letter["letter"]))

    with deployment.worker(source_format="otlp_proto"):
        refused = letters(2)
    assert {letter["topic"] for letter in refused} == {settings.source_topic, settings.topic("nodes")}
    assert commands.run(deadletter_command, "resubmit", "--all", "--yes").code == 0
    with deployment.worker(), deployment.store() as store:
        third = letters(3)[2]

        def is_published() -> bool:
            vector = store.node("n1", "default").vector
            return vector is not None and vector.t_end_ns == time_ns

        wait_until(is_published, "the vector", log=deployment.log)
    assert third["topic"] == settings.topic("nodes")
    assert [(each["reason"], each["topic"]) for each in third["resubmitted"]] == [(third["reason"], third["topic"])]
