"""The trees of a fitted estimator, which are estimators themselves."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.model_selection import cross_val_score
from sklearn.tree import export_graphviz
from sklearn.utils.estimator_checks import check_estimator

from bigforest.sklearn import BigForestClassifier, BigForestRegressor
from bigforest.sklearn.base import BaseBigForest
from bigforest.sklearn.tree import ForestTree
from tests.sklearn.test_sklearn_estimators import ESTIMATORS, NUMBERS, X_NUMBERS, Shallow, X, Y, fitted, shared
from tests.sklearn.test_sklearn_tools import EXPECTED


def test_trees__have_the_parameters_of_their_forest() -> None:
    tree = fitted(min_impurity_decrease=0.01, random_state=3)[0]
    assert (tree.min_impurity_decrease, tree.random_state, tree.n_features_in_, tree.n_outputs_) == (0.01, 3, 6, 1)
    assert tree.classes_.tolist() == [0, 1, 2] and not hasattr(tree, "nothing") and not hasattr(tree, "oob_score_")


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_trees__answer_as_estimators_do(kind: type[BaseBigForest]) -> None:
    table, target = (X, Y) if kind is BigForestClassifier else (X_NUMBERS, NUMBERS)
    forest = shared(kind)
    tree = pickle.loads(pickle.dumps(forest.estimators_[2]))
    assert is_classifier(tree) == hasattr(tree, "predict_proba") == (kind is BigForestClassifier)
    assert 0.5 < tree.score(table, target) < 1.0
    paths, first = forest.decision_path(table)
    assert (tree.decision_path(table) != paths[:, first[2] : first[3]]).nnz == 0
    drops = permutation_importance(tree, table, target, n_repeats=2, random_state=0).importances_mean
    assert drops[tree.feature_importances_.argmax()] > 0.1
    drawing = export_graphviz(tree, filled=True)
    assert drawing.count("[label=") == tree.tree_.node_count and f"samples = {len(table)}" in drawing
    if kind is BigForestClassifier:
        np.testing.assert_allclose(np.exp(tree.predict_log_proba(table)), tree.predict_proba(table))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_clone_of_a_tree__grows_it_again_on_its_bag(kind: type[BaseBigForest]) -> None:
    table, target = (X, Y) if kind is BigForestClassifier else (X_NUMBERS, NUMBERS)
    forest = fitted(kind, max_samples=0.5, max_features=2, min_samples_leaf=2, shrink="off", random_state=None)
    again = clone(forest[0])
    for use in (lambda: again.predict(table), again.get_depth, lambda: again.decision_path(table)):
        with pytest.raises(NotFittedError):
            use()
    assert not hasattr(again, "tree_") and repr(again).startswith("ForestTree(estimator=BigForest")
    rows = forest.estimators_samples_[0]
    again.fit(table[rows], target[rows])
    for name in ("feature", "threshold", "n_node_samples"):
        assert np.array_equal(getattr(again.tree_, name), getattr(forest[0].tree_, name)), name
    np.testing.assert_allclose(again.tree_.value, forest[0].tree_.value)
    shallow = again.set_params(estimator__max_depth=1).fit(table, target)
    assert shallow.get_depth() == shallow.tree_.max_depth == 1


def test_clone_of_a_tree__of_any_forest() -> None:
    options: list[dict[str, Any]] = [
        {"stop_oob": 0.5},
        {"sampling": "adaboost"},
        {"replace": False},
        {"calibration": 0.2},
    ]
    for forest in [Shallow().fit(X, Y), *(fitted(**given) for given in options)]:
        assert cross_val_score(forest[1], X, Y, cv=2, error_score="raise").mean() > 0.5
        assert hasattr(forest, "estimators_samples_") == (forest.get_params().get("sampling") != "adaboost")
    outputs = BigForestClassifier(3).fit(X, np.column_stack([Y, Y > 1]))
    assert clone(outputs[0]).fit(X, np.column_stack([Y, Y > 1])).predict(X).shape == (200, 2)
    assert [one.shape for one in outputs[1].decision_path(X)] == [(200, one.node_count) for one in outputs[1].tree_]


@pytest.mark.slow
@pytest.mark.parametrize("forest", [BigForestClassifier(n_estimators=5), BigForestRegressor(n_estimators=5)], ids=str)
def test_check_estimator__of_a_tree(forest: Any) -> None:
    results = check_estimator(ForestTree(forest), expected_failed_checks=EXPECTED, on_fail=None, on_skip=None)
    assert not [result["check_name"] for result in results if result["status"] == "failed"]
    assert len(results) > 50
