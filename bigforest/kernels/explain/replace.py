"""Predictions of trees for rows with replaced values: importance by permutation, and dependence on some features.

Permutation (Breiman 2001, section 10): the values of a feature are permuted among the out-of-bag rows of a tree. A row
is routed once. Each node checks, for every feature of its split, whether the permuted value would go to the other
child. The first time it does, the row is also routed with that value from the other child on, and the losses of the two
leaves are compared. A feature off the path costs nothing. A feature on it costs the path below the node where the two
routes separate.

Dependence (`vary`): some values of a row are replaced by each point of a grid.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.partition import partition_by
from bigforest.kernels.common.rng import GOLDEN, below, mix
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.explain.step import (
    NO_GROUP,
    PADDING,
    count_terms,
    leaf_from,
    link_of,
    node_terms,
    replaced_value,
    right_of,
    row_goes_left,
    table_value,
    term_column,
)

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
# Group of the columns that `vary` varies.
_VARIED = np.int64(0)

# Separates the streams of permutations from the streams of kernels/common/rng.py.
PURPOSE_PERMUTE = np.uint64(101)


class LeafLosses(NamedTuple):
    """Data from which `_loss` computes the loss of a leaf on a row.

    truth    uint16 [all rows], the class of each; float64, the target of each, if `squared`
    weight   float64 [all rows]; None if all weights are 1
    begin    uint64, position of the root: the first node of the tree
    loss     float64 [nodes of the tree, classes], the loss of a leaf on a row of each class; if `squared` [nodes, 1],
             the prediction of the leaf
    squared  True if the loss is the squared error of a number
    """

    truth: NDArray[Any]
    weight: NDArray[np.float64] | None
    begin: np.uint64
    loss: NDArray[np.float64]
    squared: bool = False


class Parted(NamedTuple):
    """Scratch: the groups of features whose replaced values send a row to another child, and that child for each.

    seen   uint32 [groups], zeros before each call: the stamp of the last row for which the group was listed
    group  int32 [groups], listed groups
    node   uint32 [groups], the child for each listed group
    """

    seen: NDArray[np.uint32]
    group: NDArray[np.int32]
    node: NDArray[np.uint32]


def make_parted(groups: int) -> Parted:
    """Allocate a Parted."""
    return Parted(np.zeros(groups, np.uint32), np.empty(groups, np.int32), np.empty(groups, np.uint32))


class Losses(NamedTuple):
    """Sums of losses: a column for each class of the rows; a single column for regression; or a column for each row.

    change  float64 [groups, columns], increase of the loss when a group is permuted
    loss    float64 [columns], loss without permutation
    weight  float64 [columns], weights of the rows
    """

    change: NDArray[np.float64]
    loss: NDArray[np.float64]
    weight: NDArray[np.float64]


@inlined
def row_weight(weight, row):
    if weight is None:
        return 1.0
    return weight[row]


@inlined
def _loss(leaf_losses, row, leaf):
    """Return the loss of a leaf on a row."""
    losses, truth = leaf_losses.loss[leaf - leaf_losses.begin], leaf_losses.truth[row]
    if leaf_losses.squared:
        return (losses[_ZERO] - truth) * (losses[_ZERO] - truth)
    return losses[np.uint64(truth)]


@kernel
def shuffle_columns(values, rows, columns, keys, drawn):
    """Set drawn[c] to values[rows, columns[c]] in random order.

    rows     uint32 [rows]
    columns  uint64 [columns]
    keys     uint64 [columns], keys of the streams of draws: the same key makes the same order
    drawn    [columns, rows], set

    The shuffle of Fisher and Yates, as in Durstenfeld 1964. Oracle: tests/naive/explain.py shuffled.
    """
    for i in range(np.uint64(rows.size)):
        row = np.uint64(rows[i])
        for c in range(np.uint64(columns.size)):
            drawn[c, i] = values[row, columns[c]]
    for c in range(np.uint64(columns.size)):
        _shuffle(drawn, c, keys[c])


@inlined
def _shuffle(drawn, column, key):
    size, state = np.uint64(drawn.shape[1]), key
    for i in range(size):
        last = size - _ONE - i
        state += GOLDEN
        other = below(mix(state), last + _ONE)
        drawn[column, last], drawn[column, other] = drawn[column, other], drawn[column, last]


@inlined
def _separate(trees, replaced, row, at, begin, parted, stamp):
    """Route a row from the root at `begin`. List in `parted` the groups whose replaced values send it to another child.

    at     the column of `replaced.drawn` with the other values of the row
    stamp  a number of the row, other than 0. Other stamps in `parted.seen` are from earlier rows

    Return the leaf of the row, and the number of listed groups. A group is listed with the child where its other route
    begins.
    """
    layout, directions, sets, values = trees.layout, trees.directions, trees.sets, replaced.values
    waiting = _ZERO
    node = begin
    while link_of(layout, node) != _ZERO:
        left = row_goes_left(table_value, values, row, _ZERO, NO_GROUP, trees, directions, sets, node)
        right = right_of(layout, node)
        for t in range(node_terms(layout, directions, sets, node)):
            column = term_column(layout, directions, sets, node, t)
            group = NO_GROUP if column == PADDING else np.int64(replaced.group[column])
            if group == NO_GROUP or parted.seen[group] == stamp:
                continue
            if row_goes_left(replaced_value, replaced, row, at, group, trees, directions, sets, node) != left:
                parted.seen[group] = stamp
                parted.group[waiting] = np.int32(group)
                parted.node[waiting] = np.uint32(right if left else node + _ONE)
                waiting += _ONE
        node = node + _ONE if left else right
    return node, waiting


@kernel
def permute(trees, replaced, rows, columns, leaf_losses, parted, sums):
    """Add up the increase of the loss of a tree when the values of each group of features are the permuted ones.

    rows     uint32 [rows]: rows[i] gets the values of column i of `replaced.drawn`
    columns  uint32 [rows], column of `sums` (Losses) for each row

    Cost: two visits per row and level, and a walk down the rest of the tree for each row and group that separates.
    Oracle: tests/naive/explain.py permuted_change.
    """
    for at in range(np.uint64(rows.size)):
        row = np.uint64(rows[at])
        leaf, waiting = _separate(trees, replaced, row, at, leaf_losses.begin, parted, np.uint32(at + _ONE))
        before = _loss(leaf_losses, row, leaf)
        weight, column = row_weight(leaf_losses.weight, row), np.uint64(columns[at])
        sums.loss[column] += weight * before
        sums.weight[column] += weight
        for w in range(waiting):
            group = np.int64(parted.group[w])
            begin = np.uint64(parted.node[w])
            other = leaf_from(replaced_value, replaced, row, at, group, trees, trees.directions, trees.sets, begin)
            sums.change[group, column] += weight * (_loss(leaf_losses, row, other) - before)


@kernel
def permute_answers(trees, replaced, rows, begin, answer, first, parted, leaves, change):
    """Add up the changes of the answers of a tree when the values of each group of features are the permuted ones.

    rows    uint32 [rows]: row r of `replaced.values` gets the values of column r of `replaced.drawn`
    begin   uint64, position of the root
    answer  float64 [nodes of the tree, numbers], value of each node
    first   uint64, place of the first number of an answer in `change`
    leaves  uint32 [rows], set to the leaf of each row without permuted values, as a node of the tree
    change  float64 [groups, all rows, at least first + numbers]

    Cost as `permute`, for all numbers together. Oracle: tests/naive/explain.py refined_change.
    """
    for at in range(np.uint64(rows.size)):
        row = np.uint64(rows[at])
        leaf, waiting = _separate(trees, replaced, row, row, begin, parted, np.uint32(at + _ONE))
        leaves[at] = np.uint32(leaf - begin)
        for w in range(waiting):
            group = np.int64(parted.group[w])
            node = np.uint64(parted.node[w])
            other = leaf_from(replaced_value, replaced, row, row, group, trees, trees.directions, trees.sets, node)
            for k in range(np.uint64(answer.shape[1])):
                change[group, row, first + k] += answer[other - begin, k] - answer[leaf - begin, k]


@kernel
def decreases(trees, begin, end, answer, labels, out):
    """Add up the decrease of impurity on rows outside the bag: MDI-oob (Li, Wang, Basu, Kumbier and Yu 2019).

    begin, end  uint64, range of the tree among the nodes
    answer      float64 [nodes of the tree, classes], means of nodes over the bag; for regression [nodes, 1]
    labels      float64 [nodes of the tree, classes], the labels of the rows in each leaf, summed; inner nodes are set
    out         float64 [columns], increased by the sum over the rows in a node of label * (answer of the child of the
                row - answer of the node), divided equally among the features of the node

    On the rows of the bag the result would be the decrease of Gini impurity, or of variance. Oracle:
    tests/naive/explain.py oob_decrease.
    """
    layout, directions, sets = trees.layout, trees.directions, trees.sets
    classes = np.uint64(answer.shape[1])
    for back in range(np.uint64(end - begin)):
        node = np.uint64(end - begin) - _ONE - back
        at = begin + node
        if link_of(layout, at) == _ZERO:
            continue
        left, right = node + _ONE, right_of(layout, at) - begin
        decrease = 0.0
        for k in range(classes):
            labels[node, k] = labels[left, k] + labels[right, k]
            decrease += labels[left, k] * (answer[left, k] - answer[node, k])
            decrease += labels[right, k] * (answer[right, k] - answer[node, k])
        shares = count_terms(layout, directions, sets, at)
        for t in range(node_terms(layout, directions, sets, at)):
            column = term_column(layout, directions, sets, at, t)
            if column != PADDING:
                out[column] += decrease / shares


class VaryScratch(NamedTuple):
    """Points of a row that are still to be routed, in ranges, each from a node. All arrays are uint32 [points].

    order, spare      numbers of the points; scratch to partition them
    node, begin, end  for each waiting range, its node, and its begin and end in `order`
    """

    order: NDArray[np.uint32]
    spare: NDArray[np.uint32]
    node: NDArray[np.uint32]
    begin: NDArray[np.uint32]
    end: NDArray[np.uint32]


@inlined
def _point_goes_left(i, point, trees, directions, sets, replaced, row, drawn, node):
    """Return 1 if a point of a row goes left at a node, else 0, as uint64.

    drawn  column of `replaced.drawn` of each point
    """
    other = np.uint64(drawn[point])
    return np.uint64(row_goes_left(replaced_value, replaced, row, other, _VARIED, trees, directions, sets, node))


@kernel
def vary(trees, root, answer, replaced, rows, points, scratch, out):
    """Add, for each row and each of its points, the value of the leaf where the row ends with the values of the point.

    root      uint64, position of the root
    answer    float64 [nodes of the tree, classes], value of each node
    replaced  Replaced, with group 0 for varied columns
    rows      uint32 [rows]
    points    uint32 [rows, points of a row], columns of `replaced.drawn`; or [1, points], the same for all rows
    out       float64 [rows, points of a row, classes], increased by the values

    All points are routed together, and separate only at nodes that split on a varied feature. Cost: a visit per level
    and range of points. Oracle: tests/naive/predict.py find_leaf.
    """
    layout, directions, sets, values = trees.layout, trees.directions, trees.sets, replaced.values
    for at in range(np.uint64(rows.size)):
        row = np.uint64(rows[at])
        drawn = points[at if points.shape[0] > 1 else _ZERO]
        for p in range(np.uint64(drawn.size)):
            scratch.order[p] = np.uint32(p)
        waiting, node, begin, end = _ZERO, np.uint64(root), _ZERO, np.uint64(drawn.size)
        while True:
            if link_of(layout, node) != _ZERO:
                cut = begin
                if _looks_at_varied(layout, directions, sets, replaced.group, node):
                    arguments = (trees, directions, sets, replaced, row, drawn, node)
                    cut += partition_by(_point_goes_left, arguments, scratch.order[begin:end], scratch.spare)
                elif row_goes_left(table_value, values, row, _ZERO, NO_GROUP, trees, directions, sets, node):
                    cut = end
                right = right_of(layout, node)
                if begin < cut < end:
                    scratch.node[waiting] = np.uint32(right)
                    scratch.begin[waiting], scratch.end[waiting] = np.uint32(cut), np.uint32(end)
                    waiting += _ONE
                node = node + _ONE if cut > begin else right
                end = cut if cut > begin else end
                continue
            for p in range(begin, end):
                point = np.uint64(scratch.order[p])
                for k in range(np.uint64(answer.shape[1])):
                    out[at, point, k] += answer[node - root, k]
            if waiting == _ZERO:
                break
            waiting -= _ONE
            node = np.uint64(scratch.node[waiting])
            begin, end = np.uint64(scratch.begin[waiting]), np.uint64(scratch.end[waiting])


@inlined
def _looks_at_varied(layout, directions, sets, group, node):
    varied = False
    for t in range(node_terms(layout, directions, sets, node)):
        column = term_column(layout, directions, sets, node, t)
        if column != PADDING:
            varied = varied or group[column] == _VARIED
    return varied
