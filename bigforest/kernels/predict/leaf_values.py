"""Values of all nodes from the ballots of leaves (their contributions to the votes), and values of leaves shrunk
towards the nodes above them.

Shrinkage as in Agarwal et al. 2022, the node-based form. With the values v_0, ..., v_L of the nodes on the way to a
leaf, and their weights N_0, ..., N_L,

    f = v_0 + sum over l from 1 to L of (v_l - v_(l-1)) / (1 + lambda / N_(l-1))

With a_l = N_l / (N_l + lambda), which decreases on the way down, this is a mix of the values of the path,

    f = (1 - a_0) v_0 + sum over l from 1 to L - 1 of (a_(l-1) - a_l) v_l + a_(L-1) v_L

whose weights are 0 or more and add up to 1. The code uses this form, so that shares of classes stay shares.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.layout import NO_BALLOT
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import larger

_ONE = np.uint64(1)


@inlined
def present_classes(counts):
    """Return the number of classes with a count above 0, and the last of these classes; counts [classes]."""
    present, last = 0, 0
    for k in range(np.uint64(counts.size)):
        if counts[k] > 0:
            present += 1
            last = np.int64(k)
    return present, last


@inlined
def _value_nodes(ballot, weight, mixed, classes, first, waiting, held, value, total, number):
    """Compute `value_nodes` with the number of classes, 0 without classes."""
    left = np.uint64(weight.size)
    count = np.uint64(0)
    for back in range(np.uint64(ballot.size)):
        node = np.uint64(ballot.size) - _ONE - back
        leaf_ballot = np.uint64(ballot[node])
        if ballot[node] == NO_BALLOT:
            if count < np.uint64(2):
                return 0
            number[node] = NO_BALLOT
            count -= np.uint64(2)
            for k in range(classes + _ONE):
                held[count, k] += held[count + _ONE, k]
            waiting[count] = larger(waiting[count], waiting[count + _ONE] + 1)
        else:
            if left == np.uint64(0):
                return 0
            left -= _ONE
            number[node] = np.uint32(first + left)
            waiting[count] = 0
            held[count, 0] = np.uint64(weight[left])
            if mixed is not None:
                if leaf_ballot >= classes + np.uint64(mixed.shape[0]):
                    return 0
                for k in range(classes):
                    held[count, _ONE + k] = np.uint64(0)
                    if leaf_ballot >= classes:
                        held[count, _ONE + k] = np.uint64(mixed[leaf_ballot - classes, k])
                if leaf_ballot < classes:
                    held[count, _ONE + leaf_ballot] = np.uint64(weight[left])
        total[node] = np.float64(held[count, 0])
        for k in range(classes):
            value[node, k] = np.float64(held[count, _ONE + k]) / total[node]
        count += _ONE
    return waiting[0] + 1 if count == _ONE and left == np.uint64(0) else 0


@kernel
def value_nodes(ballot, weight, mixed, first, waiting, held, value, total, number):
    """Compute the values of the nodes of a tree from its leaves.

    Return 1 + the largest number of nodes that wait for their right child at the same time when nodes are read in
    preorder; 0 if the nodes are not one tree with these leaves.

    ballot   uint32 [nodes], number of the ballot of each leaf, in preorder; NO_BALLOT in inner nodes
    weight   [leaves], weight of the bag rows in each leaf
    mixed    of the type of `weight` [leaves with several classes, classes], weights of the classes; None without
             classes, compiled separately
    first    uint64, number of the first leaf
    waiting  int64 [leaves], scratch
    held     uint64 [leaves, 1 + classes], scratch, or [leaves, 1] without classes: few of its rows are used
    value    float64 [nodes, classes], out: shares of the classes; not written without classes
    total    float64 [nodes], out: weight of the bag rows in each node
    number   uint32 [nodes], out: number of each leaf, in their order, NO_BALLOT in inner nodes

    Cost: nodes * classes steps. Safe on any input. Oracle: the nodes of grown trees (tests/forest/test_ballots.py).
    """
    if mixed is None:
        return _value_nodes(ballot, weight, mixed, np.uint64(0), first, waiting, held, value, total, number)
    classes = np.uint64(value.shape[1])
    return _value_nodes(ballot, weight, mixed, classes, first, waiting, held, value, total, number)


# Roles of a node.
ROOT = 0
LEFT_CHILD = 1
RIGHT_CHILD = 2


@inlined
def _share(leaf, weight, parent_weight, side, lambdas, tried, share):
    """Set share[k] to the weight of a node's value with lambda k: in the mixes of all leaves below an inner node, or in
    the mix of a leaf itself.

    side  role of the node
    """
    for k in range(tried):
        amount = lambdas[k]
        if side == ROOT:
            share[k] = 1.0 if leaf else amount / (weight + amount)
        elif leaf:
            share[k] = parent_weight / (parent_weight + amount)
        else:
            # a of the parent less a of the node, as a product: a difference would cancel, a single quotient overflow.
            share[k] = amount / (parent_weight + amount) * ((parent_weight - weight) / (weight + amount))


@kernel
def shrink_leaves(leaf, weight, value, lambdas, state, above, kept, share, leaves):
    """Write the shrunk values of the leaves among checked nodes in preorder. A tree may be divided among calls.

    leaf     bool [nodes]
    weight   float64 [nodes], N
    value    float64 [nodes, width], v: shares of classes, or a number
    lambdas  float64 [lambdas]
    state    int64 [2]: number of nodes whose right child is still to come; role of the next node. Zeros before the
             first node of all; updated, for a call with the nodes that follow
    above    float64 [1 + room, width, lambdas]: the mix, without its last term, of each node whose right child is still
             to come, at most `room` at the same time
    kept     float64 [1 + room]: weight of each of these nodes
    share    float64 [lambdas], scratch
    leaves   float64 [leaves, width * lambdas], out: the first value for all lambdas, then the next value

    Lambda 0 returns the values of the leaves to the last bit. Cost: nodes * lambdas * width steps of about 1 ns.
    Oracle: tests/naive/shrinkage.py.
    """
    width, tried = np.uint64(value.shape[1]), np.uint64(lambdas.size)
    for c in range(width):
        for k in range(tried):
            above[0, c, k] = 0.0
    number = np.uint64(0)
    waiting, side = np.uint64(state[0]), state[1]
    for node in range(np.uint64(leaf.size)):
        # Slot of the parent in `above`. A right child takes the slot of its parent, which no longer waits.
        parent = waiting
        slot = parent if side == RIGHT_CHILD else parent + _ONE
        _share(leaf[node], weight[node], kept[parent], side, lambdas, tried, share)
        if leaf[node]:
            for c in range(width):
                node_value = value[node, c]
                for k in range(tried):
                    leaves[number, c * tried + k] = above[parent, c, k] + share[k] * node_value
            number += _ONE
            waiting = slot - _ONE
            side = RIGHT_CHILD if waiting > np.uint64(0) else ROOT
        else:
            for c in range(width):
                node_value = value[node, c]
                for k in range(tried):
                    above[slot, c, k] = above[parent, c, k] + share[k] * node_value
            kept[slot] = weight[node]
            waiting = slot
            side = LEFT_CHILD
    state[0], state[1] = np.int64(waiting), side
