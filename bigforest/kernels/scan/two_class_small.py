"""Splits of few rows of two classes under Gini, by all pairs of rows or in the order of their codes, and their scores.

With d = n1_l * w - n1 * w_l, the decrease of a split is 2 d**2 / (w_l w_r w**2); the scale here is d**2 / (w_l w_r).
Oracle: tests/naive/split.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import BITS16, NEAR, ONE, SHIFT32, ZERO, ZERO_I64, class_of, offer_gini
from bigforest.kernels.common.pairwise import PAIRS, SCORE_ERROR, SCORED_WEIGHT, score_pairs_two, sums_up_to
from bigforest.kernels.common.sort import sort_many
from bigforest.kernels.compiler.jit import helper, inlined

# Pairs keep both classes' weights in one 32-bit number.
_PAIR_WEIGHT = 65_536
_HALF = np.uint32(16)
_LOW_HALF = np.uint32(0xFFFF)


@inlined
def score_two(ones_l, w_l, ones, weight):
    """d**2 / (w_l w_r) of int64 counts; -1 where a side is empty."""
    d = np.float64(ones_l * weight - ones * w_l)
    room = np.float64(w_l) * np.float64(weight - w_l)
    return d * d / room if room > 0.0 else -1.0


@inlined
def reaches_two(ones_l, w_l, ones, weight, bar):
    """Whether the score is at least `bar`, without dividing; neither side is empty."""
    d = np.float64(ones_l * weight - ones * w_l)
    return d * d >= bar * (np.float64(w_l) * np.float64(weight - w_l))


@helper
def offer_two(ones, weight, min_leaf, feature, code, ones_l, w_l, best):
    """Offer a split by its counts; updates `best` when it is taken."""
    w_r = weight - w_l
    if w_l < min_leaf or w_r < min_leaf:
        return
    zeros_l = w_l - ones_l
    ones_r = ones - ones_l
    zeros_r = w_r - ones_r
    sq_l = zeros_l * zeros_l + ones_l * ones_l
    sq_r = zeros_r * zeros_r + ones_r * ones_r
    if offer_gini(best, feature, code, sq_l, w_l, sq_r, w_r):
        best.limit[0] = score_two(ones_l, w_l, ones, weight) * NEAR


@helper
def walk_two(begin, end, ones_l, w_l, node, min_leaf, feature, best, keys):
    """Offer every boundary between different codes of the sorted keys[begin:end]; ones_l, w_l lie left of it."""
    ones = node.total[ONE]
    bar = best.limit[0]
    key = keys[begin]
    for i in range(begin + ONE, end):
        code = key >> SHIFT32
        multiplicity = np.int64(key & BITS16)
        ones_l += multiplicity * np.int64(class_of(key))
        w_l += multiplicity
        key = keys[i]
        if key >> SHIFT32 != code and reaches_two(ones_l, w_l, ones, node.weight, bar):
            offer_two(node.total[ONE], node.weight, min_leaf, feature, np.int64(code), ones_l, w_l, best)
            bar = best.limit[0]


@inlined
def pairs_two(codes, n, ones_l, w_l, node, min_leaf, feature, best, work):
    """What walk_two does, for n <= PAIRS rows in any order: their codes, and work.pair_add with class 1 shifted 16.

    The weights of the rows with codes up to each row's own come from all pairs: no sorting, no branch.
    """
    sums_up_to(codes, work.pair_add, n, work.pair_sum)
    sums = work.pair_sum
    ones, weight = node.total[ONE], node.weight
    bar = best.limit[0]
    hits = ZERO
    for i in range(n):  # no branch: this loop is vectorised, and mostly finds nothing
        ones_here = ones_l + np.int64(sums[i] >> _HALF)
        w_here = w_l + np.int64((sums[i] >> _HALF) + (sums[i] & _LOW_HALF))
        hits += np.uint64(w_here < weight) & np.uint64(reaches_two(ones_here, w_here, ones, weight, bar))
    if hits == ZERO:
        return
    last = np.uint32(0)
    for i in range(n):
        last = max(last, codes[i])
    for i in range(n):
        ones_here = ones_l + np.int64(sums[i] >> _HALF)
        w_here = w_l + np.int64((sums[i] >> _HALF) + (sums[i] & _LOW_HALF))
        if codes[i] != last and reaches_two(ones_here, w_here, ones, weight, bar):
            offer_two(ones, weight, min_leaf, feature, np.int64(codes[i]), ones_here, w_here, best)
            bar = best.limit[0]


@inlined
def pair_weight(item):
    """Multiplicity of an item or a key, shifted 16 for class 1."""
    return np.uint32(item & BITS16) << np.uint32(class_of(item) << np.uint64(4))


@inlined
def boundaries_two(begin, end, inside, ones_l, w_l, node, min_leaf, feature, best, work):
    """Offer every boundary of work.keys[begin:end], in any order, of total weight `inside`."""
    n = end - begin
    if n <= np.uint64(PAIRS) and inside < _PAIR_WEIGHT:
        for i in range(n):
            key = work.keys[begin + i]
            work.pair_code[i] = np.uint32(key >> SHIFT32)
            work.pair_add[i] = pair_weight(key)
        pairs_two(work.pair_code, n, ones_l, w_l, node, min_leaf, feature, best, work)
    else:
        sort_many(work.keys, begin, end)
        walk_two(begin, end, ones_l, w_l, node, min_leaf, feature, best, work.keys)


@inlined
def small_two(node, min_leaf, feature, best, work):
    """What scan_two does for nodes that are `by_pairs`: scores of all splits first, then those that may be the best."""
    offer_small_two(score_small_two(node, min_leaf, work), node, min_leaf, feature, best, work)


@inlined
def score_small_two(node, min_leaf, work):
    """work.pair_score[i] = score of the split after work.codes[i], work.pair_sum[i] the weights on the left; returns
    the highest score."""
    n, ones = np.uint64(node.items.size), node.total[ONE]
    return score_pairs_two(work.codes, work.pair_add, n, ones, node.weight, min_leaf, work.pair_sum, work.pair_score)


@inlined
def shares_codes(n, weight, work):
    """Whether two of the rows that score_small_two has scored have the same code; `weight` is that of all rows.

    The sum over rows of own weight times the weight of rows up to it counts every two rows once, and twice if they have
    the same code.
    """
    found, alone = ZERO_I64, weight * weight
    for i in range(n):
        own = weight_of_pair(work.pair_add[i])
        found += own * weight_of_pair(work.pair_sum[i])
        alone += own * own
    return found + found != alone


@inlined
def weight_of_pair(packed):
    """Weight of both classes, of which class 1 is shifted 16."""
    return np.int64((packed >> _HALF) + (packed & _LOW_HALF))


@inlined
def offer_small_two(highest, node, min_leaf, feature, best, work):
    """Offer the splits whose scores, by score_small_two, may be the best; `highest` is the highest of them."""
    codes, sums, score = work.codes, work.pair_sum, work.pair_score
    n = np.uint64(node.items.size)
    ones, weight = node.total[ONE], node.weight
    if highest < 0.0 or highest * (1.0 + SCORE_ERROR) < best.limit[0]:
        return
    bar = np.float32(highest * (1.0 - SCORE_ERROR))
    offered = ZERO_I64 - 1
    for i in range(n):
        if score[i] >= bar and np.int64(codes[i]) != offered:
            offered = np.int64(codes[i])
            ones_l = np.int64(sums[i] >> _HALF)
            w_l = ones_l + np.int64(sums[i] & _LOW_HALF)
            offer_two(ones, weight, min_leaf, feature, offered, ones_l, w_l, best)


@inlined
def by_pairs(node):
    """Whether the node is small enough to compare all pairs."""
    return node.items.size <= PAIRS and node.weight < SCORED_WEIGHT
