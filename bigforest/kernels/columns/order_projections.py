"""Order the rows of a node by their projections. Oracle: numpy.sort.

A *stretch* is a range of the rows that is ordered alone: the rows of a bucket that a scan opens, or all rows. Its
values are put into buckets of equal width over their range, so that most buckets hold one value. Large buckets are
sorted with gaps, as by `sort_by_gaps` of kernels/common/sort.py. An insertion sort of all values follows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.project import LARGEST
from bigforest.kernels.common.node_scan import CODE, FEATURE, ONE, SORT_BUCKETS, TWO, as_key
from bigforest.kernels.common.sort import first_gap
from bigforest.kernels.compiler.jit import helper, inlined
from bigforest.kernels.llvm.numbers import larger, smaller

# Fewest buckets of a stretch.
_FEWEST_BUCKETS = 128
# Up to this many rows insertion sort is fastest.
_FEW = np.uint64(12)
_THREE = np.uint64(3)


class ProjectionScratch(NamedTuple):
    """The projections of a node on the current direction, and scratch to order them; `rows` is the size of the root.

    value        float64 [rows], in the order of the node's items
    row          uint32 [rows + 1], positions in `value`, ordered in stretches
    ordered      float64 [rows + 1], the values at these positions
    spare_row, spare_ordered  of the same shapes, scratch
    positions    uint32 [SORT_BUCKETS + 1], where the next row of a bucket goes (ScanScratch.positions is in use then)
    cut          float64 [1], largest projection that goes left in the best split, if that is on a projection
    """

    value: NDArray[np.float64]
    row: NDArray[np.uint32]
    ordered: NDArray[np.float64]
    spare_row: NDArray[np.uint32]
    spare_ordered: NDArray[np.float64]
    positions: NDArray[np.uint32]
    cut: NDArray[np.float64]


def make_projection_scratch(rows: int) -> ProjectionScratch:
    """Allocate ProjectionScratch for nodes of up to `rows` rows."""
    return ProjectionScratch(
        np.empty(rows),
        np.empty(rows + 1, np.uint32),
        np.empty(rows + 1),
        np.empty(rows + 1, np.uint32),
        np.empty(rows + 1),
        np.empty(SORT_BUCKETS + 1, np.uint32),
        np.empty(1),
    )


@inlined
def slope_for(low, high, buckets):
    """Return the number of buckets per unit of half the value, for values from low to high. The range of the values
    themselves might overflow."""
    span = high * 0.5 - low * 0.5
    return smaller(np.float64(buckets) / span, LARGEST) if span > 0.0 else 0.0


@inlined
def bucket_of(value, low, slope, last):
    """Return the bucket of a value, from 0 to `last` (float64), never lower than the bucket of a smaller value."""
    return np.uint32(np.int32(smaller((value * 0.5 - low * 0.5) * slope, last)))


@inlined
def insert_in_order(projected, begin, end, gap):
    """Sort by insertion each sequence of rows of a stretch that are `gap` apart, see kernels/common/sort.py."""
    row, ordered = projected.row, projected.ordered
    for i in range(begin + gap, end):
        value = ordered[i]
        moved = row[i]
        j = i
        while j >= begin + gap and ordered[j - gap] > value:
            ordered[j] = ordered[j - gap]
            row[j] = row[j - gap]
            j -= gap
        ordered[j] = value
        row[j] = moved


@inlined
def spread_projections(projected, begin, end, low, high, buckets):
    """Put a stretch in the order of its buckets; positions[b] becomes bucket b's end, counted from `begin`."""
    row, ordered, positions = projected.row, projected.ordered, projected.positions
    slope = slope_for(low, high, buckets)
    last = np.float64(buckets - ONE)
    for b in range(buckets + ONE):
        positions[b] = np.uint32(0)
    for i in range(begin, end):
        positions[np.uint64(bucket_of(ordered[i], low, slope, last)) + ONE] += np.uint32(1)
    for b in range(buckets):
        positions[b + ONE] += positions[b]
    for i in range(begin, end):
        b = np.uint64(bucket_of(ordered[i], low, slope, last))
        at = begin + np.uint64(positions[b])
        positions[b] += np.uint32(1)
        projected.spare_ordered[at] = ordered[i]
        projected.spare_row[at] = row[i]
    for i in range(begin, end):
        ordered[i] = projected.spare_ordered[i]
        row[i] = projected.spare_row[i]


@helper
def order_stretch(projected, begin, end):
    """Sort projected.ordered[begin:end], and projected.row along with it. About 10 ns per row."""
    size, low = end - begin, projected.ordered[begin]
    high = low
    for i in range(begin, end):
        low = smaller(low, projected.ordered[i])
        high = larger(high, projected.ordered[i])
    buckets = np.uint64(_FEWEST_BUCKETS)
    while buckets < size and buckets < np.uint64(SORT_BUCKETS):
        buckets *= TWO
    spread_projections(projected, begin, end, low, high, buckets)
    first = begin
    for b in range(buckets):
        after = begin + np.uint64(projected.positions[b])
        gap = first_gap(after - first)
        while gap > ONE:
            insert_in_order(projected, first, after, gap)
            gap //= _THREE
        first = after
    insert_in_order(projected, begin, end, ONE)


@inlined
def keys_in_order(projected, begin, end, base, items, keys):
    """Set keys[begin:end] to the sort keys of an ordered stretch. The code of a row is `base` (uint64) plus the index,
    in the stretch, of the first row with the same projection."""
    ordered = projected.ordered
    code = base
    for i in range(begin, end):
        if i > begin and ordered[i] != ordered[i - ONE]:
            code = base + (i - begin)
        keys[i] = as_key(code, items[np.uint64(projected.row[i])])


@inlined
def order_bucket(projected, begin, end, base, items, keys):
    """Order a stretch of rows, an opened bucket or all, and set its keys as `keys_in_order`."""
    if end - begin <= _FEW:  # most buckets; saves a call
        insert_in_order(projected, begin, end, ONE)
    else:
        order_stretch(projected, begin, end)
    keys_in_order(projected, begin, end, base, items, keys)


@inlined
def keep_cut(projected, begin, end, base, scan):
    """Set projected.cut if the best split is on the direction of the scan and between rows of this stretch."""
    split = scan.best.split
    index = np.uint64(split[CODE]) - base
    if split[FEATURE] == scan.number and index < end - begin:
        projected.cut[0] = projected.ordered[begin + index]
