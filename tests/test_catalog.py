"""The default catalog, and what a user's own catalog file may say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetpulse.features import Catalog, CatalogError
from fleetpulse.features._series import Kind, Source, Temporality

GROUPS = [
    *("cpu", "memory", "paging", "disk", "filesystem", "network", "pressure", "contention", "latency"),
    *("numa", "rdma", "nvmeof", "accelerators", "processes", "pods", "cluster"),
]
DOCS = Path(__file__).parent.parent / "docs" / "features.md"


def source(metric: str, labels: dict[str, str] | None = None, kind: Kind = Kind.SUM, monotonic: bool = True) -> Source:
    temporality = Temporality.UNSPECIFIED if kind is Kind.GAUGE else Temporality.CUMULATIVE
    return Source(metric, "1", labels or {}, kind, temporality, monotonic)


def taken_by(catalog: Catalog, wanted: Source) -> set[str]:
    return {catalog.sets[index].name for index in catalog.select(wanted)}


OWN = """extends = "default"

[source.queue]
metrics = ["app.queue.length"]
where = { queue = "orders|bills" }

[[feature]]
name = "queue_p90_1m"
group = "app"
unit = "{item}"
window = "1m"
of = "queue"
aggregate = "p90"
doc = "Items that wait."
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_default_catalog_has_127_features_in_all_groups_of_the_design() -> None:
    catalog = Catalog.load()
    assert len(catalog.features) == 127
    assert len(set(catalog.names)) == 127
    assert list(dict.fromkeys(feature.group for feature in catalog.features)) == GROUPS
    assert all(feature.doc.endswith(".") and feature.unit for feature in catalog.features)


def test_column_order_is_frozen() -> None:
    """A change of this hash is a new schema: every model has to be trained again. Change it knowingly."""
    assert Catalog.load().schema_hash.hex() == "110d1cc6976b21539f9b0fa410b6e99f"


def test_page_of_the_features_is_current() -> None:
    assert DOCS.read_text(encoding="utf-8") == Catalog.load().to_markdown(), (
        "write it anew: fleetpulse catalog --markdown > docs/features.md"
    )


def test_example_on_the_page_is_a_catalog(tmp_path: Path) -> None:
    example = DOCS.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    assert example == OWN
    assert len(Catalog.load(write(tmp_path, example)).features) == 128


def test_index_is_the_column_of_a_name() -> None:
    catalog = Catalog.load()
    assert [catalog.index(name) for name in catalog.names] == list(range(127))
    with pytest.raises(KeyError):
        catalog.index("no_such_feature")


@pytest.mark.parametrize(
    ("metric", "labels", "wanted", "unwanted"),
    [
        ("system.cpu.time", {"cpu": "cpu0", "state": "steal"}, {"cpu_busy", "cpu_time", "cpu_steal"}, {"cpu_user"}),
        ("system.cpu.time", {"cpu": "cpu0", "state": "idle"}, {"cpu_time", "cpus"}, {"cpu_busy"}),
        ("system.disk.io", {"device": "nvme0n1", "direction": "read"}, {"disk_read"}, {"disk_write"}),
        ("system.disk.io", {"device": "nvme0n1p1", "direction": "read"}, set(), {"disk_read"}),
        ("system.disk.io", {"device": "sda1", "direction": "read"}, set(), {"disk_read"}),
        ("system.network.io", {"device": "eth0", "direction": "receive"}, {"net_receive"}, {"net_transmit"}),
        ("system.network.io", {"device": "eni12a9a2510d3", "direction": "receive"}, set(), {"net_receive"}),
        ("system.network.io", {"device": "lo", "direction": "receive"}, set(), {"net_receive"}),
        ("no.such.metric", {}, set(), set()),
    ],
)
def test_series_are_selected_by_metric_and_labels(
    metric: str, labels: dict[str, str], wanted: set[str], unwanted: set[str]
) -> None:
    taken = taken_by(Catalog.load(), source(metric, labels))
    assert wanted <= taken
    assert not unwanted & taken
    assert wanted or not taken


def test_delta_sum_that_may_fall_is_never_selected() -> None:
    catalog = Catalog.load()
    level = Source("system.memory.usage", "By", {"state": "used"}, Kind.SUM, Temporality.DELTA, False)
    assert catalog.select(level) == ()


def test_histogram_sets_take_histograms_only() -> None:
    catalog = Catalog.load()
    assert "requests" in taken_by(catalog, source("request.duration", kind=Kind.HISTOGRAM))
    assert not catalog.select(source("request.duration", kind=Kind.GAUGE))


def test_own_catalog_adds_a_feature_without_code(tmp_path: Path) -> None:
    catalog = Catalog.load(write(tmp_path, OWN))
    assert len(catalog.features) == 128
    assert catalog.names[:127] == Catalog.load().names
    assert catalog.names[127] == "queue_p90_1m"
    assert catalog.schema_hash != Catalog.load().schema_hash
    assert "queue" in taken_by(catalog, source("app.queue.length", {"queue": "bills"}, kind=Kind.GAUGE))
    assert not catalog.select(source("app.queue.length", {"queue": "other"}, kind=Kind.GAUGE))


def test_own_catalog_may_stand_alone(tmp_path: Path) -> None:
    catalog = Catalog.load(write(tmp_path, OWN.replace('extends = "default"\n', "")))
    assert catalog.names == ("queue_p90_1m",)


def test_schema_hash_ignores_prose_and_sees_meaning(tmp_path: Path) -> None:
    plain = Catalog.load(write(tmp_path, OWN)).schema_hash
    assert Catalog.load(write(tmp_path, OWN.replace("Items that wait.", "Other words."))).schema_hash == plain
    for old, new in (("p90", "p99"), ("orders|bills", "orders"), ('window = "1m"', 'window = "5m"'), ("{item}", "By")):
        assert Catalog.load(write(tmp_path, OWN.replace(old, new))).schema_hash != plain, old


MISTAKES = {
    "not TOML": ('of = "queue"', "of = queue", 12, "not TOML"),
    "unknown key": ("aggregate =", "agregate =", 13, "did you mean 'aggregate'"),
    "unknown aggregate": ('"p90"', '"p42"', 13, "'p42' is not one of last, mean"),
    "unknown source": ('of = "queue"', 'of = "queu"', 12, "did you mean 'queue'"),
    "bad expression": ("orders|bills", "orders|(bills", 5, "not a regular expression"),
    "unknown pattern": ('"orders|bills"', '"@nothing"', 5, "no pattern 'nothing'"),
    "unknown window": ('"1m"', '"2m"', 11, "'2m' is not one of 5m, 1m"),
    "no metrics": ('["app.queue.length"]', "[]", 4, "needs metrics"),
    "metrics is a text": ('["app.queue.length"]', '"app.queue.length"', 4, "a list of texts"),
    "no doc": ('doc = "Items that wait."', "", 7, "needs doc"),
    "name taken": ('"queue_p90_1m"', '"cpu_count"', 8, "already is a feature"),
    "bad name": ('"queue_p90_1m"', '"Queue P90"', 8, "lower-case"),
    "source taken": ("[source.queue]", "[source.cpu_busy]", 3, "already is a source"),
    "bounds reversed": ("aggregate =", "bounds = [2, 1]\naggregate =", 13, "lower first"),
    "above without share": ("aggregate =", "above = 0.5\naggregate =", 14, "go together"),
    "give without histogram": ("aggregate =", 'give = "low"\naggregate =', 13, "give goes with"),
    "mean of a histogram": ("where = ", "histogram = true\nwhere = ", 14, "of a histogram one can take"),
    "value without count": ("where =", "value_is = 2\nwhere =", 5, "value_is goes with"),
    "two ways": ("aggregate =", 'context = "region_load"\naggregate =', 7, "exactly one of"),
    "bad once": ('extends = "default"', 'extends = "default"\nonce = "("', 2, "not a regular expression"),
    "wrong base": ('extends = "default"', 'extends = "mine"', 1, "can only be"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_explained_with_file_and_line(mistake: str, tmp_path: Path) -> None:
    old, new, line, words = MISTAKES[mistake]
    assert old in OWN
    text = OWN.replace('"p90"', '"mean"') if mistake == "mean of a histogram" else OWN
    path = write(tmp_path, text.replace(old, new, 1))
    with pytest.raises(CatalogError, match=re.escape(words)) as caught:
        Catalog.load(path)
    assert caught.value.line == line, str(caught.value)
    assert str(caught.value).startswith(f"{path}, line {line}: ")


def test_feature_like_another_is_refused(tmp_path: Path) -> None:
    copy = OWN + OWN[OWN.index("[[feature]]") :].replace("queue_p90_1m", "queue_again")
    with pytest.raises(CatalogError, match="same as 'queue_p90_1m'"):
        Catalog.load(write(tmp_path, copy))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        Catalog.load(str(tmp_path / "none.toml"))
