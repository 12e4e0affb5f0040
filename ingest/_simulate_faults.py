"""What can go wrong in the simulated fleet, when, and how much."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fleetpulse.ingest._durations import parse_duration
from fleetpulse.ingest._errors import UserError

F64Array = NDArray[np.float64]

FaultKind = Literal[
    "noisy-neighbour",
    "memory-leak",
    "disk-saturation",
    "packet-loss",
    "latency-step",
    "silent",
    "fleet-step",
]
KINDS: tuple[str, ...] = get_args(FaultKind)
ALL_NODES = "all"
LEAK_PER_S = 0.0006
"""Share of the node's memory that a leak of size 1 takes in a second: 10 MB of 16 GiB."""

_SPEC = re.compile(r"(?P<kind>[^:@]+)(:(?P<node>[^@]*))?@\+(?P<start>[^/x]+)(/(?P<duration>[^x]+))?(x(?P<size>.+))?")
_FORM = "KIND:NODE@+SECONDS[/DURATION][xSIZE], like disk-saturation:7@+60/5m or packet-loss:sim-node-003@+30x2"


@dataclass(frozen=True)
class Fault:
    """start_ms counts from the fleet's live start; end_ms is None for one that stays. node is None for all nodes.

    size: 1 is plainly visible, 0.2 is subtle; shares stay below what is possible.
    """

    kind: str
    node: int | None
    start_ms: int
    end_ms: int | None
    size: float = 1.0

    def active(self, since_start_ms: int) -> bool:
        return self.start_ms <= since_start_ms and (self.end_ms is None or since_start_ms < self.end_ms)


def parse_fault(text: str, names: Sequence[str]) -> Fault:
    """KIND:NODE@+START[/DURATION][xSIZE]; NODE is a name or an index from 0, times are seconds or durations.

    fleet-step concerns all nodes: its NODE is "all" or left out. Raises UserError that says what is wrong.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise UserError(f"the fault {text!r} is not {_FORM}")
    kind, node_text = match["kind"], match["node"]
    if kind not in KINDS:
        raise UserError(f"the fault {text!r}: {kind!r} is none of {', '.join(KINDS)}")
    start_ms = _time_ms(match["start"], text)
    duration_ms = None if match["duration"] is None else _time_ms(match["duration"], text)
    if duration_ms == 0:
        raise UserError(
            f"the fault {text!r} lasts no time: give a DURATION above 0, or leave it out for one that stays"
        )
    return Fault(
        kind=kind,
        node=_node(kind, node_text, names, text),
        start_ms=start_ms,
        end_ms=None if duration_ms is None else start_ms + duration_ms,
        size=_size(match["size"], text),
    )


def _node(kind: str, node: str | None, names: Sequence[str], text: str) -> int | None:
    if kind == "fleet-step":
        if node not in (None, "", ALL_NODES):
            raise UserError(f"the fault {text!r}: a fleet-step is of all nodes; write fleet-step:{ALL_NODES}@+...")
        return None
    if not node:
        raise UserError(f"the fault {text!r} names no node: write {_FORM}")
    if node in names:
        return names.index(node)
    if re.fullmatch(r"\d+", node, re.ASCII):
        if int(node) < len(names):
            return int(node)
        raise UserError(f"the fault {text!r}: there are only {len(names)} nodes, 0 to {len(names) - 1}")
    raise UserError(f"the fault {text!r}: there is no node {node!r}; they are {names[0]} to {names[-1]}")


def _time_ms(word: str, text: str) -> int:
    if re.fullmatch(r"\d+(\.\d{1,3})?", word, re.ASCII):
        return round(float(word) * 1000)
    if re.fullmatch(r"0(ms|s|m|h|d)", word, re.ASCII):
        return 0
    try:
        return parse_duration(word)
    except UserError as error:
        raise UserError(f"the fault {text!r}: {error}") from None


def _size(word: str | None, text: str) -> float:
    if word is None:
        return 1.0
    try:
        size = float(word)
    except ValueError:
        size = 0.0
    if not 0 < size <= 100:
        raise UserError(f"the fault {text!r}: the size {word!r} is no number above 0 and up to 100, like 0.5 or 2")
    return size


@dataclass
class Effects:
    """What the faults of a moment do to each node; all arrays have shape (n,).

    steal, throttled, loss, leaked: shares in [0, 1]. crowd: what neighbours want on top, as a share of the processors.
    demand: factor of the load. disk: factor of the time an operation takes. latency: factor of request times.
    """

    steal: F64Array
    throttled: F64Array
    crowd: F64Array
    demand: F64Array
    leaked: F64Array
    disk: F64Array
    loss: F64Array
    latency: F64Array
    silent: NDArray[np.bool_]


def effects(faults: Sequence[Fault], nodes: int, since_start_ms: int) -> Effects:
    """since_start_ms: time since the fleet's live start; negative in its history, where no fault is active."""
    zeros, ones = np.zeros(nodes), np.ones(nodes)
    found = Effects(
        steal=zeros.copy(),
        throttled=zeros.copy(),
        crowd=zeros.copy(),
        demand=ones.copy(),
        leaked=zeros.copy(),
        disk=ones.copy(),
        loss=zeros.copy(),
        latency=ones.copy(),
        silent=np.zeros(nodes, np.bool_),
    )
    for fault in faults:
        if not fault.active(since_start_ms):
            continue
        at = slice(None) if fault.node is None else slice(fault.node, fault.node + 1)
        match fault.kind:
            case "noisy-neighbour":
                found.steal[at] = np.minimum(found.steal[at] + 0.22 * fault.size, 0.6)
                found.throttled[at] = np.minimum(found.throttled[at] + 0.4 * fault.size, 0.9)
                found.crowd[at] += 0.35 * fault.size
            case "memory-leak":
                found.leaked[at] += LEAK_PER_S * fault.size * (since_start_ms - fault.start_ms) / 1000
            case "disk-saturation":
                found.disk[at] *= 1 + 29 * fault.size
            case "packet-loss":
                found.loss[at] = np.minimum(found.loss[at] + 0.03 * fault.size, 0.5)
            case "latency-step":
                found.latency[at] *= 1 + 2 * fault.size
            case "silent":
                found.silent[at] = True
            case "fleet-step":
                found.demand[at] *= 1 + 0.5 * fault.size
    return found
