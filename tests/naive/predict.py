"""Prediction one row and one tree at a time, in plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.common.layout import LEAF, OBLIQUE
from tests.naive import rng

PURPOSE_TIE = 3
PURPOSE_STOCHASTIC = 4


# Levels of each category, by code; None is the missing level.
Names = Mapping[int, Sequence[str | None]]


def find_leaf(tree: TreeArrays, row: Sequence[Any], names: Names = MappingProxyType({})) -> int:
    """Return the number of the leaf of a row. A cell is a number or a level; None or NaN for missing."""
    node = 0
    while tree.feature[node] != LEAF:
        node = node + 1 if goes_left(tree, node, row, names) else int(tree.right[node])
    return node


def goes_left(tree: TreeArrays, node: int, row: Sequence[Any], names: Names) -> bool:
    """Return True if a row goes left at an inner node."""
    feature = int(tree.feature[node])
    default = bool(tree.default_left[node])
    if feature in names:
        assert tree.levels is not None
        listed = [
            names[feature][code] for code in tree.levels.code[tree.levels.start[node] : tree.levels.start[node + 1]]
        ]
        return default != (row[feature] in listed)
    if feature >= 0 and is_missing(row[feature]):
        return default
    return bool(looked_at(tree, node, row) <= tree.threshold[node])


def is_missing(cell: Any) -> bool:
    """Return True if a cell has no value."""
    return cell is None or cell != cell


def looked_at(tree: TreeArrays, node: int, row: Sequence[float]) -> float:
    """Return the value, or projection, of a row that an inner node compares with its threshold."""
    if tree.feature[node] >= 0:
        return row[tree.feature[node]]
    assert tree.feature[node] == OBLIQUE
    assert tree.terms is not None
    terms = slice(tree.terms.start[node], tree.terms.start[node + 1])
    return projection(tree.terms.feature[terms].tolist(), tree.terms.weight[terms].tolist(), row)


def projection(features: Sequence[int], weights: Sequence[float], row: Sequence[float]) -> float:
    """The sum of weight * value in the order of the terms."""
    total = 0.0
    for feature, weight in zip(features, weights, strict=True):
        total += float(weight) * float(row[feature])
    return total


def ballot(tree: TreeArrays, row: Sequence[Any], vote: str, names: Names = MappingProxyType({})) -> list[float]:
    """Return the votes of the tree for each class, or its number."""
    leaf = find_leaf(tree, row, names)
    if tree.value is not None:
        return [float(tree.value[leaf])]
    counts = tree.counts[leaf].tolist()
    if vote == "hard":
        return [1.0 if k == counts.index(max(counts)) else 0.0 for k in range(len(counts))]
    return [count / sum(counts) for count in counts]


def sum_of_votes(
    trees: Sequence[TreeArrays], row: Sequence[Any], vote: str, names: Names = MappingProxyType({})
) -> list[float]:
    """The ballots of all trees added up in the order of the trees."""
    votes = [0.0] * max(1, trees[0].counts.shape[1])
    for tree in trees:
        votes = [a + b for a, b in zip(votes, ballot(tree, row, vote, names), strict=True)]
    return votes


def decide(votes: list[float], vote: str, ties: str, seed: int, number: int) -> int:
    """Return the class of row `number`, -1 if rejected. A stochastic vote needs soft `votes`."""
    if vote == "stochastic":
        point = uniform(seed, PURPOSE_STOCHASTIC, number) * total(votes)
        reached = 0.0
        for k, votes_of_class in enumerate(votes):
            reached += votes_of_class
            if reached > point or reached >= total(votes):
                return k
    best = [k for k, votes_of_class in enumerate(votes) if votes_of_class == max(votes)]
    if ties == "reject" and len(best) > 1:
        return -1
    if ties == "random":
        return best[int(uniform(seed, PURPOSE_TIE, number) * len(best))]
    return best[0]


def total(votes: list[float]) -> float:
    """The sum in the order of the classes."""
    result = 0.0
    for votes_of_class in votes:
        result += votes_of_class
    return result


def uniform(seed: int, purpose: int, number: int) -> float:
    """The draw of row `number`, in [0, 1)."""
    key = rng.stream_key(seed, purpose, 0, 0)
    return (rng.mix((key + (number + 1) * rng.GOLDEN) & rng.MASK) >> 11) / 2**53


def is_preorder(leaf: Sequence[bool], left: Sequence[int], right: Sequence[int], depth: Sequence[int]) -> bool:
    """Return True if the nodes are one tree in preorder with the right depths."""
    visited: list[int] = []

    def walk(node: int, level: int) -> bool:
        if not 0 <= node < len(leaf) or node != len(visited) or depth[node] != level:
            return False
        visited.append(node)
        return leaf[node] or (walk(left[node], level + 1) and walk(right[node], level + 1))

    return walk(0, 0) and len(visited) == len(leaf)


def adds_up(leaf: Sequence[bool], left: Sequence[int], right: Sequence[int], counts: Sequence[Sequence[int]]) -> bool:
    """Return True if the counts of the children of every inner node add up to its counts."""
    return all(
        is_leaf or all(map(int.__eq__, map(int.__add__, counts[left[node]], counts[right[node]]), counts[node]))
        for node, is_leaf in enumerate(leaf)
    )
