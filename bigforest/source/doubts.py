"""Notices about columns of text files whose type may be wrong, such as codes that look like numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

import polars as pl

from bigforest.columns.types import columns_named
from bigforest.errors import api, listed
from bigforest.source.source import POLARS_FAULTS, Reading, Source, scan_parquet
from bigforest.source.text import CODES, DAYS_FIRST, FLOAT, NUMBERS, Scan, TypedScans

# float64 holds all numbers of this many digits, and all digits before the point of numbers below _FEW_DIGITS.
_FLOAT_DIGITS, _FEW_DIGITS = 15, 1e15
# Pattern of a number of more digits.
_LONG = rf"^-?\d[\d.]{{{_FLOAT_DIGITS},}}$"
# About this many rows are compared for numbers of many digits.
_SAMPLED_ROWS = 1 << 17

_MESSAGES = {
    "names": "the names of most columns look like values: {}; if the file has no header, its first row was taken for "
    "one: write a line of names above it",
    "codes": "these columns are text, because some of their numbers begin with zeros and others do not, as 01 and 1: "
    "{}; if they are no codes, write them in one way, and the columns are numeric",
    "twice": "these columns are numbers, of which some are written in two ways, as 1.1 and 1.10: {}; if they are "
    "codes, such as sections or versions, write them with a letter, as v1.10, and the columns are text",
    "merged": "these columns are numbers with more digits than float64 holds, so that different ones are equal: {}; if "
    "they are codes, write them with a letter, as z123.5, and the columns are text",
    "days": "these columns are dates with the day first, as 03/04/2024 for 3 April, and no day in them is above 12: "
    "{}; if the month is first, write them as 2024-03-04",
    "quoted": 'these columns have spaces before quotes, as in 1, "a", so the quotes are part of their values: {}; '
    "remove these spaces",
    "padded": "these columns are numbers, without the zeros at the beginning of some, as 00123: {}; if they are codes, "
    f"name features as {api('categories')}, or write a letter in front, as z00123, and the columns are text",
}


def doubts(typed: TypedScans, texts: Sequence[Scan], source: Source, reading: Reading) -> Iterator[str]:
    """Yield messages about doubtful types of the columns that are read.

    texts   scans of the files before types were found.
    source  the table.

    Most doubts are found in the first 1,000 rows. Columns of `reading.numbers` and `reading.texts` raise no doubts
    about numbers. In prediction, types are those of training, so dates and quotes are not checked.
    """
    head, forms = typed.head, {name: form for name, form in typed.forms.items() if reading.needs(name)}
    numbers = [name for name, form in forms.items() if form.parse in NUMBERS and name not in reading.numbers]
    floats = [name for name in numbers if forms[name].parse is FLOAT]
    days = [name for name, form in forms.items() if form.parse in DAYS_FIRST]
    others = [name for name in head.columns if name not in typed.forms and reading.needs(name)]
    predicts = reading.needed is not None
    found = {
        "names": [] if predicts else _names_like_values(head, numbers),
        "codes": [name for name, form in forms.items() if form == CODES],
        "twice": _written_twice(head, floats),
        "merged": _merged(head, floats, texts, source),
        "days": [] if predicts else _unclear_days(source, days),
        "quoted": [] if predicts else _with_any(head, others, r'^\s+".*"\s*$'),
        # A whole number of two digits or more begins with a zero, as 00123.
        "padded": _with_any(head, [name for name in numbers if name not in reading.categories], r"^\s*0[0-9]+\s*$"),
    }
    for doubt, message in _MESSAGES.items():
        if found[doubt]:
            yield message.format(listed([*map(repr, found[doubt])]))


def _with_any(rows: pl.DataFrame, names: Sequence[str], pattern: str) -> list[str]:
    """Return the columns of text in which some value matches a pattern."""
    found = columns_named(names).str.contains(pattern).any()
    return [name for name, is_found in rows.select(found).row(0, named=True).items() if is_found] if names else []


def _names_like_values(rows: pl.DataFrame, numbers: Sequence[str]) -> list[str]:
    """Return the names that look like values of their columns if most do, otherwise none.

    rows     first rows, as text.
    numbers  columns of numbers.

    A number looks like a value if it is between the smallest and the largest number of its column, other text if it is
    in its column. Whole numbers that count the columns, as 0, 1 and 2, do not.
    """
    named = {name: number for name in numbers if (number := _number(name)) is not None}
    counts = list(named.values())
    if all(after - before == 1 for before, after in pairwise(counts)) and all(map(float.is_integer, counts)):
        named = {}
    alike = set()
    if named:
        values = columns_named([*named]).str.strip_chars().cast(pl.Float64, strict=False)
        bounds = zip(rows.select(values.min()).row(0), rows.select(values.max()).row(0), strict=True)
        for (name, number), (low, high) in zip(named.items(), bounds, strict=True):
            if low is not None and low <= number <= high:
                alike.add(name)
    for name in set(rows.columns).difference(numbers):
        # Polars takes a name such as ^a$ for a pattern.
        if (rows[name].alias("").str.strip_chars() == name.strip()).any():
            alike.add(name)
    return [name for name in rows.columns if name in alike] if 2 * len(alike) > len(rows.columns) else []


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _written_twice(rows: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """Return the columns of text in which a number is written with and without zeros at its end, as 1.1 and 1.10.

    1.0 and 1 do not count, because Python writes whole floats as 1.0.
    """
    columns = columns_named(names)
    zeros = columns.filter(columns.str.ends_with("0")).str.extract(r"(\.\d*[1-9]0+)$").count()
    may = rows.select(zeros).row(0, named=True) if names else {}
    twice = []
    for name in (name for name, count in may.items() if count):
        texts = rows[name].alias("").str.strip_chars().unique()  # Polars takes a name such as ^a$ for a pattern
        ends = texts.filter(texts.str.contains(r"\.\d*[1-9]0+$")).str.strip_chars_end("0")
        if ends.is_in(texts.implode()).any():
            twice.append(name)
    return twice


def _merged(head: pl.DataFrame, floats: Sequence[str], texts: Sequence[Scan], source: Source) -> list[str]:
    """Return the columns of floats in which different texts of many digits are one float64.

    All rows are compared in a column with a number of 1e15 or more, otherwise the first 1,000.
    """
    beyond: Collection[str] = ()
    if floats:
        large = columns_named(floats).abs().is_between(_FEW_DIGITS, math.inf, closed="left").any()
        with suppress(*POLARS_FAULTS, OSError):  # reading the table raises the error of a disk again
            rows = scan_parquet(source.files).select(large).collect(engine="streaming").row(0, named=True)
            beyond = [name for name, is_beyond in rows.items() if is_beyond and _is_merged(texts, name, source.rows)]
    return [name for name in floats if name in beyond or _are_merged(head[name].alias("").str.strip_chars())]


def _is_merged(scans: Sequence[Scan], name: str, rows: int) -> bool:
    """Return True if different numbers of many digits in a column of text are one float64.

    rows  rows of all files

    Of many rows, a sample of float64 values is compared, with all rows of each.
    """
    share = rows // _SAMPLED_ROWS + 1
    texts = pl.concat([scan.select(columns_named([name]).alias("").str.strip_chars()) for scan, _ in scans])
    hashes = pl.col("").cast(pl.Float64, strict=False).hash()
    return _are_merged(texts.filter(pl.col("").str.contains(_LONG) & (hashes % share == 0)).collect()[""])


def _are_merged(texts: pl.Series) -> bool:
    """Return True if different numbers of many digits, among texts without spaces around them, are one float64."""
    long = texts.filter(texts.str.contains(_LONG))
    return len(long) > 0 and long.cast(pl.Float64).n_unique() < long.str.replace(r"(\.\d*?)0+$", "$1").n_unique()


def _unclear_days(source: Source, names: Sequence[str]) -> list[str]:
    """Return the columns of dates in which no day is above 12: the day could be the month."""
    if not names:
        return []
    with suppress(*POLARS_FAULTS, OSError):  # reading the table raises the error of a disk again
        last = scan_parquet(source.files).select(columns_named(names).dt.day().max()).collect(engine="streaming")
        return [name for name, day in last.row(0, named=True).items() if day <= 12]
    return []
