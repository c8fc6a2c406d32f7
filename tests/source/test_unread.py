"""Columns that are not read, because they are no features or are excluded, may have any values and any names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import bigforest as bf

ROWS = 20
TABLE = pl.DataFrame(
    {"x": [float(row % 7) for row in range(ROWS)], "c": list("ab") * (ROWS // 2), "y": list("pqrs") * (ROWS // 4)}
)


def arrow_with(twice: str) -> pa.Table:
    """The table with two more columns of one name."""
    table = TABLE.to_arrow(compat_level=pl.CompatLevel.oldest())
    return table.append_column(twice, pa.array(range(ROWS))).append_column(twice, pa.array(["z"] * ROWS))


def parquet(twice: str, folder: Path) -> Path:
    pq.write_table(arrow_with(twice), folder / "t.parquet")
    return folder / "t.parquet"


def hive(twice: str, folder: Path) -> Path:
    for key in (1, 2):
        (folder / "hive" / f"key={key}").mkdir(parents=True)
        pq.write_table(arrow_with(twice).slice((key - 1) * 10, 10), folder / "hive" / f"key={key}" / "t.parquet")
    return folder / "hive"


def arrow_file(twice: str, folder: Path) -> Path:
    table = arrow_with(twice)
    with pa.ipc.new_file(str(folder / "t.arrow"), table.schema) as writer:
        writer.write_table(table)
    return folder / "t.arrow"


def csv(twice: str, folder: Path) -> Path:
    header, *lines = TABLE.write_csv().splitlines()
    text = [f"{header},{twice},0,{twice}", *(f"{line},1,2,3" for line in lines)]
    (folder / "t.csv").write_text("\n".join(text))
    return folder / "t.csv"


TWICE: dict[str, Callable[[str, Path], Any]] = {
    "pandas": lambda twice, _: arrow_with(twice).to_pandas(),
    "Arrow": lambda twice, _: arrow_with(twice),
    "Arrow batches": lambda twice, _: arrow_with(twice).to_reader(),
    "Parquet": parquet,
    "hive": hive,
    "Arrow file": arrow_file,
    "CSV": csv,
}


def predictions(forest: bf.Forest, table: Any, folder: Path) -> list[str]:
    bf.predict_file(forest, table, folder / "out.parquet", overwrite=True)
    return pl.read_parquet(folder / "out.parquet")["prediction"].to_list()


@pytest.fixture(scope="module")
def forest() -> bf.Forest:
    return bf.train(TABLE, "y", trees=1, refine="off")


@pytest.mark.parametrize("name", ["u", ""])
@pytest.mark.parametrize("kind", TWICE)
def test_two_columns_of_one_name__matter_where_they_are_read(
    forest: bf.Forest, kind: str, name: str, tmp_path: Path
) -> None:
    new = TWICE[kind](name, tmp_path)
    assert predictions(forest, new, tmp_path) == forest.predict(TABLE)["prediction"].to_list()
    table = TWICE[kind](name, tmp_path) if kind == "Arrow batches" else new
    with pytest.raises(bf.DataError, match=f"duplicate column names '{name}'"):
        bf.train(table, "y", trees=1)


@pytest.mark.parametrize("kind", [kind for kind in TWICE if kind != "hive"])
def test_two_columns_of_one_name__are_excluded_together(kind: str, tmp_path: Path) -> None:
    table = TWICE[kind]("u", tmp_path)
    excluded = ["u", "0"] if kind == "CSV" else ["u"]
    assert bf.train(table, "y", exclude=excluded, trees=1, refine="off").spec.feature_names == ["x", "c"]


@pytest.mark.parametrize("kind", TWICE)
@pytest.mark.parametrize("name", ["x", "c"])
def test_two_columns_of_the_name_of_a_feature(forest: bf.Forest, kind: str, name: str, tmp_path: Path) -> None:
    table = TWICE[kind](name, tmp_path)
    with pytest.raises(bf.DataError, match=f"duplicate column names '{name}'; rename or drop them"):
        predictions(forest, table, tmp_path)


def without_fields(kind: str, folder: Path) -> Any:
    """The table with structs that have no fields, which Parquet cannot hold."""
    empty = pl.Series("e", [{}] * ROWS, pl.Struct([]))
    lists = pl.Series("l", [[{}], []] * (ROWS // 2), pl.List(pl.Struct([])))
    inner = pl.Series("s", [{"k": row, "e": {}} for row in range(ROWS)], pl.Struct({"k": pl.Int64, "e": pl.Struct([])}))
    table = TABLE.with_columns(empty, lists, inner)
    if kind == "NDJSON":
        (folder / "t.ndjson").write_text("".join(json.dumps(row) + "\n" for row in table.rows(named=True)))
        return folder / "t.ndjson"
    if kind == "Arrow file":
        table.write_ipc(folder / "t.arrow")
        return folder / "t.arrow"
    return table.lazy() if kind == "lazy" else table.to_arrow().to_reader()


@pytest.mark.parametrize("kind", ["NDJSON", "Arrow file", "lazy", "Arrow batches"])
def test_structs_without_fields(forest: bf.Forest, kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"trees": 1, "refine": "off"}
    trained = bf.train(without_fields(kind, tmp_path), "y", **options)
    assert trained.spec.feature_names == ["x", "c", "s.k"]
    excluded = bf.train(without_fields(kind, tmp_path), "y", exclude=["e", "l", "s"], **options)
    assert excluded.spec.feature_names == ["x", "c"]
    expected = forest.predict(TABLE)["prediction"].to_list()
    assert predictions(forest, without_fields(kind, tmp_path), tmp_path) == expected


def test_names_of_a_mapping__that_are_the_same_as_text() -> None:
    with pytest.raises(bf.DataError, match="the mapping: duplicate column names '1'"):
        bf.train({1: [0.0, 1.0], "1": [1.0, 0.0], "y": ["p", "q"]}, "y", trees=1)


def test_csv__short_lines_are_found_where_a_name_is_there_twice(forest: bf.Forest, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,u,c,u\n1,2,a,3\n1,a,3\n")
    with pytest.raises(bf.DataError, match="line 3 has 3 values, and the header names 4 columns"):
        predictions(forest, tmp_path / "t.csv", tmp_path)


@pytest.mark.parametrize("kind", ["parquet", "csv", "ndjson", "ipc"])
@pytest.mark.parametrize("places", ["{}", "k={}"])
def test_columns_of_some_files__matter_where_they_are_read(
    forest: bf.Forest, kind: str, places: str, tmp_path: Path
) -> None:
    for number, part in enumerate([TABLE.with_columns(u=pl.lit("a")), TABLE, TABLE.with_columns(v=1, u=2.5)]):
        file = tmp_path / "t" / places.format(number) / f"{number}.{kind}"
        file.parent.mkdir(parents=True)
        getattr(part, f"write_{kind}")(file)
    table = tmp_path / "t" if "=" in places else f"{tmp_path}/t/*/*"
    assert predictions(forest, table, tmp_path) == 3 * forest.predict(TABLE)["prediction"].to_list()
    # Rows of NDJSON may lack keys.
    fault = "column 'u' has type Float64, but String" if kind == "ndjson" else r"\('u' not in both\)"
    with pytest.raises(bf.DataError, match=fault):
        bf.train(table, "y", trees=1)
    excluded = ["u", "v", "k"] if "=" in places else ["u", "v"]
    assert bf.train(table, "y", exclude=excluded, trees=1, refine="off").spec.feature_names == ["x", "c"]


def test_nested_columns__are_not_unnested_where_they_are_excluded() -> None:
    table = TABLE.with_columns(pl.struct(b="x").alias("a"), pl.col("x").alias("a.b"))
    assert bf.train(table, "y", exclude="a", trees=1, refine="off").spec.feature_names == ["x", "c", "a.b"]
    with pytest.raises(bf.DataError, match=r"two columns are called 'a\.b'"):
        bf.train(table, "y", trees=1)


def test_target__is_not_read_to_predict(forest: bf.Forest) -> None:
    table = TABLE.to_pandas()
    table["y"] = [1 if row % 2 else "p" for row in range(ROWS)]
    assert list(forest.predict(table)["prediction"]) == forest.predict(TABLE)["prediction"].to_list()
