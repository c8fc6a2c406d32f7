"""The quantities that scikit-learn and shap have too, on the same trees: equal but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf

ROWS, FEATURES = 200, 4


def drawn(task: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows of few values, so that there are ties, and numbers or three classes."""
    random = np.random.default_rng(4)
    matrix = random.normal(size=(ROWS, FEATURES)).round(1).astype(np.float32)
    target = matrix[:, 0] * matrix[:, 1] + np.abs(matrix[:, 2]) + random.normal(size=ROWS) * 0.2
    return matrix, target if task == "regression" else np.digitize(target, [0.3, 1.0])


@pytest.fixture(scope="module", params=["classification", "regression"])
def grown(request: Any) -> tuple[bf.Forest, np.ndarray[Any, Any], Any]:
    matrix, target = drawn(request.param)
    forest = bf.train((matrix, target), task=request.param, trees=6, max_depth=5, threads=1, refine="off")
    return forest, matrix, forest.to_sklearn()


def by_class(forest: bf.Forest, found: pl.DataFrame, columns: list[str]) -> np.ndarray[Any, Any]:
    """Some columns as [rows, classes, columns]; of numbers there is one class."""
    width = max(1, len(forest.classes))
    return found.select(columns).to_numpy().reshape(-1, width, len(columns))


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_importance__of_a_forest_is_that_of_scikit_learn(task: str) -> None:
    """The mean over the trees that scikit-learn grows on the same bags."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    matrix, target = drawn(task)
    matrix = matrix + np.random.default_rng(5).random(matrix.shape).astype(np.float32) / 100  # no ties: equal trees
    forest = bf.train(
        (matrix, target), task=task, trees=4, max_depth=3, min_leaf=20, mtry="all", threads=1, refine="off"
    )
    grow = DecisionTreeClassifier if task == "classification" else DecisionTreeRegressor
    bags = [bag.to_numpy() for bag in forest.inbag().drop("row")]
    peers = [
        grow(max_depth=3, min_weight_fraction_leaf=0.1, random_state=0).fit(matrix, target, sample_weight=bag)
        for bag in bags
    ]
    found = forest.explain(parts="importance")["importance"]["importance"].to_numpy()
    np.testing.assert_allclose(found, np.mean([peer.feature_importances_ for peer in peers], axis=0), rtol=1e-9)


def test_shap__is_that_of_shap(grown: Any) -> None:
    shap = pytest.importorskip("shap")
    forest, matrix, peer = grown
    expected = shap.TreeExplainer(peer, feature_perturbation="tree_path_dependent").shap_values(matrix[:20])
    expected = expected[:, :, None] if forest.is_regression else expected
    classes = forest.classes or None
    found = forest.explain(matrix[:20], parts="shap", classes=classes, threads=1)["shap"]
    names = [name for name in found.columns if name.startswith("c_")]
    got = by_class(forest, found.sort("row", maintain_order=True), names)
    np.testing.assert_allclose(got.transpose(0, 2, 1), expected, atol=1e-12)


def test_dependence__of_one_feature_and_two_is_that_of_scikit_learn(grown: Any) -> None:
    from sklearn.inspection import partial_dependence

    forest, matrix, peer = grown
    names = forest.spec.feature_names
    chosen = [(names[0],), (names[2], names[1])]
    features = [own[0] if len(own) == 1 else own for own in chosen]
    tables = forest.explain(
        matrix, parts="dependence", features=features, grid=6, classes=forest.classes or None, threads=1
    )
    for own, table, ends in zip(chosen, ("dependence", "dependence-pairs"), ([""], ["_a", "_b"]), strict=True):
        found = tables[table]
        places = [names.index(name) for name in own]
        grids = {
            place: found[f"value{end}"].unique().sort().to_numpy() for place, end in zip(places, ends, strict=True)
        }
        peers = partial_dependence(
            peer, matrix, places, custom_values=grids, kind="average", method="brute", response_method="auto"
        )["average"]
        answers = found["prediction"].to_numpy().reshape(peers.shape)
        np.testing.assert_allclose(answers, peers, rtol=1e-9, atol=1e-12)
