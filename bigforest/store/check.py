"""Checks of a store: that it is as it was written, and that kernels, which do not check bounds, may trust it."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.schema.dataspec import GroupSpec
from bigforest.store.format import (
    BLOCK_ROWS,
    CODES,
    GROUPS,
    LOW,
    NUMBERS,
    ROW_NUMBERS,
    TARGET,
    WEIGHT,
    Manifest,
    target_span,
)

if TYPE_CHECKING:
    from bigforest.store.store import Store


class Stamp(NamedTuple):
    """What changes when a file is written to, cut short or replaced."""

    size: int
    time_ns: int
    device: int
    number: int


def stamp_of(file: Path) -> Stamp | None:
    """The stamp of a file; None where there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino)


def check_sizes(path: Path, manifest: Manifest) -> None:
    """Check that the files of the manifest are there, in full. Raises FormatError, as all checks here."""
    for name, size in manifest.sizes().items():
        found = (path / name).stat().st_size if (path / name).is_file() else None
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes"
            raise FormatError(f"{path / name} {state}; {size} bytes were written: encode the table again")


def check_whole_files(store: Store) -> None:
    """Check all but codes and classes, of which a copy of a store checks those that it fetches."""
    for name, crc in store.crc.items():
        store.fetch_whole(name)
        if zlib.crc32(np.memmap(store.folder / name, np.uint8, "r").data) != crc:
            raise FormatError(f"{store.path / name}: the checksum differs; encode the table again")
    _check_dictionaries(store)
    _check_rows(store)


def check_columns(store: Store) -> None:
    """Check codes and classes, block by block."""
    for index, feature in enumerate(store.spec.features):
        where = f"{store.path / CODES[feature.width]}, feature {feature.name!r}"
        _check_column(store, index, store.feature_codes(index), (0, feature.codes - 1), where)
    where = str(store.path / TARGET)
    _check_column(store, len(store.spec.features), store.target, target_span(store.spec), where)


def _check_column(store: Store, index: int, cells: NDArray[Any], span: tuple[int, int], where: str) -> None:
    """Check the blocks of a column whose cells are to be from span[0] to span[1]."""
    for block, start in enumerate(range(0, store.rows, store.block_rows)):
        part = cells[start : start + store.block_rows]
        if zlib.crc32(part.data) != store.checksums[index, block]:
            raise FormatError(f"{where}, block {block}: the checksum differs; encode the table again")
        if part.max() > span[1] or part.min() < span[0]:
            raise FormatError(f"{where}, block {block}: a code is out of range; encode the table again")


def _check_dictionaries(store: Store) -> None:
    for number, feature in enumerate(store.spec.features):
        low, high = store.low(number), store.high(number)
        first = int(feature.missing)
        if not _ascends(low[first:], high[first:]) or not np.isnan([low[:first], high[:first]]).all():
            raise FormatError(f"{store.path / LOW}: a dictionary is not ascending; encode the table again")
        if feature.kind == "category" and not np.array_equal(low[first:], np.arange(first, low.size)):
            raise FormatError(f"{store.path / LOW}: the values of a category are not its codes; encode again")
    store.levels()  # which are checked as they are read


def _check_rows(store: Store) -> None:
    """Check what rows have besides codes and target."""
    numbers, groups, weight = store.row_numbers, store.groups, store.weight
    if numbers is not None and not (_ascends(numbers) and numbers[-1] < store.rows + store.spec.dropped):
        raise FormatError(f"{store.path / ROW_NUMBERS}: the row numbers are not ascending; encode again")
    target = store.spec.target
    if not target.exact:
        found = store.numbers(0, store.rows)
        near = np.abs(found - target.values(store.target)) <= target.step  # false where it is not a number
        if not near.all():
            raise FormatError(f"{store.path / NUMBERS}: the targets are not those described; encode the table again")
    if groups is not None and store.spec.group is not None:
        _check_groups(groups, store.spec.group, f"{store.path / GROUPS}")
    if weight is not None and store.spec.weight is not None:
        parts = weight >> np.uint8(32) if weight.itemsize > 4 else weight[:0], weight & np.uint32(2**32 - 1)
        total = (int(parts[0].sum(dtype=np.int64)) << 32) + int(parts[1].sum(dtype=np.int64))
        if weight.min() < 1 or (int(weight.max()), total) != (store.spec.weight.largest, store.spec.weight.total):
            raise FormatError(f"{store.path / WEIGHT}: the weights are not those described; encode the table again")


def _check_groups(groups: NDArray[Any], group: GroupSpec, where: str) -> None:
    if groups.max() >= group.groups:
        raise FormatError(f"{where}: a group is out of range; encode the table again")
    rows = np.zeros(group.groups, np.int64)
    for start in range(0, len(groups), BLOCK_ROWS):
        np.add.at(rows, groups[start : start + BLOCK_ROWS], 1)
    if rows.max() != group.largest:
        raise FormatError(f"{where}: the largest group is not of {group.largest} rows; encode the table again")


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
