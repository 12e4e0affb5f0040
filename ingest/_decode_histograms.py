"""Kernels that read one point of a histogram each, explicit or exponential. See _decode_points."""

# Numba infers and checks the types of kernels; to mypy its int64 is neither int nor NumPy's scalar.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from fleetpulse.ingest._decode_points import (
    EXEMPLAR_DEPTH,
    ZERO,
    close_runs,
    is_below_zero,
    is_finite,
    join_run,
    known_start,
    refuse,
    series_of,
    wrong_time,
)
from fleetpulse.ingest._decode_table import (
    BOUNDS,
    C_H1,
    C_H2,
    COUNTS,
    E_NEGATIVE_AT,
    E_NEGATIVE_OFFSET,
    E_POSITIVE_AT,
    E_POSITIVE_OFFSET,
    E_SCALE,
    E_THRESHOLD,
    E_ZERO,
    EXPONENTIALS,
    G_BOUNDS,
    G_COUNTS,
    G_NEGATIVE,
    G_POSITIVE,
    H_BOUND_AT,
    H_COUNT,
    H_COUNT_AT,
    H_HIGH,
    H_LOW,
    H_SERIES,
    H_START,
    H_TIME,
    H_TOTAL,
    HISTOGRAMS,
    IRREGULAR,
    NEGATIVES,
    PART_WHOLE,
    POSITIVES,
    R_BUCKET_BOUNDS,
    R_BUCKET_LAYOUT,
    R_BUCKET_SUM,
    R_COUNT_RANGE,
    R_SCALE_RANGE,
)
from fleetpulse.ingest._decode_wire import (
    GROW,
    M_BUCKETS,
    M_EXEMPLAR,
    M_EXPONENTIAL_POINT,
    M_HISTOGRAM_POINT,
    TRUNCATED,
    WIRE_TYPE,
    bits_to_float,
    check,
    fail,
    inlined,
    is_wrong_wire,
    kernel,
    load,
    read_field,
    read_varint,
)

SCALE_MIN, SCALE_MAX = -11, 20
"""At -11 two buckets span all of float64; no SDK goes above 20."""
INT32_MAX = 2**31 - 1
NAN_BITS = 0x7FF8000000000000


@inlined
def finite_or_nan(bits: int) -> int:
    return bits if is_finite(bits) else NAN_BITS


@inlined
def zigzag(value: int) -> int:
    """The sint32 of a varint, of which the lower 32 bits count."""
    word = value & 0xFFFFFFFF
    return (word >> 1) ^ -(word & 1)


@inlined
def take_fixed64(raw, at, body, end, ragged, row, n, state):
    """Append one or a packed run of 8-byte numbers at ragged[row, n:]. Returns the new n or a code."""
    if (end - body) % 8 != 0:
        return fail(state, TRUNCATED, at)
    if n + (end - body) // 8 > ragged.shape[1]:
        return GROW
    while body < end:
        ragged[row, n] = load(raw, body)
        n += 1
        body += 8
    return n


@inlined
def histogram_point(raw, start, stop, horizon_ns, state, table, keys, heads, ragged, misses):
    """A point of an explicit-bucket histogram."""
    time = start_ns = count = flags = np.int64(0)
    total = low = high = np.int64(NAN_BITS)
    first_count, first_bound = state[COUNTS], state[BOUNDS]
    counts_end, bounds_end = first_count, first_bound
    h1, h2 = state[C_H1], state[C_H2]
    run_start = run_stop = np.int64(-1)
    runs = np.int64(0)
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        number = tag >> 3
        if is_wrong_wire(M_HISTOGRAM_POINT, number, tag & 7):
            return fail(state, WIRE_TYPE, at)
        if number == 6:
            counts_end = take_fixed64(raw, at, body, end, ragged, G_COUNTS, counts_end, state)
            if counts_end < 0:
                return counts_end
        elif number == 7:
            bounds_end = take_fixed64(raw, at, body, end, ragged, G_BOUNDS, bounds_end, state)
            if bounds_end < 0:
                return bounds_end
        elif number == 9:
            run_start, run_stop, runs, h1, h2 = join_run(raw, at, end, run_start, run_stop, runs, h1, h2, state)
        elif number == 8:
            checked = check(raw, body, end, M_EXEMPLAR, EXEMPLAR_DEPTH, state)
            if checked < 0:
                return checked
        elif number == 10:
            flags = read_varint(raw, body, end)[0]
        elif number == 2:
            start_ns = load(raw, body)
        elif number == 3:
            time = load(raw, body)
        elif number == 4:
            count = load(raw, body)
        elif number == 5:
            total = load(raw, body)
        elif number == 11:
            low = load(raw, body)
        elif number == 12:
            high = load(raw, body)
        at = end
    h1, h2 = close_runs(raw, run_start, run_stop, runs, h1, h2, state)
    reason = wrong_time(flags, time, horizon_ns)
    if reason == 0:
        reason = wrong_buckets(count, ragged, first_count, counts_end, first_bound, bounds_end)
    if reason != 0:
        return refuse(raw, start, stop, M_HISTOGRAM_POINT, reason, state)
    series, done = series_of(raw, start, stop, M_HISTOGRAM_POINT, PART_WHOLE, ZERO, h1, h2, state, table, keys, misses)
    if done < 0:
        return done
    n = state[HISTOGRAMS]
    if n >= heads.shape[1]:
        return GROW
    add_head(heads, n, series, time, start_ns, count, total, low, high)
    heads[H_COUNT_AT, n], heads[H_BOUND_AT, n] = counts_end, bounds_end
    state[HISTOGRAMS], state[COUNTS], state[BOUNDS] = n + 1, counts_end, bounds_end
    return done


@inlined
def add_head(heads, n, series, time, start, count, total, low, high):
    """What points of both kinds of histogram have."""
    heads[H_SERIES, n] = series
    heads[H_TIME, n] = time
    heads[H_START, n] = known_start(start, time)
    heads[H_COUNT, n] = count
    heads[H_TOTAL, n] = finite_or_nan(total)
    heads[H_LOW, n] = finite_or_nan(low)
    heads[H_HIGH, n] = finite_or_nan(high)


@inlined
def wrong_buckets(count, ragged, first_count, counts_end, first_bound, bounds_end):
    """The reason to refuse a histogram's buckets; 0 when there is none."""
    if count < 0:
        return R_COUNT_RANGE
    left = count
    for i in range(first_count, counts_end):
        if ragged[G_COUNTS, i] < 0:
            return R_COUNT_RANGE
        # Once below zero it stays there: the counts are more than the count, and their sum may not fit.
        if left >= 0:
            left -= ragged[G_COUNTS, i]
    counts, bounds = counts_end - first_count, bounds_end - first_bound
    if counts != (bounds + 1 if counts > 0 or bounds > 0 else 0):
        return R_BUCKET_LAYOUT
    for i in range(first_bound, bounds_end):
        bound = bits_to_float(ragged[G_BOUNDS, i])
        if not np.isfinite(bound) or (i > first_bound and bound <= bits_to_float(ragged[G_BOUNDS, i - 1])):
            return R_BUCKET_BOUNDS
    return R_BUCKET_SUM if counts > 0 and left != 0 else 0


@kernel
def read_buckets(raw, start, stop, ragged, row, n, state):
    """(offset, end) of a range of an exponential histogram; its counts go to ragged[row, n:end]. end may be a code."""
    offset = np.int64(0)
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return 0, fail(state, end, at)
        number = tag >> 3
        if is_wrong_wire(M_BUCKETS, number, tag & 7):
            return 0, fail(state, WIRE_TYPE, at)
        if number == 1:
            offset = zigzag(read_varint(raw, body, end)[0])
        elif number == 2:
            while body < end:
                count, body = read_varint(raw, body, end)
                if body < 0:
                    return 0, fail(state, body, at)
                if n >= ragged.shape[1]:
                    return 0, GROW
                ragged[row, n] = count
                n += 1
        at = end
    return offset, n


@kernel
def exponential_point(raw, start, stop, horizon_ns, state, table, keys, heads, ragged, misses):
    """A point of an exponential histogram."""
    time = start_ns = count = zero_count = scale = threshold = flags = np.int64(0)
    positive_offset = negative_offset = np.int64(0)
    total = low = high = np.int64(NAN_BITS)
    first_positive, first_negative = state[POSITIVES], state[NEGATIVES]
    positive_end, negative_end = first_positive, first_negative
    has_positive = has_negative = False
    h1, h2 = state[C_H1], state[C_H2]
    run_start = run_stop = np.int64(-1)
    runs = np.int64(0)
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        number = tag >> 3
        if is_wrong_wire(M_EXPONENTIAL_POINT, number, tag & 7):
            return fail(state, WIRE_TYPE, at)
        if number == 1:
            run_start, run_stop, runs, h1, h2 = join_run(raw, at, end, run_start, run_stop, runs, h1, h2, state)
        elif number == 8:
            if has_positive:
                state[IRREGULAR] += 1
            has_positive = True
            positive_offset, positive_end = read_buckets(raw, body, end, ragged, G_POSITIVE, first_positive, state)
            if positive_end < 0:
                return positive_end
        elif number == 9:
            if has_negative:
                state[IRREGULAR] += 1
            has_negative = True
            negative_offset, negative_end = read_buckets(raw, body, end, ragged, G_NEGATIVE, first_negative, state)
            if negative_end < 0:
                return negative_end
        elif number == 11:
            checked = check(raw, body, end, M_EXEMPLAR, EXEMPLAR_DEPTH, state)
            if checked < 0:
                return checked
        elif number == 6:
            scale = zigzag(read_varint(raw, body, end)[0])
        elif number == 10:
            flags = read_varint(raw, body, end)[0]
        elif number == 2:
            start_ns = load(raw, body)
        elif number == 3:
            time = load(raw, body)
        elif number == 4:
            count = load(raw, body)
        elif number == 5:
            total = load(raw, body)
        elif number == 7:
            zero_count = load(raw, body)
        elif number == 12:
            low = load(raw, body)
        elif number == 13:
            high = load(raw, body)
        elif number == 14:
            threshold = load(raw, body)
        at = end
    h1, h2 = close_runs(raw, run_start, run_stop, runs, h1, h2, state)
    reason = wrong_time(flags, time, horizon_ns)
    if reason == 0:
        reason = wrong_ranges(
            count,
            zero_count,
            scale,
            threshold,
            positive_offset + positive_end - first_positive,
            negative_offset + negative_end - first_negative,
            ragged[G_POSITIVE, first_positive:positive_end],
            ragged[G_NEGATIVE, first_negative:negative_end],
        )
    if reason != 0:
        return refuse(raw, start, stop, M_EXPONENTIAL_POINT, reason, state)
    series, done = series_of(
        raw, start, stop, M_EXPONENTIAL_POINT, PART_WHOLE, ZERO, h1, h2, state, table, keys, misses
    )
    if done < 0:
        return done
    n = state[EXPONENTIALS]
    if n >= heads.shape[1]:
        return GROW
    add_head(heads, n, series, time, start_ns, count, total, low, high)
    heads[E_SCALE, n], heads[E_ZERO, n], heads[E_THRESHOLD, n] = scale, zero_count, threshold
    heads[E_POSITIVE_OFFSET, n], heads[E_POSITIVE_AT, n] = positive_offset, positive_end
    heads[E_NEGATIVE_OFFSET, n], heads[E_NEGATIVE_AT, n] = negative_offset, negative_end
    state[EXPONENTIALS], state[POSITIVES], state[NEGATIVES] = n + 1, positive_end, negative_end
    return done


@kernel
def wrong_ranges(count, zero_count, scale, threshold, positive_stop, negative_stop, positive, negative):
    """The reason to refuse an exponential histogram's buckets; 0 when there is none. *_stop: index behind a range."""
    if count < 0 or zero_count < 0:
        return R_COUNT_RANGE
    left = count - zero_count
    for counts in (positive, negative):
        for i in range(len(counts)):
            if counts[i] < 0:
                return R_COUNT_RANGE
            if left >= 0:
                left -= counts[i]
    if scale < SCALE_MIN or scale > SCALE_MAX:
        return R_SCALE_RANGE
    if max(positive_stop, negative_stop) > INT32_MAX or not is_finite(threshold) or is_below_zero(threshold):
        return R_BUCKET_LAYOUT
    return R_BUCKET_SUM if left != 0 else 0
