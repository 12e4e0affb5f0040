"""What the other tests take for granted of the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import UnknownTopicOrPartitionError

from support.kafka_cluster import KafkaCluster, kafka_cluster
from support.watched import MissingError

TESTS = Path(__file__).parents[1]


def test_records_outlive_the_loss_and_the_restart_of_one_broker_of_three(topic_prefix: str) -> None:
    topic = f"{topic_prefix}.copied"
    try:
        with kafka_cluster(3) as cluster:
            admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
            admin.create_topics([NewTopic(topic, 3, 3)])
            admin.close()
            producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), acks="all", retries=100)
            cluster.kill(1)
            for number in range(300):
                producer.send(topic, b"%d" % number, partition=number % 3)
            producer.flush(60)
            cluster.restart(1)
            cluster.kill(2)
            consumer = KafkaConsumer(
                topic,
                bootstrap_servers=cluster.bootstrap.split(","),
                auto_offset_reset="earliest",
                consumer_timeout_ms=60_000,
            )
            got = {int(next(consumer).value) for _ in range(300)}
            assert got == set(range(300))
            consumer.close()
            producer.close()
    except MissingError as missing:
        pytest.skip(str(missing))


def test_a_topic_that_nobody_created_is_not_there(kafka: KafkaCluster, topic_prefix: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        (found,) = admin.describe_topics([f"{topic_prefix}.absent"])
        assert found["error_code"] == UnknownTopicOrPartitionError.errno
    finally:
        admin.close()


def test_no_broker_outlives_a_test_run_that_is_killed(kafka: KafkaCluster, tmp_path: Path) -> None:
    """The fixture is asked for so that the jars are there, and this test skipped where they cannot be."""
    script = textwrap.dedent("""
        import sys, time
        sys.path.insert(0, sys.argv[1])
        from support.kafka_cluster import kafka_cluster
        with kafka_cluster() as cluster:
            print(cluster._running[0].pid, flush=True)
            time.sleep(600)
    """)
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(TESTS)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    broker = int(parent.stdout.readline())
    os.kill(broker, 0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(broker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"broker {broker} still runs")
