"""Perceptron training of a node's direction (Ho 1995, section 2.2). Oracle: tests/naive/subspace.py.

Fixed-increment rule (Duda and Hart 1973, section 5.5) on rows augmented by a one, in the order of the rows.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.columns.project import range_of
from bigforest.kernels.common.node_scan import ONE, SHIFT32, ZERO, class_of
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.bit_sums import add_bits
from bigforest.kernels.subspace.columns import distance, has_bits, weigh_row, weigh_rows


@inlined
def choose_sides(subspace, total, first, second):
    """far[k] = whether the mean of class k is nearer to that of `second`; `first` and `second` are on their own
    sides."""
    for k in range(np.uint64(total.size)):
        subspace.far[k] = k == second
        if total[k] > 0 and k != first and k != second:
            subspace.far[k] = distance(subspace, k, second) < distance(subspace, k, first)


@inlined
def add_row(subspace, row, sign):
    """Add a row of the table, with columns scaled, times sign, int32, to the current direction."""
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
    """Correct the current direction if it sends a row (uint64) to the wrong side; returns the cut then, and whether it
    did. far: whether the row belongs on the far side."""
    if (weigh_row(subspace, row) > cut) == far:
        return cut, False
    add_row(subspace, row, np.int32(1) if far else np.int32(-1))
    return cut - (1.0 if far else -1.0), True


@inlined
def count_errors(subspace, items, cut):
    """Number of rows that the current direction sends to the wrong side."""
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
    """Train on which rows are on the far side; the best direction becomes the current one, and its cut is returned.

    Stops after a pass without error, or after `epochs` passes. The best direction has the fewest errors after a pass,
    the first among ties.
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
    """subspace.left[k] = rows of class k that go left."""
    for k in range(np.uint64(subspace.left.size)):
        subspace.left[k] = 0
    for i in range(np.uint64(items.size)):
        subspace.left[class_of(items[i])] += np.int64(subspace.value[i] <= cut)


@inlined
def tells_apart(left, total, size, min_leaf):
    """Whether both sides have min_leaf rows, and not all classes have their majority on the same side.

    left, total  int64 [classes], of the left side and of both; size int64, of both
    """
    size_l = np.int64(0)
    all_left, all_right = True, True
    for k in range(np.uint64(total.size)):
        size_l += left[k]
        if total[k] > 0:
            all_left = all_left and 2 * left[k] > total[k]
            all_right = all_right and 2 * left[k] < total[k]
    return min(size_l, size - size_l) >= min_leaf and not all_left and not all_right


@inlined
def cut_perceptron(subspace, node, min_leaf, first, second):
    """Train a perceptron to separate the classes near `first` from those near `second`; returns its cut, and whether it
    does.

    A projection of at most the cut goes left; the projections are in subspace.value.
    """
    choose_sides(subspace, node.total, first, second)
    cut = train_perceptron(subspace, node.items)
    weigh_rows(subspace, node.items)
    low, high = range_of(subspace.value, np.uint64(node.items.size))
    count_left(subspace, node.items, cut)
    return cut, low < high and tells_apart(subspace.left, node.total, node.weight, min_leaf)
