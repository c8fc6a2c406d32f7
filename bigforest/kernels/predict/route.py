"""Routing rows through trees: the loop of prediction and of the out-of-bag report.

Nodes are visited in the order in which they are stored, each with the list of the rows of a tile that reach it. So a
node is read once, its column of the tile is in the cache, and a row at a node costs a few steps without a branch. Where
rows are few beside the nodes they go level by level instead (`route_levels.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.predict.flat_tree import RouteInputs
from bigforest.kernels.predict.split_rows import split_rows

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class RouteScratch(NamedTuple):
    """Scratch of one call of a kernel that routes rows.

    numbers  uint32 [5, rows of a tile]
    value    float64 [rows of a tile]
    """

    numbers: NDArray[np.uint32]
    value: NDArray[np.float64]


def new_scratch(way: RouteInputs) -> RouteScratch:
    """The scratch for RouteInputs."""
    rows = way.tiles.shape[2 if way.directions is None else 1]
    return RouteScratch(np.empty((5, rows), np.uint32), np.empty(rows))


@inlined
def rows_of_tile(tiles, directions):
    """Rows in a tile of RouteInputs."""
    if directions is None:
        return tiles.shape[2]
    else:  # noqa: RET505, only this form is dropped when directions is None
        return tiles.shape[1]


@inlined
def descend(tile, way, node, listed, scratch, first, tree, arrive, state):
    """Send the `listed` rows of scratch.numbers[0] from the root `node` to their leaves; see `route` for `arrive`.

    tile  of RouteInputs; its row r is called first + r.

    Ranges of rows that wait are not empty and do not overlap, so there are fewer ranges than rows.
    Cost: one visit per row and level, of about a nanosecond, or 4 for two terms, and one per node that a row reaches.
    Oracle: tests/naive/predict.py find_leaf.
    """
    layout = way.layout
    rows, spare = scratch.numbers[0], scratch.numbers[1]
    nodes, begins, ends = scratch.numbers[2], scratch.numbers[3], scratch.numbers[4]
    waiting = _ZERO
    begin, end = _ZERO, listed
    while True:
        here = rows[begin:end]
        link = np.uint64(layout.links[node + node + _ONE])
        if link != _ZERO:
            at = begin + split_rows(
                tile, layout, way.directions, way.sets, way.missing, node, here, spare, scratch.value
            )
            right = node + (link & (layout.default - _ONE))
            if begin < at < end:
                nodes[waiting], begins[waiting], ends[waiting] = right, at, end
                waiting += _ONE
            node = node + _ONE if at > begin else right
            end = at if at > begin else end
            continue
        for i in range(np.uint64(here.size)):
            arrive(state, layout, tree, first + np.uint64(here[i]), node)
        if waiting == _ZERO:
            break
        waiting -= _ONE
        node, begin, end = np.uint64(nodes[waiting]), np.uint64(begins[waiting]), np.uint64(ends[waiting])


@inlined
def route(way, roots, goes, arrive, state, scratch):
    """Route the rows of RouteInputs through trees, one after the other: the loop of every kernel that routes rows.

    goes(state, tree, row)          whether a row is routed through a tree.
    arrive(state, layout, tree, row, node)  called, tree by tree, for every row that reaches the leaf `node`.

    Both are inlined functions, compiled in. roots uint64 [trees]; trees are numbered by their places in it, rows from
    the first of `way`. scratch is from `new_scratch`.
    """
    rows = scratch.numbers[0]
    size = np.uint64(rows_of_tile(way.tiles, way.directions))
    tiles = (np.uint64(way.rows) + size - _ONE) // size
    for t in range(np.uint64(roots.size)):
        tree = np.uint64(t)
        for n in range(tiles):
            number = np.uint64(n)
            first = number * size
            listed = _ZERO
            for j in range(min(size, np.uint64(way.rows) - first)):
                row = np.uint64(j)
                rows[listed] = np.uint32(row)
                listed += np.uint64(goes(state, tree, first + row))
            if listed > _ZERO:
                descend(way.tiles[number], way, roots[tree], listed, scratch, first, tree, arrive, state)
