"""Who may import whom, and what an import costs (design: "The folders and who may import whom")."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

FOLDERS = ("ingest", "features", "anomaly", "compression", "store")

# The folders of ours that each may import. `store` reads the schema and the vector of `features`, no more.
ARROWS = {
    "compression": set(),
    "features": set(),
    "anomaly": {"features"},
    "store": {"compression", "features"},
    "ingest": {"features", "anomaly", "compression", "store"},
}
STORE_READS_OF_FEATURES = {"_vector", "_catalog", "_series"}

# Modules of others that only some folders may import. A folder that is not named may not.
ONLY_IN = {
    "faust": {"ingest"},
    "kafka": {"ingest"},
    "aiokafka": {"ingest"},
    "opentelemetry": {"ingest"},
    "psutil": {"ingest"},
    "pydantic_settings": {"ingest"},
    "prometheus_client": {"ingest"},
    "typer": {"ingest"},
    "rich": {"ingest"},
    "redis": {"ingest", "store"},
    "sklearn": {"ingest", "anomaly"},
    "numba": {"ingest", "features", "anomaly", "compression"},
}
COMPRESSION_MAY_IMPORT = {"numpy", "numba", "fleetpulse"}

# The environment and the wall clock: dotted names that only ingest may use. The store judges a vector's age at the
# time of the read, so its reader has the one clock outside ingest.
ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.putenv"}
WALL_CLOCK = {
    "time.time",
    "time.time_ns",
    "time.localtime",
    "time.gmtime",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
}

# Public names, frozen: a package's entry is its whole `__all__`.
PUBLIC: dict[str, set[str]] = {
    "anomaly": {
        "Detector",
        "DetectorSettings",
        "Event",
        "EventError",
        "Model",
        "ModelError",
        "Reason",
        "Slide",
        "TrainingData",
        "VERDICTS",
        "train",
    },
    "compression": {
        "Chunk",
        "ChunkError",
        "Column",
        "GorillaAppender",
        "SeriesLabels",
        "Sizes",
        "chunk_sizes",
        "column_bits",
        "decode_chunk",
        "encode_chunk",
        "gorilla_decode",
        "gorilla_decode_many",
        "gorilla_encode",
        "gorilla_encode_many",
    },
    "features": {
        "Added",
        "Catalog",
        "CatalogError",
        "ExponentialPoints",
        "Feature",
        "FleetState",
        "HistogramPoints",
        "NodeId",
        "NodeVector",
        "NumberPoints",
        "Points",
        "Series",
        "SeriesTable",
        "Status",
        "VectorError",
    },
    "store": {
        "AmbiguousNodeError",
        "AsyncFeatureStore",
        "ClusterReading",
        "FeatureStore",
        "FeatureValue",
        "FeatureWriter",
        "Freshness",
        "NodeReading",
        "SchemaMismatchError",
        "Status",
        "StoreAccessError",
        "StoreAddressError",
        "StoreDataError",
        "StoreError",
        "StoreUnreachableError",
        "Verdict",
        "WriterCounts",
    },
    "ingest": {"KafkaMetricExporter"},
}


def _folder(name: str) -> Path:
    """Where the package's files are: in the tree, or in an installed wheel."""
    file = importlib.import_module(f"fleetpulse.{name}").__file__
    assert file is not None
    return Path(file).parent


@cache
def _sources(folder: str) -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in sorted(_folder(folder).glob("**/*.py"))]


def _imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported, anywhere in the file; names after `from` are appended."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base]).rstrip(".")
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def _uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every attribute looked up and every name imported, aliases of modules resolved."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            words: list[str] = []
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                words.insert(0, inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name):
                yield node.lineno, ".".join([known.get(inner.id, inner.id), *words])


def _wrong_imports(folder: str, tree: ast.AST) -> list[str]:
    wrong = []
    for line, name in _imports(tree, f"fleetpulse.{folder}"):
        words = name.split(".")
        if words[0] == "fleetpulse":
            other = words[1] if len(words) > 1 else ""
            if other != folder and other not in ARROWS[folder]:
                wrong.append(f"line {line}: {folder} may not import {name}")
            if (
                folder == "store"
                and other == "features"
                and words[2:]
                and (words[2].startswith("_") and words[2] not in STORE_READS_OF_FEATURES)
            ):
                wrong.append(f"line {line}: store may import features' schema and vector only, not {name}")
        elif words[0] in FOLDERS and words[0] not in sys.stdlib_module_names:
            wrong.append(f"line {line}: {name} is imported as fleetpulse.{name}")
        elif folder not in ONLY_IN.get(words[0], {folder}):
            wrong.append(f"line {line}: {folder} may not import {words[0]}")
        elif (
            folder == "compression"
            and words[0] not in sys.stdlib_module_names
            and words[0] not in COMPRESSION_MAY_IMPORT
        ):
            wrong.append(f"line {line}: compression may import numpy and numba only, not {words[0]}")
    return wrong


def _wrong_uses(folder: str, tree: ast.AST) -> list[str]:
    """Uses of the environment and the clock outside ingest; the store may read the clock."""
    if folder == "ingest":
        return []
    forbidden = ENVIRONMENT if folder == "store" else ENVIRONMENT | WALL_CLOCK
    return [f"line {line}: {folder} may not use {name}" for line, name in _uses(tree) if name in forbidden]


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_follow_the_arrows(folder: str) -> None:
    wrong = [f"{path.name} {text}" for path, tree in _sources(folder) for text in _wrong_imports(folder, tree)]
    assert wrong == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_only_ingest_reads_environment_and_clock(folder: str) -> None:
    wrong = [f"{path.name} {text}" for path, tree in _sources(folder) for text in _wrong_uses(folder, tree)]
    assert wrong == []


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("compression", "from fleetpulse.features._points import Points"),
        ("compression", "import scipy.stats"),
        ("features", "import fleetpulse.anomaly"),
        ("features", "from ..anomaly import Detector"),
        ("features", "from fleetpulse import store"),
        ("features", "def f():\n    import redis"),
        ("anomaly", "from fleetpulse.store import FeatureStore"),
        ("store", "from fleetpulse.ingest._settings import load_settings"),
        ("store", "from fleetpulse.features._state import FleetState"),
        ("store", "from fleetpulse.features import _state"),
        ("store", "import numba"),
        ("anomaly", "import faust.app"),
        ("ingest", "from features import Catalog"),
    ],
)
def test_a_forbidden_import_is_seen(folder: str, line: str) -> None:
    assert len(_wrong_imports(folder, ast.parse(line))) == 1


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("features", "import gzip, numpy, numba.core"),
        ("anomaly", "from fleetpulse.features import NodeVector"),
        ("store", "from fleetpulse.features._vector import NodeVector"),
        ("store", "from fleetpulse.compression import decode_chunk"),
        ("compression", "from . import _bits"),
        ("ingest", "from fleetpulse.store import FeatureStore"),
    ],
)
def test_an_allowed_import_is_let_through(folder: str, line: str) -> None:
    assert _wrong_imports(folder, ast.parse(line)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['A']",
        "import os as system\nsystem.getenv('A')",
        "from os import environ",
        "import time\nt = time.time()",
        "import time\nclock = time.time_ns",
        "from time import time",
        "from datetime import datetime\ndatetime.now()",
        "import datetime as dt\ndt.datetime.utcnow()",
    ],
)
def test_a_look_at_environment_or_clock_is_seen(text: str) -> None:
    assert len(_wrong_uses("features", ast.parse(text))) == 1
    assert _wrong_uses("ingest", ast.parse(text)) == []


def _python(code: str, *, cwd: Path | None = None) -> str:
    """Standard output of a fresh interpreter that does not look into its current folder for modules."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_reading_side_loads_neither_faust_nor_numba_nor_sklearn() -> None:
    loaded = _python(
        "import sys, fleetpulse.store; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ).split()
    heavy = {"faust", "mode", "numba", "llvmlite", "sklearn", "scipy", "kafka", "aiokafka", "opentelemetry", "psutil"}
    assert heavy & set(loaded) == set()


def test_public_names_of_the_reading_side_can_be_fetched_without_numba() -> None:
    code = """
import sys, fleetpulse.store as store
for name in getattr(store, "__all__", ()): getattr(store, name)
print('numba' in sys.modules, 'faust' in sys.modules)
"""
    assert _python(code).split() == ["False", "False"]


def test_gzip_works_beside_our_compression_from_the_repository_root() -> None:
    root = Path(__file__).parent.parent
    if not (root / "compression").is_dir():
        pytest.skip("the tests run without the tree beside them")
    code = """
import fleetpulse.compression, gzip, zlib
assert gzip.decompress(gzip.compress(b'ours')) == b'ours'
print(gzip.__file__)
"""
    assert str(root / "compression") not in _python(code, cwd=root)


def test_no_plain_folder_of_ours_can_be_imported() -> None:
    code = """
import importlib.util
print(*(name for name in ('ingest', 'features', 'anomaly', 'store') if importlib.util.find_spec(name)))
"""
    assert _python(code, cwd=Path(__file__).parent.parent).split() == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_public_names(folder: str) -> None:
    package = importlib.import_module(f"fleetpulse.{folder}")
    names = set(getattr(package, "__all__", ()))
    missing = [name for name in names if not hasattr(package, name)]
    assert missing == []
    assert names == PUBLIC[folder]
