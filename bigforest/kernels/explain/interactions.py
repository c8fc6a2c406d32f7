"""Interactions of pairs of features in the predictions for single rows: Shapley interaction values.

In the game of kernels/explain/contributions.py a leaf adds to the features i and j together

    v (o_i - z_i) (o_j - z_j) integral over t of the product over the others of (o t + z (1 - t))

in addition to their single contributions (Fujimoto, Kojadinovic and Marichal 2006; Lundberg, Erion and Lee 2018, who
assign half to (i, j) and half to (j, i)). At a leaf, the ratio (o - z) / (o t + z (1 - t)) of a feature is the sum
of its changes at the edges on the feature above the leaf. So the interaction of a pair is a sum over pairs of edges on
the same path: the lower edge adds the leaves below it, once for each edge above it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.explain.step import link_of, row_goes_left, table_value

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_NONE = np.int64(-1)


class PairScratch(NamedTuple):
    """Scratch by depth. The first level has 1 in met, share and inverse.

    node     uint64 [levels]; left, met: uint8 [levels]; share: float64 [levels]
    product  float64 [levels, points]; inverse: float64 [levels, points], 1 / the factor of the edge
    below    float64 [levels, classes, points], sums over leaves
    change   float64 [levels, points], see `_change_at`; charge: float64 [points]
    """

    node: NDArray[np.uint64]
    left: NDArray[np.uint8]
    met: NDArray[np.uint8]
    share: NDArray[np.float64]
    product: NDArray[np.float64]
    inverse: NDArray[np.float64]
    below: NDArray[np.float64]
    change: NDArray[np.float64]
    charge: NDArray[np.float64]


@inlined
def _open_edge(scratch, points, edges, node, depth):
    """Carry the product down the edge above a node."""
    above = depth - _ONE
    previous = np.uint64(edges.previous[node])
    from_left = np.uint8(node == scratch.node[above] + _ONE)
    met = scratch.met[previous] if from_left == scratch.left[above] else np.uint8(0)
    share = edges.share[node]
    scratch.met[depth] = met
    scratch.share[depth] = share
    slope = np.float64(met) - share
    for q in range(np.uint64(points.t.size)):
        factor = share + slope * points.t[q]
        scratch.product[depth, q] = scratch.product[above, q] * factor * scratch.inverse[previous, q]
        scratch.inverse[depth, q] = 1.0 / factor


@inlined
def _change_at(scratch, points, edges, depth):
    """Set change[depth, q] to the change that the edge above the open node makes in the ratio of its feature, at point
    q."""
    previous = np.uint64(edges.previous[scratch.node[depth]])
    gain = np.float64(scratch.met[depth]) - scratch.share[depth]
    before = np.float64(scratch.met[previous]) - scratch.share[previous]
    for q in range(np.uint64(points.t.size)):
        scratch.change[depth, q] = gain * scratch.inverse[depth, q] - before * scratch.inverse[previous, q]


@inlined
def _close(scratch, points, edges, depth, out):
    """Add the sums below the edge above the open node of a level to the feature of the edge, to its pairs with the
    features of the edges above, and to the level above."""
    size, above = np.uint64(points.t.size), depth - _ONE
    column = np.uint64(edges.feature[scratch.node[depth]])
    for k in range(np.uint64(scratch.below.shape[1])):
        alone = 0.0
        for q in range(size):
            leaves = scratch.below[depth, k, q]
            scratch.charge[q] = scratch.change[depth, q] * leaves
            alone += scratch.charge[q]
            scratch.below[above, k, q] += leaves
        out[column, column, k] += alone
        for level in range(_ONE, depth):
            other = np.uint64(edges.feature[scratch.node[level]])
            if other != column:
                together = 0.0
                for q in range(size):
                    together += scratch.charge[q] * scratch.change[level, q]
                out[column, other, k] += together


@kernel
def interactions(trees, begin, answer, values, rows, edges, points, scratch, out):
    """Add the interactions of a tree without oblique nodes to out, float64 [rows, columns, columns, classes].

    begin   uint64, position of the root; answer: float64 [nodes of the tree, classes]
    values  [all rows, columns]; rows: uint32 [rows], rows to explain
    points  at least half as many as there are features on any path
    out     [i, i] is the Shapley value of feature i; [i, j] + [j, i] is the interaction of the pair, both halves

    Cost: nodes * levels * points * classes. Oracle: tests/naive/explain.py interaction.
    """
    size, classes = np.uint64(points.t.size), np.uint64(answer.shape[1])
    for i in range(np.uint64(rows.size)):
        row, out_row = np.uint64(rows[i]), out[i]
        for q in range(size):
            scratch.product[_ZERO, q] = points.weight[q]
        top = _ZERO
        for node in range(np.uint64(edges.depth.size)):
            depth = np.uint64(edges.depth[node])
            while top >= depth and top > _ZERO:
                _close(scratch, points, edges, top, out_row)
                top -= _ONE
            scratch.node[depth] = node
            if depth > _ZERO:
                _open_edge(scratch, points, edges, node, depth)
                _change_at(scratch, points, edges, depth)
            leaf = link_of(trees.layout, begin + node) == _ZERO
            for k in range(classes):
                for q in range(size):
                    held = answer[node, k] * scratch.product[depth, q] if leaf else 0.0
                    scratch.below[depth, k, q] = held
            if not leaf:
                left = row_goes_left(table_value, values, row, _ZERO, _NONE, trees, None, trees.sets, begin + node)
                scratch.left[depth] = np.uint8(left)
            top = depth
        while top > _ZERO:
            _close(scratch, points, edges, top, out_row)
            top -= _ONE
