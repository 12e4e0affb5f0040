"""A program that runs beside a test and ends with it, also when the test is killed with -9."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from fleetpulse.ingest import _watchdog

HOST = "127.0.0.1"
# Below the range that Linux takes ports of outgoing connections from: a port stays ours while its server is down.
PORTS = range(20_000, 32_000)


class MissingError(Exception):
    """What a conformance test needs is not there; the text says what, so that the test can be skipped with it."""


class Watched:
    """A running program under ingest/_watchdog.py. Its output is appended to `log`."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", _watchdog.__file__, str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        assert self._watchdog.stdout is not None
        first = self._watchdog.stdout.readline()
        if not first:
            self._watchdog.wait()
            raise AssertionError(f"{command[0]} could not be started: {self.tail()}")
        self.pid = int(first)

    @property
    def running(self) -> bool:
        return self._watchdog.poll() is None

    def tail(self, lines: int = 30) -> str:
        """The end of what it has printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._end(signal.SIGKILL, 10.0)

    def terminate(self, timeout_s: float) -> None:
        """Ask it to end, as an operator does, and wait; kill it when it takes longer."""
        self._end(signal.SIGTERM, timeout_s)

    def _end(self, number: signal.Signals, timeout_s: float) -> None:
        if self.running:
            # The watchdog is the parent and waits for it: the id is not given to another process before.
            os.kill(self.pid, number)
            try:
                self._watchdog.wait(timeout_s)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, signal.SIGKILL)
                self._watchdog.wait()
        for pipe in (self._watchdog.stdin, self._watchdog.stdout):
            if pipe is not None:
                pipe.close()


def free_port(chance: Random) -> int:
    """A port of the loopback address that nobody listens on."""
    for _ in range(100):
        port = chance.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no free port of {HOST} among {PORTS}")


def cache_folder() -> Path:
    """Where downloads and builds are kept between runs: FLEETPULSE_TEST_CACHE, else ~/.cache/fleetpulse."""
    return GIVEN_CACHE or Path.home() / ".cache" / "fleetpulse"


# Taken out of the environment at once: programs under test refuse FLEETPULSE_* names that are no settings.
_given = os.environ.pop("FLEETPULSE_TEST_CACHE", None)
GIVEN_CACHE = Path(_given) if _given else None
