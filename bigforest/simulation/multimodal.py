"""Four classes of two Gaussians each, with random means and covariances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.simulation.families import DrawnRows, Floats
from bigforest.simulation.streams import BlockDraw, Purpose, RandomBlock, parameters, random_blocks

CLASSES = 4
MODES = 2


class Multimodal:
    """Means are N(0, I); covariances are inverse-Wishart with 10 p degrees of freedom and mean I.

    Means and covariances depend only on the seed. All eight Gaussians are equally likely. The Bayes error has no closed
    form.
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
        """Estimate the Bayes error and its standard error from `draws` >= 2 random rows.

        The estimate is the mean of 1 - max posterior, which varies less than the share of counted mistakes.
        """
        parts: list[NDArray[np.float64]] = []
        for block in random_blocks(draws, self.means.shape[1], self._seed, 0, Purpose.BAYES):
            parts.append(1 - self.posteriors(self.rows(block).values).max(axis=1))
        errors = np.concatenate(parts)
        return float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(draws))
