"""Pruning by a tuning set (reduced error pruning, Quinlan 1987). Oracle: tests/naive/prune.py."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.compiler.jit import kernel


@kernel
def cut_trees(starts, feature, right_child, right, prune_ties, cut, kept, size, best):
    """Decide, bottom up, which inner nodes become leaves, and which nodes remain.

    A node becomes a leaf if its majority is right more often than the leaves below it together; with prune_ties also if
    it is right as often.

    starts       int64 [trees + 1]
    feature      int32 [nodes]; LEAF in a leaf
    right_child  uint32 [nodes], number within the tree
    right        int64 [nodes], rows that pass or end in a node and are of its majority
    cut, kept    bool [nodes], out: the node becomes a leaf; the node remains
    size, best   int64 [nodes], scratch: nodes of a subtree, rows it gets right
    """
    for tree in range(starts.size - 1):
        begin, end = starts[tree], starts[tree + 1]
        for back in range(end - begin):
            node = end - 1 - back
            size[node] = 1
            best[node] = right[node]
            cut[node] = False
            kept[node] = True
            if feature[node] != LEAF:
                left, other = node + 1, begin + np.int64(right_child[node])
                size[node] += size[left] + size[other]
                below = best[left] + best[other]
                cut[node] = right[node] > below or (prune_ties and right[node] == below)
                if not cut[node]:
                    best[node] = below
        node = begin
        while node < end:
            if cut[node]:
                for lost in range(node + 1, node + size[node]):
                    kept[lost] = False
                    cut[lost] = False
                node += size[node]
            else:
                node += 1
