"""Writing to Kafka through Faust's producer, and waiting until it is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from aiokafka.errors import KafkaError
from faust.exceptions import ProducerSendError

from fleetpulse.ingest._shard import Refused
from fleetpulse.ingest._transport import RecordBatch

log = logging.getLogger("fleetpulse.worker")

Message = tuple[str, bytes | None, bytes, int, list[tuple[str, bytes]]]
"""topic, key, value, timestamp in ms, headers."""

DEAD_LETTER_BYTES = 65_536
SEND_TRIES = 6


async def send(producer: Any, messages: Sequence[Message]) -> None:
    """Returns when all are acknowledged. A broker that restarts is waited for; what lasts longer is raised."""
    for attempt in range(SEND_TRIES):
        try:
            futures = [await _send_one(producer, message) for message in messages]
            await asyncio.gather(*futures)
            return
        except (KafkaError, ProducerSendError) as error:
            if attempt == SEND_TRIES - 1:
                raise
            log.warning("writing to Kafka failed, trying again: %r", error)
            await asyncio.sleep(min(0.5 * 2**attempt, 10.0))


async def _send_one(producer: Any, message: Message) -> Awaitable[Any]:
    topic, key, value, timestamp_ms, headers = message
    # Faust takes seconds and truncates to milliseconds: the half keeps the millisecond exact.
    sent: Awaitable[Any] = await producer.send(topic, key, value, None, (timestamp_ms + 0.5) / 1000.0, headers or None)
    return sent


def dead_letter(topic: str, batch: RecordBatch, timestamp_ms: int, refused: Refused) -> Message:
    """What could not be read, with where it stood and why; the first 64 KiB of it."""
    headers = [
        ("topic", batch.topic.encode()),
        ("partition", str(batch.partition).encode()),
        ("offset", str(refused.offset).encode()),
        ("reason", refused.reason.encode()),
        ("detail", refused.detail.encode()),
        ("bytes", str(len(refused.raw)).encode()),
    ]
    return (topic, None, refused.raw[:DEAD_LETTER_BYTES], timestamp_ms, headers)
