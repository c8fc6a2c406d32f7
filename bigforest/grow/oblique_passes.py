"""A table as trees that split on projections see it while they grow by passes: its values.

They are written to scratch once (decoded.py). A node that does not fit draws its directions, and passes project its
rows on them, in the order of terms in which growing in memory does. Oracle: grow/whole.py grow_tree, which has all in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.config import TrainConfig
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.arrays import tree_arrays
from bigforest.grow.assemble import join_pieces, read_arrays, write_arrays
from bigforest.grow.decoded import MATRIX, Decoded, ValueReader, decode
from bigforest.grow.directions import Found, Spans
from bigforest.grow.level import Places, answer, block_ranges, walk
from bigforest.grow.oblique_family import Family, Subtree
from bigforest.grow.oblique_question import DirectionQuestion, DirectionReply, question
from bigforest.grow.oblique_top import DirectionTop
from bigforest.grow.passes import Seedling, Stem
from bigforest.grow.perceptron_passes import Learnt, Piece, Trial, pieces_of, train, trials_of
from bigforest.grow.question import Runs, gathered, hear, merged_all
from bigforest.grow.rotation_passes import rotation_passes
from bigforest.grow.sparse_passes import sparse_passes
from bigforest.grow.spill import NodeRows, Spread, load_rows
from bigforest.grow.standing import Stood
from bigforest.grow.subspace_passes import subspace_passes
from bigforest.grow.tally import Counts
from bigforest.grow.top import Ground, root_key
from bigforest.kernels.level_values import Cells, collect_values, count_values, route_values, sum_values
from bigforest.kernels.oblique import Pool
from bigforest.kernels.target import Classes
from bigforest.kernels.tree import CodeTree, Roots
from bigforest.options import SUBSPACE_FAMILIES
from bigforest.sample import BLOCK_ROWS, Sampler
from bigforest.schedule.crew import Crew
from bigforest.store.store import Store

_FAMILIES: dict[str, Callable[[Store, TrainConfig, Spans, int], Family]] = {
    "sparse-oblique": sparse_passes,
    "rotation": rotation_passes,
    **dict.fromkeys(SUBSPACE_FAMILIES, subspace_passes),
}

# Of the arrays of a subtree in a file: feature, right, depth, counts; threshold and number of terms of each node;
# feature and weight of the terms.
_TYPES = ("<i4", "<u4", "<u4", "<u4", "<f8", "<u4", "<i4", "<f8")


class DirectionPasses(NamedTuple):
    """See passes.Table; its values for cells, and how trees look at these."""

    store: Store
    sampler: Sampler
    ground: Ground
    decoded: Decoded
    family: Family

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """See Table: those of the files of values, however many tasks there are now."""
        return [(blocks,) for blocks in self.decoded.runs]

    def tops(
        self, trees: Sequence[int], totals: Counts, ranges: Sequence[tuple[range]], folder: Path, crew: Crew
    ) -> list[DirectionTop]:
        """See Table: what each tree has of its own is found out first, see Family.own."""
        family, ground = self.family, self.ground
        samples: Sequence[NDArray[np.int64] | None] = [None] * len(trees)
        if family.sampled:
            samples = [*crew.reduce(sample, ranges, np.add, (self, trees))]
        questions = [family.survey(tree, ground.tally, own) for tree, own in zip(trees, samples, strict=True)]
        asked = [question for question in questions if question is not None]
        replies: list[DirectionReply | None] = [None] * len(trees)
        if asked:
            replies = [*crew.reduce(answer, ranges, merged_all, (self, asked, folder))]
        config = self.sampler.config
        return [
            DirectionTop(
                tree, root_key(config, tree), total, ground, family.search, *family.own(tree, asked, total, reply)
            )
            for tree, total, asked, reply in zip(trees, totals, questions, replies, strict=True)
        ]

    def question(self, top: DirectionTop, entries: Sequence[int]) -> DirectionQuestion:
        """See Passed."""
        return question(top, entries)

    def sample(self, trees: Sequence[int], blocks: range) -> NDArray[np.int64]:
        """Family.sample of some blocks for each of the trees, [trees, ...]."""
        with ValueReader(self.store, self.decoded, blocks) as reader:
            found: list[NDArray[np.int64]] = []
            for block in blocks:
                cells = reader.read(block, range(len(self.decoded.place)))
                first = block * self.store.block_rows
                rows = range(first, first + reader.size(block))
                here = [self.family.sample(tree, rows, cells) for tree in trees]
                found = [one + two for one, two in zip(found, here, strict=True)] if found else here
        return np.stack(found)

    def answer(self, questions: list[DirectionQuestion], folder: Path, blocks: range) -> list[DirectionReply]:
        """See Passed."""
        value = np.empty(BLOCK_ROWS)
        most = max((asked.most_probes() for asked in questions), default=0)
        found, tags = np.empty(most * BLOCK_ROWS), np.empty(most * BLOCK_ROWS, np.uint32)
        pieces: list[list[Runs[Found]]] = [[] for _ in questions]
        replies = [asked.no_reply() for asked in questions]
        for at, (items, begin, end), cells in self._route(questions, blocks, replies, folder):
            asked, reply = questions[at], replies[at]
            rows = (cells, asked.asked, items, begin, end)
            parts, weighted = np.uint64(asked.tally.parts), asked.tally.weighted
            counts = (reply.counts, reply.least, reply.most, reply.unfit)
            count_values(*rows, asked.counts, parts, weighted, value, *counts)
            if asked.collects.node.size:
                ends = np.empty(asked.collects.node.size, np.uint64)
                collect_values(*rows, asked.collects, asked.wanted, value, found, tags, ends)
                pieces[at].append(Runs.copied(Found(found, tags), ends))
            if asked.sums.node.size:
                sum_values(cells, items, begin, end, asked.sums, self.family.steps, reply.sums)
        return [
            reply._replace(found=[gathered(of_blocks)] if of_blocks else [])
            for reply, of_blocks in zip(replies, pieces, strict=True)
        ]

    def spread(
        self, questions: Sequence[DirectionQuestion], blocks: range, replies: Sequence[DirectionReply]
    ) -> Iterator[tuple[int, Spread]]:
        """See Table."""
        for at, stood, cells in self._route(questions, blocks, replies, None):
            yield at, Spread((cells.f32, cells.f64, cells.u8), *stood)

    def _route(
        self,
        questions: Sequence[DirectionQuestion],
        blocks: range,
        replies: Sequence[DirectionReply],
        folder: Path | None,
    ) -> Iterator[tuple[int, Stood, Cells]]:
        """For every block and question, its number, the block's rows by nodes, and the columns that the tree splits
        on."""
        value, spare = np.empty(BLOCK_ROWS), np.empty(BLOCK_ROWS, np.uint64)
        needed: Iterable[int] = range(len(self.decoded.place))
        if folder is not None:
            needed = sorted(self.family.needed(set().union(*(asked.features() for asked in questions))))
        rows = 0
        with ValueReader(self.store, self.decoded, blocks) as reader:

            def read(block: int, _: int | None) -> Cells:
                nonlocal rows
                rows = reader.size(block)
                return reader.read(block, needed)

            def send(cells: Cells, at: int, items: NDArray[np.uint64], begin: Places, end: Places) -> Cells:
                asked, reply = questions[at], replies[at]
                seen = self.family.view(asked.own, cells, rows, None if folder is None else asked.features())
                route_values(seen, asked.ways, items, spare, value, asked.splits, begin, end, reply.below, reply.above)
                return seen

            walked = walk(self, questions, blocks, replies, folder, read, send)
            yield from ((at, stood, cells) for at, (stood, _), cells in walked)

    def teach(self, tops: Sequence[DirectionTop], crew: Crew) -> None:
        """See Passed: by perceptrons, a task for each tree, or several where there are few."""
        wanted = [(top, trials) for top in tops if (trials := trials_of(top))]
        shares = max(1, crew.size // max(len(wanted), 1))
        tasks = [
            (self.question(top, []), dict(own))
            for top, trials in wanted
            for share in range(shares)
            if (own := trials[share::shares])
        ]
        learnt: dict[int, dict[int, Learnt]] = {top.tree: {} for top, _ in wanted}
        crew.run(learn, tasks, lambda index, found: learnt[tasks[index][0].tree].update(found), (self,))
        for top, trials in wanted:
            for entry, _ in trials:
                hear(top, entry, [learnt[top.tree][entry]])

    def learn(self, asked: DirectionQuestion, trials: dict[int, Trial]) -> dict[int, Learnt]:
        """What perceptrons of nodes of a tree learn, by node; asked: without probes."""
        place = self.family.layout(self.decoded).place

        def rows(entries: Sequence[int]) -> Iterator[tuple[int, Piece]]:
            own = {entry: trials[entry] for entry in entries}
            for blocks in self.decoded.runs:
                for _, spread in self.spread([asked], blocks, [asked.no_reply()]):
                    yield from pieces_of(spread, place, own)

        return train(trials, rows, self.ground.limits.held)

    def grow(self, own: Any, seedling: Seedling, rows: NodeRows, path: Path) -> int:
        """See Table."""
        store, ground = self.store, self.ground
        layout = self.family.layout(self.decoded)
        matrices, items = load_rows(rows, layout.matrices, store.block_rows, seedling.rows)
        target = Classes(ground.tally.classes, ground.table)
        roots = Roots.one(items.size, seedling.key, seedling.depth, seedling.constant)
        subtree = Subtree(items, target, roots, ground.rules)
        columns = [matrices[MATRIX[width]][slot] for width, slot in layout.place.tolist()]
        nodes, pool = self.family.grow(own, columns, subtree, self.family.ends(store))
        _write_subtree(path, nodes, pool)
        return nodes.feature.size

    def finish(self, sizes: Mapping[Path, int], crew: Crew) -> None:
        """See Table: nothing, thresholds come from values of the rows."""

    def pieces(self, stem: Stem[DirectionTop]) -> Iterator[TreeArrays]:
        """See Table."""
        dictionaries, impurity = self.store.dictionaries, self.sampler.config.criterion

        def finished(nodes: CodeTree, pool: Pool) -> TreeArrays:
            return tree_arrays(nodes, dictionaries, impurity, pool, known=pool.threshold)

        def below(entry: int) -> TreeArrays:
            return finished(*_read_subtree(stem.subtree(entry)))

        upper = finished(stem.top.skeleton(), stem.top.pool(self.family.ends(self.store)))
        for nodes in join_pieces(upper, list(stem.top.preorder()), stem.sizes, below):
            yield self.family.finished(stem.top.own, nodes)


def prepare_directions(store: Store, config: TrainConfig, ground: Ground, folder: Path, crew: Crew) -> DirectionPasses:
    """Write the values of the table to the scratch `folder`."""
    most = ground.limits.values
    decoded = decode(store, block_ranges(store, crew.size), folder, crew, most)
    family = _FAMILIES[config.family](store, config, decoded.spans, most)
    return DirectionPasses(store, Sampler.of(store, config), ground, decoded, family)


def learn(table: DirectionPasses, asked: DirectionQuestion, trials: dict[int, Trial]) -> dict[int, Learnt]:
    """Task: see DirectionPasses."""
    return table.learn(asked, trials)


def sample(table: DirectionPasses, trees: Sequence[int], blocks: range) -> NDArray[np.int64]:
    """Task: see DirectionPasses."""
    return table.sample(trees, blocks)


def _write_subtree(path: Path, nodes: CodeTree, pool: Pool) -> None:
    arrays: list[NDArray[Any]] = [nodes.feature, nodes.right, nodes.depth, nodes.counts, pool.threshold, pool.size]
    typed = zip([*arrays, pool.feature, pool.weight], _TYPES, strict=True)
    write_arrays(path, [array.astype(kind, copy=False) for array, kind in typed])


def _read_subtree(path: Path) -> tuple[CodeTree, Pool]:
    """Inverse of `_write_subtree`. Raises FormatError for a damaged file."""
    feature, right, depth, counts, threshold, size, term, weight = read_arrays(path, _TYPES)
    none = np.zeros(feature.size, np.uint32)
    nodes = CodeTree(feature, right, depth, none, none, counts.reshape(feature.size, -1))
    return nodes, Pool(threshold, size, term, weight, np.array([term.size], np.uint64))
