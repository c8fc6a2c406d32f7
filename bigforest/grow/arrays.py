"""From the numbers a kernel returns to the arrays of a forest table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.config import Impurity
from bigforest.forest.table import TreeArrays
from bigforest.kernels.impurity import NUMBERS
from bigforest.kernels.layout import Terms
from bigforest.kernels.oblique import Pool
from bigforest.kernels.tree import CodeTree
from bigforest.kernels.values import fill_values
from bigforest.store.store import Dictionaries


def tree_arrays(
    nodes: CodeTree,
    dictionaries: Dictionaries,
    impurity: Impurity,
    pool: Pool | None = None,
    known: NDArray[np.float64] | None = None,
) -> TreeArrays:
    """The tree `nodes`, grown on codes under `impurity`, in the values of `dictionaries`.

    pool   what its oblique nodes have besides; None where there are none.
    known  its thresholds, where they have been looked up already.
    """
    size = nodes.feature.size
    left, weight = np.empty(size, np.uint32), np.empty(size, np.uint64)
    given = pool.threshold if pool is not None else known
    threshold = np.empty(size) if given is None else given.copy()
    gain, value = np.empty(size), np.empty(size)
    offsets, low, high = dictionaries
    fill_values(
        nodes, nodes.sum, offsets, low, high, known is not None, NUMBERS[impurity], left, threshold, gain, weight, value
    )
    return TreeArrays(
        feature=nodes.feature,
        left=left,
        right=nodes.right,
        depth=nodes.depth,
        threshold=threshold,
        gain=gain,
        weight=weight,
        counts=nodes.counts,
        terms=None if pool is None or pool.feature.size == 0 else _terms(pool),
    )


def _terms(pool: Pool) -> Terms:
    return Terms(np.concatenate([[0], np.cumsum(pool.size, dtype=np.int64)]), pool.feature, pool.weight)
