"""What codes.py does with codes, done with projections: one block of rows at a time, of which the values are at hand.
Oracle: kernels/oblique/search.py, through grow/families/oblique/passes.py.

A direction of one feature has its values for projections: with weight 1, every value comes out as it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.project import LARGEST
from bigforest.kernels.common.binary_search import last_up_to
from bigforest.kernels.common.node_scan import BITS16, BITS32, ONE, SHIFT32, ZERO, class_of
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.oblique.directions import draw_cells, draw_column
from bigforest.kernels.oblique.mean_difference import STEPS, is_offered


class BlockValues(NamedTuple):
    """The values of a block. Feature f is row place[f, 1] of the matrix of place[f, 0] bytes.

    f32 float32 [columns, rows], f64 float64 [columns, rows], u8 uint8 [columns, rows], place uint32 [features, 2]
    """

    f32: NDArray[np.float32]
    f64: NDArray[np.float64]
    u8: NDArray[np.uint8]
    place: NDArray[np.uint32]


class ProjectionSplits(NamedTuple):
    """Splits of nodes, parents before their children; split k is on direction k.

    node, left, right uint32, as in level.Splits. cut float64, projections up to it go left.
    """

    node: NDArray[np.uint32]
    left: NDArray[np.uint32]
    right: NDArray[np.uint32]
    cut: NDArray[np.float64]


class ProjectionProbes(NamedTuple):
    """Questions about the projections of nodes, one entry each; values outside low..high are passed over.

    node       uint32
    direction  uint32, of one node only; entries of the same one that follow each other are projected on once
    low, high  float64
    slope      float64, buckets per half unit where they are of equal width; 0 where they are not
    buckets    uint64; offset uint64, where the buckets of this entry begin in the arrays of all
    edge       float64, smallest value of every bucket of every entry
    """

    node: NDArray[np.uint32]
    direction: NDArray[np.uint32]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    slope: NDArray[np.float64]
    buckets: NDArray[np.uint64]
    offset: NDArray[np.uint64]
    edge: NDArray[np.float64]


class Steps(NamedTuple):
    """How values are counted in steps, see means.Means.step.

    origin  float64 [features], the smallest value
    span    float64 [features], the range that has STEPS steps; 0 where every unit is one, and -1 without units
    rate    float64 [features], steps to a unit (space.Space.per_step); 0 where `span` says it
    """

    origin: NDArray[np.float64]
    span: NDArray[np.float64]
    rate: NDArray[np.float64]


class Summands(NamedTuple):
    """Features that are summed in nodes: those of node[k] are feature[start[k]:start[k + 1]].

    node uint32, start int64 [nodes + 1], feature uint32
    """

    node: NDArray[np.uint32]
    start: NDArray[np.int64]
    feature: NDArray[np.uint32]


@inlined
def add_block_values(column, weight, items, out):
    """out[i] += weight * column[row of items[i]]."""
    for i in range(np.uint64(items.size)):
        out[i] += weight * np.float64(column[items[i] >> SHIFT32])


@inlined
def project_values(cells, directions, number, items, out):
    """out[i] = projection of the row of items[i], as kernels/common/layout.py Terms defines it."""
    for i in range(np.uint64(items.size)):
        out[i] = 0.0
    for term in range(np.uint64(directions.start[number]), np.uint64(directions.start[number + ONE])):
        feature = np.uint64(directions.feature[term])
        slot = np.uint64(cells.place[feature, 1])
        if cells.place[feature, 0] == np.uint32(4):
            add_block_values(cells.f32[slot], directions.weight[term], items, out)
        elif cells.place[feature, 0] == np.uint32(8):
            add_block_values(cells.f64[slot], directions.weight[term], items, out)
        else:
            add_block_values(cells.u8[slot], directions.weight[term], items, out)


@kernel
def route_values(cells, directions, items, spare, value, cuts, begin, end, below, above):
    """Sort the items of the nodes that are split by the children they go to, stably; see level.route_block.

    value         float64 [n], scratch
    below, above  float64 [splits], in and out: largest projection sent left, smallest right, over all blocks so far
    """
    for k in range(np.uint64(cuts.node.size)):
        node, left, right = np.uint64(cuts.node[k]), np.uint64(cuts.left[k]), np.uint64(cuts.right[k])
        here = items[begin[node] : end[node]]
        project_values(cells, directions, k, here, value)
        at_l, at_r = ZERO, ZERO
        for i in range(np.uint64(here.size)):
            item = here[i]
            goes_left = value[i] <= cuts.cut[k]
            here[at_l] = item
            spare[at_r] = item
            at_l += np.uint64(goes_left)
            at_r += ONE - np.uint64(goes_left)
            if goes_left:
                below[k] = max(below[k], value[i])
            else:
                above[k] = min(above[k], value[i])
        for i in range(at_r):
            here[at_l + i] = spare[i]
        middle = begin[node] + at_l
        begin[left] = begin[node]
        end[left] = middle
        begin[right] = middle
        end[right] = end[node]


@inlined
def bucket_among(edge, value, low, slope):
    """Number of the last of the ascending edges that is not above `value`, which is not below the first; uint64."""
    last = np.uint64(edge.size) - ONE
    if slope > 0.0:
        bucket = np.uint64(min(np.int64((value * 0.5 - low * 0.5) * slope), np.int64(last)))
        while value < edge[bucket]:  # rounding
            bucket -= ONE
        while bucket < last and value >= edge[bucket + ONE]:
            bucket += ONE
        return bucket
    return last_up_to(edge, ZERO, np.uint64(edge.size), value)


@inlined
def project_band(cells, directions, bands, p, here, value):
    """Project the items of the node of band p, `here`, into `value`, unless that was done for the band before."""
    if p == ZERO or bands.direction[p] != bands.direction[p - ONE]:
        project_values(cells, directions, np.uint64(bands.direction[p]), here, value)


@kernel
def count_values(cells, directions, items, begin, end, bands, parts, weighted, value, counts, least, most, unfit):
    """Add the rows of the block to the histograms of the bands.

    items, begin, end  from route_values
    value        float64 [n], scratch
    parts, weighted  of grow/out_of_core/node_stats.py
    counts       uint32, flat: part k of bucket b of band p at (offset[p] + b) * parts + k, added to
    least, most  float64 [bands], in and out: smallest and largest projection of the node, over all blocks so far
    unfit        uint32 [bands], added to: rows whose projection is not finite
    """
    for p in range(np.uint64(bands.node.size)):
        here = items[begin[bands.node[p]] : end[bands.node[p]]]
        project_band(cells, directions, bands, p, here, value)
        low, high, slope, offset = bands.low[p], bands.high[p], bands.slope[p], bands.offset[p]
        edge = bands.edge[offset : offset + bands.buckets[p]]
        for i in range(np.uint64(here.size)):
            each = value[i]
            least[p] = min(least[p], each) if each == each else least[p]
            most[p] = max(most[p], each) if each == each else most[p]
            unfit[p] += np.uint32(not abs(each) <= LARGEST)
            if low <= each and each <= high:
                at = (offset + bucket_among(edge, each, low, slope)) * parts
                counts[at + class_of(here[i])] += np.uint32(here[i] & BITS16)
                if weighted:
                    counts[at + parts - ONE] += np.uint32(1)


@kernel
def collect_values(cells, directions, items, begin, end, bands, wanted, value, found, tags, ends):
    """Write the projections of the rows that fall into wanted buckets, band by band; arguments as in count_values.

    wanted  bool, flat: bucket b of band p at offset[p] + b
    found   float64, tags uint32 (class << 16 | multiplicity), out, with room for all rows of all bands
    ends    uint64 [bands], out: where those of a band end
    """
    at = ZERO
    for p in range(np.uint64(bands.node.size)):
        here = items[begin[bands.node[p]] : end[bands.node[p]]]
        project_band(cells, directions, bands, p, here, value)
        low, high, slope, offset = bands.low[p], bands.high[p], bands.slope[p], bands.offset[p]
        edge = bands.edge[offset : offset + bands.buckets[p]]
        for i in range(np.uint64(here.size)):
            each = value[i]
            if low <= each and each <= high and wanted[offset + bucket_among(edge, each, low, slope)]:
                found[at] = each
                tags[at] = np.uint32(here[i] & BITS32)
                at += ONE
        ends[p] = at


@inlined
def add_steps(column, origin, span, rate, items, sums):
    """sums[k] += steps of the items of class k in a column, times their multiplicity; sums int64 [classes]."""
    for i in range(np.uint64(items.size)):
        value = np.float64(column[items[i] >> SHIFT32])
        if rate > 0.0:
            step = np.rint((value - origin) * rate)
        else:
            step = value - origin if span == 0.0 else np.rint((value - origin) / span * STEPS)
        sums[class_of(items[i])] += np.int64(step) * np.int64(items[i] & BITS16)


@kernel
def sum_values(cells, items, begin, end, summands, steps, sums):
    """Add the steps of the rows of some nodes, times their multiplicity, to sums int64 [summands.feature, classes].

    items, begin, end  from route_values
    """
    for k in range(np.uint64(summands.node.size)):
        node = np.uint64(summands.node[k])
        here = items[begin[node] : end[node]]
        for at in range(np.uint64(summands.start[k]), np.uint64(summands.start[k + ONE])):
            feature = np.uint64(summands.feature[at])
            origin, span, rate = steps.origin[feature], steps.span[feature], steps.rate[feature]
            if span < 0.0:
                continue
            slot = np.uint64(cells.place[feature, 1])
            if cells.place[feature, 0] == np.uint32(4):
                add_steps(cells.f32[slot], origin, span, rate, here, sums[at])
            elif cells.place[feature, 0] == np.uint32(8):
                add_steps(cells.f64[slot], origin, span, rate, here, sums[at])
            else:
                add_steps(cells.u8[slot], origin, span, rate, here, sums[at])


@kernel
def begin_directions(sparse, key, drawn):
    """Draw the cells of the node `key`, before its columns."""
    draw_cells(sparse, key, drawn.cells)


@kernel
def draw_direction(sparse, key, column, at, drawn):
    """Write the terms of a column of the node `key` into the first half of `drawn`; see directions.draw_column."""
    return draw_column(sparse, key, column, at, drawn, ZERO)


@kernel
def offered_differences(key, columns, features, offered):
    """Set offered[j], bool, to whether the node of this key looks at difference j; see means.is_offered."""
    for j in range(np.uint64(offered.size)):
        offered[j] = is_offered(key, j, columns, features)
