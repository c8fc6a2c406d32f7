"""The values of a table by blocks, in scratch, for passes that project.

Values are looked up by code, and a dictionary may be larger than memory. So they are looked up once per forest, a
feature and a range of its dictionary at a time, in sweeps over the codes. A run of blocks has a file for each type of
values, little-endian, in C order; checksums of each column of each block are kept in memory:

    .4  float32 [columns, rows of the run]  features whose values are all float32
    .8  float64 [columns, rows of the run]  the others
    .1  uint8   [columns, rows of the run]  those whose values are all whole numbers below 256
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from io import FileIO
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import Shape
from bigforest.execution.executor import Executor
from bigforest.grow.out_of_core.context import PROJECTIONS, MemoryLimits
from bigforest.grow.out_of_core.probes import Spans
from bigforest.grow.shared.encode_values import are_whole
from bigforest.kernels.columns.decoded import is_float32
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.out_of_core.blocks import BlockValues, Steps
from bigforest.storage.array_file import damaged
from bigforest.storage.atomic import write_whole
from bigforest.storage.paths import local_path, write_atomically
from bigforest.store.blocks import BlockReader, ColumnFile, MatrixReader
from bigforest.store.format import BLOCK_ROWS, VALUE_TYPE
from bigforest.store.store import Store

# Values of a byte.
_BYTE = 256
# The types of the matrices of BlockValues by the bytes of a value, in their order.
_TYPES = {np.dtype(kind).itemsize: np.dtype(kind) for kind in PROJECTIONS.cells}
# In place of a checksum that was verified in this process: verifying in each pass took an eighth of growing.
_VERIFIED = -1


class DecodedTable(NamedTuple):
    """The values of a table.

    runs     by runs of blocks the path of their files, without the type, and int64 [features, blocks], the CRC-32 of
             each column of each block
    place    uint32 [features, 2], see kernels/out_of_core/blocks.py BlockValues
    spans    smallest and largest value of each feature
    steps    the steps in which they are summed; None if no family of trees asks for sums
    """

    runs: dict[range, tuple[Path, NDArray[np.int64]]]
    place: NDArray[np.uint32]
    spans: Spans
    steps: Steps | None = None


def sweeps(shape: Shape, limits: MemoryLimits) -> int:
    """How often codes are read to look up all values: once for each range of a dictionary, of mean size."""
    return max(1, -(-shape.codes // (shape.features * limits.values)))


def decode_table(
    store: Store, ranges: Sequence[tuple[range]], folder: Path, executor: Executor, most: int
) -> DecodedTable:
    """Write the values of the table into `folder`, files for each of the runs of blocks `ranges`.

    most  float64 of a dictionary that a task may hold.
    """
    features = range(len(store.spec.features))
    ends = np.array([store.ends(feature) for feature in features])
    width = np.array([_width_of(store.low(feature), *ends[feature]) for feature in features])
    slot = np.sum([(width == each) * np.cumsum(width == each) for each in _TYPES], axis=0) - 1
    place = np.stack([width, slot], axis=1).astype(np.uint32)
    runs = executor.reduce(decode_blocks, ranges, or_, (store, place, folder, most))
    ordered = dict(sorted(runs.items(), key=lambda run: run[0].start))
    return DecodedTable(ordered, place, Spans(ends[:, 0].copy(), ends[:, 1].copy()))


def decode_blocks(
    store: Store, place: NDArray[np.uint32], folder: Path, most: int, blocks: range
) -> dict[range, tuple[Path, NDArray[np.int64]]]:
    """Task: write the values of the rows of some blocks; see DecodedTable.runs."""
    path = folder / f"values-{blocks.start}-{secrets.token_hex(8)}"
    rows = _rows(store, blocks)
    crc = np.zeros((len(place), len(blocks)), np.int64)
    store.fetch(range(len(place)), blocks)
    with ExitStack() as stack:
        reader = BlockReader(store.folder, store.spec, store.place, False)
        stack.enter_context(reader)
        files: dict[int, FileIO] = {}
        for width in np.unique(place[:, 0]).tolist():
            temporary = stack.enter_context(write_atomically(path.with_suffix(f".{width}")))
            files[width] = stack.enter_context(temporary.open("w+b", buffering=0))
        for feature, (width, slot) in enumerate(place.tolist()):
            low, file = store.low(feature), files[width]
            step = most * VALUE_TYPE.itemsize // width
            for first in range(0, low.size, step):
                copied = np.array(low[first : first + step], _TYPES[width])  # a map would be read at random
                for number, (block, codes) in enumerate(reader.each(blocks, [feature])):
                    values = np.empty(reader.size(block), copied.dtype)
                    offset = width * (slot * rows + number * BLOCK_ROWS)
                    if first:
                        file.seek(offset)
                        file.readinto(values.data.cast("B"))
                    _look_up(column_of(codes, feature)[: values.size], copied, first, low.size, values)
                    file.seek(offset)
                    write_whole(file, values)
                    crc[feature, number] = zlib.crc32(values.data)
    return {blocks: (path, crc)}


def _rows(store: Store, blocks: range) -> int:
    return min(blocks.stop * BLOCK_ROWS, store.rows) - blocks.start * BLOCK_ROWS


def _look_up(codes: NDArray[Any], copied: NDArray[Any], first: int, size: int, values: NDArray[Any]) -> None:
    """values[i] = copied[codes[i] - first], where there is one; size: of the whole dictionary."""
    if copied.size == size:
        np.take(copied, codes, out=values, mode="clip")  # other modes make a copy
        return
    inside = (codes >= first) & (codes < first + copied.size)
    values[inside] = copied[codes[inside] - np.int64(first)]


class ValueReader(MatrixReader):
    """The values of a run of blocks."""

    _cells = BlockValues

    def __init__(self, store: Store, decoded: DecodedTable, blocks: range) -> None:
        self._path, self._crc = decoded.runs[blocks]
        rows, widths = _rows(store, blocks), decoded.place[:, 0].tolist()
        files = {}
        for width, kind in _TYPES.items():
            path = self._path.with_suffix(f".{width}")
            here, columns = (local_path(path), widths.count(width)) if width in widths else (path, 0)
            files[width] = ColumnFile(here, kind, columns, rows, BLOCK_ROWS, again=True)
        super().__init__(files, decoded.place, blocks, rows)

    def _check(self, feature: int, block: int, column: NDArray[Any]) -> None:
        known, number = self._crc[feature], block - self._first
        expected = known[number]  # read once: another thread may note that the column is verified
        if expected != _VERIFIED:
            if zlib.crc32(column.data) != expected:
                raise damaged(self._path)
            known[number] = _VERIFIED


def column_of(cells: Codes | BlockValues, feature: int) -> NDArray[Any]:
    """The column of a feature in a block."""
    width, slot = cells.place[feature].tolist()
    column: NDArray[Any] = next(matrix for matrix in cells[:3] if matrix.itemsize == width)[slot]
    return column


def tree_columns(matrices: Sequence[NDArray[Any]], place: NDArray[np.uint32]) -> list[NDArray[Any]]:
    """The columns of matrices that hold, of each width, those of these places in their order."""
    rows = {matrix.itemsize: iter(matrix) for matrix in matrices}
    return [next(rows[width]) for width in place[:, 0].tolist()]


def _width_of(values: NDArray[np.float64], least: float, most: float) -> int:
    """The narrowest type, in bytes, for all values, of which these are the ends."""
    if values.size <= _BYTE and 0.0 <= least <= most < _BYTE and not np.signbit(values).any() and are_whole(values):
        return 1
    return 4 if is_float32(values) else 8
