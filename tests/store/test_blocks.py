"""Columns read block by block are those of the file, from the page cache or past it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cgroup import evict
from bigforest.errors import FormatError
from bigforest.storage.regular_files import DIRECT_UNIT, write_past_cache
from bigforest.store.blocks import ColumnFile
from tests.thorough import examples

BLOCK = 65_536


@given(
    rows=st.sampled_from([1, 127, 65_535, 65_536, 65_537, 70_001, 131_072]),
    columns=st.integers(1, 4),
    dtype=st.sampled_from(["u1", "<u2", "<u4", "<f8"]),
    again=st.booleans(),
    evicted=st.booleans(),
    block_rows=st.sampled_from([BLOCK, 100_000]),
)
@settings(deadline=None, max_examples=examples(60))
def test_column_file__reads_what_is_there(
    rows: int, columns: int, dtype: str, again: bool, evicted: bool, block_rows: int
) -> None:
    values = np.random.default_rng(rows).integers(0, 250, (columns, rows)).astype(dtype)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrix.bin"
        path.write_bytes(values.tobytes())
        if evicted:
            evict(path)
        file = ColumnFile(path, np.dtype(dtype), columns, rows, block_rows, again)
        for first in range(0, rows, block_rows):
            count = min(block_rows, rows - first)
            for column in range(columns):
                file.read(column, first, count)
                file.announce(column, first, count)
            for column in range(columns):  # none has been written over by another
                assert (file.matrix[column, :count] == values[column, first : first + count]).all()
        file.close()


@pytest.mark.parametrize("again", [False, True])
def test_column_file__cut_short(tmp_path: Path, again: bool) -> None:
    path = tmp_path / "matrix.bin"
    path.write_bytes(bytes(8 * 999))
    evict(path)
    file = ColumnFile(path, np.dtype("<f8"), 1, 1000, BLOCK, again)
    with pytest.raises(FormatError, match=r"matrix.bin is cut short"):
        file.read(0, 0, 1000)
    file.close()


@pytest.mark.parametrize("aligned", [True, False])
def test_write_past_cache__writes_everything(tmp_path: Path, aligned: bool) -> None:
    """What is not aligned, or is on a disk that cannot do it, is written through the page cache."""
    room = np.arange(4 * DIRECT_UNIT, dtype=np.uint64)
    begin = -room.ctypes.data % DIRECT_UNIT // 8 + (0 if aligned else 1)
    values, path = room[begin : begin + 3 * DIRECT_UNIT], tmp_path / "rows.bin"
    with path.open("xb", buffering=0) as file:
        write_past_cache(file, values)
        write_past_cache(file, values[: DIRECT_UNIT // 8])
        file.write(b"end")
    assert path.read_bytes() == values.tobytes() + values[: DIRECT_UNIT // 8].tobytes() + b"end"
