"""The job that all tasks of encoding share, and the rows of the source that they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from bigforest.columns.types import cells
from bigforest.encode.memory import EncodePlan
from bigforest.source import Source
from bigforest.storage.paths import local_path
from bigforest.store.format import ROW_NUMBER_TYPE


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """Inputs shared by all tasks that encode features.

    rows_file  file of the rows of the source to encode, ascending, ROW_NUMBER_TYPE; None for all rows.
    max_bins   "exact", or the maximal number of codes of a feature.
    plan       rows of the store, and how much of a column may be in memory.
    parts      folder for the parts of the store that tasks write.
    scratch    folder for columns that do not fit in memory.
    columns    the column of the table that holds each feature.
    kinds      "numeric" or "category", of each feature.
    """

    source: Source
    rows_file: Path | None
    max_bins: str | int
    plan: EncodePlan
    parts: Path
    scratch: Path
    columns: Mapping[str, str]
    kinds: Mapping[str, str]

    def column(self, name: str) -> Iterator[pl.Series]:
        """Yield the rows to encode of one column, in slices that are not empty."""
        return (cells(frame, name) for frame in self.slices([name]))

    def slices(self, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the rows to encode of some columns, in frames that are not empty."""
        rows = self.plan.limits.slice_rows
        if self.rows_file is None:
            yield from self.source.batches(names, rows)
            return
        kept = np.asarray(np.memmap(local_path(self.rows_file), ROW_NUMBER_TYPE, "r"))
        at, begin = int(kept[0]), 0
        for frame in self.source.batches(names, rows, at, int(kept[-1]) + 1):
            # A slice has at most as many kept rows as rows: search only among the next ones.
            end = begin + int(np.searchsorted(kept[begin : begin + len(frame)], np.uint64(at + len(frame))))
            if end - begin == len(frame):
                yield frame
            elif end > begin:
                yield frame[(kept[begin:end] - np.uint64(at)).astype(np.uint32)]
            at += len(frame)
            begin = end
