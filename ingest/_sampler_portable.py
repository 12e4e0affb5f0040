"""What psutil tells on every system: file systems everywhere, and the rest where there is no /proc (macOS)."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import psutil

from fleetpulse.ingest._sampler_metrics import Labels, Readings, Source

# Images are full by design; a pool's "fullest file system" would always be one of them.
IMAGE_TYPES = {"squashfs", "iso9660", "erofs", "cramfs"}
MOUNTS_EVERY_READS = 60


class FilesystemSource:
    """File systems on devices, one mount of each (the one with the shortest path)."""

    name = "file systems"

    def __init__(self, every_ms: int) -> None:
        self.every_ms = every_ms
        self._mounts: list[tuple[str, Labels]] = []
        self._reads = 0

    def read(self) -> Readings:
        if self._reads % MOUNTS_EVERY_READS == 0:
            self._mounts = list(_mounts())
        self._reads += 1
        usage: list[tuple[Labels, int | float]] = []
        inodes: list[tuple[Labels, int | float]] = []
        for mountpoint, labels in self._mounts:
            try:
                found = os.statvfs(mountpoint)
            except OSError:
                # Unmounted, or not for us: the list is made anew soon.
                continue
            size = found.f_frsize
            for state, blocks in (
                ("used", found.f_blocks - found.f_bfree),
                ("free", found.f_bavail),
                ("reserved", found.f_bfree - found.f_bavail),
            ):
                usage.append(({**labels, "state": state}, blocks * size))
            for state, count in (("used", found.f_files - found.f_ffree), ("free", found.f_ffree)):
                inodes.append(({**labels, "state": state}, count))
        return {"system.filesystem.usage": usage, "system.filesystem.inodes.usage": inodes}


def _mounts() -> list[tuple[str, Labels]]:
    by_device: dict[str, Any] = {}
    for part in sorted(psutil.disk_partitions(all=False), key=lambda part: len(part.mountpoint)):
        if part.fstype not in IMAGE_TYPES:
            by_device.setdefault(part.device, part)
    return [
        (
            part.mountpoint,
            {
                "device": part.device,
                "mountpoint": part.mountpoint,
                "type": part.fstype,
                "mode": "ro" if "ro" in part.opts.split(",") else "rw",
            },
        )
        for part in by_device.values()
    ]


class PsutilSource:
    """CPU, load, memory, disks and network where there is no /proc."""

    name = "psutil"

    def __init__(self, every_ms: int) -> None:
        self.every_ms = every_ms

    def read(self) -> Readings:
        readings: Readings = {}
        readings["system.cpu.time"] = [
            ({"cpu": f"cpu{number}", "state": {"iowait": "wait", "irq": "interrupt"}.get(state, state)}, seconds)
            for number, times in enumerate(psutil.cpu_times(percpu=True))
            for state, seconds in times._asdict().items()
            if state in {"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"}
        ]
        for span, load in zip(("1m", "5m", "15m"), psutil.getloadavg(), strict=True):
            readings[f"system.cpu.load_average.{span}"] = [({}, load)]
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        readings["system.memory.limit"] = [({}, memory.total)]
        readings["system.memory.usage"] = [
            ({"state": "used"}, memory.total - memory.available),
            ({"state": "free"}, memory.free),
            ({"state": "cached"}, max(0, memory.available - memory.free)),
        ]
        readings["system.paging.usage"] = [({"state": "used"}, swap.used), ({"state": "free"}, swap.free)]
        readings["system.processes.count"] = [({"status": "unknown"}, len(psutil.pids()))]
        # psutil has neither on some systems and in some sandboxes; what was read above is worth sending.
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            readings |= self._disks()
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            readings |= self._network()
        return readings

    @staticmethod
    def _disks() -> Readings:
        readings: Readings = {name: [] for name in ("system.disk.io", "system.disk.operations")}
        readings["system.disk.operation_time"] = []
        for device, found in (psutil.disk_io_counters(perdisk=True) or {}).items():
            for direction in ("read", "write"):
                labels = {"device": device, "direction": direction}
                readings["system.disk.io"].append((labels, getattr(found, f"{direction}_bytes")))
                readings["system.disk.operations"].append((labels, getattr(found, f"{direction}_count")))
                readings["system.disk.operation_time"].append((labels, getattr(found, f"{direction}_time") / 1000))
        return readings

    @staticmethod
    def _network() -> Readings:
        readings: Readings = {f"system.network.{what}": [] for what in ("io", "packets", "errors", "dropped")}
        for device, found in psutil.net_io_counters(pernic=True).items():
            for direction, word, way in (("receive", "recv", "in"), ("transmit", "sent", "out")):
                labels = {"device": device, "direction": direction}
                readings["system.network.io"].append((labels, getattr(found, f"bytes_{word}")))
                readings["system.network.packets"].append((labels, getattr(found, f"packets_{word}")))
                readings["system.network.errors"].append((labels, getattr(found, f"err{way}")))
                readings["system.network.dropped"].append((labels, getattr(found, f"drop{way}")))
        return readings


def portable_sources() -> list[Source]:
    """Everything that can be read without /proc."""
    return [PsutilSource(10)]
