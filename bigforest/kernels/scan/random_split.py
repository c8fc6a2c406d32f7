"""Random splits of extremely randomised trees (Geurts, Ernst and Wehenkel 2006, table 1). Oracle:
tests/naive/random_split.py.

A node tries one random split of each drawn feature and takes the best. A threshold is uniform between the smallest and
the largest value in the node; an infinite value counts as the largest finite number of its sign. Rows without a value
go to a random side; if all values are equal, they are one side of the split. The levels of a category are put in a
random order and cut at a random position. The random numbers depend only on the key of the node and the number of the
feature.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.project import LARGEST
from bigforest.kernels.common.binary_search import last_up_to
from bigforest.kernels.common.layout import CATEGORY, MISSING
from bigforest.kernels.common.node_scan import BITS16, ONE, ZERO, ZERO_I64, Scan, class_of, offer_gini
from bigforest.kernels.common.rng import GOLDEN, below, fraction, level_number, mix, split_state
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import larger, smaller
from bigforest.kernels.scan.categorical_missing import missing_last, smallest_value
from bigforest.kernels.scan.impurity import GINI, offer_scores, side_score
from bigforest.kernels.scan.level_order import order_levels
from bigforest.kernels.scan.regression import offer_one

_SHIFT63 = np.uint64(63)
# In nodes of up to this many rows, the values of the rows are compared with a drawn threshold.
_FEW_ROWS = np.uint64(64)


@inlined
def draw_threshold(dictionary, start, low, high, state):
    """Draw a threshold between the values of the codes `low` and `high`; start: entry of code 0 of the feature."""
    lowest = larger(dictionary.low[start + np.uint64(low)], -LARGEST)
    highest = smaller(dictionary.low[start + np.uint64(high)], LARGEST)
    share = fraction(mix(state))
    return lowest * (1.0 - share) + highest * share


@inlined
def draw_code(dictionary, feature, low, high, state):
    """Draw a threshold between the values of the codes `low` and `high`. Return the largest code that goes left."""
    start = np.uint64(dictionary.offsets[feature])
    threshold = draw_threshold(dictionary, start, low, high, state)
    first = start + np.uint64(low)
    return np.int64(last_up_to(dictionary.low, first, np.uint64(high) - np.uint64(low), threshold) - start)


@inlined
def draw_code_of_rows(dictionary, feature, low, high, state, codes, n):
    """Draw a threshold as `draw_code`. Return the largest code of the rows, codes[:n], that goes left.

    Codes from `high` on, of the largest value and of missing values, go right. For few rows this takes less time than a
    search, in which each read waits for the one before.
    """
    start = np.uint64(dictionary.offsets[feature])
    threshold = draw_threshold(dictionary, start, low, high, state)
    code = low
    for i in range(n):
        value = dictionary.low[start + np.uint64(smaller(codes[i], high))]
        code = larger(code, codes[i] if (codes[i] < high) & (value <= threshold) else low)
    return np.int64(code)


@inlined
def goes_last(state):
    """Return True if rows without a value go right."""
    return mix(state + GOLDEN) >> _SHIFT63 != ZERO


@kernel
def draw_cut(dictionary, feature, low, high, key):
    """Return the result of `draw_code` in the node of this key (uint64), and True if rows without a value go right."""
    state = split_state(key, feature)
    return draw_code(dictionary, feature, low, high, state), goes_last(state)


@kernel
def draw_levels(levels, key, feature, numbers):
    """Draw the random order of the levels of a node, and where it is cut.

    levels   uint32 [n], n >= 2
    numbers  uint64 [n], set to the numbers by which the levels are sorted; ties are sorted by level

    Return the rank after which the order is cut.
    """
    state = split_state(key, feature)
    for i in range(np.uint64(levels.size)):
        numbers[i] = level_number(state, levels[i])
    return below(mix(state), np.uint64(levels.size) - ONE)


@inlined
def sum_classes_left(items, codes, threshold, left):
    """Set left[k] to the weight of class k in the rows with codes up to `threshold` (uint32)."""
    if left.size == 2:  # in registers
        both, ones = ZERO_I64, ZERO_I64
        for i in range(np.uint64(items.size)):
            weight = np.int64(items[i] & BITS16) & -np.int64(codes[i] <= threshold)
            both += weight
            ones += weight & -np.int64(class_of(items[i]))
        left[0], left[1] = both - ones, ones
        return
    for k in range(np.uint64(left.size)):
        left[k] = 0
    for i in range(np.uint64(items.size)):
        left[class_of(items[i])] += np.int64(items[i] & BITS16) * np.int64(codes[i] <= threshold)


@inlined
def offer_cut(code, scan, scores, sums):
    """Offer the split that sends rows with codes up to `code` to the left."""
    node, min_leaf, codes = scan.node, scan.min_leaf, scan.work.codes
    items = node.items
    threshold = np.uint32(code)
    w_l = ZERO_I64
    if sums is not None:
        sum_l = ZERO_I64
        for i in range(np.uint64(items.size)):  # without a branch, which would be unpredictable
            goes_left = -np.int64(codes[i] <= threshold)
            w_l += sums.rows[i, ZERO] & goes_left
            sum_l += sums.rows[i, ONE] & goes_left
        offer_one(code, w_l, sum_l, scan, sums.poisson)
    if scores is not None:
        impurity, table, left, right = scores
        sum_classes_left(items, codes, threshold, left)
        sq_l, sq_r = ZERO_I64, ZERO_I64
        for k in range(np.uint64(left.size)):
            right[k] = node.total[k] - left[k]
            w_l += left[k]
            sq_l += left[k] * left[k]
            sq_r += right[k] * right[k]
        w_r = node.weight - w_l
        if w_l < min_leaf or w_r < min_leaf:
            return
        if impurity == GINI:
            offer_gini(scan, code, sq_l, w_l, sq_r, w_r)
        else:
            score_l = side_score(impurity, left, w_l, table)
            score_r = side_score(impurity, right, w_r, table)
            offer_scores(scan, code, score_l, w_l, score_r, w_r)


@inlined
def offer_random(feature, low, high, scan, non_plain, scores, sums, dictionary):
    """Offer the random split on a feature (uint64), whose codes are work.codes[:n], low < high.

    scan  its number is 2 * feature; 1 is added if missing values go right
    """
    n, codes = np.uint64(scan.node.items.size), scan.work.codes
    state = split_state(scan.node.key, feature)
    number, least = scan.number, low
    alone = False
    if non_plain is not None:
        if non_plain.kind[feature] == CATEGORY:
            levels_of_rows = (codes, low, high, scan.node, non_plain.min_level[feature])
            groups, _ = order_levels(*levels_of_rows, non_plain.levels, sums, dictionary, state)
            code = np.int64(below(mix(state), groups - ONE))
            offer_cut(code, scan, scores, sums)
            return
        if low == np.uint32(0) and non_plain.kind[feature] == MISSING:
            least = smallest_value(codes, n, high)
            alone = least == high
            if not alone and goes_last(state):
                missing_last(codes, n, high)
                number += 1
    code = ZERO_I64
    if not alone and n <= _FEW_ROWS:
        code = draw_code_of_rows(dictionary, feature, least, high, state, codes, n)
    elif not alone:
        code = draw_code(dictionary, feature, least, high, state)
    offer_cut(code, Scan(scan.node, scan.min_leaf, number, scan.best, scan.work), scores, sums)
