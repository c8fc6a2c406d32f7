"""The target of a tree, classes or numbers, and the statistics of the target in a node.

                              classification           regression
    value                     None                     the targets
    sums                      None                     scratch, RegressionScratch
    table                     see impurity.py          None
    total, int64              [classes], weights       [2], weight and weighted sum of the targets in a node

Numba compiles both cases separately and drops branches that depend on `is not None`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import BITS16, ONE, SHIFT32, SQ_L, W_L, ZERO, ZERO_I64, Node, most_buckets
from bigforest.kernels.common.partition import sum_classes
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.lanes import LANES

# Most buckets of a histogram of up to 2**18 rows for regression.
BUCKETS_SUMS = 1024


class ClassTarget(NamedTuple):
    """A target of `number` classes, which are in the items; table: see impurity.py."""

    number: int
    table: Any

    @property
    def value(self) -> None:
        """None, because classes are in the items."""


class RegressionTarget(NamedTuple):
    """Targets that are numbers.

    value  int64 [rows of the table], read-only. Absolute values times the weight of the bag are below 2**62
    zero   float64, the number that represents the target 0, for the Poisson deviance; None for the variance
    """

    value: NDArray[np.int64]
    zero: float | None = None

    @property
    def number(self) -> int:
        """Number of counts of a node: 1, the weight."""
        return 1

    @property
    def table(self) -> None:
        """None, because no classes are scored."""


class Edges(NamedTuple):
    """Splits of a feature between buckets or rows, with the statistics of the left side; scratch.

    Each array has LANES + 1 entries more than there are buckets, or rows that are scored together.

    w_l    uint32, weight
    sum_l  int64, sum of (target - centre of the node)
    code   uint32, the largest code on the left
    score  float64, see score_edges_sums of regression.py
    """

    w_l: NDArray[np.uint32]
    sum_l: NDArray[np.int64]
    code: NDArray[np.uint32]
    score: NDArray[np.float64]


class RegressionScratch(NamedTuple):
    """Scratch of one growing regression tree.

    The centre of a node is the mean of its targets, rounded down.

    position     uint64 [rows of the root], 0, 1, ...: lower halves of sort keys, instead of class and multiplicity
    rows         int64 [rows of the root, 2], by index in the node: multiplicity, (target - centre) * multiplicity
    buckets      int64 [most_buckets(rows), 2], weight and sum of the rows in each bucket
    above        int64 [most_buckets(rows)], like the sums in `buckets`, but only of rows above the centre
    edges        splits before each bucket, and after the last
    most, least  int64 [most_buckets(rows) + LANES], largest and smallest sum on the left of the splits in each bucket
    inner        splits between the rows of a bucket, BUCKETS_SUMS at a time
    poisson      for the Poisson deviance float64 [2]: RegressionTarget.zero, and `origin` of the node, which is
                 centre - zero; None for the variance
    """

    position: NDArray[np.uint64]
    rows: NDArray[np.int64]
    buckets: NDArray[np.int64]
    above: NDArray[np.int64]
    edges: Edges
    most: NDArray[np.int64]
    least: NDArray[np.int64]
    inner: Edges
    poisson: NDArray[np.float64] | None


def make_edges(splits: int) -> Edges:
    """Allocate Edges for this many splits."""
    size = splits + 1 + LANES
    return Edges(np.empty(size, np.uint32), np.empty(size, np.int64), np.empty(size, np.uint32), np.empty(size))


def make_regression_scratch(rows: int, zero: float | None) -> RegressionScratch:
    """Allocate RegressionScratch for nodes of up to `rows` rows; zero: of RegressionTarget."""
    buckets = most_buckets(rows)
    return RegressionScratch(
        np.arange(rows, dtype=np.uint64),
        np.empty((rows, 2), np.int64),
        np.empty((buckets, 2), np.int64),
        np.empty(buckets, np.int64),
        make_edges(buckets),
        np.empty(buckets + LANES, np.int64),
        np.empty(buckets + LANES, np.int64),
        make_edges(BUCKETS_SUMS),
        None if zero is None else np.array([zero, np.nan]),
    )


@inlined
def sum_items(items, value, total):
    """Fill total with the statistics of the items."""
    if value is None:
        sum_classes(items, total)
    else:
        total[0] = 0
        total[1] = 0
        for i in range(np.uint64(items.size)):
            multiplicity = np.int64(items[i] & BITS16)
            total[0] += multiplicity
            total[1] += multiplicity * value[items[i] >> SHIFT32]


@inlined
def node_stats(nodes, number, total, value):
    """Write the statistics of node `number`. Return its weight, and the sum of squares of its class weights (0 for
    regression)."""
    if value is None:
        weight = ZERO_I64
        sq = ZERO_I64
        for k in range(np.uint64(total.size)):
            class_weight = total[k]
            weight += class_weight
            sq += class_weight * class_weight
            nodes.counts[number, k] = class_weight
        return weight, sq
    nodes.counts[number, ZERO] = total[0]
    nodes.sum[number] = total[1]
    return total[0], ZERO_I64


@inlined
def set_origin(poisson, centre):
    """Set `origin` of a node with this centre, for the Poisson deviance."""
    if poisson is not None:
        poisson[ONE] = np.float64(centre) - poisson[ZERO]


@inlined
def view_node(items, total, weight, sq, key, value, sums):
    """Return the Node of the items with these statistics, and True if all its targets are equal. Fill sums.rows.

    value  regression targets of the table; None for classes. The second result is then False, because pure nodes are
           leaves already
    """
    if value is None:
        return Node(items, total, weight, sq, key), False
    centre = total[1] // weight
    set_origin(sums.poisson, centre)
    spread = ZERO_I64
    rows = sums.rows
    for i in range(np.uint64(items.size)):
        multiplicity = np.int64(items[i] & BITS16)
        deviation = value[items[i] >> SHIFT32] - centre
        spread |= deviation
        rows[i, ZERO] = multiplicity
        rows[i, ONE] = multiplicity * deviation
    return Node(items, total, weight, total[1] - centre * weight, key), spread == 0


@inlined
def sum_left(node, size_l, best, total_l, sums):
    """Set total_l to the statistics of the left side of the best split, which has the first size_l items."""
    if sums is None:
        n = np.uint64(node.items.size)
        is_right = size_l + size_l > n  # sum the side with fewer rows
        sum_classes(node.items[size_l if is_right else ZERO : n if is_right else size_l], total_l)
        if is_right:
            for k in range(np.uint64(total_l.size)):
                total_l[k] = node.total[k] - total_l[k]
    else:
        total_l[0] = best.split[W_L]
        total_l[1] = best.split[SQ_L] + node.total[1] // node.weight * best.split[W_L]
