"""Grow trees depth-first from their bags, in memory. Oracle: tests/naive/tree.py.

    push the roots
    until the stack is empty:
        pop a node and number it                         numbers are in preorder
        unless it is a leaf: find its best split         oblique/, scan/ or subspace/
            partition its rows stably between its children
            push the children                            their random keys follow from the key of the node

The split of a node depends only on its rows and its key, not on the order of nodes. Several trees can therefore grow in
one call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.columns.code_cache import CodeCache, CodedTable, codes_in_cache, make_code_cache
from bigforest.kernels.common.layout import Codes, CodeValues, RowMajorCodes
from bigforest.kernels.common.node_scan import (
    FEATURE,
    ONE,
    TWO,
    ZERO,
    BestSplit,
    Node,
    ScanScratch,
    make_scan_scratch,
)
from bigforest.kernels.common.rng import LEFT, RIGHT, mix
from bigforest.kernels.compiler.jit import inlined, kernel
from bigforest.kernels.llvm.lanes import LANES
from bigforest.kernels.oblique.search import (
    Oblique,
    codes_of_node,
    find_direction,
    make_direction_extras,
    split_by_direction,
)
from bigforest.kernels.scan.categorical_missing import UNSEEN, CategoricalMissing, make_subsets, split_non_plain
from bigforest.kernels.scan.criterion import CriterionScratch, make_criterion_scratch
from bigforest.kernels.scan.draw import FeatureDraw, make_feature_draw
from bigforest.kernels.scan.features import Batch, find_feature, make_batch, split_by_feature
from bigforest.kernels.scan.target import (
    ClassTarget,
    RegressionTarget,
    node_stats,
    sum_items,
    view_node,
)
from bigforest.kernels.subspace.columns import Subspace
from bigforest.kernels.subspace.split import split_in_subspace
from bigforest.kernels.tree.builder import (
    CodeTree,
    Roots,
    Rules,
    Stack,
    finished,
    has_room,
    make_tree_builder,
    number_node,
    push,
    with_more_room,
)


class GrowScratch(NamedTuple):
    """Scratch of one growing tree. Its content belongs to the current node.

    total     int64 [n], statistics of the node, n numbers (kernels/scan/target.py)
    total_l   int64 [as total], statistics of the left child
    constant  uint64 [words], features known to be constant, see scan/draw.py fetch_codes
    kept      uint32 [rows + LANES], codes of the feature of the best split
    """

    total: NDArray[np.int64]
    total_l: NDArray[np.int64]
    constant: NDArray[np.uint64]
    draw: FeatureDraw
    best: BestSplit
    work: ScanScratch
    code_cache: CodeCache
    kept: NDArray[np.uint32]
    batch: Batch


def make_grow_scratch(codes: Codes, rows: int, target: ClassTarget | RegressionTarget) -> GrowScratch:
    """Allocate scratch for nodes of up to `rows` rows."""
    features, regression = codes.place.shape[0], isinstance(target, RegressionTarget)
    parts = 2 if regression else target.number
    return GrowScratch(
        np.zeros(parts, np.int64),
        np.zeros(parts, np.int64),
        np.zeros(-(-features // 64), np.uint64),
        make_feature_draw(features),
        BestSplit(np.empty(6, np.int64), np.empty(1)),
        make_scan_scratch(rows),
        make_code_cache(codes, rows, regression),
        np.empty(rows + LANES, np.uint32),
        make_batch(),
    )


def put_roots(stack: Stack, roots: Roots) -> None:
    """Put the roots on the empty stack, the first on top. `grow_while_room` adds their statistics."""
    trees = roots.key.size
    stack.begin[:trees], stack.end[:trees] = roots.start[:-1][::-1], roots.start[1:][::-1]
    stack.key[:trees], stack.depth[:trees], stack.parent[:trees] = roots.key[::-1], roots.depth, -1
    stack.constant[:trees] = 0
    if roots.constant is not None:
        packed = np.packbits(roots.constant, bitorder="little")
        stack.constant[:trees].view(np.uint8)[:, : packed.size] = packed


@inlined
def has_entries(pool, oblique, subspace, non_plain):
    """Return True if the pool (terms of oblique nodes, or listed levels) has room for the entries of another node."""
    if oblique is not None:
        return pool.used[0] + np.uint64(oblique.drawn.feature.shape[1]) <= np.uint64(pool.feature.size)
    if subspace is not None:
        return pool.used[0] + np.uint64(subspace.column.size) <= np.uint64(pool.feature.size)
    if non_plain is not None:
        return pool.used[0] + np.uint64(non_plain.levels.code.size) <= np.uint64(pool.level.size)
    return True


@inlined
def begin_entries(pool, number, non_plain):
    """Begin node `number` in the pool, without entries."""
    if pool is not None:
        pool.size[number] = 0
    if non_plain is not None:
        pool.missing[number] = UNSEEN


@inlined
def is_leaf(weight, sq, depth, rules):
    """Return True if a node is a leaf whatever its features are: it is pure, too light or too deep."""
    return sq == weight * weight or weight < rules.min_split or weight < 2 * rules.min_leaf or depth == rules.max_depth


@kernel
def grow_while_room(table, items, rules, growing, criterion, scratch, oblique, subspace, non_plain, dictionary):
    """Number and split nodes until the stack is empty or an array is full.

    table       CodedTable
    criterion   CriterionScratch
    oblique     Oblique, with DirectionExtras as growing.pool; None for other splits
    subspace    Subspace, with DirectionExtras as growing.pool; None for other splits
    non_plain   CategoricalMissing, with Subsets as growing.pool; None for other splits, and if all features are plain
                numbers (without missing values)
    dictionary  for random splits on features; None for the best splits

    Compiled separately for arguments that are None.
    """
    nodes, stack, pool = growing.nodes, growing.stack, growing.pool
    total, total_l, constant, best = scratch.total, scratch.total_l, scratch.constant, scratch.best
    value, sums = table.value, criterion.sums
    count, top = growing.size[ZERO], growing.size[ONE]
    if count == ZERO:
        for root in range(top):
            sum_items(items[stack.begin[root] : stack.end[root]], value, stack.total[root])
    while top > ZERO and has_room(nodes, count, stack, top) and has_entries(pool, oblique, subspace, non_plain):
        top -= ONE
        number = count
        count += ONE
        number_node(nodes, number, stack, top, total)
        weight, sq = node_stats(nodes, number, total, value)
        begin_entries(pool, number, non_plain)
        depth = stack.depth[top]
        if is_leaf(weight, sq, depth, rules):
            continue
        begin, end, key = stack.begin[top], stack.end[top], stack.key[top]
        for word in range(np.uint64(constant.size)):
            constant[word] = stack.constant[top, word]
        if subspace is not None:
            node = Node(items[begin:end], total, weight, sq, key)
            size_l = split_in_subspace(subspace, node, rules.min_leaf, scratch, nodes, pool, number)
            if size_l == ZERO:
                continue
        elif oblique is None:
            node_codes, node_value = codes_in_cache(table, items, begin, end, constant, scratch.code_cache)
            node, one_value = view_node(items[begin:end], total, weight, sq, key, node_value, sums)
            if one_value:
                continue
            scored_by = criterion.two, criterion.many, criterion.scores, sums
            column = find_feature(node_codes, node, rules, *scored_by, scratch, non_plain, dictionary)
            if best.split[FEATURE] < 0:
                continue
            if non_plain is None:
                feature = np.uint64(best.split[FEATURE]) >> ONE
                size_l = split_by_feature(node_codes, node, feature, column, scratch, nodes, number, sums)
            else:
                context = (node_codes, node, column, non_plain, scratch)
                size_l = split_non_plain(*context, nodes, pool, number, sums, dictionary)
        else:
            node_codes, node_value, cached = codes_of_node(table, items, begin, end, oblique)
            node, one_value = view_node(items[begin:end], total, weight, sq, key, node_value, sums)
            if one_value:
                continue
            which = find_direction(node_codes, node, cached, rules, criterion, scratch, oblique)
            if best.split[FEATURE] < 0:
                continue
            split = (node_codes, node, scratch, oblique, which)
            size_l = split_by_direction(*split, nodes, pool, number, sums)
        for k in range(np.uint64(total.size)):
            total[k] -= total_l[k]
        middle = begin + size_l
        # The left child is on top of the stack, because it is numbered next.
        push(stack, top, middle, end, mix(key ^ RIGHT), depth + 1, np.int64(number), total, constant)
        push(stack, top + ONE, begin, middle, mix(key ^ LEFT), depth + 1, np.int64(-1), total_l, constant)
        top += TWO
    growing.size[ZERO], growing.size[ONE] = count, top


def grow(
    codes: Codes,
    by_row: RowMajorCodes,
    items: NDArray[np.uint64],
    target: ClassTarget | RegressionTarget,
    roots: Roots,
    rules: Rules,
    kind: Oblique | Subspace | CategoricalMissing | None = None,
    dictionary: CodeValues | None = None,
) -> tuple[CodeTree, Any]:
    """Grow trees, or a subtree, on the rows of `items`. Return them in codes.

    codes       Codes of the table
    by_row      RowMajorCodes of the same table
    items       uint64 [n >= 1], see kernels/common/node_scan.py; class 0 for regression. The items of each tree are
                reordered in place. Their weight must be below 2**31 for each tree
    kind        None for splits on plain numbers; CategoricalMissing for splits on categories and missing values too;
                Oblique or Subspace for oblique splits. It has scratch, so concurrent calls must not share it
    dictionary  for random splits on features; None for the best splits

    Return also the pool: DirectionExtras of oblique splits, Subsets of categories and missing values, or None.
    """
    table, classes = CodedTable(codes, by_row, target.value), target.number
    features = codes.place.shape[0]
    scratch = make_grow_scratch(codes, roots.max_rows, target)
    growing = make_tree_builder(items.size, roots.key.size, classes, table.value is not None, scratch.constant.size)
    oblique = kind if isinstance(kind, Oblique) else None
    subspace = kind if isinstance(kind, Subspace) else None
    non_plain = kind if isinstance(kind, CategoricalMissing) else None
    entries = features if non_plain is None else non_plain.levels.code.size  # most entries of a node in the pool
    if non_plain is not None:
        growing = growing._replace(pool=make_subsets(growing.nodes.feature.size, entries))
    elif kind is not None:
        growing = growing._replace(pool=make_direction_extras(growing.nodes.feature.size, entries))
    put_roots(growing.stack, roots)
    growing.size[1] = roots.key.size
    kinds = (oblique, subspace, non_plain, dictionary)
    criterion = CriterionScratch()  # trees in subspaces need none
    if subspace is None:
        criterion = make_criterion_scratch(target, rules.impurity, roots.max_rows, dictionary is not None)
    grow_while_room(table, items, rules, growing, criterion, scratch, *kinds)
    while growing.size[1] > 0:
        growing = with_more_room(growing, entries)
        grow_while_room(table, items, rules, growing, criterion, scratch, *kinds)
    return finished(growing)
