"""Prediction within a memory budget: ranges of rows, each routed through one group of trees after the other.

Votes are added in the order of the trees, so predictions do not depend on the groups and the ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import DataError
from bigforest.execution.resources import Resources
from bigforest.planning.memory import BASE_BYTES, MemoryEstimate, Shape
from bigforest.predict.groups import LOADING_BYTES, Trees, choose_groups, group_bytes
from bigforest.predict.inputs import Input, default_batch
from bigforest.predict.predictor import CHUNK_BYTES, LEAF_CELLS, PartialVotes, Predictions, Predictor
from bigforest.predict.rows import tile_bytes

# A range that has all rows of any table.
ALL_ROWS = 1 << 62

# Within a memory budget, a batch takes at most 1 / _BATCH_SHARE of the room for batches, groups and ranges, but has at
# least _FEWEST_ROWS rows.
_BATCH_SHARE = 8
_FEWEST_ROWS = 1 << 12

# Bytes that reading and writing Parquet takes in addition to the batch.
_FILE_BYTES = 96 << 20

# Nanoseconds, on one thread, to read a cell from Parquet and fill it into a tile, once for each group.
_CELL_NS = 8


class PredictionPasses(NamedTuple):
    """Plan of the prediction of a table: ranges of rows, and for each range the groups of trees in turn.

    table   the table.
    used    positions in the dataspec of the features that a batch must have.
    groups  entries of Trees that are loaded together.
    rows    number of rows of a range.
    batch   number of rows that are read at a time.
    load    function that returns the predictor of a group.
    """

    table: Input
    used: NDArray[np.int64]
    groups: list[range]
    rows: int
    batch: int
    load: Callable[[range], Predictor]

    def predictions(
        self, *, proba: bool, labels: bool = True, workers: int, first: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Any, Predictions]]:
        """Yield the batches of the rows from `first` to before `stop`, with their predictions.

        proba, labels  see `Predictor.predict`.
        stop           None for all rows. A table without rows has one batch, which is empty.
        """
        table, last = self.table, len(self.groups) - 1
        stop = max(1, table.rows) if stop is None else stop
        for begin in range(first, stop, self.rows):
            end = min(begin + self.rows, stop)
            votes: PartialVotes | None = None  # on the rows of the range; None if all trees are one group
            for number, entries in enumerate(self.groups):
                predictor, start = self.load(entries), begin
                if votes is None and last:
                    votes = predictor.no_votes(end - begin)
                for batch in table.batches(begin, end, self.batch, self.used, number == last):
                    with RowsNamed(start, len(batch)):
                        rows = table.read(batch, self.used)
                        before = None if votes is None else votes.rows(start - begin, start - begin + rows.rows)
                        if number < last:
                            assert before is not None
                            predictor.add(rows, before, workers)
                        else:
                            made = predictor.predict(rows, start, before, proba=proba, labels=labels, workers=workers)
                            yield batch, made
                    start += rows.rows
                del predictor


class RowsNamed(NamedTuple):
    """Context in which a DataError names the rows: `rows` rows from `start` on.

    A class takes half the time of a generator with `contextmanager`.
    """

    start: int
    rows: int

    def __enter__(self) -> None:
        """See the class."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Name the rows in a DataError."""
        if isinstance(error, DataError):
            raise DataError(f"rows {self.start} to {self.start + self.rows - 1}: {error}") from error


def whole_estimate(trees: Trees, workers: int, held: int) -> MemoryEstimate:
    """Estimate the memory of a forest that predicts a lazy query, without the memory of Polars.

    held  bytes of the forest in addition to its trees
    """
    room = BASE_BYTES + held + workers * max(LOADING_BYTES, 2 * CHUNK_BYTES)
    memory = room + int(trees.sizes().sum()) + 8 * int(trees.nodes.sum())
    return MemoryEstimate("predict", memory, memory)


def plan_passes(
    shape: Shape,
    resources: Resources,
    sizes: NDArray[np.int64],
    first: NDArray[np.int64],
    held: int,
    quantiles: int,
    spread: bool,
) -> tuple[list[range], int, int, MemoryEstimate]:
    """Choose `groups`, `rows` and `batch` of PredictionPasses for a table, and estimate their memory.

    shape         rows and classes, and for every column that is read the bytes of a value.
    resources     with a memory budget.
    sizes, first  int64 [entries] and [entries + 1], see groups.py Trees.
    held          bytes of the table, and of the forest in addition to its trees, that are in memory already.
    quantiles     number of quantiles per row.
    spread        True if the spread of the trees is needed.

    A budget below MemoryEstimate.smallest does not suffice. The plan is then for `smallest`.
    """
    # Up to three copies of a batch exist at once: as read, rechunked, and as written. The same holds for its
    # predictions.
    row_batch = 3 * shape.row_bytes + 24 * (shape.classes + quantiles + spread) + 64
    # Kept between groups: the votes; for quantiles, the leaf of every tree; for the spread, three sums.
    row_votes = 8 * shape.classes + (4 * int(first[-1]) if quantiles else 0) + (24 if spread else 0)
    table_rows = max(1, shape.rows)
    tiles = max(CHUNK_BYTES, tile_bytes(shape.features))
    chunk = 8 * LEAF_CELLS if quantiles else 0  # leaves of the chunk of rows of a thread
    fixed = BASE_BYTES + held + _FILE_BYTES + resources.workers * (max(3 * tiles, LOADING_BYTES) + chunk)
    fewest = min(_FEWEST_ROWS, table_rows)
    smallest = fixed + int(sizes.max()) + fewest * (row_batch + row_votes)
    assert resources.memory is not None
    room = max(resources.memory, smallest) - fixed
    most = max(fewest, room // _BATCH_SHARE // row_batch), (room - int(sizes.max()) - fewest * row_votes) // row_batch
    batch = min(default_batch(shape.features, resources.limits), table_rows, *most)
    left, row_ns = room - batch * row_batch, _CELL_NS * shape.features
    groups, rows = choose_groups(
        sizes, left, rows=table_rows, classes=shape.classes, row_bytes=row_votes, step=fewest, row_ns=row_ns
    )
    memory = fixed + batch * row_batch + group_bytes(sizes, groups) + (rows * row_votes if len(groups) > 1 else 0)
    return groups, rows, batch, MemoryEstimate("predict", memory, min(smallest, memory), passes=len(groups))
