"""Sizes in bytes as users write them, batch sizes of the stages, numbers of trees of curves, and ranges of rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bigforest.errors import ConfigError, api, shown

Items = TypeVar("Items", bound=Sequence[Any])

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_MOST = 2**63 - 1
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


def parse_bytes(size: str | int, name: str = "memory") -> int:
    """Return the bytes of a size such as "4GB" (GB: 10**9 bytes), "512MiB" (MiB: 2**20 bytes) or a number of bytes.

    Raises ConfigError about the option `name` for other forms, and for less than a byte or more than 2**63 - 1.
    """
    total: float = 0
    if isinstance(size, int) and not isinstance(size, bool):
        total = size
    elif isinstance(size, str) and (match := _SIZE.fullmatch(size)):
        total = float(match[1]) * _UNITS[(match[2] or "").lower()]
    if not 1 <= total <= _MOST:
        raise ConfigError(
            f"{api(name)} must be a size such as 4GB, 512MiB or a number of bytes, at most {_MOST}, not {shown(size)}"
        )
    return int(total)


def megabytes(size: int) -> str:
    """Return a size of bytes in megabytes (10**6 bytes), rounded up, in the form that options accept: 1234MB."""
    return f"{-(-size // 10**6)}MB"


def milestones(trees: int) -> list[int]:
    """Return the numbers 1, 2, 5, 10, 20, 50, ... below `trees`, and `trees`."""
    steps = [factor * 10**power for power in range(7) for factor in (1, 2, 5)]
    return [*(step for step in steps if step < trees), trees]


def row_ranges(rows: int, step: int) -> list[tuple[int, int]]:
    """Divide rows into ranges of `step` rows, and return (first row, row after the last) of each."""
    return [(begin, min(begin + step, rows)) for begin in range(0, rows, step)]


def fitting(items: Items, sizes: Sequence[int], room: int) -> list[Items]:
    """Divide items into runs whose sizes fit in `room` together. An item that is larger is a run of its own."""
    runs, begin, left = list[Items](), 0, room
    for place, size in enumerate(sizes):
        if size > left and place > begin:
            runs.append(items[begin:place])  # type: ignore[arg-type]
            begin, left = place, room
        left -= size
    return [*runs, items[begin:]] if len(items) else []  # type: ignore[list-item]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Batch sizes of the stages. No result depends on them. Tests use small sizes.

    Other sizes are constants of modules: sizes that files depend on, such as rows of a row group or of a file; sizes
    that fit a processor's cache; and sizes of the pieces in which the files of a forest are decoded.

    Encoding (encode/):

    slice_rows      rows of a column that are read at a time.
    cells_per_read  columns of few rows are read together, up to this many cells, because each read has a fixed cost.
    copy_cells      cells that are copied at a time if files have nested columns, or are small.
    presort_rows    rows of a column that are presorted at once; row numbers within them have 32 bits.
    levels_waiting  fewest levels of a category that are collected before they are merged.

    The out-of-bag report (oob/), without a memory budget:

    group_bytes      bytes of trees whose votes are added together; group_row_bytes * rows if that is more.
    group_row_bytes  see group_bytes. Growing needed memory in proportion to the rows anyway.

    Quantiles (oob/leaf_targets.py), within a memory budget:

    target_window  number of targets in memory at a time, if not all fit.

    Prediction and explanations (predict/, explain/):

    batch_rows     rows that are read at a time.
    explain_bytes  bytes of trees that a task explains together.
    explain_pairs  pairs of features of a node and its parent that are counted together.
    """

    slice_rows: int = 1 << 18
    cells_per_read: int = 1 << 21
    copy_cells: int = 1 << 19
    presort_rows: int = 2**32 - 1
    levels_waiting: int = 1 << 18

    group_bytes: int = 48 << 20
    group_row_bytes: int = 16

    target_window: int = 1 << 19

    batch_rows: int = 1 << 17
    explain_bytes: int = 256 << 20
    explain_pairs: int = 1 << 18


USUAL = Limits()
