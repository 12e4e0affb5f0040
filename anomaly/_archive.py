"""Named arrays and a manifest as bytes, without pickle.

Layout: b"FPA1", length of the manifest (u32, little-endian), the manifest as JSON, the arrays' bytes one after the
other as one zlib stream, CRC-32 of everything before it. The manifest's "arrays" lists name, dtype and shape.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"FPA1"
SIZE_MAX = 1 << 30
_DTYPES = frozenset({"<f2", "<f4", "<f8", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1"})


class ArchiveError(ValueError):
    """Bytes that are not an archive, or a damaged one."""


def pack(manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The same input gives the same bytes. Arrays: numbers and booleans of any shape."""
    rows, chunks = [], []
    for name, array in sorted(arrays.items()):
        plain = np.ascontiguousarray(array)
        little = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
        assert little.dtype.str in _DTYPES, f"{name} has dtype {array.dtype}"
        rows.append([name, little.dtype.str, list(array.shape)])
        chunks.append(little.tobytes())
    text = json.dumps({**manifest, "arrays": rows}, sort_keys=True, separators=(",", ":")).encode()
    body = MAGIC + len(text).to_bytes(4, "little") + text + zlib.compress(b"".join(chunks), 6)
    return body + zlib.crc32(body).to_bytes(4, "little")


def unpack(raw: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Inverse of pack. Raises ArchiveError. The arrays are copies that may be written to."""
    if len(raw) < 12 or raw[:4] != MAGIC:
        raise ArchiveError("not an archive of this version")
    if zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise ArchiveError("the checksum does not match: the bytes are damaged")
    end = 8 + int.from_bytes(raw[4:8], "little")
    try:
        manifest = json.loads(raw[8:end])
        rows = [(str(name), str(dtype), tuple(int(n) for n in shape)) for name, dtype, shape in manifest.pop("arrays")]
        inflate = zlib.decompressobj()
        content = inflate.decompress(raw[end:-4], SIZE_MAX)
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error) as error:
        raise ArchiveError(f"cannot be read: {error}") from None
    arrays, at = {}, 0
    for name, dtype, shape in rows:
        if dtype not in _DTYPES or any(n < 0 for n in shape):
            raise ArchiveError(f"{name}: arrays of {dtype} and shape {shape} are not known here")
        count = math.prod(shape)
        size = count * np.dtype(dtype).itemsize
        if at + size > len(content):
            raise ArchiveError(f"{name} is cut off")
        arrays[name] = np.frombuffer(content, dtype, count, at).reshape(shape).copy()
        at += size
    return manifest, arrays
