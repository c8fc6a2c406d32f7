"""Routing few rows through trees level by level, several trees at once.

Rows advance together, each at its own node, so that many independent loads are in flight, and a node can be prefetched
a level ahead. A row that reached its leaf is dropped from the list without a branch: a branch on data is mispredicted
at every other step, which costs more than the step. As many trees are walked at once as make up for rows that a tile
has room for. Where there are more rows beside the nodes, lists of the rows at a node are faster (`route.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.prefetch import prefetch
from bigforest.kernels.predict.flat_tree import TILE, is_listed

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
# TILE is 1 << _TILE_SHIFT.
_TILE_SHIFT = np.uint64(9)


class TreeLanes(NamedTuple):
    """Trees that a tile goes down at once: item i of a list is row i & mask in the tree i >> shift after the first.

    trees  uint64, their number
    mask   uint64
    shift  uint64
    """

    trees: np.uint64
    mask: np.uint64
    shift: np.uint64


@inlined
def lanes_of(rows):
    """Return the TreeLanes of so few rows: as many trees at once as fill the rows of a tile."""
    shift = _ZERO
    while shift < _TILE_SHIFT and _ONE << shift < np.uint64(rows):
        shift += _ONE
    return TreeLanes(_ONE << (_TILE_SHIFT - shift), (_ONE << shift) - _ONE, shift)


@inlined
def _axis_goes_left(tile, layout, missing, node, row):
    """Return whether a row goes left at an axis node.

    missing None, where no value is NaN, is compiled separately: complete tables do not pay for the check.
    """
    link = np.uint64(layout.links[node + node + _ONE])
    value = tile[row + ((link >> layout.shift) << _TILE_SHIFT)]
    threshold = layout.thresholds[node + node]
    if missing is None:
        return value <= threshold
    else:  # noqa: RET505, only this form is dropped when missing is None
        return (value <= threshold) | ((value != value) & ((link & layout.default) != np.uint64(0)))


@inlined
def _goes_left(tile, layout, sets, missing, node, row):
    """Return whether a row of a flat tile goes left at an inner node that is not oblique.

    sets None, where no node is on a category, is a separate compilation.
    """
    if sets is None:
        return _axis_goes_left(tile, layout, missing, node, row)
    else:  # noqa: RET505, only this form is dropped when sets is None
        link = np.uint64(layout.links[node + node + _ONE])
        column = link >> layout.shift
        # All by arithmetic: which kind a node is would be a branch that is mispredicted at every other node.
        category = np.uint64(column >= sets.features)
        number = np.uint64(layout.links[node + node]) & (_ZERO - category)
        mask = sets.mask[number]
        value = tile[row + ((column - (sets.features & (_ZERO - category))) << _TILE_SHIFT)]
        code = np.uint64(np.int64(value if category else tile.dtype.type(0)))
        listed = (mask >> (code & np.uint64(63))) & np.uint64(code < np.uint64(64))
        if mask | (category ^ _ONE) == _ZERO:
            listed = np.uint64(is_listed(sets, number, code))
        default, threshold = np.uint64((link & layout.default) != _ZERO), layout.thresholds[node + node]
        up_to = np.uint64(value <= threshold)
        if missing is not None:
            up_to |= np.uint64(value != value) & default
        return (up_to ^ (category & (up_to ^ listed ^ default))) & _ONE == _ONE


@inlined
def step(tile, layout, sets, missing, place, item, row):
    """Move one row of the flat `tile` one level down from the node place[item]; False if that node is a leaf."""
    node = np.uint64(place[item])
    threshold = layout.thresholds[node + node]
    link = np.uint64(layout.links[node + node + _ONE])
    left = _goes_left(tile, layout, sets, missing, node, row)
    child = node + _ONE if left else node + (link & (layout.default - _ONE))
    prefetch(layout.links, child + child)
    place[item] = child
    return threshold == threshold


@inlined
def descend_levels(tile, way, lanes, listed, scratch):
    """Move the items scratch.numbers[0, :listed] from the nodes scratch.numbers[1, item] to their leaves.

    tile is flat. Cost: one visit per item and level, of about 3 ns. Oracle: tests/naive/predict.py find_leaf.
    """
    active, place = scratch.numbers[0], scratch.numbers[1]
    going = listed
    while going > _ZERO:
        kept = _ZERO
        for i in range(going):
            item = np.uint64(active[np.uint64(i)])
            active[kept] = item
            kept += np.uint64(step(tile, way.layout, way.sets, way.missing, place, item, item & lanes.mask))
        going = kept


@inlined
def route_levels(way, roots, arrive, state, scratch):
    """Route all rows of RouteInputs by_level, as `route`."""
    active, place = scratch.numbers[0], scratch.numbers[1]
    lanes, trees = lanes_of(way.rows), np.uint64(roots.size)
    tiles = (np.uint64(way.rows) + np.uint64(TILE) - _ONE) // np.uint64(TILE)
    for t in range(_ZERO, trees, lanes.trees):
        tree = np.uint64(t)
        for n in range(tiles):
            number = np.uint64(n)
            first = number * np.uint64(TILE)
            rows = min(np.uint64(TILE), np.uint64(way.rows) - first)
            listed = _ZERO
            for k in range(min(lanes.trees, trees - tree)):
                lane = np.uint64(k)
                for j in range(rows):
                    item = (lane << lanes.shift) | np.uint64(j)
                    active[listed] = np.uint32(item)
                    place[item] = np.uint32(roots[tree + lane])
                    listed += _ONE
            descend_levels(way.tiles[number].reshape(-1), way, lanes, listed, scratch)
            for k in range(min(lanes.trees, trees - tree)):
                lane = np.uint64(k)
                for j in range(rows):
                    row = np.uint64(j)
                    node = np.uint64(place[(lane << lanes.shift) | row])
                    arrive(state, way.layout, tree + lane, first + row, node)
