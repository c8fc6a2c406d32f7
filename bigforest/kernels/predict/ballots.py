"""Ballots of the leaves of grown trees, and the statistics of all nodes from them."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.layout import LEAF, NO_BALLOT
from bigforest.kernels.compiler.jit import kernel

_ONE = np.uint64(1)


@kernel
def number_ballots(feature, counts, classes, ballot, mixed):
    """The ballots of the leaves of some trees: ballot uint32 [nodes], NO_BALLOT in inner nodes (feature is not LEAF).

    counts   [nodes, classes]; without classes the ballot of a leaf is the number of its value
    classes  numbers in an answer: 1 without classes
    mixed    of the same type [leaves with several classes, classes], out: their counts
    """
    found = np.uint64(0)
    for n in range(np.uint64(feature.size)):
        node = np.uint64(n)
        ballot[node] = NO_BALLOT
        if feature[node] != LEAF:
            continue
        present = 0
        for k in range(np.uint64(counts.shape[1])):
            if counts[node, np.uint64(k)] > 0:
                present += 1
                ballot[node] = np.uint32(k)
        if present == 1:
            continue
        if present == 0:
            ballot[node] = np.uint32(_ONE + node)
            continue
        ballot[node] = np.uint32(np.uint64(classes) + found)
        for k in range(np.uint64(mixed.shape[1])):
            mixed[found, np.uint64(k)] = counts[node, np.uint64(k)]
        found += _ONE


@kernel
def hold_rows(ballot, weight, mixed, waiting, held, total):
    """The statistics of the nodes of a tree, added up from its leaves; False if these are not the leaves of one tree.

    ballot   uint32 [nodes], in preorder, NO_BALLOT in inner nodes
    weight   [leaves], weight of the bag rows in each
    mixed    [leaves with several classes, classes], weights of the classes; None without classes, compiled separately
    waiting  uint32 [leaves], scratch
    held     [nodes, classes], zeros, out; [nodes, 0] without classes
    total    uint64 [nodes], out: what the rows of the bag in each node weigh

    Cost: nodes * classes steps. Safe on any input. Oracle: the nodes of grown trees (tests/forest/test_ballots.py).
    """
    width = np.uint64(held.shape[1])
    left = np.uint64(weight.size)
    count = np.uint64(0)
    for back in range(np.uint64(ballot.size)):
        node = np.uint64(ballot.size) - _ONE - np.uint64(back)
        own = np.uint64(ballot[node])
        if ballot[node] == NO_BALLOT:
            if count < np.uint64(2):
                return False
            one, other = np.uint64(waiting[count - _ONE]), np.uint64(waiting[count - np.uint64(2)])
            for k in range(width):
                held[node, np.uint64(k)] = held[one, np.uint64(k)] + held[other, np.uint64(k)]
            total[node] = total[one] + total[other]
            count -= np.uint64(2)
        else:
            if left == np.uint64(0):
                return False
            left -= _ONE
            total[node] = weight[left]
            if mixed is None:
                pass
            elif own < width:
                held[node, own] = weight[left]
            elif own - width < np.uint64(mixed.shape[0]):
                for k in range(width):
                    held[node, np.uint64(k)] = mixed[own - width, np.uint64(k)]
            else:
                return False
        waiting[count] = np.uint32(node)
        count += _ONE
    return count == _ONE and left == np.uint64(0)
