"""The file of rows by node that growing by passes keeps in scratch.

It holds the rows of some nodes of one tree from one run of blocks, as pieces in the order of the blocks:

    piece  uint64 [nodes, 3]       index: where the rows of each node begin in the file, how many they are, and a
                                   checksum of these two and of the rows (kernels/out_of_core/row_files.py)
           of each node            its rows as matrices, the widest cells first:
           int64  [rows]           numbers to predict; not there for classes
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.kernels.out_of_core.row_files import checksum, seal_chunks
from bigforest.storage.atomic import write_whole

_WORD = np.dtype("<u8")
_ENTRY = 3 * _WORD.itemsize
# Bytes of the tag of a row, and at most of a node in a piece besides its rows: its index, and what fills words up.
TAG = 4
CHUNK = _ENTRY + _WORD.itemsize - 1


class RowLayout(NamedTuple):
    """How the rows of a node lie in a chunk.

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
        """What is given of the tags and of each matrix, in the order of the file."""
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
    """A file of rows that is written, and whole when the block ends without an error; a context manager."""

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
        """The words of each chunk, good until the next one is asked for, and its rows. Raises FormatError as above."""
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
        """Tell the system what will be read, or a cold disk would be waited for at the head of every chunk."""
        if hasattr(os, "posix_fadvise"):
            for place, rows, _ in self._index.tolist():
                os.posix_fadvise(self._file.fileno(), place, row_bytes * rows, os.POSIX_FADV_WILLNEED)

    def _read(self, place: int, words: NDArray[np.uint64]) -> None:
        if place < 0 or os.preadv(self._file.fileno(), [words.data], place) != words.nbytes:
            raise self._damaged()

    def _damaged(self) -> FormatError:
        return FormatError(f"{self._path}: the file is damaged; start the training again")
