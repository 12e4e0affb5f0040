"""A worker as a member of a consumer group of Apache Kafka."""

from __future__ import annotations

import signal
from pathlib import Path

from support.pipeline import deploy, wait_until


def test_a_session_timeout_that_the_brokers_refuse_ends_the_worker_with_what_to_do(
    broker: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    deployment = deploy(broker, redis_url, topic_prefix, tmp_path, session_timeout_s="3")
    process = deployment.start_worker()
    try:
        assert process.wait(60) == 2
    finally:
        process.kill()
    said = deployment.log.read_text()
    assert "FLEETPULSE_SESSION_TIMEOUT_S" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_worker_that_has_no_partitions_yet_stops_when_asked(
    broker: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """The first member is suspended, so that the group cannot settle while the second one waits."""
    deployment = deploy(broker, redis_url, topic_prefix, tmp_path, session_timeout_s="60")
    with deployment.worker() as first:
        wait_until(lambda: "worker started" in deployment.log.read_text(), "a member", log=deployment.log)
        first.send_signal(signal.SIGSTOP)
        try:
            second = deployment.start_worker()
            try:
                wait_until(
                    lambda: deployment.log.read_text().count("kernels ready") == 2, "a second", log=deployment.log
                )
                second.send_signal(signal.SIGTERM)
                assert second.wait(20) == 0
            finally:
                second.kill()
        finally:
            first.send_signal(signal.SIGCONT)
