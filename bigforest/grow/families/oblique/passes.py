"""A table as trees that split on projections see it while they grow by passes: its values.

They are written to scratch once (grow/out_of_core/decoded_table.py). A node that does not fit draws its directions, and
passes project its rows on them, in the order of terms in which growing in memory does. Oracle: grow/in_memory.py
grow_tree, which has all in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.oblique.base import ObliquePasses, SubtreeScratch
from bigforest.grow.families.oblique.requests import ProjectionRequest, ProjectionResponse, request
from bigforest.grow.families.oblique.upper_tree import ObliqueUpperTree
from bigforest.grow.families.subspace.perceptron import Learnt, RowPiece, Trial, pieces_of, train_by_passes, trials_of
from bigforest.grow.out_of_core.assemble import join_pieces, read_arrays, write_arrays
from bigforest.grow.out_of_core.decoded_table import MATRIX, DecodedTable, ValueReader
from bigforest.grow.out_of_core.levels import Places, answer, walk
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.passes import SubtreeTask, TreeAssembly
from bigforest.grow.out_of_core.projection_search import CollectedProjections
from bigforest.grow.out_of_core.requests import Runs, gathered, hear, merged_all
from bigforest.grow.out_of_core.row_nodes import Stood
from bigforest.grow.out_of_core.spill import BlockRows, NodeRows, load_rows
from bigforest.grow.out_of_core.upper_tree import GrowContext, root_key
from bigforest.grow.shared.tree_arrays import tree_arrays
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.projections import (
    BlockValues,
    collect_values,
    count_values,
    route_values,
    sum_values,
)
from bigforest.kernels.tree.builder import CodeTree, Roots
from bigforest.sampling.bags import BLOCK_ROWS, Sampler
from bigforest.store.store import Store

# Of the arrays of a subtree in a file: feature, right, depth, counts; threshold and number of terms of each node;
# feature and weight of the terms.
_TYPES = ("<i4", "<u4", "<u4", "<u4", "<f8", "<u4", "<i4", "<f8")


class ProjectionTable(NamedTuple):
    """See passes.Table; its values for cells, and how trees look at these."""

    store: Store
    sampler: Sampler
    context: GrowContext
    decoded: DecodedTable
    family: ObliquePasses

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """See Table: those of the files of values, however many tasks there are now."""
        return [(blocks,) for blocks in self.decoded.runs]

    def tops(
        self, trees: Sequence[int], totals: Counts, ranges: Sequence[tuple[range]], folder: Path, executor: Executor
    ) -> list[ObliqueUpperTree]:
        """See Table: what each tree has of its own is found out first, see ObliquePasses.own."""
        family, context = self.family, self.context
        samples: Sequence[NDArray[np.int64] | None] = [None] * len(trees)
        if family.sampled:
            samples = [*executor.reduce(sample, ranges, np.add, (self, trees))]
        questions = [family.survey(tree, context.stats, own) for tree, own in zip(trees, samples, strict=True)]
        asked = [request for request in questions if request is not None]
        replies: list[ProjectionResponse | None] = [None] * len(trees)
        if asked:
            replies = [*executor.reduce(answer, ranges, merged_all, (self, asked, folder))]
        config = self.sampler.config
        return [
            ObliqueUpperTree(
                tree, root_key(config, tree), total, context, family.search, *family.own(tree, asked, total, response)
            )
            for tree, total, asked, response in zip(trees, totals, questions, replies, strict=True)
        ]

    def request(self, top: ObliqueUpperTree, entries: Sequence[int]) -> ProjectionRequest:
        """See Passed."""
        return request(top, entries)

    def sample(self, trees: Sequence[int], blocks: range) -> NDArray[np.int64]:
        """Family.sample of some blocks for each of the trees, [trees, ...]."""
        with ValueReader(self.store, self.decoded, blocks) as reader:
            found: list[NDArray[np.int64]] = []
            for block in blocks:
                cells = reader.read(block, range(len(self.decoded.place)))
                first = block * self.store.block_rows
                rows = range(first, first + reader.size(block))
                here = [self.family.sample(self.sampler, tree, rows, cells) for tree in trees]
                found = [one + two for one, two in zip(found, here, strict=True)] if found else here
        return np.stack(found)

    def answer(self, questions: list[ProjectionRequest], folder: Path, blocks: range) -> list[ProjectionResponse]:
        """See Passed."""
        value = np.empty(BLOCK_ROWS)
        most = max((asked.max_probes() for asked in questions), default=0)
        found, tags = np.empty(most * BLOCK_ROWS), np.empty(most * BLOCK_ROWS, np.uint32)
        pieces: list[list[Runs[CollectedProjections]]] = [[] for _ in questions]
        replies = [asked.no_reply() for asked in questions]
        for at, (items, begin, end), cells in self._route(questions, blocks, replies, folder):
            asked, response = questions[at], replies[at]
            rows = (cells, asked.asked, items, begin, end)
            parts, weighted = np.uint64(asked.stats.parts), asked.stats.weighted
            counts = (response.counts, response.least, response.most, response.unfit)
            count_values(*rows, asked.counts, parts, weighted, value, *counts)
            if asked.collects.node.size:
                ends = np.empty(asked.collects.node.size, np.uint64)
                collect_values(*rows, asked.collects, asked.wanted, value, found, tags, ends)
                pieces[at].append(Runs.copied(CollectedProjections(found, tags), ends))
            if asked.sums.node.size:
                sum_values(cells, items, begin, end, asked.sums, self.family.steps, response.sums)
        return [
            response._replace(found=[gathered(of_blocks)] if of_blocks else [])
            for response, of_blocks in zip(replies, pieces, strict=True)
        ]

    def spread(
        self, questions: Sequence[ProjectionRequest], blocks: range, replies: Sequence[ProjectionResponse]
    ) -> Iterator[tuple[int, BlockRows]]:
        """See Table."""
        for at, stood, cells in self._route(questions, blocks, replies, None):
            yield at, BlockRows((cells.f32, cells.f64, cells.u8), *stood)

    def _route(
        self,
        questions: Sequence[ProjectionRequest],
        blocks: range,
        replies: Sequence[ProjectionResponse],
        folder: Path | None,
    ) -> Iterator[tuple[int, Stood, BlockValues]]:
        """For every block and question, its number, the block's rows by nodes, and the columns that the tree splits
        on."""
        value, spare = np.empty(BLOCK_ROWS), np.empty(BLOCK_ROWS, np.uint64)
        needed: Iterable[int] = range(len(self.decoded.place))
        if folder is not None:
            needed = sorted(self.family.needed(set().union(*(asked.features() for asked in questions))))
        rows = 0
        with ValueReader(self.store, self.decoded, blocks) as reader:

            def read(block: int, _: int | None) -> BlockValues:
                nonlocal rows
                rows = reader.size(block)
                return reader.read(block, needed)

            def send(cells: BlockValues, at: int, items: NDArray[np.uint64], begin: Places, end: Places) -> BlockValues:
                asked, response = questions[at], replies[at]
                seen = self.family.view(asked.own, cells, rows, None if folder is None else asked.features())
                route_values(
                    seen, asked.ways, items, spare, value, asked.splits, begin, end, response.below, response.above
                )
                return seen

            walked = walk(self, questions, blocks, replies, folder, read, send)
            yield from ((at, stood, cells) for at, (stood, _), cells in walked)

    def teach(self, tops: Sequence[ObliqueUpperTree], executor: Executor) -> None:
        """See Passed: by perceptrons, a task for each tree, or several where there are few."""
        wanted = [(top, trials) for top in tops if (trials := trials_of(top))]
        shares = max(1, executor.size // max(len(wanted), 1))
        tasks = [
            (self.request(top, []), dict(own))
            for top, trials in wanted
            for share in range(shares)
            if (own := trials[share::shares])
        ]
        learnt: dict[int, dict[int, Learnt]] = {top.tree: {} for top, _ in wanted}
        executor.run(learn, tasks, lambda index, found: learnt[tasks[index][0].tree].update(found), (self,))
        for top, trials in wanted:
            for entry, _ in trials:
                hear(top, entry, [learnt[top.tree][entry]])

    def learn(self, asked: ProjectionRequest, trials: dict[int, Trial]) -> dict[int, Learnt]:
        """What perceptrons of nodes of a tree learn, by node; asked: without probes."""
        place = self.family.layout(asked.own, self.decoded).place

        def rows(entries: Sequence[int]) -> Iterator[tuple[int, RowPiece]]:
            own = {entry: trials[entry] for entry in entries}
            for blocks in self.decoded.runs:
                for _, spread in self.spread([asked], blocks, [asked.no_reply()]):
                    yield from pieces_of(spread, place, own)

        return train_by_passes(trials, rows, self.context.limits.held)

    def grow(self, own: Any, subtree_task: SubtreeTask, rows: NodeRows, path: Path) -> int:
        """See Table."""
        store, context = self.store, self.context
        layout = self.family.layout(own, self.decoded)
        matrices, items = load_rows(rows, layout.matrices, store.block_rows, subtree_task.rows)
        roots = Roots.one(items.size, subtree_task.key, subtree_task.depth, subtree_task.constant)
        subtree = SubtreeScratch(items, context.target(), roots, context.rules)
        columns = [matrices[MATRIX[width]][slot] for width, slot in layout.place.tolist()]
        nodes, pool = self.family.grow(own, columns, subtree, self.family.ends(store))
        _write_subtree(path, nodes, pool)
        return nodes.feature.size

    def finish(self, sizes: Mapping[Path, int], executor: Executor) -> None:
        """See Table: nothing, thresholds come from values of the rows."""

    def pieces(self, stem: TreeAssembly[ObliqueUpperTree]) -> Iterator[TreeArrays]:
        """See Table."""
        dictionaries, criterion = self.store.dictionaries, self.context.criterion

        def finished(nodes: CodeTree, pool: DirectionExtras) -> TreeArrays:
            return tree_arrays(nodes, dictionaries, criterion, pool, known=pool.threshold)

        def below(entry: int) -> TreeArrays:
            return finished(*_read_subtree(stem.subtree(entry)))

        upper = finished(stem.top.skeleton(), stem.top.pool(self.family.ends(self.store)))
        for nodes in join_pieces(upper, list(stem.top.preorder()), stem.sizes, below):
            yield self.family.finished(stem.top.own, nodes)


def learn(table: ProjectionTable, asked: ProjectionRequest, trials: dict[int, Trial]) -> dict[int, Learnt]:
    """Task: see ProjectionTable."""
    return table.learn(asked, trials)


def sample(table: ProjectionTable, trees: Sequence[int], blocks: range) -> NDArray[np.int64]:
    """Task: see ProjectionTable."""
    return table.sample(trees, blocks)


def _write_subtree(path: Path, nodes: CodeTree, pool: DirectionExtras) -> None:
    arrays: list[NDArray[Any]] = [nodes.feature, nodes.right, nodes.depth, nodes.counts, pool.threshold, pool.size]
    typed = zip([*arrays, pool.feature, pool.weight], _TYPES, strict=True)
    write_arrays(path, [array.astype(kind, copy=False) for array, kind in typed])


def _read_subtree(path: Path) -> tuple[CodeTree, DirectionExtras]:
    """Inverse of `_write_subtree`. Raises FormatError for a damaged file."""
    feature, right, depth, counts, threshold, size, term, weight = read_arrays(path, _TYPES)
    none = np.zeros(feature.size, np.uint32)
    nodes = CodeTree(feature, right, depth, none, none, counts.reshape(feature.size, -1))
    return nodes, DirectionExtras(threshold, size, term, weight, np.array([term.size], np.uint64))
