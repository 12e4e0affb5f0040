"""Compiling every kernel before the first record comes, into Numba's cache beside the code."""

from __future__ import annotations

from fleetpulse.anomaly._warmup import warm_up as warm_up_detector
from fleetpulse.compression import decode_chunk
from fleetpulse.features import NodeVector
from fleetpulse.ingest._decode_known import warm_up_tables
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._shard import OfflinePipeline
from fleetpulse.ingest._simulate import Fleet

NODES = 2
STEP_MS = 25_000
STEPS = 16
"""More than a window and a chunk span, so that everything that ever runs has run."""
START_MS = 1_700_000_000_000


def warm_up() -> None:
    """Runs a small simulated fleet through the same code as a worker. About a second when the cache is warm."""
    warm_up_tables()
    pipeline = OfflinePipeline(Settings.model_validate({"chunk_span_s": 60}))
    warm_up_detector(pipeline.catalog)
    fleet = Fleet(NODES, 1, STEP_MS / 1000, (), START_MS)
    for step in range(STEPS):
        for request in fleet.collect(START_MS + step * STEP_MS):
            pipeline.feed(request, START_MS + step * STEP_MS)
    for vector in pipeline.finish().vectors:
        NodeVector.from_bytes(vector.to_bytes())
    for chunk in pipeline.seal_all():
        decode_chunk(chunk.raw)
