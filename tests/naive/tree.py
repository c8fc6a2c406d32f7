"""One whole tree, grown depth-first in plain Python by the rules of ARCHITECTURE.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bigforest.config import TrainConfig
from tests.naive import rng
from tests.naive.oblique import ObliqueSplit, find_oblique, project, weigh
from tests.naive.split import Split, Table, best_split
from tests.naive.subspace import find_cut, tree_features

CHANCES = 0x589965CC75374CC3


class Node(NamedTuple):
    """One node. A leaf has feature -1, no threshold and no gain (nan) and no children (-1).

    An oblique node has feature -2, and terms.
    """

    feature: int
    threshold: float
    left: int
    right: int
    depth: int
    weight: int
    counts: list[int]
    gain: float
    terms: tuple[tuple[int, float], ...] = ()


def grow(
    table: Table,
    weights: Sequence[int],
    config: TrainConfig,
    tree: int,
    split: Callable[..., Split | None] = best_split,
) -> list[Node]:
    """The nodes in preorder; `weights[row]` is how often the row is in the bag of the tree."""
    weights = [int(weight) for weight in weights]
    nodes: list[Node] = []
    everyone = [row for row, weight in enumerate(weights) if weight]
    key = rng.stream_key(config.seed, rng.PURPOSE_GROW, tree, 0)
    waiting = [(everyone, key, 0, -1)]  # a stack, because trees may be deeper than Python's recursion limit
    while waiting:
        rows, key, depth, parent = waiting.pop()
        number = len(nodes)
        if parent >= 0:
            side = "left" if nodes[parent].left < 0 else "right"
            nodes[parent] = nodes[parent]._replace(**{side: number})
        counts = class_counts(table, rows, weights)
        leaf = Node(-1, math.nan, -1, -1, depth, sum(counts), counts, math.nan)
        chosen = None
        if not must_be_leaf(counts, depth, config):
            chosen = find_split(table, rows, weights, key, config, split, tree)
        if chosen is None:
            nodes.append(leaf)
            continue
        gain = impurity_decrease(chosen.left, chosen.right, config.impurity)
        terms = chosen.terms
        axis = len(terms) == 1 and not config.in_subspaces
        feature = terms[0][0] if axis else -2
        own = () if axis else tuple(terms)
        nodes.append(leaf._replace(feature=feature, threshold=chosen.threshold, gain=gain, terms=own))
        by_terms = weigh if config.in_subspaces else project
        goes_left = [by_terms(terms, row) <= chosen.threshold for row in table.low[rows].tolist()]
        right_rows = [row for row, left in zip(rows, goes_left, strict=True) if not left]
        left_rows = [row for row, left in zip(rows, goes_left, strict=True) if left]
        waiting.append((right_rows, rng.mix(key ^ rng.RIGHT), depth + 1, number))
        waiting.append((left_rows, rng.mix(key ^ rng.LEFT), depth + 1, number))
    return nodes


def find_split(
    table: Table,
    rows: Sequence[int],
    weights: Sequence[int],
    key: int,
    config: TrainConfig,
    split: Callable[..., Split | None],
    tree: int = 0,
) -> ObliqueSplit | None:
    """The best split of a node by the family of the configuration; None if there is none."""
    if config.in_subspaces:
        return find_in_subspace(table, rows, weights, key, config, tree)
    if config.family == "sparse-oblique":
        return find_oblique(table, rows, weights, key, config, split)
    features = seen_features(table, rows, key, config)
    found = split(table, rows, weights, features, config.impurity, config.min_leaf)
    return found and ObliqueSplit([(found.feature, 1.0)], found.threshold, found.left, found.right)


def find_in_subspace(
    table: Table, rows: Sequence[int], weights: Sequence[int], key: int, config: TrainConfig, tree: int
) -> ObliqueSplit | None:
    """The cut of a node in the subspace of its tree, with the classes on its sides."""
    seen = tree_features(config, table.low.shape[1], tree)
    cut = find_cut(table, rows, key, config, seen)
    if cut is None:
        return None
    goes_left = {row: weigh(cut.terms, table.low[row].tolist()) <= cut.threshold for row in rows}
    left, right = (
        class_counts(table, [row for row in rows if goes_left[row] == side], weights) for side in (True, False)
    )
    return ObliqueSplit(cut.terms, cut.threshold, left, right)


def class_counts(table: Table, rows: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Weight of every class."""
    counts = [0] * table.classes
    for row in rows:
        counts[table.target[row]] += weights[row]
    return counts


def must_be_leaf(counts: list[int], depth: int, config: TrainConfig) -> bool:
    """Whether the node is a leaf before any feature is looked at."""
    weight = sum(counts)
    return (
        max(counts) == weight or weight < config.min_split or weight < 2 * config.min_leaf or depth == config.max_depth
    )


def seen_features(table: Table, rows: Sequence[int], key: int, config: TrainConfig) -> list[int]:
    """The features that are drawn and not constant in the node."""
    features = table.low.shape[1]
    wanted = config.drawn_features(features)
    if config.feature_fraction is not None:
        wanted = drawn_by_chance(key, features, config.feature_fraction)
    seen: list[int] = []
    for draws, feature in enumerate(rng.shuffled(key, features)):
        counted = len(seen) if config.constants == "redraw" else draws
        if counted >= wanted and seen:
            break
        values = table.low[rows, feature]
        if values.min() != values.max():
            seen.append(feature)
    return seen


def drawn_by_chance(key: int, features: int, chance: float) -> int:
    """How many of the features a node of this key draws, each with this chance; none is drawn anew."""
    state = rng.mix(key ^ CHANCES)
    count = 0
    while count == 0:
        for _ in range(features):
            state = (state + rng.GOLDEN) & rng.MASK
            count += rng.mix(state) >> 11 < max(1, int(chance * 2**53))
    return count


def impurity_decrease(left: list[int], right: list[int], impurity: str) -> float:
    """Impurity of the parent less the weighted mean impurity of the children."""
    parent = [a + b for a, b in zip(left, right, strict=True)]
    below = sum(sum(side) * impurity_of(side, impurity) for side in (left, right)) / sum(parent)
    return impurity_of(parent, impurity) - below


def impurity_of(counts: list[int], impurity: str) -> float:
    """Gini impurity, entropy in bits, or the share of rows outside the majority."""
    shares = [n / sum(counts) for n in counts if n]
    if impurity == "gini":
        return 1 - math.fsum(p * p for p in shares)
    if impurity == "entropy":
        return -math.fsum(p * math.log2(p) for p in shares)
    return 1 - max(shares)
