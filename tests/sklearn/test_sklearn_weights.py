"""Weights of rows and classes as the estimators of bigforest.sklearn take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigforest.errors import BigForestError
from bigforest.sklearn import BigForestClassifier
from bigforest.sklearn.base import BaseBigForest
from tests.sklearn.test_sklearn_estimators import ESTIMATORS, NUMBERS, WORDS, X_NUMBERS, X, Y, same


def test_weights__leave_rows_out_and_keep_their_classes() -> None:
    weights = np.where(Y == 2, 0.0, 1.0)
    ours = BigForestClassifier(n_estimators=8, oob_score=True).fit(X, Y, sample_weight=weights)
    assert ours.classes_.tolist() == [0, 1, 2]
    assert (ours.predict_proba(X)[:, 2] == 0.0).all() and not (ours.predict(X) == 2).any()
    with pytest.raises(BigForestError, match="all weights in sample_weight are zero"):
        BigForestClassifier().fit(X, Y, sample_weight=np.zeros(200))
    assert set(np.concatenate(ours.estimators_samples_)) <= set(np.flatnonzero(weights))
    seen = ours.oob_decision_function_
    assert np.isnan(seen[Y == 2]).all() and not np.isnan(seen[Y != 2]).all()


def test_class_weight__counts_as_weights_of_rows() -> None:
    one = BigForestClassifier(n_estimators=4, class_weight={0: 2.0, 1: 1.0, 2: 5.0}).fit(X, Y)
    other = BigForestClassifier(n_estimators=4, min_samples_leaf=2)
    assert same(one, other.fit(X, Y, sample_weight=np.array([2.0, 1.0, 5.0])[Y]))
    folds = BigForestClassifier(n_estimators=4, class_weight={0: 2.0, 1: 1.0, 2: 5.0}).fit(X[Y < 2], Y[Y < 2])
    assert folds.classes_.tolist() == [0, 1]
    without = BigForestClassifier(n_estimators=4, class_weight={0: 2.0, 1: 0, 2: 5.0}).fit(X, WORDS == "yes")
    assert without.classes_.tolist() == [False, True]
    for wrong in ({3: 1.0}, "balanced_subsamples", [1.0], {0: -1.0}, {0: "much"}, {0: np.nan}):
        with pytest.raises(BigForestError, match="class_weight"):
            BigForestClassifier(class_weight=wrong).fit(X, Y)


def test_balanced_subsample__gives_classes_the_same_weight_in_every_bag() -> None:
    ours = BigForestClassifier(n_estimators=4, max_depth=1, class_weight="balanced_subsample").fit(X, Y)
    for bag in ours.estimators_samples_:
        assert np.bincount(Y[bag]).tolist() == np.bincount(Y).tolist()
    assert ours.forest_.config.class_weight == "balanced"
    whole = BigForestClassifier(n_estimators=1, family="tree", class_weight="balanced_subsample").fit(X, Y)
    assert same(whole, BigForestClassifier(n_estimators=1, family="tree", class_weight="balanced").fit(X, Y))
    for options, groups in (({"sampling": "balanced"}, None), ({}, np.arange(200) // 4)):
        with pytest.raises(BigForestError, match="draws each class by itself"):
            BigForestClassifier(class_weight="balanced_subsample", **options).fit(X, Y, groups=groups)


@pytest.mark.parametrize("weights", [None, np.arange(200) % 3 + 1.0, 2])
def test_class_weight__of_zero_leaves_the_class_out(weights: Any) -> None:
    ours = BigForestClassifier(n_estimators=4, class_weight={"no": 2.0, "perhaps": 0, "yes": 5.0})
    ours.fit(X, WORDS, sample_weight=weights)
    own = np.where(Y == 1, 0.0, 1.0 if weights is None else weights) * np.array([2.0, 1.0, 5.0])[Y]
    other = BigForestClassifier(n_estimators=4, min_samples_leaf=2).fit(X, WORDS, sample_weight=own)
    assert ours.classes_.tolist() == ["no", "perhaps", "yes"] and same(ours, other)
    assert not ours.predict_proba(X)[:, 1].any()
    with pytest.raises(BigForestError, match="no row is left"):
        BigForestClassifier(class_weight=dict.fromkeys(np.unique(WORDS), 0.0)).fit(X, WORDS, sample_weight=weights)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_sample_weight__may_be_a_number(kind: type[BaseBigForest]) -> None:
    table, target = (X, Y) if kind is BigForestClassifier else (X_NUMBERS, NUMBERS)
    one: Any = kind(n_estimators=4).fit(table, target, sample_weight=2.5)  # type: ignore[attr-defined, call-arg]
    other: Any = kind(n_estimators=4).fit(table, target, np.full(200, 2.5))  # type: ignore[attr-defined, call-arg]
    assert np.array_equal(one.predict(table), other.predict(table))
    with pytest.raises(BigForestError, match="all weights in sample_weight are zero"):
        kind().fit(table, target, sample_weight=0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("share", [0.003, 0.1])
def test_min_weight_fraction_leaf__is_a_share_of_all_weight(weighted: bool, share: float) -> None:
    weights = np.where(Y == 0, 900.0, 1.0) if weighted else np.ones(200)
    ours = BigForestClassifier(n_estimators=4, bootstrap=False, min_weight_fraction_leaf=share)
    ours.fit(X, Y, sample_weight=weights if weighted else None)
    for leaves in ours.apply(X).T:
        of_leaf = np.bincount(leaves, weights)
        assert of_leaf[of_leaf > 0].min() >= share * weights.sum()
        assert len(np.unique(leaves)) > 1
