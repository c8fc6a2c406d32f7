"""Tables of a forest as Polars frames."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import polars as pl


def scan(paths: list[Path], holding: object) -> pl.LazyFrame:
    """The rows of files; every query made of them keeps the object `holding`."""
    scan = pl.scan_parquet([str(path) for path in paths], glob=False)
    return scan if holding is None else scan.map_batches(partial(_unchanged, holding), streamable=True)


def _unchanged(holding: object, frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def to_frame(table: Any) -> pl.DataFrame:
    """A pyarrow Table as a DataFrame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
