"""`make bench [ARGS="store features"]`: every benchmark, or those named; each prints what it is compared to."""

from __future__ import annotations

import importlib
import platform
import sys
from importlib.metadata import version
from pathlib import Path


def main() -> None:
    here = Path(__file__).parent
    known = sorted(path.stem for path in here.glob("*.py") if not path.stem.startswith("_"))
    chosen = sys.argv[1:] or known
    unknown = set(chosen) - set(known)
    if unknown:
        raise SystemExit(f"no benchmark is named {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "scikit-learn", "redis"))
    print(f"Python {platform.python_version()} on {platform.machine()}, {versions}")
    for name in chosen:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"bench.{name}").run()


main()
