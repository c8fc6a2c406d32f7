"""Trial trees: their errors and which of them are better, against the oracle; the rows they are grown on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.grow.forest import grow_trees
from bigforest.oob.accumulator import error_unit
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.bags import Sampler
from bigforest.training import trial_trees as trial
from tests.naive.trial_trees import Trees, deviance, gain, loss, spread
from tests.thorough import examples
from tests.training.test_number_defaults import product

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


def errors_of(trees: Trees, rows: int, outputs: int) -> trial.Errors:
    found = trial.Errors(np.zeros((rows, outputs)), np.zeros(rows), np.zeros(rows), 0.0)
    for tree in trees:
        for row, error in tree.items():
            found.total[row] += error
            found.squares[row] += (np.array(error) ** 2).sum()
            found.trees[row] += 1
    return found


@given(st.data())
@settings(max_examples=examples(200))
def test_gain_of__is_what_the_naive_one_says(data: st.DataObject) -> None:
    rows, outputs = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 3))
    bags = data.draw(st.lists(st.sets(st.integers(0, rows - 1)), min_size=1, max_size=5))
    values = st.lists(st.integers(-9, 9).map(float), min_size=outputs, max_size=outputs)
    half, every = ([{row: data.draw(values) for row in sorted(bag)} for bag in bags] for _ in range(2))
    weights = data.draw(st.none() | st.lists(st.integers(1, 9).map(float), min_size=rows, max_size=rows))
    own = None if weights is None else np.array(weights)
    mean, error = trial.gain_of(errors_of(every, rows, outputs), errors_of(half, rows, outputs), own)
    wanted = gain(half, every, weights or [1.0] * rows)
    if wanted is not None and abs(wanted[0] - wanted[1]) < 1e-9:
        return  # a tie but for rounding
    assert (mean > error) == (wanted is not None and wanted[0] > wanted[1])
    found = trial.spread_of(errors_of(every, rows, outputs), own)
    assert found == pytest.approx(spread(every, weights or [1.0] * rows), abs=1e-9)


@compiled
@pytest.mark.parametrize(
    "options",
    [
        {"mtry": "half", "min_leaf": 3},
        {"mtry": "all", "min_leaf": 1},
        {"mtry": "half", "min_leaf": 3, "impurity": "poisson"},
        {"task": "classification", "mtry": "sqrt"},
        {"task": "classification", "family": "rotation", "axes_from": ("x0", "x1")},
    ],
)
def test_grow__trees_err_as_those_of_a_forest_do(options: dict[str, Any], tmp_path: Path) -> None:
    frame = product(1200)
    if "family" not in options:
        frame = frame.with_columns(x0=pl.when(pl.col("x1") < 1.5).then("x0"), c=pl.col("x2").round(0).cast(pl.String))
    if "impurity" in options:
        frame = frame.with_columns(y=pl.col("y").clip(0.0))
    if "task" in options:
        frame = frame.with_columns(y=pl.col("y").clip(-3, 3).round(0).cast(pl.Int64))
    store = bf.encode_store(frame, tmp_path / "store", target="y", task=options.get("task"))
    config = TrainConfig.of(trees=4, shrink="off", **options).for_task(store.spec.target.task).with_defaults()
    found = trial.trial_errors(store, config, range(4))
    unit = error_unit(store)
    found = found._replace(total=found.total / unit, squares=found.squares / unit**2)
    if found.truth is not None:
        found = found._replace(truth=found.truth / unit)

    forest = bf.train(store, trees=4, keep_votes=True, shrink="off", **options)
    if "task" in options:
        labels = forest.classes
        truth = (frame["y"].to_numpy()[:, None] == np.array(labels)).astype(float)
        leaves = forest.nodes.select("tree", "node", "counts").collect()
        answers = np.array(leaves["counts"].to_list(), float)
        answers /= answers.sum(axis=1, keepdims=True)
    else:
        truth = frame["y"].to_numpy()[:, None]
        leaves = forest.nodes.select("tree", "node", "value").collect()
        answers = leaves["value"].to_numpy()[:, None]
    place = {key: number for number, key in enumerate(leaves.select("tree", "node").rows())}
    trees: list[dict[int, Any]] = [{} for _ in range(4)]
    for row, tree, leaf in forest.oob_votes.collect().select("row", "tree", "leaf").rows():
        trees[tree][row] = (answers[place[tree, leaf]] - truth[row]).tolist()
    wanted = errors_of(trees, frame.height, truth.shape[1])
    nodes = forest.nodes.select("left", "weight").collect()
    assert found.split == nodes.drop_nulls("left")["weight"].sum() > 0
    assert np.array_equal(found.trees, wanted.trees)
    assert np.allclose(found.total, wanted.total, atol=1e-9)
    assert np.allclose(found.squares, wanted.squares, atol=1e-9)
    evaluated = found.trees > 1
    losses = trial._losses(found, evaluated)
    if "impurity" in options:
        wanted_losses = [deviance(trees, row, truth[row, 0]) for row in np.flatnonzero(evaluated)]
    else:
        wanted_losses = [loss(trees, row) for row in np.flatnonzero(evaluated)]
    assert np.allclose(losses, wanted_losses, atol=1e-9)


def test_of_rows__are_the_rows_of_the_table(tmp_path: Path) -> None:
    frame = product(300).with_columns(
        x1=pl.when(pl.col("x2") < 1).then("x1"),
        c=pl.col("x3").round(0).cast(pl.String),
        g=pl.int_range(300) // 4,
        w=pl.int_range(300) % 5 + 1,
    )
    store = bf.encode_store(frame, tmp_path / "store", target="y", group="g", weight="w")
    rows = np.array([0, 7, 8, 150, 299])
    some = store.of_rows(rows)
    assert np.array_equal(some.values(0, 5), store.values(0, 300)[rows], equal_nan=True)
    assert np.array_equal(some.target, store.target[rows])
    assert some.groups_of(0, 5).tolist() == [0, 1, 2, 3, 4] and some.spec.group.groups == 5
    assert store.of_rows(np.array([3, 4, 5])).groups_of(0, 3).tolist() == [0, 1, 1]
    assert np.array_equal(some.weights_of(0, 5), store.weights_of(0, 300)[rows])
    assert (some.rows, some.fingerprint == store.fingerprint) == (5, False)
    config = TrainConfig.of(group="g", weight="w").for_task("regression")
    assert Sampler(some, config).bag(0).size == 5
    for array in (*some.codes[:3], some.target):
        assert not array.flags.writeable


@compiled
@pytest.mark.parametrize("options", [{}, {"splitter": "random"}, {"family": "sparse-oblique"}])
def test_of_rows__have_the_trees_of_a_table_of_these_rows(options: Any, tmp_path: Path) -> None:
    """Numbers of more codes than rows have fewer codes then, in the same order."""
    frame = product(1_000).with_columns(pl.col("y") > 0)
    if not options:
        frame = frame.with_columns(x1=pl.when(pl.col("x2") < 1).then("x1"))
    store = bf.encode_store(frame, tmp_path / "whole", target="y")
    ends = [frame[name].arg_sort(nulls_last=True)[[0, 1]] for name in store.spec.feature_names]
    ends += [frame[name].arg_sort(descending=True, nulls_last=True)[[0, 1]] for name in store.spec.feature_names]
    rows = pl.concat([pl.Series(range(0, 1_000, 7), dtype=pl.UInt32), *ends]).unique().sort().to_numpy()
    some, alone = store.of_rows(rows.astype(np.int64)), bf.encode_store(frame[rows], tmp_path / "some", target="y")
    config = TrainConfig.of(trees=4, **options).for_task("classification")
    for own, wanted in zip(grow_trees(some, config, range(4)), grow_trees(alone, config, range(4)), strict=True):
        for name in ("feature", "threshold", "counts", "default_left"):
            assert np.array_equal(getattr(own.trees, name), getattr(wanted.trees, name), equal_nan=name == "threshold")
        for one, other in zip(own.left_out, wanted.left_out, strict=True):
            assert np.array_equal(one.leaves, other.leaves)
