"""Find the best split of a node among features drawn at random. Oracle: tests/naive/tree.py.

1. Draw features and fetch their codes, one at a time or, in light nodes of two classes (`is_light`), in batches. Stop
   at mtry features that are not constant. If constant features count (`rules.redraw` is False), stop at mtry features,
   at least one of them not constant.
2. Score the splits of a batch together. In most nodes only one feature then needs an exact comparison, and the scoring
   loop has no unpredictable branch.
3. Offer the splits to the exact comparison, in the order in which the features were drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import codes_or_gather
from bigforest.kernels.common.layout import CATEGORY, MISSING
from bigforest.kernels.common.node_scan import (
    CODE,
    FEATURE,
    ONE,
    ZERO,
    CachedColumn,
    Scan,
    is_perfect,
    with_codes,
)
from bigforest.kernels.common.partition import partition_codes
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.numbers import larger
from bigforest.kernels.llvm.pairwise import SCORE_ERROR
from bigforest.kernels.scan.categorical_missing import (
    first_order,
    keep_in_room,
    missing_last,
    scan_levels,
)
from bigforest.kernels.scan.criterion import prepare, scan_codes
from bigforest.kernels.scan.draw import draw_feature, fetch_codes, put_back, wanted_features, wants_more
from bigforest.kernels.scan.many_classes import with_present_classes
from bigforest.kernels.scan.random_split import offer_random
from bigforest.kernels.scan.target import sum_left
from bigforest.kernels.scan.two_class import PAIRED, TOGETHER, is_light, offer_light, score_light


class Batch(NamedTuple):
    """Features drawn but not yet offered; scratch.

    feature    uint64 [TOGETHER]
    low, high  uint32 [TOGETHER], the smallest and the largest code
    highest    float64 [TOGETHER], the highest score
    """

    feature: NDArray[np.uint64]
    low: NDArray[np.uint32]
    high: NDArray[np.uint32]
    highest: NDArray[np.float64]


def make_batch() -> Batch:
    """Allocate a Batch."""
    return Batch(
        np.empty(TOGETHER, np.uint64), np.empty(TOGETHER, np.uint32), np.empty(TOGETHER, np.uint32), np.empty(TOGETHER)
    )


@inlined
def features_together(node, two, non_plain):
    """Return the number of features that are scored together before they are offered; 0 to scan them one by one."""
    if two is not None and non_plain is None and node.total.size == 2 and is_light(node):
        # The first feature splits two rows perfectly, and mostly also three rows.
        return ONE if node.items.size < 4 else np.uint64(TOGETHER)
    return ZERO


@inlined
def score_batch(count, node, min_leaf, batch, best, two):
    """Score the splits of the first `count` features of a batch in a light node. Raise best.bar to the highest score,
    less its rounding error."""
    n, highest = np.uint64(node.items.size), -1.0
    for k in range(count):
        low, high, left, score = batch.low[k], batch.high[k], two.left[k], two.score[k]
        score_k = score_light(low, high, n, PAIRED, two.codes[k], two.add, np.uint32(0), node, min_leaf, left, score)
        batch.highest[k] = score_k
        highest = larger(highest, score_k)
    best.bar[0] = larger(best.bar[0], highest * (1.0 - SCORE_ERROR))


@inlined
def scan_feature(feature, low, high, scan, non_plain, two, many, scores, sums):
    """Offer all splits on a feature (uint64), whose codes are work.codes[:n], low < high.

    scan  its number is 2 * feature; 1 is added for the splits with missing values last

    Return 1 if the feature can split the node, else 0, as uint64. A category with all levels in one group cannot.
    """
    node, best, work, orders = scan.node, scan.best, scan.work, ONE
    if non_plain is not None:
        if many is None and scores is None and non_plain.kind[feature] == CATEGORY:
            return scan_levels(low, high, scan, non_plain.min_level[feature], non_plain.levels, sums)
        low, high, orders = first_order(feature, low, high, node, non_plain, work)
        if low == high:
            return ZERO
    for order in range(orders):
        if non_plain is not None and order == ONE:
            low, high = missing_last(work.codes, np.uint64(node.items.size), high)
        ordered = Scan(node, scan.min_leaf, np.int64(feature + feature + order), best, work)
        scan_codes(low, high, ordered, two, many, scores, sums)
    return ONE


@inlined
def leaves_codes(feature, low, non_plain, many, scores):
    """Return True if scan_feature leaves work.codes unchanged; low: the smallest of these codes."""
    if non_plain is not None:
        if non_plain.kind[feature] == CATEGORY:
            return many is None and scores is None
        return non_plain.kind[feature] != MISSING or low > np.uint32(0)
    return True


@inlined
def present_node(node, non_plain, many):
    """Return the node. With more than two classes and only plain numbers as features, leave out its absent classes."""
    if many is not None and non_plain is None:
        return with_present_classes(node, many)
    return node


@inlined
def draw_batch(codes, node, rules, mtry, drawn, usable, state, together, scratch, work, two, non_plain):
    """Draw features and fetch their codes until the batch is full or no more features are wanted.

    drawn, usable  uint64, number of features drawn before, and how many of them can split the node
    state          random state of the draw

    Return the number of features in the batch, of features drawn so far, and the new state.
    """
    draw, batch, count = scratch.draw, scratch.batch, ZERO
    features, n = np.uint64(draw.perm.size), np.uint64(node.items.size)
    while count < larger(together, ONE) and wants_more(rules, mtry, features, drawn, usable + count):
        feature, state = draw_feature(draw, drawn, state)
        drawn += ONE
        number, column = np.uint64(feature), work.codes
        if two is not None and together > ZERO:
            column = two.codes[count]
        low, high = fetch_codes(codes, node, number, scratch.constant, column)
        if non_plain is not None:
            low, high = keep_in_room(number, low, high, n, non_plain, column)
        if low < high:
            batch.feature[count], batch.low[count], batch.high[count] = number, low, high
            count += ONE
    return count, drawn, state


@inlined
def find_feature(codes, node, rules, two, many, scores, sums, scratch, non_plain, dictionary):
    """Draw features and scan them. Set scratch.best to the best split.

    Its entry FEATURE is 2 * feature, plus 1 if missing values come last; -1 if there is no split.

    two, many, scores, sums  fields of CriterionScratch
    scratch                  GrowScratch
    non_plain                CategoricalMissing; None if all features are plain numbers (without missing values)
    dictionary               for random splits (random_split.py); None for the best split

    Return the codes of the feature of the best split, CachedColumn.
    """
    draw, best, work, batch, min_leaf = scratch.draw, scratch.best, scratch.work, scratch.batch, rules.min_leaf
    features, n = np.uint64(draw.perm.size), np.uint64(node.items.size)
    mtry = wanted_features(rules, node.key, features)
    best.split[FEATURE] = -1
    best.bar[0] = -1.0
    node = present_node(node, non_plain, many)
    prepare(node, two)
    together = features_together(node, two, non_plain)
    kept, kept_low, kept_high = scratch.kept, np.uint32(0), np.uint32(0)
    drawn, usable, state = ZERO, ZERO, node.key
    while wants_more(rules, mtry, features, drawn, usable):
        count, drawn, state = draw_batch(
            codes, node, rules, mtry, drawn, usable, state, together, scratch, work, two, non_plain
        )
        if two is not None and together > ZERO:
            score_batch(count, node, min_leaf, batch, best, two)
        is_new = False  # the best split so far is on a feature of this batch
        for k in range(count):
            number, low, high, column = batch.feature[k], batch.low[k], batch.high[k], work.codes
            if two is not None and together > ZERO:
                column = two.codes[k]
            scan = Scan(node, min_leaf, np.int64(number + number), best, work)
            if dictionary is not None:
                usable += ONE
                offer_random(number, low, high, scan, non_plain, scores, sums, dictionary)
            elif two is not None and together > ZERO:
                usable += ONE
                offer_light(low, high, batch.highest[k], column, k, scan, two)
            else:
                usable += scan_feature(number, low, high, scan, non_plain, two, many, scores, sums)
            if np.uint64(best.split[FEATURE]) >> ONE == number:
                spare, kept, kept_low, kept_high = kept, column, np.uint32(0), np.uint32(0)
                if dictionary is None and leaves_codes(number, low, non_plain, many, scores):
                    kept_low, kept_high = low, high
                is_new = kept_low < kept_high
                if together == ZERO:  # the codes of the next feature go elsewhere
                    work = with_codes(work, spare)
        if two is not None and best.split[FEATURE] >= 0 and is_perfect(best):
            break  # other splits are at most as good, and the first of equal splits stays
        if is_new and together > ZERO and wants_more(rules, mtry, features, drawn, usable):
            for i in range(n):
                scratch.kept[i] = kept[i]
            kept = scratch.kept
    put_back(draw, drawn)
    return CachedColumn(kept, kept_low, kept_high)


@inlined
def split_by_feature(codes, node, feature, column, scratch, nodes, number, sums):
    """Send the rows of a node to the sides of its best split, on `feature` (uint64), and write it as node `number`.

    column  codes of this feature, CachedColumn

    Return the number of rows on the left. scratch.total_l is set to the statistics of the left side (target.py).
    """
    best, work = scratch.best, scratch.work
    codes_or_gather(codes, feature, node.items, column)
    size_l, below, above = partition_codes(column.codes, np.uint32(best.split[CODE]), node.items, work.keys)
    sum_left(node, size_l, best, scratch.total_l, sums)
    nodes.feature[number] = feature
    nodes.left_code[number] = below
    nodes.right_code[number] = above
    return size_l
