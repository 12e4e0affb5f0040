"""The broker and the Redis server that tests run against: embedded ones, or those whose addresses are given."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import redis

from fleetpulse.ingest._embedded import embedded_broker, embedded_redis

# Taken out of the environment at once: programs under test refuse FLEETPULSE_* names that are no settings.
GIVEN_KAFKA = os.environ.pop("FLEETPULSE_TEST_KAFKA", None)
GIVEN_REDIS = os.environ.pop("FLEETPULSE_TEST_REDIS", None)

EMPTY_DATABASE = 15


@contextlib.contextmanager
def kafka_service() -> Iterator[str]:
    """Bootstrap address of a broker."""
    if GIVEN_KAFKA:
        yield GIVEN_KAFKA
        return
    with embedded_broker() as broker:
        yield broker.bootstrap


@contextlib.contextmanager
def redis_service() -> Iterator[str]:
    """URL of a Redis server, database 0."""
    if GIVEN_REDIS:
        yield GIVEN_REDIS
        return
    with embedded_redis() as server:
        yield server.url


@contextlib.contextmanager
def empty_database(server_url: str) -> Iterator[str]:
    """URL of a database of the server that holds nothing; emptied again at the end.

    A database that is not empty at the start is somebody's: it is left alone, and RuntimeError is raised.
    """
    url = f"{server_url.rsplit('/', 1)[0]}/{EMPTY_DATABASE}"
    client = redis.Redis.from_url(url)
    try:
        held = client.dbsize()
        if held:
            raise RuntimeError(f"{url} holds {held} keys; tests want a Redis whose database {EMPTY_DATABASE} is empty")
        yield url
    finally:
        if not held:
            client.flushdb()
        client.close()


def remove_keys(server_url: str, prefix: str) -> None:
    """Delete every key that begins with the prefix or with its hash-tagged form."""
    with redis.Redis.from_url(server_url) as client:
        for pattern in (f"{prefix}*", f"{{{prefix}*"):
            keys = list(client.scan_iter(match=pattern, count=1000))
            if keys:
                client.delete(*keys)
