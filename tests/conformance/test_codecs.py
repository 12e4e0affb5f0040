"""Both Kafka clients, in every codec, through Apache Kafka."""

from __future__ import annotations

import asyncio
import os

import aiokafka
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

from support.kafka_cluster import KafkaCluster

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
CLIENTS = ("kafka-python", "aiokafka")
# Repetition to compress, and bytes that cannot be; several batches' worth.
VALUES = [bytes([i % 251]) * 2_000 + os.urandom(200) for i in range(300)]


async def _produce_async(bootstrap: str, topic: str, codec: str | None) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        await asyncio.gather(*[await producer.send(topic, value, partition=0) for value in VALUES])


async def _consume_async(bootstrap: str, topic: str) -> list[bytes]:
    got: list[bytes] = []
    async with aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        while len(got) < len(VALUES):
            found = await asyncio.wait_for(consumer.getmany(timeout_ms=10_000), 30)
            assert found, f"nothing more after {len(got)} records"
            got += [record.value for batch in found.values() for record in batch]
    return got


def produce(client: str, bootstrap: str, topic: str, codec: str | None) -> None:
    if client == "aiokafka":
        asyncio.run(_produce_async(bootstrap, topic, codec))
        return
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec)
    for value in VALUES:
        producer.send(topic, value, partition=0)
    producer.flush()
    producer.close()


def consume(client: str, bootstrap: str, topic: str) -> list[bytes]:
    if client == "aiokafka":
        return asyncio.run(_consume_async(bootstrap, topic))
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    got = []
    for record in consumer:
        got.append(record.value)
        if len(got) == len(VALUES):
            break
    consumer.close()
    return got


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("writer", CLIENTS)
def test_each_client_reads_what_each_client_wrote(
    kafka: KafkaCluster, topic_prefix: str, writer: str, codec: str | None
) -> None:
    topic = f"{topic_prefix}.codecs"
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()
    produce(writer, kafka.bootstrap, topic, codec)
    for reader in CLIENTS:
        assert consume(reader, kafka.bootstrap, topic) == VALUES, reader
