"""Reduced error pruning of one tree, by walking it."""

from __future__ import annotations

from collections.abc import Sequence

from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.common.layout import LEAF
from tests.naive.predict import looked_at

Shape = tuple[list[int], object, object] | list[int]


def pruned(tree: TreeArrays, rows: Sequence[Sequence[float]], truth: Sequence[int], ties: str, node: int = 0) -> Shape:
    """The tree below `node` as (counts, left, right) or, for a leaf, counts. truth is -1 where unknown."""
    return prune(tree, rows, truth, ties, node)[0]


def prune(
    tree: TreeArrays, rows: Sequence[Sequence[float]], truth: Sequence[int], ties: str, node: int
) -> tuple[Shape, int]:
    """Return the pruned subtree of a node, and how many of the rows of the node it predicts correctly."""
    counts = tree.counts[node].tolist()
    own = sum(label == counts.index(max(counts)) for label in truth)
    if tree.feature[node] == LEAF:
        return counts, own
    left = [looked_at(tree, node, row) <= tree.threshold[node] for row in rows]
    shapes, below = [], 0
    for side, child in ((True, node + 1), (False, tree.right[node])):
        chosen = [i for i, goes_left in enumerate(left) if goes_left == side]
        shape, right = prune(tree, [rows[i] for i in chosen], [truth[i] for i in chosen], ties, int(child))
        shapes.append(shape)
        below += right
    if own > below or (ties == "prune" and own == below):
        return counts, own
    return (counts, *shapes), below
