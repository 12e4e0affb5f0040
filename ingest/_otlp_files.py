"""Files of OTLP metrics, as the OpenTelemetry Collector's file exporter writes them.

JSON, one request a line, or a request over several lines; or messages behind their length (4 bytes, big-endian), each
protobuf or JSON; or one bare protobuf request. A file, and each message in it, may be compressed with zstd or gzip. The
exporter compresses each message by itself, or the whole file in many frames, depending on its version. All of it is
found out from the bytes, not from the file's name.

Source: exporter/fileexporter of opentelemetry-collector-contrib, README "File Format" and file_writer.go.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import zstandard

from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._otlp import OtlpError
from fleetpulse.ingest._otlp_json import BYTE_ORDER_MARK, json_to_proto, looks_like_json

MESSAGE_BYTES_MAX = 256 * 2**20
"""A message is held in memory whole. Longer than this is taken for a file that is something else."""

_READ_BYTES = 16_384
_LENGTH_BYTES = 4
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = frozenset(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))
_GZIP = b"\x1f\x8b"
_BARE_REQUEST = 0x0A
_TOP_LEVEL = {"resourceSpans": "traces", "resourceLogs": "logs", "resourceProfiles": "profiles"}


class RecordedRequest(NamedTuple):
    """request: an ExportMetricsServiceRequest. at: where it begins in the file's content, after decompression.
    read: bytes of the file read so far."""

    request: bytes
    at: int
    read: int


def read_requests(path: Path) -> Iterator[RecordedRequest]:
    """The requests of a file, in its order. A message of traces or logs in a JSON file is passed over.

    Raises UserError, which names the file, the place and the remedy, for a file that is missing, may not be read, is
    empty, is cut off, or holds something else. What came before the place has been yielded by then. Whether a
    protobuf message can be parsed is not looked at: `unreadable` makes the error for a caller that finds it cannot.
    """
    with _opened(path) as file:
        content = _Content(path, file)
        head = content.peek(64)
        if not head:
            raise UserError(f"{path} is empty: there is nothing to replay; check that the recording was written")
        if head[0] == _BARE_REQUEST:
            yield from _bare_request(content)
        elif looks_like_json(head):
            yield from _json_requests(content)
        else:
            yield from _framed_requests(content)


def unreadable(path: Path, at: int, why: str) -> UserError:
    return UserError(
        f"{path}, byte {at} of its content: {why}; check that it is a recording: what the Collector's file exporter "
        "writes, JSON lines or length-prefixed protobuf, plain or compressed with zstd or gzip"
    )


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise UserError(f"{path} is not there: check the file's name") from None
    except PermissionError:
        raise UserError(f"{path} may not be read: give this user the right to (chmod, or run as its owner)") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory: name the files in it") from None
    except OSError as error:
        raise UserError(f"{path} cannot be opened ({error.strerror}): check the file") from None
    with file:
        yield file


class _Content:
    """A file's bytes after decompression, read from front to back."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self.at = 0
        self.whole_to = 0
        """Where the message begins that is being read: what is before it can be used."""
        self.read = 0
        self.compression: str | None = None
        self._file = file
        self._held = bytearray()
        self._chunks = self._decompressed()

    def peek(self, size: int) -> bytes:
        """The next bytes, fewer only at the end."""
        while len(self._held) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._held += chunk
        return bytes(self._held[:size])

    def take(self, size: int) -> bytes:
        """The next bytes, fewer only at the end."""
        taken = self.peek(size)
        del self._held[: len(taken)]
        self.at += len(taken)
        return taken

    def take_line(self) -> bytes:
        """Up to and with the next line feed; b"" at the end."""
        searched = 0
        while True:
            end = self._held.find(b"\n", searched)
            if end >= 0:
                return self.take(end + 1)
            searched = len(self._held)
            if searched > MESSAGE_BYTES_MAX:
                raise unreadable(self.path, self.at, f"a line is longer than {MESSAGE_BYTES_MAX} bytes")
            if len(self.peek(searched + 1)) == searched:
                return self.take(searched)

    def cut_off(self, why: str) -> UserError:
        """An error that says how to keep the whole messages."""
        remedy = "copy the file again"
        if self.whole_to:
            keep = f"head -c {self.whole_to} {self.path}"
            if self.compression is not None:
                keep = f"{self.compression} -dc {self.path} | head -c {self.whole_to}"
            remedy += f", or keep the messages before it with `{keep} > whole` and replay that"
        return UserError(f"{self.path}, byte {self.whole_to} of its content: {why}; {remedy}")

    def _raw(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = self._file.read(_READ_BYTES)
            except OSError as error:
                raise UserError(
                    f"{self.path} cannot be read at byte {self.read} ({error.strerror}): check the disk"
                ) from None
            if not chunk:
                return
            self.read += len(chunk)
            yield chunk

    def _decompressed(self) -> Iterator[bytes]:
        chunks = self._raw()
        first = next(chunks, b"")
        while len(first) < _LENGTH_BYTES and (more := next(chunks, b"")):
            first += more
        opener = _decoder_for(first)
        if opener is not None:
            self.compression = "gzip" if first[:2] == _GZIP else "zstd"
        decoder: Any = None
        chunk: bytes | None = first
        while chunk is not None:
            if opener is None:
                yield chunk
            while chunk and opener is not None:
                if decoder is None:
                    # gzip allows zeros behind its last member.
                    chunk = chunk.lstrip(b"\0") if self.compression == "gzip" else chunk
                    decoder = opener() if chunk else None
                    continue
                try:
                    plain = decoder.decompress(chunk)
                except (zstandard.ZstdError, zlib.error) as error:
                    raise self.cut_off(f"the compressed bytes are damaged ({error})") from None
                if plain:
                    yield plain
                chunk = decoder.unused_data if decoder.eof else b""
                if decoder.eof:
                    decoder = None
            chunk = next(chunks, None)
        if decoder is not None:
            raise self.cut_off("the file ends inside compressed data")


def _decoder_for(head: bytes) -> Callable[[], Any] | None:
    """What makes a decoder (with decompress, eof and unused_data) for bytes that begin so; None for plain bytes."""
    if head[:4] == _ZSTD or head[:4] in _ZSTD_SKIPPABLE:
        return lambda: zstandard.ZstdDecompressor().decompressobj()
    if head[:2] == _GZIP:
        return lambda: zlib.decompressobj(wbits=31)
    return None


def _bare_request(content: _Content) -> Iterator[RecordedRequest]:
    whole = content.take(MESSAGE_BYTES_MAX + 1)
    if len(whole) > MESSAGE_BYTES_MAX:
        raise unreadable(content.path, 0, f"one message of over {MESSAGE_BYTES_MAX} bytes is more than is read at once")
    request = _request(content.path, whole, 0)
    if request:
        yield RecordedRequest(request, 0, content.read)


def _json_requests(content: _Content) -> Iterator[RecordedRequest]:
    content.take(len(BYTE_ORDER_MARK) if content.peek(3) == BYTE_ORDER_MARK else 0)
    first = True
    while True:
        at = content.whole_to = content.at
        line = content.take_line()
        if not line:
            return
        text = line.strip()
        if first and text and not text.endswith(b"}"):
            # Not one object a line: one object over many lines.
            text = line + content.take(MESSAGE_BYTES_MAX + 1)
            if len(text) > MESSAGE_BYTES_MAX:
                raise unreadable(content.path, at, f"the first line is no whole JSON object: {_shown(line)}")
        if text:
            first = False
            try:
                request = _request(content.path, text, at)
            except UserError:
                if line.endswith(b"\n"):
                    raise
                raise content.cut_off("the file ends inside a JSON object") from None
            if request:
                yield RecordedRequest(request, at, content.read)


def _framed_requests(content: _Content) -> Iterator[RecordedRequest]:
    while True:
        at = content.whole_to = content.at
        prefix = content.take(_LENGTH_BYTES)
        if not prefix:
            return
        size = int.from_bytes(prefix, "big")
        if len(prefix) < _LENGTH_BYTES:
            raise content.cut_off("the file ends inside the length of a message")
        if size > MESSAGE_BYTES_MAX:
            raise unreadable(content.path, at, f"{_shown(prefix)} is no length of a message")
        message = content.take(size)
        if len(message) < size:
            raise content.cut_off(f"the file ends {size - len(message)} bytes before the end of a message")
        request = _request(content.path, message, at) if message else b""
        if request:
            yield RecordedRequest(request, at, content.read)


def _request(path: Path, message: bytes, at: int) -> bytes | None:
    """A message as protobuf; None when it is JSON of another kind than metrics."""
    opener = _decoder_for(message)
    if opener is not None:
        decoder = opener()
        try:
            message = decoder.decompress(message)
        except (zstandard.ZstdError, zlib.error) as error:
            raise unreadable(path, at, f"a message's compressed bytes are damaged ({error})") from None
        if not decoder.eof:
            raise unreadable(path, at, "a message's compressed bytes are cut off")
    if not looks_like_json(message):
        return message
    try:
        return json_to_proto(message)
    except OtlpError as error:
        if error.reason == "not_metrics" and any(f'"{name}"'.encode() in message for name in _TOP_LEVEL):
            return None
        raise unreadable(path, at + (error.at or 0), f"the JSON is no metrics request ({error})") from None


def _shown(raw: bytes) -> str:
    return repr(raw[:24]) + ("..." if len(raw) > 24 else "")
