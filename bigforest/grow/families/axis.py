"""The families `axis` and `tree`, whose trees split on features: the best split, or the best of some random splits.

In memory, kernels grow the trees on codes. By passes, the table is the codes of the store (`FeatureTable`), and a large
node searches with `FeatureSearch` (node_search.py) or, for random splits, with `RandomSearch`:

1. Request the smallest and the largest code of each drawn feature, or for a category the counts of its levels.
2. Draw the same cut between the two codes as kernels/scan/random_split.py, and request the counts above it.
3. Offer the cuts, and take the best.

Random cuts are drawn between values, and dictionaries may be larger than memory. A subtree that grows in memory
therefore gets codes and a dictionary of its own rows (`codes_of_rows`), made by reading each dictionary in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import read_only
from bigforest.execution.executor import Executor
from bigforest.execution.process_cache import BufferPool
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.criteria import criterion_of
from bigforest.grow.families.family import Family, TreeCall, check_plain
from bigforest.grow.feature_kinds import Features
from bigforest.grow.memory_model import PassMemory, TreeMemory, code_bytes, target_bytes
from bigforest.grow.out_of_core.context import CODES, Counts, GrowContext, MemoryLimits
from bigforest.grow.out_of_core.node_search import FeatureSearch, SplitScorer
from bigforest.grow.out_of_core.probes import Histogram, HistogramCounts
from bigforest.grow.out_of_core.table import TableView
from bigforest.grow.out_of_core.upper_tree import Subtree, UpperTree, look_up_thresholds, read_ends, read_subtree
from bigforest.grow.row_codes import by_rows
from bigforest.grow.trees import Ends, TreeRows, drawn_of_trees, drawn_thresholds, tree_arrays
from bigforest.kernels.columns.code_cache import FAR_PART, FAR_ROW, far_bytes
from bigforest.kernels.common.layout import CATEGORY, MISSING, Codes, CodeValues
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.scan.random_split import draw_cut, draw_levels
from bigforest.kernels.tree.builder import CodeTree, Rules
from bigforest.kernels.tree.grow import grow
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.planning.sizes import fitting
from bigforest.sampling.bags import Sampler, distinct_rows
from bigforest.store.blocks import BlockReader
from bigforest.store.format import BLOCK_ROWS
from bigforest.store.store import Store

# Buckets of a request for a sum alone. A single bucket of all codes would need a shift by all bits.
_FEW = 2
# Bytes of a cell in NodeCodes in addition to its code.
NODE_VALUE = 12
# Most rows of the bags of trees that grow in one call of the kernel, unless a single bag has more.
_ROWS_TOGETHER = 1 << 17


def dictionary_of(store: Store) -> CodeValues:
    """Return the values between which random splits are drawn."""
    offsets, low, _ = store.dictionaries
    return CodeValues(read_only(offsets), low)


@dataclass(slots=True)
class RandomSearch(FeatureSearch):
    """The search for the best of some random splits."""

    # By numeric feature whose cut is drawn: its order of codes, 2 * feature or 2 * feature + 1 (FeatureSearch), and the
    # largest code below the threshold.
    _cuts: dict[int, tuple[int, int]] = field(default_factory=dict, init=False)

    def _histogram(self, feature: int, most: int) -> Histogram:
        return FeatureSearch._histogram(self, feature, _FEW)

    def _offer_edges(self, probe: Histogram, answer: HistogramCounts) -> None:
        feature = probe.number
        if feature in self._cuts:
            self._offer_cut(feature, answer.counts.sum(axis=0))
        elif self._is_number(feature, answer):
            self._cut_number(feature, int(answer.low), int(answer.high))

    def _cut_number(self, feature: int, low: int, high: int) -> None:
        """Draw a cut between the codes `low` and `high`, and request the counts above it. If the codes are equal,
        offer to split off the missing values."""
        if low == high:
            self._offer_missing(feature)
            return
        assert self.context.values is not None
        values = dictionary_of(self.context.values)
        code, last = draw_cut(values, np.uint64(feature), np.uint64(low), np.uint64(high), self.key)
        self._cuts[feature] = 2 * feature + (last and feature in self._missing), int(code)
        self.pending.append(Histogram.ranges(feature, None, int(code) + 1, high, _FEW))

    def _offer_cut(self, feature: int, above: Counts) -> None:
        number, code = self._cuts[feature]
        left = self.scorer.total - above
        if number % 2:  # missing values go right
            left -= self._missing[feature]
        self.scorer.offer(number, np.array([code]), left[np.newaxis])

    def _arrange(
        self, feature: int, levels: NDArray[np.int64], counts: Counts
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        numbers = np.empty(levels.size, np.uint64)
        cut = draw_levels(levels.astype(np.uint32), self.key, np.uint64(feature), numbers)
        ranks = np.empty(levels.size, np.uint32)
        ranks[np.lexsort((levels, numbers))] = np.arange(levels.size)
        return ranks, np.array([cut], np.int64)


class NodeCodes(NamedTuple):
    """Codes of some rows: ranks among these rows, except for categories. Missing values have code 0.

    dictionary  values of these codes; none for categories
    table_code  uint32, code in the table of each value of the dictionary
    kinds       Features.kinds
    """

    codes: Codes
    dictionary: CodeValues
    table_code: NDArray[np.uint32]
    kinds: NDArray[np.uint8]

    def in_table_codes(self, nodes: CodeTree) -> CodeTree:
        """Convert a tree grown on these codes to codes of the table."""
        numeric = np.flatnonzero((nodes.feature >= 0) & (self.kinds[nodes.feature] != CATEGORY))
        start = self.dictionary.offsets[nodes.feature[numeric]]
        left, right = nodes.left_code.copy(), nodes.right_code.copy()
        left[numeric], right[numeric] = self.table_code[start + left[numeric]], self.table_code[start + right[numeric]]
        return nodes._replace(left_code=left, right_code=right)


def codes_of_rows(codes: Codes, store: Store, features: Features) -> NodeCodes:
    """Replace the codes of some rows by their ranks among these rows. Read every dictionary in ascending order.

    Memory: the codes once more, and NODE_VALUE bytes a cell.
    """
    matrices: dict[int, NDArray[Any]] = {matrix.itemsize: matrix.copy() for matrix in codes[:3]}
    table_codes, low = [], []
    for feature, (width, slot) in enumerate(codes.place.tolist()):
        column = matrices[width][slot]
        distinct = np.empty(0, np.uint32)
        if features.kinds[feature] != CATEGORY:
            distinct = np.unique(column).astype(np.uint32, copy=False)
            if features.kinds[feature] == MISSING and distinct[0] > 0:
                distinct = np.append(np.uint32(0), distinct)
            column[:] = np.searchsorted(distinct, column)
        table_codes.append(distinct)
        low.append(store.low(feature)[distinct])
    dictionary = CodeValues(read_only(np.cumsum([0, *map(len, low)])), read_only(np.concatenate(low)))
    node_codes = Codes._make([*(read_only(matrices[width]) for width in (1, 2, 4)), codes.place])
    return NodeCodes(node_codes, dictionary, np.concatenate(table_codes), features.kinds)


class FeatureTable(TableView):
    """The codes of the store, as passes read them."""

    def search(self, tree_data: None, key: np.uint64, total: Counts, constant: NDArray[np.bool_]) -> FeatureSearch:
        search = FeatureSearch if self.context.values is None else RandomSearch
        return search(self.context, SplitScorer(self.context, total), constant.copy(), key)

    def reader(self, blocks: range, features: Sequence[int], again: bool) -> BlockReader:
        store = self.store
        store.fetch(features, blocks)
        return BlockReader(store.folder, store.spec, store.place, again)

    def place(self, tree_data: None) -> NDArray[np.uint32]:
        return self.store.place

    def grow_below(
        self, tree_data: None, cells: Sequence[NDArray[Any]], subtree: TreeRows, room: BufferPool
    ) -> Subtree:
        features, roots = self.context.features, subtree.roots
        non_plain = features.non_plain(roots.max_rows, subtree.target.number)
        u8, u16, u32 = cells
        codes = Codes(u8, u16, u32, self.store.place)
        if self.context.values is None:
            return grow(codes, by_rows(codes, room.arrays), *subtree, non_plain)
        ranked = codes_of_rows(codes, self.store, features)
        by_row = by_rows(ranked.codes, room.arrays)
        nodes, subsets = grow(ranked.codes, by_row, *subtree, non_plain, ranked.dictionary)
        return ranked.in_table_codes(nodes), subsets

    def finish(self, sizes: Mapping[Path, int], executor: Executor) -> None:
        """Look up the values next to each threshold of the subtrees, one below and one above."""
        batches = [(batch,) for batch in fitting(list(sizes), list(sizes.values()), self.context.limits.nodes)]
        executor.run(look_up_thresholds, batches, shared=(self.store,))

    def finished(self, top: UpperTree, path: Path | None, numbers: NDArray[np.int64]) -> TreeArrays:
        store, config = self.store, self.sampler.config
        nodes, subsets = (top.skeleton(), top.subsets()) if path is None else read_subtree(path)
        assert not isinstance(subsets, DirectionExtras)
        ends = Ends.of(nodes, store.dictionaries) if path is None else read_ends(path)
        if config.splitter == "random":
            thresholds = drawn_thresholds(ends, numbers.astype(np.uint64), config.seed, top.tree)
        else:
            thresholds = ends.middle()
        criterion, scale = self.context.criterion, store.spec.target.scale
        return tree_arrays(nodes, store.dictionaries, criterion, thresholds=thresholds, subsets=subsets, scale=scale)


class AxisFamily(Family):
    """A family of trees that split on features: the best of all splits, or of one random split per drawn feature."""

    uses_values = False
    oracle = "tests/naive/tree.py"
    compiling = (88, 8.0)
    variants = ({"ranks": True},)

    def __init__(self, name: str, splits_on: tuple[str, str]) -> None:
        self.name = name
        self.splits_on = splits_on

    def check(self, shape: Shape, config: TrainConfig) -> None:
        if config.ranks:
            check_plain(shape)

    def trees_per_call(self, shape: Shape, config: TrainConfig) -> int:
        return max(1, min(config.trees, _ROWS_TOGETHER // distinct_rows(shape.rows, config, shape.classes)))

    def tree_memory(self, shape: Shape, config: TrainConfig, rows: int, splits: int) -> TreeMemory:
        # The codes by rows; the far copy of a subtree; the codes and targets, and the values if thresholds are drawn.
        values = 0 if config.splitter == "best" else 8 * shape.codes
        far = far_bytes(shape.row_bytes, shape.rows)
        return TreeMemory(shape.rows * shape.row_bytes, far, code_bytes(shape) + values)

    def pass_memory(self, shape: Shape, config: TrainConfig) -> PassMemory:
        drawn = shape.features if config.feature_fraction is not None else config.drawn_features(shape.features)
        target = target_bytes(shape)
        picked = BLOCK_ROWS * (shape.row_bytes + target)
        drawn_value = NODE_VALUE * shape.features if config.splitter == "random" else 0
        far = -(-(shape.row_bytes + FAR_ROW) // FAR_PART)
        return PassMemory(
            drawn=drawn,
            block=picked + BLOCK_ROWS * (36 + (8 + target) * (drawn + 1)),
            picked=picked,
            row=2 * shape.row_bytes + far + target + drawn_value,  # codes by columns, by rows and in the far copy
            spilled=shape.row_bytes,
            scored=64 if shape.extras.regression else 48,
        )

    def shared(self, store: Store, config: TrainConfig) -> CodeValues | None:
        """Return the values for random splits; None for best splits."""
        return dictionary_of(store) if config.splitter == "random" else None

    def grow(self, call: TreeCall, shared: CodeValues | None) -> TreeArrays:
        store, config = call.sampler.store, call.sampler.config
        non_plain = call.features.non_plain(call.rows.roots.max_rows, call.rows.target.number)
        nodes, subsets = grow(store.codes, call.by_row, *call.rows, non_plain, shared)
        thresholds = None if shared is None else drawn_of_trees(nodes, store.dictionaries, config.seed, call.first)
        criterion, scale = criterion_of(config), store.spec.target.scale
        return tree_arrays(nodes, store.dictionaries, criterion, thresholds=thresholds, subsets=subsets, scale=scale)

    def passed_table(
        self, store: Store, config: TrainConfig, rules: Rules, limits: MemoryLimits, folder: Path, executor: Executor
    ) -> FeatureTable:
        context = GrowContext.of(store, config, rules, limits, CODES)
        return FeatureTable(store, Sampler(store, config), context)


FAMILIES = (
    AxisFamily("axis", ("one of `mtry` features drawn in the node", "Breiman 2001")),
    AxisFamily("tree", ("any feature; one tree, no bootstrap", "Breiman et al. 1984, CART")),
)
