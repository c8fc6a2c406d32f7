"""Forests learn what there is to learn, as well as scikit-learn's."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import bigforest

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


def test_train__all_rows_are_learnt_by_heart() -> None:
    draw = np.random.default_rng(4)
    values, target = draw.normal(size=(2000, 5)), draw.integers(0, 7, 2000)
    forest = bigforest.train((values, target), trees=2, bootstrap=False)
    assert (forest.predict(values) == target).all()


def test_train__pure_noise_is_not_learnt() -> None:
    draw = np.random.default_rng(5)
    forest = bigforest.train((draw.normal(size=(4000, 6)), draw.integers(0, 2, 4000)), trees=30)
    assert abs(forest.oob.error - 0.5) < 0.04


def test_train__digits_as_well_as_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    ensemble = pytest.importorskip("sklearn.ensemble")
    values, target = datasets.load_digits(return_X_y=True)
    ours, theirs, unseen = [], [], []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(target))
        fit, test = order[:1200], order[1200:]
        forest = bigforest.train((values[fit], target[fit]), trees=60, seed=seed, refine="off")
        peer = ensemble.RandomForestClassifier(60, random_state=seed, max_features="sqrt")
        peer.fit(values[fit], target[fit])
        ours.append(np.mean(forest.predict(values[test]) == target[test]))
        theirs.append(np.mean(peer.predict(values[test]) == target[test]))
        unseen.append(1 - forest.oob.error)
    assert np.mean(ours) > np.mean(theirs) - 0.007  # two standard errors of the mean over four splits
    assert np.mean(ours) > 0.95
    assert abs(np.mean(unseen) - np.mean(ours)) < 0.015
