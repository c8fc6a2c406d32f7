"""Counting rows into the leaves of a forest. Oracle: tests/naive/calibrate.py."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import kernel
from bigforest.kernels.layout import LEAF
from bigforest.kernels.route import TILE, step


@kernel
def count_leaves(tiles, rows, layout, directions, sets, missing, roots, truth, counts, place):
    """counts[i, k] += rows of class k that end in leaf i, for the leaves of the trees at `roots`.

    tiles, layout, directions, sets, missing  as in kernels/route.py; roots uint64 [trees]
    truth   int32 [rows], -1 where unknown: such a row counts nowhere
    counts  int64 [nodes, classes], added to
    place   uint32 [TILE], scratch
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
                if truth[first + row] < 0:
                    continue
                place[row] = np.uint32(roots[np.uint64(tree)])
                while step(tile, layout, directions, sets, missing, place, row):
                    pass
                counts[np.uint64(place[row]), np.uint64(truth[first + row])] += 1


@kernel
def add_up(starts, feature, right_child, before, counts):
    """Make the counts of the leaves those of all nodes, from below.

    A leaf in which no row ended keeps what it had before; an inner node has the sum of its children.

    starts       int64 [trees + 1]
    feature      int32 [nodes]; LEAF in a leaf
    right_child  uint32 [nodes], number within the tree
    before       uint32 [nodes, classes]
    counts       int64 [nodes, classes], of `count_leaves`
    """
    classes = counts.shape[1]
    for tree in range(starts.size - 1):
        begin, end = starts[tree], starts[tree + 1]
        for back in range(end - begin):
            node = end - 1 - back
            if feature[node] != LEAF:
                left, right = node + 1, begin + np.int64(right_child[node])
                for k in range(classes):
                    counts[node, k] = counts[left, k] + counts[right, k]
                continue
            total = np.int64(0)
            for k in range(classes):
                total += counts[node, k]
            if total == 0:
                for k in range(classes):
                    counts[node, k] = np.int64(before[node, k])
