"""Forests of random splits: what they learn beside scikit-learn's, in every kind of run, and where they are refused."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.errors import ConfigError
from bigforest.options.train_config import TrainConfig
from tests.grow.test_invariance import assert_equal, rows_of

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


def parts(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to train on and to test on."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[: rows * 2 // 3], order[rows * 2 // 3 :]


@compiled
def test_train__random_splits_of_digits_as_well_as_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    ensemble = pytest.importorskip("sklearn.ensemble")
    values, target = datasets.load_digits(return_X_y=True)
    ours, theirs = [], []
    for seed in range(4):
        fit, test = parts(len(target), seed)
        options = {"trees": 60, "seed": seed, "splitter": "random", "bootstrap": False}
        forest = bigforest.train((values[fit], target[fit]), **options)
        peer = ensemble.ExtraTreesClassifier(60, random_state=seed).fit(values[fit], target[fit])
        ours.append(np.mean(forest.predict(values[test]) == target[test]))
        theirs.append(np.mean(peer.predict(values[test]) == target[test]))
    assert np.mean(ours) > max(0.95, np.mean(theirs) - 0.007)  # two standard errors of the mean over four splits


@compiled
def test_train__random_splits_of_numbers_as_well_as_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    ensemble = pytest.importorskip("sklearn.ensemble")
    values, target = datasets.make_friedman1(1500, noise=1.0, random_state=0)
    ours, theirs = [], []
    for seed in range(4):
        fit, test = parts(len(target), seed)
        options = {"trees": 60, "seed": seed, "splitter": "random", "bootstrap": False, "mtry": "all", "min_leaf": 1}
        forest = bigforest.train((values[fit], target[fit]), **options)
        peer = ensemble.ExtraTreesRegressor(60, random_state=seed).fit(values[fit], target[fit])
        ours.append(np.mean((forest.predict(values[test]) - target[test]) ** 2))
        theirs.append(np.mean((peer.predict(values[test]) - target[test]) ** 2))
    assert np.mean(ours) < 1.05 * np.mean(theirs)


@compiled
def test_train__random_splits_whatever_the_threads_and_resumed(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    frame = pl.DataFrame(random.integers(0, 300, (2000, 4)), list("abcd")).with_columns(
        y=pl.Series(random.integers(0, 3, 2000))
    )
    options = {"target": "y", "splitter": "random", "seed": 5}
    bigforest.train(frame, out=tmp_path / "one", trees=6, threads=1, **options)
    bigforest.train(frame, out=tmp_path / "two", trees=4, threads=2, **options)
    bigforest.train(frame, resume=tmp_path / "two", trees=6)
    assert_equal(rows_of(tmp_path / "two"), rows_of(tmp_path / "one"))
    best = bigforest.train(frame, trees=6, **options | {"splitter": "best"})
    nodes = bigforest.read_forest(tmp_path / "one").nodes.collect()
    assert len(nodes) > 1.2 * best.nodes.collect().height  # random trees are larger
    whole = nodes["threshold"].drop_nulls() % 1.0
    assert ((whole > 0.0) & (whole != 0.5)).mean() > 0.95  # drawn, not midpoints


def test_config__random_splits_are_of_features() -> None:
    assert TrainConfig.of(family="tree", splitter="random").trees == 1
    with pytest.raises(ConfigError, match="splitter is an option of the family axis or tree, not of rotation"):
        TrainConfig(family="rotation", splitter="random")
    with pytest.raises(ConfigError, match="splitter must be one of best, random, not 'worst'"):
        TrainConfig(splitter="worst")  # type: ignore[arg-type]
