"""Bucketed distributions: the two layouts of OpenTelemetry, their differences, and sums that lose no count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetpulse.features._points import F64Array, I64Array

BUCKETS_MAX = 2048
"""An exponential histogram that would need more buckets for one range is brought to a coarser scale."""


@dataclass(frozen=True, slots=True)
class Explicit:
    """counts[i] observations in (bounds[i - 1], bounds[i]]; the first bucket has no lower bound, the last no upper.

    bounds: (k,) float64 ascending. counts: (k + 1,) int64.
    """

    bounds: F64Array
    counts: I64Array

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def same_layout(self, other: Distribution) -> bool:
        if not isinstance(other, Explicit):
            return False
        return self.bounds is other.bounds or np.array_equal(self.bounds, other.bounds)

    def minus(self, earlier: Distribution) -> Explicit | None:
        """What came since an earlier state of the same layout; None when a bucket has lost some."""
        assert isinstance(earlier, Explicit)
        counts = self.counts - earlier.counts
        return None if (counts < 0).any() else Explicit(self.bounds, counts)


@dataclass(frozen=True, slots=True)
class Side:
    """One range of an exponential histogram: counts[i] is bucket offset + i, magnitudes in (base**k, base**(k + 1)]."""

    offset: int
    counts: I64Array

    def coarser(self, steps: int) -> Side:
        """Merge 2**steps neighbours: bucket k becomes k >> steps, so no count is lost."""
        if steps == 0 or not len(self.counts):
            return self
        first = self.offset >> steps
        index = ((self.offset + np.arange(len(self.counts))) >> steps) - first
        counts = np.zeros(int(index[-1]) + 1, np.int64)
        np.add.at(counts, index, self.counts)
        return Side(first, counts)

    def trimmed(self) -> Side:
        """Without empty buckets at the ends."""
        filled = np.flatnonzero(self.counts)
        if not len(filled):
            return Side(0, self.counts[:0])
        return Side(self.offset + int(filled[0]), self.counts[filled[0] : filled[-1] + 1])

    def edges(self, scale: int) -> tuple[F64Array, F64Array]:
        """Lower and upper magnitudes of the buckets."""
        exponents = (self.offset + np.arange(len(self.counts) + 1)) * 2.0**-scale
        edges = np.exp2(np.clip(exponents, -1074.0, 1023.999))
        return edges[:-1], edges[1:]


@dataclass(frozen=True, slots=True)
class Exponential:
    """zero_count observations with magnitudes up to zero_threshold, and the two ranges; base = 2**(2**-scale)."""

    scale: int
    zero_count: int
    zero_threshold: float
    positive: Side
    negative: Side

    @property
    def count(self) -> int:
        return self.zero_count + int(self.positive.counts.sum()) + int(self.negative.counts.sum())

    def same_layout(self, other: Distribution) -> bool:
        """Any two exponential histograms can be brought to one layout."""
        return isinstance(other, Exponential)

    def minus(self, earlier: Distribution) -> Exponential | None:
        """What came since an earlier state, at the coarser of both scales; None when a bucket has lost some."""
        assert isinstance(earlier, Exponential)
        now, before = _aligned([self, earlier])
        zero = now.zero_count - before.zero_count
        positive = now.positive.counts - before.positive.counts
        negative = now.negative.counts - before.negative.counts
        if zero < 0 or (positive < 0).any() or (negative < 0).any():
            return None
        return Exponential(
            now.scale,
            zero,
            now.zero_threshold,
            Side(now.positive.offset, positive),
            Side(now.negative.offset, negative),
        )


Distribution = Explicit | Exponential


def merged_exponential(parts: Sequence[Exponential]) -> Exponential:
    """The histogram of all parts' observations, at the coarsest of their scales and with the largest zero bucket.

    Source: OpenTelemetry metrics data model, "ExponentialHistogram: Merge" and "Zero Count and Zero Threshold".
    """
    by_layout: dict[tuple[int, float], list[Exponential]] = {}
    for part in parts:
        by_layout.setdefault((part.scale, part.zero_threshold), []).append(part)
    same = [_summed(group) for group in by_layout.values()]
    return same[0] if len(same) == 1 else _summed(_aligned(same))


def _summed(parts: Sequence[Exponential]) -> Exponential:
    """The sum of parts of one scale and one zero threshold."""
    if len(parts) == 1:
        return parts[0]
    for side in ("positive", "negative"):
        if _width([getattr(part, side) for part in parts]) > BUCKETS_MAX:
            parts = _aligned(parts)
    return Exponential(
        parts[0].scale,
        sum(part.zero_count for part in parts),
        parts[0].zero_threshold,
        _summed_sides([part.positive for part in parts]),
        _summed_sides([part.negative for part in parts]),
    )


def _summed_sides(sides: Sequence[Side]) -> Side:
    filled = [side for side in sides if len(side.counts)]
    if not filled:
        return sides[0]
    first = min(side.offset for side in filled)
    counts = np.zeros(_width(filled), np.int64)
    for side in filled:
        counts[side.offset - first : side.offset - first + len(side.counts)] += side.counts
    return Side(first, counts)


def merged_explicit(parts: Sequence[Explicit]) -> list[Explicit]:
    """One sum for each layout, layouts in the order of their bounds."""
    by_layout: dict[tuple[float, ...], list[Explicit]] = {}
    layout_of: dict[int, tuple[float, ...]] = {}
    for part in parts:
        layout = layout_of.get(id(part.bounds))
        if layout is None:
            layout = layout_of[id(part.bounds)] = tuple(part.bounds.tolist())
        by_layout.setdefault(layout, []).append(part)
    return [
        Explicit(group[0].bounds, np.sum([part.counts for part in group], axis=0))
        for _, group in sorted(by_layout.items())
    ]


def _aligned(parts: Sequence[Exponential]) -> list[Exponential]:
    """The same distributions with one scale, one zero threshold and the same bucket ranges."""
    if len({(part.scale, part.zero_threshold) for part in parts}) == 1:
        ranges = [[part.positive for part in parts], [part.negative for part in parts]]
        if max(_width(sides) for sides in ranges) <= BUCKETS_MAX:
            first = parts[0]
            return [
                Exponential(first.scale, part.zero_count, first.zero_threshold, positive, negative)
                for part, positive, negative in zip(parts, _padded(ranges[0]), _padded(ranges[1]), strict=True)
            ]
    scale = min(part.scale for part in parts)
    sides = [
        (p.positive.trimmed().coarser(p.scale - scale), p.negative.trimmed().coarser(p.scale - scale)) for p in parts
    ]
    while max(_width([pair[side] for pair in sides]) for side in (0, 1)) > BUCKETS_MAX:
        sides = [(positive.coarser(1), negative.coarser(1)) for positive, negative in sides]
        scale -= 1
    threshold = _common_threshold([part.zero_threshold for part in parts], sides, scale)
    swallowed = []
    for part, pair in zip(parts, sides, strict=True):
        zero, kept = part.zero_count, []
        for side in pair:
            inside = int((side.edges(scale)[0] < threshold).sum())
            zero += int(side.counts[:inside].sum())
            kept.append(Side(side.offset + inside, side.counts[inside:]).trimmed())
        swallowed.append((zero, kept[0], kept[1]))
    positives = _padded([positive for _, positive, _ in swallowed])
    negatives = _padded([negative for _, _, negative in swallowed])
    return [
        Exponential(scale, zero, threshold, positive, negative)
        for (zero, _, _), positive, negative in zip(swallowed, positives, negatives, strict=True)
    ]


def _common_threshold(thresholds: Sequence[float], sides: Sequence[tuple[Side, Side]], scale: int) -> float:
    """The largest threshold, raised to the upper edge of any filled bucket that it would cut."""
    threshold = max(thresholds)
    raised = threshold
    for pair in sides:
        for side in pair:
            lower, upper = side.edges(scale)
            cut = (side.counts > 0) & (lower < threshold) & (upper > threshold)
            if cut.any():
                raised = max(raised, float(upper[cut].max()))
    return raised


def _width(sides: Sequence[Side]) -> int:
    filled = [side for side in sides if len(side.counts)]
    if not filled:
        return 0
    return max(side.offset + len(side.counts) for side in filled) - min(side.offset for side in filled)


def _padded(sides: Sequence[Side]) -> list[Side]:
    """All over the range that holds every one of them."""
    filled = [side for side in sides if len(side.counts)]
    if not filled:
        return list(sides)
    if all(side.offset == sides[0].offset and len(side.counts) == len(sides[0].counts) for side in sides):
        return list(sides)
    first = min(side.offset for side in filled)
    width = _width(sides)
    padded = []
    for side in sides:
        counts = np.zeros(width, np.int64)
        if len(side.counts):
            counts[side.offset - first : side.offset - first + len(side.counts)] = side.counts
        padded.append(Side(first, counts))
    return padded
