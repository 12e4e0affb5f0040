"""Writing to Kafka through Faust's producer, and waiting until it is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from aiokafka.errors import KafkaError
from faust.exceptions import ProducerSendError

from fleetpulse.ingest._dead_letters import Headers, letter_headers, letter_value
from fleetpulse.ingest._shard import Refused

log = logging.getLogger("fleetpulse.worker")

Message = tuple[str, bytes | None, bytes, int, list[tuple[str, bytes]]]
"""topic, key, value, timestamp in ms, headers."""

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


def dead_letter(
    topic: str, refused: Refused, *, source_topic: str, partition: int, timestamp_ms: int, came_with: Headers
) -> Message:
    """What could not be read, with where it stood and why; the first 64 KiB of it. came_with: its record's headers."""
    headers = letter_headers(
        source_topic, partition, refused.offset, refused.reason, refused.detail, len(refused.raw), came_with
    )
    return (topic, None, letter_value(refused.raw), timestamp_ms, headers)
