"""The search of a node too large for memory for a split on features (node_search.py).

It draws the features that kernels/scan/features.py draws, and requests histograms of their codes. Missing values, of
code 0, are in no bucket: their statistics are the rest of the node. All splits are offered with them on the left, and
on the right (kernels/scan/categorical_missing.py). A category has a bucket for each level, so no bucket needs opening.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.context import Counts
from bigforest.grow.out_of_core.node_search import HistogramSearch, NodeSplit
from bigforest.grow.out_of_core.probes import Histogram, HistogramCounts
from bigforest.kernels.out_of_core.blocks import AFTER_ALL, LISTED_LEFT, LISTED_RIGHT, MISSING_RIGHT
from bigforest.kernels.out_of_core.draws import draw_order
from bigforest.kernels.scan.categorical_missing import CATEGORY, MISSING, SEEN_LEFT, SEEN_RIGHT
from bigforest.kernels.scan.draw import make_feature_draw


@dataclass(slots=True)
class FeatureSearch(HistogramSearch):
    """The search for a split on a feature of the node `key`. `pending` is empty if every feature is known to be
    constant.

    order   int64 [features], in which they are drawn
    wanted  how many are
    """

    key: np.uint64
    order: NDArray[np.int64] = field(init=False)
    wanted: int = field(init=False)
    _drawn: int = field(default=0, init=False)
    _usable: int = field(default=0, init=False)
    _missing: dict[int, Counts] = field(default_factory=dict, init=False)  # of features with missing values in the node
    # If the best split is on a category: the levels of the node, and their places in the order.
    _levels: tuple[NDArray[np.int64], NDArray[np.uint32]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        draw = make_feature_draw(self.constant.size)
        self.wanted, self.order = int(draw_order(self.key, self.context.rules, draw)), draw.perm
        self.scorer.drawn = np.argsort(self.order)
        self._draw()

    def _draw(self) -> None:
        """Request features until enough are drawn, if none of them turns out constant.

        Features found constant are replaced in the next round; those without room wait for it.
        """
        hoped, room, redraw = self._usable, self.context.limits.room, self.context.rules.redraw
        while self._drawn < self.order.size and (
            hoped < self.wanted if redraw else (self._drawn < self.wanted or hoped == 0)
        ):
            feature = int(self.order[self._drawn])
            if not self.constant[feature]:
                probe = self._histogram(feature, self._most(self.scorer.rows))
                room -= probe.cells(self.scorer.stats.parts)
                if room < 0 and self.pending:
                    return
                hoped += 1
                self.pending.append(probe)
            self._drawn += 1

    def _histogram(self, feature: int, most: int) -> Histogram:
        """The first request about a feature, in at most `most` buckets unless it is a category."""
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
        """Record the counts of a feature, and offer the splits of a category; returns whether it is a number to
        split."""
        gone = self.scorer.stats.moved(self.scorer.total - answer.counts.sum(axis=0), 0)
        missing = self.context.features.kinds[feature] == MISSING and self.scorer.stats.weight(gone) > 0
        if answer.low > answer.high or (answer.low == answer.high and not missing):
            self.constant[feature] = True
            return False
        if self.context.features.kinds[feature] == CATEGORY:
            self._usable += self._offer_levels(feature, answer.counts)
            return False
        self._usable += 1
        if missing:
            self._missing[feature] = gone
        return True

    def _offer_missing(self, feature: int) -> None:
        """Offer the split between the rows without a value and all others."""
        self.scorer.offer(2 * feature, np.zeros(1, np.int64), self._missing[feature][np.newaxis])

    def _offer_levels(self, feature: int, counts: Counts) -> bool:
        """Offer the splits of a category, in the order of its levels; whether there are any."""
        scorer = self.scorer
        present = np.flatnonzero(scorer.stats.weight(counts))
        places, cuts = self._arrange(feature, present, counts[present])
        group_counts = np.zeros((int(places.max()) + 1, scorer.stats.parts), np.int64)
        np.add.at(group_counts, places, counts[present])
        if len(group_counts) == 1:  # all levels are grouped into one
            return False
        scorer.offer(2 * feature, cuts, np.cumsum(group_counts, axis=0)[cuts])
        if scorer.best is not None and scorer.best.number == 2 * feature:
            self._levels = present, places
        return True

    def _arrange(
        self, feature: int, levels: NDArray[np.int64], counts: Counts
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The place of each level of a node with these `counts`, and the places after which they are cut."""
        places = self.scorer.places(counts, self.context.features.min_level[feature])
        return places, np.arange(int(places.max()))

    def _orders(self, number: int) -> list[tuple[int, Counts | int]]:
        if number not in self._missing:
            return [(2 * number, 0)]
        return [(2 * number, self._missing[number]), (2 * number + 1, 0)]

    def cut(self) -> NodeSplit | None:
        cut = HistogramSearch.cut(self)
        if cut is None:
            return None
        feature, missing_last = divmod(cut.feature, 2)
        cut = cut._replace(feature=feature)
        if self.context.features.kinds[feature] == CATEGORY:
            return self._cut_levels(cut)
        if feature not in self._missing:
            return cut
        if cut.code == 0:  # missing values alone, which go right
            whole = self.scorer.stats.moved(self.scorer.total, self.scorer.centre)
            return NodeSplit(feature, AFTER_ALL - 1, whole - cut.left, MISSING_RIGHT, SEEN_RIGHT)
        if missing_last:
            return cut._replace(way=MISSING_RIGHT, missing=SEEN_RIGHT)
        return cut._replace(missing=SEEN_LEFT)

    def _cut_levels(self, cut: NodeSplit) -> NodeSplit:
        """The cut of the order of levels after place `cut.code`, which lists those of the lighter side."""
        assert self._levels is not None
        levels, places = self._levels
        scorer = self.scorer
        right = 2 * scorer.stats.weight(cut.left) >= scorer.stats.weight(scorer.total)
        listed = np.zeros(self.context.features.codes[cut.feature], np.bool_)
        listed[levels[(places > cut.code) == right]] = True
        bits = np.packbits(listed, bitorder="little")
        return cut._replace(code=0, way=LISTED_RIGHT if right else LISTED_LEFT, listed=bits)
