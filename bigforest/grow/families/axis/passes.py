"""The table of trees that split on features, for growing by passes: its codes. Oracle: grow/forest.py grow_tree,
with all in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.common.room import Room
from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.axis.random_search import RandomSearch, own_codes
from bigforest.grow.out_of_core.assemble import Subtree, look_up_thresholds, read_ends, read_subtree
from bigforest.grow.out_of_core.context import Counts
from bigforest.grow.out_of_core.feature_search import FeatureSearch
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.table import SubtreeScratch, TableView
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.grow.shared.memory import fitting
from bigforest.grow.shared.tree_arrays import Ends, drawn_thresholds, tree_arrays
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.tree.grow import grow
from bigforest.store.blocks import BlockReader


class FeatureTable(TableView):
    """See TableView."""

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
        self, tree_data: None, cells: Sequence[NDArray[Any]], subtree: SubtreeScratch, room: Room
    ) -> Subtree:
        features, roots = self.context.features, subtree.roots
        mixed = features.mixed(roots.max_rows, subtree.target.number)
        u8, u16, u32 = cells
        codes = Codes(u8, u16, u32, self.store.place)
        if self.context.values is None:
            return grow(codes, by_rows(codes, room.arrays), *subtree, mixed)
        ranked = own_codes(codes, self.store, features)
        nodes, subsets = grow(ranked.codes, by_rows(ranked.codes, room.arrays), *subtree, mixed, ranked.dictionary)
        return ranked.known_again(nodes), subsets

    def finish(self, sizes: Mapping[Path, int], executor: Executor) -> None:
        """See TableView: find the ends of the thresholds."""
        batches = [(batch,) for batch in fitting(list(sizes), list(sizes.values()), self.context.limits.nodes)]
        executor.run(look_up_thresholds, batches, lambda *_: None, (self.store,))

    def finished(self, top: UpperTree, path: Path | None, numbers: NDArray[np.int64]) -> TreeArrays:
        store, config = self.store, self.sampler.config
        nodes, subsets = (top.skeleton(), top.subsets()) if path is None else read_subtree(path)
        assert not isinstance(subsets, DirectionExtras)
        ends = Ends.of(nodes, store.dictionaries) if path is None else read_ends(path)
        if config.splitter == "random":
            known = drawn_thresholds(ends, numbers.astype(np.uint64), config.seed, top.tree)
        else:
            known = ends.middle()
        criterion, scale = self.context.criterion, store.spec.target.scale
        return tree_arrays(nodes, store.dictionaries, criterion, known=known, subsets=subsets, scale=scale)
