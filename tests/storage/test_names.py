"""Files and folders may have any name: none is taken for a pattern, a partition or a URL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.source.open import open_source


@pytest.mark.parametrize("name", ["[ab]", "a*", "k=1", "s3:x", "file:x", "a#b", "100%", "{x}", "~x"])
def test_names__of_folders_that_others_read_as_patterns_or_urls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    table = pl.DataFrame({"a": draw.normal(size=30), "b": draw.normal(size=30)}).with_columns(y=pl.col("a") > 0)
    (tmp_path / "abc").mkdir()
    (tmp_path / name).mkdir()
    (tmp_path / name / "t.csv").write_text(table.write_csv())
    (tmp_path / name / "t.ndjson").write_text(table.write_ndjson())
    with (tmp_path / name / "t.parquet").open("wb") as file:
        table.write_parquet(file)

    for kind in ("csv", "ndjson", "parquet"):
        assert open_source(f"{name}/t.{kind}", scratch=tmp_path).columns(table.columns).equals(table)
    forest = bf.train(f"{name}/t.parquet", "y", trees=2, out=f"{name}/forest")
    assert bf.read_forest(f"{name}/forest").predict(table).equals(forest.predict(table))
    folders = ("abc/why", f"{name}/why") if name == "a*" else (f"{name}/why",)  # a* is a pattern that matches abc
    for folder in folders:
        why = forest.explain(f"{name}/t.parquet", folder, parts=["importance", "contributions"])
        assert {table_name: why[table_name].height for table_name in why.tables} == {
            "contributions": 30,
            "importance": 2,
            "importance-trees": 4,
        }
        assert why["contributions"].columns == ["row", "class", "base", "c_a", "c_b", "prediction"]
    assert bf.simulate("trunk", rows=5, dims=2, out=f"{name}/drawn.parquet").collect().shape == (5, 3)


def test_names__of_files_in_the_current_folder_are_no_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x,y\n" + "1,u\n2,v\n" * 5)
    (tmp_path / "file:a.csv").write_text("x,y\n" + "1,m\n2,n\n" * 5)

    for path in ("file:a.csv", "file*.csv"):
        assert bf.train(path, "y", trees=2).classes == ["m", "n"]


@pytest.mark.parametrize("name", ["a[1]", "a?", "a*", "[!b]1"])
@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "arrow"])
def test_names__of_files_that_match_others_as_patterns(tmp_path: Path, name: str, kind: str) -> None:
    for file, classes in (("a1", ["u", "v"]), (name, ["m", "n"])):
        with (tmp_path / f"{file}.{kind}").open("wb") as out:
            table = pl.DataFrame({"x": [1, 2] * 5, "y": classes * 5})
            {"csv": table.write_csv, "ndjson": table.write_ndjson, "arrow": table.write_ipc}.get(
                kind, table.write_parquet
            )(out)

    source = open_source(tmp_path / f"{name}.{kind}", scratch=tmp_path)
    assert source.column("y").unique().sort().to_list() == ["m", "n"]


def test_names__of_drawn_tables_do_not_depend_on_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = bf.simulate("trunk", rows=5, dims=2, out="drawn.parquet")

    (tmp_path / "sub").mkdir()
    monkeypatch.chdir("sub")

    assert drawn.collect().height == 5
