"""Categories: the levels of a column are found in a first pass over it and become codes in a second.

Memory: a slice, and the distinct levels a few times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.types import level_codes, level_text
from bigforest.errors import DataError, api, listed
from bigforest.planning.batch_sizes import Limits
from bigforest.store.store import Store
from bigforest.store.writer import PartWriter

# Levels are held in a set, in what is to be added to it, and in what the two are made into.
_COPIES = 3

# A column of text is taken for numbers if its levels are at least 10 numbers and at most 3 words.
_MIN_NUMBERS, _MAX_WORDS = 10, 3
# What may be beside numbers, and between their thousands.
_SIGNS = r"[%$€£¥]|,(\d{3})\b"
# Levels of a table up to which it is searched for such columns.
_MAX_SEARCHED = 100_000


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
                f"bytes of {room}; raise {api('memory')}, exclude it, or join rare levels"
            )
    return FoundLevels(pl.concat(waiting).unique().sort().cast(pl.String), missing)


def numbers_in_text(store: Store) -> Iterator[str]:
    """Messages about columns of text that look like numbers: some have words among them, some a decimal comma, others
    signs such as % and $, or commas between thousands."""
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
    """The levels that are not numbers, if there are few of them and many numbers."""
    words = levels.filter(~levels.cast(pl.Float64, strict=False).is_finite().fill_null(value=False))
    fits = len(words) <= _MAX_WORDS and len(levels) - len(words) >= _MIN_NUMBERS
    return words.to_list() if fits else None
