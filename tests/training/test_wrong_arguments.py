"""Wrong arguments of the public functions are refused in words that name them, whatever their type."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import BigForestError, ConfigError, DataError

# Values for which `in`, `==` and `if` fail or answer with tables.
AMBIGUOUS = [
    *[np.zeros(2), np.array([]), pl.Series([1, 2]), pl.DataFrame(), pl.DataFrame({"a": [1.5]}), pd.DataFrame()],
    *[pl.col("a"), ["soft"], {}],
]
OTHERS = [True, 5, 1.5, float("nan"), "nonsense", b"soft", None, object(), 3 + 4j, Path("x")]


def table() -> pl.DataFrame:
    draw = np.random.default_rng(0)
    frame = pl.DataFrame({"a": draw.normal(size=60), "b": draw.integers(0, 9, 60), "s": draw.choice(["x", "y"], 60)})
    return frame.with_columns(late=pl.col("a") > 0)


@pytest.fixture(scope="module")
def forest() -> bf.Forest:
    return bf.train(table(), "late", trees=3)


def calls(forest: bf.Forest, out: Path) -> dict[str, Callable[..., Any]]:
    """The public functions with their first arguments, as they are called."""
    rows, sql = table(), out.with_suffix(".sql")
    return {
        "train": lambda **options: bf.train(rows, "late", **{"trees": 2, **options}),
        "encode_store": lambda **options: bf.encode_store(rows, out, target="late", **options),
        "plan_training": lambda **options: bf.plan_training(rows, "late", **options),
        "compare": lambda **options: bf.compare(rows, "late", **{"candidates": 2, "options": {"trees": 25}, **options}),
        "predict_file": lambda **options: bf.predict_file(forest, rows, out, **options),
        "prune_forest": lambda **options: bf.prune_forest(forest, rows, out, **options),
        "calibrate_forest": lambda **options: bf.calibrate_forest(forest, rows, out, **options),
        "merge": lambda **options: bf.merge([forest, forest], out, **options),
        "validate_forest": lambda **options: bf.validate_forest(forest, rows, **options),
        "shrink_forest": lambda **options: bf.shrink_forest(forest, out, **{"data": rows, **options}),
        "explain_forest": lambda **options: bf.explain_forest(forest, rows, **options),
        "plan_explanation": lambda **options: bf.plan_explanation(forest, rows, **options),
        "simulate": lambda **options: bf.simulate(**{"kind": "trunk", "rows": 5, "dims": 3, **options}),
        "images_to_features": lambda **options: bf.images_to_features(
            np.zeros((3, 4, 4), np.uint8), out.with_suffix(".parquet"), **options
        ),
        "export_forest": lambda **options: bf.export_forest(forest, sql, **{"to": "sql", **options}),
        "predict": lambda **options: forest.predict(rows, **options),
        "predict_proba": lambda **options: forest.predict_proba(rows, **options),
        "apply": lambda **options: forest.apply(rows, **options),
        "expr": lambda **options: forest.expr(**options),
        "to_sql": lambda **options: forest.to_sql(**options),
    }


@pytest.fixture
def called(forest: bf.Forest, tmp_path: Path) -> dict[str, Callable[..., Any]]:
    return calls(forest, tmp_path / "out")


# Of each kind of argument those who have it, with what else they need.
WORDS = [
    *[(function, name) for function in ("predict", "predict_file", "expr") for name in ("vote", "ties", "unseen")],
    *[("train", name) for name in ("vote", "ties", "sampling", "rotation", "family", "impurity")],
    *[("validate_forest", "vote"), ("validate_forest", "ties"), ("apply", "unseen"), ("predict_proba", "vote")],
    *[("prune_forest", "on_ties"), ("export_forest", "to"), ("explain_forest", "loss"), ("compare", "metric")],
    *[("images_to_features", name) for name in ("features", "stride", "on_corrupt")],
    *[("simulate", "kind"), ("explain_forest", "parts")],
]
FLAGS = [
    *[("predict", "jackknife"), ("expr", "proba"), ("expr", "jackknife"), ("predict_file", "proba")],
    *[("train", name) for name in ("bootstrap", "ranks", "keep_targets")],
    *[(name, "overwrite") for name in ("encode_store", "predict_file", "prune_forest", "calibrate_forest")],
    *[("explain_forest", "overwrite"), ("explain_forest", "new_rows")],
    *[("simulate", name) for name in ("rotate", "scale", "affine", "truth")],
    *[("images_to_features", name) for name in ("crop", "invert", "names")],
]


@pytest.mark.parametrize(("function", "name"), WORDS)
def test_word__that_is_none(function: str, name: str, called: dict[str, Callable[..., Any]]) -> None:
    for value in [*AMBIGUOUS, *(one for one in OTHERS if one is not None)]:
        with pytest.raises(ConfigError, match=f"^{name} must be "):
            called[function](**{name: value})


@pytest.mark.parametrize(("function", "name"), FLAGS)
def test_flag__that_is_neither(function: str, name: str, called: dict[str, Callable[..., Any]]) -> None:
    for value in [*AMBIGUOUS, *(one for one in OTHERS if one is not True)]:
        with pytest.raises(ConfigError, match=f"^{name} must be True or False, not "):
            called[function](**{name: value})


def heard() -> Iterator[str]:
    for name in bf.__all__:
        thing = getattr(bf, name)
        if inspect.isfunction(thing) and "listener" in inspect.signature(thing).parameters:
            yield name


@pytest.mark.parametrize("function", list(heard()))
def test_listener__is_optional_and_a_function(function: str, called: dict[str, Callable[..., Any]]) -> None:
    assert inspect.signature(getattr(bf, function)).parameters["listener"].default is None
    if function in ("plot_forest", "report_forest", "warm_up"):  # which hand it on
        return
    for value in ("loud", 5, True):
        with pytest.raises(ConfigError, match=r"^listener must be a function of one event, not "):
            called[function](listener=value)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("train", {"class_weight": np.ones(2)}, '^class_weight must be "balanced" or a mapping'),
        ("train", {"scheduler": np.ones(2)}, "^scheduler must be an address"),
        ("predict_file", {"scheduler": pl.Series([1])}, "^scheduler must be an address"),
        ("explain_forest", {"out": 5}, "^a path was expected, not 5"),
        ("explain_forest", {"groups": "a"}, "^groups must be a mapping of names to features, not 'a'"),
        ("explain_forest", {"groups": {"both": 1}, "parts": "permutation"}, "the group 'both' must list features"),
        ("explain_forest", {"features": "nope", "parts": "dependence"}, "'nope' is not a feature of the forest"),
        ("explain_forest", {"features": [5], "parts": "dependence"}, "5 is not a feature of the forest"),
        ("explain_forest", {"classes": "maybe", "parts": "contributions"}, "'maybe' is no class of the target"),
        ("explain_forest", {"features": "nope"}, "'nope' is not a feature of the forest"),
        ("explain_forest", {"classes": "maybe"}, "'maybe' is no class of the target"),
        ("explain_forest", {"groups": {"both": "nope"}}, "the group 'both' must list features"),
        ("explain_forest", {"features": [("a", ["b"])]}, r"\['b'\] is not a feature of the forest"),
        ("expr", {"proba": True, "coverage": 0.8}, "drop proba or coverage"),
        ("predict", {"coverage": 0.8, "coverage_by": pl.Series("a", [1.5] * 60)}, "Float64, and must have categories"),
        ("explain_forest", {"rows": ["a"]}, "^rows must be row numbers, not"),
        ("explain_forest", {"rows": [True, False]}, "^rows must be row numbers, not"),
        ("explain_forest", {"classes": [True, "true"]}, "one is given twice; the classes are"),
        ("explain_forest", {"parts": 5}, "^parts must be some of .*, not 5"),
        ("compare", {"options": ["trees"]}, "^options must be a mapping of options of training to values, not"),
        ("images_to_features", {"scratch": 5}, "^a path was expected, not 5"),
        ("images_to_features", {"stride": "full"}, "^stride 'full' applies to neighbours, not to pixels"),
        ("to_sql", {"table": 5}, "^table must be the name of a table, not 5"),
        ("to_sql", {"keep": [1]}, "^keep must be names of columns, not"),
        ("to_sql", {"keep": ["a", "a"]}, "^keep cannot have 'a': the query has this column"),
        ("to_sql", {"keep": "p_true"}, "^keep cannot have 'p_true': the query has this"),
        ("export_forest", {"table": pl.col("a")}, "^table must be the name of a table, not"),
    ],
)
def test_argument__of_another_kind(
    function: str, options: dict[str, Any], message: str, called: dict[str, Callable[..., Any]]
) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        called[function](**options)


def test_names__one_text_is_one_name(forest: bf.Forest) -> None:
    assert forest.to_sql(keep="late") == forest.to_sql(keep=["late"])
    one = bf.explain_forest(forest, table(), parts="dependence", features="a")
    several = bf.explain_forest(forest, table(), parts="dependence", features=["a"])
    assert one["dependence"].equals(several["dependence"])


def test_errors__are_of_one_family() -> None:
    assert issubclass(ConfigError, BigForestError) and issubclass(ConfigError, ValueError)


@pytest.mark.parametrize("path", ["x" * 300, "é" * 200, "a\0b", "\ud800", "a\udc80b", "x/" * 3000])
def test_path__that_no_file_can_have(path: str, called: dict[str, Callable[..., Any]], tmp_path: Path) -> None:
    out = tmp_path / path
    for read in (bf.read_forest, bf.Comparison, bf.Store.open, lambda data: bf.train(data, "late")):
        with pytest.raises(ConfigError, match="cannot name a file"):
            read(path)
    for function in ("compare", "explain_forest", "train"):
        with pytest.raises(ConfigError, match="cannot name a file"):
            called[function](out=out)


def test_names__of_another_kind(forest: bf.Forest, tmp_path: Path) -> None:
    found = bf.explain_forest(forest, parts="importance")
    for name in (np.zeros(2), pl.Series([1, 2]), 5):
        with pytest.raises(ConfigError, match="there is no table"):
            found[name]  # type: ignore[index]
        for draw in (forest.plot.dependence, forest.plot.surface):
            with pytest.raises(ConfigError, match="features"):
                draw(table(), features=name)  # type: ignore[arg-type]
    store = bf.encode_store(table(), tmp_path / "a.store", target="late")
    for flag in (np.zeros(2), "no"):
        with pytest.raises(ConfigError, match="verify must be True or False"):
            bf.Store.open(store.path, verify=flag)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [None, 5, ["x"]])
def test_read__what_is_no_path(path: Any) -> None:
    for read in (bf.read_forest, bf.Comparison):
        with pytest.raises(ConfigError, match=r"^a path was expected, not "):
            read(path)
