"""The kernel that turns a request's bytes into columns, without an object per point.

One pass in the order of the bytes. A series is recognised by the hash of what its bytes say of its identity, in the
order in which they say it; a hash that is not known yet is noted as a miss, which the Decoder resolves. Everything is
checked on the way: a request is either read to its last byte or refused.
"""

# Numba infers and checks the types of kernels; to mypy its int64 is neither int nor NumPy's scalar.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from fleetpulse.ingest._decode_histograms import exponential_point, histogram_point
from fleetpulse.ingest._decode_points import number_point, summary_point
from fleetpulse.ingest._decode_table import (
    B_H1,
    B_H2,
    B_IS_SCOPE,
    B_START,
    B_STOP,
    C_FIRST,
    C_H1,
    C_H2,
    C_KIND,
    C_METRIC_START,
    C_METRIC_STOP,
    C_MONOTONIC,
    C_RESOURCE,
    C_SCOPE,
    C_TEMPORALITY,
    COUNTERS,
    EXPECTED,
    IRREGULAR,
    J_METRIC_START,
    J_METRIC_STOP,
    J_RESOURCE_METRICS_START,
    J_RESOURCE_METRICS_STOP,
    J_SCOPE_START,
    J_SCOPE_STOP,
    KIND_EXPONENTIAL,
    KIND_GAUGE,
    KIND_HISTOGRAM,
    KIND_SUM,
    KIND_SUMMARY,
    NEW_BLOBS,
    NO_NODE,
    NUMBERS,
    R_NO_DATA,
    R_NO_TEMPORALITY,
    REASON,
    REJECTED,
    RESOURCE_METRICS,
    RESOURCES,
    S1,
    S2,
    S3,
    S4,
    T_EXTRA,
    T_VALUE,
    UNATTRIBUTED,
    UNKNOWN,
    find,
)
from fleetpulse.ingest._decode_wire import (
    GROW,
    LENGTH,
    M_KEY_VALUE,
    M_METRIC,
    M_RESOURCE,
    M_RESOURCE_METRICS,
    M_SCOPE,
    UNREADY,
    UTF8,
    VARINT,
    WIRE_TYPE,
    I64Array,
    U8Array,
    check,
    constants,
    fail,
    hash_range,
    inlined,
    is_utf8,
    kernel,
    mix,
    read_field,
    read_varint,
)

D_RESOURCE_METRICS, D_RESOURCE, D_SCOPE, D_METADATA = constants(1, 5)
D_METRIC = D_SCOPE
"""How many messages contain these."""
POINT_TAG = np.uint8(0x0A)


@kernel
def scan(
    raw, horizon_ns, first_number, state, blobs, table, keys, numbers, histograms, exponentials, ragged, misses,
    new_blobs, rejected, resources,
):  # fmt: skip
    """Read a whole request. Returns how many points were refused, or a negative code of _decode_wire.

    horizon_ns: a point later than this is refused. first_number: where the number points begin in their arrays.
    blobs, table, keys: what is known, see _decode_table. The others are outputs, filled as far as the counters in state
    say. Resources and scopes that are not in blobs yet are noted in new_blobs; then, and when state[IRREGULAR] counts
    messages that come in several pieces, the code is UNREADY and nothing else that was put out is of use.
    resources: (n,) the ids of the resources that name a node, in order.
    """
    for i in range(COUNTERS):
        state[i] = 0
    state[NUMBERS] = first_number
    stop = len(raw)
    at = np.int64(0)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        if tag >> 3 == 1:
            if tag & 7 != LENGTH:
                return fail(state, WIRE_TYPE, at)
            state[RESOURCE_METRICS] += 1
            bad = scan_resource_metrics(
                raw, body, end, horizon_ns, state, blobs, table, keys, numbers, histograms, exponentials, ragged,
                misses, new_blobs, rejected, resources,
            )  # fmt: skip
            if bad < 0:
                return bad
        at = end
    if state[NEW_BLOBS] != 0 or state[IRREGULAR] != 0:
        return UNREADY
    refused = np.int64(0)
    for i in range(REASON, COUNTERS):
        refused += state[i]
    return refused


@kernel
def find_blob(raw, start, stop, message, state, blobs, new_blobs):
    """(row in blobs or UNKNOWN, its hash in two halves, 0 or a code). An unknown one is checked and noted."""
    h1, h2 = hash_range(raw, start, stop, message ^ state[S3], message ^ state[S4], state[S1], state[S2])
    row = find(blobs, h1, h2)
    if row == UNKNOWN:
        bad = check(raw, start, stop, message, D_SCOPE if message == M_SCOPE else D_RESOURCE, state)
        if bad < 0:
            return row, h1, h2, bad
        n = state[NEW_BLOBS]
        if n >= new_blobs.shape[0]:
            return row, h1, h2, GROW
        new_blobs[n, B_IS_SCOPE] = message == M_SCOPE
        new_blobs[n, B_START], new_blobs[n, B_STOP] = start, stop
        new_blobs[n, B_H1], new_blobs[n, B_H2] = h1, h2
        state[NEW_BLOBS] = n + 1
    return row, h1, h2, 0


@kernel
def find_message(raw: U8Array, start: int, stop: int, state: I64Array) -> tuple[int, int, int]:
    """(start, stop, 0 or a code) of field 1 of a ResourceMetrics or ScopeMetrics: its resource, its scope.

    Empty where it is left out. Checks the wire types of the fields beside it and the schema URL.
    """
    found_start = found_stop = np.int64(start)
    found = 0
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return 0, 0, fail(state, end, at)
        number = tag >> 3
        if number <= 3:
            if tag & 7 != LENGTH:
                return 0, 0, fail(state, WIRE_TYPE, at)
            if number == 1:
                found += 1
                found_start, found_stop = body, end
            elif number == 3 and not is_utf8(raw, body, end):
                return 0, 0, fail(state, UTF8, at)
        at = end
    if found > 1:
        state[IRREGULAR] += 1
    return found_start, found_stop, 0


@kernel
def scan_resource_metrics(
    raw, start, stop, horizon_ns, state, blobs, table, keys, numbers, histograms, exponentials, ragged,
    misses, new_blobs, rejected, resources,
):  # fmt: skip
    resource_start, resource_stop, bad = find_message(raw, start, stop, state)
    if bad < 0:
        return bad
    row, r1, r2, bad = find_blob(raw, resource_start, resource_stop, M_RESOURCE, state, blobs, new_blobs)
    if bad < 0:
        return bad
    if row != UNKNOWN and blobs[row, T_EXTRA] == NO_NODE:
        state[UNATTRIBUTED] += 1
        return check(raw, start, stop, M_RESOURCE_METRICS, D_RESOURCE_METRICS, state)
    if row != UNKNOWN:
        n = state[RESOURCES]
        if n >= resources.shape[0]:
            return GROW
        resources[n] = blobs[row, T_VALUE] - 1
        state[RESOURCES] = n + 1
        state[C_RESOURCE] = blobs[row, T_VALUE] - 1
        state[C_FIRST] = UNKNOWN
        state[EXPECTED] = blobs[row, T_EXTRA]
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if tag >> 3 == 2:
            bad = scan_scope_metrics(
                raw, body, end, start, stop, r1, r2, horizon_ns, state, blobs, table, keys, numbers, histograms,
                exponentials, ragged, misses, new_blobs, rejected,
            )  # fmt: skip
            if bad < 0:
                return bad
        at = end
    if row != UNKNOWN and state[C_FIRST] != UNKNOWN:
        blobs[row, T_EXTRA] = state[C_FIRST]
    return 0


@kernel
def scan_scope_metrics(
    raw, start, stop, outer_start, outer_stop, r1, r2, horizon_ns, state, blobs, table, keys, numbers, histograms,
    exponentials, ragged, misses, new_blobs, rejected,
):  # fmt: skip
    scope_start, scope_stop, bad = find_message(raw, start, stop, state)
    if bad < 0:
        return bad
    row, c1, c2, bad = find_blob(raw, scope_start, scope_stop, M_SCOPE, state, blobs, new_blobs)
    if bad < 0:
        return bad
    if state[NEW_BLOBS] > 0:
        return 0
    state[C_SCOPE] = blobs[row, T_VALUE] - 1
    h1, h2 = mix(r1, r2, c1, c2, state[S1], state[S2])
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if tag >> 3 == 2:
            before = state[R_NO_TEMPORALITY]
            bad = scan_metric(
                raw, body, end, h1, h2, horizon_ns, state, table, keys, numbers, histograms, exponentials, ragged,
                misses,
            )  # fmt: skip
            if bad < 0:
                return bad
            if state[R_NO_TEMPORALITY] > before:
                n = state[REJECTED]
                if n >= rejected.shape[0]:
                    return GROW
                rejected[n, J_RESOURCE_METRICS_START], rejected[n, J_RESOURCE_METRICS_STOP] = outer_start, outer_stop
                rejected[n, J_SCOPE_START], rejected[n, J_SCOPE_STOP] = start, stop
                rejected[n, J_METRIC_START], rejected[n, J_METRIC_STOP] = body, end
                state[REJECTED] = n + 1
        at = end
    return 0


@kernel
def kind_of(number: int) -> int:
    """The kind of a metric's field; 0 for a field that holds no data."""
    if number == 5:
        return KIND_GAUGE
    if number == 7:
        return KIND_SUM
    if number == 9:
        return KIND_HISTOGRAM
    if number == 10:
        return KIND_EXPONENTIAL
    if number == 11:
        return KIND_SUMMARY
    return np.int64(0)


@kernel
def scan_metric(
    raw, start, stop, h1, h2, horizon_ns, state, table, keys, numbers, histograms, exponentials, ragged, misses
):
    data_start = data_stop = np.int64(-1)
    kind = np.int64(0)
    run_start = run_stop = np.int64(-1)
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        number = tag >> 3
        its_kind = kind_of(number)
        if (its_kind != 0 or number <= 3 or number == 12) and tag & 7 != LENGTH:
            return fail(state, WIRE_TYPE, at)
        if its_kind != 0:
            if kind != 0:
                state[IRREGULAR] += 1
            kind, data_start, data_stop = its_kind, body, end
        else:
            # All that is said beside the data goes into the hash, also what is no part of the identity: it costs
            # little, and whatever comes again has been checked when it came first.
            if at != run_stop:
                if run_start >= 0:
                    h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
                run_start = at
            run_stop = end
            if number <= 3 and not is_utf8(raw, body, end):
                return fail(state, UTF8, at)
            if number == 12:
                bad = check(raw, body, end, M_KEY_VALUE, D_METADATA, state)
                if bad < 0:
                    return bad
        at = end
    if run_start >= 0:
        h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
    if kind == 0:
        state[R_NO_DATA] += 1
        return 0
    points, temporality, monotonic = read_data_head(raw, data_start, data_stop, kind, state)
    if points < 0:
        return points
    if temporality == 0 and kind != KIND_GAUGE and kind != KIND_SUMMARY:
        state[R_NO_TEMPORALITY] += points
        return check(raw, start, stop, M_METRIC, D_METRIC, state)
    h1, h2 = mix(h1, h2, np.int64(kind), np.int64(temporality * 2 + monotonic), state[S1], state[S2])
    state[C_METRIC_START], state[C_METRIC_STOP] = start, stop
    state[C_KIND], state[C_TEMPORALITY], state[C_MONOTONIC] = kind, temporality, monotonic
    state[C_H1], state[C_H2] = h1, h2
    at = data_start
    while at < data_stop:
        tag, body, end = read_point_field(raw, at, data_stop)
        if tag >> 3 == 1:
            if kind <= KIND_SUM:
                bad = number_point(raw, body, end, horizon_ns, state, table, keys, numbers, misses)
            elif kind == KIND_HISTOGRAM:
                bad = histogram_point(raw, body, end, horizon_ns, state, table, keys, histograms, ragged, misses)
            elif kind == KIND_EXPONENTIAL:
                bad = exponential_point(raw, body, end, horizon_ns, state, table, keys, exponentials, ragged, misses)
            else:
                bad = summary_point(raw, body, end, horizon_ns, state, table, keys, numbers, misses)
            if bad < 0:
                return bad
        at = end
    return 0


@inlined
def read_point_field(raw: U8Array, at: int, stop: int) -> tuple[int, int, int]:
    """As read_field, without the call for what is nearly always there: a point of less than 128 bytes."""
    if at + 1 < stop and raw[at] == POINT_TAG and raw[at + 1] < 0x80:
        end = at + 2 + np.int64(raw[at + 1])
        if end <= stop:
            return np.int64(POINT_TAG), at + 2, end
    return read_field(raw, at, stop)


@kernel
def read_data_head(raw: U8Array, start: int, stop: int, kind: int, state: I64Array) -> tuple[int, int, int]:
    """(number of points or a code, temporality, monotonic) of a gauge, sum, histogram or summary.

    temporality: 1 delta, 2 cumulative, 0 anything else.
    """
    points = temporality = monotonic = np.int64(0)
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_point_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at), 0, 0
        number = tag >> 3
        if number == 1:
            if tag & 7 != LENGTH:
                return fail(state, WIRE_TYPE, at), 0, 0
            points += 1
        elif (number == 2 and kind != KIND_GAUGE and kind != KIND_SUMMARY) or (number == 3 and kind == KIND_SUM):
            if tag & 7 != VARINT:
                return fail(state, WIRE_TYPE, at), 0, 0
            value = read_varint(raw, body, end)[0]
            if number == 2:
                temporality = value & 0xFFFFFFFF
                if temporality != 1 and temporality != 2:
                    temporality = np.int64(0)
            else:
                monotonic = np.int64(value != 0)
        at = end
    return points, temporality, monotonic
