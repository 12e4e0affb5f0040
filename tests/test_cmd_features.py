"""The commands that read vectors, the catalog and the settings."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import pytest

from fleetpulse.features import Catalog
from fleetpulse.ingest._cmd_catalog import catalog_command
from fleetpulse.ingest._cmd_features import features_command
from fleetpulse.ingest._cmd_series import series_command
from fleetpulse.ingest._cmd_settings import settings_command
from fleetpulse.ingest._settings import setting_names
from fleetpulse.store import FeatureWriter
from support.commands import Commands
from support.vectors import MadeUpCatalog, vector

CATALOG = Catalog.load()
LAST = CATALOG.names[-1]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(monkeypatch)


@pytest.fixture
def filled(commands: Commands, redis_url: str, redis_prefix: str) -> Commands:
    """Nodes a, b of cluster east, b of west; east/b is 100 s old, and `gone` 200 s."""
    commands.set(redis_url=redis_url, redis_prefix=redis_prefix)
    now_ms = time.time_ns() // 1_000_000

    async def fill() -> None:
        writer = await FeatureWriter.connect(redis_url, redis_prefix)
        await writer.write_vectors(
            [
                vector("a", cluster="east", value=0.25, t_ms=now_ms, catalog=CATALOG),
                vector("b", cluster="east", value=0.5, t_ms=now_ms - 100_000, catalog=CATALOG),
                vector("gone", cluster="east", value=0.75, t_ms=now_ms - 200_000, catalog=CATALOG),
                vector("b", cluster="west", value=1, t_ms=now_ms, catalog=CATALOG),
            ]
        )
        await writer.write_verdicts(now_ms, {("east", "a"): 0.93}, {("east", "a"): "anomalous"})
        await writer.close()

    asyncio.run(fill())
    return commands


def test_nodes_are_listed_with_their_freshness(filled: Commands) -> None:
    done = filled.run(features_command)
    lines = [line.split() for line in done.out.splitlines()]
    assert done.code == 0
    assert lines[0][:3] == ["node", "cluster", "status"]
    assert [line[:3] for line in lines[1:]] == [
        ["a", "east", "fresh"],
        ["b", "east", "stale"],
        ["gone", "east", "missing"],
        ["b", "west", "fresh"],
    ]
    assert "0.25" in lines[1]
    assert lines[1][-1] == "0.93"
    assert "0.75" not in done.out, "a missing node's values are not shown"


def test_nodes_as_json_are_one_object_a_line_with_null_for_what_is_missing(filled: Commands) -> None:
    rows = {(row["cluster"], row["node"]): row for row in filled.run(features_command, "--json").json()}
    assert len(rows) == 4
    assert list(rows["east", "a"]["features"]) == list(CATALOG.names)
    assert rows["east", "a"]["features"]["cpu_busy_share_5m"] == 0.25
    assert rows["east", "a"]["features"][LAST] is None
    assert set(rows["east", "gone"]["features"].values()) == {None}
    assert rows["east", "a"]["verdict"]["score"] == 0.93
    assert rows["west", "b"]["verdict"] is None
    only = filled.run(features_command, "--json", "--cluster", "west").json()
    assert [row["node"] for row in only] == ["b"]


def test_one_node_shows_every_feature_with_unit_age_and_status(filled: Commands) -> None:
    done = filled.run(features_command, "a")
    assert done.code == 0
    assert "fresh" in done.out
    assert "anomalous" in done.out
    lines = {line.split()[0]: line.split() for line in done.out.splitlines() if line.strip()}
    assert set(CATALOG.names) <= set(lines)
    assert lines["cpu_busy_share_5m"][1:3] == ["0.25", "1"]
    assert lines["cpu_busy_share_5m"][-1] == "ok"
    assert lines[LAST][1] == "–"
    assert lines[LAST][-1] == "missing"


def test_one_node_as_json_has_status_and_age_of_each_value(filled: Commands) -> None:
    (row,) = filled.run(features_command, "b", "--cluster", "east", "--json").json()
    value = row["features"]["cpu_busy_share_5m"]
    assert (row["freshness"], value["value"], value["status"]) == ("stale", 0.5, "stale")
    assert 100_000 < value["age_ms"] < 130_000
    assert row["features"][LAST] == {
        "value": None,
        "unit": CATALOG.features[-1].unit,
        "age_ms": None,
        "status": "missing",
    }


def test_a_node_that_has_gone_is_shown_as_missing_with_its_age(filled: Commands) -> None:
    done = filled.run(features_command, "gone")
    assert done.code == 0
    assert "missing, 3 min 2" in done.out
    assert "0.75" not in done.out


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["b"], "exists in clusters east, west: add --cluster"),
        (["gonee"], "did you mean gone?"),
        (["zzzz"], "`fleetpulse features` lists the nodes"),
        (["a", "--cluster", "north"], "no vectors of cluster north"),
    ],
)
def test_a_node_that_cannot_be_found_is_explained(filled: Commands, words: list[str], what: str) -> None:
    done = filled.run(features_command, *words)
    assert (done.code, done.out) == (2, "")
    assert what in done.err


def test_an_empty_store_is_said_and_no_error(commands: Commands, redis_url: str, redis_prefix: str) -> None:
    commands.set(redis_url=redis_url, redis_prefix=redis_prefix)
    done = commands.run(features_command, "--json")
    assert (done.code, done.out) == (0, "")
    assert "fleetpulse doctor" in done.err


@pytest.mark.parametrize("command", [features_command, series_command])
@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("redis://:secret@127.0.0.1:1/0", "FLEETPULSE_REDIS_URL names it"),
        ("redis://nowhere.invalid:6379/0", "FLEETPULSE_REDIS_URL names it"),
        ("127.0.0.1:6379", "correct FLEETPULSE_REDIS_URL"),
    ],
)
def test_a_wrong_redis_address_is_one_line_and_soon(
    commands: Commands, command: Callable[..., None], url: str, what: str
) -> None:
    commands.set(redis_url=url)
    start = time.monotonic()
    done = commands.run(command, "a")
    assert time.monotonic() - start < 6
    assert done.code == 2
    assert what in done.err
    assert "secret" not in done.err


def test_a_reader_with_another_catalog_is_told_which_setting(
    commands: Commands, redis_url: str, redis_prefix: str
) -> None:
    commands.set(redis_url=redis_url, redis_prefix=redis_prefix)

    async def fill() -> None:
        writer = await FeatureWriter.connect(redis_url, redis_prefix)
        await writer.write_vectors([vector("a", t_ms=time.time_ns() // 1_000_000, catalog=MadeUpCatalog(3))])
        await writer.close()

    asyncio.run(fill())
    done = commands.run(features_command)
    assert done.code == 2
    assert "set FLEETPULSE_CATALOG" in done.err
    assert CATALOG.schema_hash.hex() in done.err


def test_the_catalog_is_printed_as_table_json_and_page(commands: Commands) -> None:
    table = commands.run(catalog_command)
    assert all(name in table.out for name in CATALOG.names)
    assert CATALOG.schema_hash.hex() in table.err
    (document,) = commands.run(catalog_command, "--json").json()
    assert document["schema_hash"] == CATALOG.schema_hash.hex()
    assert [feature["name"] for feature in document["features"]] == list(CATALOG.names)
    assert commands.run(catalog_command, "--markdown").out.rstrip("\n") == CATALOG.to_markdown().rstrip("\n")


def test_a_catalog_file_that_is_absent_names_the_setting(commands: Commands) -> None:
    commands.set(catalog="no-such-file.toml")
    done = commands.run(catalog_command)
    assert done.code == 2
    assert "no-such-file.toml" in done.err
    assert "FLEETPULSE_CATALOG" in done.err


def test_settings_are_all_listed_and_passwords_are_masked(commands: Commands) -> None:
    commands.set(redis_url="redis://me:hush@host:1/0", kafka_password="hush", cluster="blue")
    rows = {row["setting"]: row for row in commands.run(settings_command, "--json").json()}
    assert list(rows) == setting_names()
    assert rows["FLEETPULSE_CLUSTER"]["value"] == "blue"
    assert rows["FLEETPULSE_CLUSTER"]["default"] == "default"
    assert rows["FLEETPULSE_CLUSTER"]["from"] == "environment"
    assert rows["FLEETPULSE_REDIS_URL"]["value"] == "redis://me:***@host:1/0"
    table, page = commands.run(settings_command), commands.run(settings_command, "--markdown")
    assert "hush" not in table.out + page.out + json.dumps(rows)
    for name in setting_names():
        assert name in table.out
        assert f"`{name}`" in page.out


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("FLEETPULSE_PARTITIONS", "many", "FLEETPULSE_PARTITIONS"),
        ("FLEETPULSE_PARTITION", "3", "not a setting"),
        ("FLEETPULSE_LOG_LEVEL", "loud", "FLEETPULSE_LOG_LEVEL"),
    ],
)
def test_a_wrong_setting_is_listed_with_the_rest_and_then_named(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, name: str, value: str, what: str
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("FLEETPULSE_KAFKA_PASSWORD", "hush")
    done = commands.run(settings_command)
    assert done.code == 2
    assert what in done.err
    assert "FLEETPULSE_CLUSTER" in done.out
    assert "hush" not in done.out + done.err
