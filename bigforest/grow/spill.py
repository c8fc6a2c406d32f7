"""Rows of small nodes, written to disk by node in one pass over the store, and read again node by node.

A file holds the rows of one node from one run of blocks, as chunks in the order of the rows:

    chunk   uint64 rows, uint64 CRC-32 of what follows
            int64  [rows]           numbers to predict; not there for classes
            uint32 [rows]           class << 16 | multiplicity, times weight
            uint32 [columns, rows]  codes of the features of 4 bytes
            uint16 [columns, rows]  of 2 bytes
            uint8  [columns, rows]  of 1 byte

little-endian, each matrix in C order. Each attempt of a task writes files of its own, so that one whose worker was
taken for dead does no harm.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.grow.level import Routed, route
from bigforest.grow.question import Question, Reply, merged_all, no_reply
from bigforest.grow.tally import Tally
from bigforest.kernels.layout import Codes
from bigforest.kernels.level import number_items, pick_columns, pick_tags
from bigforest.places import inbox, outbox
from bigforest.sample import Sampler
from bigforest.store.store import Store

# Rows wait in memory up to this many bytes per task, so that many nodes do not mean many small writes. With 32 MB
# writing takes three times as long: they are out of the cache by then.
BUFFER_BYTES = 8 << 20

_HEAD = np.dtype("<u8")


class Loaded(NamedTuple):
    """Rows of a node as kernels take them.

    items  numbered from 0
    value  int64 [rows], numbers to predict; None for classes
    """

    codes: Codes
    items: NDArray[np.uint64]
    value: NDArray[np.int64] | None


class Spilled(NamedTuple):
    """What is known after a spill: replies with the codes sent left and right, and the suffixes of the files written,
    by the first block of each run of blocks."""

    replies: list[Reply]
    suffixes: dict[int, str]


def spill(
    store: Store,
    sampler: Sampler,
    questions: list[Question],
    small: list[list[int]],
    folder: Path,
    blocks: range,
) -> Spilled:
    """Task: write the rows of the `small` nodes (entries of each question's top) of some blocks into `folder`.

    questions  one per tree, without probes.
    """
    suffix = f"{blocks.start}-{secrets.token_hex(8)}"
    replies = [no_reply(asked) for asked in questions]
    waiting: dict[Path, list[NDArray[Any]]] = {}
    held = 0
    every = range(len(store.spec.features))
    with outbox(folder) as here:
        for at, routed in route(store, sampler, questions, blocks, every, replies, None):
            for entry, chunk in _chunks(routed, small[at]):
                waiting.setdefault(rows_path(here, questions[at].tree, entry, suffix), []).extend(chunk)
                held += sum(part.nbytes for part in chunk)
            if held > BUFFER_BYTES:
                _write(waiting)
                held = 0
        _write(waiting)
    return Spilled(replies, {blocks.start: suffix})


def spilled_both(one: Spilled, two: Spilled) -> Spilled:
    """What is known after both."""
    return Spilled(merged_all(one.replies, two.replies), one.suffixes | two.suffixes)


def rows_path(folder: Path, tree: int, entry: int, suffix: str) -> Path:
    """A file with rows of one node."""
    return folder / f"rows-{tree}-{entry}-{suffix}.bin"


def load(paths: Sequence[Path], store: Store, most: int) -> Loaded:
    """The rows of a node, from its files in order.

    most  rows of the node, which it cannot have more of. Raises FormatError for a damaged file.
    """
    with inbox(paths) as files:
        return _load(files, store, most, paths[0])


def _load(files: Sequence[Path], store: Store, most: int, where: Path) -> Loaded:
    chunks = [(path, list(_heads(path, store))) for path in files]
    sizes = [chunk.rows for _, found in chunks for chunk in found]
    total = sum(sizes)
    if not 0 < total <= most:
        raise FormatError(f"{where}: the file is damaged; start the training anew")
    columns = _columns(store)
    arrays = [np.empty((count, total), kind) for kind, count in columns]
    buffer = np.empty(_size(max(sizes), store), np.uint8)
    at = 0
    for path, found in chunks:
        with path.open("rb", buffering=0) as file:
            for place, rows, crc in found:
                body = buffer[: _size(rows, store)]
                file.seek(place)
                if file.readinto(body.data) != body.size or zlib.crc32(body.data) != crc:
                    raise FormatError(f"{path}: the checksum differs; start the training anew")
                first = 0
                for array, (kind, count) in zip(arrays, columns, strict=True):
                    stop = first + kind.itemsize * count * rows
                    array[:, at : at + rows] = body[first:stop].view(kind).reshape(count, rows)
                    first = stop
                at += rows
    value, tags, u32, u16, u8 = arrays
    items = np.empty(total, np.uint64)
    number_items(tags[0], items)
    for array in arrays:
        array.flags.writeable = False
    return Loaded(Codes(u8, u16, u32, store.place), items, value[0] if len(value) else None)


def _chunks(routed: Routed, entries: Sequence[int]) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Those of the nodes `entries` that have rows in the block, each with its rows as a chunk: arrays that follow
    each other."""
    codes, items = routed.codes, routed.items
    begin, end = routed.begin[entries], routed.end[entries]
    tags = np.empty(items.size, np.uint32)
    pick_tags(items, tags)
    picked: list[NDArray[Any]] = [tags]
    for matrix in (codes.u32, codes.u16, codes.u8):
        picked.append(np.empty(matrix.shape[0] * items.size, matrix.dtype))
        pick_columns(matrix, items, begin, end, picked[-1])
    if routed.value is not None:
        picked.insert(0, np.empty(items.size, np.int64))
        pick_columns(routed.value[np.newaxis], items, begin, end, picked[0])
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


def _columns(store: Store) -> list[tuple[np.dtype[Any], int]]:
    """Types of what a chunk has of a row, as in the description above, and how many columns of each."""
    widths = [feature.width for feature in store.spec.features]
    codes = [(np.dtype(f"<u{width}"), widths.count(width)) for width in (4, 2, 1)]
    return [(np.dtype("<i8"), int(Tally.of(store).numbers)), (np.dtype("<u4"), 1), *codes]


def _size(rows: int, store: Store) -> int:
    return rows * sum(kind.itemsize * count for kind, count in _columns(store))


class _Chunk(NamedTuple):
    """Where the content of a chunk begins, its rows and its checksum."""

    place: int
    rows: int
    crc: int


def _heads(path: Path, store: Store) -> Iterator[_Chunk]:
    place, end = 0, path.stat().st_size
    with path.open("rb", buffering=0) as file:
        while place < end:
            file.seek(place)
            head = np.frombuffer(file.read(2 * _HEAD.itemsize), np.uint8)
            rows, crc = map(int, head.view(_HEAD)) if head.size == 2 * _HEAD.itemsize else (0, 0)
            if not 0 < rows <= store.block_rows:
                raise FormatError(f"{path}: the file is damaged; start the training anew")
            place += 2 * _HEAD.itemsize
            yield _Chunk(place, rows, crc)
            place += _size(rows, store)
