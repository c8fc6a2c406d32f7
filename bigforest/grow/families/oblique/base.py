"""What trees that split on projections, and grow by passes, differ in: passes.py of their families."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.format.nodes import TreeArrays
from bigforest.grow.families.oblique.requests import ProjectionRequest, ProjectionResponse
from bigforest.grow.families.oblique.upper_tree import Ends, Search
from bigforest.grow.out_of_core.decoded_table import DecodedTable
from bigforest.grow.out_of_core.node_stats import Counts, NodeStats
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.upper_tree import GrowContext
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.projections import BlockValues, Steps
from bigforest.kernels.scan.target import ClassTarget, RegressionTarget
from bigforest.kernels.tree.builder import CodeTree, Roots, Rules
from bigforest.sampling.bags import Sampler
from bigforest.store.store import Store


class SubtreeScratch(NamedTuple):
    """What a subtree grows from, besides the columns of its rows; see kernels/tree/grow.py."""

    items: NDArray[np.uint64]
    target: ClassTarget | RegressionTarget
    roots: Roots
    rules: Rules


class ObliquePasses(Protocol):
    """A family. `own` is what a tree has of its own: class means, axes, or a subspace.

    columns  that a tree splits on: features, or axes.
    steps    in which features are summed for class means.
    sampled  whether what a tree has of its own follows from a sample of the rows of the table, or of its bag.
    """

    @property
    def columns(self) -> int: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def sampled(self) -> bool: ...

    def sample(self, sampler: Sampler, tree: int, rows: range, cells: BlockValues) -> NDArray[np.int64]:
        """What follows for a tree from the rows of a block; added up over all blocks."""

    def survey(self, tree: int, stats: NodeStats, sample: NDArray[np.int64] | None) -> ProjectionRequest | None:
        """What has to be known of the bag of a tree before it grows, asked of its root; sample: None unless sampled."""

    def own(
        self, tree: int, request: ProjectionRequest | None, total: Counts, response: ProjectionResponse | None
    ) -> Any:
        """What the tree has of its own, and bool [columns], the columns that are constant in it, from its survey."""

    def search(
        self, own: Any, key: np.uint64, scorer: SplitScorer, constant: NDArray[np.bool_], context: GrowContext
    ) -> Search:
        """The search for the split of a node."""

    def needed(self, columns: Iterable[int]) -> Iterable[int]:
        """Features that it takes to know these columns."""

    def view(self, own: Any, cells: BlockValues, rows: int, columns: Collection[int] | None) -> BlockValues:
        """The columns of a block of this many rows, all or these alone, from the features."""

    def layout(self, own: Any, decoded: DecodedTable) -> DecodedTable:
        """Where the columns are in their cells: `place` and `matrices` are used."""

    def ends(self, store: Store) -> Ends:
        """From values of a column to the largest ones that are the same to the forest."""

    def grow(
        self, own: Any, columns: Sequence[NDArray[Any]], subtree: SubtreeScratch, ends: Ends
    ) -> tuple[CodeTree, DirectionExtras]:
        """The subtree below a small node, with all thresholds in the pool; columns: values of its rows."""

    def finished(self, own: Any, nodes: TreeArrays) -> TreeArrays:
        """The nodes in terms of features."""
