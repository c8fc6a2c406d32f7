"""The order in which the levels of a category are split, node by node. Oracle: tests/naive/levels.py.

The rank of a level in this order replaces its code, and the category is scanned like a number:

1. Take a slot for each level of the node, and sum the statistics of its rows (`take_slots`). No loop over rows branches
   on whether a level is new: the processor could not predict it.
2. Two classes: order by the share of the second class. Regression: order by the mean. The best of all subsets is a
   prefix of this order (Fisher 1958; Breiman et al. 1984, theorem 4.5).
3. More classes: order by the first principal component of the class shares, levels weighted by their rows (Coppersmith,
   Hong and Hosking 1999), found by power iteration in whole numbers (`find_principal`).
4. Order equal levels by code.

All statistics are integers, so they do not depend on the order of rows. The work is proportional to the rows of the
node and the levels that occur in it, not to all levels of the feature. Passes have the summed statistics of each level
instead of its rows (`order_counted`).

The mean of a level with few rows is noise, and a subset of such levels fits any target. Levels that are too light for
their node are therefore joined into one group (`lightest_ungrouped`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import BITS16, ONE, SHIFT16, TWO, ZERO, ZERO_I64, class_of
from bigforest.kernels.common.rng import level_number, mix
from bigforest.kernels.common.sort import first_gap
from bigforest.kernels.compiler.jit import helper, inlined, kernel
from bigforest.kernels.llvm.exact import compare_means
from bigforest.kernels.llvm.numbers import larger, smaller

_THREE = np.uint64(3)
_BITS = np.uint64(64)


class LevelOrder(NamedTuple):
    """Scratch to order the levels of a node; `most` is the number of levels for which there is room.

    by_code    uint32 [codes of the largest category], group of each level of the node, later the rank of that group
    totals     statistics of each level, all 0 between nodes: int64 [codes], sums of `level_weights`; for regression
               int64 [2 * codes], weight and sum alternating
    close      int64 [4 * CLOSE], the same for codes in a narrow range, in four tables; for regression in two tables
    code       uint32 [most + 1], the level in each slot; the last is scratch
    group      uint32 [most], the group of each slot: a single level, or all light levels
    first      uint32 [most], the lowest level of each group
    weight     int64 [most + 1], of the rows in each group; the last is scratch
    sum        int64 [most + 1], sum of the averaged quantity over these rows; the last is scratch
    number     uint64 [most], random number of each group, for a random order
    order      uint32 [most], the groups in order
    rank       uint32 [most], rank of each group
    direction  int64 [classes], coefficient of each class in the mean of a level, for more than two classes
    product    int64 [classes], scratch
    cell       uint64 [rows], for more than two classes: group << 16 | class of a cell. A cell is a row, or all rows of
               a group and class
    cell_weight  uint32 [rows], weight of each cell
    """

    by_code: NDArray[np.uint32]
    totals: NDArray[np.int64]
    close: NDArray[np.int64]
    code: NDArray[np.uint32]
    group: NDArray[np.uint32]
    first: NDArray[np.uint32]
    weight: NDArray[np.int64]
    sum: NDArray[np.int64]
    number: NDArray[np.uint64]
    order: NDArray[np.uint32]
    rank: NDArray[np.uint32]
    direction: NDArray[np.int64]
    product: NDArray[np.int64]
    cell: NDArray[np.uint64]
    cell_weight: NDArray[np.uint32]


def make_levels(codes: int, rows: int, classes: int) -> LevelOrder:
    """Allocate LevelOrder for nodes of up to `rows` rows, of categories of up to `codes` levels; classes: 1 for
    regression."""
    most = min(max(rows, CLOSE), codes)
    shared = rows if classes > 2 and codes else 0
    return LevelOrder(
        np.empty(codes, np.uint32),
        np.zeros(codes if classes > 1 else 2 * codes, np.int64),
        np.empty(4 * CLOSE, np.int64),
        np.empty(most + 1, np.uint32),
        np.empty(most, np.uint32),
        np.empty(most, np.uint32),
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
        np.empty(most, np.uint64),
        np.empty(most, np.uint32),
        np.empty(most, np.uint32),
        np.empty(classes, np.int64),
        np.empty(classes, np.int64),
        np.empty(shared, np.uint64),
        np.empty(shared, np.uint32),
    )


def levels_bytes(codes: int, rows: int, classes: int) -> int:
    """Return the bytes of `make_levels`, apart from about ten kilobytes."""
    return (12 if classes > 1 else 20) * codes + 44 * min(rows, codes) + (12 * rows if classes > 2 and codes else 0)


@inlined
def lightest_ungrouped(slots, weight, min_level, levels):
    """Return the smallest weight of a level that is not grouped with others, int64; weight: weight of the node.

    Let b be the number of binary digits of `weight`. The result is the lowest weight that at most b levels reach, or
    `min_level` if that is lower. b levels have about as many subsets as a numeric feature has thresholds.
    min_level: see CategoricalMissing.
    """
    low = np.int64(1)
    # Most nodes have no more levels than binary digits.
    if slots < _BITS and (weight << low) >> np.int64(slots) > ZERO_I64:
        return low
    room = ZERO
    while weight >> np.int64(room) > ZERO_I64:
        room += ONE
    high = smaller(np.int64(min_level), weight // np.int64(room + ONE) + 1)  # at most `room` levels weigh this much
    while low < high:
        middle = (low + high) >> np.int64(1)
        heavy = ZERO
        for slot in range(slots):
            heavy += np.uint64(levels.weight[slot] >= middle)
        if heavy <= room:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def form_groups(slots, lightest, levels):
    """Make a group of every level that weighs at least `lightest`, and one group of all others. Return their number.

    levels.weight and levels.sum become the statistics of the groups. Groups are numbered in the order of their first
    slots, so no entry is overwritten before it is read.
    """
    weight, total = levels.weight, levels.sum
    groups = ZERO
    light = slots
    light_weight, light_total, light_first = ZERO_I64, ZERO_I64, np.uint32(0xFFFFFFFF)
    for slot in range(slots):
        level_weight, inside, code = weight[slot], total[slot], levels.code[slot]
        if level_weight >= lightest:
            levels.group[slot] = np.uint32(groups)
            levels.first[groups] = code
            weight[groups] = level_weight
            total[groups] = inside
            groups += ONE
        else:
            groups += np.uint64(light == slots)
            light = smaller(light, groups - ONE)
            levels.group[slot] = np.uint32(light)
            light_weight += level_weight
            light_total += inside
            light_first = smaller(light_first, code)
    if light < slots:
        levels.first[light] = light_first
        weight[light] = light_weight
        total[light] = light_total
    return groups


@inlined
def by_mean(levels, group, other):
    """Return True if a group comes before another: by mean, then by code."""
    sign = compare_means(levels.sum[group], levels.weight[group], levels.sum[other], levels.weight[other])
    return sign < 0 or (sign == 0 and levels.first[group] < levels.first[other])


@inlined
def by_number(levels, group, other):
    """Return True if a group comes before another in a random order: by random number, then by code."""
    number, other_number = levels.number[group], levels.number[other]
    return number < other_number or (number == other_number and levels.first[group] < levels.first[other])


@helper
def sort_groups(groups, before, levels):
    """Set levels.order to the groups in order; before: by_mean or by_number."""
    order = levels.order
    for i in range(groups):
        order[i] = np.uint32(i)
    gap = first_gap(groups)
    while gap > ZERO:  # as sort_by_gaps of kernels/common/sort.py; 1 // 3 is 0
        for i in range(gap, groups):
            group, j = order[i], i
            while j >= gap and before(levels, np.uint64(group), np.uint64(order[j - gap])):
                order[j] = order[j - gap]
                j -= gap
            order[j] = group
        gap //= _THREE


@helper
def order_groups(codes, low, high, node, min_level, levels, sums, dictionary, state):
    """Put the levels of a node in order: levels.order[r] becomes the group of rank r.

    codes       uint32 [>= rows], the levels of the rows, from `low` to `high`
    min_level   see CategoricalMissing
    sums        see kernels/scan/target.py
    dictionary  None for the order by means; otherwise the order is random, and each level is a group
    state       of rng.split_state, for the random order

    Return the number of groups, and the number of levels.
    """
    slots = take_slots(codes, low, high, node.items, levels, sums)
    lightest = ZERO_I64 if dictionary is not None else lightest_ungrouped(slots, node.weight, min_level, levels)
    groups = form_groups(slots, lightest, levels)
    if dictionary is None:
        if sums is None and node.total.size > 2:
            for slot in range(slots):
                levels.by_code[np.uint64(levels.code[slot])] = levels.group[slot]
            find_component(codes, groups, node, levels)
        sort_groups(groups, by_mean, levels)
    else:
        for group in range(groups):
            levels.number[group] = level_number(state, levels.first[group])
        sort_groups(groups, by_number, levels)
    return groups, slots


@helper
def order_levels(codes, low, high, node, min_level, levels, sums, dictionary, state):
    """Put the levels in order as `order_groups`, then replace codes[i] by the rank of the group of row i.

    levels.rank becomes the inverse of levels.order.
    """
    groups, slots = order_groups(codes, low, high, node, min_level, levels, sums, dictionary, state)
    for rank in range(groups):
        levels.rank[np.uint64(levels.order[rank])] = np.uint32(rank)
    for slot in range(slots):
        levels.by_code[np.uint64(levels.code[slot])] = levels.rank[np.uint64(levels.group[slot])]
    for i in range(np.uint64(node.items.size)):
        codes[i] = levels.by_code[np.uint64(codes[i])]
    return groups, slots


# Up to this many codes are counted in several tables, and levels are found by scanning codes, not rows.
CLOSE = 128
_LOG_HALF = np.uint64(5)
_HALF = np.int64(32)
_LOWER = np.int64(0xFFFFFFFF)
# Mask that selects one of the four tables of classes by the index of a row. Regression has two tables.
_TABLE_BITS = np.uint64(3)


@inlined
def level_weights(item):
    """Return the multiplicity of an item, int64, in the upper half if its class is odd, else in the lower half.

    The halves of a sum are the weights of odd and of even classes.
    """
    return np.int64((item & BITS16) << ((class_of(item) & ONE) << _LOG_HALF))


@inlined
def put_level(slots, code, both, levels):
    """Write level `code` to slot `slots`; return its weight. both: its sum of `level_weights`."""
    inside = both >> _HALF
    weight = (both & _LOWER) + inside
    levels.code[slots] = code
    levels.weight[slots] = weight
    levels.sum[slots] = inside
    return weight


@inlined
def count_close(codes, low, span, items, levels, sums):
    """Take slots as `take_slots`, in the order of the codes.

    span  uint64, up to CLOSE: codes are from `low` to below low + span
    """
    close = levels.close
    for entry in range(span << TWO):
        close[entry] = ZERO_I64
    for i in range(np.uint64(items.size)):
        # Consecutive rows go to different tables: an addition waits for an earlier one to the same entry.
        if sums is None:
            close[np.uint64(codes[i] - low) + (i & _TABLE_BITS) * span] += level_weights(items[i])
        else:
            at = np.uint64(codes[i] - low) + (i & ONE) * span
            close[at + at] += sums.rows[i, ZERO]
            close[at + at + ONE] += sums.rows[i, ONE]
    slots = ZERO
    for at in range(span):
        if sums is None:
            other = at + span + span
            both = close[at] + close[at + span] + close[other] + close[other + span]
            slots += np.uint64(put_level(slots, low + np.uint32(at), both, levels) != ZERO_I64)
        else:
            other = at + span
            weight = close[at + at] + close[other + other]
            levels.code[slots] = low + np.uint32(at)
            levels.weight[slots] = weight
            levels.sum[slots] = close[at + at + ONE] + close[other + other + ONE]
            slots += np.uint64(weight != ZERO_I64)
    return slots


@inlined
def take_slots(codes, low, high, items, levels, sums):
    """Take a slot for every level of the rows, from code `low` to `high`. Return the number of levels (uint64).

    levels.sum becomes the sum of the targets, or the weight of odd classes, by which levels of two classes are ordered.
    """
    span = np.uint64(high - low) + ONE
    if span <= np.uint64(CLOSE) and span <= np.uint64(items.size) << TWO:
        return count_close(codes, low, span, items, levels, sums)
    totals = levels.totals
    for i in range(np.uint64(items.size)):
        at = np.uint64(codes[i])
        if sums is None:
            totals[at] += level_weights(items[i])
        else:
            totals[at + at] += sums.rows[i, ZERO]
            totals[at + at + ONE] += sums.rows[i, ONE]
    slots = ZERO
    for i in range(np.uint64(items.size)):  # the first row of a level takes its sums, so later rows find zeros
        at = np.uint64(codes[i])
        if sums is None:
            weight = put_level(slots, codes[i], totals[at], levels)
            totals[at] = ZERO_I64
        else:
            weight = totals[at + at]
            levels.code[slots] = codes[i]
            levels.weight[slots] = weight
            levels.sum[slots] = totals[at + at + ONE]
            totals[at + at] = ZERO_I64
            totals[at + at + ONE] = ZERO_I64
        slots += np.uint64(weight != ZERO_I64)
    return slots


# Bits of an entry of the direction without its sign.
DIRECTION_BITS = 16
# Further bits of a level's deviation from the mean.
DEVIATION_BITS = 14
# Most steps of the power iteration.
POWER_STEPS = 10
_START_SHIFT = np.uint64(64 - DIRECTION_BITS)


@inlined
def count_level_cells(codes, items, groups, classes, levels):
    """Fill levels.cell and levels.cell_weight from the levels of the rows; return the number of cells (uint64).

    levels.by_code has the group of each level.
    """
    cell, cell_weight, group_of = levels.cell, levels.cell_weight, levels.by_code
    n = np.uint64(items.size)
    if groups * classes > n:
        for i in range(n):
            cell[i] = (np.uint64(group_of[np.uint64(codes[i])]) << SHIFT16) | class_of(items[i])
            cell_weight[i] = np.uint32(items[i] & BITS16)
        return n
    for index in range(groups * classes):
        cell_weight[index] = np.uint32(0)
    for i in range(n):
        group_of_row = np.uint64(group_of[np.uint64(codes[i])])
        cell_weight[group_of_row * classes + class_of(items[i])] += np.uint32(items[i] & BITS16)
    count = ZERO
    for group in range(groups):
        for k in range(classes):
            weight = cell_weight[group * classes + k]
            if weight != np.uint32(0):
                cell[count] = (group << SHIFT16) | k
                cell_weight[count] = weight
                count += ONE
    return count


@inlined
def sum_cells(groups, count, levels):
    """Set levels.sum to the sum of the direction's entries over the rows of each group."""
    total, cell = levels.sum, levels.cell
    for group in range(groups):
        total[group] = ZERO_I64
    for c in range(count):
        total[cell[c] >> SHIFT16] += np.int64(levels.cell_weight[c]) * levels.direction[cell[c] & BITS16]


@inlined
def power_step(groups, count, total, weight, levels):
    """Take one step of the power iteration: multiply the direction by the covariance of the class shares.

    total, weight  class weights of the node, int64 [classes], and their sum

    The new direction is scaled to DIRECTION_BITS. All sums are below 2**62 if the node weighs less than 2**31. Return
    True if the direction has changed.
    """
    direction, product = levels.direction, levels.product
    classes = np.uint64(direction.size)
    sum_cells(groups, count, levels)
    mean = ZERO_I64
    for k in range(classes):
        mean += total[k] * direction[k]
        product[k] = ZERO_I64
    mean = (mean << DEVIATION_BITS) // weight
    for group in range(groups):
        levels.sum[group] = (levels.sum[group] << DEVIATION_BITS) // levels.weight[group] - mean
    for c in range(count):
        product[levels.cell[c] & BITS16] += np.int64(levels.cell_weight[c]) * levels.sum[levels.cell[c] >> SHIFT16]
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
    """Set levels.direction to the first principal component of `count` cells, and levels.sum as `sum_cells`.

    total, weight  class weights of the node, int64 [classes], and their sum
    """
    for k in range(np.uint64(levels.direction.size)):
        levels.direction[k] = np.int64(mix(k + ONE) >> _START_SHIFT)
    step = 0
    while step < POWER_STEPS and power_step(groups, count, total, weight, levels):
        step += 1
    sum_cells(groups, count, levels)


@helper
def find_component(codes, groups, node, levels):
    """Set levels.direction and levels.sum as `find_principal`, for the rows of a node.

    codes  uint32 [>= rows], the levels of the rows; levels.by_code has the group of each level
    """
    count = count_level_cells(codes, node.items, groups, np.uint64(levels.direction.size), levels)
    find_principal(groups, count, node.total, node.weight, levels)


@inlined
def _take_cells(counts, classes, levels):
    """Fill levels.cell and levels.cell_weight from the class weights of levels; return the number of cells (uint64)."""
    count = ZERO
    for slot in range(np.uint64(counts.shape[0])):
        for k in range(classes):
            if counts[slot, k] > 0:
                levels.cell[count] = (np.uint64(levels.group[slot]) << SHIFT16) | k
                levels.cell_weight[count] = np.uint32(counts[slot, k])
                count += ONE
    return count


@kernel
def order_counted(counts, total, regression, min_level, levels, ranks):
    """Put levels in order, from summed statistics.

    counts      int64 [levels, slots], statistics of the rows of each level (grow/out_of_core/context.py). No level has
                weight 0. With more than two classes, the weight of a class in a level is below 2**32
    total       int64 [classes], class weights of all levels together; not used for regression
    regression  True for regression
    min_level   see CategoricalMissing
    levels      LevelOrder with room for these levels, and for as many cells as there are weights above 0 in counts
    ranks       uint32 [levels], out: the rank of each level in the order; levels of one group share a rank
    """
    slots = np.uint64(counts.shape[0])
    classes = ONE if regression else np.uint64(total.size)
    weight = ZERO_I64
    for slot in range(slots):
        level_weight = ZERO_I64
        for k in range(classes):
            level_weight += counts[slot, k]
        levels.code[slot] = np.uint32(slot)
        levels.weight[slot] = level_weight
        levels.sum[slot] = counts[slot, ONE]
        weight += level_weight
    groups = form_groups(slots, lightest_ungrouped(slots, weight, min_level, levels), levels)
    if classes > TWO:
        find_principal(groups, _take_cells(counts, classes, levels), total, weight, levels)
    sort_groups(groups, by_mean, levels)
    for rank in range(groups):
        levels.rank[np.uint64(levels.order[rank])] = np.uint32(rank)
    for slot in range(slots):
        ranks[slot] = levels.rank[np.uint64(levels.group[slot])]
