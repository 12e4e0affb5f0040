"""`fleetpulse warmup`."""

from __future__ import annotations

import time

from rich.console import Console


def warmup_command() -> None:
    """Compile all kernels into the cache, so that the first worker starts at once. For container images."""
    console = Console(stderr=True)
    started = time.monotonic()
    with console.status("compiling kernels ..."):
        from fleetpulse.ingest._warmup import warm_up

        warm_up()
    console.print(f"kernels are ready after {time.monotonic() - started:.0f} s")
