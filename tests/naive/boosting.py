"""Boosted forests in plain Python: weights of rows, bags drawn by them, trees, votes, and the out-of-bag report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from bigforest.options.train_config import TrainConfig
from tests.naive import rng
from tests.naive.split import Table
from tests.naive.tree import Node, grow

PURPOSE_BAG = 1
STREAM = 2
TOTAL = 2**52
MOST = 65_535


class Boosted(NamedTuple):
    """Bag, nodes, error and vote of each tree, and the class that it predicts for each row."""

    bags: list[list[int]]
    trees: list[list[Node]]
    errors: list[float]
    votes: list[float]
    answers: list[list[int]]


def bag_by_weight(weights: Sequence[int], tree: int, config: TrainConfig) -> list[int]:
    """Return how often each row is drawn, with probabilities proportional to the weights."""
    rows = len(weights)
    draws = rows if config.sample_fraction == 1.0 else max(1, int(config.sample_fraction * rows + 0.5))
    key = rng.stream_key(config.seed, PURPOSE_BAG, tree, STREAM)
    counts = [0] * rows
    for draw in range(1, draws + 1):
        point = rng.mix((key + draw * rng.GOLDEN) & rng.MASK) * sum(weights) >> 64
        row = 0
        while point >= weights[row]:
            point -= weights[row]
            row += 1
        counts[row] = min(counts[row] + 1, MOST)
    return counts


def first_weights(rows: int, config: TrainConfig) -> list[int]:
    """Return the weights of the rows for the first tree."""
    return [1 if config.sampling == "arc-x4" else TOTAL // rows] * rows


def next_weights(
    weights: Sequence[int], wrong: Sequence[Sequence[bool]], config: TrainConfig
) -> tuple[list[int], float, float]:
    """Return the weights of the rows for the next tree, and the error and the vote of the last tree.

    weights  weights by which the bag of the last tree was drawn
    wrong    [trees][rows], True if the tree predicts the row wrongly
    """
    rows, last = len(weights), wrong[-1]
    error = Fraction(sum(weight for weight, lost in zip(weights, last, strict=True) if lost), sum(weights))
    if config.sampling == "arc-x4":
        return [1 + sum(tree[row] for tree in wrong) ** 4 for row in range(rows)], float(error), 1.0
    least = 0.5 / (rows + 1)
    counted = min(max(float(error), least), 0.5 - least)
    vote = math.log((1.0 - counted) / counted)
    if not 0 < error < Fraction(1, 2):
        return first_weights(rows, config), float(error), vote
    halves = [Fraction(sum(own for own, lost in zip(weights, last, strict=True) if lost == side)) for side in (0, 1)]
    factors = [float(Fraction(TOTAL // 2) / half) for half in halves]
    # A float64 product is rounded, and then rounded to a whole number, halves to the even one.
    return (
        [max(1, round(weight * factors[lost])) for weight, lost in zip(weights, last, strict=True)],
        float(error),
        vote,
    )


def boost(table: Table, config: TrainConfig) -> Boosted:
    """Grow the forest on a table without categories."""
    weights = first_weights(len(table.target), config)
    made = Boosted([], [], [], [], [])
    wrong: list[list[bool]] = []
    for tree in range(config.trees):
        bag = bag_by_weight(weights, tree, config)
        nodes = grow(table, bag, config, tree)
        answers = [answer(nodes, row) for row in table.low.tolist()]
        wrong.append([own != true for own, true in zip(answers, table.target, strict=True)])
        weights, error, vote = next_weights(weights, wrong, config)
        for column, value in zip(made, (bag, nodes, error, vote, answers), strict=True):
            column.append(value)  # type: ignore[attr-defined]
    return made


def answer(nodes: Sequence[Node], row: Sequence[float]) -> int:
    """The most frequent class of the leaf of a row, the lowest of equals."""
    node = nodes[0]
    while node.feature != -1:
        terms = node.terms or ((node.feature, 1.0),)
        value = 0.0
        for feature, weight in terms:
            value += weight * row[feature]
        value = value if node.terms else row[node.feature]
        missing = value != value
        left = bool(node.default_left) if missing else value <= node.threshold
        node = nodes[node.left if left else node.right]
    return node.counts.index(max(node.counts))


def shares(made: Boosted, row: int, classes: int, trees: Sequence[int]) -> list[float]:
    """Return the share of each class in the votes of some trees. Votes are added in the order of the trees."""
    sums = [0.0] * classes
    for tree in trees:
        sums[made.answers[tree][row]] += made.votes[tree]
    total = math.fsum(made.votes[tree] for tree in trees)
    return [own / total for own in sums]


def out_of_bag(made: Boosted, row: int, classes: int) -> tuple[int | None, list[int]]:
    """Return the class with the most votes of the trees whose bags lack a row, and these trees."""
    voters = [tree for tree, bag in enumerate(made.bags) if bag[row] == 0]
    sums = [0.0] * classes
    for tree in voters:
        sums[made.answers[tree][row]] += made.votes[tree]
    return (sums.index(max(sums)) if voters else None), voters
