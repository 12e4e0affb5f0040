"""Recorded series for the figures of compression, all from tests/data; a set that is not there is an empty list."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetpulse.ingest._otlp_files import read_requests
from fleetpulse.ingest._recorded import RecordedSamples, RecordedSpan
from support.otlp_samples import IDENTITY

DATA = Path(__file__).parents[1] / "data"
HIPSTERSHOP = Path(__file__).parents[2] / "ingest" / "recordings" / "hipstershop-otelmetrics.zst"
HOST = DATA / "captures" / "host-5s.zst"
S_NS = 1_000_000_000
MS_NS = 1_000_000

I64Array = NDArray[np.int64]
F64Array = NDArray[np.float64]


class Timed(NamedTuple):
    """Series of one file that share times_ns (n,), strictly increasing."""

    name: str
    times_ns: I64Array
    values: list[F64Array]


def capture(path: Path, span_s: int) -> list[RecordedSpan]:
    """Every sample of a recording, also of resources that name no node, as the columns of chunks of so many seconds."""
    if not path.is_file():
        return []
    samples = RecordedSamples(identity=IDENTITY, default_cluster="default", span_ns=span_s * S_NS)
    samples.add(request for request, _, _ in read_requests(path))
    assert not samples.refused, samples.refused
    return list(samples.spans())


def cloudwatch() -> list[Timed]:
    """NAB's recordings of Amazon CloudWatch. Of rows with the same time the first stays."""
    files = []
    for path in sorted((DATA / "nab").glob("*.csv.gz")):
        rows = _rows(path, ",")
        stamps = [datetime.fromisoformat(row[0]).replace(tzinfo=UTC).timestamp() for row in rows]
        times, first = np.unique(np.array(stamps, np.int64) * S_NS, return_index=True)
        files.append(
            Timed(path.name.removesuffix(".csv.gz"), times, [np.array([float(row[1]) for row in rows])[first]])
        )
    return files


def bitbrains() -> list[Timed]:
    """The columns of one virtual machine."""
    files = []
    for path in sorted((DATA / "bitbrains").glob("*.csv.gz")):
        rows = _rows(path, ";")
        columns = list(zip(*rows, strict=True))
        values = [np.array(column, np.float64) for column in columns[1:]]
        files.append(Timed(path.name.removesuffix(".csv.gz"), np.array(columns[0], np.int64) * S_NS, values))
    return files


def float_columns() -> list[tuple[str, F64Array]]:
    """The first 1024 values of each column that the ALP paper compresses."""
    paths = sorted((DATA / "floats").glob("*.csv.gz"))
    return [(path.name.removesuffix(".csv.gz"), np.array(_lines(path), np.float64)) for path in paths]


def batches_of(files: Sequence[Timed], n: int) -> list[tuple[I64Array, F64Array]]:
    """(times_ms, values) of n samples each, without what is left at the end of a series."""
    return [
        (file.times_ns[at : at + n] // MS_NS, values[at : at + n])
        for file in files
        for values in file.values
        for at in range(0, len(values) - n + 1, n)
    ]


def _lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().split()


def _rows(path: Path, delimiter: str) -> list[list[str]]:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return list(csv.reader(lines, delimiter=delimiter))[1:]
