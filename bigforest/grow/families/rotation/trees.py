"""Rotation trees: splits on the coordinates of a table that is rotated anew for every tree.

Columns are divided by their standard deviation. The projections on each axis are presorted into codes, and the tree
is grown on these as on features; its nodes are then written as terms in the units of the table.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.shared.encode_values import code_columns
from bigforest.kernels.common.layout import LEAF, OBLIQUE, Codes, Terms
from bigforest.kernels.common.rng import PURPOSE_AXES, draw_rows, stream_key
from bigforest.kernels.oblique.rotation import draw_axes, project_rows
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Dictionaries, Store

# Rows that are decoded and projected together: their values stay in the cache.
_BLOCK = 4096
# Rodriguez 2006, section 5: three features per subset, components of 75% of the rows.
_SUBSET = 3
_SAMPLE = 0.75
# Values are counted in this many steps of their column's range, so that sums of products are exact in 64 bits.
_STEPS = 2.0**15
_MOST_SWEEPS = 60


def principal_axes_of(store: Store, config: TrainConfig, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Axes of principal components of the rows of a store."""
    ends = [store.low(feature)[[0, -1]] for feature in range(scale.size)]
    grid = Grid(*np.array(ends).T)

    def columns(own: NDArray[np.int64], group: int) -> list[NDArray[np.int64]]:
        sample = in_sample(config, tree, group, 0, store.rows)
        return [grid.of(int(f), store.low(f))[store.feature_codes(f)[sample]] for f in own.tolist()]

    groups = subsets(config, tree, scale.size)
    sums = [moments(columns(own, group)) for group, own in enumerate(groups)]
    return principal_axes(config, tree, scale, grid, np.stack(sums))


def random_axes(config: TrainConfig, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Axes of random directions."""
    axes = np.empty((config.axes or scale.size, scale.size))
    with np.errstate(over="ignore"):
        draw_axes(_key(config.seed, tree, 0), config.orthogonal, axes)
    return axes * scale


def rotate(store: Store, axes: NDArray[np.float64], rows: NDArray[np.int64]) -> tuple[Codes, Dictionaries]:
    """The projections of these rows (ascending) on the axes, as codes of all rows and the values of these.

    An axis with a projection that is not finite has a single code. The codes of other rows are 0.
    """
    projections = _projections(store, axes, rows)
    projections[~np.isfinite(projections).all(axis=1)] = 0.0
    return code_columns(projections, len(axes), store.rows, rows)


def _projections(store: Store, axes: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    projections = np.empty((len(axes), rows.size))
    used = [int(feature) for feature in np.flatnonzero(axes.any(axis=0))]
    weights = np.ascontiguousarray(axes[:, used])
    for start in range(0, rows.size, _BLOCK):
        piece = rows[start : start + _BLOCK]
        values = np.empty((len(used), piece.size))
        for place, feature in enumerate(used):
            values[place] = store.low(feature)[store.feature_codes(feature)[piece]]
        block = np.empty((len(axes), piece.size))
        project_rows(values, weights, block)
        projections[:, start : start + piece.size] = block
    return projections


def in_terms(tree: TreeArrays, axes: NDArray[np.float64]) -> TreeArrays:
    """The tree with the terms of axes in the place of their numbers."""
    inner = tree.feature != LEAF
    size = np.zeros(inner.size, np.int64)
    lengths = np.count_nonzero(axes, axis=1)
    size[inner] = lengths[tree.feature[inner]]
    if not inner.any():
        return tree
    features = [np.flatnonzero(axis).astype(np.int32) for axis in axes]
    used = tree.feature[inner]
    feature = np.concatenate([features[axis] for axis in used])
    weight = np.concatenate([axes[axis, features[axis]] for axis in used])
    start = np.concatenate([[0], np.cumsum(size)])
    return tree._replace(feature=np.where(inner, np.int32(OBLIQUE), tree.feature), terms=Terms(start, feature, weight))


def _key(seed: int, tree: int, stream: int) -> np.uint64:
    with np.errstate(over="ignore"):
        return np.uint64(stream_key(np.uint64(seed), PURPOSE_AXES, np.uint64(tree), np.uint64(stream)))


def subsets(config: TrainConfig, tree: int, features: int) -> list[NDArray[np.int64]]:
    """The disjoint random subsets of the features that have principal components of their own."""
    order = np.argsort(_random(_key(config.seed, tree, 0), 0, features), kind="stable")
    return [np.sort(order[start : start + _SUBSET]) for start in range(0, features, _SUBSET)]


def in_sample(config: TrainConfig, tree: int, group: int, begin: int, end: int) -> NDArray[np.bool_]:
    """Which of the rows from `begin` to before `end` a subset's components are of."""
    sample: NDArray[np.bool_] = _random(_key(config.seed, tree, group + 1), begin, end) < np.uint64(_SAMPLE * 2**64)
    return sample


def _random(key: np.uint64, begin: int, end: int) -> NDArray[np.uint64]:
    """The numbers of a stream from `begin` to before `end`."""
    random = np.empty(end - begin, np.uint64)
    with np.errstate(over="ignore"):
        draw_rows(key, np.arange(begin, end, dtype=np.uint64), random)
    return random


class Grid(NamedTuple):
    """Smallest and largest value of each feature, float64 [features]: values are counted in steps of this range."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def of(self, feature: int, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Values of a feature in whole steps from the smallest on; 0 where a step is worth nothing."""
        if not self.worth(feature):
            return np.zeros(values.size, np.int64)
        low = self.low[feature]
        steps: NDArray[np.int64] = np.rint((values - low) / (self.high[feature] - low) * _STEPS).astype(np.int64)
        return steps

    def worth(self, feature: int) -> float:
        """What a step of a feature is worth; 0 where there is no range."""
        span = float(self.high[feature]) - float(self.low[feature])
        return span / _STEPS if 0.0 < span < math.inf else 0.0


def moments(columns: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Number of rows, sums and sums of products of at most _SUBSET columns in steps; those of pieces can be added."""
    found = np.zeros(1 + _SUBSET + _SUBSET * _SUBSET, np.int64)
    found[0] = columns[0].size
    for i, one in enumerate(columns):
        found[1 + i] = one.sum()
        for j, two in enumerate(columns):
            found[1 + _SUBSET * (i + 1) + j] = (one * two).sum()
    return found


def principal_axes(
    config: TrainConfig, tree: int, scale: NDArray[np.float64], grid: Grid, sums: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Principal components of the subsets, from the `moments` of each, int64 [subsets, moments], as axes."""
    axes = np.zeros((scale.size, scale.size))
    start = 0
    for own, found in zip(subsets(config, tree, scale.size), sums, strict=True):
        unit = np.array([grid.worth(int(feature)) for feature in own]) * scale[own]
        axes[start : start + own.size][:, own] = _eigenvectors(_covariance(found, own.size) * np.outer(unit, unit))
        start += own.size
    return axes * scale


def _covariance(found: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Covariances from exact sums, see `moments`."""
    rows, *rest = found.tolist()
    rows = max(rows, 1)
    sums, products = rest[:_SUBSET], rest[_SUBSET:]
    return np.array(
        [[(rows * products[_SUBSET * i + j] - sums[i] * sums[j]) / rows**2 for j in range(size)] for i in range(size)]
    )


def _eigenvectors(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Eigenvectors of a small symmetric matrix as rows: Jacobi's rotations, in a fixed order."""
    size = len(matrix)
    rest = matrix.tolist()
    vectors = np.eye(size).tolist()
    for _ in range(_MOST_SWEEPS):
        if all(
            abs(rest[i][j]) <= 1e-14 * math.sqrt(abs(rest[i][i] * rest[j][j])) for i in range(size) for j in range(i)
        ):
            break
        for i in range(size):
            for j in range(i):
                _rotate_pair(rest, vectors, j, i)
    return np.array(vectors)


def _rotate_pair(rest: list[list[float]], vectors: list[list[float]], p: int, q: int) -> None:
    """Make entry (p, q) zero by a rotation of rows and columns p and q."""
    if rest[p][q] == 0.0:
        return
    theta = (rest[q][q] - rest[p][p]) / (2.0 * rest[p][q])
    t = math.copysign(1.0, theta) / (abs(theta) + math.sqrt(theta * theta + 1.0)) if abs(theta) < 1e150 else 0.5 / theta
    c = 1.0 / math.sqrt(t * t + 1.0)
    s = t * c
    for k in range(len(rest)):
        rest[k][p], rest[k][q] = c * rest[k][p] - s * rest[k][q], s * rest[k][p] + c * rest[k][q]
    for k in range(len(rest)):
        rest[p][k], rest[q][k] = c * rest[p][k] - s * rest[q][k], s * rest[p][k] + c * rest[q][k]
        vectors[p][k], vectors[q][k] = c * vectors[p][k] - s * vectors[q][k], s * vectors[p][k] + c * vectors[q][k]
