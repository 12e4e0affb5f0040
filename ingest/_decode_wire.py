"""Kernels over protobuf's wire format: fields, strings, whole messages, and hashes of byte ranges.

Conventions. raw: (n,) uint8, the request. Positions are indexes into raw. A function that reads returns the position
behind what it read, or one of the negative codes below; where reading failed stands in state[ERROR_AT]. No position at
or behind `stop` is ever read. All arithmetic is int64, which wraps; unsigned meaning is noted where it matters.
Source: Protocol Buffers, "Encoding"; opentelemetry/proto/metrics/v1/metrics.proto.
"""

# Numba infers and checks the types of kernels; to mypy its int64 is neither int nor NumPy's scalar.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from fleetpulse.ingest._otlp import DEPTH_MAX

kernel = njit(cache=True, _nrt=False)
"""Without Numba's memory management: kernels allocate nothing, and counting references to their arrays at every call
costs more than all the rest. The caller keeps the arrays alive."""
inlined = njit(cache=True, _nrt=False, forceinline=True)
"""For kernels that are called for every point."""

U8Array = NDArray[np.uint8]
I64Array = NDArray[np.int64]


def constants(*span: int) -> tuple[np.int64, ...]:
    """As range(*span). Numba compiles a kernel anew for every plain int that it is called with, not for these."""
    return tuple(map(np.int64, range(*span)))


TRUNCATED, VARINT_TOO_LONG, FIELD_NUMBER, WIRE_TYPE, GROUP, NESTING, UTF8, GROW, UNREADY = constants(-1, -10, -1)
ERRORS = {
    TRUNCATED: ("truncated", "a field is longer than what contains it"),
    VARINT_TOO_LONG: ("varint", "a number has too many bytes"),
    FIELD_NUMBER: ("field_number", "a field number is outside 1 to 536870911"),
    WIRE_TYPE: ("wire_type", "a field has another wire type than its message says"),
    GROUP: ("group", "a field is a group, which OTLP has none of"),
    NESTING: ("nesting", f"messages nest deeper than {DEPTH_MAX}"),
    UTF8: ("utf8", "a string is not UTF-8"),
}
"""Reason and text of each code for OtlpError. Two are none: GROW, an output array was too short; UNREADY, there is
something in the request that has to be known or put in order before it can be read."""

ERROR_AT = 0
STACK = 64
STATE_SIZE = STACK + 2 * (DEPTH_MAX + 1)
"""state: (STATE_SIZE,) int64. From STACK on it is scratch for check(); the rest belongs to the scan."""

VARINT, FIXED64, LENGTH, _, _, FIXED32 = constants(6)

(
    M_REQUEST,
    M_RESOURCE_METRICS,
    M_RESOURCE,
    M_ENTITY_REF,
    M_SCOPE_METRICS,
    M_SCOPE,
    M_METRIC,
    M_GAUGE,
    M_SUM,
    M_HISTOGRAM,
    M_EXPONENTIAL,
    M_SUMMARY,
    M_NUMBER_POINT,
    M_HISTOGRAM_POINT,
    M_EXPONENTIAL_POINT,
    M_SUMMARY_POINT,
    M_BUCKETS,
    M_QUANTILE,
    M_EXEMPLAR,
    M_KEY_VALUE,
    M_ANY_VALUE,
    M_ARRAY,
    M_MAP,
) = constants(23)

_TEXT, _PACKED, _INSIDE = 8, 16, 8
_FIELDS_MAX = 16


def _shapes() -> NDArray[np.int16]:
    """By message and field number: wire type, whether it is text, whether it may be packed, and (shifted by _INSIDE)
    1 + the message inside. -1 where the message has no such field."""
    v, d, n = VARINT, FIXED64, LENGTH
    text = LENGTH | _TEXT

    def inside(message: int) -> int:
        return LENGTH | (message + 1) << _INSIDE

    key_value = inside(M_KEY_VALUE)
    number_points = {1: inside(M_NUMBER_POINT)}
    fields = {
        M_REQUEST: {1: inside(M_RESOURCE_METRICS)},
        M_RESOURCE_METRICS: {1: inside(M_RESOURCE), 2: inside(M_SCOPE_METRICS), 3: text},
        M_RESOURCE: {1: key_value, 2: v, 3: inside(M_ENTITY_REF)},
        M_ENTITY_REF: {1: text, 2: text, 3: text, 4: text},
        M_SCOPE_METRICS: {1: inside(M_SCOPE), 2: inside(M_METRIC), 3: text},
        M_SCOPE: {1: text, 2: text, 3: key_value, 4: v},
        M_METRIC: {
            1: text,
            2: text,
            3: text,
            5: inside(M_GAUGE),
            7: inside(M_SUM),
            9: inside(M_HISTOGRAM),
            10: inside(M_EXPONENTIAL),
            11: inside(M_SUMMARY),
            12: key_value,
        },
        M_GAUGE: number_points,
        M_SUM: number_points | {2: v, 3: v},
        M_HISTOGRAM: {1: inside(M_HISTOGRAM_POINT), 2: v},
        M_EXPONENTIAL: {1: inside(M_EXPONENTIAL_POINT), 2: v},
        M_SUMMARY: {1: inside(M_SUMMARY_POINT)},
        M_NUMBER_POINT: {2: d, 3: d, 4: d, 5: inside(M_EXEMPLAR), 6: d, 7: key_value, 8: v},
        M_HISTOGRAM_POINT: {
            2: d,
            3: d,
            4: d,
            5: d,
            6: d | _PACKED,
            7: d | _PACKED,
            8: inside(M_EXEMPLAR),
            9: key_value,
            10: v,
            11: d,
            12: d,
        },
        M_EXPONENTIAL_POINT: {
            1: key_value,
            2: d,
            3: d,
            4: d,
            5: d,
            6: v,
            7: d,
            8: inside(M_BUCKETS),
            9: inside(M_BUCKETS),
            10: v,
            11: inside(M_EXEMPLAR),
            12: d,
            13: d,
            14: d,
        },
        M_SUMMARY_POINT: {2: d, 3: d, 4: d, 5: d, 6: inside(M_QUANTILE), 7: key_value, 8: v},
        M_BUCKETS: {1: v, 2: v | _PACKED},
        M_QUANTILE: {1: d, 2: d},
        M_EXEMPLAR: {2: d, 3: d, 4: n, 5: n, 6: d, 7: key_value},
        M_KEY_VALUE: {1: text, 2: inside(M_ANY_VALUE), 3: v},
        M_ANY_VALUE: {1: text, 2: v, 3: v, 4: d, 5: inside(M_ARRAY), 6: inside(M_MAP), 7: n, 8: v},
        M_ARRAY: {1: inside(M_ANY_VALUE)},
        M_MAP: {1: key_value},
    }
    shapes = np.full((len(fields), _FIELDS_MAX), -1, np.int16)
    for message, numbers in fields.items():
        for number, code in numbers.items():
            shapes[message, number] = code
    return shapes


SHAPES = _shapes()


@intrinsic
def _load_unchecked(typing_context: Any, raw: Any, at: Any) -> Any:
    """Eight bytes from raw[at] as a little-endian int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return types.int64(raw, types.int64), generate


@intrinsic
def fold(typing_context: Any, a: Any, b: Any) -> Any:
    """Both halves of the 128-bit product of two int64, taken as unsigned, xored."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        high = builder.lshr(product, ir.Constant(wide, 64))
        return builder.trunc(builder.xor(product, high), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def bits_to_float(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def float_to_bits(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


if config.BOUNDSCHECK:

    @inlined
    def load(raw: U8Array, at: int) -> int:
        """Eight bytes from raw[at] as a little-endian int64, each index checked."""
        word = np.int64(0)
        for i in range(8):
            word |= np.int64(raw[at + i]) << (8 * i)
        return word

else:

    @inlined
    def load(raw: U8Array, at: int) -> int:
        """Eight bytes from raw[at] as a little-endian int64. The caller has made sure that they are there."""
        return _load_unchecked(raw, at)


@kernel
def fail(state: I64Array, code: int, at: int) -> int:
    state[ERROR_AT] = at
    return code


@kernel
def read_varint(raw: U8Array, at: int, stop: int) -> tuple[int, int]:
    """(value, position behind it or a code). The value is taken modulo 2**64; one of more bits is refused."""
    value = np.int64(0)
    shift = 0
    while at < stop:
        byte = np.int64(raw[at])
        at += 1
        if shift == 63 and byte > 1:
            return 0, VARINT_TOO_LONG
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, TRUNCATED


@kernel
def read_field(raw: U8Array, at: int, stop: int) -> tuple[int, int, int]:
    """(tag, start of the payload, position behind the field or a code). at < stop. Groups are refused."""
    tag = np.int64(raw[at])
    body = at + 1
    if tag >= 0x80:
        tag, body = read_varint(raw, at, stop)
        if body < 0:
            return 0, 0, body
        if tag < 0 or tag >> 32 != 0 or body - at > 5:
            return 0, 0, FIELD_NUMBER
    if tag >> 3 == 0:
        return 0, 0, FIELD_NUMBER
    wire = tag & 7
    if wire == LENGTH:
        if body < stop and raw[body] < 0x80:
            size = np.int64(raw[body])
            body += 1
        else:
            size_at = body
            size, body = read_varint(raw, size_at, stop)
            if body < 0:
                return 0, 0, body
            if body - size_at > 5:
                return 0, 0, VARINT_TOO_LONG
        end = body + size
    elif wire == VARINT:
        end = read_varint(raw, body, stop)[1]
        if end < 0:
            return 0, 0, end
    elif wire == FIXED64:
        end = body + 8
    elif wire == FIXED32:
        end = body + 4
    elif wire == 3 or wire == 4:
        return 0, 0, GROUP
    else:
        return 0, 0, WIRE_TYPE
    if end > stop:
        return 0, 0, TRUNCATED
    return tag, body, end


@inlined
def is_wrong_wire(message: int, number: int, wire: int) -> bool:
    """Whether this field of this message must not have this wire type. Unknown fields may have any."""
    if number >= _FIELDS_MAX:
        return False
    code = np.int64(SHAPES[message, number])
    return code >= 0 and wire != code & 7 and (wire != LENGTH or code & _PACKED == 0)


@kernel
def is_utf8(raw: U8Array, start: int, stop: int) -> bool:
    """As protobuf demands of a string. Source: RFC 3629, section 4."""
    at = start
    while at + 8 <= stop and load(raw, at) & -0x7F7F7F7F7F7F7F80 == 0:
        at += 8
    if at > start and stop - at < 8 and load(raw, stop - 8) & -0x7F7F7F7F7F7F7F80 == 0:
        return True
    while at < stop:
        first = np.int64(raw[at])
        at += 1
        if first < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        else:
            return False
        if at + more > stop or raw[at] < low or raw[at] > high:
            return False
        for i in range(1, more):
            if raw[at + i] < 0x80 or raw[at + i] > 0xBF:
                return False
        at += more
    return True


@kernel
def check(raw: U8Array, start: int, stop: int, message: int, depth: int, state: I64Array) -> int:
    """Whether raw[start:stop] is a well-formed `message` (one of M_*) to the last field. depth: how many contain it."""
    outermost = depth
    at = start
    while True:
        if at >= stop:
            if depth == outermost:
                return at
            depth -= 1
            slot = STACK + 2 * (depth - outermost)
            stop, message = state[slot], state[slot + 1]
            continue
        tag, body, end = read_field(raw, at, stop)
        if end < 0:
            return fail(state, end, at)
        number, wire = tag >> 3, tag & 7
        code = np.int64(SHAPES[message, number]) if number < _FIELDS_MAX else np.int64(-1)
        if code < 0:
            at = end
            continue
        if wire != code & 7:
            if wire != LENGTH or code & _PACKED == 0:
                return fail(state, WIRE_TYPE, at)
            bad = check_packed(raw, body, end, code & 7)
            if bad < 0:
                return fail(state, bad, at)
        elif code & _TEXT != 0 and not is_utf8(raw, body, end):
            return fail(state, UTF8, at)
        elif code >> _INSIDE != 0:
            if depth >= DEPTH_MAX:
                return fail(state, NESTING, at)
            slot = STACK + 2 * (depth - outermost)
            state[slot], state[slot + 1] = stop, message
            depth += 1
            stop, message, at = end, (code >> _INSIDE) - 1, body
            continue
        at = end


@kernel
def check_packed(raw: U8Array, start: int, stop: int, wire: int) -> int:
    at = start
    if wire == FIXED64:
        return at if (stop - start) % 8 == 0 else TRUNCATED
    while at < stop:
        _, at = read_varint(raw, at, stop)
        if at < 0:
            return at
    return at


@inlined
def mix(h1: int, h2: int, a: int, b: int, s1: int, s2: int) -> tuple[int, int]:
    """One step of the hash: 16 bytes (a, b) into the two halves h1, h2. s1, s2: the secret."""
    return fold(a ^ s1, b ^ h1), fold(a ^ h2, b ^ s2)


@inlined
def hash_range(raw: U8Array, start: int, stop: int, h1: int, h2: int, s1: int, s2: int) -> tuple[int, int]:
    """Two 64-bit halves over raw[start:stop], continuing h1, h2, which are secret or the hash of what came before.

    Each half multiplies and folds 16 bytes a step (as wyhash does), with the secret and the running value on different
    factors, so that no one who does not know the secret can make two ranges collide. The length goes in last.
    """
    size = stop - start
    at = start
    while at + 16 <= stop:
        h1, h2 = mix(h1, h2, load(raw, at), load(raw, at + 8), s1, s2)
        at += 16
    left = stop - at
    if left > 8:
        h1, h2 = mix(h1, h2, load(raw, at), load(raw, stop - 8), s1, s2)
    elif left == 8:
        h1, h2 = mix(h1, h2, load(raw, at), np.int64(0), s1, s2)
    elif left > 0:
        word = np.int64(0)
        if size >= 8:
            word = load(raw, stop - 8)
        else:
            for i in range(left):
                word |= np.int64(raw[at + i]) << (8 * i)
        h1, h2 = mix(h1, h2, word, np.int64(left), s1, s2)
    return mix(h1, h2, np.int64(size), np.int64(0), s2, s1)
