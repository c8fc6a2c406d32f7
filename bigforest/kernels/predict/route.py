"""Routing rows through trees: the loop of prediction and of the out-of-bag report.

Many tiles go through one tree before the next, so that the tree stays in the cache. Within a tile the rows advance
level by level, so that many independent loads are in flight, and a node can be prefetched a level ahead. A row that
reached its leaf is dropped from the list without a branch: a branch on data is mispredicted at every other step, which
costs more than the step. (Steps that drop no rows at every other level had such a branch: the compiler made one of the
choice of a child.) Where there are fewer rows than a tile has room for, several trees are
walked at once, so that there are as many loads. Where some nodes are oblique, the list of rows is parted from node to
node instead (`route_oblique.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.prefetch import prefetch
from bigforest.kernels.predict.flat_tree import TILE, TILE_SHIFT, RouteInputs, goes_left
from bigforest.kernels.predict.route_oblique import route_oblique

_ONE = np.uint64(1)


class TreeLanes(NamedTuple):
    """Trees that a tile goes down at once: item i of a list is row i & mask in the tree i >> shift after the first.

    trees  uint64, their number
    mask   uint64
    shift  uint64
    """

    trees: np.uint64
    mask: np.uint64
    shift: np.uint64


class RouteScratch(NamedTuple):
    """Scratch of one call of a kernel that routes rows.

    numbers  uint32 [5, rows of a tile]
    value    float64 [rows of a tile]
    """

    numbers: NDArray[np.uint32]
    value: NDArray[np.float64]


def new_scratch(way: RouteInputs) -> RouteScratch:
    """The scratch for RouteInputs."""
    rows = TILE if way.directions is None else way.tiles.shape[1]
    return RouteScratch(np.empty((5, rows), np.uint32), np.empty(rows))


@inlined
def rows_of_tile(tiles, directions):
    """Rows in a tile of RouteInputs."""
    if directions is None:
        return TILE
    else:  # noqa: RET505, only this form is dropped when directions is None
        return tiles.shape[1]


@inlined
def lanes_of(rows):
    """As many trees at once as make up for rows that a tile has room for."""
    shift = np.uint64(0)
    while shift < TILE_SHIFT and _ONE << shift < np.uint64(rows):
        shift += _ONE
    return TreeLanes(_ONE << (TILE_SHIFT - shift), (_ONE << shift) - _ONE, shift)


@inlined
def trees_at_once(lanes):
    """How many trees a tile goes down at once. lanes None, for one, is a separate compilation: a row is an item there,
    and no step has to look for it."""
    if lanes is None:
        return _ONE
    else:  # noqa: RET505, only this form is dropped when lanes is None
        return lanes.trees


@inlined
def item_of(lanes, lane, row):
    """The item of a row in the tree `lane` after the first."""
    if lanes is None:
        return row
    else:  # noqa: RET505, only this form is dropped when lanes is None
        return (lane << lanes.shift) | row


@inlined
def lane_and_row(lanes, item):
    """How far the tree of an item is after the first, and its row."""
    if lanes is None:
        return np.uint64(0), item
    else:  # noqa: RET505, only this form is dropped when lanes is None
        return item >> lanes.shift, item & lanes.mask


@inlined
def step(tile, layout, sets, missing, place, item, row):
    """Move one row of the flat `tile` one level down from the node place[item]; False if that node is a leaf."""
    node = np.uint64(place[item])
    threshold = layout.thresholds[node + node]
    link = np.uint64(layout.links[node + node + _ONE])
    left = goes_left(tile, layout, sets, missing, node, row)
    child = node + _ONE if left else node + (link & (layout.default - _ONE))
    prefetch(layout.links, child + child)
    place[item] = child
    return threshold == threshold


@inlined
def descend(tile, layout, sets, missing, lanes, listed, scratch, first, tree, arrive, state):
    """Send the items that `route` has listed from the roots to their leaves.

    tile is flat; its row r is called first + r. Cost: one visit per item and level. Oracle: tests/naive/predict.py
    find_leaf.
    """
    out, active, place = scratch.numbers[0], scratch.numbers[1], scratch.numbers[2]
    going = listed
    while going > np.uint64(0):
        kept = np.uint64(0)
        for i in range(going):
            item = np.uint64(active[np.uint64(i)])
            active[kept] = item
            _, row = lane_and_row(lanes, item)
            kept += np.uint64(step(tile, layout, sets, missing, place, item, row))
        going = kept
    for i in range(listed):
        item = np.uint64(out[np.uint64(i)])
        lane, row = lane_and_row(lanes, item)
        arrive(state, layout, tree + lane, first + row, np.uint64(place[item]))


@inlined
def route_tile(tiles, directions, number, way, node, lanes, listed, scratch, first, tree, arrive, state):
    """Send the listed rows of a tile down the tree that begins at `node`, or down several from it on.

    directions None, where no node is oblique, is a separate compilation.
    """
    if directions is None:
        tile = tiles[number].reshape(-1)
        descend(tile, way.layout, way.sets, way.missing, lanes, listed, scratch, first, tree, arrive, state)
    else:
        route_oblique(
            tiles[number], way.layout, directions, way.sets, node, listed, scratch, first, tree, arrive, state
        )


@inlined
def route_several(way, lanes, roots, goes, arrive, state, scratch):
    """Route the rows of RouteInputs through trees: the loop of every kernel that routes rows.

    goes(state, tree, row)          whether a row is routed through a tree.
    arrive(state, layout, tree, row, node)  called, tree by tree, for every row that reaches the leaf `node`.

    Both are inlined functions, compiled in. roots uint64 [trees]; trees are numbered by their places in it, rows from
    the first of `way`. scratch is from `new_scratch`. lanes: TreeLanes of one tile that has no directions, or None.
    """
    out, active, place = scratch.numbers[0], scratch.numbers[1], scratch.numbers[2]
    size = np.uint64(rows_of_tile(way.tiles, way.directions))
    tiles = (np.uint64(way.rows) + size - _ONE) // size
    trees, at_once = np.uint64(roots.size), trees_at_once(lanes)
    for begin in range(np.uint64(0), tiles, np.uint64(way.together)):
        for t in range(np.uint64(0), trees, at_once):
            tree = np.uint64(t)
            for number in range(begin, min(begin + np.uint64(way.together), tiles)):
                first = number * size
                listed = np.uint64(0)
                for k in range(min(at_once, trees - tree)):
                    lane = np.uint64(k)
                    root = np.uint32(roots[tree + lane])
                    for j in range(min(size, np.uint64(way.rows) - first)):
                        row = np.uint64(j)
                        item = item_of(lanes, lane, row)
                        out[listed] = np.uint32(item)
                        active[listed] = np.uint32(item)
                        place[item] = root
                        listed += np.uint64(goes(state, tree + lane, first + row))
                if listed > np.uint64(0):
                    node = roots[tree]
                    route_tile(
                        way.tiles, way.directions, number, way, node, lanes, listed, scratch, first, tree, arrive, state
                    )


@inlined
def route(way, roots, goes, arrive, state, scratch):
    """`route_several` with one tree at a time."""
    route_several(way, None, roots, goes, arrive, state, scratch)
