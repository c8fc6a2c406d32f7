"""The families as a user has them: options that do not go together, and what each is good for."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.options.train_config import TrainConfig


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"family": "forest"}, "family must be one of axis, tree, "),
        ({"projections": 5}, "projections is an option of the family sparse-oblique, not of axis"),
        ({"family": "sparse-oblique", "mtry": "all"}, "mtry is an option of the family axis or tree or rotation"),
        ({"family": "sparse-oblique", "axes": 2}, "axes is an option of the family rotation"),
        ({"family": "sparse-oblique", "density": 0.5}, "rerf has as many weights as projections"),
        ({"family": "sparse-oblique", "projection_kind": "sporf", "density": 0.0}, "density must be above 0"),
        ({"family": "sparse-oblique", "projections": 0}, "projections must be a whole number from 1 to"),
        ({"family": "sparse-oblique", "projections": "p^9"}, "projections must be a whole number from 1 to"),
        ({"family": "sparse-oblique", "projections": "p^2/0"}, "projections must be a whole number from 1 to"),
        ({"family": "sparse-oblique", "projections": "2p"}, "projections must be a whole number from 1 to"),
        ({"family": "sparse-oblique", "mean_difference": True}, "mean_difference must be one of none"),
        ({"family": "rotation", "rotation": "pca", "axes": 2}, "pca has as many axes as features"),
        ({"family": "rotation", "rotation": "pca-classes", "axes": 2}, "pca-classes has as many axes as features"),
        ({"family": "rotation", "axis_features": 3}, "random axes use all features; choose the rotation pca"),
        ({"family": "rotation", "rotation": "pca", "axis_features": 0}, "axis_features must be a whole number from 1"),
        ({"family": "axis", "axis_features": 3}, "axis_features is an option of the family rotation, not of axis"),
        ({"family": "rotation", "orthogonal": 1.5}, "orthogonal must be True or False"),
        ({"family": "tree", "trees": 2}, "a single tree on all rows"),
        ({"family": "tree", "bootstrap": True}, "a single tree on all rows"),
        ({"feature_fraction": 0.5, "mtry": 3}, "feature_fraction replaces mtry"),
        ({"feature_fraction": 2.0}, "feature_fraction must be above 0 and at most 1"),
        ({"ranks": "yes"}, "ranks must be True or False"),
    ],
)
def test_config__refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TrainConfig.of(**options)


def test_config_of__a_family_has_defaults_of_its_own() -> None:
    tree = TrainConfig.of(family="tree", max_depth=3)
    assert (tree.trees, tree.bootstrap, tree.mtry, tree.max_depth) == (1, False, "all", 3)
    assert TrainConfig.of(family="rotation", trees=7).mtry == "all"
    assert not TrainConfig.of(family="rotation", rotation="pca").bootstrap
    assert not TrainConfig.of(family="rotation", rotation="pca-classes").bootstrap
    assert TrainConfig.of() == TrainConfig()
    assert TrainConfig.from_json(tree.to_json()) == tree


def test_train__more_features_in_a_set_than_there_are() -> None:
    with pytest.raises(ConfigError, match="3 features and a set of them cannot have 4; lower axis_features"):
        bf.train(slanted(50, 0), "y", family="rotation", rotation="pca", axis_features=4)
    bf.train(slanted(50, 0).select("a", "y"), "y", family="rotation", rotation="pca", trees=1)  # 3 at most by default


def slanted(rows: int, seed: int) -> pl.DataFrame:
    """Two classes on the sides of a slanted line through standardised columns, one of which is in other units."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 3))
    return pl.DataFrame({"a": x[:, 0], "b": 1000 * x[:, 1], "c": x[:, 2], "y": (x[:, 0] > x[:, 1]).astype(int)})


@pytest.fixture(scope="module")
def axis_error() -> float:
    """Error on slanted(2000, 1) of 40 trees that split on single columns, trained on slanted(400, 0)."""
    test = slanted(2000, 1)
    forest = bf.train(slanted(400, 0), "y", trees=40)
    return (forest.predict(test)["prediction"] != test["y"]).mean()  # type: ignore[return-value]


@pytest.mark.parametrize(
    "options",
    [
        {"family": "sparse-oblique", "normalize": "zscore"},
        {"family": "sparse-oblique", "normalize": "minmax", "projection_kind": "gaussian"},
        {"family": "sparse-oblique", "mean_difference": "consecutive", "normalize": "zscore", "projections": 3},
        {"family": "sparse-oblique", "ranks": True, "mean_difference": "all", "mean_difference_scope": "node"},
        {"family": "rotation"},
        {"family": "rotation", "rotation": "pca"},
        {"family": "rotation", "rotation": "pca-classes", "bootstrap": True, "axis_features": 2},
    ],
)
def test_train__oblique_families_see_a_slanted_line(options: dict[str, Any], axis_error: float) -> None:
    test = slanted(2000, 1)
    forest = bf.train(slanted(400, 0), "y", trees=40, **options)
    assert "oob" in forest.run["stage"] or not forest.config.bootstrap
    error = (forest.predict(test)["prediction"] != test["y"]).mean()
    assert error < 0.75 * axis_error  # type: ignore[operator]


def test_train__a_tiny_feature_fraction_draws_one_feature() -> None:
    """In a moment: a node that repeated its draws until a feature is drawn would do so for ever."""
    single, tiny = (
        bf.train(slanted(200, 0), "y", trees=3, **own).nodes.collect()
        for own in ({"mtry": 1}, {"feature_fraction": 1e-300})
    )
    assert tiny.equals(single)


@pytest.mark.parametrize("options", [{"family": "sparse-oblique", "projections": 9}, {"family": "rotation"}])
def test_train__oblique_families_see_a_slanted_slope(options: dict[str, Any]) -> None:
    def numbers(rows: int, seed: int) -> pl.DataFrame:
        noise = np.random.default_rng(seed + 9).normal(0.0, 0.1, rows)
        frame = slanted(rows, seed).with_columns(pl.col("b") / 1000)
        return frame.with_columns(y=5.0 * pl.col("y") + pl.Series(noise))

    training, test = numbers(400, 0), numbers(1000, 1)
    oblique, axis = (bf.train(training, "y", trees=40, keep_targets=True, **own) for own in (options, {}))
    errors = [(forest.predict(test)["prediction"] - test["y"]).pow(2).mean() for forest in (oblique, axis)]
    assert errors[0] < 0.95 * errors[1]  # type: ignore[operator]
    assert oblique.oob.metrics["mse"].item() == pytest.approx(errors[0], rel=0.3)
    for interval in ({"coverage": 0.9}, {"coverage": 0.9, "jackknife": True}):
        found = oblique.predict(test, **interval)
        inside = (found["low"] <= test["y"]) & (test["y"] <= found["high"])
        assert 0.85 < inside.mean() < 0.97  # type: ignore[operator]
    low, high = (oblique.predict(test, quantiles=[0.05, 0.95])[name] for name in ("q0.05", "q0.95"))
    assert (low <= high).all()
    assert ((low <= test["y"]) & (test["y"] <= high)).mean() > 0.8  # type: ignore[operator]


def test_train__a_column_of_extremes_is_no_hindrance() -> None:
    frame = slanted(200, 0).with_columns(
        d=pl.Series([np.inf, -np.inf, 1e308, -1e308] * 50), e=pl.lit(5.0), f=pl.Series([5e-324, 0.0] * 100)
    )
    for options in (
        {"family": "sparse-oblique", "mean_difference": "all", "normalize": "zscore"},
        {"family": "sparse-oblique", "projection_kind": "gaussian", "mean_difference": "all"},
        {"family": "rotation"},
        {"family": "rotation", "rotation": "pca"},
        {"family": "sparse-oblique", "normalize": "zscore", "task": "regression"},
        {"family": "rotation", "task": "regression"},
    ):
        forest = bf.train(frame, "y", trees=10, shrink="off", **options)
        forest.check()
        assert ((forest.predict(frame)["prediction"] > 0.5) == (frame["y"] > 0.5)).mean() > 0.9


def test_train__a_single_tree_knows_its_rows() -> None:
    frame = slanted(300, 2)
    forest = bf.train(frame, "y", family="tree")
    assert forest.trees == 1
    assert not forest.has_oob
    assert forest.predict(frame)["prediction"].equals(frame["y"].alias("prediction"))
