"""A column presorted on disk gives the bytes it gives in memory, and no number of rows wraps around."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.common.errors import ConfigError, DataError
from bigforest.common.limits import USUAL, Limits
from bigforest.encode.dictionary import DictionaryWriter
from bigforest.encode.external import Buckets, _OffsetsFile, group_pieces
from bigforest.encode.ranks import new_bins
from bigforest.encode.sortable_keys import Scale
from bigforest.schema.dataspec import MAX_CODES
from bigforest.source import open_source
from bigforest.store import writer
from bigforest.store.writer import PartWriter
from tests.encode.test_encode import content, encoded
from tests.strategies import cuts, mixed_frames
from tests.thorough import examples


def on_disk(most: int, slice_rows: int, cell_bits: int) -> Limits:
    """No column is in memory, and at most this number of rows of one is presorted at once."""
    return Limits(rows_in_memory=0, presort_rows=most, slice_rows=slice_rows, cell_bits=cell_bits, finer_bits=5)


@settings(max_examples=examples(60))
@given(
    data=st.data(),
    frame=mixed_frames(),
    max_bins=st.sampled_from(["exact", "exact", 2, 3, 7, 100]),
    most=st.sampled_from([1, 2, 5, 1000]),
    slice_rows=st.sampled_from([1, 3, 8, 1000]),
    cell_bits=st.sampled_from([1, 4, 16]),
    threads=st.sampled_from([1, 2]),
)
def test_on_disk__same_bytes_as_in_memory(
    data: st.DataObject,
    frame: pl.DataFrame,
    max_bins: Any,
    most: int,
    slice_rows: int,
    cell_bits: int,
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
        limits = on_disk(most, slice_rows, cell_bits)
        scratch = folder / "scratch"
        scratch.mkdir()
        for number, table in enumerate((frame, str(folder / "*.parquet"))):
            store = encoded(table, folder, f"{number}.store", threads, limits, max_bins=max_bins)
            assert content(store) == expected
            store.verify()


@pytest.mark.parametrize("max_bins", ["exact", 300])
def test_on_disk__many_rows_in_many_buckets(max_bins: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = 120_000
    frame = pl.DataFrame(
        {
            "normal": random.standard_normal(rows),
            "float": random.standard_normal(rows, dtype=np.float32),
            "zeros": np.where(random.random(rows) < 0.7, 0.0, random.standard_normal(rows)),
            "close": 1 + random.integers(0, 30_000, rows) * 2.0**-52,
            "few": random.integers(0, 9, rows),
            "gaps": np.where(random.random(rows) < 0.3, np.nan, random.standard_normal(rows)),
            "y": random.integers(0, 3, rows),
        }
    ).with_columns(y=pl.when(pl.col("y") < 2).then("y"))
    expected = content(encoded(frame, tmp_path, "expected.store", max_bins=max_bins))
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=50_000)
    limits = on_disk(7_000, 20_000, 8)
    assert content(encoded(tmp_path / "t.parquet", tmp_path, "b.store", 2, limits, max_bins=max_bins)) == expected


@given(
    rows=st.lists(st.sampled_from([1, 2, 3, 10, 2**31, 2**32, 2**33 + 1]), min_size=1, max_size=20),
    most=st.sampled_from([1, 10, 2**32 - 1]),
    data=st.data(),
)
def test_group_pieces__all_rows_and_no_bucket_too_large(rows: list[int], most: int, data: st.DataObject) -> None:
    alone = [data.draw(st.booleans()) or count > most for count in rows]
    first = np.arange(len(rows), dtype=np.uint64) * np.uint64(5)
    buckets = group_pieces(first, np.array(rows, np.uint64), np.array(alone), most)
    assert int(buckets.rows.sum()) == sum(rows)
    assert ((buckets.rows <= most) | buckets.alone).all()
    assert (np.diff(buckets.first) > 0).all()


def test_offsets_file__places_beyond_32_bits() -> None:
    rows = np.array([2**31, 5, 2**33, 7], np.uint64)
    buckets = Buckets(np.arange(4, dtype=np.uint64), rows, np.array([False, True, False, False]))
    file = _OffsetsFile(io.BytesIO(), buckets, np.dtype("<u8"))
    assert file._starts == [0, 2**34, 2**34, 2**34 + 2**36]


def test_dictionary__more_values_than_codes_is_an_error(tmp_path: Path) -> None:
    scale = Scale(0, 0, 40, 0, False, 8)
    with PartWriter(tmp_path, 0) as part:
        dictionary = DictionaryWriter("x", scale, new_bins(2**40, "exact"), part)
        dictionary.ranks = MAX_CODES - 2
        dictionary.add(np.array([2**34, 2**34 + 1], np.uint64))
        assert dictionary.ranks == 2**32
        with pytest.raises(DataError, match="'x' has more than 4294967296 distinct values"):
            dictionary.add(np.array([2**35], np.uint64))


@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("writes", [0, 1, 3])
def test_encode__full_disk_is_a_clear_error(
    writes: int, disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [writes]

    def write(self: Any, *arguments: Any) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1

    frame = pl.DataFrame({f"x{i}": np.arange(100) * 0.3 for i in range(5)} | {"y": np.arange(100) % 2})
    limits = on_disk(10, 20, 4) if disk else USUAL
    if disk:
        monkeypatch.setattr(_OffsetsFile, "_put", write)
    else:
        monkeypatch.setattr(writer._Files, "append", write)
    with pytest.raises(ConfigError, match=r"no space left on the disk of .*; free some, or choose another folder"):
        encoded(frame, tmp_path, limits=limits)
    assert list(tmp_path.iterdir()) == []


def test_open_source__full_scratch_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sink(*_: Any, **__: Any) -> None:
        raise pl.exceptions.ComputeError(f"{os.strerror(errno.ENOSPC)} (os error 28)")

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", sink)
    with pytest.raises(ConfigError, match=f"no space left on the disk of .*{tmp_path.name}"):
        open_source(pl.LazyFrame({"x": [1], "y": [2]}), scratch=tmp_path)
