"""What families of trees that split on projections share: the object, its memory, and the table for passes.

For passes the values are written to scratch once (grow/out_of_core/table.py). A node too large for memory draws
its directions, and passes project its rows on them, in the same order of terms as in memory. Oracle: grow/forest.py
grow_tree, which has all in memory.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import ConfigError, listed
from bigforest.execution.executor import Executor
from bigforest.forest.format import GROUP_ENTRIES
from bigforest.forest.nodes import TreeArrays
from bigforest.grow.criteria import criterion_of
from bigforest.grow.families.family import Family, TreeCall
from bigforest.grow.filled_store import with_defaults
from bigforest.grow.memory_model import code_bytes
from bigforest.grow.out_of_core.context import PROJECTIONS, GrowContext, MemoryLimits
from bigforest.grow.out_of_core.probes import Direction, terms_of
from bigforest.grow.out_of_core.table import DecodedTable, TableView, ValueReader, block_ranges, decode_table
from bigforest.grow.out_of_core.upper_tree import UpperTree, read_subtree
from bigforest.grow.trees import Ends, tree_arrays
from bigforest.kernels.common.layout import OBLIQUE
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.blocks import Steps
from bigforest.kernels.tree.builder import Rules
from bigforest.kernels.tree.grow import grow
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.sampling.bags import Sampler
from bigforest.store.store import Store

# Bytes of a term of a growing tree, twice while it is copied, and of one on its way into a Parquet file.
_TERM = 24
_WRITTEN_TERM = 64
# Bytes per row of the table while columns are measured one at a time.
MEASURED = 48


@dataclass(frozen=True)
class ProjectionTable(TableView):
    """See TableView; its cells are values. `tree_data` is specific to a tree: class means, axes, or a subspace."""

    decoded: DecodedTable

    def ranges(self, tasks: int) -> list[tuple[range]]:
        """See TableView: those of the files of values, for any number of tasks."""
        return [(blocks,) for blocks in self.decoded.runs]

    def reader(self, blocks: range, features: Sequence[int], again: bool) -> ValueReader:
        return ValueReader(self.store, self.decoded, blocks)

    def place(self, tree_data: Any) -> NDArray[np.uint32]:
        """See TableView: those of the table."""
        return self.decoded.place

    def largest_equivalent(self, column: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest values that are equivalent in the forest to some values of a column."""
        return values

    @property
    def steps(self) -> Steps | None:
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
        none = Direction(np.empty(0, np.uint32), np.empty(0))
        directions = [node.direction if node.feature == OBLIQUE and node.direction else none for node in nodes]
        start, feature, weight = terms_of(directions)
        size, used = np.diff(start).astype(np.uint32), start[-1:].astype(np.uint64)
        return DirectionExtras(Ends(below, above).middle(), size, feature, weight, used)

    def finished(self, top: UpperTree, path: Path | None, numbers: NDArray[np.int64]) -> TreeArrays:
        """See TableView; all thresholds are in the further data."""
        nodes, pool = (top.skeleton(), self.extras(top)) if path is None else read_subtree(path)
        assert isinstance(pool, DirectionExtras)
        dictionaries, scale = self.store.dictionaries, self.store.spec.target.scale
        trees = tree_arrays(nodes, dictionaries, self.context.criterion, pool, known=pool.threshold, scale=scale)
        return with_defaults(trees, self.store.spec)


class ProjectionFamily(Family):
    """A family of trees that split on projections."""

    def check(self, shape: Shape, config: TrainConfig) -> None:
        extras = shape.extras
        if extras.odd:
            raise ConfigError(
                "ranks need numbers without missing values, and there are categories or missing values in "
                f"{listed(list(map(repr, extras.odd)))}: train without ranks, exclude, fill or convert them"
            )

    def grow(self, call: TreeCall, shared: Any) -> TreeArrays:
        """See Family; shared has `scratch`, which gives what the kernels need for a tree."""
        store = call.sampler.store
        scratch = shared.scratch(store, call.by_row, call.items, call.first)
        nodes, pool = grow(store.codes, call.by_row, call.items, call.target, call.roots, call.rules, scratch)
        criterion, scale = criterion_of(call.sampler.config), store.spec.target.scale
        return with_defaults(tree_arrays(nodes, store.dictionaries, criterion, pool, scale=scale), store.spec)

    @abstractmethod
    def projection_table(
        self, store: Store, sampler: Sampler, context: GrowContext, decoded: DecodedTable
    ) -> ProjectionTable:
        """The table as passes go over it, from its decoded values."""

    def passed_table(
        self, store: Store, config: TrainConfig, rules: Rules, limits: MemoryLimits, folder: Path, executor: Executor
    ) -> ProjectionTable:
        """See Family: the values, written to `folder`."""
        context = GrowContext.of(store, config, rules, limits, PROJECTIONS)
        decoded = decode_table(store, block_ranges(store, executor.size), folder, executor, limits.values)
        return self.projection_table(store, Sampler(store, config), context, decoded)

    def grown_terms(self, shape: Shape, config: TrainConfig, splits: int) -> int:
        """Bytes of the terms of a tree with `splits` splits."""
        terms = math.ceil(splits * self.max_terms(shape.features, config))
        return terms * _TERM + min(terms, GROUP_ENTRIES) * _WRITTEN_TERM

    def node_terms(self, shape: Shape, config: TrainConfig) -> int:
        """Bytes of the terms of a node."""
        return math.ceil(_TERM * self.max_terms(shape.features, config))


def random_access_bytes(shape: Shape) -> int:
    """Bytes of all codes, targets and values of a table, which growing in memory reads at random."""
    return code_bytes(shape) + 8 * shape.codes


def decoded_bytes(shape: Shape) -> int:
    """Bytes of a value of the table in scratch (out_of_core/decoded_table.py), as far as known."""
    return 1 if shape.bits else 8
