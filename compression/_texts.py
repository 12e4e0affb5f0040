"""The strings of a chunk, each once. Layout: FORMAT.md, "Strings"."""

from __future__ import annotations

import re
from collections.abc import Collection

from fleetpulse.compression._bytes import Reader, put_uvarint, utf8
from fleetpulse.compression._errors import ChunkError

TEXT_BYTES_MAX = 1 << 24
"""All strings of a chunk together: prefixes that are not repeated in the chunk are repeated by its reader."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX = re.compile(r"([0-9a-f]{2}){4,}")
_UUID_BYTES = 16


def encode_texts(out: bytearray, texts: Collection[str]) -> dict[str, int]:
    """Append the different strings and return their numbers.

    Those that are a UUID or hexadecimal digits take half a byte a digit, the others drop the prefix they share with
    the one before. ChunkError when they hold more than TEXT_BYTES_MAX.
    """
    uuids = sorted(text for text in texts if _UUID.fullmatch(text))
    hexes = sorted(text for text in texts if _HEX.fullmatch(text))
    apart = {*uuids, *hexes}
    raws = sorted((utf8(text), text) for text in texts if text not in apart)
    if sum(len(raw) for raw, _ in raws) + sum(map(len, apart)) > TEXT_BYTES_MAX:
        raise ChunkError(f"the labels hold more than {TEXT_BYTES_MAX} bytes of different strings")
    put_uvarint(out, len(raws))
    before = b""
    for raw, _ in raws:
        common = _common_prefix(before, raw)
        put_uvarint(out, common)
        put_uvarint(out, len(raw) - common)
        out += raw[common:]
        before = raw
    put_uvarint(out, len(uuids))
    for text in uuids:
        out += bytes.fromhex(text.replace("-", ""))
    put_uvarint(out, len(hexes))
    for text in hexes:
        put_uvarint(out, len(text) // 2)
        out += bytes.fromhex(text)
    return {text: number for number, text in enumerate([*(text for _, text in raws), *uuids, *hexes])}


def decode_texts(reader: Reader) -> list[str]:
    """The strings, by number."""
    texts = []
    before = b""
    total = 0
    for _ in range(reader.count(2)):
        common = reader.uvarint()
        if common > len(before):
            raise reader.error(f"a string repeats {common} bytes of one of {len(before)}")
        before = before[:common] + reader.take(reader.uvarint())
        total += len(before)
        if total > TEXT_BYTES_MAX:
            raise reader.error(f"more than {TEXT_BYTES_MAX} bytes of strings")
        texts.append(reader.utf8(before))
    for _ in range(reader.count(_UUID_BYTES)):
        digits = reader.take(_UUID_BYTES).hex()
        texts.append("-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])))
    for _ in range(reader.count(1)):
        texts.append(reader.take(reader.uvarint()).hex())
    return texts


def _common_prefix(one: bytes, other: bytes) -> int:
    length = min(len(one), len(other))
    for i in range(length):
        if one[i] != other[i]:
            return i
    return length
