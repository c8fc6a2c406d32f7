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
from bigforest.errors import DataError, api, listed
from bigforest.store.store import Store
from bigforest.store.writer import PartWriter

# Levels are in memory as the known ones, as the new ones, and as the union of both.
_COPIES = 3

# A column of text is taken for numbers if its levels are at least 10 numbers and at most 3 words.
_MIN_NUMBERS, _MAX_WORDS = 10, 3
# Signs beside numbers, and commas between thousands.
_SIGNS = r"[%$€£¥]|,(\d{3})\b"
# Tables with more levels are not searched for such columns.
_MAX_SEARCHED = 100_000


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


def numbers_in_text(store: Store) -> Iterator[str]:
    """Yield messages about columns of text that look like numbers: with a few words among them, with a decimal comma,
    or with signs such as % and $ or commas between thousands."""
    target = store.spec.target
    text = {target.name: pl.Series(target.classes, dtype=pl.String)} if target.dtype == "String" else {}
    if 0 < sum(feature.levels for feature in store.spec.features) <= _MAX_SEARCHED:
        levels = store.levels()
        features = enumerate(store.spec.features)
        text |= {feature.name: levels.of(number) for number, feature in features if feature.dtype == "String"}
    with_words = {name: found for name, levels in text.items() if (found := _words_among_numbers(levels))}
    if with_words:
        words = listed([repr(word) for word in sorted({word for few in with_words.values() for word in few})])
        yield (
            f"these columns are text, because they have {words} among numbers: {listed([*map(repr, with_words)])}; "
            "if that means missing, leave the cells empty (null), and the columns are numeric"
        )
    comma = [name for name, levels in text.items() if levels.str.contains(",", literal=True).any()]
    comma = [name for name in comma if _words_among_numbers(text[name].str.replace(",", ".", literal=True)) is not None]
    if comma:
        yield (
            f"these columns are text, because their numbers have a comma: {listed([*map(repr, comma)])}; "
            "replace it by a point, and the columns are numeric"
        )
    other = [name for name, levels in text.items() if name not in comma and _words_among_numbers(levels) is None]
    signed = [name for name in other if _words_among_numbers(text[name].str.replace_all(_SIGNS, "${1}")) is not None]
    if signed:
        yield (
            "these columns are text, because their numbers have signs such as % and $, or commas between thousands: "
            f"{listed([*map(repr, signed)])}; remove these, and the columns are numeric"
        )


def _words_among_numbers(levels: pl.Series) -> list[str] | None:
    """Return the levels that are not numbers, if they are few among many numbers, else None."""
    words = levels.filter(~levels.cast(pl.Float64, strict=False).is_finite().fill_null(value=False))
    fits = len(words) <= _MAX_WORDS and len(levels) - len(words) >= _MIN_NUMBERS
    return words.to_list() if fits else None
