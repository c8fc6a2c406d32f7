"""The values of a table by blocks, in scratch, for passes that project.

Values are looked up by code, and a dictionary may be larger than memory. So they are looked up once per forest, a
feature and a range of its dictionary at a time, in sweeps over the codes. A file holds one run of blocks:

    float32 [columns, rows of the run]  features whose values are all float32
    float64 [columns, rows of the run]  the others
    uint8   [columns, rows of the run]  those whose values are all whole numbers below 256
    uint32 [features, blocks]           CRC-32 of each feature in each block

little-endian, each in C order.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.common.memory_estimate import Shape
from bigforest.execution.executor import Executor
from bigforest.grow.out_of_core.probes import Spans
from bigforest.grow.out_of_core.row_file import Matrix
from bigforest.grow.out_of_core.upper_tree import MemoryLimits
from bigforest.kernels.columns.decoded import is_float32
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.out_of_core.blocks import BlockValues
from bigforest.storage.atomic import write_whole
from bigforest.storage.paths import local_path, write_atomically
from bigforest.store.blocks import BlockReader, ColumnFile, MatrixReader
from bigforest.store.format import VALUE_TYPE
from bigforest.store.store import Store

# Values of a byte.
_BYTE = 256
# The matrices of BlockValues by the bytes of a value, in their order.
_TYPES = {4: "<f4", 8: "<f8", 1: "<u1"}


class DecodedTable(NamedTuple):
    """The values of a table.

    runs     runs of blocks, and the file of each by its first block
    place    uint32 [features, 2], see kernels/out_of_core/blocks.py BlockValues
    spans    smallest and largest value of each feature
    checked  bool [features, blocks of the table], whose checksums were verified in this process: verifying in
             each pass took an eighth of growing
    """

    runs: list[range]
    files: dict[int, Path]
    place: NDArray[np.uint32]
    spans: Spans
    checked: NDArray[np.bool_]

    @property
    def matrices(self) -> list[Matrix]:
        """The matrices of BlockValues."""
        return [Matrix(kind, int((self.place[:, 0] == width).sum())) for width, kind in _TYPES.items()]


def sweeps(shape: Shape, limits: MemoryLimits) -> int:
    """How often codes are read to look up all values: once for each range of a dictionary, of mean size."""
    return max(1, -(-shape.codes // (shape.features * limits.values)))


def decode_table(
    store: Store, ranges: Sequence[tuple[range]], folder: Path, executor: Executor, most: int
) -> DecodedTable:
    """Write the values of the table into `folder`, a file for each of the runs of blocks `ranges`.

    most  float64 of a dictionary that a task may hold.
    """
    features = range(len(store.spec.features))
    width = np.array([_width_of(store.low(feature)) for feature in features])
    slot = np.sum([(width == each) * np.cumsum(width == each) for each in _TYPES], axis=0) - 1
    place = np.stack([width, slot], axis=1).astype(np.uint32)
    ends = np.array([store.low(feature)[[0, -1]] for feature in features])
    files: dict[int, Path] = {}

    def keep(index: int, path: Path) -> None:
        files[ranges[index][0].start] = path

    executor.run(decode_blocks, ranges, keep, (store, place, folder, most))
    spans = Spans(ends[:, 0].copy(), ends[:, 1].copy())
    checked = np.zeros((len(place), ranges[-1][0].stop), np.bool_)
    return DecodedTable([blocks for (blocks,) in ranges], files, place, spans, checked)


def decode_blocks(store: Store, place: NDArray[np.uint32], folder: Path, most: int, blocks: range) -> Path:
    """Task: write the values of the rows of some blocks, a file of `decode_table`; returns its path."""
    path = folder / f"values-{blocks.start}-{secrets.token_hex(8)}.bin"
    layout = _Layout.of(store, place, blocks)
    crc = np.zeros((len(place), len(blocks)), "<u4")
    store.fetch(range(len(place)), blocks)
    with (
        BlockReader(store.folder, store.spec, store.block_rows, store.place, False) as reader,
        write_atomically(path) as temporary,
        temporary.open("w+b", buffering=0) as file,
    ):
        for feature in range(len(place)):
            low, kind = store.low(feature), layout.kind(feature)
            step = most * VALUE_TYPE.itemsize // np.dtype(kind).itemsize
            for first in range(0, low.size, step):
                held = np.array(low[first : first + step], kind)  # copied: a map would be read at random
                for number, block in enumerate(blocks):
                    codes = reader.read(block, [feature], block + 1 if block + 1 in blocks else None)
                    values = np.empty(reader.size(block), kind)
                    if first:
                        _read(file, layout.offset(feature, block), values)
                    _look_up(column_of(codes, feature)[: values.size], held, first, low.size, values)
                    _write(file, layout.offset(feature, block), values)
                    if first + held.size == low.size:
                        crc[feature, number] = zlib.crc32(values.data)
        _write(file, layout.size, crc)
    return path


def _look_up(codes: NDArray[Any], held: NDArray[Any], first: int, size: int, values: NDArray[Any]) -> None:
    """values[i] = held[codes[i] - first], where there is one; size: of the whole dictionary."""
    if held.size == size:
        np.take(held, codes, out=values, mode="clip")  # other modes make a copy
        return
    inside = (codes >= first) & (codes < first + held.size)
    values[inside] = held[codes[inside] - np.int64(first)]


class _Layout(NamedTuple):
    """Where the values of a run of blocks are in their file."""

    place: NDArray[np.uint32]
    blocks: range
    block_rows: int
    rows: int

    @classmethod
    def of(cls, store: Store, place: NDArray[np.uint32], blocks: range) -> _Layout:
        rows = min(blocks.stop * store.block_rows, store.rows) - blocks.start * store.block_rows
        return cls(place, blocks, store.block_rows, rows)

    def kind(self, feature: int) -> str:
        return _TYPES[int(self.place[feature, 0])]

    def offset(self, feature: int, block: int) -> int:
        width, slot = (int(number) for number in self.place[feature])
        earlier = list(_TYPES)[: list(_TYPES).index(width)]
        before = self.rows * sum(each * int((self.place[:, 0] == each).sum()) for each in earlier)
        return before + width * (slot * self.rows + (block - self.blocks.start) * self.block_rows)

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return self.rows * int(self.place[:, 0].sum(dtype=np.int64))


class ValueReader(MatrixReader):
    """The values of a run of blocks."""

    def __init__(self, store: Store, decoded: DecodedTable, blocks: range) -> None:
        """Raises FormatError for a damaged file."""
        layout = _Layout.of(store, decoded.place, blocks)
        self._path = decoded.files[blocks.start]
        here = local_path(self._path)
        self._crc = np.zeros((len(decoded.place), len(blocks)), "<u4")
        with here.open("rb", buffering=0) as file:
            if _read(file, layout.size, self._crc) != self._crc.nbytes:
                raise FormatError(f"{self._path}: the file is damaged; start the training again")
        self._checked = decoded.checked
        files, start = {}, 0
        for kind, columns in decoded.matrices:
            dtype = np.dtype(kind)
            own = (here, start, dtype, columns, layout.rows, store.block_rows)
            files[dtype.itemsize] = ColumnFile(*own, again=True)
            start += columns * layout.rows * dtype.itemsize
        super().__init__(files, decoded.place, blocks, layout.rows, store.block_rows)

    def read(self, block: int, features: Iterable[int], following: int | None = None) -> BlockValues:
        """The values of `features` in a block; other features, and rows after the block's last, have any. See `column`.

        Raises FormatError for a damaged file.
        """
        for feature in features:
            column = self.column(feature, block, following)
            if not self._checked[feature, block]:
                if zlib.crc32(column.data) != self._crc[feature, block - self._first]:
                    raise FormatError(f"{self._path}: the checksum differs; start the training again")
                self._checked[feature, block] = True
        f32, f64, u8 = self.matrices()
        return BlockValues(f32, f64, u8, self._place)


def column_of(cells: Codes | BlockValues, feature: int) -> NDArray[Any]:
    """The column of a feature in a block."""
    return column_at(cells[:3], cells.place[feature])


def column_at(matrices: Sequence[NDArray[Any]], place: NDArray[np.uint32]) -> NDArray[Any]:
    """The column of this place: bytes of a value, and row of the matrix of these."""
    width, slot = place.tolist()
    found: NDArray[Any] = next(matrix for matrix in matrices if matrix.itemsize == width)[slot]
    return found


def places(width: int, columns: int) -> NDArray[np.uint32]:
    """Where columns are in cells of one type, of this many bytes."""
    return np.array([(width, column) for column in range(columns)], np.uint32)


def _width_of(low: NDArray[np.float64]) -> int:
    """The narrowest type, in bytes, for all values, ascending."""
    if low.size <= _BYTE and 0.0 <= low[0] <= low[-1] < _BYTE and not np.signbit(low[0]) and (low == low.round()).all():
        return 1
    return 4 if is_float32(low) else 8


def _read(file: FileIO, offset: int, array: NDArray[Any]) -> int:
    file.seek(offset)
    return file.readinto(array.data.cast("B"))


def _write(file: FileIO, offset: int, array: NDArray[Any]) -> None:
    file.seek(offset)
    write_whole(file, array)
