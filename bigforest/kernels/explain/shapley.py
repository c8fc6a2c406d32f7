"""Shapley values of single rows, LANES at a time: kernels/explain/contributions.py has the formula.

Rows go through a tree side by side, so that the factors of an edge are computed once for all of them: whether a row
meets the conditions selects one of two factors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.explain.step import link_of, own_value, row_goes_left
from bigforest.kernels.llvm.lanes import LANES
from bigforest.kernels.llvm.shapley_levels import charge, extend_products, scale

_ROWS = np.uint64(LANES)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_NONE = np.int64(-1)


class ShapleyScratch(NamedTuple):
    """By level, with 1 for each row in met and inverse and 0 in gain at the first; and added up by feature.

    node     uint64 [levels]
    left     float64 [levels * LANES], 1 where the row goes left at the open node, else 0
    met      float64 [levels * LANES], 1 where it meets all conditions on the feature of the edge, else 0
    gain     float64 [levels * LANES], met - share of the edge
    factors  float64 [4 * points], see kernels/llvm/shapley_levels.py
    product, inverse  float64 [levels * points * LANES]
    below    float64 [levels * classes * points * LANES], sums over leaves
    total    float64 [columns * classes * LANES]
    """

    node: NDArray[np.uint64]
    left: NDArray[np.float64]
    met: NDArray[np.float64]
    gain: NDArray[np.float64]
    factors: NDArray[np.float64]
    product: NDArray[np.float64]
    inverse: NDArray[np.float64]
    below: NDArray[np.float64]
    total: NDArray[np.float64]


@inlined
def _open_edge(scratch, points, edges, node, depth):
    """Carry the products down the edge above a node."""
    previous = np.uint64(edges.previous[node])
    side = 1.0 if node == scratch.node[depth - _ONE] + _ONE else 0.0
    share = edges.share[node]
    at, above, last = depth * _ROWS, (depth - _ONE) * _ROWS, previous * _ROWS
    for r in range(_ROWS):
        met = scratch.met[last + r] if scratch.left[above + r] == side else 0.0
        scratch.met[at + r] = met
        scratch.gain[at + r] = met - share
    for q in range(np.uint64(points.t.size)):
        known, unknown = share + (1.0 - share) * points.t[q], share - share * points.t[q]
        first = q + q + q + q
        scratch.factors[first] = known
        scratch.factors[first + _ONE] = unknown
        scratch.factors[first + np.uint64(2)] = 1.0 / known
        scratch.factors[first + np.uint64(3)] = 1.0 / unknown
    size = np.uint64(points.t.size) * _ROWS
    extend_products(scratch.product, scratch.inverse, scratch.met, scratch.factors, size, depth, previous)


@inlined
def _close_edge(scratch, points, edges, depth, classes):
    """Charge the edge above the open node of a level with what is below it, and pass that up."""
    node = scratch.node[depth]
    size = np.uint64(points.t.size) * _ROWS
    here, at = depth * classes * size, np.uint64(edges.feature[node]) * classes * _ROWS
    for c in range(classes):
        k = np.uint64(c)
        place = here + k * size
        above, total = place - classes * size, at + k * _ROWS
        before = np.uint64(edges.previous[node])
        charge(scratch.below, scratch.inverse, scratch.gain, scratch.total, size, place, above, depth, before, total)


@kernel
def shapley_values(trees, begin, answer, values, first, edges, points, scratch, out):
    """Add the Shapley values of a tree without oblique nodes to out, float64 [rows, columns, classes].

    begin   uint64, position of the root; answer: float64 [nodes of the tree, classes]
    values  [all rows, columns]; those from `first` on are looked at, as many as `out` has
    points  at least half as many as there are features on any path

    Cost: nodes * points * (1 + classes) for each row, whatever its neighbours. Oracle: tests/naive/explain.py shapley.
    """
    rows = np.uint64(out.shape[0])
    for block in range((rows + _ROWS - _ONE) // _ROWS):
        start = np.uint64(block) * _ROWS
        _some_rows(trees, trees.sets, begin, answer, values, first, start, edges, points, scratch, out)


@inlined
def _some_rows(trees, sets, begin, answer, values, first, start, edges, points, scratch, out):
    layout = trees.layout
    classes, size = np.uint64(answer.shape[1]), np.uint64(points.t.size) * _ROWS
    last = np.uint64(out.shape[0]) - _ONE
    for i in range(np.uint64(scratch.total.size)):
        scratch.total[np.uint64(i)] = 0.0
    for i in range(size):
        scratch.product[np.uint64(i)] = points.weight[np.uint64(i) // _ROWS]
    top = _ZERO
    for n in range(np.uint64(edges.depth.size)):
        node = np.uint64(n)
        depth = np.uint64(edges.depth[node])
        while top >= depth and top > _ZERO:
            _close_edge(scratch, points, edges, top, classes)
            top -= _ONE
        if depth > _ZERO:
            _open_edge(scratch, points, edges, node, depth)
        scratch.node[depth] = node
        at = begin + node
        inner = link_of(layout, at) != _ZERO
        for k in range(classes):
            value = 0.0 if inner else answer[node, np.uint64(k)]
            scale(scratch.below, scratch.product, value, size, (depth * classes + np.uint64(k)) * size, depth * size)
        if inner:
            for r in range(_ROWS):
                row = first + min(start + r, last)  # after the last row, that row is repeated
                left = row_goes_left(own_value, values, row, _ZERO, _NONE, trees, None, sets, at)
                scratch.left[depth * _ROWS + r] = 1.0 if left else 0.0
        top = depth
    while top > _ZERO:
        _close_edge(scratch, points, edges, top, classes)
        top -= _ONE
    for r in range(min(_ROWS, last + _ONE - start)):
        for p in range(np.uint64(out.shape[1])):
            for k in range(classes):
                place = (np.uint64(p) * classes + np.uint64(k)) * _ROWS + r
                out[start + r, np.uint64(p), np.uint64(k)] += scratch.total[place]
