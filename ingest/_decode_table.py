"""The arrays the scan writes to and reads from: their rows and columns, and the hash tables among them."""

# Numba infers and checks the types of kernels; to mypy its int64 is neither int nor NumPy's scalar.
# mypy: ignore-errors

from __future__ import annotations

from fleetpulse.ingest._decode_wire import I64Array, constants, inlined, kernel

# Counters in `state`.
NUMBERS, HISTOGRAMS, EXPONENTIALS, COUNTS, BOUNDS, POSITIVES, NEGATIVES = range(1, 8)
MISSES, NEW_BLOBS, REJECTED, RESOURCES, UNATTRIBUTED, IRREGULAR, EXPECTED = range(8, 15)
RESOURCE_METRICS = 15
S1, S2, S3, S4 = range(50, 54)
"""The hashes' secret: S1 and S2 of every step, S3 and S4 what a hash begins with."""
(
    C_RESOURCE,
    C_SCOPE,
    C_METRIC_START,
    C_METRIC_STOP,
    C_KIND,
    C_TEMPORALITY,
    C_MONOTONIC,
    C_H1,
    C_H2,
    C_FIRST,
    C_ATTRIBUTES_START,
    C_ATTRIBUTES_STOP,
) = range(38, 50)
"""What the points being read have in common: their metric, the hash of all that is said before their attributes, the
first series found of their resource. And where the present point's attributes are, if they lie side by side; else
stop < start."""
REASON = 16
REASONS = (
    "no_recorded_value",
    "no_value",
    "no_time",
    "future",
    "not_finite",
    "negative",
    "count_range",
    "bucket_layout",
    "bucket_bounds",
    "bucket_sum",
    "scale_range",
    "quantile_range",
    "no_temporality",
    "no_data",
)
(
    R_NO_RECORDED_VALUE,
    R_NO_VALUE,
    R_NO_TIME,
    R_FUTURE,
    R_NOT_FINITE,
    R_NEGATIVE,
    R_COUNT_RANGE,
    R_BUCKET_LAYOUT,
    R_BUCKET_BOUNDS,
    R_BUCKET_SUM,
    R_SCALE_RANGE,
    R_QUANTILE_RANGE,
    R_NO_TEMPORALITY,
    R_NO_DATA,
) = constants(REASON, REASON + len(REASONS))
"""Places of state where refused points are counted."""
COUNTERS = REASON + len(REASONS)
"""The first entries of state, which are 0 when a scan begins."""

# Rows of the output arrays.
N_TIME, N_START, N_VALUE, N_INTEGER, N_ROWS = range(5)
N_SERIES, N_WORDS, N_IS_INT = range(3)
"""Number points are a tuple of arrays, each column of the type that it goes out in: series (n,) int32, words
(N_ROWS, n) int64 and is_int (n,) bool."""
H_SERIES, H_TIME, H_START, H_COUNT, H_TOTAL, H_LOW, H_HIGH, H_COUNT_AT, H_BOUND_AT, H_ROWS = range(10)
E_SCALE, E_ZERO, E_THRESHOLD, E_POSITIVE_OFFSET, E_POSITIVE_AT, E_NEGATIVE_OFFSET, E_NEGATIVE_AT, E_ROWS = range(7, 15)
"""series, times and doubles (as bits) as in features._points; series is -1 - k for the k-th miss. *_AT is where the
point's buckets end in RAGGED."""
G_COUNTS, G_BOUNDS, G_POSITIVE, G_NEGATIVE, G_ROWS = range(5)

# Columns of misses, new blobs and rejected metrics: positions in the request, and what is needed to resolve them.
(
    X_RESOURCE,
    X_SCOPE,
    X_METRIC_START,
    X_METRIC_STOP,
    X_POINT_START,
    X_POINT_STOP,
    X_ATTRIBUTES_START,
    X_ATTRIBUTES_STOP,
    X_KIND,
    X_TEMPORALITY,
    X_MONOTONIC,
    X_PART,
    X_QUANTILE,
    X_H1,
    X_H2,
    X_COLUMNS,
) = range(16)
B_IS_SCOPE, B_START, B_STOP, B_H1, B_H2, B_COLUMNS = range(6)
J_RESOURCE_METRICS_START, J_RESOURCE_METRICS_STOP, J_SCOPE_START, J_SCOPE_STOP, J_METRIC_START, J_METRIC_STOP = range(6)
J_COLUMNS = 6

PART_WHOLE, PART_COUNT, PART_SUM, PART_QUANTILE = constants(4)
"""Which of its series a summary's point stands for."""

# Columns of the hash tables.
T_H1, T_H2, T_VALUE, T_EXTRA, T_COLUMNS = range(5)
"""Open addressing, linear probing, a power of two of rows; T_VALUE is 1 + the value, 0 in an empty row."""
K_H1, K_H2, K_GENERATION, K_COLUMNS = range(4)
"""keys, by series: the hash under which it was seen first, and how often its index was given away before."""
UNKNOWN = -1
NO_NODE = -1
"""T_EXTRA of a resource that names no node; else it is the first series that was found of it, as a hint."""

KIND_GAUGE, KIND_SUM, KIND_HISTOGRAM, KIND_EXPONENTIAL, KIND_SUMMARY = constants(1, 6)


@kernel
def find(table: I64Array, h1: int, h2: int) -> int:
    """The row of table with this hash, or UNKNOWN."""
    mask = table.shape[0] - 1
    row = h1 & mask
    while table[row, T_VALUE] != 0:
        if table[row, T_H1] == h1 and table[row, T_H2] == h2:
            return row
        row = (row + 1) & mask
    return UNKNOWN


@kernel
def insert(table: I64Array, h1: int, h2: int, value: int, extra: int) -> bool:
    """Enter or replace a value. Returns whether the row is new. The table must have an empty row left."""
    mask = table.shape[0] - 1
    row = h1 & mask
    while table[row, T_VALUE] != 0:
        if table[row, T_H1] == h1 and table[row, T_H2] == h2:
            table[row, T_VALUE], table[row, T_EXTRA] = value + 1, extra
            return False
        row = (row + 1) & mask
    table[row, T_H1], table[row, T_H2] = h1, h2
    table[row, T_VALUE], table[row, T_EXTRA] = value + 1, extra
    return True


@kernel
def insert_series(table: I64Array, keys: I64Array, hashes: I64Array) -> int:
    """Enter each row (h1, h2, series) of hashes, and note it in keys as the series' own. Returns how many are new."""
    new = 0
    for i in range(hashes.shape[0]):
        h1, h2, series = hashes[i, 0], hashes[i, 1], hashes[i, 2]
        new += insert(table, h1, h2, series, keys[series, K_GENERATION])
        keys[series, K_H1], keys[series, K_H2] = h1, h2
    return new


@kernel
def insert_all(table: I64Array, hashes: I64Array) -> int:
    """Enter each row (h1, h2) of hashes, without a value. Returns how many are new."""
    new = 0
    for i in range(hashes.shape[0]):
        new += insert(table, hashes[i, 0], hashes[i, 1], 0, 0)
    return new


@kernel
def rehash(old: I64Array, new: I64Array, keys: I64Array) -> int:
    """Enter every row of old whose series still stands into the empty table new. Returns how many those are.

    T_EXTRA of a row is the generation of its series when it was entered, keys[value, K_GENERATION] the present one.
    """
    kept = 0
    for row in range(old.shape[0]):
        value = old[row, T_VALUE] - 1
        if value >= 0 and old[row, T_EXTRA] == keys[value, K_GENERATION]:
            insert(new, old[row, T_H1], old[row, T_H2], value, old[row, T_EXTRA])
            kept += 1
    return kept


@inlined
def find_series(table: I64Array, keys: I64Array, h1: int, h2: int, expected: int) -> int:
    """Index of the series, or UNKNOWN. `expected` is tried first: scrapes repeat their order."""
    if expected < keys.shape[0] and keys[expected, K_H1] == h1 and keys[expected, K_H2] == h2:
        return expected
    row = find(table, h1, h2)
    if row >= 0:
        value = table[row, T_VALUE] - 1
        if table[row, T_EXTRA] == keys[value, K_GENERATION]:
            return value
    return UNKNOWN


@kernel
def mark_refused(misses: I64Array, count: int, refused: I64Array, resolved: I64Array) -> int:
    """Set resolved[i] to -1 for the misses whose hash is in the table refused. Returns how many those are."""
    marked = 0
    for i in range(count):
        if find(refused, misses[i, X_H1], misses[i, X_H2]) != UNKNOWN:
            resolved[i] = -1
            marked += 1
    return marked
