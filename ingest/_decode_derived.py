"""Numbers that no exporter sends but that follow from those it does: memory in use = total - free - buffers - cached.

The parts must stand in one request, with the same resource, scope, attributes and time. When one is missing there is no
number, not a wrong one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from fleetpulse.features._points import NumberPoints
from fleetpulse.features._series import Kind, SeriesIdentity, Temporality
from fleetpulse.ingest._aliases import AliasTable, Derivation

DERIVED_SCOPE = "fleetpulse.derived"

Enter = Callable[[SeriesIdentity], int]
"""Index of this series, which is entered when it is new; -1 when a limit leaves no room."""


@dataclass
class _Group:
    """One number to be derived. signs: by the series of a part, +1 or -1. target: its series, -1 before the first."""

    identity: SeriesIdentity
    parts: int
    signs: dict[int, int] = field(default_factory=dict)
    target: int = -1


class Derived:
    """Knows which series are parts of what. Fed with every new series; add() appends what has become known."""

    def __init__(self, aliases: AliasTable) -> None:
        self._aliases = aliases
        self._groups: dict[bytes, _Group] = {}
        self.roles: dict[int, list[_Group]] = {}
        """By the series of a part, what it is a part of."""
        self._targets: dict[int, _Group] = {}
        self._is_part = np.zeros(1_024, np.bool_)

    def learn(self, series: int, identity: SeriesIdentity) -> None:
        """Take note of a new series."""
        if identity.kind is not Kind.GAUGE:
            return
        for derivation, sign in self._aliases.derivations.get(identity.metric, ()):
            target = self._target(identity, derivation)
            group = self._groups.setdefault(target.key, _Group(target, len(derivation.plus) + len(derivation.minus)))
            group.signs[series] = sign
            self.roles.setdefault(series, []).append(group)
            if series >= len(self._is_part):
                self._is_part = np.concatenate([self._is_part, np.zeros(series + 1, np.bool_)])
            self._is_part[series] = True

    def forget(self, series: Iterable[int]) -> None:
        for index in series:
            target = self._targets.pop(index, None)
            if target is not None:
                target.target = -1
            for group in self.roles.pop(index, ()):
                self._is_part[index] = False
                del group.signs[index]
                if not group.signs:
                    self._groups.pop(group.identity.key, None)

    def add(self, points: NumberPoints, enter: Enter) -> NumberPoints:
        """The points, and behind them what follows from them, in the order in which it became complete."""
        known = points.series < len(self._is_part)
        places = np.flatnonzero(known & self._is_part[np.where(known, points.series, 0)])
        if not len(places):
            return points
        found: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
        rows: list[tuple[int, int, float]] = []
        for series, time_ns, value in zip(
            points.series[places].tolist(), points.time_ns[places].tolist(), points.value[places].tolist(), strict=True
        ):
            for group in self.roles[series]:
                parts = found[id(group), time_ns]
                parts[series] = group.signs[series] * value
                if len(parts) < group.parts:
                    continue
                if group.target < 0:
                    group.target = enter(group.identity)
                    self._targets[group.target] = group
                if group.target >= 0:
                    rows.append((group.target, time_ns, max(sum(parts.values()), 0.0)))
        return _appended(points, rows) if rows else points

    def _target(self, identity: SeriesIdentity, derivation: Derivation) -> SeriesIdentity:
        attributes = {derivation.labels.get(name, name): value for name, value in identity.attributes}
        attributes |= derivation.constant
        return SeriesIdentity(
            identity.node,
            identity.resource,
            f"{DERIVED_SCOPE}:{identity.scope}" if identity.scope else DERIVED_SCOPE,
            derivation.metric,
            self._aliases.units[derivation.metric],
            Kind.GAUGE,
            Temporality.UNSPECIFIED,
            False,
            tuple(sorted(attributes.items())),
        )


def _appended(points: NumberPoints, rows: list[tuple[int, int, float]]) -> NumberPoints:
    series, times, values = zip(*rows, strict=True)
    zeros = np.zeros(len(rows), np.int64)
    return NumberPoints(
        series=np.concatenate([points.series, np.array(series, np.int32)]),
        time_ns=np.concatenate([points.time_ns, np.array(times, np.int64)]),
        start_ns=np.concatenate([points.start_ns, zeros]),
        value=np.concatenate([points.value, np.array(values, np.float64)]),
        integer=np.concatenate([points.integer, zeros]),
        is_int=np.concatenate([points.is_int, zeros.astype(np.bool_)]),
    )
