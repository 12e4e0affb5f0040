"""Series of a node, put together from the chunks that hold parts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetpulse.ingest._errors import UserError

I64Array = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StoredSeries:
    """labels as a chunk's column has them. times_ns: (n,) int64 increasing, n >= 1; values: (n,) int64 or float64."""

    labels: Mapping[str, str]
    times_ns: I64Array
    values: NDArray[Any]

    @property
    def name(self) -> str:
        return self.labels.get("__name__", "")

    @property
    def unit(self) -> str:
        """UCUM. Of a histogram only sum and extremes are in its own unit, the rest are counts."""
        if self.kind.endswith("histogram") and self.name.endswith((".count", ".bucket", ".zero_count")):
            return "1"
        return self.labels.get("__unit__", "")

    @property
    def kind(self) -> str:
        return self.labels.get("__kind__", "")

    @property
    def counter(self) -> bool:
        """Whether it only rises, or counts what came since the sample before; parts of a histogram do as well."""
        if "__monotonic__" in self.labels:
            return True
        return self.kind.endswith("histogram") and not self.name.endswith((".min", ".max"))

    @property
    def delta(self) -> bool:
        return self.labels.get("__monotonic__") == "delta"

    @property
    def own_labels(self) -> dict[str, str]:
        """Labels that are neither the name nor said of the whole metric."""
        return {name: value for name, value in self.labels.items() if not name.startswith("__")}


def load_series(chunks: Sequence[bytes], since_ns: int) -> list[StoredSeries]:
    """All series of the chunks with samples at or after since_ns, sorted by name and labels.

    Of a sample that two chunks hold, the one of the first chunk stays. Raises UserError for a damaged chunk.
    """
    from fleetpulse.compression import ChunkError, decode_chunk

    parts: dict[tuple[tuple[str, str], ...], list[tuple[I64Array, NDArray[Any]]]] = {}
    for raw in chunks:
        try:
            chunk = decode_chunk(raw)
        except ChunkError as error:
            raise UserError(f"a chunk in Redis is damaged ({error}): a later one will replace it") from None
        for column in chunk.columns:
            recent = column.times_ns >= since_ns
            if recent.any():
                identity = tuple(sorted(column.labels.items()))
                parts.setdefault(identity, []).append((column.times_ns[recent], column.values[recent]))
    found = []
    for identity, several in parts.items():
        times_ns = np.concatenate([times for times, _ in several])
        if len({values.dtype for _, values in several}) > 1:
            # A series that changed between integers and floating point: exact as long as the integers fit.
            several = [(times, values.astype(np.float64)) for times, values in several]
        values = np.concatenate([values for _, values in several])
        times_ns, first = np.unique(times_ns, return_index=True)
        found.append(StoredSeries(dict(identity), times_ns, values[first]))
    return sorted(found, key=lambda one: (one.name, sorted(one.labels.items())))


def as_rate(series: StoredSeries) -> StoredSeries:
    """Change per second between samples, at the later one's time; NaN where a counter fell, which is a restart.

    Integers are subtracted as integers. A series of one sample has no rate: its only value becomes NaN.
    """
    unit = f"{series.unit}/s" if series.unit not in ("", "1") else "1/s"
    said = {"__unit__": unit, "__kind__": "gauge"}
    labels = {name: value for name, value in series.labels.items() if name != "__monotonic__"} | said
    if len(series.times_ns) < 2:
        return StoredSeries(labels, series.times_ns, np.full(len(series.times_ns), np.nan))
    seconds = np.diff(series.times_ns) / 1e9
    change = series.values[1:].astype(np.float64) if series.delta else np.diff(series.values).astype(np.float64)
    rate = np.where(change < 0, np.nan, change / seconds)
    return StoredSeries(labels, series.times_ns[1:], rate)


def telling_labels(several: Sequence[StoredSeries]) -> list[dict[str, str]]:
    """Of each series, the labels that are not the same in all of them."""
    own = [one.own_labels for one in several]
    names = sorted({name for labels in own for name in labels})
    telling = [name for name in names if len({labels.get(name) for labels in own}) > 1]
    return [{name: labels[name] for name in telling if name in labels} for labels in own]
