"""Values of leaves shrunk towards those of the nodes above them (Agarwal et al. 2022, the node-based form).

With the values v_0, ..., v_L of the nodes on the way to a leaf, and their weights N_0, ..., N_L,

    f = v_0 + sum over l from 1 to L of (v_l - v_(l-1)) / (1 + lambda / N_(l-1))

With a_l = N_l / (N_l + lambda), which falls on the way down, this is a mix of the values of the path,

    f = (1 - a_0) v_0 + sum over l from 1 to L - 1 of (a_(l-1) - a_l) v_l + a_(L-1) v_L

whose weights are 0 or more and add up to 1. It is added up in this form: shares of classes stay shares.
"""

from __future__ import annotations

from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.compiler.jit import kernel

# The state of `shrink_leaves` between calls, by place: nodes whose right child has not come yet, role of the next node.
OPEN = 0
SIDE = 1
# Values of the last.
ROOT = 0
LEFT_CHILD = 1
RIGHT_CHILD = 2


@kernel
def most_open(feature, state):
    """Room that `shrink_leaves` needs for these nodes: its `feature` and `state`, which stays."""
    most = state[OPEN]
    waiting = state[OPEN] - (state[SIDE] == RIGHT_CHILD)
    for i in range(feature.size):
        # After a leaf comes the right child of the last node that waits; where none does, the next tree.
        waiting = waiting + 1 if feature[i] != LEAF else max(0, waiting - 1)
        most = max(most, waiting)
    return most


@kernel
def shrink_leaves(feature, weight, value, lambdas, state, above, kept, leaves):
    """Write the shrunk values of the leaves among these nodes, which are checked and in preorder, whole trees or parts.

    feature  int32 [nodes], LEAF in a leaf
    weight   float64 [nodes], N
    value    float64 [nodes, width], v: shares of classes, or a number
    lambdas  float64 [lambdas]
    state    int64 [2], where it stands: zeros before the first node of all; updated, for the nodes that follow these
    above    float64 [room, lambdas, width]: of the nodes whose right child is still to come, the mix without its last
             term; room as `most_open` says
    kept     float64 [room]: their weight
    leaves   float64 [leaves, lambdas * width], out: all values by the first of `lambdas`, then by the next

    Lambda 0 gives the values of the leaves to the last bit. Cost: nodes * lambdas * width steps of about 1 ns.
    Oracle: tests/naive/shrinkage.py.
    """
    width = value.shape[1]
    found = 0
    for i in range(feature.size):
        side = state[SIDE]
        top = state[OPEN] - 1
        # A right child takes the place of its parent, which no longer waits.
        own = top if side == RIGHT_CHILD else top + 1
        of_parent = kept[top] if side != ROOT else 0.0
        for j in range(lambdas.size):
            amount = lambdas[j]
            if feature[i] == LEAF:
                for k in range(width):
                    mix = value[i, k]
                    if side != ROOT:
                        mix = above[top, j, k] + of_parent / (of_parent + amount) * mix
                    leaves[found, j * width + k] = mix
                continue
            share = amount / (weight[i] + amount)
            if side != ROOT:
                # The difference of the shares a of parent and node, of factors that neither cancel nor overflow.
                share = amount / (of_parent + amount) * ((of_parent - weight[i]) / (weight[i] + amount))
            for k in range(width):
                before = above[top, j, k] if side != ROOT else 0.0
                above[own, j, k] = before + share * value[i, k]
        if feature[i] == LEAF:
            found += 1
            state[OPEN] = own if side == RIGHT_CHILD else top + 1
            state[SIDE] = RIGHT_CHILD if state[OPEN] > 0 else ROOT
        else:
            kept[own] = weight[i]
            state[OPEN] = own + 1
            state[SIDE] = LEFT_CHILD
