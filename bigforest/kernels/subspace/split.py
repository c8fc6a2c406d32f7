"""Split a node of a tree in a subspace (Ho 1995): by a perceptron, or by central axis projection.

A node may draw columns of its own, and uses all columns if these cannot split it.
Oracle: tests/naive/subspace.py.
"""

from __future__ import annotations

import numpy as np

from bigforest.kernels.common.layout import OBLIQUE
from bigforest.kernels.common.node_scan import ONE, SHIFT32, ZERO
from bigforest.kernels.common.partition import partition_rows, sum_classes
from bigforest.kernels.common.rng import COLUMNS, GOLDEN, mix
from bigforest.kernels.compiler.jit import inlined
from bigforest.kernels.llvm.bit_sums import WORD
from bigforest.kernels.subspace.central_axis import cut_axis
from bigforest.kernels.subspace.columns import (
    Subspace,
    SubspaceColumns,
    farthest_classes,
    find_class_means,
    group_by_class,
    has_bits,
    make_subspace,
)
from bigforest.kernels.subspace.perceptron import cut_perceptron


def smallest_subspace(features: int, rows: int, classes: int) -> Subspace:
    """A Subspace to compile with, for a table of `features` features."""
    numbers = np.zeros(features)
    space = SubspaceColumns(
        np.arange(features, dtype=np.int32), np.zeros((rows, 1), np.uint64), np.empty((0, features)), *[numbers] * 4
    )
    return make_subspace(space, features, 2, 1, classes, rows)


@inlined
def draw_columns(subspace, key, wanted):
    """Draw `wanted` columns (uint64) for the node of this key, ascending: selection sampling (Knuth, TAOCP 3.4.2 S)."""
    columns = np.uint64(subspace.column.size)
    if subspace.drawn == columns:
        return
    subspace.size[ZERO] = wanted
    for number in range(np.uint64(subspace.mask.size)):
        subspace.mask[number] = ZERO
    state = mix(key ^ COLUMNS)
    have = ZERO
    for c in range(columns):
        state += GOLDEN
        taken = ((mix(state) >> SHIFT32) * (columns - c)) >> SHIFT32 < wanted - have
        if taken:
            subspace.column[have] = np.uint32(c)
            have += ONE
        if has_bits(subspace):
            subspace.whole[c] = np.int32(0)
            subspace.mask[c // np.uint64(WORD)] |= np.uint64(taken) << (c % np.uint64(WORD))


@inlined
def find_cut(subspace, node, min_leaf):
    """Find a split of the node in its columns; returns the cut of the projections, and whether there is one."""
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
def split_in_subspace(subspace, node, key, min_leaf, scratch, nodes, pool, number):
    """Send the rows of a node to the sides of its split, and write it as node `number`.

    Returns the number of rows on the left, 0 where there is no split; scratch.total_l gets their class weights.
    """
    group_by_class(node.items, node.total, subspace.start, subspace.order)
    cut, splits = 0.0, False
    wanted, columns = subspace.drawn, np.uint64(subspace.column.size)
    while not splits and wanted <= columns:
        draw_columns(subspace, key, wanted)
        cut, splits = find_cut(subspace, node, min_leaf)
        wanted = columns if wanted < columns else columns + ONE
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
