"""Common types of the columns of a table in several files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import polars as pl

from bigforest.columns.types import is_text_type
from bigforest.errors import DataError, listed
from bigforest.source.source import Reading, Source

# float64 holds every integer up to this one.
_EXACT_WHOLE = 2**53
# Types of integers that may exceed _EXACT_WHOLE.
_LONG = (pl.Int64, pl.UInt64, pl.Int128, pl.UInt128)
# Units of time, from coarse to fine.
_UNITS = ("ms", "us", "ns")


def common_schema(
    files: Sequence[Path],
    schemas: Sequence[Mapping[str, pl.DataType]],
    part: Callable[[int], Source],
    reading: Reading,
) -> dict[str, pl.DataType]:
    """Return the columns of a table in several files, with a type that holds the values of all files.

    part  function that returns the table of a file, from the number of the file.

    All files must have the same columns, in any order, except for columns that are not read. The types of a column must
    be equal or of one kind: numbers, text, dates with datetimes, or durations. Integers beyond 2**53 cannot be joined
    with floats. If types do not fit, files where the column has no values are ignored: pandas writes NaN there. Raises
    DataError.
    """
    first: dict[str, pl.DataType] = {}
    for file, schema in zip(files, schemas, strict=True):
        for name, dtype in schema.items():
            first.setdefault(name, dtype)
        differing = sorted(filter(reading.needs, set(schema) ^ set(schemas[0])))
        if differing:
            named = listed([*map(repr, differing)], 5)
            raise DataError(f"{file}: not the columns of {files[0]} ({named} not in both); give files of one table")
    for name in first if any(schema != first for schema in schemas) else ():
        types = [schema.get(name, pl.Null()) for schema in schemas]
        if any(dtype != types[0] for dtype in types):
            first[name] = _common_type(name, files, types, part) if reading.needs(name) else pl.Null()
    return first


def _common_type(
    name: str, files: Sequence[Path], types: Sequence[pl.DataType], part: Callable[[int], Source]
) -> pl.DataType:
    common = _joined_all(types)
    inexact = None if common is None else _inexact_file(name, common, types, part)
    if common is None or inexact is not None:
        valued = [place for place, dtype in enumerate(types) if dtype != pl.Null and part(place).has_values(name)]
        common = _joined_all([types[place] for place in valued])
        if common is None:
            first = valued[0]
            second = next(place for place in valued if _joined(types[first], types[place]) is None)
            raise DataError(
                f"{files[second]}: column {name!r} has type {types[second]}, but {types[first]} in {files[first]}; "
                "convert one of them"
            )
        inexact = _inexact_file(name, common, types, part)
    if inexact is not None:
        raise DataError(
            f"{files[inexact]}: column {name!r} has integers beyond 2**53, which are not exact in {common}, its "
            "type in other files; convert one of them"
        )
    return common


def _inexact_file(
    name: str, common: pl.DataType, types: Sequence[pl.DataType], part: Callable[[int], Source]
) -> int | None:
    """Return the number of the first file with integers that are not exact in the common type; None if all are."""
    places = [place for place, dtype in enumerate(types) if common.is_float() and dtype in _LONG]
    return next((place for place in places if part(place).exceeds(name, _EXACT_WHOLE)), None)


def _joined_all(types: Sequence[pl.DataType]) -> pl.DataType | None:
    """Return a type that holds the values of all types; None if they are of different kinds."""
    common: pl.DataType | None = pl.Null()
    for dtype in types:
        common = None if common is None else _joined(common, dtype)
    return common


def _joined(first: pl.DataType, second: pl.DataType) -> pl.DataType | None:
    """Return a type that holds the values of both types; None if they are of different kinds."""
    if first == second or second == pl.Null:
        return first
    if first == pl.Null:
        return second
    if first.is_numeric() and second.is_numeric():
        empty = [pl.DataFrame(schema={"": dtype}) for dtype in (first, second)]
        return pl.concat(empty, how="vertical_relaxed").dtypes[0]
    if is_text_type(first) and is_text_type(second):
        return pl.String()
    units = [dtype.time_unit for dtype in (first, second) if isinstance(dtype, pl.Datetime | pl.Duration)]
    unit: Literal["ms", "us", "ns"] = max(units, key=_UNITS.index, default="us")
    if isinstance(first, pl.Duration) and isinstance(second, pl.Duration):
        return pl.Duration(unit)
    if isinstance(first, pl.Date | pl.Datetime) and isinstance(second, pl.Date | pl.Datetime):
        zones = {getattr(dtype, "time_zone", None) for dtype in (first, second)}
        return pl.Datetime(unit, zones.pop()) if len(zones) == 1 else None
    return None


def united_type(types: Sequence[Any]) -> pl.DataType | None:
    """Return a type that holds the values of all types; None if there is none. Structs are joined field by field."""
    structs = [dtype for dtype in types if isinstance(dtype, pl.Struct)]
    if not structs or any(dtype != pl.Null and dtype not in structs for dtype in types):
        return _joined_all(types)
    fields = dict.fromkeys(field.name for struct in structs for field in struct.fields)
    united = {name: united_type([inner[name] for inner in map(dict, structs) if name in inner]) for name in fields}
    return None if None in united.values() else pl.Struct({name: dtype for name, dtype in united.items() if dtype})
