"""The OpenTelemetry Collector, built once from Go modules of one release, and run with given configuration files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from support.watched import MissingError, Watched, cache_folder

SOURCE = Path(__file__).with_name("collector")
BUILD_S_MAX = 1800.0
START_S_MAX = 60.0
STOP_S_MAX = 15.0
READY = "Everything is ready."


def collector_binary() -> Path:
    """The program; compiled when the cache has none of these sources."""
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((SOURCE / name).read_bytes())
    binary = cache_folder() / f"otelcol-{digest.hexdigest()[:12]}"
    if binary.is_file():
        return binary
    go = shutil.which("go")
    if go is None:
        raise MissingError("no go on PATH, which builds the OpenTelemetry Collector")
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=binary.parent) as made:
        work = Path(made)
        for name in ("main.go", "go.mod", "go.sum"):
            shutil.copy(SOURCE / name, work)
        built = subprocess.run(
            [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(work / "otelcol"), "."],
            cwd=work,
            env={**os.environ, "GOFLAGS": "-p=2 -mod=readonly", "CGO_ENABLED": "0", "GOWORK": "off"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_S_MAX,
            check=False,
        )
        said = [line for line in built.stdout.splitlines() if not line.startswith("go: downloading ")]
        assert built.returncode == 0, "the Collector does not build:\n" + "\n".join(said[-30:])
        (work / "otelcol").rename(binary)
    return binary


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
