"""Predictions of trees for a row, with some of its values replaced by each point of a grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.partition import partition_by
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.explain.step import (
    PADDING,
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
_NONE = np.int64(-1)
_VARIED = np.int64(0)


class VaryScratch(NamedTuple):
    """Points of a row that are still to be routed, in ranges, each from a node: uint32 [points] each.

    order, spare      numbers of the points; scratch to partition them
    node, begin, end  of each waiting range
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
    """Add the values of the leaves in which rows end with the values of each of their points.

    root      uint64, position of the root; answer: float64 [nodes of the tree, classes]
    replaced  Replaced, with group 0 for varied columns; points are columns of `drawn`
    rows      uint32 [rows]
    points    uint32 [rows, points of a row]; or [1, points], the same for all rows
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
                elif row_goes_left(table_value, values, row, _ZERO, _NONE, trees, directions, sets, node):
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
