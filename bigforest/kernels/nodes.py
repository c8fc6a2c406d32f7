"""Checking and packing the nodes of trees in preorder: one pass each, for the forests that are read from disk."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import kernel

# What `check_trees` found.
SOUND = 0
WRONG_LEFT = 1
WRONG_RIGHT = 2
WRONG_DEPTH = 3
WRONG_END = 4
WRONG_COUNTS = 5


@kernel
def check_trees(starts, leaf, left, right, depth, weight, counts):
    """Whether the nodes are whole trees in preorder, each node with the counts it should have: SOUND or what is wrong.

    starts   int64 [trees + 1], trusted: positions of the roots, then the number of nodes
    leaf     bool [nodes]
    left, right, depth  uint32 [nodes], numbers within the tree; not looked at in leaves, but for depth
    weight   uint64 [nodes]
    counts   uint32 [nodes, classes]

    Safe on any input: nothing is indexed by what the arrays hold. In preorder the node after an inner node is its left
    child, and the node after a leaf is the right child of the last inner node that has none yet. Oracle:
    tests/naive/predict.py is_preorder.
    """
    waiting = np.empty(starts[starts.size - 1] + 1, dtype=np.int64)  # inner nodes whose right child is to come
    for tree in range(starts.size - 1):
        begin, end = starts[tree], starts[tree + 1]
        open_nodes = 0
        expected = 0
        for node in range(begin, end):
            if node > begin and leaf[node - 1]:
                if open_nodes == 0:
                    return WRONG_END
                open_nodes -= 1
                parent = waiting[open_nodes]
                if right[parent] != node - begin:
                    return WRONG_RIGHT
                expected = depth[parent] + 1
            if depth[node] != expected:
                return WRONG_DEPTH
            if not leaf[node]:
                if left[node] != node - begin + 1:
                    return WRONG_LEFT
                waiting[open_nodes] = node
                open_nodes += 1
                expected = depth[node] + 1
        if open_nodes > 0 or not leaf[end - 1]:
            return WRONG_END
    for node in range(weight.size):
        total = np.uint64(0)
        for k in range(counts.shape[1]):
            total += np.uint64(counts[node, k])
        if total != weight[node] or total == np.uint64(0):
            return WRONG_COUNTS
    return SOUND


@kernel
def count_mixed(feature, counts):
    """Number of leaves (feature int32 [nodes] < 0) with rows of several classes (counts uint32 [nodes, classes])."""
    mixed = 0
    for node in range(feature.size):
        if feature[node] < 0:
            present = 0
            for k in range(counts.shape[1]):
                present += counts[node, k] > 0
            mixed += present > 1
    return mixed


@kernel
def pack_nodes(starts, feature, right, threshold, counts, place, layout, nan, mixed, first_mixed):
    """Write checked trees into `layout` (kernels/route.py Layout) and the counts of their mixed leaves into `mixed`.

    starts       int64 [trees + 1]
    feature      int32 [nodes], -1 in a leaf; place uint64 [features] is its place among the used ones
    right        uint32 [nodes], number within the tree
    threshold    [nodes], of the layout's precision
    nan          bits of a NaN of that precision, to which the number of the ballot is added
    mixed        uint32 [mixed leaves, classes], filled from row 0
    first_mixed  mixed leaves of the parts before, so that ballots are numbered through
    """
    classes = counts.shape[1]
    found = 0
    for tree in range(starts.size - 1):
        for node in range(starts[tree], starts[tree + 1]):
            if feature[node] >= 0:
                step = np.uint64(starts[tree] + right[node] - node)
                layout.thresholds[2 * node] = threshold[node]
                layout.links[2 * node + 1] = (place[feature[node]] << layout.shift) | step
                continue
            present = 0
            ballot = 0
            for k in range(classes):
                if counts[node, k] > 0:
                    present += 1
                    ballot = k
            if present > 1:
                ballot = classes + first_mixed + found
                for k in range(classes):
                    mixed[found, k] = counts[node, k]
                found += 1
            layout.links[2 * node] = nan + np.uint64(ballot)
            layout.links[2 * node + 1] = np.uint64(0)
