"""Rows to explain, in files that every task maps, because explanations read single rows repeatedly.

A mapped file is not anonymous memory, so the table may be larger than the budget. The system caches as much as fits.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.encode.rows import TrueRows, true_rows
from bigforest.errors import DataError
from bigforest.events import Listener, stage
from bigforest.execution.process_cache import ProcessCache
from bigforest.metrics.numbers import LARGEST
from bigforest.predict.forest import Forest
from bigforest.predict.passes import RowsNamed
from bigforest.predict.rows import UnseenLevels, check_schema
from bigforest.source.source import Source
from bigforest.storage.array_file import map_file
from bigforest.storage.atomic import write_whole

# Cells, and rows, that are read at a time.
_BATCH_CELLS = 1 << 20
_BATCH_ROWS = 1 << 16
# Rows are numbered with 32 bits.
_MOST_ROWS = 2**32 - 1

_FILES = ("values", "target", "weight", "kept")
# Types of a target: for regression, for classification.
_TARGETS = ("f8", "u2")


class RowTable(NamedTuple):
    """Rows in files that tasks map. Only the path of the folder is sent to other processes.

    folder    folder of the files `values`, `target`, `weight` and `kept`. Without a target, `target`, `weight` and
              `kept` are empty. Without weights, `weight` is empty.
    rows      number of rows.
    used      positions in the dataspec of the features in the columns of `values`. A last column has zeros. The terms
              that pad directions with few terms refer to it.
    narrow    True if values are float32, False if float64.
    missing   names of the features with NaN in `values`.
    labelled  True if the table has the target.
    weighted  True if the table has the target and rows have weights.
    """

    folder: Path
    rows: int
    used: tuple[int, ...]
    narrow: bool
    missing: tuple[str, ...]
    labelled: bool
    weighted: bool
    is_classification: bool

    def values(self) -> NDArray[Any]:
        """Return the values, float32 or float64 [rows, used features + 1].

        Numbers are NaN where they are missing and no fill replaces them. Categories have codes or values of levels.
        """
        cells = _map_array(self.folder / "values", "f4" if self.narrow else "f8")
        return cells.reshape(self.rows, len(self.used) + 1)

    def target(self) -> NDArray[Any]:
        """Return the class, uint16 [rows], or the number, float64 [rows]; arbitrary in rows not in `labelled_rows`."""
        return _map_array(self.folder / "target", _TARGETS[self.is_classification])

    def weight(self) -> NDArray[np.float64] | None:
        """Return the weights, float64 [rows]; None if all are 1."""
        return _map_array(self.folder / "weight", "f8") if self.weighted else None

    def labelled_rows(self) -> NDArray[np.uint32]:
        """Return the numbers of the rows with a target and a weight above 0, ascending, uint32."""
        return _map_array(self.folder / "kept", "u4")

    @property
    def column_of(self) -> dict[int, int]:
        """Column of `values` of each used feature, by its position in the dataspec."""
        return {place: column for column, place in enumerate(self.used)}

    @property
    def file_bytes(self) -> int:
        """Upper bound of the bytes of all files."""
        target = (2 if self.is_classification else 8) + 4 + 8 * self.weighted if self.labelled else 0
        return self.rows * ((4 if self.narrow else 8) * (len(self.used) + 1) + target)


_maps: ProcessCache[NDArray[Any]] = ProcessCache(16)


def _map_array(path: Path, kind: str) -> NDArray[Any]:
    return _maps.get((path, kind), lambda: map_file(path, kind))


def replace_columns(
    values: NDArray[Any], drawn: NDArray[Any], columns: NDArray[np.uint64], groups: NDArray[np.int64] | int
) -> Any:
    """Return `values` with other values in some columns, as Replaced of kernels/explain/step.py.

    drawn    [columns, rows], row i has the replacement values of column columns[i]
    columns  uint64, columns of `values` to replace
    groups   int64, number of the group of features that each of these columns belongs to; or one number for all
    """
    from bigforest.kernels.explain.step import Replaced

    column, group = np.full(values.shape[1], -1, np.int32), np.full(values.shape[1], -1, np.int32)
    column[columns], group[columns] = np.arange(columns.size), groups
    return Replaced(values, drawn, column, group)


def describe_rows(forest: Forest, source: Source, used: NDArray[np.int64], folder: Path) -> RowTable:
    """Describe the table that `write_row_table` will write, without reading rows. `missing` is empty.

    Raises DataError if the source lacks features or has too many rows.
    """
    spec = forest.spec
    features = check_schema(source.schema, spec, used)
    if source.rows > _MOST_ROWS:
        raise DataError(f"the table has {source.rows} rows; explain a sample of at most {_MOST_ROWS}")
    labelled = spec.target.name in source.schema
    weighted = _weight_column(spec, source) is not None or bool(spec.weight is not None and spec.weight.classes)
    return RowTable(
        folder=folder,
        rows=source.rows,
        used=tuple(used.tolist()),
        narrow=not forest.config.ranks and features.narrow(),
        missing=(),
        labelled=labelled,
        weighted=labelled and weighted,
        is_classification=not forest.is_regression,
    )


def _weight_column(spec: DataSpec, source: Source) -> str | None:
    """Return the name of the weight column, or None if training or this table has none."""
    return spec.weight.name if spec.weight is not None and spec.weight.name in source.schema else None


def write_row_table(forest: Forest, source: Source, table: RowTable, listener: Listener) -> RowTable:
    """Read the rows once and write the files of `table`. Return the table with `missing`.

    table  result of `describe_rows`

    Raises DataError for labels that the forest does not know, and for unusable numbers or weights.
    """
    spec, used = forest.spec, np.array(table.used)
    features = check_schema(source.schema, spec, used)
    name = _weight_column(spec, source) if table.labelled else None
    labels = [spec.target.name] if table.labelled else []
    weights = [] if name is None else [name]
    columns = list(dict.fromkeys([*features.columns(used), *labels, *weights]))
    reader, missing, begin, tally = forest.reader, np.zeros(used.size, np.int64), 0, UnseenLevels()
    with stage("read", source.rows, "rows", listener) as progress, ExitStack() as opened:
        files = {file: opened.enter_context((table.folder / file).open("wb", buffering=0)) for file in _FILES}
        for batch in source.batches(columns, max(1, min(_BATCH_ROWS, _BATCH_CELLS // len(columns)))):
            with RowsNamed(begin, batch.height):
                rows = reader.frame(batch, features, used, tally)
                values = np.zeros((1, batch.height, used.size + 1), np.float32 if table.narrow else np.float64)
                if not rows.fill(values, by_rows=True) and spec.fills is not None:
                    rows.fill_missing(values, spec.fills[used], by_rows=True)
                missing += np.isnan(values[0, :, :-1]).sum(axis=0)
                write_whole(files["values"], values)
                if table.labelled:
                    truth = _truth(batch, spec, name)
                    write_whole(files["target"], truth.target.astype(_TARGETS[table.is_classification]))
                    if table.weighted:
                        write_whole(files["weight"], truth.weight)
                    write_whole(files["kept"], (begin + np.flatnonzero(truth.known)).astype(np.uint32))
            begin += batch.height
            progress.advance(batch.height)
    tally.tell(listener)
    names = [spec.features[place].name for place, count in zip(table.used, missing, strict=True) if count]
    return table._replace(missing=tuple(names))


def _truth(batch: pl.DataFrame, spec: DataSpec, weights: str | None) -> TrueRows:
    """Return `true_rows` with the class weights of training. Raises DataError for a target above LARGEST in size."""
    truth = true_rows(batch, spec, weights, () if spec.weight is None else spec.weight.classes)
    if spec.target.is_regression and not (np.abs(truth.target[truth.known]) <= LARGEST).all():
        name = spec.target.name
        raise DataError(f"a value of {name!r} is infinite, or of a size above {LARGEST:g}; drop these rows")
    return truth


def unused_values(forest: Forest, source: Source, place: int, rows: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return the values of a feature that no tree uses, float64 [rows]: as `RowTable.values`, but without fills.

    place  position of the feature in the dataspec
    rows   numbers of the rows, ascending

    The result is empty if the table lacks the feature. Raises DataError.
    """
    if forest.spec.features[place].table_column not in source.schema:
        return np.empty(0)
    features, reader = check_schema(source.schema, forest.spec, [place]), forest.reader
    used = np.array([place])
    pieces, begin = [], 0
    for batch in source.batches(features.columns(used), _BATCH_ROWS):
        with RowsNamed(begin, batch.height):
            cells = reader.frame(batch, features, used)
        inside = rows[np.searchsorted(rows, begin) : np.searchsorted(rows, begin + batch.height)] - begin
        pieces.append(cells.columns()[0][inside].astype(np.float64))
        begin += batch.height
    return np.concatenate(pieces)


def sampled(rows: int, most: int, seed: int) -> NDArray[np.uint32]:
    """Return the numbers of `most` rows drawn without replacement, or of all rows if there are fewer, ascending."""
    if rows <= most:
        return np.arange(rows, dtype=np.uint32)
    random = np.random.Generator(np.random.Philox(seed % 2**64))
    return np.sort(random.choice(rows, most, replace=False)).astype(np.uint32)
