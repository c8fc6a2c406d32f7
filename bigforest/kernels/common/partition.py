"""Partition the rows of a node between its children."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import BITS16, ZERO, class_of
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.numbers import larger, smaller


@inlined
def sum_classes(items, total):
    """Set total[k], int64 [classes], to the weight of class k among the items."""
    if total.size == 2:  # without an array the compiler vectorises the sums
        weight = ZERO
        ones = ZERO
        for i in range(np.uint64(items.size)):
            weight += items[i] & BITS16
            ones += (items[i] & BITS16) * class_of(items[i])
        total[0] = np.int64(weight - ones)
        total[1] = np.int64(ones)
        return
    for k in range(np.uint64(total.size)):
        total[k] = 0
    for i in range(np.uint64(items.size)):
        total[class_of(items[i])] += np.int64(items[i] & BITS16)


@inlined
def partition_by(goes_left, arguments, rows, spare):
    """Reorder rows stably, with the rows that go left first. Return the number of rows that go left, uint64.

        rows       a b c d e        goes_left  0 1 1 0 1
        afterwards b c e a d        returns 3

    goes_left(i, row, *arguments)  inlined function: returns 1 if rows[i], passed as `row`, goes left, else 0, as uint64
    rows                           [n], items or row numbers, mutated
    spare                          [>= n] of the same type, scratch

    No branch depends on the data. Oracle: a stable numpy.argsort of the results of goes_left.
    """
    size_l = ZERO
    for i in range(np.uint64(rows.size)):
        row = rows[i]
        rows[size_l] = row
        spare[i - size_l] = row
        size_l += goes_left(i, row, *arguments)
    for i in range(np.uint64(rows.size) - size_l):
        rows[size_l + i] = spare[i]
    return size_l


@inlined
def is_up_to(i, row, values, threshold):
    """Return 1 if values[i] is at most `threshold`, else 0, as uint64."""
    return np.uint64(values[i] <= threshold)


@inlined
def partition_rows(values, threshold, rows, spare):
    """Partition rows as `partition_by`: rows[i] goes left if values[i] <= threshold.

    values  [>= n], codes or projections
    """
    return partition_by(is_up_to, (values, threshold), rows, spare)


@inlined
def partition_codes(codes, threshold, items, spare):
    """Partition rows by codes, uint32 [>= n], as `partition_rows`.

    Return the number of rows on the left (uint64), the largest code on the left and the smallest code on the right
    (uint32). A code is undefined if its side has no rows.
    """
    after = np.uint32(threshold + np.uint32(1))
    below = np.uint32(0)
    above = np.uint32(0xFFFFFFFF)
    for i in range(np.uint64(items.size)):  # a separate loop, which the compiler vectorises
        # Distances wrap for codes on the left. They are then larger than on the right, and in the order of the codes.
        distance = np.uint32(codes[i] - after)
        below = larger(below, distance)
        above = smaller(above, distance)
    size_l = partition_rows(codes, threshold, items, spare)
    return size_l, np.uint32(below + after), np.uint32(above + after)


@inlined
def partition_projections(values, threshold, items, spare):
    """Partition rows by projections, float64 [>= n], as `partition_rows`.

    Return the number of rows on the left, the largest projection on the left (-inf without rows), and the smallest
    projection on the right (inf without rows).
    """
    largest, smallest = -np.inf, np.inf
    for i in range(np.uint64(items.size)):
        value = values[i]
        largest = value if value <= threshold and value > largest else largest
        smallest = value if value > threshold and value < smallest else smallest
    return partition_rows(values, threshold, items, spare), largest, smallest
