"""Sending rows down a tree of oblique nodes that has just been grown: values are looked up by codes, or are in memory.

The list of rows is parted from node to node: the terms of a node are read once for all its rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import OBLIQUE
from bigforest.kernels.common.partition import partition_rows
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.predict.route_codes import descend_rows, on_cells

_ONE = np.uint64(1)


class ProjectedSplits(NamedTuple):
    """Trees, one after the other, whose nodes are numbered consecutively; no feature is a category or lacks values.

    feature, right, threshold  see forest/nodes.py TreeArrays
    start, term, weight        the terms of node i are start[i]:start[i + 1], see kernels/common/layout.py Terms
    offsets, low               the dictionary of feature f begins with low[offsets[f]]; low is None where cells are
                               values, compiled separately
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
def add_cells(cells, across, base, low, first, weight, rows, value):
    """Add weight * low[first + code], or weight * cell where low is None, to value[i] for rows[i]."""
    for i in range(np.uint64(rows.size)):
        cell = cells[np.uint64(rows[i]) * across + base]
        if low is None:
            value[i] += weight * np.float64(cell)
        else:
            value[i] += weight * low[first + np.uint64(cell)]


@inlined
def add_node_term(view, splits, feature, weight, rows, value):
    """Add a term of a projection to value[i] for rows[i]."""
    arguments = splits.low, np.uint64(splits.offsets[feature]), weight, rows, value
    on_cells(view, feature, np.uint64(rows.size), add_cells, arguments)


@inlined
def compared_values(view, splits, node, rows, value):
    """Set value[i] to what a node compares of rows[i]: its projection, or the value of its feature."""
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
        add_node_term(view, splits, feature, weight, rows, value)


@inlined
def part_projected(view, splits, node, rows, scratch):
    """Partition the rows of a node, see descend_rows."""
    compared_values(view, splits, node, rows, scratch.value)
    return partition_rows(scratch.value, splits.threshold[node], rows, scratch.spare)


@kernel
def find_projected_leaves(view, splits, root, rows, leaf, scratch):
    """The leaf of a tree in which each of some rows ends.

    view, splits, scratch  CodeView (route_codes.py), ProjectedSplits, ProjectedScratch
    root  position of the root among the nodes
    rows  uint32 [rows sent], mutated: put in the order of the leaves
    leaf  uint32 [rows of the table], out for the rows sent: number of the leaf in its tree

    Cost: one visit per row, level and term. Oracle: tests/naive/predict.py find_leaf.
    """
    descend_rows(part_projected, view, splits, root, rows, leaf, scratch)
