"""`fleetpulse series`: samples out of chunks, put together, printed and drawn."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetpulse.compression import Column, encode_chunk
from fleetpulse.features import Catalog
from fleetpulse.ingest._chunk_series import StoredSeries, as_rate, load_series, telling_labels
from fleetpulse.ingest._cmd_series import series_command
from fleetpulse.ingest._errors import UserError
from fleetpulse.ingest._plot import BLOCKS, axis, columns_for, plot
from fleetpulse.store import FeatureWriter
from support.commands import Commands
from support.vectors import vector

SPAN_NS = 600_000_000_000
S_NS = 1_000_000_000
BIG = 2**60
COUNTER = {"__name__": "bytes", "__unit__": "By", "__kind__": "sum", "__monotonic__": "cumulative", "device": "eth0"}
GAUGE = {"__name__": "temp", "__unit__": "Cel", "__kind__": "gauge", "resource.host.name": "a"}


def _chunk(
    start_ns: int, columns: Sequence[tuple[dict[str, str], Sequence[int], Sequence[float] | Sequence[int]]]
) -> bytes:
    made = [
        Column(labels=labels, times_ns=np.array(times, np.int64), values=np.array(values))
        for labels, times, values in columns
    ]
    return encode_chunk("c1", "a", start_ns, SPAN_NS, made)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, redis_url: str, redis_prefix: str) -> Commands:
    """Node a: a counter above 2^53 and two gauges in two chunks, the older one 15 minutes ago."""
    commands = Commands(monkeypatch)
    commands.set(redis_url=redis_url, redis_prefix=redis_prefix)
    now_ns = time.time_ns()
    newer = (now_ns - 30 * S_NS) // SPAN_NS * SPAN_NS
    older = newer - SPAN_NS
    old, new = [older + i * 10 * S_NS + 7 for i in range(3)], [newer + i * 10 * S_NS + 7 for i in range(3)]
    hot = GAUGE | {"sensor": "hot"}
    cold = GAUGE | {"sensor": "cold"}
    chunks = {
        older: _chunk(older, [(COUNTER, old, [BIG, BIG + 1, BIG + 11]), (hot, old, [80.5, np.nan, 81.5])]),
        newer: _chunk(newer, [(COUNTER, new, [BIG + 21, 5, 15]), (cold, new, [1.5, 2.5, 3.5])]),
    }

    async def fill() -> None:
        writer = await FeatureWriter.connect(redis_url, redis_prefix)
        await writer.write_vectors([vector("a", t_ms=now_ns // 1_000_000, catalog=Catalog.load())])
        for start_ns, raw in chunks.items():
            await writer.write_chunk("c1", "a", start_ns, raw)
        await writer.close()

    asyncio.run(fill())
    return commands


def test_a_series_over_two_chunks_is_printed_exactly(commands: Commands) -> None:
    (row,) = commands.run(series_command, "a", "bytes", "--json").json()
    assert row["labels"] == COUNTER
    assert row["values"] == [BIG, BIG + 1, BIG + 11, BIG + 21, 5, 15]
    assert all(time_ns % S_NS == 7 for time_ns in row["times_ns"])
    assert row["times_ns"] == sorted(row["times_ns"])


def test_csv_has_a_line_per_sample(commands: Commands) -> None:
    rows = list(csv.DictReader(io.StringIO(commands.run(series_command, "a", "bytes", "--csv").out)))
    assert [int(row["value"]) for row in rows] == [BIG, BIG + 1, BIG + 11, BIG + 21, 5, 15]
    assert {row["labels"] for row in rows} == {'{"device": "eth0"}'}


def test_labels_choose_series(commands: Commands) -> None:
    rows = commands.run(series_command, "a", "temp", "--json").json()
    assert [row["labels"]["sensor"] for row in rows] == ["cold", "hot"]
    assert rows[1]["values"] == [80.5, None, 81.5]
    (row,) = commands.run(
        series_command, "a", "temp", "-l", "sensor=cold", "-l", "resource.host.name=a", "--json"
    ).json()
    assert row["values"] == [1.5, 2.5, 3.5]


def test_last_leaves_out_what_is_older(commands: Commands) -> None:
    """The older chunk begins at least ten minutes ago, its last sample 20 s later."""
    age_s = 30 + (time.time_ns() - 30 * S_NS) % SPAN_NS // S_NS
    (row,) = commands.run(series_command, "a", "bytes", "--json", "--last", f"{age_s + 30}s").json()
    assert row["values"] == [BIG + 21, 5, 15]


def test_counters_are_drawn_as_rates_and_printed_as_rates_on_request(commands: Commands) -> None:
    (row,) = commands.run(series_command, "a", "bytes", "--rate", "--json").json()
    assert row["values"][:2] == [0.1, 1.0], "differences beyond 2^53 are exact"
    assert row["values"][3:] == [None, 1.0], "a counter that fell has no rate there"
    drawn, raw = commands.run(series_command, "a", "bytes"), commands.run(series_command, "a", "bytes", "--raw")
    assert "bytes By/s" in drawn.out
    assert "bytes By/s" not in raw.out
    assert set(drawn.out) & set(BLOCKS[1:])


def test_a_drawing_names_what_tells_its_series_apart(commands: Commands) -> None:
    out = commands.run(series_command, "a", "temp").out
    assert "sensor=hot" in out
    assert "sensor=cold" in out
    assert "resource.host.name" not in out
    assert "81.5" in out


def test_without_a_metric_all_are_listed(commands: Commands) -> None:
    rows = commands.run(series_command, "a", "--json").json()
    assert [(row["metric"], row["series"], row["samples"]) for row in rows] == [("bytes", 1, 6), ("temp", 2, 6)]
    assert "temp" in commands.run(series_command, "a").out


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["a", "byte"], "did you mean bytes, temp?"),
        (["a", "zzzz"], "`fleetpulse series a` lists what there is"),
        (["a", "temp", "-l", "sensor=warm"], "sensor is one of cold, hot"),
        (["a", "temp", "-l", "sensor"], "is not NAME=VALUE"),
        (["a", "temp", "--last", "1ms"], "Redis has no samples of a in the last 1ms"),
        (["a", "temp", "--last", "soon"], "not a duration"),
        (["a", "temp", "--json", "--csv"], "one of --json and --csv"),
        (["b", "temp"], "there is no node b"),
    ],
)
def test_what_cannot_be_shown_is_explained(commands: Commands, words: list[str], what: str) -> None:
    done = commands.run(series_command, *words)
    assert (done.code, done.out) == (2, "")
    assert what in done.err


def test_a_damaged_chunk_is_said() -> None:
    raw = _chunk(0, [(GAUGE, [1, 2], [1.5, 2.5])])
    with pytest.raises(UserError, match="damaged"):
        load_series([raw[:-3]], 0)


def test_of_a_sample_in_two_chunks_the_first_stays() -> None:
    first, second = _chunk(0, [(GAUGE, [1, 2], [1.0, 2.0])]), _chunk(0, [(GAUGE, [2, 3], [9.0, 3.0])])
    (one,) = load_series([first, second], 0)
    assert (one.times_ns.tolist(), one.values.tolist()) == ([1, 2, 3], [1, 2, 3])
    (one,) = load_series([first, second], 2)
    assert one.times_ns.tolist() == [2, 3]


def test_a_delta_counters_rate_is_its_value_over_the_time_since_the_sample_before() -> None:
    labels = COUNTER | {"__monotonic__": "delta"}
    rate = as_rate(StoredSeries(labels, np.array([0, 10, 30]) * S_NS, np.array([4, 30, 10])))
    assert rate.values.tolist() == [3.0, 0.5]
    assert rate.unit == "By/s"


def test_a_histograms_buckets_are_counters_and_its_extremes_are_not() -> None:
    times, values = np.array([0]), np.array([1])
    bucket = StoredSeries({"__name__": "d.bucket", "__kind__": "histogram", "__unit__": "s"}, times, values)
    assert (bucket.counter, bucket.unit, as_rate(bucket).unit) == (True, "1", "1/s")
    assert not StoredSeries({"__name__": "d.max", "__kind__": "histogram"}, times, values).counter
    assert not StoredSeries(GAUGE, times, values).counter


def test_labels_that_some_series_lack_tell_them_apart() -> None:
    several = [
        StoredSeries({"__name__": "m", **own}, np.array([0]), np.array([1]))
        for own in ({"a": "1", "b": "1"}, {"b": "1"})
    ]
    assert telling_labels(several) == [{"a": "1"}, {}]


@settings(deadline=None, max_examples=100)
@given(
    samples=st.lists(
        st.tuples(st.integers(0, 1000), st.floats(width=32, allow_nan=True, allow_infinity=True)),
        min_size=1,
        max_size=40,
    ),
    width=st.integers(1, 60),
    height=st.integers(1, 5),
)
def test_a_plot_shows_every_stretch_with_a_value_and_only_those(
    samples: list[tuple[int, float]], width: int, height: int
) -> None:
    samples = sorted(dict(samples).items())
    times, values = np.array([at for at, _ in samples]), np.array([value for _, value in samples])
    rows, low, high = plot(times, values, 0, 1000, width, height)
    assert [len(row) for row in rows] == [width] * height
    shown = {min(at * width // 1000, width - 1) for at, value in samples if np.isfinite(value)}
    assert {column for column in range(width) if rows[-1][column] != " "} == shown
    if shown:
        finite = values[np.isfinite(values)]
        assert low <= finite.min()
        assert high == finite.max()
        best = min(int(times[np.isfinite(values)][np.argmax(finite)]) * width // 1000, width - 1)
        if high > low:
            assert rows[0][best] == BLOCKS[-1], "the largest value fills its column"


def test_a_chart_has_no_more_columns_than_samples_to_fill_them() -> None:
    every_10_s = np.arange(60) * 10 * S_NS
    assert columns_for([every_10_s], 200) == 59
    assert columns_for([every_10_s, every_10_s[::2]], 200) == 59
    assert columns_for([every_10_s], 40) == 40
    assert columns_for([every_10_s[:3]], 200) == 20
    assert columns_for([every_10_s[:1]], 200) == 20


def test_the_axis_is_as_wide_as_the_chart() -> None:
    for width in (40, 41, 100):
        assert len(axis(0, 3600 * S_NS, width)) == width
