"""Whatever is handed over is the same table, read by column or in batches."""

from __future__ import annotations

import tempfile
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
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from bigforest.errors import DataError
from bigforest.source import spool
from bigforest.source.in_memory import frame_from_numpy, frame_in_memory
from bigforest.source.open import open_source
from bigforest.source.source import Source
from tests.strategies import cuts, frames
from tests.thorough import examples

TABLE = pl.DataFrame(
    {
        "a": [1, 2, 3, -4, 5],
        "b": [0.5, -1.25, 3.0, 1e300, 5e-324],
        "c": [True, False, True, True, False],
        "d": list("vwxyz"),
    }
)


def whole(source: Source) -> pl.DataFrame:
    """All columns, one at a time."""
    return pl.DataFrame([source.column(name) for name in source.schema])


def write(folder: Path, kind: str, frame: pl.DataFrame = TABLE, stem: str = "flights") -> Path:
    """The table as a file of a kind."""
    path = folder / f"{stem}.{kind}"
    writers: dict[str, Callable[[Path], Any]] = {
        "parquet": frame.write_parquet,
        "pq": frame.write_parquet,
        "arrow": frame.write_ipc,
        "feather": lambda p: frame.write_ipc(p, compression="lz4"),
        "ipc": frame.write_ipc_stream,
        "csv": frame.write_csv,
        "tsv": lambda p: frame.write_csv(p, separator="\t"),
        "ndjson": frame.write_ndjson,
        "jsonl": frame.write_ndjson,
    }
    writers[kind](path)
    return path


KINDS = ["parquet", "pq", "arrow", "feather", "ipc", "csv", "tsv", "ndjson", "jsonl"]


@pytest.mark.parametrize("kind", KINDS)
def test_open_source__file_of_every_kind(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, kind)
    for given_as in (path, str(path)):
        source = open_source(given_as, scratch=tmp_path)
        assert (source.name, source.rows) == ("flights", 5)
        assert source.schema == dict(TABLE.schema)
        assert_frame_equal(whole(source), TABLE)


@pytest.mark.parametrize("kind", KINDS)
def test_open_source__folder_and_glob_in_order_of_names(kind: str, tmp_path: Path) -> None:
    folder, scratch = tmp_path / "years", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    for stem, start in (("b", 2), ("a", 0), ("c", 4)):
        write(folder, kind, TABLE[start : start + 2], stem)
    write(folder, kind, TABLE, ".hidden")
    write(folder, kind, TABLE, "_SUCCESS")
    (folder / "README.md").write_text("not a table")
    for path in (folder, folder / f"[abc].{kind}"):
        source = open_source(path, scratch=scratch)
        assert source.name == "years"
        assert_frame_equal(whole(source), TABLE)


IN_MEMORY: dict[str, Callable[[], Any]] = {
    "frame": lambda: TABLE,
    "lazy": lambda: TABLE.lazy().filter(pl.col("a") != 99),
    "table": TABLE.to_arrow,
    "batch": lambda: TABLE.to_arrow().to_batches()[0],
    "reader": lambda: TABLE.to_arrow().to_reader(max_chunksize=2),
    "dataset": lambda: ds.dataset(TABLE.to_arrow()),
    "pandas": TABLE.to_pandas,
    "stream": lambda: Exporter(TABLE),
}


class Exporter:
    """Something we know nothing of, except that it exports an Arrow stream."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.frame.__arrow_c_stream__(requested_schema)


def test_frame_in_memory__plain_columns_of_pandas_are_as_polars_reads_them() -> None:
    kinds = "?bhilqBHILQfd"
    frame = pd.DataFrame({f"x{kind}": np.array([0, 1, 1], kind) for kind in kinds})
    frame.loc[1, ["xf", "xd"]] = np.nan
    for rows in (frame, frame[:1], frame[:0], frame[["xd"]], frame.iloc[::-1]):
        found = frame_in_memory(rows)
        assert found is not None
        assert_frame_equal(found, pl.from_pandas(rows))
        unnamed = frame_in_memory(rows.rename(columns={"xd": ""}))
        assert unnamed is not None
        assert_frame_equal(unnamed, found.rename({"xd": ""}))


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_open_source__table_of_every_library(kind: str, tmp_path: Path) -> None:
    source = open_source(IN_MEMORY[kind](), scratch=tmp_path)
    assert (source.name, source.rows) == ("data", 5)
    assert_frame_equal(whole(source), TABLE)


@pytest.mark.parametrize("cells", [[0, 3, 0], [0.5, np.nan, 0.0], [True, False, True]])
def test_open_source__sparse_columns_of_pandas_have_all_cells(cells: list[Any], tmp_path: Path) -> None:
    made = pd.DataFrame({"a": cells, "b": [1, 2, 3]})
    thin = made.assign(a=pd.arrays.SparseArray(cells))
    found, dense = (whole(open_source(table, scratch=tmp_path)) for table in (thin, made))
    assert_frame_equal(found, dense)


def test_open_source__columns_of_pandas_in_another_byte_order(tmp_path: Path) -> None:
    made = pd.DataFrame({"a": [0.5, np.nan, 0.0], "b": [1, 2, 3], "c": ["x", "y", "x"]})
    swapped = made.assign(a=made["a"].to_numpy().astype(">f8"), b=made["b"].to_numpy().astype(">i2"))
    found, native = (whole(open_source(table, scratch=tmp_path)) for table in (swapped, made.astype({"b": "i2"})))
    assert_frame_equal(found, native)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["?", "u1", "i4", "i8", "f4", ">f8", "f8"])
def test_open_source__pair_of_arrays(dtype: str, order: Any, tmp_path: Path) -> None:
    matrix = np.array(np.arange(12).reshape(4, 3), dtype, order=order)
    source = open_source((matrix, np.array(["a", "b", "a", "c"])), scratch=tmp_path)
    assert list(source.schema) == ["x0", "x1", "x2", "target"]
    assert (whole(source).drop("target").to_numpy() == matrix).all()
    assert source.column("target").to_list() == ["a", "b", "a", "c"]
    assert source.schema["x0"] == pl.Series(np.zeros(1, matrix.dtype.newbyteorder("="))).dtype
    assert whole(open_source(matrix, scratch=tmp_path)).columns == ["x0", "x1", "x2"]


def test_open_source__mapping_with_arrays_of_several_columns(tmp_path: Path) -> None:
    """As a Polars frame of them has: a column of arrays."""
    wide = np.arange(6.0).reshape(3, 2)
    columns = {"a": wide, "b": wide[::-1].T.copy().T, "c": wide > 1, "d": [1, 2, 3]}
    read = open_source(columns, scratch=tmp_path).columns(list(columns))
    assert read.equals(pl.DataFrame(columns)) and read["a"].dtype == pl.Array(pl.Float64, 2)
    hidden = np.ma.array(wide, mask=wide == 3)
    masked = open_source({"a": hidden}, scratch=tmp_path).column("a")
    assert masked.arr.get(1).is_nan().to_list() == [False, True, False]
    with pytest.raises(DataError, match="a column was expected, not an array of shape"):
        open_source({"a": np.ones((3, 2, 2))}, scratch=tmp_path)


def test_frame_from_numpy__names_and_errors() -> None:
    assert frame_from_numpy(np.eye(2), ["p", "q"]).to_dict(as_series=False) == {"p": [1, 0], "q": [0, 1]}
    for matrix, names, message in (
        (np.zeros(3), ["a"], "two dimensions"),
        (np.zeros((2, 2), "O"), ["a", "b"], "type object"),
        (np.zeros((2, 2)), ["a"], "2 columns, not 1 as expected"),
        (np.zeros((2, 2)), ["a", "a"], "duplicate column names 'a'"),
    ):
        with pytest.raises(DataError, match=message):
            frame_from_numpy(matrix, names)


@settings(max_examples=examples(25))
@given(data=st.data(), frame=frames(), rows=st.integers(1, 40), part=st.sampled_from([1, 100, 1 << 20]))
def test_source__batches_are_the_table_in_order(data: st.DataObject, frame: pl.DataFrame, rows: int, part: int) -> None:
    frame = frame.select(pl.exclude(pl.Int128))
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "PART_BYTES", part)
        scratch = Path(name)
        frame.write_parquet(scratch / "t.parquet", row_group_size=data.draw(st.integers(1, 40)))
        sizes = data.draw(cuts(len(frame)))
        starts = np.cumsum([0, *sizes[:-1]]).tolist()
        parts = [frame.slice(start, size).to_arrow() for start, size in zip(starts, sizes, strict=True)]
        reader = pa.concat_tables(parts).to_reader()
        chosen = data.draw(st.permutations(frame.columns))[: data.draw(st.integers(1, len(frame.columns)))]
        for table in (frame, frame.lazy(), scratch / "t.parquet", reader):
            source = open_source(table, scratch=scratch)
            batches = list(source.batches(chosen, rows))
            assert [len(batch) for batch in batches[:-1]] == [rows] * (len(batches) - 1)
            assert all(batch.n_chunks() == 1 for batch in batches)
            assert_frame_equal(pl.concat(batches), frame.select(chosen))


def test_source__integers_of_128_bits_within_other_types(tmp_path: Path) -> None:
    """Copies have them as text."""
    numbers = [2**100, None, -(2**126), 2**127 - 1]
    frame = pl.DataFrame(
        {
            "whole": pl.Series(numbers, dtype=pl.Int128),
            "above": pl.Series([2**128 - 1, 0, None, 1], dtype=pl.UInt128),
            "struct": pl.Series(
                [{"n": n, "x": 0.5} for n in numbers], dtype=pl.Struct({"n": pl.Int128, "x": pl.Float64})
            ),
            "list": pl.Series([[1, None], [], None, [2**90]], dtype=pl.List(pl.Int128)),
            "array": pl.Series([[1, 2**99], [2, 3], [None, 0], [4, 5]], dtype=pl.Array(pl.Int128, 2)),
        }
    )
    frame.write_parquet(tmp_path / "t.parquet")
    for table in (frame.lazy(), tmp_path / "t.parquet"):
        assert_frame_equal(open_source(table, scratch=tmp_path).columns(frame.columns), frame)


def test_source__first_rows_are_read_without_the_rest_of_their_row_group(tmp_path: Path) -> None:
    path, values = tmp_path / "t.parquet", np.random.default_rng(0).normal(size=100_000)
    pq.write_table(pa.table({"x": values}), path, compression="none", use_dictionary=False, data_page_size=10_000)
    content = bytearray(path.read_bytes())
    content[400_000:500_000] = bytes(100_000)
    path.write_bytes(content)
    source = open_source(path, scratch=tmp_path)
    assert source.frame is None
    assert pl.concat(source.batches(["x"], 1_000, 100, 200)).to_series().to_list() == values[100:200].tolist()
    with pytest.raises(DataError, match="cannot be read"):
        source.column("x")


@pytest.mark.parametrize(
    ("name", "head", "line", "last"),
    [("t.csv", "a,b\n", "1,2\n", "1,2.5\n"), ("t.ndjson", "", '{"a":1,"b":2}\n', '{"a":1,"b":2.5}\n')],
)
def test_source__types_are_inferred_from_all_rows(name: str, head: str, line: str, last: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(head + line * 30_000 + last)
    assert open_source(tmp_path / name, scratch=tmp_path).schema == {"a": pl.Int64, "b": pl.Float64}


def test_source__csv_files_whose_numbers_differ_in_kind(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a\n1\n")
    (tmp_path / "2.csv").write_text("a\n2.5\n")
    source = open_source(tmp_path, scratch=tmp_path)
    assert source.column("a").to_list() == [1.0, 2.5]


def test_source__csv_with_mark_and_quoted_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('\ufeffa,"b, c"\n1,2\n', encoding="utf-8")
    assert list(open_source(tmp_path / "t.csv", scratch=tmp_path).schema) == ["a", "b, c"]


def test_source__files_are_streamed_into_scratch_once(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = write(tmp_path, "csv")
    source = open_source(path, scratch=scratch)
    path.unlink()
    assert_frame_equal(whole(source), TABLE)
    assert len(list(scratch.iterdir())) == 1
    open_source(TABLE, scratch=scratch)
    open_source(write(tmp_path, "parquet"), scratch=scratch)
    assert len(list(scratch.iterdir())) == 1
