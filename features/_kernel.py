"""How the hot loops are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core.options import DefaultOptions

_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

borrowing = njit(cache=True, **_UNCOUNTED)
"""Decorator for a kernel that makes no array and returns none: it only borrows its caller's.

Numba otherwise counts a reference to every array on each call, with two atomic instructions; of small functions that
take many arrays that is most of the cost. A Numba without the option compiles the same code, slower.
"""
