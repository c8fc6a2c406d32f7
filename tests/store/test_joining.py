"""Files put together from others, and their checksums."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from bigforest.store.writer import cut_ranges, joined_crc, write_range


@pytest.mark.parametrize("sizes", [(0, 0), (1, 0), (0, 5), (3, 1), (1000, 65_537), (5, 1 << 20)])
def test_joined_crc__is_that_of_both(sizes: tuple[int, int]) -> None:
    one, two = (np.random.default_rng(size).bytes(size) for size in sizes)
    assert joined_crc(zlib.crc32(one), zlib.crc32(two), len(two)) == zlib.crc32(one + two)


@pytest.mark.parametrize("sizes", [(1,), (64,), (65, 1), (10, 20, 200, 3), (128, 128)])
def test_cut_ranges__hold_all_bytes_once(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    contents = [np.random.default_rng(size).bytes(size) for size in sizes]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}").write_bytes(content)
    (tmp_path / "joined").touch()
    ranges = cut_ranges(tmp_path / "joined", [(tmp_path / f"{n}", size) for n, size in enumerate(sizes)], 64)
    assert [wanted.begin for wanted in ranges] == list(range(0, sum(sizes), 64))
    for wanted in reversed(ranges):
        write_range(wanted, copy_bytes=7)
    assert (tmp_path / "joined").read_bytes() == b"".join(contents)


def test_write_range__a_file_that_was_cut(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abc")
    (tmp_path / "joined").touch()
    [wanted] = cut_ranges(tmp_path / "joined", [(tmp_path / "short", 5)])
    with pytest.raises(OSError, match="has become shorter"):
        write_range(wanted)
