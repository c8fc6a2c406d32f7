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
from bigforest.kernels.predict.flat_tree import TILE, TILE_SHIFT, goes_left

_ZERO = np.uint64(0)
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


@inlined
def lanes_of(rows):
    """As many trees at once as make up for rows that a tile has room for."""
    shift = _ZERO
    while shift < TILE_SHIFT and _ONE << shift < np.uint64(rows):
        shift += _ONE
    return TreeLanes(_ONE << (TILE_SHIFT - shift), (_ONE << shift) - _ONE, shift)


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
    """`route` for all rows of RouteInputs by_level."""
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
