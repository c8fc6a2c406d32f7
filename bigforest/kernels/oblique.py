"""Find the best split of a node among directions. Oracle: tests/naive/oblique.py.

Directions are looked at in the order they are drawn in; their number decides between equal splits. A direction of one
feature is that feature: its codes are scanned, and its weight is forgotten. If no direction tells any two rows apart,
features are drawn as the axis family draws them until one does; only where all are constant is the node a leaf. A
direction is passed over where one of its projections is not finite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.axis import draw_feature, put_back, scan_feature, split_by_feature
from bigforest.kernels.directions import PLACED, Drawn, Sparse, draw_cells, draw_column, make_drawn
from bigforest.kernels.impurity import GINI
from bigforest.kernels.jit import inlined
from bigforest.kernels.layout import OBLIQUE
from bigforest.kernels.means import NO_PAIRS, Means, choose_pairs, is_offered, make_means, offer_means
from bigforest.kernels.node import CODE, FEATURE, ONE, ZERO
from bigforest.kernels.order import Projected, make_projected
from bigforest.kernels.project import MOST_TERMS, Values, partition_values, project, range_of
from bigforest.kernels.scan_projection import scan_projection
from bigforest.kernels.scan_two import prepare_two
from bigforest.kernels.values import midpoint


class Oblique(NamedTuple):
    """A family of oblique splits, and scratch of one growing tree; `rows` are the root's.

    sparse     how directions are drawn
    means      the differences of class means that are offered besides
    values     of the codes
    drawn      scratch of the directions
    projected  scratch of the projections; its `value` is not used, but a row of `value`
    value      float64 [2, rows], projections on the direction in hand and on the best
    """

    sparse: Sparse
    means: Means
    values: Values
    drawn: Drawn
    projected: Projected
    value: NDArray[np.float64]


class Pool(NamedTuple):
    """What oblique nodes have beside CodeTree, in the order of the nodes.

    threshold  float64 [nodes], on the projection; anything in other nodes
    size       uint32 [nodes], number of terms; 0 in other nodes
    feature    int32 [room], the terms of all nodes
    weight     float64 [room]
    used       uint64 [1], terms so far
    """

    threshold: NDArray[np.float64]
    size: NDArray[np.uint32]
    feature: NDArray[np.int32]
    weight: NDArray[np.float64]
    used: NDArray[np.uint64]


def make_pool(nodes: int, features: int) -> Pool:
    """Room for so many nodes, and for the terms of some."""
    room = max(2 * nodes, 2 * features)
    return Pool(
        np.empty(nodes),
        np.empty(nodes, np.uint32),
        np.empty(room, np.int32),
        np.empty(room),
        np.zeros(1, np.uint64),
    )


def trimmed(pool: Pool, nodes: int) -> Pool:
    """The pool without the room that so many nodes do not need."""
    used = int(pool.used[0])
    return Pool(
        pool.threshold[:nodes].copy(),
        pool.size[:nodes].copy(),
        pool.feature[:used].copy(),
        pool.weight[:used].copy(),
        pool.used,
    )


def make_oblique(sparse: Sparse, means: Means, values: Values, rows: int) -> Oblique:
    """Oblique for nodes of up to `rows` rows."""
    return Oblique(sparse, means, values, make_drawn(sparse), make_projected(rows), np.empty((2, rows)))


def smallest(features: int, rows: int) -> Oblique:
    """An Oblique to compile with, for a table of so many features of a single value."""
    low = np.zeros(features)
    low.flags.writeable = False  # as in a store; other flags would be compiled apart
    values = Values(np.arange(features + 1), low, np.ones(features, np.bool_))
    means = make_means(NO_PAIRS, False, np.zeros(features, np.uint32), np.zeros(features), 2, rows)
    return make_oblique(Sparse(PLACED, ONE, ONE, ZERO, np.ones(features)), means, values, rows)


@inlined
def with_value(projected, value):
    """The record with another array of projections."""
    return Projected(
        value,
        projected.row,
        projected.ordered,
        projected.spare_row,
        projected.spare_ordered,
        projected.places,
        projected.stretch,
        projected.cut,
    )


@inlined
def is_whole(oblique, which, size):
    """Whether projections on the direction in hand are whole numbers, exact, and so are their differences."""
    if size > np.uint64(MOST_TERMS):
        return False
    for term in range(size):
        weight = oblique.drawn.weight[which, term]
        if not oblique.values.whole[np.uint64(oblique.drawn.feature[which, term])] or abs(weight) != 1.0:
            return False
    return True


@inlined
def find_direction(codes, by_row, node, key, constant, rules, table, draw, best, work, oblique):
    """Look at the directions of a node; the best split is left in `best` (feature -1: none), numbered by direction.

    Returns which half of oblique.drawn and oblique.value holds its direction and its projections.
    """
    drawn = oblique.drawn
    two = node.total.size == 2 and rules.impurity == GINI
    best.split[FEATURE] = -1
    best.limit[0] = -1.0
    if two:
        prepare_two(node, work)
    draw_cells(oblique.sparse, key, drawn.cells)
    columns = oblique.sparse.columns
    means = oblique.means
    if means.by_node:
        means.pairs[0] = choose_pairs(means.pairing, node.total, means.pair)
    summed = False
    directions = columns + np.uint64(means.pairs[0])
    which = ZERO
    at = ZERO
    number = ZERO
    usable = ZERO
    state = key
    fallback = ZERO
    while number < directions or (usable == ZERO and fallback < np.uint64(draw.perm.size)):
        size = ZERO
        value = oblique.value[which]
        features, weights = drawn.feature[which], drawn.weight[which]
        if number < columns:
            size, at = draw_column(oblique.sparse, key, number, at, drawn, which)
            if size > ONE:
                project(codes, by_row, oblique.values, features, weights, size, node.items, value)
        elif number < directions:
            if is_offered(key, number - columns, columns, np.uint64(draw.perm.size)):
                size = offer_means(
                    codes,
                    by_row,
                    oblique.values,
                    oblique.sparse.scale,
                    node,
                    means,
                    number - columns,
                    summed,
                    work.codes,
                    features,
                    weights,
                    value,
                )
                summed = True
        else:
            features[ZERO], state = draw_feature(draw, fallback, state)
            fallback += ONE
            size = ONE
        if size == ONE:
            if scan_feature(codes, by_row, node, np.uint64(features[ZERO]), constant, rules, table, number, best, work):
                usable += ONE
        elif size > ONE:
            low, high = range_of(value, np.uint64(node.items.size))
            if low < high:
                usable += ONE
                projected = with_value(oblique.projected, value)
                whole = is_whole(oblique, which, size)
                scan_projection(rules, table, low, high, whole, node, np.int64(number), best, work, projected)
        drawn.size[which] = size
        if best.split[FEATURE] == np.int64(number):
            which ^= ONE
        number += ONE
    put_back(draw, fallback)
    return which ^ ONE


@inlined
def split_by_direction(codes, node, best, work, oblique, which, nodes, pool, number, total_l):
    """Send the rows of a node to the sides of its best split, and write it as node `number`.

    Returns the number of rows on the left; total_l gets their class weights.
    """
    drawn = oblique.drawn
    size = drawn.size[which]
    if size == ONE:
        feature = np.uint64(drawn.feature[which, ZERO])
        return split_by_feature(codes, node, feature, best.split[CODE], work, nodes, number, total_l)
    cut = oblique.projected.cut[0]
    size_l, least = partition_values(oblique.value[which], cut, node.items, work.keys, total_l)
    nodes.feature[number] = OBLIQUE
    pool.threshold[number] = midpoint(cut, least)
    pool.size[number] = np.uint32(size)
    used = pool.used[0]
    for term in range(size):
        pool.feature[used + term] = np.int32(drawn.feature[which, term])
        pool.weight[used + term] = drawn.weight[which, term]
    pool.used[0] = used + size
    return size_l
