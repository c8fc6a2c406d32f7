"""Single steps of splitting a node by passes: draws of features and directions, and steps of trees in subspaces.

Growing in memory takes the same steps within one kernel. Here grow/out_of_core calls each of them between passes over
the table. Oracles: kernels/scan/features.py, kernels/oblique/directions.py and kernels/subspace/split.py, through
grow/out_of_core and grow/families/subspace.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import SHIFT32, ZERO, class_of
from bigforest.kernels.compiler.jit import kernel
from bigforest.kernels.oblique.directions import draw_cells, draw_column
from bigforest.kernels.oblique.mean_difference import is_offered
from bigforest.kernels.scan.draw import draw_feature, wanted_features
from bigforest.kernels.subspace.columns import farthest_classes, weigh_row
from bigforest.kernels.subspace.split import (
    aim_axis,
    best_stop,
    choose_sides,
    draw_columns,
    learn_row,
    place_stops,
    tells_apart,
    weigh_mean,
)


@kernel
def draw_order(key, rules, draw):
    """Draw all features in the node `key` as find_feature of kernels/scan/features.py does.

    draw.perm becomes their order, the first drawn first. Return the number of features that the node wants, see
    wanted_features of kernels/scan/draw.py.
    """
    features = np.uint64(draw.perm.size)
    state = key
    for drawn in range(features):
        _, state = draw_feature(draw, drawn, state)
    return wanted_features(rules, key, features)


@kernel
def draw_direction(sparse, key, column, at, drawn):
    """Write the terms of a column of the node `key` into row 0 of the arrays of `drawn`, and return as
    directions.draw_column. Cells are drawn with the first column."""
    if column == ZERO:
        draw_cells(sparse, key, drawn.cells)
    return draw_column(sparse, key, column, at, drawn, ZERO)


@kernel
def offered_differences(key, columns, features, offered):
    """Set offered[j], bool, to True if the node `key` tries difference j; see mean_difference.is_offered."""
    for j in range(np.uint64(offered.size)):
        offered[j] = is_offered(key, j, columns, features)


@kernel
def choose_columns(subspace, key, wanted):
    """Draw `wanted` columns (uint64) for the node `key`; see subspace/split.py draw_columns."""
    draw_columns(subspace, key, wanted)


@kernel
def aim_node(subspace, key, wanted, total, sums):
    """Set the current direction to the difference of the two class means farthest apart.

    key, wanted  as in `choose_columns`: the columns of the node are drawn again
    total        int64 [classes], class weights of the node
    sums         int64 [columns of the node, classes], sums of the columns in steps

    Stops (thresholds to try) are placed between the two means, and subspace.far is set (`choose_sides`). Return True if
    two means differ, and the projections of both.
    """
    draw_columns(subspace, key, wanted)
    for k in range(np.uint64(total.size)):
        if total[k] == 0:
            continue
        size = np.float64(total[k])
        for j in range(subspace.size[0]):
            c = np.uint64(subspace.column[j])
            subspace.mean[k, c] = np.float64(sums[j, k]) / size * subspace.space.unit[c]
    first, second = farthest_classes(subspace, total)
    if first == second:
        return False, 0.0, 0.0
    choose_sides(subspace, total, first, second)
    aim_axis(subspace, first, second)
    begin, end = weigh_mean(subspace, first), weigh_mean(subspace, second)
    place_stops(subspace, begin, end)
    return True, begin, end


@kernel
def choose_stop(subspace, total, size, min_leaf):
    """Return the number of the best stop, 0 for none, from subspace.hist; see best_stop."""
    return best_stop(subspace, total, size, min_leaf)


@kernel
def learn_rows(before, now, items, cut_before, cut, left):
    """Continue a pass of training a perceptron over these items. Return the new cut.

    before      Subspace of the same columns, with the direction at the end of the last pass
    now         Subspace whose direction the training changes
    cut_before  cut at the end of the last pass
    left        int64 [classes], added to: rows that the direction of `before` sends left
    """
    for i in range(np.uint64(items.size)):
        row, k = items[i] >> SHIFT32, class_of(items[i])
        left[k] += np.int64(weigh_row(before, row) <= cut_before)
        cut, _ = learn_row(now, row, now.far[k], cut)
    return cut


@kernel
def is_split(left, total, size, min_leaf):
    """Return True if a perceptron that sends left[k] rows of each class k left is a split; see tells_apart."""
    return tells_apart(left, total, size, min_leaf)
