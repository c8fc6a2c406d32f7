"""The coefficient of each class for ordering levels: the first principal component of their class shares.

Coppersmith, Hong and Hosking (1999), levels weighted by their rows. Power iteration in whole numbers, so that the order
of the rows changes nothing. Oracle: tests/naive/levels.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import BITS16, ONE, SHIFT16, ZERO, ZERO_I64, class_of
from bigforest.kernels.common.rng import mix
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.numbers import larger

# Bits of an entry of the component without its sign, further bits of a level's deviation from the mean, and the most
# steps of the power iteration.
DIRECTION_BITS = 16
DEVIATION_BITS = 14
STEPS = 10
_START_SHIFT = np.uint64(64 - DIRECTION_BITS)


@inlined
def count_level_cells(codes, items, groups, classes, levels):
    """Fill levels.cell and levels.cells from the levels of the rows; return the number of cells (uint64)."""
    cell, cells, group = levels.cell, levels.cells, levels.slot
    n = np.uint64(items.size)
    if groups * classes > n:
        for i in range(n):
            cell[i] = (np.uint64(group[np.uint64(codes[i])]) << SHIFT16) | class_of(items[i])
            cells[i] = np.uint32(items[i] & BITS16)
        return n
    for index in range(groups * classes):
        cells[index] = np.uint32(0)
    for i in range(n):
        slot_of_row = np.uint64(group[np.uint64(codes[i])])
        cells[slot_of_row * classes + class_of(items[i])] += np.uint32(items[i] & BITS16)
    count = ZERO
    for slot in range(groups):
        for k in range(classes):
            weight = cells[slot * classes + k]
            if weight != np.uint32(0):
                cell[count] = (slot << SHIFT16) | k
                cells[count] = weight
                count += ONE
    return count


@inlined
def sum_cells(groups, count, levels):
    """Set levels.sum to the sum of the direction's entries over the rows of each slot."""
    total, cell = levels.sum, levels.cell
    for slot in range(groups):
        total[slot] = ZERO_I64
    for c in range(count):
        total[cell[c] >> SHIFT16] += np.int64(levels.cells[c]) * levels.direction[cell[c] & BITS16]


@inlined
def power_step(groups, count, total, weight, levels):
    """Take one step of the power iteration: multiply the direction by the covariance of the class shares.

    total int64 [classes] and weight are the statistics of the node. The new direction is scaled to DIRECTION_BITS; a
    sum is below 2**62. Return True if the direction has changed.
    """
    direction, product = levels.direction, levels.product
    classes = np.uint64(direction.size)
    sum_cells(groups, count, levels)
    mean = ZERO_I64
    for k in range(classes):
        mean += total[k] * direction[k]
        product[k] = ZERO_I64
    mean = (mean << DEVIATION_BITS) // weight
    for slot in range(groups):
        levels.sum[slot] = (levels.sum[slot] << DEVIATION_BITS) // levels.weight[slot] - mean
    for c in range(count):
        product[levels.cell[c] & BITS16] += np.int64(levels.cells[c]) * levels.sum[levels.cell[c] >> SHIFT16]
    largest = ZERO_I64
    for k in range(classes):
        largest = larger(largest, abs(product[k]))
    if largest == 0:
        return False
    bits = ZERO_I64
    while (largest >> bits) > 0:
        bits += 1
    bits -= DIRECTION_BITS
    changed = False
    for k in range(classes):
        entry = product[k] >> bits if bits > 0 else product[k] << -bits
        changed |= entry != direction[k]
        direction[k] = entry
    return changed


@inlined
def find_principal(groups, count, total, weight, levels):
    """Set levels.direction to the first principal component of `count` cells, and levels.sum to match."""
    for k in range(np.uint64(levels.direction.size)):
        levels.direction[k] = np.int64(mix(k + ONE) >> _START_SHIFT)
    step = 0
    while step < STEPS and power_step(groups, count, total, weight, levels):
        step += 1
    sum_cells(groups, count, levels)


@helper
def find_component(codes, groups, node, levels):
    """Set levels.direction to the first principal component, and levels.sum to match.

    codes[i] is the level of row i, and levels.slot has the group of each level.
    """
    count = count_level_cells(codes, node.items, groups, np.uint64(levels.direction.size), levels)
    find_principal(groups, count, node.total, node.weight, levels)
