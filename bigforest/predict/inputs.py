"""Tables to predict, read in batches of rows: arrays, and tables with named columns, in memory or in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.planning.memory import Shape
from bigforest.planning.sizes import USUAL, Limits
from bigforest.predict.columns import count_unseen, prediction_shape
from bigforest.predict.rows import FEWEST_ROWS, FeatureMap, Reader, RowBatch, UnseenLevels
from bigforest.predict.vote_rule import VoteRule
from bigforest.source.in_memory import SparseRows, is_matrix
from bigforest.source.objects import plain_array
from bigforest.source.source import Source

# Most cells that are read at a time. With predictions of a few classes, such a batch takes about 200 MB at the widest
# type.
BATCH_CELLS = 1 << 23


def default_batch(columns: int, limits: Limits) -> int:
    """Return the number of rows of this many columns that are read at a time without a memory budget."""
    return max(1, min(limits.batch_rows, BATCH_CELLS // max(1, columns)))


class Input(ABC):
    """A table to predict.

    reader  reader of the forest.
    rows    number of rows.
    held    bytes of the table that are in memory already.
    unseen  unseen levels of the rows that were read; not counted in a table of few rows.
    """

    def __init__(self, reader: Reader, rows: int, held: int, treatment: str) -> None:
        """Take a table; treatment: of unseen levels, see VoteRule.unseen."""
        self.reader, self.rows, self.held = reader, rows, held
        self.unseen = UnseenLevels(treatment, counted=rows >= FEWEST_ROWS)

    @abstractmethod
    def shape(self, used: NDArray[np.int64]) -> Shape:
        """Return the shape for estimates of memory, if the features `used` (positions in the dataspec) are read."""

    @abstractmethod
    def batches(self, begin: int, end: int, rows: int, used: NDArray[np.int64], last: bool = True) -> Iterator[Any]:
        """Yield the rows from `begin` to before `end` as arrays or frames of at most `rows` rows.

        last  False if batches only need the features `used`, because later groups of trees read the rows again.

        The range from 0 to 1 of a table without rows yields one empty batch.
        """

    @abstractmethod
    def read(self, batch: Any, used: NDArray[np.int64]) -> RowBatch:
        """Return the features `used` of a batch. Raises DataError."""

    def read_all(self, used: NDArray[np.int64]) -> Iterator[RowBatch]:
        """Yield the features `used` of all rows, and log a notice if many of the rows have unseen levels."""
        for batch in self.batches(0, max(1, self.rows), default_batch(used.size, USUAL), used):
            yield self.read(batch, used)
        self.unseen.tell()


class ArrayInput(Input):
    """An array or a sparse matrix with the features in the order of training, see `Reader.matrix`.

    Raises DataError for another shape or type.
    """

    def __init__(self, reader: Reader, data: Any, treatment: str) -> None:
        matrix = plain_array(data) if is_matrix(data) else SparseRows(data)
        reader.check_matrix(matrix)
        super().__init__(reader, matrix.shape[0], matrix.nbytes, treatment)
        self._matrix = matrix

    def shape(self, used: NDArray[np.int64]) -> Shape:
        return Shape(self.rows, (8,) * used.size, 0, self.reader.spec.target.answer_width)

    def batches(self, begin: int, end: int, rows: int, used: NDArray[np.int64], last: bool = True) -> Iterator[Any]:
        step = min(rows, self._matrix.at_once) if isinstance(self._matrix, SparseRows) else rows
        return (self._matrix[start : min(start + step, end)] for start in range(begin, end, step))

    def read(self, batch: Any, used: NDArray[np.int64]) -> RowBatch:
        return self.reader.matrix(batch, used, self.unseen)


class TableInput(Input):
    """A table whose columns have names, as a frame or a Source.

    features  columns of the table that hold the features.
    rule      rule of the prediction, which may need a further column (`coverage_by`).
    others    columns of a Source that are read in addition to the features.
    """

    def __init__(
        self,
        reader: Reader,
        table: pl.DataFrame | Source,
        features: FeatureMap,
        rule: VoteRule,
        others: Sequence[str] = (),
    ) -> None:
        rows, held = (table.rows, 0) if isinstance(table, Source) else (table.height, int(table.estimated_size()))
        super().__init__(reader, rows, held, rule.unseen)
        self.table, self._features, self._rule, self._others = table, features, rule, others

    def shape(self, used: NDArray[np.int64]) -> Shape:
        return prediction_shape(self.table.schema, self._columns(used), self.rows, self.reader.spec)

    def batches(self, begin: int, end: int, rows: int, used: NDArray[np.int64], last: bool = True) -> Iterator[Any]:
        table = self.table
        if isinstance(table, pl.DataFrame):
            return (table.slice(start, min(rows, end - start)) for start in range(begin, end, rows))
        names = self._columns(used) if last else self._features.columns(used)
        return table.batches(names, rows, begin, end) if self.rows else iter([table.columns(names)])

    def read(self, batch: Any, used: NDArray[np.int64]) -> RowBatch:
        count_unseen(batch, self.reader.spec, self._rule, self.unseen)
        return self.reader.frame(batch, self._features, used, self.unseen)

    def _columns(self, used: NDArray[np.int64]) -> list[str]:
        return list(dict.fromkeys([*self._features.columns(used), *self._others]))
