"""Forests learn: what a depth can solve is solved, and accuracy is the field's."""

from __future__ import annotations

from itertools import product

import numba
import numpy as np
import polars as pl
import pytest

import bigforest
from tests.naive.split import SCORES

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


@pytest.mark.parametrize("impurity", SCORES)
def test_train__xor_on_a_grid(impurity: str) -> None:
    grid = np.array(list(product((-1.0, 1.0), repeat=2)) * 6)
    data = pl.DataFrame(grid, schema=["a", "b"]).with_columns(y=(pl.col("a") > 0) ^ (pl.col("b") > 0))
    forest = bigforest.train(data, trees=3, mtry="all", impurity=impurity, max_depth=2, bootstrap=False)
    assert forest.predict(data.drop("y"))["prediction"].to_list() == data["y"].to_list()


def test_train__all_rows_are_learnt_by_heart() -> None:
    draw = np.random.default_rng(4)
    values, target = draw.normal(size=(2000, 5)), draw.integers(0, 7, 2000)
    forest = bigforest.train((values, target), trees=2, bootstrap=False)
    assert (forest.predict(values) == target).all()


def test_train__pure_noise_is_not_learnt() -> None:
    draw = np.random.default_rng(5)
    forest = bigforest.train((draw.normal(size=(4000, 6)), draw.integers(0, 2, 4000)), trees=30)
    assert abs(forest.oob.error - 0.5) < 0.04


@pytest.mark.parametrize("constants", ["redraw", "count"])
def test_train__digits_as_well_as_scikit_learn(constants: str) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    ensemble = pytest.importorskip("sklearn.ensemble")
    values, target = datasets.load_digits(return_X_y=True)
    ours, theirs, unseen = [], [], []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(target))
        fit, test = order[:1200], order[1200:]
        forest = bigforest.train((values[fit], target[fit]), trees=60, seed=seed, constants=constants, refine="off")
        peer = ensemble.RandomForestClassifier(60, random_state=seed, max_features="sqrt")
        peer.fit(values[fit], target[fit])
        ours.append(np.mean(forest.predict(values[test]) == target[test]))
        theirs.append(np.mean(peer.predict(values[test]) == target[test]))
        unseen.append(1 - forest.oob.error)
    assert np.mean(ours) > np.mean(theirs) - 0.007  # two standard errors of the mean over four splits
    assert np.mean(ours) > 0.95
    assert abs(np.mean(unseen) - np.mean(ours)) < 0.015
