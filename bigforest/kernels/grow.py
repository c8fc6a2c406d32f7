"""Grow one tree depth-first from its bag, in memory. Oracle: tests/naive/tree.py.

A node is popped, numbered (so numbers run in preorder), and either becomes a leaf or draws features, scans each for
its best threshold, and partitions its rows stably between its children, whose random keys follow from its own. What
happens in a node therefore depends on its rows and its key alone, whichever order nodes are visited in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.gather import gather
from bigforest.kernels.impurity import GINI, entropy_table, scan_scores
from bigforest.kernels.jit import inlined, kernel
from bigforest.kernels.layout import Codes, Rows
from bigforest.kernels.node import CODE, FEATURE, ONE, SHIFT32, ZERO, Best, Node, make_work
from bigforest.kernels.partition import partition, sum_classes
from bigforest.kernels.rng import GOLDEN, LEFT, RIGHT, mix
from bigforest.kernels.rows import by_rows
from bigforest.kernels.scan_many import scan_many
from bigforest.kernels.scan_two import prepare_two, scan_two

# Room for nodes at first: a tree rarely has more nodes than rows, and memory never touched costs nothing; but not
# more than these class counts, because some systems count what is asked for.
_MOST_COUNTS = 1 << 22
_SIX = np.uint64(6)
_BITS6 = np.uint64(63)


class Rules(NamedTuple):
    """What stops and steers a tree; plain numbers, as kernels take them. max_depth -1 is unlimited."""

    mtry: int
    impurity: int
    max_depth: int
    min_split: int
    min_leaf: int
    redraw: bool


class CodeTree(NamedTuple):
    """A tree in preorder. A split sends codes up to left_code to the left; right_code is the smallest on the right.

    feature int32 (-1 in a leaf), right uint32 (number of the right child, 0 in a leaf; the left child is the next
    node), depth uint32, left_code, right_code uint32 (0 in a leaf), counts uint32 [nodes, classes].
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


class Draw(NamedTuple):
    """Scratch of the draw of features: perm int64 [features], the identity between nodes; undo uint64 [features]."""

    perm: NDArray[np.int64]
    undo: NDArray[np.uint64]


@inlined
def find_split(codes, by_row, node, key, constant, rules, table, draw, best, work):
    """Draw features and scan them; the best split is left in `best` (feature -1: none).

    constant uint64 [words]: features known to be constant in this node; found ones are added. They are passed over
    without a look, which changes no draw.
    """
    perm, undo = draw.perm, draw.undo
    features = np.uint64(perm.size)
    mtry = np.uint64(rules.mtry)
    two = node.total.size == 2 and rules.impurity == GINI
    best.split[FEATURE] = -1
    best.limit[0] = -1.0
    if two:
        prepare_two(node, work)
    drawn = ZERO
    usable = ZERO
    state = key
    while drawn < features and (usable < mtry if rules.redraw else (drawn < mtry or usable == ZERO)):
        state += GOLDEN
        j = drawn + (((mix(state) >> SHIFT32) * (features - drawn)) >> SHIFT32)
        feature = perm[j]
        perm[j] = perm[drawn]
        perm[drawn] = feature
        undo[drawn] = j
        drawn += ONE
        word = np.uint64(feature) >> _SIX
        bit = ONE << (np.uint64(feature) & _BITS6)
        if constant[word] & bit:
            continue
        low, high = gather(codes, by_row, np.uint64(feature), node.items, work.codes)
        if low == high:
            constant[word] |= bit
            continue
        usable += ONE
        if two:
            scan_two(low, high, node, rules.min_leaf, feature, best, work)
        elif rules.impurity == GINI:
            scan_many(low, high, node, rules.min_leaf, feature, best, work)
        else:
            scan_scores(rules.impurity, table, low, high, node, rules.min_leaf, feature, best, work)
    while drawn > ZERO:  # put the identity back, so that the next draw depends on its key alone
        drawn -= ONE
        j = undo[drawn]
        feature = perm[drawn]
        perm[drawn] = perm[j]
        perm[j] = feature


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
    nodes.feature[number] = -1
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


@kernel
def grow_while_room(codes, by_row, items, rules, table, nodes, count, stack, top, totals, constant, draw, best, work):
    """Number and split nodes until none is left or an array is full; returns the numbers of nodes and on the stack.

    totals int64 [2, classes] and constant uint64 [words] are scratch.
    """
    total = totals[0]
    total_l = totals[1]
    while top > ZERO and count < np.uint64(nodes.feature.size) and top < np.uint64(stack.begin.size):
        top -= ONE
        number = count
        count += ONE
        weight, sq = number_node(nodes, number, stack, top, total)
        depth = stack.depth[top]
        if sq == weight * weight or weight < rules.min_split or weight < 2 * rules.min_leaf or depth == rules.max_depth:
            continue
        begin, end, key = stack.begin[top], stack.end[top], stack.key[top]
        for word in range(np.uint64(constant.size)):
            constant[word] = stack.constant[top, word]
        node = Node(items[begin:end], total, weight, sq)
        find_split(codes, by_row, node, key, constant, rules, table, draw, best, work)
        feature = best.split[FEATURE]
        if feature < 0:
            continue
        size_l, below, above = partition(codes, np.uint64(feature), best.split[CODE], node.items, work.keys, total_l)
        nodes.feature[number] = feature
        nodes.left_code[number] = below
        nodes.right_code[number] = above
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
    """Grow a tree, or the part of one below a node, on the rows of `items` and return it in codes.

    codes Codes; by_row Rows of the same; items uint64 [n >= 1] (see node.py), reordered in place; table:
    impurity.entropy_table. key, depth: of the topmost node; constant bool [features]: features known to be constant
    in it, None for none known. The total weight must be below 2**31.
    """
    features = codes.place.shape[0]
    words = -(-features // 64)
    work = make_work(items.size, classes)
    best = Best(np.empty(6, np.int64), np.empty(1))
    draw = Draw(np.arange(features), np.empty(features, np.uint64))
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
    put_root(stack, items, key, depth, known_words)
    count, top = ZERO, ONE
    while top > 0:
        count, top = grow_while_room(
            codes, by_row, items, rules, table, nodes, count, stack, top, totals, known_words, draw, best, work
        )
        count, top = np.uint64(count), np.uint64(top)
        if count == nodes.feature.size:
            nodes = CodeTree(*[_twice_as_long(array) for array in nodes])
        if top == stack.begin.size:
            stack = Stack(*(_twice_as_long(array) for array in stack))
    return CodeTree(*[_first(array, int(count)) for array in nodes])


def compile_kernels() -> None:
    """Compile, or load from the cache, everything `grow` needs, by growing on a table of two rows."""
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
        grow(codes, by_rows(codes), items, 2, np.uint64(0), rules, entropy_table())


def _twice_as_long(array: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([array, np.empty_like(array)])


def _first(array: NDArray[Any], count: int) -> NDArray[Any]:
    return array[:count].copy()
