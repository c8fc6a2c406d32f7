"""Growing trees: nodes in preorder, data with a variable number of entries per node, and the stack of nodes still to be
numbered.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.common.layout import LEAF
from bigforest.kernels.compiler.jit import inlined

# DirectionExtras of kernels/oblique/search.py or Subsets of kernels/scan/categorical_missing.py. The arrays _OF_NODES
# have one entry per node. Each other array has `size` entries per node, node by node: with size = [2, 0, 1], node 0 has
# the entries 0 and 1, and node 2 has entry 2. `used`, uint64 [1], is the number of these entries.
Entries = TypeVar("Entries", bound=Any)
_OF_NODES = ("threshold", "size", "missing")


def with_room(pool: Entries, nodes: int, entries: int) -> Entries:
    """Double the arrays that are too short for `nodes` nodes and `entries` more entries. Return the pool."""
    used = int(pool.used[0])
    needed = {name: nodes if name in _OF_NODES else used + entries for name in pool._fields if name != "used"}
    short = [name for name, size in needed.items() if getattr(pool, name).size < size]
    return pool._replace(**{name: twice_as_long(getattr(pool, name)) for name in short})  # type: ignore[no-any-return]


def trimmed(pool: Entries, nodes: int) -> Entries:
    """Return the pool without unused room, as views: pages that were never written take no memory."""
    sizes = {name: nodes if name in _OF_NODES else int(pool.used[0]) for name in pool._fields if name != "used"}
    return pool._replace(**{name: getattr(pool, name)[:size] for name, size in sizes.items()})  # type: ignore[no-any-return]


def twice_as_long(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of twice the length, with the array at its beginning."""
    longer = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    longer[: len(array)] = array  # pages that are not written take no memory
    return longer


# At first there is room for as many nodes as rows: trees rarely have more, and untouched memory is free. But there is
# room for at least _FEWEST_NODES, and for at most _MOST_COUNTS class counts, because some systems count untouched
# memory.
_MOST_COUNTS = 1 << 22
_FEWEST_NODES = 256
# Initial depth of the stack, enough for most trees.
_DEPTH = 64


class Rules(NamedTuple):
    """Stopping rules and options of a tree, as plain numbers for kernels.

    mtry       number of features that a node draws
    impurity   number of the criterion (kernels/scan/impurity.py)
    max_depth  -1 if unlimited
    min_split  smallest weight of a node that is split
    min_leaf   smallest weight of a leaf
    redraw     True if features that are constant in the node do not count as drawn
    chance     probability of drawing a feature times 2**53; -1 if mtry features are drawn
    """

    mtry: int
    impurity: int
    max_depth: int
    min_split: int
    min_leaf: int
    redraw: bool
    chance: int = -1


class Roots(NamedTuple):
    """The roots of trees that are grown one after the other, or the node from which a subtree is grown.

    start     uint64 [trees + 1], tree t has the items start[t]:start[t + 1], at least one
    key       uint64 [trees], random keys of the roots
    depth     depth of all roots
    constant  bool [features], features known to be constant in all roots; None if unknown
    """

    start: NDArray[np.uint64]
    key: NDArray[np.uint64]
    depth: int = 0
    constant: NDArray[np.bool_] | None = None

    @classmethod
    def single(cls, rows: int, key: np.uint64, depth: int = 0, constant: NDArray[np.bool_] | None = None) -> Roots:
        """Return the root of a single tree or subtree with `rows` rows."""
        return cls(np.array([0, rows], np.uint64), np.array([key], np.uint64), depth, constant)

    @property
    def max_rows(self) -> int:
        """Rows of the largest tree."""
        return int(np.diff(self.start).max())


class CodeTree(NamedTuple):
    """Trees in preorder, one after the other, whose nodes are numbered consecutively.

    A split sends codes up to left_code to the left. left_code is the largest code on the left in the node, right_code
    the smallest code on the right.

        0 ─┬─ 1 ─┬─ 2        feature  [5, 3, LEAF, LEAF, LEAF]
           │     └─ 3        right    [4, 3,    0,    0,    0]
           └─ 4              depth    [0, 1,    2,    2,    1]

    feature     int32 [nodes], or LEAF or OBLIQUE
    right       uint32 [nodes], number of the right child, 0 in a leaf; the left child is the next node
    depth       uint32 [nodes]
    left_code, right_code  uint32 [nodes]; 0 except in axis nodes
    counts      uint32 [nodes, classes]; for regression [nodes, 1], the weight
    sum         int64 [nodes], weighted sum of the targets; None for classes
    """

    feature: NDArray[np.int32]
    right: NDArray[np.uint32]
    depth: NDArray[np.uint32]
    left_code: NDArray[np.uint32]
    right_code: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    sum: NDArray[np.int64] | None = None


class Stack(NamedTuple):
    """Nodes still to be numbered: on top the next node, below it the right siblings along its path, and other roots.

    begin, end  uint64 [room], range of the items
    key         uint64 [room]
    depth       int64 [room]
    parent      int64 [room], -1 for a left child or a root
    total       int64 [room, n], statistics of the node, n numbers (kernels/scan/target.py)
    constant    uint64 [room, words], bit f is set if feature f is known to be constant
    """

    begin: NDArray[np.uint64]
    end: NDArray[np.uint64]
    key: NDArray[np.uint64]
    depth: NDArray[np.int64]
    parent: NDArray[np.int64]
    total: NDArray[np.int64]
    constant: NDArray[np.uint64]


class TreeBuilder(NamedTuple):
    """A growing tree.

    pool  further data of nodes (see `with_room`), or None
    size  uint64 [2], number of nodes, and of nodes on the stack
    """

    nodes: CodeTree
    stack: Stack
    pool: Any
    size: NDArray[np.uint64]


def make_tree_builder(rows: int, trees: int, classes: int, regression: bool, words: int) -> TreeBuilder:
    """Allocate room for trees of `rows` rows in total, without a pool and without roots.

    regression  True if the targets are numbers; then classes is 1
    words       words of Stack.constant
    """
    depth = _DEPTH + trees
    room = min(max(rows, _FEWEST_NODES), max(_MOST_COUNTS // classes, _FEWEST_NODES))
    nodes = CodeTree(
        feature=np.empty(room, np.int32),
        right=np.empty(room, np.uint32),
        depth=np.empty(room, np.uint32),
        left_code=np.empty(room, np.uint32),
        right_code=np.empty(room, np.uint32),
        counts=np.empty((room, classes), np.uint32),
        sum=np.empty(room, np.int64) if regression else None,
    )
    stack = Stack(
        begin=np.empty(depth, np.uint64),
        end=np.empty(depth, np.uint64),
        key=np.empty(depth, np.uint64),
        depth=np.empty(depth, np.int64),
        parent=np.empty(depth, np.int64),
        total=np.empty((depth, 2 if regression else classes), np.int64),
        constant=np.empty((depth, words), np.uint64),
    )
    return TreeBuilder(nodes, stack, None, np.zeros(2, np.uint64))


def with_more_room(growing: TreeBuilder, entries: int) -> TreeBuilder:
    """Return the tree with full arrays doubled, and with room for `entries` more entries in its pool."""
    nodes, stack, pool, (count, top) = growing
    if count == nodes.feature.size:
        nodes = CodeTree._make(array if array is None else twice_as_long(array) for array in nodes)
    if top == stack.begin.size:
        stack = Stack(*(twice_as_long(array) for array in stack))
    return TreeBuilder(nodes, stack, pool and with_room(pool, nodes.feature.size, entries), growing.size)


def finished(growing: TreeBuilder) -> tuple[CodeTree, Any]:
    """Return the tree and its pool, without unused room."""
    count = int(growing.size[0])
    nodes = CodeTree._make(array if array is None else array[:count] for array in growing.nodes)
    return nodes, growing.pool and trimmed(growing.pool, count)


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
    """Write the node at `top` of the stack as leaf `number`, without statistics. Copy its statistics to `total`."""
    for k in range(np.uint64(total.size)):
        total[k] = stack.total[top, k]
    if stack.parent[top] >= 0:
        nodes.right[np.uint64(stack.parent[top])] = number
    nodes.feature[number] = LEAF
    nodes.right[number] = 0
    nodes.depth[number] = stack.depth[top]
    nodes.left_code[number] = 0
    nodes.right_code[number] = 0


@inlined
def has_room(nodes, count, stack, top):
    """Return True if there is room for another node, and for its children on the stack."""
    return count < np.uint64(nodes.feature.size) and top < np.uint64(stack.begin.size)
