"""One block of rows at a time: send its rows down the part of a tree that is split already, and count what the frontier
asks for. Oracle: tests/naive/tree.py, through grow/level.py.

All row numbers are those within the block, so tables may be of any length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.axis import draw_feature, wanted_features
from bigforest.kernels.gather import gather
from bigforest.kernels.jit import kernel
from bigforest.kernels.node import BITS16, BITS32, SHIFT32, ZERO, as_key, class_of
from bigforest.kernels.partition import partition
from bigforest.kernels.rng import LEFT, RIGHT, mix


class Top(NamedTuple):
    """The nodes of a tree above and on its frontier, parents before their children; entry 0 is the root.

    feature int32 [nodes], -1 where a node is not split; code uint32, codes up to it go left; left, right uint32, the
    entries of the children.
    """

    feature: NDArray[np.int32]
    code: NDArray[np.uint32]
    left: NDArray[np.uint32]
    right: NDArray[np.uint32]


class Probes(NamedTuple):
    """Questions about codes of nodes, one entry each; bucket (code - low) >> shift, codes outside are passed over.

    node uint32 (entry of Top), feature uint32, low uint32, shift uint32, buckets uint64, offset uint64 (where the
    buckets of this probe begin in the array of all).
    """

    node: NDArray[np.uint32]
    feature: NDArray[np.uint32]
    low: NDArray[np.uint32]
    shift: NDArray[np.uint32]
    buckets: NDArray[np.uint64]
    offset: NDArray[np.uint64]


@kernel
def route_block(codes, items, spare, top, begin, end, below, above):
    """Sort the items by the nodes of `top` they fall into, stably: those of node i are items[begin[i]:end[i]].

    codes         Codes of the block
    items, spare  uint64 [n] (see node.py), mutated
    begin, end    uint64 [nodes], out; an inner node has the range of all that passed it
    below, above  uint32 [nodes], in and out: largest code sent left, smallest sent right, over all blocks so far
    """
    begin[ZERO] = ZERO
    end[ZERO] = np.uint64(items.size)
    for i in range(np.uint64(top.feature.size)):
        if top.feature[i] < 0:
            continue
        here = items[begin[i] : end[i]]
        size_l, largest, smallest = partition(codes, np.uint64(top.feature[i]), top.code[i], here, spare)
        middle = begin[i] + size_l
        begin[np.uint64(top.left[i])] = begin[i]
        end[np.uint64(top.left[i])] = middle
        begin[np.uint64(top.right[i])] = middle
        end[np.uint64(top.right[i])] = end[i]
        if size_l > ZERO:
            below[i] = max(below[i], largest)
        if middle < end[i]:
            above[i] = min(above[i], smallest)


@kernel
def count_block(codes, by_row, items, begin, end, probes, classes, fetched, counts, low, high):
    """Add the rows of the block to the histograms of the probes.

    by_row    Rows without reach
    items, begin, end  from route_block
    fetched   uint32 [n], scratch
    counts    uint32, flat: bucket b and class k of probe p at (offset[p] + b) * classes + k, added to
    low, high uint32 [probes], in and out: smallest and largest code of the node, over all blocks so far
    """
    for p in range(np.uint64(probes.node.size)):
        node = np.uint64(probes.node[p])
        here = items[begin[node] : end[node]]
        if here.size == 0:
            continue
        smallest, largest = gather(codes, by_row, np.uint64(probes.feature[p]), here, fetched)
        low[p] = min(low[p], smallest)
        high[p] = max(high[p], largest)
        first, shift, buckets, offset = probes.low[p], probes.shift[p], probes.buckets[p], probes.offset[p]
        for i in range(np.uint64(here.size)):
            bucket = np.uint64((fetched[i] - first) >> shift)
            if bucket < buckets:
                counts[(offset + bucket) * classes + class_of(here[i])] += np.uint32(here[i] & BITS16)


@kernel
def collect_block(codes, by_row, items, begin, end, probes, wanted, fetched, keys, ends):
    """Write the sort keys of the rows that fall into wanted buckets, probe by probe; arguments as in count_block.

    wanted  bool, flat: bucket b of probe p at offset[p] + b
    keys    uint64, out, with room for all rows of all probes and one more
    ends    uint64 [probes], out: where the keys of a probe end
    """
    at = ZERO
    for p in range(np.uint64(probes.node.size)):
        node = np.uint64(probes.node[p])
        here = items[begin[node] : end[node]]
        if here.size > 0:
            gather(codes, by_row, np.uint64(probes.feature[p]), here, fetched)
            first, shift, buckets, offset = probes.low[p], probes.shift[p], probes.buckets[p], probes.offset[p]
            for i in range(np.uint64(here.size)):
                bucket = np.uint64((fetched[i] - first) >> shift)
                if bucket < buckets:
                    keys[at] = as_key(fetched[i], here[i])
                    at += np.uint64(wanted[offset + bucket])
        ends[p] = at


@kernel
def pick_columns(matrix, items, out):
    """out[c, i] = matrix[c, row of items[i]]; matrix [columns, rows of the block], out [columns, n]."""
    for c in range(np.uint64(matrix.shape[0])):
        for i in range(np.uint64(items.size)):
            out[c, i] = matrix[c, items[i] >> SHIFT32]


@kernel
def pick_tags(items, out):
    """out[i] = class << 16 | multiplicity of items[i], uint32 [n]."""
    for i in range(np.uint64(items.size)):
        out[i] = np.uint32(items[i] & BITS32)


@kernel
def number_items(tags, items):
    """items[i] = i << 32 | tags[i]: the items of rows that now stand in places 0, 1, ...; tags uint32, items uint64."""
    for i in range(np.uint64(tags.size)):
        items[i] = (i << SHIFT32) | np.uint64(tags[i])


@kernel
def draw_order(key, rules, draw):
    """Draw all features in the node `key`: draw.perm is their order then, the first drawn first.

    The same draws as find_feature of axis.py makes; returns how many it wants.
    """
    features = np.uint64(draw.perm.size)
    state = key
    for drawn in range(features):
        _, state = draw_feature(draw, drawn, state)
    return wanted_features(rules, key, features)


@kernel
def child_keys(key):
    """Keys of the left and of the right child of the node `key`."""
    return mix(key ^ LEFT), mix(key ^ RIGHT)


def no_rows() -> Any:
    """Rows without reach, for kernels that can read a table by rows too and here read it by columns."""
    from bigforest.kernels.layout import Rows

    empty = [np.empty((0, 0), kind) for kind in (np.uint8, np.uint16, np.uint32)]
    return Rows(empty[0], empty[1], empty[2], 0)
