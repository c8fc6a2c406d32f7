"""Types of columns, and the rules by which two cells, of the same type or of different types, have the same value.

The module knows the types that can be features, the types that can be compared, and the features in nested columns.
Training, prediction, scoring, groups and intervals all compare values by the rules of this module. Nulls and NaN are
missing.

Numbers (`numbers`): a cell is compared as float64. A date is the number of days since 1970, a time the number of
nanoseconds since midnight. A datetime (since 1970, in UTC if it has a time zone) and a duration are numbers of the unit
of the type in training. A decimal, or an integer beyond 2**53, is the nearest float64. The order of values is kept.
Encoding refuses a column in which two values become the same number (encode/values.py), so the order is strict.

Levels, classes and names of groups (`level_text`, `level_codes`, `places_of`): a cell is compared by its text, without
spaces around it. Other libraries and formats store the same value in other types:

    String    Boolean  Int64  Float64  Decimal(10,2)  Date        Datetime             text
    " NY"                                                                              NY
              True                                                                     true
                       7      7.0      7.00                                            7
                              0.5      0.50                                            0.5
                                                      2024-03-01  2024-03-01 00:00:00  2024-03-01

`places_of` also finds text among values that are not text, booleans among numbers, and vice versa: "1.0" is 1,
"True" and 1 are true, and "2024-03-01T12:30" is the datetime. If one of the types is Float32, values are also compared
in that precision: the Float32 0.1 equals both the Float64 0.1 and 0.10000000149011612.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import time
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from bigforest.errors import DataError

# Ticks of a second, by unit.
TICKS = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# Seconds of a day.
_DAY = 86_400

_WITH_UNIT = re.compile(r"(Datetime|Duration)\(time_unit='(ms|us|ns)'(?:, time_zone=(None|'.*'))?\)")
_TEXT = frozenset({pl.String, pl.Categorical, pl.Enum})
_WIDE = frozenset({pl.Int128, pl.UInt128})
_NESTED = (pl.Struct, pl.Array)

# float64 represents all whole numbers up to _EXACT_WHOLE, and all powers of ten up to _EXACT_DIVISOR.
_EXACT_WHOLE = 2**53
_EXACT_DIVISOR = 10**22

# Types that numpy has, too.
_PLAIN: frozenset[type[pl.DataType]] = frozenset(
    {pl.Int8, pl.UInt8, pl.Int16, pl.UInt16, pl.Int32, pl.UInt32, pl.Int64, pl.UInt64, pl.Float32, pl.Float64}
)


def columns_named(names: Iterable[str]) -> pl.Expr:
    """Return an expression of the columns of exactly these names, each once, in this order.

    Polars takes `*`, and names that begin with `^` and end with `$`, for patterns in pl.col, select, drop, cast and
    struct.field, but not in selectors by name and in get_column.
    """
    return cs.by_name(*names).as_expr()


def cells(frame: pl.DataFrame, name: str) -> pl.Series:
    """Return the column of exactly this name, renamed to "", because many methods of Series pass its name to pl.col."""
    return frame.get_column(name).alias("")


class Field(NamedTuple):
    """A field of a struct: its name, its place among the fields, and the number of fields of the struct."""

    name: str
    place: int
    fields: int

    def of(self, expr: pl.Expr) -> pl.Expr:
        """Return the expression of this field of a struct."""
        if self.name != "*" and not (self.name.startswith("^") and self.name.endswith("$")):
            return expr.struct.field(self.name)
        # For Polars such a name would be a pattern.
        return expr.struct.rename_fields([str(place) for place in range(self.fields)]).struct.field(str(self.place))


def recast(expr: pl.Expr, dtype: Any, kind: Any) -> pl.Expr:
    """Return an expression of type `dtype` in the type `kind`, in structs by the names of fields.

    Polars casts fields of structs by their places. Fields that `dtype` lacks become null.
    """
    if dtype == kind:
        return expr
    if isinstance(dtype, pl.Struct) and isinstance(kind, pl.Struct):
        found = {field.name: (place, field.dtype) for place, field in enumerate(dtype.fields)}
        fields = []
        for field in kind.fields:
            place, inner = found.get(field.name, (0, pl.Null()))
            value = Field(field.name, place, len(found)).of(expr) if field.name in found else pl.lit(None)
            fields.append(recast(value, inner, field.dtype).alias(field.name))
        return pl.when(expr.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.List) and isinstance(kind, pl.List):
        return expr.list.eval(recast(pl.element(), dtype.inner, kind.inner))
    if isinstance(dtype, pl.Array) and isinstance(kind, pl.Array):
        lists = pl.List(dtype.inner), pl.List(kind.inner)
        return recast(expr.arr.to_list(), *lists).list.to_array(kind.size)
    return expr.cast(kind)


class FlatColumn(NamedTuple):
    """A column, or a feature within a nested column.

    column  name of the column of the table.
    dtype   type of the column or feature.
    path    fields of structs and positions in arrays that lead to the feature; empty for a whole column.
    """

    column: str
    dtype: pl.DataType
    path: tuple[Field | int, ...] = ()

    @property
    def expr(self) -> pl.Expr:
        """Expression of the values in the table."""
        expr = columns_named([self.column])
        for step in self.path:
            expr = step.of(expr) if isinstance(step, Field) else expr.arr.get(step)
        return expr


class Kind(NamedTuple):
    """Comparability of a type.

    family  types of one family can be compared with each other.
    ticks   units per day, of dates, datetimes and durations; 1 for other types.
    """

    family: str
    ticks: int


def is_feature_type(dtype: pl.DataType) -> bool:
    """Return True if columns of this type can be features: text, booleans, numbers, temporal types, null."""
    return dtype.is_numeric() or dtype.is_temporal() or is_text_type(dtype) or dtype in (pl.Boolean, pl.Null)


def is_text_type(dtype: pl.DataType | type[pl.DataType]) -> bool:
    return dtype.base_type() in _TEXT  # a Categorical with its own categories does not equal pl.Categorical


def is_wide(dtype: pl.DataType | type[pl.DataType]) -> bool:
    """Return True for integers of 128 bits, which Arrow and numpy lack."""
    return dtype.base_type() in _WIDE


def text_of_categories(series: pl.Series) -> pl.Series:
    """Return categories as text, because their physical codes differ between pieces; other columns unchanged."""
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

    Columns that cannot be features are returned, too. The columns named in `whole` are not unnested. Raises DataError
    if two columns get the same name.
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
    """Return the column of each feature; None for an absent feature.

    features  name of each feature, and the column that had it in training.

    A column with the name of the feature takes precedence over a nested column.
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
    """Return the divisor of `physical` values: 10**scale for decimals, otherwise 1."""
    return int(10**dtype.scale) if isinstance(dtype, pl.Decimal) else 1


def nearest_floats(whole: pl.Series, divisor: int) -> NDArray[np.float64]:
    """Return the float64 nearest to each integer, of up to 128 bits, divided by the divisor.

    A division of floats rounds once if float64 represents both operands exactly. Other integers are divided by Python,
    which rounds once.
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
    dtype = series.dtype
    return series.to_physical() if dtype.is_temporal() or dtype.is_decimal() else series


def is_plain(dtype: pl.DataType) -> bool:
    """Return True for types that numpy has. `numbers` returns a column of them without nulls unconverted."""
    return type(dtype) in _PLAIN


def _within(name: str, outer: FlatColumn) -> Iterable[tuple[str, FlatColumn]]:
    """Yield the names and columns of the features in a nested column; other columns unchanged."""
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


# Function from an expression of text, in columns of text files or in labels, to the expression of the parsed dates or
# times. Text in another form becomes null. A T between day and time is read as a space, a slash in a day as a hyphen.
Parse = Callable[[pl.Expr], pl.Expr]

_ISO = "%Y-%m-%d"
# Polars reads 1-2-3, which may be a code, as a day of the year 1.
_DAY_AT_FIRST = r"^(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[-.]\d{1,2}[-.]\d{4})( |$)"


def day_in(form: str) -> Parse:
    """Return the parser of a day in this form, such as %Y-%m-%d."""
    return lambda text: _iso_text(text).str.to_date(form, strict=False)


def moment_in(form: str, *times: str) -> Parse:
    """Return the parser of a day in this form, then a time in one of these forms; "" is no time, for midnight."""

    def parse(text: pl.Expr) -> pl.Expr:
        iso = _iso_text(text)
        forms = [f"{form} {time}" if time else form for time in times]
        parsed = [iso.str.to_datetime(each, time_unit="us", strict=False) for each in forms]
        # pl.coalesce would join several columns of `text` into one.
        return reduce(lambda first, second: pl.when(first.is_null()).then(second).otherwise(first), parsed)

    return parse


def _iso_text(text: pl.Expr) -> pl.Expr:
    """Return dates such as 2026/01/02T03:04 as 2026-01-02 03:04. Texts without a year of four digits become null."""
    iso = text.str.strip_chars().str.replace_all("/", "-", literal=True).str.replace("T", " ", literal=True)
    return pl.when(iso.str.contains(_DAY_AT_FIRST)).then(iso)


DAY = day_in(_ISO)
# Times of day after a day. Programs leave out midnight.
TIMES = "%H:%M:%S%.f", "%H:%M", ""
MOMENT = moment_in(_ISO, *TIMES)
# With an offset from UTC.
ZONED_MOMENT = moment_in(_ISO, "%H:%M:%S%.f%#z", "%H:%M%#z")


def clock_time(text: pl.Expr) -> pl.Expr:
    """Return the expression that parses a time of day with seconds."""
    return text.str.strip_chars().str.to_time("%H:%M:%S%.f", strict=False)


# Cells of categories with at most this many levels are looked up by a cast to Enum. A cast takes a third of the time of
# a join for few levels, and 1.1 times its time for 4,000 levels and few rows.
_ENUM_LEVELS = 1 << 12
# Cells of categories that are looked up in one query.
_TOGETHER_CELLS = 1 << 16
# Text of a larger number is not compared as a number: another number may have the same float64, or float32.
_LARGEST_EXACT, _LARGEST_EXACT_32 = 2.0**53, 2.0**24


def numbers(series: pl.Series, trained: str) -> NDArray[Any]:
    """Return the numbers of cells, NaN for nulls. They are compared as float64, but may have another type.

    trained  name of the type in training, of the same family.
    """
    if not series.null_count():
        return series.to_numpy() if is_plain(series.dtype) else _present_numbers(series, trained)
    if series.dtype == pl.Float64:  # nulls become NaN
        return series.to_numpy()
    values = np.full(len(series), np.nan)
    values[series.is_not_null().to_numpy()] = _present_numbers(series.drop_nulls(), trained)
    return values


def level_codes(series: pl.Series, levels: pl.Series, first: int) -> NDArray[np.float64]:
    """Return the code of each cell of a category, float64 [rows]: `first` plus its place among the levels of training.

    first  code of the first level: 1 if values were missing in training, otherwise 0.

    An unknown level has the code first + len(levels), a missing value NaN.
    """
    return next(codes_by_column([series], [levels], [first], [type_name(series.dtype)]))


def codes_by_column(
    columns: Sequence[pl.Series], levels: Sequence[pl.Series], firsts: Sequence[int], trained: Sequence[str]
) -> Iterator[NDArray[np.float64]]:
    """Yield `level_codes` of several columns of a table, given the names of their types in training.

    Short columns are looked up in one query: a query for each column took half of the time for a thousand rows.
    """
    step = max(1, _TOGETHER_CELLS // max(1, len(columns[0])))
    for begin in range(0, len(columns), step):
        end = begin + step
        texts = [column if is_text_type(column.dtype) else level_text(column) for column in columns[begin:end]]
        for column, text, places, column_levels, first, dtype in zip(
            columns[begin:end],
            texts,
            _places(texts, levels[begin:end]),
            levels[begin:end],
            firsts[begin:end],
            trained[begin:end],
            strict=True,
        ):
            codes = places.to_numpy().astype(np.float64) + first
            if places.null_count() > text.null_count():
                unknown = np.isnan(codes)
                unknown &= text.is_not_null().to_numpy()
                # Spaces, and booleans as numbers, are rare: only cells without a place are compared in these forms.
                level_places = places_of(column.filter(pl.Series(unknown)), column_levels, trained=dtype)
                codes[unknown] = level_places.fill_null(len(column_levels)).to_numpy() + first
            yield codes


def _places(texts: Sequence[pl.Series], levels: Sequence[pl.Series]) -> list[pl.Series]:
    """Return the place of each cell among the levels of its column; null for an unknown level and a missing cell."""
    few = [place for place, column_levels in enumerate(levels) if len(column_levels) <= _ENUM_LEVELS]
    level_columns = (texts[place].cast(pl.Enum(levels[place]), strict=False).alias(f"{place}") for place in few)
    codes = pl.DataFrame(list(level_columns)).select_seq(pl.all().to_physical())
    return [
        codes[f"{place}"] if place in few else places_among(text.cast(pl.String), column_levels)
        for place, (text, column_levels) in enumerate(zip(texts, levels, strict=True))
    ]


def places_among(values: pl.Series, known_values: pl.Series, places: pl.Series | None = None) -> pl.Series:
    """Return the place of each value among the known values, of the same type; null for an unknown one.

    places  of the known values; None for 0, 1, 2 and so on.
    """
    places = pl.int_range(len(known_values), dtype=pl.UInt32, eager=True) if places is None else places
    table = pl.DataFrame([known_values.alias("value"), places.alias("place")])
    return values.alias("value").to_frame().join(table, on="value", how="left", maintain_order="left")["place"]


def places_of(values: pl.Series, known_values: pl.Series, *, trained: str | None = None) -> pl.Series:
    """Return the place of each value among the known values, UInt32 [rows]; null for an unknown or missing value.

    trained  name of the type whose `level_text` the known values are; None if they have their own type.

    The two may have different types. A value that equals several known values only in a looser form, such as `" a"`
    among `"a "` and `"a  "`, is unknown, and so is every value of a type that features cannot have, such as a list.
    """
    if not is_feature_type(values.dtype):
        return pl.Series([None] * len(values), dtype=pl.UInt32)
    values = (values.cast(pl.String) if is_text_type(values.dtype) else values).alias("")
    values = values.fill_nan(None) if values.dtype.is_float() else values
    distinct = values.drop_nulls().unique()
    names = type_name(distinct.dtype), type_name(known_values.dtype) if trained is None else trained
    forms: list[Callable[[pl.Series], pl.Series]] = [_exact_text, level_text]
    if len({name if name == "Boolean" else kind_of(name).family for name in names}) > 1:
        forms.append(_plain_text)
    if "Float32" in names and len(set(names)) > 1:
        forms.append(_narrow_text)
    distinct_places = _distinct_places(distinct, known_values, forms)
    return places_among(physical(values), physical(distinct), distinct_places)


def _distinct_places(
    values: pl.Series, known_values: pl.Series, forms: Sequence[Callable[[pl.Series], pl.Series]]
) -> pl.Series:
    """Return `places_of` for distinct values without nulls.

    forms  functions that return the texts to compare, tried in this order for the values that have no place yet.
    """
    dtypes = (values.dtype, known_values.dtype)
    temporal = any(dtype.is_temporal() for dtype in dtypes)
    if temporal and not any(map(is_text_type, dtypes)):
        return _temporal_places(values, known_values)
    matched = pl.Series([None] * len(values), dtype=pl.UInt32)
    for form in forms:
        if matched.null_count():
            matched = _first(matched, _places_among_unique(form(values), form(known_values)))
    if temporal and matched.null_count():
        for parse in (DAY, MOMENT, ZONED_MOMENT, clock_time):
            matched = _first(matched, _temporal_places(_times_in(values, parse), _times_in(known_values, parse)))
    return matched


def _first(places: pl.Series, others: pl.Series) -> pl.Series:
    """Return the places; where they are null, the others."""
    return places.zip_with(places.is_not_null(), others)


def _times_in(series: pl.Series, parse: Parse) -> pl.Series:
    """Return a column of text parsed by `parse`; other columns unchanged."""
    return pl.select(parse(pl.lit(series))).to_series() if is_text_type(series.dtype) else series


def _temporal_places(values: pl.Series, known_values: pl.Series) -> pl.Series:
    """Return `places_of` for distinct dates and times that are not text.

    A value is converted to the type of the known values; it is unknown if the conversion changes it.
    """
    unknown = pl.Series([None] * len(values), dtype=pl.UInt32)
    if kind_of(values.dtype).family != kind_of(known_values.dtype).family:
        return unknown
    converted = values.cast(known_values.dtype, strict=False)
    same = (converted.cast(values.dtype) == values).fill_null(False)
    return _places_among_unique(physical(converted), physical(known_values)).zip_with(same, unknown)


def _places_among_unique(values: pl.Series, known_values: pl.Series) -> pl.Series:
    """Return the place of each value among the known values that occur once; null for others."""
    single = known_values.is_unique() & known_values.is_not_null()
    return places_among(values, known_values.filter(single), single.arg_true().cast(pl.UInt32))


def without_words(series: pl.Series, words: Sequence[str]) -> pl.Series:
    """Return a column with nulls in place of the words that mean missing values.

    In other columns than text, cells become null if a word spells their number, boolean or time.
    """
    if not words:
        return series
    spelled, cell = pl.Series(words, dtype=pl.String), series.alias("")  # methods take a name such as ^a$ for a pattern
    if is_text_type(cell.dtype):
        found = cell.cast(pl.String).str.strip_chars().is_in(spelled.implode())
    elif cell.dtype.is_numeric():
        dtype = pl.Float32() if cell.dtype == pl.Float32 else pl.Float64()  # -99.9 is the nearest float32
        found = cell.cast(dtype).is_in(spelled.cast(pl.Float64, strict=False).cast(dtype).implode())
    elif cell.dtype == pl.Boolean:
        found = cell.cast(pl.String).is_in(spelled.str.to_lowercase().implode())
    elif cell.dtype.is_temporal():
        values = cell.drop_nulls().unique()
        found = cell.is_in(values.gather(places_of(spelled, values).drop_nulls()).implode())
    else:
        return series
    return series.to_frame().select(pl.when(~found).then(pl.first())).to_series() if found.any() else series


def group_names(series: pl.Series) -> pl.Series:
    """Return the names of groups: text without spaces around it, other values unchanged."""
    return level_text(series) if is_text_type(series.dtype) else series


def level_text(series: pl.Series) -> pl.Series:
    """Return the text that cells are compared by: `late`, `true`, `-7`, `0.5`, `2024-03-01`; null where missing."""
    text = _exact_text(series.alias(""))  # methods of text take a name such as ^a$ for a pattern
    return (text.str.strip_chars() if is_text_type(series.dtype) else text).alias(series.name)


def _exact_text(series: pl.Series) -> pl.Series:
    """Return the text of cells; text is unchanged.

    Whole floats and decimals have the text of integers, because other libraries and databases store integers in these
    types. A datetime at midnight has the text of its date.
    """
    dtype = series.dtype
    if isinstance(dtype, pl.Decimal):
        text = series.cast(pl.String)
        return text.str.strip_chars_end("0").str.strip_chars_end(".") if dtype.scale else text
    if isinstance(dtype, pl.Datetime):
        day = series.dt.date()
        return day.cast(pl.String).zip_with(series.dt.time() == time(0), series.cast(pl.String))
    if dtype == pl.Duration:  # Polars has no text of durations
        return pl.Series([None if cell is None else str(cell) for cell in series.to_list()], dtype=pl.String)
    if not dtype.is_float():
        return series.cast(pl.String)
    whole = series.cast(pl.Int64, strict=False)
    is_whole = whole.cast(pl.Float64) == series.cast(pl.Float64)
    return whole.cast(pl.String).zip_with(is_whole.fill_null(False), series.fill_nan(None).cast(pl.String))


def _plain_text(series: pl.Series) -> pl.Series:
    """Return the text of the number that each cell means, `1` for `1.0`, `001`, `TRUE` and true; null for others."""
    text = level_text(series.alias(""))
    number = text.str.to_lowercase().replace({"true": "1", "false": "0"}).cast(pl.Float64, strict=False)
    sure = number.is_finite() & (number.abs() <= _LARGEST_EXACT)
    return _exact_text(number).set(~sure.fill_null(False), None)


def _narrow_text(series: pl.Series) -> pl.Series:
    """Return the text of the float32 nearest to the number that each cell means; null for others."""
    number = _plain_text(series).cast(pl.Float64)
    sure = (number.abs() <= _LARGEST_EXACT_32).fill_null(False)
    return _exact_text(number.cast(pl.Float32)).set(~sure, None)


def _present_numbers(series: pl.Series, trained: str) -> NDArray[Any]:
    """Return `numbers` of a column without nulls."""
    kind, trained_kind = kind_of(series.dtype), kind_of(trained)
    if series.dtype == pl.Decimal:
        return nearest_floats(physical(series), divisor_of(series.dtype))
    series = physical(series)
    if series.dtype == pl.Boolean:
        series = series.cast(pl.UInt8)
    elif series.dtype == pl.Float16:
        series = series.cast(pl.Float32)
    elif is_wide(series.dtype):
        series = series.cast(pl.Float64)
    values = series.to_numpy()
    if kind.ticks < trained_kind.ticks:
        return values.astype(np.float64) * (trained_kind.ticks // kind.ticks)
    if kind.ticks > trained_kind.ticks:  # whole units stay exact, unlike in a division of floats
        whole, rest = np.divmod(values, kind.ticks // trained_kind.ticks)
        return whole + rest / (kind.ticks // trained_kind.ticks)
    return values
