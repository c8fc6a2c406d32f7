"""What cannot be read as a table is said clearly: what, where, and what to do."""

from __future__ import annotations

import errno
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import bigforest
from bigforest import train
from bigforest.errors import ConfigError, DataError
from bigforest.source.open import open_source
from bigforest.source.source import Reading, reading_parquet


def text(name: str, content: str | bytes) -> Callable[[Path], Path]:
    """Writes a file."""

    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder / name

    return make


def twice(folder: Path) -> Path:
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), folder / "t.parquet")
    return folder / "t.parquet"


def several(*files: tuple[str, str]) -> Callable[[Path], Path]:
    """Writes a folder of text files."""

    def make(folder: Path) -> Path:
        for name, content in files:
            (folder / name).write_text(content)
        return folder

    return make


def several_parquet(*tables: pl.DataFrame) -> Callable[[Path], Path]:
    """Writes a folder of Parquet files."""

    def make(folder: Path) -> Path:
        for number, frame in enumerate(tables):
            frame.write_parquet(folder / f"{number}.parquet")
        return folder

    return make


def broken_reader(folder: Path) -> pa.RecordBatchReader:
    def batches() -> Any:
        yield pa.record_batch({"a": [1]})
        raise OSError("the network is gone")

    return pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches())


ONE = pl.DataFrame({"a": [1]})
TWO_A = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])

WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "series": (lambda folder: ONE["a"], "a table cannot be made of Series"),
    "array of no columns": (lambda folder: np.empty((2, 0)), "the array of features has no columns"),
    "a device": (
        lambda folder: Path("/dev/null"),
        "it is a pipe or a device; .*; the command line reads standard input as -",
    ),
    "missing": (lambda folder: folder / "no.parquet", "there is no such file or folder"),
    "empty folder": (lambda folder: folder, "no table files"),
    "empty glob": (lambda folder: folder / "*.csv", "no file matches"),
    "extension": (text("t.xlsx", "x"), r"unknown kind of file '.xlsx'; it must be one of .parquet"),
    "no extension": (text("t", "x"), "unknown kind of file ''"),
    "compressed": (text("t.csv.xz", "x"), "t.csv.xz: the file is compressed in a way that is not read; unpack it"),
    "gz in name only": (text("t.csv.gz", "a\n1\n"), "t.csv.gz: not a readable compressed file: .*; check that it was"),
    "gz with a short line": (text("t.csv.gz", gzip.compress(b"a,b\n1,2\n3\n")), "/t.csv.gz: line 3 has 1 value"),
    "kinds": (several(("a.csv", "a\n1\n"), ("b.ndjson", '{"a": 1}\n')), r"several kinds \(CSV, NDJSON\)"),
    "not parquet": (text("t.parquet", "hello, hello, hello"), "t.parquet: not a readable Parquet file"),
    "empty parquet": (text("t.parquet", ""), "t.parquet: the file is empty; check that it was written to the end"),
    "empty arrow": (text("t.arrow", ""), "t.arrow: the file is empty; check that it was written to the end"),
    "not arrow": (text("t.arrow", "hello, hello, hello"), "not a readable Arrow file"),
    "arrow stream cut": (text("t.arrow", b"\xff\xff\xff\xff\x10\x00\x00\x00abc"), "not a readable Arrow"),
    "not csv": (text("t.csv", b"PK\x05\xff\xfe\n\x80\x81"), "not a readable CSV file in UTF-8: .*; convert it"),
    "workbook named csv": (text("t.csv", b"PK\x03\x04\x14"), "is a ZIP archive or a workbook; .*save its table as CSV"),
    "gzip named csv": (
        text("t.csv", gzip.compress(b"a\n1\n")),
        "t.csv: the file is compressed; unpack it, or give .*csv.gz",
    ),
    "gzip named ndjson": (text("t.ndjson", gzip.compress(b"{}")), "t.ndjson: the file is compressed; unpack it"),
    "gzip named parquet": (text("t.parquet", gzip.compress(b"PAR1")), "t.parquet: the file is compressed; unpack it"),
    "arrow named parquet": (text("t.parquet", b"ARROW1\0\0abc"), "t.parquet: the file is Arrow; rename it to end with"),
    "parquet named csv": (text("t.csv", b"PAR1\x15\x04"), "t.csv: the file is Parquet; rename it to end with .parquet"),
    "cut parquet": (text("t.parquet", b"PAR1\x15\x04"), "a readable Parquet file: .*; check that it was written to"),
    "utf-16": (text("t.csv", "a\n1\n".encode("utf-16")), "t.csv: the file is text in UTF-16 or UTF-32; convert it"),
    "utf-16 without a mark": (text("t.csv", "ab\n1\n".encode("utf-16-le")), "the file is text in UTF-16 or UTF-32"),
    "carriage returns": (
        text("t.csv", "a,b\r1,2\r"),
        r"t.csv: lines end with a carriage return alone, as on old Macs; .* tr '\\r' '\\n' does",
    ),
    "two carriage returns": (
        text("t.csv", "a,b\r\r\n1,2\r\r\n"),
        r"lines end with two carriage returns and a line feed; drop the former, as tr -d '\\r' does",
    ),
    "line of excel": (text("t.csv", "sep=;\na;b\n1;2\n"), "its first line, sep=, is for Excel and no header; remove"),
    "quote in a value": (
        text("t.csv", 'a,b\n1,"x"\n1,5"\n2,3\n'),
        "line 3 has a quote within a value; quote",
    ),
    "quote in a name": (
        text("t.csv", 'a,5"\n1,2\n'),
        "the name '5\"' has a quote; quote the name",
    ),
    "header with spaces before quotes": (
        text("t.csv", '"a", "b"\n1, 2\n'),
        "the name ' \"b\"' has spaces before its quotes; remove these spaces",
    ),
    "empty csv": (text("t.csv", ""), "the file is empty"),
    "csv header only": (text("t.csv", "a,b\n"), "no rows"),
    "csv ragged": (text("t.csv", "a,b\n1,2\n1,2,3\n"), "line 3 has 3 values, and the header names 2 columns"),
    "csv short": (text("t.csv", "a,b,c\n1,2,3\n4,5\n"), "line 3 has 2 values, and the header names 3 columns"),
    "csv cut": (text("t.csv", 'a,b\n"1\n2",2\n1'), "line 4 has 1 value, and the header names 2 columns"),
    "csv short after a long text": (text("t.csv", f"a,b\n{'x' * 200_000},2\n3\n"), "line 3 has 1 value, and the"),
    "csv short in one of two": (
        several(("1.csv", "a,b\n1,2\n"), ("2.csv", "b,a\n1,2\n3\n")),
        "2.csv: line 3 has 1 value, and",
    ),
    "csv short by another mark": (text("t.csv", "a;b;c\n1;2;3\n4;5\n"), "line 3 has 2 values"),
    "csv twice": (
        text("t.csv", 'a,b,"a"\n1,2,3\n'),
        "t.csv: duplicate column names 'a'; rename or drop them, or write a line",
    ),
    "csv twice after a mark": (text("t.csv", "\ufeffa,b,a\n1,2,3\n"), "t.csv: duplicate column names 'a'"),
    "latin-1 far below": (
        text("t.csv", b"a,b\n" + b"1,x\n" * 9_000 + b"1,\xe9\n"),
        "t.csv: not UTF-8, as the byte 0xe9 after line .* shows; convert it",
    ),
    "not ndjson": (
        text("t.ndjson", "{oops"),
        "t.ndjson: line 1 cannot be read: Expecting .* at character 2; mend the line",
    ),
    "json of several lines": (
        text("t.ndjson", json.dumps([{"a": 1}, {"a": 2}], indent=1)),
        "t.ndjson: JSON begins in line 1 and ends in another; write each row in one line",
    ),
    "feather 1": (text("t.feather", b"FEA1" + bytes(40) + b"FEA1"), "is in Feather format 1, which is not read; write"),
    "NaN in ndjson": (text("t.ndjson", '{"a": 1}\n\n{"a": NaN}\n'), "t.ndjson: line 3 cannot be read: NaN is no value"),
    "latin-1 in ndjson": (text("t.ndjson", b'{"a": "\xff"}\n'), "t.ndjson: not NDJSON in UTF-8: .*; convert it"),
    "list in ndjson": (text("t.ndjson", "[1, 2]\n"), "line 1 cannot be read: it is no object, such as "),
    "number in ndjson": (
        text("t.ndjson", '{"a": 1}\n{"a": 1e400}\n'),
        "line 2 .*: 1e400 is beyond the numbers",
    ),
    "true among numbers": (
        text("t.ndjson", '{"a": 1}\n{"a": null}\n\n{"a": true}\n'),
        "line 4 has true or false for 'a', and line 1 has a number or text; write values of one kind",
    ),
    "true in an object": (
        text("t.ndjson", '{"a": {"b": 1}}\n{"a": {"b": true}}\n'),
        "t.ndjson: line 2 has true or false for 'a.b', and line 1",
    ),
    "key twice": (text("t.ndjson", '{"a": 1}\n{"a": 2, "b": {"c": 1, "c": 2}}\n'), "line 2 has a value for 'c' twice"),
    "inexact long doubles": (
        lambda folder: {"a": np.array([1, 3], np.longdouble) / 3},
        "values that float64 does not hold",
    ),
    "empty ndjson": (text("t.ndjson", ""), "t.ndjson: the file is empty"),
    "parquet twice": (twice, "duplicate column names"),
    "arrow twice": (lambda folder: TWO_A, "duplicate column names 'a'"),
    "reader twice": (lambda folder: TWO_A.to_reader(), "duplicate column names 'a'"),
    "pandas twice": (lambda folder: pd.DataFrame([[1, 2]], columns=["a", "a"]), "duplicate column names 'a'"),
    "pandas text of names": (
        lambda folder: pd.DataFrame([[1, 2]], columns=[1, "1"]),
        "duplicate column names '1'",
    ),
    "a forest": (lambda folder: bigforest.train({"a": [1, 2], "y": [0, 1]}, trees=1), "cannot be made of Forest"),
    "pandas style": (lambda folder: pd.DataFrame({"a": [1]}).style, "Styler is not a table"),
    "pandas series": (lambda folder: pd.Series([1]), "Series is not a table"),
    "pandas mixed": (
        lambda folder: pd.DataFrame({"a": [1, 2, 3], "b": [1, "b", None]}),
        "column 'b' of the pandas frame cannot be read",
    ),
    "no rows": (lambda folder: ONE.clear(), "no rows"),
    "no columns": (lambda folder: pl.DataFrame(), "no columns"),
    "no rows lazy": (lambda folder: ONE.lazy().filter(pl.col("a") > 5), "no rows"),
    "no rows reader": (lambda folder: ONE.clear().to_arrow().to_reader(), "no rows"),
    "no rows numpy": (lambda folder: (np.zeros((0, 2)), np.zeros(0)), "no rows"),
    "no columns numpy": (lambda folder: np.zeros((2, 0)), "no columns"),
    "lazy error": (lambda folder: ONE.lazy().select(pl.col("b")), "cannot be read"),
    "lazy missing": (lambda folder: pl.scan_parquet(folder / "no.parquet"), "cannot be read"),
    "reader error": (broken_reader, "the network is gone"),
    "columns differ": (
        several_parquet(ONE, ONE.rename({"a": "b"})),
        r"1.parquet: .*0.parquet \('a', 'b' not in both\)",
    ),
    "types differ": (several_parquet(ONE, ONE.cast(pl.String)), "column 'a' has type String, but Int64"),
    "integers not exact": (
        several_parquet(ONE.with_columns(a=pl.lit(2**53 + 1)), ONE.cast(pl.Float64)),
        r"0\.parquet: column 'a' has integers beyond 2\*\*53, which are not exact in Float64",
    ),
    "ndjson types differ": (
        several(("1.ndjson", '{"a": 1}\n'), ("2.ndjson", '{"a": "x"}\n')),
        "column 'a' has type String, but Int64",
    ),
    "list of paths": (lambda folder: [folder / "1.csv", "2.csv"], "a list of paths is not a table; give the folder"),
    "list": (lambda folder: [1, 2], "must have two dimensions"),
    "set": (lambda folder: {1, 2}, "a table cannot be made of set"),
    "pair with a column twice": (lambda folder: (ONE, ONE), "X has a column 'a' too"),
    "short y": (lambda folder: (np.zeros((3, 2)), np.zeros(2)), "y has 2 rows, and X has 3"),
    "complex y": (
        lambda folder: (np.zeros((2, 2)), np.zeros(2, complex)),
        "y: an array of type complex128 cannot be a column",
    ),
    "mixed y": (
        lambda folder: (np.zeros((2, 2)), np.array(["a", 1], object)),
        "y is not a column of one type",
    ),
    "flat x": (lambda folder: (np.zeros(2), np.zeros(2)), "two dimensions"),
}


@pytest.mark.parametrize("case", WRONG)
def test_open_source__unusable(case: str, tmp_path: Path) -> None:
    folder, scratch = tmp_path / "data", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    make, message = WRONG[case]
    with pytest.raises(DataError, match=message):
        open_source(make(folder), scratch=scratch)


@pytest.mark.parametrize("look", ["iterdir", "is_file"])
def test_open_source__a_folder_that_may_not_be_read(look: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, look, refuse)
    with pytest.raises(DataError, match="Permission denied; check the path"):
        open_source(tmp_path if look == "iterdir" else "t", scratch=tmp_path)


def test_open_source__a_csv_of_one_column_with_a_comma_in_its_name(tmp_path: Path) -> None:
    path = text("t.csv", '"a,b"\n1\n')(tmp_path)
    assert open_source(path, scratch=tmp_path).schema == {"a,b": pl.Int64()}


def test_open_source__files_that_take_more_memory_to_stream_than_there_is(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": range(1000)})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match=r"t\.csv: the stage read needs at least 23\dMB of memory.*raise memory"):
        open_source(tmp_path / "t.csv", scratch=tmp_path, memory=200_000_000)
    assert open_source(tmp_path / "t.csv", scratch=tmp_path, memory=240_000_000).spooled > 0
    assert open_source(tmp_path / "t.parquet", scratch=tmp_path, memory=1).spooled == 0


@pytest.mark.parametrize("name", ["t.csv", "t.ndjson"])
def test_open_source__a_text_that_was_never_filled(name: str, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 40)  # on the disk it takes no room
    with pytest.raises(DataError, match="begins with zero bytes"):
        open_source(tmp_path / name, scratch=tmp_path)


def test_dask__is_told_to_write_files(tmp_path: Path) -> None:
    frame = pytest.importorskip("dask.dataframe").from_dict({"a": [1, 2], "target": [0, 1]}, npartitions=1)
    told = "a collection of Dask; write it with to_parquet"
    with pytest.raises(DataError, match=told):
        open_source(frame, scratch=tmp_path)
    forest = train([[1], [2]] * 5, [0, 1] * 5, trees=1)
    for use in (lambda: train(frame[["a"]], [0, 1]), lambda: forest.predict(frame)):
        with pytest.raises(DataError, match=told):
            use()
    with pytest.raises(DataError, match=r"y: a column cannot be made of a collection of Dask; .* compute\(\)"):
        train([[1], [2]], frame["target"])


def test_open_source__a_mapping_of_numbers_is_no_table(tmp_path: Path) -> None:
    for needed in ({"a"}, {"b"}):  # a column that is not needed may hold anything, but has a length
        with pytest.raises(DataError, match="a: a column cannot be made of int; give an array, a list or a Series"):
            open_source({"a": 1, "b": [2.0]}, scratch=tmp_path, reading=Reading(needed=frozenset(needed)))


def test_open_source__a_file_without_permission_is_not_called_damaged() -> None:
    told = "^t.parquet cannot be read: Permission denied; change its permissions"
    with pytest.raises(DataError, match=told), reading_parquet(Path("t.parquet")):
        raise PermissionError(errno.EACCES, "Failed to open local file. Detail: Permission denied")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError("Input/output error (os error 5)"),
        pl.exceptions.ComputeError("error while reading: Input/output error (os error 5)"),
    ],
)
@pytest.mark.parametrize(("name", "content"), [("t.csv", "a,\n1,\n2,\n"), ("t.ndjson", '{"a": "2024-01-01"}')])
@pytest.mark.parametrize("calls", range(2))
def test_open_source__a_disk_that_fails_once_makes_no_text_of_numbers(
    error: Exception, name: str, content: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, collect = [calls], pl.LazyFrame.collect

    def fail(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise error
        return collect(*arguments, **options)

    (tmp_path / name).write_text(content)
    monkeypatch.setattr(pl.LazyFrame, "collect", fail)
    with pytest.raises(DataError, match=rf"{name} cannot be read: Input/output error; check its disk, and try again$"):
        open_source(tmp_path / name, scratch=tmp_path)


class Relation:
    """A table whose query fails when it is read, with an error of its library, as a DuckDB relation does."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        class IOException(Exception):
            pass

        raise IOException("IO Error: no file t.csv")


@pytest.mark.parametrize("kind", ["lazy", "dataset", "relation"])
def test_entries__a_table_that_vanished_before_it_is_read(kind: str, tmp_path: Path) -> None:
    table = pl.DataFrame({"x": range(40), "y": ["p", "q"] * 20})
    table.write_parquet(tmp_path / "t.parquet")
    forest = train(tmp_path / "t.parquet", "y", trees=2)
    data: Any = {
        "lazy": lambda: pl.scan_parquet(tmp_path / "t.parquet"),
        "dataset": lambda: ds.dataset(tmp_path / "t.parquet"),
        "relation": Relation,
    }[kind]()
    (tmp_path / "t.parquet").unlink()
    for entry in (
        lambda: train(data, "y", trees=1),
        lambda: forest.score(data),
        lambda: forest.apply(data),
        lambda: forest.explain(data, parts="contributions", new_rows=True),
        lambda: bigforest.predict_file(forest, data, tmp_path / "p.parquet"),
        *([] if kind == "lazy" else [lambda: forest.predict(data)]),  # a lazy table is collected by its owner
    ):
        with pytest.raises(DataError, match=r"cannot be read: .*(No such file|no file t\.csv)"):
            entry()


def test_score__a_lazy_table_that_changes_while_it_is_read(tmp_path: Path) -> None:
    table = pl.DataFrame({"x": range(40), "y": ["p", "q"] * 20})
    forest = train(table, "y", trees=2)
    table.write_parquet(tmp_path / "t.parquet")

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        table.reverse().write_parquet(tmp_path / "t.parquet")
        return frame

    with pytest.raises(DataError, match="changed while it was read"):
        forest.score(pl.scan_parquet(tmp_path / "t.parquet").map_batches(change))


@pytest.mark.parametrize("name", ["t.csv.gz", "t.arrow", "stream"])
def test_copy__that_cannot_be_written_is_named_and_not_the_table(name: str, tmp_path: Path) -> None:
    """An error of the disk of the scratch folder says nothing about the file that is read."""
    table, gone = pl.DataFrame({"a": [1, 2]}), tmp_path / "gone"
    path = tmp_path / name
    if name == "t.arrow":
        table.write_ipc(path)
    elif name == "t.csv.gz":
        path.write_bytes(gzip.compress(table.write_csv().encode()))
    data = pa.RecordBatchReader.from_batches(table.to_arrow().schema, table.to_arrow().to_batches())
    with pytest.raises(FileNotFoundError) as caught:
        open_source(data if name == "stream" else path, scratch=gone)
    assert Path(caught.value.filename).parent == gone
    assert caught.value.__notes__ == ["check what removed it"]


def test_open_source__a_disk_that_fails_once_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n")
    collect, left = pl.LazyFrame.collect, [0]

    def fail(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise OSError("Input/output error (os error 5)")
        return collect(*arguments, **options)

    monkeypatch.setattr(pl.LazyFrame, "collect", fail)
    failed = 0
    for calls in range(10):
        left[0] = calls
        try:
            open_source(tmp_path / "t.csv", scratch=tmp_path)
        except (DataError, OSError) as error:
            failed += 1
            assert re.search(r"t\.csv|source-\w+\.parquet", str(error)), error
    assert failed > 2


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_copy__that_a_broken_disk_does_not_take_is_named_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    text = b"a\n1\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", broken)
    with pytest.raises(DataError, match=f"{name}: the table cannot be read, or not copied to {scratch}: Input/output"):
        open_source(tmp_path / name, scratch=scratch)
