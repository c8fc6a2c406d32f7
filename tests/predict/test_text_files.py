"""Predicting files of text: what is copied from them, and indexes that are no features."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bigforest
from bigforest.events import Event, Notice

GIVEN = {"id": "00042", "when": "02/03/2024", "paid": "1.50", "phone": "+31201234567", "code": "1e3", "x": " 0.50"}


@pytest.mark.parametrize("kind", ["csv", "tsv", "ndjson", "parquet"])
def test_keep__copies_the_text_of_the_file(kind: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=60)
    forest = bigforest.train(pl.DataFrame({"x": x, "y": np.where(x > 0, "p", "q")}), "y", trees=3)
    (tmp_path / "new.csv").write_text("".join(",".join(row) + "\n" for row in (GIVEN, GIVEN.values(), GIVEN.values())))
    out = tmp_path / f"out.{kind}"
    bigforest.predict_file(forest, tmp_path / "new.csv", out, keep=list(GIVEN))
    if kind == "parquet":
        read = pl.read_parquet(out)
    elif kind == "ndjson":
        read = pl.read_ndjson(out)
    else:
        read = pl.read_csv(out, infer_schema=False, separator="\t" if kind == "tsv" else ",")
    assert read.columns == [*GIVEN, "prediction"]
    assert read.rows() == [(*GIVEN.values(), "p")] * 2
    for _ in range(2):  # predictions without rows, which are an empty file of NDJSON, are replaced as others
        bigforest.predict_file(forest, pl.DataFrame(schema={"x": pl.Float64}), out, overwrite=True)


def test_ndjson__without_rows_is_an_empty_file(tmp_path: Path) -> None:
    """Writers of a table in parts write empty files, too."""
    table = pl.DataFrame({"x": range(60), "y": ["p", "q"] * 30})
    for name in ("part-0.ndjson", "part-2.ndjson"):
        (tmp_path / name).write_text("")
    table.write_ndjson(tmp_path / "part-1.ndjson")
    forest = bigforest.train(tmp_path, "y", trees=3)
    assert forest.predict(table).equals(bigforest.train(table, "y", trees=3).predict(table))
    assert bigforest.predict_file(forest, tmp_path, tmp_path / "out.csv").rows == 60
    assert bigforest.predict_file(forest, tmp_path / "part-0.ndjson", tmp_path / "none.csv", keep=["y"]).rows == 0
    assert (tmp_path / "none.csv").read_text() == "y,prediction\n"
    with pytest.raises(bigforest.DataError, match="the file is empty"):
        bigforest.train(tmp_path / "part-0.ndjson", "y")


@pytest.mark.parametrize("place", ["file", "memory"])
def test_keep__numbers_of_more_than_64_bits(place: str, tmp_path: Path) -> None:
    """Also where float64 holds all values."""
    columns = {
        "whole": pl.Series([2**100] * 60, dtype=pl.Int128),
        "decimal": pl.Series([Decimal(2**70)] * 60, dtype=pl.Decimal(38, 0)),
        "x": pl.Series([Decimal("0.1"), Decimal("0.2")] * 30, dtype=pl.Decimal(38, 20)),
    }
    table = pl.DataFrame({**columns, "y": ["p", "q"] * 30})
    forest = bigforest.train(table.select("x", "y"), "y", trees=3)
    table.write_parquet(tmp_path / "t.parquet")
    data = table if place == "memory" else tmp_path / "t.parquet"
    for ending in ("csv", "parquet"):
        bigforest.predict_file(forest, data, tmp_path / f"p.{ending}", keep=[*columns])
    assert (tmp_path / "p.csv").read_text().splitlines()[1] == f"{2**100},{2**70},0.10000000000000000000,p"
    found = pl.read_parquet(tmp_path / "p.parquet")
    assert found.select("decimal", "x", "prediction").equals(forest.predict(table, keep=["decimal", "x"]))


@pytest.mark.parametrize("ending", ["csv", "tsv", "ndjson"])
def test_overwrite__replaces_predictions_beside_a_name_of_two_lines(ending: str, tmp_path: Path) -> None:
    table = pl.DataFrame({"x": range(60), "the\nname": range(60), "y": ["p", "q"] * 30})
    forest = bigforest.train(table, "y", trees=1)
    for rows in (60, 30):
        bigforest.predict_file(
            forest, table.head(rows), out := tmp_path / f"p.{ending}", keep=["the\nname"], overwrite=True
        )
    assert out.read_text().count("29") == 1 and "59" not in out.read_text()


@pytest.mark.parametrize("text", ['{"x":' + "[" * 100_000, "x\n1\n", '{"x":1}\n'])
def test_overwrite__keeps_text_that_is_no_prediction(text: str, tmp_path: Path) -> None:
    table = pl.DataFrame({"x": range(60), "y": ["p", "q"] * 30})
    (out := tmp_path / "out.ndjson").write_text(text)
    with pytest.raises(bigforest.OutputExistsError):
        bigforest.predict_file(bigforest.train(table, "y", trees=1), table, out, overwrite=True)
    assert out.read_text() == text


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_index__without_a_name_is_no_feature(name: str, tmp_path: Path) -> None:
    """Rows sorted by class would be predicted from it."""
    table = pd.DataFrame({"a": np.random.default_rng(0).normal(size=90), "y": np.repeat(["s", "t", "u"], 30)})
    table.to_csv(tmp_path / "t.csv", index_label=name or None)
    heard: list[Event] = []
    forest = bigforest.train(tmp_path / "t.csv", "y", trees=5, listener=heard.append)
    assert forest.spec.feature_names == ["a"]
    told = [
        event.message
        for event in heard
        if isinstance(event, Notice) and "is an index that pandas wrote" in event.message
    ]
    assert len(told) == 1 and (repr(name) if name else "which has no name") in told[0]
    assert forest.predict(table)["prediction"].tolist() == forest.predict(pl.from_pandas(table))["prediction"].to_list()
    table.to_csv(tmp_path / "u.csv", index_label="row")
    assert bigforest.train(tmp_path / "u.csv", "y", trees=2).spec.feature_names == ["row", "a"]


def test_index__of_several_levels_without_names_is_no_feature(tmp_path: Path) -> None:
    levels = pd.MultiIndex.from_product([range(30), ["m", "n"]])
    table = pd.DataFrame({"a": np.arange(60.0), "y": ["s", "t"] * 30}, index=levels)
    table.to_csv(tmp_path / "t.csv")
    pd.read_csv(tmp_path / "t.csv").to_csv(tmp_path / "again.csv")  # columns "", "Unnamed: 0" and "Unnamed: 1"
    for name in ("t.csv", "again.csv"):
        forest = bigforest.train(tmp_path / name, "y", trees=5)
        assert forest.spec.feature_names == ["a"]
        rows = bigforest.predict_file(forest, tmp_path / name, tmp_path / "p.parquet", overwrite=True)
        assert rows.rows == 60
        predicted = pl.read_parquet(tmp_path / "p.parquet")["prediction"].to_list()
        assert predicted == forest.predict(table)["prediction"].tolist()


@pytest.mark.parametrize("commas", [1, 2])
def test_commas_at_the_end_of_lines__are_no_columns(commas: int, tmp_path: Path) -> None:
    """Spreadsheets write them. Rows without a column of no name would be refused."""
    table = pl.DataFrame({"a": range(60), "b": [1.5, 2.5] * 30, "y": ["p", "q"] * 30})
    lines = table.write_csv().splitlines()
    heard: list[Event] = []
    for end, count in (("," * commas, 0), (", " * (commas - 1) + ",0", 1)):
        (tmp_path / "t.csv").write_text(
            "".join(f"{line}{end if at else ',' * commas}\n" for at, line in enumerate(lines))
        )
        if count and commas > 1:
            with pytest.raises(bigforest.DataError, match="duplicate column names ''"):
                bigforest.train(tmp_path / "t.csv", "y", trees=3)
            continue
        forest = bigforest.train(tmp_path / "t.csv", "y", trees=3, listener=heard.append)
        assert forest.spec.feature_names == ["a", "b", ""][: 2 + count]
        told = [event for event in heard if isinstance(event, Notice) and "at the end" in event.message]
        assert len(told) == 1
        scores = bigforest.predict_file(forest, tmp_path / "t.csv", tmp_path / "p.parquet", overwrite=True)
        assert scores.rows == 60
        if not count:
            assert forest.predict(table).equals(bigforest.train(table, "y", trees=3).predict(table))
