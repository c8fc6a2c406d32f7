"""Classes of simulated rows, Bayes rules and densities by their definitions, a row at a time."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

Row = list[float]


def trunk_rule(row: Row, modified: bool) -> int:
    """The likelier class of a row of (modified) Trunk: compares the squared distances to the two means."""
    distance = {0: 0.0, 1: 0.0}
    for i, x in enumerate(row, start=1):
        variance = math.sqrt(i) / 2 if modified else 1.0
        distance[0] += (x + 1 / math.sqrt(i)) ** 2 / variance
        distance[1] += (x - 1 / math.sqrt(i)) ** 2 / variance
    return int(distance[1] < distance[0])


def parity_rule(row: Row) -> int:
    """The likelier class: sums the densities of all corners of each parity."""
    densities = [0.0, 0.0]
    for corner in itertools.product((0, 1), repeat=len(row)):
        densities[sum(corner) % 2] += math.exp(-16 * sum((x - c) ** 2 for x, c in zip(row, corner, strict=True)))
    return int(densities[1] > densities[0])


def orthant(row: Row) -> int:
    """The number whose bit d says whether x_d is positive."""
    return sum(2**d for d, x in enumerate(row) if x > 0)


def sparse_parity(row: Row) -> int:
    """Parity of the positive ones among the first three coordinates."""
    return len([x for x in row[:3] if x > 0]) % 2


def shape(row: Row) -> int:
    """Class 1 above the diagonal; every circle and the wave exchange the classes."""
    x, y = row[:2]
    inside = [math.hypot(x + 0.45, y - 0.45) < 0.3, math.hypot(x - 0.5, y + 0.15) < 0.25]
    below = y < 0.15 * math.sin(2 * math.pi * x) - 0.7
    label = y > x
    for exchanged in (*inside, below):
        if exchanged:
            label = not label
    return int(label)


def mixture_posteriors(
    row: NDArray[np.float64], means: NDArray[np.float64], covariances: list[NDArray[np.float64]], per_class: int
) -> list[float]:
    """Probability of each class of a mixture of Gaussians, by their densities with inverted covariances."""
    density = []
    for mean, covariance in zip(means, covariances, strict=True):
        offset = row - mean
        exponent = -0.5 * float(offset @ np.linalg.inv(covariance) @ offset)
        density.append(math.exp(exponent) / math.sqrt(float(np.linalg.det(covariance))))
    totals = [sum(density[at : at + per_class]) for at in range(0, len(density), per_class)]
    return [total / sum(totals) for total in totals]
