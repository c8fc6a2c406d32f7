"""The upper part of a tree, split by passes over the store: its nodes, and which of them still search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.node_search import NodeSearch, NodeSplit
from bigforest.grow.out_of_core.node_stats import SUM, WEIGHT, Counts, NodeStats
from bigforest.grow.out_of_core.probes import CODES, ColumnKind, Direction, Probe
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.shared.criteria import Criterion
from bigforest.grow.shared.feature_kinds import Features
from bigforest.kernels.common.layout import OBLIQUE
from bigforest.kernels.common.rng import PURPOSE_GROW, stream_key
from bigforest.kernels.out_of_core.blocks import AFTER_ALL, MISSING_RIGHT
from bigforest.kernels.out_of_core.draws import child_keys
from bigforest.kernels.scan.categorical_missing import UNSEEN, Subsets
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import CodeTree, Rules
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store


class MemoryLimits(NamedTuple):
    """Limits of memory.

    rows   rows of a node that is grown in memory, see NodeStats.rows; larger ones are split by passes
    keys   rows of a node that are collected at once, to open buckets
    cells  counts of the histogram of one feature
    room   counts of all histograms of a pass, and keys
    nodes  nodes whose thresholds are looked up together
    values of a dictionary in memory at a time, float64
    held   bytes of rows that perceptrons are trained on together
    """

    rows: int
    keys: int
    cells: int
    room: int
    nodes: int = 1 << 20
    values: int = 1 << 16
    held: int = 1 << 24


class GrowContext(NamedTuple):
    """Data that all nodes of a forest share.

    values  the store between whose values random splits are drawn; None for the best splits
    """

    rules: Rules
    stats: NodeStats
    features: Features
    criterion: Criterion
    limits: MemoryLimits
    values: Store | None = None

    def target(self, value: NDArray[np.int64] | None = None) -> ClassTarget | RegressionTarget:
        """The target of trees: classes, or these numbers."""
        return ClassTarget(self.stats.classes, self.criterion.table) if value is None else RegressionTarget(value)


@dataclass(slots=True)
class UpperNode:
    """A node of the upper part.

    total        int64 [parts], its statistics (node_stats.py).
    small        whether it is grown in memory.
    search       while it searches; cut: once it is split. A leaf has none.
    left, right  entries of its children.
    below,above  largest code or projection of its rows that went left, smallest that went right; 0 for levels, and
                 `above` also if only missing values went right.
    """

    key: np.uint64
    depth: int
    total: Counts
    constant: NDArray[np.bool_]
    small: bool = False
    search: NodeSearch | None = None
    cut: NodeSplit | None = None
    left: int = 0
    right: int = 0
    below: float = 0
    above: float = 0

    @property
    def direction(self) -> Direction | None:
        """The direction that it is split on, if any."""
        return None if self.cut is None else self.cut.direction

    @property
    def feature(self) -> int:
        """The feature that it is split on, as in trees in codes; -1 if it is not split."""
        if self.cut is None or self.cut.direction is None:
            return -1 if self.cut is None else self.cut.feature
        return int(self.cut.direction.feature[0]) if self.cut.direction.is_feature else OBLIQUE


# The search for the split of a node: from the own data of the tree, the node's key, and the columns known to be
# constant.
StartSearch = Callable[[Any, np.uint64, SplitScorer, NDArray[np.bool_]], NodeSearch]


class UpperTree:
    """The upper part of tree number `tree`.

    kind      of the columns that it splits on.
    own       the own data of the tree, see table.py TableView.
    nodes     parents before their children, the root first.
    newest    entries of the newest splits, through which no rows were routed yet.
    row_nodes  the nodes of its rows, without the newest splits: a file (row_nodes.py) by the first block of each run of
              blocks, none before the first splits.
    past      those that the last pass read and replaced, which the tasks of the next one remove.
    """

    def __init__(
        self,
        tree: int,
        key: np.uint64,
        total: Counts,
        context: GrowContext,
        kind: ColumnKind,
        start: StartSearch,
        own: Any,
        constant: NDArray[np.bool_],
    ) -> None:
        """constant: bool [columns], known to be constant in the whole tree."""
        self.tree = tree
        self.stats = context.stats
        self.kind = kind
        self.own = own
        self._ground = context
        self.nodes: list[UpperNode] = []
        self.row_nodes: dict[int, Path] = {}
        self.past: dict[int, Path] = {}
        self.newest: list[int] = []
        self._add(key, 0, total, constant, start)

    def searching(self) -> list[int]:
        """Entries of the nodes with requests to the next pass."""
        return [entry for entry, node in enumerate(self.nodes) if node.search is not None]

    def small(self) -> list[int]:
        """Entries of the nodes to be grown in memory."""
        return [entry for entry, node in enumerate(self.nodes) if node.small]

    def search(self, entry: int) -> NodeSearch:
        """The search of a searching node."""
        search = self.nodes[entry].search
        assert search is not None
        return search

    def pending(self, entry: int) -> list[Probe]:
        """The requests of a searching node."""
        return self.search(entry).pending

    def settle(self, entry: int, search: NodeSearch, start: StartSearch) -> None:
        """Take the search of a node back, which has had its answers: split the node, or make it a leaf, if it is over;
        children are started."""
        node = self.nodes[entry]
        node.search = search if search.pending else None
        node.cut = cut = None if search.pending else search.cut()
        node.constant = search.constant
        if cut is None:
            return
        self.newest.append(entry)
        key_l, key_r = child_keys(node.key)
        node.left = self._add(np.uint64(key_l), node.depth + 1, cut.left, node.constant, start)
        node.right = self._add(np.uint64(key_r), node.depth + 1, node.total - cut.left, node.constant, start)

    def sent(self, below: NDArray[Any], above: NDArray[Any], row_nodes: Mapping[int, Path]) -> None:
        """Rows have been sent down the newest splits (blocks.py route_rows), and now stand in these files."""
        self.past = {}
        if not self.newest:
            return
        for entry, left, right in zip(self.newest, below.tolist(), above.tolist(), strict=True):
            node = self.nodes[entry]
            if node.cut is not None and node.cut.listed is None:
                alone = node.cut.way == MISSING_RIGHT and right == AFTER_ALL
                node.below, node.above = left, 0 if alone else right
        self.newest = []
        self.past, self.row_nodes = self.row_nodes, dict(row_nodes)

    def preorder(self) -> Iterator[int]:
        """Entries of the nodes as they are numbered in the tree."""
        waiting = [0]
        while waiting:
            entry = waiting.pop()
            yield entry
            node = self.nodes[entry]
            if node.cut is not None:
                waiting += [node.right, node.left]

    def skeleton(self) -> CodeTree:
        """The upper part as a tree whose frontier are leaves; rows were routed through all splits. Codes are 0 where it
        splits on directions."""
        order = list(self.preorder())
        number = {entry: place for place, entry in enumerate(order)}
        nodes = [self.nodes[entry] for entry in order]
        totals = np.stack([node.total for node in nodes])
        counts = totals[:, [WEIGHT]] if self.stats.regression else totals[:, : self.stats.classes]
        codes = [(node.below, node.above) if self.kind == CODES else (0, 0) for node in nodes]
        return CodeTree(
            feature=np.array([node.feature for node in nodes], np.int32),
            right=np.array([number[node.right] if node.cut is not None else 0 for node in nodes], np.uint32),
            depth=np.array([node.depth for node in nodes], np.uint32),
            left_code=np.array([below for below, _ in codes], np.uint32),
            right_code=np.array([above for _, above in codes], np.uint32),
            counts=counts.astype(np.uint32),
            sum=totals[:, SUM] if self.stats.regression else None,
        )

    def subsets(self) -> Subsets | None:
        """Further data of the nodes of the skeleton; None if features are plain."""
        if self._ground.features.plain:
            return None
        cuts = [self.nodes[entry].cut for entry in self.preorder()]
        lists = [np.empty(0, np.uint8) if cut is None or cut.listed is None else cut.listed for cut in cuts]
        levels = [np.flatnonzero(np.unpackbits(listed, bitorder="little")).astype(np.uint32) for listed in lists]
        return Subsets(
            missing=np.array([UNSEEN if cut is None else cut.missing for cut in cuts], np.uint8),
            size=np.array([own.size for own in levels], np.uint32),
            level=np.concatenate(levels),
            used=np.array([sum(own.size for own in levels)], np.uint64),
        )

    def _add(self, key: np.uint64, depth: int, total: Counts, constant: NDArray[np.bool_], start: StartSearch) -> int:
        rules, limits = self._ground.rules, self._ground.limits
        node = UpperNode(key, depth, total, constant)
        if _may_split(self.stats, total, depth, rules):
            node.small = bool(self.stats.rows(total) <= limits.rows)
            if not node.small:
                scorer = SplitScorer(self.stats, total, self._ground.criterion, rules.min_leaf)
                search = start(self.own, key, scorer, constant)
                node.search = search if search.pending else None
        self.nodes.append(node)
        return len(self.nodes) - 1


def _may_split(stats: NodeStats, total: Counts, depth: int, rules: Rules) -> bool:
    """Whether a node may be split, by its statistics and the rules."""
    pure = not stats.regression and np.count_nonzero(total[: stats.classes]) <= 1
    return not pure and stats.weight(total) >= max(rules.min_split, 2 * rules.min_leaf) and depth != rules.max_depth


def root_key(config: TrainConfig, tree: int) -> np.uint64:
    """Key of the root of a tree."""
    with np.errstate(over="ignore"):
        return np.uint64(stream_key(np.uint64(config.seed), PURPOSE_GROW, np.uint64(tree), np.uint64(0)))
