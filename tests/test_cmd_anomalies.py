"""`fleetpulse anomalies` and `fleetpulse doctor`, against a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from kafka import KafkaProducer

from fleetpulse.ingest import _checks
from fleetpulse.ingest._cmd_anomalies import anomalies_command
from fleetpulse.ingest._cmd_doctor import doctor_command
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._topic_reader import newest_record_ms
from fleetpulse.ingest._topics import ensure_topics
from support.commands import Commands

S = 1_000
DEAD = "127.0.0.1:1"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, broker: str, topic_prefix: str) -> Commands:
    commands = Commands(monkeypatch)
    commands.set(kafka_bootstrap=broker, topic_prefix=topic_prefix, source_topic=f"{topic_prefix}.otlp", partitions="3")
    return commands


@pytest.fixture
def configured(commands: Commands) -> Settings:
    """Settings of the test; topics exist."""
    settings = Settings()
    ensure_topics(settings)
    return settings


def _event(name: str, state: str, age_s: int, *, opened_age_s: int = 600, **more: Any) -> dict[str, Any]:
    now_ms = time.time_ns() // 1_000_000
    reason = {"feature": "cpu_busy_share_5m", "value": 0.98, "expected": 0.31, "unit": "1", "deviation": 9.5}
    return {
        "version": 1,
        "id": name,
        "state": state,
        "scope": "node",
        "cluster": "c1",
        "node": name,
        "pool": "m5",
        "severity": "critical",
        "score": 0.91,
        "detector": "forest",
        "opened_ms": now_ms - opened_age_s * S,
        "time_ms": now_ms - age_s * S,
        "reasons": [reason],
    } | more


def _publish(settings: Settings, *events: dict[str, Any] | bytes) -> None:
    """Events one by one over the partitions, with their own times as timestamps."""
    producer = KafkaProducer(bootstrap_servers=settings.kafka_bootstrap)
    for i, event in enumerate(events):
        raw = event if isinstance(event, bytes) else json.dumps(event).encode()
        time_ms = None if isinstance(event, bytes) else event["time_ms"]
        producer.send(settings.topic("anomalies"), raw, partition=i % 3, timestamp_ms=time_ms).get(10)
    producer.close()


def test_each_anomaly_is_one_row_with_its_newest_state_and_reasons(commands: Commands, configured: Settings) -> None:
    _publish(
        configured,
        _event("n1", "opened", 600),
        _event("n2", "opened", 300, opened_age_s=300),
        _event("n1", "resolved", 60),
        _event("n1", "updated", 120),
        _event("fleet", "opened", 30, opened_age_s=30, scope="fleet", node=""),
        _event("old", "opened", 7200),
    )
    done = commands.run(anomalies_command)
    rows = [line for line in done.out.splitlines()[1:] if line.strip()]
    assert done.code == 0
    assert len(rows) == 3
    assert [(" over " in row, " open " in row) for row in rows] == [(True, False), (False, True), (False, True)]
    assert "n1" in rows[0]
    assert "9 min 0 s" in rows[0]
    assert "cpu_busy_share_5m 0.98 1 (expected 0.31)" in rows[1]
    assert "all of pool m5" in rows[2]
    chosen = commands.run(anomalies_command, "--node", "old", "--cluster", "c1", "--since", "3h").out
    assert "old" in chosen
    assert "n2" not in chosen


def test_json_has_every_event_once_in_the_order_of_time(commands: Commands, configured: Settings) -> None:
    first, second = _event("n1", "opened", 60), _event("n1", "updated", 30)
    _publish(configured, second, first, second, b"not json", b"[]", b'{"id": "x"}')
    done = commands.run(anomalies_command, "--json")
    assert done.json() == [first, second], "the repeat of a killed worker is left out"
    assert done.err.count("Skipped what is no event") == 3


def test_a_single_event_is_found_and_none_is_said(commands: Commands, configured: Settings) -> None:
    done = commands.run(anomalies_command)
    assert (done.code, done.out) == (0, "")
    assert "No anomalies in the last 1h" in done.err
    _publish(configured, _event("n1", "opened", 1))
    assert len(commands.run(anomalies_command, "--json").json()) == 1
    assert newest_record_ms(configured, configured.topic("anomalies")) is not None


def test_follow_prints_events_as_they_come_and_ends_quietly(commands: Commands, configured: Settings) -> None:
    _publish(configured, _event("n1", "opened", 5))
    code = "import typer\nfrom fleetpulse.ingest._cmd_anomalies import anomalies_command\ntyper.run(anomalies_command)"
    command = [sys.executable, "-c", code, "--follow", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline())["node"] == "n1"
            _publish(configured, _event("n2", "opened", 1))
            assert json.loads(process.stdout.readline())["node"] == "n2"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=15)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "", "")


def test_without_the_topic_the_worker_is_named(commands: Commands) -> None:
    done = commands.run(anomalies_command)
    assert done.code == 2
    assert "a worker creates it" in done.err


def test_a_wrong_broker_address_is_one_line_and_soon(commands: Commands) -> None:
    commands.set(kafka_bootstrap=DEAD)
    start = time.monotonic()
    done = commands.run(anomalies_command)
    assert time.monotonic() - start < 5
    assert (done.code, done.out) == (2, "")
    assert f"nothing listens at {DEAD}" in done.err
    assert "FLEETPULSE_KAFKA_BOOTSTRAP" in done.err


def test_a_wrong_duration_is_explained_before_anything_is_asked(commands: Commands) -> None:
    commands.set(kafka_bootstrap=DEAD)
    done = commands.run(anomalies_command, "--since", "yesterday")
    assert done.code == 2
    assert "not a duration" in done.err


def _checked(commands: Commands) -> tuple[int, dict[str, dict[str, str]]]:
    done = commands.run(doctor_command, "--json")
    return done.code, {check["check"]: check for check in done.json()}


def test_the_doctor_finds_everything_in_place(
    commands: Commands, configured: Settings, redis_url: str, redis_prefix: str
) -> None:
    commands.set(redis_url=redis_url, redis_prefix=redis_prefix)
    code, checks = _checked(commands)
    assert code == 0
    assert {check["state"] for check in checks.values()} == {"ok", "warning"}
    assert checks[f"topic {configured.topic('nodes')}"]["found"] == "3 partitions"
    assert checks["clock"]["state"] == "ok"
    assert "there are none" in checks["vectors"]["found"]
    assert "there are none" in checks[f"records in {configured.source_topic}"]["found"]
    commands.set(partitions="5")
    text = commands.run(doctor_command)
    assert text.code == 0
    assert f"topic {configured.topic('nodes')}: 3 partitions, not 5" in text.out
    assert "set FLEETPULSE_PARTITIONS=3" in text.out
    assert "Nothing is wrong, 7 to note." in text.out


@pytest.mark.parametrize(
    ("age_s", "state", "found"),
    [(5, "ok", "s old"), (4000, "warning", "66 min 40 s old"), (-60, "problem", "ahead of")],
)
def test_the_doctor_looks_at_the_clock_of_the_newest_record(
    commands: Commands, configured: Settings, age_s: int, state: str, found: str
) -> None:
    producer = KafkaProducer(bootstrap_servers=configured.kafka_bootstrap)
    time_ms = time.time_ns() // 1_000_000 - age_s * S
    producer.send(configured.source_topic, b"x", partition=1, timestamp_ms=time_ms).get(10)
    producer.close()
    (check,) = _checks._check_records(configured)
    assert (check.state, found in check.found) == (state, True), check


def test_the_doctor_says_for_each_dead_service_what_to_do(commands: Commands) -> None:
    commands.set(kafka_bootstrap=DEAD, redis_url="redis://127.0.0.1:1/0", catalog="no-such.toml")
    start = time.monotonic()
    code, checks = _checked(commands)
    assert time.monotonic() - start < 8
    assert code == 1
    problems = {name: check for name, check in checks.items() if check["state"] == "problem"}
    assert set(problems) == {"catalog", "Kafka broker", "Redis"}
    assert "FLEETPULSE_KAFKA_BOOTSTRAP" in problems["Kafka broker"]["do"]
    assert "FLEETPULSE_REDIS_URL" in problems["Redis"]["do"]
    text = commands.run(doctor_command)
    assert text.code == 1
    assert "3 to put right" in text.out


def test_the_doctor_names_a_package_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "MODULES", (("no_such_module", "no-such-package", "nothing works"),))
    (check,) = _checks.check_modules()
    assert (check.state, check.do) == ("problem", "pip install no-such-package")
    assert "nothing works" in check.found


@pytest.mark.parametrize(
    ("seconds_off", "state", "found"),
    [(0, "ok", "within"), (1, "ok", "within"), (90, "problem", "90.0 s ahead of"), (-90, "problem", "90.0 s behind")],
)
def test_a_redis_clock_that_is_off_is_a_problem(seconds_off: int, state: str, found: str) -> None:
    before_ms = 1_790_000_000_000
    check = _checks._redis_clock([before_ms // S + seconds_off, 0], before_ms, before_ms + 50)
    assert (check.state, found in check.found) == (state, True), check


@pytest.mark.parametrize(
    ("version", "state"), [("6.2.14", "ok"), ("8.0.1", "ok"), ("6.0.16", "problem"), ("5.0.7", "problem")]
)
def test_an_old_redis_is_a_problem(version: str, state: str) -> None:
    assert _checks._redis_version({"redis_version": version}).state == state
    assert _checks._redis_version(f"# Server\r\nredis_version:{version}\r\n".encode()).state == state


def test_a_user_who_may_only_read_keys_is_served(
    commands: Commands, redis_url: str, redis_prefix: str, configured: Settings
) -> None:
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.execute_command("ACL", "SETUSER", redis_prefix, "on", ">right", "~*", "-@all", "+ping", "+zrange")
        commands.set(
            redis_url=redis_url.replace("redis://", f"redis://{redis_prefix}:right@"), redis_prefix=redis_prefix
        )
        try:
            code, checks = _checked(commands)
        finally:
            client.execute_command("ACL", "DELUSER", redis_prefix)
    assert code == 0
    assert "does not tell its version" in checks["Redis"]["found"]
