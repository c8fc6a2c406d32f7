"""Scratch files of rows. Each pass, and each attempt of a task, writes files of its own, so a worker that was wrongly
taken for dead does no harm.

**Nodes of rows** between two passes (`row_nodes`): the rows of the bag of one tree in one run of blocks, sorted by
node. A pass therefore routes rows through the newest splits alone, and draws no bag once the split of the root was
routed. The format is storage/array_file.py, with a block for each block of the run:

    begin, end  uint32 [nodes]  where the rows of each node begin and end; an inner node has the rows of its subtree
    places      uint32 [rows]   row of the block << 16 | multiplicity * weight

**Rows of small nodes** after the last pass (`writing_rows`, `load_rows`): the cells of the rows of some nodes of one
tree from one run of blocks, one piece for each block, in order. A piece is written at once, however many nodes share
it. The rows of one node can be read alone. Rows are written past the page cache and read once, so the pages of the
store stay in the cache. Little-endian, in C order:

    piece  for each node      a chunk, its rows as matrices, each padded with zeros to words of 64 bits:
           uint32 [rows]            class << 16 | multiplicity * weight
           int64 [1, rows]          regression targets; absent for classes
           any [columns, rows]      codes or values, a matrix for each type of cells
           zeros up to a multiple of DIRECT_UNIT
    index  uint64 [nodes, pieces, 3]  place of each chunk in the file, its number of rows, and a checksum of these
                                      two and of the chunk (kernels/out_of_core/row_files.py)
    end    uint64 [3]                 number of nodes, number of pieces, and a checksum of these
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.errors import FormatError
from bigforest.execution.process_cache import BufferPool
from bigforest.execution.resources import allow_many_files
from bigforest.kernels.common.node_scan import SHIFT32
from bigforest.kernels.out_of_core.row_files import (
    checksum,
    pack_places,
    pick_columns,
    pick_tags,
    seal_chunks,
    unpack_places,
)
from bigforest.kernels.tree.bags import pack_rows
from bigforest.sampling.bags import Sampler
from bigforest.storage.array_file import ArrayFile, damaged, writing_arrays
from bigforest.storage.atomic import write_whole
from bigforest.storage.paths import downloads, is_remote, uploads
from bigforest.storage.regular_files import DIRECT_UNIT, read_at, write_past_cache
from bigforest.store.format import BLOCK_ROWS

# Bytes of a row in a file of the nodes of rows.
ROW_NODE_BYTES = 4

_TYPES = {"begin": "<u4", "end": "<u4", "places": "<u4"}
# Arrays in place of a missing block. They are refused, because every block has at least one node, the root.
_NOTHING = [np.empty(0, np.uint32)] * 3

# Items of a block sorted by node; where the items of each node begin, and end, uint64 [nodes].
NodeItems = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]
# A word of a file of rows, and the bytes of an entry of its index.
_WORD = np.dtype("<u8")
_ENTRY = 3 * _WORD.itemsize
# Bytes of the tag of a row (its class and multiplicity), and the most bytes of a chunk in addition to its rows: an
# entry of the index, and padding.
TAG = 4
CHUNK = _ENTRY + 5 * (_WORD.itemsize - 1)
# The type of the cells of a matrix, and its columns.
Matrix = tuple[Any, int]
_TAGS: Matrix = ("<u4", 1)


def numbered(tags: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the items of the rows 0, 1, ..., from their lower halves, class << 16 | multiplicity."""
    items = np.arange(tags.size, dtype=np.uint64)
    items <<= SHIFT32
    items |= tags
    return items


@contextmanager
def row_nodes(
    sampler: Sampler, tree: int, kept: Path | None, out: Path | None
) -> Iterator[tuple[Callable[..., NodeItems], Callable[..., None]]]:
    """Open the rows of one tree in a run of blocks; yield a function that reads the next block, and one that writes it.

    kept  file of the last pass that wrote one; None to draw the bag
    out   file to write; None to write nothing
    """
    with ExitStack() as files:
        blocks = None
        if kept is not None:
            [local] = files.enter_context(downloads([kept]))
            blocks = files.enter_context(closing(ArrayFile.of(local, _TYPES).each()))
        sink = None if out is None else files.enter_context(writing_arrays(out, _TYPES))

        def take(
            block: int, rows: int, target: NDArray[np.uint16] | None, nodes: int, items: NDArray[np.uint64]
        ) -> NodeItems:
            """Return the items of a block of `rows` rows, sorted by node. Nodes newer than the file have none.

            target  classes of the rows; None for regression
            items   buffer, uint64 [BLOCK_ROWS]

            Raises FormatError for a damaged file, and DataError for a row that weighs too much.
            """
            begin, end = np.zeros(nodes, np.uint64), np.zeros(nodes, np.uint64)
            if kept is None or blocks is None:
                bag = sampler.block_search_weights(tree, block)
                row_items = items[: np.count_nonzero(bag)]
                pack_rows(target, bag, row_items)
                end[0] = row_items.size
                return row_items, begin, end
            starts, ends, places = next(blocks, _NOTHING)
            written, row_items = starts.size, items[: places.size]
            sound = places.size <= rows and 0 < written == ends.size <= nodes
            if not sound or not unpack_places(places, rows, target, row_items):
                raise damaged(kept)
            begin[:written], end[:written] = starts, ends
            return row_items, begin, end

        def keep(items: NDArray[np.uint64], begin: NDArray[np.uint64], end: NDArray[np.uint64]) -> None:
            """Write the rows of the block that was read last, if there is a file to write."""
            if sink is not None:
                places = np.empty(items.size, np.uint32)
                pack_places(items, places)
                sink(begin, end, places)

        yield take, keep


class SpilledRows(NamedTuple):
    """Rows of a small node in scratch: the rows of node `number` of each file of `paths`, in the order of the files."""

    paths: list[Path]
    number: int


def spilled_rows(files: Sequence[Path], number: int) -> SpilledRows:
    """Return the rows of node `number`, counted among the nodes that each of the files has.

    Files in an object store can only be fetched whole, so there each node has a file of its own.
    """
    if any(map(is_remote, files)):
        return SpilledRows([_node_file(path, number) for path in files], 0)
    return SpilledRows(list(files), number)


def _node_file(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}-{number}.bin")


@contextmanager
def writing_rows(
    path: Path, entries: Sequence[int], room: BufferPool
) -> Iterator[Callable[[Sequence[NDArray[Any]], NodeItems], None]]:
    """Write the rows of the nodes `entries` of a tree; yield a function that takes the cells and rows of a block."""
    kinds: list[Matrix] = []
    with uploads(path.parent) as folder:
        local = folder / path.name
        with _writing(local, room) as add:

            def take(matrices: Sequence[NDArray[Any]], node_items: NodeItems) -> None:
                kinds[:] = [_TAGS, *((matrix.dtype, len(matrix)) for matrix in matrices)]
                items, begin, end = node_items[0], node_items[1][entries], node_items[2][entries]
                add(kinds, end - begin, partial(_pick, kinds, matrices, items, begin, end))

            yield take
        if is_remote(path):
            with local.open("rb", buffering=0) as whole:
                chunk = BufferPool()
                for number in range(len(entries)):
                    with _writing(_node_file(local, number), room) as add:
                        for words, rows in _chunks(whole, _index(whole, number), kinds, chunk):
                            add(kinds, np.array([rows], _WORD), partial(np.copyto, src=words))
            local.unlink()


@contextmanager
def _writing(
    path: Path, room: BufferPool
) -> Iterator[Callable[[Sequence[Matrix], NDArray[np.uint64], Callable[[NDArray[np.uint64]], None]], None]]:
    """Write a file. Yield a function that adds a piece: types, rows of each node, and a function that fills it."""
    indexes: list[NDArray[np.uint64]] = []
    with path.open("xb", buffering=0) as file:

        def add(kinds: Sequence[Matrix], rows: NDArray[np.uint64], fill: Callable[[NDArray[np.uint64]], None]) -> None:
            stops = np.cumsum(_sizes(kinds, rows).sum(axis=0))
            piece = _align(int(stops[-1]), room)
            words = piece[: stops[-1]]
            index = np.empty((rows.size, 3), _WORD)
            index[:, 0] = file.tell() + _WORD.itemsize * np.append(0, stops[:-1])
            index[:, 1] = rows
            fill(words)
            seal_chunks(index, words)
            indexes.append(index)
            piece[words.size :] = 0
            write_past_cache(file, piece)

        yield add
        index = np.stack(indexes, axis=1)
        end = np.array([*index.shape[:2], 0], _WORD)
        end[-1] = checksum(end[:-1], end[:0])
        write_whole(file, np.append(index, end))


def _align(words: int, room: BufferPool) -> NDArray[np.uint64]:
    """Return a buffer of at least this many words, aligned as `write_past_cache` requires."""
    unit = DIRECT_UNIT // _WORD.itemsize
    whole = room.words((words // unit + 2) * unit)
    begin = -whole.ctypes.data % DIRECT_UNIT // _WORD.itemsize
    return whole[begin : begin + -(-words // unit) * unit]


def load_rows(
    rows: SpilledRows, kinds: Sequence[Matrix], most: int, rooms: tuple[BufferPool, BufferPool]
) -> tuple[list[NDArray[Any]], NDArray[np.uint64]]:
    """Read the rows of a node: read-only matrices [columns, rows] of these types, and items, numbered from 0.

    most   upper bound of the number of rows
    rooms  buffers for the matrices, and for a chunk while it is read

    Raises FormatError for a damaged or missing file.
    """
    allow_many_files()  # each thread opens one for each run of blocks
    kinds = [_TAGS, *kinds]
    with downloads(rows.paths) as local, ExitStack() as stack:
        if len(local) != len(rows.paths):  # removed: another worker was faster
            raise FormatError(
                f"{rows.paths[0]}: this file, or another one of this step, is missing; start the training again"
            )
        files = [stack.enter_context(path.open("rb", buffering=0)) for path in local]
        indexes = [_index(file, rows.number) for file in files]
        total = sum(int(index[:, 1].sum()) for index in indexes)
        if not 0 < total <= most:
            raise damaged(rows.paths[0])
        room, chunk = rooms
        tags = np.empty((1, total), _TAGS[0])
        matrices = [tags, *room.arrays(*(((columns, total), kind) for kind, columns in kinds[1:]))]
        at = 0
        for file, index in zip(files, indexes, strict=True):
            sizes = _sizes(kinds, index[:, 1]).T.tolist()  # of all chunks at once: a node may have a thousand
            for (words, count), chunk_sizes in zip(_chunks(file, index, kinds, chunk), sizes, strict=True):
                begin = 0
                for matrix, size in zip(matrices, chunk_sizes, strict=True):
                    if size:
                        piece = words[begin : begin + size].view(matrix.dtype)[: len(matrix) * count]
                        matrix[:, at : at + count] = piece.reshape(len(matrix), count)
                        begin += size
                at += count
    return [read_only(matrix) for matrix in matrices[1:]], numbered(tags[0])


def _index(file: FileIO, number: int) -> NDArray[np.uint64]:
    """Read the index of the chunks of a node, uint64 [pieces, 3]. Raise FormatError for a damaged file."""
    size = os.fstat(file.fileno()).st_size
    end = np.zeros(3, _WORD)
    _read(file, size - end.nbytes, end)
    nodes, pieces, check = end.tolist()
    if checksum(end[:-1], end[:0]) != check or nodes * pieces * _ENTRY > size:
        raise damaged(Path(file.name))
    index = np.empty((pieces, 3), _WORD)
    _read(file, size - end.nbytes - (nodes - number) * index.nbytes, index.reshape(-1))
    if (index[:, 0] > size).any() or (index[:, 1] > BLOCK_ROWS).any():
        raise damaged(Path(file.name))
    return index


def _chunks(
    file: FileIO, index: NDArray[np.uint64], kinds: Sequence[Matrix], room: BufferPool
) -> Iterator[tuple[NDArray[np.uint64], int]]:
    """Yield the words of each chunk of a node, valid until the next one, and its number of rows."""
    sizes = _sizes(kinds, index[:, 1]).sum(axis=0).tolist()
    if hasattr(os, "posix_fadvise"):  # avoids waiting for a cold disk at every chunk
        for place, size in zip(index[:, 0].tolist(), sizes, strict=True):
            os.posix_fadvise(file.fileno(), place, size * _WORD.itemsize, os.POSIX_FADV_WILLNEED)
    buffer = room.words(max(sizes, default=0))
    for entry, size in zip(index, sizes, strict=True):
        words = buffer[:size]
        _read(file, int(entry[0]), words)
        if checksum(entry[:2], words) != entry[2]:
            raise damaged(Path(file.name))
        yield words, int(entry[1])


def _read(file: FileIO, place: int, words: NDArray[np.uint64]) -> None:
    left = words.view(np.uint8)
    while left.size and place >= 0 and (count := read_at(file, left.data, place)):  # Linux reads 2 GiB at most
        left, place = left[count:], place + count
    if left.size:
        raise damaged(Path(file.name))


def _sizes(kinds: Sequence[Matrix], rows: Any) -> NDArray[np.int64]:
    """Return the words of each matrix of chunks of this many rows, int64 [matrices, ...]."""
    cells = np.array([np.dtype(kind).itemsize * columns for kind, columns in kinds])
    words: NDArray[np.int64] = -(-np.multiply.outer(cells, np.asarray(rows, np.int64)) // _WORD.itemsize)
    return words


def _pick(
    kinds: Sequence[Matrix],
    matrices: Sequence[NDArray[Any]],
    items: NDArray[np.uint64],
    begin: NDArray[np.uint64],
    end: NDArray[np.uint64],
    words: NDArray[np.uint64],
) -> None:
    """Fill `words` with the chunks of nodes, one after the other; node k has items[begin[k]:end[k]] of the block."""
    sizes = _sizes(kinds, end - begin).T
    stops = np.cumsum(sizes).reshape(sizes.shape)
    words[stops[sizes > 0] - 1] = 0  # the last word of a matrix may be filled in part
    tags, *starts = (stops - sizes).astype(np.uint64).T
    pick_tags(items, begin, end, tags * np.uint64(2), words.view(np.uint32))
    for matrix, start in zip(matrices, starts, strict=True):
        pick_columns(matrix, items, begin, end, start * np.uint64(8 // matrix.itemsize), words.view(matrix.dtype))
