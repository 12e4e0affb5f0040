"""The models topic read whole: the newest model and detector memory of every pool."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka

from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._topics import kafka_security
from fleetpulse.ingest._transport import ssl_context

QUIET_S = 1.0


async def read_models(settings: Settings) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """(models, memories), each by pool. The topic's keys are model/POOL and memory/POOL; the newest value wins.

    Reads until the topic stays quiet, not to its reported end: a broker may report that end one short.
    """
    security: dict[str, Any] = kafka_security(settings)
    if settings.kafka_security.endswith("SSL"):
        security["ssl_context"] = ssl_context(settings.kafka_ca_file)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=settings.kafka_bootstrap.split(","), auto_offset_reset="earliest", **security
    )
    found: dict[str, dict[str, bytes]] = {"model": {}, "memory": {}}
    await consumer.start()
    try:
        topic = settings.topic("models")
        partitions = consumer.partitions_for_topic(topic) or set()
        if not partitions:
            return {}, {}
        tps = [aiokafka.TopicPartition(topic, partition) for partition in sorted(partitions)]
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        while True:
            batch = await asyncio.wait_for(consumer.getmany(timeout_ms=int(QUIET_S * 1000)), 30.0)
            records = [record for records in batch.values() for record in records]
            if not records:
                return found["model"], found["memory"]
            for record in records:
                kind, _, pool = (record.key or b"").decode().partition("/")
                if kind not in found:
                    continue
                if record.value is None:
                    found[kind].pop(pool, None)
                else:
                    found[kind][pool] = record.value
    finally:
        await consumer.stop()
