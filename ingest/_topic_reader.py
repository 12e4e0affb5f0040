"""Reading a topic's recent records for a command: all partitions, from a time on, without a consumer group."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._topics import kafka_security

CONNECT_MS = 4_000
POLL_MS = 250
QUIET_POLLS = 2
"""Empty polls after which nothing more is expected, once the end offsets are reached: a broker may report them one too
small."""
QUIET_POLLS_MAX = 20
"""Empty polls that end the reading in any case: a transaction's marker is an offset without a record."""


@dataclass
class TopicReader:
    """A consumer of every partition. Use as a context manager."""

    consumer: Any
    topic: str
    partitions: list[Any] = field(default_factory=list)

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def records(self, *, follow: bool) -> Iterator[Any]:
        """Records of a partition in order. Without follow, ends when all that was there has been read; with it, never.

        Yields None after each poll, so that the caller can put what came together in order and print it.
        """
        quiet = 0
        while follow or quiet < QUIET_POLLS_MAX:
            polled = self.consumer.poll(timeout_ms=POLL_MS)
            quiet = 0 if polled else quiet + 1
            for partition in sorted(polled, key=lambda held: held.partition):
                yield from polled[partition]
            yield None
            if not follow and quiet >= QUIET_POLLS and self._reached_ends():
                return

    def record_at(self, partition: int, offset: int) -> Any | None:
        """The record there; None when it is not there any more, or never was. Cheap for offsets that follow each other.

        Not to be mixed with records().
        """
        from kafka import TopicPartition

        place = TopicPartition(self.topic, partition)
        if place not in self.partitions:
            return None
        if self.consumer.assignment() != {place}:
            self.consumer.assign([place])
        if self.consumer.position(place) != offset:
            self.consumer.seek(place, offset)
        for _ in range(QUIET_POLLS_MAX):
            polled = self.consumer.poll(timeout_ms=POLL_MS, max_records=1).get(place)
            if polled:
                return polled[0] if polled[0].offset == offset else None
            if offset >= self.consumer.end_offsets([place])[place]:
                return None
        return None

    def _reached_ends(self) -> bool:
        ends = self.consumer.end_offsets(self.partitions)
        return all(self.consumer.position(partition) >= end for partition, end in ends.items())


def read_topic(settings: Settings, topic: str, since_ms: int) -> TopicReader:
    """Reader at the first record of since_ms or later, or before it where the broker cannot tell.

    Raises UserError within a few seconds when no broker answers or the topic is absent.
    """
    reader = open_topic(settings, topic)
    found = reader.consumer.offsets_for_times(dict.fromkeys(reader.partitions, since_ms))
    ends = reader.consumer.end_offsets(reader.partitions)
    for partition in reader.partitions:
        at = found.get(partition)
        # Nothing since then, says the broker; one that reports its ends too small may have one record more.
        reader.consumer.seek(partition, max(0, ends[partition] - 1) if at is None else at.offset)
    return reader


def newest_record_ms(settings: Settings, topic: str) -> int | None:
    """Timestamp of the newest of the partitions' last records; None when all are empty. Raises UserError."""
    with open_topic(settings, topic) as reader:
        for partition, end in reader.consumer.end_offsets(reader.partitions).items():
            reader.consumer.seek(partition, max(0, end - 1))
        return max((record.timestamp for record in reader.records(follow=False) if record is not None), default=None)


def listens(address: str) -> bool:
    """Whether something accepts connections at host:port, within a few seconds."""
    host, _, port = address.strip().rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_MS / 1000):
            return True
    except (OSError, ValueError):
        return False


def open_topic(settings: Settings, topic: str) -> TopicReader:
    """Reader of all partitions, from wherever the caller seeks. Raises UserError as read_topic does."""
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import KafkaError

    addresses = settings.kafka_bootstrap.split(",")
    if not any(listens(address) for address in addresses):
        # Asked first, because the client tries for seconds whatever the answer.
        raise UserError(
            f"nothing listens at {settings.kafka_bootstrap}: start the Kafka broker, or set FLEETPULSE_KAFKA_BOOTSTRAP "
            "to host:port of yours"
        )
    arguments = kafka_security(settings)
    if settings.kafka_ca_file is not None:
        arguments["ssl_cafile"] = settings.kafka_ca_file
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=addresses,
            client_id="fleetpulse-reader",
            group_id=None,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            auto_offset_reset="earliest",
            bootstrap_timeout_ms=CONNECT_MS,
            request_timeout_ms=15_000,
            fetch_max_wait_ms=POLL_MS // 2,
            max_poll_records=5_000,
            **arguments,
        )
    except (KafkaError, OSError, ValueError) as error:
        raise UserError(
            f"no Kafka broker answers at {settings.kafka_bootstrap} ({type(error).__name__}): check that it runs and "
            "that FLEETPULSE_KAFKA_BOOTSTRAP names it"
        ) from None
    try:
        numbers = _partitions(consumer, topic)
        if not numbers:
            raise UserError(
                f"the broker at {settings.kafka_bootstrap} has no topic {topic}: a worker creates it at its start "
                "(FLEETPULSE_TOPIC_PREFIX names another prefix)"
            )
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
    except KafkaError as error:
        consumer.close()
        raise UserError(f"topic {topic} cannot be read: {error}") from None
    except BaseException:
        consumer.close()
        raise
    return TopicReader(consumer, topic, partitions)


def _partitions(consumer: Any, topic: str) -> set[int]:
    """Numbers of the topic's partitions; asked again for a moment, because metadata of a new topic comes late."""
    deadline = time.monotonic() + 1.0
    while True:
        found = consumer.partitions_for_topic(topic)
        if found or time.monotonic() > deadline:
            return set(found or ())
        time.sleep(0.2)
