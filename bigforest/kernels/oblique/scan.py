"""Best threshold on the projections of a node: by the scans of codes, on codes made from the projections.

Few rows are ordered by projection, and a row's code is the place of the first with its projection. Many are counted
into buckets of equal width, whose numbers, shifted, are the codes; the scan of codes then scores the edges and opens
what could hold a better split, and there the projections are ordered and the rows get codes of their own from the
bucket's on. So where it matters two rows share a code only if their projections are equal to the last bit. Nodes of two
classes that are small enough to compare all pairs take buckets so narrow that rows mostly stand alone, and are ordered
where they do not. Whole numbers are codes as they are. For regression rows have their
places in the node in place of classes. Oracle: tests/naive/split.py on the projections.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.order_projections import bucket_of, keep_cut, order_bucket, slope_for
from bigforest.kernels.common.node_scan import CODE, FEATURE, ONE, ZERO, ZERO_I64, buckets_for
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.scan.impurity import GINI, walk_scores
from bigforest.kernels.scan.multi_class import BUCKETS_FOR_MANY, put_all_left, scan_buckets_many, walk_many
from bigforest.kernels.scan.regression import BUCKETS_FOR_SUMS, scan_buckets_sums, walk_sums
from bigforest.kernels.scan.two_class import BUCKETS_FOR_TWO, scan_buckets_two
from bigforest.kernels.scan.two_class_small import by_pairs, offer_pairs_two, score_small_two, shares_codes, walk_two

# Whole projections in a range below this are codes.
MOST_CODES = 2.0**32
# Up to this many rows ordering beats the histogram; measured. For two classes no fewer than PAIRS.
_ORDERED_TWO = 256
_ORDERED = 1024
_ORDERED_SUMS = 256
# As many buckets as bucket_of can number.
_NARROW = 1 << 31


@inlined
def codes_of_whole(low, high, n, projected, work):
    """work.codes[:n] = projections less the smallest, where all are whole numbers and high - low < MOST_CODES.

    Returns the largest. These codes are scanned like those of a feature; cut_after_code says what the best split means.
    """
    for i in range(n):
        work.codes[i] = np.uint32(np.int64(projected.value[i] - low))
    return np.uint32(np.int64(high - low))


@inlined
def cut_after_code(n, best, work, projected):
    """projected.cut = largest projection of a row whose work.codes are at most the best split's."""
    cut = -np.inf
    for i in range(n):
        value = projected.value[i]
        cut = value if value > cut and np.int64(work.codes[i]) <= best.split[CODE] else cut
    projected.cut[0] = cut


@inlined
def scan_projection(rules, table, low, high, node, number, best, work, projected, sums):
    """Offer every threshold of direction `number`, whose projections are projected.value[:n], low < high, finite.

    After prepare_two, for two classes and Gini. table, sums: see target.py. projected.cut is set where a split is
    taken.
    """
    if sums is not None:
        scan_projected_sums(low, high, node, rules.min_leaf, number, best, work, projected, sums)
    if table is not None:
        scan_projected_classes(rules, table, low, high, node, number, best, work, projected)


@inlined
def scan_projected_classes(rules, table, low, high, node, number, best, work, projected):
    """scan_projection for classes."""
    n = np.uint64(node.items.size)
    two = node.total.size == 2
    if rules.impurity == GINI and n > np.uint64(_ORDERED_TWO if two else _ORDERED):
        by_buckets(low, high, two, node, rules.min_leaf, number, best, work, projected)
    elif not (
        rules.impurity == GINI
        and two
        and by_pairs(node)
        and by_narrow_buckets(low, high, node, rules.min_leaf, number, best, work, projected)
    ):
        by_order(rules, table, two, node, number, best, work, projected)


@inlined
def by_narrow_buckets(low, high, node, min_leaf, number, best, work, projected):
    """scan_projection by pairs (kernels/scan/two_class_small.py), where no two rows share a bucket; else False, and
    nothing is done."""
    n = np.uint64(node.items.size)
    slope = slope_for(low, high, _NARROW)
    last = np.float64(_NARROW - 1)
    for i in range(n):
        work.codes[i] = bucket_of(projected.value[i], low, slope, last)
    highest = score_small_two(node, min_leaf, work)
    if shares_codes(n, node.weight, work):
        return False
    scored = (work.pair_sum, work.pair_score, work.selected)
    offer_pairs_two(highest, work.codes, n, node, min_leaf, number, best, *scored)
    if best.split[FEATURE] == number:
        cut_after_code(n, best, work, projected)
    return True


@inlined
def order_all(projected, items, work):
    """work.keys = the sort keys of all rows in the order of their projections, with the lower halves of `items`."""
    n = np.uint64(items.size)
    for i in range(n):
        projected.row[i] = np.uint32(i)
        projected.ordered[i] = projected.value[i]
    order_bucket(projected, ZERO, n, ZERO, items, work)


@inlined
def by_order(rules, table, two, node, number, best, work, projected):
    """scan_projection by ordering all rows."""
    n = np.uint64(node.items.size)
    order_all(projected, node.items, work)
    if rules.impurity != GINI:
        walk_scores(rules.impurity, table, node, rules.min_leaf, number, best, work)
    elif two:
        walk_two(ZERO, n, ZERO_I64, ZERO_I64, node, rules.min_leaf, number, best, work.keys)
    else:
        put_all_left(node, work)
        walk_many(ZERO, n, node.sq, node.weight, ZERO_I64, node, rules.min_leaf, number, best, work)
    keep_cut(projected, ZERO, n, ZERO, number, best)


@inlined
def by_buckets(low, high, two, node, min_leaf, number, best, work, projected):
    """scan_projection by histogram."""
    wanted = BUCKETS_FOR_TWO if two else BUCKETS_FOR_MANY
    shift, buckets = codes_of_buckets(low, high, np.uint64(node.items.size), wanted, work, projected)
    if two:
        scan_buckets_two(np.uint32(0), shift, buckets, node, min_leaf, number, best, work, projected)
    else:
        scan_buckets_many(np.uint32(0), shift, buckets, node, min_leaf, number, best, work, projected)
    cut_at_edge(shift, np.uint64(node.items.size), number, best, work, projected)


@inlined
def codes_of_buckets(low, high, n, wanted, work, projected):
    """work.codes[:n] = buckets of equal width, shifted: the rows of one get codes of their own when it is opened.

    wanted  arguments of buckets_for

    Returns by how much they are shifted, and how many buckets there are.
    """
    shift = np.uint32(0)
    while n >> np.uint64(shift) != ZERO:
        shift += np.uint32(1)
    buckets = min(buckets_for(n, *wanted), ONE << np.uint64(np.uint32(32) - shift))
    slope = slope_for(low, high, buckets)
    last = np.float64(buckets - ONE)
    for i in range(n):
        work.codes[i] = bucket_of(projected.value[i], low, slope, last) << shift
    return shift, buckets


@inlined
def cut_at_edge(shift, n, number, best, work, projected):
    """Set projected.cut where the best split is one of direction `number`, at the edge of a bucket."""
    inside = (np.int64(1) << np.int64(shift)) - 1
    if best.split[FEATURE] == number and best.split[CODE] & inside == inside:
        cut_after_code(n, best, work, projected)


@inlined
def scan_projected_sums(low, high, node, min_leaf, number, best, work, projected, sums):
    """scan_projection for regression."""
    n = np.uint64(node.items.size)
    if n > np.uint64(_ORDERED_SUMS):
        shift, buckets = codes_of_buckets(low, high, n, BUCKETS_FOR_SUMS, work, projected)
        scan_buckets_sums(np.uint32(0), shift, buckets, node, min_leaf, number, best, work, sums, projected)
        cut_at_edge(shift, n, number, best, work, projected)
    else:
        order_all(projected, sums.place[:n], work)
        walk_sums(work.keys, ZERO, n, ZERO_I64, ZERO_I64, node, min_leaf, number, best, sums)
        keep_cut(projected, ZERO, n, ZERO, number, best)
