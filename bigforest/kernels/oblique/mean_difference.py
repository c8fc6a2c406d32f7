"""Differences of class means as directions. Oracle: tests/naive/means.py.

Sums are whole numbers, so they do not depend on the order of the rows or on batches. A value is counted from the
smallest value of its column, in steps of 2**-30 of the column's range. If all values are whole and the range is at most
2**30, a step is 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.gather import gather_column, on_column
from bigforest.kernels.columns.project import LARGEST, project
from bigforest.kernels.common.node_scan import BITS16, ONE, SHIFT32, ZERO, class_of
from bigforest.kernels.common.partition import sum_classes
from bigforest.kernels.common.rng import GOLDEN, OFFERS, below, mix
from bigforest.kernels.compiler.jit import inlined, kernel

# Rules to choose pairs of classes.
NO_PAIRS, CONSECUTIVE, LARGEST_CLASS, ALL = 0, 1, 2, 3

STEPS = 2.0**30


class Means(NamedTuple):
    """Class means: inputs from the table, and scratch of one growing tree.

    pairing  NO_PAIRS, CONSECUTIVE, LARGEST_CLASS or ALL
    by_node  True for means over the rows of the node; False for means over the rows of the tree. `size`, `feature`,
             `weight` and `value` are then filled once per tree
    step     uint32 [codes], steps of the value of each code, in the order of CodeValues.low
    unit     float64 [features], size of a step; 0 leaves the feature out
    sums     int64 [features, classes], scratch: steps by class
    pairs    int64 [1], number of pairs
    pair     int64 [most pairs, 2], pairs of classes; the direction is mean(second class) - mean(first class)
    size     uint64 [pairs], number of terms
    feature  uint32 [pairs, features], terms
    weight   float64 [pairs, features]
    value    float64 [pairs, rows of the table], projections of the rows of the bag
    """

    pairing: int
    by_node: bool
    step: NDArray[np.uint32]
    unit: NDArray[np.float64]
    sums: NDArray[np.int64]
    pairs: NDArray[np.int64]
    pair: NDArray[np.int64]
    size: NDArray[np.uint64]
    feature: NDArray[np.uint32]
    weight: NDArray[np.float64]
    value: NDArray[np.float64]


def max_pairs(pairing: int, classes: int) -> int:
    """Return the most pairs of classes that a node may have."""
    return {NO_PAIRS: 0, ALL: classes * (classes - 1) // 2}.get(pairing, classes - 1)


def make_means(
    pairing: int, by_node: bool, step: NDArray[np.uint32], unit: NDArray[np.float64], classes: int, rows: int
) -> Means:
    """Make Means for trees of up to `classes` classes from a table of `rows` rows."""
    most = max_pairs(pairing, classes)
    kept = 0 if by_node else most
    features = unit.size
    return Means(
        pairing,
        by_node,
        step,
        unit,
        np.empty((features, classes) if most else (0, 0), np.int64),
        np.zeros(1, np.int64),
        np.empty((most, 2), np.int64),
        np.empty(kept, np.uint64),
        np.empty((kept, features), np.uint32),
        np.empty((kept, features)),
        np.empty((kept, rows)),
    )


@inlined
def choose_pairs(pairing, total, pair):
    """Write the pairs of classes with a weight in `total`, int64 [classes]; return the number of pairs."""
    count = 0
    largest = 0
    for k in range(total.size):
        if total[k] > total[largest]:
            largest = k
    last = -1
    for k in range(total.size):
        if total[k] == 0 or pairing == NO_PAIRS:
            continue
        if pairing == CONSECUTIVE:
            if last >= 0:
                pair[count, 0], pair[count, 1] = last, k
                count += 1
        elif pairing == LARGEST_CLASS:
            if k != largest:
                pair[count, 0], pair[count, 1] = largest, k
                count += 1
        else:
            for other in range(k):
                if total[other] > 0:
                    pair[count, 0], pair[count, 1] = other, k
                    count += 1
        last = k
    return count


@inlined
def sum_steps(codes, values, items, means, gathered):
    """Set means.sums[f, k] to the steps of feature f, summed over the items of class k with their multiplicities.

    gathered  uint32 [>= n], scratch
    """
    sums = means.sums
    for feature in range(np.uint64(means.unit.size)):
        for k in range(np.uint64(sums.shape[1])):
            sums[feature, k] = 0
        on_column(codes, codes.place, feature, gather_column, (items, gathered))
        start = np.uint64(values.offsets[feature])
        for i in range(np.uint64(items.size)):
            steps = np.int64(means.step[start + np.uint64(gathered[i])])
            sums[feature, class_of(items[i])] += steps * np.int64(items[i] & BITS16)


@inlined
def difference(means, scale, total, first, second, feature, weight):
    """Write mean(class second) - mean(class first) as terms; return their number (uint64).

    The scale of a feature enters twice: once for the mean, once for the value that the weight multiplies.
    """
    size = ZERO
    for f in range(np.uint64(means.unit.size)):
        mean_first = np.float64(means.sums[f, first]) / np.float64(total[first])
        mean_second = np.float64(means.sums[f, second]) / np.float64(total[second])
        coefficient = (mean_second - mean_first) * means.unit[f] * (scale[f] * scale[f])
        if coefficient != 0.0 and abs(coefficient) <= LARGEST:
            feature[size] = np.uint32(f)
            weight[size] = coefficient
            size += ONE
    return size


@kernel
def find_differences(means, scale, total):
    """Fill means.size, feature and weight with the differences of a tree, from means.sums.

    total  int64 [classes], class weights of the tree
    """
    count = choose_pairs(means.pairing, total, means.pair)
    means.pairs[0] = count
    for j in range(np.uint64(count)):
        first, second = np.uint64(means.pair[j, 0]), np.uint64(means.pair[j, 1])
        means.size[j] = difference(means, scale, total, first, second, means.feature[j], means.weight[j])


@kernel
def project_differences(codes, values, items, means, value):
    """Project the rows of `items` on the differences of the tree, into means.value; value float64 [>= n] is scratch."""
    for j in range(np.uint64(means.pairs[0])):
        project(codes, values, means.feature[j], means.weight[j], means.size[j], items, value)
        for i in range(np.uint64(items.size)):
            means.value[j, items[i] >> SHIFT32] = value[i]


@kernel
def sum_root(codes, values, items, total, means, gathered):
    """Set total, int64 [classes], and means.sums to the sums over the rows of a root; gathered uint32 [>= n] is
    scratch."""
    sum_classes(items, total)
    sum_steps(codes, values, items, means, gathered)


@inlined
def is_offered(key, number, columns, features):
    """Return True if the node `key` tries difference `number`: with probability min(1, columns / features)."""
    return below(mix(mix(key ^ OFFERS) + (number + ONE) * GOLDEN), features) < columns


@inlined
def offer_means(scale, total, means, number, feature, weight):
    """Write the terms of difference `number` of the node (from means.sums) or of the tree; return their number.

    total  int64 [classes], class weights of the node
    """
    if means.by_node:
        first, second = np.uint64(means.pair[number, 0]), np.uint64(means.pair[number, 1])
        return difference(means, scale, total, first, second, feature, weight)
    size = means.size[number]
    for term in range(size):
        feature[term] = means.feature[number, term]
        weight[term] = means.weight[number, term]
    return size
