"""Blocks of places in flat arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_LARGE = 1 << 22
"""From so many places on the arrays grow by an eighth instead of by a half."""


class Blocks:
    """Columns of one length, from which blocks of places are taken and to which they are given back.

    A block's contents are whatever was there before. Arrays in `columns` are replaced when they grow.
    """

    def __init__(self, *dtypes: DTypeLike) -> None:
        self.columns: list[NDArray[Any]] = [np.zeros(1024, dtype) for dtype in dtypes]
        self._used = 0
        self._free: dict[int, list[int]] = {}

    def take(self, size: int) -> int:
        """Where a block of so many places begins."""
        free = self._free.get(size)
        if free:
            return free.pop()
        at = self._used
        self._used += size
        have = len(self.columns[0])
        if self._used > have:
            room = max(self._used, have + (have // 8 if have >= _LARGE else have // 2))
            for i, old in enumerate(self.columns):
                larger = np.empty(room, old.dtype)
                larger[:at] = old[:at]
                self.columns[i] = larger
        return at

    def give(self, at: int, size: int) -> None:
        """Take back the block of this size that begins at `at`."""
        self._free.setdefault(size, []).append(at)

    @property
    def size_bytes(self) -> int:
        return sum(column.nbytes for column in self.columns)
