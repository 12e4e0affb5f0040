"""Writing records to a topic from a command: bounded, in order, and an error that a person can act on."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._topics import ensure_topics, kafka_security, topic_specs

if TYPE_CHECKING:
    from kafka import KafkaProducer

PENDING_BYTES_MAX = 32_000_000
# What Kafka adds to a record: batch and record headers.
_RECORD_OVERHEAD_BYTES = 1_024
_DELIVERY_TIMEOUT_MS = 30_000
_INTERRUPTED_CLOSE_S = 2.0


class RecordProducer:
    """Writes to settings.source_topic, which is created when absent.

    As a context: leaving it waits until everything is acknowledged by all in-sync replicas; leaving it by an
    exception does not. Records with the same key stay in the order in which they were sent.
    """

    def __init__(self, settings: Settings, *, pending_bytes_max: int = PENDING_BYTES_MAX) -> None:
        """Raises UserError within about five seconds when no broker answers, or the topic cannot be had."""
        self.topic = settings.source_topic
        self.created = ensure_source_topic(settings)
        self.sent_records = 0
        self.sent_bytes = 0
        self._bootstrap = settings.kafka_bootstrap
        self._pending_bytes_max = pending_bytes_max
        self._pending_bytes = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._producer = _connected(settings)

    def send(
        self,
        value: bytes,
        *,
        timestamp_ms: int,
        key: bytes | None = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Hand a record over; waits while pending_bytes_max are unacknowledged. One record is always let through.

        Raises UserError when this record, or an earlier one, could not be written.
        """
        size = len(value)
        with self._changed:
            while self._error is None and self._pending_bytes and self._pending_bytes + size > self._pending_bytes_max:
                self._changed.wait()
            self._raise_error()
            self._pending_bytes += size
        try:
            future = self._producer.send(self.topic, value, key=key, timestamp_ms=timestamp_ms, headers=headers or [])
        except Exception as error:  # kafka-python raises its own errors, ValueError and AssertionError here.
            raise self._undelivered(error) from None
        future.add_callback(self._acknowledged, size)
        future.add_errback(self._failed, size)

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises UserError when something could not be written."""
        try:
            self._producer.flush(timeout=_DELIVERY_TIMEOUT_MS / 1000 + 5)
        except Exception as error:  # As in send.
            with self._changed:
                self._error = self._error or error
        with self._changed:
            self._raise_error()

    def __enter__(self) -> RecordProducer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            # Nothing of ours is left to wait for, unless we were interrupted.
            self._producer.close(timeout=_INTERRUPTED_CLOSE_S)

    def _acknowledged(self, size: int, _metadata: object) -> None:
        with self._changed:
            self._pending_bytes -= size
            self.sent_records += 1
            self.sent_bytes += size
            self._changed.notify_all()

    def _failed(self, size: int, error: BaseException) -> None:
        with self._changed:
            self._pending_bytes -= size
            self._error = self._error or error
            self._changed.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._undelivered(self._error)

    def _undelivered(self, error: BaseException) -> UserError:
        name = type(error).__name__
        if name in ("MessageSizeTooLargeError", "RecordTooLargeError"):
            return UserError(
                f"Kafka at {self._bootstrap} takes no record that large: lower FLEETPULSE_RECORD_BYTES_MAX, or raise "
                f"max.message.bytes of topic {self.topic}"
            )
        if name == "TopicAuthorizationFailedError":
            return UserError(f"This user may not write to topic {self.topic}: grant it Write on the topic")
        return UserError(
            f"Kafka at {self._bootstrap} did not take a record of topic {self.topic} ({name}): check that the broker "
            "runs and accepts writes, then start again; repeated samples are harmless"
        )


def hush_kafka_logs() -> None:
    """kafka-python logs what we say in one line of our own."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def _connected(settings: Settings) -> KafkaProducer:
    from kafka import KafkaProducer
    from kafka.codec import has_zstd
    from kafka.errors import KafkaError

    options: dict[str, Any] = kafka_security(settings)
    if settings.kafka_ca_file is not None:
        options["ssl_cafile"] = settings.kafka_ca_file
    room = settings.record_bytes_max + _RECORD_OVERHEAD_BYTES
    try:
        return KafkaProducer(
            bootstrap_servers=settings.kafka_bootstrap.split(","),
            client_id="fleetpulse-produce",
            acks="all",
            # An idempotent producer needs rights that a plain writer may lack; one request at a time keeps the order.
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            compression_type="zstd" if has_zstd() else "gzip",
            batch_size=room,
            max_request_size=room,
            linger_ms=5,
            bootstrap_timeout_ms=5_000,
            max_block_ms=5_000,
            request_timeout_ms=10_000,
            delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
            metrics_enabled=False,
            **options,
        )
    except (KafkaError, OSError, ValueError) as error:
        raise UserError(
            f"No Kafka broker takes records at {settings.kafka_bootstrap} ({type(error).__name__}): check that it runs "
            "and that FLEETPULSE_KAFKA_BOOTSTRAP names it"
        ) from None


def ensure_source_topic(settings: Settings) -> bool:
    """Whether the topic had to be created. Raises UserError."""
    return any(note.startswith("created") for note in ensure_topics(settings, topic_specs(settings)[:1]))
