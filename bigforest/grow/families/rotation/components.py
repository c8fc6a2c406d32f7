"""Axes of principal components (Rodriguez, Kuncheva and Alonso 2006).

The features of a tree are divided at random into disjoint subsets. The components of a subset are computed from a
sample of the rows; all of them are kept, so a tree has as many axes as features. With rotation "pca" the sample is
three quarters of all rows. With "pca-classes" it is three quarters of the rows of the tree's bag that are of some
classes, which are drawn again for each subset; a row counts as often as it is in the bag.

Values are counted in whole steps, so that sums do not depend on batches of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.families.rotation.trees import axes_key
from bigforest.kernels.common.rng import draw_rows
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.format import BLOCK_ROWS, block_count, block_span

# Rodriguez 2006, section 5: components of 75% of the rows.
_SAMPLE = 0.75
# Values are counted in this many steps of their column's range, so that sums of products are exact in 64 bits.
_STEPS = 2.0**15
_MOST_SWEEPS = 60
# Streams of a tree: 0 divides the features, 1 + subset samples rows, and from here on they draw classes.
_CLASSES = 2**32


class Grid(NamedTuple):
    """Smallest and largest value of each feature, float64 [features]: values are counted in steps of this range."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def of(self, feature: int, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Values of a feature in whole steps from the smallest on; 0 if the size of a step is 0."""
        if not self.worth(feature):
            return np.zeros(values.size, np.int64)
        low = self.low[feature]
        steps: NDArray[np.int64] = np.rint((values - low) / (self.high[feature] - low) * _STEPS).astype(np.int64)
        return steps

    def worth(self, feature: int) -> float:
        """The size of a step of a feature; 0 without a range."""
        span = float(self.high[feature]) - float(self.low[feature])
        return span / _STEPS if 0.0 < span < math.inf else 0.0


def principal_axes_of(
    sampler: Sampler, tree: int, rotated: NDArray[np.intp], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Axes of principal components of the rows of a store.

    rotated, scale  positions of the features that they are made of, and the scale of each of these.
    """
    store, features = sampler.store, rotated.tolist()
    ends = [store.ends(feature) for feature in features]
    grid = Grid(*np.array(ends).T)
    sums = np.zeros(moments_shape(sampler.config, scale.size), np.int64)
    for block in range(block_count(store.rows)):
        rows = block_span(store.rows, block)

        def values(place: int, rows: range = rows) -> NDArray[np.float64]:
            feature = features[place]
            decoded: NDArray[np.float64] = store.low(feature)[store.feature_codes(feature)[rows.start : rows.stop]]
            return decoded

        sums += moments(sampler, tree, rows, grid, values)
    return principal_axes(sampler.config, tree, scale, grid, sums)


def moments_shape(config: TrainConfig, features: int) -> tuple[int, int, int]:
    """The shape of `moments`: [subsets, 1 + features of a subset, the same again]."""
    size = min(config.subset_features, features)
    return -(-features // size), 1 + size, 1 + size


def subsets(config: TrainConfig, tree: int, features: int) -> list[NDArray[np.int64]]:
    """The disjoint random subsets of the features that have principal components of their own."""
    order = np.argsort(_random(axes_key(config.seed, tree, 0), 0, features), kind="stable")
    size = config.subset_features
    return [np.sort(order[start : start + size]) for start in range(0, features, size)]


def drawn_classes(config: TrainConfig, tree: int, subset: int, classes: int) -> NDArray[np.bool_]:
    """The classes whose rows the components of a subset use: each with probability 1/2, drawn again if there is
    none."""
    key, begin = axes_key(config.seed, tree, _CLASSES + subset), 0
    while True:
        drawn: NDArray[np.bool_] = _random(key, begin, begin + classes) < np.uint64(2**63)
        if drawn.any():
            return drawn
        begin += classes


def moments(
    sampler: Sampler, tree: int, rows: range, grid: Grid, values: Callable[[int], NDArray[np.float64]]
) -> NDArray[np.int64]:
    """For each subset the sums of products of its features, in steps, over its sample of the rows of a block.

    values  of a feature in these rows.

    Returns `moments_shape`: the first row and column are of the constant 1, so they hold the number of rows and the
    sums of the features. Those of all blocks can be added.
    """
    config, features = sampler.config, grid.low.size
    sums = np.zeros(moments_shape(config, features), np.int64)
    bag, target = np.ones(len(rows), np.int64), None
    if config.rotation == "pca-classes":
        bag = sampler.block(tree, rows.start // BLOCK_ROWS).astype(np.int64)
        target = sampler.store.labels(rows.start, rows.stop)
    for subset, members in enumerate(subsets(config, tree, features)):
        sample = _random(axes_key(config.seed, tree, subset + 1), rows.start, rows.stop) < np.uint64(_SAMPLE * 2**64)
        if target is not None:
            classes = len(sampler.store.spec.target.classes)
            sample &= drawn_classes(config, tree, subset, classes)[target] & (bag > 0)
        columns = np.ones((1 + members.size, np.count_nonzero(sample)), np.int64)
        for place, feature in enumerate(members.tolist()):
            columns[1 + place] = grid.of(feature, values(feature)[sample])
        sums[subset, : 1 + members.size, : 1 + members.size] = (columns * bag[sample]) @ columns.T
    return sums


def principal_axes(
    config: TrainConfig, tree: int, scale: NDArray[np.float64], grid: Grid, sums: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Principal components of the subsets, from the `moments` of all rows, as axes.

    A subset without rows in its sample keeps its features as they are.
    """
    axes = np.zeros((scale.size, scale.size))
    start = 0
    for members, total in zip(subsets(config, tree, scale.size), sums, strict=True):
        unit = np.array([grid.worth(int(feature)) for feature in members]) * scale[members]
        axes[start : start + members.size][:, members] = _eigenvectors(
            _covariance(total, members.size) * np.outer(unit, unit)
        )
        start += members.size
    return axes * scale


def _random(key: np.uint64, begin: int, end: int) -> NDArray[np.uint64]:
    """The numbers of a stream from `begin` to before `end`."""
    random = np.empty(end - begin, np.uint64)
    with np.errstate(over="ignore"):
        draw_rows(key, np.arange(begin, end, dtype=np.uint64), random)
    return random


def _covariance(total: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Covariances from exact sums, see `moments`."""
    (rows, *sums), *products = total.tolist()
    rows = max(rows, 1)
    return np.array(
        [[(rows * products[i][1 + j] - sums[i] * sums[j]) / rows**2 for j in range(size)] for i in range(size)]
    )


def _eigenvectors(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Eigenvectors of a small symmetric matrix as rows: Jacobi's rotations, in a fixed order."""
    rest, vectors = matrix.copy(), np.eye(len(matrix))
    pairs = [(j, i) for i in range(len(matrix)) for j in range(i)]
    with np.errstate(all="ignore"):
        for _ in range(_MOST_SWEEPS):
            sizes = np.diag(rest)
            if (np.tril(np.abs(rest), -1) <= 1e-14 * np.sqrt(np.abs(np.outer(sizes, sizes)))).all():
                break
            for p, q in pairs:
                _rotate_pair(rest, vectors, p, q)
    return vectors


def _rotate_pair(rest: NDArray[np.float64], vectors: NDArray[np.float64], p: int, q: int) -> None:
    """Make entry (p, q) zero by a rotation of rows and columns p and q."""
    if rest[p, q] == 0.0:
        return
    theta = float(rest[q, q] - rest[p, p]) / (2.0 * float(rest[p, q]))
    t = math.copysign(1.0, theta) / (abs(theta) + math.sqrt(theta * theta + 1.0)) if abs(theta) < 1e150 else 0.5 / theta
    c = 1.0 / math.sqrt(t * t + 1.0)
    s = t * c
    for one, two in ((rest[:, p], rest[:, q]), (rest[p], rest[q]), (vectors[p], vectors[q])):
        one[:], two[:] = c * one - s * two, s * one + c * two
