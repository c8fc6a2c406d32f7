"""The search of a node too large for memory for its split: requests to the next pass, and what follows from the
responses.

A node draws columns: features (feature_search.py), or directions (families/), and requests a histogram of each. Every
edge of a bucket is a split and is offered. A bucket that could contain a better one is opened: its rows are collected
(`Collect`) or, if they are too many, counted again in narrower buckets. When no request is left, the best split is the
one that growing in memory finds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.context import Counts, GrowContext
from bigforest.grow.out_of_core.probes import Answer, Collect, Direction, Histogram, HistogramCounts, Probe, boundaries
from bigforest.grow.out_of_core.split_scorer import SplitScorer
from bigforest.kernels.out_of_core.blocks import BY_CODE, DIFFERS
from bigforest.kernels.scan.categorical_missing import UNSEEN

# A histogram of a node of n bag rows has about one bucket for this many times n**(1/4) rows, within these limits. With
# b rows in a bucket there are n / b counts, and about n * b / n**(1/2) rows are read twice if classes
# cannot be separated: then the bound of a bucket exceeds its edges by about b / n**(1/2) of the differences of splits.
# The sum is minimal for b**2 proportional to n**(1/2).
ROWS_PER_BUCKET = 6
LEAST_BUCKETS = 64
MOST_BUCKETS = 1 << 16


@dataclass(slots=True)
class UnopenedBuckets:
    """The buckets of a histogram that are not opened yet.

    bucket          int64 [waiting], their numbers
    before, counts  int64 [waiting, parts], statistics before and in each of them
    """

    probe: Histogram
    bucket: NDArray[np.int64]
    before: Counts
    counts: Counts

    def keep(self, these: NDArray[np.bool_]) -> None:
        """Drop all others; bool [waiting]."""
        self.bucket, self.before, self.counts = self.bucket[these], self.before[these], self.counts[these]


class NodeSplit(NamedTuple):
    """How the rows of a node are split.

    feature  or direction
    code     largest code, or projection, that goes left
    left     int64 [parts], statistics of the left side
    way      see kernels/out_of_core/blocks.py Splits
    missing  see kernels/scan/categorical_missing.py Subsets
    listed   of a category: the levels that Subsets lists, as bits, uint8 (kernels/out_of_core/blocks.py Splits)
    direction  that is split on, None for a feature
    """

    feature: int
    code: float
    left: Counts
    way: int = BY_CODE
    missing: int = UNSEEN
    listed: NDArray[np.uint8] | None = None
    direction: Direction | None = None


class NodeSearch(ABC):
    """The search for the split of one node.

    pending    requests to the next pass; none once the search is over
    constant  bool [features], known to be constant in the node
    """

    pending: list[Probe]
    constant: NDArray[np.bool_]

    @abstractmethod
    def receive(self, answers: Sequence[Answer]) -> None:
        """Take the answers to `pending`, in order, and make new requests."""

    @abstractmethod
    def cut(self) -> NodeSplit | None:
        """The split, once no request is pending; None if there is none."""


@dataclass(slots=True)
class HistogramSearch(NodeSearch):
    """The search for the split of one node. `pending` has its first probes, none if there is nothing to split on.

    constant  bool [features], known to be constant in the node; found ones are added
    """

    context: GrowContext
    scorer: SplitScorer
    constant: NDArray[np.bool_]
    pending: list[Probe] = field(default_factory=list, init=False)
    _unopened: list[UnopenedBuckets] = field(default_factory=list, init=False)

    @abstractmethod
    def _draw(self) -> None:
        """Request more features or directions, if more are wanted."""

    @abstractmethod
    def _is_usable(self, probe: Histogram, answer: HistogramCounts) -> bool:
        """Record the first answer about a feature or direction; returns whether its edges are offered."""

    def _orders(self, number: int) -> list[tuple[int, Counts | int]]:
        """The orders in which a feature or direction is split: their numbers, and the statistics before all buckets."""
        return [(number, 0)]

    def cut(self) -> NodeSplit | None:
        scorer = self.scorer
        if scorer.best is None:
            return None
        return NodeSplit(scorer.best.number, scorer.best.code, scorer.stats.moved(scorer.best.left, scorer.centre))

    def receive(self, answers: Sequence[Answer]) -> None:
        asked, self.pending = self.pending, []
        counted = [answer for answer in answers if isinstance(answer, HistogramCounts)]
        if self.scorer.stats.regression and not all(answer.mark & DIFFERS for answer in counted):
            return  # a leaf: all targets are equal
        for probe, answer in zip(asked, answers, strict=True):
            self._take(probe, answer)
        self._draw()
        bounds = self._prune()
        if bounds.size and not self.pending:
            self._open_buckets(bounds)

    def _take(self, probe: Probe, answer: Answer) -> None:
        if isinstance(probe, Collect):
            self._offer_rows(probe, answer)
        elif isinstance(probe, Histogram):
            self._offer_edges(probe, answer)

    def _most(self, rows: int) -> int:
        """Buckets for a histogram of this many rows."""
        return histogram_buckets(rows, self.scorer.stats.parts, self.context.limits.cells)

    def _offer_edges(self, probe: Histogram, answer: HistogramCounts) -> None:
        left = probe.left
        if left is None:
            if not self._is_usable(probe, answer):
                return
            left = np.zeros(self.scorer.stats.parts, np.int64)
        after = left + np.cumsum(answer.counts, axis=0)
        for number, ahead in self._orders(probe.number):
            self.scorer.offer(number, probe.ends(), ahead + after)
        several = probe.starts() < probe.ends()  # values in a bucket
        waiting = np.flatnonzero(several & (self.scorer.stats.rows(answer.counts) > 1))
        if waiting.size:
            counts = answer.counts[waiting]
            self._unopened.append(UnopenedBuckets(probe, waiting, after[waiting] - counts, counts))

    def _prune(self) -> NDArray[np.float64]:
        """Drop the buckets that cannot contain a better split than the best; returns the bounds of the others."""
        bounds = [np.zeros(0)]
        for unopened in self._unopened:
            orders = self._orders(unopened.probe.number)
            best = np.max([self.scorer.bounds(ahead + unopened.before, unopened.counts) for _, ahead in orders], axis=0)
            promising = best >= self.scorer.limit
            unopened.keep(promising)
            bounds.append(best[promising])
        self._unopened = [unopened for unopened in self._unopened if unopened.bucket.size]
        return np.concatenate(bounds)

    def _open_buckets(self, bounds: NDArray[np.float64]) -> None:
        """Request the buckets that could contain a better split than the best, those with the highest bounds first.

        Buckets beyond the limits wait, and are often pruned before they are opened.
        """
        first = np.cumsum([0, *(unopened.bucket.size for unopened in self._unopened)])
        rows = self.scorer.stats.rows(np.concatenate([unopened.counts for unopened in self._unopened]))
        order = np.argsort(-bounds, kind="stable")
        keys = self.context.limits.keys
        few = order[rows[order] <= keys]
        few = few[np.cumsum(rows[few]) <= keys]
        looked = self._count_again(order[rows[order] > keys], first)
        looked[few] = True
        collected = np.zeros(bounds.size, np.bool_)
        collected[few] = True
        for unopened, start, stop in zip(self._unopened, first[:-1], first[1:], strict=True):
            chosen = collected[start:stop]
            if chosen.any():
                wanted = np.zeros(unopened.probe.buckets, np.bool_)
                wanted[unopened.bucket[chosen]] = True
                self.pending.append(
                    Collect(unopened.probe, wanted, unopened.before[chosen], int(rows[start:stop][chosen].sum()))
                )
            unopened.keep(~looked[start:stop])

    def _count_again(self, buckets: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Request narrower counts of buckets whose rows cannot be collected at once, as many as there is room for.

        buckets  numbers among all that wait; first: where those of each histogram begin, and the last ones end

        Returns which are requested, bool [all that wait].
        """
        cells, stats = self.context.limits.cells, self.scorer.stats
        asked = np.zeros(int(first[-1]), np.bool_)
        for number in buckets.tolist():
            at = int(first.searchsorted(number, side="right")) - 1
            unopened, place = self._unopened[at], number - int(first[at])
            most = self._most(int(stats.rows(unopened.counts[place])))
            narrower = unopened.probe.within(int(unopened.bucket[place]), most, unopened.before[place])
            if cells < self.context.limits.cells and narrower.buckets * stats.parts > cells:
                continue
            cells -= narrower.buckets * stats.parts
            self.pending.append(narrower)
            asked[number] = True
        return asked

    def _offer_rows(self, probe: Collect, answer: Any) -> None:
        count = probe.count
        buckets = np.cumsum(probe.wanted) - 1  # number of each wanted bucket among them
        passed = np.zeros(self.scorer.stats.parts, np.int64)
        bases = np.zeros_like(probe.left)
        last = -1
        for values, upto in boundaries(answer, self.scorer.stats):
            number = buckets[count.bucket(values)]
            starts = np.flatnonzero(np.diff(number, prepend=last))
            ahead = np.concatenate([passed[None], upto[:-1]])
            bases[number[starts]] = probe.left[number[starts]] - ahead[starts]
            for order, before in self._orders(count.number):
                self.scorer.offer(order, values, before + upto + bases[number])
            passed, last = upto[-1], int(number[-1])


def histogram_buckets(rows: int, parts: int, max_cells: int) -> int:
    """Buckets of the histogram of a feature in a node of this many rows, each of this many counts; at least 2."""
    wanted = min(max(int(rows**0.75 / ROWS_PER_BUCKET), LEAST_BUCKETS), MOST_BUCKETS)
    return max(min(wanted, max_cells // parts), 2)
