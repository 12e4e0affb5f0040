"""What a detector says of made-up fleets: scenarios S33 to S37 and what an SRE would ask besides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest

from fleetpulse.anomaly import VERDICTS, Detector, DetectorSettings, Event, Model, ModelError, Slide, train
from fleetpulse.features._series import NodeId
from fleetpulse.features._vector import NodeVector, Status
from support.fleet import (
    CATALOG,
    DISK_SATURATION,
    LATENCY_STEP,
    NOISY_NEIGHBOUR,
    PACKET_LOSS,
    START_NS,
    Fault,
    MadeUpFleet,
    adding,
    ramping,
    scaling,
)

S = 1_000_000_000
WARM_S = 480


@dataclass
class Watched:
    """A detector and everything it said. slides: (seconds since the start, what was said)."""

    detector: Detector
    slides: list[tuple[float, Slide]] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        return [event for _, slide in self.slides for event in slide.events]

    def opened(self) -> list[tuple[str, str]]:
        return [(event.scope, event.node) for event in self.events if event.state == "opened"]

    def opening(self, node: str) -> tuple[float, Event]:
        found = [(t, e) for t, slide in self.slides for e in slide.events if e.node == node and e.state == "opened"]
        assert len(found) == 1, found
        return found[0]

    def watch(self, slides: Iterable[tuple[int, list[NodeVector]]], *, training: bool = False) -> Watched:
        for t_ns, vectors in slides:
            self.slides.append(((t_ns - START_NS) / S, self.detector.slide(t_ns, vectors)))
            data = self.detector.training_request() if training else None
            if data is not None:
                self.detector.adopt(train(data, 1))
        return self


def watcher(**settings: float) -> Watched:
    return Watched(Detector(CATALOG, pool="general", seed=1, settings=DetectorSettings(**settings)))  # type: ignore[arg-type]


def node(i: int) -> NodeId:
    return NodeId("c1", f"node-{i:03}")


def features_of(event: Event) -> list[str]:
    return [reason.feature for reason in event.reasons]


# --- faults of single nodes ---

FAULTS: list[tuple[str, Fault, set[str]]] = [
    ("disk saturation", DISK_SATURATION, {"disk_busy_share_1m", "disk_queue_5m", "contention_disk_5m"}),
    ("noisy neighbour", NOISY_NEIGHBOUR, {"contention_cpu_1m", "pressure_cpu_1m", "cpu_steal_share_5m"}),
    ("packet loss", PACKET_LOSS, {"network_receive_dropped_5m"}),
    ("latency step", LATENCY_STEP, {"request_p50_5m", "request_p99_5m"}),
]


@pytest.mark.parametrize(("name", "fault", "causes"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_a_clear_fault_among_peers_is_told_with_its_cause_and_nothing_else(
    name: str, fault: Fault, causes: set[str]
) -> None:
    fleet = MadeUpFleet(30, seed=3, warm=False, faults={7: (WARM_S, fault)})
    watched = watcher().watch(fleet.slides(WARM_S + 100), training=True)
    assert watched.opened() == [("node", "node-007")]
    after_s, event = watched.opening("node-007")
    # The made-up latency is a mean over the window: it enters far more slowly than a real quantile.
    assert after_s - WARM_S <= (60 if name == "latency step" else 30)
    assert set(features_of(event)[:3]) & causes
    first = event.reasons[0]
    assert first.value is not None
    assert first.expected is not None
    assert (first.value > first.expected) == (first.deviation > 0)
    assert first.unit == CATALOG.features[CATALOG.index(first.feature)].unit


def test_two_faults_at_once_are_two_events() -> None:
    fleet = MadeUpFleet(30, seed=4, faults={7: (WARM_S, DISK_SATURATION), 11: (WARM_S + 20, NOISY_NEIGHBOUR)})
    watched = watcher().watch(fleet.slides(WARM_S + 60))
    assert watched.opened() == [("node", "node-007"), ("node", "node-011")]
    last = watched.slides[-1][1]
    assert last.verdicts[node(7)] == last.verdicts[node(11)] == "anomalous"
    assert last.scores[node(7)] > 0.5 > max(score for n, score in last.scores.items() if n not in (node(7), node(11)))


def test_one_value_at_a_million_sigma_is_flagged_at_once_with_its_feature() -> None:
    fleet = MadeUpFleet(10, seed=5)
    watched = watcher().watch(fleet.slides(WARM_S))
    t_ns, vectors = next(iter(fleet.slides(5)))
    column = CATALOG.index("network_transmit_bytes_5m")
    values = vectors[4].values.copy()
    values[column] = 1e6 * 5e6
    vectors[4] = replace(vectors[4], values=values)
    events = watched.detector.slide(t_ns, vectors).events
    assert [(event.state, event.node, features_of(event)[0]) for event in events] == [
        ("opened", "node-004", "network_transmit_bytes_5m")
    ]
    assert events[0].severity == "critical"


def test_a_constant_that_moves_is_flagged_by_the_guard() -> None:
    fleet = MadeUpFleet(10, seed=6, faults={3: (900, scaling(memory_capacity_bytes=0.8))})
    watched = watcher().watch(fleet.slides(1200))
    assert watched.opened() == [("node", "node-003")]
    _, event = watched.opening("node-003")
    assert features_of(event) == ["memory_capacity_bytes"]
    assert event.detector == "guard"


def test_a_slow_ramp_of_one_node_is_found_against_its_peers() -> None:
    fleet = MadeUpFleet(20, seed=7, faults={5: (WARM_S, ramping(0.0006, "memory_used_share"))})
    watched = watcher().watch(fleet.slides(WARM_S + 700))
    assert watched.opened() == [("node", "node-005")]
    assert features_of(watched.opening("node-005")[1])[0].startswith("memory_used_share")


def test_an_event_is_resolved_under_its_own_id_when_the_fault_ends() -> None:
    def passing(signal: str, value: float, since_s: float) -> float:
        return DISK_SATURATION(signal, value, since_s) if since_s < 60 else value

    fleet = MadeUpFleet(12, seed=8, faults={2: (WARM_S, passing)})
    watched = watcher().watch(fleet.slides(WARM_S + 450))
    assert watched.opened() == [("node", "node-002")]
    story = [event for event in watched.events if event.node == "node-002"]
    assert story[-1].state == "resolved"
    assert {event.id for event in story} == {story[0].id}
    assert all(event.opened_ms == story[0].opened_ms <= event.time_ms for event in story)
    assert watched.slides[-1][1].verdicts[node(2)] == "normal"


def test_an_event_that_lasts_is_told_again_but_not_at_every_slide_and_does_not_teach_its_node() -> None:
    fleet = MadeUpFleet(12, seed=9, faults={2: (WARM_S, DISK_SATURATION)})
    watched = watcher().watch(fleet.slides(WARM_S + 1200))
    assert watched.slides[-1][1].verdicts[node(2)] == "anomalous"
    updates = [event for event in watched.events if event.state == "updated"]
    assert 3 <= len(updates) <= 8
    last = updates[-1].reasons[0]
    assert last.value is not None
    assert last.expected is not None
    assert last.expected < last.value / 3


# --- S33, missing values ---


def test_s33_a_vector_with_holes_never_scores_better_than_the_whole_one() -> None:
    fleet = MadeUpFleet(12, seed=10)
    watched = watcher().watch(fleet.slides(WARM_S), training=True)
    memory = watched.detector.snapshot()
    t_ns, vectors = next(iter(fleet.slides(5)))
    model = watched.detector.model

    def score(column: int | None) -> float:
        detector = Detector.restore(memory, CATALOG, pool="general", seed=1, model=model)
        changed = list(vectors)
        if column is not None:
            changed[6] = without(vectors[6], [column])
        return detector.slide(t_ns, changed).scores[node(6)]

    whole = score(None)
    known = np.flatnonzero(~np.isnan(vectors[6].values))
    assert len(known) > 30
    worse = [score(int(column)) for column in known if CATALOG.names[column] != "request_count_5m"]
    assert min(worse) >= whole


@pytest.mark.parametrize(
    ("gone", "verdict"),
    [("disk", "insufficient data"), ("everything", "insufficient data"), ("one of many", "normal")],
    ids=["a group of features", "all features", "one feature"],
)
def test_s33_what_is_missing_is_insufficient_data_and_never_normal(gone: str, verdict: str) -> None:
    fleet = MadeUpFleet(12, seed=11)
    watched = watcher().watch(fleet.slides(WARM_S))
    groups = np.array([feature.group for feature in CATALOG.features])
    columns = {
        "disk": np.flatnonzero(groups == "disk"),
        "everything": np.arange(len(groups)),
        "one of many": np.array([CATALOG.index("cpu_wait_share_5m")]),
    }[gone]
    for t_ns, vectors in fleet.slides(30):
        vectors[6] = without(vectors[6], columns)
        slide = watched.detector.slide(t_ns, vectors)
        assert slide.verdicts[node(6)] == verdict
        assert (node(6) in slide.scores) == (verdict == "normal")
        assert not slide.events


def test_stale_values_count_as_missing_and_an_open_event_outlasts_them() -> None:
    fleet = MadeUpFleet(12, seed=12, faults={6: (WARM_S, DISK_SATURATION)})
    watched = watcher().watch(fleet.slides(WARM_S + 60))
    assert watched.opened() == [("node", "node-006")]
    for t_ns, vectors in fleet.slides(120):
        vectors[6] = replace(vectors[6], status=np.full(len(vectors[6].values), Status.STALE, np.uint8))
        slide = watched.detector.slide(t_ns, vectors)
        assert slide.verdicts[node(6)] == "anomalous"
        assert not [event for event in slide.events if event.state == "resolved"]


def without(vector: NodeVector, columns: Iterable[int]) -> NodeVector:
    values, status = vector.values.copy(), vector.status.copy()
    chosen = list(columns)
    values[chosen], status[chosen] = np.nan, Status.MISSING
    return replace(vector, values=values, status=status)


# --- S34, clean fleets, of any size ---


@pytest.mark.parametrize(
    ("nodes", "seconds"), [(100, 3600), (1, 4500), (2, 2700), (4, 2700), (6, 2700)], ids=lambda value: str(value)
)
def test_s34_a_clean_fleet_raises_nothing(nodes: int, seconds: int) -> None:
    watched = watcher().watch(MadeUpFleet(nodes, seed=20 + nodes, warm=False).slides(seconds), training=True)
    assert watched.events == []
    assert "suspect" not in {verdict for _, slide in watched.slides for verdict in slide.verdicts.values()}
    assert set(watched.slides[-1][1].verdicts.values()) == {"normal"}


def test_a_lone_node_is_judged_by_its_own_past_after_it_has_seen_enough() -> None:
    fleet = MadeUpFleet(1, seed=2, faults={0: (3600, DISK_SATURATION)})
    watched = watcher().watch(fleet.slides(3600 + 60))
    assert watched.slides[100][1].verdicts[node(0)] == "insufficient data"
    assert watched.slides[100][1].scores == {}
    after_s, event = watched.opening("node-000")
    assert after_s - 3600 <= 30
    assert features_of(event)[0].startswith(("disk", "contention_disk", "pressure_io"))


def test_a_window_that_fills_and_a_first_minute_raise_nothing() -> None:
    watched = watcher().watch(MadeUpFleet(20, seed=13, warm=False, differ=0.8).slides(300))
    assert watched.events == []
    early = [slide for t, slide in watched.slides if t < 60]
    assert {verdict for slide in early for verdict in slide.verdicts.values()} == {"insufficient data"}


def test_in_the_first_minutes_peers_serve_and_the_event_says_so() -> None:
    fleet = MadeUpFleet(30, seed=14, faults={3: (0, scaling(disk_busy_share=8.0, disk_read_bytes=400.0))})
    watched = watcher().watch(fleet.slides(60))
    assert watched.opened() == [("node", "node-003")]
    after_s, event = watched.opening("node-003")
    assert after_s <= 30
    assert event.detector == "peers"
    assert features_of(event)[0].startswith("disk_read_bytes")


def test_a_node_that_joins_late_is_compared_only_when_it_has_a_past() -> None:
    fleet = MadeUpFleet(12, seed=15, differ=0.6)
    watched = watcher()
    for t_ns, vectors in fleet.slides(1000):
        chosen = vectors if t_ns - START_NS > 400 * S else vectors[:-1]
        watched.watch([(t_ns, chosen)])
    assert watched.events == []
    assert watched.slides[-1][1].verdicts[node(11)] == "normal"


def test_pools_that_shrink_below_what_makes_peers_stay_calm() -> None:
    fleet = MadeUpFleet(6, seed=16)
    watched = watcher()
    for t_ns, vectors in fleet.slides(3000):
        watched.watch([(t_ns, vectors if t_ns - START_NS < 2000 * S else vectors[:3])])
    assert [event for event in watched.events if event.scope == "node" and event.detector != "silence"] == []


# --- S35, the whole pool ---


@pytest.mark.parametrize("seed", [17, 18])
def test_s35_when_all_nodes_step_together_there_is_one_fleet_event_and_no_node_event(seed: int) -> None:
    step = scaling(cpu_busy_share=1.8, request_p99=3.0, request_rate=2.0)
    watched = watcher().watch(MadeUpFleet(30, seed=seed, fleet_fault=(WARM_S, step)).slides(WARM_S + 900))
    assert watched.opened() == [("fleet", "")]
    event = watched.events[0]
    assert set(features_of(event)) & {"cpu_busy_share_1m", "request_rate_1m", "request_p99_5m"}
    # The new level is accepted, and the pool's event ends by itself.
    assert watched.events[-1].state == "resolved"
    assert 600_000 <= watched.events[-1].time_ms - event.opened_ms <= 700_000


def test_s35_a_ramp_of_all_is_one_fleet_event() -> None:
    fault = ramping(0.001, "disk_queue", "processes_running", "processes_context_switches")
    watched = watcher().watch(MadeUpFleet(30, seed=19, fleet_fault=(WARM_S, fault)).slides(WARM_S + 900))
    assert watched.opened() == [("fleet", "")]


def test_many_nodes_at_once_though_not_most_are_one_story() -> None:
    faults = {i: (float(WARM_S), DISK_SATURATION) for i in range(9)}
    watched = watcher().watch(MadeUpFleet(30, seed=21, faults=faults).slides(WARM_S + 120))
    assert watched.opened() == [("fleet", "")]
    assert {"disk_busy_share_1m", "disk_queue_5m"} & set(features_of(watched.events[0]))


def test_a_fault_that_stands_out_of_a_pool_in_motion_is_still_told() -> None:
    fleet = MadeUpFleet(
        30,
        seed=22,
        fleet_fault=(WARM_S, scaling(cpu_busy_share=1.8, request_rate=2.0)),
        faults={4: (WARM_S + 120, adding(disk_busy_share=0.85, disk_queue=12.0, contention_disk=0.8))},
    )
    watched = watcher().watch(fleet.slides(WARM_S + 300))
    assert watched.opened() == [("fleet", ""), ("node", "node-004")]


# --- S36, models ---


def test_s36_a_model_that_does_not_fit_is_refused_and_a_retrain_follows() -> None:
    fleet = MadeUpFleet(28, seed=23, faults={7: (WARM_S, DISK_SATURATION)})
    watched = watcher().watch(fleet.slides(450))
    data = watched.detector.training_request()
    assert data is not None
    model = train(data, 1)
    other = replace(model, schema_hash=bytes(16))
    with pytest.raises(ModelError, match="schema"):
        Detector(CATALOG, pool="general", seed=1, model=other)
    with pytest.raises(ModelError, match="schema"):
        watched.detector.adopt(other)
    assert watched.detector.model is None
    # Without a forest the peers and the guard serve, and training is asked for again.
    watched.watch(fleet.slides(WARM_S - 450 + 100), training=True)
    assert watched.opened() == [("node", "node-007")]
    assert watched.detector.model is not None


def test_training_is_asked_for_when_due_and_then_only_when_what_was_seen_has_doubled() -> None:
    fleet = MadeUpFleet(20, seed=24)
    watched = watcher()
    asked = []
    for t_ns, vectors in fleet.slides(1300):
        watched.watch([(t_ns, vectors)])
        data = watched.detector.training_request()
        if data is not None:
            asked.append(((t_ns - START_NS) / S, len(data.rows)))
            watched.detector.adopt(train(data, 1))
    assert asked[0][0] >= 120
    assert all(later[1] >= 1.9 * earlier[1] for earlier, later in pairwise(asked))
    assert 2 <= len(asked) <= 4


def test_a_refit_does_not_flip_verdicts_of_unchanged_nodes() -> None:
    fleet = MadeUpFleet(20, seed=25, faults={7: (WARM_S, DISK_SATURATION)})
    watched = watcher().watch(fleet.slides(WARM_S + 60), training=True)
    before = watched.slides[-1][1].verdicts
    rows, times_ns = watched.detector.reservoir.sample()
    data = watched.detector.training_data(rows, times_ns)
    for seed in (2, 3, 4):
        watched.detector.adopt(train(data, seed))
        watched.watch(fleet.slides(5))
        assert watched.slides[-1][1].verdicts == before
    assert watched.opened() == [("node", "node-007")]


def test_an_unusual_combination_is_told_by_the_forest_with_its_features() -> None:
    """Many features a little out: none is over its own threshold, together they are nothing that was seen."""
    fleet = MadeUpFleet(30, seed=26)
    watched = watcher().watch(fleet.slides(1200), training=True)
    detector = watched.detector
    assert detector.model is not None
    # As if it had been trained on the day before; a forest of a few minutes is not believed alone.
    detector.adopt(replace(detector.model, from_ns=detector.model.to_ns - 24 * 3600 * S))
    for t_ns, vectors in fleet.slides(20):
        row = detector.baselines.nodes.row_of[node(9)]
        vectors[9] = pushed(detector, row, vectors[9], sigmas=7.0)
        watched.watch([(t_ns, vectors)])
    assert watched.opened() == [("node", "node-009")]
    _, event = watched.opening("node-009")
    assert event.detector == "forest"
    assert 1 <= len(event.reasons) <= 3


def pushed(detector: Detector, row: int, vector: NodeVector, *, sigmas: float) -> NodeVector:
    """Every known feature so far above what is expected of the node."""
    baselines = detector.baselines
    spread = np.maximum(detector.columns.spread_min, baselines.pool.spread)
    spread = np.maximum(spread, baselines.nodes.cells.deviation[row] * 1.2533)
    level = baselines.nodes.cells.location[row] + baselines.pool.shared + sigmas * spread
    values = vector.values.copy()
    for at, name in enumerate(detector.columns.names):
        column = CATALOG.index(name)
        moves = baselines.pool.spread[at] > 1e-3
        if moves and not np.isnan(values[column]):
            values[column] = detector.columns.value(at, float(level[at]))
    return replace(vector, values=values)


# --- S37, silence ---


def test_s37_a_node_that_stops_sending_is_silent_until_it_returns() -> None:
    fleet = MadeUpFleet(8, seed=27, silent={5: (400, 700)})
    watched = watcher().watch(fleet.slides(800))
    story = [(event.state, event.severity) for event in watched.events if event.node == "node-005"]
    assert story == [("opened", "warning"), ("updated", "critical"), ("resolved", "critical")]
    assert {event.detector for event in watched.events} == {"silence"}
    opened, _, resolved = watched.events
    assert opened.id == resolved.id
    assert opened.opened_ms // 1000 - START_NS // S - 400 <= 40
    assert resolved.time_ms // 1000 - START_NS // S == 705
    silent = [slide for t, slide in watched.slides if 440 < t <= 700]
    assert {slide.verdicts[node(5)] for slide in silent} == {"silent"}
    assert not [slide for slide in silent if node(5) in slide.scores]
    assert watched.slides[-1][1].verdicts[node(5)] == "normal"


def test_s37_slow_scrapes_are_no_silence() -> None:
    fleet = MadeUpFleet(8, seed=28)
    watched = watcher()
    for t_ns, vectors in fleet.slides(900):
        if (t_ns - START_NS) // S % 60 == 0:
            held = [replace(vector, scrape_interval_ms=60_000) for vector in vectors]
        if t_ns - START_NS >= 60 * S:
            watched.watch([(t_ns, held)])
    assert watched.events == []


def test_s37_a_node_that_was_hardly_here_is_not_missed() -> None:
    """Its pool had another name for its first seconds, say."""
    fleet = MadeUpFleet(8, seed=36, warm=False, silent={5: (45, 400)})
    watched = watcher().watch(fleet.slides(300))
    assert watched.events == []
    assert watched.slides[-1][1].verdicts[node(5)] == "insufficient data"


def test_s37_many_nodes_silent_at_once_are_one_fleet_event() -> None:
    fleet = MadeUpFleet(16, seed=29, silent=dict.fromkeys(range(6), (400.0, 600.0)))
    watched = watcher().watch(fleet.slides(700))
    assert [(event.scope, event.state, event.detector) for event in watched.events] == [
        ("fleet", "opened", "silence"),
        ("fleet", "resolved", "silence"),
    ]


# --- the same input, the same output ---


def test_scores_do_not_depend_on_the_order_of_nodes_nor_on_what_the_process_saw_before() -> None:
    faults = {2: (float(WARM_S), DISK_SATURATION)}
    one = watcher().watch(MadeUpFleet(12, seed=30, faults=faults).slides(WARM_S + 60), training=True)
    other = watcher()
    random = np.random.default_rng(1)
    for t_ns, vectors in MadeUpFleet(12, seed=30, faults=faults).slides(WARM_S + 60):
        random.shuffle(vectors)  # type: ignore[arg-type]
        other.watch([(t_ns, [*vectors, vectors[0]])], training=True)
    assert [slide.scores for _, slide in one.slides] == [slide.scores for _, slide in other.slides]
    assert [event.to_json() for event in one.events] == [event.to_json() for event in other.events]
    assert one.detector.snapshot() == other.detector.snapshot()


def test_a_detector_goes_on_from_its_snapshot_as_if_nothing_had_happened() -> None:
    faults = {2: (float(WARM_S), DISK_SATURATION)}
    fleet = MadeUpFleet(12, seed=31, faults=faults, silent={4: (400.0, 560.0)})
    watched = watcher().watch(fleet.slides(WARM_S + 30))
    raw = watched.detector.snapshot()
    restored = Watched(Detector.restore(raw, CATALOG, pool="general", seed=1))
    assert restored.detector.snapshot() == raw
    rest = list(fleet.slides(120))
    watched.slides.clear()
    watched.watch(rest)
    restored.watch(rest)
    assert [slide.scores for _, slide in watched.slides] == [slide.scores for _, slide in restored.slides]
    assert [event.to_json() for event in watched.events] == [event.to_json() for event in restored.events]
    assert {event.state for event in restored.events} >= {"updated", "resolved"}
    assert watched.detector.snapshot() == restored.detector.snapshot()


def test_a_memory_of_another_pool_or_of_damaged_bytes_is_refused() -> None:
    watched = watcher().watch(MadeUpFleet(3, seed=32).slides(60))
    raw = watched.detector.snapshot()
    with pytest.raises(ModelError, match="pool general"):
        Detector.restore(raw, CATALOG, pool="other", seed=1)
    for bad in (b"", raw[:-3], raw[:60] + b"\0" + raw[61:]):
        with pytest.raises(ModelError):
            Detector.restore(bad, CATALOG, pool="general", seed=1)
    with pytest.raises(ModelError, match="memory"):
        Model.from_bytes(raw)


def test_a_slide_seen_twice_teaches_nothing_twice() -> None:
    fleet = MadeUpFleet(8, seed=33)
    watched = watcher()
    for t_ns, vectors in fleet.slides(200):
        watched.watch([(t_ns, vectors)])
    counts = watched.detector.baselines.nodes.cells.count.copy()
    watched.watch([(t_ns, vectors)])
    assert (watched.detector.baselines.nodes.cells.count == counts).all()


def test_nodes_that_are_gone_for_long_are_forgotten() -> None:
    fleet = MadeUpFleet(4, seed=34, silent={3: (300, 900)})
    watched = watcher(forget_s=300)
    for t_ns, vectors in fleet.slides(900):
        watched.watch([(t_ns, vectors if t_ns - START_NS < 400 * S else vectors[:2])])
    assert sorted(watched.detector.baselines.nodes.row_of) == [node(0), node(1)]
    assert watched.detector.silence.nodes == {}
    assert [(e.state, e.detector) for e in watched.events if e.node == "node-003"][-1] == ("resolved", "silence")


def test_every_verdict_is_one_of_the_known() -> None:
    fleet = MadeUpFleet(9, seed=35, warm=False, faults={1: (300, DISK_SATURATION)}, silent={2: (300.0, 400.0)})
    watched = watcher().watch(fleet.slides(600))
    told = {verdict for _, slide in watched.slides for verdict in slide.verdicts.values()}
    assert told == {"normal", "suspect", "anomalous", "silent", "insufficient data"} == set(VERDICTS)
    assert all(0 <= score < 1 for _, slide in watched.slides for score in slide.scores.values())
    assert watcher().detector.slide(START_NS, []) == Slide()
