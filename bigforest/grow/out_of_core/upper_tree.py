"""The upper part of a tree, split by passes, and the subtrees below it, which grow in memory.

A node of the upper part (`UpperNode`) searches for its split, is split, is small (its rows fit in memory), or is a
leaf:

    0 split ─┬─ 1 split ─┬─ 3 small      root of a subtree that is grown later, into a file (`write_subtree`)
             │           └─ 4 leaf
             └─ 2 searching              has probes for the next pass

Once the subtrees of a tree on features are grown, `look_up_thresholds` finds the values next to each threshold.
TableView.pieces puts the tree together in preorder. If the tree is cut, `cut_pieces` cuts the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.nodes import TreeArrays
from bigforest.grow.cut import cut_nodes, decreases_in_tree, heap_size
from bigforest.grow.out_of_core.context import CODES, SUM, WEIGHT, Counts, GrowContext, NodeStats
from bigforest.grow.out_of_core.node_search import NodeSearch, NodeSplit
from bigforest.grow.out_of_core.probes import Direction
from bigforest.grow.trees import Ends
from bigforest.kernels.common.layout import LEAF, OBLIQUE
from bigforest.kernels.common.rng import LEFT, PURPOSE_GROW, RIGHT, scramble, stream_key
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.blocks import AFTER_ALL, MISSING_RIGHT
from bigforest.kernels.scan.categorical_missing import UNSEEN, Subsets
from bigforest.kernels.tree.builder import CodeTree, Rules
from bigforest.kernels.tree.cut import CutRules, cut_trees
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import release_freed
from bigforest.storage.array_file import mapped_array, read_arrays, write_arrays
from bigforest.storage.paths import local_workdir
from bigforest.store.store import Store

# Type of TableView.search.
StartSearch = Callable[[Any, np.uint64, Counts, NDArray[np.bool_]], NodeSearch]
# Suffix of the file with the values next to the thresholds of a subtree.
_ENDS = ".ends"
# Values that are looked up at a time.
_LOOKED_UP = 1 << 16
# Arrays of a CodeTree, of Subsets, and of DirectionExtras. Arrays that the nodes do not have are empty.
_TYPES = {
    "feature": "<i4",
    "right": "<u4",
    "depth": "<u4",
    "left_code": "<u4",
    "right_code": "<u4",
    "counts": "<u4",
    "sums": "<i8",
    "missing": "<u1",
    "size": "<u4",
    "level": "<u4",
    "threshold": "<f8",
    "terms": "<u4",
    "term": "<i4",
    "weight": "<f8",
}
_END_TYPES = {"below": "<f8", "above": "<f8"}
# A tree in codes, and its data for missing values and categories, or for directions.
Subtree = tuple[CodeTree, Subsets | DirectionExtras | None]


@dataclass(slots=True)
class UpperNode:
    """A node of the upper part.

    total         int64 [slots], statistics of the node (context.py)
    constant      bool [columns], True for columns known to be constant in the node
    small         True if the subtree of the node is grown in memory
    search        the search for the split; None once it has ended
    split         the split; None for a leaf, and until the node is split
    left, right   entries of the children
    below, above  largest code or projection that went left, and smallest that went right. Both are 0 if levels are
                  listed; `above` is 0 if only missing values went right
    """

    key: np.uint64
    depth: int
    total: Counts
    constant: NDArray[np.bool_]
    small: bool = False
    search: NodeSearch | None = None
    split: NodeSplit | None = None
    left: int = 0
    right: int = 0
    below: float = 0
    above: float = 0

    @property
    def direction(self) -> Direction | None:
        """Direction that the node is split on; None for a feature in codes, and for a leaf."""
        return None if self.split is None else self.split.direction

    @property
    def feature(self) -> int:
        """Feature that the node is split on, as in CodeTree; -1 if it is not split."""
        if self.split is None or self.split.direction is None:
            return -1 if self.split is None else self.split.feature
        return int(self.split.direction.feature[0]) if self.split.direction.is_feature else OBLIQUE


class UpperTree:
    """The upper part of tree number `tree`.

    tree_data  see TableView.tree_data
    nodes      parents before their children, the root first; an entry is a place in this list
    newest     entries of the newest splits, through which no rows were routed yet
    row_nodes  for each run of blocks, by its first block, the file with the node of each row (row_file.py) before the
               newest splits. Empty before rows were routed
    sizes      number of nodes of the subtrees below small nodes, by entry, once they are grown
    """

    def __init__(
        self,
        tree: int,
        key: np.uint64,
        total: Counts,
        context: GrowContext,
        start: StartSearch,
        tree_data: Any,
        columns: int,
    ) -> None:
        """Begin with the root; columns: number of columns of the tree."""
        self.tree = tree
        self.context = context
        self.stats = context.stats
        self.tree_data = tree_data
        self.nodes: list[UpperNode] = []
        self.row_nodes: dict[int, Path] = {}
        self.newest: list[int] = []
        self.sizes: dict[int, int] = {}
        self._add(key, 0, total, np.zeros(columns, np.bool_), start)

    def searching(self) -> list[tuple[int, NodeSearch]]:
        """Return the nodes with requests to the next pass: entries and searches."""
        return [(entry, node.search) for entry, node in enumerate(self.nodes) if node.search is not None]

    def small(self) -> list[int]:
        """Return the entries of the nodes whose subtrees grow in memory."""
        return [entry for entry, node in enumerate(self.nodes) if node.small]

    @property
    def node_count(self) -> int:
        """Number of nodes of the whole tree, once its subtrees are grown."""
        return len(self.nodes) - len(self.sizes) + sum(self.sizes.values())

    def subtree(self, folder: Path, entry: int) -> Path:
        """Return the file of the subtree below a small node."""
        return folder / f"subtree-{self.tree}-{entry}.bin"

    def settle(self, entry: int, search: NodeSearch, start: StartSearch) -> None:
        """Store the search of a node after it received answers. If the search is over, split the node and add its
        children, or make it a leaf."""
        node = self.nodes[entry]
        node.search = search if search.pending else None
        node.split = split = None if search.pending else search.split()
        node.constant = search.constant
        if split is None:
            return
        self.newest.append(entry)
        with np.errstate(over="ignore"):
            key_l, key_r = scramble(node.key ^ LEFT), scramble(node.key ^ RIGHT)
        node.left = self._add(key_l, node.depth + 1, split.left, node.constant, start)
        node.right = self._add(key_r, node.depth + 1, node.total - split.left, node.constant, start)

    def record_routed(self, below: NDArray[Any], above: NDArray[Any], row_nodes: Mapping[int, Path]) -> list[Path]:
        """Record that rows were routed through the newest splits. Return the files that are not needed any more.

        below, above  values next to the newest splits, see SplitResponse
        row_nodes     new files of the nodes of rows
        """
        if not self.newest:
            return []
        for entry, left, right in zip(self.newest, below.tolist(), above.tolist(), strict=True):
            node = self.nodes[entry]
            if node.split is not None and node.split.listed is None:
                alone = node.split.way == MISSING_RIGHT and right == AFTER_ALL
                node.below, node.above = left, 0 if alone else right
        self.newest = []
        past, self.row_nodes = self.row_nodes, dict(row_nodes)
        return list(past.values())

    def preorder(self) -> Iterator[int]:
        """Yield the entries of the nodes in preorder."""
        waiting = [0]
        while waiting:
            entry = waiting.pop()
            yield entry
            node = self.nodes[entry]
            if node.split is not None:
                waiting += [node.right, node.left]

    def skeleton(self) -> CodeTree:
        """Return the upper part as a tree whose small nodes are leaves, after rows were routed through all splits.
        Codes are 0 in trees that split on directions."""
        order = list(self.preorder())
        number = {entry: place for place, entry in enumerate(order)}
        nodes = [self.nodes[entry] for entry in order]
        totals = np.stack([node.total for node in nodes])
        counts = totals[:, [WEIGHT]] if self.stats.regression else totals[:, : self.stats.classes]
        codes = [(node.below, node.above) if self.context.kind == CODES else (0, 0) for node in nodes]
        return CodeTree(
            feature=np.array([node.feature for node in nodes], np.int32),
            right=np.array([number[node.right] if node.split is not None else 0 for node in nodes], np.uint32),
            depth=np.array([node.depth for node in nodes], np.uint32),
            left_code=np.array([below for below, _ in codes], np.uint32),
            right_code=np.array([above for _, above in codes], np.uint32),
            counts=counts.astype(np.uint32),
            sum=totals[:, SUM].copy() if self.stats.regression else None,
        )

    def subsets(self) -> Subsets | None:
        """Return the data of the skeleton for missing values and categories; None if features are plain."""
        if self.context.features.plain:
            return None
        splits = [self.nodes[entry].split for entry in self.preorder()]
        lists = [np.empty(0, np.uint8) if split is None or split.listed is None else split.listed for split in splits]
        levels = [np.flatnonzero(np.unpackbits(listed, bitorder="little")).astype(np.uint32) for listed in lists]
        return Subsets(
            missing=np.array([UNSEEN if split is None else split.missing for split in splits], np.uint8),
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
    """Return True if a node with these statistics may be split by the rules."""
    pure = not stats.regression and np.count_nonzero(total[: stats.classes]) <= 1
    return not pure and stats.weight(total) >= max(rules.min_split, 2 * rules.min_leaf) and depth != rules.max_depth


def root_key(config: TrainConfig, tree: Any) -> Any:
    """Return the key of the root of a tree, uint64, or of several trees, uint64 [trees]."""
    return stream_key(config.seed, PURPOSE_GROW, tree, 0)


def write_subtree(path: Path, nodes: CodeTree, extras: Subsets | DirectionExtras | None) -> int:
    """Write a grown subtree to a file (storage/array_file.py); return its number of nodes."""
    subsets = extras[:-1] if isinstance(extras, Subsets) else [None] * 3
    directions = extras[:-1] if isinstance(extras, DirectionExtras) else [None] * 4
    arrays = (*nodes, *subsets, *directions)
    write_arrays(path, _TYPES, *(np.empty(0) if array is None else array for array in arrays))
    return nodes.feature.size


def read_subtree(path: Path) -> Subtree:
    """Invert `write_subtree`. Raise FormatError for a damaged file."""
    *nodes, sums, missing, size, level, threshold, terms, term, weight = read_arrays(path, _TYPES)
    extras: Subsets | DirectionExtras | None = None
    if missing.size:
        extras = Subsets(missing, size, level, np.array([level.size], np.uint64))
    elif threshold.size:
        extras = DirectionExtras(threshold, terms, term, weight, np.array([term.size], np.uint64))
    return CodeTree._make((*nodes, sums if sums.size else None)), extras


def look_up_thresholds(store: Store, paths: Sequence[Path]) -> None:
    """Task: find the values next to the thresholds of subtrees, and write them into a file of each subtree.

    The values of all subtrees are looked up in about the order of their places in the dictionaries. Dictionaries may be
    larger than memory, and in random order every value could cost the reading of a page. Memory: 32 bytes per split,
    one per node, and a subtree. Raises FormatError for a damaged file.
    """
    dictionaries = store.dictionaries
    subtrees = [_places(path, dictionaries.offsets) for path in paths]
    place = np.concatenate([places for places, _ in subtrees], axis=1).reshape(-1)
    inner = [splits for _, splits in subtrees]
    del subtrees
    stretch = max(int(dictionaries.offsets[-1]).bit_length() - 16, 0)
    order = np.argsort((place >> stretch).astype(np.uint16), kind="stable")  # by radix, a tenth of a full sort
    ends = place.view(np.float64)  # each where its place was
    for first in range(0, order.size, _LOOKED_UP):
        portion = order[first : first + _LOOKED_UP]
        below = portion < order.size // 2
        for values, chosen in ((dictionaries.high, portion[below]), (dictionaries.low, portion[~below])):
            ends[chosen] = values[place[chosen]]
    stops = np.cumsum([np.count_nonzero(splits) for splits in inner])[:-1]
    for path, splits, tree_ends in zip(paths, inner, np.split(ends.reshape(2, -1), stops, axis=1), strict=True):
        whole = np.full((2, splits.size), np.nan)
        whole[:, splits] = tree_ends
        write_arrays(path.with_suffix(_ENDS), _END_TYPES, *whole)
    release_freed()


def _places(path: Path, offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the dictionary places of the values next to the thresholds of a subtree, and a mask of its split nodes.

    The places are int64 [2, splits], below and above the thresholds; the mask is bool [nodes].
    """
    nodes = read_subtree(path)[0]
    inner = nodes.feature >= 0
    return offsets[nodes.feature[inner]] + np.stack([nodes.left_code[inner], nodes.right_code[inner]]), inner


def read_ends(path: Path) -> Ends:
    """Read the values that `look_up_thresholds` wrote for a subtree. Raise FormatError for a damaged file."""
    return Ends(*read_arrays(path.with_suffix(_ENDS), _END_TYPES))


def files_of_subtree(path: Path) -> list[Path]:
    """Return the files of a subtree; the second one may not exist."""
    return [path, path.with_suffix(_ENDS)]


def cut_pieces(
    pieces: Callable[[], Iterator[TreeArrays]], nodes: int, rules: CutRules, folder: Path
) -> Iterator[TreeArrays]:
    """Cut a tree of this many nodes; yield the remaining nodes of each piece. The pieces are read twice.

    Numbers and decreases of all nodes are in mapped files without a name in `folder`. The system keeps their pages in
    memory as long as there is room.
    """
    with local_workdir(folder) as work:
        right, number = (mapped_array(work, nodes, np.uint32) for _ in range(2))
        decrease, inner = (mapped_array(work, nodes, kind) for kind in (np.float64, np.bool_))
        heap = mapped_array(work, heap_size(nodes, rules), np.int64)
    begin, root = 0, np.uint64(1)
    for piece in pieces():
        end = begin + piece.feature.size
        root = piece.weight[0] if begin == 0 < end else root
        right[begin:end] = piece.right
        decrease[begin:end] = decreases_in_tree(piece, root)
        begin = end
    cut_trees(np.array([0, nodes]), right, decrease, rules, number, inner, heap)
    begin = 0
    for piece in pieces():
        end = begin + piece.feature.size
        yield cut_nodes(piece, number[begin:end], inner[begin:end], number[piece.right])
        begin = end


def renumbered(nodes: TreeArrays, right: NDArray[Any]) -> TreeArrays:
    """Return nodes with `right` as the numbers of right children, and 0 in leaves."""
    return nodes._replace(right=np.where(nodes.feature == LEAF, 0, right).astype(np.uint32))
