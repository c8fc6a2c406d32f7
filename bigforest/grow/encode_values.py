"""Columns of values encoded as a table: codes, and their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.encode.features import dense_ranks
from bigforest.grow.trees import Ends
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.tree.builder import CodeTree
from bigforest.store.store import Dictionaries

# Values of a dictionary read at a time.
_CHUNK = 1 << 16


def code_columns(
    columns: Iterable[NDArray[Any]], count: int, rows: int, used: NDArray[np.int64] | None = None
) -> tuple[Codes, Dictionaries]:
    """Codes of 4 bytes for `count` columns, none of whose values is NaN, and the distinct values of each.

    used  the rows that the columns are of, of this many `rows`; those of others get the code 0. None for all.
    """
    matrix = (np.empty if used is None else np.zeros)((count, rows), np.uint32)
    where = slice(None) if used is None else used
    low: list[NDArray[np.float64]] = []
    for number, column in enumerate(columns):
        matrix[number, where], distinct = dense_ranks(column.astype(np.float64, copy=False))
        low.append(distinct)
    none = np.empty((0, rows), np.uint8), np.empty((0, rows), np.uint16)
    codes = Codes._make([read_only(array) for array in (*none, matrix, places(4, count))])
    values = read_only(np.concatenate(low))
    return codes, Dictionaries(np.cumsum([0, *map(len, low)]), values, values)


def places(width: int, columns: int) -> NDArray[np.uint32]:
    """Where columns are in cells of one type, of this many bytes."""
    return np.array([(width, column) for column in range(columns)], np.uint32)


def are_whole(values: NDArray[np.float64], most: float = np.inf) -> bool:
    """Whether all are whole numbers of at most this size; looked at a chunk at a time, as dictionaries are mapped."""
    chunks = (values[first : first + _CHUNK] for first in range(0, values.size, _CHUNK))
    return all(((np.floor(some) == some) & (np.abs(some) <= most)).all() for some in chunks)


def with_thresholds(nodes: CodeTree, dictionaries: Dictionaries, pool: DirectionExtras) -> DirectionExtras:
    """The pool with the thresholds of the nodes that split on a column of `dictionaries`, too."""
    axis = nodes.feature >= 0
    offsets, low, high = dictionaries
    start = offsets[nodes.feature[axis]]
    threshold = pool.threshold.copy()
    threshold[axis] = Ends(high[start + nodes.left_code[axis]], low[start + nodes.right_code[axis]]).middle()
    return pool._replace(threshold=threshold)
