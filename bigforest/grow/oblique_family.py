"""What trees that split on projections, and grow by passes, differ in: the families of sparse_passes.py,
rotation_passes.py and subspace_passes.py."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigforest.forest.nodes import TreeArrays
from bigforest.grow.decoded import Decoded
from bigforest.grow.judge import Judge
from bigforest.grow.oblique_question import DirectionQuestion, DirectionReply
from bigforest.grow.oblique_top import Ends, Search
from bigforest.grow.tally import Counts, Tally
from bigforest.grow.top import Ground
from bigforest.kernels.level_values import Cells, Steps
from bigforest.kernels.oblique import Pool
from bigforest.kernels.target import Classes
from bigforest.kernels.tree import CodeTree, Roots, Rules
from bigforest.store.store import Store


class Subtree(NamedTuple):
    """What a subtree grows from, besides the columns of its rows; see kernels/grow.py."""

    items: NDArray[np.uint64]
    target: Classes
    roots: Roots
    rules: Rules


class Family(Protocol):
    """A family. `own` is what a tree has of its own: class means, axes, or a subspace.

    columns  that a tree splits on: features, or axes.
    steps    in which features are summed for class means.
    sampled  whether what a tree has of its own follows from rows of the table, besides its bag.
    """

    @property
    def columns(self) -> int: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def sampled(self) -> bool: ...

    def sample(self, tree: int, rows: range, cells: Cells) -> NDArray[np.int64]:
        """What follows for a tree from the rows of a block; added up over all blocks."""

    def survey(self, tree: int, tally: Tally, sample: NDArray[np.int64] | None) -> DirectionQuestion | None:
        """What has to be known of the bag of a tree before it grows, asked of its root; sample: None unless sampled."""

    def own(self, tree: int, question: DirectionQuestion | None, total: Counts, reply: DirectionReply | None) -> Any:
        """What the tree has of its own, and bool [columns], the columns that are constant in it, from its survey."""

    def search(self, own: Any, key: np.uint64, judge: Judge, constant: NDArray[np.bool_], ground: Ground) -> Search:
        """The search for the split of a node."""

    def needed(self, columns: Iterable[int]) -> Iterable[int]:
        """Features that it takes to know these columns."""

    def view(self, own: Any, cells: Cells, rows: int, columns: Collection[int] | None) -> Cells:
        """The columns of a block of so many rows, all or these alone, from the features."""

    def layout(self, decoded: Decoded) -> Decoded:
        """Where the columns are in their cells: `place` and `matrices` are used."""

    def ends(self, store: Store) -> Ends:
        """From values of a column to the largest ones that are the same to the forest."""

    def grow(self, own: Any, columns: Sequence[NDArray[Any]], subtree: Subtree, ends: Ends) -> tuple[CodeTree, Pool]:
        """The subtree below a small node, with all thresholds in the pool; columns: values of its rows."""

    def finished(self, own: Any, nodes: TreeArrays) -> TreeArrays:
        """The nodes in terms of features."""
