"""Linux: what /proc and /sys say, parsed. Functions take the files' text and return readings; classes read the files.

Each file is read once per collection, so that numbers that belong together are of one time.
Sources: the kernel's Documentation/filesystems/proc.rst, admin-guide/iostats.rst, accounting/psi.rst.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from fleetpulse.ingest._sampler_metrics import Labels, Readings, Source

CPU_STATES = ("user", "nice", "system", "idle", "wait", "interrupt", "softirq", "steal")
SECTOR_BYTES = 512
RDMA_WORD_BYTES = 4
READ_BYTES_MAX = 1 << 16


@lru_cache(maxsize=1 << 16)
def _labels(*pairs: tuple[str, str]) -> Labels:
    """One object per set of labels, made once."""
    return dict(pairs)


def _directed(device: str, direction: str) -> Labels:
    return _labels(("device", device), ("direction", direction))


def read_file(path: str) -> str:
    """The whole text of a file of /proc or /sys. Twice as fast as open().read(), and it is done often."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(descriptor, READ_BYTES_MAX)]
        while parts[-1]:
            parts.append(os.read(descriptor, READ_BYTES_MAX))
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def parse_stat(text: str, ticks_per_s: int) -> Readings:
    """/proc/stat: CPU time, context switches, processes created, threads running and blocked."""
    times: list[tuple[Labels, int | float]] = []
    found: dict[str, int] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word.startswith("cpu") and len(word) > 3:
            for state, ticks in zip(CPU_STATES, rest.split(), strict=False):
                times.append((_labels(("cpu", word), ("state", state)), int(ticks) / ticks_per_s))
        elif word in {"ctxt", "processes", "procs_running", "procs_blocked"}:
            found[word] = int(rest)
    return {
        "system.cpu.time": times,
        "system.cpu.context_switches": [({}, found["ctxt"])],
        "system.processes.created": [({}, found["processes"])],
        "system.processes.count": [
            (_labels(("status", "running")), found["procs_running"]),
            (_labels(("status", "blocked")), found["procs_blocked"]),
        ],
    }


def parse_meminfo(text: str) -> Readings:
    """/proc/meminfo. used + free + buffered + cached is the whole memory, as in the receiver."""
    kb: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        kb[name] = int(rest.split(None, 1)[0])
    total, free, buffers = kb["MemTotal"], kb["MemFree"], kb["Buffers"]
    cached = kb["Cached"] + kb.get("SReclaimable", 0)
    states = {
        "used": total - free - buffers - cached,
        "free": free,
        "buffered": buffers,
        "cached": cached,
        "slab_reclaimable": kb.get("SReclaimable", 0),
        "slab_unreclaimable": kb.get("SUnreclaim", 0),
    }
    readings: Readings = {
        "system.memory.usage": [(_labels(("state", state)), size * 1024) for state, size in states.items()],
        "system.memory.limit": [({}, total * 1024)],
        "system.linux.memory.dirty": [({}, kb.get("Dirty", 0) * 1024)],
    }
    if "MemAvailable" in kb:
        readings["system.linux.memory.available"] = [({}, kb["MemAvailable"] * 1024)]
    swap_free, swap_cached = kb["SwapFree"], kb["SwapCached"]
    swap = {"used": kb["SwapTotal"] - swap_free - swap_cached, "free": swap_free, "cached": swap_cached}
    readings["system.paging.usage"] = [(_labels(("state", state)), size * 1024) for state, size in swap.items()]
    return readings


def parse_vmstat(text: str) -> Readings:
    """/proc/vmstat: faults, paging to swap (major) and to files (minor), kills for want of memory.

    pgpgin and pgpgout count kilobytes, here in pages of 4 kB as the kernel does for swap.
    """
    count: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in {"pgfault", "pgmajfault", "pswpin", "pswpout", "pgpgin", "pgpgout", "oom_kill"}:
            count[name] = int(value)

    def moved(direction: str, kind: str) -> Labels:
        return _labels(("direction", direction), ("type", kind))

    readings: Readings = {
        "system.paging.faults": [
            (_labels(("type", "major")), count["pgmajfault"]),
            (_labels(("type", "minor")), count["pgfault"] - count["pgmajfault"]),
        ],
        "system.paging.operations": [
            (moved("page_in", "major"), count["pswpin"]),
            (moved("page_out", "major"), count["pswpout"]),
            (moved("page_in", "minor"), count["pgpgin"] // 4),
            (moved("page_out", "minor"), count["pgpgout"] // 4),
        ],
    }
    if "oom_kill" in count:
        readings["system.memory.oom_kills"] = [({}, count["oom_kill"])]
    return readings


def parse_pressure(text: str, resource: str) -> list[tuple[Labels, float]]:
    """/proc/pressure/<resource>: the totals, which the kernel gives in microseconds, in seconds."""
    points = []
    for line in text.splitlines():
        kind, *fields = line.split()
        for field in fields:
            name, _, value = field.partition("=")
            if name == "total":
                points.append((_labels(("resource", resource), ("kind", kind)), int(value) / 1_000_000))
    return points


def parse_diskstats(text: str, wanted: Callable[[str], bool]) -> Readings:
    """/proc/diskstats. A device that has never done anything is left out."""
    readings: Readings = {name: [] for name in _DISK_METRICS}
    for line in text.splitlines():
        _, _, device, *fields = line.split()
        values = [int(field) for field in fields[:11]]
        reads, writes, (pending, io_ms, weighted_ms) = values[:4], values[4:8], values[8:]
        if not (reads[0] or writes[0]) or not wanted(device):
            continue
        for direction, (operations, merged, sectors, time_ms) in (("read", reads), ("write", writes)):
            labels = _directed(device, direction)
            readings["system.disk.operations"].append((labels, operations))
            readings["system.disk.merged"].append((labels, merged))
            readings["system.disk.io"].append((labels, sectors * SECTOR_BYTES))
            readings["system.disk.operation_time"].append((labels, time_ms / 1000))
        whole = _labels(("device", device))
        readings["system.disk.io_time"].append((whole, io_ms / 1000))
        readings["system.disk.weighted_io_time"].append((whole, weighted_ms / 1000))
        readings["system.disk.pending_operations"].append((whole, pending))
    return readings


_DISK_METRICS = (
    "system.disk.io",
    "system.disk.operations",
    "system.disk.merged",
    "system.disk.operation_time",
    "system.disk.io_time",
    "system.disk.weighted_io_time",
    "system.disk.pending_operations",
)

# Columns of /proc/net/dev after the interface: these four of the receiving side, and the same of the sending side.
_NETWORK_METRICS = ("system.network.io", "system.network.packets", "system.network.errors", "system.network.dropped")
_TRANSMIT = 8


def parse_net_dev(text: str) -> Readings:
    """/proc/net/dev. An interface that has never carried or dropped anything is left out."""
    readings: Readings = {name: [] for name in _NETWORK_METRICS}
    for line in text.splitlines()[2:]:
        device, _, rest = line.partition(":")
        values = [int(value) for value in rest.split()]
        received, sent = values[:4], values[_TRANSMIT : _TRANSMIT + 4]
        if not any(received) and not any(sent):
            continue
        receive, transmit = _directed(device.strip(), "receive"), _directed(device.strip(), "transmit")
        for name, one, other in zip(_NETWORK_METRICS, received, sent, strict=True):
            readings[name] += [(receive, one), (transmit, other)]
    return readings


def parse_snmp(text: str) -> Readings:
    """/proc/net/snmp: TCP segments. The kernel's CurrEstab is ESTABLISHED and CLOSE_WAIT together (RFC 4022)."""
    lines = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    tcp = dict(zip(lines[0][1:], lines[1][1:], strict=True))
    return {
        "system.network.tcp.segments": [
            (_labels(("direction", "receive")), int(tcp["InSegs"])),
            (_labels(("direction", "transmit")), int(tcp["OutSegs"])),
        ],
        "system.network.tcp.retransmits": [({}, int(tcp["RetransSegs"]))],
        "system.network.connections": [
            (_labels(("protocol", "tcp"), ("state", "ESTABLISHED")), int(tcp["CurrEstab"])),
        ],
    }


def parse_sockstat(text: str) -> Readings:
    """/proc/net/sockstat: connections in TIME_WAIT."""
    for line in text.splitlines():
        words = line.split()
        if words[0] == "TCP:":
            tcp = dict(zip(words[1::2], words[2::2], strict=True))
            labels = _labels(("protocol", "tcp"), ("state", "TIME_WAIT"))
            return {"system.network.connections": [(labels, int(tcp["tw"]))]}
    raise ValueError("no line for TCP")


def parse_load(text: str) -> Readings:
    """/proc/loadavg."""
    values = text.split()[:3]
    return {
        f"system.cpu.load_average.{span}": [({}, float(value))]
        for span, value in zip(("1m", "5m", "15m"), values, strict=True)
    }


def parse_uptime(text: str) -> Readings:
    """/proc/uptime."""
    return {"system.uptime": [({}, float(text.split()[0]))]}


def parse_numastat(text: str, node: str) -> list[tuple[Labels, int]]:
    """/sys/devices/system/node/node*/numastat."""
    outcomes = {"numa_hit": "hit", "numa_miss": "miss", "numa_foreign": "foreign", "interleave_hit": "interleave"}
    outcomes |= {"local_node": "local", "other_node": "other"}
    pairs = (line.split() for line in text.splitlines())
    return [
        (_labels(("numa_node", node), ("outcome", outcomes[name])), int(value))
        for name, value in pairs
        if name in outcomes
    ]


def parse_node_meminfo(text: str, node: str) -> list[tuple[Labels, int]]:
    """/sys/devices/system/node/node*/meminfo."""
    kb = {words[2].rstrip(":"): int(words[3]) for line in text.splitlines() if len(words := line.split()) >= 4}
    return [
        (_labels(("numa_node", node), ("state", state)), kb[name] * 1024)
        for state, name in (("used", "MemUsed"), ("free", "MemFree"))
    ]


class SteadyTimes:
    """Keeps CPU times from stepping back.

    The kernel's idle and iowait sums can drop by a few ticks between two reads (proc.rst says so), which a reader of
    cumulative counters would take for a restart. A drop of a second or more is real and passes.
    """

    def __init__(self) -> None:
        self._last: dict[int, float] = {}

    def steady(self, points: list[tuple[Labels, int | float]]) -> list[tuple[Labels, int | float]]:
        """The points in the same order; index by index they are the same series."""
        out: list[tuple[Labels, int | float]] = []
        for at, (labels, value) in enumerate(points):
            last = self._last.get(at, value)
            if last - 1 < value < last:
                value = last
            self._last[at] = value
            out.append((labels, value))
        return out


class FileSource:
    """A source that is one file and its parser."""

    def __init__(self, name: str, every_ms: int, path: str, parse: Callable[[str], Readings]) -> None:
        self.name, self.every_ms = name, every_ms
        self._path, self._parse = path, parse

    def read(self) -> Readings:
        return self._parse(read_file(self._path))


class StatSource:
    """/proc/stat, with CPU times kept from stepping back.

    status=running and blocked count threads, as the kernel does.
    """

    name = "cpu"

    def __init__(self, every_ms: int, proc: str) -> None:
        self.every_ms = every_ms
        self.busy = 0
        self._path = f"{proc}/stat"
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._times = SteadyTimes()

    def read(self) -> Readings:
        readings = parse_stat(read_file(self._path), self._ticks_per_s)
        readings["system.cpu.time"] = self._times.steady(readings["system.cpu.time"])
        self.busy = sum(int(count) for _, count in readings["system.processes.count"])
        return readings


class ProcessSource:
    """Processes that neither run nor wait for a disk: all of /proc less those that /proc/stat counted just before."""

    name = "processes"

    def __init__(self, every_ms: int, proc: str, stat: StatSource) -> None:
        self.every_ms = every_ms
        self._proc, self._stat = proc, stat

    def read(self) -> Readings:
        total = sum(1 for name in os.listdir(self._proc) if name.isdigit())
        return {"system.processes.count": [(_labels(("status", "sleeping")), max(0, total - self._stat.busy))]}


class PressureSource:
    """/proc/pressure. The kernel brings the totals up to date every two seconds."""

    name = "pressure"

    def __init__(self, every_ms: int, proc: str) -> None:
        self.every_ms = every_ms
        self._proc = proc

    def read(self) -> Readings:
        points: list[tuple[Labels, int | float]] = []
        reason: OSError | None = None
        for resource in ("cpu", "memory", "io"):
            try:
                points += parse_pressure(read_file(f"{self._proc}/pressure/{resource}"), resource)
            except OSError as error:
                reason = error
        if not points and reason is not None:
            raise reason
        return {"system.pressure.total": points}


class DiskSource:
    """/proc/diskstats, each byte once: no partitions, and no devices made of others (LVM, RAID, encryption)."""

    name = "disk"

    def __init__(self, every_ms: int, proc: str, sys: str) -> None:
        self.every_ms = every_ms
        self._proc, self._blocks = proc, Path(sys) / "block"
        self._wanted: dict[str, bool] = {}

    def read(self) -> Readings:
        return parse_diskstats(read_file(f"{self._proc}/diskstats"), self._is_wanted)

    def _is_wanted(self, device: str) -> bool:
        known = self._wanted.get(device)
        if known is None:
            known = self._wanted[device] = self._stands_alone(device)
        return known

    def _stands_alone(self, device: str) -> bool:
        if device.startswith(("loop", "ram", "zram")):
            return False
        if not self._blocks.is_dir():
            return True
        # The kernel writes a slash in a device's name as an exclamation mark here.
        block = self._blocks / device.replace("/", "!")
        slaves = block / "slaves"
        return block.exists() and not (slaves.is_dir() and any(slaves.iterdir()))


class ConntrackSource:
    name = "conntrack"

    def __init__(self, every_ms: int, proc: str) -> None:
        self.every_ms = every_ms
        self._folder = f"{proc}/sys/net/netfilter"

    def read(self) -> Readings:
        return {
            f"system.network.conntrack.{what}": [({}, int(read_file(f"{self._folder}/nf_conntrack_{what}")))]
            for what in ("count", "max")
        }


class NumaSource:
    name = "NUMA nodes"

    def __init__(self, every_ms: int, sys: str) -> None:
        self.every_ms = every_ms
        self._folder = Path(sys) / "devices/system/node"
        self._nodes: dict[str, str] | None = None

    def read(self) -> Readings:
        if self._nodes is None:
            self._nodes = {path.name[4:]: str(path) for path in sorted(self._folder.glob("node[0-9]*"))}
        if not self._nodes:
            raise FileNotFoundError(f"no {self._folder}/node*")
        allocations: list[tuple[Labels, int | float]] = []
        usage: list[tuple[Labels, int | float]] = []
        for node, path in self._nodes.items():
            allocations += parse_numastat(read_file(f"{path}/numastat"), node)
            usage += parse_node_meminfo(read_file(f"{path}/meminfo"), node)
        return {"system.numa.allocations": allocations, "system.numa.memory.usage": usage}


class RdmaSource:
    """/sys/class/infiniband. Data counters are in words of four bytes."""

    name = "RDMA ports"
    _FILES: Mapping[str, tuple[str, str | None]] = {
        "port_rcv_data": ("system.rdma.io", "receive"),
        "port_xmit_data": ("system.rdma.io", "transmit"),
        "port_xmit_wait": ("system.rdma.transmit_wait", None),
        "port_xmit_discards": ("system.rdma.discards", None),
        "port_rcv_errors": ("system.rdma.errors", None),
    }

    def __init__(self, every_ms: int, sys: str) -> None:
        self.every_ms = every_ms
        self._ports = list(self._find(Path(sys) / "class/infiniband"))

    @staticmethod
    def _find(folder: Path) -> Iterator[tuple[str, str, str]]:
        for counters in sorted(folder.glob("*/ports/*/counters")):
            yield counters.parts[-4], counters.parts[-2], str(counters)

    def read(self) -> Readings:
        if not self._ports:
            raise FileNotFoundError("no RDMA port")
        readings: Readings = {metric: [] for metric, _ in self._FILES.values()}
        for device, port, folder in self._ports:
            for file, (metric, direction) in self._FILES.items():
                try:
                    value = int(read_file(f"{folder}/{file}"))
                except FileNotFoundError:
                    # Not every adapter has every counter.
                    continue
                labels = (("device", device), ("port", port))
                if direction is None:
                    readings[metric].append((_labels(*labels), value))
                else:
                    readings[metric].append((_labels(*labels, ("direction", direction)), value * RDMA_WORD_BYTES))
        return readings


class FrequencySource:
    name = "CPU frequency"

    def __init__(self, every_ms: int, sys: str) -> None:
        self.every_ms = every_ms
        folder = Path(sys) / "devices/system/cpu"
        self._files = [str(path) for path in sorted(folder.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))]

    def read(self) -> Readings:
        if not self._files:
            raise FileNotFoundError("no cpufreq")
        khz = [int(read_file(path)) for path in self._files]
        return {"system.cpu.frequency": [({}, 1000 * sum(khz) / len(khz))]}


def linux_sources(proc: str = "/proc", sys: str = "/sys") -> list[Source]:
    """All sources; why each is read as often as it is stands beside it."""
    stat = StatSource(10, proc)
    return [
        # Scheduler ticks are 1 to 10 ms long.
        stat,
        DiskSource(10, proc, sys),
        FileSource("network", 10, f"{proc}/net/dev", parse_net_dev),
        # Changes matter, but no one acts on memory within a tenth of a second.
        FileSource("memory", 100, f"{proc}/meminfo", parse_meminfo),
        FileSource("paging", 100, f"{proc}/vmstat", parse_vmstat),
        # The kernel updates the load every five seconds and pressure totals every two.
        FileSource("load", 1_000, f"{proc}/loadavg", parse_load),
        PressureSource(1_000, proc),
        FileSource("uptime", 1_000, f"{proc}/uptime", parse_uptime),
        # Dear to read.
        ProcessSource(1_000, proc, stat),
        FileSource("TCP", 1_000, f"{proc}/net/snmp", parse_snmp),
        FileSource("TCP sockets", 1_000, f"{proc}/net/sockstat", parse_sockstat),
        ConntrackSource(1_000, proc),
        NumaSource(1_000, sys),
        RdmaSource(1_000, sys),
        FrequencySource(1_000, sys),
    ]
