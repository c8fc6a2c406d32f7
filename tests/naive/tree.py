"""One whole tree, grown depth-first in plain Python by the rules of ARCHITECTURE.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

from bigforest.options.train_config import TrainConfig
from tests.naive import rng
from tests.naive.levels import Level
from tests.naive.oblique import ObliqueSplit, find_oblique
from tests.naive.random_split import drawn_threshold, random_cuts
from tests.naive.split import Split, Table, best_split, impurity_of
from tests.naive.subspace import Cut, find_cut

CHANCES = 0x589965CC75374CC3


class Node(NamedTuple):
    """One node; counts: total of its rows (split.py Table).

    A leaf has feature -1, threshold and gain nan, and children -1. An oblique node has feature -2, and terms. A node on
    a feature has default_left, True if missing values and unseen levels go left. A node on a category has no threshold,
    but the levels that go to the other side.
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
    default_left: bool | None = None
    levels: frozenset[Level] | None = None


def grow(
    table: Table,
    weights: Sequence[int],
    config: TrainConfig,
    tree: int,
    split: Callable[..., Split | None] = best_split,
) -> list[Node]:
    """The nodes in preorder; `weights[row]` is how often the row is in the bag of the tree."""
    config = with_min_leaf(config, table.classes)
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
        total = table.total(rows, weights)
        leaf = Node(-1, math.nan, -1, -1, depth, table.weight(total), total, math.nan)
        chosen = None
        if not must_be_leaf(len({table.target[row] for row in rows}), leaf.weight, depth, config):
            chosen = find_split(table, rows, weights, key, config, split, tree)
        if chosen is None:
            nodes.append(leaf)
            continue
        gain = decrease_of(table, chosen.left, chosen.right, config.criterion)
        terms = chosen.terms
        axis = len(terms) == 1 and not isinstance(chosen, Cut)
        feature = terms[0][0] if axis else -2
        own = () if axis else tuple(terms)
        node = leaf._replace(feature=feature, threshold=chosen.threshold, gain=gain, terms=own)
        nodes.append(with_default(node, chosen, table) if isinstance(chosen, Split) else node)
        goes_left = chosen.goes_left(table.low[rows])
        right_rows = [row for row, left in zip(rows, goes_left, strict=True) if not left]
        left_rows = [row for row, left in zip(rows, goes_left, strict=True) if left]
        if config.splitter == "random" and -math.inf <= chosen.threshold < math.inf:
            below = max(value for value in table.high[left_rows, feature].tolist() if not math.isnan(value))
            above = min(value for value in table.low[right_rows, feature].tolist() if not math.isnan(value))
            nodes[number] = nodes[number]._replace(threshold=drawn_threshold(config, tree, number, below, above))
        waiting.append((right_rows, rng.mix(key ^ rng.RIGHT), depth + 1, number))
        waiting.append((left_rows, rng.mix(key ^ rng.LEFT), depth + 1, number))
    return nodes


def with_min_leaf(config: TrainConfig, classes: int) -> TrainConfig:
    """Return the configuration with the default of min_leaf if it was not given; classes: 0 for regression."""
    return replace(config, min_leaf=config.min_leaf or (1 if classes else 2))


def with_default(node: Node, split: Split, table: Table) -> Node:
    """Return the node of a split on one feature, with default_left and levels."""
    heavier_left = table.weight(split.left) >= table.weight(split.right)
    default_left = heavier_left if split.missing_left is None else split.missing_left
    return node._replace(default_left=default_left, levels=split.levels and split.levels[default_left])


def find_split(
    table: Table,
    rows: Sequence[int],
    weights: Sequence[int],
    key: int,
    config: TrainConfig,
    split: Callable[..., Split | None],
    tree: int = 0,
) -> ObliqueSplit | Split | Cut | None:
    """The best split of a node by the family of the configuration; None if there is none."""
    if config.in_subspaces:
        return find_cut(table, rows, key, config, tree)
    if config.family == "sparse-oblique":
        return find_oblique(table, rows, weights, key, config, split)
    features = seen_features(table, rows, weights, key, config)
    if config.splitter == "random":
        cuts = random_cuts(key, table)
        return best_split(table, rows, weights, features, config.criterion, config.min_leaf, cuts)
    return split(table, rows, weights, features, config.criterion, config.min_leaf)


def must_be_leaf(targets: int, weight: int, depth: int, config: TrainConfig) -> bool:
    """Return True if a node with this number of different targets is a leaf, whatever its features."""
    return targets == 1 or weight < config.min_split or weight < 2 * config.min_leaf or depth == config.max_depth


def seen_features(
    table: Table, rows: Sequence[int], weights: Sequence[int], key: int, config: TrainConfig
) -> list[int]:
    """Return the drawn features with more than one value, or group of levels, in the node."""
    features = table.low.shape[1]
    wanted = config.drawn_features(features)
    if config.feature_fraction is not None:
        wanted = drawn_by_chance(key, features, config.feature_fraction)
    seen: list[int] = []
    for draws, feature in enumerate(rng.shuffled(key, features)):
        counted = len(seen) if config.constants == "redraw" else draws
        if counted >= wanted and seen:
            break
        if table.varies(feature, rows, weights):
            seen.append(feature)
    return seen


def drawn_by_chance(key: int, features: int, chance: float) -> int:
    """Return how many features the node of this key draws, each with probability `chance`, at least one.

    The probability is at least 1 / (1000 * features). If no feature is drawn, all are drawn again.
    """
    state = rng.mix(key ^ CHANCES)
    count = 0
    while count == 0:
        for _ in range(features):
            state = (state + rng.GOLDEN) & rng.MASK
            count += rng.mix(state) >> 11 < max(int(chance * 2**53), 2**53 // (1000 * features))
    return count


def decrease_of(table: Table, left: list[int], right: list[int], impurity: str) -> float:
    """Return the decrease of impurity by a split; left, right: totals of the children."""
    if table.classes:
        return impurity_decrease(left, right, impurity)
    return deviance_decrease(left, right, table.zero) if impurity == "poisson" else variance_decrease(left, right)


def impurity_decrease(left: list[int], right: list[int], impurity: str) -> float:
    """Impurity of the parent less the weighted mean impurity of the children."""
    parent = [a + b for a, b in zip(left, right, strict=True)]
    below = sum(sum(side) * impurity_of(side, impurity) for side in (left, right)) / sum(parent)
    return impurity_of(parent, impurity) - below


def variance_decrease(left: list[int], right: list[int]) -> float:
    """`impurity_decrease` of numbers: the variance of the children's means about their own mean."""
    (w_l, sum_l), (w_r, sum_r) = left, right
    return float(Fraction(w_l * w_r, (w_l + w_r) ** 2) * (Fraction(sum_l, w_l) - Fraction(sum_r, w_r)) ** 2)


def deviance_decrease(left: list[int], right: list[int], zero: float) -> float:
    """`impurity_decrease` of numbers by half the Poisson deviance."""
    parent = [a + b for a, b in zip(left, right, strict=True)]
    with localcontext(prec=100):
        sums = [(of_side - Decimal(zero) * weight, weight) for weight, of_side in (left, right, parent)]
        one, two, whole = (total * (total / weight).ln() for total, weight in sums)
        return float((one + two - whole) / parent[0])
