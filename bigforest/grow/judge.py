"""The best split of a node from counts: exact, for weights of any size. Oracle: tests/naive/split.py.

What the kernels do for nodes in memory (kernels/scan_two.py, scan_many.py, impurity.py), this does for histograms that
were added up from many blocks. There are few such nodes, so it is numpy and Python's integers, which do not wrap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from bigforest.kernels.impurity import ERROR, GINI
from bigforest.kernels.level import side_scores

Counts = NDArray[np.int64]

# A float score this much below the best, relatively, cannot be as good: rounding is about 1e-15.
_NEAR = 1e-12
# Splits are scored in groups of at most this many counts, for the sake of memory.
_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """A split of a node: codes of `feature` up to `code` go left; `left` int64 [classes] are the weights there."""

    feature: int
    code: int
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

    def offer(self, feature: int, codes: NDArray[np.int64], left: Counts) -> None:
        """Offer splits after `codes` [n], ascending, with class weights `left` [n, classes] on the left."""
        step = max(1, _CELLS // self.total.size)
        for first in range(0, codes.size, step):
            self._offer(feature, codes[first : first + step], left[first : first + step])

    def _offer(self, feature: int, codes: NDArray[np.int64], left: Counts) -> None:
        weights = left.sum(axis=1)
        least = max(self._min_leaf, 1)
        allowed = np.flatnonzero((weights >= least) & (self.weight - weights >= least))
        if allowed.size == 0:
            return
        scores = self._scores(left[allowed])
        self.limit = max(self.limit, _lowered(float(scores.max())))
        for place in allowed[scores >= self.limit]:
            split = Split(feature, int(codes[place]), left[place].copy(), self._exact(left[place]))  # no view: it stays
            if split.beats(self.best):
                self.best = split

    def bounds(self, before: Counts, counts: Counts) -> NDArray[np.float64]:
        """No split inside bucket b has a higher score than bounds[b], float64 [buckets].

        before, counts  int64 [buckets, classes]: weights left of each bucket, and in it.
        """
        after = before + counts
        if self._impurity == GINI:
            return self._gini_bounds(before, counts, after)
        # The rows of a bucket add to the impurity of whichever side they fall on, so it is least when they add nothing:
        # no entropy, or no error, which is counted here as rows that are right.
        right = counts.sum(axis=1) if self._impurity == ERROR else 0
        # Each of the classes + 1 terms of a side's entropy is rounded to the nearest integer.
        slack = 2 * (self.total.size + 1)
        return (self._sides(before) + self._sides(self.total - after) + right + slack).astype(np.float64)

    def _gini_bounds(self, before: Counts, counts: Counts, after: Counts) -> NDArray[np.float64]:
        """The decrease is sum_k d_k**2 / (w w_l w_r) with d_k = w l_k - t_k w_l, see scan_many.bound_many."""
        weight = float(self.weight)
        if self.total.size == 2:  # convex in the counts, so most at a corner: all of one class left, none of the other
            corners = np.stack([before, before])
            corners[0, :, 0] = after[:, 0]
            corners[1, :, 1] = after[:, 1]
            edges = np.maximum(self._gini(before), self._gini(after))
            return np.maximum(np.maximum(self._gini(corners[0]), self._gini(corners[1])), edges)
        total = self.total.astype(np.float64)
        start, width = before.sum(axis=1, dtype=np.float64), counts.sum(axis=1, dtype=np.float64)
        least = weight * before - total * (start + width)[:, None] + total * counts
        most = weight * after.astype(np.float64) - total * start[:, None] - total * counts
        spread = np.maximum(least * least, most * most).sum(axis=1)
        first, last = np.maximum(start, 1.0), np.minimum(start + width, weight - 1.0)
        room = weight * np.minimum(first * (weight - first), last * (weight - last))
        squares = float((total * total).sum()) / weight
        bounds: NDArray[np.float64] = squares + np.divide(
            spread, room, out=np.full(spread.size, np.inf), where=room > 0
        )
        return bounds

    def _scores(self, left: Counts) -> NDArray[np.float64]:
        if self._impurity == GINI:
            return self._gini(left)
        return self._integers(left).astype(np.float64)

    def _gini(self, left: Counts) -> NDArray[np.float64]:
        """sq_l / w_l + sq_r / w_r; -inf where a side is empty."""
        one = left.astype(np.float64)
        two = (self.total - left).astype(np.float64)
        w_l, w_r = one.sum(axis=1), two.sum(axis=1)
        empty = (w_l == 0) | (w_r == 0)
        w_l[empty] = w_r[empty] = 1.0
        score: NDArray[np.float64] = (one * one).sum(axis=1) / w_l + (two * two).sum(axis=1) / w_r
        score[empty] = -np.inf
        return score

    def _integers(self, left: Counts) -> NDArray[np.int64]:
        return self._sides(left) + self._sides(self.total - left)

    def _sides(self, counts: Counts) -> NDArray[np.int64]:
        scores = np.empty(len(counts), np.int64)
        side_scores(self._impurity, np.ascontiguousarray(counts), self._table, scores)
        return scores

    def _exact(self, left: Counts) -> Fraction | int:
        if self._impurity != GINI:
            return int(self._integers(left[None])[0])
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
