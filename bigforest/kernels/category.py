"""The order in which the levels of a category are split, node by node. Oracle: tests/naive/levels.py.

Once its levels are in order, a category is scanned like a number: the place of a row's level stands for its code. For
two classes the order is that of the share of the second class, in which the best of all subsets is a prefix (Breiman et
al. 1984, theorem 4.5). For more it is that of the first principal component of the class shares, levels weighted by
their rows (Coppersmith, Hong and Hosking 1999). Equal levels are ordered by code.

Everything is in whole numbers, so the order of the rows changes nothing. The work is in proportion to the rows of the
node and the levels among them, never to all levels of the feature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.jit import helper, inlined
from bigforest.kernels.node import BITS16, NONE, ONE, SHIFT16, ZERO, class_of
from bigforest.kernels.rng import mix

# Bits of an entry of the principal component besides its sign, of a level's deviation from the mean besides these, and
# most steps of the power iteration that finds it.
DIRECTION_BITS = 16
DEVIATION_BITS = 14
STEPS = 10
# Bits of a mean's fraction. Means of two classes that differ do so by more than 2**-62.
_FRACTION_TWO = np.uint64(62)
_FRACTION_MANY = np.uint64(44)
_FINEST = np.uint64(62)
_START_SHIFT = np.uint64(64 - DIRECTION_BITS)
# Up to so many levels an insertion sort beats one by digits.
_FEW = np.uint64(48)
_DIGIT_BITS = np.uint64(8)
_DIGIT = np.uint64(0xFF)
_DIGITS = 256
_BITS = np.uint64(64)
_SHIFT32 = np.uint64(32)
_SHIFT30 = np.uint64(30)


class Levels(NamedTuple):
    """Scratch to order the levels of a node; `most` is the largest number of levels a node may have.

    slot       uint32 [codes of the largest category], 1 + the slot of a level of the node; 0 between nodes
    code       uint32 [most], the level in each slot
    weight     int64 [most], rows in each slot
    sum        int64 [most], their sum of the direction's entries for their classes
    key        uint64 [most], a number that orders the slots
    order      uint32 [most], slots in their order
    rank       uint32 [most], place of each slot in that order; scratch while sorting
    digits     uint32 [256], scratch while sorting
    direction  int64 [classes], what each class counts for in a level's mean
    turned     int64 [classes], scratch
    cell       uint64 [rows], slot << 16 | class: rows, or all of a slot and class together; none for two classes
    cells      uint32 [rows], weights of these
    """

    slot: NDArray[np.uint32]
    code: NDArray[np.uint32]
    weight: NDArray[np.int64]
    sum: NDArray[np.int64]
    key: NDArray[np.uint64]
    order: NDArray[np.uint32]
    rank: NDArray[np.uint32]
    digits: NDArray[np.uint32]
    direction: NDArray[np.int64]
    turned: NDArray[np.int64]
    cell: NDArray[np.uint64]
    cells: NDArray[np.uint32]


def make_levels(codes: int, rows: int, classes: int) -> Levels:
    """Levels for nodes of up to `rows` rows, of categories of up to `codes` levels."""
    most = min(rows, codes)
    shared = rows if classes > 2 and codes else 0
    return Levels(
        np.zeros(codes, np.uint32),
        np.empty(most, np.uint32),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.uint64),
        np.empty(most, np.uint32),
        np.empty(most, np.uint32),
        np.empty(_DIGITS, np.uint32),
        np.empty(classes, np.int64),
        np.empty(classes, np.int64),
        np.empty(shared, np.uint64),
        np.empty(shared, np.uint32),
    )


def levels_bytes(codes: int, rows: int, classes: int) -> int:
    """Bytes of `make_levels`."""
    return 4 * codes + 36 * min(rows, codes) + (12 * rows if classes > 2 and codes else 0)


@inlined
def take_slots(codes, items, levels):
    """Give every level among the rows a slot: codes[i] becomes that of row i. Returns their number (uint64)."""
    slot, code, weight = levels.slot, levels.code, levels.weight
    found = ZERO
    for i in range(np.uint64(items.size)):
        here = codes[i]
        mine = slot[np.uint64(here)]
        if mine == np.uint32(0):
            code[found] = here
            weight[found] = NONE
            found += ONE
            mine = np.uint32(found)
            slot[np.uint64(here)] = mine
        mine -= np.uint32(1)
        codes[i] = mine
        weight[np.uint64(mine)] += np.int64(items[i] & BITS16)
    for j in range(found):
        slot[np.uint64(code[j])] = np.uint32(0)
    return found


@inlined
def count_cells(codes, items, found, classes, levels):
    """Fill levels.cell and levels.cells from the slots of the rows; returns the number of cells (uint64)."""
    cell, cells = levels.cell, levels.cells
    n = np.uint64(items.size)
    if found * classes > n:
        for i in range(n):
            cell[i] = (np.uint64(codes[i]) << SHIFT16) | class_of(items[i])
            cells[i] = np.uint32(items[i] & BITS16)
        return n
    for place in range(found * classes):
        cells[place] = np.uint32(0)
    for i in range(n):
        cells[np.uint64(codes[i]) * classes + class_of(items[i])] += np.uint32(items[i] & BITS16)
    count = ZERO
    for slot in range(found):
        for k in range(classes):
            weight = cells[slot * classes + k]
            if weight != np.uint32(0):
                cell[count] = (slot << SHIFT16) | k
                cells[count] = weight
                count += ONE
    return count


@inlined
def sum_cells(found, count, levels):
    """levels.sum = sum of the direction's entries over the rows of each slot."""
    total, cell = levels.sum, levels.cell
    for slot in range(found):
        total[slot] = NONE
    for c in range(count):
        total[cell[c] >> SHIFT16] += np.int64(levels.cells[c]) * levels.direction[cell[c] & BITS16]


@inlined
def turn(found, count, node, levels):
    """One step of the power iteration: the covariance of the class shares times the direction. False at its end.

    The result is scaled to DIRECTION_BITS; a sum is below 2**62.
    """
    direction, turned = levels.direction, levels.turned
    classes = np.uint64(direction.size)
    sum_cells(found, count, levels)
    mean = NONE
    for k in range(classes):
        mean += node.total[k] * direction[k]
        turned[k] = NONE
    mean = (mean << DEVIATION_BITS) // node.weight
    for slot in range(found):
        levels.sum[slot] = (levels.sum[slot] << DEVIATION_BITS) // levels.weight[slot] - mean
    for c in range(count):
        turned[levels.cell[c] & BITS16] += np.int64(levels.cells[c]) * levels.sum[levels.cell[c] >> SHIFT16]
    largest = NONE
    for k in range(classes):
        largest = max(largest, abs(turned[k]))
    if largest == 0:
        return False
    bits = NONE
    while (largest >> bits) > 0:
        bits += 1
    bits -= DIRECTION_BITS
    changed = False
    for k in range(classes):
        entry = turned[k] >> bits if bits > 0 else turned[k] << -bits
        changed |= entry != direction[k]
        direction[k] = entry
    return changed


@helper
def find_direction(codes, items, found, node, levels):
    """Set levels.direction to the first principal component, its entries made positive, and levels.sum to match."""
    direction = levels.direction
    classes = np.uint64(direction.size)
    count = count_cells(codes, items, found, classes, levels)
    for k in range(classes):
        direction[k] = np.int64(mix(k + ONE) >> _START_SHIFT)
    step = 0
    while step < STEPS and turn(found, count, node, levels):
        step += 1
    for k in range(classes):
        direction[k] += 1 << DIRECTION_BITS
    sum_cells(found, count, levels)


@inlined
def mean_key(total, weight, fraction):
    """floor(2**fraction * total / weight), for total >= 0 and 0 < weight < 2**31, all uint64; it fits 64 bits."""
    whole = total // weight
    rest = (total % weight) << _SHIFT32
    upper = rest // weight
    lower = ((rest % weight) << _SHIFT30) // weight
    return (whole << fraction) | (((upper << _SHIFT30) | lower) >> (_FINEST - fraction))


@inlined
def comes_before(key, code, one, two):
    """Whether slot `one` comes before slot `two`: by key, then by code."""
    return key[one] < key[two] or (key[one] == key[two] and code[one] < code[two])


@helper
def sort_by_digits(numbers, order, spare, digits):
    """Order slots by their numbers (unsigned), equal ones as they stand, digit by digit from the lowest."""
    size = np.uint64(order.size)
    first = np.uint64(numbers[np.uint64(order[ZERO])])
    varying = ZERO
    for i in range(size):
        varying |= first ^ np.uint64(numbers[np.uint64(order[i])])
    shift = ZERO
    while shift < _BITS and (varying >> shift) != ZERO:
        if (varying >> shift) & _DIGIT:
            for d in range(np.uint64(_DIGITS)):
                digits[d] = np.uint32(0)
            for i in range(size):
                digits[(np.uint64(numbers[np.uint64(order[i])]) >> shift) & _DIGIT] += np.uint32(1)
            at = np.uint32(0)
            for d in range(np.uint64(_DIGITS)):
                here = digits[d]
                digits[d] = at
                at += here
            for i in range(size):
                digit = (np.uint64(numbers[np.uint64(order[i])]) >> shift) & _DIGIT
                spare[np.uint64(digits[digit])] = order[i]
                digits[digit] += np.uint32(1)
            for i in range(size):
                order[i] = spare[i]
        shift += _DIGIT_BITS


@inlined
def sort_slots(found, levels):
    """levels.order = the slots by key, then code."""
    order, key, code = levels.order, levels.key, levels.code
    if found <= _FEW:
        for i in range(found):
            j = i
            while j > ZERO and comes_before(key, code, i, np.uint64(order[j - ONE])):
                order[j] = order[j - ONE]
                j -= ONE
            order[j] = np.uint32(i)
        return
    for i in range(found):
        order[i] = np.uint32(i)
    sort_by_digits(code, order[:found], levels.rank, levels.digits)
    sort_by_digits(key, order[:found], levels.rank, levels.digits)


@helper
def order_levels(codes, node, levels):
    """Put the levels of a node in order: codes[i], the level of row i, becomes its place. Returns their number.

    codes uint32 [>= rows], changed; node Node. levels.code[levels.order[p]] is the level in place p afterwards.
    """
    items = node.items
    found = take_slots(codes, items, levels)
    fraction = _FRACTION_TWO
    if node.total.size == 2:
        for slot in range(found):
            levels.sum[slot] = NONE
        for i in range(np.uint64(items.size)):
            levels.sum[np.uint64(codes[i])] += np.int64((items[i] & BITS16) * class_of(items[i]))
    else:
        fraction = _FRACTION_MANY
        find_direction(codes, items, found, node, levels)
    for slot in range(found):
        levels.key[slot] = mean_key(np.uint64(levels.sum[slot]), np.uint64(levels.weight[slot]), fraction)
    sort_slots(found, levels)
    for place in range(found):
        levels.rank[np.uint64(levels.order[place])] = np.uint32(place)
    for i in range(np.uint64(items.size)):
        codes[i] = levels.rank[np.uint64(codes[i])]
    return found
