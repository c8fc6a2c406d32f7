"""The columns of a tree in a subspace, some of the features (Ho 1995, section 2), and scratch to find splits.

Columns are stored row by row, as values or, if all values are 0 or 1, as bits. All statistics are sums of whole
numbers: rows with a bit set, or values in steps of their column. Kernels count and weigh bits a word of 64 at a time:

    column c of a row is bit c % 64 of word c // 64

Oracle: tests/naive/subspace.py, without bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.node_scan import ONE, SHIFT32, TWO, ZERO, class_of
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.bit_sums import WORD, add_bits, weigh_bits
from bigforest.kernels.llvm.numbers import smaller

# Rows that are packed at a time: one word of each stays in the first-level cache.
PACKED_ROWS = 512
# Binary digits of a number of rows, which is below 2**31. The lowest _LOW_PLANES are kept in registers.
PLANES = 31
_LOW_PLANES = np.uint64(3)
_EIGHT = np.uint64(8)
_WORD = np.uint64(WORD)


@kernel
def pack_bits(columns, slots, bits, word):
    """Set bit c % 64 of bits[r, c // 64] to columns[slots[c], r].

    columns  uint8 [slots, rows], zeros and ones
    slots    int64 [number of bits], the row of `columns` that each bit has; -1 for zeros
    bits     uint64 [rows, words], out
    word     uint64 [PACKED_ROWS], scratch

    Cost: about a sixth of a nanosecond per cell.
    """
    count = np.uint64(slots.size)
    for first in range(0, bits.shape[0], PACKED_ROWS):
        rows = smaller(PACKED_ROWS, bits.shape[0] - first)
        for number in range(np.uint64(bits.shape[1])):
            for r in range(rows):
                word[r] = ZERO
            for bit in range(smaller(_WORD, count - number * _WORD)):
                slot = slots[number * _WORD + bit]
                if slot >= 0:
                    column = columns[np.uint64(slot), first : first + rows]
                    for r in range(rows):
                        word[r] |= np.uint64(column[r]) << bit
            for r in range(rows):
                bits[np.uint64(first + r), number] = word[r]


@inlined
def add_three(a, b, c):
    """Add three words bit by bit. Return a word of the lower and a word of the upper binary digits of the sums."""
    odd = a ^ b
    return odd ^ c, (a & b) | (odd & c)


@inlined
def count_word(bits, rows, number, planes, count):
    """Set count[b] to the number of rows with bit b of word `number` set, int32 [64].

    rows    uint32 [n], n below 2**31
    planes  uint64 [2, PLANES], scratch

    Adds words bit by bit (Harley and Seal; Warren, Hacker's Delight, 5-1). Bit b of planes[0, i] is binary digit i of
    count[b] so far. planes[1, i] is a carry of this digit that waits for the next one, because two are added at once.
    About five operations per row.
    """
    n = np.uint64(rows.size)
    digit, waiting = planes[ZERO], planes[ONE]
    for b in range(_WORD):
        count[b] = np.int32(0)
    ones, twos, fours, eights = ZERO, ZERO, ZERO, ZERO
    groups = n // _EIGHT
    most = _LOW_PLANES
    while groups >> (most - _LOW_PLANES) != ZERO:
        digit[most] = ZERO
        most += ONE
    for group in range(groups):
        at = group * _EIGHT
        ones, two = add_three(ones, bits[rows[at], number], bits[rows[at + ONE], number])
        ones, other = add_three(ones, bits[rows[at + np.uint64(2)], number], bits[rows[at + np.uint64(3)], number])
        twos, four = add_three(twos, two, other)
        ones, two = add_three(ones, bits[rows[at + np.uint64(4)], number], bits[rows[at + np.uint64(5)], number])
        ones, other = add_three(ones, bits[rows[at + np.uint64(6)], number], bits[rows[at + np.uint64(7)], number])
        twos, more = add_three(twos, two, other)
        fours, carry = add_three(fours, four, more)
        level, before = _LOW_PLANES, group
        while before & ONE:
            digit[level], carry = add_three(digit[level], waiting[level], carry)
            before >>= ONE
            level += ONE
        waiting[level] = carry
    for at in range(groups * _EIGHT, n):
        carry = bits[rows[at], number]
        two = ones & carry
        ones ^= carry
        four = twos & two
        twos ^= two
        eights |= fours & four  # seven rows plus seven carry at most once
        fours ^= four
    digit[ZERO] = ones
    digit[ONE] = twos
    digit[TWO] = fours
    for level in range(most):
        add_bits(digit[level : level + ONE], np.int32(1) << np.int32(level), count)
    for level in range(_LOW_PLANES, most):
        if (groups >> (level - _LOW_PLANES)) & ONE:
            add_bits(waiting[level : level + ONE], np.int32(1) << np.int32(level), count)
    if eights != ZERO:
        digit[ZERO] = eights
        add_bits(digit[:ONE], np.int32(8), count)


# Values are added up in steps of their column. The range of a column has at most this many, so that sums of 2**31 rows
# are exact in float64.
STEPS = 2.0**22


class SubspaceColumns(NamedTuple):
    """The columns of a tree: as bits if all values are 0 or 1, else as values.

    feature   int32 [columns], their features, ascending
    bits      uint64 [rows of the table, words], see the top of this file; no words for values
    value     float64 [rows of the table, columns]; no rows for bits
    low       float64 [columns], the smallest value
    rate      float64 [columns], steps per unit of the value: STEPS / range; 1 for whole numbers in a range up to STEPS
    unit      float64 [columns], size of a step; 0 for a column that is left out, with all its values set to 0
    scale     float64 [columns], the square of the power of two that scales the range of a column to above 0.5 and at
              most 1; 1 for bits. Values are not scaled, but weights of directions are multiplied by it
    """

    feature: NDArray[np.int32]
    bits: NDArray[np.uint64]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    rate: NDArray[np.float64]
    unit: NDArray[np.float64]
    scale: NDArray[np.float64]


class Subspace(NamedTuple):
    """Rules of splits in a subspace, and scratch of one growing tree. width: number of columns, or of bits in a row.

    space    the columns of the tree
    drawn    uint64, number of columns that a node draws; if it is the number of all columns, nothing is drawn
    size     uint64 [1], number of columns of the current node: `drawn`, or all if these cannot split it
    steps    number of steps from mean to mean (`cut_axis`)
    epochs   most passes of a perceptron over the rows (split.py); 0 for no perceptron
    column   uint32 [columns]: the first `size` are the columns of the node, ascending
    mask     uint64 [words], a bit for each column of the node
    start    int64 [classes + 1], where the rows of a class begin in `order`
    order    uint32 [rows], rows of the table, by class
    mean     float64 [classes, width], means of the classes minus `low`
    weight   float64 [width], weights of the current direction; undefined for columns not of the node
    whole    int32 [width], weights of the current direction for bits; 0 for columns not of the node
    kept     float64 [width], weights of the best perceptron so far
    value    float64 [rows], projections, in the order of the items
    stop     float64 [steps + 1], cuts to try between two class means (`place_stops`)
    hist     uint32 [steps + 1, classes], hist[j] is the number of rows between stop j - 1 and stop j
    left     int64 [classes], number of rows on the left
    far      bool [classes], True if a class is on the side of the second mean
    planes   uint64 [2, PLANES]; counted int32 [64]; picked uint64 [words]: scratch of counting bits
    """

    space: SubspaceColumns
    drawn: np.uint64
    size: NDArray[np.uint64]
    steps: int
    epochs: int
    column: NDArray[np.uint32]
    mask: NDArray[np.uint64]
    start: NDArray[np.int64]
    order: NDArray[np.uint32]
    mean: NDArray[np.float64]
    weight: NDArray[np.float64]
    whole: NDArray[np.int32]
    kept: NDArray[np.float64]
    value: NDArray[np.float64]
    stop: NDArray[np.float64]
    hist: NDArray[np.uint32]
    left: NDArray[np.int64]
    far: NDArray[np.bool_]
    planes: NDArray[np.uint64]
    counted: NDArray[np.int32]
    picked: NDArray[np.uint64]


def make_subspace(space: SubspaceColumns, drawn: int, steps: int, epochs: int, classes: int, rows: int) -> Subspace:
    """Allocate Subspace for nodes of up to `rows` rows of `classes` classes."""
    columns, words = space.feature.size, space.bits.shape[1]
    width = WORD * words if words else columns
    return Subspace(
        space,
        np.uint64(drawn),
        np.full(1, drawn, np.uint64),
        steps,
        epochs,
        np.arange(columns, dtype=np.uint32),
        np.full(words, 2**64 - 1, np.uint64),
        np.empty(classes + 1, np.int64),
        np.empty(rows, np.uint32),
        np.empty((classes, width)),
        np.zeros(width),
        np.zeros(width if words else 0, np.int32),
        np.zeros(width),
        np.empty(rows),
        np.empty(steps + 1),
        np.empty((steps + 1, classes), np.uint32),
        np.empty(classes, np.int64),
        np.empty(classes, np.bool_),
        np.empty((2, PLANES), np.uint64),
        np.empty(WORD, np.int32),
        np.empty(words, np.uint64),
    )


@inlined
def has_bits(subspace):
    return subspace.space.bits.shape[1] > 0


@inlined
def group_by_class(items, total, start, order):
    """Group the rows of the items by class into `order`; class k begins at start[k]. total int64 [classes]."""
    begin = np.int64(0)
    for k in range(np.uint64(total.size)):
        start[k] = begin
        begin += total[k]
    for i in range(np.uint64(items.size)):
        k = class_of(items[i])
        order[np.uint64(start[k])] = np.uint32(items[i] >> SHIFT32)
        start[k] += 1
    for k in range(np.uint64(total.size)):  # back from the end of each class to its begin
        start[k] -= total[k]
    start[np.uint64(total.size)] = begin


@inlined
def find_class_means(subspace, total):
    """Fill `mean` for the classes whose total, int64 [classes], is above 0. Call group_by_class before."""
    space, mean = subspace.space, subspace.mean
    for k in range(np.uint64(total.size)):
        if total[k] == 0:
            continue
        rows = subspace.order[np.uint64(subspace.start[k]) : np.uint64(subspace.start[k + ONE])]
        size = np.float64(total[k])
        if has_bits(subspace):
            for number in range(np.uint64(space.bits.shape[1])):
                count_word(space.bits, rows, number, subspace.planes, subspace.counted)
                first = number * np.uint64(WORD)
                for b in range(np.uint64(WORD)):
                    mean[k, first + b] = np.float64(subspace.counted[b]) / size
        else:
            for j in range(subspace.size[0]):
                c = np.uint64(subspace.column[j])
                mean[k, c] = 0.0
            for i in range(np.uint64(rows.size)):
                row = np.uint64(rows[i])
                for j in range(subspace.size[0]):
                    c = np.uint64(subspace.column[j])
                    mean[k, c] += np.rint((space.value[row, c] - space.low[c]) * space.rate[c])
            for j in range(subspace.size[0]):
                c = np.uint64(subspace.column[j])
                mean[k, c] = mean[k, c] / size * space.unit[c]


@inlined
def distance(subspace, first, second):
    """Return the squared Euclidean distance of the means of two classes, in scaled columns, summed in column order."""
    total = 0.0
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        apart = subspace.mean[second, c] - subspace.mean[first, c]
        total += apart * apart * subspace.space.scale[c]
    return total


@inlined
def farthest_classes(subspace, total):
    """Return the two classes (uint64) whose means are farthest apart, the first among ties; 0, 0 if all are equal."""
    first, second = ZERO, ZERO
    most = 0.0
    for k in range(np.uint64(total.size)):
        if total[k] == 0:
            continue
        for other in range(k + ONE, np.uint64(total.size)):
            if total[other] > 0:
                apart = distance(subspace, k, other)
                if apart > most:
                    most = apart
                    first, second = k, other
    return first, second


@inlined
def weigh_row(subspace, row):
    """Return the projection of a row of the table (uint64) on the current direction, float64."""
    if has_bits(subspace):
        return np.float64(weigh_bits(subspace.space.bits[row], subspace.whole))
    total = 0.0
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        total += subspace.weight[c] * subspace.space.value[row, c]
    return total


@inlined
def weigh_rows(subspace, items):
    """Set subspace.value[i] to the projection of the row of items[i]."""
    for i in range(np.uint64(items.size)):
        subspace.value[i] = weigh_row(subspace, items[i] >> SHIFT32)
