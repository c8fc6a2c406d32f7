"""Central axis projection (Ho 1995, section 2.1): a cut at one of several stops between the two class means farthest
apart.

Oracle: tests/naive/subspace.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.project import LARGEST, range_of
from bigforest.kernels.common.node_scan import ONE, ZERO, class_of
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.subspace.columns import has_bits, weigh_rows

# Largest sum of the weights of bits: whole numbers of 32 bits, whose sums are exact in any order.
MOST_WEIGHT = 2.0**30


@inlined
def aim_axis(subspace, first, second):
    """Set the current direction to the difference of two class means, with columns scaled: that of `second` minus that
    of `first`.

    For bits the weights are whole numbers: the difference times a power of two, rounded. The power is such that the
    largest weight times the number of columns is at most MOST_WEIGHT and more than half of it.
    """
    mean, weight = subspace.mean, subspace.weight
    most = 0.0
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        weight[c] = (mean[second, c] - mean[first, c]) * subspace.space.scale[c]
        most = max(most, abs(weight[c]))
    if has_bits(subspace):
        bound = most * np.float64(subspace.size[0])
        scale = 1.0
        while bound * scale > MOST_WEIGHT:
            scale *= 0.5
        while bound * scale <= 0.5 * MOST_WEIGHT:
            scale *= 2.0
        for j in range(subspace.size[0]):
            c = np.uint64(subspace.column[j])
            weight[c] = np.rint(weight[c] * scale)
            subspace.whole[c] = np.int32(weight[c])


@inlined
def weigh_mean(subspace, k):
    """Projection of the mean of class k on the current direction."""
    total = 0.0
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        total += subspace.weight[c] * (subspace.space.low[c] + subspace.mean[k, c])
    return total


@inlined
def place_stops(subspace, begin, end):
    """stop[j] = a j-th of the way from `begin` to `end`, in `steps`; the first is -inf and the last inf."""
    steps = np.uint64(subspace.steps)
    for j in range(ONE, steps):
        subspace.stop[j] = begin + (end - begin) * (np.float64(j) / np.float64(steps))
    subspace.stop[ZERO] = -np.inf
    subspace.stop[steps] = np.inf


@inlined
def count_stops(subspace, items, begin, end):
    """hist[j, k] = rows of class k with a projection above stop[j - 1] and at most stop[j], for j from 1 on."""
    steps = np.uint64(subspace.steps)
    stop, hist = subspace.stop, subspace.hist
    for j in range(steps + ONE):
        for k in range(np.uint64(hist.shape[1])):
            hist[j, k] = np.uint32(0)
    slope = min(np.float64(steps) / (end - begin), LARGEST)
    last = np.float64(steps - ONE)
    for i in range(np.uint64(items.size)):
        value = subspace.value[i]
        j = np.uint64(np.int64(min(max((value - begin) * slope, 0.0), last))) + ONE  # rounding may be off by one
        while value > stop[j]:
            j += ONE
        while value <= stop[j - ONE]:
            j -= ONE
        hist[j, class_of(items[i])] += np.uint32(1)


@inlined
def best_stop(subspace, total, size, min_leaf):
    """The stop with the smallest error, the first among ties; 0 if none leaves both sides min_leaf rows.

    The error is the sum over classes of the rows on the side that has fewer of them.
    """
    left, hist = subspace.left, subspace.hist
    for k in range(np.uint64(total.size)):
        left[k] = 0
    best = ZERO
    least = np.int64(size) + 1
    size_l = np.int64(0)
    for j in range(ONE, np.uint64(subspace.steps)):
        error = np.int64(0)
        for k in range(np.uint64(total.size)):
            left[k] += np.int64(hist[j, k])
            size_l += np.int64(hist[j, k])
            error += min(left[k], total[k] - left[k])
        if error < least and min(size_l, size - size_l) >= min_leaf:
            least = error
            best = j
    return best


@inlined
def cut_axis(subspace, node, min_leaf, first, second):
    """Project the rows on the axis between two class means and find the cut; returns it, and whether there is one.

    A projection of at most the cut goes left; the projections are in subspace.value.
    """
    aim_axis(subspace, first, second)
    weigh_rows(subspace, node.items)
    begin, end = weigh_mean(subspace, first), weigh_mean(subspace, second)
    low, high = range_of(subspace.value, np.uint64(node.items.size))
    if not (low < high and begin < end and end - begin <= LARGEST):
        return 0.0, False
    place_stops(subspace, begin, end)
    count_stops(subspace, node.items, begin, end)
    best = best_stop(subspace, node.total, node.weight, min_leaf)
    return subspace.stop[best], best != ZERO
