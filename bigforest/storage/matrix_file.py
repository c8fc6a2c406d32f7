"""A matrix on disk that tasks write row by row, in any order, and map: scratch of a run, for its workers only.

It has no checksums, unlike array_file.py, because pieces of all rows are read together, at random.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.storage.atomic import write_whole


class MatrixFile(NamedTuple):
    """[rows, columns] of a type, such as "<u2"."""

    path: Path
    rows: int
    columns: int
    kind: str

    def make(self) -> None:
        """Make the file, of zeros."""
        self.path.touch()
        os.truncate(self.path, self.rows * self.columns * np.dtype(self.kind).itemsize)

    def put(self, row: int, values: NDArray[Any]) -> None:
        """Write the first values of a row, at most as many as there are columns."""
        with self.path.open("r+b", buffering=0) as file:
            file.seek(row * self.columns * np.dtype(self.kind).itemsize)
            write_whole(file, values.astype(self.kind, copy=False))

    def mapped(self) -> NDArray[Any]:
        """All of it, mapped, read-only."""
        return np.asarray(np.memmap(self.path, self.kind, "r", shape=(self.rows, self.columns)))
