"""From ratios slide by slide to events: hysteresis, severity, and when an open event is told again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from fleetpulse.anomaly._event import Event, Reason, event_id
from fleetpulse.anomaly._settings import DetectorSettings
from fleetpulse.features._series import NodeId

CRITICAL_RATIO = 4.0
AT_ONCE_RATIO = 12.0
"""So far over the threshold that one slide is enough."""
_UPDATE_MIN_MS = 30_000
_COOL_MS = 600_000
_COOL_SLIDES = 6
"""An anomaly that ended less than 10 min ago must last this many slides to open again: no flapping."""


def score_of(ratio: float) -> float:
    """[0, 1): 0.5 at the threshold, 0.8 at four times it."""
    return ratio / (1.0 + ratio)


@dataclass(frozen=True)
class Finding:
    """What one slide says of one subject."""

    ratio: float
    detector: str
    reasons: tuple[Reason, ...]


@dataclass
class Track:
    """One subject (a node's deviation, a node's silence, the pool's shift) through time. Times in ms of event time."""

    scope: str
    pool: str
    node: NodeId | None
    over: int = 0
    under: int = 0
    ended_ms: int | None = None
    event: Event | None = None

    def step(self, t_ms: int, finding: Finding, settings: DetectorSettings, *, may_open: bool = True) -> Event | None:
        """Take one slide's finding; an event when something has to be told."""
        if self.event is None:
            return self._step_closed(t_ms, finding, settings, may_open)
        if finding.ratio < settings.resolve_below:
            self.under += 1
            if self.under >= settings.resolve_slides:
                return self.resolve(t_ms, finding.ratio)
            return None
        self.under = 0
        return self._step_open(t_ms, finding, settings)

    def is_over(self, t_ms: int) -> bool:
        """Nothing open, nothing brewing, and long enough ended that it may open again at once."""
        cooling = self.ended_ms is not None and t_ms - self.ended_ms < _COOL_MS
        return self.event is None and self.over == 0 and not cooling

    def open(self, t_ms: int, finding: Finding, severity: str) -> Event:
        self.over = self.under = 0
        self.event = Event(
            id=event_id(self.scope, self.pool, self.node, t_ms),
            state="opened",
            scope=self.scope,
            cluster=self.node.cluster if self.node else "",
            node=self.node.node if self.node else "",
            pool=self.pool,
            severity=severity,
            score=score_of(finding.ratio),
            opened_ms=t_ms,
            time_ms=t_ms,
            detector=finding.detector,
            reasons=finding.reasons,
        )
        return self.event

    def tell(self, t_ms: int, finding: Finding, severity: str) -> Event:
        """Tell the open event again with what is known now."""
        assert self.event is not None
        self.event = replace(
            self.event,
            state="updated",
            severity=severity,
            score=score_of(finding.ratio),
            time_ms=t_ms,
            detector=finding.detector if finding.reasons else self.event.detector,
            reasons=finding.reasons or self.event.reasons,
        )
        return self.event

    def resolve(self, t_ms: int, ratio: float) -> Event:
        assert self.event is not None
        told = replace(self.event, state="resolved", score=score_of(ratio), time_ms=t_ms)
        self.event, self.ended_ms, self.over, self.under = None, t_ms, 0, 0
        return told

    def _step_closed(self, t_ms: int, finding: Finding, settings: DetectorSettings, may_open: bool) -> Event | None:
        if finding.ratio < 1 or not finding.reasons:
            self.over = 0
            return None
        if not may_open:
            return None
        self.over += 1
        cooling = self.ended_ms is not None and t_ms - self.ended_ms < _COOL_MS
        needed = _COOL_SLIDES if cooling else 1 if finding.ratio >= AT_ONCE_RATIO else settings.open_slides
        if self.over < needed:
            return None
        return self.open(t_ms, finding, _severity(finding.ratio, "warning"))

    def _step_open(self, t_ms: int, finding: Finding, settings: DetectorSettings) -> Event | None:
        assert self.event is not None
        severity = _severity(finding.ratio, self.event.severity)
        since_ms = t_ms - self.event.time_ms
        told = {reason.feature for reason in self.event.reasons}
        is_news = finding.ratio >= 1 and bool(finding.reasons) and finding.reasons[0].feature not in told
        changed = severity != self.event.severity or is_news
        if since_ms >= settings.update_every_s * 1000 or (changed and since_ms >= _UPDATE_MIN_MS):
            return self.tell(t_ms, finding, severity)
        return None

    def to_row(self) -> dict[str, Any]:
        """For the snapshot: JSON types only."""
        row = asdict(self)
        row["node"] = list(self.node) if self.node else None
        row["event"] = self.event.to_json() if self.event else None
        return row

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Track:
        node = NodeId(*row["node"]) if row["node"] else None
        event = Event.from_json(row["event"]) if row["event"] else None
        return cls(**{**row, "node": node, "event": event})


def _severity(ratio: float, before: str) -> str:
    """Severity only rises while an event is open."""
    return "critical" if ratio >= CRITICAL_RATIO or before == "critical" else "warning"
