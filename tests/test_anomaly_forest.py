"""The forest's arrays and loop against scikit-learn, and the artifact around it."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import IsolationForest

from fleetpulse.anomaly import Model, ModelError, TrainingData, train
from fleetpulse.anomaly._archive import ArchiveError, pack, unpack
from fleetpulse.anomaly._forest import Forest
from fleetpulse.anomaly._load import SharedLoad
from fleetpulse.anomaly._summary import ENERGY_MAX, energy, summarise, summary_width

SCHEMA = bytes(range(16))
GROUP = np.repeat(np.arange(4, dtype=np.int32), 5)


def rows_of(seed: int, n: int = 400, f: int = 6) -> np.ndarray:
    print(f"rows seed {seed}")
    return np.random.default_rng(seed).standard_normal((n, f)).astype(np.float32)


def training_data(seed: int = 3, n: int = 600) -> TrainingData:
    """Four groups of five columns that share a load; the last column was never known, the one before is constant."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((n, 20)) + 2 * random.standard_normal((n, 1))
    rows[:, 18], rows[:, 19] = 0.0, np.nan
    times_ns = np.repeat(np.arange(n // 4), 4).astype(np.int64) * 5_000_000_000
    return TrainingData(SCHEMA, "general", GROUP, rows.astype(np.float32), times_ns, 1e-6)


@pytest.mark.parametrize(
    ("n", "sample", "copies"),
    [(400, 256, 1), (40, 256, 1), (3, 256, 1), (2, 2, 1), (30, 256, 10), (1000, 64, 1)],
    ids=["usual", "fewer rows than a sample", "three rows", "two rows", "equal rows", "small samples"],
)
def test_scores_equal_those_of_scikit_learn(n: int, sample: int, copies: int) -> None:
    rows = np.repeat(rows_of(n, n), copies, axis=0)
    fitted = IsolationForest(n_estimators=30, max_samples=min(sample, len(rows)), random_state=5).fit(rows)
    asked = np.concatenate((rows_of(9, 500) * 3, rows, np.zeros((1, 6), np.float32)))
    ours = Forest.of_fitted(fitted).anomaly(asked)
    np.testing.assert_allclose(ours, -fitted.score_samples(asked), rtol=1e-12)


def test_a_row_scores_the_same_bits_in_any_company() -> None:
    rows = rows_of(1, 700)
    forest = Forest.grow(rows, seed=2)
    whole = forest.anomaly(rows)
    order = np.random.default_rng(4).permutation(len(rows))
    assert (forest.anomaly(rows[order]) == whole[order]).all()
    assert all(forest.anomaly(rows[i : i + 1])[0] == whole[i] for i in (0, 255, 256, 699))


def test_a_row_beyond_everything_reaches_the_ceiling() -> None:
    rows = rows_of(1)
    forest = Forest.grow(rows, seed=2)
    assert forest.anomaly(rows).max() <= forest.ceiling()
    assert forest.anomaly(np.full((1, 6), 1e9, np.float32))[0] == forest.ceiling()


@pytest.mark.parametrize(
    "change",
    [
        lambda f: replace(f, left=np.zeros_like(f.left)),
        lambda f: replace(f, right=np.full_like(f.right, 1 << 30)),
        lambda f: replace(f, feature=np.full_like(f.feature, 6)),
        lambda f: replace(f, roots=f.roots - 1),
        lambda f: replace(f, path=f.path[:-1]),
        lambda f: replace(f, norm=0.0),
        lambda f: replace(f, feature=f.feature.astype(np.float64)),
    ],
    ids=["circle", "beyond the end", "unknown column", "root before the start", "lengths", "norm", "dtype"],
)
def test_unsound_arrays_are_recognised(change: object) -> None:
    forest = Forest.grow(rows_of(1), seed=2)
    assert forest.is_sound()
    assert not change(forest).is_sound()  # type: ignore[operator]


def test_load_that_all_columns_share_is_taken_out_and_one_column_alone_stays() -> None:
    random = np.random.default_rng(6)
    shared = 3 * random.standard_normal((500, 1))
    load = SharedLoad.learn(
        (shared + 0.3 * random.standard_normal((500, 20))).astype(np.float32), share=0.5, components_max=6
    )
    together, alone = np.full((1, 20), 4.0, np.float32), np.zeros((1, 20), np.float32)
    alone[0, 7] = 4.0
    assert np.abs(load.remove(together)).max() < 0.5
    assert np.argmax(np.abs(load.remove(alone))) == 7
    assert np.abs(load.remove(alone)).max() > 3


def test_a_missing_value_moves_no_other_column() -> None:
    load = SharedLoad.learn(rows_of(2, 300, 8), share=0.5, components_max=3)
    row = rows_of(3, 1, 8)
    row[0, 2] = 0.0
    zero = load.remove(row)
    row[0, 2] = np.nan
    missing = load.remove(row)
    assert np.isnan(missing[0, 2])
    np.testing.assert_array_equal(np.delete(missing, 2), np.delete(zero, 2))


def test_summaries_tell_the_largest_and_the_means_of_each_group() -> None:
    energies = np.array([[5, 1, 3, 1, np.nan, 7]], np.float32)
    group = np.array([0, 0, 0, 0, 1, 1], np.int32)
    found = summarise(energies, group)[0]
    assert found.tolist() == pytest.approx([5, 3, 2.5, 7, 3.5, 3.5, 7, 5, 17 / 6])
    assert len(found) == summary_width(group)
    assert energy(np.array([[1e30, 2]], np.float32))[0].tolist() == pytest.approx([np.log1p(ENERGY_MAX), np.log(5)])


def test_the_same_rows_in_any_order_and_the_same_seed_give_the_same_model() -> None:
    data = training_data()
    order = np.random.default_rng(1).permutation(len(data.rows))
    shuffled = replace(data, rows=data.rows[order], times_ns=data.times_ns[order])
    assert train(data, 7).to_bytes() == train(shuffled, 7).to_bytes()
    assert train(data, 7).to_bytes() != train(data, 8).to_bytes()


def test_the_threshold_lies_above_every_held_out_row_and_can_be_reached() -> None:
    data = training_data()
    model = train(data, 7)
    assert np.median(model.ratio(data.rows)) < 0.3
    assert np.mean(model.ratio(data.rows) >= 1) < 0.01
    assert model.ratio(np.full((1, 20), 40.0, np.float32) * np.resize([1, -1], 20))[0] > 1
    looser = train(replace(data, budget_per_row=0.05), 7)
    assert looser.threshold <= model.threshold


def test_equal_rows_count_once_and_a_pool_that_stands_still_can_be_learned() -> None:
    data = training_data()
    twice = replace(data, rows=np.repeat(data.rows, 2, axis=0), times_ns=np.repeat(data.times_ns, 2))
    assert train(twice, 7).to_bytes() == train(data, 7).to_bytes()
    still = train(replace(data, rows=np.zeros_like(data.rows)), 7)
    assert still.ratio(np.zeros((2, 20), np.float32)).tolist() == [0.0, 0.0]


def test_a_model_survives_its_bytes() -> None:
    model = train(training_data(), 7)
    raw = model.to_bytes()
    again = Model.from_bytes(raw, SCHEMA)
    asked = training_data(seed=8, n=40).rows * 3
    assert (again.ratio(asked) == model.ratio(asked)).all()
    assert again.to_bytes() == raw
    assert b"pickle" not in raw
    assert (again.rows, again.from_ns, again.to_ns) == (600, 0, 149 * 5_000_000_000)


def changed(raw: bytes, **manifest: object) -> bytes:
    held, arrays = unpack(raw)
    return pack({**held, **manifest}, arrays)


def test_a_model_of_another_schema_version_or_library_is_refused() -> None:
    raw = train(training_data(), 7).to_bytes()
    with pytest.raises(ModelError, match="schema 0001"):
        Model.from_bytes(raw, bytes(16))
    for manifest, told in (
        ({"version": 99}, "version 99"),
        ({"kind": "memory"}, "memory"),
        ({"versions": {"python": "2.7"}}, "trained with"),
        ({"threshold": -1.0}, "do not fit"),
        ({"columns": 5}, "do not fit"),
        ({"norm": None}, "missing or misplaced"),
    ):
        with pytest.raises(ModelError, match=told):
            Model.from_bytes(changed(raw, **manifest), SCHEMA)


def test_damaged_bytes_of_a_model_are_refused() -> None:
    raw = train(training_data(), 7).to_bytes()
    for bad in (b"", raw[:-1], raw[:100], raw + b"x", b"FPA2" + raw[4:], raw[:50] + bytes([raw[50] ^ 1]) + raw[51:]):
        with pytest.raises(ModelError):
            Model.from_bytes(bad, SCHEMA)


@settings(deadline=None, max_examples=40)
@given(
    shape=st.lists(st.integers(0, 5), max_size=3),
    dtype=st.sampled_from(["f4", "f8", "i2", "i8", "u1", "u2", "?"]),
    manifest=st.dictionaries(
        st.text(max_size=5).filter(lambda key: key != "arrays"), st.integers() | st.text(), max_size=3
    ),
)
def test_arrays_survive_their_bytes(shape: list[int], dtype: str, manifest: dict[str, object]) -> None:
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    told, arrays = unpack(pack(manifest, {"a": array, "b": array[..., None]}))
    assert told == manifest
    assert arrays["a"].dtype == array.dtype
    np.testing.assert_array_equal(arrays["a"], array)
    assert arrays["b"].shape == (*shape, 1)


@settings(deadline=None, max_examples=60)
@given(at=st.integers(0, 200), byte=st.integers(1, 255))
def test_any_flipped_byte_of_an_archive_is_seen(at: int, byte: int) -> None:
    raw = bytearray(pack({"kind": "x"}, {"a": np.arange(20.0)}))
    raw[at % len(raw)] ^= byte
    with pytest.raises(ArchiveError):
        unpack(bytes(raw))


def test_an_archive_that_lies_about_its_arrays_is_refused() -> None:
    for rows in (
        [["a", "<f8", [1 << 40]]],
        [["a", "<f8", [1 << 40] * 4]],
        [["a", "|O", [1]]],
        [["a", "<f8", [-1]]],
        "nonsense",
        [["a"]],
        None,
    ):
        text = json.dumps({"arrays": rows}).encode()
        body = b"FPA1" + len(text).to_bytes(4, "little") + text + zlib.compress(b"")
        with pytest.raises(ArchiveError):
            unpack(body + zlib.crc32(body).to_bytes(4, "little"))
