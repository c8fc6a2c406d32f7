"""Rows of small nodes, written to disk by node in one pass over the store, and read again node by node.

A file holds the rows of one node from one run of blocks, as chunks in the order of the rows:

    chunk   uint64 rows, uint64 CRC-32 of what follows
            uint32 [rows]           class << 16 | multiplicity, times weight
            int64  [rows]           numbers to predict; not there for classes
            uint32 [columns, rows]  codes of the features of 4 bytes
            uint16 [columns, rows]  of 2 bytes
            uint8  [columns, rows]  of 1 byte

or other matrices, of values; little-endian, each in C order. Each attempt of a task writes files of its own, so that
one whose worker was taken for dead does no harm.
"""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.kernels.layout import Codes
from bigforest.kernels.level import number_items, pick_columns, pick_tags
from bigforest.places import inbox, outbox
from bigforest.store.store import Store

# Rows wait in memory up to this many bytes per task, so that many nodes do not mean many small writes. With 32 MB
# writing takes three times as long: they are out of the cache by then.
BUFFER_BYTES = 8 << 20

_HEAD = np.dtype("<u8")


Answered = TypeVar("Answered")


class Spilled(NamedTuple, Generic[Answered]):
    """What is known after a spill: replies with the codes sent left and right, and the suffixes of the files written,
    by the first block of each run of blocks."""

    replies: list[Answered]
    suffixes: dict[int, str]


class Spread(NamedTuple):
    """Rows of a block by nodes: matrices of cells [columns, rows of the block], and the items (kernels/level.py
    route_block)."""

    matrices: tuple[NDArray[Any], ...]
    items: NDArray[np.uint64]
    begin: NDArray[np.uint64]
    end: NDArray[np.uint64]


def write_rows(rows: Iterable[tuple[int, Sequence[int], Spread]], folder: Path, first: int) -> str:
    """Write the rows of some nodes (tree, entries, rows of a block) into `folder`; gives the suffix of the files.

    first  the first block.
    """
    suffix = f"{first}-{secrets.token_hex(8)}"
    waiting: dict[Path, list[NDArray[Any]]] = {}
    held = 0
    with outbox(folder) as here:
        for tree, entries, spread in rows:
            for entry, chunk in _chunks(spread, entries):
                waiting.setdefault(rows_path(here, tree, entry, suffix), []).extend(chunk)
                held += sum(part.nbytes for part in chunk)
            if held > BUFFER_BYTES:
                _write(waiting)
                held = 0
        _write(waiting)
    return suffix


def rows_path(folder: Path, tree: int, entry: int, suffix: str) -> Path:
    """A file with rows of one node."""
    return folder / f"rows-{tree}-{entry}-{suffix}.bin"


class Loaded(NamedTuple):
    """Rows of a node as kernels take them.

    items  numbered from 0
    value  int64 [rows], numbers to predict; None for classes
    """

    codes: Codes
    items: NDArray[np.uint64]
    value: NDArray[np.int64] | None


def load(paths: Sequence[Path], store: Store, most: int) -> Loaded:
    """The rows of a node, from its files in order.

    most  rows of the node, which it cannot have more of. Raises FormatError for a damaged file.
    """
    widths = [feature.width for feature in store.spec.features]
    numbers = [Matrix("<i8", 1)] if store.spec.target.task == "regression" else []
    matrices = [Matrix(f"<u{width}", widths.count(width)) for width in (4, 2, 1)]
    (*values, u32, u16, u8), items = load_rows(paths, [*numbers, *matrices], store.block_rows, most)
    return Loaded(Codes(u8, u16, u32, store.place), items, values[0][0] if values else None)


class Matrix(NamedTuple):
    """A matrix of cells in a chunk."""

    dtype: str
    columns: int


def load_rows(
    paths: Sequence[Path], kinds: Sequence[Matrix], block_rows: int, most: int
) -> tuple[list[NDArray[Any]], NDArray[np.uint64]]:
    """`load` for any cells: read-only matrices [columns, rows] as `kinds` says, and items."""
    with inbox(paths) as files:
        return _load(files, kinds, block_rows, most, paths[0])


def _load(
    files: Sequence[Path], kinds: Sequence[Matrix], block_rows: int, most: int, where: Path
) -> tuple[list[NDArray[Any]], NDArray[np.uint64]]:
    row_bytes = 4 + sum(np.dtype(kind).itemsize * count for kind, count in kinds)
    _announce(files)
    chunks = [(path, list(_heads(path, row_bytes, block_rows))) for path in files]
    sizes = [chunk.rows for _, found in chunks for chunk in found]
    total = sum(sizes)
    if not 0 < total <= most:
        raise FormatError(f"{where}: the file is damaged; start the training anew")
    matrices = [np.empty((count, total), kind) for kind, count in kinds]
    tags = np.empty(total, np.uint32)
    buffer = np.empty(row_bytes * max(sizes), np.uint8)
    at = 0
    for path, found in chunks:
        with path.open("rb", buffering=0) as file:
            for place, rows, crc in found:
                body = buffer[: row_bytes * rows]
                file.seek(place)
                if file.readinto(body.data) != body.size or zlib.crc32(body.data) != crc:
                    raise FormatError(f"{path}: the checksum differs; start the training anew")
                tags[at : at + rows] = body[: 4 * rows].view("<u4")
                first = 4 * rows
                for matrix in matrices:
                    stop = first + matrix.itemsize * len(matrix) * rows
                    matrix[:, at : at + rows] = body[first:stop].view(matrix.dtype).reshape(len(matrix), rows)
                    first = stop
                at += rows
    items = np.empty(total, np.uint64)
    number_items(tags, items)
    for matrix in matrices:
        matrix.flags.writeable = False
    return matrices, items


def _chunks(spread: Spread, entries: Sequence[int]) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Those of the nodes `entries` that have rows in the block, each with its rows as a chunk: arrays that follow
    each other."""
    items, begin, end = spread.items, spread.begin[entries], spread.end[entries]
    picked = [np.empty(items.size, np.uint32)]
    pick_tags(items, picked[0])
    for matrix in spread.matrices:
        picked.append(np.empty(matrix.shape[0] * items.size, matrix.dtype))
        pick_columns(matrix, items, begin, end, picked[-1])
    columns = [array.size // items.size for array in picked] if items.size else []
    for entry, first, stop in zip(entries, begin.tolist(), end.tolist(), strict=True):
        if first == stop:
            continue
        parts = [array[count * first : count * stop] for array, count in zip(picked, columns, strict=True)]
        crc = 0
        for part in parts:
            crc = zlib.crc32(part.data, crc)
        yield entry, [np.array([stop - first, crc], _HEAD), *parts]


def _write(waiting: dict[Path, list[NDArray[Any]]]) -> None:
    for path, pieces in waiting.items():
        with path.open("ab") as file:
            file.writelines(piece.data for piece in pieces)
    waiting.clear()


def _announce(files: Sequence[Path]) -> None:
    """Tell the system that the files will be read, or a cold disk would be waited for at the head of every chunk."""
    if hasattr(os, "posix_fadvise"):
        for path in files:
            with path.open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


class _Chunk(NamedTuple):
    """Where the content of a chunk begins, its rows and its checksum."""

    place: int
    rows: int
    crc: int


def _heads(path: Path, row_bytes: int, block_rows: int) -> Iterator[_Chunk]:
    place, end = 0, path.stat().st_size
    with path.open("rb", buffering=0) as file:
        while place < end:
            file.seek(place)
            head = np.frombuffer(file.read(2 * _HEAD.itemsize), np.uint8)
            rows, crc = map(int, head.view(_HEAD)) if head.size == 2 * _HEAD.itemsize else (0, 0)
            if not 0 < rows <= block_rows:
                raise FormatError(f"{path}: the file is damaged; start the training anew")
            place += 2 * _HEAD.itemsize
            yield _Chunk(place, rows, crc)
            place += row_bytes * rows
