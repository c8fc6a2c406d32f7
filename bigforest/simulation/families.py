"""Random streams by purpose, distributions, and the rotation and scaling of all rows.

Every block of rows can be drawn alone. Each distribution draws the rows of a block and computes the Bayes error. The
error of `multimodal` has no closed form and is estimated from random rows.

    trunk, parity, multimodal, modified-trunk   Tomita, Maggioni and Vogelstein, Randomer Forests (arXiv 1506.03410,
                                                first version)
    orthant, sparse-parity                      Tomita et al., Sparse Projection Oblique Randomer Forests, JMLR 21
                                                (2020)
    shapes                                      a plane cut by two circles, a sine wave and a diagonal line
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Most cells, and most rows, of a block. If they change, the table of a seed changes.
BLOCK_CELLS = 1 << 20
BLOCK_ROWS = 1 << 16


class Purpose(IntEnum):
    """Purpose of a random stream."""

    PARAMETERS = 0
    ROTATION = 1
    SCALE = 2
    ROWS = 3
    OUTLIERS = 4
    BAYES = 5


class BlockDraw(IntEnum):
    """Quantity drawn for a block of rows.

    Each has its own stream, so that a longer block begins with the rows of a shorter one.
    """

    CLASSES = 0
    VALUES = 1
    NOISE = 2


@dataclass(frozen=True, slots=True)
class RandomBlock:
    """Key of the random numbers for consecutive rows: block `number` of a table, of `rows` rows.

    sample   number of the sample from the distribution of `seed`.
    purpose  purpose of the rows: ROWS, OUTLIERS or BAYES.
    spread   factor of the deviations from the mean: 1, or 2 for outliers, whose covariance is four times as large.
    """

    seed: int
    sample: int
    purpose: Purpose
    number: int
    rows: int
    spread: float = 1.0

    def stream(self, draw: BlockDraw) -> np.random.Generator:
        """Return the stream of one quantity, from its beginning."""
        return _generator([self.seed, self.sample], (self.purpose, self.number, draw))


def parameters(seed: int, purpose: Purpose) -> np.random.Generator:
    """Return the stream for parameters that all rows of a seed share."""
    return _generator([seed], (purpose,))


def random_blocks(
    rows: int, dims: int, seed: int, sample: int, purpose: Purpose, spread: float = 1.0
) -> Iterator[RandomBlock]:
    """Yield the blocks of a table of this many rows and columns, in order. Only the last may be shorter."""
    size = max(1, min(BLOCK_ROWS, BLOCK_CELLS // dims))
    for at in range(0, rows, size):
        yield RandomBlock(seed, sample, purpose, at // size, min(size, rows - at), spread)


def _generator(entropy: list[int], key: tuple[int, ...]) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy, spawn_key=key)))


Floats = NDArray[np.float64]


class DrawnRows(NamedTuple):
    """Rows of a block: values float64 [rows, dims]; target and truth int64 [rows], equal except for label noise."""

    values: Floats
    target: NDArray[np.int64]
    truth: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trunk:
    """Two Gaussians with means -m in class 0 and m in class 1, m = (1, 1/sqrt 2, ..., 1/sqrt p).

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
    """Gaussians of covariance I / 32 at the corners of {0, 1}^p, equally likely; the class is the corner's parity."""

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
    """Uniform on (-1, 1)^p; the class is the orthant, one of 2^p: bit d of its number is set if x_d > 0."""

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
    """Uniform on (-1, 1)^p; the class is the parity of the number of positive values among the first 3 coordinates."""

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

    Each row has the other class with the probability `noise`. Columns beyond the first two have no effect.
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
        """Return the probability of a wrong label."""
        return self.noise


# Centre and radius. The circles touch neither each other nor the line nor the wave.
CIRCLES = ((-0.45, 0.45, 0.3), (0.5, -0.15, 0.25))
WAVE_LEVEL, WAVE_HEIGHT = -0.7, 0.15


def shape_class(x: Floats, y: Floats) -> NDArray[np.int64]:
    """Return the class of points (x, y) of the plane, int64, without noise. Crossing any of the curves changes it.

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


CLASSES = 4
MODES = 2


class Multimodal:
    """Four classes of two Gaussians each, all eight equally likely.

    Means are drawn from N(0, I), and covariances from an inverse-Wishart distribution with 10 p degrees of freedom and
    mean I. Both depend only on the seed and on p. The Bayes error has no closed form.
    """

    classes = CLASSES

    def __init__(self, dims: int, seed: int) -> None:
        random = parameters(seed, Purpose.PARAMETERS)
        count, freedom = CLASSES * MODES, 10 * dims
        self._seed = seed
        self.means: Floats = random.standard_normal((count, dims))
        # The covariance is c W^-1, where W = A A' has a Wishart distribution with scale I. Bartlett decomposition
        # (1933): A is lower triangular, with standard normals below the diagonal and roots of chi-squares on it. The
        # mean of W^-1 is I / (freedom - p - 1), so c = freedom - p - 1.
        lower = np.tril(random.standard_normal((count, dims, dims)), -1)
        lower[:, range(dims), range(dims)] = np.sqrt(random.chisquare(freedom - np.arange(dims), (count, dims)))
        self._whiten = lower / np.sqrt(freedom - dims - 1)
        self._colour = np.linalg.inv(self._whiten)

    def rows(self, block: RandomBlock) -> DrawnRows:
        """Draw a block of rows: x = mean + z S, with z standard normal and S' S the covariance."""
        mode = block.stream(BlockDraw.CLASSES).integers(len(self.means), size=block.rows)
        values = block.stream(BlockDraw.VALUES).standard_normal((block.rows, self.means.shape[1]))
        for number, colour in enumerate(self._colour):
            members = mode == number
            values[members] = self.means[number] + block.spread * (values[members] @ colour)
        target = mode // MODES
        return DrawnRows(values, target, target)

    def covariance(self, mode: int) -> Floats:
        """Return the covariance of the Gaussian `mode`, float64 [dims, dims]; its class is mode // 2."""
        colour: Floats = self._colour[mode]
        return colour.T @ colour

    def posteriors(self, values: Floats) -> Floats:
        """Return the probability of each class for each row, float64 [rows, classes]."""
        log = np.empty((len(values), len(self.means)))
        for number, (mean, whiten) in enumerate(zip(self.means, self._whiten, strict=True)):
            distance = ((values - mean) @ whiten) ** 2
            log[:, number] = np.log(np.diag(whiten)).sum() - distance.sum(axis=1) / 2
        density = np.exp(log - log.max(axis=1, keepdims=True))
        by_class: Floats = density.reshape(-1, CLASSES, MODES).sum(axis=2)
        by_class /= by_class.sum(axis=1, keepdims=True)
        return by_class

    def sampled_bayes(self, draws: int) -> tuple[float, float]:
        """Estimate the Bayes error from `draws` >= 2 random rows. Return the estimate and its standard error.

        The estimate is the mean of 1 - max posterior, which varies less than the share of wrong rows.
        """
        parts: list[NDArray[np.float64]] = []
        for block in random_blocks(draws, self.means.shape[1], self._seed, 0, Purpose.BAYES):
            parts.append(1 - self.posteriors(self.rows(block).values).max(axis=1))
        errors = np.concatenate(parts)
        return float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(draws))


LARGEST_SCALE = 10.0


def haar_rotation(dims: int, random: np.random.Generator) -> Floats:
    """Draw a rotation uniformly: float64 [dims, dims], orthogonal with determinant 1.

    It is the Q of a QR decomposition of normal numbers. The signs of its columns make the diagonal of R positive, so Q
    is uniform (Mezzadri, 2007). One column is negated if the determinant is -1.
    """
    q, r = np.linalg.qr(random.standard_normal((dims, dims)))
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    if np.linalg.slogdet(q)[0] < 0:
        q[:, 0] = -q[:, 0]
    return np.ascontiguousarray(q)


class Transform:
    """Optional rotation, then optional scaling of every dimension by its own factor, uniform on (0, 10)."""

    def __init__(self, dims: int, seed: int, *, rotate: bool, scale: bool) -> None:
        self.rotation = haar_rotation(dims, parameters(seed, Purpose.ROTATION)) if rotate else None
        self.scales = parameters(seed, Purpose.SCALE).uniform(0, LARGEST_SCALE, dims) if scale else None

    def apply(self, values: Floats) -> Floats:
        """Return the transformed rows of `values`, float64 [rows, dims], which may be changed in place."""
        if self.rotation is not None:
            values = values @ self.rotation.T
        if self.scales is not None:
            values *= self.scales
        return values
