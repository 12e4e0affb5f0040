"""Judging labelled recordings: the curves, causality, events, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from typer.testing import CliRunner

from fleetpulse.anomaly import DetectorSettings
from fleetpulse.anomaly._curves import average_precision, labelled_intervals, volume_under_pr
from fleetpulse.anomaly._evaluate import Recording, evaluate, events_of
from fleetpulse.anomaly._recording import find_period, score_recording
from fleetpulse.ingest._cmd_evaluate import evaluate_command, read_recording
from fleetpulse.ingest._errors import UserError

DATA = Path(__file__).parent / "data" / "asd"


def made_up(seed: int, *, rows: int = 1500, columns: int = 8) -> Recording:
    """Columns under one daily load; two stretches in test where one column leaves it."""
    print(f"recording seed {seed}")
    random = np.random.default_rng(seed)
    t = np.arange(2 * rows)
    load = 0.5 + 0.3 * np.sin(2 * np.pi * t / 144)[:, None]
    values = load * random.uniform(0.5, 1.5, columns) + 0.02 * random.standard_normal((2 * rows, columns))
    labels = np.zeros(rows, np.bool_)
    for first, column in ((400, 2), (900, 5)):
        values[rows + first : rows + first + 30, column] += 0.5
        labels[first : first + 30] = True
    reasons = {(400, 430): frozenset({2}), (900, 930): frozenset({5})}
    return Recording(f"made-up-{seed}", values[:rows], values[rows:], labels, reasons)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=40))
def test_average_precision_equals_that_of_scikit_learn(rows: list[tuple[bool, int]]) -> None:
    labels = np.array([label for label, _ in rows])
    scores = np.array([float(score) for _, score in rows])
    ours = average_precision(labels, scores)
    if not labels.any():
        assert ours is None
    else:
        assert ours == pytest.approx(average_precision_score(labels, scores))


def test_volume_under_pr_rewards_nearness_and_is_average_precision_without_a_buffer() -> None:
    labels = np.zeros(200, np.bool_)
    labels[100:110] = True
    right, near, far = (np.zeros(200) for _ in range(3))
    right[100:110], near[94:104], far[20:30] = 1.0, 1.0, 1.0
    areas = [volume_under_pr(labels, scores, buffer_rows=20) for scores in (right, near, far)]
    assert areas[0] > areas[1] > areas[2]  # type: ignore[operator]
    random = np.random.default_rng(3)
    noise = random.permutation(200).astype(float)
    # One interval: every threshold down to its largest score misses it, and hits nothing either.
    assert volume_under_pr(labels, noise, buffer_rows=0) == pytest.approx(average_precision(labels, noise))
    assert volume_under_pr(np.zeros(5, np.bool_), np.zeros(5), buffer_rows=3) is None


def test_labelled_intervals_are_the_runs() -> None:
    assert labelled_intervals(np.array([1, 1, 0, 0, 1, 0, 1], np.bool_)) == [(0, 2), (4, 5), (6, 7)]
    assert labelled_intervals(np.zeros(3, np.bool_)) == []


@pytest.mark.parametrize(
    ("ratios", "events"),
    [
        ([0, 2, 0, 2, 0], []),
        ([0, 2, 2, 2, 0.7] + [0] * 6, [(2, 10)]),
        ([2, 2] + [0.7] * 20, [(1, 22)]),
        ([2, 2] + [0] * 5 + [0.7] + [0] * 6 + [2, 2], [(1, 13), (15, 16)]),
    ],
    ids=["one row is not enough", "resolved after six calm rows", "not while near the threshold", "calm starts again"],
)
def test_events_follow_the_hysteresis(ratios: list[float], events: list[tuple[int, int]]) -> None:
    assert events_of(np.array(ratios, float), DetectorSettings()) == events


def test_a_score_uses_no_row_after_it() -> None:
    recording = made_up(1)
    whole = score_recording(recording.train, recording.test, seed=1, budget_per_row=1e-5).anomaly
    for cut in (1, 401, 915):
        part = score_recording(recording.train, recording.test[:cut], seed=1, budget_per_row=1e-5).anomaly
        assert (part == whole[:cut]).all()
    again = score_recording(recording.train, recording.test, seed=1, budget_per_row=1e-5).anomaly
    assert (again == whole).all()


@pytest.mark.parametrize("seed", [1, 2])
def test_what_leaves_the_shared_load_is_found_with_its_column(seed: int) -> None:
    report = evaluate([made_up(seed)], interval_s=600, seed=1)
    (row,) = report.recordings
    assert row.average_precision is not None
    assert row.average_precision > 0.8
    assert (row.intervals, row.found, row.false_events) == (2, 2, 0)
    assert row.delay_rows is not None
    assert row.delay_rows <= 3
    assert row.reasons_right == 1.0


def test_holes_are_missing_and_not_normal_values() -> None:
    recording = made_up(3)
    random = np.random.default_rng(4)
    test = np.where(random.random(recording.test.shape) < 0.1, np.nan, recording.test)
    train = np.where(random.random(recording.train.shape) < 0.1, np.nan, recording.train)
    train[:, 0] = np.nan
    report = evaluate([Recording("holes", train, test, recording.labels, {})], interval_s=600, seed=1)
    assert report.mean_average_precision is not None
    assert report.mean_average_precision > 0.6
    assert report.recordings[0].reasons_right is None


def test_a_period_is_found_where_there_is_one() -> None:
    assert abs(find_period(made_up(1).train - 0.5) - 144) <= 1
    assert find_period(np.random.default_rng(1).standard_normal((1500, 4))) == 0
    assert find_period(np.zeros((1500, 4))) == 0


def test_recorded_servers_are_judged_better_than_by_plain_ways() -> None:
    """Three of the six servers, whose means by a forest on raw rows and by a PCA residual are below 0.5."""
    recordings = [read_recording(DATA / f"{name}.npz") for name in ("omi-3", "omi-7", "omi-9")]
    report = evaluate(recordings, interval_s=300, seed=1)
    assert report.mean_average_precision is not None
    assert report.mean_average_precision > 0.5
    assert report.false_events_per_day < 0.5


# --- the command ---


def saved(folder: Path, **arrays: object) -> Path:
    recording = made_up(1)
    held = {
        "train": recording.train,
        "test": recording.test,
        "label": recording.labels.astype(np.uint8),
        "reasons": "400-429:3\n900-929:6",
    }
    path = folder / "made-up.npz"
    np.savez(path, **{name: value for name, value in {**held, **arrays}.items() if value is not None})  # type: ignore[arg-type]
    return path


def test_the_command_prints_figures_for_people_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path)
    capsys.readouterr()
    evaluate_command(tmp_path, interval="10m", seed=1, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["recordings"][0]["name"] == "made-up"
    assert told["recordings"][0]["found"] == 2
    assert told["recordings"][0]["reasons_right"] == 1.0
    assert told["mean_average_precision"] > 0.8
    evaluate_command(tmp_path, interval="10m", seed=1, as_json=False)
    assert "made-up" in capsys.readouterr().out


def test_the_command_is_part_of_the_console() -> None:
    from fleetpulse.ingest._cli import app

    result = CliRunner().invoke(app, ["evaluate", "--help"])
    assert result.exit_code == 0
    assert "labelled recordings" in result.output


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"train": None}, "no array 'train'"),
        ({"label": np.zeros(3)}, "a 0 or 1 for each"),
        ({"label": np.full(1500, 2)}, "a 0 or 1 for each"),
        ({"train": np.zeros((100, 3))}, "same columns"),
        ({"train": np.zeros((10, 8))}, "at least 64"),
        ({"test": np.array(["a"])}, "not numbers"),
        ({"test": np.array([{}], object)}, "pickled"),
        ({"reasons": "4-9"}, "FIRST-LAST"),
        ({"reasons": "4-9:77"}, "names a column"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_a_file_of_the_wrong_form_is_one_line_that_says_what_is_wrong(
    tmp_path: Path, arrays: dict[str, object], told: str
) -> None:
    path = saved(tmp_path, **arrays)
    with pytest.raises(UserError, match=told) as error:
        read_recording(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "prepare",
    [lambda folder: folder / "nowhere", lambda folder: folder, lambda folder: _with_garbage(folder)],
    ids=["no folder", "no file", "garbage"],
)
def test_a_folder_without_recordings_is_told(tmp_path: Path, prepare: Callable[[Path], Path]) -> None:
    with pytest.raises(UserError):
        evaluate_command(prepare(tmp_path), interval="1m", seed=1, as_json=True)


def _with_garbage(folder: Path) -> Path:
    (folder / "x.npz").write_bytes(b"PK\x03\x04 no zip at all")
    return folder
