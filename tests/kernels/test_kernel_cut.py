"""Which splits of trees remain, against the heap and the weakest links of plain Python."""

from __future__ import annotations

from math import inf

import numba
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigforest.kernels.tree.cut import REMOVED, CutRules, cut_trees
from tests.naive.cut import best_first, pruned
from tests.thorough import examples

COMPILED = not numba.config.DISABLE_JIT
# Many ties, also with what is asked for.
DECREASES = [0.0, 0.0, 0.25, 0.5, 0.5, 1.0, 2.0, 1e-9]
Tree = tuple[list[int], list[float]]  # number of the right child of each node, 0 in a leaf, and its decrease


@st.composite
def grown(draw: st.DrawFn) -> Tree:
    """A tree of up to 20 splits in any shape."""
    right: list[int] = []

    def grow(splits: int) -> None:
        number = len(right)
        right.append(0)
        if splits:
            below = draw(st.integers(0, splits - 1))
            grow(below)
            right[number] = len(right)
            grow(splits - 1 - below)

    grow(draw(st.integers(0, 20)))
    decreases = draw(st.lists(st.sampled_from(DECREASES), min_size=len(right), max_size=len(right)))
    return right, [decrease if child else np.nan for child, decrease in zip(right, decreases, strict=True)]


# A full tree of three levels of splits, as many of which wait as there can be.
FULL: Tree = ([8, 5, 4, 0, 0, 7, 0, 0, 12, 11, 0, 0, 14, 0, 0], [1.0, *([0.5] * 14)])

RULES = st.builds(
    CutRules,
    leaves=st.sampled_from([1 << 32, 2, 3, 5, 8, 20]),
    decrease=st.sampled_from([-inf, -inf, 0.25, 0.5, 3.0]),
    cost=st.sampled_from([-inf, -inf, 0.0, 0.25, 0.5, 0.625, 9.0]),
    ties=st.booleans(),
)


@settings(max_examples=examples(1000 if COMPILED else 200), deadline=None)
@given(trees=st.lists(grown(), min_size=1, max_size=3), rules=RULES)
@example(trees=[FULL], rules=CutRules(leaves=5))
@example(trees=[FULL], rules=CutRules(leaves=7, cost=0.5, ties=False))
@example(trees=[FULL], rules=CutRules(decrease=0.5))
@example(trees=[FULL], rules=CutRules(leaves=6, decrease=0.5))
def test_cut_trees__what_remains_is_what_plain_python_leaves(trees: list[Tree], rules: CutRules) -> None:
    starts = np.cumsum([0, *(len(right) for right, _ in trees)])
    nodes = int(starts[-1])
    right = np.array([child for tree, _ in trees for child in tree], np.uint32)
    decrease = np.array([each for _, tree in trees for each in tree])
    number, inner = np.full(nodes, 7, np.uint32), np.ones(nodes, np.bool_)
    heap = np.empty(min(rules.leaves, nodes), np.int64)
    cut_trees(starts, right, decrease, rules, number, inner, heap)
    expected: list[tuple[int, bool]] = []
    for tree in trees:
        expected += cut_naively(tree, rules)
    assert list(zip(number.tolist(), inner.tolist(), strict=True)) == expected


def cut_naively(tree: Tree, rules: CutRules) -> list[tuple[int, bool]]:
    """The new number of each node, and whether it is split."""
    right, decrease = tree
    split = best_first(
        0,
        lambda node: decrease[node] if right[node] else None,
        lambda node: (node + 1, right[node]),
        rules.leaves,
        rules.decrease,
    )
    if rules.cost > -inf:
        split = pruned(split, lambda node: decrease[node], rules.cost, rules.ties)
    kept = {0} | {child for children in split.values() for child in children}
    order = {node: number for number, node in enumerate(sorted(kept))}
    return [(order.get(node, REMOVED), node in split) for node in range(len(right))]
