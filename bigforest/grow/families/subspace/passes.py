"""Trees in subspaces that do not fit in memory: what the passes know of the families (oblique/base.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.oblique.base import SubtreeScratch
from bigforest.grow.families.oblique.requests import ProjectionRequest, ProjectionResponse
from bigforest.grow.families.oblique.upper_tree import Ends
from bigforest.grow.families.subspace.search import SubspaceAim, SubspaceSearch
from bigforest.grow.families.subspace.trees import (
    Columns,
    columns_of,
    empty_space,
    tree_subspace,
    with_cells,
)
from bigforest.grow.out_of_core.decoded_table import DecodedTable, matrix_of
from bigforest.grow.out_of_core.node_stats import Counts, NodeStats
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.upper_tree import GrowContext
from bigforest.kernels.columns.row_major import NO_ROWS
from bigforest.kernels.common.layout import Codes
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.projections import BlockValues, Steps
from bigforest.kernels.subspace.columns import Subspace, SubspaceColumns, make_subspace
from bigforest.kernels.tree.builder import CodeTree
from bigforest.kernels.tree.grow import grow_oblique
from bigforest.sampling.bags import Sampler
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store


class TreeSpace(NamedTuple):
    """What a tree has of its own.

    feature  int64, ascending, the features that it sees
    drawn    of them by each node
    """

    feature: NDArray[np.int64]
    drawn: int


class SubspacePasses(NamedTuple):
    """The families.

    epochs  see SubspaceTrees
    seen    how the features are seen
    """

    config: TrainConfig
    epochs: int
    seen: Columns

    @property
    def columns(self) -> int:
        """See Family."""
        return self.seen.unit.size

    @property
    def steps(self) -> Steps:
        """See Family."""
        return Steps(self.seen.low, np.where(self.seen.unit > 0.0, 0.0, -1.0), self.seen.per_step)

    @property
    def sampled(self) -> bool:
        """See Family."""
        return False

    def sample(self, sampler: Sampler, tree: int, rows: range, cells: BlockValues) -> NDArray[np.int64]:
        """See Family."""
        return np.zeros(0, np.int64)

    def survey(self, tree: int, stats: NodeStats, sample: NDArray[np.int64] | None) -> None:
        """See Family: nothing."""

    def own(
        self, tree: int, request: ProjectionRequest | None, total: Counts, response: ProjectionResponse | None
    ) -> Any:
        """See Family; no use is made of columns that are constant."""
        feature = tree_subspace(self.config, self.columns, tree)
        drawn = self.config.subspace_size(self.columns, tree)
        return TreeSpace(feature, drawn), np.zeros(feature.size, np.bool_)

    def search(
        self,
        own: TreeSpace,
        key: np.uint64,
        scorer: SplitScorer,
        constant: NDArray[np.bool_],
        context: GrowContext,
    ) -> SubspaceSearch:
        """See Family."""
        scratch = partial(self.scratch, own, scorer.stats.classes)
        return SubspaceSearch(SubspaceAim(scratch, key, scorer.total, context.rules.min_leaf), constant)

    def scratch(self, own: TreeSpace, classes: int) -> Subspace:
        """Scratch of no rows for a node of a tree that sees these features."""
        return self._scratch_of(empty_space(self.seen, own.feature), own, classes, 0)

    def needed(self, columns: Iterable[int]) -> Iterable[int]:
        """See Family."""
        return columns

    def view(self, own: TreeSpace, cells: BlockValues, rows: int, columns: Collection[int] | None) -> BlockValues:
        """See Family: a copy of the subspace, where rows are wanted whole."""
        feature = own.feature
        if columns is not None or feature.size == self.columns:
            return cells
        width = self._width(cells.place)
        kinds = {4: np.float32, 8: np.float64, 1: np.uint8}
        f32, f64, u8 = (np.zeros((feature.size * (each == width), rows), kind) for each, kind in kinds.items())
        place = np.zeros((self.columns, 2), np.uint32)
        place[feature] = _place(width, feature.size)
        seen = BlockValues(f32, f64, u8, place)
        for at in np.flatnonzero(self.seen.unit[feature]).tolist():
            here, there = matrix_of(cells, cells.place[feature[at], 0]), matrix_of(seen, width)
            there[at] = here[cells.place[feature[at], 1], :rows]
        for matrix in (f32, f64, u8):
            matrix.flags.writeable = False  # as they are read; other flags would be compiled apart
        return seen

    def layout(self, own: TreeSpace, decoded: DecodedTable) -> DecodedTable:
        """See Family."""
        if own.feature.size == self.columns:
            return decoded
        return decoded._replace(place=_place(self._width(decoded.place), own.feature.size))

    def _width(self, place: NDArray[np.uint32]) -> int:
        """Bytes of a value in copies of any of the columns that take part; the copies are of one type."""
        return int(place[self.seen.unit > 0.0, 0].max(initial=1))

    def ends(self, store: Store) -> Ends:
        """See Family: no node splits between values."""
        return lambda column, values: values

    def grow(
        self, own: TreeSpace, columns: Sequence[NDArray[Any]], subtree: SubtreeScratch, ends: Ends
    ) -> tuple[CodeTree, DirectionExtras]:
        """See Family."""
        rows = subtree.items.size
        space = with_cells(empty_space(self.seen, own.feature), columns, rows)
        subspace = self._scratch_of(space, own, subtree.target.number, rows)
        return grow_oblique(_no_codes(own.feature.size), NO_ROWS, *subtree, subspace)

    def finished(self, own: TreeSpace, nodes: TreeArrays) -> TreeArrays:
        """See Family."""
        return nodes

    def _scratch_of(self, space: SubspaceColumns, own: TreeSpace, classes: int, rows: int) -> Subspace:
        """Scratch for nodes of up to this many rows of a tree."""
        return make_subspace(space, own.drawn, self.config.steps, self.epochs, classes, rows)


def subspace_passes(store: Store, config: TrainConfig, epochs: int) -> SubspacePasses:
    """The families of a forest in subspaces; epochs: see SubspaceTrees."""
    return SubspacePasses(config, epochs, columns_of(store, config, epochs))


def _place(width: int, columns: int) -> NDArray[np.uint32]:
    """Where columns are in cells of one type."""
    return np.array([(width, column) for column in range(columns)], np.uint32)


def _no_codes(columns: int) -> Codes:
    """The codes of this many columns, of no rows: trees in subspaces see values."""
    u8, u16, u32 = np.empty((columns, 0), np.uint8), np.empty((0, 0), np.uint16), np.empty((0, 0), np.uint32)
    codes = Codes(u8, u16, u32, _place(1, columns))
    for array in codes:
        array.flags.writeable = False  # as in a store; other flags would be compiled apart
    return codes
