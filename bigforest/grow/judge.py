"""The best split of a node from counts: exact, for weights of any size. Oracle: tests/naive/split.py.

What the kernels do for nodes in memory (kernels/scan_two.py, scan_many.py, impurity.py), this does for histograms that
were added up from many blocks: floats find the few that could be best, and integers of Python, which do not wrap,
decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.impurity import GINI
from bigforest.kernels.judge import bucket_bounds, integer_score, split_scores

Counts = NDArray[np.int64]

# A float score this much below the best, relatively, cannot be as good: rounding is about 1e-15.
_NEAR = 1e-12
# Keys are counted in groups of at most this many counts, for the sake of memory.
_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """A split of a node: codes of `feature`, or projections on this direction, up to `code` go left; `left` int64
    [classes] are the weights there."""

    feature: int
    code: float
    left: Counts
    score: Fraction | int

    def beats(self, other: Split | None) -> bool:
        """Whether it is better than the other, or as good with a lower feature, or with a lower code."""
        if other is None:
            return True
        if self.score != other.score:
            return self.score > other.score
        return (self.feature, self.code) < (other.feature, other.code)


class Judge:
    """Compares the splits of one node.

    total     int64 [classes], class weights of the node
    impurity  number of the impurity; table as impurity.entropy_table
    best      the best split offered so far
    limit     a split, or a bucket of codes, whose float score is below this cannot be as good as the best
    """

    def __init__(self, total: Counts, impurity: int, table: NDArray[np.int64], min_leaf: int) -> None:
        self.total = total
        self.weight = int(total.sum())
        self.best: Split | None = None
        self.limit = -np.inf
        self._impurity = impurity
        self._table = table
        self._min_leaf = min_leaf
        self._scratch = np.empty((2, total.size), np.int64)

    def offer(self, feature: int, codes: NDArray[Any], left: Counts) -> None:
        """Offer splits after `codes` [n >= 1], ascending, with class weights `left` [n, classes] on the left."""
        scores = np.empty(codes.size)
        least = max(self._min_leaf, 1)
        split_scores(self._impurity, left, self.total, least, self._table, self._scratch[0], scores)
        best = float(scores.max())
        if best == -np.inf:
            return
        self.limit = max(self.limit, _lowered(best))
        for place in np.flatnonzero(scores >= self.limit):
            here = left[place].copy()  # no view: it stays
            split = Split(feature, codes[place].item(), here, self._exact(here))
            if split.beats(self.best):
                self.best = split

    def bounds(self, before: Counts, counts: Counts) -> NDArray[np.float64]:
        """No split inside bucket b has a higher score than bounds[b], float64 [buckets].

        before, counts  int64 [buckets, classes]: weights left of each bucket, and in it.
        """
        bounds = np.empty(len(counts))
        bucket_bounds(self._impurity, before, counts, self.total, self._table, self._scratch, bounds)
        return bounds

    def _exact(self, left: Counts) -> Fraction | int:
        if self._impurity != GINI:
            return int(integer_score(self._impurity, left, self.total, self._scratch[0], self._table))
        one = [int(count) for count in left]
        two = [int(count) for count in self.total - left]
        return Fraction(sum(n * n for n in one), sum(one)) + Fraction(sum(n * n for n in two), sum(two))


def _lowered(score: float) -> float:
    return score - abs(score) * _NEAR


def boundaries(keys: NDArray[np.uint64], classes: int) -> Iterator[tuple[NDArray[np.int64], Counts]]:
    """The distinct codes of sorted sort keys (see kernels/node.py) in ascending pieces, and the weights up to each.

    Yields codes [n] and class weights [n, classes] of all keys up to and with that code.
    """
    codes = (keys >> np.uint64(32)).astype(np.int64)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    step = max(1, _CELLS // classes)
    carried = np.zeros(classes, np.int64)
    for first in range(0, starts.size, step):
        here = starts[first : first + step]
        end = starts[first + step] if first + step < starts.size else codes.size
        piece = keys[here[0] : end]
        place = np.repeat(np.arange(here.size), np.diff(np.append(here, end)))
        kind = (piece >> np.uint64(16)).astype(np.int64) & 0xFFFF
        weights = np.zeros((here.size, classes), np.int64)
        np.add.at(weights, (place, kind), (piece & np.uint64(0xFFFF)).astype(np.int64))
        upto = carried + np.cumsum(weights, axis=0)
        carried = upto[-1]
        yield codes[here], upto
