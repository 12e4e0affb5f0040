"""`fleetpulse replay --offline`: the pipeline in one process, from files to the final vector of every node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetpulse.features import Catalog, Status
from fleetpulse.ingest._cmd_replay import replay_command
from fleetpulse.ingest._cmd_simulate import simulate_command
from support.commands import Commands, Done

CAPTURE = Path(__file__).parent / "data" / "captures" / "hipstershop-60s.zst"
DISK_FAULT = "disk-saturation:1@+0"


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Commands(monkeypatch)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> Path:
    """Three nodes for a minute, the second with a saturated disk. Years after the capture."""
    path = tmp_path_factory.mktemp("fleet") / "fleet.zst"
    words = ["--nodes", "3", "--interval", "5s", "--seconds", "60", "--start", "2026-03-01T09:00:00Z"]
    done = commands.run(simulate_command, *words, "--fault", DISK_FAULT, "--out", str(path))
    assert done.code == 0, done.err
    return path


@pytest.fixture(scope="module")
def played(fleet: Path, commands: Commands) -> Done:
    return commands.run(replay_command, str(fleet), str(CAPTURE), "--offline", "--json")


def vectors_of(done: Done) -> dict[str, dict[str, Any]]:
    assert done.code == 0, done.err
    return {found["node"]: found for found in done.json()}


def test_every_node_is_one_object_with_all_features(played: Done) -> None:
    vectors = vectors_of(played)
    names = list(Catalog.load().names)
    assert len(vectors) == len(played.json()) == 7
    for found in vectors.values():
        assert list(found) == ["node", "cluster", "t_end_ms", "window_covered_ms", "features", "status"]
        assert list(found["features"]) == list(found["status"]) == names
        assert set(found["status"].values()) <= {status.name.lower() for status in Status}
        for name, value in found["features"].items():
            assert (value is None) == (found["status"][name] == "missing"), name
    assert {found["cluster"] for found in vectors.values()} == {"sim", "test-cluster"}


def test_what_was_refused_is_one_object_of_counts(played: Done) -> None:
    refused = json.loads(played.err)
    assert refused.pop("unattributed") == 36
    assert "dead_letters" in refused
    assert not any(refused.values()), refused


def test_a_node_silent_since_long_has_its_last_vector(played: Done, commands: Commands) -> None:
    alone = vectors_of(commands.run(replay_command, str(CAPTURE), "--offline", "--json"))
    together = vectors_of(played)
    assert len(alone) == 4
    assert {node: together[node] for node in alone} == alone


def test_a_simulated_fault_shows_in_the_vector_of_its_node(played: Done) -> None:
    vectors = vectors_of(played)
    well, ill = (vectors[f"sim-node-00{i}"]["features"] for i in (0, 1))
    assert ill["disk_busy_share_5m"] > 0.8 > 0.3 > well["disk_busy_share_5m"]
    assert ill["contention_disk_5m"] > 10 * well["contention_disk_5m"]
    assert ill["request_p99_5m"] > 2 * well["request_p99_5m"]
    assert well["cpu_count"] == 4
    assert well["pods_count"] == 3


def test_retiming_moves_the_vectors_and_changes_no_value(played: Done, fleet: Path, commands: Commands) -> None:
    moved = vectors_of(commands.run(replay_command, str(fleet), "--offline", "--json", "--retime"))
    plain = {node: found for node, found in vectors_of(played).items() if node in moved}
    assert len(plain) == len(moved) == 3
    shifts = {moved[node]["t_end_ms"] - plain[node]["t_end_ms"] for node in plain}
    assert max(shifts) - min(shifts) <= 1
    for node, found in plain.items():
        # The time of day is a feature of its own.
        names = [name for name, value in found["features"].items() if value is not None and "_time_" not in name]
        before, after = ({name: where["features"][name] for name in names} for where in (found, moved[node]))
        assert after == pytest.approx(before, rel=1e-5, abs=1e-9)
        assert moved[node]["status"] == found["status"]


def test_a_person_gets_a_table_and_the_counts(fleet: Path, commands: Commands) -> None:
    done = commands.run(replay_command, str(fleet), "--offline")
    assert done.code == 0
    assert "Final vectors of 3 nodes" in done.out
    assert "sim-node-002" in done.out
    assert "2026-03-01T09:00:5" in done.out
    assert "unattributed 0, duplicates 0" in done.err
