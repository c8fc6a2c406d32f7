"""Checks of a store before kernels use its values as indices, and the checksums that they compare.

Kernels index by codes, classes and groups, and do not check bounds. Before they run, every block of codes and targets
is compared with its checksum and its range, every other file with its checksum, dictionaries and row numbers with their
order. `Store.open(verify=True)` and `Store.verify` check a whole store; a local copy checks blocks as it fetches them.
All checks raise FormatError, naming the file.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.dataspec import FeatureSpec, GroupSpec, TargetSpec, WeightSpec
from bigforest.errors import FormatError, damaged_store
from bigforest.store.format import BLOCK_ROWS, CHECKSUM_TYPE

# The polynomial of CRC-32; bit 31 - k is the coefficient of x**k.
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X_TO_8 = 1 << 23


class BlockChecksums:
    """CRC-32 of every block of a column that comes in chunks of any size."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._crc = 0
        self._rows = 0  # of the block that is not full yet

    def add(self, cells: NDArray[Any]) -> None:
        """Add the next cells of the column, contiguous."""
        while len(cells):
            piece = cells[: BLOCK_ROWS - self._rows]
            self._crc = zlib.crc32(piece.data, self._crc)
            self._rows += len(piece)
            if self._rows == BLOCK_ROWS:
                self._done.append(self._crc)
                self._crc = self._rows = 0
            cells = cells[len(piece) :]

    def result(self) -> NDArray[np.uint32]:
        """Return the checksums, [blocks]."""
        return np.array([*self._done, self._crc] if self._rows else self._done, CHECKSUM_TYPE)


def joined_crc(first: int, second: int, size: int) -> int:
    """Return the CRC-32 of two pieces of bytes, one after the other, from their checksums.

    size  bytes of the second piece.
    """
    power, square = _ONE, _X_TO_8
    while size:
        if size & 1:
            power = _product(power, square)
        square = _product(square, square)
        size >>= 1
    return _product(power, first) ^ second


def _product(one: int, two: int) -> int:
    """Return the product of two polynomials modulo that of CRC-32."""
    product, bit = 0, _ONE
    while bit:
        if one & bit:
            product ^= two
        two = two >> 1 ^ (_POLYNOMIAL if two & 1 else 0)
        bit >>= 1
    return product


def check_cells(
    cells: NDArray[Any],
    checksums: NDArray[np.uint32],
    span: tuple[int, int],
    where: str,
    first: int = 0,
) -> None:
    """Check consecutive blocks of a column, codes or targets.

    checksums  of the blocks, uint32 [blocks].
    span       smallest and largest allowed value.
    first      number of the first block.
    """
    for block, checksum in enumerate(checksums.tolist(), first):
        part = cells[(block - first) * BLOCK_ROWS : (block - first + 1) * BLOCK_ROWS]
        if not part.size or zlib.crc32(part.data) != checksum:
            raise damaged_store(f"{where}, block {block}: the checksum differs")
        if part.max() > span[1] or part.min() < span[0]:
            raise damaged_store(f"{where}, block {block}: a code is out of range")


def check_dictionary(feature: FeatureSpec, low: NDArray[np.float64], high: NDArray[np.float64], file: Path) -> None:
    """Check the values of the codes of a feature."""
    first = int(feature.missing)
    if not _ascends(low[first:], high[first:]) or not np.isnan([low[:first], high[:first]]).all():
        raise damaged_store(f"{file}: a dictionary is not ascending")
    if feature.kind == "category" and not np.array_equal(low[first:], np.arange(first, low.size)):
        raise FormatError(f"{file}: the values of a category are not its codes; encode again")


def check_row_numbers(numbers: NDArray[np.uint64], source_rows: int, file: Path) -> None:
    """Check the row numbers of a store of a source with `source_rows` rows."""
    if not (_ascends(numbers) and numbers[-1] < source_rows):
        raise FormatError(f"{file}: the row numbers are not ascending; encode again")


def check_numbers(numbers: NDArray[np.float64], whole: NDArray[Any], target: TargetSpec, file: Path) -> None:
    """Check regression targets against their whole numbers."""
    for start in range(0, len(numbers), BLOCK_ROWS):
        some = slice(start, start + BLOCK_ROWS)
        near = np.abs(numbers[some] - target.values(whole[some])) <= target.step  # False for NaN
        if not near.all():
            raise damaged_store(f"{file}: the targets are not those described")


def check_weights(weight: NDArray[Any], spec: WeightSpec, file: Path) -> None:
    """Check the weights of rows."""
    total = 0
    for start in range(0, len(weight), BLOCK_ROWS):
        some = weight[start : start + BLOCK_ROWS]
        parts = some >> np.uint8(32) if some.itemsize > 4 else some[:0], some & np.uint32(2**32 - 1)
        total += (int(parts[0].sum(dtype=np.int64)) << 32) + int(parts[1].sum(dtype=np.int64))
    if weight.min() < 1 or (int(weight.max()), total) != (spec.largest, spec.total):
        raise damaged_store(f"{file}: the weights are not those described")


def check_groups(groups: NDArray[Any], group: GroupSpec, file: Path) -> None:
    """Check the group of each row."""
    if groups.max() >= group.groups:
        raise damaged_store(f"{file}: a group is out of range")
    rows = np.zeros(group.groups, np.int64)
    for start in range(0, len(groups), BLOCK_ROWS):
        np.add.at(rows, groups[start : start + BLOCK_ROWS], 1)
    if rows.max() != group.largest:
        raise damaged_store(f"{file}: the largest group is not of {group.largest} rows")


def _ascends(low: NDArray[Any], high: NDArray[Any] | None = None) -> bool:
    """Return True if low[i] <= high[i] < low[i + 1] for all i, reading a block at a time; `high` is `low` by default.

    An array with NaN does not ascend.
    """
    high = low if high is None else high
    for start in range(0, len(low), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        following = low[start + 1 : stop + 1]
        inside = (low[start:stop] <= high[start:stop]).all()
        if not (inside and (high[start : start + len(following)] < following).all()):
            return False
    return True
