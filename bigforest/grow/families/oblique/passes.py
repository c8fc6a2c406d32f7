"""The table of trees that split on projections, for growing by passes: its values.

They are written to scratch once (grow/out_of_core/decoded_table.py). A node too large for memory draws its directions,
and passes project its rows on them, in the same order of terms as in memory. Oracle: grow/in_memory.py
grow_tree, which has all in memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.out_of_core.assemble import join_pieces
from bigforest.grow.out_of_core.decoded_table import DecodedTable, ValueReader, column_at
from bigforest.grow.out_of_core.levels import answer
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.probes import PROJECTIONS, DirectionLine
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, merged_all
from bigforest.grow.out_of_core.row_file import NodeRows, load_rows
from bigforest.grow.out_of_core.table import SubtreeTask, TableView, TreeAssembly, TreeOwn
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.grow.shared.tree_arrays import tree_arrays
from bigforest.kernels.common.midpoint import midpoints
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.blocks import BlockValues
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import CodeTree, Roots, Rules
from bigforest.storage.array_file import read_arrays, write_arrays

# The arrays of a subtree in a file; `size` is the number of terms of each node, `term` the feature of each of them.
_TYPES = {
    "feature": "<i4",
    "right": "<u4",
    "depth": "<u4",
    "counts": "<u4",
    "threshold": "<f8",
    "size": "<u4",
    "term": "<i4",
    "weight": "<f8",
}

# From a column and some of its values to the largest values that are equivalent in the forest.
Ends = Callable[[int, NDArray[np.float64]], NDArray[np.float64]]


class SubtreeScratch(NamedTuple):
    """Inputs of growing a subtree, besides the columns of its rows; see kernels/tree/grow.py."""

    items: NDArray[np.uint64]
    target: ClassTarget | RegressionTarget
    roots: Roots
    rules: Rules


@dataclass(frozen=True)
class ProjectionTable(TableView):
    """See TableView; its cells are values. `own` is specific to a tree: class means, axes, or a subspace."""

    decoded: DecodedTable
    kind = PROJECTIONS

    # What depends on the family, besides the methods of TableView.

    def sample(self, tree: int, rows: range, cells: BlockValues) -> NDArray[np.int64] | None:
        """Sums over the rows of a block that a tree needs, to be added up over all blocks; None without such sums."""
        return None

    @property
    def sampled(self) -> bool:
        """Whether there is a `sample`."""
        return False

    def survey(self, tree: int, sample: NDArray[np.int64] | None) -> SplitRequest | None:
        """The requests of a tree about its bag before it grows, made by its root; sample: None unless sampled."""
        return None

    @abstractmethod
    def own_of(self, tree: int, total: Counts, request: SplitRequest | None, response: SplitResponse | None) -> TreeOwn:
        """The own data of the tree, from its survey."""

    def layout(self, own: Any) -> DecodedTable:
        """Where the columns of a tree are in their cells: `place` and `matrices` are used."""
        return self.decoded

    def ends(self, column: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See Ends."""
        return values

    @abstractmethod
    def grow_below(
        self, own: Any, columns: Sequence[NDArray[Any]], subtree: SubtreeScratch
    ) -> tuple[CodeTree, DirectionExtras]:
        """The subtree below a small node, with all thresholds in the pool; columns: values of its rows."""

    def finished(self, own: Any, nodes: TreeArrays) -> TreeArrays:
        """The nodes in terms of features."""
        return nodes

    # What families share.

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """See TableView: those of the files of values, for any number of tasks."""
        return [(blocks,) for blocks in self.decoded.runs]

    def own(
        self, trees: Sequence[int], totals: Counts, ranges: Sequence[tuple[range]], folder: Path, executor: Executor
    ) -> list[TreeOwn]:
        """See TableView."""
        samples: Sequence[NDArray[np.int64] | None] = [None] * len(trees)
        if self.sampled:
            samples = [*executor.reduce(sample, ranges, np.add, (self, trees))]
        requests = [self.survey(tree, own) for tree, own in zip(trees, samples, strict=True)]
        asked = [request for request in requests if request is not None]
        responses: list[SplitResponse | None] = [None] * len(trees)
        if asked:
            responses = [*executor.reduce(answer, ranges, merged_all, (self, asked, folder))]
        return [self.own_of(*tree) for tree in zip(trees, totals, requests, responses, strict=True)]

    def samples(self, trees: Sequence[int], blocks: range) -> NDArray[np.int64]:
        """`sample` of some blocks for each of the trees, [trees, ...]."""
        features = range(len(self.decoded.place))
        with self.reader(blocks, features, False) as reader:
            found: list[Any] = []
            for block in blocks:
                cells = reader.read(block, features)
                first = block * self.store.block_rows
                rows = range(first, first + reader.size(block))
                here = [self.sample(tree, rows, cells) for tree in trees]
                found = [one + two for one, two in zip(found, here, strict=True)] if found else here
        return np.stack(found)

    def reader(self, blocks: range, features: Sequence[int], again: bool) -> ValueReader:
        """See TableView."""
        return ValueReader(self.store, self.decoded, blocks)

    def grow(self, own: Any, subtree_task: SubtreeTask, rows: NodeRows, path: Path) -> int:
        """See TableView."""
        layout = self.layout(own)
        matrices, items = load_rows(rows, layout.matrices, self.store.block_rows, subtree_task.rows)
        roots = Roots.one(items.size, subtree_task.key, subtree_task.depth, subtree_task.constant)
        subtree = SubtreeScratch(items, self.context.target(), roots, self.context.rules)
        columns = [column_at(matrices, place) for place in layout.place]
        nodes, pool = self.grow_below(own, columns, subtree)
        _write_subtree(path, nodes, pool)
        return nodes.feature.size

    def pieces(self, assembly: TreeAssembly) -> Iterator[TreeArrays]:
        """See TableView."""
        dictionaries, criterion = self.store.dictionaries, self.context.criterion

        def finished(nodes: CodeTree, pool: DirectionExtras) -> TreeArrays:
            return tree_arrays(nodes, dictionaries, criterion, pool, known=pool.threshold)

        def below(entry: int) -> TreeArrays:
            return finished(*_read_subtree(assembly.subtree(entry)))

        upper = finished(assembly.top.skeleton(), upper_extras(assembly.top, self.ends))
        for nodes in join_pieces(upper, list(assembly.top.preorder()), assembly.sizes, below):
            yield self.finished(assembly.top.own, nodes)


def sample(table: ProjectionTable, trees: Sequence[int], blocks: range) -> NDArray[np.int64]:
    """Task: see ProjectionTable.samples."""
    return table.samples(trees, blocks)


def upper_extras(top: UpperTree, ends: Ends) -> DirectionExtras:
    """Further data of the nodes of the skeleton, with thresholds for all of them."""
    nodes = [top.nodes[entry] for entry in top.preorder()]
    below, above = np.array([node.below for node in nodes], float), np.array([node.above for node in nodes], float)
    for at, node in enumerate(nodes):
        if node.feature >= 0:
            below[at] = ends(node.feature, below[at : at + 1])[0]
        if node.cut is not None and isinstance(node.direction, DirectionLine):
            below[at] = above[at] = node.cut.code
    threshold = np.empty(len(nodes))
    midpoints(below, above, threshold)
    oblique = [None if node.direction is None or node.direction.single else node.direction for node in nodes]
    used = [direction for direction in oblique if direction is not None]
    return DirectionExtras(
        threshold=threshold,
        size=np.array([0 if direction is None else direction.feature.size for direction in oblique], np.uint32),
        feature=np.concatenate([*(each.feature for each in used), np.zeros(0)]).astype(np.int32),
        weight=np.concatenate([*(each.weight for each in used), np.zeros(0)]),
        used=np.array([sum(each.feature.size for each in used)], np.uint64),
    )


def _write_subtree(path: Path, nodes: CodeTree, pool: DirectionExtras) -> None:
    arrays = (nodes.feature, nodes.right, nodes.depth, nodes.counts, pool.threshold, pool.size)
    write_arrays(path, _TYPES, *arrays, pool.feature, pool.weight)


def _read_subtree(path: Path) -> tuple[CodeTree, DirectionExtras]:
    """Inverse of `_write_subtree`. Raises FormatError for a damaged file."""
    feature, right, depth, counts, threshold, size, term, weight = read_arrays(path, _TYPES)
    none = np.zeros(feature.size, np.uint32)
    nodes = CodeTree(feature, right, depth, none, none, counts)
    return nodes, DirectionExtras(threshold, size, term, weight, np.array([term.size], np.uint64))
