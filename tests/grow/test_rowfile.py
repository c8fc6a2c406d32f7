"""The files of rows by node that growing by passes keeps in scratch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.errors import FormatError
from bigforest.execution.process_cache import BufferPool
from bigforest.grow.out_of_core.row_file import NodeItems, SpilledRows, load_rows, spilled_rows, writing_rows
from bigforest.kernels.out_of_core.row_files import checksum
from bigforest.storage.paths import is_remote
from bigforest.storage.regular_files import DIRECT_UNIT
from tests.thorough import examples

KINDS = ("<i8", "<u4", "<f4", "<f8", "<u2", "<u1")
# The cells of a block, and its rows by node.
Block = tuple[list[NDArray[np.generic]], NodeItems]
# For the rows that are loaded, and for a piece of them.
ROOMS = (BufferPool(), BufferPool())


def spread_of(
    columns: list[int], sizes: list[list[int]], seed: int
) -> tuple[list[Block], list[list[tuple[list[NDArray[np.generic]], NDArray[np.uint64]]]]]:
    """Blocks with some rows of each node, and by block and node the cells and tags."""
    random = np.random.default_rng(seed)
    blocks, expected = [], []
    for of_block in sizes:
        total = sum(of_block)
        cells = [
            read_only(random.integers(0, 200, (count, total + 3)).astype(kind))
            for kind, count in zip(KINDS, columns, strict=True)
        ]
        row = random.permutation(total + 3)[:total].astype(np.uint64)
        tags = random.integers(0, 2**32, total, np.uint64)
        end = np.cumsum(of_block).astype(np.uint64)
        begin = end - np.array(of_block, np.uint64)
        blocks.append((cells, (row << np.uint64(32) | tags, begin, end)))
        ranges = [slice(int(first), int(stop)) for first, stop in zip(begin, end, strict=True)]
        expected.append([([matrix[:, row[here]] for matrix in cells], tags[here]) for here in ranges])
    return blocks, expected


def write(path: Path, entries: list[int], blocks: list[Block], room: BufferPool | None = None) -> Path:
    with writing_rows(path, entries, room or BufferPool()) as add:
        for block in blocks:
            add(*block)
    return path


@given(
    columns=st.lists(st.integers(0, 3), min_size=len(KINDS), max_size=len(KINDS)),
    sizes=st.integers(1, 5).flatmap(
        lambda nodes: st.lists(st.lists(st.integers(0, 9), min_size=nodes, max_size=nodes), min_size=1, max_size=4)
    ),
    runs=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=examples(60))
def test_load_rows__gives_what_was_written_node_by_node(
    columns: list[int], sizes: list[list[int]], runs: int, seed: int
) -> None:
    blocks, expected = spread_of(columns, sizes, seed)
    # Nodes are written in an order of their own, and one is left out.
    entries = np.random.default_rng(seed).permutation(len(sizes[0]))[: max(1, len(sizes[0]) - 1)].tolist()
    cuts = np.linspace(0, len(blocks), min(runs, len(blocks)) + 1).astype(int)  # no run is without blocks
    with TemporaryDirectory() as name:
        folder = Path(name)
        files = [
            write(folder / f"rows-{first}.bin", entries, blocks[first:stop]) for first, stop in pairwise(cuts.tolist())
        ]
        kinds = [*zip(KINDS, columns, strict=True)]
        for number, entry in enumerate(entries):
            total = sum(of_block[entry] for of_block in sizes)
            rows = spilled_rows(files, number)
            if total == 0:
                with pytest.raises(FormatError, match="damaged"):  # no node is without rows
                    load_rows(rows, kinds, 10**6, ROOMS)
                continue
            found, items = load_rows(rows, kinds, total, ROOMS)
            for place, matrix in enumerate(found):
                assert np.array_equal(matrix, np.hstack([block[entry][0][place] for block in expected]))
            tags = np.concatenate([block[entry][1] for block in expected])
            assert items.tolist() == [at << 32 | tag for at, tag in enumerate(tags.tolist())]
            with pytest.raises(FormatError, match="damaged"):
                load_rows(rows, kinds, total - 1, ROOMS)


def test_load_rows__refuses_every_flipped_byte_and_every_cut(tmp_path: Path) -> None:
    columns = [1, 2, 0, 1, 1, 3]
    blocks, _ = spread_of(columns, [[2, 0, 3], [1, 4, 0]], 5)
    path = write(tmp_path / "rows.bin", [0, 1, 2], blocks)
    kinds = [*zip(KINDS, columns, strict=True)]
    whole = path.read_bytes()

    def read() -> None:
        for number in range(3):
            load_rows(SpilledRows([path], number), kinds, 100, ROOMS)

    read()
    # Zeros up to a multiple of DIRECT_UNIT follow the rows of a block, and are not read.
    used = [at for at in range(len(whole)) if whole[at : at - at % DIRECT_UNIT + DIRECT_UNIT].strip(b"\0")]
    assert len(used) < len(whole)
    for place in used:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(FormatError, match=r"damaged|checksum"):
            read()
    for size in used:
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"damaged|checksum"):
            read()


def test_load_rows__refuses_what_is_not_all_there(tmp_path: Path) -> None:
    columns = [0, 2, 0, 0, 1, 0]
    blocks, _ = spread_of(columns, [[2, 3], [1, 4]], 5)
    files = [write(tmp_path / f"rows-{first}.bin", [0, 1], [block]) for first, block in enumerate(blocks)]
    rows = spilled_rows(files, 0)
    kinds = [*zip(KINDS, columns, strict=True)]
    assert load_rows(rows, kinds, 3, ROOMS)[1].size == 3
    rows.paths[0].unlink()
    with pytest.raises(FormatError, match="missing"):
        load_rows(rows, kinds, 3, ROOMS)


def test_writing_rows__in_room_that_was_used_before(tmp_path: Path) -> None:
    """What it held is not in the file, not even beside rows that fill a word in part."""
    blocks, _ = spread_of([0, 1, 0, 0, 1, 3], [[1, 2, 0], [3, 1, 5], [0, 0, 0], [9, 9, 9]], 4)
    room = BufferPool()
    room.words(200)[:] = ~np.uint64(0)
    again = write(tmp_path / "again", [0, 1, 2], blocks, room)
    assert again.read_bytes() == write(tmp_path / "new", [0, 1, 2], blocks).read_bytes()
    zeros = BufferPool()
    zeros.words(200)[:] = 0
    assert again.read_bytes() == write(tmp_path / "zeros", [0, 1, 2], blocks, zeros).read_bytes()
    assert room.words(3).base is room.words(2).base


def test_writing_rows__to_an_object_store_gives_each_node_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [0, 2, 0, 0, 1, 0]
    blocks, expected = spread_of(columns, [[2, 3], [0, 4]], 5)
    assert not is_remote(tmp_path)
    monkeypatch.setattr("bigforest.grow.out_of_core.row_file.is_remote", lambda _: True)
    path = write(tmp_path / "rows.bin", [0, 1], blocks)
    assert len(list(tmp_path.iterdir())) == 2
    kinds = [*zip(KINDS, columns, strict=True)]
    for number in range(2):
        rows = spilled_rows([path], number)
        assert rows.number == 0
        found, items = load_rows(rows, kinds, 100, ROOMS)
        assert items.size == [2, 7][number]
        assert np.array_equal(found[1], np.hstack([block[number][0][1] for block in expected]))


def test_load_rows__where_the_system_reads_less_than_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux reads 2 GiB at most; so much are a block's rows with thousands of columns."""
    read = os.preadv

    def some(file: int, buffers: Sequence[memoryview], place: int) -> int:
        return read(file, [buffers[0].cast("B")[:100]], place)

    blocks, expected = spread_of([1, 2, 1, 2, 1, 1], [[40, 60]], seed=5)
    path = write(tmp_path / "rows", [0, 1], blocks)
    monkeypatch.setattr(os, "preadv", some)
    kinds = [(matrix.dtype, len(matrix)) for matrix in blocks[0][0]]
    matrices, items = load_rows(SpilledRows([path], 1), kinds, 60, ROOMS)
    assert (items & np.uint64(2**32 - 1)).tolist() == expected[0][1][1].tolist()
    for found, right in zip(matrices, expected[0][1][0], strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("start", [2**63, 2**64 - 1, 2**62])
def test_load_rows__refuses_forged_pieces(start: int, tmp_path: Path) -> None:
    """Their checksum is right, and they begin where no file has bytes."""
    blocks, _ = spread_of([1, 2, 1, 2, 1, 1], [[3, 4]], seed=5)
    path = write(tmp_path / "rows", [0, 1], blocks)
    end = np.array([start, 1, 0], np.uint64)
    end[-1] = checksum(end[-2:-1], end[:-2])
    path.write_bytes(path.read_bytes()[: -end.nbytes] + end.tobytes())
    kinds = [(matrix.dtype, len(matrix)) for matrix in blocks[0][0]]
    with pytest.raises(FormatError, match="damaged"):
        load_rows(SpilledRows([path], 0), kinds, 60, ROOMS)
