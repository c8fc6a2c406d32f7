"""What is learned of a target: whole numbers that measure, and targets of one class or one number."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.events import Compiling, Event, Notice
from tests.commands import Run, folder, run

__all__ = ["folder", "run"]

ROWS = 400
FAMILIES: dict[str, dict[str, Any]] = {
    "axis": {},
    "sparse-oblique": {"mean_difference": "all"},
    "rotation": {},
    "tree": {"trees": 1},
    "subspace-cap": {"subspace": 2},
    "subspace-perceptron": {"subspace": 2},
}


def table(target: Any, rows: int = ROWS) -> pl.DataFrame:
    draw = np.random.default_rng(5)
    return pl.DataFrame({**{f"x{place}": draw.normal(size=rows) for place in range(4)}, "y": target})


def notices(data: Any, **options: Any) -> tuple[bigforest.Forest, list[str]]:
    heard: list[Event] = []
    forest = bigforest.train(data, "y", listener=heard.append, **{"trees": 2, **options})
    return forest, [event.message for event in heard if isinstance(event, Notice) and not isinstance(event, Compiling)]


WHOLE = np.arange(ROWS)
TASKS = {
    "prices": (WHOLE * 250 + 100_000, "regression"),
    "years": (WHOLE % 20 + 1990, "regression"),
    "delays": (WHOLE % 25 - 5, "regression"),
    "many from 0": (WHOLE % 31, "regression"),
    "rare counts": (np.minimum(WHOLE, 8), "regression"),
    "numbered from 0": (WHOLE % 30, "classification"),
    "numbered from 1": (WHOLE % 26 + 1, "classification"),
    "digits without 4": (WHOLE % 4 * 3, "classification"),
    "two": (WHOLE % 2 * 900, "classification"),
    "text": ([f"n{number // 2}" for number in WHOLE], None),
}


@pytest.mark.parametrize("case", TASKS)
def test_whole_numbers__are_classes_where_they_look_numbered_and_a_notice_says_so(case: str, tmp_path: Path) -> None:
    target, task = TASKS[case]
    data = table(target)
    data.write_parquet(tmp_path / "table.parquet")
    other = {"regression": "classification", "classification": "regression"}
    forest, said = notices(data)
    assert forest.is_regression == (task == "regression")
    told = [] if task is None else [f"so this is a {task}; set task to {other[task]} if"]
    assert [text[text.index("so this") :][: len(told[0])] for text in said if "so this" in text] == told
    for given in (data, tmp_path / "table.parquet"):
        assert (bigforest.plan_training(given, "y").classes == 1) == forest.is_regression
    if task is not None:
        forest, said = notices(data, task=other[task])
        assert forest.is_regression == (task != "regression") and said == []


def test_whole_numbers__of_any_number_measure() -> None:
    assert notices(table(np.arange(70_000), 70_000), max_depth=2)[0].is_regression


@pytest.mark.parametrize("family", FAMILIES)
def test_one_class__is_a_forest_of_leaves(family: str, tmp_path: Path) -> None:
    data = table(pl.repeat("a", ROWS, eager=True))
    forest, said = notices(data, family=family, out=tmp_path / "one.forest", **FAMILIES[family])
    said = [text for text in said if not text.startswith("compiling")]
    assert said == ["all rows have the same value in 'y', so every tree is a single leaf"]
    assert forest.nodes.collect().height == forest.trees
    assert forest.predict(data)["prediction"].to_list() == ["a"] * ROWS
    assert forest.predict(data.lazy(), vote="stochastic").collect()["prediction"].to_list() == ["a"] * ROWS
    assert forest.predict_proba(data)["p_a"].to_list() == [1.0] * ROWS
    if forest.has_oob:
        assert forest.oob.error == 0.0 and forest.oob.metrics["recall"].to_list() == [1.0, 1.0]
    assert bigforest.validate_forest(forest, data)["error"].to_list() == [0.0] * forest.trees
    for revise in (bigforest.prune_forest, bigforest.calibrate_forest):
        assert revise(forest, data, tmp_path / revise.__name__).predict(data)["prediction"].n_unique() == 1


@pytest.mark.parametrize("value", [0.0, 1.5, -3e10, 1e-300, 7])
def test_one_number__is_a_forest_of_leaves(value: float) -> None:
    data = table(pl.repeat(value, ROWS, eager=True)).with_columns(w=pl.int_range(1, ROWS + 1))
    options = {"task": "regression", "keep_targets": True, "weight": "w"}
    forest, said = notices(data, **options)
    said = [text for text in said if not text.startswith("compiling")]
    assert said == ["all rows have the same value in 'y', so every tree is a single leaf"]
    assert forest.nodes.collect().height == forest.trees
    answers = forest.predict(data, quantiles=[0.1, 0.9])
    assert [answers[name].unique().to_list() for name in answers.columns] == [[value]] * 3
    assert forest.oob.metrics.row(0)[1:] == (1.0, 0.0, 0.0) and forest.oob.error == 0.0


def test_one_number__forests_are_merged(tmp_path: Path) -> None:
    data = table(pl.repeat(1.5, ROWS, eager=True))
    forests = [bigforest.train(data, "y", trees=2, seed=seed, keep_targets=True) for seed in (1, 2)]
    merged = bigforest.merge(forests, tmp_path / "merged")
    assert merged.predict(data, quantiles=[0.5])["q0.5"].unique().to_list() == [1.5]


def test_one_class__on_the_command_line(run: Run, folder: Path) -> None:
    table(pl.repeat(3, ROWS, eager=True)).write_parquet("one.parquet")
    run("train", "one.parquet", "--trees", "3")
    assert run.code == 0 and "every tree is a single leaf" in run.err
    assert run.json("predict", "one.forest", "one.parquet", "--quiet")["accuracy"] == 1.0
    for command in (["oob", "one.forest"], ["inspect", "one.forest", "--trees"], ["plan", "one.parquet"]):
        assert run(*command).code == 0


def test_many_whole_numbers__on_the_command_line(run: Run, folder: Path) -> None:
    table(WHOLE * 3).write_parquet("prices.parquet")
    run("train", "prices.parquet", "--trees", "3")
    assert run.code == 0 and "set --task to classification" in run.err and "MSE" in run.out


def masked(values: Any, *cells: Any) -> Any:
    found = np.ma.masked_array(values, mask=False)
    for cell in cells:
        found[cell] = np.ma.masked
    return found


def test_masked_arrays__a_masked_cell_is_missing() -> None:
    features = table(0).drop("y").to_numpy()
    labels = (features[:, 0] > 0).astype(np.int8)
    missing = features.copy()
    missing[3:90, 0] = np.nan
    target = pl.Series("target", [None if place == 7 else label for place, label in enumerate(labels)], pl.Int8)
    expected = bigforest.train(
        pl.DataFrame(missing, schema=[f"x{place}" for place in range(4)]).with_columns(target), trees=3
    )
    found = bigforest.train((masked(features, np.s_[3:90, 0]), masked(labels, 7)), trees=3)
    assert (found.spec.dropped, found.spec.target.dtype) == (1, "Int8")
    assert found.nodes.collect().equals(expected.nodes.collect())
    answers = found.predict(masked(features, np.s_[3:90, 0]))
    assert answers.tolist() == expected.predict(missing).tolist() != expected.predict(features).tolist()


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_matrix__is_an_array() -> None:
    features = table(0).drop("y").to_numpy()
    forest = bigforest.train((features, features[:, 0] > 0), trees=3)
    matrix = np.matrix(features)
    assert forest.predict(matrix).tolist() == forest.predict(features).tolist()
    assert forest.predict_proba(matrix).tolist() == forest.predict_proba(features).tolist()
    again = bigforest.train((matrix, features[:, 0] > 0), trees=3)
    assert again.nodes.collect().equals(forest.nodes.collect())


def test_pickle__of_a_forest_without_a_folder_carries_it() -> None:
    data = table(WHOLE % 3)
    forest = bigforest.train(data, "y", trees=3)
    expected, packed = forest.predict(data), pickle.dumps(forest)
    del forest
    gc.collect()
    again = pickle.loads(packed)
    assert again.predict(data).equals(expected)
    assert again.oob.rows.collect().height == ROWS


def test_decimals__of_too_many_digits_are_named_as_they_are() -> None:
    data = table(WHOLE % 3).with_columns(d=pl.lit("12345678901.5000000001").cast(pl.Decimal(38, 10)))
    with pytest.raises(bigforest.DataError, match=r"d \(12345678901\.5000000001 has too many digits: cast it"):
        bigforest.train(data, "y", trees=3)
