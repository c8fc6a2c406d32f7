"""Arguments of the public functions that users get wrong, or give as numpy has them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bigforest
from bigforest.encode.arguments import plain_options
from bigforest.errors import ConfigError
from bigforest.execution.resources import resources_of
from bigforest.options.train_config import TrainConfig
from bigforest.options.values import names_of
from bigforest.sklearn import BigForestClassifier
from bigforest.storage.paths import absolute_path, as_path, expanded


def test_numpy_scalars__are_numbers() -> None:
    resources = resources_of(np.int64(2), None, np.int64(3_000_000_000))
    assert (resources.threads, resources.memory) == (2, 3_000_000_000)
    assert plain_options({"trees": np.uint8(7), "mtry": np.float32(0.5), "ranks": np.True_}) == {
        "trees": 7,
        "mtry": 0.5,
        "ranks": True,
    }


@pytest.mark.parametrize(
    "ask",
    [
        lambda forest, table, one: forest.shrink(one).shrinkage,
        lambda forest, table, one: forest.sharpen(one).power,
        lambda forest, table, one: forest.plot.waterfall(table, row=one).to_dict(),
        lambda forest, table, one: forest.plot.tree(one, depth=one).to_dict(),
        lambda forest, table, one: bigforest.compare(
            table, "y", candidates=one + type(one)(1), budget=one * 600, options={"trees": 1}
        ).candidates["loss"].to_list(),
        lambda forest, table, one: bigforest.train(table, "y", trees=1, tune=one + type(one)(1)).oob.error,
        lambda forest, table, one: (
            BigForestClassifier(1, categories=[one], random_state=0)
            .fit(table.drop("y"), table["y"])
            .forest_.spec.features
        ),
        lambda forest, table, one: bigforest.bayes_error("multimodal", dims=2, draws=one + type(one)(1)),
    ],
)  # fmt: skip
def test_numpy_scalars__are_numbers_in_every_function(ask: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    table = pl.DataFrame({"x": [float(k * 7 % 40) for k in range(40)], "n": [k % 3 for k in range(40)]})
    table = table.with_columns(y=pl.col("x") > 20)
    forest = bigforest.train(table, "y", trees=2)
    assert ask(forest, table, np.int64(1)) == ask(forest, table, 1)


def test_numpy_scalars__of_a_report(tmp_path: Path) -> None:
    forest = bigforest.train({"x": range(40), "y": [0, 1] * 20}, "y", trees=2)
    assert bigforest.report_forest(forest, out=tmp_path / "r.html", trees=np.int64(1)).exists()


@pytest.mark.parametrize("given", [None, 5, [1], ["a", None]])
def test_names_of__what_is_no_name(given: Any) -> None:
    with pytest.raises(ConfigError, match="keep must be names of columns"):
        names_of(given, "keep")


@pytest.mark.parametrize(("given", "kept"), [({}, None), ({"a": Decimal(2)}, (("a", 2.0),)), ({3: 1.5}, (("3", 1.5),))])
def test_class_weight__of_a_mapping(given: dict[Any, float], kept: object) -> None:
    assert TrainConfig(class_weight=given).class_weight == kept  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (np.int8(3), "3"),
        (np.False_, "false"),
        (np.float32(0.5), "0.5"),
        (np.str_("late"), "late"),
        (np.datetime64("2026-11-22"), "2026-11-22"),
        (np.datetime64("2026-11-22T01:02:03", "ns"), "2026-11-22 01:02:03"),
    ],
)
@pytest.mark.parametrize("weight", [np.float32(2.5), np.float64(2.5), np.int64(2)])
def test_class_weight__of_scalars_of_numpy(label: Any, text: str, weight: Any) -> None:
    assert TrainConfig(class_weight={label: weight}).class_weight == ((text, float(weight)),)


@pytest.mark.parametrize("given", [{"a": 2, " a": 3}, '{"a": 2, "a": 3}', [("a", 2), ("a", 3)]])
def test_class_weight__of_a_class_named_twice(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"names (a class twice|the class 'a' more than once)"):
        bigforest.train({"x": [1.0, 2.0] * 10, "y": ["a", "b"] * 10}, "y", trees=2, class_weight=given)


@pytest.mark.parametrize(("label", "column"), [("True", [True, False]), (" 7.0", [7, 8]), ("7", [7.0, 8.0])])
def test_class_weight__of_a_class_written_in_another_way(label: str, column: list[Any]) -> None:
    table = {"x": [1.0, 2.0] * 10, "y": column * 10}
    given, same = (
        bigforest.train(table, "y", trees=2, task="classification", class_weight={key: 3.0})
        for key in (label, column[0])
    )
    assert given.spec.weight == same.spec.weight and max(given.spec.weight.classes) == 3.0


@pytest.mark.parametrize(
    "names",
    [np.array(["a", "b"]), pd.Index(["a", "b"]), pl.Series(["a", "b"]), {"a": 0, "b": 0}.keys(), iter(("a", "b"))],
)
def test_names__of_an_array_or_index(names: Any) -> None:
    kept = TrainConfig(categories=names).categories
    assert kept == ("a", "b") and {type(name) for name in kept} == {str}
    with pytest.raises(ConfigError, match="categories must be names of columns"):
        TrainConfig(categories=np.array([["a"]]))  # type: ignore[arg-type]
    assert TrainConfig(categories=np.array("a")).categories == ("a",)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [np.array([5, 54]), [5, np.int8(54)], pl.Series([5, 54]), "5, 54"])
def test_min_level__of_several_numbers(given: Any) -> None:
    assert TrainConfig(min_level=given).min_level == "5,54"


def test_class_weight__of_an_estimator_from_a_series() -> None:
    x, y = np.arange(40.0)[:, None], np.arange(40) % 2
    weights = {0: 1.0, 1: 2.5}
    ours, same = (
        BigForestClassifier(n_estimators=3, random_state=0, class_weight=given).fit(x, y).predict_proba(x)
        for given in (pd.Series(weights), weights)
    )
    assert (ours == same).all()


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), 10**400, "2", True, None])
def test_class_weight__that_is_none(weight: object) -> None:
    with pytest.raises(ConfigError, match="class_weight must be above 0 and finite"):
        TrainConfig(class_weight={"a": weight})  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["null", "[1]", '"balanced"', "3", "{", ""])
def test_class_weight__of_a_file_without_an_object(tmp_path: Path, content: str) -> None:
    (tmp_path / "w.json").write_text(content)
    with pytest.raises(ConfigError, match="cannot be read: "):
        plain_options({"class_weight": tmp_path / "w.json"})


def test_paths__begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    pl.DataFrame({"a": [1, 2], "y": [0, 1]}).write_parquet(tmp_path / "t.parquet")
    assert as_path("~/t.parquet") == as_path(Path("~/t.parquet")) == tmp_path / "t.parquet"
    assert absolute_path("~/*.parquet") == tmp_path / "*.parquet"
    assert expanded("~/*.parquet") == [tmp_path / "t.parquet"]
    assert bigforest.plan_training("~/t.parquet", out="~/f").rows == 2


def test_paths__go_up_from_the_target_of_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "folder")
    rows = pl.DataFrame({"a": [1.0, 2.0] * 4, "y": [0, 1] * 4})
    rows.write_parquet(tmp_path / "far" / "t.parquet")
    rows.reverse().write_parquet(tmp_path / "t.parquet")  # the one that the text alone leads to
    monkeypatch.chdir(tmp_path)
    bigforest.train("link/../t.parquet", "y", out="f", trees=2)
    forest = bigforest.read_forest("f")
    assert forest.origin is not None
    assert forest.origin.data == str(tmp_path / "far" / "t.parquet")
    assert absolute_path("f/../link/*.parquet") == tmp_path / "link" / "*.parquet"


@pytest.mark.parametrize("given", ["", None, 5, b"t.parquet"])
def test_paths__that_are_none(given: Any) -> None:
    with pytest.raises(ConfigError, match="a path was expected"):
        as_path(given)


@pytest.mark.parametrize(
    ("given", "task"), [(None, "classification"), (None, "regression"), ("gini", "classification")]
)
def test_impurity__that_was_not_said(given: Any, task: Any) -> None:
    config = TrainConfig(impurity=given).for_task(task)
    assert config.impurity == config.criterion == ("gini" if task == "classification" else "variance")
    assert config.for_task(task) == config


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("regression", {"impurity": "gini"}, "the impurity gini is for classification"),
        ("regression", {"vote": "hard"}, "vote 'hard' is for classification"),
        ("regression", {"family": "subspace-cap", "bootstrap": False}, "the family subspace-cap is for classification"),
        ("regression", {"family": "sparse-oblique", "mean_difference": "all"}, "difference 'all' is for class"),
        ("regression", {"sampling": "balanced"}, "sampling 'balanced' is for classification, and this is a regression"),
        ("regression", {"class_weight": "balanced"}, "class_weight 'balanced' is for classification"),
        ("regression", {"power": 2}, r"power 2\.0 is for classification"),
        ("regression", {"family": "rotation", "rotation": "pca-classes"}, "pca-classes samples classes, .* use pca"),
        ("classification", {"impurity": "variance"}, "the impurity variance is for regression"),
        ("classification", {"impurity": "poisson"}, "the impurity poisson .* or the task regression where the"),
        ("regression", {"impurity": "poisson", "family": "rotation"}, "rotation splits by the variance; use .* axis"),
    ],
)
def test_settled__refuses_what_is_of_the_other_task(task: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**options).for_task(task)


def test_store__is_not_asked_for_more_features_than_it_has(tmp_path: Path) -> None:
    table = pl.DataFrame({"a": [1, 2, 3], "b": [1, 0, 1], "y": [0, 1, 1]})
    store = bigforest.encode_store(table, tmp_path / "s")
    for kept in (store, tmp_path / "s"):
        for function in (bigforest.train, bigforest.plan_training):
            with pytest.raises(ConfigError, match="the table has 2 features and a node cannot draw 3"):
                function(kept, mtry=3)  # type: ignore[operator]
        with pytest.raises(ConfigError, match="was made with target 'y'"):
            bigforest.plan_training(kept, "a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threads": 10**6}, "threads must be a whole number from 1 to 1024, not 1000000$"),
        ({"threads": 10**5000}, "threads must be .* not a number of thousands of digits$"),
        ({"memory": "9" * 400}, "memory must be a size such as .*, at most 9223372036854775807, not '9{39}...9{19}'$"),
        ({"memory": "9" * 400 + "GB"}, "memory must be a size"),
        ({"memory": 10**400}, "memory must be a size"),
        ({"axes": 10**9, "family": "rotation"}, "axes must be a whole number from 1 to 65536, not 1000000000$"),
        ({"trees": 10**400}, "trees must be a whole number from 1 to 1000000, not 10{39}...0{20}$"),
    ],
)
def test_train__numbers_beyond_all_reason(arguments: dict[str, Any], message: str) -> None:
    table = pl.DataFrame({"x": [1, 2, 3, 4], "y": ["a", "b", "a", "b"]})
    with pytest.raises(ConfigError, match=message):
        bigforest.train(table, "y", **arguments)
