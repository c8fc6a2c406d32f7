"""The table of trees that split on features, for growing by passes: its codes. Oracle: grow/in_memory.py grow_tree,
with all in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.axis.random_search import RandomSearch, own_codes
from bigforest.grow.out_of_core.assemble import Subtree, look_up_thresholds, read_ends
from bigforest.grow.out_of_core.feature_search import FeatureSearch
from bigforest.grow.out_of_core.levels import block_ranges
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.probes import CODES
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.table import SubtreeScratch, TableView, TreeOwn
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.grow.shared.tree_arrays import Ends, drawn_thresholds, tree_arrays
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.scan.categorical_missing import Subsets
from bigforest.kernels.tree.grow import grow
from bigforest.store.blocks import BlockReader


class FeatureTable(TableView):
    """See TableView."""

    kind = CODES

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """See TableView."""
        return block_ranges(self.store, tasks)

    def own(
        self, trees: Sequence[int], totals: Counts, ranges: Sequence[tuple[range]], folder: Path, executor: Executor
    ) -> list[TreeOwn]:
        """See TableView: nothing."""
        return [(None, np.zeros(len(self.context.features.codes), np.bool_)) for _ in trees]

    def search(self, own: None, key: np.uint64, scorer: SplitScorer, constant: NDArray[np.bool_]) -> FeatureSearch:
        """See TableView."""
        context, limits = self.context, self.context.limits
        start = (key, scorer, context.rules, context.features, constant, limits.keys, limits.cells, limits.room)
        if context.values is None:
            return FeatureSearch.start(*start)
        return RandomSearch.start(*start, key, context.values)

    def reader(self, blocks: range, features: Sequence[int], again: bool) -> BlockReader:
        """See TableView."""
        store = self.store
        store.fetch(features, blocks)
        return BlockReader(store.folder, store.spec, store.block_rows, store.place, again)

    def place(self, own: None) -> NDArray[np.uint32]:
        """See TableView."""
        return self.store.place

    def grow_below(self, own: None, cells: Sequence[NDArray[Any]], subtree: SubtreeScratch) -> Subtree:
        """See TableView."""
        features, roots = self.context.features, subtree.roots
        mixed = features.mixed(roots.max_rows, subtree.target.number)
        u8, u16, u32 = cells
        codes = Codes(u8, u16, u32, self.store.place)
        if self.context.values is None:
            return grow(codes, by_rows(codes), *subtree, mixed)
        ranked = own_codes(codes, self.store, features)
        nodes, subsets = grow(ranked.codes, by_rows(ranked.codes), *subtree, mixed, ranked.dictionary)
        return ranked.known_again(nodes), subsets

    def finish(self, sizes: Mapping[Path, int], executor: Executor) -> None:
        """See TableView: find the ends of the thresholds."""
        executor.run(look_up_thresholds, _batches(sizes, self.context.limits.nodes), lambda *_: None, (self.store,))

    def extras(self, top: UpperTree) -> Subsets | None:
        """See TableView."""
        return top.subsets()

    def finished(self, top: UpperTree, subtree: Subtree, path: Path | None, numbers: NDArray[np.int64]) -> TreeArrays:
        """See TableView."""
        store, config, (nodes, subsets) = self.store, self.sampler.config, subtree
        assert not isinstance(subsets, DirectionExtras)
        ends = Ends.of(nodes, store.dictionaries) if path is None else read_ends(path)
        if config.splitter == "random":
            known = drawn_thresholds(ends, numbers.astype(np.uint64), config.seed, top.tree)
        else:
            known = ends.middle()
        scale = (store.spec.target.offset, store.spec.target.step)
        criterion = self.context.criterion
        return tree_arrays(nodes, store.dictionaries, criterion, known=known, subsets=subsets, scale=scale)


def _batches(sizes: Mapping[Path, int], room: int) -> list[tuple[list[Path]]]:
    """The subtrees whose thresholds are found together, as many as fit: each sweep reads all dictionaries."""
    batches: list[list[Path]] = []
    left = 0
    for path, nodes in sizes.items():
        if nodes > left:
            batches.append([])
            left = room
        batches[-1].append(path)
        left -= nodes
    return [(batch,) for batch in batches]
