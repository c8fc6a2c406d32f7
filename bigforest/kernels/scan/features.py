"""Find the best split of a node among features drawn at random. Oracle: tests/naive/tree.py."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.gather import codes_or_gather
from bigforest.kernels.common.node_scan import (
    CODE,
    FEATURE,
    ONE,
    ZERO,
    CachedColumn,
    is_perfect,
    with_codes,
)
from bigforest.kernels.common.partition import partition_codes
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.scan.categorical_missing import CATEGORY, MISSING, first_order, keep_in_room, missing_last
from bigforest.kernels.scan.draw import draw_feature, fetch_codes, put_back, wanted_features, wants_more
from bigforest.kernels.scan.impurity import GINI, scan_scores
from bigforest.kernels.scan.levels import by_levels, scan_levels
from bigforest.kernels.scan.multi_class import prepare_many, scan_many
from bigforest.kernels.scan.present_classes import with_present_classes
from bigforest.kernels.scan.random_split import offer_random
from bigforest.kernels.scan.regression import scan_sums
from bigforest.kernels.scan.target import sum_left
from bigforest.kernels.scan.two_class import scan_two
from bigforest.kernels.scan.two_class_light import find_side_by_side, scan_light
from bigforest.kernels.scan.two_class_small import is_light, prepare_two


@inlined
def prepare(node, rules, work, sums):
    """Once per node, before scan_codes."""
    if sums is None and rules.impurity == GINI:
        if node.total.size == 2:
            prepare_two(node, work)
        else:
            prepare_many(node, work)


@inlined
def scan_codes(low, high, node, rules, table, number, best, work, sums, light):
    """Offer every threshold of a feature, whose codes are work.codes[:n], low < high, under `number` (int64).

    table, sums: see target.py. light: None where light nodes of two classes are not scanned here under Gini, so that
    nothing is compiled for them.
    """
    if sums is not None:
        scan_sums(low, high, node, rules.min_leaf, number, best, work, sums)
    if table is not None:
        if node.total.size == 2 and rules.impurity == GINI:
            if light is not None and is_light(node):
                scan_light(low, high, node, rules.min_leaf, number, best, work)
            else:
                scan_two(low, high, node, rules.min_leaf, number, best, work)
        elif rules.impurity == GINI:
            scan_many(low, high, node, rules.min_leaf, number, best, work)
        else:
            scan_scores(rules.impurity, table, low, high, node, rules.min_leaf, number, best, work)


@inlined
def scan_feature(feature, low, high, node, rules, table, best, work, mixed, sums):
    """Offer all splits on a feature (uint64), whose codes are work.codes[:n], low < high, under its number doubled.

    Returns whether there is anything to split, as uint64: not if all levels of a category are grouped into one.
    """
    orders = ONE
    if mixed is not None:
        if mixed.kind[feature] == CATEGORY and by_levels(node, rules, sums):
            number = np.int64(feature + feature)
            least, levels = mixed.least[feature], mixed.levels
            return scan_levels(work.codes, low, high, node, least, rules.min_leaf, number, best, levels, sums)
        low, high, orders = first_order(feature, low, high, node, mixed, work)
        if low == high:
            return ZERO
    for order in range(orders):
        if order == ONE:
            low, high = missing_last(work.codes, np.uint64(node.items.size), high)
        scan_codes(low, high, node, rules, table, np.int64(feature + feature + order), best, work, sums, mixed)
    return ONE


@inlined
def leaves_codes(feature, low, node, rules, mixed, sums):
    """Whether scan_feature leaves work.codes, of which `low` is the smallest, as they are."""
    if mixed is not None:
        if mixed.kind[feature] == CATEGORY:
            return by_levels(node, rules, sums)
        return mixed.kind[feature] != MISSING or low > np.uint32(0)
    return True


@inlined
def find_feature(codes, by_row, node, key, rules, table, scratch, mixed, sums, dictionary):
    """Draw features and scan them; scratch.best gets the best split, its feature doubled (categorical_missing.py; -1:
    none).

    scratch: GrowScratch. mixed: CategoricalMissing, or None where all features are plain numbers. table, sums:
    target.py. dictionary: for random splits (random_split.py); None for the best. Returns the codes of its feature,
    CachedColumn.
    """
    constant, draw, best, work = scratch.constant, scratch.draw, scratch.best, scratch.work
    kept, kept_low, kept_high = scratch.kept, np.uint32(0), np.uint32(0)
    features = np.uint64(draw.perm.size)
    mtry = wanted_features(rules, key, features)
    best.split[FEATURE] = -1
    best.limit[0] = -1.0
    if sums is None and mixed is None and dictionary is None:
        node = with_present_classes(node, scratch.present)
        if rules.impurity == GINI and node.total.size == 2 and is_light(node):
            return find_side_by_side(codes, by_row, node, key, rules, mtry, scratch)
    prepare(node, rules, work, sums)
    drawn = ZERO
    usable = ZERO
    state = key
    while wants_more(rules, mtry, features, drawn, usable):
        feature, state = draw_feature(draw, drawn, state)
        drawn += ONE
        number = np.uint64(feature)
        low, high = fetch_codes(codes, by_row, node, number, constant, work.codes)
        if mixed is not None:
            low, high = keep_in_room(number, low, high, np.uint64(node.items.size), mixed, work.codes)
        if low < high:
            if dictionary is None:
                usable += scan_feature(number, low, high, node, rules, table, best, work, mixed, sums)
                if np.uint64(best.split[FEATURE]) >> ONE == number:
                    kept_low, kept_high = np.uint32(0), np.uint32(0)
                    if leaves_codes(number, low, node, rules, mixed, sums):
                        kept_low, kept_high = low, high
                        column = work.codes
                        work = with_codes(work, kept)
                        kept = column
                    if sums is None and rules.impurity == GINI and is_perfect(best):
                        break  # others could be as good, and of those that are the first stays
            else:
                usable += ONE
                offer_random(number, low, high, node, key, rules, table, best, work, mixed, sums, dictionary)
    put_back(draw, drawn)
    return CachedColumn(kept, kept_low, kept_high)


@inlined
def split_by_feature(codes, by_row, node, feature, column, scratch, nodes, number, sums):
    """Send the rows of a node to the sides of its best split, on `feature` (uint64), and write it as node `number`.

    column: its codes, CachedColumn. Returns the number of rows on the left; scratch.total_l gets what they hold
    (target.py).
    """
    best, work = scratch.best, scratch.work
    codes_or_gather(codes, by_row, feature, node.items, column)
    size_l, below, above = partition_codes(column.codes, np.uint32(best.split[CODE]), node.items, work.keys)
    sum_left(node, size_l, best, scratch.total_l, sums)
    nodes.feature[number] = feature
    nodes.left_code[number] = below
    nodes.right_code[number] = above
    return size_l
