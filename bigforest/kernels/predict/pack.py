"""Checking and packing the nodes of a forest from disk, one pass each; and thresholds as codes.

Packed trees that route rows of the store compare codes: each threshold is replaced by the largest code whose value it
reaches.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.predict.leaf_values import present_classes

# What `check_nodes` found.
SOUND = 0
WRONG_LEFT = 1
WRONG_RIGHT = 2
WRONG_DEPTH = 3
WRONG_END = 4
WRONG_COUNTS = 5
WRONG_TREE = 6
WRONG_NODE = 7
WRONG_SUMS = 8

# The state of `check_nodes` between calls, by place: the tree, number and depth of the next node, open nodes, whether
# the tree is complete, and the role of the next node.
TREE = 0
NEXT = 1
DEPTH = 2
OPEN = 3
WHOLE = 4
SIDE = 5
# Values of the last.
ROOT = 0
LEFT_CHILD = 1
RIGHT_CHILD = 2

# Bits of a NaN, to which the number of a leaf's ballot is added.
LEAF_BITS = np.uint64(0x7FF8000000000000)
# The largest place of a feature, or first block of a direction, in a link.
LAST_PLACE = 2**31 - 1


@inlined
def is_part(side, rest, weight, counts):
    """Return whether a left child has no more than its parent, or a right child exactly the rest.

    rest  uint64 [1 + classes], weight and counts of the parent; those of a left child are subtracted.
    """
    if side == ROOT:
        return True
    sound = weight <= rest[0] if side == LEFT_CHILD else weight == rest[0]
    rest[0] -= weight
    for k in range(counts.size):
        count = np.uint64(counts[k])
        sound &= count <= rest[k + 1] if side == LEFT_CHILD else count == rest[k + 1]
        rest[k + 1] -= count
    return sound


@kernel
def check_nodes(state, tree, node, leaf, left, right, depth, weight, counts, waiting, rest):
    """Check that the nodes continue whole trees in preorder with consistent counts. Return SOUND or the problem.

    state    int64 [6], see above; whole trees stand before the first node. Updated, for the nodes that follow these.
    tree, node          uint32 [nodes], number of the tree and of the node in it
    leaf     bool [nodes]
    left, right, depth  uint32 [nodes], numbers within the tree; ignored in leaves, except depth
    weight   uint64 [nodes]
    counts   uint32 or uint64 [nodes, classes]; without classes only the weight is checked
    waiting  uint32 [at least state[OPEN] + nodes, 2]: right child and its depth, of inner nodes whose right child has
             not come yet
    rest     uint64 [as many, and one more, 1 + classes]: rest of their weight and counts for that child

    Safe on any input: no value of an array is used as an index. In preorder the node after an inner node is
    its left child, and the node after a leaf is the right child of the last inner node that has none yet.
    Oracle: tests/naive/predict.py is_preorder, adds_up.
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
            state[SIDE] = ROOT
        elif state[WHOLE] != 0:
            return WRONG_END
        if np.int64(node[i]) != state[NEXT]:
            return WRONG_NODE
        if np.int64(depth[i]) != state[DEPTH]:
            return WRONG_DEPTH
        state[NEXT] += 1
        if not is_part(state[SIDE], rest[state[OPEN] - (state[SIDE] == LEFT_CHILD)], weight[i], counts[i]):
            return WRONG_SUMS
        if not leaf[i]:
            if np.int64(left[i]) != state[NEXT]:
                return WRONG_LEFT
            state[DEPTH] += 1
            waiting[state[OPEN], 0] = right[i]
            waiting[state[OPEN], 1] = np.uint32(state[DEPTH])
            rest[state[OPEN], 0] = weight[i]
            for k in range(counts.shape[1]):
                rest[state[OPEN], k + 1] = counts[i, k]
            state[OPEN] += 1
            state[SIDE] = LEFT_CHILD
        elif state[OPEN] == 0:
            state[WHOLE] = 1
        else:
            state[OPEN] -= 1
            if np.int64(waiting[state[OPEN], 0]) != state[NEXT]:
                return WRONG_RIGHT
            state[DEPTH] = np.int64(waiting[state[OPEN], 1])
            state[SIDE] = RIGHT_CHILD
        total = weight[i] if counts.shape[1] == 0 else np.uint64(0)
        for k in range(counts.shape[1]):
            more = total + np.uint64(counts[i, k])
            if more < total:
                return WRONG_COUNTS
            total = more
        if total != weight[i] or total == np.uint64(0):
            return WRONG_COUNTS
    return SOUND


@kernel
def pack_nodes(
    node,
    feature,
    right,
    threshold,
    default_left,
    listed,
    blocks,
    counts,
    layout,
    mixed,
    first_mixed,
    first_block,
    first_set,
    used,
):
    """Write checked nodes into the layout (kernels/predict/flat_tree.py) and counts of mixed leaves into
    `mixed`.

    node         uint32 [nodes], number within the tree
    feature      int32 [nodes], LEAF in a leaf; written as it is, see `number_nodes`, and an oblique node gets the
                 number of its first block, past twice all features
    right        uint32 [nodes], number within the tree
    threshold    float64 [nodes]; ignored on a category
    default_left bool [nodes]; ignored in leaves and oblique nodes
    listed       bool [nodes], whether a node is on a category
    blocks       int64 [nodes], blocks of the directions of oblique nodes
    counts       uint32 or uint64 [nodes, classes]; without classes every leaf is mixed
    mixed        of the same type [mixed leaves, classes], filled from row 0
    first_mixed  mixed leaves before these nodes, so that ballots are numbered consecutively
    first_block  blocks before these, likewise; first_set: nodes on categories before these, likewise
    used         bool [features], set for those that some axis node or node on a category splits on
    """
    classes = counts.shape[1]
    found = 0
    features = used.size
    for i in range(feature.size):
        if feature[i] != LEAF:
            column = 2 * features + first_block
            default = np.uint64(0)
            if feature[i] >= 0:
                used[feature[i]] = True
                column = feature[i]
                default = layout.default if default_left[i] else default
            else:
                first_block += blocks[i]
            layout.thresholds[2 * i] = threshold[i]
            if listed[i]:
                column += features
                layout.links[2 * i] = np.uint64(first_set)
                first_set += 1
            layout.links[2 * i + 1] = (np.uint64(column) << layout.shift) | default | np.uint64(right[i] - node[i])
            continue
        if classes == 0:
            layout.links[2 * i] = LEAF_BITS + np.uint64(1 + first_mixed + found)
            layout.links[2 * i + 1] = np.uint64(0)
            found += 1
            continue
        present, ballot = present_classes(counts[i])
        if present > 1:
            ballot = classes + first_mixed + found
            for k in range(classes):
                mixed[found, k] = counts[i, k]
            found += 1
        layout.links[2 * i] = LEAF_BITS + np.uint64(ballot)
        layout.links[2 * i + 1] = np.uint64(0)


@kernel
def number_nodes(layout, place, used, first_block, first_set, classes, first_mixed):
    """Renumber the nodes of some trees as part of a group.

    Features are replaced by their places, uint64 [features], among the `used` ones; first_block, first_set and
    first_mixed are the numbers of blocks, sets and mixed ballots before those of these trees.
    """
    features = np.uint64(place.size)
    within = (np.uint64(1) << layout.shift) - np.uint64(1)
    for node in range(layout.links.size // 2):
        link = layout.links[2 * node + 1]
        if link:
            column = link >> layout.shift
            if column < features:
                column = place[column]
            elif column < features + features:
                column = np.uint64(used) + place[column - features]
                layout.links[2 * node] += np.uint64(first_set)
            else:
                column = np.uint64(2 * used + first_block) + (column - features - features)
            layout.links[2 * node + 1] = (column << layout.shift) | (link & within)
        elif (layout.links[2 * node] & layout.ballot) >= np.uint64(classes):
            layout.links[2 * node] += np.uint64(first_mixed)


@inlined
def words_of(codes):
    """Return the words of a set of ascending codes: bits over their span, or the codes where these are less than half
    as many, as they take a search."""
    span = np.int64(codes[codes.size - 1]) - np.int64(codes[0]) + 1
    bits = (span + 31) // 32
    return bits if bits <= 2 * codes.size else codes.size


@kernel
def measure_sets(start, code, mask, low, span, first):
    """Compute mask, lowest code, span and place of words of LevelSets (flat_tree.py), of code[start[s]:start[s + 1]]
    each.

    mask, low, span uint64 [sets], first uint64 [sets + 1]: out.
    """
    first[0] = np.uint64(0)
    for number in range(low.size):
        codes = code[start[number] : start[number + 1]]
        mask[number] = np.uint64(0)
        if codes[codes.size - 1] < 64:
            for i in range(codes.size):
                mask[number] |= np.uint64(1) << np.uint64(codes[i])
        low[number] = codes[0]
        span[number] = np.uint64(codes[codes.size - 1] - codes[0]) + np.uint64(1)
        first[number + 1] = first[number] + np.uint64(words_of(codes))


@kernel
def fill_sets(start, code, first, words):
    """Write the words of these sets, uint32."""
    for number in range(start.size - 1):
        codes = code[start[number] : start[number + 1]]
        own = words[first[number] : first[number + 1]]
        listed = own.size * 32 < np.int64(codes[codes.size - 1]) - np.int64(codes[0]) + 1
        own[:] = np.uint32(0)
        for i in range(codes.size):
            at = codes[i] - codes[0]
            if listed:
                own[i] = at
            else:
                own[at >> np.uint32(5)] |= np.uint32(1) << (at & np.uint32(31))


@kernel
def count_nodes(layout, counts):
    """Count the axis nodes by the place of their feature: counts int64 [places], zeros."""
    places = np.uint64(counts.size)
    for node in range(layout.links.size // 2):
        link = layout.links[2 * node + 1]
        if link and link >> layout.shift < places:
            counts[link >> layout.shift] += 1


@kernel
def list_nodes(layout, first, ends, order):
    """List the axis nodes on the features in the places from `first` on, by place: order uint32 [their number].

    ends int64 [places]: where the nodes of each begin in `order`; afterwards where they end.
    """
    places = np.uint64(ends.size)
    for node in range(layout.links.size // 2):
        link = layout.links[2 * node + 1]
        if link:
            place = (link >> layout.shift) - np.uint64(first)  # huge for places before `first`
            if place < places:
                order[ends[place]] = np.uint32(node)
                ends[place] += 1


@kernel
def nodes_to_codes(thresholds, nodes, values, code, whole):
    """Replace thresholds by the largest code whose value they reach; returns how many of the nodes were done.

    thresholds  float64 [2 * all nodes], that of node n in place 2 * n
    nodes       uint32, ascending by threshold unless `whole`
    values      float64, ascending, a piece of a dictionary; code: the first one's
    whole       whether the piece is the last one, and all nodes are done. Otherwise those are that do not reach the
                last value; the next piece has to begin with it
    """
    last = values[values.size - 1]
    for done in range(nodes.size):
        place = 2 * np.uint64(nodes[done])
        threshold = thresholds[place]
        if not whole and threshold >= last:
            return done
        reached, beyond = 0, values.size
        while reached < beyond:
            middle = (reached + beyond) >> 1
            if values[middle] <= threshold:
                reached = middle + 1
            else:
                beyond = middle
        thresholds[place] = np.float64(code + reached - 1)
    return nodes.size
