"""The recorded cluster through the offline core, against a plain walk over its protobuf objects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import zstandard
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

CAPTURE = Path(__file__).parents[1] / "ingest" / "recordings" / "hipstershop-otelmetrics.zst"
WINDOW_NS = 300_000_000_000
SCRAPE_NS = 10_000_000_000
Samples = dict[tuple[tuple[str, str], ...], list[tuple[int, float]]]
"""By the labels of a point, its (time in ns, value)."""


@pytest.fixture(scope="module")
def printed() -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """Vectors by node, and the counts of what was refused, as `replay --offline --json` prints them."""
    command = [sys.executable, "-m", "fleetpulse.ingest", "replay", str(CAPTURE), "--offline", "--json"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FLEETPULSE_")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=True)
    vectors = [json.loads(line) for line in done.stdout.splitlines()]
    return {vector["node"]: vector for vector in vectors}, json.loads(done.stderr)


@pytest.fixture(scope="module")
def walked() -> dict[str, dict[str, Samples]]:
    """By node and metric, every number point of the capture; only of resources that stand for the node itself."""
    raw = zstandard.ZstdDecompressor().stream_reader(CAPTURE.open("rb")).read()
    data = MetricsData()
    data.ParseFromString(raw[4:])
    found: dict[str, dict[str, Samples]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for resource in data.resource_metrics:
        attributes = {kv.key: kv.value.string_value for kv in resource.resource.attributes}
        node = attributes.get("k8s.node.name")
        if node is None or "k8s.pod.name" in attributes:
            continue
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    labels = tuple(sorted((kv.key, kv.value.string_value) for kv in point.attributes))
                    value = getattr(point, point.WhichOneof("value"))
                    found[node][metric.name][labels].append((point.time_unix_nano, value))
    for metrics in found.values():
        for series in metrics.values():
            for samples in series.values():
                samples.sort()
    return found


def rate(samples: list[tuple[int, float]], t_end_ns: int) -> float:
    """Increase a second of a counter without resets, from the last sample before the window (or its first) on."""
    before = [s for s in samples if s[0] <= t_end_ns - WINDOW_NS]
    inside = [s for s in samples if t_end_ns - WINDOW_NS < s[0] <= t_end_ns]
    (first_ns, first), (last_ns, last) = (before[-1:] or inside)[0], inside[-1]
    return (last - first) / ((last_ns - first_ns) / 1e9)


def test_four_nodes_have_vectors_and_the_rest_is_counted(
    printed: tuple[dict[str, dict[str, Any]], dict[str, int]], walked: dict[str, dict[str, Samples]]
) -> None:
    vectors, refused = printed
    assert set(vectors) == set(walked)
    assert len(vectors) == 4
    assert refused["unattributed"] == 184
    for node, vector in vectors.items():
        assert vector["cluster"] == "test-cluster"
        assert vector["window_covered_ms"] == 300_000
        assert len(vector["features"]) == 127
        ok = [name for name, status in vector["status"].items() if status == "ok"]
        assert len(ok) >= 60, node
        for name, value in vector["features"].items():
            assert (value is None) == (vector["status"][name] == "missing"), name


def test_cpu_busy_share_equals_a_plain_walk(
    printed: tuple[dict[str, dict[str, Any]], dict[str, int]], walked: dict[str, dict[str, Samples]]
) -> None:
    vectors, _ = printed
    for node, metrics in walked.items():
        t_end_ns = vectors[node]["t_end_ms"] * 1_000_000 + 999_999
        by_state: dict[str, float] = defaultdict(float)
        for labels, samples in metrics["system.cpu.time"].items():
            by_state[dict(labels)["state"]] += rate(samples, t_end_ns)
        busy = sum(value for state, value in by_state.items() if state not in ("idle", "wait"))
        assert vectors[node]["features"]["cpu_busy_share_5m"] == pytest.approx(busy / sum(by_state.values()), rel=1e-6)


def test_network_bytes_equal_a_plain_walk(
    printed: tuple[dict[str, dict[str, Any]], dict[str, int]], walked: dict[str, dict[str, Samples]]
) -> None:
    vectors, _ = printed
    for node, metrics in walked.items():
        t_end_ns = vectors[node]["t_end_ms"] * 1_000_000 + 999_999
        physical: dict[str, float] = defaultdict(float)
        for labels, samples in metrics["system.network.io"].items():
            device = dict(labels)["device"]
            # The AWS network plug-in gives every pod an interface eniXXXXXXXXXXX: its traffic crosses eth0 as well.
            if device != "lo" and not device.startswith("eni"):
                physical[dict(labels)["direction"]] += rate(samples, t_end_ns)
        features = vectors[node]["features"]
        assert features["network_receive_bytes_5m"] == pytest.approx(physical["receive"], rel=1e-6)
        assert features["network_transmit_bytes_5m"] == pytest.approx(physical["transmit"], rel=1e-6)


def test_memory_working_set_equals_a_plain_walk(
    printed: tuple[dict[str, dict[str, Any]], dict[str, int]], walked: dict[str, dict[str, Samples]]
) -> None:
    """The time-weighted mean: a sample stands for the time since the one before it."""
    vectors, _ = printed
    for node, metrics in walked.items():
        t_end_ns = vectors[node]["t_end_ms"] * 1_000_000 + 999_999
        start_ns = t_end_ns - WINDOW_NS
        (samples,) = metrics["k8s.node.memory.working_set"].values()
        inside = [s for s in samples if start_ns < s[0] <= t_end_ns]
        first = samples.index(inside[0])
        before_ns = samples[first - 1][0] if first else inside[0][0] - SCRAPE_NS
        since = [max(before_ns, start_ns), *(time for time, _ in inside[:-1])]
        weights = [time - before for (time, _), before in zip(inside, since, strict=True)]
        mean = sum(w * value for w, (_, value) in zip(weights, inside, strict=True)) / sum(weights)
        assert vectors[node]["features"]["memory_working_set_bytes_5m"] == pytest.approx(mean, rel=1e-5)
        assert vectors[node]["features"]["memory_working_set_max_bytes_5m"] == pytest.approx(
            max(value for _, value in inside), rel=1e-6
        )
