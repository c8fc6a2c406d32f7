"""Axes from some features: named, or chosen out of bag; what their splits gain, against the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.events import Notice, StageFinished
from bigforest.options.train_config import TrainConfig
from bigforest.training.choose import gains_of
from tests.naive.trial_trees import gains_by_feature
from tests.thorough import cases

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")

NAMES = ["a", "b", *[f"junk{k}" for k in range(6)]]


def slanted(rows: int, *, numbers: bool = False) -> pl.DataFrame:
    """Two classes on the sides of a slanted line, or the distance from it, and columns that mean nothing."""
    draw = np.random.default_rng(5)
    x = draw.normal(size=(rows, len(NAMES)))
    side = x[:, 0] - x[:, 1]
    return pl.DataFrame(dict(zip(NAMES, x.T, strict=True))).with_columns(y=pl.Series(side if numbers else side > 0))


def rotated(**options: Any) -> dict[str, Any]:
    return {"family": "rotation", "trees": 5, "axes_from": "auto", **options}


@compiled
@pytest.mark.parametrize("numbers", [False, True])
def test_gains_of__are_what_the_naive_one_finds(numbers: bool, tmp_path: Path) -> None:
    frame = slanted(300, numbers=numbers).with_columns(b=pl.when(pl.col("a") < 1).then("b"))
    store = bf.encode_store(frame, tmp_path / "store", target="y")
    config = TrainConfig.of(trees=3, max_depth=6).for_task(store.spec.target.task).with_defaults()
    found = gains_of(store, config, range(3))

    forest = bf.train(
        store, trees=3, max_depth=6, mtry=config.mtry, min_leaf=config.min_leaf, shrink="off", keep_votes=True
    )
    nodes = {(row["tree"], row["node"]): row for row in forest.nodes.collect().iter_rows(named=True)}
    parents = {
        (tree, node[side]): number
        for (tree, number), node in nodes.items()
        if node["kind"] != "leaf"
        for side in ("left", "right")
    }

    def answer(node: dict[str, Any]) -> list[float]:
        if numbers:
            return [node["value"]]
        return [count / sum(node["counts"]) for count in node["counts"]]

    wanted = np.zeros(len(NAMES))
    truth = frame["y"].to_list()
    for tree in range(3):
        paths, rows = [], []
        for row, leaf in forest.oob_votes.collect().filter(tree=tree).select("row", "leaf").rows():
            path = [leaf]
            while (tree, path[0]) in parents:
                path.insert(0, parents[tree, path[0]])
            named = [nodes[tree, number] for number in path]
            paths.append([(NAMES.index(one["feature"]) if one["feature"] else -1, answer(one)) for one in named])
            rows.append([truth[row]] if numbers else [float(truth[row] == label) for label in (False, True)])
        wanted += gains_by_feature(paths, rows, len(NAMES))
    assert np.allclose(found, wanted, atol=1e-9)


@compiled
def test_train__columns_that_mean_nothing_are_left_out(tmp_path: Path) -> None:
    frame = slanted(1500)
    told: list[str] = []
    stages: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, Notice):
            told.append(event.message)
        if isinstance(event, StageFinished):
            stages.append(event.stage)

    forest = bf.train(frame, "y", out=tmp_path / "forest", listener=listen, **rotated())
    assert forest.config.axes_from == ("a", "b")
    assert any("axes are built from a, b:" in text or "axes are built from b, a:" in text for text in told)
    assert "choose" in stages
    said = bf.train(frame, "y", **rotated(axes_from=["a", "b"]))
    assert forest.config == said.config
    assert forest.nodes.collect().equals(said.nodes.collect())
    assert forest.oob.error < 0.8 * bf.train(frame, "y", **rotated(axes_from=())).oob.error
    assert (forest.predict(frame)["prediction"] == said.predict(frame)["prediction"]).all()
    more = bf.train(frame, resume=tmp_path / "forest", **rotated(trees=8))  # auto again keeps what was chosen
    assert (more.config.axes_from, more.trees) == (("a", "b"), 8)


@compiled
def test_train__all_features_where_no_subset_is_better() -> None:
    frame = slanted(600).select("a", "b", "y")
    assert bf.train(frame, "y", **rotated()).config.axes_from == ()


@compiled
@pytest.mark.parametrize(
    "options",
    cases(
        [
            {"threads": 1},
            {"memory": "300MB"},
            {"seed": 7, "trees": 2},
            {"rotation": "pca"},
            {"rotation": "pca-classes", "bootstrap": True, "axis_features": 2},
            {"group": "g"},
            {"weight": "w"},
            {"class_weight": "balanced"},
            {"sampling": "adaboost", "bootstrap": True},
        ],
        quick=4,
    ),
    ids=lambda options: "-".join(options),
)
def test_train__the_same_choice_however_it_is_trained(options: dict[str, Any]) -> None:
    frame = slanted(1500).with_columns(g=pl.int_range(1500) // 3, w=pl.lit(2.0))
    columns = {"exclude": [name for name in ("g", "w") if name not in options.values()]}
    assert bf.train(frame, "y", **rotated(**columns, **options)).config.axes_from == ("a", "b")


def test_train__a_single_feature_or_no_rows_out_of_bag() -> None:
    frame = slanted(100)
    assert bf.train(frame.select("a", "y"), "y", **rotated()).config.axes_from == ()
    found = bf.train(frame, "y", **rotated(replace=False, trees=2))
    assert found.config.axes_from == ()


def test_train__forests_of_other_seeds_merge(tmp_path: Path) -> None:
    for seed in (1, 2):
        bf.train(slanted(400), "y", out=tmp_path / f"{seed}", **rotated(trees=seed, seed=seed, max_depth=2))
    assert bf.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "both").trees == 3


@pytest.mark.parametrize("rotation", ["random", "pca"])
def test_train__other_features_are_axes_of_their_own(rotation: Any) -> None:
    forest = bf.train(slanted(300), "y", **rotated(axes_from=["junk1", "a", "b"], rotation=rotation, trees=8))
    seen = (
        {frozenset(row["features"]) for row in forest.nodes.collect().filter(kind="oblique").iter_rows(named=True)}
        if "features" in forest.nodes.collect_schema()
        else None
    )
    terms = forest.nodes.select("terms").collect()["terms"].drop_nulls() if seen is None else None
    sets = seen if seen is not None else {frozenset(term["feature"] for term in own) for own in terms.to_list()}
    several = {own for own in sets if len(own) > 1}
    assert several
    assert set().union(*several) <= {"a", "b", "junk1"}
    assert {own for own in sets if len(own) == 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"axes_from": "nothing"},
            "'nothing' is not a feature, so no axes can be made from it; drop it from axes_from",
        ),
        ({"axes_from": ["a", "y"]}, "'y' is not a feature"),
        ({"axes_from": ["a", "a"]}, "axes_from must be different columns"),
        ({"axes_from": 3}, "axes_from must be names of columns, not 3"),
        ({"axes_from": "auto", "axes": 3}, "drop axes, or name the features"),
        ({"axes_from": "a", "family": "axis"}, "axes_from is an option of the family rotation, not of axis"),
        ({"axes_from": "a", "mtry": 9}, "the table has 8 features and a node cannot draw 9"),
        ({"axes_from": ["a", "b"], "rotation": "pca", "axis_features": 3}, "axes are made from 2 features"),
    ],
)
def test_train__refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        bf.train(slanted(50), "y", **{**rotated(), **options})
