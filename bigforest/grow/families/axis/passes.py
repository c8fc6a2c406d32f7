"""A table as trees that split on features see it while they grow by passes: its codes. Oracle: grow/in_memory.py
grow_tree, which has all in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.memory_estimate import release_freed
from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.out_of_core.assemble import (
    join_pieces,
    look_up_thresholds,
    numbers_in_tree,
    read_ends,
    read_subtree,
    write_subtree,
)
from bigforest.grow.out_of_core.levels import Places, block_ranges, walk
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.passes import SubtreeTask, TreeAssembly
from bigforest.grow.out_of_core.random_search import own_codes
from bigforest.grow.out_of_core.requests import Runs, SplitRequest, SplitResponse, gathered, request
from bigforest.grow.out_of_core.spill import BlockRows, NodeRows, load_node
from bigforest.grow.out_of_core.split_scorer import CollectedCodes
from bigforest.grow.out_of_core.upper_tree import GrowContext, UpperTree, root_key
from bigforest.grow.shared.feature_kinds import Grown, grow_on_features
from bigforest.grow.shared.tree_arrays import Ends, drawn_thresholds, tree_arrays
from bigforest.kernels.columns.row_major import by_rows, no_rows
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.out_of_core.codes import collect_block, count_block, route_block
from bigforest.kernels.tree.builder import Roots
from bigforest.sampling.bags import BLOCK_ROWS, Sampler
from bigforest.store.blocks import BlockReader
from bigforest.store.store import Store


class RoutedRows(NamedTuple):
    """The rows of one block and tree, sorted by the nodes they fall into; see route_block.

    value  int64 [rows of the block], numbers to predict; None for classes
    """

    codes: Codes
    value: NDArray[np.int64] | None
    items: NDArray[np.uint64]
    begin: NDArray[np.uint64]
    end: NDArray[np.uint64]


class FeatureTable(NamedTuple):
    """See passes.Table."""

    store: Store
    sampler: Sampler
    context: GrowContext

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """See Table."""
        return block_ranges(self.store, tasks)

    def tops(
        self, trees: Sequence[int], totals: Counts, ranges: Sequence[tuple[range]], folder: Path, executor: Executor
    ) -> list[UpperTree]:
        """See Table."""
        config = self.sampler.config
        return [
            UpperTree(tree, root_key(config, tree), total, self.context)
            for tree, total in zip(trees, totals, strict=True)
        ]

    def request(self, top: UpperTree, entries: Sequence[int]) -> SplitRequest:
        """See Passed."""
        return request(top, entries)

    def answer(self, questions: list[SplitRequest], folder: Path, blocks: range) -> list[SplitResponse]:
        """See Passed."""
        by_row = no_rows()
        fetched = np.empty(BLOCK_ROWS, np.uint32)
        most = max((asked.max_probes() for asked in questions), default=0)
        found = np.empty(most * BLOCK_ROWS + 1, np.uint64)
        numbers = np.empty(found.size, np.int64) if self.context.stats.numbers else None
        pieces: list[list[Runs[CollectedCodes]]] = [[] for _ in questions]
        replies = [asked.no_reply() for asked in questions]
        needed = sorted(set().union(*(asked.features() for asked in questions)))
        for at, routed in self._route(questions, blocks, needed, replies, folder):
            asked, response = questions[at], replies[at]
            codes, value, items, begin, end = routed
            rows = (codes, by_row, items, begin, end, value)
            parts, weighted = np.uint64(asked.stats.parts), asked.stats.weighted
            cells = (response.counts, response.low, response.high, response.spread)
            count_block(*rows, asked.counts, parts, weighted, fetched, *cells)
            if asked.collects.node.size:
                ends = np.empty(asked.collects.node.size, np.uint64)
                collect_block(*rows, asked.collects, asked.wanted, fetched, found, numbers, ends)
                keys = CollectedCodes(found, np.empty(0, np.int64) if numbers is None else numbers)
                pieces[at].append(Runs.copied(keys, ends))
        return [
            response._replace(keys=[gathered(of_blocks)] if of_blocks else [])
            for response, of_blocks in zip(replies, pieces, strict=True)
        ]

    def teach(self, tops: Sequence[UpperTree], executor: Executor) -> None:
        """See Passed: nothing follows from the order of rows."""

    def spread(
        self, questions: Sequence[SplitRequest], blocks: range, replies: Sequence[SplitResponse]
    ) -> Iterator[tuple[int, BlockRows]]:
        """See Table."""
        every = range(len(self.store.spec.features))
        for at, (codes, value, items, begin, end) in self._route(questions, blocks, every, replies, None):
            matrices = (codes.u32, codes.u16, codes.u8)
            yield at, BlockRows(matrices if value is None else (value[np.newaxis], *matrices), items, begin, end)

    def _route(
        self,
        questions: Sequence[SplitRequest],
        blocks: range,
        needed: Sequence[int],
        replies: Sequence[SplitResponse],
        folder: Path | None,
    ) -> Iterator[tuple[int, RoutedRows]]:
        """For every block and question, the question's number and the block's rows sorted by the nodes they fall into.

        needed   features whose codes are wanted.
        replies  learn which codes were sent left and right, and where the rows stand then.
        folder   for the files of where they stand; None to forget it.
        """
        store = self.store
        by_row, fetched = no_rows(), np.empty(BLOCK_ROWS, np.uint32)
        spare = np.empty(BLOCK_ROWS, np.uint64)
        store.fetch(needed, blocks)
        again = any(asked.row_nodes for asked in questions)
        with BlockReader(store.folder, store.spec, store.block_rows, store.place, again) as reader:

            def read(block: int, following: int | None) -> Codes:
                return reader.read(block, needed, following)

            def send(codes: Codes, at: int, items: NDArray[np.uint64], begin: Places, end: Places) -> Codes:
                below, above = replies[at].below, replies[at].above
                route_block(codes, by_row, items, spare, fetched, questions[at].splits, begin, end, below, above)
                return codes

            for at, (stood, target), codes in walk(self, questions, blocks, replies, folder, read, send):
                yield at, RoutedRows(codes, target if questions[at].stats.numbers else None, *stood)

    def grow(self, own: None, subtree_task: SubtreeTask, rows: NodeRows, path: Path) -> int:
        """See Table."""
        context = self.context
        codes, items, value = load_node(rows, self.store, subtree_task.rows)
        ranked = None if context.values is None else own_codes(codes, self.store, context.features)
        codes, dictionary = (codes, None) if ranked is None else (ranked.codes, ranked.dictionary)
        roots = Roots.one(items.size, subtree_task.key, subtree_task.depth, subtree_task.constant)
        nodes, subsets = grow_on_features(
            codes, by_rows(codes), items, context.target(value), roots, context.rules, context.features, dictionary
        )
        write_subtree(path, (nodes if ranked is None else ranked.known_again(nodes), subsets))
        return nodes.feature.size

    def finish(self, sizes: Mapping[Path, int], executor: Executor) -> None:
        """See Table: find the ends of the thresholds."""
        executor.run(look_up_some, _batches(sizes, self.context.limits.nodes), lambda *_: None, (self.store,))

    def pieces(self, stem: TreeAssembly[UpperTree]) -> Iterator[TreeArrays]:
        """See Table."""
        store, config, top, sizes = self.store, self.sampler.config, stem.top, stem.sizes
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
            path = stem.subtree(entry)
            return finished(read_subtree(path), read_ends(path), number[entry] + np.arange(sizes[entry]))

        skeleton = top.skeleton()
        upper = finished((skeleton, top.subsets()), Ends.of(skeleton, store.dictionaries), numbers)
        return join_pieces(upper, order, sizes, below)


def _batches(sizes: Mapping[Path, int], room: int) -> list[tuple[list[Path]]]:
    """The subtrees whose thresholds are found together, as many as fit: each walk goes over all dictionaries."""
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
