"""Samples to bytes and back. A leaf: NumPy and Numba only; the layouts are in FORMAT.md.

Names are imported when they are first used: whoever imports the package without encoding anything loads no Numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetpulse.compression._chunk import Chunk, Column, Sizes, chunk_sizes, column_bits, decode_chunk, encode_chunk
    from fleetpulse.compression._errors import ChunkError
    from fleetpulse.compression._gorilla import (
        GorillaAppender,
        gorilla_decode,
        gorilla_decode_many,
        gorilla_encode,
        gorilla_encode_many,
    )
    from fleetpulse.compression._labels import SeriesLabels

__all__ = [
    "Chunk",
    "ChunkError",
    "Column",
    "GorillaAppender",
    "SeriesLabels",
    "Sizes",
    "chunk_sizes",
    "column_bits",
    "decode_chunk",
    "encode_chunk",
    "gorilla_decode",
    "gorilla_decode_many",
    "gorilla_encode",
    "gorilla_encode_many",
]

_HOME = {
    "Chunk": "_chunk",
    "ChunkError": "_errors",
    "Column": "_chunk",
    "GorillaAppender": "_gorilla",
    "SeriesLabels": "_labels",
    "Sizes": "_chunk",
    "chunk_sizes": "_chunk",
    "column_bits": "_chunk",
    "decode_chunk": "_chunk",
    "encode_chunk": "_chunk",
    "gorilla_decode": "_gorilla",
    "gorilla_decode_many": "_gorilla",
    "gorilla_encode": "_gorilla",
    "gorilla_encode_many": "_gorilla",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
