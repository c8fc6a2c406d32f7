"""Folders of files: columns in any order, and columns that the names of folders hold."""

from __future__ import annotations

import glob
import os
import pickle
from collections.abc import Callable
from datetime import date
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import bigforest as bf
from bigforest.errors import DataError
from bigforest.source import spool
from bigforest.source.open import open_source
from bigforest.storage.paths import expanded
from tests.unreadable import refuse_listing

FRAME = pl.DataFrame(
    {
        "a": [1.5, 2.5, 3.5, 4.5],
        "b": ["x", "y", None, "x"],
        "year": [2024, 2024, 2025, None],
        "day": [date(2024, 1, 2), date(2024, 1, 3), date(2024, 1, 2), date(2024, 1, 2)],
        "place": ["here", "a b/c", "here", "5"],
    }
)
WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    "parquet": lambda frame, path: frame.write_parquet(path.with_suffix(".parquet")),
    "csv": lambda frame, path: frame.write_csv(path.with_suffix(".csv")),
    "ndjson": lambda frame, path: frame.write_ndjson(path.with_suffix(".ndjson")),
    "arrow": lambda frame, path: frame.write_ipc(path.with_suffix(".arrow")),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_folder__columns_are_by_name(kind: str, tmp_path: Path) -> None:
    part = FRAME.select("a", "b", "place")
    (tmp_path / "t").mkdir()
    WRITERS[kind](part[:2], tmp_path / "t" / "1")
    WRITERS[kind](part[2:].select("place", "a", "b"), tmp_path / "t" / "2")
    source = open_source(tmp_path / "t", scratch=tmp_path)
    assert list(source.schema) == part.columns
    assert_frame_equal(source.columns(part.columns), part)
    assert_frame_equal(pl.concat(source.batches(["place", "a"], 3)), part.select("place", "a"))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_folder__hive_partitions_are_columns(kind: str, tmp_path: Path) -> None:
    home = tmp_path / "t"
    frame = FRAME.sort("year", "day", "place", nulls_last=True)
    if kind == "parquet":
        frame.write_parquet(pl.PartitionBy(home, key=["year", "day", "place"], include_key=False), mkdir=True)
    else:
        for number, row in enumerate(frame.iter_rows(named=True)):
            year = "__HIVE_DEFAULT_PARTITION__" if row["year"] is None else row["year"]
            folder = home / f"year={year}" / f"day={row['day']}" / f"place={row['place'].replace('/', '%2F')}"
            folder.mkdir(parents=True)
            frame[number : number + 1].select("a", "b").write_csv(folder / "0.csv")
    source = open_source(home, scratch=tmp_path)
    assert list(source.schema) == frame.columns
    assert_frame_equal(source.columns(frame.columns), frame, check_row_order=False)
    forest = bf.train(home, "b", trees=2)
    assert forest.spec.feature_names == ["a", "year", "day", "place"]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_folder__hive_partitions_are_not_copied_for_their_columns(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "PART_BYTES", 1)  # two files for each Arrow file of two batches
    frame = pl.DataFrame({"n": range(7), "day": [date(2024, 1, 1)] * 3 + [None] * 4, "k": ["a"] * 3 + ["b"] * 4})
    for key, part in (("day=2024-01-01/k=a", frame[:3]), ("day=__HIVE_DEFAULT_PARTITION__/k=b", frame[3:])):
        (tmp_path / "t" / key).mkdir(parents=True)
        if kind == "parquet":
            part.select("n").write_parquet(tmp_path / "t" / key / "0.parquet", row_group_size=2)
        else:
            part.select("n").write_ipc(tmp_path / "t" / key / "0.arrow", record_batch_size=2)
    source = open_source(tmp_path / "t", scratch=tmp_path)
    assert len(source.files) == (2 if kind == "parquet" else 4)
    if kind == "parquet":
        assert all(file.is_relative_to(tmp_path / "t") for file in source.files)
    for one in (source, pickle.loads(pickle.dumps(source))):
        for names in (["day"], ["k", "n"], ["n", "day", "k"]):
            assert_frame_equal(pl.concat(one.batches(names, 2)), frame.select(names))
            assert_frame_equal(pl.concat(one.batches(names, 3, 2, 6)), frame[2:6].select(names))


def test_folder__hive_partitions_of_integers_of_128_bits(tmp_path: Path) -> None:
    """Arrow has no such integers."""
    frame = pl.DataFrame({"n": pl.Series([2**70, 1, None, -5], dtype=pl.Int128), "year": [2024, 2024, 2025, 2026]})
    frame.write_parquet(pl.PartitionBy(tmp_path / "t", key="year", include_key=False), mkdir=True)
    source = open_source(tmp_path / "t", scratch=tmp_path)
    assert_frame_equal(source.columns(frame.columns), frame.cast({"n": pl.Float64}))


@pytest.mark.parametrize("write", [pl.DataFrame.write_parquet, pl.DataFrame.write_ipc])
def test_folder__hive_partitions_of_columns_without_values(
    write: Callable[[pl.DataFrame, Path], object], tmp_path: Path
) -> None:
    for year, rows in ((2024, 2), (2025, 1)):
        (tmp_path / f"t/year={year}").mkdir(parents=True)
        write(pl.DataFrame({"n": [None] * rows}), tmp_path / f"t/year={year}/0.{write.__name__[6:]}")
    source = open_source(tmp_path / "t", scratch=tmp_path)
    assert source.columns(["n", "year"]).rows() == [(None, 2024), (None, 2024), (None, 2025)]


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        (["0.5", "-1"], [0.5, -1.0]),
        (["0.5", "1.50"], [0.5, 1.5]),
        (["1.5", "1.50"], ["1.5", "1.50"]),
        (["0.5", "inf"], ["0.5", "inf"]),
        (["0.5", "__HIVE_DEFAULT_PARTITION__"], [0.5, None]),
    ],
)
def test_folder__hive_partitions_of_floats(keys: list[str], values: list[object], tmp_path: Path) -> None:
    for key in keys:
        (tmp_path / f"t/k={key}").mkdir(parents=True)
        FRAME.select("a").write_parquet(tmp_path / f"t/k={key}/0.parquet")
    found = open_source(tmp_path / "t", scratch=tmp_path).column("k").unique()
    assert {*found} == {*values} and found.dtype == (pl.String if "inf" in values or "1.50" in values else pl.Float64)


def test_folder__hive_partitions_that_name_a_column_twice(tmp_path: Path) -> None:
    (tmp_path / "t/k=1/k=2").mkdir(parents=True)
    FRAME.select("a").write_parquet(tmp_path / "t/k=1/k=2/0.parquet")
    with pytest.raises(DataError, match=r"k=2/0.parquet: its folders name a column twice; rename one"):
        open_source(tmp_path / "t", scratch=tmp_path)


def test_folder__of_partitions_that_differ(tmp_path: Path) -> None:
    for folder in ("t/year=1", "t/year=2/day=3"):
        (tmp_path / folder).mkdir(parents=True)
        FRAME.select("a").write_parquet(tmp_path / folder / "0.parquet")
    with pytest.raises(DataError, match=r"day=3/0.parquet: its folders name year, day, the folders of .* name year;"):
        open_source(tmp_path / "t", scratch=tmp_path)
    (tmp_path / "u/a=1").mkdir(parents=True)
    FRAME.select("a").write_parquet(tmp_path / "u/a=1/0.parquet")
    with pytest.raises(DataError, match="column 'a' is in the file, with other values than in the name of its folder"):
        open_source(tmp_path / "u", scratch=tmp_path)


def test_folder__hive_column_that_is_in_the_files_too(tmp_path: Path) -> None:
    frame = FRAME.with_columns(month=pl.Series(["01", "02", "01", "02"]))
    frame.write_parquet(pl.PartitionBy(tmp_path / "t", key=["year", "month"], include_key=True), mkdir=True)
    source = open_source(tmp_path / "t", scratch=tmp_path)
    assert_frame_equal(source.columns(frame.columns), frame, check_row_order=False)
    assert source.files[0].is_relative_to(tmp_path / "t")  # and nothing was copied


@pytest.mark.parametrize("pattern", ["year=*/x.*", "*/x.*", "**/x.*", "year=20*/*"])
def test_glob__hive_partitions_are_columns(pattern: str, tmp_path: Path) -> None:
    for year in (2024, 2025):
        (tmp_path / f"t/year={year}").mkdir(parents=True)
        WRITERS["parquet"](FRAME.select("a").head(year - 2022), tmp_path / f"t/year={year}/x")
    found = open_source(tmp_path / "t" / pattern, scratch=tmp_path)
    folder = open_source(tmp_path / "t", scratch=tmp_path)
    assert list(found.schema) == ["a", "year"]
    assert_frame_equal(found.columns(["a", "year"]), folder.columns(["a", "year"]))
    assert list(open_source(tmp_path / "t/year=2024/*", scratch=tmp_path).schema) == ["a"]
    (tmp_path / "t/x.parquet").write_bytes((tmp_path / "t/year=2024/x.parquet").read_bytes())
    if pattern.startswith("**"):
        with pytest.raises(DataError, match=r"folders of .* name (no columns|year); give"):
            open_source(tmp_path / "t" / pattern, scratch=tmp_path)


@pytest.mark.parametrize("pattern", ["*/x.parquet", "**/x.parquet", "t/**", "t/y*/*.parquet", "t/year=2025/x*"])
def test_glob__folders_that_cannot_be_listed_are_an_error(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for year in (2024, 2025):
        (tmp_path / f"t/year={year}").mkdir(parents=True)
        FRAME.select("a").write_parquet(tmp_path / f"t/year={year}/x.parquet")
    whole = tmp_path / ("t" if pattern.startswith("*") else "") / pattern
    assert open_source(whole, scratch=tmp_path).rows == (4 if "2025" in pattern else 8)
    refuse_listing(tmp_path / "t" / ("" if pattern == "*/x.parquet" else "year=2025"), monkeypatch)
    with pytest.raises(DataError, match="Permission denied; check the path and its permissions"):
        open_source(whole, scratch=tmp_path)


def test_glob__same_files_as_those_of_python(tmp_path: Path) -> None:
    files = ["1.csv", ".2.csv", "a/3.csv", "a/b/[4].csv", "a/.c/5.csv", ".d/6.csv", "e.csv/7.csv"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "a/link").symlink_to(tmp_path / ".d")
    (tmp_path / "a/broken.csv").symlink_to(tmp_path / "nowhere")
    stars = ["*", "*.csv", ".*", "**", "**/*", "**/*.csv", "*/*", "a/**/*.csv", "**/b/**", "**/**", "a/*/*.csv"]
    others = ["?.csv", "[0-9].csv", "a/b/[[]4].csv", "a/../*.csv", ".d/*", "**/.c/*", "*/link/*", "1.*/*"]
    for pattern in [*stars, *others]:
        found = {Path(file) for file in glob.glob(str(tmp_path / pattern), recursive=True)}  # noqa: PTH207
        assert expanded(tmp_path / pattern) == sorted(file for file in found if not file.is_dir()), pattern


@pytest.mark.parametrize("odd", ["t/2.csv", "t/k=2", "t/k=2/2.csv"])
def test_folder__links_to_nothing_are_not_left_out(tmp_path: Path, odd: str) -> None:
    """As a checkout leaves them where files are stored elsewhere, and were not fetched."""
    first = tmp_path / ("t/1.csv" if odd == "t/2.csv" else "t/k=1/1.csv")
    for folder in {first.parent, (tmp_path / odd).parent}:
        folder.mkdir(parents=True, exist_ok=True)
    first.write_text("a,b\n1,2\n")
    (tmp_path / odd).symlink_to(tmp_path / "nowhere")
    for path in ("t", odd.replace("2", "*")):
        with pytest.raises(DataError, match="it is a link to a file that does not exist, so its rows cannot be read"):
            open_source(tmp_path / path, scratch=tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_folder__pipes_are_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/1.csv").write_text("a,b\n1,2\n")
    os.mkfifo(tmp_path / "t/2.csv")
    for path in ("t", "t/*.csv"):
        with pytest.raises(DataError, match="it is a pipe or a device"):
            open_source(tmp_path / path, scratch=tmp_path)


@pytest.mark.parametrize(("removed", "look"), [("k=2", 2), ("2.csv", 1)])
def test_folder__parts_removed_while_it_is_read_are_not_left_out(
    removed: str, look: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("1.csv", "2.csv") if removed == "2.csv" else ("k=1/1.csv", "k=2/1.csv"):
        (tmp_path / "t" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / file).write_text("a,b\n1,2\n")
    is_dir, looks = Path.is_dir, 0

    def remove_and_look(path: Path) -> bool:
        nonlocal looks
        looks += path.name == removed
        if looks == look and path.name == removed:
            path.rename(tmp_path / "elsewhere")
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", remove_and_look)
    with pytest.raises(DataError, match=f"{removed}: it was removed while the folder was read, so its rows"):
        open_source(tmp_path / "t", scratch=tmp_path)


def test_folder__leaves_no_rows_out_in_silence(tmp_path: Path) -> None:
    """Files that look like more of the table, and are not read, are named."""
    for file in ("t/1.csv", "t/2.csv.xz", "u/1.csv", "u/year=1/1.csv", "v/year=1/1.csv", "v/year=2/more/1.csv"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("a,b\n1,2\n")
    for folder, words in (
        ("t", r"2\.csv\.xz: the file is compressed; unpack it"),
        ("u", "there are tables in it and in .*year=1; give the one or the other"),
        ("v", "more: the folder is not named by a column and its value"),
    ):
        with pytest.raises(DataError, match=words):
            open_source(tmp_path / folder, scratch=tmp_path)
    for name in ("_SUCCESS", ".part.csv.crc", "notes.txt.gz", "README.md"):
        (tmp_path / "t" / name).write_text("")
    (tmp_path / "t/2.csv.xz").unlink()
    (tmp_path / "v/year=2/more/1.csv").unlink()
    (tmp_path / "v/year=2/more").rmdir()
    assert open_source(tmp_path / "t", scratch=tmp_path).rows == 1
    assert open_source(tmp_path / "v", scratch=tmp_path).rows == 1
