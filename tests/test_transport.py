"""Batches, replay on assignment, and commits, against a broker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import faust
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from faust.transport import consumer as faust_consumer
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from fleetpulse.ingest._transport import RecordBatch, ReplayContext, ReplayingTransport

START_MS = 1_700_000_000_000
LOOK_BACK_MS = 60_000


@dataclass
class Keeper:
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    lost: list[tuple[str, int, int, int]] = field(default_factory=list)

    def next_offset(self, topic: str, partition: int) -> int | None:
        return self.positions.get((topic, partition))

    def look_back_ms(self, topic: str) -> int:
        return LOOK_BACK_MS

    def keep_only(self, assigned: set[tuple[str, int]]) -> None:
        self.positions = {key: value for key, value in self.positions.items() if key in assigned}

    def lost_records(self, topic: str, partition: int, first: int, last: int) -> None:
        self.lost.append((topic, partition, first, last))


async def consume(
    bootstrap: str,
    group: str,
    topic: str,
    until: Callable[[list[RecordBatch]], bool],
    *,
    session_s: float,
    commit: bool = True,
) -> list[RecordBatch]:
    """The batches an agent got until the condition held."""
    app: Any = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        broker_session_timeout=session_s,
        broker_rebalance_timeout=session_s,
        broker_heartbeat_interval=session_s / 10,
        consumer_auto_offset_reset="earliest",
        stream_recovery_delay=0.0,
        stream_wait_empty=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        web_enabled=False,
        store="memory://",
        autodiscover=False,
    )
    keeper = Keeper()
    context = ReplayContext(keeper, frozenset({topic}), (bootstrap,), {})
    app.transport = ReplayingTransport(app.conf.broker_consumer, app, context)
    channel = app.topic(topic, key_type=bytes, value_type=bytes, value_serializer="raw", acks=False)
    got: list[RecordBatch] = []
    enough = asyncio.Event()

    async def agent(stream: Any) -> None:
        async for batch in stream:
            got.append(batch)
            keeper.positions[batch.topic, batch.partition] = batch.next_offset
            if commit and batch.next_offset > batch.publish_from:
                assert await app.consumer.commit_offsets({TP(batch.topic, batch.partition): batch.next_offset})
            if until(got):
                enough.set()

    app.agent(channel, name="agent")(agent)
    await app.start()
    try:
        await asyncio.wait_for(enough.wait(), 30)
    finally:
        await app.stop()
    return got


def produce(bootstrap: str, topic: str, numbers: range, partitions: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for i in numbers:
        producer.send(topic, key=None, value=b"%d" % i, partition=i % partitions, timestamp_ms=START_MS + 1000 * i)
    producer.flush()
    producer.close()


def seen(batches: list[RecordBatch]) -> dict[int, list[int]]:
    offsets: dict[int, list[int]] = {}
    for batch in batches:
        offsets.setdefault(batch.partition, []).extend(record.offset for record in batch.records)
    return offsets


@pytest.mark.e2e
def test_a_restart_reads_back_silently_and_goes_on_at_the_commit(
    broker: str, topic_prefix: str, session_timeout_s: str
) -> None:
    topic = f"{topic_prefix}.records"
    admin = KafkaAdminClient(bootstrap_servers=broker)
    admin.create_topics([NewTopic(topic, 2, 1)])
    admin.close()
    produce(broker, topic, range(1000), 2)

    def all_of(n: int) -> Callable[[list[RecordBatch]], bool]:
        return lambda batches: sum(len(set(offsets)) for offsets in seen(batches).values()) >= n

    first = asyncio.run(consume(broker, topic_prefix, topic, all_of(1000), session_s=float(session_timeout_s)))
    assert seen(first) == {0: list(range(500)), 1: list(range(500))}
    assert all(batch.publish_from == 0 for batch in first)
    values = [record.value for batch in first if batch.partition == 1 for record in batch.records]
    assert values == [b"%d" % i for i in range(1, 1000, 2)]

    produce(broker, topic, range(1000, 1100), 2)

    def new_records_came(batches: list[RecordBatch]) -> bool:
        return all(offsets[-1] == 549 for offsets in seen(batches).values()) and len(seen(batches)) == 2

    second = asyncio.run(consume(broker, topic_prefix, topic, new_records_came, session_s=float(session_timeout_s)))
    assert all(batch.publish_from == 500 for batch in second)
    for offsets in seen(second).values():
        assert offsets == list(range(offsets[0], 550)), "in order, without a gap"
        # One record every two seconds and partition: the look-back of 60 s is 30 records.
        assert offsets[0] <= 500 - 30


@pytest.mark.e2e
def test_what_was_not_committed_is_read_again(broker: str, topic_prefix: str, session_timeout_s: str) -> None:
    topic = f"{topic_prefix}.records"
    admin = KafkaAdminClient(bootstrap_servers=broker)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()
    produce(broker, topic, range(10), 1)

    def some(batches: list[RecordBatch]) -> bool:
        return bool(batches)

    asyncio.run(consume(broker, topic_prefix, topic, some, session_s=float(session_timeout_s), commit=False))
    again = asyncio.run(consume(broker, topic_prefix, topic, some, session_s=float(session_timeout_s)))
    assert again[0].records[0].offset == 0
    assert again[0].publish_from == 0


def test_faust_still_has_what_the_transport_overrides_and_calls() -> None:
    """Private names of faust-streaming that a new release may change: this says so before a worker does."""
    consumer = driver.Consumer
    assert inspect.iscoroutinefunction(consumer.perform_seek)
    assert inspect.isasyncgenfunction(consumer.getmany)
    assert list(inspect.signature(consumer.getmany).parameters) == ["self", "timeout"]
    assert list(inspect.signature(consumer._wait_next_records).parameters) == ["self", "timeout"]
    assert list(inspect.signature(consumer._to_message).parameters) == ["self", "tp", "record"]
    assert inspect.iscoroutinefunction(consumer.seek)
    assert hasattr(driver.AIOKafkaConsumerThread, "_ensure_consumer")
    assert hasattr(driver.AIOKafkaConsumerThread, "call_thread")
    assert "_consumer" in driver.AIOKafkaConsumerThread.__annotations__
    coordination = inspect.getsource(GroupCoordinator)
    for name in ("_coordination_task", "_pending_exception"):
        assert f"self.{name}" in coordination, name
    assert "_coordinator" in inspect.getsource(AIOKafkaConsumer)
    source = inspect.getsource(faust_consumer.Consumer.__init__) + inspect.getsource(
        faust_consumer.Consumer._reset_state
    )
    for name in ("_committed_offset", "_buffered_partitions"):
        assert name in source, name
