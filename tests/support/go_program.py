"""Programs in Go, built once from Go modules and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from support.watched import MissingError, cache_folder

BUILD_S_MAX = 1800.0


def go_program(source: Path, name: str) -> Path:
    """The program of a folder with *.go, go.mod and go.sum; compiled when the cache has none of these sources.

    Raises MissingError when it is not in the cache and there is no Go.
    """
    parts = [*sorted(source.glob("*.go")), source / "go.mod", source / "go.sum"]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes())
    binary = cache_folder() / f"{name}-{digest.hexdigest()[:12]}"
    if binary.is_file():
        return binary
    go = shutil.which("go")
    if go is None:
        raise MissingError(f"no go on PATH, which builds {name}")
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=binary.parent) as made:
        work = Path(made)
        for part in parts:
            shutil.copy(part, work)
        built = subprocess.run(
            [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(work / name), "."],
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
        assert built.returncode == 0, f"{name} does not build:\n" + "\n".join(said[-30:])
        (work / name).rename(binary)
    return binary
