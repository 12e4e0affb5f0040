"""`fleetpulse demo`: the options; the demo itself is _demo.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo_command(
    seconds: Annotated[
        int | None,
        typer.Option("--seconds", min=30, help="End by itself after this long; 150 is enough to see everything."),
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=4, max=2000, help="Nodes of the simulated fleet.")] = 60,
    capture: Annotated[
        Path | None, typer.Option("--capture", help="Replay this recording instead of the one that comes along.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Use this broker instead of an embedded one.")
    ] = None,
    redis: Annotated[
        str | None, typer.Option("--redis", metavar="URL", help="Use this Redis instead of an embedded one.")
    ] = None,
    logs: Annotated[Path | None, typer.Option("--logs", help="Keep the logs of the parts in this folder.")] = None,
) -> None:
    """See the whole job on this machine: services, a worker, three sources of telemetry, and what comes out.

    Starts an embedded broker and Redis, one worker, the sampler on this machine, a recorded cluster re-timed to now,
    and a simulated fleet in which two nodes fail. Shows the nodes live and the anomalies with reasons. Ctrl-C ends it.
    The exit code is 0 only when vectors of every source were published and both faults were flagged.
    """
    from fleetpulse.ingest._demo import run_demo

    raise typer.Exit(run_demo(seconds=seconds, nodes=nodes, capture=capture, kafka=kafka, redis_url=redis, logs=logs))
