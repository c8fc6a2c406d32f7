"""Cut grown trees by `max_leaf_nodes`, `min_impurity_decrease` and `ccp_alpha`.

A tree is grown without these options and then cut, before out-of-bag rows are routed down it. The split of a node
depends only on its rows and its key. The result is therefore the same tree as if it were grown best-first, or as if
growing stopped at splits that decrease the impurity too little. Oracle: tests/naive/cut.py, which grows in these ways.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.nodes import TreeArrays, lists_of_some
from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.tree.cut import REMOVED, CutRules, cut_trees
from bigforest.options.train_config import TrainConfig

# Decreases are rounded. A decrease that differs from an option by at most this share counts as equal to it.
_ROUNDING = 2.0**-40
# Values of a node that becomes a leaf.
_LEAF: dict[str, Any] = {"feature": LEAF, "threshold": np.nan, "default_left": False, "gain": np.nan}


def cut_rules(config: TrainConfig) -> CutRules | None:
    """Return the rules by which the trees of a forest are cut; None if they are not cut."""
    limits: dict[str, Any] = {
        "leaves": config.max_leaf_nodes,
        "decrease": config.min_impurity_decrease * (1.0 - _ROUNDING),
        "cost": config.ccp_alpha * (1.0 + _ROUNDING),
    }
    return CutRules(**{name: limit for name, limit in limits.items() if limit}) if config.cuts else None


def decreases_in_tree(nodes: TreeArrays, root: NDArray[np.uint64] | np.uint64) -> NDArray[np.float64]:
    """Return the decrease of the impurity of the whole tree by the split of each node, nan in leaves.

    root  weight of the root
    """
    decrease: NDArray[np.float64] = nodes.gain * (nodes.weight / root)
    return decrease


def cut_whole(trees: TreeArrays, rules: CutRules, decrease: NDArray[np.float64] | None = None) -> TreeArrays:
    """Cut whole trees, in memory.

    decrease  float64 [nodes], what the split of each node decreases, any number in leaves; None for the impurity
    """
    starts, root = trees.starts, trees.root_of
    decrease = decreases_in_tree(trees, trees.weight[root]) if decrease is None else decrease
    number, inner = np.empty(root.size, np.uint32), np.empty(root.size, np.bool_)
    heap = np.empty(heap_size(int(np.diff(starts).max()), rules), np.int64)
    cut_trees(starts, trees.right, decrease, rules, number, inner, heap)
    return cut_nodes(trees, number, inner, number[root + trees.right])


def heap_size(nodes: int, rules: CutRules) -> int:
    """Return the size of the heap that `cut_trees` needs for a tree of this many nodes."""
    return min(rules.leaves, nodes // 2 + 1)


def cut_nodes(
    nodes: TreeArrays, number: NDArray[np.uint32], inner: NDArray[np.bool_], right: NDArray[np.uint32]
) -> TreeArrays:
    """Return the nodes that remain.

    number  new number of each node in its tree, or REMOVED
    inner   bool [nodes], True if the node is an inner node of the cut tree
    right   new number of the right child of each inner node; any number in leaves
    """
    kept = np.flatnonzero(number != REMOVED)
    leaf = ~inner[kept]
    remaining = nodes.of_nodes(lambda array: array[kept], lambda lists: lists_of_some(lists, kept, inner))
    columns = remaining._asdict()
    for name, value in _LEAF.items():
        columns[name][leaf] = value
    columns["right"] = np.where(leaf, np.uint32(0), right[kept])
    return TreeArrays(**columns)
