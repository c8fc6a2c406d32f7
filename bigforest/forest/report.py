"""The out-of-bag report of a forest, read back."""

from __future__ import annotations

from pathlib import Path

from bigforest.encode.dataspec import DataSpec
from bigforest.forest.files import check_bytes, check_file, read_table
from bigforest.forest.frames import scan, to_frame
from bigforest.forest.table import CURVE, confusion, metrics, oob_rows
from bigforest.forest.votes import proba_names, stored_labels


class OutOfBag:
    """The out-of-bag report of a forest (Breiman 2001, section 3.1; Tomasi 2017, section 6).

    rows       LazyFrame, one row per training row; columns as in forest/table.py oob_rows
    curve      error after each tree; columns CURVE
    confusion  true class against voted class; columns confusion
    metrics    precision, recall, F1, log loss, Brier score and AUC of each class and of all; columns metrics
    error      share of wrong votes among the rows that were left out of at least one bag; nan when there are
               none
    rows_used  number of these rows, |T'|
    """

    def __init__(self, directory: Path, spec: DataSpec, identity: str, holding: object = None) -> None:
        label = stored_labels(spec).type
        path = directory / "rows.parquet"
        check_file(path, "oob-rows", oob_rows(label, proba_names(spec)), identity)
        check_bytes(path)
        self.rows = scan([path], holding)
        self.curve = to_frame(read_table(directory / "curve.parquet", "oob-curve", CURVE, identity)[1])
        self.confusion = to_frame(
            read_table(directory / "confusion.parquet", "oob-confusion", confusion(label), identity)[1]
        )
        self.metrics = to_frame(read_table(directory / "metrics.parquet", "oob-metrics", metrics(label), identity)[1])
        last = self.curve.row(-1, named=True)
        self.rows_used: int = last["rows"]
        self.error: float = float("nan") if last["error"] is None else last["error"]

    def __repr__(self) -> str:
        return f"OutOfBag(error {self.error:.6g} on {self.rows_used} rows)"
