"""Targets with several columns: a forest for each, beside the estimator fitted to each column alone."""

from __future__ import annotations

import pickle
import warnings
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.inspection import permutation_importance
from sklearn.metrics import accuracy_score, f1_score, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor

from bigforest.errors import BigForestError
from bigforest.sklearn import BigForestClassifier, BigForestRegressor

X, LABELS = make_multilabel_classification(150, 6, n_classes=3, random_state=0)
X = X + np.random.default_rng(0).random(X.shape)  # no ties
NUMBERS = np.column_stack([2.0 * X[:, 0] + X[:, 1], X[:, 2] - X[:, 3]])
WORDS = np.column_stack([np.array(["no", "yes"])[LABELS[:, 0]], np.array(["low", "mean", "high"])[LABELS.sum(1) % 3]])
KINDS: Any = [(BigForestClassifier, LABELS), (BigForestRegressor, NUMBERS)]
WEIGHTS = np.arange(150) % 3 + 1.0


def alone(estimator: Any, targets: Any, **fit: Any) -> list[Any]:
    """The estimator fitted to each column of the target."""
    return [clone(estimator).fit(X, column, **fit) for column in targets.T]


@cache
def classifiers(name: str) -> list[Any]:
    """Six trees fitted to each column of LABELS or WORDS."""
    return alone(BigForestClassifier(n_estimators=6), {"labels": LABELS, "words": WORDS}[name])


@pytest.mark.parametrize(
    ("kind", "targets", "fit"),
    [
        (BigForestClassifier, LABELS, {"sample_weight": WEIGHTS, "groups": np.arange(150) // 2}),
        (BigForestRegressor, NUMBERS, {}),
    ],
    ids=["classes, weights, groups", "numbers"],
)
def test_outputs__have_the_numbers_of_fits_alone(kind: Any, targets: Any, fit: dict[str, Any]) -> None:
    ours = kind(n_estimators=12, oob_score=True, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some rows are in all bags
        own = alone(ours, targets, **fit)
        ours.fit(X, targets, **fit)
    outputs = targets.shape[1]
    assert ours.n_outputs_ == len(ours.forests_) == outputs and len(ours) == len(ours.estimators_) == 12
    assert np.array_equal(ours.predict(X), np.column_stack([one.predict(X) for one in own]))
    leaves = np.stack([one.apply(X) for one in own], axis=2)
    assert np.array_equal(ours.apply(X), leaves) and leaves.shape == (150, 12, outputs)
    np.testing.assert_allclose(ours.feature_importances_, np.mean([one.feature_importances_ for one in own], axis=0))
    for number in (0, 7):
        bag = ours.estimators_samples_[number]
        assert all(np.array_equal(bag, one.estimators_samples_[number]) for one in own)
        tree, alone_ = ours[number], [one[number] for one in own]
        assert np.array_equal(tree.predict(X), np.column_stack([one.predict(X) for one in alone_]))
        assert np.array_equal(tree.apply(X), leaves[:, number])
        for arrays, one in zip(tree.tree_, alone_, strict=True):
            assert np.array_equal(arrays.threshold, one.tree_.threshold)
            assert np.array_equal(arrays.value, one.tree_.value)
        assert tree.get_depth() == max(one.get_depth() for one in alone_)
        assert tree.get_n_leaves() == sum(one.get_n_leaves() for one in alone_)
        shares = np.mean([one.feature_importances_ for one in alone_], axis=0)
        np.testing.assert_allclose(tree.feature_importances_, shares)
    unseen = "oob_decision_function_" if kind is BigForestClassifier else "oob_prediction_"
    np.testing.assert_array_equal(getattr(ours, unseen), np.stack([getattr(one, unseen) for one in own], axis=-1))
    voted = np.isfinite(getattr(own[0], unseen).reshape(150, -1)[:, 0])
    if kind is BigForestClassifier:
        answers = np.column_stack([getattr(one, unseen).argmax(axis=1) for one in own])
        assert ours.oob_score_ == accuracy_score(targets[voted], answers[voted])
    else:
        answers = np.column_stack([getattr(one, unseen) for one in own])
        assert ours.oob_score_ == pytest.approx(r2_score(targets[voted], answers[voted]))
    assert ours.score(X, targets) > 0.6


@pytest.mark.parametrize("table", [X, sparse.csr_matrix(X)], ids=type)
def test_classes__come_as_lists_and_words_in_full(table: Any) -> None:
    ours = BigForestClassifier(n_estimators=6).fit(table, WORDS)
    own = classifiers("words")
    assert ours.n_classes_ == [2, 3] and [list(one) for one in ours.classes_] == [
        ["no", "yes"],
        ["high", "low", "mean"],
    ]
    assert np.array_equal(ours.predict(table), np.column_stack([one.predict(X) for one in own]))
    for name in ("predict_proba", "predict_log_proba"):
        found = getattr(ours, name)(table)
        assert isinstance(found, list) and len(found) == 2
        for shares, one in zip(found, own, strict=True):
            assert np.array_equal(shares, getattr(one, name)(X))
    for shares, one in zip(ours[2].predict_proba(table), own, strict=True):
        assert np.array_equal(shares, one[2].predict_proba(X))


@pytest.mark.parametrize("form", [pd.DataFrame, pl.DataFrame, lambda columns: pl.DataFrame(columns).to_arrow()])
def test_columns_of_a_frame__keep_their_types(form: Any) -> None:
    target = form({"digit": LABELS[:, 0], "word": WORDS[:, 1].astype(object)})
    ours = BigForestClassifier(n_estimators=6).fit(X, target)
    assert [found.dtype.kind in "iu" for found in ours.classes_] == [True, False]
    predicted = ours.predict(X)
    assert np.array_equal(predicted[:, 0].astype(int), classifiers("labels")[0].predict(X))
    assert np.array_equal(predicted[:, 1], classifiers("words")[1].predict(X))


def test_decision_path__takes_the_trees_of_the_outputs_in_turns() -> None:
    ours = BigForestRegressor(n_estimators=3).fit(X, NUMBERS)
    own = alone(BigForestRegressor(n_estimators=3), NUMBERS)
    path, first = ours.decision_path(X)
    assert first.shape == (7,) and path.shape == (150, first[-1])
    for output, one in enumerate(own):
        own_path, own_first = one.decision_path(X)
        for tree in range(3):
            place = tree * 2 + output
            found = path[:, first[place] : first[place + 1]]
            assert np.array_equal(found.toarray(), own_path[:, own_first[tree] : own_first[tree + 1]].toarray())


def test_quantiles__of_every_output() -> None:
    ours = BigForestRegressor(n_estimators=6, keep_targets=True).fit(X, NUMBERS)
    own = alone(ours, NUMBERS)
    found = ours.predict(X, quantiles=[0.1, 0.5, 0.9])
    assert np.array_equal(found, np.stack([one.predict(X, quantiles=[0.1, 0.5, 0.9]) for one in own], axis=1))


def test_score__needs_as_many_outputs_as_in_fit() -> None:
    mixed = pl.DataFrame({"word": WORDS[:, 0], "number": np.arange(len(X)) % 3})
    ours = BigForestClassifier(n_estimators=2).fit(X, mixed)
    for truth, given in ((WORDS[:, 0], "1 output"), (mixed.with_columns(third="word"), "3 outputs")):
        for fitted in (ours, ours.estimators_[0]):
            with pytest.raises(BigForestError, match=f"y has {given}, and had 2 in fit; give as many"):
                fitted.score(X, truth)


def test_score__of_outputs_that_scikit_learn_cannot_score() -> None:
    mixed = pd.DataFrame({"word": WORDS[:, 1], "number": LABELS[:, 0]})
    three = np.column_stack([LABELS[:, 0], LABELS.sum(1) % 3])
    for targets in (mixed, three, WORDS):
        ours = BigForestClassifier(n_estimators=3).fit(X, targets)
        with pytest.raises(BigForestError, match="multiclass-multioutput is not supported: several outputs must be"):
            ours.score(X, targets)
        with pytest.raises(BigForestError, match="it is multiclass-multioutput, and several outputs must be"):
            BigForestClassifier(n_estimators=3, oob_score=True).fit(X, targets)


def test_class_weight__is_of_each_output() -> None:
    given = [{0: 1.0, 1: 5.0}, "balanced", None]
    ours = BigForestClassifier(n_estimators=6, class_weight=given).fit(X, LABELS)
    heavy, balanced = (
        BigForestClassifier(n_estimators=6, class_weight=given[number]).fit(X, LABELS[:, number]) for number in (0, 1)
    )
    for found, own in zip(ours.predict_proba(X), (heavy, balanced, classifiers("labels")[2]), strict=True):
        assert np.array_equal(found, own.predict_proba(X))
    both = BigForestClassifier(n_estimators=6, class_weight="balanced").fit(X, LABELS[:, :2])
    assert np.array_equal(both.predict_proba(X)[1], balanced.predict_proba(X))
    one = BigForestClassifier(n_estimators=6, class_weight=[{0: 1.0, 1: 5.0}]).fit(X, LABELS[:, 0])
    assert np.array_equal(one.predict_proba(X), ours.predict_proba(X)[0])


@pytest.mark.parametrize(
    "parameters", [{"sampling": "balanced"}, {"class_weight": ["balanced_subsample", None, None]}], ids=str
)
@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
def test_bags_by_class__are_of_each_output(parameters: Any) -> None:
    ours = BigForestClassifier(n_estimators=5, oob_score=True, **parameters).fit(X, LABELS)
    for number, column in enumerate(LABELS.T):
        own = BigForestClassifier(n_estimators=5, oob_score=True, **parameters)
        if "class_weight" in parameters:
            own.set_params(class_weight=parameters["class_weight"][number])
        own.fit(X, column)
        np.testing.assert_array_equal(own.oob_decision_function_, ours.oob_decision_function_[:, :, number])
    votes = ours.oob_decision_function_
    voted = ~np.isnan(votes).any(axis=(1, 2))
    assert 0.0 < voted.mean() < 1.0  # some rows are in all bags of some output
    assert ours.oob_score_ == accuracy_score(LABELS[voted], votes[voted].argmax(axis=1))
    with pytest.raises(AttributeError, match="each output has bags of its own"):
        ours.estimators_samples_  # noqa: B018


def test_class_weight__of_zero_leaves_rows_out_of_all_outputs() -> None:
    ours = BigForestClassifier(n_estimators=6, class_weight=[{0: 0.0}, None, None]).fit(X, LABELS)
    own = alone(BigForestClassifier(n_estimators=6), LABELS, sample_weight=LABELS[:, 0])
    for found, one in zip(ours.predict_proba(X), own, strict=True):
        assert np.array_equal(found, one.predict_proba(X))
    assert ours.n_classes_ == [2, 2, 2] and ours.predict_proba(X)[0][:, 0].max() == 0.0


@pytest.mark.parametrize(("kind", "targets"), KINDS)
def test_warm_start__adds_trees_to_every_output(kind: Any, targets: Any) -> None:
    ours = kind(n_estimators=3, warm_start=True).fit(X, targets)
    ours.set_params(n_estimators=5).fit(X, targets)
    whole = kind(n_estimators=5).fit(X, targets)
    assert len(ours) == 5 and np.array_equal(ours.apply(X), whole.apply(X))
    with pytest.raises(BigForestError, match=f"forests of {targets.shape[1]} outputs, and y has 1"):
        ours.set_params(n_estimators=6).fit(X, targets[:, 0])
    with pytest.warns(UserWarning, match="without increasing n_estimators"):
        ours.set_params(n_estimators=5).fit(X, targets[:, 0])
    assert ours.n_outputs_ == targets.shape[1] and np.array_equal(ours.predict(X), whole.predict(X))


@pytest.mark.parametrize(("kind", "targets"), KINDS)
def test_pickle__carries_all_forests(kind: Any, targets: Any) -> None:
    ours = kind(n_estimators=3).fit(X, targets)
    assert np.array_equal(pickle.loads(pickle.dumps(ours)).predict(X), ours.predict(X))


def test_one_column__is_one_output() -> None:
    with pytest.warns(UserWarning, match="column-vector"):
        ours = BigForestRegressor(n_estimators=3).fit(X, NUMBERS[:, :1])
    assert ours.n_outputs_ == 1 and ours.predict(X).shape == (150,) and ours.forest_ is ours.forests_[0]


def test_output_of_one_class__has_it_everywhere() -> None:
    constant = LABELS * [1, 0, 1]
    ours = BigForestClassifier(n_estimators=20, oob_score=partial(f1_score, average="micro")).fit(X, constant)
    assert ours.n_classes_ == [2, 1, 2] and not ours.predict(X)[:, 1].any()
    assert [found.shape for found in ours.oob_decision_function_] == [(150, 2), (150, 1), (150, 2)]
    answers = np.column_stack([found.argmax(axis=1) for found in ours.oob_decision_function_])
    assert ours.oob_score_ == f1_score(constant, answers, average="micro")
    two = BigForestClassifier(n_estimators=20).fit(X, LABELS[:, [0, 2]])
    np.testing.assert_allclose(ours.feature_importances_, two.feature_importances_)


@pytest.mark.parametrize(
    ("parameters", "targets", "message"),
    [
        ({"stop_oob": 0.01}, LABELS, "stop_oob stops at another number of trees for each of the 3 outputs"),
        ({"sampling": "arc-x4"}, LABELS, "sampling='arc-x4' follows the errors of one output, and y has 3"),
        ({"class_weight": {0: 1.0, 1: 2.0}}, LABELS, "class_weight is one dict, and y has 3 outputs"),
        ({"class_weight": [None]}, LABELS, "class_weight is a list of 1, and y has 3 outputs"),
        ({"class_weight": [None, None]}, LABELS[:, 0], "class_weight is a list of 2, and y has 1 output; "),
        ({"oob_score": True}, WORDS, "cannot be used to compute OOB estimates"),
    ],
    ids=str,
)
def test_what_does_not_go_with_several_outputs__is_refused(parameters: Any, targets: Any, message: str) -> None:
    with pytest.raises(BigForestError, match=message):
        BigForestClassifier(n_estimators=3, **parameters).fit(X, targets)


def test_errors__say_which_output() -> None:
    with pytest.raises(BigForestError, match=r"^y\[:, 1\] has values up to"):
        BigForestRegressor(n_estimators=3).fit(X, NUMBERS * [1.0, 1e300])


def test_forest__of_several_outputs_is_one_of_each() -> None:
    ours = BigForestClassifier(n_estimators=3).fit(X, LABELS)
    with pytest.raises(AttributeError, match=r"3 forests, one for each output of y: forests_\[0\] to forests_\[2\]"):
        ours.forest_  # noqa: B018
    assert not hasattr(ours, "forest_") and not hasattr(BigForestClassifier(), "forest_")


def test_tools__of_scikit_learn_take_several_outputs() -> None:
    few, labels, numbers = X[:60], LABELS[:60], NUMBERS[:60]
    ours = BigForestClassifier(n_estimators=3)
    search = GridSearchCV(ours, {"max_depth": [1, 5]}, cv=2).fit(few, labels)
    assert search.best_params_ == {"max_depth": 5} and search.predict(few).shape == labels.shape
    assert np.array_equal(MultiOutputClassifier(ours).fit(few, labels).predict(few), ours.fit(few, labels).predict(few))
    assert ClassifierChain(ours).fit(few, labels).predict(few).shape == labels.shape
    forest = BigForestRegressor(n_estimators=3).fit(few, numbers)
    assert np.array_equal(MultiOutputRegressor(clone(forest)).fit(few, numbers).predict(few), forest.predict(few))
    drops = permutation_importance(forest, few, numbers, n_repeats=1, random_state=0).importances_mean
    assert drops.argmax() == forest.feature_importances_.argmax()
