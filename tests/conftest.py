"""Services and names that tests share.

FLEETPULSE_TEST_KAFKA (host:port) and FLEETPULSE_TEST_REDIS (redis://host:port/0) name services to use instead of
embedded ones.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support import services

# For tests that leave the number of their examples open.
settings.register_profile("long", max_examples=1_000, deadline=None)

_numbers = itertools.count(1)
_run = uuid.uuid4().hex[:8]


def _unique(word: str) -> str:
    return f"{word}{_run}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Bootstrap address of a Kafka broker; topics of other tests are on it too."""
    with services.kafka_service() as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of a Redis server, database 0; keys of other tests are in it too."""
    with services.redis_service() as url:
        yield url


@pytest.fixture(scope="session")
def session_timeout_s() -> str:
    """The shortest that the broker lets members of a group be silent: it decides how soon they are replaced."""
    return "3"


@pytest.fixture
def topic_prefix() -> str:
    """A first part of topic names (and of consumer groups) that no other test has."""
    return _unique("t")


@pytest.fixture
def redis_prefix(redis_url: str) -> Iterator[str]:
    """A first part of Redis keys that no other test has; its keys are removed afterwards."""
    prefix = _unique("k")
    yield prefix
    services.remove_keys(redis_url, prefix)


@pytest.fixture
def empty_redis(redis_url: str) -> Iterator[str]:
    """URL of a database of its own that holds nothing at the start."""
    with services.empty_database(redis_url) as url:
        yield url
