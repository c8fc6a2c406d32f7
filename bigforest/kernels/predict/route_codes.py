"""Route rows of the store through a tree that has just been grown: the list of rows is partitioned at each node.

Nodes on one feature compare codes. A row that was not in the node when it was split may have a code between the largest
code on the left and the smallest on the right. These rows are few, and their values are compared with the threshold, as
in prediction; so no threshold is turned into a code, unless passes have done so (grow/out_of_core/passed_leaves.py).
Oblique nodes compare projections of values that are looked up by codes or are in memory; the terms of a node are read
once for all its rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import on_column
from bigforest.kernels.common.layout import LEAF, OBLIQUE
from bigforest.kernels.common.partition import partition_by, partition_rows
from bigforest.kernels.compiler.jit import inlined, kernel

# Kinds of features, those of kernels/scan/categorical_missing.py.
_MISSING, _CATEGORY = 1, 2
_ONE = np.uint64(1)
_ALL = np.uint32(0xFFFFFFFF)


class GrownSplits(NamedTuple):
    """Trees in codes, one after the other.

    feature, right, left_code, right_code, threshold  see forest/nodes.py TreeArrays. `threshold` and `right_code` are
                  None if codes up to `left_code` go left and all others right, compiled separately
    default_left  bool [nodes], whether rows without a value, or with a level that is not listed, go left
    offsets, low  the dictionary of feature f begins with low[offsets[f]], the smallest value of each code
    kind          uint8 [features], as in categorical_missing.py; None if all are plain numbers, compiled separately
    start, level  node i lists the levels level[start[i]:start[i + 1]]; both are empty if there are no categories
    """

    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    left_code: NDArray[np.uint32]
    right_code: NDArray[np.uint32] | None
    threshold: NDArray[np.float64] | None
    default_left: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    low: NDArray[np.float64]
    kind: NDArray[np.uint8] | None
    start: NDArray[np.int64]
    level: NDArray[np.uint32]


class CodeScratch(NamedTuple):
    """Scratch of a call.

    spare   uint32 [rows sent]
    stack   uint64 [deepest node + 2, 3]
    listed  bool [codes of the largest category], all False
    """

    spare: NDArray[np.uint32]
    stack: NDArray[np.uint64]
    listed: NDArray[np.bool_]


@inlined
def decided(without, code, left):
    """Return whether a row goes left, 1 or 0: `left`, except for a missing value, whose code is 0.

    without  1 if missing values go left, 0 if they go right, 2 if the feature has none; None if no feature has missing
             values, compiled separately
    """
    if without is None:
        return left
    return np.uint64(without) if (without < np.uint8(2)) & (code == np.uint32(0)) else left


@inlined
def code_is_up_to(i, row, column, below, without):
    """Return whether a row goes left at a node on a number, as uint64: its code is at most `below`; without: see
    `decided`."""
    code = np.uint32(column[np.uint64(row)])
    return decided(without, code, np.uint64(code <= below))


@inlined
def code_goes_left(i, row, column, bounds, low, threshold, without):
    """Return whether a row goes left at a node on a number, as uint64.

    bounds   codes up to the first bound go left, codes from the second on go right; between them, `low` of the code is
             compared with the threshold
    without  see `decided`
    """
    below, above = bounds
    code = np.uint32(column[np.uint64(row)])
    left = np.uint64(code <= below)
    after = np.uint32(below + np.uint32(1))
    if np.uint32(code - after) < np.uint32(above - after):
        left = np.uint64(low[np.uint64(code)] <= threshold)
    return decided(without, code, left)


@inlined
def level_goes_left(i, row, column, listed, others_left):
    """Return whether a row goes left at a node on a category, as uint64: listed levels go to one side, all others to
    the opposite side."""
    return np.uint64(listed[np.uint64(column[np.uint64(row)])] != others_left)


@inlined
def mark_levels(splits, node, listed, mark):
    """Mark the levels that a node lists, or clear the marks."""
    for i in range(splits.start[node], splits.start[node + _ONE]):
        listed[np.uint64(splits.level[np.uint64(i)])] = mark


@inlined
def part_numbers(column, splits, threshold, without, node, rows, spare):
    """Partition the rows of a node on a number by the codes in `column`, with the field threshold of `splits`.

    without  see `decided`
    """
    below = splits.left_code[node]
    if threshold is None:
        return partition_by(code_is_up_to, (column, below, without), rows, spare)
    else:  # noqa: RET505, only this form is dropped when threshold is None
        above = splits.right_code[node]
        if without is not None:
            # All values on one side: codes do not decide.
            one_sided = (without < np.uint8(2)) & ((below == np.uint32(0)) | (above == np.uint32(0)))
            below, above = (np.uint32(0), _ALL) if one_sided else (below, above)
        low = splits.low[np.uint64(splits.offsets[np.uint64(splits.feature[node])]) :]
        arguments = (column, (below, above), low, threshold[node], without)
        return partition_by(code_goes_left, arguments, rows, spare)


@inlined
def part_cells(column, splits, threshold, kind, node, rows, scratch):
    """Partition the rows of a node by the codes in `column`, with the fields threshold and kind of `splits`."""
    if kind is None:
        return part_numbers(column, splits, threshold, None, node, rows, scratch.spare)
    else:  # noqa: RET505, only this form is dropped when kind is None
        feature = np.uint64(splits.feature[node])
        if kind[feature] == _CATEGORY:
            mark_levels(splits, node, scratch.listed, True)
            levels = (column, scratch.listed, splits.default_left[node])
            size_l = partition_by(level_goes_left, levels, rows, scratch.spare)
            mark_levels(splits, node, scratch.listed, False)
            return size_l
        without = np.uint8(splits.default_left[node]) if kind[feature] == _MISSING else np.uint8(2)
        return part_numbers(column, splits, threshold, without, node, rows, scratch.spare)


@inlined
def part_rows(codes, splits, node, rows, scratch):
    """Partition the rows of a node; return how many go left."""
    arguments = (splits, splits.threshold, splits.kind, node, rows, scratch)
    return on_column(codes, codes.place, np.uint64(splits.feature[node]), part_cells, arguments)


@inlined
def descend_rows(part, codes, splits, root, rows, leaf, scratch):
    """Find the leaves of rows, as `find_leaves`; part(codes, splits, node, rows, scratch) partitions the rows of a node
    and returns the number of rows on the left."""
    stack = scratch.stack
    stack[0, 0], stack[0, 1], stack[0, 2] = np.uint64(root), np.uint64(0), np.uint64(rows.size)
    size = _ONE
    while size > np.uint64(0):
        size -= _ONE
        node, begin, end = stack[size, 0], stack[size, 1], stack[size, 2]
        while splits.feature[node] != LEAF and begin < end:
            at = begin + part(codes, splits, node, rows[begin:end], scratch)
            if at < end:
                right = np.uint64(root) + np.uint64(splits.right[node])
                stack[size, 0], stack[size, 1], stack[size, 2] = right, at, end
                size += _ONE
            end = at
            node += _ONE
        for i in range(begin, end):
            leaf[np.uint64(rows[i])] = np.uint32(node - np.uint64(root))


@kernel
def find_leaves(codes, splits, root, rows, leaf, scratch):
    """Find the leaf of a tree in which each row of `rows` ends.

    codes, splits, scratch  Codes, GrownSplits, CodeScratch
    root  position of the root among the nodes
    rows  uint32 [rows sent], mutated: put in the order of the leaves
    leaf  uint32 [rows of the table], out for the rows sent: number of the leaf in its tree

    Cost: one visit per row and level, of about 2 ns. Oracle: tests/naive/predict.py find_leaf.
    """
    descend_rows(part_rows, codes, splits, root, rows, leaf, scratch)


class ProjectedSplits(NamedTuple):
    """Trees, one after the other, whose nodes are numbered consecutively; no feature is a category or lacks values.

    feature, right, threshold  see forest/nodes.py TreeArrays
    start, term, weight        the terms of node i are start[i]:start[i + 1], see kernels/common/layout.py Terms
    offsets, low               the dictionary of feature f begins with low[offsets[f]]; low is None if cells are values,
                               compiled separately
    """

    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    threshold: NDArray[np.float64]
    start: NDArray[np.int64]
    term: NDArray[np.int32]
    weight: NDArray[np.float64]
    offsets: NDArray[np.int64]
    low: NDArray[np.float64] | None


class ProjectedScratch(NamedTuple):
    """Scratch of a call.

    spare  uint32 [rows sent]
    value  float64 [rows sent]
    stack  uint64 [deepest node + 2, 3]
    """

    spare: NDArray[np.uint32]
    value: NDArray[np.float64]
    stack: NDArray[np.uint64]


@inlined
def add_cells(column, low, first, weight, rows, value):
    """Add weight * low[first + code], or weight * cell where low is None, to value[i] for rows[i]."""
    for i in range(np.uint64(rows.size)):
        cell = column[np.uint64(rows[i])]
        if low is None:
            value[i] += weight * np.float64(cell)
        else:
            value[i] += weight * low[first + np.uint64(cell)]


@inlined
def compared_values(codes, splits, node, rows, value):
    """Set value[i] to the number of rows[i] that a node compares with its threshold: a projection, or a value of its
    feature."""
    for i in range(np.uint64(rows.size)):
        value[i] = 0.0
    begin, end = np.uint64(splits.start[node]), np.uint64(splits.start[node + _ONE])
    count, weight = end - begin, 1.0
    feature = np.uint64(0)
    if splits.feature[node] != OBLIQUE:
        count, feature = _ONE, np.uint64(splits.feature[node])
    for t in range(count):
        if splits.feature[node] == OBLIQUE:
            feature, weight = np.uint64(splits.term[begin + np.uint64(t)]), splits.weight[begin + np.uint64(t)]
        arguments = splits.low, np.uint64(splits.offsets[feature]), weight, rows, value
        on_column(codes, codes.place, feature, add_cells, arguments)


@inlined
def part_projected(codes, splits, node, rows, scratch):
    """Partition the rows of a node, see descend_rows."""
    compared_values(codes, splits, node, rows, scratch.value)
    return partition_rows(scratch.value, splits.threshold[node], rows, scratch.spare)


@kernel
def find_projected_leaves(codes, splits, root, rows, leaf, scratch):
    """Find the leaf of a tree of oblique nodes in which each row of `rows` ends.

    codes, splits, scratch  Codes, or BlockValues (kernels/out_of_core/blocks.py), ProjectedSplits, ProjectedScratch
    root  position of the root among the nodes
    rows  uint32 [rows sent], mutated: put in the order of the leaves
    leaf  uint32 [rows of the table], out for the rows sent: number of the leaf in its tree

    Cost: one visit per row, level and term. Oracle: tests/naive/predict.py find_leaf.
    """
    descend_rows(part_projected, codes, splits, root, rows, leaf, scratch)
