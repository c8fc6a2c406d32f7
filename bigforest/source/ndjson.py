"""NDJSON files: a lazy scan with JSON types from all rows, and the lines that errors name."""

from __future__ import annotations

import glob
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.columns.types import columns_named
from bigforest.errors import DataError
from bigforest.source.source import POLARS_FAULTS, Reading, check_is_text
from bigforest.storage.paths import text_lines

# Rows whose keys are checked, in a few milliseconds: a program that writes a key twice does so in every row.
_CHECKED_ROWS = 100
# Most characters of these rows, and characters of a file that are read together.
_CHECKED, _PIECE = 1 << 18, 1 << 20


def scan_ndjson(file: Path, reading: Reading) -> pl.LazyFrame:
    """Return the lazy scan of an NDJSON file, with JSON types from all rows. Raises DataError and errors of Polars.

    Columns that are not read are nulls: their values may be of several kinds.

    Columns are in the order of the first row. Columns that the first row lacks follow, sorted by name: for rows with
    more than 32 names, the order of Polars differs from process to process.
    """
    check_is_text(file)
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
    left, number = _CHECKED, 0
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
