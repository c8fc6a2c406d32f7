"""Encoding categories: the levels of a column are found in one reading of it, and become codes in a second.

    cells   late  null  early  late
    levels  early  late                 distinct texts, in the order of their UTF-8 bytes (whole numbers: by value)
    codes     2     0     1     2       0: missing, only where values are

Memory: a slice, and the distinct levels a few times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import polars as pl

from bigforest.columns.types import type_name
from bigforest.columns.values import level_codes, level_text
from bigforest.encode.job import EncodeJob
from bigforest.errors import DataError, api
from bigforest.store.writer import PartWriter

# Levels are in memory as the known ones, as the new ones, and as the union of both.
_COPIES = 3


def encode_category(job: EncodeJob, name: str, part: PartWriter) -> None:
    """Encode a category. Raises DataError when its levels do not fit in memory."""
    dtype = job.source.schema[name]
    slices: Callable[[], Iterator[pl.Series]] = partial(job.column, name)
    if job.plan.rows <= job.plan.limits.slice_rows:  # a column of one slice is read once
        slices = partial(iter, list(slices()))
    levels, missing = _find_levels(job, name, dtype, slices())
    first = int(missing)
    numbers = np.arange(first + len(levels), dtype=np.float64)
    numbers[:first] = np.nan
    part.values(numbers, numbers if isinstance(job.max_bins, int) else None)
    part.levels(levels, first)
    codes = (np.nan_to_num(level_codes(series, levels, first), nan=0.0).astype(np.uint32) for series in slices())
    part.end_feature(name, type_name(dtype), codes, job.columns[name], kind="category", missing=missing)


def _find_levels(job: EncodeJob, name: str, dtype: pl.DataType, slices: Iterator[pl.Series]) -> tuple[pl.Series, bool]:
    """Return the levels of a category in their order, as text, and whether values are missing."""
    max_bytes = job.plan.task_bytes
    known = [pl.Series([], dtype=dtype if dtype.is_integer() else pl.String)]  # distinct ones, then those of slices
    missing = False
    for series in slices:
        missing |= bool(series.null_count())
        distinct = series.unique().drop_nulls()
        known.append(distinct if dtype.is_integer() else level_text(distinct))
        # Joined when their number has doubled, so that few joins are made.
        if sum(map(len, known)) >= 2 * max(len(known[0]), job.plan.limits.levels_waiting):
            known = [pl.concat(known).unique()]
        taken = _COPIES * sum(one.estimated_size() for one in known)
        if max_bytes is not None and taken > max_bytes:
            raise DataError(
                f"the levels of {name!r} do not fit in memory: {sum(map(len, known))} and more take {int(taken)} "
                f"bytes of {max_bytes}; raise {api('memory')}, exclude it, or join rare levels"
            )
    return pl.concat(known).unique().sort().cast(pl.String), missing
