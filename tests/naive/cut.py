"""Best-first growth of trees, and minimal cost-complexity pruning (Breiman et al. 1984), link by link."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf, nan
from typing import Any, NamedTuple

from bigforest.options.train_config import TrainConfig
from tests.naive import rng
from tests.naive.quick_split import best_split as quick_split
from tests.naive.split import Split, Table, impurity_of
from tests.naive.tree import Node, find_split, must_be_leaf, with_default, with_min_leaf

# A node: its number in preorder, or the path from the root (0 left, 1 right). Both sort in preorder.
Key = Any


def best_first(
    root: Key,
    decrease: Callable[[Key], float | None],
    children: Callable[[Key], tuple[Key, Key]],
    leaves: float,
    least: float,
) -> dict[Key, tuple[Key, Key]]:
    """Return the children of each split node. The leaf with the largest decrease is split next.

    decrease  decrease of impurity by the split of a node; None for a node without a split
    leaves    most leaves
    least     smallest decrease of a split
    """
    found: dict[Key, tuple[Key, Key]] = {}
    heap: list[tuple[float, Key]] = []

    def reach(node: Key) -> None:
        own = decrease(node)
        if own is not None and own >= least:
            heapq.heappush(heap, (-own, node))

    reach(root)
    while heap and len(found) + 1 < leaves:
        _, node = heapq.heappop(heap)
        found[node] = children(node)
        for child in found[node]:
            reach(child)
    return found


def pruned(
    children: dict[Key, tuple[Key, Key]], decrease: Callable[[Key], float], cost: float, ties: bool = True
) -> dict[Key, tuple[Key, Key]]:
    """Prune the weakest link while its strength is below `cost` (`ties`: or equal). Return the remaining children."""

    def below(node: Key) -> list[Key]:
        return [] if node not in children else [node, *(each for child in children[node] for each in below(child))]

    children = dict(children)
    exact = {node: Fraction(decrease(node)) for node in children}
    while children:
        splits = {node: below(node) for node in children}
        strength = {node: sum(exact[each] for each in splits[node]) / len(splits[node]) for node in children}
        weakest = min(strength, key=lambda node: (strength[node], -len(splits[node])))
        if strength[weakest] > cost or (strength[weakest] == cost and not ties):
            break
        for each in splits[weakest]:
            del children[each]
    return children


class Open(NamedTuple):
    """A node that was reached, with its split if it has one."""

    rows: list[int]
    key: int
    node: Node
    chosen: Any
    decrease: float


def grow_cut(table: Table, weights: Sequence[int], config: TrainConfig, tree: int) -> list[Node]:
    """Return the nodes, in preorder, of a tree with best splits that is cut by the options of `config`."""
    config = with_min_leaf(config, table.classes)
    weights = [int(weight) for weight in weights]
    whole = sum(weights)
    reached: dict[tuple[int, ...], Open] = {}

    def reach(path: tuple[int, ...], rows: list[int], key: int) -> None:
        total = table.total(rows, weights)
        node = Node(-1, nan, -1, -1, len(path), table.weight(total), total, nan)
        chosen = None
        if not must_be_leaf(len({table.target[row] for row in rows}), node.weight, len(path), config):
            chosen = find_split(table, rows, weights, key, config, quick_split, tree)
        gain = nan if chosen is None else table_gain(chosen.left, chosen.right, config.criterion)
        reached[path] = Open(rows, key, node._replace(gain=gain), chosen, gain * (node.weight / whole))

    def children(path: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        own = reached[path]
        goes_left = own.chosen.goes_left(table.low[own.rows])
        for side, letter in ((0, rng.LEFT), (1, rng.RIGHT)):
            rows = [row for row, left in zip(own.rows, goes_left, strict=True) if left == (side == 0)]
            reach((*path, side), rows, rng.mix(own.key ^ letter))
        return (*path, 0), (*path, 1)

    def decrease(path: tuple[int, ...]) -> float | None:
        return None if reached[path].chosen is None else reached[path].decrease

    reach(
        (),
        [row for row, weight in enumerate(weights) if weight],
        rng.stream_key(config.seed, rng.PURPOSE_GROW, tree, 0),
    )
    most = inf if config.max_leaf_nodes is None else config.max_leaf_nodes
    # A decrease that differs from an option by rounding alone is equal to it.
    least = config.min_impurity_decrease * (1 - 2.0**-40) if config.min_impurity_decrease else -inf
    split = best_first((), decrease, children, most, least)
    if config.ccp_alpha:
        split = pruned(split, lambda path: reached[path].decrease, config.ccp_alpha * (1 + 2.0**-40))
    nodes: list[Node] = []

    def write(path: tuple[int, ...]) -> int:
        number, own = len(nodes), reached[path]
        nodes.append(own.node._replace(gain=nan))
        if path in split:
            terms = own.chosen.terms
            axis = len(terms) == 1
            node = own.node._replace(feature=terms[0][0] if axis else -2, threshold=own.chosen.threshold)
            node = node._replace(terms=() if axis else tuple(terms))
            node = with_default(node, own.chosen, table) if isinstance(own.chosen, Split) else node
            nodes[number] = node._replace(left=write((*path, 0)), right=write((*path, 1)))
        return number

    write(())
    return nodes


def table_gain(left: list[int], right: list[int], impurity: str) -> float:
    """Return the decrease of impurity as in the forest table: each operation rounded, in this order."""
    parent = [a + b for a, b in zip(left, right, strict=True)]
    below = float(sum(left)) * impurity_of(left, impurity) + float(sum(right)) * impurity_of(right, impurity)
    return impurity_of(parent, impurity) - below / float(sum(parent))
