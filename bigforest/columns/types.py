"""Types of columns: which can be features, which can be compared, and the features in nested columns.

columns/values.py decides the value of a cell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from bigforest.errors import DataError

# Per second.
TICKS = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# Seconds.
_DAY = 86_400

_WITH_UNIT = re.compile(r"(Datetime|Duration)\(time_unit='(ms|us|ns)'(?:, time_zone=(None|'.*'))?\)")
_TEMPORAL = (pl.Date, pl.Time, pl.Datetime, pl.Duration)
_TEXT = (pl.String, pl.Categorical, pl.Enum)
_NESTED = (pl.Struct, pl.Array)

# float64 has all whole numbers up to here, and all powers of ten.
_EXACT_WHOLE = 2**53
_EXACT_DIVISOR = 10**22

# Types that numpy has, too.
_PLAIN: frozenset[type[pl.DataType]] = frozenset(
    {pl.Int8, pl.UInt8, pl.Int16, pl.UInt16, pl.Int32, pl.UInt32, pl.Int64, pl.UInt64, pl.Float32, pl.Float64}
)


def columns_named(names: Iterable[str]) -> pl.Expr:
    """Return the columns of exactly these names, each once, in this order.

    Polars takes `*` and names from `^` to `$` for patterns in pl.col, select, drop, cast and struct.field, but not in
    selectors by name and in get_column.
    """
    return cs.by_name(*names).as_expr()


def cells(frame: pl.DataFrame, name: str) -> pl.Series:
    """Return the column of exactly this name, renamed to "", as many methods of a Series use its name in pl.col."""
    return frame.get_column(name).alias("")


class Field(NamedTuple):
    """A field of a struct: its name, its place, and the number of fields."""

    name: str
    place: int
    fields: int

    def of(self, expr: pl.Expr) -> pl.Expr:
        """Return the expression of this field of a struct."""
        if self.name != "*" and not (self.name.startswith("^") and self.name.endswith("$")):
            return expr.struct.field(self.name)
        # For Polars such a name would be a pattern.
        return expr.struct.rename_fields([str(place) for place in range(self.fields)]).struct.field(str(self.place))


class FlatColumn(NamedTuple):
    """A column, or a feature within a nested column: the column, the type, and the path of fields and places in it."""

    column: str
    dtype: pl.DataType
    path: tuple[Field | int, ...] = ()

    @property
    def expr(self) -> pl.Expr:
        """Expression of its values in the table."""
        expr = columns_named([self.column])
        for step in self.path:
            expr = step.of(expr) if isinstance(step, Field) else expr.arr.get(step)
        return expr


class Kind(NamedTuple):
    """Family of a type: values of one family can be compared. Dates and times count `ticks` per day."""

    family: str
    ticks: int


def is_feature_type(dtype: pl.DataType) -> bool:
    """Return True if columns of this type can be features: text, booleans, numbers, dates, times, and null."""
    return dtype in (pl.Boolean, pl.Null, *_TEMPORAL) or is_text_type(dtype) or dtype.is_numeric()


def is_text_type(dtype: pl.DataType | type[pl.DataType]) -> bool:
    """Return True for types of text, which are categories."""
    return dtype.base_type() in _TEXT  # a Categorical with categories of its own does not equal pl.Categorical


def text_of_categories(series: pl.Series) -> pl.Series:
    """Return categories as their text, as physical codes differ between pieces; other columns unchanged."""
    return series.cast(pl.String) if is_text_type(series.dtype) else series


def type_name(dtype: pl.DataType) -> str:
    """Return the name of a type in the dataspec: without the categories of an Enum."""
    return str(dtype.base_type()) if is_text_type(dtype) else str(dtype)


def is_nested(dtype: pl.DataType) -> bool:
    """Return True for types that hold several features: structs, and arrays of a fixed length."""
    return isinstance(dtype, _NESTED)


def types_within(dtype: Any) -> Iterator[Any]:
    yield dtype
    inner = [field.dtype for field in dtype.fields] if isinstance(dtype, pl.Struct) else []
    inner += [dtype.inner] if isinstance(dtype, pl.Array | pl.List) else []
    for inner_type in inner:
        yield from types_within(inner_type)


def flat_columns(schema: Mapping[str, pl.DataType], whole: Collection[str] = ()) -> dict[str, FlatColumn]:
    """Return all columns by name, nested ones unnested: field b of struct a is `a.b`, element 3 of array a is `a[3]`.

    Columns that cannot be features are returned, too. Columns `whole` are not unnested. Raises DataError when two have
    the same name.
    """
    flat: dict[str, FlatColumn] = {}
    for column, dtype in schema.items():
        whole_column = FlatColumn(column, dtype)
        for name, found in [(column, whole_column)] if column in whole else _within(column, whole_column):
            if name in flat:
                raise DataError(f"two columns are called {name!r} when {column!r} is unnested; rename one of them")
            flat[name] = found
    return flat


def locate_columns(schema: Mapping[str, pl.DataType], features: Iterable[tuple[str, str]]) -> list[FlatColumn | None]:
    """Return the columns of features, given their names and columns in training; None for an absent feature.

    A column with the name of the feature takes precedence over an unnested one.
    """
    nested: dict[str, dict[str, FlatColumn]] = {}
    located: list[FlatColumn | None] = []
    for name, column in features:
        dtype = schema.get(name)
        if dtype is not None and not is_nested(dtype):
            located.append(FlatColumn(name, dtype))
            continue
        if schema.get(column) == pl.Null:  # no row has the struct or array
            located.append(FlatColumn(column, pl.Null()))
            continue
        if column in schema and column not in nested:
            nested[column] = flat_columns({column: schema[column]})
        located.append(nested.get(column, {}).get(name))
    return located


def kind_of(dtype: pl.DataType | str) -> Kind:
    """Return the kind of a type, or of a type name of the dataspec."""
    name = dtype if isinstance(dtype, str) else type_name(dtype)
    if name in ("String", "Categorical", "Enum"):
        return Kind("text", 1)
    match = _WITH_UNIT.fullmatch(name)
    if match:
        zone = " with a time zone" if match[3] not in (None, "None") else ""
        return Kind(match[1] + zone, _DAY * TICKS[match[2]])
    # A date is the datetime at its midnight: pandas has no dates.
    return Kind({"Date": "Datetime", "Time": "Time"}.get(name, "number"), 1)


def divisor_of(dtype: pl.DataType) -> int:
    """Return the divisor of `physical` values: 10**scale for decimals, else 1."""
    return int(10**dtype.scale) if isinstance(dtype, pl.Decimal) else 1


def nearest_floats(whole: pl.Series, divisor: int) -> NDArray[np.float64]:
    """Return the float64 nearest to each integer, of up to 128 bits, divided by the divisor.

    A division of floats rounds once if both are exact. Python divides larger integers with one rounding.
    """
    if divisor > _EXACT_DIVISOR:
        return np.array([number / divisor for number in whole.to_list()], np.float64)
    if divisor == 1:
        return whole.cast(pl.Float64).to_numpy()
    values = whole.cast(pl.Float64).to_numpy() / divisor
    large = np.flatnonzero(~whole.is_between(-_EXACT_WHOLE, _EXACT_WHOLE).to_numpy())
    if large.size:
        values[large] = [number / divisor for number in whole.gather(large).to_list()]
    return values


def physical(series: pl.Series) -> pl.Series:
    """Return the physical integers of dates, times and decimals; other columns unchanged."""
    return series.to_physical() if series.dtype in _TEMPORAL or series.dtype == pl.Decimal else series


def is_plain(dtype: pl.DataType) -> bool:
    """Return True for types that numpy has: `numbers` of a column without nulls converts nothing."""
    return type(dtype) in _PLAIN


def _within(name: str, outer: FlatColumn) -> Iterable[tuple[str, FlatColumn]]:
    dtype = outer.dtype
    if isinstance(dtype, pl.Struct):
        for place, field in enumerate(dtype.fields):
            step = Field(field.name, place, len(dtype.fields))
            inner = FlatColumn(outer.column, _instance(field.dtype), (*outer.path, step))
            yield from _within(f"{name}.{field.name}", inner)
    elif isinstance(dtype, pl.Array):
        for place in range(dtype.size):
            inner = FlatColumn(outer.column, _instance(dtype.inner), (*outer.path, place))
            yield from _within(f"{name}[{place}]", inner)
    else:
        yield name, outer


def _instance(dtype: Any) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype
