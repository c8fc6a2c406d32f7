"""Ballots of the leaves of grown trees, and the statistics of all nodes from them."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.layout import LEAF, NO_BALLOT
from bigforest.kernels.compiler.jit import inlined, kernel

_ONE = np.uint64(1)
_TWO = np.uint64(2)


@inlined
def present_classes(counts):
    """How many classes of a node have rows, and the number of the last of these; counts [classes]."""
    present, last = 0, 0
    for k in range(np.uint64(counts.size)):
        if counts[k] > 0:
            present += 1
            last = np.int64(k)
    return present, last


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
        present, last = present_classes(counts[node])
        ballot[node] = np.uint32(last)
        if present == 1:
            continue
        if present == 0:
            ballot[node] = np.uint32(_ONE + node)
            continue
        ballot[node] = np.uint32(np.uint64(classes) + found)
        for k in range(np.uint64(mixed.shape[1])):
            mixed[found, np.uint64(k)] = counts[node, np.uint64(k)]
        found += _ONE


@inlined
def _value_nodes(ballot, weight, mixed, classes, first, waiting, held, value, total, number):
    """`value_nodes`; classes: their number, 0 without."""
    left = np.uint64(weight.size)
    count = np.uint64(0)
    for back in range(np.uint64(ballot.size)):
        node = np.uint64(ballot.size) - _ONE - np.uint64(back)
        own = np.uint64(ballot[node])
        if ballot[node] == NO_BALLOT:
            if count < np.uint64(2):
                return 0
            number[node] = NO_BALLOT
            count -= np.uint64(2)
            for k in range(classes + _ONE):
                held[count, np.uint64(k)] += held[count + _ONE, np.uint64(k)]
            waiting[count] = max(waiting[count], waiting[count + _ONE] + 1)
        else:
            if left == np.uint64(0):
                return 0
            left -= _ONE
            number[node] = np.uint32(first + left)
            waiting[count] = 0
            held[count, 0] = np.uint64(weight[left])
            if mixed is not None:
                if own >= classes + np.uint64(mixed.shape[0]):
                    return 0
                for k in range(classes):
                    held[count, _ONE + np.uint64(k)] = np.uint64(0)
                    if own >= classes:
                        held[count, _ONE + np.uint64(k)] = np.uint64(mixed[own - classes, np.uint64(k)])
                if own < classes:
                    held[count, _ONE + own] = np.uint64(weight[left])
        total[node] = np.float64(held[count, 0])
        for k in range(classes):
            value[node, np.uint64(k)] = np.float64(held[count, _ONE + np.uint64(k)]) / total[node]
        count += _ONE
    return waiting[0] + 1 if count == _ONE and left == np.uint64(0) else 0


@kernel
def value_nodes(ballot, weight, mixed, first, waiting, held, value, total, number):
    """The values of the nodes of a tree, from its leaves; 1 more than the nodes that wait at the same time for their
    right child, in preorder, or 0 if these are not the leaves of one tree.

    ballot   uint32 [nodes], in preorder, NO_BALLOT in inner nodes
    weight   [leaves], weight of the bag rows in each
    mixed    of the same type [leaves with several classes, classes], weights of the classes; None without classes,
             compiled separately
    first    uint64, number of the first leaf
    waiting  int64 [leaves], scratch
    held     uint64 [leaves, 1 + classes], scratch, or [leaves, 1] without classes: few of its rows are used
    value    float64 [nodes, classes], out: shares of the classes; not written without classes
    total    float64 [nodes], out: what the rows of the bag in each node weigh
    number   uint32 [nodes], out: number of each leaf, in their order, NO_BALLOT in inner nodes

    Cost: nodes * classes steps. Safe on any input. Oracle: the nodes of grown trees (tests/forest/test_ballots.py).
    """
    if mixed is None:
        return _value_nodes(ballot, weight, mixed, np.uint64(0), first, waiting, held, value, total, number)
    if np.uint64(value.shape[1]) == _TWO:  # with their number known, loops over classes are unrolled
        return _value_nodes(ballot, weight, mixed, _TWO, first, waiting, held, value, total, number)
    classes = np.uint64(value.shape[1])
    return _value_nodes(ballot, weight, mixed, classes, first, waiting, held, value, total, number)
