"""The best split of a node from counts: exact, for weights of any size. Oracle: tests/naive/split.py.

The counterpart of the kernels for nodes in memory (kernels/scan/two_class.py, multi_class.py, regression.py and
impurity.py) for histograms that were added up from many blocks: floats find the few splits that could be best, and
Python's integers, which do not wrap, decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.context import Counts, GrowContext
from bigforest.kernels.categories.order_from_counts import order_counted
from bigforest.kernels.categories.ordering import make_levels

# A float score this far below the best, relatively, cannot be equal to it: rounding is about 1e-15.
_NEAR = 1e-12


@dataclass(frozen=True, slots=True)
class ScoredSplit:
    """A split of a node: codes, or projections, up to `code` go left; `left` int64 [parts] are the statistics of these
    rows.

    number  of the order of codes (node_search.py), or of the direction
    rank    place of the number in the draw
    """

    number: int
    rank: int
    code: float
    left: Counts
    score: Fraction | float

    @property
    def key(self) -> tuple[Fraction | float, int, float]:
        """The key of a better one is larger: of equal ones that of the one drawn earlier, or with a lower code."""
        return self.score, -self.rank, -self.code


class SplitScorer:
    """Compares the splits of one node.

    stats     the statistics; regression targets are relative to `centre`
    total     int64 [parts], of the node
    rows      of the node
    best      the best split offered so far
    limit     a split or bucket with a float score below this cannot be as good as the best
    drawn     int64 [features], the place of each feature in the draw; None for directions, drawn by number
    """

    def __init__(self, context: GrowContext, total: Counts) -> None:
        """total: with regression targets not centred."""
        self.stats = stats = context.stats
        self.centre = stats.centre(total)
        self.total = stats.moved(total, -self.centre)
        self.rows = int(stats.rows(total))
        self.best: ScoredSplit | None = None
        self.limit = -np.inf
        self.drawn: NDArray[np.int64] | None = None
        self._origin = float(self.centre) - context.zero
        self._criterion = context.criterion
        self._min_leaf = context.rules.min_leaf
        self._scored = self.total[: stats.scored]

    def offer(self, number: int, codes: NDArray[Any], left: Counts) -> None:
        """Offer splits after `codes` [n >= 1], ascending, with `left` [n, parts] on the left."""
        scores = self._criterion.scores(left, self._scored, self._origin, max(self._min_leaf, 1))
        best = float(scores.max())
        if best == -np.inf:
            return
        self.limit = max(self.limit, best - abs(best) * _NEAR)
        rank = number if self.drawn is None else 2 * int(self.drawn[number // 2]) + number % 2
        for place in np.flatnonzero(scores >= self.limit):
            here = left[place].copy()  # not a view: it is kept
            score = self._criterion.exact(here[: self.stats.scored], self._scored, self._origin)
            split = ScoredSplit(number, rank, codes[place].item(), here, score)
            if self.best is None or split.key > self.best.key:
                self.best = split

    def places(self, counts: Counts, min_level: np.int64) -> NDArray[np.uint32]:
        """The place of each level of a category in the order in which they are split, uint32 [levels].

        counts     int64 [levels, parts], statistics of the rows of each; no weight is 0
        min_level  of Features: lighter levels may share a place
        """
        cells = int(np.count_nonzero(counts[:, : self.stats.classes]))
        levels = make_levels(len(counts), max(len(counts), cells), self.stats.classes or 1)
        places = np.empty(len(counts), np.uint32)
        order_counted(counts, self._scored, self.stats.regression, min_level, levels, places)
        return places

    def bounds(self, before: Counts, counts: Counts) -> NDArray[np.float64]:
        """No split inside bucket b has a higher score than bounds[b], float64 [buckets].

        before, counts  int64 [buckets, parts]: statistics before each bucket, and in it.
        """
        return self._criterion.bounds(before, counts, self._scored, self._origin)
