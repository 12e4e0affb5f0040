"""Real services for these tests: Apache Kafka, and the OpenTelemetry Collector. Collected only when asked for by path.

Each test is skipped, with the reason, where Java, Maven or Go is missing and the cache holds no result of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.collector import collector_binary
from support.kafka_cluster import KafkaCluster, kafka_cluster
from support.watched import MissingError

HERE = Path(__file__).parent
pytest.register_assert_rewrite("test_e2e_pipeline", "test_transport")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Builds and brokers take minutes: the everyday `pytest` leaves this folder out."""
    invoked = Path(config.invocation_params.dir)
    asked = [(invoked / word.split("::")[0]).resolve() for word in config.args]
    return None if any(path == HERE or HERE in path.parents for path in asked) else True


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One broker of Apache Kafka for the tests that leave it alone; topics of other tests are on it too."""
    try:
        with kafka_cluster() as cluster:
            yield cluster
    except MissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def broker(kafka: KafkaCluster) -> str:
    """In place of the embedded broker, for the everyday tests that are run here too."""
    return kafka.bootstrap


@pytest.fixture(scope="session")
def session_timeout_s() -> str:
    """group.min.session.timeout.ms of a broker that is not told otherwise."""
    return "6"


@pytest.fixture(scope="session")
def otelcol() -> Path:
    """The Collector's program."""
    try:
        return collector_binary()
    except MissingError as missing:
        pytest.skip(str(missing))
