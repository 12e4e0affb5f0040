"""Kernels that read one data point each: its fields, the rules it has to keep, and its row in the columns.

Each returns the position behind the point or a negative code. A point that breaks a rule is counted under its reason in
`state` and has no row; its bytes are checked to the last field all the same. Rules: see _decode.
"""

# Numba infers and checks the types of kernels; to mypy its int64 is neither int nor NumPy's scalar.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from fleetpulse.ingest._decode_table import (
    BOUNDS,
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
    COUNTS,
    E_NEGATIVE_AT,
    E_NEGATIVE_OFFSET,
    E_POSITIVE_AT,
    E_POSITIVE_OFFSET,
    E_SCALE,
    E_THRESHOLD,
    E_ZERO,
    EXPECTED,
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
    MISSES,
    N_INTEGER,
    N_IS_INT,
    N_SERIES,
    N_START,
    N_TIME,
    N_VALUE,
    NEGATIVES,
    NUMBERS,
    PART_COUNT,
    PART_QUANTILE,
    PART_SUM,
    PART_WHOLE,
    POSITIVES,
    R_BUCKET_BOUNDS,
    R_BUCKET_LAYOUT,
    R_BUCKET_SUM,
    R_COUNT_RANGE,
    R_FUTURE,
    R_NEGATIVE,
    R_NO_RECORDED_VALUE,
    R_NO_TIME,
    R_NO_VALUE,
    R_NOT_FINITE,
    R_QUANTILE_RANGE,
    R_SCALE_RANGE,
    S1,
    S2,
    UNKNOWN,
    X_H1,
    X_H2,
    X_KIND,
    X_METRIC_START,
    X_METRIC_STOP,
    X_MONOTONIC,
    X_PART,
    X_POINT_START,
    X_POINT_STOP,
    X_QUANTILE,
    X_RESOURCE,
    X_SCOPE,
    X_TEMPORALITY,
    find_series,
)
from fleetpulse.ingest._decode_wire import (
    FIXED64,
    GROW,
    LENGTH,
    M_EXEMPLAR,
    M_EXPONENTIAL_POINT,
    M_HISTOGRAM_POINT,
    M_NUMBER_POINT,
    M_SUMMARY_POINT,
    VARINT,
    WIRE_TYPE,
    I64Array,
    U8Array,
    bits_to_float,
    check,
    check_packed,
    constants,
    fail,
    float_to_bits,
    hash_range,
    inlined,
    kernel,
    load,
    mix,
    read_field,
    read_varint,
)

POINT_DEPTH, EXEMPLAR_DEPTH = constants(5, 7)
ZERO = np.int64(0)
START_TAG, TIME_TAG, DOUBLE_TAG, INTEGER_TAG, ATTRIBUTE_TAG = map(np.uint8, (0x11, 0x19, 0x21, 0x31, 0x3A))
"""First bytes of a number point's fields in their shortest form."""
SCALE_MIN, SCALE_MAX = -11, 20
"""At -11 two buckets span all of float64; no SDK goes above 20."""
INT32_MAX = 2**31 - 1
EXPONENT = 0x7FF0000000000000
NAN_BITS = 0x7FF8000000000000


@inlined
def is_finite(bits: int) -> bool:
    return bits & EXPONENT != EXPONENT


@inlined
def finite_or_nan(bits: int) -> int:
    return bits if is_finite(bits) else NAN_BITS


@inlined
def is_below_zero(bits: int) -> bool:
    return bits < 0 and bits << 1 != 0


@inlined
def zigzag(value: int) -> int:
    """The sint32 of a varint, of which the lower 32 bits count."""
    word = value & 0xFFFFFFFF
    return (word >> 1) ^ -(word & 1)


@inlined
def wrong_time(flags: int, time: int, horizon_ns: int) -> int:
    """The reason to refuse a point before its value is looked at; 0 when there is none. time is unsigned."""
    if flags & 1 != 0:
        return R_NO_RECORDED_VALUE
    if time == 0:
        return R_NO_TIME
    if time < 0 or time > horizon_ns:
        return R_FUTURE
    return 0


@inlined
def known_start(start: int, time: int) -> int:
    """0 for a start behind the point's own time: a clock was set back meanwhile, and the start tells nothing."""
    return start if 0 <= start <= time else 0


@kernel
def refuse(raw: U8Array, start: int, stop: int, message: int, reason: int, state: I64Array) -> int:
    state[reason] += 1
    return check(raw, start, stop, message, POINT_DEPTH, state)


@kernel
def series_of(raw, start, stop, message, part, quantile, h1, h2, state, table, keys, misses):
    """(series or -1 - miss, position behind the point or a code). A point of unknown series is checked whole.

    h1, h2: hash of the point's identity. part, quantile: see PART_*; the quantile as bits.
    """
    if part != PART_WHOLE:
        h1, h2 = mix(h1, h2, part, quantile, state[S1], state[S2])
    series = find_series(table, keys, h1, h2, state[EXPECTED])
    if series != UNKNOWN:
        state[EXPECTED] = series + 1
        if state[C_FIRST] == UNKNOWN:
            state[C_FIRST] = series
        return series, stop
    checked = check(raw, start, stop, message, POINT_DEPTH, state)
    if checked < 0:
        return 0, checked
    n = state[MISSES]
    if n >= misses.shape[0]:
        return 0, GROW
    state[MISSES] = n + 1
    misses[n, X_RESOURCE] = state[C_RESOURCE]
    misses[n, X_SCOPE] = state[C_SCOPE]
    misses[n, X_METRIC_START] = state[C_METRIC_START]
    misses[n, X_METRIC_STOP] = state[C_METRIC_STOP]
    misses[n, X_POINT_START] = start
    misses[n, X_POINT_STOP] = stop
    misses[n, X_KIND] = state[C_KIND]
    misses[n, X_TEMPORALITY] = state[C_TEMPORALITY]
    misses[n, X_MONOTONIC] = state[C_MONOTONIC]
    misses[n, X_PART] = part
    misses[n, X_QUANTILE] = quantile
    misses[n, X_H1] = h1
    misses[n, X_H2] = h2
    return -1 - n, stop


@inlined
def add_number(state, numbers, series, time, start, bits, integer, is_int):
    """Append a row. Returns its number or GROW."""
    n = state[NUMBERS]
    if n >= numbers.shape[1]:
        return GROW
    state[NUMBERS] = n + 1
    numbers[N_SERIES, n] = series
    numbers[N_TIME, n] = time
    numbers[N_START, n] = known_start(start, time)
    numbers[N_VALUE, n] = bits
    numbers[N_INTEGER, n] = integer
    numbers[N_IS_INT, n] = is_int
    return n


@inlined
def number_point(raw, start, stop, horizon_ns, state, table, keys, numbers, misses):
    """A point of a gauge or a sum."""
    time = start_ns = word = flags = is_int = np.int64(0)
    has_value = False
    h1, h2 = state[C_H1], state[C_H2]
    run_start = run_stop = np.int64(-1)
    at = np.int64(start)
    while at < stop:
        # The fields of nearly all points, each in its usual form.
        tag = raw[at]
        if at + 9 <= stop:
            if tag == TIME_TAG:
                time = load(raw, at + 1)
                at += 9
                continue
            if tag == ATTRIBUTE_TAG and raw[at + 1] < 0x80:
                end = at + 2 + np.int64(raw[at + 1])
                if end <= stop:
                    if at != run_stop:
                        if run_start >= 0:
                            h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
                        run_start = at
                    run_stop = at = end
                    continue
            elif tag == START_TAG:
                start_ns = load(raw, at + 1)
                at += 9
                continue
            elif tag in (DOUBLE_TAG, INTEGER_TAG):
                word = load(raw, at + 1)
                has_value, is_int = True, np.int64(tag == INTEGER_TAG)
                at += 9
                continue
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        number, wire = tag >> 3, tag & 7
        if number == 7:
            if wire != LENGTH:
                return fail(state, WIRE_TYPE, at)
            # Attributes lie side by side as a rule; each run of them is hashed in one go.
            if at != run_stop:
                if run_start >= 0:
                    h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
                run_start = at
            run_stop = end
        elif number == 3 or number == 2 or number == 4 or number == 6:
            if wire != FIXED64:
                return fail(state, WIRE_TYPE, at)
            if number == 3:
                time = load(raw, body)
            elif number == 2:
                start_ns = load(raw, body)
            else:
                word = load(raw, body)
                has_value, is_int = True, np.int64(number == 6)
        elif number == 8:
            if wire != VARINT:
                return fail(state, WIRE_TYPE, at)
            flags = read_varint(raw, body, end)[0]
        elif number == 5:
            if wire != LENGTH:
                return fail(state, WIRE_TYPE, at)
            checked = check(raw, body, end, M_EXEMPLAR, EXEMPLAR_DEPTH, state)
            if checked < 0:
                return checked
        at = end
    if run_start >= 0:
        h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
    reason = wrong_time(flags, time, horizon_ns)
    if not has_value and reason != R_NO_RECORDED_VALUE:
        reason = R_NO_VALUE
    if reason == 0 and is_int == 0 and not is_finite(word):
        reason = R_NOT_FINITE
    if reason == 0 and state[C_MONOTONIC] != 0 and (word < 0 if is_int != 0 else is_below_zero(word)):
        reason = R_NEGATIVE
    if reason != 0:
        return refuse(raw, start, stop, M_NUMBER_POINT, reason, state)
    series, done = series_of(raw, start, stop, M_NUMBER_POINT, PART_WHOLE, ZERO, h1, h2, state, table, keys, misses)
    if done < 0:
        return done
    bits, integer = (float_to_bits(np.float64(word)), word) if is_int != 0 else (word, ZERO)
    n = add_number(state, numbers, series, time, start_ns, bits, integer, is_int)
    return n if n < 0 else done


@kernel
def summary_point(raw, start, stop, horizon_ns, state, table, keys, numbers, misses):
    """A point of a summary: rows for its count, its sum and each of its quantiles."""
    time = start_ns = count = total = flags = np.int64(0)
    is_int = np.int64(1)
    h1, h2 = state[C_H1], state[C_H2]
    run_start = run_stop = np.int64(-1)
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        number, wire = tag >> 3, tag & 7
        if number == 7 or number == 6:
            if wire != LENGTH:
                return fail(state, WIRE_TYPE, at)
            if number == 7:
                if at != run_stop:
                    if run_start >= 0:
                        h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
                    run_start = at
                run_stop = end
        elif 2 <= number <= 5:
            if wire != FIXED64:
                return fail(state, WIRE_TYPE, at)
            word = load(raw, body)
            if number == 2:
                start_ns = word
            elif number == 3:
                time = word
            elif number == 4:
                count = word
            else:
                total = word
        elif number == 8:
            if wire != VARINT:
                return fail(state, WIRE_TYPE, at)
            flags = read_varint(raw, body, end)[0]
        at = end
    if run_start >= 0:
        h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
    reason = wrong_time(flags, time, horizon_ns)
    if reason == 0 and count < 0:
        reason = R_COUNT_RANGE
    if reason != 0:
        return refuse(raw, start, stop, M_SUMMARY_POINT, reason, state)
    series, done = series_of(raw, start, stop, M_SUMMARY_POINT, PART_COUNT, ZERO, h1, h2, state, table, keys, misses)
    if done < 0:
        return done
    bits = float_to_bits(np.float64(count))
    if add_number(state, numbers, series, time, start_ns, bits, count, is_int) < 0:
        return GROW
    is_int = np.int64(0)
    if not is_finite(total):
        state[R_NOT_FINITE] += 1
    elif is_below_zero(total):
        # Observations may be negative; their sum is then no counter.
        state[R_NEGATIVE] += 1
    else:
        series, done = series_of(raw, start, stop, M_SUMMARY_POINT, PART_SUM, ZERO, h1, h2, state, table, keys, misses)
        if done < 0:
            return done
        if add_number(state, numbers, series, time, start_ns, total, ZERO, is_int) < 0:
            return GROW
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if tag >> 3 == 6:
            quantile, value, bad = read_quantile(raw, body, end, state)
            if bad < 0:
                return bad
            if not 0.0 <= bits_to_float(quantile) <= 1.0:
                state[R_QUANTILE_RANGE] += 1
            elif not is_finite(value):
                state[R_NOT_FINITE] += 1
            else:
                series, done = series_of(
                    raw, start, stop, M_SUMMARY_POINT, PART_QUANTILE, quantile, h1, h2, state, table, keys, misses
                )
                if done < 0:
                    return done
                if add_number(state, numbers, series, time, start_ns, value, ZERO, is_int) < 0:
                    return GROW
        at = end
    return stop


@kernel
def read_quantile(raw: U8Array, start: int, stop: int, state: I64Array) -> tuple[int, int, int]:
    """(quantile, value, position behind or a code); both numbers as bits."""
    quantile = value = np.int64(0)
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return 0, 0, fail(state, end, at)
        number = tag >> 3
        if number == 1 or number == 2:
            if tag & 7 != FIXED64:
                return 0, 0, fail(state, WIRE_TYPE, at)
            if number == 1:
                quantile = load(raw, body)
            else:
                value = load(raw, body)
        at = end
    return quantile, value, at


@kernel
def take_fixed64(raw, at, body, end, wire, ragged, row, n, state):
    """Append one or a packed run of 8-byte numbers at ragged[row, n:]. Returns the new n or a code."""
    if wire == LENGTH:
        if (end - body) % 8 != 0:
            return fail(state, check_packed(raw, body, end, FIXED64), at)
    elif wire != FIXED64:
        return fail(state, WIRE_TYPE, at)
    if n + (end - body) // 8 > ragged.shape[1]:
        return GROW
    while body < end:
        ragged[row, n] = load(raw, body)
        n += 1
        body += 8
    return n


@kernel
def histogram_point(raw, start, stop, horizon_ns, state, table, keys, heads, ragged, misses):
    """A point of an explicit-bucket histogram."""
    time = start_ns = count = flags = np.int64(0)
    total = low = high = np.int64(NAN_BITS)
    first_count, first_bound = state[COUNTS], state[BOUNDS]
    counts_end, bounds_end = first_count, first_bound
    h1, h2 = state[C_H1], state[C_H2]
    run_start = run_stop = np.int64(-1)
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        number, wire = tag >> 3, tag & 7
        if number == 6:
            counts_end = take_fixed64(raw, at, body, end, wire, ragged, G_COUNTS, counts_end, state)
            if counts_end < 0:
                return counts_end
        elif number == 7:
            bounds_end = take_fixed64(raw, at, body, end, wire, ragged, G_BOUNDS, bounds_end, state)
            if bounds_end < 0:
                return bounds_end
        elif number == 9:
            if wire != LENGTH:
                return fail(state, WIRE_TYPE, at)
            if at != run_stop:
                if run_start >= 0:
                    h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
                run_start = at
            run_stop = end
        elif number == 8:
            if wire != LENGTH:
                return fail(state, WIRE_TYPE, at)
            checked = check(raw, body, end, M_EXEMPLAR, EXEMPLAR_DEPTH, state)
            if checked < 0:
                return checked
        elif number == 10:
            if wire != VARINT:
                return fail(state, WIRE_TYPE, at)
            flags = read_varint(raw, body, end)[0]
        elif 2 <= number <= 5 or number == 11 or number == 12:
            if wire != FIXED64:
                return fail(state, WIRE_TYPE, at)
            word = load(raw, body)
            if number == 2:
                start_ns = word
            elif number == 3:
                time = word
            elif number == 4:
                count = word
            elif number == 5:
                total = word
            elif number == 11:
                low = word
            else:
                high = word
        at = end
    if run_start >= 0:
        h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
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


@kernel
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
        number, wire = tag >> 3, tag & 7
        if number == 1:
            if wire != VARINT:
                return 0, fail(state, WIRE_TYPE, at)
            offset = zigzag(read_varint(raw, body, end)[0])
        elif number == 2:
            if wire != LENGTH and wire != VARINT:
                return 0, fail(state, WIRE_TYPE, at)
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
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        number, wire = tag >> 3, tag & 7
        if number == 1 or number == 8 or number == 9 or number == 11:
            if wire != LENGTH:
                return fail(state, WIRE_TYPE, at)
            if number == 1:
                if at != run_stop:
                    if run_start >= 0:
                        h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
                    run_start = at
                run_stop = end
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
            else:
                checked = check(raw, body, end, M_EXEMPLAR, EXEMPLAR_DEPTH, state)
                if checked < 0:
                    return checked
        elif number == 6 or number == 10:
            if wire != VARINT:
                return fail(state, WIRE_TYPE, at)
            value = read_varint(raw, body, end)[0]
            if number == 6:
                scale = zigzag(value)
            else:
                flags = value
        elif 2 <= number <= 7 or 12 <= number <= 14:
            if wire != FIXED64:
                return fail(state, WIRE_TYPE, at)
            word = load(raw, body)
            if number == 2:
                start_ns = word
            elif number == 3:
                time = word
            elif number == 4:
                count = word
            elif number == 5:
                total = word
            elif number == 7:
                zero_count = word
            elif number == 12:
                low = word
            elif number == 13:
                high = word
            else:
                threshold = word
        at = end
    if run_start >= 0:
        h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
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
