"""Split a node of a tree in a subspace (Ho 1995): by a perceptron, or by central axis projection.

A node may draw columns, and uses all columns if the drawn ones cannot split it.

central axis  (section 2.1) cuts at one of several stops between the two class means that are farthest apart.
perceptron    (section 2.2) separates the classes nearer to one of these means from the others. It is trained by the
              fixed-increment rule (Duda and Hart 1973, section 5.5) on the rows in their order, each with a constant
              added as a column. If it does not split the node, the central axis does.

Oracle: tests/naive/subspace.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.project import LARGEST, range_of
from bigforest.kernels.common.layout import OBLIQUE
from bigforest.kernels.common.node_scan import ONE, SHIFT32, ZERO, class_of
from bigforest.kernels.common.partition import partition_rows, sum_classes
from bigforest.kernels.common.rng import COLUMNS, GOLDEN, below, mix
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.bit_sums import WORD, add_bits
from bigforest.kernels.llvm.numbers import larger, smaller
from bigforest.kernels.subspace.columns import (
    distance,
    farthest_classes,
    find_class_means,
    group_by_class,
    has_bits,
    weigh_row,
    weigh_rows,
)

# Largest sum of the weights of columns that are stored as bits (columns.py), before they are rounded to whole numbers
# of 32 bits. Sums are then exact in any order.
MOST_WEIGHT = 2.0**30


@inlined
def aim_axis(subspace, first, second):
    """Set the current direction to the mean of class `second` minus the mean of class `first`, in scaled columns.

    If columns are stored as bits, weights are whole numbers: the difference times a power of two, rounded. Before
    rounding, the largest weight times the number of columns is at most MOST_WEIGHT, and more than half of it.
    """
    mean, weight = subspace.mean, subspace.weight
    most = 0.0
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        weight[c] = (mean[second, c] - mean[first, c]) * subspace.space.scale[c]
        most = larger(most, abs(weight[c]))
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
    """Return the projection of the mean of class k on the current direction."""
    total = 0.0
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        total += subspace.weight[c] * (subspace.space.low[c] + subspace.mean[k, c])
    return total


@inlined
def place_stops(subspace, begin, end):
    """Set stop[j] to begin + (end - begin) * j / steps, except the first to -inf and the last to inf."""
    steps = np.uint64(subspace.steps)
    for j in range(ONE, steps):
        subspace.stop[j] = begin + (end - begin) * (np.float64(j) / np.float64(steps))
    subspace.stop[ZERO] = -np.inf
    subspace.stop[steps] = np.inf


@inlined
def count_stops(subspace, items, begin, end):
    """Set hist[j, k] to the number of rows of class k with stop[j - 1] < projection <= stop[j], for j from 1 on."""
    steps = np.uint64(subspace.steps)
    stop, hist = subspace.stop, subspace.hist
    for j in range(steps + ONE):
        for k in range(np.uint64(hist.shape[1])):
            hist[j, k] = np.uint32(0)
    slope = smaller(np.float64(steps) / (end - begin), LARGEST)
    last = np.float64(steps - ONE)
    for i in range(np.uint64(items.size)):
        value = subspace.value[i]
        j = np.uint64(np.int64(smaller(larger((value - begin) * slope, 0.0), last))) + ONE  # rounding may be off by one
        while value > stop[j]:
            j += ONE
        while value <= stop[j - ONE]:
            j -= ONE
        hist[j, class_of(items[i])] += np.uint32(1)


@inlined
def best_stop(subspace, total, size, min_leaf):
    """Return the stop with the smallest error, the first among ties; 0 if no stop leaves both sides min_leaf rows.

    Errors are the rows of each class on the side that has fewer of them.
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
            error += smaller(left[k], total[k] - left[k])
        if error < least and smaller(size_l, size - size_l) >= min_leaf:
            least = error
            best = j
    return best


@inlined
def cut_axis(subspace, node, min_leaf, first, second):
    """Project the rows on the axis between two class means; return the cut, and True if there is a split.

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


@inlined
def choose_sides(subspace, total, first, second):
    """Set far[k] to True if the mean of class k is nearer to the mean of `second` than to the mean of `first`."""
    for k in range(np.uint64(total.size)):
        subspace.far[k] = k == second
        if total[k] > 0 and k != first and k != second:
            subspace.far[k] = distance(subspace, k, second) < distance(subspace, k, first)


@inlined
def add_row(subspace, row, sign):
    """Add a row of the table, in scaled columns, times `sign`, int32, to the current direction."""
    space = subspace.space
    if has_bits(subspace):
        for number in range(np.uint64(space.bits.shape[1])):
            subspace.picked[number] = space.bits[row, number] & subspace.mask[number]
        add_bits(subspace.picked, sign, subspace.whole)
    else:
        for j in range(subspace.size[0]):
            c = np.uint64(subspace.column[j])
            subspace.weight[c] += np.float64(sign) * space.value[row, c] * space.scale[c]


@inlined
def learn_row(subspace, row, far, cut):
    """Correct the current direction if it sends a row (uint64) to the wrong side.

    far  True if the row belongs on the far side

    Return the new cut, and True if the row was on the wrong side.
    """
    if (weigh_row(subspace, row) > cut) == far:
        return cut, False
    add_row(subspace, row, np.int32(1) if far else np.int32(-1))
    return cut - (1.0 if far else -1.0), True


@inlined
def count_errors(subspace, items, cut):
    """Return the number of rows that the current direction sends to the wrong side."""
    errors = ZERO
    for i in range(np.uint64(items.size)):
        errors += np.uint64((weigh_row(subspace, items[i] >> SHIFT32) > cut) != subspace.far[class_of(items[i])])
    return errors


@inlined
def keep_direction(subspace):
    """Save the current direction."""
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        subspace.kept[c] = np.float64(subspace.whole[c]) if has_bits(subspace) else subspace.weight[c]


@inlined
def take_kept(subspace):
    """Restore the saved direction."""
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        subspace.weight[c] = subspace.kept[c]
        if has_bits(subspace):
            subspace.whole[c] = np.int32(subspace.kept[c])


@inlined
def train_perceptron(subspace, items):
    """Train a perceptron to separate the far classes. Make its best direction the current one, and return the cut.

    Training stops once the direction at the end of a pass has no errors, or after `epochs` passes. The best direction
    has the fewest errors at the end of a pass, the first among ties.
    """
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        subspace.weight[c] = 0.0
        if has_bits(subspace):
            subspace.whole[c] = np.int32(0)
    least = np.uint64(items.size) + ONE
    kept_cut, cut = 0.0, 0.0
    for _ in range(subspace.epochs):
        clean = True
        for i in range(np.uint64(items.size)):
            cut, wrong = learn_row(subspace, items[i] >> SHIFT32, subspace.far[class_of(items[i])], cut)
            clean = clean and not wrong
        errors = ZERO if clean else count_errors(subspace, items, cut)
        if errors < least:
            least = errors
            kept_cut = cut
            keep_direction(subspace)
        if errors == ZERO:
            break
    take_kept(subspace)
    return kept_cut


@inlined
def count_left(subspace, items, cut):
    """Set subspace.left[k] to the number of rows of class k that go left."""
    for k in range(np.uint64(subspace.left.size)):
        subspace.left[k] = 0
    for i in range(np.uint64(items.size)):
        subspace.left[class_of(items[i])] += np.int64(subspace.value[i] <= cut)


@inlined
def tells_apart(left, total, size, min_leaf):
    """Return True if both sides have min_leaf rows, and not all classes have their majority on the same side.

    left, total  int64 [classes], number of rows of each class on the left and in the node
    size         int64, number of rows of the node
    """
    size_l = np.int64(0)
    all_left, all_right = True, True
    for k in range(np.uint64(total.size)):
        size_l += left[k]
        if total[k] > 0:
            all_left = all_left and 2 * left[k] > total[k]
            all_right = all_right and 2 * left[k] < total[k]
    return smaller(size_l, size - size_l) >= min_leaf and not all_left and not all_right


@inlined
def cut_perceptron(subspace, node, min_leaf, first, second):
    """Train a perceptron on the classes near `first` against the classes near `second`.

    Return the cut, and True if the cut is a split. A projection of at most the cut goes left; the projections are in
    subspace.value.
    """
    choose_sides(subspace, node.total, first, second)
    cut = train_perceptron(subspace, node.items)
    weigh_rows(subspace, node.items)
    low, high = range_of(subspace.value, np.uint64(node.items.size))
    count_left(subspace, node.items, cut)
    return cut, low < high and tells_apart(subspace.left, node.total, node.weight, min_leaf)


@inlined
def draw_columns(subspace, key, count):
    """Draw `count` columns (uint64) for the node of this key, ascending: selection sampling (Knuth, TAOCP 3.4.2 S).

    If nodes use all columns, these are set already.
    """
    columns = np.uint64(subspace.column.size)
    if subspace.drawn == columns:
        return
    subspace.size[ZERO] = count
    for number in range(np.uint64(subspace.mask.size)):
        subspace.mask[number] = ZERO
    state = mix(key ^ COLUMNS)
    have = ZERO
    for c in range(columns):
        state += GOLDEN
        taken = below(mix(state), columns - c) < count - have
        if taken:
            subspace.column[have] = np.uint32(c)
            have += ONE
        if has_bits(subspace):
            subspace.whole[c] = np.int32(0)
            subspace.mask[c // np.uint64(WORD)] |= np.uint64(taken) << (c % np.uint64(WORD))


@inlined
def find_cut(subspace, node, min_leaf):
    """Find a split of the node in its columns; return the cut of the projections, and True if there is a split."""
    find_class_means(subspace, node.total)
    first, second = farthest_classes(subspace, node.total)
    cut, splits = 0.0, False
    if first != second:
        if subspace.epochs > 0:
            cut, splits = cut_perceptron(subspace, node, min_leaf, first, second)
        if not splits:
            cut, splits = cut_axis(subspace, node, min_leaf, first, second)
    return cut, splits


@inlined
def split_in_subspace(subspace, node, min_leaf, scratch, nodes, pool, number):
    """Send the rows of a node to the sides of its split, and write it as node `number`.

    nodes  CodeTree; pool: DirectionExtras of kernels/oblique/search.py

    Return the number of rows on the left, 0 if there is no split. scratch.total_l is set to their class weights.
    """
    group_by_class(node.items, node.total, subspace.start, subspace.order)
    cut, splits = 0.0, False
    count, columns = subspace.drawn, np.uint64(subspace.column.size)
    while not splits and count <= columns:
        draw_columns(subspace, node.key, count)
        cut, splits = find_cut(subspace, node, min_leaf)
        count = columns if count < columns else columns + ONE
    if not splits:
        return ZERO
    size_l = partition_rows(subspace.value, cut, node.items, scratch.work.keys)
    sum_classes(node.items[:size_l], scratch.total_l)
    nodes.feature[number] = OBLIQUE
    pool.threshold[number] = cut
    used = pool.used[0]
    for j in range(subspace.size[0]):
        c = np.uint64(subspace.column[j])
        if subspace.weight[c] != 0.0:
            pool.feature[used] = subspace.space.feature[c]
            pool.weight[used] = subspace.weight[c]
            used += ONE
    pool.size[number] = np.uint32(used - pool.used[0])
    pool.used[0] = used
    return size_l
