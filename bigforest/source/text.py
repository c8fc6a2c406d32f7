"""Tables in text: from a CSV or NDJSON file to a lazy scan with its types."""

from __future__ import annotations

import csv
import functools
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import polars as pl

from bigforest.columns.types import columns_named
from bigforest.errors import DataError, counted, reason
from bigforest.source.source import POLARS_FAULTS, check_names, what_it_is
from bigforest.storage.paths import text_lines

# What separates values in files that are called CSV.
_SEPARATORS = (",", ";", "\t", "|")

Parser = Callable[[pl.Expr], pl.Expr]


def _datetime(form: str) -> Parser:
    return lambda text: text.str.to_datetime(form, time_unit="us", strict=False)


def _number(dtype: type[pl.DataType]) -> Parser:
    return lambda text: text.cast(dtype, strict=False)


# They read dates, datetimes and times from text.
_DATE_PARSERS: tuple[Parser, ...] = (
    lambda text: text.str.to_date("%Y-%m-%d", strict=False),
    *(_datetime(f"%Y-%m-%d{mark}{time}") for time in ("%H:%M:%S%.f", "%H:%M", "%H:%M:%S%.f%#z") for mark in "T "),
    lambda text: text.str.to_time("%H:%M:%S%.f", strict=False),
)
# And numbers.
_NUMBER_PARSERS: tuple[Parser, ...] = tuple(map(_number, (pl.Int64, pl.UInt64, pl.Int128, pl.Float64)))
# Rows by which columns of text that may be dates or numbers are chosen, before all rows of these are read.
_FIRST_ROWS = 1000
# Rows by which dates are looked for first, since that takes a long time per row.
_FEW_ROWS = 100

# Bytes in which separators are counted at a time.
_PIECE = 1 << 20

# Characters of a value that Python's reader of CSV accepts while lines are checked: those of any text of Polars. Its
# usual limit, which is one for the whole process, is 131,072.
_MOST_CHARACTERS = 2**31 - 1
_limit_lock = threading.Lock()

# What stands for a missing value among numbers.
_MISSING = ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "?")

# The number of a row, among columns of any name.
_ROW = "\0row"


class CsvRules(NamedTuple):
    """How CSV files are read.

    separator  the character between values; None to find it in the header.
    numbers    columns of numbers: if such a column has only "NA" and the like, it has no values, and is not text.
    missing    texts that mean a missing value in every column.
    texts      columns of text: if such a column has only numbers or dates, such as 001, it is text all the same.
    """

    separator: str | None = None
    numbers: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset()


Scan = tuple[pl.LazyFrame, dict[str, pl.DataType]]


def scan_csv(file: Path, rules: CsvRules) -> pl.LazyFrame:
    """The lazy scan of a CSV file. Raises DataError and errors of Polars."""
    _check_is_text(file)
    mark = rules.separator or _separator(file)
    names = _names(file, mark)
    # Polars would rename the second column of a name silently.
    check_names(names, str(file))
    read = functools.partial(
        pl.scan_csv, str(file), glob=False, separator=mark, null_values=list(rules.missing) or None
    )
    found = _inferred(read)
    kept = {own for own, name in zip(found, names, strict=False) if name in rules.texts}
    # Polars takes long numbers for Int128, which may be too short for them, and is longer than needed up to 2**64.
    as_text = kept | {own for own, dtype in found.items() if dtype == pl.Int128}
    found = pl.Schema({own: pl.String() if own in as_text else dtype for own, dtype in found.items()})
    # A scan that infers types keeps all that it has read for this in memory until it ends; this one is given the types.
    scan = read(schema=found)
    text = [name for name, dtype in found.items() if dtype == pl.String and name not in kept]
    try:
        numeric = {own for own, name in zip(found, names, strict=False) if name in rules.numbers}
        empty = _empty(scan, text, numeric)
        text = [name for name in text if name not in empty]
        parsers = _readable(scan.select(_known(name) for name in text), text, _NUMBER_PARSERS)
    except POLARS_FAULTS:
        empty, parsers = [], {}  # reading the table says what is wrong with it
    scan = scan.with_columns(parse(_known(name)) for name, parse in parsers.items())
    scan = scan.with_columns(_known(name).cast(pl.Null) for name in empty)  # which goes with any type of another file
    # Polars leaves quotes within a name doubled.
    return scan.rename(dict(zip(found, names, strict=True))) if len(names) == len(found) else scan


def _inferred(read: Callable[..., pl.LazyFrame]) -> pl.Schema:
    """The types of a CSV file's columns, inferred from all rows: a type never depends on where a value stands."""
    found = read(infer_schema_length=None).collect_schema()
    text = [name for name, dtype in found.items() if dtype == pl.String]
    if not text:
        return found
    # Looking for dates takes Polars twenty times as long. A column whose first values are other text has none, and a
    # column has dates if all its values can be read as the first ones are.
    for rows in (_FEW_ROWS, _FIRST_ROWS):
        first = read(infer_schema_length=rows, try_parse_dates=True).collect_schema()
        dated = {name: first[name] for name in text if first[name] != pl.String}
        try:
            values = read(schema=found).head(rows // 2).select(columns_named(text).count()).collect()
            if all(values.row(0)) and (not dated or _are_dates(read, found, dated)):
                return pl.Schema({**found, **dated})
        except POLARS_FAULTS:
            pass  # some columns are neither dates nor text, or reading the table says what is wrong with it
    whole = read(infer_schema_length=None, try_parse_dates=True).collect_schema()
    dated = {name: whole[name] for name in text if whole[name] != pl.String}
    if not _can_be_read(read, found, dated):
        dated = {name: dtype for name, dtype in dated.items() if _can_be_read(read, found, {name: dtype})}
    return pl.Schema({**found, **dated})


def _can_be_read(read: Callable[..., pl.LazyFrame], found: pl.Schema, dated: dict[str, pl.DataType]) -> bool:
    """Whether all values of some columns of text have these types: Polars finds times and dates in columns of several
    forms, of which it then reads one."""
    try:
        read(schema={**found, **dated}).select(columns_named(dated).count()).collect(engine="streaming")
    except POLARS_FAULTS:
        return False
    return True


def _are_dates(read: Callable[..., pl.LazyFrame], found: pl.Schema, dated: dict[str, pl.DataType]) -> bool:
    """Whether all values of some columns of text have these types. Raises errors of Polars if one is not a date."""
    times = [
        columns_named([name]).str.contains(":", literal=True) for name, dtype in dated.items() if dtype == pl.Datetime
    ]
    # Polars reads a date without time as a datetime, but infers text for a column of both.
    if times and not all(read(schema=found).select(one.all() for one in times).collect(engine="streaming").row(0)):
        return False
    read(schema={**found, **dated}).select(columns_named(dated).count()).collect(engine="streaming")
    return True


def _empty(scan: pl.LazyFrame, names: Sequence[str], numeric: Collection[str]) -> Sequence[str]:
    """The columns without a value; numeric ones may have texts that stand for missing values."""
    for part in (scan.head(_FIRST_ROWS), scan):  # few columns are looked at as a whole
        if names:
            values = [_known(name) if name in numeric else columns_named([name]) for name in names]
            counts = part.select(value.count() for value in values).collect(engine="streaming").row(0)
            names = [name for name, count in zip(names, counts, strict=True) if not count]
    return names


def _known(name: str) -> pl.Expr:
    """A column of text, null where a text means a missing value."""
    column = columns_named([name])
    return pl.when(~column.is_in(_MISSING)).then(column)


def scan_ndjson(file: Path) -> pl.LazyFrame:
    """The lazy scan of an NDJSON file, with types inferred from all rows. Raises DataError and errors of Polars."""
    _check_is_text(file)
    return pl.scan_ndjson(str(file), infer_schema_length=None)


def with_dates(scans: Sequence[Scan], where: str) -> list[Scan]:
    """The scans of the NDJSON files of a table, with dates, datetimes and times where all rows of a column of text in
    all files are such in ISO 8601, as in CSV. Raises DataError."""
    types = {name: {schema[name] for _, schema in scans} - {pl.Null()} for name in scans[0][1]}
    text = [name for name, found in types.items() if found == {pl.String()}]
    if not text:
        return list(scans)
    rows = pl.concat([scan.select(columns_named(text).cast(pl.String)) for scan, _ in scans])
    try:
        parsers = _readable(rows, text, _DATE_PARSERS)
    except (*POLARS_FAULTS, OSError) as error:
        raise DataError(f"{where}: the table cannot be read: {reason(error)}; check its lines") from error
    dated = [parse(columns_named([name]).cast(pl.String)) for name, parse in parsers.items()]
    found = [scan.with_columns(dated) for scan, _ in scans]
    return [(scan, dict(scan.collect_schema())) for scan in found]


def _readable(rows: pl.LazyFrame, text: Sequence[str], parsers: Sequence[Parser]) -> dict[str, Parser]:
    """For each column of text that has values, the first of the parsers that reads all of them, if there is one."""
    left = {name: list(parsers) for name in text}
    for part in (rows.head(_FIRST_ROWS), rows):  # few columns are looked at as a whole
        if not left:
            break
        counts = part.select(
            made(columns_named([name])).count().alias(f"{column} {place}")
            for column, (name, own) in enumerate(left.items())
            for place, made in enumerate([lambda text: text, *own])
        ).collect(engine="streaming")
        values = {name: counts.item(0, f"{column} 0") for column, name in enumerate(left)}
        fitting = {
            name: [parse for place, parse in enumerate(own) if counts.item(0, f"{column} {place + 1}") == values[name]]
            for column, (name, own) in enumerate(left.items())
        }
        left = {name: own for name, own in fitting.items() if own}
    return {name: own[0] for name, own in left.items() if values[name]}


def has_whole_lines(file: Path, separator: str | None) -> bool:
    """Whether every line of a CSV file that Polars has read has as many values as the header, by counting separators.

    False also if the file has quotes, which may enclose separators; `blank_lines` then finds out, ten times as slowly.
    """
    mark = separator or _separator(file)
    marks = ends = 0
    end = b"\n"
    with file.open("rb") as content:
        while piece := content.read(_PIECE):
            if b'"' in piece:
                return False
            marks, ends, end = marks + piece.count(mark.encode()), ends + piece.count(b"\n"), piece[-1:]
    return marks == (ends + (end != b"\n")) * (len(_names(file, mark)) - 1)  # no line has more


def blank_lines(file: Path, separator: str | None, *, unread: bool) -> list[int]:
    """The numbers of the rows of a CSV file of several columns that are blank lines, which Polars reads as rows
    without values.

    unread  whether Polars has refused the file.

    Raises DataError naming the first line with too few values, which Polars would complete silently. If the file was
    refused, also for a line with too many values, or a stray quote.
    """
    blank: list[int] = []
    with text_lines(file, "utf-8-sig") as lines, _long_values():
        reader = csv.reader(lines, delimiter=separator or _separator(file), strict=True)
        try:
            width = len(next(filter(None, reader), []))
            for number, row in enumerate(reader):
                if len(row) == width:
                    continue
                if not row:
                    blank.append(number)
                elif len(row) < width or unread:
                    raise DataError(
                        f"{file}: line {reader.line_num} has {counted(len(row), 'value')}, and the header names "
                        f"{counted(width, 'column')}; mend the line, or give the separator"
                    )
        except UnicodeDecodeError:
            pass
        except csv.Error as error:
            if unread:
                raise DataError(f"{file}: line {reader.line_num} cannot be read ({error}); mend its quotes") from error
    return blank if width > 1 else []


@contextmanager
def _long_values() -> Iterator[None]:
    """Let Python's reader of CSV accept values of any length in the block."""
    with _limit_lock:
        before = csv.field_size_limit(_MOST_CHARACTERS)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def without_rows(scan: pl.LazyFrame, rows: Sequence[int]) -> pl.LazyFrame:
    """A scan without the rows of these numbers."""
    if not rows:
        return scan
    number = columns_named([_ROW])
    return scan.with_row_index(_ROW).filter(~number.is_in(pl.Series(rows, dtype=pl.UInt32).implode())).drop(_ROW)


def _check_is_text(file: Path) -> None:
    """Raise DataError if a file does not begin like text, before it is read: an unfilled one may have any size."""
    try:
        found = what_it_is(file)
    except OSError as error:
        raise DataError(f"{file}: the file cannot be read: {reason(error)}; check its permissions") from error
    if found:
        raise DataError(f"{file}: the file {found}")


def _separator(file: Path) -> str:
    """What separates values: a tab in .tsv, else a comma; another mark if the header would be a single name with it."""
    own = "\t" if file.suffix.lower() == ".tsv" else ","
    header = _names(file, own)
    return next((mark for mark in _SEPARATORS if len(header) == 1 and mark in header[0]), own)


def _names(file: Path, separator: str) -> list[str]:
    """The names of the columns of a CSV file. Raises DataError where they cannot be read."""
    try:
        with text_lines(file, "utf-8-sig") as lines:
            names = next(filter(None, csv.reader(lines, delimiter=separator)), [])
            if lines.newlines == "\r":
                raise DataError(
                    f"{file}: lines end with a carriage return alone, as on old Macs; replace each by a line feed, as "
                    "tr '\\r' '\\n' does"
                )
            return names
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise DataError(f"{file}: not a readable CSV file in UTF-8: {error}; convert it") from error
