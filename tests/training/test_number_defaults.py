"""Defaults of numbers: half of the features and leaves of 2 rows, or all and 1, as is better out of bag."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.common.events import Notice, StageFinished
from bigforest.execution.resources import Resources
from bigforest.sampling.bags import BLOCK_ROWS, Sampler
from bigforest.schema.config import TrainConfig
from bigforest.training import number_defaults as defaults
from tests.naive.number_defaults import Trees, gain, loss
from tests.thorough import cases, examples

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


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


def errors_of(trees: Trees, rows: int) -> defaults.Errors:
    found = defaults.Errors(np.zeros(rows), np.zeros(rows), np.zeros(rows))
    for tree in trees:
        for row, error in tree.items():
            found.total[row] += error
            found.squares[row] += error**2
            found.trees[row] += 1
    return found


@given(st.data())
@settings(max_examples=examples(200))
def test_is_better__is_what_the_naive_one_says(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 8))
    bags = data.draw(st.lists(st.sets(st.integers(0, rows - 1)), min_size=1, max_size=5))
    values = st.integers(-9, 9).map(float)
    half, every = ([{row: data.draw(values) for row in sorted(bag)} for bag in bags] for _ in range(2))
    weights = data.draw(st.none() | st.lists(st.integers(1, 9).map(float), min_size=rows, max_size=rows))
    own = None if weights is None else np.array(weights)
    found = defaults.is_better(errors_of(every, rows), errors_of(half, rows), own)
    wanted = gain(half, every, weights or [1.0] * rows)
    if wanted is not None and abs(wanted[0] - wanted[1]) < 1e-9:
        return  # a tie but for rounding
    assert found == (wanted is not None and wanted[0] > wanted[1])


@compiled
@pytest.mark.parametrize("rule", [defaults.Rule("half", 3), defaults.Rule("all", 1)])
def test_judge__trees_err_as_those_of_a_forest_do(rule: defaults.Rule, tmp_path: Path) -> None:
    frame = product(1200).with_columns(
        x0=pl.when(pl.col("x1") < 1.5).then("x0"), c=pl.col("x2").round(0).cast(pl.String)
    )
    store = bf.encode_store(frame, tmp_path / "store", target="y")
    config = TrainConfig.of(trees=4, shrink="off").settled("regression")
    found = defaults.judge(store, config, rule, range(4))

    forest = bf.train(store, trees=4, shrink="off", **rule._asdict(), keep_votes=True)
    leaves = forest.nodes.select("tree", "node", "value").collect()
    votes = forest.oob.votes.collect().join(leaves, left_on=["tree", "leaf"], right_on=["tree", "node"])
    truth = frame["y"].to_numpy()
    trees = [
        {row: value - truth[row] for row, value in votes.filter(tree=tree).select("row", "value").iter_rows()}
        for tree in range(4)
    ]
    wanted = errors_of(trees, frame.height)
    assert np.array_equal(found.trees, wanted.trees)
    assert np.allclose(found.total, wanted.total, atol=1e-9)
    assert np.allclose(found.squares, wanted.squares, atol=1e-9)
    judged = found.trees > 1
    losses = (found.total**2 - found.squares)[judged] / (found.trees * (found.trees - 1))[judged]
    assert np.allclose(losses, [loss(trees, row) for row in np.flatnonzero(judged)], atol=1e-9)


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
    said = bf.train(frame, "y", trees=10, mtry="all", min_leaf=1)
    assert forest.config == said.config
    assert forest.nodes.collect().equals(said.nodes.collect())
    assert forest.oob.error < bf.train(frame, "y", trees=10, mtry="half").oob.error
    more = bf.train(frame, resume=tmp_path / "forest", trees=15)
    assert more.config == replace(said.config, trees=15)


@compiled
def test_train__half_where_that_is_as_good() -> None:
    told: list[object] = []
    config = bf.train(noise(2000), "y", trees=3, listener=told.append).config
    assert (config.mtry, config.min_leaf) == ("half", 2)
    assert not any(isinstance(event, Notice) and "mtry" in event.message for event in told)


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


def test_train__forests_of_other_seeds_merge(tmp_path: Path) -> None:
    for seed in (1, 2):
        bf.train(product(1000), "y", trees=2 * seed, seed=seed, max_depth=2, out=tmp_path / f"{seed}")
    assert bf.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "both").trees == 6


@pytest.mark.parametrize(
    ("options", "rows"),
    [({"mtry": 2}, 1000), ({"mtry": "half"}, 1000), ({"feature_fraction": 0.5}, 1000), ({}, 999)],
)
def test_is_open__not_where_it_was_said_or_rows_are_few(options: dict[str, Any], rows: int) -> None:
    assert defaults.is_open(TrainConfig.of().settled("regression"), 6, 1000)
    assert not defaults.is_open(TrainConfig.of(**options).settled("regression"), 6, rows)


@pytest.mark.parametrize("family", ["tree", "rotation", "sparse-oblique"])
def test_is_open__not_of_families_that_draw_all_or_projections(family: str) -> None:
    assert not defaults.is_open(TrainConfig.of(family=family).settled("regression"), 6, 1000)


def test_is_open__not_of_classes_nor_a_single_feature() -> None:
    assert not defaults.is_open(TrainConfig.of().settled("classification"), 6, 1000)
    assert not defaults.is_open(TrainConfig.of().settled("regression"), 1, 1000)


@pytest.mark.parametrize("rows", [1000, 4001, 16 * BLOCK_ROWS, 16 * BLOCK_ROWS + 1, 40 * BLOCK_ROWS + 9])
@pytest.mark.parametrize("features", [2, 100, 3000])
def test_rows_to_judge__are_drawn_from_few_blocks(rows: int, features: int) -> None:
    found = defaults.rows_to_judge(rows, features)
    assert found.size <= rows
    assert found.size * features <= max(1 << 22, 4000 * 65)
    assert (np.diff(found) > 0).all()
    assert found[0] >= 0
    assert found[-1] < rows
    assert np.unique(found // BLOCK_ROWS).size <= 17
    assert np.array_equal(found, defaults.rows_to_judge(rows, features))
    if rows > 4000 and features == 2:
        assert found.size >= min(rows, 4000) - 16


def test_of_rows__are_the_rows_of_the_table(tmp_path: Path) -> None:
    frame = product(300).with_columns(
        x1=pl.when(pl.col("x2") < 1).then("x1"),
        c=pl.col("x3").round(0).cast(pl.String),
        g=pl.int_range(300) // 4,
        w=pl.int_range(300) % 5 + 1,
    )
    store = bf.encode_store(frame, tmp_path / "store", target="y", group="g", weight="w")
    rows = np.array([0, 7, 8, 150, 299])
    some = store.of_rows(rows)
    assert np.array_equal(some.values(0, 5), store.values(0, 300)[rows], equal_nan=True)
    assert np.array_equal(some.target, store.target[rows])
    assert np.array_equal(some.groups_of(0, 5), store.groups_of(0, 300)[rows])
    assert np.array_equal(some.weights_of(0, 5), store.weights_of(0, 300)[rows])
    assert (some.rows, some.fingerprint == store.fingerprint) == (5, False)
    config = TrainConfig.of(group="g", weight="w").settled("regression")
    assert Sampler.of(some, config).bag(0).size == 5
    for array in (*some.codes[:3], some.target):
        assert not array.flags.writeable


@compiled
def test_plan__counts_what_choosing_takes() -> None:
    frame = product(5000)
    plan = bf.plan_training(frame, "y")
    assert [stage.stage for stage in plan.stages] == ["encode", "choose", "grow", "oob"]
    by_name = {stage.stage: stage for stage in plan.stages}
    assert by_name["choose"].seconds > 0
    assert by_name["choose"].need.memory > by_name["choose"].need.smallest - 1
    assert "choose" not in {stage.stage for stage in bf.plan_training(frame, "y", mtry="half").stages}
    rules = ({"mtry": "half", "min_leaf": 2}, {"mtry": "all", "min_leaf": 1})
    small, large = (bf.plan_training(frame, "y", memory="300MB", **rule).smallest for rule in rules)
    assert small <= large == bf.plan_training(frame, "y", memory="300MB").smallest


def test_choose_defaults__gives_what_is_not_open_its_default(tmp_path: Path) -> None:
    store = bf.encode_store(product(100), tmp_path / "store", target="y")
    config = TrainConfig.of().settled("regression")
    found = defaults.choose_defaults(store, config, Resources(threads=1), lambda _: None)
    assert (found.mtry, found.min_leaf) == ("half", 2)
    given = TrainConfig.of(mtry="all").settled("regression")
    assert defaults.choose_defaults(store, given, Resources(threads=1), lambda _: None).min_leaf == 2
