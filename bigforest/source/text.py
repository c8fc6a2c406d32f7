"""Types of text in CSV and NDJSON files, inferred from all rows of all files.

1. All values of CSV are text (csv_files.py). Values of NDJSON have JSON types (ndjson.py): its text is only searched
   for dates and times, and in columns that were numbers in training also for numbers.
2. For each column of text, list the forms (`FORMS`: how to parse a type) that can read its first value.
3. Take the first of these forms that reads all values: of the first 1,000 rows, and then of all rows. A column without
   such a form stays text.

    first value   forms kept           all rows                    type
    12            Int64 ... Float64    12, NA, 7.5                 Float64   (NA is a missing value among numbers,
    2026-01-02    Date                 2026-01-02, NA              Date       dates and booleans)
    001           Int64 ... Float64    001, x                      String
    001           Int64 ... Float64    001, 1                      String    (codes: as numbers, both would be 1)

A type depends only on the values, not on their order, their quotes, or their distribution over files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

import polars as pl

from bigforest.columns.types import (
    DAY,
    MOMENT,
    TIMES,
    ZONED_MOMENT,
    Parse,
    clock_time,
    columns_named,
    day_in,
    moment_in,
)
from bigforest.errors import system_error
from bigforest.source.source import POLARS_FAULTS, Reading, text_name

# Texts that are missing values among numbers, dates and booleans.
MISSING_WORDS = ("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "\\N", "None", "?")
_MISSING = pl.lit(pl.Series(MISSING_WORDS)).implode()


class Form(NamedTuple):
    """A type that texts may have.

    parse   turns an expression of text into an expression of the type; texts of another form become null.
    marked  True if spaces around values are removed, and the words MISSING_WORDS are missing values.
    codes   False to reject columns with codes such as 01 and 1, which would become one number.
    """

    parse: Parse
    marked: bool = False
    codes: bool = True

    def values(self, names: Collection[str]) -> pl.Expr:
        """Return the texts of columns that `parse` is to read; missing values are null."""
        columns = columns_named(names)
        if not self.marked:
            return columns
        columns = columns.str.strip_chars()
        return pl.when(~columns.is_in(_MISSING)).then(columns)

    def parsed(self, names: Collection[str]) -> pl.Expr:
        """Return the parsed values of columns of text."""
        return self.parse(self.values(names))

    def reads(self, names: Collection[str]) -> pl.Expr:
        """Return an expression that is True for each column of text whose values all have this form."""
        values = self.values(names)
        all_read = values.count() == self.parsed(names).count()
        if self.codes:
            return all_read
        zeros = values.filter(values.str.starts_with("0")).str.extract("^(0[0-9]+)$")
        # If zeros fill all numbers to one length, no two texts are the same number.
        codes = zeros.str.len_bytes().max() > values.str.len_bytes().min()
        return all_read & ~codes.fill_null(value=False)


def _number(dtype: type[pl.DataType]) -> Parse:
    return lambda text: text.cast(dtype, strict=False)


FLOAT = _number(pl.Float64)
NUMBERS = *map(_number, (pl.Int64, pl.UInt64, pl.Int128)), FLOAT


def _code(text: pl.Expr) -> pl.Expr:
    """Return the texts that are numbers or missing words, unchanged; other texts become null."""
    stripped = text.str.strip_chars()
    return pl.when(stripped.is_in(_MISSING) | stripped.cast(pl.Float64, strict=False).is_not_null()).then(text)


def _boolean(text: pl.Expr) -> pl.Expr:
    lower = text.str.strip_chars().str.to_lowercase()
    return pl.when(lower.is_in(["true", "false"])).then(lower == "true")


def _with_missing_words(*parse: Parse) -> tuple[Form, ...]:
    """Return two forms of each type, first the one without missing words: to find words takes longer than to parse."""
    return tuple(Form(one, marked) for one in parse for marked in (False, True))


_DAY_FIRST = "%d-%m-%Y"  # some people write months first in this form, but not with dots
_DOTTED = "%d.%m.%Y"
DAYS_FIRST = day_in(_DAY_FIRST), moment_in(_DAY_FIRST, *TIMES)
_DATES = _with_missing_words(
    DAY,
    DAYS_FIRST[0],
    day_in(_DOTTED),
    MOMENT,
    DAYS_FIRST[1],
    moment_in(_DOTTED, *TIMES),
    ZONED_MOMENT,
    clock_time,
)
_NUMBER_FORMS = _with_missing_words(*NUMBERS)
CODES = Form(_code)
_OTHERS = (*_with_missing_words(_boolean), *_DATES)
# Forms of a column of text by the kind of file, in the order in which they are tried.
FORMS = {"CSV": (*(form._replace(codes=False) for form in _NUMBER_FORMS), CODES, *_OTHERS), "NDJSON": _DATES}
# Form of a column without values.
_NO_VALUES = Form(lambda text: text.cast(pl.Null), marked=True)

# Rows on which forms are tried before they are tried on all rows.
_FIRST_ROWS = 1000
Scan = tuple[pl.LazyFrame, dict[str, pl.DataType]]


class TypedScans(NamedTuple):
    """The scans of the files of a table, with the types of their values.

    forms  form of each column of text that has one: it is parsed, unless the form is CODES.
    head   first rows of all columns of text, as text.
    """

    scans: list[Scan]
    forms: dict[str, Form]
    head: pl.DataFrame


def with_types(scans: Sequence[Scan], forms: Sequence[Form], reading: Reading) -> TypedScans:
    """Return the scans of the files of a table with each column of text parsed, if all its values have one type.

    If a column of `reading.kept` is parsed, a column `text_name` with its text is added, before all other columns.
    Raises OSError or one of POLARS_FAULTS for an error of the system: reading the table later might not raise it again.
    """
    types = {name: {schema[name] for _, schema in scans} - {pl.Null()} for name in scans[0][1]}
    text = [name for name, kinds in types.items() if kinds == {pl.String()} and name not in reading.texts]
    present = partial(_without_words, words=reading.missing)
    rows = pl.concat([scan.select(present(text)) for scan, _ in scans])
    of_forms: dict[Sequence[Form], list[str]] = {}
    for name in text:  # JSON may write numbers, such as decimals, as text; a column of numbers in training is parsed
        of_forms.setdefault((*_NUMBER_FORMS, *_OTHERS) if name in reading.numbers else forms, []).append(name)
    form_of: dict[str, Form] = {}
    try:
        head = rows.head(_FIRST_ROWS).collect(engine="streaming")
        for accepted, names in of_forms.items():
            form_of |= _find_forms(rows, head, names, accepted, reading.numbers)
    except POLARS_FAULTS as error:
        if system_error(error, "") is not None:
            raise
        return TypedScans(list(scans), {}, pl.DataFrame())  # reading the table says what is wrong with it
    parsed = [
        _without_numbers(form.parsed(names), reading.missing) if form.parse in NUMBERS else form.parsed(names)
        for form, names in _columns_by_form({name: [form] for name, form in form_of.items()}).items()
    ]
    changed = [name for name, kinds in types.items() if kinds == {pl.String()}] if reading.missing else list(form_of)
    kept = [columns_named([name]).alias(text_name(name)) for name in changed if name in reading.kept]
    typed = [
        scan.select(*kept, pl.all()).with_columns(present(changed)).with_columns(parsed) if changed else scan
        for scan, _ in scans
    ]
    return TypedScans([(scan, dict(scan.collect_schema())) for scan in typed], form_of, head)


def _without_words(names: Collection[str], words: Sequence[str]) -> pl.Expr:
    """Return columns of text; words that mean a missing value, without spaces around them, are null."""
    columns = columns_named(names).cast(pl.String)
    if not words:
        return columns
    return pl.when(~columns.str.strip_chars().is_in(pl.lit(pl.Series(words)).implode())).then(columns)


def _without_numbers(columns: pl.Expr, words: Sequence[str]) -> pl.Expr:
    """Return columns of numbers; numbers that a word spells are null, however they are written: -999.0 for -999."""
    spelled = pl.Series(words, dtype=pl.String).cast(pl.Float64, strict=False).drop_nulls()
    if not len(spelled):
        return columns
    return pl.when(~columns.cast(pl.Float64).is_in(pl.lit(spelled).implode())).then(columns)


def _find_forms(
    rows: pl.LazyFrame, head: pl.DataFrame, names: Sequence[str], forms: Sequence[Form], numbers: Collection[str]
) -> dict[str, Form]:
    """Return the form of each column of text; columns that no form reads are left out.

    head     first rows of `rows`.
    numbers  columns of numbers in training: if all their texts are missing words, they have no values.

    The form of codes, and the form of columns without values, are among the results.
    """
    parts = [head.lazy()] if head.height < _FIRST_ROWS else [head.lazy(), rows]
    first = _first_values(parts, names, _NO_VALUES.values)
    # Columns that have texts, but only words for missing values.
    words = _first_values(parts, [name for name in names if name not in first], columns_named)
    empty = [name for name in names if name not in first and (name not in words or name in numbers)]
    texts = pl.Series(list(first.values()), dtype=pl.String)
    fits = [pl.select(form.parse(pl.lit(texts))).to_series().is_not_null() for form in forms]
    left = {
        name: [form for form, fit in zip(forms, fits, strict=True) if fit[place]] for place, name in enumerate(first)
    }
    for part in parts:
        likely = _fitting(part, {name: tried[:1] for name, tried in left.items()})
        others = _fitting(part, {name: tried[1:] for name, tried in left.items() if name not in likely})
        left = {name: left[name] if name in likely else others.get(name, []) for name in left}
    return {name: tried[0] for name, tried in left.items() if tried} | dict.fromkeys(empty, _NO_VALUES)


def _first_values(
    parts: Sequence[pl.LazyFrame], names: Sequence[str], values: Callable[[Sequence[str]], pl.Expr]
) -> dict[str, str]:
    """Return the first value of each column that has one, searching the first rows and then all rows.

    values  function that returns an expression of the values of columns, from their names.
    """
    first_of: dict[str, str] = {}
    for part in parts:
        if left := [name for name in names if name not in first_of]:
            first = part.select(values(left).drop_nulls().first()).collect(engine="streaming").row(0, named=True)
            first_of |= {name: value for name, value in first.items() if value is not None}
    return {name: first_of[name] for name in names if name in first_of}


def _fitting(rows: pl.LazyFrame, forms: dict[str, list[Form]]) -> dict[str, list[Form]]:
    """Return the forms of each column that read all values in these rows; columns without such a form are left out."""
    places = {form: place for place, form in enumerate(_columns_by_form(forms))}
    if not places:
        return {}
    all_read = rows.select(
        form.reads(names).name.suffix(f"\0{places[form]}") for form, names in _columns_by_form(forms).items()
    )
    fits = all_read.collect(engine="streaming").row(0, named=True)
    fitting = {name: [form for form in tried if fits[f"{name}\0{places[form]}"]] for name, tried in forms.items()}
    return {name: tried for name, tried in fitting.items() if tried}


def _columns_by_form(forms: dict[str, list[Form]]) -> dict[Form, list[str]]:
    grouped: dict[Form, list[str]] = {}
    for name, tried in forms.items():
        for form in tried:
            grouped.setdefault(form, []).append(name)
    return grouped
