"""Splits of light nodes of two classes under Gini: scores in vectors first, then those that may be the best. Oracle:
tests/naive/split.py.

The drawn features of a node are scored before any is offered. So what is offered, and which buckets are opened, is
compared with the best of all, and mostly of one feature; and nothing that is hard to guess stands between the scores of
two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import (
    BUCKETS,
    FEATURE,
    ONE,
    TWO,
    ZERO,
    CachedColumn,
    buckets_for,
    is_perfect,
    shift_for,
    with_codes,
)
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.lanes import LANES
from bigforest.kernels.llvm.pairwise import PAIRS, SCORE_ERROR, SCORED_WEIGHT, score_pairs_two
from bigforest.kernels.llvm.two_class_edges import open_buckets_two, score_buckets_two
from bigforest.kernels.scan.draw import draw_feature, fetch_codes, put_back, wants_more
from bigforest.kernels.scan.two_class_small import (
    look_inside_two,
    offer_buckets_two,
    offer_pairs_two,
    prepare_two,
)

# Up to this many codes have a bucket each, so none is opened: that would be slow for a code of most rows.
FEW_CODES = np.uint64(256)
# Most features that are scored before any is offered.
_FEATURES = 8
# Up to this many rows are scored by pairs.
_PAIRED = np.uint64(56)
# Far below any score that is not 0.
_LEAST_SCORE = 1e-30
_NONE = np.uint32(0)


class SideBySide(NamedTuple):
    """Features whose splits are scored; scratch. Entry k is of one feature.

    codes      uint32 [_FEATURES, rows + LANES], in the order of the node's items
    left       uint32 [_FEATURES, .], what is on the left of each split, see score_light
    score      float32 [_FEATURES, .], their scores
    feature    int64 [_FEATURES]
    low, high  uint32 [_FEATURES], the smallest and the largest code
    highest    float64 [_FEATURES], the highest score
    """

    codes: NDArray[np.uint32]
    left: NDArray[np.uint32]
    score: NDArray[np.float32]
    feature: NDArray[np.int64]
    low: NDArray[np.uint32]
    high: NDArray[np.uint32]
    highest: NDArray[np.float64]


def make_side_by_side(rows: int) -> SideBySide:
    """SideBySide for light nodes of up to `rows` rows."""
    size = min(max(rows, PAIRS), SCORED_WEIGHT)
    return SideBySide(
        np.empty((_FEATURES, size + LANES), np.uint32),
        np.empty((_FEATURES, 2 * (BUCKETS + 1) + LANES), np.uint32),
        np.empty((_FEATURES, BUCKETS + LANES), np.float32),
        np.empty(_FEATURES, np.int64),
        np.empty(_FEATURES, np.uint32),
        np.empty(_FEATURES, np.uint32),
        np.empty(_FEATURES, np.float64),
    )


@inlined
def histogram_light(low, shift, n, buckets, codes, add, hist):
    """hist of two_class_edges.py: the rows whose codes fall into each bucket, every other row counted apart first."""
    apart = buckets + ONE
    for b in range(apart + apart):
        hist[b] = _NONE
    for i in range(n):
        hist[(i & ONE) * apart + ONE + np.uint64((codes[i] - low) >> shift)] += add[i]
    for b in range(ONE, apart):
        hist[b] += hist[apart + b]


@inlined
def histogram_of_two(low, node, codes, add, hist):
    """histogram_light for codes that are low or low + 1, without waiting for one addition before the next."""
    inside = _NONE
    for i in range(np.uint64(node.items.size)):  # a product instead of a branch lets the compiler vectorise
        inside = np.uint32(inside + np.uint32(add[i] * np.uint32(codes[i] == low)))
    ones = node.total[ONE]
    hist[ZERO] = _NONE
    hist[ONE] = inside
    hist[TWO] = np.uint32((ones << 16) + node.weight - ones) - inside


@inlined
def buckets_light(low, high, n):
    """How many buckets codes from low to high have in a node of n rows, and the bits that these leave out."""
    span = np.uint64(high - low)
    shift = np.uint32(0) if span < FEW_CODES else shift_for(span, buckets_for(n, 32, BUCKETS, 4))
    return (span >> np.uint64(shift)) + ONE, shift


@helper
def score_light(low, high, node, min_leaf, codes, add, left, score):
    """Score the splits after codes[:n], low < high, or of more rows after buckets of them; returns the highest.

    left, score  as `out` of score_pairs_two, or as hist of score_buckets_two, and score there
    """
    n, ones, weight = np.uint64(node.items.size), node.total[ONE], node.weight
    if n <= _PAIRED:
        return score_pairs_two(codes, add, n, _NONE, ones, weight, min_leaf, left, score)
    buckets, shift = buckets_light(low, high, n)
    if high - low == np.uint32(1):
        histogram_of_two(low, node, codes, add, left)
    else:
        histogram_light(low, shift, n, buckets, codes, add, left)
    return score_buckets_two(left, buckets, ones, weight, min_leaf, score)


@helper
def offer_light(low, high, highest, node, min_leaf, feature, best, left, score, work):
    """Offer what may be the best after score_light, whose codes are work.codes; `highest` is what it returned.

    The rows of buckets that could hold a better split, mostly two or three that lie together, are scored by pairs.
    """
    n, ones, weight = np.uint64(node.items.size), node.total[ONE], node.weight
    if n <= _PAIRED:
        offer_pairs_two(highest, work.codes, n, node, min_leaf, feature, best, left, score, work.selected)
        return
    buckets, shift = buckets_light(low, high, n)
    offer_buckets_two(highest, low, shift, buckets, node, min_leaf, feature, best, left, score, work.selected)
    if shift == np.uint32(0):
        return
    bar = np.float32(best.limit[0] * (1.0 - SCORE_ERROR) - _LEAST_SCORE)
    found = open_buckets_two(left, buckets, ones, weight, min_leaf, bar, work.places)
    k = ZERO
    while k < found:  # buckets that lie together are looked into together
        first = np.uint64(work.places[k])
        after = first
        while k < found and np.uint64(work.places[k]) == after:
            after += ONE
            k += ONE
        inside = np.uint32(((after - first) << np.uint64(shift)) - ONE)
        lowest = low + np.uint32(first << np.uint64(shift))
        look_inside_two(lowest, inside, left[first], node, min_leaf, feature, best, work)


@inlined
def scan_light(low, high, node, min_leaf, feature, best, work):
    """What scan_two does for light nodes, after prepare_two."""
    highest = score_light(low, high, node, min_leaf, work.codes, work.pair_add, work.hist, work.pair_score)
    offer_light(low, high, highest, node, min_leaf, feature, best, work.hist, work.pair_score, work)


@inlined
def find_side_by_side(codes, by_row, node, key, rules, mtry, scratch):
    """What find_feature of features.py does in light nodes where all features are plain numbers; best is empty."""
    constant, draw, best, work, side = scratch.constant, scratch.draw, scratch.best, scratch.work, scratch.side
    n, features, min_leaf = np.uint64(node.items.size), np.uint64(draw.perm.size), rules.min_leaf
    prepare_two(node, work)
    drawn, usable, state = ZERO, ZERO, key
    kept, kept_low, kept_high = side.codes[ZERO], _NONE, _NONE
    # The first feature splits two rows perfectly, and mostly three.
    together = ONE if n < np.uint64(4) else np.uint64(_FEATURES)
    more = True
    while more:
        scored = ZERO
        highest = -1.0
        while more and scored < together:
            feature, state = draw_feature(draw, drawn, state)
            drawn += ONE
            low, high = fetch_codes(codes, by_row, node, np.uint64(feature), constant, side.codes[scored])
            if low < high:
                side.feature[scored] = feature
                side.low[scored] = low
                side.high[scored] = high
                scored += ONE
                usable += ONE
            more = wants_more(rules, mtry, features, drawn, usable)
        for k in range(scored):
            feature_codes, left, score = side.codes[k], side.left[k], side.score[k]
            here = score_light(side.low[k], side.high[k], node, min_leaf, feature_codes, work.pair_add, left, score)
            side.highest[k] = here
            highest = max(highest, here)
        best.limit[0] = max(best.limit[0], highest * (1.0 - SCORE_ERROR))
        for k in range(scored):
            number = side.feature[k] + side.feature[k]
            low, high, here = side.low[k], side.high[k], side.highest[k]
            own = with_codes(work, side.codes[k])
            offer_light(low, high, here, node, min_leaf, number, best, side.left[k], side.score[k], own)
            if best.split[FEATURE] == number:
                kept, kept_low, kept_high = side.codes[k], low, high
        if best.split[FEATURE] >= 0 and is_perfect(best):
            break  # others could be as good, and of those that are the first stays
        if more and kept_low < kept_high:
            for i in range(n):
                scratch.kept[i] = kept[i]
            kept = scratch.kept
    put_back(draw, drawn)
    return CachedColumn(kept, kept_low, kept_high)
