"""What a forest is where nothing is said, and what those that were trained with other defaults stay."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.options.train_config import TrainConfig
from bigforest.options.values import Task

FEATURES = (1, 2, 3, 7, 8, 100)


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        ("sqrt", [1, 1, 1, 2, 2, 10]),
        ("log2", [1, 1, 1, 2, 3, 6]),
        ("half", [1, 1, 2, 4, 4, 50]),
        ("all", [1, 2, 3, 7, 8, 100]),
        (0.5, [1, 1, 1, 3, 4, 50]),
        (3, [1, 2, 3, 3, 3, 3]),
    ],
)
def test_drawn_features__by_rule(rule: Any, counts: list[int]) -> None:
    assert [TrainConfig(mtry=rule).drawn_features(features) for features in FEATURES] == counts


@pytest.mark.parametrize(
    ("family", "task", "mtry", "min_leaf"),
    [
        ("axis", "classification", "sqrt", 1),
        ("axis", "regression", "half", 2),
        ("tree", "regression", "all", 2),
        ("rotation", "classification", "all", 1),
        ("sparse-oblique", "classification", "sqrt", 1),
        ("rotation", "regression", "all", 2),
        ("sparse-oblique", "regression", "half", 2),
    ],
)
def test_settled__the_task_decides_what_was_not_said(family: str, task: Task, mtry: str, min_leaf: int) -> None:
    config = TrainConfig.of(family=family).for_task(task)
    own = mtry if mtry == "all" else None
    assert (config.mtry, config.min_leaf, config.min_level) == (own, None, None)
    whole = config.with_defaults()
    assert (whole.mtry, whole.min_leaf) == (mtry, min_leaf)
    said = TrainConfig.of(family=family, min_leaf=7, **({} if family == "sparse-oblique" else {"mtry": 3}))
    assert said.for_task(task).min_leaf == 7
    assert said.for_task(task).mtry == (None if family == "sparse-oblique" else 3)


@pytest.mark.parametrize(("task", "rule", "count"), [("classification", "p^2/3", 9), ("regression", "p^1", 27)])
def test_with_defaults__projections_are_by_the_task(task: Task, rule: str, count: int) -> None:
    config = TrainConfig.of(family="sparse-oblique").for_task(task)
    assert config.projections is None
    assert config.with_defaults().projections == rule
    assert config.drawn_projections(27) == config.with_defaults().drawn_projections(27) == count
    assert replace(config, projections="p^2").with_defaults().projections == "p^2"


def test_from_json__options_of_later_versions_have_their_defaults() -> None:
    config = TrainConfig.of(trees=7, seed=3)
    values = json.loads(config.to_json())
    for name in set(values) - {"trees", "seed", "refine"}:
        assert TrainConfig.from_json(json.dumps({key: own for key, own in values.items() if key != name})) == config
    before = TrainConfig.from_json(json.dumps({key: own for key, own in values.items() if key != "refine"}))
    assert before == replace(config, refine="off")  # as grown by versions without the stage
    for wrong in ({**values, "twigs": 3}, [values], 5):
        with pytest.raises(ConfigError, match="entries that are no options"):
            TrainConfig.from_json(json.dumps(wrong))


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"trees": ' + "9" * 5000 + "}", b"\xff\xfe\xff", None])
@pytest.mark.usefixtures("no_collection")
def test_from_json__what_is_no_json(text: Any) -> None:
    with pytest.raises(ConfigError, match="the configuration is not JSON"):
        TrainConfig.from_json(text)


@pytest.mark.parametrize("family", ["axis", "sparse-oblique"])
def test_from_json__forests_of_earlier_defaults_keep_them(family: str) -> None:
    text = TrainConfig.of(family=family).for_task("classification").to_json()
    earlier = json.dumps({**json.loads(text), "mtry": "sqrt", "min_level": 1000, "min_leaf": 5})
    config = TrainConfig.from_json(earlier).for_task("classification")
    assert (config.mtry, config.min_level, config.min_leaf) == ("sqrt", 1000, 5)
    assert json.loads(config.to_json()) == json.loads(earlier)


def numbers(rows: int, levels: int) -> pl.DataFrame:
    """A number that depends on the level of a category above all, beside a number that matters and five that do not."""
    draw = np.random.default_rng(levels)
    level, x = draw.integers(0, levels, rows), draw.normal(size=(rows, 6))
    y = draw.normal(size=levels)[level] + 0.5 * x[:, 0] + 0.3 * draw.normal(size=rows)
    return pl.DataFrame({"level": level, **{f"x{k}": column for k, column in enumerate(x.T)}, "y": y}).with_columns(
        pl.col("level").cast(pl.String)
    )


def test_train__a_regression_draws_half_of_the_features() -> None:
    frame = numbers(19, 2)
    unsaid = bf.train(frame, "y", trees=3)
    said = bf.train(frame, "y", trees=3, mtry="half", min_leaf=2, min_level=5)
    assert unsaid.config == said.config
    assert unsaid.nodes.collect().equals(said.nodes.collect())
    plan, other = (bf.plan_training(frame, "y", **options) for options in ({}, {"mtry": "sqrt"}))
    assert plan.seconds == bf.plan_training(frame, "y", mtry="half").seconds
    assert plan.seconds > other.seconds


def test_train__a_category_of_many_levels_is_learnt() -> None:
    """Levels of some forty rows, most of which a threshold of a thousand rows keeps together in all nodes."""
    frame = numbers(2000, 45)
    options: dict[str, Any] = {"trees": 30, "refine": "off"}
    found = bf.train(frame, "y", **options).oob.metrics["r2"].item()
    assert found > 0.75
    assert bf.train(frame, "y", mtry="half", min_level=1000, **options).oob.metrics["r2"].item() < found - 0.1


def test_train__names_of_one_row_are_not() -> None:
    frame = numbers(1000, 2).with_columns(name=pl.int_range(1000).cast(pl.String))
    without = bf.train(frame.drop("name"), "y", trees=30, refine="off").oob.metrics["r2"].item()
    assert bf.train(frame, "y", trees=30, refine="off").oob.metrics["r2"].item() > without - 0.1
    assert bf.train(frame, "y", trees=30, min_level=1, refine="off").oob.metrics["r2"].item() < without - 0.2
