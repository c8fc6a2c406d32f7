"""The table of trees that split on projections, for growing by passes: its values.

They are written to scratch once (grow/out_of_core/decoded_table.py). A node too large for memory draws its directions,
and passes project its rows on them, in the same order of terms as in memory. Oracle: grow/forest.py
grow_tree, which has all in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.out_of_core.assemble import read_subtree
from bigforest.grow.out_of_core.decoded_table import DecodedTable, ValueReader
from bigforest.grow.out_of_core.probes import Direction, terms_of
from bigforest.grow.out_of_core.requests import SplitRequest, SplitResponse, merged_all
from bigforest.grow.out_of_core.table import TableView
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.grow.shared.tree_arrays import tree_arrays
from bigforest.kernels.common.layout import OBLIQUE
from bigforest.kernels.common.midpoint import midpoints
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.blocks import Steps


@dataclass(frozen=True)
class ProjectionTable(TableView):
    """See TableView; its cells are values. `tree_data` is specific to a tree: class means, axes, or a subspace."""

    decoded: DecodedTable

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """See TableView: those of the files of values, for any number of tasks."""
        return [(blocks,) for blocks in self.decoded.runs]

    def reader(self, blocks: range, features: Sequence[int], again: bool) -> ValueReader:
        """See TableView."""
        return ValueReader(self.store, self.decoded, blocks)

    def place(self, tree_data: Any) -> NDArray[np.uint32]:
        """See TableView: those of the table."""
        return self.decoded.place

    def answer_roots(
        self, requests: list[SplitRequest], ranges: Sequence[tuple[range]], folder: Path, executor: Executor
    ) -> list[SplitResponse]:
        """The responses of all blocks to the requests about the bags of trees, before they grow."""
        return executor.reduce(TableView.answer, ranges, merged_all, (self, requests, folder))

    def largest_equivalent(self, column: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest values that are equivalent in the forest to some values of a column."""
        return values

    @property
    def steps(self) -> Steps | None:
        """See TableView."""
        return self.decoded.steps

    def extras(self, top: UpperTree) -> DirectionExtras:
        """Further data of the nodes of the upper part of a tree, with thresholds for all."""
        nodes = [top.nodes[entry] for entry in top.preorder()]
        below, above = np.array([node.below for node in nodes], float), np.array([node.above for node in nodes], float)
        for at, node in enumerate(nodes):
            if node.feature >= 0:
                below[at] = self.largest_equivalent(node.feature, below[at : at + 1])[0]
            if node.cut is not None and node.direction is not None and node.direction.line:
                below[at] = above[at] = node.cut.code
        threshold = np.empty(len(nodes))
        midpoints(below, above, threshold)
        none = Direction(np.empty(0, np.uint32), np.empty(0))
        directions = [node.direction if node.feature == OBLIQUE and node.direction else none for node in nodes]
        start, feature, weight = terms_of(directions)
        size, used = np.diff(start).astype(np.uint32), start[-1:].astype(np.uint64)
        return DirectionExtras(threshold, size, feature, weight, used)

    def finished(self, top: UpperTree, path: Path | None, numbers: NDArray[np.int64]) -> TreeArrays:
        """See TableView; all thresholds are in the further data."""
        nodes, pool = (top.skeleton(), self.extras(top)) if path is None else read_subtree(path)
        assert isinstance(pool, DirectionExtras)
        return tree_arrays(nodes, self.store.dictionaries, self.context.criterion, pool, known=pool.threshold)
