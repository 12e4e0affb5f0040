"""The kernel that finds each ResourceMetrics of a request and its resource, and looks at nothing else."""

# Numba infers and checks the types of kernels; to mypy its int64 is neither int nor NumPy's scalar.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from fleetpulse.ingest._decode_scan import find_blob, find_message
from fleetpulse.ingest._decode_table import RESOURCE_METRICS, T_VALUE, UNKNOWN
from fleetpulse.ingest._decode_wire import (
    GROW,
    LENGTH,
    M_RESOURCE,
    WIRE_TYPE,
    I64Array,
    U8Array,
    fail,
    kernel,
    read_field,
)

F_RESOURCE, F_START, F_STOP, F_COLUMNS = range(4)
"""Columns of an entry: the resource's id, and where the field of its ResourceMetrics begins and ends."""


@kernel
def find_entries(raw: U8Array, state: I64Array, blobs: I64Array, new_blobs: I64Array, entries: I64Array) -> int:
    """Fill entries, as many as state[RESOURCE_METRICS] says. Returns 0 or a negative code of _decode_wire.

    blobs: the resources that are known. Others are checked and noted in new_blobs, as many as state[NEW_BLOBS] says;
    the id of such a one is UNKNOWN. state[IRREGULAR] counts resources in several pieces, which are not looked up.
    """
    stop = len(raw)
    at = np.int64(0)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        if tag >> 3 == 1:
            if tag & 7 != LENGTH:
                return fail(state, WIRE_TYPE, at)
            start, resource_stop, bad = find_message(raw, body, end, state)
            if bad < 0:
                return bad
            row, _, _, bad = find_blob(raw, start, resource_stop, M_RESOURCE, state, blobs, new_blobs)
            if bad < 0:
                return bad
            n = state[RESOURCE_METRICS]
            if n >= entries.shape[0]:
                return GROW
            entries[n, F_RESOURCE] = UNKNOWN if row == UNKNOWN else blobs[row, T_VALUE] - 1
            entries[n, F_START], entries[n, F_STOP] = at, end
            state[RESOURCE_METRICS] = n + 1
        at = end
    return 0
