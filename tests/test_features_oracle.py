"""The state against its plain twin on random logs, and bits that do not depend on how samples arrived."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from fleetpulse.features._series import Kind, Temporality
from fleetpulse.features._vector import AGE_UNKNOWN_MS
from support.feature_oracle import Oracle
from support.feature_rig import LOOK_BACK_S, Number, Rig, catalog_of, columns

AGGREGATES = ("last", "mean", "min", "max", "std", "slope", "p50", "p90", "p99")
CATALOG = catalog_of(
    "once = 'g|c'\n[source.g]\nmetrics = ['g']\n[source.c]\nmetrics = ['c']\n[source.d]\nmetrics = ['d']\n"
    "[source.all]\nmetrics = ['c', 'd']\n"
    "[source.g_mean]\nmetrics = ['g']\ncombine = 'mean'\n"
    "[source.g_spread]\nmetrics = ['g']\neach = ['group']\ncombine = 'max'\nacross = 'std'\n"
    "[source.c_most]\nmetrics = ['c']\neach = ['group']\nacross = 'max'\n"
    "[source.c_whole]\nmetrics = ['c']\neach = ['group']\nacross = 'max'\nwhere = { state = 'a|b' }\n"
    "[source.c_part]\nmetrics = ['c']\neach = ['group']\nacross = 'max'\nwhere = { state = 'a' }\n"
    "[source.n]\nmetrics = ['g']\ncombine = 'count'\n[source.cn]\nmetrics = ['c']\ncombine = 'count'\n"
    + columns(
        *(f"g_{a}: of = 'g'; aggregate = '{a}'" for a in AGGREGATES),
        *(f"c_{a}: of = 'c'; aggregate = '{a}'" for a in (*AGGREGATES, "rate", "increase")),
        *(f"c_{a}_1m: of = 'c'; aggregate = '{a}'; window = '1m'" for a in ("mean", "max", "rate", "increase", "last")),
        *(f"d_{a}: of = 'd'; aggregate = '{a}'" for a in ("mean", "rate", "increase", "p90")),
        *(f"g_{a}_1m: of = 'g'; aggregate = '{a}'; window = '1m'" for a in ("mean", "min", "p50", "std")),
        "high: of = 'g'; aggregate = 'share_above'; above = 10",
        "all: of = 'all'; aggregate = 'rate'",
        "g_average: of = 'g_mean'; aggregate = 'mean'",
        "g_spread: of = 'g_spread'; aggregate = 'mean'",
        "c_most: of = 'c_most'; aggregate = 'rate'",
        "c_most_ever: of = 'c_most'; aggregate = 'max'",
        "c_part: of = 'c_part'; per = 'c_whole'; aggregate = 'rate'; bounds = [0, 1]",
        "c_part_increase: of = 'c_part'; per = 'c_whole'; aggregate = 'increase'",
        "c_part_p90: of = 'c_part'; per = 'c_whole'; aggregate = 'p90'",
        "c_per_g: of = 'c'; per = 'g'; aggregate = 'rate'",
        "g_per_c: of = 'g'; per = 'c'; aggregate = 'mean'; complement = true; at_zero = 0",
        "n: of = 'n'; aggregate = 'last'",
        "n_mean: of = 'n'; aggregate = 'mean'",
        "g_per_n: of = 'g'; per = 'n'; aggregate = 'max'",
        "c_per_n: of = 'c'; per = 'cn'; aggregate = 'rate'",
    )
)


def series_of(rig: Rig, rng: random.Random) -> dict[int, str]:
    """A handful of series of all readings, by index: what they are."""
    made = {}
    for i in range(rng.randint(1, 3)):
        made[rig.gauge("g", {"group": "ab"[i % 2], "i": str(i)})] = "level"
    if rng.random() < 0.4:
        made[rig.gauge("g", {"group": "a", "i": "0"}, resource="another reporter")] = "level"
    made[rig.series("g", {"group": "b", "sum": "yes"}, monotonic=False)] = "level"
    for i in range(rng.randint(1, 5)):
        labels = {"group": "ab"[i % 2], "state": "ab"[i // 2 % 2], "i": str(i)}
        made[rig.series("c", labels, scale=rng.choice((1.0, 0.001)))] = "counter"
        if rng.random() < 0.3:
            made[rig.series("c", labels, resource="another reporter")] = "counter"
    made[rig.series("d", temporality=Temporality.DELTA)] = "delta"
    made[rig.gauge("unused")] = "level"
    return made


def samples_of(series: int, kind: str, rng: random.Random, seconds: int) -> list[Number]:
    """One series over some minutes: jitter, holes, resets, integers and doubles, starts or none."""
    step = rng.choice((5, 10, 10, 15, 60))
    phase = rng.choice((0.0, 0.0, rng.random() * step))
    starts = rng.random() < 0.7
    counting = rng.choice((2**53, 0, 100)) + rng.randint(0, 50)
    start = phase - rng.choice((1.0, 100_000.0))
    found: list[Number] = []
    time = previous = phase
    while time < seconds:
        if rng.random() < 0.03:
            time += rng.uniform(30, 400)
        if kind == "level":
            found.append(Number(series, time, rng.choice((rng.randint(0, 30), rng.uniform(0, 30)))))
        elif kind == "counter":
            if rng.random() < 0.05:
                counting, start = rng.randint(0, 5), time - rng.uniform(0, step / 2)
            counting += rng.randint(0, 20)
            value = float(counting) if rng.random() < 0.1 and counting < 2**50 else counting
            found.append(Number(series, time, value, start if starts else None))
        else:
            begin = previous if rng.random() < 0.95 else previous - 1
            found.append(Number(series, time, rng.randint(0, 9), begin if starts else None))
        previous = time
        time = round(time + step + (rng.uniform(-0.3, 0.3) if phase else 0), 6)
    return found


def log_of(rig: Rig, rng: random.Random) -> list[list[Number]]:
    """Records in the order of their arrival, with disorder, repetitions and late samples."""
    arrivals = []
    for series, kind in series_of(rig, rng).items():
        for sample in samples_of(series, kind, rng, seconds=900):
            delay = rng.choice((0.0,) * 12 + (rng.uniform(0, 100), rng.uniform(0, 500)))
            arrivals.append((sample.time_s + delay, sample))
            if rng.random() < 0.05:
                arrivals.append((sample.time_s + rng.uniform(0, 400), sample))
    arrivals.sort(key=lambda arrival: arrival[0])
    samples = [sample for _, sample in arrivals]
    return batches(samples, rng)


def batches(samples: list[Number], rng: random.Random) -> list[list[Number]]:
    cut: list[list[Number]] = []
    while samples:
        n = rng.choice((1, 2, 5, 20, 60))
        cut.append(samples[:n])
        samples = samples[n:]
    return cut


@pytest.mark.parametrize("seed", range(12))
def test_state_equals_its_plain_twin_on_random_logs(seed: int) -> None:
    rng = random.Random(seed)
    rig = Rig(CATALOG)
    log = log_of(rig, rng)
    oracle = Oracle(CATALOG, rig.table, LOOK_BACK_S)
    checks = set(rng.sample(range(len(log)), min(6, len(log)))) | {0, len(log) - 1}
    for number, record in enumerate(log):
        rig.send(*record)
        oracle.send(record)
        if number not in checks:
            continue
        vector = rig.vector()
        assert vector.t_end_ns == oracle.t_end[0]
        for column, answer in enumerate(oracle.answers(0)):
            name = f"seed {seed}, record {number}, {CATALOG.names[column]}"
            value = float(vector.values[column])
            assert value == pytest.approx(answer.value, rel=2e-6, abs=1e-6, nan_ok=True), name
            assert vector.status[column] == answer.status, name
            age = AGE_UNKNOWN_MS if math.isnan(value) else (vector.t_end_ns - answer.newest) // 1_000_000
            assert vector.age_ms[column] == age, name


def not_late(log: list[list[Number]]) -> list[Number]:
    """The log's samples without those that come 300 s after newer ones, whose fate does depend on the arrival."""
    newest, kept = -math.inf, []
    for sample in (sample for record in log for sample in record):
        if sample.time_s > newest - 150:
            kept.append(sample)
            newest = max(newest, sample.time_s)
    return kept


@pytest.mark.parametrize("seed", range(10))
def test_bits_do_not_depend_on_batching_or_order(seed: int) -> None:
    """The same samples in other batches, and each pushed about by up to 150 s, make the same vector."""
    rng = random.Random(100 + seed)
    rig = Rig(CATALOG)
    samples = not_late(log_of(rig, rng))
    for record in batches(samples, rng):
        rig.send(*record)
    other = Rig(CATALOG)
    series_of(other, random.Random(100 + seed))
    moved = sorted(samples, key=lambda sample: sample.time_s + rng.uniform(0, 149))
    for record in batches(moved, rng):
        other.send(*rng.sample(record, len(record)))
        if rng.random() < 0.2:
            other.vector(), other.state.forget_silent()
    assert rig.bits() == other.bits(), f"seed {seed}"


@pytest.mark.parametrize("seed", range(10))
def test_state_rebuilt_from_the_look_back_gives_the_same_bits(seed: int) -> None:
    """Cut the log, read window + look-back again, go on: every later vector is the same."""
    rng = random.Random(200 + seed)
    whole = Rig(CATALOG, look_back_s=400)
    log = log_of(whole, rng)
    heard = [max(sample.time_s for sample in record) for record in log]
    cut = rng.randint(len(log) // 2, len(log) - 1)
    first = next(i for i, time in enumerate(heard) if time >= max(heard[:cut]) - 400 - 300 - 100)
    rebuilt = Rig(CATALOG, look_back_s=400)
    series_of(rebuilt, random.Random(200 + seed))
    for number, record in enumerate(log):
        whole.send(*record)
        if number >= first:
            rebuilt.send(*record)
        if number >= cut:
            assert whole.bits() == rebuilt.bits(), f"seed {seed}, record {number} of {len(log)}, from {first}"


def test_aggregates_do_not_drift_over_a_long_run() -> None:
    """Twenty thousand samples at an offset of 1e8 through one window: as fresh as a state that saw the last 400."""
    catalog = catalog_of(
        "[source.g]\nmetrics = ['g']\n" + columns(*(f"g_{a}: of = 'g'; aggregate = '{a}'" for a in AGGREGATES))
    )
    rng = np.random.default_rng(3)
    values = 1e8 + rng.normal(size=20_000)
    old, fresh = Rig(catalog), Rig(catalog)
    for rig, first in ((old, 0), (fresh, 19_600)):
        series = rig.series("g", kind=Kind.GAUGE)
        for start in range(first, 20_000, 400):
            rig.send(*(Number(series, t, float(values[t])) for t in range(start, start + 400)))
    assert old.bits() == fresh.bits()
    window = values[-300:]
    assert old.value("g_std") == pytest.approx(window.std(), rel=1e-6)
    assert old.value("g_p99") == np.float32(np.quantile(window, 0.99))
    assert old.value("g_mean") == np.float32(window.mean())
