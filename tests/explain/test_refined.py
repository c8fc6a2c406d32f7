"""Explanations of forests with a boosted stage, against slow ones of the forest and the plain stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.explain.permuted_predictions import orders_of
from bigforest.forest.nodes import TreeArrays
from bigforest.sampling.bags import are_held_out
from tests.explain.made import trees_of as forest_trees
from tests.naive import refine as naive
from tests.naive.explain import answers, refined_change
from tests.naive.power import raised
from tests.naive.predict import find_leaf
from tests.training.test_refine import CASES, LOSSES, ROWS, cells, of_case, predictions, trees_of

USED = 60  # rows that are explained


class Refined(NamedTuple):
    """A forest with a stage, its table, and both in plain Python."""

    forest: bf.Forest
    data: pl.DataFrame
    target: str
    rows: list[list[Any]]
    category: list[bool]
    trees: list[TreeArrays]
    votes: list[list[list[float]]]
    sequences: list[list[naive.Tree]]
    names: dict[int, list[str | None]]

    @property
    def loss(self) -> str:
        return LOSSES[self.target]

    @property
    def least(self) -> float:
        return 2.0**-16 * self.forest.spec.target.offset if self.loss == "poisson" else 2.0**-10

    def shares(self, row: Sequence[Any], trees: Sequence[int]) -> list[float]:
        """Mean of the answers of some trees."""
        found = [self.votes[tree][find_leaf(self.trees[tree], row, self.names)] for tree in trees]
        return np.mean(found, axis=0).tolist()

    def predicted(self, row: Sequence[Any], trees: Sequence[int], sequences: Sequence[int]) -> list[float]:
        """The prediction by some trees and sequences."""
        plain = self.shares(row, trees)
        if not self.forest.is_regression:
            plain = raised(plain, self.forest.power.amount)
        own = [self.sequences[number] for number in sequences]
        return naive.refined(self.loss, plain, self.least, own, row, self.category)


def made(name: str) -> Refined:
    data, target, options = of_case(name)
    forest = bf.train(data, target, **options)
    rows, category = cells(forest, data)
    names = {
        place: [*([None] if feature.missing else []), *forest.levels.of(place).to_list()]
        for place, feature in enumerate(forest.spec.features)
        if feature.splits_on_levels
    }
    trees = forest_trees(forest)
    shrunk = forest.shrinkage.amount / forest.spec.weight_unit
    vote: Any = "hard" if forest.config.vote == "hard" else shrunk or "soft"
    votes = [answers(tree, vote) for tree in trees]
    return Refined(forest, data, target, rows, category, trees, votes, trees_of(forest), names)


def out_of_bag(case: Refined) -> Callable[[int, Sequence[Any]], list[float] | None]:
    """Predictions by the trees and sequences that do not use a row."""
    group = case.data["g"] if "g" in case.data.columns else None
    bags = case.forest.inbag(group=group)
    used = [bags[str(tree)].to_list() for tree in range(len(case.trees))]
    numbers = np.arange(ROWS) if group is None else np.unique(group, return_inverse=True)[1]
    share = case.forest.config.calibration
    held = np.zeros(ROWS, np.bool_) if share is None else are_held_out(np.arange(ROWS, dtype=np.uint64), share)

    def predicted(number: int, row: Sequence[Any]) -> list[float] | None:
        trees = [tree for tree, own in enumerate(used) if own[number] == 0]
        sequences = range(6) if held[number] else naive.left_out(5, int(numbers[number]))
        return case.predicted(row, trees, list(sequences)) if trees else None

    return predicted


@pytest.mark.parametrize("name", CASES)
def test_permutation__is_of_out_of_bag_predictions(name: str) -> None:
    case = made(name)
    forest, predicted = case.forest, out_of_bag(case)
    loss = {"squared": "mse", "poisson": "poisson_deviance", "logistic": "log_loss"}.get(case.loss, "error")
    weight = case.data["w"].to_numpy() if "weight" in CASES[name] else np.ones(ROWS)
    if forest.spec.weight is not None and forest.spec.weight.classes:
        weight = np.array(forest.spec.weight.classes)[case.data[case.target].to_numpy()]
    places = {feature: [place] for place, feature in enumerate(forest.spec.feature_names)} | {"two": [0, 1]}
    found = forest.explain(
        case.data, parts=["permutation", "local"], loss=loss, groups={"two": ["x0", "x1"]}, sample=ROWS, threads=1
    )
    truth = case.data[case.target].to_list()
    truth = truth if forest.is_regression else [forest.classes.index(own) for own in truth]
    plain = [predicted(number, row) for number, row in enumerate(case.rows)]
    # The predictions that are explained are those of the report.
    shown = forest.oob.rows.collect()
    columns = ["prediction"] if forest.is_regression else [f"p_{label}" for label in forest.classes]
    for own, expected in zip(shown.select(columns).rows(), plain, strict=True):
        assert expected is None or own == pytest.approx(expected, rel=1e-9)
    known = np.array([own is not None for own in plain])
    local = found["local"]["importance"].to_numpy().reshape(ROWS, len(places))
    assert found["permutation"]["feature"].to_list() == list(places)
    for stream, (feature, own) in enumerate(places.items()):
        change = refined_change(predicted, case.rows, truth, own, (0, orders_of(ROWS), stream), loss)
        expected = np.array([np.nan if one is None else one for one in change])
        np.testing.assert_allclose(local[:, stream], expected, rtol=1e-7, atol=1e-9)
        mean = np.average(expected[known], weights=weight[known])
        of = found["permutation"].row(stream, named=True)
        assert of["importance"] == pytest.approx(mean, rel=1e-7, abs=1e-9), feature
        spread = (weight[known] ** 2 * (expected[known] - mean) ** 2).sum() * known.sum() / (known.sum() - 1)
        assert of["standard_error"] == pytest.approx(np.sqrt(spread) / weight[known].sum(), rel=1e-6, abs=1e-9)
        if not forest.is_regression:
            classes = found["permutation-classes"].filter(pl.col("feature") == feature)
            for code, one in enumerate(classes["importance"].to_list()):
                here = known & (np.array(truth) == code)
                assert one == pytest.approx(np.average(expected[here], weights=weight[here]), rel=1e-7, abs=1e-9)
    assert "permutation-trees" not in found


def test_permutation__of_new_rows_is_by_all_trees_and_sequences() -> None:
    case = made("two classes, weights")
    data, rows = case.data[:USED], case.rows[:USED]
    truth = [case.forest.classes.index(own) for own in data["two"]]
    found = case.forest.explain(data, parts="local", loss="log_loss", new_rows=True, seed=3)["local"]

    def predicted(_: int, row: Sequence[Any]) -> list[float]:
        return case.predicted(row, range(len(case.trees)), range(6))

    expected = refined_change(predicted, rows, truth, [1], (3, orders_of(USED), 1), "log_loss")
    local = found.filter(pl.col("feature") == "x1")
    np.testing.assert_allclose(local["importance"].to_numpy(), np.array(expected, float), rtol=1e-7, atol=1e-9)
    assert local["trees"].to_list() == [len(case.trees)] * USED


@pytest.mark.parametrize("name", CASES)
def test_dependence__is_of_predictions(name: str) -> None:
    case = made(name)
    forest, data = case.forest, case.data.drop(case.target)[:USED]
    found = forest.explain(
        data, parts=["dependence", "effects"], features=["x0", ("x0", "x1")], grid=4, individual=3, threads=1
    )
    labels = [None] if forest.is_regression else forest.classes[1:] if len(forest.classes) == 2 else forest.classes

    def at(values: dict[str, float], frame: pl.DataFrame) -> np.ndarray[Any, Any]:
        return predictions(forest, frame.with_columns(**{key: pl.lit(value) for key, value in values.items()}))

    def place(label: Any) -> int:
        return 0 if label is None else forest.classes.index(label)

    if forest.ranks is None:
        single, pairs, own = found["dependence"], found["dependence-pairs"], found["individual"]
        assert single.height == 4 * len(labels)
        for line in single.iter_rows(named=True):
            expected = at({"x0": line["value"]}, data)[:, place(line.get("class"))].mean()
            assert line["prediction"] == pytest.approx(expected, rel=1e-9)
        for line in pairs.iter_rows(named=True):
            expected = at({"x0": line["value_a"], "x1": line["value_b"]}, data)[:, place(line.get("class"))].mean()
            assert line["prediction"] == pytest.approx(expected, rel=1e-9)
        for line in own.iter_rows(named=True):
            expected = at({"x0": line["value"]}, data[line["row"]])[0, place(line.get("class"))]
            assert line["prediction"] == pytest.approx(expected, rel=1e-9)
        for label in labels:
            lines = found["effects"] if label is None else found["effects"].filter(pl.col("class") == label)
            grid, effect = lines["value"].to_numpy(), lines["effect"].to_numpy()
            for step, (low, high) in enumerate(pairwise(grid)):
                inside = data.filter((pl.col("x0") <= high) & ((pl.col("x0") > low) | (step == 0)))
                change = (at({"x0": high}, inside) - at({"x0": low}, inside))[:, place(label)].mean()
                assert effect[step + 1] - effect[step] == pytest.approx(change, rel=1e-7, abs=1e-9)


def test_explanations__are_the_same_by_threads_and_memory(tmp_path: Any) -> None:
    case = made("three classes, hard votes")
    parts = ["permutation", "local", "dependence", "effects"]
    options: dict[str, Any] = {"parts": parts, "individual": 2, "sample": 30}
    memory = bf.plan_explanation(case.forest, case.data, parts=parts, individual=2, sample=30).smallest
    one = case.forest.explain(case.data, threads=1, **options)
    for way in ({"threads": 2}, {"memory": memory, "threads": 2}):
        other = case.forest.explain(case.data, **way, **options)
        assert all(one[table].equals(other[table], null_equal=True) for table in one.tables)
    with pytest.raises(ConfigError, match="memory"):
        case.forest.explain(case.data, memory=memory - 1_000_000, **options)
