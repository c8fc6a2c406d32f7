"""The scan for two classes under Gini by histogram; few rows: two_class_small.py. Oracle: tests/naive/split.py.

A bucket's weights travel as one number, class 1 in the upper half, so one addition counts both: uint32 in light nodes,
whose buckets are scored and chosen in vectors (kernels/llvm/two_class_edges.py), uint64 in others.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import (
    BITS32,
    BUCKETS_TWO,
    ONE,
    SHIFT32,
    TWO,
    ZERO,
    buckets_for,
    shift_for,
)
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.scan.open_buckets import open_buckets
from bigforest.kernels.scan.two_class_light import FEW_CODES
from bigforest.kernels.scan.two_class_small import (
    offer_two,
    reaches_two,
    score_two,
    walk_two,
)

# Arguments of buckets_for: the fewest and the most buckets, and rows for each.
BUCKETS_FOR_TWO = (64, BUCKETS_TWO, 8)
_HALF = np.uint32(16)
_LOW_HALF = np.uint32(0xFFFF)
_THREE = np.uint64(3)


@inlined
def as_wide(add):
    """A weight of work.pair_add (uint32) as the histogram has it: uint64, class 1 shifted 32."""
    return np.uint64(add & _LOW_HALF) | (np.uint64(add >> _HALF) << SHIFT32)


@inlined
def histogram_two(low, shift, n, buckets, work):
    """work.packed[b] = weights of the rows whose work.codes fall into bucket b.

    Consecutive rows are counted in two tables, or in four where clearing these is cheap compared to the rows, because
    an addition to a bucket waits for the one before it to the same bucket.
    """
    packed, codes, add = work.packed, work.codes, work.pair_add
    mask = _THREE if buckets << TWO <= min(n, np.uint64(packed.size)) else ONE
    tables = (mask + ONE) * buckets
    for b in range(tables):
        packed[b] = ZERO
    for i in range(n):
        packed[(i & mask) * buckets + np.uint64((codes[i] - low) >> shift)] += as_wide(add[i])
    for table in range(buckets, tables, buckets):
        for b in range(buckets):
            packed[b] += packed[table + b]


@inlined
def edges_two(buckets, node, min_leaf, wide, work):
    """sums[b] = weights before bucket b; edge[b] = score of the split after bucket b; bound[b] = most inside bucket b.

    wide: whether buckets have more than one code each; no bound is needed otherwise.

    d**2 / (w_l w_r) is convex in the counts, so over a bucket its maximum is at a corner: all of one class of the
    bucket to the left and all of the other to the right. The two remaining corners are the edges of the bucket,
    which are offered themselves; they count here only where min_leaf may forbid them.
    """
    sums, edge, bound = work.sums, work.edge, work.bound
    ones, weight = node.total[ONE], node.weight
    running = ZERO
    sums[ZERO] = ZERO
    for b in range(buckets):
        running += work.packed[b]
        sums[b + ONE] = running
    for b in range(buckets):
        ones_before = np.int64(sums[b] >> SHIFT32)
        zeros_before = np.int64(sums[b] & BITS32)
        ones_after = np.int64(sums[b + ONE] >> SHIFT32)
        zeros_after = np.int64(sums[b + ONE] & BITS32)
        edge[b] = score_two(ones_after, zeros_after + ones_after, ones, weight)
        if wide:
            one = score_two(ones_after, zeros_before + ones_after, ones, weight)
            two = score_two(ones_before, zeros_after + ones_before, ones, weight)
            bound[b] = max(one, two)
    if wide and min_leaf > 1:
        bound[ZERO] = max(bound[ZERO], edge[ZERO])
        for b in range(ONE, buckets):
            bound[b] = max(bound[b], max(edge[b - ONE], edge[b]))


@inlined
def walk_bucket_two(b, begin, end, node, min_leaf, feature, best, work):
    """Offer every boundary inside bucket b, see open_buckets."""
    before = work.sums[b]
    ones_l = np.int64(before >> SHIFT32)
    w_l = np.int64(before & BITS32) + ones_l
    walk_two(begin, end, ones_l, w_l, node, min_leaf, feature, best, work.keys)


@inlined
def scan_two(low, high, node, min_leaf, feature, best, work):
    """Offer every threshold of `feature`, whose codes are work.codes[:n], low < high, after prepare_two.

    A histogram, the score of every bucket edge, then the few buckets that could hold a better split are opened. Two
    codes have one threshold, which needs neither.
    """
    n = np.uint64(node.items.size)
    span = np.uint64(high - low)
    if span == ONE:
        inside = ZERO
        for i in range(n):  # a mask instead of a branch lets the compiler vectorise
            inside += as_wide(work.pair_add[i]) & (ZERO - np.uint64(work.codes[i] == low))
        ones_l = np.int64(inside >> SHIFT32)
        w_l = np.int64(inside & BITS32) + ones_l
        if reaches_two(ones_l, w_l, node.total[ONE], node.weight, best.limit[0]):
            offer_two(node.total[ONE], node.weight, min_leaf, feature, np.int64(low), ones_l, w_l, best)
        return
    shift = np.uint32(0) if span < FEW_CODES else shift_for(span, buckets_for(n, *BUCKETS_FOR_TWO))
    scan_buckets_two(low, shift, (span >> np.uint64(shift)) + ONE, node, min_leaf, feature, best, work, None)


@inlined
def scan_buckets_two(low, shift, buckets, node, min_leaf, feature, best, work, projected):
    """scan_two by histogram: the edge of every bucket of 2**shift codes from `low` on, and the buckets that could hold
    a better split.

    projected  ProjectionScratch where the codes stand for projections, by which a bucket is opened. None for a feature.
    """
    histogram_two(low, shift, np.uint64(node.items.size), buckets, work)
    edges_two(buckets, node, min_leaf, shift > np.uint32(0), work)
    bar = best.limit[0]
    for b in range(buckets - ONE):
        if work.edge[b] >= bar:
            code = np.int64(low) + ((np.int64(b) + 1) << np.int64(shift)) - 1
            after = work.sums[b + ONE]
            ones_l = np.int64(after >> SHIFT32)
            offer_two(
                node.total[ONE], node.weight, min_leaf, feature, code, ones_l, np.int64(after & BITS32) + ones_l, best
            )
            bar = best.limit[0]
    if shift > np.uint32(0):
        arguments = (node, min_leaf, feature, best, work)
        open_buckets(walk_bucket_two, arguments, low, shift, buckets, node.items, feature, best, work, projected)
