"""Route rows of the store through a tree that has just been grown: the list of rows is partitioned at each node.

Nodes on one feature compare codes. A row that was not in the node when it was split may have a code between the largest
code on the left and the smallest on the right. The values of these few rows are compared with the threshold, as in
prediction. Trees grown by passes do not need this: their thresholds are turned into codes first
(grow/out_of_core/out_of_bag.py).

Oblique nodes compare projections of values. The values are looked up by codes, unless the cells are values (CodeView).
The terms of a node are read once for all its rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import of_column
from bigforest.kernels.common.layout import CATEGORY, LEAF, MISSING, OBLIQUE, CodeValues, LevelLists, Terms
from bigforest.kernels.common.partition import partition_by, partition_rows
from bigforest.kernels.compiler.jit import inlined, kernel

_ONE = np.uint64(1)
_ALL = np.uint32(0xFFFFFFFF)


class CodeView(NamedTuple):
    """The codes of a table by columns and by rows, one matrix after the other, read-only.

    u8, u16, u32  by columns: the cell of a row is at index row + slot * rows[matrix]. Cells that are values have the
                  types uint8, float32 and float64, and in `place` the widths 1, 2 and 4
    r8, r16, r32  by rows: index row * widths[matrix] + slot; empty if there is no copy by rows
    rows, widths  uint64 [3], rows and columns of each matrix
    place         uint32 [features, 2], width and column in the matrix (slot), see kernels/common/layout.py Codes
    reach         uint64, a node of up to this many rows is read by rows; 0 if there is no copy by rows
    """

    u8: NDArray[np.uint8]
    u16: NDArray[Any]
    u32: NDArray[Any]
    r8: NDArray[np.uint8]
    r16: NDArray[Any]
    r32: NDArray[Any]
    rows: NDArray[np.uint64]
    widths: NDArray[np.uint64]
    place: NDArray[np.uint32]
    reach: np.uint64


class GrownSplits(NamedTuple):
    """Trees in codes, one after the other.

    feature, right, threshold, below, above
                  see forest/nodes.py TreeArrays. `threshold` and `above` are None if codes up to `below` go left and
                  all others right
    default_left  bool [nodes], True if rows without a value, or with a level that is not listed, go left
    kind          uint8 [features], see kernels/common/layout.py; None if all are plain numbers
    levels        empty without categories
    terms         None if nodes compare codes. Otherwise they compare projections with `threshold`, and `below` to
                  `levels` are None
    values        None if cells are values; then nodes compare projections

    Kernels are compiled separately for fields that are None.
    """

    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    threshold: NDArray[np.float64] | None
    below: NDArray[np.uint32] | None = None
    above: NDArray[np.uint32] | None = None
    default_left: NDArray[np.bool_] | None = None
    kind: NDArray[np.uint8] | None = None
    levels: LevelLists | None = None
    terms: Terms | None = None
    values: CodeValues | None = None


class CodeScratch(NamedTuple):
    """Scratch of `find_leaves`.

    read    [rows sent], codes of the rows of a node, uint32, or with terms their projections, float64
    spare   uint32 [rows sent]
    stack   uint64 [depth of the tree + 2, 3]: node, begin and end of each range of rows that waits
    listed  bool [codes of the largest category], all False
    """

    read: NDArray[Any]
    spare: NDArray[np.uint32]
    stack: NDArray[np.uint64]
    listed: NDArray[np.bool_]


@inlined
def decided(missing_side, code, left):
    """Return the side of missing values for a row without a value (code 0), else `left`. 1 is the left side, 0 the
    right side.

    missing_side  1 if missing values go left, 0 if they go right, 2 if the feature has none; None if no feature has
                  missing values, compiled separately
    """
    if missing_side is None:
        return left
    return np.uint64(missing_side) if (missing_side < np.uint8(2)) & (code == np.uint32(0)) else left


@inlined
def code_is_up_to(i, row, codes, below, missing_side):
    """Return 1 if the code of a row is at most `below`, else 0, as uint64; missing_side: see `decided`."""
    return decided(missing_side, codes[i], np.uint64(codes[i] <= below))


@inlined
def code_goes_left(i, row, codes, bounds, low, threshold, missing_side):
    """Return 1 if a row goes left at a node on a number, else 0, as uint64.

    bounds        codes up to the first bound go left, codes from the second on go right; between them, `low` of the
                  code is compared with the threshold
    missing_side  see `decided`
    """
    below, above = bounds
    code = codes[i]
    left = np.uint64(code <= below)
    after = np.uint32(below + np.uint32(1))
    if np.uint32(code - after) < np.uint32(above - after):
        left = np.uint64(low[np.uint64(code)] <= threshold)
    return decided(missing_side, code, left)


@inlined
def level_goes_left(i, row, codes, listed, others_left):
    """Return 1 if a row goes left at a node on a category, else 0, as uint64: listed levels, or all others."""
    return np.uint64(listed[np.uint64(codes[i])] != others_left)


@inlined
def mark_levels(splits, node, listed, mark):
    """Mark the levels that a node lists, or clear the marks."""
    levels = splits.levels
    for i in range(levels.start[node], levels.start[node + _ONE]):
        listed[np.uint64(levels.code[np.uint64(i)])] = mark


@inlined
def part_numbers(codes, splits, threshold, missing_side, node, rows, spare):
    """Partition the rows of a node on a number by their codes. Return how many go left.

    threshold     field of `splits`
    missing_side  see `decided`
    """
    below = splits.below[node]
    if threshold is None:
        return partition_by(code_is_up_to, (codes, below, missing_side), rows, spare)
    else:  # noqa: RET505, only this form is dropped when threshold is None
        above = splits.above[node]
        if missing_side is not None:
            # All values were on one side when the node was split: the threshold decides, not the codes.
            one_sided = (missing_side < np.uint8(2)) & ((below == np.uint32(0)) | (above == np.uint32(0)))
            below, above = (np.uint32(0), _ALL) if one_sided else (below, above)
        low = splits.values.low[np.uint64(splits.values.offsets[np.uint64(splits.feature[node])]) :]
        return partition_by(code_goes_left, (codes, (below, above), low, threshold[node], missing_side), rows, spare)


@inlined
def part_codes(codes, splits, threshold, kind, node, rows, scratch):
    """Partition the rows of a node by their codes. Return how many go left. threshold, kind: fields of `splits`."""
    if kind is None:
        return part_numbers(codes, splits, threshold, None, node, rows, scratch.spare)
    else:  # noqa: RET505, only this form is dropped when kind is None
        feature = np.uint64(splits.feature[node])
        if kind[feature] == CATEGORY:
            mark_levels(splits, node, scratch.listed, True)
            levels = (codes, scratch.listed, splits.default_left[node])
            size_l = partition_by(level_goes_left, levels, rows, scratch.spare)
            mark_levels(splits, node, scratch.listed, False)
            return size_l
        missing_side = np.uint8(splits.default_left[node]) if kind[feature] == MISSING else np.uint8(2)
        return part_numbers(codes, splits, threshold, missing_side, node, rows, scratch.spare)


@inlined
def on_cells(view, feature, size, action, arguments):
    """Call action(cells, across, base, *arguments). The cell of the feature in a row is cells[row * across + base].

    size  uint64, number of rows; up to `reach` of CodeView are read by rows
    """
    width, slot = view.place[feature, 0], np.uint64(view.place[feature, 1])
    few = size <= view.reach
    matrix = np.uint64(width >> np.uint32(1))
    across, base = _ONE, slot * view.rows[matrix]
    if few:
        across, base = view.widths[matrix], slot
    if width == np.uint32(1):
        return action(view.r8 if few else view.u8, across, base, *arguments)
    if width == np.uint32(2):
        return action(view.r16 if few else view.u16, across, base, *arguments)
    return action(view.r32 if few else view.u32, across, base, *arguments)


@inlined
def fetch_cells(cells, across, base, rows, codes):
    """Set codes[i] to the code of rows[i]."""
    for i in range(np.uint64(rows.size)):
        codes[i] = np.uint32(cells[np.uint64(rows[i]) * across + base])


@inlined
def add_cells(cells, across, base, values, feature, weight, rows, out):
    """Add weight * value to out[i] for rows[i]; values: field of GrownSplits."""
    if values is None:
        for i in range(np.uint64(rows.size)):
            out[i] += weight * np.float64(cells[np.uint64(rows[i]) * across + base])
    else:
        low = values.low[np.uint64(values.offsets[feature]) :]
        for i in range(np.uint64(rows.size)):
            out[i] += weight * low[np.uint64(cells[np.uint64(rows[i]) * across + base])]


@inlined
def compared_values(terms, view, splits, node, rows, out):
    """Set out[i] to the projection, or the value of the feature, that a node compares with its threshold for rows[i].

    terms  field of `splits`
    """
    for i in range(np.uint64(rows.size)):
        out[i] = 0.0
    begin, end = np.uint64(terms.start[node]), np.uint64(terms.start[node + _ONE])
    count, weight = end - begin, 1.0
    feature = np.uint64(0)
    if splits.feature[node] != OBLIQUE:
        count, feature = _ONE, np.uint64(splits.feature[node])
    for t in range(count):
        if splits.feature[node] == OBLIQUE:
            feature, weight = np.uint64(terms.feature[begin + t]), terms.weight[begin + t]
        on_cells(view, feature, np.uint64(rows.size), add_cells, (splits.values, feature, weight, rows, out))


@inlined
def part_by_codes(view, splits, node, rows, scratch):
    """Partition the rows of a node that compares codes. Return how many go left."""
    on_cells(view, np.uint64(splits.feature[node]), np.uint64(rows.size), fetch_cells, (rows, scratch.read))
    return part_codes(scratch.read, splits, splits.threshold, splits.kind, node, rows, scratch)


@inlined
def part_by_projections(terms, view, splits, node, rows, scratch):
    """Partition the rows of a node that compares projections. Return how many go left."""
    compared_values(terms, view, splits, node, rows, scratch.read)
    return partition_rows(scratch.read, splits.threshold[node], rows, scratch.spare)


part_rows = of_column(part_by_codes, part_by_projections)


@kernel
def find_leaves(view, splits, root, rows, leaf, scratch):
    """Find the leaf of a tree in which each row of `rows` ends.

    view, splits, scratch  CodeView, GrownSplits, CodeScratch
    root  position of the root among the nodes
    rows  uint32 [rows sent], mutated: put in the order of the leaves
    leaf  uint32 [rows of the table], out for the rows sent: number of the leaf in its tree

    Cost: one visit per row and level, and per term if nodes are oblique, of about 2 ns.
    Oracle: tests/naive/predict.py find_leaf.
    """
    stack = scratch.stack
    stack[0, 0], stack[0, 1], stack[0, 2] = np.uint64(root), np.uint64(0), np.uint64(rows.size)
    size = _ONE
    while size > np.uint64(0):
        size -= _ONE
        node, begin, end = stack[size, 0], stack[size, 1], stack[size, 2]
        while splits.feature[node] != LEAF and begin < end:
            at = begin + part_rows(splits.terms, view, splits, node, rows[begin:end], scratch)
            if at < end:
                right = np.uint64(root) + np.uint64(splits.right[node])
                stack[size, 0], stack[size, 1], stack[size, 2] = right, at, end
                size += _ONE
            end = at
            node += _ONE
        for i in range(begin, end):
            leaf[np.uint64(rows[i])] = np.uint32(node - np.uint64(root))
