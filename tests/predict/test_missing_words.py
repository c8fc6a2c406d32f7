"""Words of the option `missing`, in CSV files to train on and in any table that the forest is used with."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.columns.types import without_words

WORDS = ["-999", "1900-01-01", "unknown"]


def test_missing_words__float32_and_float64(tmp_path: Path) -> None:
    """-99.9 in float32 is another number than in float64."""
    sizes = [1.0, 2.0, -99.9, 4.0, 5.0, -99.9] * 8
    table = pl.DataFrame({"size": sizes, "target": [size > 3.0 or size < 0.0 for size in sizes]})
    table.write_csv(tmp_path / "t.csv")
    forest = bigforest.train(str(tmp_path / "t.csv"), trees=5, missing=["-99.9"], min_leaf=1)
    gaps = table.select(pl.when(pl.col("size") > 0.0).then("size"))
    expected = forest.predict_proba(gaps)
    assert not forest.predict_proba(gaps.fill_null(-99.5)).equals(expected)  # the word matters
    for dtype in (pl.Float64, pl.Float32):
        rows = table.select(pl.col("size").cast(dtype))
        assert forest.predict_proba(rows).equals(expected)
        assert np.array_equal(forest.predict_proba(rows.to_numpy()), expected.to_numpy())


@pytest.mark.parametrize(
    ("values", "words", "expected"),
    [
        ([" NY", "a ", "NY"], ["NY"], [None, "a ", None]),
        ([1, -999, 3], ["-999.0", "x"], [1, None, 3]),
        ([True, False], ["False", "1"], [True, None]),
        ([date(1900, 1, 1), date(2024, 1, 1)], ["1900-01-01"], [None, date(2024, 1, 1)]),
    ],
)
def test_without_words(values: list, words: list[str], expected: list) -> None:
    assert without_words(pl.Series("^a$", values), words).equals(pl.Series("^a$", expected), check_names=True)


def rows_and_gaps(regression: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a table with words in every column, and the same table with nulls in their place."""
    place = pl.int_range(240)
    gaps = pl.select(
        size=pl.when(place % 5 != 0).then((place % 7).cast(pl.Float64)),
        day=pl.when(place % 6 != 0).then(pl.date(2024, 1, 1) + pl.duration(days=place % 28)),
        kind=pl.when(place % 3 != 0).then(pl.when(place % 2 == 0).then(pl.lit("a")).otherwise(pl.lit("b"))),
        target=pl.when(place % 9 != 0).then(place * 7 % 23 if regression else place * 7 % 3),
    )
    filled = gaps.with_columns(
        pl.col("size").fill_null(-999.0),
        pl.col("day").fill_null(pl.date(1900, 1, 1)),
        pl.col("kind").fill_null("unknown"),
        pl.col("target").fill_null(-999),
    )
    return filled, gaps


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_missing_words__every_use_and_table(tmp_path: Path, task: str) -> None:
    """Training, predictions, scores, validation, calibration, pruning and intervals are those of a table with nulls."""
    filled, gaps = rows_and_gaps(task == "regression")
    csv, parquet = str(tmp_path / "filled.csv"), str(tmp_path / "filled.parquet")
    text = filled.write_csv().replace("-999.0,", " -999,", 20).replace("unknown", "unknown ", 9)
    Path(csv).write_text(text)
    filled.write_parquet(parquet)
    options = {"target": "target", "task": task, "trees": 12, "refine": "off"}
    forest = bigforest.train(csv, missing=WORDS, **options)
    plain = bigforest.train(gaps, **options)
    assert plain.nodes.collect().equals(forest.nodes.collect())
    assert forest.oob.error == plain.oob.error
    expected = bigforest.predict_file(plain, gaps, tmp_path / "expected.parquet")
    by = {"coverage": 0.5, "coverage_by": "kind"}
    intervals = plain.predict(gaps, coverage=0.5, coverage_by=gaps["kind"])
    for number, table in enumerate([csv, parquet, filled, filled.lazy(), filled.to_pandas(), filled.to_arrow()]):
        found = bigforest.predict_file(forest, table, tmp_path / f"{number}.parquet", keep=["kind"], **by)
        assert found.scored == expected.scored == 213
        assert (found.accuracy, found.r2) == (expected.accuracy, expected.r2)
        assert pl.read_parquet(tmp_path / f"{number}.parquet").drop("kind").equals(intervals)
        if not isinstance(table, str):
            assert forest.score(table) == forest.score(table, filled["target"].to_numpy()) == plain.score(gaps)
    assert forest.predict(filled, coverage=0.5, coverage_by=filled["kind"]).equals(intervals)
    if task == "classification":
        for table in (csv, parquet):
            assert bigforest.validate_forest(forest, table).equals(bigforest.validate_forest(plain, gaps))
        for revise in (bigforest.calibrate_forest, bigforest.prune_forest):
            new = revise(forest, filled, tmp_path / revise.__name__)
            assert new.nodes.collect().equals(revise(plain, gaps, tmp_path / f"{revise.__name__}0").nodes.collect())


def test_missing_words__kept_text(tmp_path: Path) -> None:
    """Kept columns of a CSV file have the text of the file."""
    (tmp_path / "t.csv").write_text("size,kind,target\n" + "1,a,x\n -999,unknown,y\n" * 20)
    forest = bigforest.train(str(tmp_path / "t.csv"), trees=3, missing=WORDS)
    bigforest.predict_file(forest, tmp_path / "t.csv", tmp_path / "p.parquet", keep=["size", "kind"])
    kept = pl.read_parquet(tmp_path / "p.parquet", columns=["size", "kind"])
    assert kept[:2].rows() == [("1", "a"), (" -999", "unknown")]
