"""Send the rows of a node to its children."""

from __future__ import annotations

import numpy as np

from bigforest.kernels.jit import inlined
from bigforest.kernels.node import BITS16, SHIFT32, ZERO, class_of


@inlined
def partition_column(column, code, items, spare):
    """`partition` on one column of codes; compiled once per width."""
    at_l = ZERO
    at_r = ZERO
    below = np.uint32(0)
    above = np.uint32(0xFFFFFFFF)
    for i in range(np.uint64(items.size)):
        item = items[i]
        here = np.uint32(column[item >> SHIFT32])
        goes_left = here <= code
        items[at_l] = item
        spare[at_r] = item
        at_l += np.uint64(goes_left)
        at_r += np.uint64(not goes_left)
        below = max(below, here if goes_left else np.uint32(0))
        above = min(above, np.uint32(0xFFFFFFFF) if goes_left else here)
    for i in range(at_r):
        items[at_l + i] = spare[i]
    return at_l, below, above


@inlined
def sum_classes(items, total):
    """total[k] = weight of class k among the items; int64 [classes]."""
    if total.size == 2:  # sums without an array run in vectors
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
def partition(codes, feature, code, items, spare):
    """Reorder items stably: codes of `feature` up to `code` first. No branch depends on the data.

    codes Codes, feature uint64, items uint64 [n] (mutated), spare uint64 [>= n] (scratch). Returns the number of rows
    on the left (uint64), the largest code there and the smallest on the right (uint32).
    """
    width = codes.place[feature, 0]
    slot = np.uint64(codes.place[feature, 1])
    limit = np.uint32(code)
    if width == np.uint32(1):
        size_l, below, above = partition_column(codes.u8[slot], limit, items, spare)
    elif width == np.uint32(2):
        size_l, below, above = partition_column(codes.u16[slot], limit, items, spare)
    else:
        size_l, below, above = partition_column(codes.u32[slot], limit, items, spare)
    return size_l, below, above


@inlined
def partition_gathered(here, limit, items, spare):
    """`partition` by the codes here[i] of items[i], uint32 [>= n], those up to `limit` first."""
    at_l = ZERO
    at_r = ZERO
    below = np.uint32(0)
    above = np.uint32(0xFFFFFFFF)
    for i in range(np.uint64(items.size)):
        item = items[i]
        code = here[i]
        goes_left = code <= limit
        items[at_l] = item
        spare[at_r] = item
        at_l += np.uint64(goes_left)
        at_r += np.uint64(not goes_left)
        below = max(below, code if goes_left else np.uint32(0))
        above = min(above, np.uint32(0xFFFFFFFF) if goes_left else code)
    for i in range(at_r):
        items[at_l + i] = spare[i]
    return at_l, below, above
