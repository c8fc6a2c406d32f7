"""Splits of few rows of two classes under Gini, by all pairs of rows or in the order of their codes, and their scores.

With d = n1_l * w - n1 * w_l, the decrease of a split is 2 d**2 / (w_l w_r w**2); the scale here is d**2 / (w_l w_r).
Oracle: tests/naive/split.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import (
    BITS16,
    BUCKETS,
    NEAR,
    ONE,
    SHIFT32,
    ZERO,
    ZERO_I64,
    as_key,
    class_of,
    offer_gini,
)
from bigforest.kernels.common.sort import sort_many
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.pairwise import PAIRS, SCORE_ERROR, SCORED_WEIGHT, score_pairs_two
from bigforest.kernels.llvm.selection import select_codes, select_scores
from bigforest.kernels.llvm.two_class_edges import score_buckets_two

# Light nodes keep both classes' weights in one 32-bit number.
_HALF = np.uint32(16)
_LOW_HALF = np.uint32(0xFFFF)
_NONE = np.uint32(0)
_LOG_BITS16 = np.uint64(4)


@inlined
def prepare_two(node, work):
    """Once per node: work.pair_add[i] = multiplicity of items[i], shifted 16 for class 1."""
    for i in range(np.uint64(node.items.size)):
        item = node.items[i]
        work.pair_add[i] = np.uint32(item & BITS16) << np.uint32(class_of(item) << _LOG_BITS16)


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
def score_small_two(node, min_leaf, work):
    """work.pair_score[i] = score of the split after work.codes[i], work.pair_sum[i] the weights on the left; returns
    the highest score."""
    n, ones = np.uint64(node.items.size), node.total[ONE]
    return score_pairs_two(
        work.codes, work.pair_add, n, _NONE, ones, node.weight, min_leaf, work.pair_sum, work.pair_score
    )


@inlined
def look_inside_two(low, span, before, node, min_leaf, feature, best, work):
    """Offer the splits after the codes from `low` to low + span (uint32) of a light node.

    before  uint32, what has smaller codes, class 1 shifted 16
    """
    found = select_codes(work.codes, np.uint64(node.items.size), low, span, work.selected)
    if found <= np.uint64(PAIRS):
        for k in range(found):
            i = np.uint64(work.selected[k])
            work.pair_code[k] = work.codes[i]
            work.pair_key[k] = np.uint64(work.pair_add[i])
        ones, codes = node.total[ONE], work.pair_code
        highest = score_pairs_two(
            codes, work.pair_key, found, before, ones, node.weight, min_leaf, work.pair_sum, work.pair_score
        )
        offer_pairs_two(
            highest, codes, found, node, min_leaf, feature, best, work.pair_sum, work.pair_score, work.selected
        )
        return
    if span < np.uint32(BUCKETS):
        count_inside_two(low, np.uint64(span) + ONE, found, before, node, min_leaf, feature, best, work)
        return
    for k in range(found):
        i = np.uint64(work.selected[k])
        work.keys[k] = as_key(work.codes[i], node.items[i])
    sort_many(work.keys, ZERO, found)
    ones_l = np.int64(before >> _HALF)
    w_l = ones_l + np.int64(before & _LOW_HALF)
    walk_two(ZERO, found, ones_l, w_l, node, min_leaf, feature, best, work.keys)


@helper
def count_inside_two(low, codes, found, before, node, min_leaf, feature, best, work):
    """look_inside_two for up to BUCKETS `codes` (uint64) from `low` on, of which the `found` rows of work.selected are:
    these are counted by code."""
    hist, score = work.inside, work.pair_score
    for b in range(codes + ONE):
        hist[b] = _NONE
    for k in range(found):
        i = np.uint64(work.selected[k])
        hist[np.uint64(work.codes[i] - low) + ONE] += work.pair_add[i]
    hist[ONE] += before
    highest = score_buckets_two(hist, codes, node.total[ONE], node.weight, min_leaf, score)
    offer_buckets_two(highest, low, _NONE, codes, node, min_leaf, feature, best, hist, score, work.selected)


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
def offer_pairs_two(highest, codes, n, node, min_leaf, feature, best, left, score, selected):
    """Offer the splits after codes[:n] whose scores may be the best; `highest` is the highest.

    left, score  uint32, float32 [>= n rounded up to LANES], see score_pairs_two; selected uint32, longer by LANES
    """
    if not may_be_best(highest, best):
        return
    hits = select_scores(score, n, np.float32(highest * (1.0 - SCORE_ERROR)), selected)
    offered = ZERO_I64 - 1
    for k in range(hits):
        i = np.uint64(selected[k])
        if np.int64(codes[i]) != offered:
            offered = np.int64(codes[i])
            offer_packed_two(left[i], node, min_leaf, feature, offered, best)


@inlined
def offer_buckets_two(highest, low, shift, buckets, node, min_leaf, feature, best, left, score, selected):
    """Offer the splits after buckets of 2**shift codes from `low` on whose scores may be the best; `highest` is the
    highest.

    left, score  hist and score of score_buckets_two
    selected     uint32 [>= buckets + LANES]: empty buckets have the score of the one before
    """
    if not may_be_best(highest, best):
        return
    hits = select_scores(score, buckets, np.float32(highest * (1.0 - SCORE_ERROR)), selected)
    for k in range(hits):
        after = np.uint64(selected[k]) + ONE
        code = np.int64(low) + np.int64(after << np.uint64(shift)) - 1
        offer_packed_two(left[after], node, min_leaf, feature, code, best)


@inlined
def may_be_best(highest, best):
    """Whether the highest of some float32 scores may be as good as the best."""
    return highest >= 0.0 and highest * (1.0 + SCORE_ERROR) >= best.limit[0]


@inlined
def offer_packed_two(left, node, min_leaf, feature, code, best):
    """Offer a split by what is on its left, uint32, class 1 shifted 16."""
    ones_l = np.int64(left >> _HALF)
    w_l = ones_l + np.int64(left & _LOW_HALF)
    offer_two(node.total[ONE], node.weight, min_leaf, feature, code, ones_l, w_l, best)


@inlined
def by_pairs(node):
    """Whether the node is small enough to compare all pairs."""
    return node.items.size <= PAIRS and is_light(node)


@inlined
def is_light(node):
    """Whether splits of the node are scored as float32, by counts of 16 bits."""
    return node.weight < SCORED_WEIGHT
