"""Cut trees: choose the splits that remain, and renumber the remaining nodes. Oracle: tests/naive/cut.py,
tests/naive/prune.py.

The split of a node depends only on its rows and its key. A tree that is cut by some rules is therefore the same as a
tree that is grown by these rules, depth-first or best-first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigforest.kernels.compiler.jit import inlined, kernel

# Number of a node that does not remain in the tree.
REMOVED = 0xFFFFFFFF


class CutRules(NamedTuple):
    """Rules by which trees are cut.

    leaves    most leaves of a tree: splits are taken in the order of their decrease, the largest first, as in
              best-first growing; of equal splits, the first in preorder
    decrease  smallest decrease of a split; -inf for any
    cost      cost of a split: a subtree becomes a leaf if the decreases of its remaining splits add up to less than
              their costs (minimal cost-complexity pruning, Breiman et al. 1984); -inf for no pruning
    ties      True if a subtree also becomes a leaf when its decreases equal its costs

    Pruning (`cost`, `ties`) comes last: it starts from the splits that `leaves` and `decrease` keep.
    """

    leaves: int = 1 << 32
    decrease: float = -np.inf
    cost: float = -np.inf
    ties: bool = True


@inlined
def is_before(decrease, node, other):
    """Return True if `node` is split before `other`."""
    return decrease[node] > decrease[other] or (decrease[node] == decrease[other] and node < other)


@inlined
def push_node(heap, size, node, decrease):
    """Push a node on the heap of `size` nodes. The node that is split first is on top."""
    position = size
    while position > 0 and is_before(decrease, node, heap[(position - 1) // 2]):
        heap[position] = heap[(position - 1) // 2]
        position = (position - 1) // 2
    heap[position] = node


@inlined
def drop_first(heap, size, decrease):
    """Remove the first node from the heap; size: number of nodes after that."""
    node, position = heap[size], 0
    while 2 * position + 1 < size:
        child = 2 * position + 1
        if child + 1 < size and is_before(decrease, heap[child + 1], heap[child]):
            child += 1
        if not is_before(decrease, heap[child], node):
            break
        heap[position] = heap[child]
        position = child
    heap[position] = node


@inlined
def split_best_first(begin, end, right, decrease, rules, inner, heap):
    """Mark the splits of a tree in best-first order, until it has `rules.leaves` leaves."""
    for node in range(begin, end):
        inner[node] = False
    size, leaves = 0, 1
    if right[begin] != 0 and decrease[begin] >= rules.decrease:
        heap[0] = begin
        size = 1
    while size > 0 and leaves < rules.leaves:
        first = heap[0]
        size -= 1
        drop_first(heap, size, decrease)
        inner[first] = True
        leaves += 1
        for child in (first + 1, begin + np.int64(right[first])):
            if right[child] != 0 and decrease[child] >= rules.decrease:
                push_node(heap, size, child, decrease)
                size += 1


@inlined
def prune_splits(begin, end, right, decrease, rules, inner):
    """Prune subtrees. Set decrease[node] to the sum of decrease less cost over the splits left in its subtree."""
    for back in range(end - begin):
        node = end - 1 - back  # children before their parent
        saved = 0.0
        if inner[node]:
            saved = decrease[node] - rules.cost + decrease[node + 1] + decrease[begin + np.int64(right[node])]
            if saved < 0.0 or (rules.ties and saved == 0.0):
                inner[node], saved = False, 0.0
        decrease[node] = saved


@inlined
def number_reached(begin, end, right, number, inner):
    """Number the nodes of a tree that remain: the root, and children of remaining splits."""
    for node in range(begin, end):
        number[node] = REMOVED
    number[begin] = 0
    count = 0
    for node in range(begin, end):
        if number[node] == REMOVED:
            inner[node] = False
            continue
        number[node] = count
        count += 1
        if inner[node]:
            number[node + 1] = 0  # not REMOVED
            number[begin + np.int64(right[node])] = 0


@kernel
def cut_trees(starts, right, decrease, rules, number, inner, heap):
    """Cut trees by rules.

    starts    int64 [trees + 1], tree t has the nodes starts[t]:starts[t + 1], in preorder
    right     uint32 [nodes], number of the right child within the tree, 0 in a leaf
    decrease  float64 [nodes], how much the split of a node decreases the impurity of the tree, or another number; any
              value in a leaf; overwritten
    rules     CutRules
    number    uint32 [nodes], out: the new number of a node within its tree, REMOVED if it does not remain
    inner     bool [nodes], out: True if the node remains and is split
    heap      int64 [smaller of the leaves of a tree and of rules.leaves], scratch; unused if rules.leaves is at least
              the number of nodes of a tree
    """
    for tree in range(starts.size - 1):
        begin, end = starts[tree], starts[tree + 1]
        if rules.leaves < end - begin:
            split_best_first(begin, end, right, decrease, rules, inner, heap)
        else:
            for node in range(begin, end):
                inner[node] = right[node] != 0 and decrease[node] >= rules.decrease
        prune_splits(begin, end, right, decrease, rules, inner)
        number_reached(begin, end, right, number, inner)
