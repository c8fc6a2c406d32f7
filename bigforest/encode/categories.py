"""Categories: the levels of a column are found in a first pass over it and become codes in a second.

Memory: a slice, and the distinct levels a few times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.common.errors import DataError
from bigforest.common.limits import Limits
from bigforest.schema.columns import level_codes, level_text
from bigforest.store.writer import PartWriter

# Levels are held in a set, in what is to be added to it, and in what the two are made into.
_COPIES = 3


class FoundLevels(NamedTuple):
    """The levels of a column, in their order, and whether some rows have none."""

    levels: pl.Series
    missing: bool


def append_levels(found: FoundLevels, part: PartWriter, *, binned: bool) -> None:
    """Append levels to a part of the store, and the numbers that stand for them.

    binned  whether the store has largest values of codes besides.
    """
    first = int(found.missing)
    numbers = np.arange(first + len(found.levels), dtype=np.float64)
    numbers[:first] = np.nan
    part.values(numbers, numbers if binned else None)
    part.levels(found.levels, first)


def codes_of(series: pl.Series, found: FoundLevels) -> NDArray[np.uint32]:
    """The codes of cells, [rows], which all have one of the levels, or 0 where they are missing."""
    return np.nan_to_num(level_codes(series, found.levels, int(found.missing)), nan=0.0).astype(np.uint32)


def find_levels(
    name: str, dtype: pl.DataType, slices: Iterator[pl.Series], room: int | None, limits: Limits
) -> FoundLevels:
    """The levels of a category, which comes slice by slice, in their order.

    room  bytes that they may take; None for no limit. Raises DataError when they take more.
    """
    known = pl.Series([], dtype=dtype if dtype.is_integer() else pl.String)
    waiting = [known]
    missing = False
    for series in slices:
        missing |= bool(series.null_count())
        distinct = series.unique().drop_nulls()
        waiting.append(distinct if dtype.is_integer() else level_text(distinct))
        # Until there are as many as there were, and some at least: then all together are sorted a few times.
        if sum(map(len, waiting)) >= 2 * max(len(waiting[0]), limits.levels_waiting):
            waiting = [pl.concat(waiting).unique()]
        taken = _COPIES * sum(part.estimated_size() for part in waiting)
        if room is not None and taken > room:
            raise DataError(
                f"the levels of {name!r} do not fit in memory: {sum(map(len, waiting))} and more take {int(taken)} "
                f"bytes of {room}; raise memory, exclude it, or join rare levels"
            )
    return FoundLevels(pl.concat(waiting).unique().sort().cast(pl.String), missing)
