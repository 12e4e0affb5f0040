"""The names of a chunk's series: strings once, sets of labels once, two sets a series.

Layout: FORMAT.md, "Identities".
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetpulse.compression._errors import ChunkError

Labels = tuple[tuple[str, str], ...]
"""Sorted by name; a name occurs once."""

TEXT_BYTES_MAX = 1 << 24
"""All strings of a chunk together."""
LABELS_MAX = 1 << 22
"""The labels of all series of a chunk together."""

_RESOURCE = "resource."


def split_labels(labels: Labels) -> tuple[Labels, Labels]:
    """What many series of a chunk share (the resource's labels) and what tells them apart there."""
    shared = tuple(label for label in labels if label[0].startswith(_RESOURCE))
    return shared, tuple(label for label in labels if not label[0].startswith(_RESOURCE))


def put_uvarint(out: bytearray, value: int) -> None:
    """Seven bits a byte, the lowest first, the highest bit set on all bytes but the last."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_text(out: bytearray, text: str) -> None:
    raw = _utf8(text)
    put_uvarint(out, len(raw))
    out += raw


def encode_identities(series: Sequence[tuple[Labels, Labels]]) -> bytes:
    """The block of these series, each as split_labels gives it.

    ChunkError when the strings are longer together than TEXT_BYTES_MAX, or there are more labels than LABELS_MAX.
    """
    sets: dict[Labels, int] = {}
    for pair in series:
        for labels in pair:
            sets.setdefault(labels, len(sets))
    texts = sorted({_utf8(text) for labels in sets for label in labels for text in label})
    if sum(map(len, texts)) > TEXT_BYTES_MAX:
        raise ChunkError(f"the labels hold more than {TEXT_BYTES_MAX} bytes of different strings")
    if sum(len(shared) + len(own) for shared, own in series) > LABELS_MAX:
        raise ChunkError(f"the series have more than {LABELS_MAX} labels together")
    place = {text: number for number, text in enumerate(texts)}
    out = bytearray()
    put_uvarint(out, len(texts))
    before = b""
    for text in texts:
        common = _common_prefix(before, text)
        put_uvarint(out, common)
        put_uvarint(out, len(text) - common)
        out += text[common:]
        before = text
    put_uvarint(out, len(sets))
    for labels in sets:
        put_uvarint(out, len(labels))
        for name, value in labels:
            put_uvarint(out, place[_utf8(name)])
            put_uvarint(out, place[_utf8(value)])
    put_uvarint(out, len(series))
    for shared, own in series:
        put_uvarint(out, sets[shared])
        put_uvarint(out, sets[own])
    return bytes(out)


class Reader:
    """Reads the byte parts of a chunk: up to `end`, ChunkError beyond it."""

    def __init__(self, raw: bytes, at: int, end: int) -> None:
        self._raw = raw
        self.at = at
        self._end = end

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value
        raise self.error("a varint is longer than 64 bits")

    def take(self, length: int) -> bytes:
        if length > self._end - self.at:
            raise self.error(f"{length} bytes announced, {self._end - self.at} there")
        self.at += length
        return self._raw[self.at - length : self.at]

    def text(self) -> str:
        return self.utf8(self.take(self.uvarint()))

    def utf8(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise self.error("a string is not UTF-8") from error

    def count(self, item_bytes_min: int) -> int:
        """A number of items that follow: never more than the bytes left could hold."""
        number = self.uvarint()
        if number * item_bytes_min > self._end - self.at:
            raise self.error(f"{number} items announced in {self._end - self.at} bytes")
        return number

    def index(self, below: int, what: str) -> int:
        number = self.uvarint()
        if number >= below:
            raise self.error(f"{what} {number} of {below}")
        return number

    def done(self) -> None:
        if self.at != self._end:
            raise self.error(f"{self._end - self.at} bytes too many")

    def error(self, message: str) -> ChunkError:
        return ChunkError(message, 8 * self.at)

    def _byte(self) -> int:
        if self.at >= self._end:
            raise self.error("the bytes end too early")
        self.at += 1
        return self._raw[self.at - 1]


def decode_identities(reader: Reader) -> list[dict[str, str]]:
    """The labels of all series, in stored order."""
    texts = []
    before = b""
    total = 0
    for _ in range(reader.count(2)):
        common = reader.index(len(before) + 1, "prefix")
        before = before[:common] + reader.take(reader.uvarint())
        total += len(before)
        if total > TEXT_BYTES_MAX:
            raise reader.error(f"more than {TEXT_BYTES_MAX} bytes of strings")
        texts.append(reader.utf8(before))
    sets = []
    for _ in range(reader.count(1)):
        labels = {}
        for _ in range(reader.count(2)):
            name = texts[reader.index(len(texts), "string")]
            labels[name] = texts[reader.index(len(texts), "string")]
        sets.append(labels)
    series = []
    total = 0
    for _ in range(reader.count(2)):
        shared = sets[reader.index(len(sets), "set")]
        own = sets[reader.index(len(sets), "set")]
        total += len(shared) + len(own)
        if total > LABELS_MAX:
            raise reader.error(f"more than {LABELS_MAX} labels")
        series.append({**shared, **own})
    reader.done()
    return series


def _utf8(text: str) -> bytes:
    # Strings that came as JSON may hold half a surrogate pair; they come back as they were.
    return text.encode("utf-8", "surrogatepass")


def _common_prefix(one: bytes, other: bytes) -> int:
    length = min(len(one), len(other))
    for i in range(length):
        if one[i] != other[i]:
            return i
    return length
