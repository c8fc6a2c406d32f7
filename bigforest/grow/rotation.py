"""Rotation trees: splits on the coordinates of a table that is rotated anew for every tree.

Columns are divided by their standard deviation. The projections on each axis are presorted into codes, and the tree
is grown on these as on features; its nodes are then written as terms in the units of the table.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.forest.table import TreeArrays
from bigforest.grow.coded import code_columns
from bigforest.kernels.layout import LEAF, OBLIQUE, Codes, Terms
from bigforest.kernels.rng import PURPOSE_AXES, draw_rows, stream_key
from bigforest.kernels.rotate import draw_axes, project_rows
from bigforest.store.store import Dictionaries, Store

# Rows that are decoded and projected together: their values stay in the cache.
_BLOCK = 4096
# Rodriguez 2006, section 5: three features per subset, components of 75% of the rows.
_SUBSET = 3
_SAMPLE = 0.75
# Values are counted in so many steps of their column's range, so that sums of products are exact in 64 bits.
_STEPS = 2.0**15
_MOST_SWEEPS = 60


def tree_axes(store: Store, config: TrainConfig, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """The axes of a tree in units of the table, float64 [axes, features]; 0 where a feature takes no part.

    scale  float64 [features], 1 / deviation of each feature, 0 where it has none.
    """
    key = _key(config.seed, tree, 0)
    features = scale.size
    if config.rotation == "pca":
        axes = _principal_axes(store, config, tree, scale)
    else:
        axes = np.empty((config.axes or features, features))
        with np.errstate(over="ignore"):
            draw_axes(key, config.orthogonal, axes)
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


def _principal_axes(store: Store, config: TrainConfig, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Principal components of disjoint random subsets of the features, each of its own sample of the rows."""
    features = scale.size
    order = np.argsort(_random(_key(config.seed, tree, 0), features), kind="stable")
    axes = np.zeros((features, features))
    for group, start in enumerate(range(0, features, _SUBSET)):
        own = np.sort(order[start : start + _SUBSET])
        random = _random(_key(config.seed, tree, group + 1), store.rows)
        sample = random < np.uint64(int(_SAMPLE * 2**64))
        columns = [_steps(store, int(f), sample) for f in own]
        moments = _covariance([steps for steps, _ in columns])
        unit = np.array([worth for _, worth in columns]) * scale[own]
        axes[start : start + own.size][:, own] = _eigenvectors(moments * np.outer(unit, unit))
    return axes


def _random(key: np.uint64, count: int) -> NDArray[np.uint64]:
    """The first numbers of a stream."""
    random = np.empty(count, np.uint64)
    with np.errstate(over="ignore"):
        draw_rows(key, np.arange(count, dtype=np.uint64), random)
    return random


def _steps(store: Store, feature: int, sample: NDArray[np.bool_]) -> tuple[NDArray[np.int64], float]:
    """The values of sampled rows in whole steps of the column's range, and what a step is worth; 0 if none."""
    low = store.low(feature)
    span = float(low[-1]) - float(low[0])
    if not 0.0 < span < math.inf:
        return np.zeros(np.count_nonzero(sample), np.int64), 0.0
    steps = np.rint((low - low[0]) / span * _STEPS).astype(np.int64)
    return steps[store.feature_codes(feature)[sample]], span / _STEPS


def _covariance(columns: list[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Covariances of columns of whole numbers, from exact sums."""
    rows = max(columns[0].size, 1)
    sums = [int(column.sum()) for column in columns]
    return np.array(
        [
            [(rows * int((one * two).sum()) - a * b) / rows**2 for two, b in zip(columns, sums, strict=True)]
            for one, a in zip(columns, sums, strict=True)
        ]
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
