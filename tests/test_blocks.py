"""Columns read block by block are those of the file, from the page cache or past it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cgroup import evict
from bigforest.errors import FormatError
from bigforest.store.blocks import ColumnFile, Reader, cached_pages

BLOCK = 65_536


@given(
    rows=st.sampled_from([1, 127, 65_535, 65_536, 65_537, 70_001, 131_072, 400_000]),
    dtype=st.sampled_from(["u1", "<u2", "<u4", "<f8"]),
    start=st.sampled_from([0, 4, 4096, 5000]),
    again=st.booleans(),
    evicted=st.booleans(),
    block_rows=st.sampled_from([BLOCK, 100_000]),
    together=st.integers(1, 4),
    skipped=st.integers(0, 1),
    draws=st.data(),
)
@settings(deadline=None, max_examples=60)
def test_reader__reads_what_is_there(
    rows: int,
    dtype: str,
    start: int,
    again: bool,
    evicted: bool,
    block_rows: int,
    together: int,
    skipped: int,
    draws: st.DataObject,
) -> None:
    """Columns of one file, and of another of two columns of bytes, from some block on."""
    columns = draws.draw(st.integers(1, 4))
    slots = draws.draw(st.lists(st.sampled_from(range(columns)), unique=True))
    values = np.random.default_rng(rows).integers(0, 250, (columns, rows)).astype(dtype)
    other = np.random.default_rng(start).integers(0, 250, (2, rows)).astype("u1")
    first = min(skipped * block_rows, rows - 1) // block_rows * block_rows
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("matrix.bin", "other.bin")]
        for path, content in zip(paths, (values, other), strict=True):
            path.write_bytes(bytes(start) + content.tobytes())
            if evicted:
                evict(path)
        files = [
            ColumnFile(paths[0], start, np.dtype(dtype), columns, rows, again),
            ColumnFile(paths[1], start, np.dtype("u1"), 2, rows, again),
            ColumnFile(Path(folder) / "none.bin", 0, np.dtype("<u2"), 0, rows, again),
        ]
        with Reader(files, [slots, [1], []], range(first, rows), block_rows, together) as reader:
            for number, begin in enumerate(range(first, rows, block_rows)):
                end = min(begin + block_rows, rows)
                found, beside, none = reader.read(number)
                assert none.shape[0] == 0
                assert (beside[1, : end - begin] == other[1, begin:end]).all()
                for slot in slots:  # none has been written over by another
                    assert (found[slot, : end - begin] == values[slot, begin:end]).all()
                assert found.flags.c_contiguous
                assert not found.flags.writeable


@pytest.mark.parametrize("again", [False, True])
def test_reader__cut_short(tmp_path: Path, again: bool) -> None:
    path = tmp_path / "matrix.bin"
    path.write_bytes(bytes(8 * 999))
    evict(path)
    file = ColumnFile(path, 0, np.dtype("<f8"), 1, 1000, again)
    with (
        Reader([file], [[0]], range(1000), BLOCK, 1) as reader,
        pytest.raises(FormatError, match=r"matrix.bin is cut short"),
    ):
        reader.read(0)


def test_reader__leaves_the_page_cache_alone_when_it_reads_again(tmp_path: Path) -> None:
    path = tmp_path / "matrix.bin"
    values = np.arange(4 * BLOCK, dtype=np.uint64).reshape(2, -1)
    path.write_bytes(values.tobytes())
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system cannot be read past the page cache")
    for again in (True, False):
        evict(path)
        file = ColumnFile(path, 0, values.dtype, 2, 2 * BLOCK, again)
        with Reader([file], [[1]], range(2 * BLOCK), BLOCK, 2) as reader:
            [found] = reader.read(1)
        assert (found[1, :BLOCK] == values[1, BLOCK:]).all()
        with path.open("rb") as here:
            assert cached_pages(here.fileno())[-1:] != again
