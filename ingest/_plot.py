"""Lines of a chart made of block characters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT = 4


def columns_for(times_ns: Sequence[NDArray[np.int64]], width: int) -> int:
    """Columns of a chart of all series: no more than there are samples to fill them, at least 20, at most width."""
    start_ns, end_ns = min(int(times[0]) for times in times_ns), max(int(times[-1]) for times in times_ns)
    distances = [float(np.median(np.diff(times))) for times in times_ns if len(times) > 1]
    if not distances:
        return min(20, width)
    return max(20, min(width, round((end_ns - start_ns) / max(1.0, min(distances)))))


def plot(
    times_ns: NDArray[np.int64], values: NDArray[Any], start_ns: int, end_ns: int, width: int, height: int = HEIGHT
) -> tuple[list[str], float, float]:
    """Rows from top to bottom, and the values that bottom and top stand for.

    A column of characters is a stretch of time and shows the largest value in it; a stretch without a sample is empty,
    and one with a value is never quite empty. The bottom is 0 unless values are negative or lie far from 0 and close
    together (less than a tenth of their size apart).
    """
    numbers = values.astype(np.float64)
    finite = np.isfinite(numbers)
    if not finite.any():
        return [" " * width] * height, float("nan"), float("nan")
    span_ns = max(1, end_ns - start_ns)
    columns = np.minimum((times_ns - start_ns) * width // span_ns, width - 1)
    top = np.full(width, -np.inf)
    np.maximum.at(top, columns[finite], numbers[finite])
    low, high = float(numbers[finite].min()), float(numbers[finite].max())
    if low >= 0 and (high - low > 0.1 * high or high == low):
        low = 0.0
    scale = (high - low) or 1.0
    steps = height * (len(BLOCKS) - 1)
    filled = [0 if value == -np.inf else max(1, round((value - low) / scale * steps)) for value in top.tolist()]
    rows = []
    for row in range(height - 1, -1, -1):
        floor = row * (len(BLOCKS) - 1)
        rows.append("".join(BLOCKS[min(max(level - floor, 0), len(BLOCKS) - 1)] for level in filled))
    return rows, low, high


def axis(start_ns: int, end_ns: int, width: int) -> str:
    """Local times of day below both ends and the middle of a chart."""
    marks = [
        datetime.fromtimestamp(at / 1e9).strftime("%H:%M:%S") for at in (start_ns, (start_ns + end_ns) / 2, end_ns)
    ]
    if width < 40:
        return f"{marks[0]} to {marks[2]}"
    left = marks[0] + marks[1].rjust(width // 2 + 4 - len(marks[0]))
    return left + marks[2].rjust(width - len(left))
