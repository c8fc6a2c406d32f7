"""Find the best split of a node among directions. Oracle: tests/naive/oblique.py.

1. Draw directions, and scan each. Of equal splits, the one on the direction drawn first wins. A direction of one
   feature is scanned by the codes of this feature, without its weight. A direction with a projection that is not finite
   is skipped.
2. If all directions are constant or skipped, draw features as in the family axis, until one is not constant. If all
   features are constant, the node is a leaf.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.code_cache import ValueCache, fill_value_cache, make_value_cache
from bigforest.kernels.columns.order_projections import ProjectionScratch, make_projection_scratch
from bigforest.kernels.columns.project import (
    MOST_TERMS,
    project,
    project_cached,
    range_of,
)
from bigforest.kernels.common.layout import OBLIQUE, Codes, CodeValues
from bigforest.kernels.common.midpoint import midpoint
from bigforest.kernels.common.node_scan import FEATURE, ONE, SHIFT32, ZERO, CachedColumn, Scan
from bigforest.kernels.common.partition import partition_projections
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.oblique.directions import Drawn, Sparse, draw_cells, draw_column, make_drawn
from bigforest.kernels.oblique.mean_difference import (
    Means,
    choose_pairs,
    is_offered,
    offer_means,
    sum_steps,
)
from bigforest.kernels.oblique.scan import MOST_CODES, codes_of_whole, cut_after_code, scan_projection
from bigforest.kernels.scan.criterion import prepare, scan_codes
from bigforest.kernels.scan.draw import draw_feature, fetch_codes, put_back
from bigforest.kernels.scan.features import present_node, split_by_feature
from bigforest.kernels.scan.target import sum_left


class Oblique(NamedTuple):
    """A family of oblique splits, and scratch of one growing tree; `rows` is the size of the root.

    sparse     rules by which directions are drawn
    means      the differences of class means that are offered in addition
    values     values of the codes
    whole      bool [features], True if all values of the feature are whole numbers of absolute value up to MOST_WHOLE
               (columns/project.py)
    cache      a copy of the rows of a small subtree
    drawn      scratch of the directions
    projected  scratch of the projections; `with_value` replaces its `value` by a row of `value` below
    value      float64 [2, rows], projections on the current direction and on the best one
    """

    sparse: Sparse
    means: Means
    values: CodeValues
    whole: NDArray[np.bool_]
    cache: ValueCache
    drawn: Drawn
    projected: ProjectionScratch
    value: NDArray[np.float64]


class DirectionExtras(NamedTuple):
    """Data of oblique nodes in addition to CodeTree, in the order of the nodes.

    threshold  float64 [nodes], threshold on the projection; arbitrary in other nodes
    size       uint32 [nodes], number of terms; 0 in other nodes
    feature    int32 [room], features of the terms of all nodes
    weight     float64 [room], weights of these terms
    used       uint64 [1], number of terms in use
    """

    threshold: NDArray[np.float64]
    size: NDArray[np.uint32]
    feature: NDArray[np.int32]
    weight: NDArray[np.float64]
    used: NDArray[np.uint64]


def make_direction_extras(nodes: int, features: int) -> DirectionExtras:
    """Allocate arrays for this many nodes, and for the terms of some of the nodes."""
    room = max(2 * nodes, 2 * features)
    return DirectionExtras(
        np.empty(nodes),
        np.empty(nodes, np.uint32),
        np.empty(room, np.int32),
        np.empty(room),
        np.zeros(1, np.uint64),
    )


def make_oblique(
    sparse: Sparse,
    means: Means,
    codes: Codes,
    values: CodeValues,
    whole: NDArray[np.bool_],
    rows: int,
    regression: bool,
) -> Oblique:
    """Make an Oblique for nodes of up to `rows` rows."""
    cache = make_value_cache(codes, means.value.shape[0], rows, regression)
    drawn, projected = make_drawn(sparse), make_projection_scratch(rows)
    return Oblique(sparse, means, values, whole, cache, drawn, projected, np.empty((2, rows)))


@inlined
def with_value(projected, value):
    """Return the scratch with `value` in place of its projections."""
    return ProjectionScratch(value, *projected[1:])


@inlined
def is_whole(oblique, which, size):
    """Return True if projections on the direction at index `which`, and their differences, are exact whole numbers."""
    if size > np.uint64(MOST_TERMS):
        return False
    for term in range(size):
        weight = oblique.drawn.weight[which, term]
        if not oblique.whole[np.uint64(oblique.drawn.feature[which, term])] or abs(weight) != 1.0:
            return False
    return True


@inlined
def codes_of_node(table, items, begin, end, oblique):
    """Return the Codes for the row numbers of items[begin:end], the regression targets or None, and True if both come
    from the copy of few rows, False if they come from the table."""
    inputs = (table.by_row, oblique.values, oblique.means, table.value)
    if fill_value_cache(*inputs, items, begin, end, oblique.cache):
        cache = oblique.cache.code_cache
        return cache.codes, cache.value, True
    return table.codes, table.value, False


@inlined
def find_direction(codes, node, cached, rules, criterion, scratch, oblique):
    """Scan the directions of a node. scratch.best becomes the best split, with the number of its direction as FEATURE,
    or -1 if there is no split.

    cached     True if items have row numbers of the copy, oblique.cache
    criterion  CriterionScratch

    Return the index (0 or 1) of the direction and the projections of the best split in oblique.drawn and oblique.value.
    """
    key, constant, draw, best, work = node.key, scratch.constant, scratch.draw, scratch.best, scratch.work
    best.split[FEATURE] = -1
    best.bar[0] = -1.0
    two, many, scores, sums = criterion
    means = oblique.means
    if not means.by_node:  # pairs refer to all classes
        node = present_node(node, None, many)
    prepare(node, two)
    drawn = oblique.drawn
    n = np.uint64(node.items.size)
    draw_cells(oblique.sparse, key, drawn.cells)
    columns = oblique.sparse.columns
    if means.by_node:
        means.pairs[0] = choose_pairs(means.pairing, node.total, means.pair)
    summed = False
    directions = columns + np.uint64(means.pairs[0])
    which, at, number, usable, fallback = ZERO, ZERO, ZERO, ZERO, ZERO
    state = key
    while number < directions or (usable == ZERO and fallback < np.uint64(draw.perm.size)):
        size = ZERO
        value = oblique.value[which]
        features, weights = drawn.feature[which], drawn.weight[which]
        if number < columns:
            size, at = draw_column(oblique.sparse, key, number, at, drawn, which)
        elif number < directions:
            if is_offered(key, number - columns, columns, np.uint64(draw.perm.size)):
                if means.by_node and not summed:
                    sum_steps(codes, oblique.values, node.items, means, work.codes)
                    summed = True
                size = offer_means(oblique.sparse.scale, node.total, means, number - columns, features, weights)
        else:
            features[ZERO], state = draw_feature(draw, fallback, state)
            fallback += ONE
            size = ONE
        least, most = np.uint32(0), np.uint32(0)
        scan = Scan(node, rules.min_leaf, np.int64(number), best, work)
        if size == ONE:
            least, most = fetch_codes(codes, node, np.uint64(features[ZERO]), constant, work.codes)
        elif size > ONE:
            of_tree = columns <= number and not means.by_node
            low, high = project_node(codes, node, cached, of_tree, number - columns, oblique, which, size)
            if low < high:
                projected = with_value(oblique.projected, value)
                if high - low < MOST_CODES and is_whole(oblique, which, size):
                    most = codes_of_whole(low, high, n, projected, work)
                else:
                    usable += ONE
                    scan_projection(low, high, scan, projected, two, many, scores, sums)
        if least < most:
            usable += ONE
            scan_codes(least, most, scan, two, many, scores, sums)
            if size > ONE and best.split[FEATURE] == np.int64(number):
                cut_after_code(scan, with_value(oblique.projected, value))
        if best.split[FEATURE] == np.int64(number):
            drawn.size[which] = size
            which ^= ONE
        number += ONE
    put_back(draw, fallback)
    return which ^ ONE


@inlined
def project_node(codes, node, cached, of_tree, pair, oblique, which, size):
    """Project the rows of a node on the `size` terms at index `which` of oblique.drawn, into oblique.value[which].

    of_tree  True if the direction is difference `pair` of the tree's class means: its projections are stored

    Return the smallest and the largest projection; (0, 0) if a projection is not finite.
    """
    value, items = oblique.value[which], node.items
    features, weights = oblique.drawn.feature[which], oblique.drawn.weight[which]
    if of_tree:
        projections = oblique.cache.mean[pair] if cached else oblique.means.value[pair]
        for i in range(np.uint64(items.size)):
            value[i] = projections[items[i] >> SHIFT32]
    elif cached:
        project_cached(oblique.cache.value, features, weights, size, items, value)
    else:
        project(codes, oblique.values, features, weights, size, items, value)
    return range_of(value, np.uint64(items.size))


@inlined
def split_by_direction(codes, node, scratch, oblique, which, nodes, pool, number, sums):
    """Send the rows of a node to the sides of its best split, and write it as node `number`.

    which  result of `find_direction`
    nodes  CodeTree; pool: DirectionExtras

    Return the number of rows on the left. scratch.total_l is set to their statistics (kernels/scan/target.py).
    """
    drawn = oblique.drawn
    size = drawn.size[which]
    if size == ONE:
        feature = np.uint64(drawn.feature[which, ZERO])
        column = CachedColumn(scratch.work.codes, np.uint32(0), np.uint32(0))
        return split_by_feature(codes, node, feature, column, scratch, nodes, number, sums)
    cut = oblique.projected.cut[0]
    size_l, _, least = partition_projections(oblique.value[which], cut, node.items, scratch.work.keys)
    sum_left(node, size_l, scratch.best, scratch.total_l, sums)
    nodes.feature[number] = OBLIQUE
    pool.threshold[number] = midpoint(cut, least)
    pool.size[number] = np.uint32(size)
    used = pool.used[0]
    for term in range(size):
        pool.feature[used + term] = np.int32(drawn.feature[which, term])
        pool.weight[used + term] = drawn.weight[which, term]
    pool.used[0] = used + size
    return size_l
