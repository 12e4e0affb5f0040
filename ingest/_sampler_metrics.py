"""What the sampler reports: the instruments, and the shape in which sources hand over what they have read.

Names, units and labels are those of the OpenTelemetry collector's host metrics receiver, which are the catalog's own;
`system.pressure.*`, `system.numa.*`, `system.rdma.*`, `system.network.tcp.*` and a few more have no receiver and bear
fleetpulse's spelling (features/catalog.toml).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["counter", "updown", "gauge"]
Labels = Mapping[str, str]
Readings = dict[str, list[tuple[Labels, int | float]]]
"""Metric name -> its points, as one source has read them at one time."""


@dataclass(frozen=True)
class Instrument:
    """`every_ms`: a metric that is read along with faster ones, but need not be sent as often."""

    kind: Kind
    unit: str
    description: str
    every_ms: int = 10


INSTRUMENTS: dict[str, Instrument] = {
    "system.cpu.time": Instrument("counter", "s", "Time each CPU spent in each state"),
    "system.cpu.context_switches": Instrument("counter", "{switches}", "Context switches"),
    "system.cpu.frequency": Instrument("gauge", "Hz", "Frequency, mean of all CPUs"),
    "system.cpu.load_average.1m": Instrument("gauge", "{thread}", "Load average over 1 minute"),
    "system.cpu.load_average.5m": Instrument("gauge", "{thread}", "Load average over 5 minutes"),
    "system.cpu.load_average.15m": Instrument("gauge", "{thread}", "Load average over 15 minutes"),
    "system.memory.usage": Instrument("updown", "By", "Memory in use by state"),
    "system.memory.limit": Instrument("updown", "By", "Memory of the machine"),
    "system.linux.memory.available": Instrument("updown", "By", "Memory that new work can have without swapping"),
    "system.linux.memory.dirty": Instrument("updown", "By", "Memory that waits to be written to disk"),
    "system.memory.oom_kills": Instrument("counter", "{kills}", "Processes killed for want of memory"),
    "system.paging.faults": Instrument("counter", "{faults}", "Page faults"),
    "system.paging.operations": Instrument("counter", "{operations}", "Pages moved: major to swap, minor to files"),
    "system.paging.usage": Instrument("updown", "By", "Swap in use by state"),
    "system.pressure.total": Instrument("counter", "s", "Time in which some or all work waited for the resource"),
    "system.disk.io": Instrument("counter", "By", "Bytes read and written"),
    "system.disk.operations": Instrument("counter", "{operations}", "Operations completed"),
    "system.disk.operation_time": Instrument("counter", "s", "Time spent in operations"),
    "system.disk.io_time": Instrument("counter", "s", "Time in which any operation was running"),
    "system.disk.weighted_io_time": Instrument("counter", "s", "Running operations, integrated over time"),
    "system.disk.merged": Instrument("counter", "{operations}", "Operations merged into others", every_ms=100),
    "system.disk.pending_operations": Instrument("updown", "{operations}", "Operations running now", every_ms=100),
    "system.filesystem.usage": Instrument("updown", "By", "Bytes of a file system by state"),
    "system.filesystem.inodes.usage": Instrument("updown", "{inodes}", "Inodes of a file system by state"),
    "system.network.io": Instrument("counter", "By", "Bytes carried"),
    "system.network.packets": Instrument("counter", "{packets}", "Packets carried"),
    "system.network.errors": Instrument("counter", "{errors}", "Errors met", every_ms=100),
    "system.network.dropped": Instrument("counter", "{packets}", "Packets dropped", every_ms=100),
    "system.network.connections": Instrument("updown", "{connections}", "TCP connections by state"),
    "system.network.tcp.segments": Instrument("counter", "{segments}", "TCP segments carried"),
    "system.network.tcp.retransmits": Instrument("counter", "{segments}", "TCP segments sent again"),
    "system.network.conntrack.count": Instrument("updown", "{entries}", "Entries of the connection tracking table"),
    "system.network.conntrack.max": Instrument("updown", "{entries}", "Room in the connection tracking table"),
    "system.processes.count": Instrument("updown", "{processes}", "Processes by status"),
    "system.processes.created": Instrument("counter", "{processes}", "Processes created", every_ms=100),
    "system.uptime": Instrument("gauge", "s", "Time since boot"),
    "system.numa.allocations": Instrument("counter", "{pages}", "Pages allocated on a NUMA node by outcome"),
    "system.numa.memory.usage": Instrument("updown", "By", "Memory of a NUMA node by state"),
    "system.rdma.io": Instrument("counter", "By", "Bytes carried by an RDMA port"),
    "system.rdma.transmit_wait": Instrument("counter", "{ticks}", "Ticks in which an RDMA port had to wait to send"),
    "system.rdma.discards": Instrument("counter", "{packets}", "Packets discarded by an RDMA port"),
    "system.rdma.errors": Instrument("counter", "{errors}", "Errors of an RDMA port"),
}

SELF_INSTRUMENTS: dict[str, Instrument] = {
    "process.cpu.time": Instrument("counter", "s", "CPU time of the sampler's process"),
    "process.memory.usage": Instrument("updown", "By", "Resident memory of the sampler's process"),
    "fleetpulse.sampler.collections": Instrument("counter", "{collections}", "Collections made"),
    "fleetpulse.sampler.ticks_missed": Instrument("counter", "{ticks}", "Ticks that passed during a collection"),
    "fleetpulse.sampler.records": Instrument("counter", "{records}", "Records acknowledged"),
    "fleetpulse.sampler.bytes": Instrument("counter", "By", "Bytes of acknowledged records, before compression"),
    "fleetpulse.sampler.records_lost": Instrument("counter", "{records}", "Records that were not acknowledged"),
}


class Source(Protocol):
    """One thing to read, once per collection at most.

    `every_ms`: reading more often yields nothing new (the kernel updates it no faster) or costs more than it tells.
    `read` raises OSError or ValueError when this machine does not have it or does not allow it.
    """

    name: str
    every_ms: int

    def read(self) -> Readings: ...
