"""Distributions. Each draws the rows of a block and computes the Bayes error where it has a closed form.

Trunk, parity, multimodal (multimodal.py) and modified Trunk are those of Tomita, Maggioni and Vogelstein, Randomer
Forests (arXiv 1506.03410, first version); orthant and sparse parity those of Tomita et al., Sparse Projection Oblique
Randomer Forests, JMLR 21 (2020); shapes is a plane cut by two circles, a sine wave and a diagonal line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.simulation.streams import BlockDraw, RandomBlock

Floats = NDArray[np.float64]


class DrawnRows(NamedTuple):
    """Rows of a block: values float64 [rows, dims]; target and truth int64 [rows], equal except for label noise."""

    values: Floats
    target: NDArray[np.int64]
    truth: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trunk:
    """Two Gaussians with means -(1, 1/sqrt 2, ..., 1/sqrt p) in class 0 and + the same in class 1.

    The covariance is the identity, or with `modified` diagonal with the variance sqrt(i) / 2 in dimension i = 1 .. p.
    """

    dims: int
    modified: bool = False
    classes: int = 2

    def rows(self, block: RandomBlock) -> DrawnRows:
        """Draw a block of rows; both classes are equally likely."""
        target = block.stream(BlockDraw.CLASSES).integers(2, size=block.rows)
        values = block.stream(BlockDraw.VALUES).standard_normal((block.rows, self.dims))
        values *= block.spread * np.sqrt(self._variances())
        values += (2 * target - 1)[:, None] * self._mean()
        return DrawnRows(values, target, target)

    def bayes(self) -> float:
        """Return Phi(-d), d being the Mahalanobis distance of a mean from the origin."""
        return normal_tail(math.sqrt(math.fsum(self._mean() ** 2 / self._variances())))

    def _mean(self) -> Floats:
        return 1 / np.sqrt(np.arange(1, self.dims + 1, dtype=np.float64))

    def _variances(self) -> Floats:
        ones = np.ones(self.dims)
        return np.sqrt(np.arange(1, self.dims + 1)) / 2 if self.modified else ones


@dataclass(frozen=True, slots=True)
class Parity:
    """Gaussians of covariance I / 32 at the corners of {0, 1}^p, all as likely; the class is the corner's parity."""

    dims: int
    classes: int = 2

    def rows(self, block: RandomBlock) -> DrawnRows:
        """Draw a block of rows; each coordinate of a corner is a fair coin."""
        corner = block.stream(BlockDraw.CLASSES).integers(2, size=(block.rows, self.dims), dtype=np.uint8)
        values = block.stream(BlockDraw.VALUES).standard_normal((block.rows, self.dims))
        values *= block.spread * math.sqrt(1 / 32)
        values += corner
        target = corner.sum(axis=1, dtype=np.int64) % 2
        return DrawnRows(values, target, target)

    def bayes(self) -> float:
        """Return (1 - (1 - 2q)^p) / 2; q = Phi(-sqrt 8) is the chance that a coordinate is on the wrong side of 1/2."""
        return (1 - (1 - 2 * normal_tail(math.sqrt(8))) ** self.dims) / 2


@dataclass(frozen=True, slots=True)
class Orthant:
    """Uniform on (-1, 1)^p; the class is the orthant: bit d of its number is set where x_d > 0, so 2^p classes."""

    dims: int

    @property
    def classes(self) -> int:
        return 1 << self.dims

    def rows(self, block: RandomBlock) -> DrawnRows:
        """Draw a block of rows. Outliers lie around the middle of their orthant and may leave it."""
        uniform = block.stream(BlockDraw.VALUES).uniform(-1, 1, (block.rows, self.dims))
        positive = uniform > 0
        target = positive @ (1 << np.arange(self.dims))
        middle = np.where(positive, 0.5, -0.5)
        values = uniform if block.spread == 1 else middle + block.spread * (uniform - middle)
        return DrawnRows(values, target, target)

    def bayes(self) -> float:
        """Return 0: the class is a function of the row."""
        return 0.0


@dataclass(frozen=True, slots=True)
class SparseParity:
    """Uniform on (-1, 1)^p; the class is the parity of the number of positive ones among the first 3 coordinates."""

    dims: int
    classes: int = 2

    def rows(self, block: RandomBlock) -> DrawnRows:
        """Draw a block of rows. Both class means are 0, so outliers are uniform on (-2, 2)^p."""
        values = block.stream(BlockDraw.VALUES).uniform(-1, 1, (block.rows, self.dims))
        target = (values[:, :3] > 0).sum(axis=1) % 2
        values *= block.spread
        return DrawnRows(values, target, target)

    def bayes(self) -> float:
        """Return 0: the class is a function of the row."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Shapes:
    """Uniform on (-1, 1)^p; two circles, a sine wave and a diagonal line in the plane of x0 and x1 decide the class.

    A share `noise` of the rows has the other class. Columns beyond the first two mean nothing.
    """

    dims: int
    noise: float
    classes: int = 2

    def rows(self, block: RandomBlock) -> DrawnRows:
        """Draw a block of rows, with the class as recorded and the true class."""
        values = block.stream(BlockDraw.VALUES).uniform(-1, 1, (block.rows, self.dims))
        truth = shape_class(values[:, 0], values[:, 1])
        wrong = block.stream(BlockDraw.NOISE).random(block.rows) < self.noise
        return DrawnRows(values, truth ^ wrong, truth)

    def bayes(self) -> float:
        """Return the share of wrong labels."""
        return self.noise


# Centre and radius. The circles touch neither each other nor the line nor the wave.
CIRCLES = ((-0.45, 0.45, 0.3), (0.5, -0.15, 0.25))
WAVE_LEVEL, WAVE_HEIGHT = -0.7, 0.15


def shape_class(x: Floats, y: Floats) -> NDArray[np.int64]:
    """Return the class of points of the plane, int64, without noise. Crossing any of the four curves changes it.

    Class 1 lies above the diagonal y = x; inside each of the circles, and below the wave y = -0.7 + 0.15 sin(2 pi x),
    the classes are exchanged.
    """
    flips = (y > x).astype(np.int64)
    for centre_x, centre_y, radius in CIRCLES:
        flips += (x - centre_x) ** 2 + (y - centre_y) ** 2 < radius**2
    flips += y < WAVE_LEVEL + WAVE_HEIGHT * np.sin(2 * np.pi * x)
    return flips % 2


def normal_tail(distance: float) -> float:
    """Return the probability that a standard normal variable is below -distance."""
    return math.erfc(distance / math.sqrt(2)) / 2
