"""Splits of trees in subspaces that grow by passes, from statistics of a node: the steps of kernels/subspace/split.py,
one at a time. Oracle: kernels/subspace/split.py, through grow/families/subspace.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import SHIFT32, class_of
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.subspace.central_axis import aim_axis, best_stop, place_stops, weigh_mean
from bigforest.kernels.subspace.columns import farthest_classes, weigh_row
from bigforest.kernels.subspace.perceptron import choose_sides, learn_row, tells_apart
from bigforest.kernels.subspace.split import draw_columns


@kernel
def choose_columns(subspace, key, wanted):
    """Draw `wanted` columns (uint64) for the node of this key; see subspace/split.py draw_columns."""
    draw_columns(subspace, key, wanted)


@kernel
def aim_node(subspace, key, wanted, total, sums):
    """Aim from class mean to class mean in the columns that the node of this key draws; see choose_columns.

    total  int64 [classes]; sums int64 [columns of the node, classes], steps

    The current direction is the difference of the two means farthest apart; its stops are placed, and subspace.far is
    filled for the classes with a total (perceptron.choose_sides). Returns whether there are two means, and where they
    are on it.
    """
    draw_columns(subspace, key, wanted)
    for k in range(np.uint64(total.size)):
        if total[k] == 0:
            continue
        size = np.float64(total[k])
        for j in range(subspace.size[0]):
            c = np.uint64(subspace.column[j])
            subspace.mean[k, c] = np.float64(sums[j, k]) / size * subspace.space.unit[c]
    one, two = farthest_classes(subspace, total)
    if one == two:
        return False, 0.0, 0.0
    first, second = np.uint64(one), np.uint64(two)
    choose_sides(subspace, total, first, second)
    aim_axis(subspace, first, second)
    begin, end = weigh_mean(subspace, first), weigh_mean(subspace, second)
    place_stops(subspace, begin, end)
    return True, begin, end


@kernel
def choose_stop(subspace, total, size, min_leaf):
    """The number of the best stop, 0 for none, from subspace.hist; see central_axis.best_stop."""
    return best_stop(subspace, total, size, min_leaf)


@kernel
def learn_rows(before, now, items, cut_before, cut, left):
    """Continue a pass of training over these rows, from the current direction of `now`; returns its cut then.

    before  Subspace of the same columns with the direction that the last pass ended with, whose left is counted
    left    int64 [classes], added to
    """
    for i in range(np.uint64(items.size)):
        row, k = items[i] >> SHIFT32, class_of(items[i])
        left[k] += np.int64(weigh_row(before, row) <= cut_before)
        cut, _ = learn_row(now, row, now.far[k], cut)
    return cut


@kernel
def is_split(left, total, size, min_leaf):
    """Whether a perceptron that sends these classes left does; see perceptron.tells_apart."""
    return tells_apart(left, total, size, min_leaf)
