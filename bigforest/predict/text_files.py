"""Predictions as text: CSV and NDJSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from bigforest.common.errors import DataError
from bigforest.predict.columns import PREDICTION
from bigforest.storage.paths import text_lines

if TYPE_CHECKING:
    import pyarrow as pa

# How the names of such files end.
TEXT = (".csv", ".tsv", ".ndjson", ".jsonl")


def write_text(tables: Iterator[pa.Table], path: Path) -> None:
    """Write tables one after the other into a file of the kind that its name says."""
    suffix = path.suffix.lower()
    with path.open("wb") as file:
        for number, table in enumerate(tables):
            frame = pl.DataFrame(pl.from_arrow(table))
            nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
            if suffix in (".ndjson", ".jsonl"):
                text = frame.write_ndjson()
            elif nested:
                raise DataError(f"column {nested[0]!r} is nested, which CSV cannot hold; write Parquet or .ndjson")
            else:
                text = frame.write_csv(include_header=number == 0, separator="\t" if suffix == ".tsv" else ",")
            file.write(text.encode())


def is_text_prediction(path: Path) -> bool:
    """Whether the first line of a text has the column of predictions."""
    with suppress(OSError, UnicodeDecodeError, csv.Error, ValueError), text_lines(path, "utf-8") as lines:
        first = next(lines, "")
        found = json.loads(first) if first.startswith("{") else next(csv.reader([first.replace("\t", ",")]), [])
        return PREDICTION in found
    return False
