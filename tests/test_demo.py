"""The demo's own processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.pipeline import wait_until


@pytest.mark.e2e
def test_no_part_outlives_a_demo_that_is_killed(broker: str, topic_prefix: str, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import os, sys, time
        from pathlib import Path
        from fleetpulse.ingest._demo import Parts
        part = Parts(dict(os.environ), Path(sys.argv[1])).start("fleet", "simulate", "--nodes", "1")
        print(part.process.pid, flush=True)
        time.sleep(600)
    """)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FLEETPULSE_")} | {
        "FLEETPULSE_KAFKA_BOOTSTRAP": broker,
        "FLEETPULSE_SOURCE_TOPIC": f"{topic_prefix}.otlp",
    }
    demo = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert demo.stdout is not None
    part = int(demo.stdout.readline())
    log = tmp_path / "fleet.log"
    wait_until(lambda: log.stat().st_size > 0, "the simulator's first words", log=log)
    assert _runs(part)
    demo.kill()
    demo.wait()
    demo.stdout.close()
    wait_until(lambda: not _runs(part), "the simulator's end", timeout_s=15, log=log)


def _runs(pid: int) -> bool:
    """A process that nobody has waited for yet counts as ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
