"""Route few rows through trees level by level, several trees at once.

All rows of a tile advance together, each from its current node, so many independent loads are in flight, and a node can
be prefetched a level ahead. A row that has reached its leaf is dropped from the list without a branch: a branch on data
is mispredicted at every other step, which costs more than the step. The fewer rows a tile has, the more trees are
walked at once. If there are many rows for each node, lists of the rows at a node are faster (`route.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.numbers import smaller
from bigforest.kernels.llvm.prefetch import prefetch
from bigforest.kernels.predict.flat_tree import TILE, is_listed

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class TreeLanes(NamedTuple):
    """Trees that a tile goes down at once. Item i is row i & mask of the tile in tree i >> shift of these trees.

    trees  uint64, number of trees
    mask   uint64
    shift  uint64; a tile has 1 << shift rows
    """

    trees: np.uint64
    mask: np.uint64
    shift: np.uint64


@inlined
def lanes_of(height):
    """Return TreeLanes for tiles of `height` rows: TILE items at once."""
    shift = _ZERO
    while _ONE << shift < np.uint64(height):
        shift += _ONE
    return TreeLanes(np.uint64(TILE) >> shift, (_ONE << shift) - _ONE, shift)


@inlined
def _axis_goes_left(tile, layout, missing, shift, node, row):
    """Return True if a row goes left at an axis node.

    missing  None if no value is NaN, compiled separately: complete tables do not pay for the check
    """
    link = np.uint64(layout.links[node + node + _ONE])
    value = tile[row + ((link >> layout.shift) << shift)]
    threshold = layout.thresholds[node + node]
    if missing is None:
        return value <= threshold
    else:  # noqa: RET505, only this form is dropped when missing is None
        return (value <= threshold) | ((value != value) & ((link & layout.default) != np.uint64(0)))


@inlined
def _goes_left(tile, layout, sets, missing, shift, node, row):
    """Return True if a row of a flat tile goes left at an inner node that is not oblique; shift is that of TreeLanes.

    sets  None if no node is on a category, compiled separately
    """
    if sets is None:
        return _axis_goes_left(tile, layout, missing, shift, node, row)
    else:  # noqa: RET505, only this form is dropped when sets is None
        link = np.uint64(layout.links[node + node + _ONE])
        column = link >> layout.shift
        # By arithmetic: a branch on the kind of node would be mispredicted at every other node.
        category = np.uint64(column >= sets.features)
        number = np.uint64(layout.links[node + node]) & (_ZERO - category)
        mask = sets.mask[number]
        value = tile[row + ((column - (sets.features & (_ZERO - category))) << shift)]
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
def step(tile, inputs, lanes, position, item):
    """Move an item on the flat `tile` one level down from the node position[item]; return False if the node is a
    leaf."""
    layout = inputs.layout
    node = np.uint64(position[item])
    threshold = layout.thresholds[node + node]
    link = np.uint64(layout.links[node + node + _ONE])
    left = _goes_left(tile, layout, inputs.sets, inputs.missing, lanes.shift, node, item & lanes.mask)
    child = node + _ONE if left else node + (link & (layout.default - _ONE))
    prefetch(layout.links, child + child)
    position[item] = child
    return threshold == threshold


@inlined
def descend_levels(tile, inputs, lanes, listed, scratch):
    """Move the items scratch.numbers[0, :listed] from the nodes scratch.numbers[1, item] to their leaves.

    tile is flat. Cost: one visit per item and level, of about 3 ns. Oracle: tests/naive/predict.py find_leaf.
    """
    active, position = scratch.numbers[0], scratch.numbers[1]
    going = listed
    while going > _ZERO:
        kept = _ZERO
        for i in range(going):
            item = np.uint64(active[i])
            active[kept] = item
            kept += np.uint64(step(tile, inputs, lanes, position, item))
        going = kept


@inlined
def route_levels(inputs, roots, arrive, state, scratch):
    """Route all rows of RouteInputs by_level, as `route`."""
    active, position = scratch.numbers[0], scratch.numbers[1]
    height, trees = np.uint64(inputs.tiles.shape[2]), np.uint64(roots.size)
    lanes = lanes_of(height)
    tiles = (np.uint64(inputs.rows) + height - _ONE) // height
    for tree in range(_ZERO, trees, lanes.trees):
        for number in range(tiles):
            first = number * height
            rows = smaller(height, np.uint64(inputs.rows) - first)
            listed = _ZERO
            for lane in range(smaller(lanes.trees, trees - tree)):
                for j in range(rows):
                    item = (lane << lanes.shift) | j
                    active[listed] = np.uint32(item)
                    position[item] = np.uint32(roots[tree + lane])
                    listed += _ONE
            descend_levels(inputs.tiles[number].reshape(-1), inputs, lanes, listed, scratch)
            for lane in range(smaller(lanes.trees, trees - tree)):
                for row in range(rows):
                    node = np.uint64(position[(lane << lanes.shift) | row])
                    arrive(state, inputs.layout, tree + lane, first + row, node)
