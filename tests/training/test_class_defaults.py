"""Features drawn where classes are predicted: the square root, or more of them where trial trees are much better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.events import Notice
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig
from bigforest.training import choose
from bigforest.training.choose import choose_options
from bigforest.training.trial_trees import Errors
from tests.thorough import cases
from tests.training.choices import check_choice, rules

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
CLASSES = TrainConfig.of().for_task("classification")


def sparse(rows: int, features: int = 40, seed: int = 0) -> pl.DataFrame:
    """Classes that two of many features tell, only together: few nodes that draw six of them see one."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, features))
    y = (x[:, 0] > 0) & (x[:, 1] > 0)
    return pl.DataFrame({f"x{k}": column for k, column in enumerate(x.T)} | {"y": y.astype(int)})


def dense(rows: int, features: int = 40) -> pl.DataFrame:
    """Classes that all features tell alike: the root is best."""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(rows, features))
    return pl.DataFrame(
        {f"x{k}": column for k, column in enumerate(x.T)} | {"y": (x.sum(axis=1) > draw.normal(size=rows)).astype(int)}
    )


@compiled
def test_train__more_features_where_that_is_much_better(tmp_path: Path) -> None:
    told: list[object] = []
    frame = sparse(600)
    forest = bf.train(frame, "y", trees=10, out=tmp_path / "forest", listener=told.append)
    assert forest.config.mtry == 24
    assert forest.config.min_leaf == 1
    (notice,) = [event.message for event in told if isinstance(event, Notice) and "mtry" in event.message]
    assert "(24 of 40 features)" in notice
    assert "sqrt (6 features)" in notice
    check_choice(frame, tmp_path / "forest", {"mtry": "sqrt"}, {"mtry": 24})


@compiled
@pytest.mark.parametrize("rows", cases([80, 180], quick=1))
def test_train__all_features_of_a_small_table_where_that_is_much_better(rows: int) -> None:
    """The root of 3 features is one: then nodes are split by what means nothing."""
    frame = dense(rows, 2).with_columns(
        corps=pl.int_range(pl.len()) % 9, y=(pl.int_range(pl.len()) % 9).is_in([1, 4, 6, 7]).cast(pl.Int64)
    )
    chosen, root = (bf.train(frame, "y", categories=["corps"], **own) for own in ({}, {"mtry": "sqrt"}))
    assert (chosen.config.mtry, root.config.mtry) == ("all", "sqrt")
    assert chosen.oob.metrics["log_loss"][-1] < root.oob.metrics["log_loss"][-1]
    assert bf.train(dense(rows, 6), "y", trees=3).config.mtry == "sqrt"


@compiled
def test_train__the_root_where_that_is_as_good() -> None:
    told: list[object] = []
    config = bf.train(dense(600), "y", trees=3, listener=told.append).config
    assert (config.mtry, config.min_leaf) == ("sqrt", 1)
    assert not any(isinstance(event, Notice) and "mtry" in event.message for event in told)


@compiled
def test_train__half_of_a_wide_table_whose_features_mean_nothing_but_two() -> None:
    assert bf.train(sparse(400, 300), "y", trees=1).config.mtry == "half"


@compiled
def test_train__more_features_than_rows_draw_half_where_a_few_matter() -> None:
    frame = sparse(80, 300, 3)
    assert bf.train(frame, "y", trees=1).config.mtry == "half"
    assert bf.train(frame.with_columns(pl.col("y").shuffle(1)), "y", trees=1).config.mtry == "sqrt"


@compiled
@pytest.mark.parametrize(
    "options",
    cases(
        [
            {"threads": 1},
            {"memory": "300MB"},
            {"seed": 7, "trees": 2},
            {"bootstrap": False},
            {"min_leaf": 3},
            {"group": "g"},
            {"weight": "w"},
            {"class_weight": "balanced"},
            {"sampling": "balanced"},
        ],
        quick=3,
    ),
    ids=lambda options: "-".join(options),
)
def test_train__the_same_choice_however_it_is_trained(options: dict[str, Any]) -> None:
    frame = sparse(600).with_columns(g=pl.int_range(600) // 3, w=pl.lit(2.0))
    columns = {"exclude": [name for name in ("g", "w") if name not in options.values()]}
    assert bf.train(frame, "y", **({"trees": 3} | columns | options)).config.mtry == 24


@pytest.mark.parametrize(
    ("features", "wanted"),
    [
        (2, ["sqrt", "all"]),
        (6, ["sqrt", "all"]),
        (16, ["sqrt", "all"]),
        (17, ["sqrt", 16]),
        (54, ["sqrt", 28]),
        (64, ["sqrt", 32]),
        (100, ["sqrt", 40, "half"]),
        (784, ["sqrt", 112, "half"]),
    ],
)
def test_rules_for__each_draws_more_than_the_one_before(features: int, wanted: list[Any]) -> None:
    assert rules(CLASSES, features, 1000, 2) == wanted
    drawn = [TrainConfig(mtry=rule).drawn_features(features) for rule in wanted]
    assert drawn == sorted(set(drawn))


@pytest.mark.parametrize(
    ("options", "features", "rows", "classes"),
    [
        ({"mtry": 2}, 40, 1000, 2),
        ({"feature_fraction": 0.5}, 40, 1000, 2),
        ({"family": "tree"}, 40, 1000, 2),
        ({"family": "rotation"}, 40, 1000, 2),
        ({"family": "sparse-oblique"}, 40, 1000, 2),
        ({"sampling": "arc-x4"}, 40, 1000, 2),
        ({}, 1, 1000, 2),
        ({}, 40, 19, 2),
        ({}, 40, 4000, 300),
    ],
)
def test_rules_for__one_where_it_was_said_or_cannot_be_evaluated(
    options: dict[str, Any], features: int, rows: int, classes: int
) -> None:
    assert all(len(rules(CLASSES, *shape)) > 1 for shape in ((40, 20, 2), (3, 20, 2), (40, 4000, 200)))
    config = TrainConfig.of(**options).for_task("classification")
    assert rules(config, features, rows, classes) == [config.mtry]


def test_choose__gives_what_is_not_open_its_default(tmp_path: Path) -> None:
    store = bf.encode_store(sparse(19, 6), tmp_path / "store", target="y", task="classification")
    found = choose_options(store, CLASSES, Resources(threads=1), lambda _: None)
    assert (found.mtry, found.min_leaf) == ("sqrt", 1)


def errors(per_tree: float, shared: float, split: float) -> Errors:
    """Of two rows that four trees left out, each with an error: in half of the trees plus, in the others minus."""
    steps = shared + per_tree * np.array([1.0, 1.0, -1.0, -1.0])
    return Errors(np.full((2, 1), steps.sum()), np.full(2, (steps**2).sum()), np.full(2, 4.0), split)


def test_lead__a_longer_time_takes_trees_away() -> None:
    usual, larger = replace(CLASSES, mtry="sqrt"), replace(CLASSES, mtry=24)
    plain, other = errors(1.0, 0.6, 300.0), errors(1.0, 0.5, 150.0)
    # 24 features in half as many rows as 6 features take twice the time, so 50 trees are compared with 100.
    per_tree = 4 / 3  # of deviations of 1 and -1, twice each
    mean, error = choose._lead(usual, plain, larger, other, 40, None, timed=True)
    assert mean == pytest.approx(0.6**2 - 0.5**2 - per_tree / 50 + per_tree / 100)
    assert error == pytest.approx(0.0)
    untimed = choose._lead(usual, plain, larger, other, 40, None, timed=False)[0]
    assert untimed == pytest.approx(0.6**2 - 0.5**2)
    # A rule whose trees are no slower is not better by their number.
    quick = errors(1.0, 0.5, 10.0)
    assert choose._lead(usual, plain, larger, quick, 40, None, timed=True)[0] == pytest.approx(0.6**2 - 0.5**2)
