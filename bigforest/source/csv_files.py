"""CSV files: separator and header, a lazy scan of all values as text, and lines that Polars misreads.

Polars completes a line with too few values, and reads a blank line as a row, without a word. So lines are checked
(`has_whole_lines`, `blank_lines`). Python's reader of CSV reads the header, and finds the lines that errors name.
"""

from __future__ import annotations

import csv
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from bigforest.columns.types import columns_named
from bigforest.errors import DataError, counted, naming_file, system_error
from bigforest.source.source import POLARS_FAULTS, Reading, check_is_text, not_readable, places_once
from bigforest.storage.paths import text_lines

# Separators of values in files that are called CSV.
_SEPARATORS = (",", ";", "\t", "|")

# Bytes, or characters, of a file that are read together.
_PIECE = 1 << 20

# Limit of the length of a value for Python's reader of CSV while lines are checked. The default is 131,072. The limit
# applies to the whole process.
_MAX_CHARACTERS = 2**31 - 1
_limit_lock = threading.Lock()

# Temporary column of row numbers. No column of a CSV file has a zero byte in its name.
_ROW = "\0row"


class CsvFile(NamedTuple):
    """A CSV file.

    separator  character between values.
    names      names of the columns in its header.
    """

    path: Path
    separator: str
    names: list[str]

    @classmethod
    def open(cls, path: Path, reading: Reading) -> CsvFile:
        """Read the header. Raises DataError if there is none that can be read.

        The separator is `reading.separator`. If that is not set, it is the first of these that divides the header:
        `reading.usual`, a tab for .tsv or a comma for other files, the other separators.
        """
        check_is_text(path)
        if reading.separator:
            return cls(path, reading.separator, _header(path, reading.separator))
        if reading.usual and len(names := _header(path, reading.usual)) > 1:
            return cls(path, reading.usual, names)
        default = "\t" if path.suffix.lower() == ".tsv" else ","
        names = _header(path, default)
        for other in _SEPARATORS:
            if len(names) == 1 and other in names[0]:
                return cls(path, other, _header(path, other))
        return cls(path, default, names)

    def scan(self, reading: Reading) -> pl.LazyFrame:
        """Return the lazy scan, all columns as text. Raises DataError and errors of Polars."""
        names = self.names
        if zero := [name for name in names if "\0" in name]:
            raise DataError(f"{self.path}: the name of column {zero[0]!r} has a zero byte; rename it")
        if any('"' in name for name in names):
            _check_quoted(self.path, names)
        polars_names = _names_in_polars(names)
        scan = pl.scan_csv(
            str(self.path.absolute()),
            glob=False,
            separator=self.separator,
            schema=dict.fromkeys(polars_names, pl.String()),
        )
        if self.ends_unnamed(reading):
            names = names[: _columns_with_use(scan, names)]
        unnamed = sum(1 for _ in takewhile(lambda name: not name, names))
        if unnamed > 1:  # an index of several levels; pandas names them so when it reads the file
            names = [*(f"Unnamed: {level}" for level in range(unnamed)), *names[unnamed:]]
        advice = "rename or drop them, or write a line of names above a file without a header"
        places = places_once(names, str(self.path), reading, advice)
        if len(places) < len(polars_names):
            scan = scan.select(columns_named([polars_names[place] for place in places]))
        return scan if polars_names == names else scan.rename({polars_names[place]: names[place] for place in places})

    def ends_unnamed(self, reading: Reading) -> bool:
        """Return True if all columns are read, and the last one has no name: lines end with commas."""
        return reading.needed is None and self.names[-1] == ""

    def has_whole_lines(self) -> bool:
        """Return True if every line has as many values as the header, by counting separators.

        Return False also if the file has quotes, which may enclose separators and ends of lines; `blank_lines` is exact
        but thirty times slower.
        """
        separators = ends = 0
        end = b"\n"
        with naming_file(self.path), self.path.open("rb") as content:
            while piece := content.read(_PIECE):
                if b'"' in piece:
                    return False
                characters = np.frombuffer(piece, np.uint8)
                separators += int(np.count_nonzero(characters == ord(self.separator)))
                ends, end = ends + int(np.count_nonzero(characters == ord("\n"))), piece[-1:]
        return separators == (ends + (end != b"\n")) * (len(self.names) - 1)  # Polars refuses longer lines

    def blank_lines(self, *, unread: bool) -> list[int]:
        """Return the rows of the file, numbered from 0, that are blank lines: Polars reads them as rows without values.

        unread  True if Polars has refused the file, or may have read several lines as one value.

        In a table of one column, blank lines are missing values, and none is returned. Raises DataError naming the
        first line with too few values, which Polars would complete silently, or with a carriage return alone at its
        end. If `unread`, this error also names a line with too many values or with a stray quote, or a byte that is not
        UTF-8.
        """

        def wrong(fault: str) -> DataError:
            return DataError(f"{self.path}: {fault}")

        blank: list[int] = []
        with text_lines(self.path, "utf-8-sig") as lines, _long_values():
            line = ""
            reader = csv.reader((line := each for each in lines), delimiter=self.separator, strict=True)
            try:
                width = len(next(filter(None, reader), []))
                before = reader.line_num
                for number, row in enumerate(reader):
                    one_line, before = reader.line_num == before + 1, reader.line_num
                    if line.endswith("\r"):  # no end of a line for Polars
                        raise wrong(
                            f"line {before} ends with a carriage return alone; replace it by a line feed or drop it"
                        )
                    if unread and one_line and line.count('"') % 2:
                        raise wrong(
                            f"line {before} has a quote within a value; quote the value, and write the quote twice"
                        )
                    if len(row) == width:
                        continue
                    if not row:
                        blank.append(number)
                    elif len(row) < width or unread:
                        raise wrong(
                            f"line {reader.line_num} has {counted(len(row), 'value')}, and the header names "
                            f"{counted(width, 'column')}; mend the line, or give the separator"
                        )
            except UnicodeDecodeError as error:
                if unread:
                    byte, at = error.object[error.start], max(reader.line_num, 1)
                    raise wrong(f"not UTF-8, as the byte 0x{byte:02x} after line {at} shows; convert it") from error
            except csv.Error as error:
                if unread:
                    raise wrong(f"line {reader.line_num} cannot be read ({error}); mend its quotes") from error
        return blank if width > 1 else []


def _header(file: Path, separator: str) -> list[str]:
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
            if not names:
                raise not_readable(file, "CSV", ValueError("it has no header"))
            return names
    except OSError as error:
        raise not_readable(file, "CSV", error) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: not a readable CSV file in UTF-8: {error}; convert it") from error


def _columns_with_use(scan: pl.LazyFrame, names: Sequence[str]) -> int:
    """Return the number of columns without those at the end that have neither a name nor a value. If one of the
    nameless columns at the end has a value, all count."""
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
