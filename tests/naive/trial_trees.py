"""Losses of forests from the out-of-bag errors of single trees (Breiman 2001, section 11), and their comparison; gains
of splits out of bag (Li et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, permutations
from statistics import variance

import numpy as np

# For each tree, the errors of its out-of-bag rows, by row; an error has a number for every output.
Trees = Sequence[Mapping[int, Sequence[float]]]


def loss(trees: Trees, row: int) -> float | None:
    """Return the mean product of the errors of two different trees; None if fewer than two left the row out."""
    errors = [tree[row] for tree in trees if row in tree]
    products = [math.fsum(a * b for a, b in zip(one, other, strict=True)) for one, other in permutations(errors, 2)]
    return math.fsum(products) / len(products) if products else None


def deviance(trees: Trees, row: int, truth: float) -> float | None:
    """Return the Poisson deviance of the mean m of the trees, less half its second derivative in m times the
    variance of m; None if fewer than two trees left the row out."""
    answers = [truth + tree[row][0] for tree in trees if row in tree]
    if len(answers) < 2:
        return None
    mean = math.fsum(answers) / len(answers)
    whole = 2.0 * ((truth * math.log(truth / mean) if truth else 0.0) - truth + mean)
    return whole - truth / mean**2 * variance(answers) / len(answers)


def spread(trees: Trees, weights: Sequence[float]) -> float:
    """Return the squared error of a single tree minus the loss, a weighted mean over the rows that at least two trees
    left out; 0 without any."""
    found = []
    for row, weight in enumerate(weights):
        errors = [tree[row] for tree in trees if row in tree]
        least = loss(trees, row)
        if least is not None:
            single = math.fsum(math.fsum(own * own for own in error) for error in errors) / len(errors)
            found.append((single - least, weight))
    return math.fsum(own * weight for own, weight in found) / math.fsum(weight for _, weight in found) if found else 0.0


def gain(plain: Trees, other: Trees, weights: Sequence[float]) -> tuple[float, float] | None:
    """Return the loss of `plain` minus that of `other`, a weighted mean over rows, and its standard error; None if
    fewer than two rows can be evaluated. Both have the same bags."""
    pairs = [(loss(plain, row), loss(other, row), weight) for row, weight in enumerate(weights)]
    gains = [(one - other, weight) for one, other, weight in pairs if one is not None and other is not None]
    if len(gains) < 2:
        return None
    total = math.fsum(weight for _, weight in gains)
    mean = math.fsum(own * weight for own, weight in gains) / total
    return mean, math.sqrt(math.fsum(((own - mean) * weight / total) ** 2 for own, weight in gains))


def gains_by_feature(
    paths: Sequence[Sequence[tuple[int, Sequence[float]]]], truth: Sequence[Sequence[float]], features: int
) -> list[float]:
    """Return the out-of-bag gain of the splits of a tree on each feature.

    paths  for each out-of-bag row, the feature (-1 for the leaf) and the value of each node from the root to its leaf
    truth  for each of these rows, the target, one number for every output
    """
    gains = [0.0] * features
    for path, wanted in zip(paths, truth, strict=True):
        for (feature, before), (_, after) in pairwise(path):
            gains[feature] += float((np.array(after) - np.array(before)) @ np.array(wanted))
    return gains
