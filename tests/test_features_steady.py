"""Vectors from what was kept of the last ones, beside vectors from every sample anew: the same bits, whatever comes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np
import pytest

from fleetpulse.features import NodeId
from fleetpulse.features._series import Temporality
from support.feature_rig import Number, Rig, catalog_of, columns

AGGREGATES = ("last", "mean", "min", "max", "std", "slope", "p50", "p99", "share_above")
CATALOG = catalog_of(
    "once = 'g|c'\n[source.g]\nmetrics = ['g']\n[source.c]\nmetrics = ['c']\n[source.d]\nmetrics = ['d']\n"
    "[source.f]\nmetrics = ['f']\n"
    "[source.g_spread]\nmetrics = ['g']\neach = ['group']\ncombine = 'max'\nacross = 'std'\n"
    "[source.c_whole]\nmetrics = ['c']\neach = ['group']\nacross = 'max'\nwhere = { state = 'a|b' }\n"
    "[source.c_part]\nmetrics = ['c']\neach = ['group']\nacross = 'max'\nwhere = { state = 'a' }\n"
    "[source.n]\nmetrics = ['g']\ncombine = 'count'\n[source.cn]\nmetrics = ['c']\ncombine = 'count'\n"
    "[source.threes]\nmetrics = ['g']\ncombine = 'count'\nvalue_is = 3\n"
    + columns(
        *(
            f"{s}_{a}{'_1m' * (w == '1m')}: of = '{s}'; aggregate = '{a}'; window = '{w}'"
            + ("; above = 10" if a == "share_above" else "")
            for s in "gcf"
            for a in AGGREGATES
            for w in ("5m", "1m")
        ),
        *(
            f"{s}_{a}_{w}: of = '{s}'; aggregate = '{a}'; window = '{w}'"
            for s in "cfd"
            for a in ("rate", "increase")
            for w in ("5m", "1m")
        ),
        "d_p90: of = 'd'; aggregate = 'p90'",
        "g_spread: of = 'g_spread'; aggregate = 'mean'",
        "c_part: of = 'c_part'; per = 'c_whole'; aggregate = 'rate'; bounds = [0, 1]",
        "c_part_p90: of = 'c_part'; per = 'c_whole'; aggregate = 'p90'",
        "c_per_g: of = 'c'; per = 'g'; aggregate = 'mean'",
        "g_per_c: of = 'g'; per = 'c'; aggregate = 'mean'; complement = true; at_zero = 0",
        "n: of = 'n'; aggregate = 'mean'",
        "threes: of = 'threes'; aggregate = 'mean'",
        "c_per_n: of = 'c'; per = 'cn'; aggregate = 'max'",
    )
)


class Machine:
    """What a collector scrapes together: series of one kind, whose values go on from scrape to scrape."""

    def __init__(self, rig_of: list[Rig], rng: random.Random) -> None:
        self.rigs = rig_of
        self.rng = rng
        self.series: list[int] = []
        self.kinds: list[str] = []
        self.values: list[float | int] = []
        self.starts: list[float | None] = []
        self.born = 0

    def bear(self, time_s: float, kind: str | None = None) -> None:
        """One more series, in every rig the same."""
        rng = self.rng
        kind = kind or rng.choice(("g", "c", "c", "f", "d"))
        labels = {"group": rng.choice("ab"), "state": rng.choice("ab"), "i": str(rng.choice((self.born, self.born, 0)))}
        self.born += 1
        resource, scale = rng.choice(("", "", "another")), rng.choice((1.0, 0.001))
        for rig in self.rigs:
            if kind == "g":
                index = rig.gauge("g", labels, resource=resource)
            elif kind == "d":
                index = rig.series("d", labels, temporality=Temporality.DELTA, resource=resource)
            else:
                index = rig.series(kind, labels, resource=resource, scale=scale)
        if index in self.series:
            return
        self.series.append(index)
        self.kinds.append(kind)
        self.values.append(rng.choice((0, 2**53, 1e8)) if kind == "c" else rng.uniform(0, 1e6))
        self.starts.append(rng.choice((None, time_s - 1e5, time_s - rng.uniform(0, 100))))

    def bury(self) -> None:
        """One series ends."""
        if len(self.kinds) > 1:
            i = self.rng.randrange(len(self.kinds))
            del self.series[i], self.kinds[i], self.values[i], self.starts[i]

    def scrape(self, time_s: float, faults: float) -> list[Number]:
        """One sample of most series; faults: how likely each of the things is that may go wrong."""
        rng, found = self.rng, []
        for i, kind in enumerate(self.kinds):
            at = self.starts[i]
            if kind == "g":
                self.values[i] = rng.choice((rng.randint(0, 20), rng.uniform(0, 20)))
            elif kind == "f":
                self.values[i] += rng.choice((0.0, rng.uniform(0, 30)))
            elif kind == "c":
                self.values[i] += rng.randint(0, 30)
            else:
                self.values[i], at = rng.uniform(0, 9), time_s - 5
            if kind in "cf" and rng.random() < faults:
                self.values[i] = rng.choice((self.values[i] * 0.999, type(self.values[i])(3)))
                if rng.random() < 0.5:
                    at = self.starts[i] = time_s - rng.uniform(0, 3)
            value = self.values[i]
            if rng.random() < faults:
                value = rng.choice((math.nan, math.inf, float(value)))
            if rng.random() >= faults:
                found.append(Number(self.series[i], time_s, value, at))
        return found


def history(rigs: list[Rig], rng: random.Random, often: float, n_machines: int) -> Iterator[list[Number]]:
    """Records of some machines over a quarter of an hour and more, with quiet stretches between the faults."""
    machines = [Machine(rigs, rng) for _ in range(n_machines)]
    for machine in machines:
        for kind in "gcf"[: rng.randint(1, 3)]:
            machine.bear(0.0, kind)
        for _ in range(rng.randint(0, 5)):
            machine.bear(0.0)
    step = rng.choice((5.0, 10.0, 15.0))
    lag = rng.choice((0.0, 0.004, step / 2))
    waiting: list[tuple[float, list[Number]]] = []
    time_s = 0.0
    for number in range(240):
        faults = 0.0 if number // 40 % 3 == 2 else often
        time_s += step * (rng.choice((0.1, 3, 40)) if rng.random() < faults else 1)
        for k, machine in enumerate(machines):
            if rng.random() < faults:
                machine.bear(time_s)
            if rng.random() < faults:
                machine.bury()
            record = machine.scrape(time_s + k * lag, faults)
            if rng.random() < 5 * faults:
                rng.shuffle(record)
                cut = rng.randint(0, len(record))
                waiting.append((time_s + rng.uniform(0, 250), record[cut:]))
                record = record[:cut]
            yield record
            if rng.random() < faults:
                yield record
        for late in [entry for entry in waiting if entry[0] <= time_s]:
            waiting.remove(late)
            yield late[1]


@pytest.mark.parametrize("faults", [0.0, 0.003, 0.03])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_changes_no_bit(seed: int, faults: float) -> None:
    """One state gives a vector after most records, one now and then, one reads all samples for each."""
    rng = random.Random(f"{seed} {faults}")
    often, seldom, anew = (Rig(CATALOG, 400, shortcuts=shortcuts) for shortcuts in (True, True, False))
    rigs = [often, seldom, anew]
    kept = 0
    for number, record in enumerate(history(rigs, rng, faults, 1 + seed % 2)):
        for rig in rigs:
            rig.send(*record)
        if not often.state.t_end_ns(0):
            continue
        if rng.random() < 0.02:
            for rig in rigs:
                rig.table.forget(rig.state.forget_silent())
        name = f"seed {seed}, faults {faults}, record {number}"
        if rng.random() < 0.7:
            vector = often.bits()
            kept += int((often.state._plans.kept["known_ns"] > 0).any())
            assert vector == anew.bits(), name
            if rng.random() < 0.1:
                assert vector == seldom.bits(), name
    assert kept > 0 or seed % 2, "no signal was steady: the log says nothing of what is kept"


def test_a_steady_fleet_keeps_what_it_worked_out() -> None:
    """All signals of series that are scraped together are steady: each vector works out one scrape of them."""
    rig = Rig(CATALOG)
    series = [rig.gauge("g", {"group": g}) for g in "ab"] + [rig.series("c", {"group": "a", "state": "a"})]
    for step in range(70):
        rig.send(*(Number(s, 5 * step, step) for s in series))
        rig.vector()
    walked = rig.state._program.signals["walked"]
    known = rig.state._plans.kept["known_ns"][0][walked]
    of_d = [k for k, signal in enumerate(rig.state._program.signals[walked]) if CATALOG.sets[signal["of"]].name in "df"]
    assert (np.delete(known, of_d) == rig.vector().t_end_ns).all()


@pytest.mark.parametrize("batch", [1, 3, 50])
def test_vectors_of_many_nodes_are_those_of_each(batch: int) -> None:
    rng = random.Random(batch)
    rig = Rig(CATALOG)
    series = [(n, rig.gauge("g", {"i": str(i)}, node=f"n{n}")) for n in range(20) for i in range(1 + n % 3)]
    for step in range(80):
        rig.send(*(Number(s, 5 * step + n / 8, rng.uniform(0, 9)) for n, s in series if rng.random() < 0.99))
    nodes = rng.sample(range(20), 20)
    alone = [rig.vector(f"n{n}").to_bytes() for n in nodes]
    together = []
    for start in range(0, 20, batch):
        indexes = [rig.table.node_by_id[NodeId("c", f"n{n}")] for n in nodes[start : start + batch]]
        together += [vector.to_bytes() for vector in rig.state.vectors(indexes)]
    assert together == alone
