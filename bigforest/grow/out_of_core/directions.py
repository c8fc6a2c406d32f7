"""Directions that nodes split on while trees grow by passes, and the ranges of their projections."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import Terms

LARGEST = sys.float_info.max
# Twice the largest relative error of one product or sum, and the error where they are next to 0.
_ROUNDED = 2.0**-51
_TINY = 5e-324


class Spans(NamedTuple):
    """Smallest and largest value of every feature, float64 [features]."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Direction(NamedTuple):
    """Terms of a direction: feature uint32, ascending, and weight float64. One of a single feature is that feature, and
    its weight is forgotten."""

    feature: NDArray[np.uint32]
    weight: NDArray[np.float64]

    @property
    def single(self) -> bool:
        """Whether it is a feature."""
        return self.feature.size == 1

    def range(self, spans: Spans) -> tuple[float, float]:
        """Bounds of all its finite projections."""
        if self.single:
            feature = self.feature[0]
            return float(spans.low[feature]), float(spans.high[feature])
        return projection_range(self.weight, spans.low[self.feature], spans.high[self.feature])


class DirectionLine(Direction):
    """A direction that is none of a feature even where it has a single one, and whose cut is the threshold itself."""

    __slots__ = ()

    @property
    def single(self) -> bool:
        """See Direction."""
        return False


def single(feature: int) -> Direction:
    """A feature as a direction."""
    return Direction(np.array([feature], np.uint32), np.ones(1))


def projection_range(
    weight: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[float, float]:
    """Bounds of all finite sums of weight * value, whose values are from low to high; float64 [terms]."""
    with np.errstate(over="ignore", invalid="ignore"):
        ends = np.stack([weight * low, weight * high])
        room = (weight.size + 2) * (_ROUNDED * np.abs(ends).max(axis=0).sum() + _TINY)
        least, most = float(ends.min(axis=0).sum() - room), float(ends.max(axis=0).sum() + room)
    if not np.isfinite([least, most]).all():
        return -LARGEST, LARGEST
    return least, most


def terms_of(directions: Sequence[Direction]) -> Terms:
    """The terms of all directions; the weight of a feature that stands alone is 1."""
    weights = [np.ones(1) if direction.single else direction.weight for direction in directions]
    return Terms(
        np.cumsum([0, *(direction.feature.size for direction in directions)]).astype(np.int64),
        np.concatenate([*(direction.feature for direction in directions), np.zeros(0, np.uint32)]).astype(np.int32),
        np.concatenate([*weights, np.zeros(0)]),
    )
