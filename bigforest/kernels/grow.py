"""Grow one tree depth-first from its bag, in memory. Oracle: tests/naive/tree.py.

A node is popped, numbered (so numbers run in preorder), and either becomes a leaf or partitions its rows stably by its
best split between its children, whose random keys follow from its own. What happens in a node therefore depends on
its rows and its key alone, whichever order nodes are visited in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.axis import find_feature, make_draw, split_by_feature
from bigforest.kernels.impurity import GINI, entropy_table
from bigforest.kernels.jit import inlined, kernel
from bigforest.kernels.layout import LEAF, Codes, Rows
from bigforest.kernels.mixed import CATEGORY, UNSEEN, Mixed, Subsets, make_mixed, make_subsets, split_mixed
from bigforest.kernels.nearby import look_near, make_nearby
from bigforest.kernels.node import CODE, FEATURE, ONE, ZERO, Best, Node, make_work
from bigforest.kernels.oblique import (
    Oblique,
    Pool,
    find_direction,
    look_nearby,
    make_pool,
    smallest,
    split_by_direction,
)
from bigforest.kernels.partition import sum_classes
from bigforest.kernels.pool import trimmed, twice_as_long, with_room
from bigforest.kernels.rng import LEFT, RIGHT, mix
from bigforest.kernels.rows import by_rows
from bigforest.kernels.space import Subspace
from bigforest.kernels.subspace import smallest_subspace, split_in_subspace

# Room for nodes at first: a tree rarely has more nodes than rows, and memory never touched costs nothing; but not more
# class counts than these, because some systems count what is asked for.
_MOST_COUNTS = 1 << 22


class Rules(NamedTuple):
    """What stops and steers a tree; plain numbers, as kernels take them.

    max_depth -1 is unlimited. chance, of 2**53, is that of a feature to be drawn; -1 where mtry are drawn.
    """

    mtry: int
    impurity: int
    max_depth: int
    min_split: int
    min_leaf: int
    redraw: bool
    chance: int = -1


class CodeTree(NamedTuple):
    """A tree in preorder. A split sends codes up to left_code to the left; right_code is the smallest on the right.

    feature int32 (LEAF or OBLIQUE where there is none), right uint32 (number of the right child, 0 in a leaf; the left
    child is the next node), depth uint32, left_code, right_code uint32 (0 but in axis nodes), counts uint32 [nodes,
    classes].
    """

    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    depth: NDArray[np.uint32]
    left_code: NDArray[np.uint32]
    right_code: NDArray[np.uint32]
    counts: NDArray[np.uint32]


class Stack(NamedTuple):
    """Nodes still to be numbered: the right siblings along the path, and the next node on top.

    begin, end uint64 (range of the items), key uint64, depth int64, parent int64 (-1 for a left child or the root),
    total int64 [room, classes], constant uint64 [room, words] (bit f is set where feature f is known constant).
    """

    begin: NDArray[np.uint64]
    end: NDArray[np.uint64]
    key: NDArray[np.uint64]
    depth: NDArray[np.int64]
    parent: NDArray[np.int64]
    total: NDArray[np.int64]
    constant: NDArray[np.uint64]


@inlined
def push(stack, top, begin, end, key, depth, parent, total, constant):
    """Put a node on the stack at `top`."""
    stack.begin[top] = begin
    stack.end[top] = end
    stack.key[top] = key
    stack.depth[top] = depth
    stack.parent[top] = parent
    for k in range(np.uint64(total.size)):
        stack.total[top, k] = total[k]
    for word in range(np.uint64(constant.size)):
        stack.constant[top, word] = constant[word]


@inlined
def number_node(nodes, number, stack, top, total):
    """Write the node at `top` as leaf `number`, class weights to `total`; returns their sum and sum of squares."""
    weight = np.int64(0)
    sq = np.int64(0)
    for k in range(np.uint64(total.size)):
        here = stack.total[top, k]
        total[k] = here
        weight += here
        sq += here * here
        nodes.counts[number, k] = here
    if stack.parent[top] >= 0:
        nodes.right[np.uint64(stack.parent[top])] = number
    nodes.feature[number] = LEAF
    nodes.right[number] = 0
    nodes.depth[number] = stack.depth[top]
    nodes.left_code[number] = 0
    nodes.right_code[number] = 0
    return weight, sq


@kernel
def put_root(stack, items, key, depth, constant):
    """Make all of `items` the only node on the stack; constant uint64 [words] as in find_split."""
    sum_classes(items, stack.total[ZERO])
    for word in range(np.uint64(stack.constant.shape[1])):
        stack.constant[ZERO, word] = constant[word]
    stack.begin[ZERO] = ZERO
    stack.end[ZERO] = np.uint64(items.size)
    stack.key[ZERO] = key
    stack.depth[ZERO] = depth
    stack.parent[ZERO] = -1


@inlined
def has_room(nodes, count, stack, top, oblique, subspace, mixed, pool):
    """Whether another node can be numbered and split."""
    if oblique is not None and pool.used[0] + np.uint64(oblique.drawn.feature.shape[1]) > np.uint64(pool.feature.size):
        return False
    if subspace is not None and pool.used[0] + np.uint64(subspace.column.size) > np.uint64(pool.feature.size):
        return False
    if mixed is not None and pool.used[0] + np.uint64(mixed.levels.code.size) > np.uint64(pool.level.size):
        return False
    return count < np.uint64(nodes.feature.size) and top < np.uint64(stack.begin.size)


@kernel
def grow_while_room(
    codes,
    by_row,
    items,
    rules,
    table,
    nodes,
    count,
    stack,
    top,
    totals,
    constant,
    draw,
    best,
    work,
    nearby,
    oblique,
    subspace,
    mixed,
    pool,
):
    """Number and split nodes until none is left or an array is full; returns the numbers of nodes and on the stack.

    totals int64 [2, classes], constant uint64 [words]: scratch. nearby: what nodes split by features copy. oblique:
    Oblique, with its Pool as `pool`; subspace: Subspace, with a Pool; mixed: Mixed, with its Subsets; all None where
    splits are on plain numbers, compiled apart.
    """
    total = totals[0]
    total_l = totals[1]
    while top > ZERO and has_room(nodes, count, stack, top, oblique, subspace, mixed, pool):
        top -= ONE
        number = count
        count += ONE
        weight, sq = number_node(nodes, number, stack, top, total)
        if pool is not None:
            pool.size[number] = 0
        if mixed is not None:
            pool.missing[number] = UNSEEN
        depth = stack.depth[top]
        if sq == weight * weight or weight < rules.min_split or weight < 2 * rules.min_leaf or depth == rules.max_depth:
            continue
        begin, end, key = stack.begin[top], stack.end[top], stack.key[top]
        for word in range(np.uint64(constant.size)):
            constant[word] = stack.constant[top, word]
        node = Node(items[begin:end], total, weight, sq)
        if subspace is not None:
            size_l = split_in_subspace(subspace, node, key, rules.min_leaf, work, nodes, pool, number, total_l)
            if size_l == ZERO:
                continue
        elif oblique is None:
            here, rows_here = look_near(codes, by_row, items, begin, end, constant, nearby)
            find_feature(here, rows_here, node, key, constant, rules, table, draw, best, work, mixed)
            if best.split[FEATURE] < 0:
                continue
            if mixed is None:
                feature, code = best.split[FEATURE] >> 1, best.split[CODE]
                size_l = split_by_feature(here, rows_here, node, feature, code, work, nodes, number, total_l)
            else:
                size_l = split_mixed(here, rows_here, node, mixed, best, work, nodes, pool, number, total_l)
        else:
            here, rows_here, local = look_nearby(codes, by_row, items, begin, end, oblique)
            which = find_direction(here, rows_here, node, local, key, constant, rules, table, draw, best, work, oblique)
            if best.split[FEATURE] < 0:
                continue
            size_l = split_by_direction(here, rows_here, node, best, work, oblique, which, nodes, pool, number, total_l)
        for k in range(np.uint64(total.size)):
            total[k] -= total_l[k]
        middle = begin + size_l
        # The right child lies below the left one, which is numbered next.
        push(stack, top, middle, end, mix(key ^ RIGHT), depth + 1, np.int64(number), total, constant)
        push(stack, top + ONE, begin, middle, mix(key ^ LEFT), depth + 1, -1, total_l, constant)
        top += np.uint64(2)
    return count, top


def grow(
    codes: Codes,
    by_row: Rows,
    items: NDArray[np.uint64],
    classes: int,
    key: np.uint64,
    rules: Rules,
    table: NDArray[np.int64],
    depth: int = 0,
    constant: NDArray[np.bool_] | None = None,
) -> CodeTree:
    """Grow a tree of splits on features, or the part of one below a node, on the rows of `items`; return it in codes.

    codes Codes; by_row Rows of the same; items uint64 [n >= 1] (see node.py), reordered in place; table:
    impurity.entropy_table. key, depth: of the topmost node; constant bool [features]: features known to be constant
    in it, None for none known. The total weight must be below 2**31.
    """
    return _grow(codes, by_row, items, classes, key, rules, table, depth, constant, None)[0]


def grow_mixed(
    codes: Codes,
    by_row: Rows,
    items: NDArray[np.uint64],
    classes: int,
    key: np.uint64,
    rules: Rules,
    table: NDArray[np.int64],
    mixed: Mixed,
) -> tuple[CodeTree, Subsets]:
    """Grow a tree of splits on features of which some are categories or have missing values, like `grow`.

    mixed  says which, and is scratch: not for two trees at once.
    """
    return _grow(codes, by_row, items, classes, key, rules, table, 0, None, mixed)


def grow_oblique(
    codes: Codes,
    by_row: Rows,
    items: NDArray[np.uint64],
    classes: int,
    key: np.uint64,
    rules: Rules,
    table: NDArray[np.int64],
    family: Oblique | Subspace,
) -> tuple[CodeTree, Pool]:
    """Grow a tree of oblique splits, like `grow`; `family` says which and is used up. The pool has its terms."""
    return _grow(codes, by_row, items, classes, key, rules, table, 0, None, family)


def _grow(
    codes: Codes,
    by_row: Rows,
    items: NDArray[np.uint64],
    classes: int,
    key: np.uint64,
    rules: Rules,
    table: NDArray[np.int64],
    depth: int,
    constant: NDArray[np.bool_] | None,
    more: Oblique | Subspace | Mixed | None,
) -> tuple[CodeTree, Any]:
    """The tree, and the Pool of an Oblique or a Subspace, or the Subsets of a Mixed; None for neither."""
    features = codes.place.shape[0]
    words = -(-features // 64)
    work = make_work(items.size, classes)
    best = Best(np.empty(6, np.int64), np.empty(1))
    draw = make_draw(features)
    totals = np.zeros((2, classes), np.int64)
    known = np.zeros(64 * words, np.bool_)
    known[:features] = False if constant is None else constant
    known_words = np.packbits(known, bitorder="little").view("<u8").astype(np.uint64)
    room = min(max(items.size, 256), max(_MOST_COUNTS // classes, 256))
    nodes = CodeTree(
        feature=np.empty(room, np.int32),
        right=np.empty(room, np.uint32),
        depth=np.empty(room, np.uint32),
        left_code=np.empty(room, np.uint32),
        right_code=np.empty(room, np.uint32),
        counts=np.empty((room, classes), np.uint32),
    )
    stack = Stack(
        begin=np.empty(64, np.uint64),
        end=np.empty(64, np.uint64),
        key=np.empty(64, np.uint64),
        depth=np.empty(64, np.int64),
        parent=np.empty(64, np.int64),
        total=np.empty((64, classes), np.int64),
        constant=np.empty((64, words), np.uint64),
    )
    oblique = more if isinstance(more, Oblique) else None
    subspace = more if isinstance(more, Subspace) else None
    mixed = more if isinstance(more, Mixed) else None
    most = features if mixed is None else mixed.levels.code.size  # entries of a node
    pool: Pool | Subsets | None = None
    if oblique is not None or subspace is not None:
        pool = make_pool(room, most)
    elif mixed is not None:
        pool = make_subsets(room, most)
    scratch = (totals, known_words, draw, best, work, make_nearby(codes, items.size))
    put_root(stack, items, key, depth, known_words)
    count, top = ZERO, ONE
    while top > 0:
        state = (nodes, count, stack, top)
        count, top = grow_while_room(
            codes, by_row, items, rules, table, *state, *scratch, oblique, subspace, mixed, pool
        )
        count, top = np.uint64(count), np.uint64(top)
        if count == nodes.feature.size:
            nodes = CodeTree(*[twice_as_long(array) for array in nodes])
        if top == stack.begin.size:
            stack = Stack(*(twice_as_long(array) for array in stack))
        pool = pool and with_room(pool, nodes.feature.size, most)
    return CodeTree(*[_first(array, int(count)) for array in nodes]), pool and trimmed(pool, int(count))


def compile_kernels(family: type[Oblique | Subspace] | None, *, mixed: bool) -> None:
    """Compile, or load from the cache, what growing needs: `grow_oblique` or `grow_mixed`, otherwise `grow`."""
    with np.errstate(over="ignore"):
        codes = Codes(
            u8=np.zeros((1, 2), np.uint8),
            u16=np.zeros((0, 2), np.uint16),
            u32=np.zeros((0, 2), np.uint32),
            place=np.array([[1, 0]], np.uint32),
        )
        for array in codes:
            array.flags.writeable = False
        items = np.array([1, 1 << 32 | 1 << 16 | 1], np.uint64)
        rules = Rules(mtry=1, impurity=GINI, max_depth=-1, min_split=2, min_leaf=1, redraw=True)
        arguments = (codes, by_rows(codes), items, 2, np.uint64(0), rules, entropy_table())
        if family is not None:
            make = smallest if family is Oblique else smallest_subspace
            grow_oblique(*arguments, make(codes.place.shape[0], items.size))
        elif mixed:
            grow_mixed(*arguments, make_mixed(np.array([CATEGORY], np.uint8), 1, items.size, 2))
        else:
            grow(*arguments)


def _first(array: NDArray[Any], count: int) -> NDArray[Any]:
    return array[:count].copy()
