"""The arrays a scan writes into, kept from request to request, and their contents as points."""

from __future__ import annotations

import numpy as np

from fleetpulse.features._points import BoolArray, ExponentialPoints, HistogramPoints, I32Array, NumberPoints, Points
from fleetpulse.ingest._decode_table import (
    B_COLUMNS,
    E_NEGATIVE_AT,
    E_NEGATIVE_OFFSET,
    E_POSITIVE_AT,
    E_POSITIVE_OFFSET,
    E_ROWS,
    E_SCALE,
    E_THRESHOLD,
    E_ZERO,
    EXPONENTIALS,
    G_BOUNDS,
    G_COUNTS,
    G_NEGATIVE,
    G_POSITIVE,
    G_ROWS,
    H_BOUND_AT,
    H_COUNT,
    H_COUNT_AT,
    H_HIGH,
    H_LOW,
    H_ROWS,
    H_SERIES,
    H_START,
    H_TIME,
    H_TOTAL,
    HISTOGRAMS,
    J_COLUMNS,
    MISSES,
    N_ROWS,
    N_SERIES,
    NEW_BLOBS,
    NUMBERS,
    REJECTED,
    RESOURCES,
    X_COLUMNS,
)
from fleetpulse.ingest._decode_wire import I64Array

NUMBERS_AT_ONCE = 2_048
"""Room for number points that is made at a time. Whoever keeps a request's points keeps the room."""
KEPT_BYTES_MAX = 64_000_000
"""Arrays that a single huge request has made larger than this together are given back after it."""


class Output:
    """numbers: see _decode_table; histograms, exponentials, ragged: by row, then point. misses, new_blobs, rejected: by
    entry, then column. resources: (n,). All else int64; rows and columns are named in _decode_table.

    Number points are handed out as they lie here, without a copy: a request's begin at first_number, behind those of
    the requests before it, and arrays that are full are left to those who hold points of them.
    """

    def __init__(self) -> None:
        self.numbers, self._numbers = _numbers(NUMBERS_AT_ONCE)
        self.first_number = 0
        self.histograms = np.empty((H_ROWS, 128), np.int64)
        self.exponentials = np.empty((E_ROWS, 128), np.int64)
        self.ragged = np.empty((G_ROWS, 2_048), np.int64)
        self.misses = np.empty((256, X_COLUMNS), np.int64)
        self.new_blobs = np.empty((64, B_COLUMNS), np.int64)
        self.rejected = np.empty((64, J_COLUMNS), np.int64)
        self.resources = np.empty(64, np.int64)
        self.is_oversized = False

    def grow(self, state: I64Array) -> None:
        """Make the array longer that the scan has found too short; the counters in state tell which."""
        if state[NUMBERS] == len(self.numbers[N_SERIES]):
            size = len(self.numbers[N_SERIES])
            self.numbers, self._numbers = _numbers(size if self.first_number else 4 * size)
            self.first_number = 0
        elif state[HISTOGRAMS] == self.histograms.shape[1]:
            self.histograms = np.empty((H_ROWS, 4 * self.histograms.shape[1]), np.int64)
        elif state[EXPONENTIALS] == self.exponentials.shape[1]:
            self.exponentials = np.empty((E_ROWS, 4 * self.exponentials.shape[1]), np.int64)
        elif state[MISSES] == self.misses.shape[0]:
            self.misses = np.empty((4 * self.misses.shape[0], X_COLUMNS), np.int64)
        elif state[NEW_BLOBS] == self.new_blobs.shape[0]:
            self.new_blobs = np.empty((4 * self.new_blobs.shape[0], B_COLUMNS), np.int64)
        elif state[REJECTED] == self.rejected.shape[0]:
            self.rejected = np.empty((4 * self.rejected.shape[0], J_COLUMNS), np.int64)
        elif state[RESOURCES] == self.resources.shape[0]:
            self.resources = np.empty(4 * self.resources.shape[0], np.int64)
        else:
            self.ragged = np.empty((G_ROWS, 4 * self.ragged.shape[1]), np.int64)
        self.is_oversized = self.nbytes > KEPT_BYTES_MAX

    @property
    def nbytes(self) -> int:
        arrays = (*self.numbers, self.histograms, self.exponentials, self.ragged, self.misses, self.new_blobs)
        return sum(array.nbytes for array in arrays)

    def points(self, counters: list[int], resolved: I64Array | None) -> Points:
        """What the scan has put out, for good. counters: the state's first entries.

        resolved: by miss, its series or -1 for one that was refused, whose points are left out. None: no misses.
        """
        histograms, exponentials = NO_HISTOGRAMS, NO_EXPONENTIALS
        if counters[HISTOGRAMS]:
            histograms = self._histograms(self.histograms[:, : counters[HISTOGRAMS]], resolved)
        if counters[EXPONENTIALS]:
            exponentials = self._exponentials(self.exponentials[:, : counters[EXPONENTIALS]], resolved)
        room, start, stop = self._numbers, self.first_number, counters[NUMBERS]
        numbers = NumberPoints(
            room.series[start:stop],
            room.time_ns[start:stop],
            room.start_ns[start:stop],
            room.value[start:stop],
            room.integer[start:stop],
            room.is_int[start:stop],
        )
        self.first_number = stop
        if len(room.series) - stop < stop - start:
            # Another request like this one would not fit, and be read twice.
            self.numbers, self._numbers = _numbers(len(room.series))
            self.first_number = 0
        return Points(numbers if resolved is None else _resolved_numbers(numbers, resolved), histograms, exponentials)

    def _histograms(self, heads: I64Array, resolved: I64Array | None) -> HistogramPoints:
        kept = _resolve_kept(heads, resolved)
        count_at, counts = _runs(self.ragged[G_COUNTS], heads[H_COUNT_AT], kept)
        bound_at, bounds = _runs(self.ragged[G_BOUNDS], heads[H_BOUND_AT], kept)
        heads = heads.copy() if kept is None else heads[:, kept]
        return HistogramPoints(
            series=heads[H_SERIES].astype(np.int32),
            time_ns=heads[H_TIME],
            start_ns=heads[H_START],
            count=heads[H_COUNT],
            total=heads[H_TOTAL].view(np.float64),
            low=heads[H_LOW].view(np.float64),
            high=heads[H_HIGH].view(np.float64),
            count_at=count_at,
            counts=counts,
            bound_at=bound_at,
            bounds=bounds.view(np.float64),
        )

    def _exponentials(self, heads: I64Array, resolved: I64Array | None) -> ExponentialPoints:
        kept = _resolve_kept(heads, resolved)
        positive_at, positive = _runs(self.ragged[G_POSITIVE], heads[E_POSITIVE_AT], kept)
        negative_at, negative = _runs(self.ragged[G_NEGATIVE], heads[E_NEGATIVE_AT], kept)
        heads = heads.copy() if kept is None else heads[:, kept]
        return ExponentialPoints(
            series=heads[H_SERIES].astype(np.int32),
            time_ns=heads[H_TIME],
            start_ns=heads[H_START],
            count=heads[H_COUNT],
            total=heads[H_TOTAL].view(np.float64),
            low=heads[H_LOW].view(np.float64),
            high=heads[H_HIGH].view(np.float64),
            scale=heads[E_SCALE].astype(np.int32),
            zero_count=heads[E_ZERO],
            zero_threshold=heads[E_THRESHOLD].view(np.float64),
            positive_offset=heads[E_POSITIVE_OFFSET].astype(np.int32),
            positive_at=positive_at,
            positive=positive,
            negative_offset=heads[E_NEGATIVE_OFFSET].astype(np.int32),
            negative_at=negative_at,
            negative=negative,
        )


def _numbers(size: int) -> tuple[tuple[I32Array, I64Array, BoolArray], NumberPoints]:
    """Room for so many number points, and the same memory as points."""
    series, words, is_int = np.empty(size, np.int32), np.empty((N_ROWS, size), np.int64), np.empty(size, np.bool_)
    time_ns, start_ns, value, integer = words
    return (series, words, is_int), NumberPoints(series, time_ns, start_ns, value.view(np.float64), integer, is_int)


def _resolve(series: I32Array | I64Array, resolved: I64Array) -> None:
    """Put the series in place of -1 - miss."""
    missed = series < 0
    series[missed] = resolved[-1 - series[missed]]


def _resolved_numbers(points: NumberPoints, resolved: I64Array) -> NumberPoints:
    _resolve(points.series, resolved)
    kept = points.series >= 0
    if kept.all():
        return points
    return NumberPoints(*(getattr(points, name)[kept] for name in points.__slots__))


def _resolve_kept(heads: I64Array, resolved: I64Array | None) -> BoolArray | None:
    """Put the series in place of misses. Returns which points stay, None for all."""
    if resolved is None:
        return None
    _resolve(heads[H_SERIES], resolved)
    kept = heads[H_SERIES] >= 0
    return None if kept.all() else kept


def _runs(pool: I64Array, ends: I64Array, kept: BoolArray | None) -> tuple[I64Array, I64Array]:
    """(places, values) of the kept points' runs. Run i of pool is what lies between ends[i - 1] and ends[i]."""
    places = np.zeros(len(ends) + 1, np.int64)
    places[1:] = ends
    values = pool[: places[-1]]
    if kept is None:
        return places, values.copy()
    sizes = np.diff(places)
    places = np.zeros(np.count_nonzero(kept) + 1, np.int64)
    np.cumsum(sizes[kept], out=places[1:])
    return places, values[np.repeat(kept, sizes)]


def _frozen(points: HistogramPoints | ExponentialPoints) -> None:
    for name in points.__slots__:
        getattr(points, name).setflags(write=False)


def _none() -> tuple[HistogramPoints, ExponentialPoints]:
    output = Output()
    heads = np.empty((max(H_ROWS, E_ROWS), 0), np.int64)
    return output._histograms(heads, None), output._exponentials(heads, None)


NO_HISTOGRAMS, NO_EXPONENTIALS = _none()
"""What most requests have of these: nothing. Shared, and not to be written to."""
_frozen(NO_HISTOGRAMS)
_frozen(NO_EXPONENTIALS)
NO_POINTS = Points(_numbers(0)[1], NO_HISTOGRAMS, NO_EXPONENTIALS)
