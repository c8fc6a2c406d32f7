"""The scan of a category for two classes under Gini, and for regression: by levels, not by rows.

The statistics of each level were summed to order the levels (kernels/categories/ordering.py); no more is needed.
Oracle: tests/naive/split.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.categories.ordering import order_groups
from bigforest.kernels.common.node_scan import ONE, ZERO, ZERO_I64
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.scan.impurity import GINI
from bigforest.kernels.scan.regression import offer_one
from bigforest.kernels.scan.two_class_small import offer_two, reaches_two


@inlined
def by_levels(node, rules, sums):
    """Whether `scan_levels` is for this node."""
    return sums is not None or (node.total.size == 2 and rules.impurity == GINI)


@helper
def scan_levels(codes, low, high, node, least, min_leaf, number, best, levels, sums):
    """Offer every split of the levels in their order, under `number` (int64): that after place p has the code p.

    codes uint32 [>= rows], the levels of the rows, from `low` to `high`; least: of CategoricalMissing. Returns whether
    there is anything to split, as uint64: not if all levels are grouped into one.
    """
    groups, _ = order_groups(codes, low, high, node, least, levels, sums, None, ZERO)
    if groups == ONE:
        return ZERO
    w_l, sum_l = ZERO_I64, ZERO_I64
    for place in range(groups - ONE):
        group = np.uint64(levels.order[place])
        w_l += levels.weight[group]
        sum_l += levels.sum[group]
        if sums is not None:
            offer_one(sum_l, w_l, node, min_leaf, number, np.int64(place), best, sums.origin)
        elif reaches_two(sum_l, w_l, node.total[ONE], node.weight, best.limit[0]):
            offer_two(node.total[ONE], node.weight, min_leaf, number, np.int64(place), sum_l, w_l, best)
    return ONE
