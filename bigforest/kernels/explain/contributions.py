"""Contributions of each feature to the predictions of single rows: along the path, Shapley values, and Shapley
interactions of pairs.

Shapley values are defined by a game in which a coalition of features is known. At nodes on other features a row goes
both ways, by the bag weights of the children (Lundberg, Erion and Lee 2018). A leaf of value v below conditions on d
different features contributes

    v * product over its features j of (o_j if j is known, else z_j)

where o_j is 1 if the row meets all conditions on j, else 0, and z_j is the share of the bag that meets them, node by
node. With the weights of coalitions as an integral, |S|! (d - 1 - |S|)! / d! = integral of t^|S| (1 - t)^(d - 1 - |S|),
feature j gets

    v (o_j - z_j) integral over t of the product over i other than j of (o_i t + z_i (1 - t))

a polynomial of degree d - 1, which Gauss-Legendre with d / 2 or more points integrates exactly. The product is never
negative, so the integral loses no digits in trees of any depth; sums over the sizes of coalitions lose all digits
beyond depth 70. The product is carried down the tree for all points at once, and sums over leaves are carried up, as in
Linear TreeSHAP (Yu, Bifet, Gao and others 2022). Let the ratio of j be (o_j - z_j) / (o_j t + z_j (1 - t)). For an edge
on j, feature j gets the sum of the leaves below, multiplied by the change of the ratio since the last edge on j above.
Cost: leaves * points for each row, whatever the depth. LANES rows go through a tree together
(kernels/llvm/shapley_levels.py).

To the features i and j together, in addition to their single contributions, a leaf adds

    v (o_i - z_i) (o_j - z_j) integral over t of the product over the others of (o t + z (1 - t))

(Fujimoto, Kojadinovic and Marichal 2006; Lundberg, Erion and Lee 2018, who assign half to (i, j) and half to (j, i)).
At a leaf, the ratio of a feature is the sum of its changes at the edges on the feature above the leaf. So the
interaction of a pair is a sum over pairs of edges on the same path: the lower edge adds the leaves below it, once for
each edge above it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.explain.step import (
    NO_GROUP,
    PADDING,
    count_terms,
    link_of,
    node_terms,
    right_of,
    row_goes_left,
    table_value,
    term_column,
)
from bigforest.kernels.llvm.lanes import LANES
from bigforest.kernels.llvm.numbers import smaller
from bigforest.kernels.llvm.shapley_levels import charge, extend_products, scale

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_ROWS = np.uint64(LANES)


class TreeEdges(NamedTuple):
    """The edge above every node of a tree. The root has none: its entries are 0, its share 1.

    depth     uint32 [nodes]
    feature   uint32 [nodes], column of the feature that the parent splits on
    previous  uint32 [nodes], depth of the last edge above on the same feature; 0 if there is none
    share     float64 [nodes], share of the bag that meets all conditions on the feature down to this edge
    different uint32 [nodes], number of different features on the path
    """

    depth: NDArray[np.uint32]
    feature: NDArray[np.uint32]
    previous: NDArray[np.uint32]
    share: NDArray[np.float64]
    different: NDArray[np.uint32]


class Points(NamedTuple):
    """Points and weights of the integrals: float64 [points] in (0, 1)."""

    t: NDArray[np.float64]
    weight: NDArray[np.float64]


@kernel
def path_contributions(trees, begin, answer, values, first, votes, out):
    """Add the changes of the prediction along the path of each row to the features of the nodes that make them.

    begin   uint64, position of the root
    answer  float64 [nodes of the tree, classes], value of each node
    values  [all rows, columns]; the rows from `first` on are used, as many as `out` has
    votes   float64 [rows, classes], increased by the value of the leaf
    out     float64 [rows, columns, classes], increased by the value of the child less the value of the node, divided
            equally among the features of the node (Palczewska and others 2013; Saabas)

    Cost: a visit per row and level. Oracle: tests/naive/explain.py path_contributions.
    """
    layout, directions, sets = trees.layout, trees.directions, trees.sets
    classes = np.uint64(answer.shape[1])
    for row in range(np.uint64(out.shape[0])):
        node = np.uint64(begin)
        while link_of(layout, node) != _ZERO:
            left = row_goes_left(table_value, values, first + row, _ZERO, NO_GROUP, trees, directions, sets, node)
            child = node + _ONE if left else right_of(layout, node)
            shares = count_terms(layout, directions, sets, node)
            for t in range(node_terms(layout, directions, sets, node)):
                column = term_column(layout, directions, sets, node, t)
                if column != PADDING:
                    for k in range(classes):
                        out[row, column, k] += (answer[child - begin, k] - answer[node - begin, k]) / shares
            node = child
        for k in range(classes):
            votes[row, k] += answer[node - begin, k]


@kernel
def find_edges(trees, begin, end, weight, stack, edges):
    """Fill in the TreeEdges of a tree without oblique nodes.

    begin, end  uint64, range of the tree among the nodes
    weight      float64 [nodes of the tree], weight of the bag rows in each node
    stack       uint64 [nodes of the tree], scratch: the open node of each level
    """
    layout = trees.layout
    edges.depth[0], edges.feature[0], edges.previous[0], edges.different[0] = 0, 0, 0, 0
    edges.share[0] = 1.0
    stack[0] = _ZERO
    depth = _ZERO  # of the previous node, whose path is on the stack
    for node in range(_ONE, np.uint64(end - begin)):
        while True:  # go up the path to the parent of this node
            parent = stack[depth]
            inner = link_of(layout, begin + parent) != _ZERO
            if inner and (node == parent + _ONE or node == right_of(layout, begin + parent) - begin):
                break
            depth -= _ONE
        column = term_column(layout, None, trees.sets, begin + parent, _ZERO)
        previous, share = _ZERO, weight[node] / weight[parent]
        for back in range(depth):
            above = depth - back
            if np.uint64(edges.feature[stack[above]]) == column:
                previous = above
                share *= edges.share[stack[above]]
                break
        depth += _ONE
        edges.depth[node] = np.uint32(depth)
        edges.feature[node] = np.uint32(column)
        edges.previous[node] = np.uint32(previous)
        edges.share[node] = share
        edges.different[node] = edges.different[parent] + np.uint32(previous == _ZERO)
        stack[depth] = node


class ShapleyScratch(NamedTuple):
    """Scratch by level of a tree, and sums by feature. The first level has 1 in met and inverse, 0 in gain.

    node     uint64 [levels]
    left     float64 [levels * LANES], 1 if the row goes left at the open node, else 0
    met      float64 [levels * LANES], 1 if the row meets all conditions on the feature of the edge, else 0
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
        factor_met, factor_unmet = share + (1.0 - share) * points.t[q], share - share * points.t[q]
        first = q + q + q + q
        scratch.factors[first] = factor_met
        scratch.factors[first + _ONE] = factor_unmet
        scratch.factors[first + np.uint64(2)] = 1.0 / factor_met
        scratch.factors[first + np.uint64(3)] = 1.0 / factor_unmet
    size = np.uint64(points.t.size) * _ROWS
    extend_products(scratch.product, scratch.inverse, scratch.met, scratch.factors, size, depth, previous)


@inlined
def _close_edge(scratch, points, edges, depth, classes):
    """Close the edge above the open node of a level: add the sums below it to its feature and to the level above."""
    node = scratch.node[depth]
    size = np.uint64(points.t.size) * _ROWS
    first, at = depth * classes * size, np.uint64(edges.feature[node]) * classes * _ROWS
    for k in range(classes):
        begin = first + k * size
        above, total = begin - classes * size, at + k * _ROWS
        before = np.uint64(edges.previous[node])
        charge(scratch.below, scratch.inverse, scratch.gain, scratch.total, size, begin, above, depth, before, total)


@kernel
def shapley_values(trees, begin, answer, values, first, edges, points, scratch, out):
    """Add the Shapley values of a tree without oblique nodes to out, float64 [rows, columns, classes].

    begin   uint64, position of the root; answer: float64 [nodes of the tree, classes]
    values  [all rows, columns]; the rows from `first` on are used, as many as `out` has
    points  at least half as many as there are features on any path

    Cost: nodes * points * (1 + classes) for each row. Oracle: tests/naive/explain.py shapley.
    """
    rows = np.uint64(out.shape[0])
    for block in range((rows + _ROWS - _ONE) // _ROWS):
        start = block * _ROWS
        _shapley_block(trees, begin, answer, values, first, start, edges, points, scratch, out)


@inlined
def _shapley_block(trees, begin, answer, values, first, start, edges, points, scratch, out):
    layout = trees.layout
    classes, size = np.uint64(answer.shape[1]), np.uint64(points.t.size) * _ROWS
    last = np.uint64(out.shape[0]) - _ONE
    for i in range(np.uint64(scratch.total.size)):
        scratch.total[i] = 0.0
    for i in range(size):
        scratch.product[i] = points.weight[i // _ROWS]
    top = _ZERO
    for node in range(np.uint64(edges.depth.size)):
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
            value = 0.0 if inner else answer[node, k]
            scale(scratch.below, scratch.product, value, size, (depth * classes + k) * size, depth * size)
        if inner:
            for r in range(_ROWS):
                row = first + smaller(start + r, last)  # after the last row, that row is repeated
                left = row_goes_left(table_value, values, row, _ZERO, NO_GROUP, trees, None, trees.sets, at)
                scratch.left[depth * _ROWS + r] = 1.0 if left else 0.0
        top = depth
    while top > _ZERO:
        _close_edge(scratch, points, edges, top, classes)
        top -= _ONE
    for r in range(smaller(_ROWS, last + _ONE - start)):
        for p in range(np.uint64(out.shape[1])):
            for k in range(classes):
                index = (p * classes + k) * _ROWS + r
                out[start + r, p, k] += scratch.total[index]


class PairScratch(NamedTuple):
    """Scratch by depth. The first level has 1 in met, share and inverse.

    node     uint64 [levels]; left, met: uint8 [levels]; share: float64 [levels]
    product  float64 [levels, points]; inverse: float64 [levels, points], 1 / the factor of the edge
    below    float64 [levels, classes, points], sums over leaves
    change   float64 [levels, points], see `_change_at`; charge: float64 [points], a level's change * below
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
def _open_pair(scratch, points, edges, node, depth):
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
def _close_pair(scratch, points, edges, depth, out):
    """Close the edge above the open node of a level. Add the sums below the edge to its feature, to each pair of its
    feature with the feature of an edge above, and to the level above."""
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
    out     for a row, [i, i] is the Shapley value of feature i; [i, j] + [j, i] is the whole interaction of the pair

    Cost: nodes * levels * points * classes for each row. Oracle: tests/naive/explain.py interaction.
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
                _close_pair(scratch, points, edges, top, out_row)
                top -= _ONE
            scratch.node[depth] = node
            if depth > _ZERO:
                _open_pair(scratch, points, edges, node, depth)
                _change_at(scratch, points, edges, depth)
            leaf = link_of(trees.layout, begin + node) == _ZERO
            for k in range(classes):
                for q in range(size):
                    held = answer[node, k] * scratch.product[depth, q] if leaf else 0.0
                    scratch.below[depth, k, q] = held
            if not leaf:
                left = row_goes_left(table_value, values, row, _ZERO, NO_GROUP, trees, None, trees.sets, begin + node)
                scratch.left[depth] = np.uint8(left)
            top = depth
        while top > _ZERO:
            _close_pair(scratch, points, edges, top, out_row)
            top -= _ONE
