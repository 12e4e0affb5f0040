"""Events: what is wrong, since when, and why. The topic's schema is Event.to_json."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

from fleetpulse.features._series import NodeId

EVENT_SCHEMA = 1
STATES = ("opened", "updated", "resolved")
SCOPES = ("node", "fleet")
SEVERITIES = ("info", "warning", "critical")
DETECTORS = ("forest", "guard", "silence", "peers")


class EventError(ValueError):
    """Bytes that are not an event of this schema."""


@dataclass(frozen=True)
class Reason:
    """One feature that explains an event.

    value, expected: in the feature's unit; expected is what the node's baseline and its peers say. deviation: signed,
    in robust standard deviations. A value that has none (a missing one) is None.
    """

    feature: str
    value: float | None
    expected: float | None
    unit: str
    deviation: float


@dataclass(frozen=True)
class Event:
    """One change of state of one anomaly. Events of the same id tell one story.

    node is "" for scope "fleet". score in [0, 1], higher is worse, 0.5 is the threshold. detector says which one
    speaks: "peers" (against its baseline and the pool), "guard" (a value never seen, a constant that moved),
    "forest" (an unusual combination), "silence". Times are event time in ms.
    """

    id: str
    state: str
    scope: str
    cluster: str
    node: str
    pool: str
    severity: str
    score: float
    opened_ms: int
    time_ms: int
    detector: str
    reasons: tuple[Reason, ...] = field(default=())

    def to_json(self) -> str:
        reasons = [
            {
                "feature": reason.feature,
                "value": _number(reason.value),
                "expected": _number(reason.expected),
                "unit": reason.unit,
                "deviation": _number(reason.deviation),
            }
            for reason in self.reasons
        ]
        document = {
            "schema": EVENT_SCHEMA,
            "id": self.id,
            "state": self.state,
            "scope": self.scope,
            "cluster": self.cluster,
            "node": self.node,
            "pool": self.pool,
            "severity": self.severity,
            "score": round(self.score, 6),
            "opened_ms": self.opened_ms,
            "time_ms": self.time_ms,
            "detector": self.detector,
            "reasons": reasons,
        }
        return json.dumps(document, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Event:
        """Raises EventError for what is not an event, or one of another schema."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise EventError(f"not JSON: {error}") from None
        if not isinstance(document, dict) or document.get("schema") != EVENT_SCHEMA:
            found = document.get("schema") if isinstance(document, dict) else None
            raise EventError(f"an event of schema {found!r}; this version reads schema {EVENT_SCHEMA}")
        try:
            reasons = tuple(
                Reason(row["feature"], row["value"], row["expected"], row["unit"], row["deviation"])
                for row in document["reasons"]
            )
            return cls(**{name: document[name] for name in _PLAIN}, reasons=reasons)
        except (KeyError, TypeError) as error:
            raise EventError(f"an event with a field missing or misplaced: {error}") from None


_PLAIN = (
    "id",
    "state",
    "scope",
    "cluster",
    "node",
    "pool",
    "severity",
    "score",
    "opened_ms",
    "time_ms",
    "detector",
)


def event_id(scope: str, pool: str, node: NodeId | None, opened_ms: int) -> str:
    """The same for the same node and opening time, in every process: a repeat is recognised by it."""
    parts = (scope, pool, "" if node is None else node.cluster, "" if node is None else node.node, str(opened_ms))
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(4, "little") + raw)
    return digest.hexdigest()


def _number(value: float | None) -> Any:
    """Six significant digits; None for what JSON cannot hold."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
