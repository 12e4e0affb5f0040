"""The byte-aligned parts of a chunk: varints and strings, written to a bytearray and read with care."""

from __future__ import annotations

from fleetpulse.compression._errors import ChunkError


def utf8(text: str) -> bytes:
    # Strings that came as JSON may hold half a surrogate pair; they come back as they were.
    return text.encode("utf-8", "surrogatepass")


def put_uvarint(out: bytearray, value: int) -> None:
    """Seven bits a byte, the lowest first, the highest bit set on all bytes but the last."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_text(out: bytearray, text: str) -> None:
    raw = utf8(text)
    put_uvarint(out, len(raw))
    out += raw


class Reader:
    """Reads raw from byte `at` up to byte `end`; ChunkError for anything that does not fit there.

    offset: where raw begins in its chunk, in bits, for errors.
    """

    def __init__(self, raw: bytes, at: int, end: int, offset: int = 0) -> None:
        self._raw = raw
        self.at = at
        self.end = end
        self._offset = offset

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value
        raise self.error("a varint is longer than 64 bits")

    def take(self, length: int) -> bytes:
        if length > self.end - self.at:
            raise self.error(f"{length} bytes announced, {self.end - self.at} there")
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
        if number * item_bytes_min > self.end - self.at:
            raise self.error(f"{number} items announced in {self.end - self.at} bytes")
        return number

    def error(self, message: str) -> ChunkError:
        return ChunkError(message, self._offset + 8 * self.at)
