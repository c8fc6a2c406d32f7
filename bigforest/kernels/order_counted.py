"""The order of the levels of a category (category.py) from what the rows of each hold, where the rows are not at hand.

Oracle: tests/naive/levels.py, through grow/level.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.category import find_means, sort_slots
from bigforest.kernels.component import find_principal
from bigforest.kernels.jit import inlined, kernel
from bigforest.kernels.node import NONE, ONE, SHIFT16, ZERO


@inlined
def _take_cells(counts, classes, levels):
    """Fill levels.cell and levels.cells from the class weights of levels; returns the number of cells (uint64)."""
    found = ZERO
    for slot in range(np.uint64(counts.shape[0])):
        for k in range(classes):
            if counts[slot, k] > 0:
                levels.cell[found] = (slot << SHIFT16) | k
                levels.cells[found] = np.uint32(counts[slot, k])
                found += ONE
    return found


@kernel
def order_counted(counts, total, numbers, levels):
    """Put levels in order: levels.order [levels] gets their numbers.

    counts   int64 [levels, parts], what the rows of each hold (grow/tally.py); none weighs nothing
    total    int64 [judged], what all hold together
    numbers  whether numbers are predicted
    levels   Levels with room for all of these, and for as many cells as there are weights above 0 in counts
    """
    found = np.uint64(counts.shape[0])
    classes = ONE if numbers else np.uint64(total.size)
    weight = NONE
    for slot in range(found):
        here = NONE
        for k in range(classes):
            here += counts[slot, k]
        levels.code[slot] = np.uint32(slot)
        levels.weight[slot] = here
        levels.sum[slot] = counts[slot, ONE]
        weight += here
    if classes > np.uint64(2):
        find_principal(found, _take_cells(counts, classes, levels), total, weight, levels)
    find_means(found, levels)
    sort_slots(found, levels)
