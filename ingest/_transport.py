"""Faust's Kafka transport, with three changes: batches instead of records, replay on assignment, exact commits.

Faust keeps membership, assignment, agents and the producer. Its own acknowledgements are not used (they can commit past
an unfinished record): the topics declared here have acks off, and an agent commits what it has finished through
ReplayingConsumer.commit_offsets. The private names of Faust this relies on are held by tests/test_transport.py.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import aiokafka
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata
from aiokafka.structs import TopicPartition as KafkaTopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

COMMIT_TRIES = 8
POSITION_TIMEOUT_S = 20.0


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one partition, as one poll returned them.

    publish_from: records below this offset only rebuild state; what they say was published before.
    generation: the group generation that fetched them; a batch of an earlier one must not be processed.
    """

    topic: str
    partition: int
    records: list[Record]
    publish_from: int
    generation: int

    @property
    def next_offset(self) -> int:
        return self.records[-1].offset + 1


class StateKeeper(Protocol):
    """Who holds the state of partitions, asked by the consumer on every assignment."""

    def next_offset(self, topic: str, partition: int) -> int | None:
        """Offset that the live state of the partition continues at; None when there is no state."""

    def look_back_ms(self, topic: str) -> int:
        """How much of the log rebuilds the state of a partition of this topic; 0 for a stateless one."""

    def keep_only(self, assigned: set[tuple[str, int]]) -> None:
        """Drop the state of every other partition."""

    def lost_records(self, topic: str, partition: int, first: int, last: int) -> None:
        """Records first..last were deleted by retention before they could be read."""


@dataclass(frozen=True)
class ReplayContext:
    """What the consumer must know beyond Faust: who keeps the state, which topics come in batches, how to connect."""

    keeper: StateKeeper
    topics: frozenset[str]
    bootstrap_servers: tuple[str, ...]
    security: Mapping[str, Any]


class ReplayingConsumer(driver.Consumer):
    """Hands out RecordBatches and starts each newly assigned partition far enough back to rebuild its state."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._publish_from: dict[TP, int] = {}

    @property
    def _context(self) -> ReplayContext:
        assert isinstance(self.transport, ReplayingTransport), "this consumer comes with its transport"
        return self.transport.context

    @property
    def _keeper(self) -> StateKeeper:
        return self._context.keeper

    async def perform_seek(self) -> None:
        """To the committed offsets, as Faust does; then back by the look-back where state must be rebuilt.

        A partition that stayed here through a rebalance continues where its state stands. That is also right when
        another worker had it in between: what that one finished is below publish_from then, and silent.
        """
        await super().perform_seek()
        assigned = {tp for tp in self.assignment() if tp.topic in self._context.topics}
        self._keeper.keep_only({(tp.topic, tp.partition) for tp in assigned})
        self._publish_from = {tp: self._committed_offset.get(tp) or 0 for tp in assigned}
        rebuilt = []
        for tp in assigned:
            position = self._keeper.next_offset(tp.topic, tp.partition)
            if position is not None:
                await self.seek(tp, position)
            elif self._publish_from[tp] > 0:
                rebuilt.append(tp)
        if rebuilt:
            for tp, offset in (await self._replay_positions(rebuilt)).items():
                await self.seek(tp, offset)

    async def _replay_positions(self, tps: Iterable[TP]) -> dict[TP, int]:
        """Where to read from so that the state at publish_from is what it would be after reading everything.

        The newest record below publish_from tells the time that the state stood at.
        """
        positions: dict[TP, int] = {}
        reader = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=list(self._context.bootstrap_servers),
            client_id=f"{self.app.conf.broker_client_id}-replay",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=self.app.conf.consumer_max_fetch_size,
            **self._context.security,
        )
        await reader.start()
        try:
            by_kafka = {KafkaTopicPartition(tp.topic, tp.partition): tp for tp in tps}
            reader.assign(list(by_kafka))
            beginnings = await reader.beginning_offsets(list(by_kafka))
            targets: dict[KafkaTopicPartition, int] = {}
            for kafka_tp, tp in by_kafka.items():
                publish_from = self._publish_from[tp]
                first = beginnings[kafka_tp]
                if first > publish_from:
                    self._keeper.lost_records(tp.topic, tp.partition, publish_from, first - 1)
                positions[tp] = max(publish_from, first)
                look_back_ms = self._keeper.look_back_ms(tp.topic)
                if look_back_ms == 0 or first >= publish_from:
                    continue
                reader.pause(*by_kafka)
                reader.resume(kafka_tp)
                reader.seek(kafka_tp, publish_from - 1)
                try:
                    newest = await asyncio.wait_for(reader.getone(kafka_tp), POSITION_TIMEOUT_S)
                except TimeoutError:
                    # The record below publish_from is not there any more, nor anything after it.
                    positions[tp] = first
                    continue
                targets[kafka_tp] = max(0, newest.timestamp - look_back_ms)
            if targets:
                found = await reader.offsets_for_times(targets)
                for kafka_tp, at in found.items():
                    tp = by_kafka[kafka_tp]
                    if at is not None:
                        positions[tp] = max(beginnings[kafka_tp], min(at.offset, self._publish_from[tp]))
        finally:
            await reader.stop()
        return positions

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:
        """As Faust's, but one message per partition and poll, whose value is a RecordBatch."""
        records, active = await self._wait_next_records(timeout)
        generation = self.app.consumer_generation_id
        if records is None or self.should_stop:
            return
        if not self.flow_active:
            await self.perform_seek()
            return
        for kafka_tp, fetched in records.items():
            tp = TP(kafka_tp.topic, kafka_tp.partition)
            if not self.flow_active or self.app.consumer_generation_id != generation:
                return
            if not fetched or not (active is None or tp in active or tp in self._buffered_partitions):
                continue
            self.app.monitor.track_tp_end_offset(tp, self.highwater(tp))
            message = self._to_message(tp, fetched[0])
            # Faust passes a value on as it is when it is neither text nor to be decoded.
            batch: Any = RecordBatch(
                topic=tp.topic,
                partition=tp.partition,
                records=[Record(r.offset, r.timestamp, r.value, r.headers) for r in fetched],
                publish_from=self._publish_from.get(tp, 0),
                generation=generation,
            )
            message.value = batch
            message.key = None
            yield tp, message

    def group_error(self) -> BaseException | None:
        """Why this consumer cannot be a member of its group, or None.

        aiokafka keeps such an error for whoever polls next, and Faust does not poll before it has partitions: without
        a look here a worker that the group refuses would wait for ever.
        """
        consumer = self._thread._consumer
        coordinator = None if consumer is None else consumer._coordinator
        if not isinstance(coordinator, GroupCoordinator):
            return None
        task = coordinator._coordination_task
        if task.done() and not task.cancelled() and task.exception() is not None:
            error: BaseException | None = task.exception()
            return error
        pending: BaseException | None = coordinator._pending_exception
        return pending

    async def commit_offsets(self, offsets: Mapping[TP, int]) -> bool:
        """Commit these offsets (each the next to be read). False when the group has moved on: others go on then."""
        committed: bool = await self._thread.call_thread(self._commit_in_thread, dict(offsets))
        if committed:
            self._committed_offset.update(offsets)
        return committed

    async def _commit_in_thread(self, offsets: dict[TP, int]) -> bool:
        consumer = self._thread._ensure_consumer()
        for attempt in range(COMMIT_TRIES):
            mine = {
                KafkaTopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "")
                for tp, offset in offsets.items()
                if KafkaTopicPartition(tp.topic, tp.partition) in consumer.assignment()
            }
            if not mine:
                return False
            try:
                await consumer.commit(mine)
                return True
            except (CommitFailedError, IllegalStateError):
                return False
            except KafkaError as error:
                # A broker that restarts: the next commit says the same and more, so a lost one only costs a replay.
                self.log.warning("commit of %s failed (%r), attempt %d", offsets, error, attempt + 1)
                await asyncio.sleep(min(0.25 * 2**attempt, 5.0))
        return False


class ReplayingTransport(driver.Transport):
    Consumer: ClassVar[type] = ReplayingConsumer

    def __init__(self, url: Any, app: Any, context: ReplayContext) -> None:
        super().__init__(url, app)
        self.context = context


def ssl_context(ca_file: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)
