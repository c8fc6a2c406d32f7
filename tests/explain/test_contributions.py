"""Contributions along the path against the definition, and Shapley values against all subsets of features."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import ConfigError, OutputExistsError
from bigforest.events import Notice
from tests.explain.made import Case, case_of, grown_case, oblique_case
from tests.naive.explain import Vote, answers, path_contributions, shapley
from tests.thorough import examples


def check(case: Case, part: str, vote: Vote = "soft") -> None:
    """Assert that the table is that of the definition, and adds up."""
    classes = case.forest.classes or None
    found = case.forest.explain(case.frame, parts=part, classes=classes, threads=1)[part]
    names = [f"c_{feature.name}" for feature in case.forest.spec.features]
    width = len(classes or [0])
    table = found.select(names).to_numpy().reshape(len(case.rows), width, len(names))
    one = path_contributions if part == "contributions" else shapley
    known = [answers(tree, vote) for tree in case.trees]
    for i, row in enumerate(case.rows):
        trees = [one(tree, row, len(names), case.names, own) for tree, own in zip(case.trees, known, strict=True)]
        np.testing.assert_allclose(table[i].T, np.mean(trees, axis=0), rtol=1e-9, atol=1e-12)
    base = np.mean([own[0] for own in known], axis=0)
    np.testing.assert_allclose(found["base"].to_numpy().reshape(-1, width), np.tile(base, (len(case.rows), 1)))
    total = found.select(pl.sum_horizontal("base", *names)).to_series().to_numpy()
    np.testing.assert_allclose(total, found["prediction"].to_numpy(), atol=1e-9)
    features = case.frame.drop("y")
    if classes is None:
        assert found["prediction"].to_list() == case.forest.predict(features)["prediction"].to_list()
    else:
        shares = case.forest.predict_proba(features).to_numpy()
        assert found["prediction"].to_list() == shares.reshape(-1).tolist()
        assert found["class"].to_list() == classes * len(case.rows)
    assert found["row"].to_list() == np.repeat(np.arange(len(case.rows)), width).tolist()


@settings(max_examples=examples(80))
@given(
    st.integers(0, 10_000), st.integers(1, 6), st.sampled_from(["classes", "numbers", "hard", "oblique"]), st.booleans()
)
def test_contributions__are_those_of_the_definition(seed: int, rows: int, kind: str, shrunk: bool) -> None:
    """Along the path, and over all subsets of features where no tree splits on projections."""
    with tempfile.TemporaryDirectory() as folder:
        case = case_of(kind, Path(folder), rows, seed)
        vote: Vote = "hard" if kind == "hard" else "soft"
        if shrunk and kind in ("classes", "numbers"):
            case, vote = case._replace(forest=case.forest.shrink(2.5)), 2.5
        for part in ("contributions",) if kind == "oblique" else ("contributions", "shap"):
            check(case, part, vote)


def test_shap__is_stable_on_trees_of_hundreds_of_levels() -> None:
    """Every row is split off by itself, so that the tree is a chain: sums over sizes of coalitions overflow there."""
    rows = 400
    matrix = np.column_stack([np.arange(rows, dtype=float) + place for place in range(40)])
    matrix[:, 1:] = np.random.default_rng(0).permuted(matrix[:, 1:], axis=0)
    target = 2.0 ** (np.arange(rows) % 50) * (-1) ** np.arange(rows)
    forest = bf.train(
        (matrix, target), task="regression", trees=1, bootstrap=False, mtry=1, min_leaf=1, splitter="random"
    )
    depth = forest[0].depth
    found = forest.explain(matrix[:20], parts="shap")["shap"]
    total = found.select(pl.sum_horizontal(pl.exclude("row", "prediction"))).to_series().to_numpy()
    size = np.abs(found.select(pl.selectors.starts_with("c_")).to_numpy()).max()
    assert depth > 15
    np.testing.assert_allclose(total, found["prediction"].to_numpy(), atol=1e-10 * size)


def test_shap__refuses_projections(tmp_path: Path) -> None:
    case = oblique_case(tmp_path, 5, 1)
    assert any(tree.terms is not None for tree in case.trees)
    heard: list[Any] = []
    with pytest.raises(ConfigError, match="splits on projections"):
        case.forest.explain(case.frame, parts="shap", listener=heard.append)
    assert not [event for event in heard if isinstance(event, Notice)]
    with pytest.raises(ConfigError, match="splits on projections"):
        bf.plan_explanation(case.forest, case.frame, parts="interactions")


@pytest.mark.parametrize(("part", "work"), [("shap", "exact contributions of "), ("interactions", "interactions in ")])
def test_shap__tells_its_time_where_it_is_long(part: str, work: str) -> None:
    frame = grown_case().frame
    forest = bf.train(frame, "y", trees=1_000, refine="off")

    class Told(Exception):
        pass

    def listen(event: Any) -> None:
        if isinstance(event, Notice):
            raise Told(event.message)

    forest.explain(frame.drop_nulls("y")[:1], parts=part, threads=1, new_rows=True, listener=listen)
    many = pl.concat([frame.drop_nulls("y")] * 1_000)
    options = {"sample": many.height} if part == "interactions" else {}
    with pytest.raises(Told, match=rf"{work}{many.height:,} rows take about \d\d+ s"):
        forest.explain(many, parts=part, threads=1, new_rows=True, listener=listen, **options)


def test_contributions__of_numbers_refuse_classes() -> None:
    case = grown_case(task="regression")
    for parts in ("contributions", "dependence", "importance"):
        with pytest.raises(ConfigError, match="classes does not apply to this forest, which predicts the number 'y'"):
            case.forest.explain(case.frame, parts=parts, classes=["high"])


def test_contributions__of_two_classes_are_those_of_the_second() -> None:
    case = grown_case()
    found = case.forest.explain(case.frame, parts="contributions")["contributions"]
    assert found["class"].unique().to_list() == ["low"]
    both = case.forest.explain(case.frame, parts="contributions", classes=["high", "low"])["contributions"]
    own = both.filter(pl.col("class") == "low")
    assert own.equals(found)
    with pytest.raises(ConfigError, match="is no class of the target; the classes are high, low"):
        case.forest.explain(case.frame, parts="shap", classes=["middle"])


@pytest.mark.parametrize(
    ("labels", "written"),
    [
        ([False, True], [True, "true", "True", np.True_, 1]),
        ([0, 1], ["1", 1.0, np.int8(1), True]),
        ([0.5, 1.0], ["1", 1, np.float32(1.0)]),
        ([Decimal("0.50"), Decimal("1.00")], ["1", 1, "1.00"]),
    ],
)
def test_contributions__of_a_class_written_in_another_way(labels: list[Any], written: list[Any]) -> None:
    x = [float(k * 7 % 40) for k in range(40)]
    table = pl.DataFrame({"x": x, "y": [labels[one > 20] for one in x]})
    forest = bf.train(table, "y", trees=2, task="classification")
    expected = forest.explain(table, parts="contributions", classes=[labels[1]])["contributions"]
    drawn = forest.plot.waterfall(table).to_dict()
    for label in written:
        assert forest.explain(table, parts="contributions", classes=[label])["contributions"].equals(expected)
        assert forest.plot.waterfall(table, label=label).to_dict() == drawn


@pytest.mark.parametrize(
    "labels",
    [
        pl.Series([2**63 + 5, 7, 2**64 - 1], dtype=pl.UInt64),
        pl.Series([1, 2, 3], dtype=pl.Int64).cast(pl.Datetime("ns")),
        pl.Series([1, 2, 3], dtype=pl.Int8),
    ],
    ids=["UInt64", "Datetime", "Int8"],
)
def test_explain__has_classes_in_the_type_of_the_target(labels: pl.Series) -> None:
    """Whole numbers beyond 2**63, and times that differ by nanoseconds, are told apart."""
    random = np.random.default_rng(0)
    frame = pl.DataFrame({"x": random.normal(size=90), "y": random.normal(size=90)})
    frame = frame.with_columns(target=labels.gather((frame["x"] > 0).cast(pl.Int32) + (frame["y"] > 0)))
    forest = bf.train(frame, "target", task="classification", trees=4)
    parts = ["contributions", "shap", "interactions", "dependence", "effects"]
    found = forest.explain(frame.head(9), parts=parts, individual=2)
    for name in (*parts, "individual", "interaction-pairs"):
        assert found[name]["class"].dtype == labels.dtype
        assert sorted(found[name]["class"].unique()) == sorted(labels)


@pytest.fixture(scope="module")
def large() -> tuple[bf.Forest, pl.DataFrame]:
    """A table whose contributions take three files, and a small tree of it."""
    rows = np.arange(140_000)
    frame = pl.DataFrame({"a": rows % 7, "b": rows % 5, "y": rows % 3 > 1})
    return bf.train(frame, "y", trees=1, max_depth=2, bootstrap=False), frame


def test_contributions__keep_finished_files(large: tuple[bf.Forest, pl.DataFrame], tmp_path: Path) -> None:
    forest, frame = large
    first = forest.explain(frame, tmp_path / "out", parts="contributions")
    files = sorted((tmp_path / "out" / "contributions").iterdir())
    assert [file.name for file in files] == [f"part-{begin:010d}.parquet" for begin in (0, 65_536, 131_072)]
    stamps = [file.stat().st_mtime_ns for file in files]
    files[1].unlink()
    again = forest.explain(frame, tmp_path / "out", parts="contributions")
    assert [file.stat().st_mtime_ns == stamp for file, stamp in zip(files, stamps, strict=True)] == [True, False, True]
    assert again["contributions"].equals(first["contributions"])


def test_contributions__of_fewer_rows_replace_all_files(large: tuple[bf.Forest, pl.DataFrame], tmp_path: Path) -> None:
    forest, frame = large
    forest.explain(frame, tmp_path / "out", parts="shap")
    rows = frame.head(30)
    with pytest.raises(OutputExistsError, match="already exists"):
        forest.explain(rows, tmp_path / "out", parts="shap", new_rows=True)
    told = forest.explain(rows, tmp_path / "out", parts="shap", new_rows=True, overwrite=True)
    assert told["shap"].equals(forest.explain(rows, parts="shap", new_rows=True)["shap"])
