"""Posteriors of a tree estimated anew, row by row."""

from __future__ import annotations

from collections.abc import Sequence

from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.common.layout import LEAF
from tests.naive.predict import find_leaf


def calibrated(tree: TreeArrays, rows: Sequence[Sequence[float]], truth: Sequence[int]) -> list[list[int]]:
    """Return the counts of every node: rows of its leaves by class. A leaf without rows keeps its counts."""
    counts = [[0] * tree.counts.shape[1] for _ in tree.feature]
    for row, label in zip(rows, truth, strict=True):
        if label >= 0:
            counts[find_leaf(tree, row)][label] += 1
    for node in reversed(range(len(counts))):
        if tree.feature[node] != LEAF:
            counts[node] = [a + b for a, b in zip(counts[node + 1], counts[tree.right[node]], strict=True)]
        elif sum(counts[node]) == 0:
            counts[node] = tree.counts[node].tolist()
    return counts


def decreases(tree: TreeArrays, counts: Sequence[Sequence[int]]) -> list[float | None]:
    """Return the decrease of the Gini impurity of every node by these counts; None for a leaf."""

    def weighted(node: int) -> float:
        total = sum(counts[node])
        return total - sum(count * count for count in counts[node]) / total

    return [
        None
        if tree.feature[node] == LEAF
        else (weighted(node) - weighted(node + 1) - weighted(int(tree.right[node]))) / sum(counts[node])
        for node in range(len(counts))
    ]
