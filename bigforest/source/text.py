"""Tables in text, CSV and NDJSON: lazy scans with types that are inferred from all rows of all files.

1. Scan the files. All values of CSV are text. Values of NDJSON have JSON types; its text is only searched for dates and
   times, and in columns that were numbers in training also for numbers.
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

import csv
import glob
import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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
from bigforest.errors import DataError, counted, naming_file, system_error
from bigforest.source.source import POLARS_FAULTS, Reading, not_readable, places_once, text_name
from bigforest.storage.file_kinds import what_it_is
from bigforest.storage.paths import text_lines

# Separators of values in files that are called CSV.
_SEPARATORS = (",", ";", "\t", "|")

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
# Rows of NDJSON whose keys are checked, in a few milliseconds: a program that writes a key twice does so in every row.
_CHECKED_ROWS = 100

# Bytes, or characters, of a file that are read together.
_PIECE = 1 << 20

# Limit of the length of a value for Python's reader of CSV while lines are checked. The default is 131,072. The limit
# applies to the whole process.
_MAX_CHARACTERS = 2**31 - 1
_limit_lock = threading.Lock()

# Temporary column of row numbers. No column of a CSV file has a zero byte in its name.
_ROW = "\0row"


Scan = tuple[pl.LazyFrame, dict[str, pl.DataType]]


def scan_csv(file: Path, reading: Reading) -> pl.LazyFrame:
    """Return the lazy scan of a CSV file, all columns as text. Raises DataError and errors of Polars."""
    _check_is_text(file)
    separator = reading.separator or _separator(file)
    names = header_of(file, separator)
    if not names:
        raise not_readable(file, "CSV", ValueError("it has no header"))
    if zero := [name for name in names if "\0" in name]:
        raise DataError(f"{file}: the name of column {zero[0]!r} has a zero byte; rename it")
    if any('"' in name for name in names):
        _check_quoted(file, names)
    polars_names = _names_in_polars(names)
    scan = pl.scan_csv(
        str(file.absolute()),
        glob=False,
        separator=separator,
        schema=dict.fromkeys(polars_names, pl.String()),
    )
    if ends_unnamed(file, reading):
        names = names[: _columns_with_use(scan, names)]
    places = places_once(names, str(file), reading)
    if len(places) < len(polars_names):
        scan = scan.select(columns_named([polars_names[place] for place in places]))
    return scan if polars_names == names else scan.rename({polars_names[place]: names[place] for place in places})


def ends_unnamed(file: Path, reading: Reading) -> bool:
    """Return True if all columns of a CSV file are read, and the last one has no name: its lines end with commas."""
    return reading.needed is None and header_of(file, reading.separator or _separator(file))[-1] == ""


def _columns_with_use(scan: pl.LazyFrame, names: Sequence[str]) -> int:
    """Return the number of columns up to the last one with a name, or of all columns if a nameless one after it has a
    value."""
    use = max((place for place, name in enumerate(names, 1) if name), default=0)
    rest = scan.select(pl.nth(range(use, len(names))).str.strip_chars().str.len_bytes().max())
    try:
        return len(names) if any(rest.collect(engine="streaming").row(0)) else use
    except POLARS_FAULTS as error:
        if system_error(error, "") is not None:
            raise
        return len(names)  # reading the table says what is wrong with it


def _check_quoted(file: Path, names: Sequence[str]) -> None:
    """Raise DataError if a name in the header has a quote and is not quoted: Polars would misread the header."""
    with text_lines(file, "utf-8-sig") as lines:
        header = lines.read(_PIECE)
    for name in names:
        doubled = name.replace('"', '""')
        if '"' in name and f'"{doubled}"' not in header:
            if name.lstrip().startswith('"'):
                raise DataError(f"{file}: the name {name!r} has spaces before its quotes; remove these spaces")
            raise DataError(f"{file}: the name {name!r} has a quote; quote the name, and write the quote twice")


def _names_in_polars(names: Sequence[str]) -> list[str]:
    """Return the names that Polars takes from a header: it leaves quotes within names doubled, and numbers columns with
    the same name."""
    polars_names, before = [], Counter[str]()
    for name in names:
        doubled = name.replace('"', '""')
        polars_names.append(f"{doubled}_duplicated_{before[name] - 1}" if before[name] else doubled)
        before[name] += 1
    return polars_names


def scan_ndjson(file: Path, reading: Reading) -> pl.LazyFrame:
    """Return the lazy scan of an NDJSON file, with JSON types from all rows. Raises DataError and errors of Polars.

    Columns that are not read are nulls: their values may be of several kinds.

    Columns are in the order of the first row. Columns that the first row lacks follow, sorted by name: for rows with
    more than 32 names, the order of Polars differs from process to process.
    """
    _check_is_text(file)
    path = glob.escape(str(file.absolute()))  # scan_ndjson takes every path for a pattern
    try:
        schema = pl.scan_ndjson(path, infer_schema_length=None).collect_schema()
    except POLARS_FAULTS:
        _check_json(file)
        check_kinds([file])
        raise
    first: Any = None
    # Python's reader refuses some rows that Polars reads, such as one with an integer of 5,000 digits.
    with suppress(ValueError, RecursionError), text_lines(file, "utf-8-sig") as lines:
        first = json.loads(next(filter(str.strip, lines), "null"))
    _check_keys(file)
    struct = _in_order(pl.Struct(schema), first)
    assert isinstance(struct, pl.Struct)
    types = {field.name: field.dtype for field in struct.fields}
    scan = pl.scan_ndjson(path, schema={name: dtype for name, dtype in types.items() if reading.needs(name)})
    unread = [pl.lit(None).alias(name) for name in types if not reading.needs(name)]
    return scan.with_columns(unread).select(columns_named(types)) if unread else scan


def _check_keys(file: Path) -> None:
    """Raise DataError if an object in the first rows has the same key twice: Polars would take the first value."""

    def check(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            twice.append(Counter(key for key, _ in pairs).most_common(1)[0][0])

    twice: list[str] = []
    left, number = _PIECE // 4, 0
    with suppress(ValueError, RecursionError), text_lines(file, "utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            json.loads(line.strip() or "null", object_pairs_hook=check)
            left -= len(line)
            if twice or number == _CHECKED_ROWS or left < 0:
                break
    if twice:
        raise DataError(f"{file}: line {number} has a value for {twice[0]!r} twice; rename or drop one")


def has_lines(file: Path) -> bool:
    """Return False if a file has only white space: NDJSON without rows, which names no columns."""
    with suppress(UnicodeDecodeError), text_lines(file, "utf-8-sig") as text:
        # Not by line: a file that was never filled is one long line of zero bytes.
        return any(map(str.strip, iter(lambda: text.read(_PIECE), "")))
    return True


def _in_order(dtype: Any, row: Any) -> Any:
    """Return a type whose fields are in the order of a row, then sorted by name."""
    if not isinstance(dtype, pl.Struct):
        return dtype
    cells = row if isinstance(row, dict) else {}
    places = {name: place for place, name in enumerate(cells)}
    fields = sorted(dtype.fields, key=lambda field: (places.get(field.name, len(places)), field.name))
    return pl.Struct([pl.Field(field.name, _in_order(field.dtype, cells.get(field.name))) for field in fields])


def _check_json(file: Path) -> None:
    """Raise DataError naming the first line that is not a JSON object, mostly with the message of Python's reader."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no value of JSON, whose missing value is null")

    def finite(text: str) -> float:
        if math.isinf(number := float(text)):
            raise ValueError(f"{text} is beyond the numbers of 64 bits")
        return number

    number, line = 0, ""
    try:
        with text_lines(file, "utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007, the error names it
                row = json.loads(line.strip() or "null", parse_constant=refuse, parse_float=finite)
                if not isinstance(row, dict | None):
                    raise ValueError('it is no object, such as {"length": 1.5}, with a value for each column')
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not NDJSON in UTF-8: {error}; convert it") from error
    except (ValueError, RecursionError) as error:
        if line.strip() in ("[", "{"):
            raise DataError(
                f"{file}: JSON begins in line {number} and ends in another; write each row in one line, as jq -c does"
            ) from error
        at = f"{error.msg} at character {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise DataError(f"{file}: line {number} cannot be read: {at}; mend the line") from error


def check_kinds(files: Sequence[Path]) -> None:
    """Raise DataError naming the first line of NDJSON that has a value of another kind than the lines before it."""
    first_of: dict[str, tuple[str, Path, int]] = {}
    for file in files:
        fault = ""
        with suppress(ValueError, RecursionError), text_lines(file, "utf-8-sig") as lines:
            found = (
                (number, name, kind)
                for number, line in enumerate(lines, 1)
                for name, kind in _kinds("", json.loads(line.strip() or "{}"))
            )
            for number, name, kind in found:
                first, place, at = first_of.setdefault(name, (kind, file, number))
                if first != kind:
                    where = f"line {at}" if place == file else f"line {at} of {place}"
                    fault = f"line {number} has {kind} for {name!r}, and {where} has {first}"
                    break
        if fault:
            raise DataError(f"{file}: {fault}; write values of one kind, or null")


def _kinds(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and kind of a value of JSON, and of the values within it. Numbers and text may be mixed."""
    if isinstance(value, dict):
        if name:
            yield name, "an object"
        for key, inner in value.items():
            yield from _kinds(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, list):
        yield name, "a list"
        for inner in value:
            yield from _kinds(f"{name}[]", inner)
    elif value is not None:
        yield name, "true or false" if isinstance(value, bool) else "a number or text"


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
    Raises OSError or one of POLARS_FAULTS for an error of the system, which may not come again when the table is read.
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

    values  function that returns an expression of the values of columns.
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


def has_whole_lines(file: Path, separator: str | None) -> bool:
    """Return True if every line of a CSV file has as many values as the header, by counting separators.

    Return False also if the file has quotes, which may enclose separators and ends of lines; `blank_lines` is exact but
    thirty times slower.
    """
    separator = separator or _separator(file)
    separators = ends = 0
    end = b"\n"
    with naming_file(file), file.open("rb") as content:
        while piece := content.read(_PIECE):
            if b'"' in piece:
                return False
            characters = np.frombuffer(piece, np.uint8)
            separators += int(np.count_nonzero(characters == ord(separator)))
            ends, end = ends + int(np.count_nonzero(characters == ord("\n"))), piece[-1:]
    return separators == (ends + (end != b"\n")) * (len(header_of(file, separator)) - 1)  # Polars refuses longer lines


def blank_lines(file: Path, separator: str | None, *, unread: bool) -> list[int]:
    """Return the rows of a CSV file, numbered from 0, that are blank lines: Polars reads them as rows without values.

    unread  True if Polars has refused the file, or may have read several lines as one value.

    In a table of one column, blank lines are missing values, and none is returned. Raises DataError naming the first
    line with too few values, which Polars would complete silently, or with a carriage return alone at its end. If
    `unread`, this error also names a line with too many values or with a stray quote, or a byte that is not UTF-8.
    """
    blank: list[int] = []
    with text_lines(file, "utf-8-sig") as lines, _long_values():
        line = ""
        reader = csv.reader((line := each for each in lines), delimiter=separator or _separator(file), strict=True)
        try:
            width = len(next(filter(None, reader), []))
            before = reader.line_num
            for number, row in enumerate(reader):
                one_line, before = reader.line_num == before + 1, reader.line_num
                if line.endswith("\r"):  # no end of a line for Polars
                    raise DataError(
                        f"{file}: line {before} ends with a carriage return alone; replace it by a line feed or drop it"
                    )
                if unread and one_line and line.count('"') % 2:
                    raise DataError(
                        f"{file}: line {before} has a quote within a value; quote the value, and write the quote twice"
                    )
                if len(row) == width:
                    continue
                if not row:
                    blank.append(number)
                elif len(row) < width or unread:
                    raise DataError(
                        f"{file}: line {reader.line_num} has {counted(len(row), 'value')}, and the header names "
                        f"{counted(width, 'column')}; mend the line, or give the separator"
                    )
        except UnicodeDecodeError as error:
            if unread:
                byte, at = error.object[error.start], max(reader.line_num, 1)
                raise DataError(
                    f"{file}: not UTF-8, as the byte 0x{byte:02x} after line {at} shows; convert it"
                ) from error
        except csv.Error as error:
            if unread:
                raise DataError(f"{file}: line {reader.line_num} cannot be read ({error}); mend its quotes") from error
    return blank if width > 1 else []


@contextmanager
def _long_values() -> Iterator[None]:
    """Let Python's reader of CSV accept values of any length in the block."""
    with _limit_lock:
        before = csv.field_size_limit(_MAX_CHARACTERS)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def without_rows(scan: pl.LazyFrame, rows: Sequence[int]) -> pl.LazyFrame:
    if not rows:
        return scan
    number = columns_named([_ROW])
    return scan.with_row_index(_ROW).filter(~number.is_in(pl.Series(rows, dtype=pl.UInt32).implode())).drop(_ROW)


def _check_is_text(file: Path) -> None:
    """Raise DataError if a file does not begin like text, before all of it is read."""
    try:
        content = what_it_is(file)
    except OSError as error:
        raise not_readable(file, "text", error) from error
    if content:
        raise DataError(f"{file}: the file {content}")


def _separator(file: Path) -> str:
    """Return the separator: a tab in .tsv, else a comma; if that does not divide the header, another one that does."""
    default = "\t" if file.suffix.lower() == ".tsv" else ","
    header = header_of(file, default)
    return next((separator for separator in _SEPARATORS if len(header) == 1 and separator in header[0]), default)


def header_of(file: Path, separator: str) -> list[str]:
    """Return the names of the columns of a CSV file. Raises DataError if they cannot be read."""
    try:
        with text_lines(file, "utf-8-sig") as lines:
            line = ""
            names = next(filter(None, csv.reader((line := each for each in lines), delimiter=separator)), [])
            if names == ["sep=", ""]:
                raise DataError(f"{file}: its first line, sep=, is for Excel and no header; remove the line")
            if line.endswith("\r") and next(lines, "") == "\r\n":
                raise DataError(
                    f"{file}: lines end with two carriage returns and a line feed; drop the former, as tr -d '\\r' does"
                )
            if lines.newlines == "\r":
                raise DataError(
                    f"{file}: lines end with a carriage return alone, as on old Macs; replace each by a line feed, as "
                    "tr '\\r' '\\n' does"
                )
            return names
    except OSError as error:
        raise not_readable(file, "CSV", error) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: not a readable CSV file in UTF-8: {error}; convert it") from error
