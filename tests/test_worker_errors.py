"""What a person sees who gives the worker a wrong address: one line that says what to do, and a code that is not 0."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

NOWHERE = "127.0.0.1:1"


def run_worker(**settings: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FLEETPULSE_")}
    given = {"FLEETPULSE_METRICS_PORT": "0", "FLEETPULSE_PARTITIONS": "1"}
    given |= {f"FLEETPULSE_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "fleetpulse.ingest", "worker"]
    return subprocess.run(command, capture_output=True, text=True, env=inherited | given, timeout=120)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("fleetpulse: ")
    return line


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kafka_bootstrap": NOWHERE}, ["No Kafka broker answers at 127.0.0.1:1", "FLEETPULSE_KAFKA_BOOTSTRAP"]),
        ({"kafka_bootstrap": "broker"}, ["FLEETPULSE_KAFKA_BOOTSTRAP", "'broker' is not host:port"]),
        ({"partitions": "many"}, ["FLEETPULSE_PARTITIONS", "integer"]),
        ({"partition": "4"}, ["FLEETPULSE_PARTITION is not a setting"]),
        ({"look_back_s": "600", "chunk_span_s": "400"}, ["FLEETPULSE_CHUNK_SPAN_S=400", "300 at most"]),
        ({"catalog": "no.toml"}, ["no.toml", "FLEETPULSE_CATALOG"]),
        ({"kafka_security": "SASL_SSL"}, ["FLEETPULSE_KAFKA_USERNAME", "FLEETPULSE_KAFKA_PASSWORD"]),
    ],
)
def test_a_wrong_setting_is_one_line(settings: dict[str, str], says: list[str]) -> None:
    done = run_worker(**settings)
    line = last_line(done)
    assert all(part in line for part in says), line
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_codec_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiokafka reads gzip alone without cramjam, and says so only when a record of another codec comes."""
    from fleetpulse.ingest._errors import UserError
    from fleetpulse.ingest._settings import Settings
    from fleetpulse.ingest._worker import Worker

    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UserError, match=r"cramjam is not usable.*pip install cramjam"):
        Worker(Settings.model_validate({"kafka_bootstrap": NOWHERE})).run()


@pytest.mark.e2e
def test_a_redis_that_is_not_there_is_one_line(broker: str, topic_prefix: str) -> None:
    done = run_worker(
        kafka_bootstrap=broker,
        topic_prefix=topic_prefix,
        source_topic=f"{topic_prefix}.otlp",
        redis_url=f"redis://:secret@{NOWHERE}/0",
    )
    line = last_line(done)
    assert NOWHERE in line
    assert "FLEETPULSE_REDIS_URL" in line
    assert "secret" not in done.stderr


@pytest.mark.e2e
def test_a_taken_metrics_port_is_one_line(broker: str, redis_url: str, topic_prefix: str, taken_port: int) -> None:
    done = run_worker(
        kafka_bootstrap=broker,
        topic_prefix=topic_prefix,
        source_topic=f"{topic_prefix}.otlp",
        redis_url=redis_url,
        metrics_port=str(taken_port),
    )
    line = last_line(done)
    assert str(taken_port) in line
    assert "in use" in line
    assert "FLEETPULSE_METRICS_PORT" in line
