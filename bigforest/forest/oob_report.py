"""Reading the out-of-bag report of a forest.

The rows of the report are in files of at most ROWS_OF_FILE rows, in order. The first file is rows.parquet, the next
one rows-0000001.parquet; most reports have one file. The division into files depends only on the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from bigforest.columns.labels import label_type
from bigforest.errors import counted, damaged_forest
from bigforest.forest.files import Header, check_file, decoding, read_header, read_table, row_batches, with_rows
from bigforest.forest.format import LATER, POISSON, oob_formats
from bigforest.forest.run_file import RunStamp
from bigforest.forest.tables import scan, to_frame
from bigforest.html import facts_table, rows_table
from bigforest.storage.parquet_footer import row_groups
from bigforest.storage.paths import files_in

ROWS_OF_FILE = 1 << 18
_MEASURES = {"error": "error", "mse": "mean squared error", POISSON: "mean Poisson deviance"}
_LABELS = ("truth", "prediction", "class")

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


class OobReport:
    """The out-of-bag report of a forest (Breiman 2001, section 3.1; Tomasi 2017, section 6).

    rows       LazyFrame of oob/rows.parquet, one row per training row
    curve      error by number of trees, without a boosted stage: trees, error (regression: mse or poisson_deviance),
               rows
    confusion  confusion matrix: truth, prediction, rows, weight. None for regression
    metrics    precision, recall, F1, log loss, Brier score and AUC of each class, and of all rows (class is null); for
               regression R2, MSE, MAE and, with the impurity poisson, the mean Poisson deviance
    error      out-of-bag error, with the boosted stage, on the rows that are out of bag for at least one tree; nan if
               there are none
    measure    name of the error: error (the share of wrong rows), mean squared error or, with the impurity poisson,
               mean Poisson deviance
    rows_used  number of rows that are out of bag for at least one tree
    weighted   True if rows have weights, which apply to everything except numbers of rows

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> forest.oob.error
    0.0
    >>> forest.oob.curve.columns
    ['trees', 'error', 'rows']
    """

    def __init__(
        self,
        home: Path,
        header: Header,
        holding: object = None,
        stamp: RunStamp | None = None,
        refined: bool = False,
    ) -> None:
        """Open the report of a forest, and check its files.

        home     directory of the forest
        holding  object that is kept alive as long as a LazyFrame of the files is in use
        stamp    stamp of the forest, which a LazyFrame checks
        refined  True if the forest has a boosted stage, which the curve does not include
        """
        directory, spec = home / "oob", header.spec
        formats = oob_formats(spec.target, header.config.criterion)
        paths, columns = oob_rows_files(home), formats["rows"].columns
        for name in LATER.intersection(columns.names):
            if not has_column(paths[0], name):
                columns = columns.remove(columns.get_field_index(name))
        rows_format = formats["rows"]._replace(columns=columns)
        rows = sum(check_file(path, rows_format, header).metadata.num_rows for path in paths)
        if rows != spec.rows:  # the last files may be missing, or files are from another run
            raise damaged_forest(f"{directory} has {counted(rows, 'row')}, and the table has {spec.rows:,}")

        dtype = label_type(spec.target)

        def read(name: str) -> pl.DataFrame:
            file = formats[name].at(home)
            table = read_table(file, formats[name], header)
            if name != "confusion":  # the confusion has no rows if no row is out of bag
                table = with_rows(table, file)
            try:
                return _as_target(to_frame(table), formats[name].columns, dtype)
            except pl.exceptions.PolarsError as error:
                raise damaged_forest(f"{file} has labels that are not classes ({error})") from error

        self.weighted = spec.weight is not None
        self.rows = _as_target(scan(paths, columns, row_batches, holding, stamp), columns, dtype)
        self.curve, self.metrics = read("curve"), read("metrics")
        self.confusion = read("confusion") if "confusion" in formats else None
        self.measure = _MEASURES[self.curve.columns[1]]
        _, error, self.rows_used = self.curve.row(-1)
        if refined and error is not None:
            error = self._refined_error(directory)
        self.error: float = float("nan") if error is None else error

    def _refined_error(self, directory: Path) -> float | None:
        """Return the error with the boosted stage, which the curve does not include. Raises FormatError."""
        if self.confusion is None:
            errors = self.metrics["mse" if self.measure == _MEASURES["mse"] else POISSON].to_list()
            if len(errors) != 1:
                raise damaged_forest(f"{directory / 'metrics.parquet'} has {counted(len(errors), 'row')}, not one")
            return errors[0]
        wrong = self.confusion.filter(pl.col("truth") != pl.col("prediction"))
        weight = float(self.confusion["weight"].sum())
        if not weight > 0.0:
            raise damaged_forest(f"{directory / 'confusion.parquet'}: its rows have no weight")
        return float(wrong["weight"].sum()) / weight

    def __repr__(self) -> str:
        rows = f"{counted(self.rows_used, 'row')}{' by their weights' if self.weighted else ''}"
        return f"OobReport({self.measure} {self.error:.6g} on {rows})"

    def _repr_html_(self) -> str:
        rows = [[_cell(name, cell) for name, cell in row.items()] for row in self.metrics.iter_rows(named=True)]
        return facts_table("Out of bag", {"report": repr(self)}) + rows_table(self.metrics.columns, rows)


def _cell(name: str, value: object) -> str:
    if value is None:
        return "all" if name == "class" else ""
    return f"{value:,.4g}" if isinstance(value, float) and name != "class" else str(value)


def _as_target(frame: Frame, columns: pa.Schema, dtype: pl.DataType) -> Frame:
    """Cast the labels in a frame to the type of the target. Files store every kind of text as strings."""
    return frame.with_columns(pl.col(name).cast(dtype) for name in columns.names if name in _LABELS)


def oob_rows_path(directory: Path, number: int) -> Path:
    return directory / "oob" / (f"rows-{number:07d}.parquet" if number else "rows.parquet")


def oob_rows_files(directory: Path) -> list[Path]:
    """Return the files of rows of the report, in order.

    Raises FormatError if a file is missing between others, or if, by the footers, rows do not ascend from file to file.
    """
    names = {path.name for path in files_in(directory / "oob", "rows-*.parquet")}
    files = [oob_rows_path(directory, number) for number in range(len(names) + 1)]
    if {path.name for path in files[1:]} != names:
        raise damaged_forest(f"{directory / 'oob'} lacks one of its files rows-*.parquet")
    highest = -1
    for path in files if len(files) > 1 else []:
        first, last = _row_bounds(path)
        if first <= highest:
            raise damaged_forest(f"{path} has rows that come before rows of the previous file")
        highest = last
    return files


def _row_bounds(path: Path) -> tuple[int, int]:
    with decoding(path):
        chunks = [chunk for group in row_groups(path) for chunk in group if chunk.name == "row"]
        bounds = [int.from_bytes(bound, "little") for chunk in chunks for bound in (chunk.low, chunk.high) if bound]
        if not bounds:
            raise ValueError("its footer does not say which rows it has")
        return min(bounds), max(bounds)


def oob_row_batches(directory: Path, names: list[str]) -> Iterator[Any]:
    """Yield the named columns of the rows of all files, as record batches, validated by Arrow."""
    for path in oob_rows_files(directory):
        yield from row_batches(path, names)


def has_column(path: Path, name: str) -> bool:
    return name in read_header(path, "oob-rows")[1].schema_arrow.names
