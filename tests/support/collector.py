"""The OpenTelemetry Collector, built once from Go modules of one release, and run with given configuration files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from support.go_program import go_program
from support.watched import Watched

SOURCE = Path(__file__).with_name("collector")
START_S_MAX = 60.0
STOP_S_MAX = 15.0
READY = "Everything is ready."


def collector_binary() -> Path:
    """The program. Raises MissingError when it cannot be built."""
    return go_program(SOURCE, "otelcol")


class Collector(Watched):
    """A running Collector; `log` keeps what it says."""

    def await_ready(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while READY not in self.log.read_text(errors="replace"):
            assert self.running, f"the Collector ended:\n{self.tail()}"
            assert time.monotonic() < deadline, f"the Collector is not ready in {START_S_MAX:.0f} s:\n{self.tail()}"
            time.sleep(0.1)


@contextlib.contextmanager
def collector(configs: Sequence[Path], environment: Mapping[str, str], folder: Path) -> Iterator[Collector]:
    """A Collector with these configuration files, the later over the earlier. At the end it is asked to flush and stop.

    Its environment is `environment` and no more, as in a container. Raises MissingError when it cannot be built.
    """
    binary = collector_binary()
    words = [str(binary), *(f"--config=file:{path}" for path in configs)]
    program = Collector(words, folder / "collector.log", {"PATH": os.environ["PATH"], **environment}, folder)
    try:
        program.await_ready()
        yield program
    finally:
        program.terminate(STOP_S_MAX)
