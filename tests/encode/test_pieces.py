"""A column encoded in pieces gives the bytes that it gives in one."""

from __future__ import annotations

import errno
import gc
import os
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.columns.dataspec import MAX_CODES
from bigforest.encode import features
from bigforest.encode.values import DictionaryWriter, Scale, new_bins
from bigforest.errors import ConfigError, DataError
from bigforest.planning.sizes import USUAL, Limits
from bigforest.source.open import open_source
from bigforest.store import writer
from bigforest.store.writer import PartWriter
from tests.encode.test_encode import content, encoded
from tests.strategies import cuts, mixed_frames
from tests.thorough import examples


@settings(max_examples=examples(100))
@given(
    data=st.data(),
    frame=mixed_frames(),
    max_bins=st.sampled_from(["exact", "exact", 2, 3, 7, 100]),
    presort_rows=st.sampled_from([1, 2, 5, 1000]),
    slice_rows=st.sampled_from([1, 3, 8, 1000]),
    threads=st.sampled_from([1, 2, 7]),
)
def test_pieces__same_bytes_as_in_one(
    data: st.DataObject,
    frame: pl.DataFrame,
    max_bins: Any,
    presort_rows: int,
    slice_rows: int,
    threads: int,
) -> None:
    frame = frame.select(pl.exclude(pl.Int128))
    frame = frame.with_columns(f=pl.int_range(pl.len()) * 0.1) if len(frame.columns) == 1 else frame
    sizes = data.draw(cuts(len(frame)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = content(encoded(frame, folder, "expected.store", max_bins=max_bins))
        for file, start in enumerate(np.cumsum([0, *sizes[:-1]]).tolist()):
            frame[start : start + sizes[file]].write_parquet(folder / f"{file}.parquet", row_group_size=4)
        limits = Limits(presort_rows=presort_rows, slice_rows=slice_rows)
        for number, table in enumerate((frame, str(folder / "*.parquet"))):
            store = encoded(table, folder, f"{number}.store", threads, limits, max_bins=max_bins)
            assert content(store) == expected
            store.verify()


@pytest.mark.parametrize(("max_bins", "ways"), [("exact", [(1, 40_000), (2, 7_000), (30, 9_000)]), (300, [(2, 7_000)])])
def test_pieces__of_several_blocks(max_bins: Any, ways: list[tuple[int, int]], tmp_path: Path) -> None:
    """Each way has a number of threads and of rows that are sorted at once."""
    random = np.random.default_rng(3)
    rows = 150_000
    frame = pl.DataFrame(
        {
            "normal": random.standard_normal(rows),
            "float": random.standard_normal(rows, dtype=np.float32),
            "zeros": np.where(random.random(rows) < 0.7, 0.0, random.standard_normal(rows)),
            "close": 1 + random.integers(0, 30_000, rows) * 2.0**-52,
            "few": random.integers(0, 9, rows),
            "text": np.array([f"level {level}" for level in range(5000)])[random.integers(0, 5000, rows)],
            "gaps": np.where(random.random(rows) < 0.3, np.nan, random.standard_normal(rows)),
            "late": np.where(np.arange(rows) < 50_000, np.nan, random.standard_normal(rows)),
            "sorted": np.arange(rows) // 2 * 0.1,
            "falling": -np.arange(rows),
            "constant": np.full(rows, -0.0),
            "y": random.integers(0, 3, rows),
        }
    ).with_columns(y=pl.when(pl.col("y") < 2).then("y"))
    expected = content(encoded(frame, tmp_path, "expected.store", max_bins=max_bins))
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=50_000)
    for threads, presort_rows in ways:
        limits = Limits(presort_rows=presort_rows, slice_rows=20_000)
        name = f"{presort_rows}.store"
        assert content(encoded(tmp_path / "t.parquet", tmp_path, name, threads, limits, max_bins=max_bins)) == expected


def test_dictionary__more_values_than_codes_is_an_error(tmp_path: Path) -> None:
    scale = Scale(0, 0, 40, 0, False, 8)
    with PartWriter(tmp_path, 0) as part:
        dictionary = DictionaryWriter("x", scale, new_bins(2**40, "exact"), part)
        dictionary.rank_count = MAX_CODES - 2
        dictionary.add(np.array([2**34, 2**34 + 1], np.uint64))
        assert dictionary.rank_count == 2**32
        with pytest.raises(DataError, match="'x' has more than 4294967296 distinct values"):
            dictionary.add(np.array([2**35], np.uint64))


def test_part_writer__full_disk_closes_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file that stays open is closed later by the garbage collector, which prints the error a second time.
    resource = pytest.importorskip("resource")
    printed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(OSError, match="File too large"), PartWriter(tmp_path, 0) as part:
            part.values(np.arange(3.0), None)
            part.levels(pl.Series(["a", "b", "c"]), 0)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        del part
        gc.collect()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert printed == []


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("writes", [0, 1, 3])
def test_encode__full_disk_is_a_clear_error(
    writes: int, pieces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [writes]

    def write(*_: Any) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1

    frame = pl.DataFrame({f"x{i}": np.arange(100) * 0.3 for i in range(5)} | {"y": np.arange(100) % 2})
    limits = Limits(presort_rows=10, slice_rows=20) if pieces else USUAL
    if pieces:
        monkeypatch.setattr(features, "write_whole", write)
    else:
        monkeypatch.setattr(writer.PartWriter, "values", write)
    with pytest.raises(ConfigError, match=r"no space left on the disk of .*; free some space, or choose another"):
        encoded(frame, tmp_path, limits=limits)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "problem"),
    [(errno.ENOSPC, "no space left on the disk of .*{folder}"), (errno.EFBIG, "a file has the largest size .*ulimit")],
)
def test_open_source__no_room_in_scratch_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, problem: str
) -> None:
    def sink(*_: Any, **__: Any) -> None:
        raise pl.exceptions.ComputeError(f"{os.strerror(number)} (os error {number})")

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", sink)
    with pytest.raises(ConfigError, match=problem.format(folder=tmp_path.name)):
        open_source(pl.LazyFrame({"x": [1], "y": [2]}), scratch=tmp_path)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([1, 2**53 + 1, 7, 2**53, 5, 6, 2**53 + 4, 9]),
        pl.Series([1, 2**70 + 1, 7, -(2**71), 5, 6, 2**71, 9], dtype=pl.Int128),
        pl.Series([Decimal(f"{number}.{digit}") for digit in (1, 2) for number in (1, 10**17, 3, 9)]),
    ],
)
@pytest.mark.parametrize("limits", [Limits(presort_rows=1), Limits(presort_rows=3, slice_rows=2)])
def test_pieces__unfit_columns_are_refused_in_the_same_words(column: pl.Series, limits: Limits, tmp_path: Path) -> None:
    more = {"z": column} if column.dtype == pl.Int128 else {}  # of which all that are unfit are named
    frame = pl.DataFrame({"x": column, **more, "y": [0, 1] * 4})
    said = []
    for threads, own in ((1, USUAL), (8, limits)):
        with pytest.raises(DataError) as caught:
            encoded(frame, tmp_path, threads=threads, limits=own)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert list(tmp_path.iterdir()) == []


def test_pieces__fewer_rows_with_a_target_than_pieces(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": np.arange(8) * 0.5, "y": [None] * 7 + ["a"]}, schema_overrides={"y": pl.String})
    expected = content(encoded(frame, tmp_path, "expected.store"))
    assert content(encoded(frame, tmp_path, "b.store", 4, Limits(presort_rows=2))) == expected
