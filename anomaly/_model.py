"""The trained part of a detector, and its bytes."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetpulse.anomaly._archive import ArchiveError, pack, unpack
from fleetpulse.anomaly._forest import Forest
from fleetpulse.anomaly._load import SharedLoad
from fleetpulse.anomaly._summary import energy, summarise, summary_width

F32 = NDArray[np.float32]
MODEL_VERSION = 1
LIBRARIES = ("numpy", "scikit-learn")


class ModelError(ValueError):
    """A model or a memory that does not fit: of another schema, another version, or damaged. The guard and the peers
    serve without it, and a new one is trained."""


@dataclass(frozen=True)
class TrainingData:
    """Deviations of normal vectors to learn from.

    rows: (n, f) float32 in sigmas, NaN for no value; times_ns: (n,) int64; group: (f,) int32, columns that belong
    together. budget_per_row: false alarms that one scored row may cost.
    """

    schema_hash: bytes
    pool: str
    group: NDArray[np.int32]
    rows: F32
    times_ns: NDArray[np.int64]
    budget_per_row: float


@dataclass(frozen=True)
class Model:
    """typical, threshold: the forest's anomaly at the median of held-out rows, and where the budget is met.

    known: (f,) bool, columns that had values in training; others are left out.
    """

    schema_hash: bytes
    pool: str
    group: NDArray[np.int32]
    known: NDArray[np.bool_]
    load: SharedLoad
    forest: Forest
    typical: float
    threshold: float
    rows: int
    from_ns: int
    to_ns: int
    versions: dict[str, str]

    def ratio(self, deviations: F32) -> NDArray[np.float64]:
        """(n,) anomaly of each row of (n, f) deviations: 0 for the typical, 1 at the threshold, and up.

        NaN is left out; the caller has put something pessimistic where a value is missing that used to be there.
        """
        anomaly = self.forest.anomaly(summarise(energy(self.without_load(deviations)), self.group))
        return np.maximum((anomaly - self.typical) / (self.threshold - self.typical), 0.0)

    def without_load(self, deviations: F32) -> F32:
        """(n, f): what the forest sees of each column."""
        return self.load.remove(np.where(self.known, deviations, np.float32(np.nan)).astype(np.float32))

    def to_bytes(self) -> bytes:
        manifest = {
            "kind": "model",
            "version": MODEL_VERSION,
            "schema_hash": self.schema_hash.hex(),
            "pool": self.pool,
            "typical": self.typical,
            "threshold": self.threshold,
            "norm": self.forest.norm,
            "columns": self.forest.columns,
            "rows": self.rows,
            "from_ns": self.from_ns,
            "to_ns": self.to_ns,
            "versions": self.versions,
        }
        forest = self.forest
        arrays: dict[str, NDArray[Any]] = {
            "group": self.group,
            "known": self.known,
            "components": self.load.components,
            "spread": self.load.spread,
            "roots": forest.roots,
            "feature": forest.feature,
            "threshold": forest.threshold,
            "left": forest.left,
            "right": forest.right,
            "path": forest.path,
        }
        return pack(manifest, arrays)

    @classmethod
    def from_bytes(cls, raw: bytes, schema_hash: bytes | None = None) -> Model:
        """Raises ModelError when the bytes are damaged, or of another format, schema or library version.

        schema_hash: that of the catalog in use; None to accept any.
        """
        manifest, arrays = read_archive(raw, "model", MODEL_VERSION, schema_hash)
        try:
            if manifest["versions"] != library_versions():
                raise ModelError(f"trained with {manifest['versions']}, here are {library_versions()}")
            model = cls(
                schema_hash=bytes.fromhex(manifest["schema_hash"]),
                pool=str(manifest["pool"]),
                group=arrays["group"],
                known=arrays["known"],
                load=SharedLoad(arrays["components"], arrays["spread"]),
                forest=Forest(
                    **{name: arrays[name] for name in ("roots", "feature", "threshold", "left", "right", "path")},
                    norm=float(manifest["norm"]),
                    columns=int(manifest["columns"]),
                ),
                typical=float(manifest["typical"]),
                threshold=float(manifest["threshold"]),
                rows=int(manifest["rows"]),
                from_ns=int(manifest["from_ns"]),
                to_ns=int(manifest["to_ns"]),
                versions=dict(manifest["versions"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"a model with a part missing or misplaced: {error}") from None
        if not model._is_sound():
            raise ModelError("a model whose parts do not fit each other")
        return model

    def _is_sound(self) -> bool:
        columns = len(self.group)
        arrays = (self.load.components, self.load.spread, self.known, self.group)
        dtypes = [array.dtype for array in arrays] == [np.float32, np.float32, np.bool_, np.int32]
        shapes = self.known.shape == self.load.spread.shape == self.load.components.shape[1:] == (columns,)
        width = summary_width(self.group)
        return (
            dtypes
            and shapes
            and self.forest.columns == width
            and self.forest.is_sound()
            and self.threshold > self.typical
        )


def read_archive(
    raw: bytes, kind: str, wanted_version: int, schema_hash: bytes | None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Manifest and arrays of our own bytes, or ModelError with what does not fit."""
    try:
        manifest, arrays = unpack(raw)
    except ArchiveError as error:
        raise ModelError(str(error)) from None
    if manifest.get("kind") != kind or manifest.get("version") != wanted_version:
        raise ModelError(
            f"{manifest.get('kind')} of version {manifest.get('version')}; this is {kind} version {wanted_version}"
        )
    if schema_hash is not None and manifest.get("schema_hash") != schema_hash.hex():
        raise ModelError(f"made for schema {manifest.get('schema_hash')}, the catalog here is {schema_hash.hex()}")
    return manifest, arrays


def library_versions() -> dict[str, str]:
    """What a model's numbers may depend on. The patch level of Python does not."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{library: version(library) for library in LIBRARIES}}
