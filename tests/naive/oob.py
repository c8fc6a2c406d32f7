"""The out-of-bag report row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from bigforest.forest.table import TreeArrays
from tests.naive.predict import ballot


class Report(NamedTuple):
    """prediction and shares are None for a row that no tree voted on; curve has (error or None, rows) per tree."""

    prediction: list[int | None]
    shares: list[list[float] | None]
    voters: list[int]
    curve: list[tuple[float | None, int]]
    confusion: dict[tuple[int, int], int]


def report(
    trees: Sequence[TreeArrays],
    bags: Sequence[Sequence[int]],
    rows: Sequence[Sequence[float]],
    truth: Sequence[int],
    vote: str,
) -> Report:
    """Judge every row by the trees whose bag (times each row is in it) does not hold it."""
    classes = trees[0].counts.shape[1]
    votes = [[0.0] * classes for _ in rows]
    voters = [0] * len(rows)
    prediction: list[int | None] = [None] * len(rows)
    curve: list[tuple[float | None, int]] = []
    for tree, bag in zip(trees, bags, strict=True):
        for i, row in enumerate(rows):
            if bag[i] == 0:
                votes[i] = [a + b for a, b in zip(votes[i], ballot(tree, row, vote), strict=True)]
                voters[i] += 1
                prediction[i] = votes[i].index(max(votes[i]))
        reached = [i for i in range(len(rows)) if voters[i] > 0]
        wrong = sum(prediction[i] != truth[i] for i in reached)
        curve.append((wrong / len(reached) if reached else None, len(reached)))
    shares = [[v / n for v in row] if n else None for row, n in zip(votes, voters, strict=True)]
    pairs = Counter((t, p) for t, p in zip(truth, prediction, strict=True) if p is not None)
    return Report(prediction, shares, voters, curve, dict(pairs))
