"""Checking and packing the nodes of a forest that is read from disk, one pass each."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import kernel
from bigforest.kernels.layout import LEAF

# What `check_nodes` found.
SOUND = 0
WRONG_LEFT = 1
WRONG_RIGHT = 2
WRONG_DEPTH = 3
WRONG_END = 4
WRONG_COUNTS = 5
WRONG_TREE = 6
WRONG_NODE = 7

# Where `check_nodes` stands, places in its state: the tree, the number and depth of the next node in it, open nodes,
# and whether the tree is whole.
TREE = 0
NEXT = 1
DEPTH = 2
OPEN = 3
WHOLE = 4

# Bits of a NaN, to which the number of a leaf's ballot is added.
WIDE_LEAF = np.uint64(0x7FF8000000000000)
NARROW_LEAF = np.uint64(0x7FC00000)
# Bits of the float32 next below zero.
SMALLEST_NEGATIVE = 0x80000001


@kernel
def check_nodes(state, tree, node, leaf, left, right, depth, weight, counts, waiting):
    """Whether the nodes go on as whole trees in preorder with sound counts: SOUND, or what is wrong.

    state    int64 [5], see above; whole trees stand before the first node. Updated, for the nodes that follow these.
    tree, node          uint32 [nodes], number of the tree and of the node in it
    leaf     bool [nodes]
    left, right, depth  uint32 [nodes], numbers within the tree; not looked at in leaves, but for depth
    weight   uint64 [nodes]
    counts   uint32 [nodes, classes]
    waiting  uint32 [at least state[OPEN] + nodes, 2]: right child and its depth of the inner nodes whose right child is
             still to come

    Safe on any input: nothing is indexed by what the arrays hold. In preorder the node after an inner node is
    its left child, and the node after a leaf is the right child of the last inner node that has none yet.
    Oracle: tests/naive/predict.py is_preorder.
    """
    for i in range(tree.size):
        if np.int64(tree[i]) != state[TREE]:
            if state[WHOLE] == 0:
                return WRONG_END
            if np.int64(tree[i]) != state[TREE] + 1:
                return WRONG_TREE
            state[TREE] += 1
            state[NEXT] = 0
            state[DEPTH] = 0
            state[WHOLE] = 0
        elif state[WHOLE] != 0:
            return WRONG_END
        if np.int64(node[i]) != state[NEXT]:
            return WRONG_NODE
        if np.int64(depth[i]) != state[DEPTH]:
            return WRONG_DEPTH
        state[NEXT] += 1
        if not leaf[i]:
            if np.int64(left[i]) != state[NEXT]:
                return WRONG_LEFT
            state[DEPTH] += 1
            waiting[state[OPEN], 0] = right[i]
            waiting[state[OPEN], 1] = np.uint32(state[DEPTH])
            state[OPEN] += 1
        elif state[OPEN] == 0:
            state[WHOLE] = 1
        else:
            state[OPEN] -= 1
            if np.int64(waiting[state[OPEN], 0]) != state[NEXT]:
                return WRONG_RIGHT
            state[DEPTH] = np.int64(waiting[state[OPEN], 1])
        total = np.uint64(0)
        for k in range(counts.shape[1]):
            total += np.uint64(counts[i, k])
        if total != weight[i] or total == np.uint64(0):
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
def pack_nodes(node, feature, right, threshold, counts, wide, mixed, first_mixed, direction, used):
    """Write checked nodes into the layout `wide` (kernels/route.py) and counts of mixed leaves into `mixed`.

    node         uint32 [nodes], number within the tree
    feature      int32 [nodes], LEAF in a leaf; written as it is, see `number_nodes`, and an oblique node gets the
                 number of its direction, past all features
    right        uint32 [nodes], number within the tree
    threshold    float64 [nodes]
    counts       uint32 [nodes, classes]
    mixed        uint32 [mixed leaves, classes], filled from row 0
    first_mixed  mixed leaves before these nodes, so that ballots are numbered through
    direction    oblique nodes before these, so that directions are, too
    used         bool [features], set for those that some axis node splits on
    """
    classes = counts.shape[1]
    found = 0
    features = used.size
    for i in range(feature.size):
        if feature[i] != LEAF:
            column = features + direction
            if feature[i] >= 0:
                column = feature[i]
                used[column] = True
            else:
                direction += 1
            wide.thresholds[2 * i] = threshold[i]
            wide.links[2 * i + 1] = (np.uint64(column) << wide.shift) | np.uint64(right[i] - node[i])
            continue
        present = 0
        ballot = 0
        for k in range(classes):
            if counts[i, k] > 0:
                present += 1
                ballot = k
        if present > 1:
            ballot = classes + first_mixed + found
            for k in range(classes):
                mixed[found, k] = counts[i, k]
            found += 1
        wide.links[2 * i] = WIDE_LEAF + np.uint64(ballot)
        wide.links[2 * i + 1] = np.uint64(0)


@kernel
def number_nodes(wide, place, used, direction, classes, first_mixed):
    """Make numbers that are those of some trees those of a group.

    Features are replaced by their places, uint64 [features], among the `used` ones; directions follow these, and as
    many as `direction` come before those of these trees; the ballots of mixed leaves are moved by first_mixed.
    """
    features = np.uint64(place.size)
    for node in range(wide.links.size // 2):
        link = wide.links[2 * node + 1]
        if link:
            column = link >> wide.shift
            if column < features:
                column = place[column]
            else:
                column = np.uint64(used) + np.uint64(direction) + (column - features)
            wide.links[2 * node + 1] = (column << wide.shift) | (link & wide.ballot)
        elif (wide.links[2 * node] & wide.ballot) >= np.uint64(classes):
            wide.links[2 * node] += np.uint64(first_mixed)


@kernel
def order_by_feature(wide, ends, order):
    """Numbers of the inner nodes, grouped by the place of their feature, into order uint32 [nodes].

    ends int64 [places], zeros; afterwards ends[f - 1] (0 for the first) to before ends[f] are those of place f.
    """
    nodes = wide.links.size // 2
    for node in range(nodes):
        link = wide.links[2 * node + 1]
        if link:
            ends[link >> wide.shift] += 1
    begin = 0
    for place in range(ends.size):
        size = ends[place]
        ends[place] = begin
        begin += size
    for node in range(nodes):
        link = wide.links[2 * node + 1]
        if link:
            order[ends[link >> wide.shift]] = np.uint32(node)
            ends[link >> wide.shift] += 1


@kernel
def fits_narrow(wide, narrow):
    """Whether ballots and links of the nodes of `wide` fit the layout `narrow`, which is not written."""
    reach = (np.uint64(1) << narrow.shift) - np.uint64(1)
    for node in range(wide.links.size // 2):
        link = wide.links[2 * node + 1]
        threshold = wide.thresholds[2 * node]
        if (link & wide.ballot) > reach:
            return False
        if threshold != threshold and (wide.links[2 * node] & wide.ballot) > narrow.ballot:
            return False
    return True


@kernel
def narrow_nodes(wide, narrow):
    """Write the nodes of `wide` into the layout `narrow`; False if a ballot or a link does not fit.

    The nodes may be written over the front half of their own, in which case they must fit. A threshold becomes the
    largest float32 that is not above it. Oracle: tests/naive/predict.py round_down.
    """
    if not fits_narrow(wide, narrow):
        return False
    for node in range(wide.links.size // 2):
        threshold = wide.thresholds[2 * node]
        link = wide.links[2 * node + 1]
        ballot = wide.links[2 * node] & wide.ballot
        if threshold != threshold:
            narrow.links[2 * node] = np.uint32(NARROW_LEAF + ballot)
            narrow.links[2 * node + 1] = np.uint32(0)
            continue
        rounded = np.float32(threshold)
        narrow.thresholds[2 * node] = rounded
        narrow.links[2 * node + 1] = np.uint32(((link >> wide.shift) << narrow.shift) | (link & wide.ballot))
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
