"""Find the best threshold on the projections of a node: make codes from the projections, and scan these (kernels/scan).

1. Projections that are whole numbers serve as codes.
2. Few rows are ordered by projection. The code of a row is the index of the first row with the same projection.
3. Many rows are counted in buckets of equal width. The code of a row is the number of its bucket, shifted. The scan
   scores the edges of buckets and opens the buckets that may have a better split inside. The projections of an opened
   bucket are ordered, and its rows get new codes, counted from the code of the bucket: two rows then share a code only
   if their projections are equal.

    projections         0.1  0.2  0.6  1.3  1.1  1.3      two buckets; 6 rows, so their numbers are shifted by 3 bits
    codes               0    0    0    8    8    8
    codes once opened   0    1    2    9    8    9

Oracle: tests/naive/split.py on the projections.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.order_projections import bucket_of, keep_cut, order_bucket, slope_for
from bigforest.kernels.common.node_scan import CODE, FEATURE, ONE, ZERO, ZERO_I64, heavy_buckets
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.numbers import smaller
from bigforest.kernels.scan.impurity import walk_scores
from bigforest.kernels.scan.many_classes import many_buckets, scan_buckets_many, walk_all_many
from bigforest.kernels.scan.regression import BUCKETS_FOR_SUMS, scan_buckets_sums, walk_sums
from bigforest.kernels.scan.two_class import HEAVY_BUCKETS, scan_heavy, walk_two

# Whole projections in a range below this serve as codes.
MOST_CODES = 2.0**32
# Up to this many rows, ordering is faster than a histogram; measured.
_ORDERED_TWO = 256
_ORDERED = 1024
_ORDERED_SUMS = 256


@inlined
def codes_of_whole(low, high, n, projected, work):
    """Set work.codes[:n] to the projections less the smallest; all are whole numbers, and high - low < MOST_CODES.

    Return the largest code. These codes are scanned like the codes of a feature; `cut_after_code` then finds the cut.
    """
    for i in range(n):
        work.codes[i] = np.uint32(np.int64(projected.value[i] - low))
    return np.uint32(np.int64(high - low))


@inlined
def cut_after_code(scan, projected):
    """Set projected.cut to the largest projection among the rows with codes up to best.split[CODE]."""
    codes, split, cut = scan.work.codes, scan.best.split, -np.inf
    for i in range(np.uint64(scan.node.items.size)):
        value = projected.value[i]
        cut = value if value > cut and np.int64(codes[i]) <= split[CODE] else cut
    projected.cut[0] = cut


@inlined
def scan_projection(low, high, scan, projected, two, many, scores, sums):
    """Offer every threshold of a direction. The projections of the rows are in projected.value.

    low, high  smallest and largest projection, finite, low < high

    `two` to `sums` are the fields of CriterionScratch. Call `prepare` of kernels/scan/criterion.py before. When a split
    is taken, projected.cut is set.
    """
    node, work = scan.node, scan.work
    n = np.uint64(node.items.size)
    if sums is not None:
        scan_projected_sums(low, high, scan, projected, sums)
    if scores is not None:
        order_all(projected, node.items, work)
        walk_scores(scan, scores)
        keep_cut(projected, ZERO, n, ZERO, scan)
    if many is not None:
        if node.total.size == 2:
            scan_projected_two(low, high, scan, projected, two)
        elif n > np.uint64(_ORDERED):
            shift, buckets = codes_of_buckets(low, high, n, many_buckets(n, many), work, projected)
            scan_buckets_many(np.uint32(0), shift, buckets, scan, many, projected)
            cut_at_edge(shift, scan, projected)
        else:
            order_all(projected, node.items, work)
            walk_all_many(n, scan, many.left)
            keep_cut(projected, ZERO, n, ZERO, scan)
    elif two is not None:
        scan_projected_two(low, high, scan, projected, two)


@helper
def scan_projected_two(low, high, scan, projected, two):
    """Scan as `scan_projection`, for two classes."""
    n, work = np.uint64(scan.node.items.size), scan.work
    if n > np.uint64(_ORDERED_TWO):
        shift, buckets = codes_of_buckets(low, high, n, heavy_buckets(n, *HEAVY_BUCKETS), work, projected)
        scan_heavy(np.uint32(0), shift, buckets, scan, two, projected)
        cut_at_edge(shift, scan, projected)
    else:
        order_all(projected, scan.node.items, work)
        walk_two(ZERO, n, ZERO_I64, ZERO_I64, scan)
        keep_cut(projected, ZERO, n, ZERO, scan)


@inlined
def order_all(projected, items, work):
    """Set work.keys to the sort keys of all rows, ordered by their projections.

    items  uint64, one for each row; its lower half becomes the lower half of the key
    """
    n = np.uint64(items.size)
    for i in range(n):
        projected.row[i] = np.uint32(i)
        projected.ordered[i] = projected.value[i]
    order_bucket(projected, ZERO, n, ZERO, items, work.keys)


@inlined
def codes_of_buckets(low, high, n, most, work, projected):
    """Set work.codes[:n] to the buckets of the rows, of equal width, shifted to the left by enough bits for n codes.

    most  uint64, most buckets. There are fewer if they do not fit in the bits that are left

    Return the number of bits by which buckets are shifted, and the number of buckets.
    """
    shift = np.uint32(0)
    while n >> np.uint64(shift) != ZERO:
        shift += np.uint32(1)
    buckets = smaller(most, ONE << np.uint64(np.uint32(32) - shift))
    slope = slope_for(low, high, buckets)
    last = np.float64(buckets - ONE)
    for i in range(n):
        work.codes[i] = bucket_of(projected.value[i], low, slope, last) << shift
    return shift, buckets


@inlined
def cut_at_edge(shift, scan, projected):
    """Set projected.cut if the best split is on the direction of the scan and at the edge of a bucket."""
    inside = (np.int64(1) << np.int64(shift)) - 1
    split = scan.best.split
    if split[FEATURE] == scan.number and split[CODE] & inside == inside:
        cut_after_code(scan, projected)


@inlined
def scan_projected_sums(low, high, scan, projected, sums):
    """Scan as `scan_projection`, for regression."""
    n, work = np.uint64(scan.node.items.size), scan.work
    if n > np.uint64(_ORDERED_SUMS):
        shift, buckets = codes_of_buckets(low, high, n, heavy_buckets(n, *BUCKETS_FOR_SUMS), work, projected)
        scan_buckets_sums(np.uint32(0), shift, buckets, scan, sums, projected)
        cut_at_edge(shift, scan, projected)
    else:
        order_all(projected, sums.position[:n], work)
        walk_sums(ZERO, n, ZERO_I64, ZERO_I64, scan, sums)
        keep_cut(projected, ZERO, n, ZERO, scan)
