"""Rows of small nodes, written to scratch in one pass over the store, and read again node by node.

Each attempt of a task writes its own files, so an attempt of a worker taken for dead does no harm. A file holds
the rows of some nodes of one tree from one run of blocks, as pieces in the order of the blocks:

    piece  uint64 [nodes, 3]       index: where the rows of each node begin in the file, how many they are, and a
                                   checksum of these two and of the rows (kernels/out_of_core/row_files.py)
           of each node            its rows as matrices, the widest cells first:
           int64  [rows]           regression targets; not there for classes
           uint32 [rows]           class << 16 | multiplicity, times weight
           uint32 [columns, rows]  codes of the features of 4 bytes
           uint16 [columns, rows]  of 2 bytes
           uint8  [columns, rows]  of 1 byte, and up to 7 zeros to make whole words of 64 bits
    end    uint64 [pieces]         where each piece begins
           uint64 pieces, uint64 checksum of what the end holds before it

or other matrices, of values; little-endian, each in C order. So a block is written at once, however many nodes share
it, and a node is read alone.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.kernels.out_of_core.row_files import checksum, number_items, pick_columns, pick_tags, seal_chunks
from bigforest.sampling.bags import BLOCK_ROWS
from bigforest.storage.atomic import write_whole
from bigforest.storage.paths import downloads, is_remote, uploads

_WORD = np.dtype("<u8")
_ENTRY = 3 * _WORD.itemsize
# Bytes of the tag of a row, and the most bytes of a node in a piece besides its rows: its index, and padding.
TAG = 4
CHUNK = _ENTRY + _WORD.itemsize - 1


class BlockRows(NamedTuple):
    """Rows of a block by nodes: matrices of cells [columns, rows of the block], and the items
    (kernels/out_of_core/blocks.py route_rows)."""

    matrices: tuple[NDArray[Any], ...]
    items: NDArray[np.uint64]
    begin: NDArray[np.uint64]
    end: NDArray[np.uint64]


class NodeRows(NamedTuple):
    """The rows of a node: in these files, in order, those of node number `number`."""

    paths: list[Path]
    number: int


class Matrix(NamedTuple):
    """A matrix of cells in a file of rows."""

    dtype: str
    columns: int


class RowLayout(NamedTuple):
    """The layout of the rows of a node in a chunk.

    kinds  type and columns of the matrices in the order of the file
    order  which of the tags (0) and the matrices (from 1 on) each is
    """

    kinds: list[tuple[np.dtype[Any], int]]
    order: list[int]

    @classmethod
    def of(cls, matrices: Sequence[NDArray[Any]]) -> RowLayout:
        """The layout for rows with the cells of these matrices."""
        kinds = [(np.dtype("<u4"), 1), *((matrix.dtype, matrix.shape[0]) for matrix in matrices)]
        order = sorted(range(len(kinds)), key=lambda which: -kinds[which][0].itemsize)
        return cls([kinds[which] for which in order], order)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return sum(dtype.itemsize * columns for dtype, columns in self.kinds)

    def ordered(self, tags: Any, matrices: Sequence[Any]) -> list[Any]:
        """The given parts of the tags and of each matrix, in the order of the file."""
        return [tags if which == 0 else matrices[which - 1] for which in self.order]

    def cut(self, words: NDArray[np.uint64], rows: int) -> Iterator[NDArray[Any]]:
        """The matrices of a chunk of this many rows, in the order of the file."""
        content, first = words.view(np.uint8), 0
        for dtype, columns in self.kinds:
            stop = first + dtype.itemsize * columns * rows
            yield content[first:stop].view(dtype).reshape(columns, rows)
            first = stop


def word_count(row_bytes: int, rows: Any) -> Any:
    """Words of 64 bits that this many rows take."""
    return (row_bytes * rows + _WORD.itemsize - 1) // _WORD.itemsize


class RowSink:
    """Writes a file of rows, which is complete when the block ends without an error; a context manager."""

    def __init__(self, path: Path, row_bytes: int) -> None:
        """row_bytes: see RowLayout."""
        self.path = path
        self.row_bytes = row_bytes
        self._starts: list[int] = []
        self._at = 0

    def __enter__(self) -> Self:
        self._file = self.path.open("xb", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                end = np.array([*self._starts, len(self._starts), 0], _WORD)
                end[-1] = checksum(end[-2:-1], end[:-2])
                write_whole(self._file, end)

    def add(self, rows: NDArray[np.uint64], words: NDArray[np.uint64]) -> None:
        """Write a piece.

        rows  uint64 [nodes], of each; words: uint64, their chunks, one after the other
        """
        index = np.empty((rows.size, 3), _WORD)
        sizes = _WORD.itemsize * word_count(self.row_bytes, rows.astype(np.int64))
        index[:, 0] = self._at + index.nbytes + np.cumsum(sizes) - sizes
        index[:, 1] = rows
        seal_chunks(index, words)
        self._starts.append(self._at)
        self._at += index.nbytes + words.nbytes
        write_whole(self._file, index)
        write_whole(self._file, words)


class RowSource:
    """The rows of a node in a file; a context manager.

    rows  how many there are
    """

    def __init__(self, path: Path, number: int, block_rows: int) -> None:
        """number: of the node in the file; block_rows: of a block, at most. Raises FormatError for a damaged file."""
        self._path = path
        self._file = path.open("rb", buffering=0)
        try:
            self._index = self._index_of(number)
            self.rows = int(self._index[:, 1].sum())
            if (self._index[:, 1] > block_rows).any() or (self._index[:, 0] > self._size).any():
                raise self._damaged()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def chunks(self, row_bytes: int) -> Iterator[tuple[NDArray[np.uint64], int]]:
        """The words of each chunk, valid until the next one, and its rows. Raises FormatError as above."""
        self._announce(row_bytes)
        buffer = np.empty(word_count(row_bytes, int(self._index[:, 1].max(initial=0))), _WORD)
        for entry, (place, rows, expected) in zip(self._index, self._index.tolist(), strict=True):
            words = buffer[: word_count(row_bytes, rows)]
            self._read(place, words)
            if int(checksum(entry[:2], words)) != expected:
                raise FormatError(f"{self._path}: the checksum differs; start the training again")
            yield words, rows

    def _index_of(self, number: int) -> NDArray[np.uint64]:
        """The index of a node in all pieces, uint64 [pieces, 3]."""
        self._size = os.fstat(self._file.fileno()).st_size
        last = np.zeros(2, _WORD)
        self._read(self._size - last.nbytes, last)
        pieces, expected = last.tolist()
        if pieces * _WORD.itemsize > self._size:
            raise self._damaged()
        starts = np.empty(pieces, _WORD)
        self._read(self._size - last.nbytes - starts.nbytes, starts)
        if int(checksum(last[:1], starts)) != expected:
            raise self._damaged()
        index = np.empty((pieces, 3), _WORD)
        for entry, start in zip(index, starts.tolist(), strict=True):
            self._read(start + number * _ENTRY, entry)
        return index

    def _announce(self, row_bytes: int) -> None:
        """Tell the system what will be read, to avoid waiting for a cold disk at every chunk."""
        if hasattr(os, "posix_fadvise"):
            for place, rows, _ in self._index.tolist():
                os.posix_fadvise(self._file.fileno(), place, row_bytes * rows, os.POSIX_FADV_WILLNEED)

    def _read(self, place: int, words: NDArray[np.uint64]) -> None:
        if place < 0 or os.preadv(self._file.fileno(), [words.data], place) != words.nbytes:
            raise self._damaged()

    def _damaged(self) -> FormatError:
        return FormatError(f"{self._path}: the file is damaged; start the training again")


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


def load_rows(
    rows: NodeRows, kinds: Sequence[Matrix], block_rows: int, most: int
) -> tuple[list[NDArray[Any]], NDArray[np.uint64]]:
    """The rows of a node: read-only matrices [columns, rows] as `kinds` says, and items, numbered from 0.

    most  rows of the node at most. Raises FormatError for a damaged or missing file.
    """
    with downloads(rows.paths) as files, ExitStack() as stack:
        if len(files) != len(rows.paths):  # removed: another worker was faster
            raise FormatError(f"{rows.paths[0]}: this file, or one beside it, is missing; start the training again")
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


def _rows_path(folder: Path, name: str, suffix: str) -> Path:
    return folder / f"rows-{name}-{suffix}.bin"


def _picked(spread: BlockRows, entries: Sequence[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """How many rows the nodes `entries` have in the block, and their chunks, one after the other."""
    items, begin, end = spread.items, spread.begin[entries], spread.end[entries]
    layout = RowLayout.of(spread.matrices)
    rows = end - begin
    stops = np.cumsum(word_count(layout.row_bytes, rows.astype(np.int64)))
    words = np.empty(stops[-1], np.uint64)
    words[stops[rows > 0] - 1] = 0  # the padding of the last word
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
