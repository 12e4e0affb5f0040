"""Kernels that read one data point each: its fields, the rules it has to keep, and its row in the columns.

Each returns the position behind the point or a negative code. A point that breaks a rule is counted under its reason in
`state` and has no row; its bytes are checked to the last field all the same. Rules: see _decode.
"""

# Numba infers and checks the types of kernels; to mypy its int64 is neither int nor NumPy's scalar.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from fleetpulse.ingest._decode_table import (
    C_ATTRIBUTES_START,
    C_ATTRIBUTES_STOP,
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
    EXPECTED,
    MISSES,
    N_INTEGER,
    N_IS_INT,
    N_SERIES,
    N_START,
    N_TIME,
    N_VALUE,
    N_WORDS,
    NUMBERS,
    PART_COUNT,
    PART_QUANTILE,
    PART_SUM,
    PART_WHOLE,
    R_COUNT_RANGE,
    R_FUTURE,
    R_NEGATIVE,
    R_NO_RECORDED_VALUE,
    R_NO_TIME,
    R_NO_VALUE,
    R_NOT_FINITE,
    R_QUANTILE_RANGE,
    S1,
    S2,
    UNKNOWN,
    X_ATTRIBUTES_START,
    X_ATTRIBUTES_STOP,
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
    GROW,
    M_EXEMPLAR,
    M_NUMBER_POINT,
    M_QUANTILE,
    M_SUMMARY_POINT,
    WIRE_TYPE,
    I64Array,
    U8Array,
    bits_to_float,
    check,
    constants,
    fail,
    float_to_bits,
    hash_range,
    inlined,
    is_wrong_wire,
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
EXPONENT = 0x7FF0000000000000


@inlined
def is_finite(bits: int) -> bool:
    return bits & EXPONENT != EXPONENT


@inlined
def is_below_zero(bits: int) -> bool:
    return bits < 0 and bits << 1 != 0


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
    misses[n, X_ATTRIBUTES_START] = state[C_ATTRIBUTES_START]
    misses[n, X_ATTRIBUTES_STOP] = state[C_ATTRIBUTES_STOP]
    misses[n, X_KIND] = state[C_KIND]
    misses[n, X_TEMPORALITY] = state[C_TEMPORALITY]
    misses[n, X_MONOTONIC] = state[C_MONOTONIC]
    misses[n, X_PART] = part
    misses[n, X_QUANTILE] = quantile
    misses[n, X_H1] = h1
    misses[n, X_H2] = h2
    return -1 - n, stop


@inlined
def join_run(raw, at, end, run_start, run_stop, runs, h1, h2, state):
    """Add the field raw[at:end], an attribute, to those read before. Returns run_start, run_stop, runs, h1, h2.

    Attributes lie side by side as a rule: each run of them, raw[run_start:run_stop], is hashed in one go.
    """
    if at != run_stop:
        if run_start >= 0:
            h1, h2 = hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
        run_start = at
        runs += 1
    return run_start, end, runs, h1, h2


@inlined
def close_runs(raw, run_start, run_stop, runs, h1, h2, state):
    """h1, h2 after the last run. Notes where the point's attributes are."""
    state[C_ATTRIBUTES_START], state[C_ATTRIBUTES_STOP] = run_start, run_stop if runs < 2 else UNKNOWN
    if run_start >= 0:
        return hash_range(raw, run_start, run_stop, h1, h2, state[S1], state[S2])
    return h1, h2


@inlined
def add_number(state, numbers, series, time, start, bits, integer, is_int):
    """Append a row. Returns its number or GROW."""
    n = state[NUMBERS]
    words = numbers[N_WORDS]
    if n >= words.shape[1]:
        return GROW
    state[NUMBERS] = n + 1
    numbers[N_SERIES][n] = series
    words[N_TIME, n] = time
    words[N_START, n] = known_start(start, time)
    words[N_VALUE, n] = bits
    words[N_INTEGER, n] = integer
    numbers[N_IS_INT][n] = is_int != 0
    return n


@inlined
def number_point(raw, start, stop, horizon_ns, state, table, keys, numbers, misses):
    """A point of a gauge or a sum."""
    time = start_ns = word = flags = is_int = np.int64(0)
    has_value = False
    h1, h2 = state[C_H1], state[C_H2]
    run_start = run_stop = np.int64(-1)
    runs = np.int64(0)
    at = np.int64(start)
    if stop - at >= 27 and raw[at] == START_TAG and raw[at + 9] == TIME_TAG:
        tag = raw[at + 18]
        if tag in (DOUBLE_TAG, INTEGER_TAG):
            # How a counter's point begins.
            start_ns, time, word = load(raw, at + 1), load(raw, at + 10), load(raw, at + 19)
            has_value, is_int = True, np.int64(tag == INTEGER_TAG)
            at += 27
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
                    run_start, run_stop, runs, h1, h2 = join_run(raw, at, end, run_start, run_stop, runs, h1, h2, state)
                    at = end
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
        number = tag >> 3
        if is_wrong_wire(M_NUMBER_POINT, number, tag & 7):
            return fail(state, WIRE_TYPE, at)
        if number == 7:
            run_start, run_stop, runs, h1, h2 = join_run(raw, at, end, run_start, run_stop, runs, h1, h2, state)
        elif number == 2:
            start_ns = load(raw, body)
        elif number == 3:
            time = load(raw, body)
        elif number == 4 or number == 6:
            word = load(raw, body)
            has_value, is_int = True, np.int64(number == 6)
        elif number == 8:
            flags = read_varint(raw, body, end)[0]
        elif number == 5:
            checked = check(raw, body, end, M_EXEMPLAR, EXEMPLAR_DEPTH, state)
            if checked < 0:
                return checked
        at = end
    h1, h2 = close_runs(raw, run_start, run_stop, runs, h1, h2, state)
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
    runs = np.int64(0)
    at = np.int64(start)
    while at < stop:
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        number = tag >> 3
        if is_wrong_wire(M_SUMMARY_POINT, number, tag & 7):
            return fail(state, WIRE_TYPE, at)
        if number == 7:
            run_start, run_stop, runs, h1, h2 = join_run(raw, at, end, run_start, run_stop, runs, h1, h2, state)
        elif number == 2:
            start_ns = load(raw, body)
        elif number == 3:
            time = load(raw, body)
        elif number == 4:
            count = load(raw, body)
        elif number == 5:
            total = load(raw, body)
        elif number == 8:
            flags = read_varint(raw, body, end)[0]
        at = end
    h1, h2 = close_runs(raw, run_start, run_stop, runs, h1, h2, state)
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
        if is_wrong_wire(M_QUANTILE, number, tag & 7):
            return 0, 0, fail(state, WIRE_TYPE, at)
        if number == 1:
            quantile = load(raw, body)
        elif number == 2:
            value = load(raw, body)
        at = end
    return quantile, value, at
