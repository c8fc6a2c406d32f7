"""Rotation trees: splits on the coordinates of a table that is rotated for every tree.

Columns are divided by their standard deviation. The projections on each axis are presorted into codes, and the tree
is grown on these as on features; its nodes are then written as terms in the units of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.shared.encode_values import code_columns
from bigforest.kernels.common.layout import LEAF, OBLIQUE, Codes, Terms
from bigforest.kernels.common.rng import PURPOSE_AXES, stream_key
from bigforest.kernels.oblique.rotation import draw_axes, project_on_axes
from bigforest.schema.config import TrainConfig, check_axes_from
from bigforest.schema.dataspec import DataSpec
from bigforest.store.store import Dictionaries, Store

# Rows that are decoded and projected at a time, so that their values stay in the cache.
_BLOCK = 4096


def rotated_features(spec: DataSpec, config: TrainConfig) -> NDArray[np.intp]:
    """Positions of the features that axes are made of, ascending. Raises ConfigError where the table lacks one."""
    if not config.axes_from:
        return np.arange(len(spec.features))
    places = {feature.name: place for place, feature in enumerate(spec.features)}
    check_axes_from(config, places)
    return np.sort([places[name] for name in config.axes_from])


def with_others(
    axes: NDArray[np.float64], rotated: NDArray[np.intp], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Axes of some features, float64 [axes, rotated], as axes of all. The others follow, an axis each.

    scale  float64 [features], see RotationFamily.tree_axes.
    """
    if rotated.size == scale.size:
        return axes
    others = np.setdiff1d(np.arange(scale.size), rotated)
    all_axes = np.zeros((len(axes) + others.size, scale.size))
    all_axes[: len(axes), rotated] = axes
    all_axes[len(axes) + np.arange(others.size), others] = scale[others]
    return all_axes


def random_axes(config: TrainConfig, tree: int, scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Axes of random directions."""
    axes = np.empty((config.axes or scale.size, scale.size))
    with np.errstate(over="ignore"):
        draw_axes(axes_key(config.seed, tree, 0), config.orthogonal, axes)
    return axes * scale


def rotate(store: Store, axes: NDArray[np.float64], rows: NDArray[np.int64]) -> tuple[Codes, Dictionaries]:
    """The projections of these rows (ascending) on the axes, as codes of all rows and the values of these.

    An axis with a projection that is not finite has a single code. The codes of other rows are 0.
    """
    projections = np.empty((len(axes), rows.size))
    for start in range(0, rows.size, _BLOCK):
        piece = rows[start : start + _BLOCK]

        def values_of(feature: int, piece: NDArray[np.int64] = piece) -> NDArray[np.float64]:
            decoded: NDArray[np.float64] = store.low(feature)[store.feature_codes(feature)[piece]]
            return decoded

        projections[:, start : start + piece.size] = project_rows_on(axes, piece.size, values_of)
    projections[~np.isfinite(projections).all(axis=1)] = 0.0
    return code_columns(projections, len(axes), store.rows, rows)


def project_rows_on(
    axes: NDArray[np.float64], rows: int, values_of: Callable[[int], NDArray[Any]]
) -> NDArray[np.float64]:
    """The projections of some rows on axes, float64 [axes, rows]; values_of: those of a feature in these rows."""
    used = np.flatnonzero(axes.any(axis=0))
    values, projections = np.empty((used.size, rows)), np.empty((len(axes), rows))
    for place, feature in enumerate(used.tolist()):
        values[place] = values_of(feature)
    project_on_axes(values, np.ascontiguousarray(axes[:, used]), projections)
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


def axes_key(seed: int, tree: int, stream: int) -> np.uint64:
    """Key of a stream of random numbers for the axes of a tree."""
    with np.errstate(over="ignore"):
        return np.uint64(stream_key(np.uint64(seed), PURPOSE_AXES, np.uint64(tree), np.uint64(stream)))
