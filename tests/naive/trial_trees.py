"""Whether other trees are better than plain ones, from the errors of single trees (Breiman 2001, section 11); and what
splits gain out of bag (Li et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, permutations
from statistics import variance

import numpy as np

# Of each tree the errors of the rows that it left out, by row; each error has a number for every output.
Trees = Sequence[Mapping[int, Sequence[float]]]


def loss(trees: Trees, row: int) -> float | None:
    """The mean product of the errors of two different trees; None where no two left the row out."""
    errors = [tree[row] for tree in trees if row in tree]
    products = [math.fsum(a * b for a, b in zip(one, other, strict=True)) for one, other in permutations(errors, 2)]
    return math.fsum(products) / len(products) if products else None


def deviance(trees: Trees, row: int, truth: float) -> float | None:
    """The Poisson deviance by the mean of the trees, less half its second derivative by that times the variance of the
    mean; None where no two left the row out."""
    answers = [truth + tree[row][0] for tree in trees if row in tree]
    if len(answers) < 2:
        return None
    mean = math.fsum(answers) / len(answers)
    whole = 2.0 * ((truth * math.log(truth / mean) if truth else 0.0) - truth + mean)
    return whole - truth / mean**2 * variance(answers) / len(answers)


def spread(trees: Trees, weights: Sequence[float]) -> float:
    """By how much the squared error of a single tree is above the loss, in the weighted mean over the rows that two
    trees left out; 0 without any."""
    found = []
    for row, weight in enumerate(weights):
        errors = [tree[row] for tree in trees if row in tree]
        least = loss(trees, row)
        if least is not None:
            single = math.fsum(math.fsum(own * own for own in error) for error in errors) / len(errors)
            found.append((single - least, weight))
    return math.fsum(own * weight for own, weight in found) / math.fsum(weight for _, weight in found) if found else 0.0


def gain(plain: Trees, other: Trees, weights: Sequence[float]) -> tuple[float, float] | None:
    """By how much the loss of `other` is lower, in the weighted mean over rows, and the standard error of that; None
    where fewer than two rows can be evaluated. The trees of both have the same bags."""
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
    """What splits on each feature gain out of bag in a tree.

    paths  of each row out of bag, the nodes from the root to its leaf: the feature (of the leaf -1) and the answer.
    truth  of each of these rows.
    """
    gains = [0.0] * features
    for path, wanted in zip(paths, truth, strict=True):
        for (feature, before), (_, after) in pairwise(path):
            gains[feature] += float((np.array(after) - np.array(before)) @ np.array(wanted))
    return gains
