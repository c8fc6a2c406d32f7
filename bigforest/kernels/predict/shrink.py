"""Values of leaves shrunk towards those of the nodes above them (Agarwal et al. 2022, the node-based form).

With the values v_0, ..., v_L of the nodes on the way to a leaf, and their weights N_0, ..., N_L,

    f = v_0 + sum over l from 1 to L of (v_l - v_(l-1)) / (1 + lambda / N_(l-1))

With a_l = N_l / (N_l + lambda), which falls on the way down, this is a mix of the values of the path,

    f = (1 - a_0) v_0 + sum over l from 1 to L - 1 of (a_(l-1) - a_l) v_l + a_(L-1) v_L

whose weights are 0 or more and add up to 1. It is added up in this form: shares of classes stay shares.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.compiler.jit import inlined, kernel

_ONE = np.uint64(1)

# The state of `shrink_leaves` between calls, by place: nodes whose right child has not come yet, role of the next node.
OPEN = 0
SIDE = 1
# Lambdas that are tried as a rule: with their number known, loops over them become vectors.
USUAL = np.uint64(6)
# Values of the last.
ROOT = 0
LEFT_CHILD = 1
RIGHT_CHILD = 2


@kernel
def most_open(leaf, state):
    """Room that `shrink_leaves` needs for these nodes: its `leaf` and `state`, which stays."""
    most = state[OPEN]
    waiting = state[OPEN] - (state[SIDE] == RIGHT_CHILD)
    for i in range(leaf.size):
        # After a leaf comes the right child of the last node that waits; where none does, the next tree.
        waiting = max(0, waiting - 1) if leaf[i] else waiting + 1
        most = max(most, waiting)
    return most


@inlined
def _share(leaf, own, of_parent, side, lambdas, tried, share):
    """What the value of a node counts for in the leaves below it, or in itself, by each of the lambdas."""
    for k in range(tried):
        j = np.uint64(k)
        amount = lambdas[j]
        if side == ROOT:
            share[j] = 1.0 if leaf else amount / (own + amount)
        elif leaf:
            share[j] = of_parent / (of_parent + amount)
        else:
            # The difference of the shares a of parent and node, of factors that neither cancel nor overflow.
            share[j] = amount / (of_parent + amount) * ((of_parent - own) / (own + amount))


@inlined
def _shrink(leaf, weight, value, lambdas, tried, state, above, kept, share, leaves):
    """`shrink_leaves`; tried: the number of lambdas."""
    width = np.uint64(value.shape[1])
    for c in range(width):
        for k in range(tried):
            above[0, np.uint64(c), np.uint64(k)] = 0.0
    found = np.uint64(0)
    waiting, side = np.uint64(state[OPEN]), state[SIDE]
    for i in range(np.uint64(leaf.size)):
        node = np.uint64(i)
        # The node's parent in `above`. A right child takes the place of its parent, which no longer waits.
        parent = waiting
        own = parent if side == RIGHT_CHILD else parent + _ONE
        _share(leaf[node], weight[node], kept[parent], side, lambdas, tried, share)
        if leaf[node]:
            for c in range(width):
                mine = value[node, np.uint64(c)]
                for k in range(tried):
                    j = np.uint64(k)
                    leaves[found, np.uint64(c) * tried + j] = above[parent, np.uint64(c), j] + share[j] * mine
            found += _ONE
            waiting = own - _ONE
            side = RIGHT_CHILD if waiting > np.uint64(0) else ROOT
        else:
            for c in range(width):
                mine = value[node, np.uint64(c)]
                for k in range(tried):
                    j = np.uint64(k)
                    above[own, np.uint64(c), j] = above[parent, np.uint64(c), j] + share[j] * mine
            kept[own] = weight[node]
            waiting = own
            side = LEFT_CHILD
    state[OPEN], state[SIDE] = np.int64(waiting), side


@kernel
def shrink_leaves(leaf, weight, value, lambdas, state, above, kept, share, leaves):
    """Write the shrunk values of the leaves among these nodes, which are checked and in preorder, whole trees or parts.

    leaf     bool [nodes]
    weight   float64 [nodes], N
    value    float64 [nodes, width], v: shares of classes, or a number
    lambdas  float64 [lambdas]
    state    int64 [2], where it stands: zeros before the first node of all; updated, for the nodes that follow these
    above    float64 [1 + room, width, lambdas]: zeros, then, of the nodes whose right child is still to come, the mix
             without its last term; room as `most_open` says
    kept     float64 [1 + room]: their weight
    share    float64 [lambdas], scratch
    leaves   float64 [leaves, width * lambdas], out: the first of the values by all lambdas, then the next

    Lambda 0 gives the values of the leaves to the last bit. Cost: nodes * lambdas * width steps of about 1 ns.
    Oracle: tests/naive/shrinkage.py.
    """
    if np.uint64(lambdas.size) == USUAL:
        _shrink(leaf, weight, value, lambdas, USUAL, state, above, kept, share, leaves)
    elif np.uint64(lambdas.size) == _ONE:
        _shrink(leaf, weight, value, lambdas, _ONE, state, above, kept, share, leaves)
    else:
        _shrink(leaf, weight, value, lambdas, np.uint64(lambdas.size), state, above, kept, share, leaves)
