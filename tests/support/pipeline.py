"""A worker as its own process, on given services, and what it wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from fleetpulse.features import NodeVector
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._topics import ensure_topics
from fleetpulse.store import FeatureStore

REPOSITORY = Path(__file__).parents[2]
Record = tuple[bytes | None, bytes, int, int | None]
"""key, value, timestamp in ms, partition."""


@dataclass(frozen=True)
class Deployment:
    """Names of one test's topics, keys and group. `environment` is what its workers run with."""

    settings: Settings
    environment: dict[str, str]
    log: Path

    @property
    def redis_url(self) -> str:
        return self.settings.redis_url.get_secret_value()

    def store(self, **options: Any) -> FeatureStore:
        return FeatureStore.connect(self.redis_url, self.settings.redis_prefix, **options)

    def start_worker(self, **settings: str) -> subprocess.Popen[bytes]:
        environment = self.environment | {f"FLEETPULSE_{name.upper()}": value for name, value in settings.items()}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "fleetpulse.ingest", "worker"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
            )

    @contextmanager
    def worker(self, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
        process = self.start_worker(**settings)
        try:
            yield process
        finally:
            stop(process)

    def produce(self, records: Iterable[Record], *, compression: str | None = None, topic: str | None = None) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.settings.kafka_bootstrap, compression_type=compression, max_request_size=40_000_000
        )
        for key, value, timestamp_ms, partition in records:
            producer.send(
                topic or self.settings.source_topic,
                key=key,
                value=value,
                timestamp_ms=timestamp_ms,
                partition=partition,
            )
        producer.flush()
        producer.close()

    def read(self, topic: str, *, quiet_s: float = 1.0) -> list[Any]:
        """Every record of a topic, partition by partition, until it stays quiet."""
        consumer = KafkaConsumer(bootstrap_servers=self.settings.kafka_bootstrap, auto_offset_reset="earliest")
        try:
            partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
            consumer.assign(partitions)
            records: list[Any] = []
            last = time.monotonic()
            while time.monotonic() - last < quiet_s:
                found = [record for batch in consumer.poll(200).values() for record in batch]
                if found:
                    records += found
                    last = time.monotonic()
            return sorted(records, key=lambda record: (record.partition, record.offset))
        finally:
            consumer.close()

    def committed(self, topic: str) -> dict[int, int]:
        """What the workers have committed, by partition; partitions without a commit are left out."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.settings.kafka_bootstrap,
            group_id=self.settings.consumer_group,
            enable_auto_commit=False,
        )
        try:
            found = {
                p: consumer.committed(TopicPartition(topic, p)) for p in consumer.partitions_for_topic(topic) or ()
            }
            return {partition: offset for partition, offset in found.items() if offset}
        finally:
            consumer.close()


def deploy(bootstrap: str, redis_url: str, name: str, folder: Path, **settings: str) -> Deployment:
    """A deployment of its own on shared services, its topics created."""
    values = {
        "kafka_bootstrap": bootstrap,
        "redis_url": redis_url,
        "redis_prefix": name,
        "topic_prefix": name,
        "source_topic": f"{name}.otlp",
        "consumer_group": name,
        "partitions": "4",
        "metrics_port": "0",
        **settings,
    }
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FLEETPULSE_")}
    environment = inherited | {f"FLEETPULSE_{key.upper()}": value for key, value in values.items()}
    made = Deployment(Settings.model_validate(values), environment, folder / f"{name}.log")
    ensure_topics(made.settings)
    return made


def wait_until(condition: Callable[[], bool], what: str, *, timeout_s: float = 60.0, log: Path | None = None) -> None:
    """Returns when the condition holds; fails with the end of the log when it does not within the time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            tail = "" if log is None else "\n" + "\n".join(log.read_text(errors="replace").splitlines()[-40:])
            raise AssertionError(f"{what}: not within {timeout_s:.0f} s{tail}")
        time.sleep(0.2)


def stop(process: subprocess.Popen[bytes]) -> int:
    """Ask a worker to stop; its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


def same_bits(first: NodeVector, second: NodeVector) -> bool:
    """Whether two vectors say the same of the same moment, wherever they were computed."""
    return (
        (first.cluster, first.node, first.t_end_ns) == (second.cluster, second.node, second.t_end_ns)
        and first.values.tobytes() == second.values.tobytes()
        and first.status.tobytes() == second.status.tobytes()
        and first.age_ms.tobytes() == second.age_ms.tobytes()
        and first.window_covered_ms == second.window_covered_ms
        and first.sources == second.sources
    )


def newest_vectors(records: Sequence[Any]) -> dict[tuple[str, str], NodeVector]:
    """From records of the features topic, the newest vector of each node."""
    newest: dict[tuple[str, str], NodeVector] = {}
    for record in records:
        vector = NodeVector.from_bytes(record.value)
        held = newest.get((vector.cluster, vector.node))
        if held is None or (held.t_end_ns, held.offset) <= (vector.t_end_ns, vector.offset):
            newest[vector.cluster, vector.node] = vector
    return newest
