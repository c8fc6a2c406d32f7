"""Conversion of scikit-learn's input (tables, arrays and targets) to the input of bigforest."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_array, check_consistent_length, column_or_1d

from bigforest.columns.types import level_text
from bigforest.errors import ConfigError, DataError, shown
from bigforest.options.values import is_integer
from bigforest.source.in_memory import (
    arrow_stream,
    frame_from_numpy,
    has_named_columns,
    is_matrix,
    is_sparse,
    package_of,
    table_of_list,
)
from bigforest.source.objects import is_missing, plain_array
from bigforest.source.open import table_in_memory


def table_frame(X: Any) -> pl.DataFrame | None:
    """Return a table with named columns as a frame; None for an array or list whose columns have no names.

    Raises DataError for a table that Polars cannot hold, for a Dask frame, and for infinite values, which scikit-learn
    refuses in arrays.
    """
    package = package_of(X)
    if package == "dask" and hasattr(X, "columns"):  # numpy would lose the types of its columns
        raise DataError("X is a Dask frame; give the result of its compute(), or write files for bigforest.train")
    if package not in ("pandas", "pyarrow", "polars") and not has_named_columns(X):
        X = arrow_stream(X)
    has_columns = isinstance(X, pl.DataFrame | pl.LazyFrame) or (package == "pandas" and hasattr(X, "columns"))
    if X is None or not (has_columns or has_named_columns(X) or hasattr(X, "schema")):  # Arrow has schemas
        return None
    frame = table_in_memory(X)
    infinite = frame.select(cs.float().is_infinite().any())
    if infinite.width and any(infinite.row(0)):
        names = [name for name, is_infinite in infinite.row(0, named=True).items() if is_infinite]
        raise DataError(f"X contains infinity in {names[0]!r}; replace infinite values, by nulls for instance")
    return frame


def header(frame: pl.DataFrame) -> Any:
    """Return an Arrow table without rows that has the columns of a frame.

    scikit-learn reads its names in every version; it reads those of Polars 2 from version 1.9 on.
    """
    return pl.DataFrame(schema=dict.fromkeys(frame.columns, pl.Null)).to_arrow()


def unmasked(values: Any) -> Any:
    """Replace masked cells of an array by NaN, because scikit-learn would ignore the mask."""
    return plain_array(values) if isinstance(values, np.ma.MaskedArray) else values


def numpy_integers(values: Any) -> Any:
    """Return a Polars column or frame with 128-bit integers, which numpy lacks, as int64; other values unchanged.

    Raises DataError for integers that int64 does not hold.
    """
    if isinstance(values, pl.Series):
        return numpy_integers(values.to_frame()).to_series()
    if not isinstance(values, pl.DataFrame):
        return values
    try:
        return values.cast({pl.Int128: pl.Int64, pl.UInt128: pl.Int64})
    except pl.exceptions.PolarsError as error:
        raise DataError("a column has integers of more than 64 bits; cast it to String or Float64") from error


def objects_of(X: Any) -> NDArray[np.object_] | None:
    """Convert an array, or a list of rows, to an array of objects if it has objects or text; else return None.

    Missing cells of any kind become NaN: numpy makes no float of NA and NaT.
    """
    cells = table_of_list(X)
    if not is_matrix(cells) or cells.ndim != 2 or cells.dtype.kind not in "OUT":
        return None
    objects = np.asarray(cells, object)
    missing = np.fromiter(map(is_missing, objects.flat), np.bool_, objects.size)
    return np.where(missing.reshape(objects.shape), np.nan, objects)


def has_text(cells: NDArray[np.object_]) -> bool:
    """Return True if a cell is text that cannot be read as a number."""
    try:
        cells.astype(np.float64)
    except (TypeError, ValueError):  # the first cell that is no number need not be text
        return any(isinstance(cell, str) and not _is_number(cell) for cell in cells.ravel().tolist())
    return False


def named(X: NDArray[Any] | pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return an array or a frame as a frame with these names of columns."""
    if isinstance(X, pl.DataFrame):
        return X.rename(dict(zip(X.columns, names, strict=True))) if X.columns != list(names) else X
    return frame_from_numpy(X, names)


def category_names(categories: Any, names: Sequence[str]) -> list[str]:
    """Return the names of category columns, from names and column numbers. Raises ConfigError."""
    if categories is None:
        return []
    selected: list[str] = []
    for category in (
        [categories] if isinstance(categories, str) else np.asarray(categories, dtype=object).ravel().tolist()
    ):
        if isinstance(category, str) and category in names:
            selected.append(category)
        elif is_integer(category, 0, len(names) - 1):
            selected.append(names[category])
        else:
            raise ConfigError(f"categories must be names or places of columns of X, not {category!r}")
    return selected


def check_dense(y: Any) -> None:
    """Raise DataError for a sparse target, with scikit-learn's message."""
    if is_sparse(y):
        raise DataError(
            "sparse multilabel-indicator for y is not supported; give an array with one class or number per row"
        )


def outputs_of(y: Any, *, warn: bool = False) -> list[NDArray[Any]]:
    """Return the columns of a target, one for each output. With several, columns of frames keep their types.

    warn  True to warn of a single output of shape [rows, 1], as scikit-learn does in `fit`.
    """
    y = numpy_integers(y)
    if isinstance(y, pl.DataFrame):
        columns = y.get_columns()
    elif package_of(y) == "pandas" and hasattr(y, "columns"):
        columns = [y.iloc[:, place] for place in range(y.shape[1])]
    elif package_of(y) == "pyarrow" and hasattr(y, "column_names"):
        columns = y.columns
    else:
        y = _exact_array(unmasked(y))
        columns = list(y.T) if y.ndim == 2 else [y]
    return list(map(_exact_array, columns)) if len(columns) > 1 else [column_or_1d(_exact_array(y), warn=warn)]


def _exact_array(column: Any) -> NDArray[Any]:
    """Return an array of the values of a target. scikit-learn would make floats of nullable integers and booleans."""
    array = np.asarray(column)
    if array.dtype.kind == "T":
        return array.astype(object)
    if array.dtype.kind == "U" and isinstance(column, list | tuple):
        cells = np.asarray(column, object)
        return cells if any(map(is_missing, cells.ravel())) else array  # numpy writes NaN as text
    return array


def item_or_list(items: Sequence[Any]) -> Any:
    """Return a list with an item for each output, or the item alone for a single output, as scikit-learn does."""
    return list(items) if len(items) > 1 else items[0]


def joined(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack predictions as columns, one for each output. A single output remains a vector.

    Outputs without a common type, such as numbers and text, become objects.
    """
    if len(columns) == 1:
        return columns[0]
    kinds = {column.dtype.kind for column in columns}
    mixed = len(kinds) > 1 and not kinds <= set("biuf")
    return np.stack([column.astype(object) for column in columns] if mixed else columns, axis=1)


def classes_of(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp], pl.Series]:
    """Return the classes in ascending order, the class number of each row, and the labels as a column.

    Raises DataError for missing labels, and for classes that differ only in spaces around them.
    """
    if _has_missing(labels):
        raise DataError("Input y contains NaN, None, NA or NaT, which is no class; drop these rows")
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    if labels.dtype.kind == "O" and (objects := [label for label in labels if not isinstance(label, str)]):
        raise DataError(
            f"Unknown label type: y has objects such as {shown(objects[0])}; convert y to one type, as text"
        )
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    in_forest = labels_in_forest(classes)
    if not (once := in_forest.is_unique()).all():
        alike = classes[in_forest.eq_missing(in_forest.filter(~once)[0]).to_numpy()].tolist()
        raise DataError(f"y has {alike[0]!r} and {alike[1]!r}, which are one class without the spaces; remove them")
    return classes, codes, labels_in_forest(labels)


def _has_missing(labels: NDArray[Any]) -> bool:
    if labels.dtype.kind in "mM":
        return bool(np.isnat(labels).any())
    return labels.dtype.kind == "O" and any(map(is_missing, labels))


def labels_in_forest(labels: NDArray[Any]) -> pl.Series:
    """Return labels as forests store them: whole numbers, booleans, or text without spaces around it.

    Sorted as text, labels may be in another order than before.
    """
    if labels.dtype.kind == "f":  # whole numbers: check_classification_targets refuses others
        labels = labels.astype(np.int64)
    if labels.dtype.kind in "biu":
        return pl.Series(labels)
    return level_text(pl.Series([str(label) for label in labels.tolist()], dtype=pl.String))


def numbers_of(y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the regression targets as float64. Raises DataError for dates and values that are not numbers."""
    if y.dtype.kind in "mM":
        raise DataError("y has dates or durations, and regression predicts numbers; convert them, in a unit you choose")
    if _has_missing(y):
        raise DataError("Input y contains NaN, None or NA, which is no number; drop these rows")
    try:
        numbers: NDArray[np.float64] = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
    except (TypeError, ValueError) as error:
        strange = [value for value in y.astype(object) if not _is_number(value)]
        if not strange:
            raise
        raise DataError(
            f"y has {shown(strange[0])}, which is no number, and regression predicts numbers; convert y, or use a "
            "classifier for classes"
        ) from error
    return numbers


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def checked_sample_weight(sample_weight: Any, rows: Any) -> NDArray[np.float64]:
    """Return the row weights; a single number applies to every row. Raises DataError for unusable weights."""
    if isinstance(sample_weight, Real):
        sample_weight = np.full(rows.shape[0], sample_weight)
    weights: NDArray[np.float64] = check_array(
        unmasked(numpy_integers(sample_weight)), dtype=np.float64, ensure_2d=False, input_name="sample_weight"
    )
    if weights.ndim != 1:
        raise DataError(f"Sample weights must be 1D, one for each row, not of shape {weights.shape}")
    check_consistent_length(rows, weights)
    if not weights.any():
        raise DataError("all weights in sample_weight are zero, so no row is left; give some row a weight")
    if (weights < 0.0).any():
        raise DataError("Negative values in data passed to `sample_weight`; weights must be numbers, 0 or more")
    return weights
