"""A file that changes while it is read is an error, for every kind of file and at every point of a stage."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.dataset as ds
import pytest

from bigforest import predict_file, train
from bigforest.errors import DataError
from bigforest.source.open import open_source, stamps_behind
from bigforest.storage.file_stamps import FileStamp, unchanged

ROWS = 300
TABLE = pl.DataFrame({"a": [float(row) for row in range(ROWS)], "y": ["low", "high"] * (ROWS // 2)})
CHANGED = "the file changed while it was read; nothing was written"


def replaced(path: Path, table: pl.DataFrame = TABLE) -> None:
    """Replace a file by the table in reverse order, written elsewhere and renamed over it, with the same time."""
    table.reverse().write_parquet(path.with_name("new"), compression="uncompressed")
    os.utime(path.with_name("new"), ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    path.with_name("new").replace(path)


def test_each_later_opening_finds_a_replaced_file(tmp_path: Path) -> None:
    TABLE.write_parquet(path := tmp_path / "t.parquet", compression="uncompressed")
    size = path.stat().st_size
    source = open_source(path, scratch=tmp_path)
    assert source.column("y").equals(TABLE["y"])
    for one in (source, pickle.loads(pickle.dumps(source))):
        assert one.column("a").equals(TABLE["a"])
    replaced(path)
    assert path.stat().st_size == size
    with pytest.raises(DataError, match=f"^{path}: {CHANGED}"):  # by its place on the disk, known to this process
        source.column("a")
    os.utime(path)
    for one in (source, pickle.loads(pickle.dumps(source))):
        with pytest.raises(DataError, match=f"^{path}: {CHANGED}"):
            one.column("a")


@pytest.mark.parametrize("first", [pl.Float64, pl.Int128], ids=["in place", "copied"])
def test_a_folder_names_the_file_that_changed(tmp_path: Path, first: type[pl.DataType]) -> None:
    (folder := tmp_path / "t").mkdir()
    TABLE.cast({"a": first}).write_parquet(folder / "1.parquet")
    TABLE.write_parquet(folder / "2.parquet")
    source = open_source(folder, scratch=tmp_path)
    replaced(folder / "2.parquet")
    with pytest.raises(DataError, match=f"2.parquet: {CHANGED}"):
        source.column("a")


WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "csv": pl.DataFrame.write_csv,
    "ndjson": pl.DataFrame.write_ndjson,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_files_of_every_kind_are_compared_while_they_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Files that are streamed to scratch are read by name several times."""
    path, other = tmp_path / f"t.{kind}", tmp_path / "other"
    WRITERS[kind](TABLE, path)
    WRITERS[kind](TABLE.reverse(), other)
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))  # of the same time, and mostly size
    plain = FileStamp.of
    seen: list[Path] = []

    def stamped(file: Path) -> FileStamp:
        found = plain(file)
        if not seen:
            seen.append(file)
            other.replace(path)
        return found

    monkeypatch.setattr(FileStamp, "of", stamped)
    with pytest.raises(DataError, match=f"^{path}: {CHANGED}"):
        open_source(path, scratch=tmp_path)


@pytest.mark.parametrize("scan", [pl.scan_parquet, lambda path: pl.scan_parquet(path).filter(pl.col("a") >= 0)])
def test_files_behind_lazy_queries_and_datasets_are_known(tmp_path: Path, scan: Callable[[Path], pl.LazyFrame]) -> None:
    TABLE.write_parquet(path := tmp_path / "t.parquet")
    assert [stamp.path for stamp in stamps_behind(scan(path))] == [path]
    assert [stamp.path for stamp in stamps_behind(ds.dataset(path))] == [path]
    assert stamps_behind(TABLE.lazy()) == []


def test_the_change_is_named_in_place_of_its_consequences(tmp_path: Path) -> None:
    (path := tmp_path / "t").write_text("one")
    with unchanged([FileStamp.of(path)]):  # as backups do
        (tmp_path / "link").hardlink_to(path)
    with pytest.raises(DataError, match=CHANGED), unchanged([FileStamp.of(path)]):
        path.write_text("longer")
        raise ZeroDivisionError
    with pytest.raises(DataError, match="the file was removed while it was read"), unchanged([FileStamp.of(path)]):
        path.unlink()


@pytest.mark.parametrize("written", [True, False], ids=["written to", "replaced"])
def test_training_and_prediction_write_nothing(tmp_path: Path, written: bool) -> None:
    TABLE.write_parquet(path := tmp_path / "t.parquet")
    forest = train(path, "y", trees=1)

    def change(event: object) -> None:
        if written:
            TABLE.with_columns(z=1).write_parquet(path)
        else:
            replaced(path)

    with pytest.raises(DataError, match=CHANGED):
        train(path, "y", trees=1, out=tmp_path / "forest", listener=change)
    with pytest.raises(DataError, match=CHANGED):
        predict_file(forest, path, tmp_path / "p.parquet", listener=change)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["t.parquet"]
