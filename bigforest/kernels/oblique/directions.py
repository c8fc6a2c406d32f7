"""Directions of oblique trees: drawn by the key of a node, or axes of a whole tree, on which the table is projected.

sparse-oblique  Randomer forests (Tomita et al., section 2): some cells of a matrix of features by columns get weights,
                and each column that is not empty is a direction. Cell c belongs to feature c % features in column
                c // features. The key of the node determines the cells; the key and the number of a cell determine its
                weight.
rotation        each tree draws axes. Sums run in a fixed order, so that axes and projections do not depend on the
                threads of a library.

Oracles: tests/naive/directions.py, tests/naive/rotation.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import BITS32, ONE, SHIFT32, TWO, ZERO
from bigforest.kernels.common.rng import GOLDEN, PLACES, WEIGHTS, below, fraction, mix
from bigforest.kernels.common.sort import sort_bucket
from bigforest.kernels.compiler.jit import inlined, kernel

# Rules for nonzero cells and their weights.
PLACED, CHANCE, NORMAL = 0, 1, 2

# Normal weights are multiples of this step, so that the last bit of the platform's log does not matter.
NORMAL_STEP = 2.0**-20
_SHIFT11 = np.uint64(11)


class Sparse(NamedTuple):
    """Rules by which directions are drawn.

    way       PLACED: `cells` cells have a weight of +-1. CHANCE: each cell has such a weight with probability `chance`.
              NORMAL: as CHANCE, with normal weights.
    columns   uint64, number of columns of the matrix, at least 1
    cells     uint64, number of nonzero cells among features * columns; 0 unless PLACED
    chance    uint64, probability of a nonzero cell times 2**53; not used with PLACED
    scale     float64 [features], factor of a weight, finite; 0 leaves the feature out
    """

    way: int
    columns: np.uint64
    cells: np.uint64
    chance: np.uint64
    scale: NDArray[np.float64]


class Drawn(NamedTuple):
    """Scratch of the directions of a node.

    cells    uint64 [Sparse.cells], ascending
    feature  uint32 [2, features], features of the terms of the current direction and of the best
    weight   float64 [2, features], weights of these terms
    size     uint64 [2], number of terms
    """

    cells: NDArray[np.uint64]
    feature: NDArray[np.uint32]
    weight: NDArray[np.float64]
    size: NDArray[np.uint64]


def make_drawn(sparse: Sparse) -> Drawn:
    """Return scratch for directions drawn by these rules."""
    features = sparse.scale.size
    return Drawn(
        np.empty(int(sparse.cells), np.uint64),
        np.empty((2, features), np.uint32),
        np.empty((2, features)),
        np.empty(2, np.uint64),
    )


@inlined
def draw_cells(sparse, key, cells):
    """Fill `cells`, uint64 [Sparse.cells], with different cells, uniform and ascending."""
    features = np.uint64(sparse.scale.size)
    count = np.uint64(cells.size)
    total = features * sparse.columns
    state = mix(key ^ PLACES)
    drawn = ZERO
    if count * TWO > total:  # selection sampling (Knuth, TAOCP 3.4.2 S)
        for cell in range(total):
            state += GOLDEN
            if below(mix(state), total - cell) < count - drawn:
                cells[drawn] = cell
                drawn += ONE
        return
    while drawn < count:  # draw the missing ones, drop duplicates, repeat
        for index in range(drawn, count):
            state += GOLDEN
            random = mix(state)
            cells[index] = below(random, sparse.columns) * features + (((random & BITS32) * features) >> SHIFT32)
        sort_bucket(cells, ZERO, count)
        drawn = ONE
        for index in range(ONE, count):
            if cells[index] != cells[drawn - ONE]:
                cells[drawn] = cells[index]
                drawn += ONE


@inlined
def weight_of(sparse, key, cell):
    """Return the weight of a nonzero cell; `key` is mix(key of the node ^ WEIGHTS)."""
    random = mix(key + (cell + ONE) * GOLDEN)
    if sparse.way != NORMAL:
        return 1.0 if random >> np.uint64(63) else -1.0
    return normal_of(random)


@inlined
def normal_of(random):
    """Return a normally distributed number from a random uint64: Box and Muller 1958, rounded to NORMAL_STEP."""
    radius = fraction(random) + 2.0**-53  # above 0
    angle = fraction(mix(random + GOLDEN))
    normal = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
    return np.rint(normal / NORMAL_STEP) * NORMAL_STEP


@inlined
def draw_column(sparse, key, column, at, drawn, which):
    """Write the terms of a column into row `which` of the arrays of `drawn`. Return their number, and the new `at`.

    key    key of the node
    at     uint64, index in drawn.cells of the first cell not used by an earlier column
    """
    features = np.uint64(sparse.scale.size)
    first = column * features
    weights_key = mix(key ^ WEIGHTS)
    size = ZERO
    if sparse.way == PLACED:
        while at < np.uint64(drawn.cells.size) and drawn.cells[at] < first + features:
            cell = drawn.cells[at]
            size = put_term(sparse, cell - first, weight_of(sparse, weights_key, cell), drawn, which, size)
            at += ONE
        return size, at
    places_key = mix(key ^ PLACES)
    for feature in range(features):
        cell = first + feature
        if mix(places_key + (cell + ONE) * GOLDEN) >> _SHIFT11 < sparse.chance:
            size = put_term(sparse, feature, weight_of(sparse, weights_key, cell), drawn, which, size)
    return size, at


@inlined
def put_term(sparse, feature, weight, drawn, which, size):
    """Append a term, unless its scaled weight is 0; return the number of terms."""
    scaled = weight * sparse.scale[feature]
    if scaled == 0.0:
        return size
    drawn.feature[which, size] = np.uint32(feature)
    drawn.weight[which, size] = scaled
    return size + ONE


@kernel
def draw_axes(key, orthogonal, axes):
    """Fill axes float64 [axes, features] with Gaussian directions of length 1 from the stream `key`.

    orthogonal  True to make each direction orthogonal to the earlier ones of its group (modified Gram-Schmidt). A group
                has as many directions as there are features

    A direction that nearly vanishes is drawn again.
    """
    features = axes.shape[1]
    drawn = np.uint64(0)
    for a in range(axes.shape[0]):
        first = a - a % features if orthogonal else a
        length = 0.0
        while length < NORMAL_STEP:
            for f in range(features):
                drawn += np.uint64(1)
                axes[a, f] = normal_of(mix(key + drawn * GOLDEN))
            for other in range(first, a):
                shadow = 0.0
                for f in range(features):
                    shadow += axes[a, f] * axes[other, f]
                for f in range(features):
                    axes[a, f] -= shadow * axes[other, f]
            length = 0.0
            for f in range(features):
                length += axes[a, f] * axes[a, f]
            length = np.sqrt(length)
        for f in range(features):
            axes[a, f] /= length


@kernel
def project_on_axes(values, weights, projections):
    """Set projections[a, i] to the projection of row i on axis a, see kernels/common/layout.py Terms.

    values       float64 [features, rows]
    weights      float64 [axes, features]; features of weight 0 are no terms
    projections  float64 [axes, rows], out

    Cost: a fraction of a nanosecond per row, axis and feature.
    """
    for a in range(np.uint64(weights.shape[0])):
        out = projections[a]
        for i in range(np.uint64(out.size)):
            out[i] = 0.0
        for f in range(np.uint64(weights.shape[1])):
            weight = weights[a, f]
            if weight != 0.0:
                column = values[f]
                for i in range(np.uint64(out.size)):
                    out[i] += weight * column[i]
