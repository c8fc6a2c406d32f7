"""Weights of any range: what nodes hold is right by exact arithmetic, however trees grow, and reports weigh alike."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.errors import BigForestError
from bigforest.events import Event, Notice, silent
from bigforest.execution.resources import Resources
from bigforest.forest.parts import part_paths
from bigforest.grow.forest import ForestJob
from bigforest.grow.memory import GrowPlan
from bigforest.oob.weigh import weigh_estimate
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, Shape
from bigforest.sampling.bags import Sampler
from bigforest.store.store import Store
from bigforest.training.run import grow_forest
from tests.grow.test_passes import WHOLE, ways
from tests.naive.weights import held, mean, variance
from tests.thorough import examples

# Weights over nine orders of magnitude, as shares of the largest.
SHARES = st.floats(-9.0, 0.0).map(lambda exponent: 10.0**exponent)
WHOLES = st.integers(0, 9).flatmap(lambda digits: st.integers(1, 10**digits)).map(float)
FAMILIES: list[dict[str, Any]] = [
    {"family": "axis", "trees": 2},
    {"family": "tree", "trees": 1},
    {"family": "sparse-oblique", "trees": 2},
    {"family": "rotation", "trees": 2, "axes": 2},
]


def grown(store: Store, config: TrainConfig, way: GrowPlan, *, mapped: bool = False) -> tuple[list[bytes], list[bytes]]:
    """The parts of a forest and its ballots, grown in that way; what has to be compiled is compiled when it is called.

    mapped  weighed within a budget in which the nodes do not fit
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        patch("bigforest.grow.forest.compile_for"),
        patch("bigforest.oob.weigh._NODE_BYTES", 10**12 if mapped else 64),
    ):
        resources = Resources(threads=1, memory=10**9 if mapped else None)
        grow_forest(ForestJob(store, config, Path(folder), resources, silent), plan=way)
        ballots = sorted(Path(folder).glob("votes/*.ballots"))
        return [path.read_bytes() for path in part_paths(Path(folder))], [path.read_bytes() for path in ballots]


def check(parts: list[bytes], frame: pl.DataFrame, store: Store, config: TrainConfig, near: float) -> None:
    """Every node has the classes, or the mean, weight and gain, of the rows of the bag that pass it."""
    nodes = pl.concat([pl.read_parquet(part) for part in parts])
    rows = frame.to_dicts()
    target, spec = frame["y"].to_list(), store.spec
    for (tree,), table in nodes.group_by("tree", maintain_order=True):
        times = Sampler(store, config).bag(int(str(tree))).tolist()
        weights = [Fraction(row["w"]) * often for row, often in zip(rows, times, strict=True)]
        own = held(table.to_dicts(), rows, weights)
        for node, inside in zip(table.to_dicts(), own, strict=True):
            total = sum(weight for _, weight in inside)
            assert spec.weight is not None
            assert node["weight"] * spec.weight.step == pytest.approx(float(total), rel=near)
            if node["counts"] is None:
                values = [Fraction(value) for value in target]
                size = float(mean([abs(value) for value in values], inside))
                assert abs(node["value"] - float(mean(values, inside))) <= near * size + 1e-12
                spread = float(variance(values, inside))
                assert node["gain"] is None or -1e-12 <= node["gain"] <= spread * (1 + near) + 1e-12
                continue
            for count, label in zip(node["counts"], spec.target.classes, strict=True):
                exact = sum((weight for row, weight in inside if target[row] == label), Fraction())
                assert count / sum(node["counts"]) == pytest.approx(float(exact / total), rel=near, abs=0.0)


@given(
    data=st.data(),
    family=st.sampled_from(FAMILIES),
    way=ways(),
    whole=st.booleans(),
    numbers=st.booleans(),
    mapped=st.booleans(),
)
@settings(deadline=None, max_examples=examples(40))
def test_nodes__hold_the_weights_of_their_rows(
    data: st.DataObject, family: dict[str, Any], way: GrowPlan, whole: bool, numbers: bool, mapped: bool
) -> None:
    size = data.draw(st.integers(2, 40))
    columns = {
        name: data.draw(st.lists(st.integers(-4, 4).map(float), min_size=size, max_size=size)) for name in ("a", "b")
    }
    weights = data.draw(st.lists(WHOLES if whole else SHARES, min_size=size, max_size=size))
    if whole:
        weights[0] *= 1e4  # so that they are wide
    target = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    target[:2] = [0, 1]
    frame = pl.DataFrame({**columns, "w": weights, "y": target})
    task = "regression" if numbers else "classification"
    config = TrainConfig.of(weight="w", task=task, seed=data.draw(st.integers(0, 9)), min_leaf=1, **family)
    with tempfile.TemporaryDirectory() as folder:
        store = bigforest.encode_store(frame, Path(folder) / "s", target="y", weight="w", task=task)
        parts = grown(store, config, WHOLE)
        if store.spec.wide_weights:
            check(parts[0], frame, store, config, 1e-12 if whole else 1e-6)
        assert grown(store, config, way, mapped=mapped) == parts


@pytest.mark.parametrize("family", ["rotation", "sparse-oblique"])
def test_nodes__on_projections_of_a_single_feature(family: str) -> None:
    x = np.arange(40.0) % 7
    frame = pl.DataFrame({"x": x, "w": [1.0, 2.5] * 20, "y": np.where(x > 3, "high", "low")})
    forest = bigforest.train(frame, target="y", weight="w", family=family, trees=2)
    assert forest.score(frame) == 1.0


@pytest.mark.parametrize("weight", [0.1, 1 / 3, 1e-12, 3e12])
def test_equal_weights__grow_the_forest_without_weights(weight: float) -> None:
    table = pl.DataFrame({"x": [(7 * i) % 50 for i in range(200)], "kind": [f"{i % 9}" for i in range(200)]})
    table = table.with_columns(y=pl.Series([f"{(i * i) % 7 % 3}" for i in range(200)]))
    plain = bigforest.train(table, "y", trees=4)
    equal = bigforest.train(table.with_columns(w=pl.lit(weight)), "y", weight="w", trees=4)
    assert equal.predict_proba(table).equals(plain.predict_proba(table))
    assert equal.oob.error == plain.oob.error


@pytest.mark.parametrize(("few", "many"), [(10, 50_000), (1, 2_000), (3, 7_001)])
def test_balanced__is_balanced(few: int, many: int) -> None:
    frame = pl.DataFrame({"x": range(few + many), "y": [0] * few + [1] * many})
    forest = bigforest.train(frame, "y", trees=1, family="tree", max_depth=0, class_weight="balanced")
    [counts] = forest.nodes.collect()["counts"].to_list()
    assert counts[0] == counts[1] > 0
    assert forest.predict_proba(frame[:1])["p_0"].to_list() == [0.5]


def test_min_leaf__no_leaf_of_light_rows_is_lighter_than_a_row_of_mean_weight() -> None:
    random = np.random.default_rng(5)
    frame = pl.DataFrame({"x": random.normal(size=300), "y": random.integers(0, 2, 300)})
    weights = {0: 1.0, 1: 0.01}
    mean_weight = sum(weights[label] for label in frame["y"]) / 300

    def lightest(**options: Any) -> float:
        forest = bigforest.train(frame, "y", trees=3, class_weight=weights, **options)
        leaves = forest.nodes.filter(kind="leaf").collect()
        assert forest.config.min_leaf == options.get("min_leaf", 2)
        assert forest.spec.weight is not None
        return float(leaves["weight"].min()) * forest.spec.weight.step  # type: ignore[arg-type]

    assert lightest(min_leaf=1) < mean_weight / 2
    assert lightest() >= 0.9 * mean_weight
    for other in ({0: 2.0}, {0: 1.0, 1: 1.0}):
        assert bigforest.train(frame, "y", trees=1, class_weight=other).config.min_leaf == 1
    spec = bigforest.train(frame, "y", trees=1, class_weight={0: 2.0}).spec.weight
    assert spec is not None and not spec.uneven
    assert not replace(spec, classes=(0.0, 1.0, 2.0)).uneven and replace(spec, classes=(0.0, 1.0, 2.1)).uneven
    assert not replace(spec, classes=()).uneven


def test_mean__of_one_heavy_row() -> None:
    frame = pl.DataFrame({"x": range(100), "w": [1e5] + [1.0] * 99, "y": [0.0] + [1.0] * 99})
    forest = bigforest.train(frame, "y", trees=1, family="tree", max_depth=0, weight="w", task="regression")
    assert forest.nodes.collect()["value"].to_list() == [pytest.approx(99 / 100_099, rel=1e-9)]


def test_notice__of_weights_that_the_search_raises() -> None:
    frame = pl.DataFrame({"x": range(4), "w": [1e6, 1.0, 1e6, 1e-15], "y": [0, 1, 0, 1]})
    heard: list[Event] = []
    bigforest.train(frame, "y", task="classification", trees=1, weight="w", listener=heard.append)
    told = [event.message for event in heard if isinstance(event, Notice)]
    assert len(told) == 2
    assert told[0].startswith("weights below 1 / 4095 of the largest, in 2 rows: the search")
    assert told[1].startswith("weights in 1 row are so small compared with the others that they are rounded")


def skewed(rows: int, seed: int = 3) -> pl.DataFrame:
    """Weights over nine orders, a class, and a number to predict."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, rows))
    late = a + random.normal(0, 0.5, rows)
    return pl.DataFrame({"a": a, "b": b, "w": 10.0 ** random.uniform(-9, 0, rows), "late": late, "y": (late > 0) * 1})


def sets_of(frame: pl.DataFrame, tmp_path: Path, **options: Any) -> bigforest.Forest:
    return bigforest.train(frame, trees=20, seed=2, weight="w", out=tmp_path / "f", threads=2, **options)


def test_oob__weighs_rows_of_classes(tmp_path: Path) -> None:
    frame = skewed(400)
    forest = sets_of(frame, tmp_path, target="y", exclude=["late"])
    rows = forest.oob.rows.collect().filter(pl.col("prediction").is_not_null())
    weight = frame["w"].to_numpy()[rows["row"].to_numpy()]
    truth, answer, share = (rows[name].to_numpy() for name in ("truth", "prediction", "p_1"))
    wrong = float(weight[truth != answer].sum() / weight.sum())
    assert forest.oob.error == pytest.approx(wrong, rel=1e-6)
    assert forest.oob.rows_used == len(rows)
    whole = forest.oob.metrics.filter(pl.col("class").is_null()).row(0, named=True)
    chance = np.where(truth == 1, share, 1 - share).clip(np.finfo(float).eps, 1)
    assert whole["log_loss"] == pytest.approx(float((weight * -np.log(chance)).sum() / weight.sum()), rel=1e-6)
    assert whole["brier"] == pytest.approx(float((weight * (share - truth) ** 2).sum() / weight.sum()), rel=1e-6)
    one = forest.oob.metrics.filter(pl.col("class") == 1).row(0, named=True)
    both = weight[(truth == 1) & (answer == 1)].sum()
    assert one["precision"] == pytest.approx(both / weight[answer == 1].sum(), rel=1e-6)
    assert one["recall"] == pytest.approx(both / weight[truth == 1].sum(), rel=1e-6)
    assert one["rows"] == (truth == 1).sum()
    above = (share[truth == 1][:, None] > share[truth == 0]) + (share[truth == 1][:, None] == share[truth == 0]) / 2
    pairs = np.outer(weight[truth == 1], weight[truth == 0])
    assert one["auc"] == pytest.approx(float((above * pairs).sum() / pairs.sum()), rel=1e-6)
    assert forest.oob.confusion is not None
    for pair in forest.oob.confusion.to_dicts():
        own = weight[(truth == pair["truth"]) & (answer == pair["prediction"])]
        assert (pair["rows"], pair["weight"]) == (own.size, pytest.approx(own.sum(), rel=1e-6))


def test_oob__weighs_rows_of_numbers(tmp_path: Path) -> None:
    frame = skewed(400)
    forest = sets_of(frame, tmp_path, target="late", exclude=["y"], task="regression")
    rows = forest.oob.rows.collect().filter(pl.col("prediction").is_not_null())
    weight = frame["w"].to_numpy()[rows["row"].to_numpy()]
    truth, answer = rows["truth"].to_numpy(), rows["prediction"].to_numpy()
    assert truth.tolist() == frame["late"].to_numpy()[rows["row"].to_numpy()].tolist()
    mse = float(np.average((truth - answer) ** 2, weights=weight))
    spread = float(np.average((truth - np.average(truth, weights=weight)) ** 2, weights=weight))
    found = forest.oob.metrics.row(0, named=True)
    assert found["mse"] == pytest.approx(mse, rel=1e-6)
    assert found["mae"] == pytest.approx(float(np.average(np.abs(truth - answer), weights=weight)), rel=1e-6)
    assert found["r2"] == pytest.approx(1 - mse / spread, rel=1e-6)
    assert forest.oob.error == pytest.approx(mse, rel=1e-6)


@pytest.mark.parametrize("target", ["y", "late"])
def test_stop_oob__evaluates_as_the_report_does(target: str, tmp_path: Path) -> None:
    frame = skewed(300).drop("y" if target == "late" else "late")
    task = "regression" if target == "late" else None
    options: dict[str, Any] = {"weight": "w", "seed": 2, "task": task}
    settled = bigforest.train(frame, target, trees=200, stop_oob=0.5, **options)
    again = bigforest.train(frame, target, trees=settled.trees, **options)
    assert 40 <= settled.trees < 200
    assert settled.oob.curve.equals(again.oob.curve)
    assert settled.nodes.collect().equals(again.nodes.collect())


def test_weigh_estimate__counts_all_tasks_at_once() -> None:
    shape = Shape(1_000_000, (4,) * 10, 10**7, 2)
    one, three = (weigh_estimate(shape, TrainConfig(), Resources(threads=threads)).memory for threads in (1, 3))
    assert three - BASE_BYTES == 3 * (one - BASE_BYTES)
    limited = weigh_estimate(shape, TrainConfig(), Resources(threads=3, memory=2 * one))
    assert one < limited.memory <= 2 * one


def test_resume__weighs_what_is_left(tmp_path: Path) -> None:
    frame = skewed(300).drop("late")
    whole = bigforest.train(frame, "y", trees=9, seed=4, weight="w", out=tmp_path / "whole")
    bigforest.train(frame, "y", trees=4, seed=4, weight="w", out=tmp_path / "f")
    more = bigforest.train(frame, trees=9, resume=tmp_path / "f")
    assert more.nodes.collect().equals(whole.nodes.collect())
    assert not (tmp_path / "f" / "light").exists()


def test_quantiles__of_wide_weights(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [0.0] * 5, "w": [1e9, 1e-3, 2e9, 3e9, 4e9], "y": [1.1, 2.2, 3.3, 4.4, 5.5]})
    forest = bigforest.train(
        frame, "y", trees=1, family="tree", weight="w", keep_targets=True, task="regression", out=tmp_path / "f"
    )
    found = forest.predict(frame[:1], quantiles=[0.05, 0.25, 0.59, 0.61])
    assert found.row(0)[1:] == (1.1, 3.3, 4.4, 5.5)


def test_subspaces__refuse_weights() -> None:
    with pytest.raises(BigForestError, match="weight"):
        bigforest.train(skewed(50).drop("late"), "y", trees=2, family="subspace-cap", weight="w")
