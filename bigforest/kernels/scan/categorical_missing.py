"""Categories, and features with missing values. Oracle: tests/naive/split.py.

Both are scanned like numbers, after their codes are replaced by ranks in an order. Rows without a value have code 0. A
node with missing values is scanned twice: with these rows before all values, and after all values. A category is
scanned in the order of its levels (kernels/scan/level_order.py), where levels with few rows are one group. A *slot* is
the place of a level among the levels of the node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import codes_or_gather
from bigforest.kernels.common.layout import CATEGORY, MISSING
from bigforest.kernels.common.node_scan import CODE, FEATURE, ONE, SQ_L, SQ_R, TWO, W_L, W_R, ZERO, ZERO_I64
from bigforest.kernels.common.partition import partition_codes
from bigforest.kernels.common.rng import split_state
from bigforest.kernels.common.sort import sort_bucket
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.numbers import smaller
from bigforest.kernels.scan.level_order import LevelOrder, make_levels, order_groups, order_levels
from bigforest.kernels.scan.regression import offer_one
from bigforest.kernels.scan.target import sum_left
from bigforest.kernels.scan.two_class import offer_two, reaches_two

# Side to which the rows without a value go; UNSEEN if the node has none.
UNSEEN, SEEN_LEFT, SEEN_RIGHT = 0, 1, 2


class CategoricalMissing(NamedTuple):
    """Kinds of features, and scratch of one growing tree.

    kind       uint8 [features]: NUMBER, MISSING or CATEGORY
    min_level  int64 [features], a level of this weight or more is never joined with others (level_order.py)
    levels     scratch
    """

    kind: NDArray[np.uint8]
    min_level: NDArray[np.int64]
    levels: LevelOrder


class Subsets(NamedTuple):
    """Further data of nodes on categories and features with missing values, in the order of the nodes.

    missing  uint8 [nodes], UNSEEN, SEEN_LEFT or SEEN_RIGHT; UNSEEN in leaves and on categories
    size     uint32 [nodes], number of listed levels; 0 except in nodes on categories. The levels of the lighter child
             are listed, or of the right child if both weigh the same
    level    uint32 [room], codes of the listed levels of all nodes, ascending within a node
    used     uint64 [1], number of entries of `level` in use
    """

    missing: NDArray[np.uint8]
    size: NDArray[np.uint32]
    level: NDArray[np.uint32]
    used: NDArray[np.uint64]


def make_categorical_missing(
    kind: NDArray[np.uint8], min_level: NDArray[np.int64], codes: int, rows: int, classes: int
) -> CategoricalMissing:
    """Allocate CategoricalMissing for features of these kinds and up to `rows` rows; codes: levels of the largest
    category."""
    return CategoricalMissing(kind, min_level, make_levels(codes, rows, classes))


def make_subsets(nodes: int, most: int) -> Subsets:
    """Allocate space for nodes and for their levels, at most `most` in a node."""
    room = 2 * max(nodes, most)
    return Subsets(
        np.empty(nodes, np.uint8), np.empty(nodes, np.uint32), np.empty(room, np.uint32), np.zeros(1, np.uint64)
    )


@inlined
def keep_in_room(feature, low, high, n, non_plain, codes):
    """Limit codes[:n] of a feature, `low` to `high`, to the range of the scratch. Return the new `low` and `high`.

    Scratch is indexed by code. Codes exceed its range only if another process writes to the store at the same time.
    """
    room = np.uint64(0xFFFFFFFF)  # missing_last adds 1 to the largest code
    if non_plain.kind[feature] == CATEGORY:
        room = np.uint64(non_plain.levels.by_code.size)
    if np.uint64(high) < room:
        return low, high
    last = np.uint32(room - ONE)
    for i in range(n):
        codes[i] = smaller(codes[i], last)
    return smaller(low, last), last


@inlined
def first_order(feature, low, high, node, non_plain, work):
    """Prepare work.codes, `low` to `high`, for the first scan: replace the levels of a category by ranks.

    Return the new smallest and largest code, which are equal if all levels are in one group, and the number of scans
    (uint64). The second scan, with missing values last, is prepared by `missing_last`.
    """
    if non_plain.kind[feature] == CATEGORY:
        groups, _ = order_levels(
            work.codes, low, high, node, non_plain.min_level[feature], non_plain.levels, None, None, ZERO
        )
        return np.uint32(0), np.uint32(groups - ONE), ONE
    if non_plain.kind[feature] == MISSING and low == np.uint32(0):
        return low, high, TWO
    return low, high, ONE


@inlined
def missing_last(codes, n, high):
    """Give rows without a value the code after `high`; return the new smallest and largest code."""
    last = high + np.uint32(1)
    low = last
    for i in range(n):
        code = codes[i]
        code = last if code == np.uint32(0) else code
        codes[i] = code
        low = smaller(low, code)
    return low, last


@inlined
def smallest_value(codes, n, high):
    """Return the smallest code above 0; `high` is the largest code, and not 0."""
    least = high
    for i in range(n):
        least = smaller(least, high if codes[i] == np.uint32(0) else codes[i])
    return least


@helper
def scan_levels(low, high, scan, min_level, levels, sums):
    """Offer every split of the levels in their order. The split after rank r has the code r.

    low, high  smallest and largest of the levels of the rows, work.codes[:n]
    min_level  see CategoricalMissing

    Return 1 if the levels form more than one group, else 0, as uint64.
    """
    node = scan.node
    groups, _ = order_groups(scan.work.codes, low, high, node, min_level, levels, sums, None, ZERO)
    if groups == ONE:
        return ZERO
    w_l, sum_l = ZERO_I64, ZERO_I64
    for rank in range(groups - ONE):
        group = np.uint64(levels.order[rank])
        w_l += levels.weight[group]
        sum_l += levels.sum[group]
        if sums is not None:
            offer_one(np.int64(rank), w_l, sum_l, scan, sums.poisson)
        elif reaches_two(sum_l, w_l, node.total[ONE], node.weight, scan.best.bar[0]):
            offer_two(np.int64(rank), sum_l, w_l, scan)
    return ONE


@inlined
def list_levels(begin, end, slots, levels, subsets):
    """Append to subsets.level the levels whose groups have ranks from `begin` to before `end`. Return their number."""
    used = subsets.used[0]
    at = used
    for slot in range(slots):
        rank = np.uint64(levels.rank[np.uint64(levels.group[slot])])
        if begin <= rank < end:
            subsets.level[at] = levels.code[slot]
            at += ONE
    sort_bucket(subsets.level, used, at)
    subsets.used[0] = at
    return np.uint32(at - used)


@inlined
def swap_sides(best):
    """Swap the sides of the best split."""
    split = best.split
    split[SQ_L], split[SQ_R] = split[SQ_R], split[SQ_L]
    split[W_L], split[W_R] = split[W_R], split[W_L]


@inlined
def split_non_plain(codes, node, column, non_plain, scratch, nodes, subsets, number, sums, dictionary):
    """Send the rows of a node to the sides of its best split, and write it as node `number`.

    column      codes of the feature of the split, CachedColumn
    dictionary  for random splits; None for the best split

    best.split[FEATURE] is twice the feature, plus 1 if missing values come last. A split of missing values from all
    other values has the other values on the left, and a right_code of 0. Return the number of rows on the left.
    scratch.total_l is set to the statistics of the left side (target.py).
    """
    best, row_codes = scratch.best, column.codes
    feature = np.uint64(best.split[FEATURE]) >> ONE
    threshold = np.uint32(best.split[CODE])
    n = np.uint64(node.items.size)
    kind = non_plain.kind[feature]
    low, high = codes_or_gather(codes, feature, node.items, column)
    low, high = keep_in_room(feature, low, high, n, non_plain, row_codes)
    slots = ZERO
    missing = UNSEEN
    if kind == CATEGORY:
        state = split_state(node.key, feature)
        _, slots = order_levels(
            row_codes, low, high, node, non_plain.min_level[feature], non_plain.levels, sums, dictionary, state
        )
    elif kind == MISSING and low == np.uint32(0):
        missing = SEEN_LEFT
        alone = threshold < smallest_value(row_codes, n, high)
        if alone:
            threshold = high
            swap_sides(best)
        if alone or np.uint64(best.split[FEATURE]) & ONE:
            missing = SEEN_RIGHT
            missing_last(row_codes, n, high)
    size_l, below, above = partition_codes(row_codes, threshold, node.items, scratch.work.keys)
    sum_left(node, size_l, best, scratch.total_l, sums)
    nodes.feature[number] = feature
    nodes.left_code[number] = np.uint32(0) if kind == CATEGORY else below
    nodes.right_code[number] = np.uint32(0) if kind == CATEGORY or above > high else above
    subsets.missing[number] = missing
    subsets.size[number] = np.uint32(0)
    if kind == CATEGORY:
        cut = np.uint64(threshold) + ONE
        if best.split[W_L] >= best.split[W_R]:
            subsets.size[number] = list_levels(cut, slots, slots, non_plain.levels, subsets)
        else:
            subsets.size[number] = list_levels(ZERO, cut, slots, non_plain.levels, subsets)
    return size_l
