"""Checks of a store before kernels use its values as indices. All raise FormatError, naming the file."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError, damaged_store
from bigforest.schema.dataspec import FeatureSpec, GroupSpec, TargetSpec, WeightSpec
from bigforest.store.format import BLOCK_ROWS


def check_cells(
    cells: NDArray[Any],
    checksums: NDArray[np.uint32],
    span: tuple[int, int],
    where: str,
    first: int = 0,
) -> None:
    """Check the blocks of a column, codes or targets, whose cells are to be from span[0] to span[1]; those from number
    `first` on, which have these checksums."""
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
    """Check the numbers of the rows in a source of this many rows."""
    if not (_ascends(numbers) and numbers[-1] < source_rows):
        raise FormatError(f"{file}: the row numbers are not ascending; encode again")


def check_numbers(numbers: NDArray[np.float64], whole: NDArray[Any], target: TargetSpec, file: Path) -> None:
    """Check regression targets against the whole numbers that are kept of them."""
    near = np.abs(numbers - target.values(whole)) <= target.step  # false where it is not a number
    if not near.all():
        raise damaged_store(f"{file}: the targets are not those described")


def check_weights(weight: NDArray[Any], spec: WeightSpec, file: Path) -> None:
    """Check the weights of rows."""
    parts = weight >> np.uint8(32) if weight.itemsize > 4 else weight[:0], weight & np.uint32(2**32 - 1)
    total = (int(parts[0].sum(dtype=np.int64)) << 32) + int(parts[1].sum(dtype=np.int64))
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
    """Whether low[i] <= high[i] < low[i + 1] for all i; `high` is `low` by default. Looks at a block at a time.

    Comparisons with NaN are false, so an array with one does not ascend.
    """
    high = low if high is None else high
    for start in range(0, len(low), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        following = low[start + 1 : stop + 1]
        inside = (low[start:stop] <= high[start:stop]).all()
        if not (inside and (high[start : start + len(following)] < following).all()):
            return False
    return True
