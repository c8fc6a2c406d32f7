"""Forests by the Poisson deviance, from the table on: scikit-learn's trees, and targets that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import mean_poisson_deviance
from sklearn.tree import DecisionTreeRegressor

import bigforest as bf
from bigforest.plot.accuracy import error_table
from bigforest.training.growers import converged_at

# More leaves would be of so few rows that splits on several features are equal.
LEAVES = 7
TREE: dict[str, Any] = {"family": "tree", "task": "regression", "impurity": "poisson", "shrink": "off"}


def table(rows: int, targets: str) -> pl.DataFrame:
    """Features of which no two splits are alike, targets whose mean is between 0 and 30, and weights."""
    draw = np.random.default_rng(rows)
    x = draw.normal(size=(rows, 3)).astype(np.float32).astype(np.float64)
    mean = np.exp(x[:, 0] + 0.5 * np.sin(3.0 * x[:, 1]))
    y = draw.poisson(mean) if targets == "counts" else np.where(draw.random(rows) < 0.3, 0.0, draw.gamma(2.0, mean))
    columns = {f"x{place}": column for place, column in enumerate(x.T)}
    return pl.DataFrame({**columns, "w": draw.lognormal(size=rows), "y": y.astype(np.float64)})


@pytest.mark.parametrize("targets", ["counts", "amounts"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_tree__is_that_of_scikit_learn(targets: str, weight: str | None) -> None:
    frame = table(600, targets)
    features, y = frame.select("x0", "x1", "x2"), frame["y"].to_numpy()
    weights = None if weight is None else frame["w"].to_numpy()
    theirs = DecisionTreeRegressor(criterion="poisson", max_leaf_nodes=LEAVES, min_samples_leaf=1)
    theirs.fit(features.to_numpy(), y, sample_weight=weights)
    expected = theirs.predict(features.to_numpy())
    kept = frame if weight else frame.drop("w")
    ours = bf.train(kept, "y", weight=weight, max_leaf_nodes=LEAVES, min_leaf=1, **TREE)
    assert ours.predict(features)["prediction"].to_numpy() == pytest.approx(expected, rel=1e-6)
    assert np.array(ours.feature_importances) == pytest.approx(theirs.feature_importances_, rel=1e-5)
    nodes = ours.nodes.filter(pl.col("gain").is_not_null()).collect()
    impurity, heavy = theirs.tree_.impurity, theirs.tree_.weighted_n_node_samples
    one, two = theirs.tree_.children_left, theirs.tree_.children_right
    inner = np.flatnonzero(one >= 0)
    below = (heavy[one] * impurity[one] + heavy[two] * impurity[two])[inner] / heavy[inner]
    assert sorted(nodes["gain"].to_list()) == pytest.approx(sorted(impurity[inner] - below), rel=1e-5)


def test_forest__has_the_mean_of_the_targets() -> None:
    frame = table(300, "counts").drop("w")
    forest = bf.train(frame, "y", task="regression", impurity="poisson", trees=5, bootstrap=False, shrink="off")
    found = forest.predict(frame)["prediction"].to_numpy()
    assert found.mean() == pytest.approx(frame["y"].to_numpy().mean())
    assert found.min() > 0.0


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([0.0, 1.0, -0.5, 2.5], r"'y' has the value -0\.5, and the Poisson deviance needs numbers of at least 0"),
        ([0.0, 0.0, 0.0, 0.0], "'y' is 0 in all rows, and the Poisson deviance"),
    ],
)
def test_train__refuses_targets_without_a_deviance(targets: list[float], message: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": targets})
    with pytest.raises(bf.DataError, match=message):
        bf.train(frame, "y", **TREE)
    with pytest.raises(bf.DataError, match=message):
        bf.train(bf.encode_store(frame, tmp_path / "s", target="y", task="regression"), **{**TREE, "task": None})


@pytest.mark.parametrize("weight", [None, "w"])
def test_report_and_scores__have_the_mean_deviance(weight: str | None, tmp_path: Path) -> None:
    frame = table(300, "counts") if weight else table(300, "counts").drop("w")
    forest = bf.train(frame, "y", task="regression", impurity="poisson", trees=9, weight=weight, out=tmp_path / "f")
    rows = forest.oob.rows.collect().with_columns(weight=frame["w"] if weight else pl.lit(1.0))
    voted = rows.filter(pl.col("trees") > 0)
    found = forest.oob.metrics.row(0, named=True)
    expected = mean_poisson_deviance(voted["truth"], voted["prediction"], sample_weight=voted["weight"])
    assert found["poisson_deviance"] == pytest.approx(expected, rel=1e-3 if weight else 1e-12)  # weights are in steps
    scores = bf.predict_file(forest, frame, tmp_path / "p.parquet")
    weights = frame["w"] if weight else None
    expected = mean_poisson_deviance(frame["y"], forest.predict(frame)["prediction"], sample_weight=weights)
    assert scores.poisson_deviance == pytest.approx(expected, rel=1e-3 if weight else 1e-12)
    plain = bf.train(frame, "y", task="regression", trees=2, weight=weight)
    assert "poisson_deviance" not in plain.oob.metrics.columns
    assert bf.predict_file(plain, frame, tmp_path / "q.parquet").poisson_deviance is None


@pytest.mark.parametrize("weight", [None, "w"])
def test_curve__has_the_deviance_by_each_number_of_trees(weight: str | None) -> None:
    frame = table(300, "amounts") if weight else table(300, "amounts").drop("w")
    given: dict[str, Any] = {"task": "regression", "impurity": "poisson", "weight": weight, "mtry": 2, "min_leaf": 3}
    whole = bf.train(frame, "y", trees=9, shrink="auto", **given)
    for trees in (1, 4, 9):
        forest = bf.train(frame, "y", trees=trees, shrink=whole.shrinkage.amount, **given)
        found = forest.oob.metrics["poisson_deviance"][0]
        assert forest.oob.error == pytest.approx(found, rel=1e-12) and "mean Poisson deviance" in repr(forest.oob)
        assert whole.oob.curve["poisson_deviance"][trees - 1] == forest.oob.error
    assert whole.oob.curve.columns == ["trees", "poisson_deviance", "rows"]
    if weight is None:
        rows = whole.oob.rows.collect().filter(pl.col("trees") > 0)
        losses = [mean_poisson_deviance([truth], [guess]) for truth, guess in rows.select("truth", "prediction").rows()]
        assert error_table(whole)["standard_error"][-1] == pytest.approx(np.std(losses, ddof=1) / len(losses) ** 0.5)
    for amount, loss in [*zip(whole.shrinkage.tried, whole.shrinkage.losses, strict=True)][::5]:
        shrunk = bf.train(frame, "y", trees=9, shrink=amount, **given)
        assert loss == pytest.approx(shrunk.oob.error, rel=1e-12)


def test_stop_oob__goes_by_the_deviance() -> None:
    frame = table(300, "counts").drop("w")
    given: dict[str, Any] = {"task": "regression", "mtry": 1, "min_leaf": 5, "shrink": "off", "trees": 100}
    whole = bf.train(frame, "y", impurity="poisson", **given)
    voted = whole.oob.curve["poisson_deviance"].to_numpy()
    stopped = bf.train(frame, "y", impurity="poisson", stop_oob=0.002, **given)
    assert stopped.trees == converged_at(voted, 0.002) < 100
    assert stopped.oob.curve["poisson_deviance"].to_list() == voted[: stopped.trees].tolist()


def test_report__has_no_deviance_where_0_is_predicted() -> None:
    """Some bag has no row but those of 0."""
    frame = pl.DataFrame({"x": np.arange(6.0), "y": [0.0, 0.0, 0.0, 0.0, 0.0, 3.0]})
    forest = bf.train(frame, "y", task="regression", impurity="poisson", trees=1, shrink="off", seed=1)
    assert forest.oob.rows.collect()["prediction"].min() == 0.0
    assert forest.oob.metrics["poisson_deviance"].to_list() == [None] and forest.oob.metrics["mse"][0] is not None
    least = 3.0 * 2.0**-52
    assert forest.oob.error == pytest.approx(2.0 * (3.0 * np.log(3.0 / least) - 3.0) / 2.0)


def test_train__takes_targets_far_from_zero() -> None:
    """Sums from zero would not fit 64 bits; of small differences the deviance is the variance over twice the mean."""
    x = np.random.default_rng(3).normal(size=500)
    frame = pl.DataFrame({"x": x, "y": 1e4 + np.array([0.0, 1.0, 3.0, 4.5])[np.digitize(x, [-0.6, 0.0, 1.0])]})
    trees = [bf.train(frame, "y", **{**TREE, "impurity": name}).nodes.collect() for name in ("variance", "poisson")]
    thresholds = [nodes["threshold"].to_list() for nodes in trees]
    assert thresholds[0] == thresholds[1]
    gains = [nodes["gain"].drop_nulls().to_numpy() for nodes in trees]
    assert gains[0].size == 3
    assert gains[1] * 2e4 == pytest.approx(gains[0], rel=1e-3)


def test_train__takes_targets_that_the_features_tell() -> None:
    """Deviances of right predictions were rounded below 0, and the forest called damaged."""
    draw = np.random.default_rng(0)
    x = draw.integers(0, 3, 300)
    frame = pl.DataFrame({"x": x, "z": draw.normal(size=300), "y": np.array([0.1, 0.7, 0.3])[x]})
    forest = bf.train(frame, "y", impurity="poisson", mtry="all", min_leaf=1, trees=60, seed=1, refine="off")
    assert 0.0 <= forest.oob.metrics["poisson_deviance"][0] < 1e-15
    assert all(0.0 <= loss < 1e-2 for loss in forest.shrinkage.losses)
