"""Partial dependence and local effects against predictions with replaced values, and against scikit-learn."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import ConfigError
from tests.explain.made import Case, case_of, grown_case, mixed_case
from tests.thorough import examples


def predicted(case: Case, frame: pl.DataFrame) -> np.ndarray:
    """[rows, classes], or [rows, 1] of numbers."""
    if case.forest.is_regression:
        return case.forest.predict(frame).to_numpy()
    return case.forest.predict_proba(frame).to_numpy()


def with_value(frame: pl.DataFrame, line: dict[str, Any], end: str = "") -> pl.DataFrame:
    """The rows with the value of a line of a table."""
    name = line[f"feature{end}"]
    value = line[f"value{end}"] if frame[name].dtype.is_float() else line[f"level{end}"]
    return frame.with_columns(pl.lit(value).cast(frame[name].dtype).alias(name))


def check_means(case: Case, table: pl.DataFrame, ends: tuple[str, ...]) -> None:
    """Assert that a table has the means of predictions."""
    labels = case.forest.classes or [None]
    for line in table.iter_rows(named=True):
        frame = case.frame.drop("y")
        for end in ends:
            frame = with_value(frame, line, end)
        place = 0 if case.forest.is_regression else labels.index(line["class"])
        assert line["prediction"] == pytest.approx(predicted(case, frame)[:, place].mean(), abs=1e-9)


@settings(max_examples=examples(8))
@given(st.integers(0, 10_000), st.integers(1, 25), st.sampled_from(["classes", "numbers", "oblique"]))
def test_dependence__is_the_mean_of_predictions(seed: int, rows: int, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = case_of(kind, Path(folder), rows, seed)
        names = case.forest.spec.feature_names
        found = case.forest.explain(
            case.frame,
            parts="dependence",
            features=[*names, (names[0], names[1]), (names[2], names[0])],
            grid=4,
            individual=3,
            classes=case.forest.classes or None,
            threads=1,
        )
        check_means(case, found["dependence"].sample(fraction=0.5, seed=seed), ("",))
        check_means(case, found["dependence-pairs"].sample(fraction=0.1, seed=seed), ("_a", "_b"))
        for line in found["individual"].sample(fraction=0.1, seed=seed).iter_rows(named=True):
            one = case._replace(frame=case.frame[line.pop("row")])
            check_means(one, pl.DataFrame([line], schema_overrides={"level": pl.String}), ("",))


@settings(max_examples=examples(6))
@given(st.integers(0, 10_000), st.integers(2, 40), st.booleans(), st.sampled_from([1.0, 2.5]))
def test_effects__add_up_changes_between_neighbours(seed: int, rows: int, regression: bool, power: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = mixed_case(Path(folder), rows, seed, regression)
        case = case if regression else case._replace(forest=case.forest.sharpen(power))
        table = case.forest.explain(
            case.frame, parts="effects", features=["x0"], grid=4, classes=case.forest.classes or None, threads=1
        )["effects"]
        for k, label in enumerate(case.forest.classes or [None]):
            own = table if label is None else table.filter(pl.col("class") == label)
            edges, effect, counted = own["value"].to_list(), [0.0], [0]
            present = case.frame.filter(pl.col("x0").is_not_null()).drop("y")
            for low, high in pairwise(edges):
                first = low == edges[0]
                inside = present.filter((pl.col("x0") <= high) & ((pl.col("x0") > low) | pl.lit(first)))
                ends = (
                    [predicted(case, inside.with_columns(x0=pl.lit(end)))[:, k] for end in (high, low)]
                    if len(inside)
                    else []
                )
                effect.append(effect[-1] + (float(np.mean(ends[0] - ends[1])) if ends else 0.0))
                counted.append(len(inside))
            assert own["rows"].to_list() == counted
            middles = [n * (a + b) / 2 for n, a, b in zip(counted[1:], effect, effect[1:], strict=False)]
            mean = sum(middles) / sum(counted) if sum(counted) else 0.0
            expected = [value - mean for value in effect] if len(edges) > 1 else [0.0]
            np.testing.assert_allclose(own["effect"].to_numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("classes", [None, ["high"], ["low"], ["low", "high"]])
def test_dependence__of_two_classes_is_of_probabilities_raised_to_the_power(classes: list[str] | None) -> None:
    case = grown_case(power=2.0)
    found = case.forest.explain(
        case.frame, parts="dependence", features=["a", "word"], grid=3, classes=classes, threads=1
    )["dependence"]
    assert found["class"].unique(maintain_order=True).to_list() == (classes or ["low"])
    check_means(case, found, ("",))


def test_dependence__of_three_classes_is_of_probabilities_raised_to_the_power(tmp_path: Path) -> None:
    case = case_of("classes", tmp_path, 20, 1)
    case = case._replace(forest=case.forest.sharpen(2.5))
    options: dict[str, Any] = {"parts": "dependence", "grid": 3, "individual": 2, "threads": 1}
    found = case.forest.explain(case.frame, **options, features=["x0"], classes=case.forest.classes[1:2])
    check_means(case, found["dependence"], ("",))
    for line in found["individual"].iter_rows(named=True):
        one = case._replace(frame=case.frame[line.pop("row")])
        check_means(one, pl.DataFrame([line], schema_overrides={"level": pl.String}), ("",))


def test_effects__of_two_features_are_what_neither_does_alone() -> None:
    random = np.random.default_rng(0)
    matrix = random.uniform(-1, 1, (3000, 2))
    apart = bf.train((matrix, matrix[:, 0] + matrix[:, 1]), task="regression", trees=20, max_depth=6)
    joint = bf.train((matrix, matrix[:, 0] * matrix[:, 1]), task="regression", trees=20, max_depth=6)
    pair = [("x0", "x1")]
    without, found = (
        forest.explain(matrix, parts="effects", features=pair, grid=6)["effects-pairs"] for forest in (apart, joint)
    )
    product = (found["value_a"] * found["value_b"]).to_numpy()
    assert np.corrcoef(product, found["effect"].to_numpy())[0, 1] > 0.95
    assert without["effect"].abs().max() < 0.3 * found["effect"].abs().max()


def test_dependence__of_features_that_no_tree_uses() -> None:
    """The prediction does not depend on them, whatever their values; no known level, no line."""
    random = np.random.default_rng(0)
    frame = pl.DataFrame({"x": random.normal(size=200), "k": np.full(200, 5.0), "c": random.choice(["a", "b"], 200)})
    forest = bf.train(frame.with_columns(y=(pl.col("x") > 0) ^ (pl.col("c") == "a")), "y", trees=4)
    other = frame.with_columns(k=pl.Series(random.choice([3.5, 7.0], 200)), c=pl.lit("z"))
    found = forest.explain(other, parts=["dependence", "effects"], features=["x", "k"], grid=3)
    own = found["dependence"].filter(pl.col("feature") == "k")
    assert own["value"].to_list() == [3.5, 7.0]
    mean = forest.predict_proba(other).to_series(1).mean()
    assert own["prediction"].to_list() == pytest.approx([mean, mean])
    assert found["effects"].filter(pl.col("feature") == "k").select("value", "effect", "rows").rows() == [(3.5, 0.0, 0)]
    assert forest.explain(other, parts="dependence", features=["c"])["dependence"].height == 0
    lacking = forest.explain(other.drop("k"), parts="dependence", features=["k"])["dependence"]
    assert lacking["prediction"].to_list() == pytest.approx([mean])


def test_effects__refuse_categories() -> None:
    case = grown_case()
    with pytest.raises(ConfigError, match="'word' is a category; use dependence"):
        case.forest.explain(case.frame, parts="effects", features=["word"])
    with pytest.raises(ConfigError, match="pairs of names"):
        case.forest.explain(case.frame, parts="dependence", features=[("a", "b", "word")])


def test_effects__of_categories_alone_have_no_default() -> None:
    frame = pl.DataFrame({"word": ["a", "b"] * 20, "y": ["no", "yes"] * 20})
    forest = bf.train(frame, "y", trees=2)
    with pytest.raises(ConfigError, match="all of word are categories; use dependence"):
        forest.explain(frame, parts="effects")


def test_dependence__of_pairs_alone_has_no_individual_curves() -> None:
    case = grown_case()
    found = case.forest.explain(case.frame, parts="dependence", features=[("a", "word")], individual=3, grid=3)
    assert found.tables == ["dependence-pairs"]


@pytest.mark.parametrize("features", [[], ["a", "word", "a"], [("a", "word"), ("a", "word")]])
def test_dependence__refuses_no_feature_and_one_twice(features: list[Any]) -> None:
    case = grown_case()
    with pytest.raises(ConfigError, match="each once: it is empty, or has one twice"):
        case.forest.explain(case.frame, parts="dependence", features=features, individual=3)


def test_dependence__of_a_feature_with_one_frequent_value_has_the_whole_grid() -> None:
    draw = np.random.default_rng(0)
    x = np.where(draw.random(500) < 0.95, 0.0, draw.random(500) + 1)
    frame = pl.DataFrame({"x": x, "y": x + draw.random(500)})
    forest = bf.train(frame, "y", trees=3)
    values = forest.explain(frame, parts="dependence", grid=10)["dependence"]["value"]
    assert values.len() == 10 and values.is_sorted() and set(values) <= set(x)
