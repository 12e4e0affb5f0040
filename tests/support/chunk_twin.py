"""A reader of group chunks made from compression/FORMAT.md alone: slow, a string of bits, nothing shared with the code.

Every field it reads is noted as (first bit, number of bits, name, value), so that the page's example can be compared
field by field.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

MASK = (1 << 64) - 1


class Field(NamedTuple):
    bit: int
    width: int
    name: str
    value: str


@dataclass
class TwinColumn:
    labels: dict[str, str]
    times: list[int]
    is_int: bool
    bits: list[int]
    """Values as bits of float64 or int64."""


@dataclass
class TwinChunk:
    cluster: str = ""
    node: str = ""
    span_start_ns: int = 0
    span_ns: int = 0
    columns: list[TwinColumn] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)


def signed64(value: int) -> int:
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


def unzigzag(value: int) -> int:
    return value // 2 if value % 2 == 0 else -(value // 2) - 1


class _Bits:
    """A cursor over the chunk's bits; every read is noted in `fields` under a name."""

    def __init__(self, raw: bytes, fields: list[Field]) -> None:
        self.text = format(int.from_bytes(raw, "big"), f"0{8 * len(raw)}b")
        self.at = 0
        self.fields = fields

    def take(self, width: int) -> int:
        assert self.at + width <= len(self.text), "ran out"
        self.at += width
        return int(self.text[self.at - width : self.at] or "0", 2)

    def note(self, begin: int, name: str, value: object) -> None:
        if self.at > begin:
            self.fields.append(Field(begin, self.at - begin, name, str(value)))

    def plain(self, width: int, name: str) -> int:
        begin = self.at
        value = self.take(width)
        self.note(begin, name, value)
        return value

    def uvarint(self, name: str, *, zigzag: bool = False) -> int:
        begin = self.at
        value = shift = 0
        while True:
            byte = self.take(8)
            value += byte % 128 << shift
            shift += 7
            if byte < 128:
                break
        if zigzag:
            value = unzigzag(value)
        self.note(begin, name, value)
        return value

    def number(self, name: str, *, zigzag: bool = False) -> int:
        begin = self.at
        length = self.take(6)
        if length == 63:
            value = self.take(64)
        else:
            value = 0 if length == 0 else (1 << (length - 1)) + self.take(length - 1)
        if zigzag:
            value = unzigzag(value)
        self.note(begin, name, value)
        return value

    def ones(self, most: int) -> int:
        """Ones up to the zero behind them, which is read too, or up to `most` ones."""
        count = 0
        while count < most and self.take(1):
            count += 1
        return count

    def count(self, name: str) -> int:
        begin = self.at
        zeros = 0
        while not self.take(1):
            zeros += 1
        value = (1 << zeros) + self.take(zeros) - 1
        self.note(begin, name, value)
        return value

    def rice(self, k: int) -> int:
        ones = self.ones(32)
        return self.take(64) if ones == 32 else (ones << k) + self.take(k)

    def elias(self, k: int) -> int:
        length = self.ones(65)
        high = 0 if length == 0 else (1 << (length - 1)) + self.take(length - 1)
        return (high << k) + self.take(k)

    def string(self, name: str) -> str:
        begin = self.at
        length = self.take(8)
        assert length < 128, "the twin reads short names only"
        value = bytes(self.take(8) for _ in range(length)).decode()
        self.note(begin, name, value)
        return value

    def bytes(self, length: int) -> bytes:
        return bytes(self.take(8) for _ in range(length))

    def to_whole_byte(self) -> None:
        begin = self.at
        assert self.take(-self.at % 8) == 0
        self.note(begin, "fill", 0)


def read_slowly(raw: bytes) -> TwinChunk:
    """What decode_chunk must return for a valid chunk; AssertionError for others that it notices."""
    chunk = TwinChunk()
    bits = _Bits(raw, chunk.fields)
    assert bits.bytes(3) == b"FPC"
    bits.note(0, "magic", "FPC")
    assert bits.plain(8, "version") == 1
    chunk.cluster, chunk.node = bits.string("cluster"), bits.string("node")
    chunk.span_start_ns = bits.uvarint("span start", zigzag=True)
    chunk.span_ns = bits.uvarint("span")
    length = bits.uvarint("identities' bytes")
    end = bits.at + 8 * length
    labels = _identities(bits)
    assert bits.at == end
    groups = _times(bits, chunk.span_start_ns)
    for times, floats, integers in groups:
        for number in range(floats + integers):
            chunk.columns.append(TwinColumn({}, times, number >= floats, []))
    assert len(labels) == len(chunk.columns)
    for column, names in zip(chunk.columns, labels, strict=True):
        column.labels = names
    runs: dict[int, list[int]] = {}
    for number in range(len(chunk.columns)):
        _column(bits, chunk.columns, number, runs)
    bits.to_whole_byte()
    assert bits.plain(32, "checksum") == zlib.crc32(raw[:-4])
    assert bits.at == 8 * len(raw)
    return chunk


def _identities(bits: _Bits) -> list[dict[str, str]]:
    texts: list[str] = []
    before = b""
    for _ in range(bits.uvarint("texts")):
        begin = bits.at
        shared, more = bits.take(8), bits.take(8)
        assert max(shared, more) < 128, "the twin reads short texts only"
        before = before[:shared] + bits.bytes(more)
        texts.append(before.decode("utf-8", "surrogatepass"))
        bits.note(begin, "text", texts[-1])
    for _ in range(bits.uvarint("UUIDs")):
        begin = bits.at
        digits = bits.bytes(16).hex()
        texts.append(f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}")
        bits.note(begin, "UUID", texts[-1])
    for _ in range(bits.uvarint("digits")):
        begin = bits.at
        texts.append(bits.bytes(bits.take(8)).hex())
        bits.note(begin, "digits", texts[-1])
    width = (len(texts) - 1).bit_length() if texts else 0

    series = bits.count("series")
    table_of = _sequence(bits, series, "tables")
    rows_of_table: list[list[dict[str, str]]] = []
    for table in range(max(table_of, default=-1) + 1):
        rows: list[dict[str, str]] = [{} for number in table_of if number == table]
        names = [texts[bits.plain(width, "name")] for _ in range(bits.count("width"))]
        written: list[list[int]] = []
        for place, name in enumerate(names):
            settled = place > 0 and bits.plain(1, "settled") == 1
            if settled:
                ids = written[bits.plain((len(written) - 1).bit_length(), "by")]
            else:
                ids = _sequence(bits, len(rows), "values")
                written.append(ids)
            values = [texts[bits.plain(width, "string")] for _ in range(max(ids) + 1)]
            for row, number in zip(rows, ids, strict=True):
                row[name] = values[number]
        rows_of_table.append(rows)
    bits.to_whole_byte()
    return [rows_of_table[table].pop(0) for table in table_of]


def _sequence(bits: _Bits, length: int, name: str) -> list[int]:
    if length == 0:
        return []
    begin = bits.at
    ids = [0]
    follower: dict[int, int] = {}
    while length > 1:
        for _ in range(_quiet_count(bits)):
            ids.append(follower.get(ids[-1], ids[-1]))
            follower[ids[-2]] = ids[-1]
        if len(ids) == length:
            break
        ids.append(bits.take((max(ids) + 1).bit_length()))
        follower[ids[-2]] = ids[-1]
    bits.note(begin, name, " ".join(map(str, ids)))
    return ids


def _quiet_count(bits: _Bits) -> int:
    count = bits.count("")
    bits.fields.pop()
    return count


def _times(bits: _Bits, origin: int) -> list[tuple[list[int], int, int]]:
    groups: list[tuple[list[int], int, int]] = []
    for _ in range(bits.count("time columns")):
        base = bits.count("base")
        if base == 0:
            length = bits.count("length")
            times = [signed64(value + origin) for value in _run(bits, length)]
        else:
            times = _mask(bits, groups[base - 1][0])
        assert all(a < b for a, b in itertools.pairwise(times))
        groups.append((times, bits.count("floats"), bits.count("integers")))
    return groups


def _mask(bits: _Bits, base: list[int]) -> list[int]:
    if bits.plain(1, "mask kind") == 0:
        return [time for time in base if bits.take(1)]
    times: list[int] = []
    place, taken = 0, True
    while place < len(base) or place == 0:
        length = bits.count("mask run")
        if taken:
            times += base[place : place + length]
        place, taken = place + length, not taken
    assert place == len(base)
    return times


def _run(bits: _Bits, n: int) -> list[int]:
    if n == 0:
        return []
    values = [bits.number("first", zigzag=True)]
    if n == 1:
        return values
    order = bits.plain(2, "order")
    factor = bits.number("factor") if bits.plain(1, "scaled") else 1
    step = 0
    if order == 2:
        step = bits.number("first step", zigzag=True)
        values.append(signed64(values[0] + step * factor))
    code = bits.plain(4, "code")
    begin = bits.at
    rest = _rest(bits, code, n - len(values))
    if rest:
        bits.note(max(begin, bits.fields[-1].bit + bits.fields[-1].width), "rest", " ".join(map(str, rest)))
    for r in rest:
        if order == 2:
            step += r
        before = values[0] if order == 0 else values[-1]
        values.append(signed64(before + (step if order == 2 else r) * factor))
    return values


def _rest(bits: _Bits, code: int, n: int) -> list[int]:
    kind, apart = code % 4, code >= 4
    base = bits.number("base", zigzag=True) if kind == 0 else 0
    k = bits.plain(7, "width") if kind == 0 else bits.plain(6, "k")
    gap_k = bits.plain(6, "gap k") if code >= 8 else 0
    rest: list[int] = []
    while len(rest) < n:
        if code >= 8:
            rest += [0] * bits.elias(gap_k)
            if len(rest) >= n:
                break
        elif apart and not bits.take(1):
            rest.append(0)
            continue
        if kind == 0:
            rest.append(signed64(bits.take(k) + base))
        else:
            coded = bits.rice(k) if kind == 1 else bits.elias(k)
            rest.append(unzigzag((coded + apart) & MASK))
    assert len(rest) == n
    return rest


def _column(bits: _Bits, columns: list[TwinColumn], number: int, runs: dict[int, list[int]]) -> None:
    column = columns[number]
    n = len(column.times)
    if n == 0:
        return
    mode = bits.plain(3, "mode")
    assert mode in ((0, 1, 2, 5) if column.is_int else (0, 1, 3, 4, 5))
    if mode == 0:
        column.bits = [_single(bits, column.is_int)] * n
    elif mode == 1:
        other = columns[number - bits.count("back") - 1]
        assert other.is_int == column.is_int
        column.bits = list(other.bits)
    elif mode == 2:
        runs[number] = _run_against(bits, n, number, runs)
        column.bits = [value & MASK for value in runs[number]]
    elif mode == 3:
        exponent = bits.plain(5, "exponent")
        corrections: dict[int, int] = {}
        place = -1
        for _ in range(bits.count("corrections")):
            place += bits.count("values between") + 1
            corrections[place] = bits.number("correction", zigzag=True)
        runs[number] = _run_against(bits, n, number, runs)
        plain = [_float_bits(value / 10.0**exponent) for value in runs[number]]
        column.bits = [(value + corrections.get(i, 0)) & MASK for i, value in enumerate(plain)]
    elif mode == 4:
        column.bits = _xor(bits, n)
    else:
        column.bits = [bits.plain(64, "raw") for _ in range(n)]
    assert len(column.bits) == n


def _float_bits(value: float) -> int:
    return int.from_bytes(struct.pack(">d", value), "big")


def _single(bits: _Bits, is_int: bool) -> int:
    if is_int:
        return bits.number("value", zigzag=True) & MASK
    if not bits.plain(1, "as decimal"):
        return bits.plain(64, "value")
    exponent = bits.plain(5, "exponent")
    return _float_bits(bits.number("mantissa", zigzag=True) / 10.0**exponent)


def _run_against(bits: _Bits, n: int, number: int, runs: dict[int, list[int]]) -> list[int]:
    if not bits.plain(1, "against"):
        return _run(bits, n)
    other = runs[number - bits.count("back") - 1]
    sign = -1 if bits.plain(1, "sign") else 1
    return [signed64(value + sign * theirs) for value, theirs in zip(_run(bits, n), other, strict=True)]


def _xor(bits: _Bits, n: int) -> list[int]:
    values = [bits.plain(64, "first value")]
    leading, width = 0, 64
    while len(values) < n:
        change = 0
        if bits.take(1):
            if bits.take(1):
                leading, width = bits.take(5), bits.take(6) or 64
            change = bits.take(width) << (64 - leading - width)
        values.append(values[-1] ^ change)
    return values
