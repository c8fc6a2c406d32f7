"""Shrunk leaves and the choice of lambda, node by node and row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.common.layout import LEAF
from tests.naive.predict import Names, find_leaf


def path_to(tree: TreeArrays, leaf: int) -> list[int]:
    """The nodes from the root to a leaf."""
    parent = {}
    for node, feature in enumerate(tree.feature):
        if feature != LEAF:
            parent[node + 1] = parent[int(tree.right[node])] = node
    path = [leaf]
    while path[0] != 0:
        path.insert(0, parent[path[0]])
    return path


def value(tree: TreeArrays, node: int) -> list[Fraction]:
    """Return the value of a node, without shrinkage: the shares of the classes, or its number."""
    if tree.value is not None:
        return [Fraction(float(tree.value[node]))]
    counts = tree.counts[node].tolist()
    return [Fraction(count, sum(counts)) for count in counts]


def shrunk(tree: TreeArrays, leaf: int, amount: float, unit: float = 1.0) -> list[Fraction]:
    """v_0 + sum of (v_l - v_(l-1)) / (1 + lambda / N_(l-1)), exactly; unit: rows that a weight of 1 counts for."""
    path = path_to(tree, leaf)
    found = value(tree, 0)
    for above, node in pairwise(path):
        rows = int(tree.weight[above]) * Fraction(unit)
        share = 1 / (1 + Fraction(amount) / rows)
        found = [
            f + (own - parent) * share
            for f, own, parent in zip(found, value(tree, node), value(tree, above), strict=True)
        ]
    return found


def weights_of_path(tree: TreeArrays, leaf: int, amount: float) -> list[Fraction]:
    """Return the weight of each node of the path in the shrunk value of the leaf."""
    path = path_to(tree, leaf)
    shares = [1 / (1 + Fraction(amount) / int(tree.weight[node])) for node in path[:-1]]
    below = [*shares, Fraction(0)]
    return [above - own for above, own in zip([Fraction(1), *shares], below, strict=True)]


def contributions(tree: TreeArrays, leaf: int, amount: float) -> list[list[Fraction]]:
    """Return the change of the value at each step of the path (treeinterpreter), shrunk."""
    path = path_to(tree, leaf)
    steps = []
    for above, node in pairwise(path):
        share = 1 / (1 + Fraction(amount) / int(tree.weight[above]))
        steps.append([share * (own - up) for own, up in zip(value(tree, node), value(tree, above), strict=True)])
    return steps


def out_of_bag(
    trees: Sequence[TreeArrays],
    bags: Sequence[Sequence[int]],
    rows: Sequence[Sequence[Any]],
    amount: float,
    names: Names = MappingProxyType({}),
    unit: float = 1.0,
) -> list[list[float] | None]:
    """Return the mean shrunk value over the trees whose bags lack a row; None if there are none."""
    found: list[list[float] | None] = []
    for i, row in enumerate(rows):
        own = [
            [float(v) for v in shrunk(tree, find_leaf(tree, row, names), amount, unit)]
            for tree, bag in zip(trees, bags, strict=True)
            if bag[i] == 0
        ]
        found.append([math.fsum(column) / len(own) for column in zip(*own, strict=True)] if own else None)
    return found


def losses(means: Sequence[list[float] | None], truth: Sequence[float], *, classes: bool) -> list[float | None]:
    """Return the log loss of each row, or its squared error; None without a prediction."""
    eps = 2.0**-52
    found: list[float | None] = []
    for mean, own in zip(means, truth, strict=True):
        if mean is None:
            found.append(None)
        elif classes:
            found.append(-math.log(min(max(mean[int(own)], eps), 1 - eps)))
        else:
            found.append((mean[0] - own) ** 2)
    return found


def half(row: int) -> int:
    """Return 0 or 1, the half of the table with this row."""
    return (row * 0x9E3779B97F4A7C15 % 2**64) >> 63


def mean_loss(by_row: Sequence[float | None], weights: Sequence[float]) -> float:
    """Return the weighted mean of the losses that are not None."""
    used = [(loss, weight) for loss, weight in zip(by_row, weights, strict=True) if loss is not None]
    return math.fsum(loss * weight for loss, weight in used) / math.fsum(weight for _, weight in used)


def chosen(by_lambda: Sequence[Sequence[float | None]], weights: Sequence[float]) -> int:
    """Return the place of the lambda of least loss; 0 unless it gains more than a standard error on the first."""
    used = [row for row, loss in enumerate(by_lambda[0]) if loss is not None]
    sums = [math.fsum(float(own[row] or 0) * weights[row] for row in used) for own in by_lambda]
    best = sums.index(min(sums))
    gains = [(float(by_lambda[0][row] or 0) - float(by_lambda[best][row] or 0)) * weights[row] for row in used]
    return best if math.fsum(gains) ** 2 > math.fsum(gain**2 for gain in gains) else 0


def cross_fitted(by_lambda: Sequence[Sequence[float | None]], weights: Sequence[float]) -> float:
    """Return the loss if each half of the rows is evaluated with the lambda chosen on the other half."""
    sides = [
        [[loss if half(row) == side else None for row, loss in enumerate(by_row)] for by_row in by_lambda]
        for side in (0, 1)
    ]
    one, two = (chosen(side, weights) for side in sides)
    crossed = [by_lambda[one if half(row) else two][row] for row in range(len(weights))]
    return mean_loss(crossed, weights)
