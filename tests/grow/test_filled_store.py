"""Missing values where trees split on projections: the mean takes their place, everywhere and always the same."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import bigforest
from bigforest.errors import ConfigError
from bigforest.events import Notice
from bigforest.execution.resources import Resources
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.filled_store import fill_of, filled_store
from bigforest.grow.forest import grow_tree
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.options.train_config import TrainConfig
from bigforest.store.store import Store
from tests.grow.test_invariance import assert_equal, rows_of
from tests.grow.test_mixed_forest import store_of
from tests.grow.test_oblique_numbers import without_classes
from tests.naive.fill import fill
from tests.strategies import Data, mixed_tables, rotation_configs, sparse_configs, subspace_configs
from tests.thorough import cases, examples

ONE = Resources(threads=1)
FAMILIES: list[dict[str, Any]] = [
    {"family": "sparse-oblique", "normalize": "zscore"},
    {"family": "sparse-oblique", "mean_difference": "all", "projection_kind": "gaussian", "normalize": "minmax"},
    {"family": "rotation", "rotation": "pca", "bootstrap": True},
    {"family": "subspace-cap", "subspace": 2},
    {"family": "subspace-perceptron", "subspace": 2},
]


@st.composite
def projected(draw: st.DrawFn, *, categories: bool = False, **sizes: int) -> tuple[Data, TrainConfig, bool]:
    """A table with missing values, a configuration of two trees on projections, and whether of a regression."""
    data = draw(mixed_tables(**sizes))
    data = data if categories else data._replace(categories=frozenset())
    subspaces = subspace_configs(data.values.shape[1])
    config = draw(st.one_of(sparse_configs(), sparse_configs(), rotation_configs(), subspaces))
    numbers = draw(st.booleans()) and not config.in_subspaces
    trees = 1 if config.in_subspaces else 2
    return data, replace(without_classes(config) if numbers else config, trees=trees), numbers


def bins_of(store: Store, feature: int) -> list[tuple[float, float]]:
    """The smallest and the largest value of each code but that of missing cells."""
    first = int(store.spec.features[feature].missing)
    return list(zip(store.low(feature)[first:].tolist(), store.high(feature)[first:].tolist(), strict=True))


@given(data=mixed_tables(max_rows=30), bins=st.sampled_from(["exact", 3]))
@settings(deadline=None, max_examples=examples(200))
def test_fill__is_the_oracles(data: Data, bins: str | int) -> None:
    data = data._replace(categories=frozenset())
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(max_bins=bins)
        store, _ = store_of(data, config, Path(folder), numbers=False, weighted=False, seed=0)
        for place, feature in enumerate(store.spec.features):
            if not feature.missing:
                continue
            found, known = fill_of(store, place), bins_of(store, place)
            assert found == fill(data.values[:, place].tolist(), known)
            assert math.isfinite(found) and not any(low <= found <= high for low, high in known)


@given(case=projected(max_rows=30, max_features=4))
@settings(deadline=None, max_examples=examples(100))
def test_trees__are_those_of_the_filled_table(case: tuple[Data, TrainConfig, bool]) -> None:
    """But for where missing cells go at a node on one feature: there, as their value."""
    data, config, numbers = case
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        gaps, own = store_of(data, config, Path(one), numbers=numbers, weighted=False, seed=1)
        gaps = filled_store(gaps, own, ONE)
        assert gaps.spec.fills is not None
        fills = np.where([feature.missing for feature in gaps.spec.features], gaps.spec.fills, np.nan)
        filled = data._replace(values=np.where(np.isnan(data.values), fills, data.values))
        whole, _ = store_of(filled, config, Path(other), numbers=numbers, weighted=False, seed=1)
        assert np.array_equal(gaps.values(0, gaps.rows), whole.values(0, whole.rows))
        assert_same(grow_tree(gaps, own, 0), grow_tree(whole, own, 0), fills)


def assert_same(found: TreeArrays, expected: TreeArrays, fills: NDArray[np.float64]) -> None:
    """The two trees are equal, and `found` sends missing cells where their fill goes."""
    for name in ("feature", "right", "depth", "threshold", "gain", "weight", "counts", "value"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None and other is None) or np.array_equal(one, other, equal_nan=True), name
    assert (found.terms is None) == (expected.terms is None)
    for one, other in zip(found.terms or (), expected.terms or (), strict=True):
        assert np.array_equal(one, other)
    for node in np.flatnonzero(found.feature >= 0).tolist():
        known = fills[found.feature[node]]
        goes_left = expected.default_left[node] if math.isnan(known) else known <= found.threshold[node]
        assert found.default_left[node] == goes_left


@pytest.mark.filterwarnings("error")
def test_fill__is_finite_where_no_number_is_free(tmp_path: Path) -> None:
    """A bin from the lowest to the largest number leaves none; an infinite one would be refused as damaged."""
    most = float(np.finfo(np.float64).max)
    frame = pl.DataFrame({"x": [-most, most, None, 1.0] * 10, "z": range(40), "y": [0, 1, 0, 1] * 10})
    bigforest.train(frame, "y", family="sparse-oblique", trees=2, max_bins=2, out=tmp_path / "forest")
    forest = bigforest.read_forest(tmp_path / "forest")
    assert forest.spec.fills is not None
    assert np.isfinite(forest.spec.fills).all()
    assert forest.predict(frame).height == 40


def table(rows: int = 500) -> pl.DataFrame:
    """Numbers of several types with missing values, one without, one that is always missing, and two targets."""
    draw = np.random.default_rng(5)
    a, b, c = draw.normal(size=(3, rows))
    gaps = draw.random((5, rows)) < 0.2
    signal = a + b - np.where(gaps[0], 1.0, c)
    return pl.DataFrame(
        {
            "a": pl.Series(np.where(gaps[0], np.nan, a)).cast(pl.Float32),
            "b": pl.Series(np.where(gaps[1], np.nan, b)).fill_nan(None),
            "whole": c,
            "few": pl.Series(draw.integers(-3, 3, rows), dtype=pl.Int8).set(pl.Series(gaps[2]), None),
            "flag": pl.Series(gaps[3]).replace_strict({True: 1, False: None}, return_dtype=pl.Int8),
            "none": pl.Series([None] * rows, dtype=pl.Float64),
            "class": (signal > 0).astype(np.int8),
        }
    )


def filled_table(frame: pl.DataFrame, forest: bigforest.Forest) -> pl.DataFrame:
    """The table with the values of the forest in place of missing ones."""
    fills = {feature.name: feature.fill for feature in forest.spec.features if feature.missing}
    return frame.with_columns(pl.col(name).cast(pl.Float64).fill_nan(None).fill_null(fills[name]) for name in fills)


@pytest.mark.parametrize("options", cases([FAMILIES[4], FAMILIES[1], FAMILIES[2], FAMILIES[0], FAMILIES[3]], quick=1))
def test_forest__predicts_reports_and_explains_as_for_the_filled_table(options: dict[str, Any], tmp_path: Path) -> None:
    frame, said = table(), list[Any]()
    options = {"target": "class", "trees": 5, "seed": 3, "shrink": "off", **options}
    forest = bigforest.train(frame, out=tmp_path / "f.forest", listener=said.append, **options)
    notices = [event.message for event in said if isinstance(event, Notice)]
    assert (
        sum("the mean is put in place of missing values in 'a', 'b', 'few', 'flag', 'none'" in one for one in notices)
        == 1
    )
    filled = filled_table(frame, forest)
    other = bigforest.train(filled, **options)
    assert forest.nodes.drop("default_left").collect().equals(other.nodes.drop("default_left").collect())
    assert forest.features["name"].to_list() == other.features["name"].to_list()
    if forest.has_oob:
        assert forest.oob.rows.collect().equals(other.oob.rows.collect())
    expected = other.predict_proba(filled)
    assert forest.predict_proba(frame).equals(expected)
    assert forest.predict_proba(frame.lazy()).collect().equals(expected)
    assert pl.concat([forest.predict_proba(row) for row in frame[:30].iter_slices(1)]).equals(expected[:30])
    matrix = frame.drop("class").select(pl.all().cast(pl.Float64)).to_numpy()
    assert np.array_equal(forest.predict_proba(matrix), expected.select(pl.col("^p_.*$")).to_numpy())
    assert frame.select(p=forest.expr())["p"].equals(forest.predict(frame)["prediction"].rename("p"))
    frame.write_parquet(tmp_path / "t.parquet")
    bigforest.predict_file(forest, tmp_path / "t.parquet", tmp_path / "p.parquet", proba=True, memory="1GB")
    assert pl.read_parquet(tmp_path / "p.parquet", columns=expected.columns).equals(expected)
    assert np.array_equal(forest.apply(frame), other.apply(filled))
    parts = ["contributions", "permutation"] if forest.has_oob else ["contributions"]
    for part in parts:
        own = [
            bigforest.explain_forest(one, rows, tmp_path / f"{part}-{number}", parts=[part], new_rows=True)[part]
            for number, (one, rows) in enumerate(((forest, frame), (other, filled)))
        ]
        assert own[0].equals(own[1])


@pytest.mark.parametrize("options", cases(FAMILIES[1:4], quick=2))
def test_predict__fills_values_that_no_training_row_lacks(options: dict[str, Any]) -> None:
    """By the mean of the first rows as float32, whatever the type of the new column and how many rows come at once."""
    frame = table(5_000)
    forest = bigforest.train(frame, target="class", trees=3, **options)
    mean = float(np.float32(frame["whole"][:4_096].mean()))
    assert forest.spec.features[2].fill == pytest.approx(mean, rel=1e-6)
    new = frame[:40].with_columns(whole=pl.when(pl.int_range(40) % 3 == 0).then("whole"))
    expected = forest.predict_proba(new.with_columns(pl.col("whole").fill_null(forest.spec.features[2].fill)))
    assert forest.predict_proba(new).equals(expected)
    assert pl.concat([forest.predict_proba(row) for row in new.iter_slices(1)]).equals(expected)
    empty = [new.with_columns(whole=pl.lit(None, dtype)) for dtype in (pl.Null, pl.Int8, pl.Float32, pl.Float64)]
    answers = [forest.predict_proba(one) for one in empty]
    assert all(answer.equals(answers[0]) for answer in answers)


def test_predict__fills_where_no_node_projects(tmp_path: Path) -> None:
    """Trees of one feature have nodes on that alone, which are sent rows by other kernels."""
    draw = np.random.default_rng(2)
    x = np.where(draw.random(400) < 0.3, np.nan, draw.normal(size=400))
    frame = pl.DataFrame({"x": x, "y": (np.nan_to_num(x, nan=0.5) > 0.2).astype(int)}).fill_nan(None)
    options: dict[str, Any] = {"target": "y", "family": "sparse-oblique", "trees": 9, "shrink": "off"}
    forest = bigforest.train(frame, **options)
    assert set(forest.nodes.collect()["kind"]) == {"axis", "leaf"}
    filled = filled_table(frame, forest)
    other = bigforest.train(filled, **options)
    assert forest.predict_proba(frame).equals(other.predict_proba(filled))
    assert forest.oob.rows.collect().equals(other.oob.rows.collect())
    whole = bigforest.train(frame.drop_nulls(), **options)
    known = whole.spec.features[0].fill
    assert whole.predict_proba(frame).equals(whole.predict_proba(frame.with_columns(pl.col("x").fill_null(known))))
    nodes = forest.nodes.filter(pl.col("kind") == "axis").collect()
    assert (nodes["default_left"] == (forest.spec.features[0].fill <= nodes["threshold"])).all()


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("options", cases([FAMILIES[1], {**FAMILIES[0], "max_bins": 50}, FAMILIES[2]], quick=1))
def test_train__any_kind_of_run_gives_the_same_rows(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"target": "class", "trees": 3, "seed": 3, "max_depth": 6, **options}
    assert_same_by_any_run(table(70_000), options, tmp_path, monkeypatch)


def assert_same_by_any_run(
    frame: pl.DataFrame, options: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forests of three trees have the same rows from a frame and a file, on one thread and two, and from a store,
    resumed and by passes."""
    bigforest.train(frame, out=folder / "one", threads=1, **options)
    expected = rows_of(folder / "one")
    frame.write_parquet(folder / "t.parquet", row_group_size=999)
    bigforest.train(folder / "t.parquet", out=folder / "file", threads=2, **options)
    assert_equal(rows_of(folder / "file"), expected)
    encoding = {name: options[name] for name in ("target", "max_bins", "categories") if name in options}
    store = bigforest.encode_store(frame, folder / "s.store", **encoding)
    bigforest.train(store, out=folder / "resumed", **(options | {"trees": 1}))
    bigforest.train(resume=folder / "resumed", trees=3)
    assert_equal(rows_of(folder / "resumed"), expected)
    limits = MemoryLimits(rows=30_000, collects=3_000, cells=1 << 10, room=1 << 15)
    monkeypatch.setattr("bigforest.grow.forest.choose_grow_plan", lambda *_: GrowPlan(1, limits, 2, 0))
    bigforest.train(store, out=folder / "passes", **options)
    assert_equal(rows_of(folder / "passes"), expected)


def test_explain__has_nothing_left_to_fill() -> None:
    forest = bigforest.train(table(), target="class", trees=2, family="sparse-oblique")
    with pytest.raises(ConfigError, match="this forest puts numbers in their place"):
        bigforest.explain_forest(forest, table(), parts="filling")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_train__fills_with_values_beyond_float32() -> None:
    large = pl.DataFrame({"x": [None, 1e300, 2e300, -1e300] * 9, "y": ["a", "b", "b", "a"] * 9})
    forest = bigforest.train(large, "y", trees=3, family="sparse-oblique", threads=1, class_weight="balanced")
    assert forest.score(large) > 0.5


def test_train__refuses_ranks_with_missing_values() -> None:
    with pytest.raises(ConfigError, match="ranks need numbers without missing values, unlike 'a'"):
        bigforest.train(table(), target="class", family="sparse-oblique", ranks=True)
