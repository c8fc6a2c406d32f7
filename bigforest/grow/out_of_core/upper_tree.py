"""The upper part of a tree, split by passes over the store: its nodes, and which of them still search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.context import CODES, SUM, WEIGHT, Counts, GrowContext, NodeStats
from bigforest.grow.out_of_core.node_search import NodeSearch, NodeSplit
from bigforest.grow.out_of_core.probes import Direction
from bigforest.kernels.common.layout import OBLIQUE
from bigforest.kernels.common.rng import PURPOSE_GROW, stream_key
from bigforest.kernels.out_of_core.blocks import AFTER_ALL, MISSING_RIGHT
from bigforest.kernels.out_of_core.draws import child_keys
from bigforest.kernels.scan.categorical_missing import UNSEEN, Subsets
from bigforest.kernels.tree.builder import CodeTree, Rules
from bigforest.schema.config import TrainConfig


@dataclass(slots=True)
class UpperNode:
    """A node of the upper part.

    total        int64 [parts], its statistics (context.py).
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


# The search for the split of a node, see table.py TableView.search.
StartSearch = Callable[[Any, np.uint64, Counts, NDArray[np.bool_]], NodeSearch]


class UpperTree:
    """The upper part of tree number `tree`.

    tree_data  the data of the tree, see table.py TableView.tree_data.
    nodes     parents before their children, the root first.
    newest    entries of the newest splits, through which no rows were routed yet.
    row_nodes  the nodes of its rows, without the newest splits: a file (row_nodes.py) by the first block of each run of
              blocks, none before the first splits.
    sizes     nodes of the subtrees below small nodes, by entry, once they are grown.
    """

    def __init__(
        self,
        tree: int,
        key: np.uint64,
        total: Counts,
        context: GrowContext,
        start: StartSearch,
        tree_data: Any,
        constant: NDArray[np.bool_],
    ) -> None:
        """constant: bool [columns], known to be constant in the whole tree."""
        self.tree = tree
        self.context = context
        self.stats = context.stats
        self.tree_data = tree_data
        self.nodes: list[UpperNode] = []
        self.row_nodes: dict[int, Path] = {}
        self.newest: list[int] = []
        self.sizes: dict[int, int] = {}
        self._add(key, 0, total, constant, start)

    def searching(self) -> list[tuple[int, NodeSearch]]:
        """The nodes with requests to the next pass: their entries and searches."""
        return [(entry, node.search) for entry, node in enumerate(self.nodes) if node.search is not None]

    def small(self) -> list[int]:
        """Entries of the nodes to be grown in memory."""
        return [entry for entry, node in enumerate(self.nodes) if node.small]

    @property
    def node_count(self) -> int:
        """Nodes of the whole tree, once its subtrees are grown."""
        return len(self.nodes) - len(self.sizes) + sum(self.sizes.values())

    def subtree(self, folder: Path, entry: int) -> Path:
        """The file of the subtree below a small node."""
        return folder / f"subtree-{self.tree}-{entry}.bin"

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

    def sent(self, below: NDArray[Any], above: NDArray[Any], row_nodes: Mapping[int, Path]) -> list[Path]:
        """Rows have been sent down the newest splits (blocks.py route_rows), and now stand in these files; gives those
        that are not needed any more."""
        if not self.newest:
            return []
        for entry, left, right in zip(self.newest, below.tolist(), above.tolist(), strict=True):
            node = self.nodes[entry]
            if node.cut is not None and node.cut.listed is None:
                alone = node.cut.way == MISSING_RIGHT and right == AFTER_ALL
                node.below, node.above = left, 0 if alone else right
        self.newest = []
        past, self.row_nodes = self.row_nodes, dict(row_nodes)
        return list(past.values())

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
        codes = [(node.below, node.above) if self.context.kind == CODES else (0, 0) for node in nodes]
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
        if self.context.features.plain:
            return None
        cuts = [self.nodes[entry].cut for entry in self.preorder()]
        lists = [np.empty(0, np.uint8) if cut is None or cut.listed is None else cut.listed for cut in cuts]
        levels = [np.flatnonzero(np.unpackbits(listed, bitorder="little")).astype(np.uint32) for listed in lists]
        return Subsets(
            missing=np.array([UNSEEN if cut is None else cut.missing for cut in cuts], np.uint8),
            size=np.array([subset.size for subset in levels], np.uint32),
            level=np.concatenate(levels),
            used=np.array([sum(subset.size for subset in levels)], np.uint64),
        )

    def _add(self, key: np.uint64, depth: int, total: Counts, constant: NDArray[np.bool_], start: StartSearch) -> int:
        node = UpperNode(key, depth, total, constant)
        if _may_split(self.stats, total, depth, self.context.rules):
            node.small = bool(self.stats.rows(total) <= self.context.limits.rows)
            if not node.small:
                search = start(self.tree_data, key, total, constant)
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
