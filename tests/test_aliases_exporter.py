"""A node exporter scraped by a Prometheus receiver: its text, through the whole core, becomes a host's features."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from fleetpulse.ingest._aliases import load_aliases
from fleetpulse.ingest._settings import Settings
from fleetpulse.ingest._shard import OfflinePipeline
from support.otlp_samples import NOW_NS, RECORD_MS, SECOND, key_values, one_resource, request

E2E = Path(__file__).parent / "data" / "prometheus_text" / "e2e-output.txt.gz"
LINE = re.compile(r"([a-zA-Z_:0-9]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
STEP_S = 15

Sample = tuple[str, str, dict[str, str], float]
"""Name, type, labels, value."""


def recorded() -> Iterator[Sample]:
    """The recorded scrape, of those names that the alias table or one of its derivations knows."""
    table = load_aliases()
    known = table.aliases.keys() | table.derivations.keys()
    kind = ""
    with gzip.open(E2E, "rt", encoding="utf-8") as text:
        for line in text:
            if line.startswith("# TYPE"):
                kind = line.split()[3]
            elif (found := LINE.fullmatch(line.strip())) and found[1] in known:
                yield found[1], kind, dict(LABEL.findall(found[2] or "")), float(found[3])


def left_out() -> Iterator[Sample]:
    """What the recording leaves out, because it changes from run to run."""
    yield "node_memory_MemAvailable_bytes", "gauge", {}, 1e9
    for mount, size in (("/", 1e11), ("/data", 1e12)):
        labels = {"device": f"/dev{mount}", "fstype": "ext4", "mountpoint": mount}
        for name, share in (("size", 1.0), ("free", 0.5), ("avail", 0.45)):
            yield f"node_filesystem_{name}_bytes", "gauge", labels, size * share
        yield "node_filesystem_files", "gauge", labels, 1e6
        yield "node_filesystem_files_free", "gauge", labels, 9e5
    for way in ("receive", "transmit"):
        for what in ("bytes", "packets", "drop", "errs"):
            yield f"node_network_{way}_{what}_total", "counter", {"device": "eth0"}, 1e6


def scrape(step: int) -> bytes:
    """The step-th scrape: counters grow by 10 each time."""
    metrics: dict[str, Metric] = {}
    for name, kind, labels, value in (*recorded(), *left_out()):
        metric = metrics.setdefault(name, Metric(name=name))
        # The receiver passes a type that it does not know on as a gauge.
        data = metric.sum if kind == "counter" else metric.gauge
        grown = value + 10 * step if kind in ("counter", "untyped") else value
        point = data.data_points.add(time_unix_nano=NOW_NS + step * STEP_S * SECOND, as_double=grown)
        point.attributes.extend(key_values(labels))
        if kind == "counter":
            metric.sum.aggregation_temporality = 2
            metric.sum.is_monotonic = True
            point.start_time_unix_nano = NOW_NS - 86_400 * SECOND
    return request(one_resource({"host.name": "n"}, *metrics.values()))


def test_a_node_exporter_fills_the_features_of_a_host() -> None:
    pipeline = OfflinePipeline(Settings())
    for step in range(8):
        pipeline.feed(scrape(step), RECORD_MS + step * STEP_S * 1000)
    result = pipeline.finish()
    (vector,) = result.vectors
    assert not any(result.refused.values())
    values = dict(zip(pipeline.catalog.names, vector.values.tolist(), strict=True))
    present = {name for name, value in values.items() if not np.isnan(value)}
    for group in ("cpu_", "memory_", "paging_", "disk_", "filesystem_", "network_", "pressure_", "numa_", "rdma_"):
        missing = {name for name in values if name.startswith(group)} - present
        # The kubelet and cAdvisor report these, the node exporter does not.
        assert {name for name in missing if not re.search("throttled|working_set|rss", name)} == set()
    assert vector.sources["contention_cpu_5m"] == "pressure"
    per_s = 10 / STEP_S
    assert values["network_receive_bytes_5m"] == np.float32(per_s)
    assert values["pressure_io_full_5m"] == np.float32(per_s)
    assert values["filesystem_used_share"] == np.float32(0.5)
    assert values["filesystem_inodes_used_share"] == np.float32(0.1)
    recording = {name: value for name, _, _, value in recorded()}
    parts = ("MemFree", "Buffers", "Cached", "SReclaimable")
    total, *rest = (recording[f"node_memory_{name}_bytes"] for name in ("MemTotal", *parts))
    np.testing.assert_allclose(values["memory_used_share_5m"], (total - sum(rest)) / total, rtol=1e-6)
