"""Defaults of numbers: half of the features and leaves of 2 rows, or all and 1, as is better out of bag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.events import Notice, StageFinished
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig
from bigforest.training.choose import choose_options
from tests.thorough import cases
from tests.training.choices import check_choice, rules

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
NUMBERS = TrainConfig.of().for_task("regression")


def product(rows: int, seed: int = 0) -> pl.DataFrame:
    """A number that a product of two features makes, beside four that mean nothing: all features are better."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 6))
    return pl.DataFrame(
        {f"x{k}": column for k, column in enumerate(x.T)} | {"y": x[:, 0] * x[:, 1] * 4 + draw.normal(size=rows) * 0.1}
    )


def noise(rows: int) -> pl.DataFrame:
    """A number that follows from no feature: the fewer a node draws, the better."""
    draw = np.random.default_rng(3)
    return pl.DataFrame({f"x{k}": draw.normal(size=rows) for k in range(6)} | {"y": draw.normal(size=rows)})


@compiled
def test_train__all_features_where_that_is_better(tmp_path: Path) -> None:
    told: list[str] = []
    stages: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, Notice):
            told.append(event.message)
        if isinstance(event, StageFinished):
            stages.append(event.stage)

    frame = product(2000)
    forest = bf.train(frame, "y", trees=10, out=tmp_path / "forest", listener=listen)
    assert forest.config.mtry == "all"
    assert any("mtry is all and min_leaf 1" in text for text in told)
    assert "choose" in stages
    check_choice(frame, tmp_path / "forest", {"mtry": "half"}, {"mtry": "all", "min_leaf": 1})


@compiled
def test_train__half_where_that_is_as_good() -> None:
    told: list[object] = []
    config = bf.train(noise(2000), "y", trees=3, listener=told.append).config
    assert (config.mtry, config.min_leaf) == ("half", 2)
    assert not any(isinstance(event, Notice) and "mtry" in event.message for event in told)


@pytest.mark.parametrize("seed", cases(range(3), quick=1))
def test_train__small_tables_of_one_strong_feature_are_told_from_noise(seed: int) -> None:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(40, 4))
    frame = pl.DataFrame({f"x{k}": column for k, column in enumerate(x.T)})
    line, noise = 3 * x[:, 0] + 0.3 * draw.normal(size=40), draw.normal(size=40)
    for target, wanted in ((line, ("all", 1)), (noise, ("half", 2))):
        config = bf.train(frame.with_columns(y=target), "y", trees=1).config
        assert (config.mtry, config.min_leaf) == wanted


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
            {"splitter": "random"},
            {"group": "g"},
            {"weight": "w"},
        ],
        quick=3,
    ),
    ids=lambda options: "-".join(options),
)
def test_train__the_same_choice_however_it_is_trained(options: dict[str, Any]) -> None:
    frame = product(2000).with_columns(g=pl.int_range(2000) // 3, w=pl.lit(2.0))
    columns = {"exclude": [name for name in ("g", "w") if name not in options.values()]}
    config = bf.train(frame, "y", **({"trees": 3} | columns | options)).config
    assert (config.mtry, config.min_leaf) == ("all", options.get("min_leaf", 1))


@pytest.mark.parametrize(
    ("options", "rows"),
    [({"mtry": 2}, 1000), ({"mtry": "half"}, 1000), ({"feature_fraction": 0.5}, 1000), ({}, 19)],
)
def test_rules_for__one_where_it_was_said_or_rows_are_few(options: dict[str, Any], rows: int) -> None:
    assert rules(NUMBERS, 6, 1000) == ["half", "all"]
    assert rules(TrainConfig.of(**options).for_task("regression"), 6, rows) == [options.get("mtry")]


def test_rules_for__one_where_trial_trees_have_a_small_part_of_the_rows() -> None:
    answers = {249: 1, 250: 2, 873: 2, 874: 1, 40_000: 2}
    assert {rows: len(rules(NUMBERS, 300, rows)) for rows in answers} == answers
    assert rules(NUMBERS, 300, 249) == ["all"]
    assert rules(NUMBERS, 300, 874) == [None]


def test_train__more_features_than_rows_are_all_drawn() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(40, 41))
    frame = pl.DataFrame({f"x{k}": column for k, column in enumerate(x.T)}).with_columns(y=draw.normal(size=40))
    told: list[object] = []
    config = bf.train(frame, "y", trees=1, listener=told.append).config
    assert (config.mtry, config.min_leaf) == ("all", 1)
    assert any(isinstance(event, Notice) and "more features than rows" in event.message for event in told)
    assert "choose" not in {stage.stage for stage in bf.plan_training(frame, "y").stages}
    kept = bf.train(frame, "y", trees=1, min_leaf=3).config
    assert (kept.mtry, kept.min_leaf) == ("all", 3)
    as_many = bf.train(frame.drop("x40"), "y", trees=1).config  # chosen, and no feature matters
    assert (as_many.mtry, as_many.min_leaf) == ("half", 2)
    assert bf.train(frame, "y", trees=1, feature_fraction=0.5).config.min_leaf == 2
    classes = frame.with_columns(y=pl.Series(["a", "b"] * 20))
    assert bf.train(classes, "y", trees=1).config.mtry == "sqrt"


@pytest.mark.parametrize("family", ["tree", "rotation", "sparse-oblique"])
def test_rules_for__one_of_families_that_draw_all_or_projections(family: str) -> None:
    config = TrainConfig.of(family=family).for_task("regression")
    assert rules(config, 6, 1000) == [config.mtry]


def test_rules_for__one_of_a_single_feature() -> None:
    for features in (0, 1):
        assert rules(NUMBERS, features, 1000) == [None]


@compiled
def test_plan__counts_what_choosing_takes() -> None:
    frame = product(5000)
    plan = bf.plan_training(frame, "y")
    assert [stage.stage for stage in plan.stages] == ["encode", "choose", "grow", "oob", "refine"]
    by_name = {stage.stage: stage for stage in plan.stages}
    assert by_name["choose"].seconds > 0
    assert by_name["choose"].need.memory > by_name["choose"].need.smallest - 1
    assert "choose" not in {stage.stage for stage in bf.plan_training(frame, "y", mtry="half").stages}
    rules = ({"mtry": "half", "min_leaf": 2}, {"mtry": "all", "min_leaf": 1})
    small, large = (bf.plan_training(frame, "y", memory="300MB", **rule).smallest for rule in rules)
    assert small <= large == bf.plan_training(frame, "y", memory="300MB").smallest


def test_choose__gives_what_is_not_open_its_default(tmp_path: Path) -> None:
    store = bf.encode_store(product(19), tmp_path / "store", target="y")
    config = TrainConfig.of().for_task("regression")
    found = choose_options(store, config, Resources(threads=1), lambda _: None)
    assert (found.mtry, found.min_leaf) == ("half", 2)
    given = TrainConfig.of(mtry="all").for_task("regression")
    assert choose_options(store, given, Resources(threads=1), lambda _: None).min_leaf == 2
