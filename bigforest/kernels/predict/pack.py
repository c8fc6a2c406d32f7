"""Checking and packing the nodes of a forest from disk, one pass each; and thresholds as codes.

Packed trees that route rows of the store compare codes: each threshold is replaced by the largest code whose value is
at most the threshold.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.binary_search import last_up_to
from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.predict.leaf_values import LEFT_CHILD, RIGHT_CHILD, ROOT, present_classes

# Results of `check_nodes`.
SOUND = 0
WRONG_LEFT = 1
WRONG_RIGHT = 2
WRONG_DEPTH = 3
WRONG_END = 4
WRONG_COUNTS = 5
WRONG_TREE = 6
WRONG_NODE = 7
WRONG_SUMS = 8

# Entries of the state of `check_nodes` between calls: tree of the last node; number and depth of the node that must
# follow; number of inner nodes whose right child is still to come; 1 if the tree is complete; role of the next node
# (ROOT, LEFT_CHILD or RIGHT_CHILD).
TREE = 0
NEXT = 1
DEPTH = 2
OPEN = 3
WHOLE = 4
SIDE = 5

# Bits of a NaN. The number of a leaf's ballot is added to them.
LEAF_BITS = np.uint64(0x7FF8000000000000)
# The largest column of a feature, or first block of a direction, in a link.
LAST_PLACE = 2**31 - 1


@inlined
def is_part(side, rest, weight, counts):
    """Return True if a left child has at most the weight and counts of its parent, or a right child exactly the rest.

    rest  uint64 [1 + classes], weight and counts of the parent; for a right child, of the parent less the left child.
          The weight and counts of the checked child are subtracted
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

    state    int64 [6], see above; updated, for a call with the nodes that follow. Before the first call, WHOLE is 1,
             TREE the number of the first tree less one, and the others 0
    tree, node  uint32 [nodes], numbers of the tree and of the node within the tree
    leaf     bool [nodes]
    left, right  uint32 [nodes], numbers of the children within the tree; ignored in leaves
    depth    uint32 [nodes]
    weight   uint64 [nodes]
    counts   uint32 or uint64 [nodes, classes]; for regression [nodes, 0]: only the weight is checked
    waiting  uint32 [at least state[OPEN] + nodes, 2]: number and depth of each right child that is still to come
    rest     uint64 [rows of waiting + 1, 1 + classes]: weight and counts that remain for that child

    Safe on any input: no value of the nodes is used as an index. In preorder an inner node is followed by its left
    child, and a leaf by the right child of the last inner node that has no right child yet.
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
    before,
    depth,
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
    """Write checked nodes into the layout (flat_tree.py), and the counts of leaves with several classes into `mixed`.

    Columns are numbered as if all features were used, until `number_nodes` renumbers them.

    before       int64, number of the first node within its tree; depth: uint32 [nodes]
    feature      int32 [nodes], LEAF in a leaf, OBLIQUE in an oblique node
    right        uint32 [nodes], number within the tree
    threshold    float64 [nodes]; ignored on a category
    default_left bool [nodes]; ignored in leaves and oblique nodes
    listed       bool [nodes], True if a node is on a category
    blocks       int64 [nodes], number of blocks of the direction of each oblique node
    counts       uint32 or uint64 [nodes, classes]; for regression [nodes, 0]: every leaf is mixed
    mixed        of the type of counts [mixed leaves, classes], filled from row 0
    first_mixed  number of mixed leaves before these nodes, so that ballots are numbered consecutively
    first_block  number of blocks of oblique nodes before these nodes; first_set: number of nodes on categories
    used         bool [features], set to True for features that an axis node or a node on a category splits on

    Return `before` for the nodes that follow.
    """
    classes = counts.shape[1]
    impure, root = 0, -before
    features = used.size
    for i in range(feature.size):
        root = i if depth[i] == 0 else root
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
            distance = np.uint64(np.int64(right[i]) + root - i)
            if listed[i]:
                column += features
                layout.links[2 * i] = np.uint64(first_set)
                first_set += 1
            layout.links[2 * i + 1] = (np.uint64(column) << layout.shift) | default | distance
            continue
        if classes == 0:
            layout.links[2 * i] = LEAF_BITS + np.uint64(1 + first_mixed + impure)
            layout.links[2 * i + 1] = np.uint64(0)
            impure += 1
            continue
        present, ballot = present_classes(counts[i])
        if present > 1:
            ballot = classes + first_mixed + impure
            for k in range(classes):
                mixed[impure, k] = counts[i, k]
            impure += 1
        layout.links[2 * i] = LEAF_BITS + np.uint64(ballot)
        layout.links[2 * i + 1] = np.uint64(0)
    return feature.size - root


@kernel
def number_nodes(layout, column_of, used, first_block, first_set, lowest, first_mixed):
    """Renumber the columns, blocks, sets and ballots that `pack_nodes` wrote, for trees that become part of a group.

    column_of  uint64 [features], column of each used feature in a tile; used: number of used features
    lowest     smallest number of a mixed ballot
    first_block, first_set, first_mixed  numbers of blocks, sets and mixed ballots of earlier trees in the group
    """
    features = np.uint64(column_of.size)
    within = (np.uint64(1) << layout.shift) - np.uint64(1)
    for node in range(layout.links.size // 2):
        link = layout.links[2 * node + 1]
        if link:
            column = link >> layout.shift
            if column < features:
                column = column_of[column]
            elif column < features + features:
                column = np.uint64(used) + column_of[column - features]
                layout.links[2 * node] += np.uint64(first_set)
            else:
                column = np.uint64(2 * used + first_block) + (column - features - features)
            layout.links[2 * node + 1] = (column << layout.shift) | (link & within)
        elif (layout.links[2 * node] & layout.ballot) >= np.uint64(lowest):
            layout.links[2 * node] += np.uint64(first_mixed)


@inlined
def words_of(codes):
    """Return the number of words of a set of ascending codes, see LevelSets.

    There is a word for each code only if bits would take more than twice as many words, because looking up a code
    then takes a search.
    """
    span = np.int64(codes[codes.size - 1]) - np.int64(codes[0]) + 1
    bits = (span + 31) // 32
    return bits if bits <= 2 * codes.size else codes.size


@kernel
def measure_sets(start, code, mask, low, span, first):
    """Compute mask, low, span and first of LevelSets (flat_tree.py).

    start, code             the codes of set s, uint32, are code[start[s]:start[s + 1]], ascending
    mask, low, span, first  out
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
    """Fill `words` of LevelSets. start, code, first: see `measure_sets`."""
    for number in range(start.size - 1):
        codes = code[start[number] : start[number + 1]]
        set_words = words[first[number] : first[number + 1]]
        listed = set_words.size * 32 < np.int64(codes[codes.size - 1]) - np.int64(codes[0]) + 1
        set_words[:] = np.uint32(0)
        for i in range(codes.size):
            at = codes[i] - codes[0]
            if listed:
                set_words[i] = at
            else:
                set_words[at >> np.uint32(5)] |= np.uint32(1) << (at & np.uint32(31))


@kernel
def count_nodes(layout, counts):
    """Count the axis nodes by the column of their feature: counts int64 [columns], zeros."""
    columns = np.uint64(counts.size)
    for node in range(layout.links.size // 2):
        link = layout.links[2 * node + 1]
        if link and link >> layout.shift < columns:
            counts[link >> layout.shift] += 1


@kernel
def list_nodes(layout, first, ends, order):
    """List the axis nodes whose feature is in a range of columns, column by column.

    first  number of the first column
    ends   int64 [columns]: where the nodes of each column begin in `order`; afterwards where they end
    order  uint32, out: numbers of the nodes
    """
    columns = np.uint64(ends.size)
    for node in range(layout.links.size // 2):
        link = layout.links[2 * node + 1]
        if link:
            column = (link >> layout.shift) - np.uint64(first)  # huge for columns before `first`
            if column < columns:
                order[ends[column]] = np.uint32(node)
                ends[column] += 1


@kernel
def nodes_to_codes(thresholds, nodes, values, code, is_last):
    """Replace thresholds by the largest code whose value is at most the threshold; return how many nodes are done.

    thresholds  float64 [2 * all nodes], the threshold of node n at index 2 * n
    nodes       uint32, ascending by threshold unless `is_last`
    values      float64, ascending, a piece of a dictionary; code: the code of its first value
    is_last     True if the piece is the last one, so that all nodes can be done. Otherwise only thresholds below its
                last value are replaced, and the next piece has to begin with that value
    """
    last = values[values.size - 1]
    for done in range(nodes.size):
        index = 2 * np.uint64(nodes[done])
        threshold = thresholds[index]
        if not is_last and threshold >= last:
            return done
        below = np.int64(last_up_to(values, np.uint64(0), np.uint64(values.size), threshold))
        thresholds[index] = np.float64(code + below if values[0] <= threshold else code - 1)
    return nodes.size
