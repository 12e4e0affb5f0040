"""`make fuzz [ARGS="--rounds 1000000 --seed 5"]`: damaged requests through decoder and router, until one goes wrong.

Twice, each in a process of its own: the kernels as they are, and with every array index checked. A record that ends its
process, or on which it hangs, is written to .cache/fuzz; everything else that can go wrong is an error with its trace.
Half a minute to two minutes for a million records, after the checked kernels were compiled once.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"
RECORD_BYTES_MAX = 1 << 20
HEAD_BYTES = 16
"""In the file that tells what is being read: the record's number, its size; the record follows."""
SILENCE_S_MAX = 120.0
"""Longest that one record may take, with compiling what it is the first to need."""
GROWTH_MB_MAX = 64


def main() -> None:
    arguments = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=1_000_000, help="records for each of the two (1,000,000)")
    arguments.add_argument("--seed", type=int, default=None, help="of the damage; default: another one each time")
    arguments.add_argument("--child", type=Path, default=None, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.child is not None:
        _fuzz(given.child, given.rounds, given.seed)
        return
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    (CACHE / "fuzz").mkdir(parents=True, exist_ok=True)
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(CACHE / "bounds")}
    results = [
        _watch("kernels as they are", given.rounds, seed, {}),
        _watch("every index checked", given.rounds, seed + 1, checked),
    ]
    raise SystemExit(0 if all(results) else 1)


def _watch(what: str, rounds: int, seed: int, environment: dict[str, str]) -> bool:
    """Whether a child got through all records."""
    print(f"{what}: {rounds:,} records, seed {seed}", flush=True)
    progress = CACHE / "fuzz" / f"progress-{seed}"
    progress.write_bytes(bytes(HEAD_BYTES + RECORD_BYTES_MAX))
    command = [sys.executable, "-X", "faulthandler", "-m", "fuzz", "--child", str(progress)]
    child = subprocess.Popen([*command, "--rounds", str(rounds), "--seed", str(seed)], env=os.environ | environment)
    hangs = False
    number, since = -1, time.monotonic()
    while child.poll() is None:
        time.sleep(0.2)
        now = _read_progress(progress)[0]
        if now != number:
            number, since = now, time.monotonic()
        elif time.monotonic() - since > SILENCE_S_MAX:
            hangs = True
            child.kill()
            child.wait()
    if child.returncode == 0:
        progress.unlink()
        return True
    number, raw = _read_progress(progress)
    progress.unlink()
    kept = CACHE / "fuzz" / f"record-{seed}-{number}.bin"
    kept.write_bytes(raw)
    why = f"no answer for {SILENCE_S_MAX:.0f} s" if hangs else f"exit code {child.returncode}"
    print(f"{what}: {why} at record {number} of seed {seed}, which is in {kept}", flush=True)
    return False


def _read_progress(path: Path) -> tuple[int, bytes]:
    raw = path.read_bytes()
    size = int.from_bytes(raw[8:HEAD_BYTES], "little")
    return int.from_bytes(raw[:8], "little"), raw[HEAD_BYTES : HEAD_BYTES + size]


def _fuzz(progress: Path, rounds: int, seed: int) -> None:
    from support.otlp_fuzz import Fuzz

    fuzz = Fuzz(seed)
    started_mb = 0.0
    with progress.open("r+b") as file, mmap.mmap(file.fileno(), 0) as told:

        def before(number: int, raw: bytes) -> None:
            nonlocal started_mb
            told[8:HEAD_BYTES] = len(raw).to_bytes(8, "little")
            told[HEAD_BYTES : HEAD_BYTES + len(raw)] = raw
            told[:8] = number.to_bytes(8, "little")
            if number == 1 + rounds // 10:
                started_mb = _peak_mb()

        started_s = time.process_time()
        fuzz.run(rounds, before)
        spent_s = time.process_time() - started_s
    growth_mb = _peak_mb() - started_mb
    for outcome, count in fuzz.outcomes.most_common():
        print(f"{count:9,}  {outcome}")
    print(f"{spent_s:.0f} CPU seconds; memory grew by {growth_mb:.0f} MB over the last nine tenths", flush=True)
    assert growth_mb < GROWTH_MB_MAX, f"memory grew by {growth_mb:.0f} MB"


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


main()
