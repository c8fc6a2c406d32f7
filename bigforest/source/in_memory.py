"""Tables in memory: arrays, lists, mappings, frames of pandas and pyarrow, sparse matrices.

Target, weights and groups may be arrays instead of columns of the table.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.errors import ConfigError, DataError, api, counted, reason, shown
from bigforest.source.objects import (
    OBJECT_FAULTS,
    as_doubles,
    check_times,
    column_of_array,
    column_of_objects,
    masked_cells,
    plain_array,
)
from bigforest.source.source import EVERYTHING, POLARS_FAULTS, Reading, Source, places_once
from bigforest.source.spool import PART_BYTES, spool_frames

TARGET = "target"

_PANDAS_FAULTS = (NotImplementedError, *OBJECT_FAULTS)

# Packages of tables and columns. A class derived from their classes counts as theirs: GeoDataFrame as pandas.
_PACKAGES = ("pandas", "pyarrow", "scipy", "dask")


def numbered_names(matrix: Any) -> list[str]:
    """Return names x0, x1, ... for the columns of an array; none unless it has two dimensions."""
    return [f"x{column}" for column in range(matrix.shape[1])] if matrix.ndim == 2 else []


def frame_from_numpy(matrix: NDArray[Any], names: Sequence[str]) -> pl.DataFrame:
    """Return a frame with the columns of `matrix` ([rows, features], booleans or real numbers) under `names`.

    Masked cells become null. Raises DataError if the array has another shape or type, or the names do not fit.
    """
    masked, matrix = masked_cells(matrix), as_doubles(np.asarray(matrix))
    if matrix.ndim != 2:
        raise DataError(f"the array of features must have two dimensions, not shape {matrix.shape}; reshape it")
    if matrix.dtype.kind not in "biuf" or matrix.dtype.itemsize > 8:
        raise DataError(f"the array of features has type {matrix.dtype}; convert it to numbers of at most 64 bits")
    if matrix.shape[1] != len(names):
        raise DataError(f"the array has {counted(matrix.shape[1], 'column')}, not {len(names):,} as expected")
    if not names:
        raise DataError(
            f"the array of features has no columns, but shape {matrix.shape}; check that it is the right one"
        )
    places_once(names, "the array of features")
    by_column = np.asfortranarray(matrix, dtype=matrix.dtype.newbyteorder("="))
    columns = [pl.Series(name, by_column[:, column]) for column, name in enumerate(names)]
    if masked is not None:
        columns = [series.set(pl.Series(masked[:, place]), None) for place, series in enumerate(columns)]
    return pl.DataFrame(columns)


def frame_from_arrow(table: Any, reading: Reading = EVERYTHING) -> pl.DataFrame:
    """Return the frame of a pyarrow Table, RecordBatch or RecordBatchReader. Raises DataError."""
    from bigforest.storage.arrow import frame_of, schema_of

    where = "the Arrow table"
    places = places_once(table.schema.names, where, reading)
    schema_of(table.schema, where, reading.needs)
    whole = table.read_all() if hasattr(table, "read_all") else table
    return frame_of(whole.select(places), where, reading.needs)


def arrow_stream(data: Any) -> Any:
    """Return a RecordBatchReader of an object that exports an Arrow stream of rows, else None.

    Raises DataError if the object has an error of its own: DuckDB runs the query of a relation here.
    """
    if not hasattr(data, "__arrow_c_stream__"):
        return None
    import pyarrow as pa

    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowException:
        return None
    except Exception as error:
        raise DataError(
            f"the {type(data).__name__} cannot be read: {reason(error)}; check its query and files"
        ) from error


# Types of numpy that Polars has as well.
_PLAIN = {np.dtype(code) for code in "?bhilqBHILQfd"}


def frame_from_pandas(frame: Any, reading: Reading = EVERYTHING) -> pl.DataFrame:
    """Return the frame of a pandas DataFrame, without its index.

    Raises DataError for a Series, for two columns of one name, and for a column that cannot be read, such as one of
    values of mixed types.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"a pandas {type(frame).__name__} is not a table; give a DataFrame")
    names = [str(name) for name in frame.columns]
    places = places_once(names, "the pandas frame", reading)
    if len(places) < len(names):
        frame, names = frame.iloc[:, places], [names[place] for place in places]
    columns = [_pandas_column(column, name, reading) for name, (_, column) in zip(names, frame.items(), strict=True)]
    polars_frame = pl.DataFrame(columns)
    polars_frame.columns = names  # Polars makes up names for columns without one
    return polars_frame


def _is_object(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind == "O"


def _pandas_column(column: Any, name: str, reading: Reading) -> pl.Series:
    """Return a column of pandas. If it cannot be read, raise DataError, or return nulls if it is not needed."""
    if column.dtype in _PLAIN:  # ten times as fast for a single row
        return pl.Series(column.to_numpy(), nan_to_null=True)
    try:
        return _pandas_series(column)
    except _PANDAS_FAULTS as error:
        if reading.needs(name):
            where = f"column {name!r} of the pandas frame cannot be read"
            raise DataError(f"{where} ({reason(error)}); convert or drop it") from error
        return pl.Series([None] * len(column), dtype=pl.Null)


def _pandas_series(column: Any) -> pl.Series:
    """Convert a pandas column, by Polars if it reads the type."""
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        return _pandas_series(column.astype(dtype.subtype))
    if isinstance(dtype, np.dtype) and not dtype.isnative:
        return _pandas_series(column.astype(dtype.newbyteorder("=")))
    categories: Any = getattr(dtype, "categories", None)
    if type(getattr(categories, "dtype", None)).__name__ in ("IntervalDtype", "PeriodDtype"):  # as of pandas.cut
        return _pandas_series(column.cat.rename_categories(str))
    # Polars would turn seconds beyond the range of milliseconds into wrong times, and panics at decimals of 256 bits.
    if not _is_object(dtype) and "[s" not in str(dtype) and "decimal256" not in str(dtype):
        with contextlib.suppress(*_PANDAS_FAULTS):
            series: Any = pl.from_pandas(column.rename(None))
            if getattr(dtype, "ordered", False) and all(type(word) is str for word in categories):
                series = series.cast(pl.Enum(list(categories)))  # with the order, and categories that no row has
            return series
    if dtype == np.longdouble or (isinstance(dtype, np.dtype) and dtype.kind in "mM"):
        return column_of_array(column.to_numpy())
    return _pandas_objects(column)


def _pandas_objects(column: Any) -> pl.Series:
    """Convert a pandas column of objects, zoned times or an Arrow type, by Arrow if possible.

    Objects that are all missing become a column of type Null.
    """
    import pyarrow as pa

    try:
        values = pa.array(column, from_pandas=True)
    except (pa.ArrowException, *OBJECT_FAULTS):
        return column_of_objects(column.tolist())
    if _is_object(column.dtype) and pa.types.is_temporal(values.type):
        check_times(column.tolist())
    if pa.types.is_decimal256(values.type) or (_is_object(column.dtype) and pa.types.is_struct(values.type)):
        return column_of_objects(column.tolist())
    return _arrow_series(values)


def _arrow_series(array: Any) -> pl.Series:
    from bigforest.storage.arrow import as_readable

    return pl.Series(pl.from_arrow(as_readable(array)))


def numeric_categories(table: Any) -> dict[str, bool]:
    """Return for each column, by name, True if it has categories of whole numbers or booleans.

    Such columns are categories of pandas and dictionaries of Arrow, without an order or in another order than by value.
    Polars would read them as numbers. Categories of floats that are all whole are True as well, if their levels are
    known: a schema alone does not have them. The result is empty for tables of other packages than pandas and pyarrow.
    """
    if package_of(table) == "pandas" and hasattr(table, "dtypes") and hasattr(table, "columns"):
        return {str(name): _is_coded(dtype) for name, dtype in zip(table.columns, table.dtypes, strict=True)}
    if package_of(table) != "pyarrow" or not hasattr(table, "schema"):
        return {}
    import pyarrow as pa

    coded = {field.name: _is_coded_dictionary(field.type) for field in table.schema}
    if isinstance(table, pa.Table | pa.RecordBatch):
        floats = float_dictionaries(table.schema)
        for name, column in zip(table.schema.names, table.columns, strict=True):
            parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            if name in floats:
                coded[name] = _are_whole([level for part in parts for level in part.dictionary.to_pylist()])
            elif pa.types.is_dictionary(column.type) and column.type.ordered and _has_codes(column.type):
                coded[name] = not all(_are_by_value(part.dictionary.to_pylist()) for part in parts)
    return coded


def float_dictionaries(schema: Any) -> list[str]:
    """Return the columns of an Arrow schema that are unordered categories of floats."""
    import pyarrow as pa

    kinds = zip(schema.names, schema.types, strict=True)
    dictionaries = [(name, kind) for name, kind in kinds if pa.types.is_dictionary(kind) and not kind.ordered]
    return [name for name, kind in dictionaries if pa.types.is_floating(kind.value_type)]


def _is_coded(dtype: Any) -> bool:
    """Return True for a pandas type of categories that are whole numbers (integers or floats) or booleans.

    False for ordered categories whose order is that of the values, ascending or descending.
    """
    if hasattr(dtype, "pyarrow_dtype"):
        return _is_coded_dictionary(dtype.pyarrow_dtype)
    if type(dtype).__name__ != "CategoricalDtype":
        return False
    levels = dtype.categories
    codes = levels.dtype.kind in "biu" or (levels.dtype.kind == "f" and _are_whole(levels))
    return codes and not (dtype.ordered and _are_by_value(levels.tolist()))


def _is_coded_dictionary(kind: Any) -> bool:
    """Return True for an Arrow type of unordered categories of integers or booleans."""
    import pyarrow as pa

    return pa.types.is_dictionary(kind) and not kind.ordered and _has_codes(kind)


def _has_codes(kind: Any) -> bool:
    """Return True for a dictionary type of Arrow with integers or booleans."""
    import pyarrow as pa

    return pa.types.is_integer(kind.value_type) or pa.types.is_boolean(kind.value_type)


def _are_by_value(levels: list[Any]) -> bool:
    """Return True if the levels other than None are ascending or descending."""
    present = [level for level in levels if level is not None]
    return sorted(present) in (present, present[::-1])


def _are_whole(levels: Collection[Any]) -> bool:
    present = [level for level in levels if level is not None]
    return len(present) > 0 and all(abs(level) < 2**53 and level == int(level) for level in present)


class SparseRows:
    """A sparse matrix of scipy whose rows are made dense when they are requested.

    Holds a copy of the matrix as CSR, unless it is CSR already. Raises DataError unless its cells are plain numbers in
    two dimensions.
    """

    def __init__(self, matrix: Any) -> None:
        if len(matrix.shape) != 2:
            raise DataError(f"the sparse array must have two dimensions, not shape {matrix.shape}; reshape it")
        if matrix.dtype.kind not in "biuf":
            raise DataError(f"the sparse matrix has type {matrix.dtype}; convert it to numbers of at most 64 bits")
        rows = matrix.tocsr()
        # Not `rows.data = ...`, which would change a CSR matrix of the caller.
        self._rows = type(rows)((as_doubles(rows.data), rows.indices, rows.indptr), shape=rows.shape)
        self.shape: tuple[int, int] = matrix.shape

    @property
    def nbytes(self) -> int:
        return int(self._rows.data.nbytes + self._rows.indices.nbytes + self._rows.indptr.nbytes)

    @property
    def at_once(self) -> int:
        """Number of rows that are made dense at a time: about 64 MB of cells."""
        return max(1, PART_BYTES // (8 * max(1, self.shape[1])))

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return self._rows[rows].toarray()


@dataclass(frozen=True, slots=True)
class SparseTable:
    """A sparse matrix of scipy as a table: its columns, then further columns.

    A cell that the matrix does not store is 0.

    matrix  [rows, features], any format of scipy.sparse.
    names   names of the columns of the matrix.
    others  the further columns.
    """

    matrix: Any
    names: Sequence[str]
    others: tuple[pl.Series, ...] = ()

    @property
    def columns(self) -> list[str]:
        return [*self.names, *(column.name for column in self.others)]

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], len(self.columns)

    def with_columns(self, others: Iterable[pl.Series]) -> SparseTable:
        """Return the table with these columns added at the end."""
        return SparseTable(self.matrix, self.names, (*self.others, *others))

    def spool(self, scratch: Path, where: str) -> Source:
        """Write the table into Parquet files in `scratch`, see `spool_frames`. Holds SparseRows in addition."""
        rows = SparseRows(self.matrix)

        def parts() -> Iterator[pl.DataFrame]:
            for first in range(0, max(1, rows.shape[0]), rows.at_once):
                cells = rows[first : first + rows.at_once]
                part = frame_from_numpy(cells, self.names)
                yield part.with_columns(column.slice(first, part.height) for column in self.others)

        return spool_frames(parts(), scratch, where)


def is_column(values: Any) -> bool:
    """Return True for values of a column, False for its name and for None."""
    return values is not None and not isinstance(values, str)


def with_columns_beside(
    data: Any, roles: Mapping[str, Any], reading: Reading = EVERYTHING
) -> tuple[Any, dict[str, Any]]:
    """Return the table with separate arrays added as columns, and the name of the column of each role, or None.

    data   a table, or a pair of a table and the target.
    roles  "target", "weight" and "group": None, the name of a column, or its values: an array, a list, or a
           Series, [rows] or [rows, 1].

    Without separate arrays, the table is returned unchanged, of whatever kind. Raises DataError if table and arrays do
    not fit together or pandas has their rows in different orders, and ConfigError if the table is not in memory or the
    target is given twice.
    """
    names, columns = dict(roles), dict[str, pl.Series]()
    called = {role: "y" if role == "target" else role for role in roles}
    for role, values in roles.items():
        if isinstance(values, Number):
            raise DataError(f"{role} must be the name of a column, as text, or its values, not {shown(values)}")
    if isinstance(data, tuple) and len(data) == 2:
        data, labels = data
        if is_column(names["target"]):
            raise ConfigError(f"the target is already the second of the pair (X, y); drop {api('target')}")
        check_order(data, labels, "y")
        columns["target"] = series_of(labels, names["target"], "y")
    for role, values in roles.items():
        check_order(data, values, called[role])
        if is_column(values):
            columns[role] = series_of(values, None, called[role])
    if not columns:
        return data, names
    table = SparseTable(data, numbered_names(data)) if is_sparse(data) else data
    if not isinstance(table, SparseTable):
        table = frame_in_memory(data, reading)
    if table is None:
        role, kind = next(iter(columns)), type(data).__name__
        if data is None:
            raise ConfigError(f"{role} is an array beside a table; give the table, too, as {api('data')}")
        raise ConfigError(f"{role} as an array needs a table in memory, not {kind}; name a column of the table")
    taken = set(table.columns)
    rows = table.shape[0]
    for role, column in columns.items():
        if len(column) != rows:
            given = counted(len(column), "row")
            raise DataError(f"{called[role]} has {given}, and X has {rows:,}; give a value for each row")
        if column.name and column.name in taken:
            raise DataError(
                f"X has a column {column.name!r} too; drop it from X, or name a column in place of an array"
            )
        name = column.name or free_name(role, taken)
        taken.add(name)
        columns[role], names[role] = column.alias(name), name
    return table.with_columns(columns.values()), names


def check_order(table: Any, values: Any, role: str) -> None:
    """Raise DataError if a column of pandas has the index of the table in another order (`in_another_order`)."""
    if in_another_order(table, values):
        raise DataError(
            f"{role} has the index of X in another order, and rows are matched by their places; give "
            f"{role}.loc[X.index], or {role}.to_numpy() if the places are right"
        )


def in_another_order(table: Any, values: Any) -> bool:
    """Return True if a table and a column of pandas have the same index, without repeats, in different orders.

    In all other cases, the caller matches rows by their places.
    """
    if package_of(table) != "pandas" or package_of(values) != "pandas":
        return False
    rows, index = getattr(table, "index", None), getattr(values, "index", None)
    if rows is None or index is None or len(rows) != len(index) or rows.equals(index):
        return False
    return bool(rows.is_unique and index.is_unique and index.isin(rows).all())


def series_of(values: Any, name: str | None, role: str) -> pl.Series:
    """Return the values of a column as a Series. Raises DataError.

    name  name of the Series; None for the name of the values.
    role  name of the values in messages.
    """
    try:
        series = _series(values)
    except DataError as error:
        raise DataError(f"{role}: {error.text}") from error
    except OBJECT_FAULTS as error:
        raise DataError(f"{role} is not a column of one type ({reason(error)}); convert it") from error
    return series.alias(name) if name else series


def _series(values: Any) -> pl.Series:
    package = package_of(values)
    if package == "pandas":
        if not hasattr(values, "columns") and not hasattr(values, "to_frame"):  # a pandas array, such as Categorical
            import pandas as pd

            values = pd.Series(values)
        frame = frame_from_pandas(values.to_frame() if hasattr(values, "to_frame") else values)
        # A Series without a name becomes the column 0.
        return _series(frame.rename({"0": ""}) if getattr(values, "name", "") is None else frame)
    if isinstance(values, pl.DataFrame):
        if values.width != 1:
            raise DataError(f"a column was expected, not a frame of {values.width}; select one")
        return _series(values.to_series())
    if isinstance(values, pl.Series):
        return values
    if package == "pyarrow":
        return _series(_arrow_series(values) if hasattr(values, "type") else pl.from_arrow(values))
    if isinstance(values, np.ndarray):
        return column_of_array(values)
    if package == "dask":
        raise DataError("a column cannot be made of a collection of Dask; give the result of its compute()")
    if not isinstance(values, Sequence | deque) or isinstance(values, bytes):
        raise DataError(f"a column cannot be made of {type(values).__name__}; give an array, a list or a Series")
    values = list(values)
    if any(isinstance(value, list | tuple | np.ndarray) for value in values[:1]):
        return column_of_array(np.asarray(values))
    return column_of_objects(values)


def package_of(data: Any) -> str:
    """Return the package of an object's class; if the class is derived from one of _PACKAGES, that package."""
    names = [kind.__module__.partition(".")[0] for kind in type(data).__mro__]
    return next((name for name in names if name in _PACKAGES), names[0])


def is_sparse(data: Any) -> bool:
    """Return True for a sparse matrix or array of scipy."""
    return package_of(data) == "scipy" and hasattr(data, "tocsr")


def is_matrix(data: Any) -> bool:
    """Return True for an array whose columns have no names."""
    return isinstance(data, np.ndarray) and data.dtype.names is None


def has_named_columns(data: Any) -> bool:
    """Return True for a mapping of columns, a list of mappings or of tables, a structured array, and a path.

    False for a frame: the caller recognises frames by their packages.
    """
    first = next(iter(data), None) if isinstance(data, list) else None
    structured = isinstance(data, np.ndarray) and data.dtype.names is not None
    return structured or isinstance(data, Mapping | str | Path) or isinstance(first, Mapping) or _is_table(first)


def _is_table(table: Any) -> bool:
    return hasattr(table, "__arrow_c_stream__") and hasattr(table, "columns")


def table_of_list(data: Any, reading: Reading = EVERYTHING) -> Any:
    """Return a list of rows as an array, and a list of tables, such as Arrow record batches, as a frame.

    If some cells are text, all cells become objects, so that numbers among text stay numbers. So do cells with
    numbers beyond 2**53, because numpy would round integers among floats. Other data, such as a list of mappings, are
    returned unchanged.

    Raises DataError for rows of different lengths, and for tables of different columns.
    """
    if not isinstance(data, list) or isinstance(next(iter(data), None), Mapping):
        return data
    if data and all(map(_is_table, data)):
        frames = [frame_in_memory(piece, reading) for piece in data]
        try:
            return pl.concat([frame for frame in frames if frame is not None])
        except POLARS_FAULTS as error:
            problem = f"the tables of the list do not have the same columns ({reason(error)}); convert them"
            raise DataError(problem) from error
    try:
        cells = np.asarray(data)
    except ValueError as error:
        raise _no_table(data, error) from error
    rounded = cells.dtype.kind == "f" and (np.abs(cells) >= 2.0**53).any()
    return np.asarray(data, object) if cells.dtype.kind in "SU" or rounded else cells


def frame_in_memory(data: Any, reading: Reading = EVERYTHING) -> pl.DataFrame | None:
    """Return a table in memory as a frame, else None.

    Tables in memory are arrays, lists of rows or of tables, mappings of columns, DataFrames of Polars and pandas, and
    Tables and RecordBatches of pyarrow. Raises DataError, also for a list of paths and for a collection of Dask.
    """
    if isinstance(data, list) and data and all(isinstance(item, str | Path) for item in data):
        raise DataError(
            "a list of paths is not a table; give the folder of the files, a glob such as 'part-*.csv', or a lazy "
            "frame such as pl.scan_parquet(paths)"
        )
    data = table_of_list(data, reading)
    if isinstance(data, pl.DataFrame):
        return data
    if is_matrix(data):
        names = numbered_names(data)
        if data.dtype.kind in "OUT" and names:
            return _frame_of_columns({name: data[:, place] for place, name in enumerate(names)}, reading)
        return frame_from_numpy(data, names)
    if isinstance(data, np.ndarray):
        return _frame_of_columns({name: data[name] for name in data.dtype.names or ()}, reading)
    if isinstance(data, Mapping):
        return _frame_of_columns(data, reading)
    if isinstance(data, list):
        if not all(isinstance(row, Mapping) for row in data):
            raise _no_table(data, TypeError("its rows are not all mappings"))
        found = dict.fromkeys(name for row in data for name in row)
        # Column by column: from rows, Polars would convert numbers among texts to text.
        frame = _frame_of_columns({name: [row.get(name) for row in data] for name in found}, reading)
        absent = [pl.lit(None).alias(name) for name in reading.absent(frame.schema)] if data else []
        return frame.with_columns(absent) if absent else frame
    package = package_of(data)
    if package == "pandas":
        return frame_from_pandas(data, reading)
    if package == "pyarrow":
        import pyarrow as pa

        if isinstance(data, pa.Table | pa.RecordBatch):
            return frame_from_arrow(data, reading)
    if package == "dask":
        raise DataError("a table cannot be made of a collection of Dask; write it with to_parquet, and give the folder")
    return None


def _frame_of_columns(data: Mapping[Any, Any], reading: Reading) -> pl.DataFrame:
    places_once([str(name) for name in data], "the mapping", reading)
    columns = {str(name): _column_of(values, str(name), reading) for name, values in data.items()}
    try:
        return pl.DataFrame(columns)
    except POLARS_FAULTS as error:  # columns of different lengths
        raise _no_table(data, error) from error


def _column_of(values: Any, name: str, reading: Reading) -> pl.Series:
    """Return a column of a mapping. A matrix of numbers becomes one column of arrays, as in Polars.

    If the column cannot be read, raise DataError, or return nulls if it is not needed and has a length.
    """
    if is_matrix(values) and values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf":
        return pl.Series(name, plain_array(values))
    try:
        return series_of(values, name, name)
    except DataError:
        if reading.needs(name) or not hasattr(values, "__len__"):
            raise
        return pl.Series(name, [None] * len(values), pl.Null)


def _no_table(data: Any, error: Exception) -> DataError:
    return DataError(f"a table cannot be made of this {type(data).__name__} ({reason(error)}); give columns")


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with underscores added until it is not among the taken names."""
    while name in taken:
        name += "_"
    return name
