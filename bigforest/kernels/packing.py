"""Checking and packing the nodes of a forest that is read from disk, one pass each."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import kernel
from bigforest.kernels.layout import LEAF

# What `check_trees` found.
SOUND = 0
WRONG_LEFT = 1
WRONG_RIGHT = 2
WRONG_DEPTH = 3
WRONG_END = 4
WRONG_COUNTS = 5

# Bits of a NaN, to which the number of a leaf's ballot is added.
WIDE_LEAF = np.uint64(0x7FF8000000000000)
NARROW_LEAF = np.uint64(0x7FC00000)
# Bits of the float32 next below zero.
SMALLEST_NEGATIVE = 0x80000001


@kernel
def check_trees(starts, leaf, left, right, depth, weight, counts, waiting):
    """Whether the nodes are whole trees in preorder with sound counts: SOUND, or what is wrong.

    starts   int64 [trees + 1], trusted: positions of the roots, then the number of nodes
    leaf     bool [nodes]
    left, right, depth  uint32 [nodes], numbers within the tree; not looked at in leaves, but for depth
    weight   uint64 [nodes]
    counts   uint32 [nodes, classes]
    waiting  int64 [nodes], scratch: inner nodes whose right child is still to come

    Safe on any input: nothing is indexed by what the arrays hold. In preorder the node after an inner node is
    its left child, and the node after a leaf is the right child of the last inner node that has none yet.
    Oracle: tests/naive/predict.py is_preorder.
    """
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
    """Number of leaves (feature int32 [nodes] is LEAF) with several classes (counts uint32 [nodes, classes])."""
    mixed = 0
    for node in range(feature.size):
        if feature[node] == LEAF:
            present = 0
            for k in range(counts.shape[1]):
                present += counts[node, k] > 0
            mixed += present > 1
    return mixed


@kernel
def pack_nodes(starts, feature, right, threshold, counts, place, direction, wide, mixed, first_mixed):
    """Write checked trees into the layout `wide` (kernels/route.py) and counts of mixed leaves into `mixed`.

    starts       int64 [trees + 1]
    feature      int32 [nodes]; LEAF in a leaf. place uint64 [features] is its number among the used ones
    direction    place of the first oblique node's direction; the following ones are numbered on from there
    right        uint32 [nodes], number within the tree
    threshold    float64 [nodes]
    counts       uint32 [nodes, classes]
    mixed        uint32 [mixed leaves, classes], filled from row 0
    first_mixed  mixed leaves of the parts before, so that ballots are numbered through
    """
    classes = counts.shape[1]
    found = 0
    for tree in range(starts.size - 1):
        for node in range(starts[tree], starts[tree + 1]):
            if feature[node] != LEAF:
                step = np.uint64(starts[tree] + np.int64(right[node]) - node)
                wide.thresholds[2 * node] = threshold[node]
                column = direction
                if feature[node] >= 0:
                    column = place[feature[node]]
                else:
                    direction += np.uint64(1)
                wide.links[2 * node + 1] = (column << wide.shift) | step
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
            wide.links[2 * node] = WIDE_LEAF + np.uint64(ballot)
            wide.links[2 * node + 1] = np.uint64(0)


@kernel
def narrow_nodes(wide, narrow):
    """Write the nodes of `wide` into the layout `narrow`; False if a ballot or a link does not fit.

    A threshold becomes the largest float32 that is not above it. Oracle: tests/naive/predict.py round_down.
    """
    reach = (np.uint64(1) << narrow.shift) - np.uint64(1)
    for node in range(wide.links.size // 2):
        threshold = wide.thresholds[2 * node]
        link = wide.links[2 * node + 1]
        step = link & wide.ballot
        ballot = wide.links[2 * node] & wide.ballot
        if threshold != threshold:
            if ballot > narrow.ballot:
                return False
            narrow.links[2 * node] = np.uint32(NARROW_LEAF + ballot)
            narrow.links[2 * node + 1] = np.uint32(0)
            continue
        if step > reach:
            return False
        narrow.links[2 * node + 1] = np.uint32(((link >> wide.shift) << narrow.shift) | step)
        rounded = np.float32(threshold)
        narrow.thresholds[2 * node] = rounded
        if np.float64(rounded) > threshold:
            bits = np.int64(narrow.links[2 * node])
            if rounded > 0:
                bits -= 1
            elif rounded < 0:
                bits += 1
            else:
                bits = SMALLEST_NEGATIVE
            narrow.links[2 * node] = np.uint32(bits)
    return True
