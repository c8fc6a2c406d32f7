"""Process the rows of a block in a pass. Route them through the newest splits of a tree. Then count, collect and sum
them for the probes of the nodes whose splits are searched. A probe is a request, such as a histogram. Oracles:
tests/naive/tree.py, tests/naive/oblique.py, through grow/out_of_core/passes.py.

A column is a feature or a direction. The type of the argument `terms` decides for which a kernel is compiled:

    terms    cells         a column holds
    None     Codes         codes of a feature, uint32
    Terms    BlockValues   projections of the values on a direction, float64; for one feature of weight 1 its values

Rows are numbered within the block, so tables may have any length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import gather_column, of_column, on_column
from bigforest.kernels.columns.project import LARGEST, add_values
from bigforest.kernels.common.binary_search import last_up_to
from bigforest.kernels.common.node_scan import BITS16, BITS32, ONE, SHIFT32, TWO, ZERO, ZERO_I64, class_of
from bigforest.kernels.common.partition import partition_codes, partition_projections
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.numbers import larger, smaller
from bigforest.kernels.oblique.mean_difference import STEPS
from bigforest.kernels.scan.categorical_missing import missing_last

_THREE = np.uint64(3)
_SEVEN = np.uint64(7)

# Routing rules of a split: by code; by code, but missing values (code 0) to the right; listed levels to the left;
# listed levels to the right.
BY_CODE, MISSING_RIGHT, LISTED_LEFT, LISTED_RIGHT = range(4)
# The code of a missing value that goes right. No feature has a code this large.
AFTER_ALL = 0xFFFFFFFF
# Marks of a probe, as bits: a regression target differs from the centre; a projection is not finite.
DIFFERS, NOT_FINITE = 1, 2


class BlockValues(NamedTuple):
    """The values of a block. Feature f is row place[f, 1] of the matrix of place[f, 0] bytes.

    f32 float32 [columns, rows], f64 float64 [columns, rows], u8 uint8 [columns, rows], place uint32 [features, 2]
    """

    f32: NDArray[np.float32]
    f64: NDArray[np.float64]
    u8: NDArray[np.uint8]
    place: NDArray[np.uint32]


class Splits(NamedTuple):
    """Splits of nodes, one entry each, parents before their children. Nodes are numbered from 0, the root.

    node, column  uint32
    cut           uint32 or float64, the largest value of the column that goes left; 0 if levels are listed
    left, right   uint32, the children
    way           uint8, a routing rule, such as BY_CODE
    listed        uint8, listed levels of all splits as bits: level c of a split is bit c % 8 of listed[start + c // 8]
    start         uint64, first byte of a split in `listed`
    """

    node: NDArray[np.uint32]
    column: NDArray[np.uint32]
    cut: NDArray[Any]
    left: NDArray[np.uint32]
    right: NDArray[np.uint32]
    way: NDArray[np.uint8]
    start: NDArray[np.uint64]
    listed: NDArray[np.uint8]


class Probes(NamedTuple):
    """Probes of columns in nodes, one entry each. Rows outside of all buckets are not counted.

    node     uint32
    column   uint32; consecutive entries with the same node and column read the column once
    low      uint32 or float64, the smallest value of the first bucket
    high     type of low, the largest value of the last bucket; ignored for codes
    scale    for codes: the bucket of a code is (code - low) >> scale. For projections: number of buckets per unit of
             half the projection if all buckets have the same width, else 0
    buckets  uint64, number of buckets
    offset   uint64, index of the first bucket of this entry in the arrays of all entries
    edge     float64, the smallest projection of every bucket of every entry; empty for codes
    centre   int64, subtracted from regression targets
    """

    node: NDArray[np.uint32]
    column: NDArray[np.uint32]
    low: NDArray[Any]
    high: NDArray[Any]
    scale: NDArray[Any]
    buckets: NDArray[np.uint64]
    offset: NDArray[np.uint64]
    edge: NDArray[Any]
    centre: NDArray[np.int64]


class Steps(NamedTuple):
    """Steps in which values are counted, see kernels/oblique/mean_difference.py Means.step.

    origin  float64 [features], the smallest value
    span    float64 [features], the range that is divided into STEPS steps; 0 if each unit is a step or `rate` is above
            0; -1 for a feature that is not summed
    rate    float64 [features], steps per unit (kernels/subspace/columns.py); 0 if `span` determines the steps
    """

    origin: NDArray[np.float64]
    span: NDArray[np.float64]
    rate: NDArray[np.float64]


class Summands(NamedTuple):
    """Features that are summed in nodes: node[k] has feature[start[k]:start[k + 1]].

    node uint32, start int64 [nodes + 1], feature uint32
    """

    node: NDArray[np.uint32]
    start: NDArray[np.int64]
    feature: NDArray[np.uint32]


@inlined
def read_codes(cells, column, items, out):
    """Set out[i] to the code of feature `column`, uint64, in the row of items[i]."""
    on_column(cells, cells.place, column, gather_column, (items, out))


@inlined
def project_rows(terms, cells, column, items, out):
    """Set out[i] to the projection on direction `column` of the row of items[i], see kernels/common/layout.py Terms."""
    for i in range(np.uint64(items.size)):
        out[i] = 0.0
    for term in range(np.uint64(terms.start[column]), np.uint64(terms.start[column + ONE])):
        on_column(cells, cells.place, np.uint64(terms.feature[term]), add_values, (terms.weight[term], items, out))


read_column = of_column(read_codes, project_rows)


@inlined
def read_probe(cells, terms, probes, p, here, out):
    """Read the column of probe p for `here`, the items of its node, into `out`, unless the previous probe did."""
    before = p - ONE
    if p == ZERO or probes.node[p] != probes.node[before] or probes.column[p] != probes.column[before]:
        read_column(terms, cells, np.uint64(probes.column[p]), here, out)


@inlined
def look_up_sides(fetched, n, listed, left):
    """Replace codes of levels by 0 for the left side and 1 for the right one; left: True if listed levels go left."""
    for i in range(n):
        level = np.uint64(fetched[i])
        here = (listed[level >> _THREE] >> np.uint8(level & _SEVEN)) & np.uint8(1)
        fetched[i] = np.uint32(here) ^ np.uint32(left)


@inlined
def part_codes(read, splits, k, here, spare):
    """Partition the items `here` stably by split k: items on the left first. `read` has their codes, and is changed.
    Return as partition_codes."""
    n = np.uint64(here.size)
    if splits.way[k] == MISSING_RIGHT:
        missing_last(read, n, np.uint32(AFTER_ALL - 1))
    elif splits.way[k] != BY_CODE:
        look_up_sides(read, n, splits.listed[splits.start[k] :], splits.way[k] == LISTED_LEFT)
    return partition_codes(read, splits.cut[k], here, spare)


@inlined
def part_projections(terms, read, splits, k, here, spare):
    """Partition the items `here` as `part_codes`, by their projections `read`."""
    return partition_projections(read, splits.cut[k], here, spare)


part_rows = of_column(part_codes, part_projections)


@kernel
def route_rows(cells, terms, items, spare, read, splits, begin, end, below, above):
    """Partition the items of each split node stably between its children.

    items, spare  uint64 [n] (see kernels/common/node_scan.py), mutated
    read          [n], scratch of the type of a column
    begin, end    uint64 [nodes], in and out: node i has items[begin[i]:end[i]], an inner node the items of its subtree
    below, above  [splits], in and out: largest value that went left and smallest that went right, over all blocks so
                  far. Undefined if levels are listed; above is AFTER_ALL if no value went right
    """
    for k in range(np.uint64(splits.node.size)):
        node, left, right = np.uint64(splits.node[k]), np.uint64(splits.left[k]), np.uint64(splits.right[k])
        here = items[begin[node] : end[node]]
        read_column(terms, cells, np.uint64(splits.column[k]), here, read)
        size_l, largest, smallest = part_rows(terms, read, splits, k, here, spare)
        middle = begin[node] + size_l
        begin[left] = begin[node]
        end[left] = middle
        begin[right] = middle
        end[right] = end[node]
        if size_l > ZERO:
            below[k] = larger(below[k], largest)
        if middle < end[node]:
            above[k] = smaller(above[k], smallest)


@inlined
def bucket_among(edge, value, low, slope):
    """Return the number of the last of the ascending edges up to `value`, uint64. The first edge is at most `value`."""
    last = np.uint64(edge.size) - ONE
    if slope > 0.0:
        bucket = np.uint64(smaller(np.int64((value * 0.5 - low * 0.5) * slope), np.int64(last)))
        while value < edge[bucket]:  # rounding
            bucket -= ONE
        while bucket < last and value >= edge[bucket + ONE]:
            bucket += ONE
        return bucket
    return last_up_to(edge, ZERO, np.uint64(edge.size), value)


@inlined
def bucket_of_code(code, low, high, scale, edge, buckets):
    """Return True if a code is in a bucket of a probe, and the number of the bucket, uint64."""
    bucket = np.uint64((code - low) >> scale)
    return bucket < buckets, bucket


@inlined
def bucket_of_projection(terms, each, low, high, scale, edge, buckets):
    """Return True if a projection is in a bucket of a probe, and the number of the bucket, uint64."""
    inside = low <= each and each <= high
    return inside, bucket_among(edge, each, low, scale) if inside else ZERO


bucket_of = of_column(bucket_of_code, bucket_of_projection)


@inlined
def note_codes(first, read, n, p, low, high, mark):
    """Widen the range low[p] .. high[p] by the codes read[:n]. Codes below `first` do not change low[p]."""
    smallest, largest = low[p], high[p]
    for i in range(n):
        smallest = smaller(smallest, read[i])
        largest = larger(largest, read[i])
    if smallest < first:
        smallest = low[p]
        for i in range(n):
            smallest = smaller(smallest, read[i] if read[i] >= first else smallest)
    low[p], high[p] = smallest, largest


@inlined
def note_projections(terms, first, read, n, p, low, high, mark):
    """Widen the range low[p] .. high[p] by the projections read[:n]. Set NOT_FINITE in mark[p] if one is not finite.

    first  ignored
    """
    smallest, largest, lost = low[p], high[p], ZERO
    for i in range(n):
        smallest = smaller(smallest, read[i])
        largest = larger(largest, read[i])
        lost += np.uint64(not abs(read[i]) <= LARGEST)
    low[p], high[p] = smallest, largest
    mark[p] |= np.int64(NOT_FINITE if lost != ZERO else 0)


note_range = of_column(note_codes, note_projections)


@inlined
def number_of(item, value, centre):
    """Return the regression target of an item minus the centre, and this number times the multiplicity."""
    number = value[item >> SHIFT32] - centre
    return number, np.int64(item & BITS16) * number


@kernel
def count_rows(cells, terms, items, begin, end, value, probes, parts, weighted, read, counts, low, high, mark):
    """Add the rows of the block to the histograms of the probes.

    items, begin, end  from route_rows
    value      int64 [rows of the block], regression targets; None for classes
    parts      number of statistics of a bucket, the slots of grow/out_of_core/context.py
    weighted   True if rows have weights: the last statistic counts rows
    read       [n], scratch of the type of a column
    counts     flat, added to: statistic k of bucket b of probe p is at (offset[p] + b) * parts + k. uint32 for classes,
               int64 for regression
    low, high  [probes], in and out: smallest and largest cell of the column in the node, over all blocks so far. Codes
               below the first bucket of the probe do not count for `low`
    mark       int64 [probes], in and out: DIFFERS, NOT_FINITE
    """
    for p in range(np.uint64(probes.node.size)):
        node = np.uint64(probes.node[p])
        here = items[begin[node] : end[node]]
        n = np.uint64(here.size)
        if n == ZERO:
            continue
        read_probe(cells, terms, probes, p, here, read)
        first, last, scale = probes.low[p], probes.high[p], probes.scale[p]
        buckets, offset = probes.buckets[p], probes.offset[p]
        edge = probes.edge[offset : offset + buckets]
        note_range(terms, first, read, n, p, low, high, mark)
        differs = ZERO_I64
        for i in range(n):
            item, each = here[i], read[i]
            inside, bucket = bucket_of(terms, each, first, last, scale, edge, buckets)
            at = (offset + bucket) * parts
            if value is not None:
                number, by_weight = number_of(item, value, probes.centre[p])
                differs |= number
            if inside:
                if value is None:
                    counts[at + class_of(item)] += np.uint32(item & BITS16)
                else:
                    counts[at] += np.int64(item & BITS16)
                    counts[at + ONE] += by_weight
                    counts[at + TWO] += larger(by_weight, ZERO_I64)
                if weighted:
                    counts[at + parts - ONE] += np.uint32(1)
        mark[p] |= np.int64(DIFFERS if differs != 0 else 0)


@kernel
def collect_rows(cells, terms, items, begin, end, value, probes, wanted, read, kept, tags, numbers, ends):
    """Write the rows in wanted buckets, probe by probe; arguments as in count_rows.

    wanted   bool, flat: bucket b of probe p at offset[p] + b
    kept     codes or projections, out, with room for all rows of all probes
    tags     uint32, out, of the same length: class << 16 | multiplicity
    numbers  int64, out, of the same length: (target - centre) * multiplicity; None for classes
    ends     uint64 [probes], out: where the rows of a probe end
    """
    at = ZERO
    for p in range(np.uint64(probes.node.size)):
        node = np.uint64(probes.node[p])
        here = items[begin[node] : end[node]]
        if here.size > 0:
            read_probe(cells, terms, probes, p, here, read)
            first, last, scale = probes.low[p], probes.high[p], probes.scale[p]
            buckets, offset = probes.buckets[p], probes.offset[p]
            edge = probes.edge[offset : offset + buckets]
            for i in range(np.uint64(here.size)):
                inside, bucket = bucket_of(terms, read[i], first, last, scale, edge, buckets)
                if inside and wanted[offset + bucket]:
                    kept[at] = read[i]
                    tags[at] = np.uint32(here[i] & BITS32)
                    if value is not None:
                        _, numbers[at] = number_of(here[i], value, probes.centre[p])
                    at += ONE
        ends[p] = at


@inlined
def add_steps(column, origin, span, rate, items, sums):
    """Add to sums[k] the values, in steps, of the items of class k times their multiplicities; sums int64 [classes]."""
    for i in range(np.uint64(items.size)):
        value = np.float64(column[items[i] >> SHIFT32])
        if rate > 0.0:
            step = np.rint((value - origin) * rate)
        else:
            step = value - origin if span == 0.0 else np.rint((value - origin) / span * STEPS)
        sums[class_of(items[i])] += np.int64(step) * np.int64(items[i] & BITS16)


@kernel
def sum_rows(cells, items, begin, end, summands, steps, sums):
    """Sum the values of features in nodes: steps times the multiplicities of the rows.

    cells              BlockValues
    items, begin, end  from route_rows
    sums               int64 [entries of summands.feature, classes], added to
    """
    for k in range(np.uint64(summands.node.size)):
        node = np.uint64(summands.node[k])
        here = items[begin[node] : end[node]]
        for at in range(np.uint64(summands.start[k]), np.uint64(summands.start[k + ONE])):
            feature = np.uint64(summands.feature[at])
            origin, span, rate = steps.origin[feature], steps.span[feature], steps.rate[feature]
            if span >= 0.0:
                on_column(cells, cells.place, feature, add_steps, (origin, span, rate, here, sums[at]))
