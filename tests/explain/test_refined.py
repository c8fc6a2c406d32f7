"""Explanations of forests with a boosted stage, against slow ones of the forest and the plain stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.explain.prediction_losses import orders_of
from bigforest.forest.nodes import TreeArrays
from bigforest.sampling.bags import are_held_out
from tests.explain.made import trees_of as forest_trees
from tests.naive import refine as naive
from tests.naive.explain import (
    Vote,
    answers,
    path_contributions,
    refined_change,
    shapley,
    shapley_values,
)
from tests.naive.power import raised
from tests.naive.predict import find_leaf
from tests.training.test_refine import CASES, LOSSES, cells, of_case, predictions, trees_of

ROWS = 120
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
    def both(self) -> list[tuple[TreeArrays, list[list[float]]]]:
        return list(zip(self.trees, self.votes, strict=True))

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


@cache
def made(name: str) -> Refined:
    data, target, options = of_case(name, ROWS, trees=8)
    forest = bf.train(data, target, **options)
    rows, category = cells(forest, data)
    names = {
        place: [*([None] if feature.missing else []), *forest.levels.of(place).to_list()]
        for place, feature in enumerate(forest.spec.features)
        if feature.splits_on_levels
    }
    trees = forest_trees(forest)
    shrunk = forest.shrinkage.amount / forest.spec.weight_unit
    vote: Vote = "hard" if forest.config.vote == "hard" else shrunk or "soft"
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


@pytest.mark.parametrize("name", [name for name in CASES if "ranks" not in CASES[name]])
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


def explained(case: Refined, part: str, row: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Base, contributions [features][outputs] and score of a row: by subsets of features, or along its path."""
    size, loss, power = len(case.forest.spec.features), case.loss, case.forest.power.amount
    place = {"logistic": slice(1, 2)}.get(loss, slice(None))
    if part == "shap":
        own = [shapley(tree, row, size, case.names, votes) for tree, votes in case.both]
    else:
        own = [path_contributions(tree, row, size, case.names, votes) for tree, votes in case.both]
    forest, base = np.mean(own, axis=0)[:, place], np.mean([votes[0] for votes in case.votes], axis=0)
    shares = case.shares(row, range(len(case.trees)))
    sums = 1.0 if power == 1.0 else float((np.array(shares) ** power).sum())
    low, high = (np.array(naive.scores(loss, own, case.least, power, sums)) for own in (base.tolist(), shares))
    gap = np.array(shares)[place] - base[place]
    added = np.zeros((size, len(low)))
    start = np.zeros(len(low))
    for trees in case.sequences:
        for tree in trees:
            start += np.array(naive.expectation(tree, row, (), case.category)) / 6
            if part == "shap":
                found = shapley_values(size, lambda known, t=tree: naive.expectation(t, row, known, case.category))
            else:
                found = naive.path_contributions(tree, row, size, case.category)
            added += np.array(found) / 6
    parts = forest * ((high - low) / gap) + added
    return low + start, parts, low + start + parts.sum(axis=0)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("part", ["contributions", "shap"])
def test_contributions__add_up_to_scores(name: str, part: str) -> None:
    case = made(name)
    forest, data = case.forest, case.data.drop(case.target)[:12]
    names = [f"c_{feature}" for feature in forest.spec.feature_names]
    if part == "shap" and "family" in CASES[name]:
        with pytest.raises(ConfigError, match="splits on projections"):
            forest.explain(data, parts=part)
        return
    found = forest.explain(data, parts=part, classes=forest.classes or None, threads=1)[part]
    width = max(1, len(forest.classes))
    total = found.select(pl.sum_horizontal("base", *names)).to_series().to_numpy()
    np.testing.assert_allclose(total, found["prediction"].to_numpy(), rtol=1e-9, atol=1e-9)
    scores = found["prediction"].to_numpy().reshape(-1, width)
    given = predictions(forest, data)
    inverse = {"squared": lambda s: s, "poisson": np.exp, "logistic": lambda s: 1.0 / (1.0 + np.exp(-s))}
    softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softmax if case.loss == "softmax" else inverse[case.loss](scores), given, rtol=1e-8)
    table = found.select(names).to_numpy().reshape(len(data), width, len(names))
    for number in range(6 if part == "shap" else len(data)):
        base, parts, score = explained(case, part, case.rows[number])
        signs = np.array([-1.0, 1.0]) if case.loss == "logistic" else 1.0
        np.testing.assert_allclose(table[number].T, parts * signs, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(scores[number], score * signs, rtol=1e-8, atol=1e-9)
        shown = found["base"].to_numpy().reshape(-1, width)[number]
        np.testing.assert_allclose(shown, base * signs, rtol=1e-8, atol=1e-9)
    if not forest.is_regression:  # a class alone is as among all
        for label in forest.classes:
            alone = forest.explain(data, parts=part, classes=[label], threads=1)[part]
            assert alone.equals(found.filter(pl.col("class") == label))


@pytest.mark.parametrize("name", ["numbers, poisson, groups", "two classes, weights", "three classes, hard votes"])
def test_interactions__add_up_to_contributions(name: str) -> None:
    case = made(name)
    data = case.data.drop(case.target)[:8]
    options: dict[str, Any] = {"classes": case.forest.classes or None, "threads": 1}
    found = case.forest.explain(data, parts=["interactions", "shap"], rows=range(8), **options)
    pairs = found["interactions"]
    keys = ["row", *(["class"] if case.forest.classes else [])]
    sums = pairs.group_by(keys, maintain_order=True).agg(
        pl.col("base").first() + pl.col("interaction").sum(), pl.col("prediction").first()
    )
    np.testing.assert_allclose(sums["base"].to_numpy(), sums["prediction"].to_numpy(), rtol=1e-9)
    for feature in case.forest.spec.feature_names:
        half = pl.when(pl.col("feature") == pl.col("other")).then(1.0).otherwise(0.5) * pl.col("interaction")
        own = pairs.with_columns(half.alias("half")).filter(
            (pl.col("feature") == feature) | (pl.col("other") == feature)
        )
        whole = own.group_by(keys).agg(pl.col("half").sum())
        joined = found["shap"].join(whole, on=keys, how="left").fill_null(0.0)
        np.testing.assert_allclose(joined["half"].to_numpy(), joined[f"c_{feature}"].to_numpy(), rtol=1e-6, atol=1e-9)


def test_explanations__are_the_same_by_threads_and_memory(tmp_path: Any) -> None:
    case = made("three classes, hard votes")
    parts = ["permutation", "local", "contributions", "shap", "interactions", "dependence", "effects"]
    options: dict[str, Any] = {"parts": parts, "individual": 2, "sample": 30}
    memory = bf.plan_explanation(case.forest, case.data, parts=parts, individual=2, sample=30).smallest
    one = case.forest.explain(case.data, threads=1, **options)
    for way in ({"threads": 2}, {"memory": memory, "threads": 2}):
        other = case.forest.explain(case.data, **way, **options)
        assert all(one[table].equals(other[table], null_equal=True) for table in one.tables)
    with pytest.raises(ConfigError, match="memory"):
        case.forest.explain(case.data, memory=memory - 1_000_000, **options)
