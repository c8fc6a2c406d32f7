"""Rows of small nodes, written to disk in one pass over the store, and read again node by node (row_file.py).

Each attempt of a task writes files of its own, so that one whose worker was taken for dead does no harm.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.grow.out_of_core.row_file import RowLayout, RowSink, RowSource, word_count
from bigforest.kernels.out_of_core.row_files import number_items, pick_columns, pick_tags
from bigforest.sampling.bags import BLOCK_ROWS
from bigforest.storage.paths import downloads, is_remote, uploads


class BlockRows(NamedTuple):
    """Rows of a block by nodes: matrices of cells [columns, rows of the block], and the items
    (kernels/out_of_core/blocks.py route_rows)."""

    matrices: tuple[NDArray[Any], ...]
    items: NDArray[np.uint64]
    begin: NDArray[np.uint64]
    end: NDArray[np.uint64]


class NodeRows(NamedTuple):
    """Where the rows of a node are: in these files, in order, and there of node number `number`."""

    paths: list[Path]
    number: int


def rows_of(folder: Path, tree: int, number: int, suffixes: Sequence[str]) -> NodeRows:
    """The rows of node number `number` of those of a tree that were written.

    Files are fetched whole from an object store, so there each node has its own.
    """
    name, place = (f"{tree}-{number}", 0) if is_remote(folder) else (f"{tree}", number)
    return NodeRows([_rows_path(folder, name, suffix) for suffix in suffixes], place)


def write_rows(rows: Iterable[tuple[int, Sequence[int], BlockRows]], folder: Path, first: int) -> str:
    """Write the rows of some nodes (tree, entries, rows of a block) into `folder`; gives the suffix of the files.

    entries  the same for all blocks of a tree
    first    the first block
    """
    suffix = f"{first}-{secrets.token_hex(8)}"
    with uploads(folder) as here:
        written: dict[int, tuple[RowSink, int]] = {}
        with ExitStack() as stack:
            for tree, entries, spread in rows:
                if not entries:
                    continue
                if tree not in written:
                    sink = RowSink(_rows_path(here, f"{tree}", suffix), RowLayout.of(spread.matrices).row_bytes)
                    written[tree] = stack.enter_context(sink), len(entries)
                written[tree][0].add(*_picked(spread, entries))
        if is_remote(folder):
            for tree, (sink, nodes) in written.items():
                _set_apart(sink, [_rows_path(here, f"{tree}-{node}", suffix) for node in range(nodes)])
    return suffix


def _rows_path(folder: Path, name: str, suffix: str) -> Path:
    return folder / f"rows-{name}-{suffix}.bin"


class Matrix(NamedTuple):
    """A matrix of cells in a file of rows."""

    dtype: str
    columns: int


def load_rows(
    rows: NodeRows, kinds: Sequence[Matrix], block_rows: int, most: int
) -> tuple[list[NDArray[Any]], NDArray[np.uint64]]:
    """The rows of a node: read-only matrices [columns, rows] as `kinds` says, and items, numbered from 0.

    most  rows of the node, which it cannot have more of. Raises FormatError for a damaged file.
    """
    with downloads(rows.paths) as files, ExitStack() as stack:
        sources = [stack.enter_context(RowSource(path, rows.number, block_rows)) for path in files]
        total = sum(source.rows for source in sources)
        if not 0 < total <= most:
            raise FormatError(f"{rows.paths[0]}: the file is damaged; start the training again")
        matrices = [np.empty((count, total), kind) for kind, count in kinds]
        tags = np.empty((1, total), np.uint32)
        layout = RowLayout.of(matrices)
        at = 0
        for source in sources:
            for words, count in source.chunks(layout.row_bytes):
                for matrix, cells in zip(layout.ordered(tags, matrices), layout.cut(words, count), strict=True):
                    matrix[:, at : at + count] = cells
                at += count
    items = np.empty(total, np.uint64)
    number_items(tags[0], items)
    for matrix in matrices:
        matrix.flags.writeable = False
    return matrices, items


def _picked(spread: BlockRows, entries: Sequence[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """How many rows the nodes `entries` have in the block, and their chunks, one after the other."""
    items, begin, end = spread.items, spread.begin[entries], spread.end[entries]
    layout = RowLayout.of(spread.matrices)
    rows = end - begin
    stops = np.cumsum(word_count(layout.row_bytes, rows.astype(np.int64)))
    words = np.empty(stops[-1], np.uint64)
    words[stops[rows > 0] - 1] = 0  # what fills the last word up
    place = np.append(0, stops[:-1]) * np.uint64().itemsize
    for (dtype, columns), matrix in zip(layout.kinds, layout.ordered(None, spread.matrices), strict=True):
        to = (place // dtype.itemsize).astype(np.uint64), words.view(dtype)
        if matrix is None:
            pick_tags(items, begin, end, *to)
        else:
            pick_columns(matrix, items, begin, end, *to)
        place += dtype.itemsize * columns * rows.astype(np.int64)
    return rows, words


def _set_apart(whole: RowSink, paths: Sequence[Path]) -> None:
    """Give each node of a file of rows a file of its own instead."""
    for number, path in enumerate(paths):
        with RowSource(whole.path, number, BLOCK_ROWS) as source, RowSink(path, whole.row_bytes) as sink:
            for words, rows in source.chunks(whole.row_bytes):
                sink.add(np.array([rows], np.uint64), words)
    whole.path.unlink()
