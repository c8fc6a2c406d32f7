"""Partition the rows of a node between its children."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.node_scan import BITS16, ONE, ZERO, class_of
from bigforest.kernels.compiler.jit import inlined


@inlined
def sum_classes(items, total):
    """total[k] = weight of class k among the items; int64 [classes]."""
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
def partition(here, limit, items, spare):
    """Reorder items stably: those whose code here[i] is up to `limit` first. No branch depends on the data.

    here uint32 [>= n]; items uint64 [n], mutated; spare uint64 [>= n], scratch. Returns the number of rows on the left
    (uint64), the largest code there and the smallest on the right (uint32), undefined where a side has no rows.
    """
    after = np.uint32(limit + np.uint32(1))
    below = np.uint32(0)
    above = np.uint32(0xFFFFFFFF)
    for i in range(np.uint64(items.size)):  # a loop of its own, which the compiler vectorises
        distance = np.uint32(here[i] - after)  # wraps on the left, so that the largest codes there have the largest
        below = max(below, distance)
        above = min(above, distance)
    at_l = ZERO
    for i in range(np.uint64(items.size)):
        item = items[i]
        items[at_l] = item
        spare[i - at_l] = item
        at_l += np.uint64(here[i] <= limit)
    for i in range(np.uint64(items.size) - at_l):
        items[at_l + i] = spare[i]
    return at_l, np.uint32(below + after), np.uint32(above + after)


@inlined
def partition_rows(value, cut, rows, spare):
    """Reorder rows stably: those with value[i] <= cut first. Returns their number, uint64.

    value float64 [>= n]; rows [n], mutated; spare of their type [>= n], scratch.
    """
    at_l = ZERO
    at_r = ZERO
    for i in range(np.uint64(rows.size)):
        row = rows[i]
        goes_left = np.uint64(value[i] <= cut)
        rows[at_l] = row
        spare[at_r] = row
        at_l += goes_left
        at_r += ONE - goes_left
    for i in range(at_r):
        rows[at_l + i] = spare[i]
    return at_l


@inlined
def partition_values(value, cut, rows, spare):
    """partition_rows; also the largest value on the left, or -inf, and the smallest on the right, or inf."""
    largest, smallest = -np.inf, np.inf
    for i in range(np.uint64(rows.size)):
        each = value[i]
        largest = each if each <= cut and each > largest else largest
        smallest = each if each > cut and each < smallest else smallest
    return partition_rows(value, cut, rows, spare), largest, smallest
