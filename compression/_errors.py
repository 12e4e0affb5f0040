"""The one error of this folder."""

from __future__ import annotations


class ChunkError(ValueError):
    """Bytes that are no chunk, or samples that no chunk can hold.

    bit_offset: where reading stopped making sense, counted in bits from the first byte; None when the fault lies in
    the samples given to an encoder. byte_offset: the byte that bit is in.
    """

    def __init__(self, message: str, bit_offset: int | None = None) -> None:
        super().__init__(message if bit_offset is None else f"{message} (bit {bit_offset})")
        self.bit_offset = bit_offset

    @property
    def byte_offset(self) -> int | None:
        return None if self.bit_offset is None else self.bit_offset // 8
