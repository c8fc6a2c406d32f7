"""Replace the thresholds of packed trees by codes. Oracle: numpy.searchsorted (test_kernel_thresholds.py)."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.compiler.jit import kernel


@kernel
def count_nodes(wide, counts):
    """Count the axis nodes by the place of their feature: counts int64 [places], zeros."""
    places = np.uint64(counts.size)
    for node in range(wide.links.size // 2):
        link = wide.links[2 * node + 1]
        if link and link >> wide.shift < places:
            counts[link >> wide.shift] += 1


@kernel
def list_nodes(wide, first, ends, order):
    """List the axis nodes on the features in the places from `first` on, by place: order uint32 [their number].

    ends int64 [places]: where the nodes of each begin in `order`; afterwards where they end.
    """
    places = np.uint64(ends.size)
    for node in range(wide.links.size // 2):
        link = wide.links[2 * node + 1]
        if link:
            place = (link >> wide.shift) - np.uint64(first)  # huge for places before `first`
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
