"""The out-of-bag report row by row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import stdev
from types import MappingProxyType
from typing import Any, NamedTuple

from bigforest.forest.nodes import TreeArrays
from tests.naive.predict import Names, ballot


class Report(NamedTuple):
    """Report on classes: prediction, shares (None for a row without a vote); curve: (error or None, rows) by tree."""

    prediction: list[int | None]
    shares: list[list[float] | None]
    voters: list[int]
    curve: list[tuple[float | None, int]]
    confusion: dict[tuple[int, int], int]


def report(
    trees: Sequence[TreeArrays],
    bags: Sequence[Sequence[int]],
    rows: Sequence[Sequence[Any]],
    truth: Sequence[int],
    vote: str,
    names: Names = MappingProxyType({}),
) -> Report:
    """Evaluate every row by the trees whose bags lack it; bags: [trees][rows], multiplicities."""
    classes = trees[0].counts.shape[1]
    votes = [[0.0] * classes for _ in rows]
    voters = [0] * len(rows)
    prediction: list[int | None] = [None] * len(rows)
    curve: list[tuple[float | None, int]] = []
    for tree, bag in zip(trees, bags, strict=True):
        for i, row in enumerate(rows):
            if bag[i] == 0:
                votes[i] = [a + b for a, b in zip(votes[i], ballot(tree, row, vote, names), strict=True)]
                voters[i] += 1
                prediction[i] = votes[i].index(max(votes[i]))
        reached = [i for i in range(len(rows)) if voters[i] > 0]
        wrong = sum(prediction[i] != truth[i] for i in reached)
        curve.append((wrong / len(reached) if reached else None, len(reached)))
    shares = [[v / n for v in row] if n else None for row, n in zip(votes, voters, strict=True)]
    pairs = Counter((t, p) for t, p in zip(truth, prediction, strict=True) if p is not None)
    return Report(prediction, shares, voters, curve, dict(pairs))


class NumberReport(NamedTuple):
    """Report on numbers; curve: mean squared error; spread: standard deviation of the predictions of the trees."""

    prediction: list[float | None]
    voters: list[int]
    curve: list[tuple[float | None, int]]
    spread: list[float | None]


def number_report(
    trees: Sequence[TreeArrays],
    bags: Sequence[Sequence[int]],
    rows: Sequence[Sequence[Any]],
    truth: Sequence[float],
    names: Names,
) -> NumberReport:
    """Evaluate every row by the mean of the trees whose bags lack it."""
    votes = [0.0] * len(rows)
    voters = [0] * len(rows)
    said: list[list[float]] = [[] for _ in rows]
    curve: list[tuple[float | None, int]] = []
    for tree, bag in zip(trees, bags, strict=True):
        for i, row in enumerate(rows):
            if bag[i] == 0:
                said[i].append(ballot(tree, row, "soft", names)[0])
                votes[i] += said[i][-1]
                voters[i] += 1
        reached = [i for i in range(len(rows)) if voters[i] > 0]
        squares = [(votes[i] / voters[i] - truth[i]) ** 2 for i in reached]
        curve.append((math.fsum(squares) / len(reached) if reached else None, len(reached)))
    prediction = [v / n if n else None for v, n in zip(votes, voters, strict=True)]
    return NumberReport(prediction, voters, curve, [stdev(own) if len(own) > 1 else None for own in said])
