"""Search for the split of a node too large for memory, by requests to passes over its rows.

1. Draw columns: features (`FeatureSearch`) or directions (families/). Request a histogram of each.
2. Offer the edge of every bucket as a split; `SplitScorer` keeps the best.
3. Bound the scores of all splits inside each bucket. Drop the buckets whose bound is below the best score.
4. Open the other buckets: collect their rows (`Collect`) or, if there are too many rows, count them in narrower
   buckets.
5. Continue with the responses of the next pass until no request is left. The best split is then the same as in memory.

    pass 1   buckets   [ 0..249 ][ 250..499 ][ 500..749 ][ 750..999 ]    codes of one feature
             edges             .31         .55         .40                scores of the splits between buckets
             bounds     .42         .61         .58         .30           buckets 1 and 2 may hold a better split
    pass 2   rows of buckets 1 and 2, every distinct code is offered      best: .57 after code 317

Most nodes take two passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.context import ColumnKind, Counts, GrowContext
from bigforest.grow.out_of_core.probes import (
    Answer,
    Collect,
    CollectedRows,
    Direction,
    Histogram,
    HistogramCounts,
    Probe,
    boundaries,
)
from bigforest.kernels.common.layout import CATEGORY, MISSING
from bigforest.kernels.out_of_core.blocks import (
    AFTER_ALL,
    BY_CODE,
    DIFFERS,
    LISTED_LEFT,
    LISTED_RIGHT,
    MISSING_RIGHT,
)
from bigforest.kernels.out_of_core.node_steps import draw_order
from bigforest.kernels.scan.categorical_missing import SEEN_LEFT, SEEN_RIGHT, UNSEEN
from bigforest.kernels.scan.draw import make_feature_draw
from bigforest.kernels.scan.level_order import make_levels, order_counted

# In a node of n bag rows, a bucket has about ColumnKind.bucket_rows * n**(1/4) rows, within these limits. With b rows
# in a bucket, there are n / b counts. Wider buckets have looser bounds: if a column does not separate the classes, rows
# in proportion to b * n**(1/2) are collected. The sum of both costs is minimal for b in proportion to n**(1/4).
MIN_BUCKETS = 64
MAX_BUCKETS = 1 << 16
# A float score that is lower than the best by this share cannot be an equal score: rounding errors are about 1e-15.
_NEAR = 1e-12


class NodeSplit(NamedTuple):
    """The split of a node.

    feature    number of the feature or direction
    code       largest code, or projection, that goes left
    left       int64 [slots], statistics of the left side
    way        routing rule, see kernels/out_of_core/blocks.py Splits
    missing    see kernels/scan/categorical_missing.py Subsets
    listed     levels that Subsets lists, as bits, uint8 (kernels/out_of_core/blocks.py Splits); None for numbers
    direction  terms of the direction; None for a feature
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

    pending   requests to the next pass; empty when the search is over
    constant  bool [columns], columns known to be constant in the node
    """

    pending: list[Probe]
    constant: NDArray[np.bool_]

    @abstractmethod
    def receive(self, answers: Sequence[Answer]) -> None:
        """Take the answers to `pending`, in order, and make new requests."""

    @abstractmethod
    def split(self) -> NodeSplit | None:
        """Return the split; None for a leaf. To be called when no request is pending."""


@dataclass(frozen=True, slots=True)
class ScoredSplit:
    """A split that was offered.

    number  number of the order of codes (FeatureSearch), or of the direction
    place   place of the number in the draw
    code    largest value that goes left; for a category the last rank of the order of levels that goes left
    left    int64 [slots], statistics of the left side, with targets relative to the centre
    score   exact score
    """

    number: int
    place: int
    code: float
    left: Counts
    score: Fraction | float

    @property
    def key(self) -> tuple[Fraction | float, int, float]:
        """Key by which splits are compared; the best split has the largest.

        Ties go to the column drawn first, then to missing values on the left, then to the lower code.
        """
        return self.score, -self.place, -self.code


class SplitScorer:
    """Comparison of the splits of one node, exact for weights of any size. Oracle: tests/naive/split.py.

    Counts are sums over many blocks and may exceed the integers of kernels. Float scores therefore select the few
    splits that could be best, and Python integers decide.

    stats   layout of the statistics
    centre  number that is subtracted from regression targets
    total   int64 [slots], statistics of the node, with targets relative to the centre
    rows    number of rows of the node
    best    best split offered so far
    bar     no split or bucket with a float score below this can be as good as the best
    drawn   int64 [features], place of each feature in the draw; None for directions, which are numbered as drawn
    """

    def __init__(self, context: GrowContext, total: Counts) -> None:
        """Begin without a split; total: int64 [slots], statistics of the node, with targets not centred."""
        self.stats = stats = context.stats
        self.centre = stats.centre(total)
        self.total = stats.moved(total, -self.centre)
        self.rows = int(stats.rows(total))
        self.best: ScoredSplit | None = None
        self.bar = -np.inf
        self.drawn: NDArray[np.int64] | None = None
        self._origin = float(self.centre) - context.zero
        self._criterion = context.criterion
        self._min_leaf = context.rules.min_leaf
        self._scored = self.total[: stats.scored]

    def offer(self, number: int, codes: NDArray[Any], left: Counts) -> None:
        """Offer the splits after `codes` [n >= 1], ascending; left: [n, slots], statistics of the left sides."""
        scores = self._criterion.scores(left, self._scored, self._origin, max(self._min_leaf, 1))
        best = float(scores.max())
        if best == -np.inf:
            return
        self.bar = max(self.bar, best - abs(best) * _NEAR)
        place = number if self.drawn is None else 2 * int(self.drawn[number // 2]) + number % 2
        for at in np.flatnonzero(scores >= self.bar):
            kept_left = left[at].copy()  # a view would keep the whole array
            score = self._criterion.exact(kept_left[: self.stats.scored], self._scored, self._origin)
            split = ScoredSplit(number, place, codes[at].item(), kept_left, score)
            if self.best is None or split.key > self.best.key:
                self.best = split

    def bounds(self, before: Counts, counts: Counts) -> NDArray[np.float64]:
        """Return upper bounds of the scores of the splits inside buckets, float64 [buckets].

        before, counts  int64 [buckets, slots], statistics before each bucket and in each bucket
        """
        return self._criterion.bounds(before, counts, self._scored, self._origin)

    def level_ranks(self, counts: Counts, min_level: np.int64) -> NDArray[np.uint32]:
        """Return the rank of each level of a category in the order that is scanned, uint32 [levels].

        counts     int64 [levels, slots], statistics of the rows of each level; all weights are above 0
        min_level  levels of less weight may share a rank
        """
        cells = int(np.count_nonzero(counts[:, : self.stats.classes]))
        levels = make_levels(len(counts), max(len(counts), cells), self.stats.classes or 1)
        ranks = np.empty(len(counts), np.uint32)
        order_counted(counts, self._scored, self.stats.regression, min_level, levels, ranks)
        return ranks


@dataclass(slots=True)
class UnopenedBuckets:
    """Buckets of a histogram that may be opened later.

    bucket          int64 [waiting], numbers of the buckets
    before, counts  int64 [waiting, slots], statistics before each bucket and in each bucket
    """

    probe: Histogram
    bucket: NDArray[np.int64]
    before: Counts
    counts: Counts

    def keep(self, selected: NDArray[np.bool_]) -> None:
        """Drop the buckets that are not selected; selected: bool [waiting]."""
        self.bucket, self.before, self.counts = self.bucket[selected], self.before[selected], self.counts[selected]


@dataclass(slots=True)
class HistogramSearch(NodeSearch):
    """A search by histograms of columns. `pending` is empty from the beginning if no column can be split."""

    context: GrowContext
    scorer: SplitScorer
    constant: NDArray[np.bool_]
    pending: list[Probe] = field(default_factory=list, init=False)
    _unopened: list[UnopenedBuckets] = field(default_factory=list, init=False)

    @abstractmethod
    def _draw(self) -> None:
        """Request more features or directions, if more are to be drawn."""

    @abstractmethod
    def _is_usable(self, probe: Histogram, answer: HistogramCounts) -> bool:
        """Record the first answer about a column. Return True if its edges are to be offered."""

    def _orders(self, number: int) -> list[tuple[int, Counts | int]]:
        """Return the orders in which a column is split: the number of each, and the statistics before all buckets."""
        return [(number, 0)]

    def split(self) -> NodeSplit | None:
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

    def _max_buckets(self, rows: int) -> int:
        """Return the most buckets of a histogram of this many rows."""
        return histogram_buckets(rows, self.scorer.stats.slots, self.context.limits.cells, self.context.kind)

    def _offer_edges(self, probe: Histogram, answer: HistogramCounts) -> None:
        left = probe.left
        if left is None:
            if not self._is_usable(probe, answer):
                return
            left = np.zeros(self.scorer.stats.slots, np.int64)
        after = left + np.cumsum(answer.counts, axis=0)
        for number, ahead in self._orders(probe.number):
            self.scorer.offer(number, probe.ends(), ahead + after)
        several = probe.starts() < probe.ends()  # buckets of more than one value
        waiting = np.flatnonzero(several & (self.scorer.stats.rows(answer.counts) > 1))
        if waiting.size:
            counts = answer.counts[waiting]
            self._unopened.append(UnopenedBuckets(probe, waiting, after[waiting] - counts, counts))

    def _prune(self) -> NDArray[np.float64]:
        """Drop the buckets that cannot contain a split as good as the best. Return the bounds of the others."""
        bounds = [np.zeros(0)]
        for unopened in self._unopened:
            orders = self._orders(unopened.probe.number)
            best = np.max([self.scorer.bounds(ahead + unopened.before, unopened.counts) for _, ahead in orders], axis=0)
            promising = best >= self.scorer.bar
            unopened.keep(promising)
            bounds.append(best[promising])
        self._unopened = [unopened for unopened in self._unopened if unopened.bucket.size]
        return np.concatenate(bounds)

    def _open_buckets(self, bounds: NDArray[np.float64]) -> None:
        """Request the waiting buckets with the highest bounds, as many as the limits allow.

        Other buckets wait, and are often pruned before they are opened.
        """
        first = np.cumsum([0, *(unopened.bucket.size for unopened in self._unopened)])
        rows = self.scorer.stats.rows(np.concatenate([unopened.counts for unopened in self._unopened]))
        order = np.argsort(-bounds, kind="stable")
        most = self.context.limits.collects
        few = order[rows[order] <= most]
        few = few[np.cumsum(rows[few]) <= most]
        requested = self._count_again(order[rows[order] > most], first)
        requested[few] = True
        collected = np.zeros(bounds.size, np.bool_)
        collected[few] = True
        for unopened, start, stop in zip(self._unopened, first[:-1], first[1:], strict=True):
            chosen = collected[start:stop]
            if chosen.any():
                opened = np.zeros(unopened.probe.buckets, np.bool_)
                opened[unopened.bucket[chosen]] = True
                self.pending.append(
                    Collect(unopened.probe, opened, unopened.before[chosen], int(rows[start:stop][chosen].sum()))
                )
            unopened.keep(~requested[start:stop])

    def _count_again(self, buckets: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Request narrower histograms of buckets with too many rows to collect: as many as fit, at least one.

        buckets  numbers among all waiting buckets
        first    histogram h has the waiting buckets first[h]:first[h + 1]

        Return a mask of the requested buckets, bool [all waiting buckets].
        """
        cells, stats = self.context.limits.cells, self.scorer.stats
        requested = np.zeros(int(first[-1]), np.bool_)
        for number in buckets.tolist():
            at = int(first.searchsorted(number, side="right")) - 1
            unopened, place = self._unopened[at], number - int(first[at])
            most = self._max_buckets(int(stats.rows(unopened.counts[place])))
            narrower = unopened.probe.within(int(unopened.bucket[place]), most, unopened.before[place])
            if cells < self.context.limits.cells and narrower.buckets * stats.slots > cells:
                continue
            cells -= narrower.buckets * stats.slots
            self.pending.append(narrower)
            requested[number] = True
        return requested

    def _offer_rows(self, probe: Collect, answer: CollectedRows) -> None:
        """Offer the split after each distinct value of the collected rows.

        The cumulative statistics of collected rows lack the rows of buckets that were not collected. `bases` has the
        difference for each collected bucket.
        """
        count = probe.count
        buckets = np.cumsum(probe.wanted) - 1  # number of each wanted bucket among them
        passed = np.zeros(self.scorer.stats.slots, np.int64)
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


def histogram_buckets(rows: int, slots: int, max_cells: int, kind: ColumnKind) -> int:
    """Return the number of buckets of the histogram of a column in a node of this many rows, at least 2.

    slots      counts of a bucket
    max_cells  most counts of the histogram, except that it has at least 2 buckets
    """
    buckets = min(max(int(rows**0.75 / kind.bucket_rows), MIN_BUCKETS), MAX_BUCKETS)
    return max(min(buckets, max_cells // slots), 2)


@dataclass(slots=True)
class FeatureSearch(HistogramSearch):
    """The search for a split on a feature. The key of the node is `key`.

    It draws the features that kernels/scan/features.py draws. A feature has two orders of its codes, numbered
    2 * feature and 2 * feature + 1: missing values, of code 0, on the left of all others, and on the right. Missing
    values are in no bucket: their statistics are the rest of the node. A category has a bucket for each level, so no
    bucket needs opening. `pending` is empty if every feature is known to be constant.

    order   int64 [features], the features in the order in which they are drawn
    wanted  number of features to draw
    """

    key: np.uint64
    order: NDArray[np.int64] = field(init=False)
    wanted: int = field(init=False)
    _drawn: int = field(default=0, init=False)
    _usable: int = field(default=0, init=False)
    # Statistics of the rows without a value, for each feature that has missing values in the node.
    _missing: dict[int, Counts] = field(default_factory=dict, init=False)
    # If the best split is on a category: the levels of the node, and their ranks in the order.
    _levels: tuple[NDArray[np.int64], NDArray[np.uint32]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        draw = make_feature_draw(self.constant.size)
        self.wanted, self.order = int(draw_order(self.key, self.context.rules, draw)), draw.perm
        self.scorer.drawn = np.argsort(self.order)
        self._draw()

    def _draw(self) -> None:
        """Request as many features as are enough if none of them turns out constant.

        Features found constant are replaced in the next round; without Rules.redraw only if all were constant. Features
        wait if there is no room for their histogram.
        """
        hoped, room, redraw = self._usable, self.context.limits.room, self.context.rules.redraw
        while self._drawn < self.order.size and (
            hoped < self.wanted if redraw else (self._drawn < self.wanted or hoped == 0)
        ):
            feature = int(self.order[self._drawn])
            if not self.constant[feature]:
                probe = self._histogram(feature, self._max_buckets(self.scorer.rows))
                room -= probe.cells(self.scorer.stats.slots)
                if room < 0 and self.pending:
                    return
                hoped += 1
                self.pending.append(probe)
            self._drawn += 1

    def _histogram(self, feature: int, most: int) -> Histogram:
        """Return the first request about a feature, in at most `most` buckets unless it is a category."""
        codes, kind = self.context.features.codes[feature], self.context.features.kinds[feature]
        return Histogram.ranges(feature, None, int(kind == MISSING), codes - 1, codes if kind == CATEGORY else most)

    def _is_usable(self, probe: Histogram, answer: HistogramCounts) -> bool:
        feature = probe.number
        if not self._is_number(feature, answer):
            return False
        if feature in self._missing:
            self._offer_missing(feature)
        return True

    def _is_number(self, feature: int, answer: HistogramCounts) -> bool:
        """Record the counts of a feature. Offer the splits of a category. Return True for a number to be split."""
        missing_counts = self.scorer.stats.moved(self.scorer.total - answer.counts.sum(axis=0), 0)
        missing = self.context.features.kinds[feature] == MISSING and self.scorer.stats.weight(missing_counts) > 0
        if answer.low > answer.high or (answer.low == answer.high and not missing):
            self.constant[feature] = True
            return False
        if self.context.features.kinds[feature] == CATEGORY:
            self._usable += self._offer_levels(feature, answer.counts)
            return False
        self._usable += 1
        if missing:
            self._missing[feature] = missing_counts
        return True

    def _offer_missing(self, feature: int) -> None:
        """Offer the split between the rows without a value and all others."""
        self.scorer.offer(2 * feature, np.zeros(1, np.int64), self._missing[feature][np.newaxis])

    def _offer_levels(self, feature: int, counts: Counts) -> bool:
        """Offer the splits of a category, in the order of its levels; return True if there are any."""
        scorer = self.scorer
        present = np.flatnonzero(scorer.stats.weight(counts))
        ranks, cuts = self._arrange(feature, present, counts[present])
        group_counts = np.zeros((int(ranks.max()) + 1, scorer.stats.slots), np.int64)
        np.add.at(group_counts, ranks, counts[present])
        if len(group_counts) == 1:  # all levels are grouped into one
            return False
        scorer.offer(2 * feature, cuts, np.cumsum(group_counts, axis=0)[cuts])
        if scorer.best is not None and scorer.best.number == 2 * feature:
            self._levels = present, ranks
        return True

    def _arrange(
        self, feature: int, levels: NDArray[np.int64], counts: Counts
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the rank of each level of a node with these `counts`, and the ranks after which the order is split."""
        ranks = self.scorer.level_ranks(counts, self.context.features.min_level[feature])
        return ranks, np.arange(int(ranks.max()))

    def _orders(self, number: int) -> list[tuple[int, Counts | int]]:
        if number not in self._missing:
            return [(2 * number, 0)]
        return [(2 * number, self._missing[number]), (2 * number + 1, 0)]

    def split(self) -> NodeSplit | None:
        split = HistogramSearch.split(self)
        if split is None:
            return None
        feature, missing_last = divmod(split.feature, 2)
        split = split._replace(feature=feature)
        if self.context.features.kinds[feature] == CATEGORY:
            return self._list_levels(split)
        if feature not in self._missing:
            return split
        if split.code == 0:  # missing values alone, which go right
            whole = self.scorer.stats.moved(self.scorer.total, self.scorer.centre)
            return NodeSplit(feature, AFTER_ALL - 1, whole - split.left, MISSING_RIGHT, SEEN_RIGHT)
        if missing_last:
            return split._replace(way=MISSING_RIGHT, missing=SEEN_RIGHT)
        return split._replace(missing=SEEN_LEFT)

    def _list_levels(self, split: NodeSplit) -> NodeSplit:
        """Convert a split of the order of levels after rank `split.code` to the list of levels of the lighter side."""
        assert self._levels is not None
        levels, ranks = self._levels
        scorer = self.scorer
        right = 2 * scorer.stats.weight(split.left) >= scorer.stats.weight(scorer.total)
        listed = np.zeros(self.context.features.codes[split.feature], np.bool_)
        listed[levels[(ranks > split.code) == right]] = True
        bits = np.packbits(listed, bitorder="little")
        return split._replace(code=0, way=LISTED_RIGHT if right else LISTED_LEFT, listed=bits)
