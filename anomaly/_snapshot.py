"""A detector's memory as bytes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fleetpulse.anomaly._archive import pack
from fleetpulse.anomaly._event import EventError
from fleetpulse.anomaly._memory import Cells, PoolMemory
from fleetpulse.anomaly._model import ModelError, read_archive
from fleetpulse.anomaly._tracks import Track
from fleetpulse.features._series import NodeId

if TYPE_CHECKING:
    from fleetpulse.anomaly._detector import Detector

MEMORY_VERSION = 1


def save(detector: Detector) -> bytes:
    """Nodes, open events and baselines. Equal detectors give equal bytes."""
    memory = detector.baselines.nodes
    nodes = sorted(memory.row_of)
    rows = np.array([memory.row_of[node] for node in nodes], np.intp)
    manifest = {
        "kind": "memory",
        "version": MEMORY_VERSION,
        "schema_hash": detector.schema_hash.hex(),
        "pool": detector.pool,
        "nodes": [list(node) for node in nodes],
        "deviating": [detector.deviating[node].to_row() for node in sorted(detector.deviating)],
        "silence": [detector.silence.nodes[node].to_row() for node in sorted(detector.silence.nodes)],
        "fleet": detector.fleet.to_row(),
        "fleet_silence": detector.silence.fleet.to_row(),
        "first_ns": detector.first_ns,
        "now_ns": detector.now_ns,
    }
    arrays = {
        **{f"cells.{name}": array for name, array in memory.cells.take(rows).arrays().items()},
        **{f"pool.{name}": array for name, array in detector.baselines.pool.arrays().items()},
        "newest_ns": memory.newest_ns[rows],
    }
    return pack(manifest, arrays)


def load(detector: Detector, raw: bytes) -> None:
    """Put a snapshot into a new detector of the same catalog and pool. Raises ModelError."""
    manifest, arrays = read_archive(raw, "memory", MEMORY_VERSION, detector.schema_hash)
    try:
        _load(detector, manifest, arrays)
    except (KeyError, TypeError, ValueError, IndexError, EventError) as error:
        raise ModelError(f"a memory with a part missing or misplaced: {error}") from None


def _load(detector: Detector, manifest: dict[str, Any], arrays: dict[str, Any]) -> None:
    if manifest["pool"] != detector.pool:
        raise ModelError(f"the memory of pool {manifest['pool']}, not of {detector.pool}")
    nodes = [NodeId(*map(str, node)) for node in manifest["nodes"]]
    columns = detector.baselines.nodes.columns
    fresh = {**_prefixed("cells.", Cells.empty(len(nodes), columns)), **_prefixed("pool.", PoolMemory.empty(columns))}
    for name, array in fresh.items():
        if arrays[name].shape != array.shape or arrays[name].dtype != array.dtype:
            raise ModelError(f"{name} has shape {arrays[name].shape}, needed is {array.shape}")
    memory = detector.baselines.nodes
    rows = memory.rows(nodes)
    memory.cells.put(rows, Cells(**_picked("cells.", arrays)))
    memory.newest_ns[rows] = arrays["newest_ns"]
    detector.baselines.pool = PoolMemory(**_picked("pool.", arrays))
    for tracks, held in (("deviating", detector.deviating), ("silence", detector.silence.nodes)):
        for row in manifest[tracks]:
            track = Track.from_row(row)
            assert track.node is not None
            held[track.node] = track
    detector.fleet = Track.from_row(manifest["fleet"])
    detector.silence.fleet = Track.from_row(manifest["fleet_silence"])
    detector.first_ns = manifest["first_ns"]
    detector.now_ns = manifest["now_ns"]


def _prefixed(prefix: str, memory: Cells | PoolMemory) -> dict[str, Any]:
    return {prefix + name: array for name, array in memory.arrays().items()}


def _picked(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
