"""Pruning by a tuning set (reduced error pruning, Quinlan 1987). Oracle: tests/naive/prune.py."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import kernel
from bigforest.kernels.layout import LEAF
from bigforest.kernels.route import TILE, step


@kernel
def count_right(tiles, rows, layout, directions, sets, missing, roots, majority, truth, right, place):
    """right[i] += rows that pass node i, or end there, and are of its majority, for the nodes of the trees at `roots`.

    tiles, layout, directions, sets, missing  as in kernels/route.py; roots uint64 [trees]
    majority  uint16 [nodes], class of most rows of each node
    truth     int32 [rows], -1 where unknown: such a row counts nowhere
    right     int64 [nodes], added to
    place     uint32 [TILE], scratch
    """
    size = np.uint64(tiles.shape[1] * TILE)
    flat = tiles.reshape(-1)
    for tree in range(roots.size):
        for number in range((rows + TILE - 1) // TILE):
            first = np.uint64(number) * np.uint64(TILE)
            here = min(np.uint64(TILE), np.uint64(rows) - first)
            tile = flat[np.uint64(number) * size :]
            for j in range(here):
                row = np.uint64(j)
                place[row] = np.uint32(roots[np.uint64(tree)])
                going = True
                while going:
                    node = np.uint64(place[row])
                    right[node] += np.int64(truth[first + row]) == np.int64(majority[node])
                    going = step(tile, layout, directions, sets, missing, place, row)


@kernel
def cut_trees(starts, feature, right_child, right, prune_ties, cut, kept, size, best):
    """Decide from below which inner nodes become leaves, and which nodes are left.

    A node becomes one where its majority is right more often than the leaves below are together; if prune_ties, also
    where it is right as often.

    starts       int64 [trees + 1]
    feature      int32 [nodes]; LEAF in a leaf
    right_child  uint32 [nodes], number within the tree
    right        int64 [nodes], of count_right
    cut, kept    bool [nodes], out: the node becomes a leaf; the node is still there
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
