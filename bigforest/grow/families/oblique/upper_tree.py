"""The upper part of a tree that splits on projections (grow/out_of_core/upper_tree.py): directions for features,
projections for codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.families.subspace.search import SubspaceSearch
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.projection_search import AxisSearch, Direction, DirectionLine, DirectionSearch
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.grow.out_of_core.upper_tree import GrowContext, UpperTree
from bigforest.kernels.common.layout import OBLIQUE
from bigforest.kernels.common.midpoint import midpoints
from bigforest.kernels.oblique.search import DirectionExtras
from bigforest.kernels.out_of_core.projections import ProjectionSplits
from bigforest.kernels.tree.builder import CodeTree

# From a feature and some of its values to the largest value of the same code of each.
Ends = Callable[[int, NDArray[np.float64]], NDArray[np.float64]]


Search = DirectionSearch | AxisSearch | SubspaceSearch
# The search for the split of a node; see base.py ObliquePasses.
Start = Callable[[Any, np.uint64, SplitScorer, NDArray[np.bool_], GrowContext], Search]


class ObliqueUpperTree(UpperTree):
    """The upper part of a tree, which splits on `directions`, by entry.

    own  what the tree has of its own, see base.py. constant: bool [columns], known to be constant in it.
    """

    def __init__(
        self,
        tree: int,
        key: np.uint64,
        total: Counts,
        context: GrowContext,
        start: Start,
        own: Any,
        constant: NDArray[np.bool_],
    ) -> None:
        self.own = own
        self.directions: dict[int, Direction] = {}
        self._start = start
        super().__init__(tree, key, total, context, constant)

    def settle(self, entry: int) -> None:
        """See UpperTree."""
        search = self.nodes[entry].search
        assert isinstance(search, Search)
        super().settle(entry)
        cut = self.nodes[entry].cut
        if cut is not None:
            self.directions[entry] = search.known[cut.feature]

    def cuts(self) -> tuple[ProjectionSplits, list[Direction]]:
        """The newest splits, and their directions."""
        nodes = [self.nodes[entry] for entry in self._newest]
        codes = [node.cut.code for node in nodes if node.cut is not None]
        cuts = ProjectionSplits(
            node=np.array(self._newest, np.uint32),
            left=np.array([node.left for node in nodes], np.uint32),
            right=np.array([node.right for node in nodes], np.uint32),
            cut=np.array(codes, np.float64),
        )
        return cuts, [self.directions[entry] for entry in self._newest]

    def skeleton(self) -> CodeTree:
        """See UpperTree; codes are 0."""
        feature = [self._feature_of(entry) for entry in self.preorder()]
        return self._outline()._replace(feature=np.array(feature, np.int32))

    def pool(self, ends: Ends) -> DirectionExtras:
        """What the nodes of the skeleton have besides, thresholds of all of them included."""
        order = list(self.preorder())
        below, above = (np.array([getattr(self.nodes[entry], name) for entry in order]) for name in ("below", "above"))
        for at, entry in enumerate(order):
            if (feature := self._feature_of(entry)) >= 0:
                below[at] = ends(feature, below[at : at + 1])[0]
            cut = self.nodes[entry].cut
            if cut is not None and isinstance(self.directions[entry], DirectionLine):
                below[at] = above[at] = cut.code
        threshold = np.empty(len(order))
        midpoints(below, above, threshold)
        terms = [self.directions.get(entry) for entry in order]
        oblique = [None if direction is None or direction.single else direction for direction in terms]
        used = [direction for direction in oblique if direction is not None]
        return DirectionExtras(
            threshold=threshold,
            size=np.array([0 if direction is None else direction.feature.size for direction in oblique], np.uint32),
            feature=np.concatenate([*(each.feature for each in used), np.zeros(0)]).astype(np.int32),
            weight=np.concatenate([*(each.weight for each in used), np.zeros(0)]),
            used=np.array([sum(each.feature.size for each in used)], np.uint64),
        )

    def _search(self, key: np.uint64, scorer: SplitScorer, constant: NDArray[np.bool_]) -> Search:
        return self._start(self.own, key, scorer, constant, self._ground)

    def _feature_of(self, entry: int) -> int:
        """What the tree in codes has for the feature of a node."""
        if entry not in self.directions:
            return -1
        direction = self.directions[entry]
        return int(direction.feature[0]) if direction.single else OBLIQUE
