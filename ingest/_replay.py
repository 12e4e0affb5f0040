"""Recordings played back: resources in the order of time, packed into records, re-timed and paced.

A recording is read to its end before the first record leaves: one that cannot be read writes nothing. What is kept in
memory meanwhile is a few numbers a resource; the bytes lie in a temporary file once they are many.
"""

from __future__ import annotations

import tempfile
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics

from fleetpulse.features._series import NodeId
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._otlp import OtlpError, length_field, read_request
from fleetpulse.ingest._otlp_files import read_requests, unreadable
from fleetpulse.ingest._otlp_resource import node_of, plain_texts
from fleetpulse.ingest._route import _cut as cut_request

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
GATHER_NS = 200 * NS_PER_MS
"""Resources of one node whose times are no further apart share a record: one scrape's receivers, not two scrapes."""
GATHERED_BYTES_MAX = 64 * 2**20
SPOOL_BYTES_MAX = 64 * 2**20
"""Up to here a recording stays in memory."""
LOOP_GAP_NS = NS_PER_S
TIME_NS_MAX = 2**63 - 1
"""A later time (after the year 2262) is a broken one and orders nothing."""

RESOURCE_METRICS = 1
_UNTIMED = -1
_UNATTRIBUTED = -1


@dataclass(frozen=True)
class SourceRecord:
    """A record of the source topic. time_ns: its newest sample. key: the node's, so that a node's records keep their
    order whatever the number of partitions; None for resources without a node."""

    value: bytes
    time_ns: int
    key: bytes | None
    resources: int

    @property
    def timestamp_ms(self) -> int:
        return self.time_ns // NS_PER_MS


@dataclass
class _Gathered:
    """A record that is being packed."""

    first_ns: int
    time_ns: int = 0
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class Recording:
    """All resources of some files, in the order of their times.

    A resource's time is its newest point. Those of equal time keep the order of the files. One without any time gets
    the one's before it.
    """

    def __init__(self, *, identity: Sequence[str], default_cluster: str) -> None:
        self.points = 0
        self.unattributed = 0
        self.first_ns = 0
        """Oldest sample; 0 while nothing has a time."""
        self.last_ns = 0
        self._identity = tuple(identity)
        self._default_cluster = default_cluster
        self._nodes: dict[NodeId, int] = {}
        self._spool = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES_MAX)  # noqa: SIM115
        self._times = array("q")
        self._starts = array("q")
        self._sizes = array("q")
        self._owners = array("l")

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    @property
    def resources(self) -> int:
        return len(self._times)

    @property
    def nodes(self) -> list[NodeId]:
        return list(self._nodes)

    def read(self, path: Path, on_read: Callable[[int], None] = lambda _: None) -> None:
        """Take in a file. on_read is called with the bytes of it read so far.

        Raises UserError, see read_requests; also for a message that is no metrics request.
        """
        before = self.resources
        for request, at, read in read_requests(path):
            try:
                entries = read_request(request)
            except OtlpError as error:
                raise unreadable(path, at, f"no metrics request begins here ({error})") from None
            for entry in entries:
                self._take(request[entry.body : entry.stop], path, at)
            on_read(read)
        if self.resources == before:
            raise UserError(f"{path} holds no metrics: check that it is the recording of a metrics pipeline")

    def records(self, *, record_bytes_max: int, shift_ns: int = 0) -> Iterator[SourceRecord]:
        """The recording as records of at most record_bytes_max bytes, every time in it moved by shift_ns.

        A resource goes whole into one record if it fits; a larger one is split between its metrics, then its points.
        Record times ascend, within GATHER_NS. Raises UserError when not even a point has a time.
        """
        times = _filled(np.array(self._times, np.int64))
        if times is None:
            raise UserError("no sample of the recording has a time: it cannot be put in order")
        keys = [f"{cluster}/{node}".encode() for cluster, node in self._nodes]
        open_records: OrderedDict[int, _Gathered] = OrderedDict()
        open_bytes = 0
        for i in np.argsort(times, kind="stable").tolist():
            time_ns, owner = int(times[i]), self._owners[i]
            while open_records:
                oldest_owner, oldest = next(iter(open_records.items()))
                if time_ns - oldest.first_ns <= GATHER_NS and open_bytes <= GATHERED_BYTES_MAX:
                    break
                open_bytes -= oldest.size
                yield _closed(open_records.pop(oldest_owner), oldest_owner, keys, shift_ns)
            for part in self._parts(i, shift_ns, record_bytes_max):
                gathered = open_records.get(owner)
                if gathered is not None and gathered.size + len(part) > record_bytes_max:
                    open_bytes -= gathered.size
                    yield _closed(open_records.pop(owner), owner, keys, shift_ns)
                    gathered = None
                if gathered is None:
                    gathered = open_records[owner] = _Gathered(time_ns)
                gathered.time_ns = time_ns
                gathered.parts.append(part)
                gathered.size += len(part)
                open_bytes += len(part)
        for owner, gathered in open_records.items():
            yield _closed(gathered, owner, keys, shift_ns)

    def _take(self, raw: bytes, path: Path, at: int) -> None:
        try:
            resource_metrics = ResourceMetrics.FromString(raw)
        except DecodeError:
            raise unreadable(path, at, "a resource of the message that begins here is no OTLP metrics") from None
        times = [point.time_unix_nano for metric in _metrics(resource_metrics) for point in _points(metric)]
        self.points += len(times)
        known = [time for time in times if 0 < time <= TIME_NS_MAX]
        if known:
            self.last_ns = max(self.last_ns, *known)
            self.first_ns = min(self.first_ns or known[0], *known)
        node = node_of(plain_texts(resource_metrics.resource.attributes), self._identity, self._default_cluster)
        if node is None:
            self.unattributed += 1
        self._owners.append(_UNATTRIBUTED if node is None else self._nodes.setdefault(node, len(self._nodes)))
        self._times.append(max(known, default=_UNTIMED))
        try:
            self._starts.append(self._spool.seek(0, 2))
            self._sizes.append(self._spool.write(raw))
        except OSError as error:
            raise UserError(
                f"the recording does not fit into the temporary directory {tempfile.gettempdir()} ({error.strerror}): "
                "make room there, or set TMPDIR to another directory"
            ) from None

    def _parts(self, i: int, shift_ns: int, record_bytes_max: int) -> Iterator[bytes]:
        """One resource as requests, more than one only if it is too large."""
        self._spool.seek(self._starts[i])
        raw = self._spool.read(self._sizes[i])
        if shift_ns:
            raw = shifted(raw, shift_ns)
        whole = length_field(RESOURCE_METRICS, raw)
        return iter((whole,)) if len(whole) <= record_bytes_max else cut_request(whole, record_bytes_max, 0)


def shifted(resource_metrics: bytes, shift_ns: int) -> bytes:
    """A ResourceMetrics with every time moved: points, their starts, exemplars. A time of 0 means none and stays."""
    message = ResourceMetrics.FromString(resource_metrics)
    for metric in _metrics(message):
        has_exemplars = metric.WhichOneof("data") != "summary"
        for point in _points(metric):
            point.time_unix_nano = _moved(point.time_unix_nano, shift_ns)
            point.start_time_unix_nano = _moved(point.start_time_unix_nano, shift_ns)
            if has_exemplars:
                for exemplar in point.exemplars:
                    exemplar.time_unix_nano = _moved(exemplar.time_unix_nano, shift_ns)
    return message.SerializeToString()


@dataclass(frozen=True)
class Playback:
    """When each record leaves.

    speed: event time over clock time; None sends everything at once. start_ns: the clock at the start. reference_ns:
    the (moved) event time that is due then: what is older leaves at once.
    """

    speed: float | None
    start_ns: int
    reference_ns: int

    def due_ns(self, time_ns: int) -> int:
        if self.speed is None:
            return self.start_ns
        return self.start_ns + round((time_ns - self.reference_ns) / self.speed)


def paced(
    records: Iterable[SourceRecord], playback: Playback, *, now_ns: Callable[[], int], wait_s: Callable[[float], object]
) -> Iterator[SourceRecord]:
    """The records, each when it is due; one that is overdue at once."""
    for record in records:
        delay_ns = playback.due_ns(record.time_ns) - now_ns()
        if delay_ns > 0:
            wait_s(delay_ns / NS_PER_S)
        yield record


def passes(recording: Recording, *, record_bytes_max: int, shift_ns: int, loop: bool) -> Iterator[SourceRecord]:
    """The recording once, or with loop again and again: each pass begins LOOP_GAP_NS after the end of the last."""
    period_ns = recording.last_ns - recording.first_ns + LOOP_GAP_NS
    while True:
        yield from recording.records(record_bytes_max=record_bytes_max, shift_ns=shift_ns)
        if not loop:
            return
        shift_ns += period_ns


def _metrics(resource_metrics: ResourceMetrics) -> Iterator[Metric]:
    for scope_metrics in resource_metrics.scope_metrics:
        yield from scope_metrics.metrics


def _points(metric: Metric) -> Iterable[Any]:
    """Data points of any kind: all have time_unix_nano and start_time_unix_nano."""
    kind = metric.WhichOneof("data")
    return getattr(metric, kind).data_points if kind else ()


def _moved(time_ns: int, shift_ns: int) -> int:
    return min(max(1, time_ns + shift_ns), TIME_NS_MAX) if time_ns else 0


def _filled(times: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Times with each _UNTIMED replaced by the time before it, or by the first one; None when there is none at all."""
    timed = np.flatnonzero(times != _UNTIMED)
    if not len(timed):
        return None
    before = np.searchsorted(timed, np.arange(len(times)), side="right") - 1
    return times[timed[np.maximum(before, 0)]]


def _closed(gathered: _Gathered, owner: int, keys: list[bytes], shift_ns: int) -> SourceRecord:
    return SourceRecord(
        value=b"".join(gathered.parts),
        time_ns=gathered.time_ns + shift_ns,
        key=None if owner == _UNATTRIBUTED else keys[owner],
        resources=len(gathered.parts),
    )
