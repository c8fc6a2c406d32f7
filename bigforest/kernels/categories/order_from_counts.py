"""The order of the levels of a category (ordering.py) from the summed statistics of each level, without its rows.

Oracle: tests/naive/levels.py, through grow/out_of_core/passes.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.categories.ordering import by_mean, form_groups, lightest_ungrouped, sort_groups
from bigforest.kernels.categories.principal import find_principal
from bigforest.kernels.common.node_scan import ONE, SHIFT16, TWO, ZERO, ZERO_I64
from bigforest.kernels.compiler.jit import inlined, kernel


@inlined
def _take_cells(counts, classes, levels):
    """Fill levels.cell and levels.cells from the class weights of levels; return the number of cells (uint64)."""
    count = ZERO
    for slot in range(np.uint64(counts.shape[0])):
        for k in range(classes):
            if counts[slot, k] > 0:
                levels.cell[count] = (np.uint64(levels.group[slot]) << SHIFT16) | k
                levels.cells[count] = np.uint32(counts[slot, k])
                count += ONE
    return count


@kernel
def order_counted(counts, total, numbers, least, levels, ranks):
    """Put levels in order.

    counts   int64 [levels, parts], statistics of the rows of each level (grow/out_of_core/context.py); no weight is 0
    total    int64 [scored], the sum of these statistics over all levels
    numbers  True for regression
    least    see CategoricalMissing
    levels   LevelOrder with room for these levels, and for as many cells as there are weights above 0 in counts
    ranks    uint32 [levels], out: the rank of each level in the order; levels of one group share a rank
    """
    slots = np.uint64(counts.shape[0])
    classes = ONE if numbers else np.uint64(total.size)
    weight = ZERO_I64
    for slot in range(slots):
        level_weight = ZERO_I64
        for k in range(classes):
            level_weight += counts[slot, k]
        levels.code[slot] = np.uint32(slot)
        levels.weight[slot] = level_weight
        levels.sum[slot] = counts[slot, ONE]
        weight += level_weight
    groups = form_groups(slots, lightest_ungrouped(slots, weight, least, levels), levels)
    if classes > TWO:
        find_principal(groups, _take_cells(counts, classes, levels), total, weight, levels)
    sort_groups(groups, by_mean, levels)
    for rank in range(groups):
        levels.rank[np.uint64(levels.order[rank])] = np.uint32(rank)
    for slot in range(slots):
        ranks[slot] = levels.rank[np.uint64(levels.group[slot])]
