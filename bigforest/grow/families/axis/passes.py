"""The table of trees that split on features, for growing by passes: its codes. Oracle: grow/in_memory.py grow_tree,
with all in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import release_freed
from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.axis.random_search import RandomSearch, own_codes
from bigforest.grow.out_of_core.assemble import (
    Grown,
    join_pieces,
    look_up_thresholds,
    numbers_in_tree,
    read_ends,
    read_subtree,
    write_subtree,
)
from bigforest.grow.out_of_core.feature_search import FeatureSearch
from bigforest.grow.out_of_core.levels import block_ranges
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.probes import CODES
from bigforest.grow.out_of_core.row_file import Matrix, NodeRows, load_rows
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.table import SubtreeTask, TableView, TreeAssembly, TreeOwn
from bigforest.grow.shared.tree_arrays import Ends, drawn_thresholds, tree_arrays
from bigforest.kernels.columns.row_major import by_rows
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.tree.builder import Roots
from bigforest.kernels.tree.grow import grow
from bigforest.store.blocks import BlockReader
from bigforest.store.store import Store


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

    def grow(self, own: None, subtree_task: SubtreeTask, rows: NodeRows, path: Path) -> int:
        """See TableView."""
        context, store = self.context, self.store
        widths = [feature.width for feature in store.spec.features]
        numbers = [Matrix("<i8", 1)] if context.stats.numbers else []
        matrices = [Matrix(f"<u{width}", widths.count(width)) for width in (1, 2, 4)]
        (*values, u8, u16, u32), items = load_rows(rows, [*numbers, *matrices], store.block_rows, subtree_task.rows)
        codes = Codes(u8, u16, u32, store.place)
        ranked = None if context.values is None else own_codes(codes, store, context.features)
        codes, dictionary = (codes, None) if ranked is None else (ranked.codes, ranked.dictionary)
        target = context.target(values[0][0] if values else None)
        roots = Roots.one(items.size, subtree_task.key, subtree_task.depth, subtree_task.constant)
        mixed = context.features.mixed(roots.max_rows, target.number)
        nodes, subsets = grow(codes, by_rows(codes), items, target, roots, context.rules, mixed, dictionary)
        write_subtree(path, (nodes if ranked is None else ranked.known_again(nodes), subsets))
        return nodes.feature.size

    def finish(self, sizes: Mapping[Path, int], executor: Executor) -> None:
        """See TableView: find the ends of the thresholds."""
        executor.run(look_up_some, _batches(sizes, self.context.limits.nodes), lambda *_: None, (self.store,))

    def pieces(self, assembly: TreeAssembly) -> Iterator[TreeArrays]:
        """See TableView."""
        store, config, top, sizes = self.store, self.sampler.config, assembly.top, assembly.sizes
        scale = (store.spec.target.offset, store.spec.target.step)
        order = list(top.preorder())
        numbers = numbers_in_tree(order, sizes)
        number = dict(zip(order, numbers, strict=True))

        def finished(grown: Grown, ends: Ends, numbers: NDArray[np.int64]) -> TreeArrays:
            nodes, subsets = grown
            random = config.splitter == "random"
            known = (
                drawn_thresholds(ends, numbers.astype(np.uint64), config.seed, top.tree) if random else ends.middle()
            )
            criterion = self.context.criterion
            return tree_arrays(nodes, store.dictionaries, criterion, known=known, subsets=subsets, scale=scale)

        def below(entry: int) -> TreeArrays:
            path = assembly.subtree(entry)
            return finished(read_subtree(path), read_ends(path), number[entry] + np.arange(sizes[entry]))

        skeleton = top.skeleton()
        upper = finished((skeleton, top.subsets()), Ends.of(skeleton, store.dictionaries), numbers)
        return join_pieces(upper, order, sizes, below)


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


def look_up_some(store: Store, paths: list[Path]) -> None:
    """Task: find the ends of the thresholds of some subtrees (grow/out_of_core/assemble.py)."""
    look_up_thresholds(paths, store.dictionaries)
    release_freed()
