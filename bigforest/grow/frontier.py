"""A node too large for memory, on its way to a split: what it asks of the next pass, and what it makes of the answer.

A node draws features as kernels/axis.py does, or directions (directions.py), and asks for a histogram of each. Every
edge of a bucket is a split and is offered. A bucket that could hide a better one is looked into: its rows' keys are
collected (`Collect`), or, where they alone are too many, it is counted again in narrower buckets. When nothing is left
to ask, the best split stands, and it is the one that growing in memory finds.

Values that are missing, of code 0, are in no bucket: they are what is not counted of the node. All splits are offered
with them on the left, and on the right (kernels/mixed.py). A category has a bucket for each level; put in their order,
these hide nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.features import Features
from bigforest.grow.judge import Judge, Keys, boundaries
from bigforest.grow.tally import Counts, Tally
from bigforest.kernels.axis import make_draw
from bigforest.kernels.level import AFTER_ALL, BY_CODE, LISTED_LEFT, LISTED_RIGHT, MISSING_RIGHT, draw_order
from bigforest.kernels.mixed import CATEGORY, MISSING, SEEN_LEFT, SEEN_RIGHT, UNSEEN
from bigforest.kernels.tree import Rules

# A histogram of a node has about one bucket for so many bag rows, within these limits. More buckets cost memory, fewer
# make more rows be looked at twice.
ROWS_PER_BUCKET = 256
LEAST_BUCKETS = 64
MOST_BUCKETS = 1 << 16


class Probe(Protocol):
    """A question of a node: a Histogram, a Collect, or another that its family has."""

    def cells(self, parts: int) -> int:
        """Room that the answer takes, in counts of a histogram; parts: of what is counted (tally.py)."""


class Histogram(Probe, Protocol):
    """A question for what rows with values in a range hold, cut into buckets. Codes are values, too.

    number   of the feature or direction; decides between equal splits.
    buckets  how many.
    left     int64 [parts] (tally.py), what rows below the range hold; None for what is looked at the first time.

    key_cells  `Probe.cells` of a row that is collected.
    """

    key_cells: ClassVar[int]

    @property
    def number(self) -> int: ...
    @property
    def buckets(self) -> int: ...
    @property
    def left(self) -> Counts | None: ...

    def ends(self) -> NDArray[Any]:
        """Largest value of each bucket, [buckets]."""

    def bucket(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The buckets of values of the range."""

    def several(self) -> NDArray[np.bool_]:
        """Whether a bucket is of more than one value, [buckets]."""

    def within(self, bucket: int, most: int, left: Counts) -> Histogram:
        """The same for one bucket, in `most` buckets or fewer."""

    def walk(self, keys: Any, tally: Tally) -> Iterator[tuple[NDArray[Any], Counts]]:
        """The distinct values of collected rows in ascending pieces, and what is up to each; see `boundaries`."""


@dataclass(frozen=True, slots=True)
class Count:
    """Ask what rows with codes low .. low + codes - 1 of a feature hold, in buckets of 1 << shift codes."""

    key_cells: ClassVar[int] = 1
    number: int
    low: int
    codes: int
    shift: int
    left: Counts | None = None

    @classmethod
    def of(cls, feature: int, low: int, codes: int, most: int, left: Counts | None) -> Count:
        """A Count in at most `most` buckets."""
        shift = 0
        while ((codes - 1) >> shift) >= most:
            shift += 1
        return cls(feature, low, codes, shift, left)

    @property
    def buckets(self) -> int:
        """See Histogram."""
        return ((self.codes - 1) >> self.shift) + 1

    def cells(self, parts: int) -> int:
        """See Probe."""
        return self.buckets * parts

    def ends(self) -> NDArray[np.int64]:
        """See Histogram; past the largest code in the last bucket."""
        return self.low + (np.arange(1, self.buckets + 1) << self.shift) - 1

    def bucket(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """See Histogram."""
        return (values - self.low) >> self.shift

    def several(self) -> NDArray[np.bool_]:
        """See Histogram."""
        return np.full(self.buckets, self.shift > 0)

    def within(self, bucket: int, most: int, left: Counts) -> Count:
        """See Histogram."""
        first = bucket << self.shift
        return Count.of(self.number, self.low + first, min(1 << self.shift, self.codes - first), most, left)

    def walk(self, keys: Keys, tally: Tally) -> Iterator[tuple[NDArray[np.int64], Counts]]:
        """See Histogram."""
        return boundaries(keys.sorted(), tally)


@dataclass(frozen=True, slots=True)
class Collect:
    """Ask for the rows in the buckets that are `wanted`, bool [buckets]; the buckets are of `count`.

    left int64 [wanted buckets, parts]: what lies before each of them. rows: most rows there can be.
    """

    count: Histogram
    wanted: NDArray[np.bool_]
    left: Counts
    rows: int

    def cells(self, parts: int) -> int:
        """See Probe."""
        return self.count.key_cells * self.rows


@dataclass(frozen=True, slots=True)
class Counted:
    """The answer to a Histogram.

    counts     int64 [buckets, parts]
    low, high  smallest and largest value in the node
    alike      whether all numbers to predict of the node are the same
    """

    counts: Counts
    low: float
    high: float
    alike: bool = False


# To a Collect: what `Histogram.walk` takes.
Answer = Counted | Any


@dataclass(slots=True)
class Hidden:
    """What a histogram does not show: the order of the rows inside its buckets.

    before, counts  int64 [buckets, parts], what lies before and in each bucket
    waiting         bool [buckets], still to be looked into
    """

    probe: Histogram
    before: Counts
    counts: Counts
    waiting: NDArray[np.bool_]


class Cut(NamedTuple):
    """How the rows of a node are split.

    feature  or direction
    code     largest code, or projection, that goes left
    left     int64 [parts], what goes left
    way      see kernels/level.py Splits
    missing  see kernels/mixed.py Subsets
    listed   of a category: the levels that Subsets lists, as bits, uint8 (kernels/level.py Splits)
    """

    feature: int
    code: float
    left: Counts
    way: int = BY_CODE
    missing: int = UNSEEN
    listed: NDArray[np.uint8] | None = None


@dataclass(slots=True)
class Search(ABC):
    """The search for the split of one node. `asking` holds its first probes, none where there is nothing to split on.

    constant    bool [features], known to be constant in the node; found ones are added
    most_keys   rows that may be collected at once
    most_cells  counts of one histogram
    """

    judge: Judge
    constant: NDArray[np.bool_]
    most_keys: int
    most_cells: int
    asking: list[Probe] = field(default_factory=list, init=False)
    _open: list[Hidden] = field(default_factory=list, init=False)

    @abstractmethod
    def _draw(self) -> None:
        """Ask for more features or directions, if more are wanted."""

    @abstractmethod
    def _is_usable(self, probe: Any, answer: Counted) -> bool:
        """Take note of what is seen of a feature or direction for the first time; whether its edges are offered."""

    def _orders(self, number: int) -> list[tuple[int, Counts | int]]:
        """The orders in which a feature or direction is split: their numbers, and what comes before all buckets."""
        return [(number, 0)]

    def cut(self) -> Cut | None:
        """The best split, when nothing is asked any more; None where there is none."""
        judge = self.judge
        if judge.best is None:
            return None
        return Cut(judge.best.number, judge.best.code, judge.tally.moved(judge.best.left, judge.centre))

    def hear(self, answers: Sequence[Answer]) -> None:
        """Take the answers to `asking`, in order, and ask anew; `asking` is empty when the best split is known."""
        asked, self.asking = self.asking, []
        if any(isinstance(answer, Counted) and answer.alike for answer in answers):
            return  # a leaf
        for probe, answer in zip(asked, answers, strict=True):
            self._take(probe, answer)
        self._draw()
        if not self.asking:
            self._look_inside()

    def _take(self, probe: Any, answer: Answer) -> None:
        """Take the answer to one probe."""
        if isinstance(probe, Collect):
            self._offer_keys(probe, answer)
        else:
            self._offer_edges(probe, answer)

    def _most(self, rows: int) -> int:
        """Buckets for a histogram of so many rows."""
        return buckets_for(rows, self.judge.tally.parts, self.most_cells)

    def _offer_edges(self, probe: Histogram, answer: Answer) -> None:
        assert isinstance(answer, Counted)
        left = probe.left
        if left is None:
            if not self._is_usable(probe, answer):
                return
            left = np.zeros(self.judge.tally.parts, np.int64)
        after = left + np.cumsum(answer.counts, axis=0)
        for number, ahead in self._orders(probe.number):
            self.judge.offer(number, probe.ends(), ahead + after)
        waiting = probe.several() & (self.judge.tally.rows(answer.counts) > 1)
        if waiting.any():
            self._open.append(Hidden(probe, after - answer.counts, answer.counts, waiting))

    def _look_inside(self) -> None:
        """Ask about the buckets that could hide a better split than the best, the most promising first.

        What is too much for now has to wait, and has often lost its promise when its turn comes.
        """
        found = []
        for hidden in self._open:
            orders = self._orders(hidden.probe.number)
            bounds = np.max([self.judge.bounds(ahead + hidden.before, hidden.counts) for _, ahead in orders], axis=0)
            hidden.waiting &= bounds >= self.judge.limit
            found.append(bounds[hidden.waiting])
        self._open = [hidden for hidden in self._open if hidden.waiting.any()]
        if not self._open:
            return
        bounds = np.concatenate(found)
        own = [np.flatnonzero(hidden.waiting) for hidden in self._open]
        at = np.repeat(np.arange(len(own)), [buckets.size for buckets in own])
        bucket = np.concatenate(own)
        rows = np.concatenate([self.judge.tally.rows(hidden.counts[hidden.waiting]) for hidden in self._open])
        order = np.argsort(-bounds, kind="stable")
        few = order[rows[order] <= self.most_keys]
        few = few[np.cumsum(rows[few]) <= self.most_keys]
        self._count_again([(int(at[k]), int(bucket[k])) for k in order[rows[order] > self.most_keys]])
        for number, hidden in enumerate(self._open):
            wanted = np.zeros(hidden.waiting.size, np.bool_)
            wanted[bucket[few[at[few] == number]]] = True
            if wanted.any():
                hidden.waiting &= ~wanted
                held = int(self.judge.tally.rows(hidden.counts[wanted]).sum())
                self.asking.append(Collect(hidden.probe, wanted, hidden.before[wanted], held))

    def _count_again(self, buckets: Sequence[tuple[int, int]]) -> None:
        """Ask for narrower counts of buckets whose rows cannot be collected at once, as many as there is room for."""
        cells, tally = self.most_cells, self.judge.tally
        for at, bucket in buckets:
            hidden = self._open[at]
            most = self._most(int(tally.rows(hidden.counts[bucket])))
            narrower = hidden.probe.within(bucket, most, hidden.before[bucket])
            if cells < self.most_cells and narrower.buckets * tally.parts > cells:
                continue
            cells -= narrower.buckets * tally.parts
            self.asking.append(narrower)
            hidden.waiting[bucket] = False

    def _offer_keys(self, probe: Collect, answer: Answer) -> None:
        count = probe.count
        buckets = np.cumsum(probe.wanted) - 1  # number of each wanted bucket among them
        passed = np.zeros(self.judge.tally.parts, np.int64)
        bases = np.zeros_like(probe.left)
        last = -1
        for values, upto in count.walk(answer, self.judge.tally):
            number = buckets[count.bucket(values)]
            starts = np.flatnonzero(np.diff(number, prepend=last))
            ahead = np.concatenate([passed[None], upto[:-1]])
            bases[number[starts]] = probe.left[number[starts]] - ahead[starts]
            for order, before in self._orders(count.number):
                self.judge.offer(order, values, before + upto + bases[number])
            passed, last = upto[-1], int(number[-1])


@dataclass(slots=True)
class FeatureSearch(Search):
    """The search for a split on a feature.

    order      int64 [features], in which they are drawn
    wanted     how many are
    most_room  counts of all histograms that are asked for at once, unless it is one alone
    """

    rules: Rules
    features: Features
    order: NDArray[np.int64]
    wanted: int
    most_room: int
    _drawn: int = field(default=0, init=False)
    _usable: int = field(default=0, init=False)
    _missing: dict[int, Counts] = field(default_factory=dict, init=False)  # of features with some in the node
    # Of a category, if the best split is on one: the levels of the node, and their places in the order.
    _levels: tuple[NDArray[np.int64], NDArray[np.uint32]] | None = field(default=None, init=False)

    @classmethod
    def start(
        cls,
        key: np.uint64,
        judge: Judge,
        rules: Rules,
        features: Features,
        constant: NDArray[np.bool_],
        most_keys: int,
        most_cells: int,
        most_room: int,
    ) -> FeatureSearch:
        """Begin: there are no first probes when every feature is known to be constant."""
        draw = make_draw(len(features.codes))
        wanted = int(draw_order(key, rules, draw))
        search = cls(judge, constant.copy(), most_keys, most_cells, rules, features, draw.perm, wanted, most_room)
        search._draw()
        return search

    def _draw(self) -> None:
        """Ask for features until as many usable ones are drawn as are wanted, if none of those asked is constant.

        Features found constant afterwards are replaced in the next round, and those there is no room for wait for it.
        """
        hoped, room = self._usable, self.most_room
        while self._drawn < self.order.size and (
            hoped < self.wanted if self.rules.redraw else (self._drawn < self.wanted or hoped == 0)
        ):
            feature = int(self.order[self._drawn])
            if not self.constant[feature]:
                probe = self._histogram(feature, self._most(self.judge.rows))
                room -= probe.cells(self.judge.tally.parts)
                if room < 0 and self.asking:
                    return
                hoped += 1
                self.asking.append(probe)
            self._drawn += 1

    def _histogram(self, feature: int, most: int) -> Histogram:
        """The first question about a feature, in at most `most` buckets if it is no category."""
        codes, kind = self.features.codes[feature], self.features.kinds[feature]
        if kind == CATEGORY:
            return Count(feature, 0, codes, 0)
        low = int(kind == MISSING)
        return Count.of(feature, low, codes - low, most, None)

    def _is_usable(self, probe: Histogram, answer: Counted) -> bool:
        feature, judge = probe.number, self.judge
        if answer.low == answer.high:
            self.constant[feature] = True
            return False
        if self.features.kinds[feature] == CATEGORY:
            self._usable += self._offer_levels(feature, answer.counts)
            return False
        self._usable += 1
        if self.features.kinds[feature] == MISSING and answer.low == 0:
            self._missing[feature] = judge.tally.moved(judge.total - answer.counts.sum(axis=0), 0)
            judge.offer(2 * feature, np.zeros(1, np.int64), self._missing[feature][np.newaxis])
        return True

    def _offer_levels(self, feature: int, counts: Counts) -> bool:
        """Offer the splits of a category, in the order of its levels; whether there are any."""
        judge = self.judge
        present = np.flatnonzero(judge.tally.weight(counts))
        places = judge.places(counts[present], self.rules.min_level)
        held = np.zeros((int(places.max()) + 1, judge.tally.parts), np.int64)
        np.add.at(held, places, counts[present])
        if len(held) == 1:  # all levels are taken together
            return False
        judge.offer(2 * feature, np.arange(len(held)), np.cumsum(held, axis=0))
        if judge.best is not None and judge.best.number == 2 * feature:
            self._levels = present, places
        return True

    def _orders(self, number: int) -> list[tuple[int, Counts | int]]:
        if number not in self._missing:
            return [(2 * number, 0)]
        return [(2 * number, self._missing[number]), (2 * number + 1, 0)]

    def cut(self) -> Cut | None:
        """See Search."""
        cut = Search.cut(self)
        if cut is None:
            return None
        feature, missing_last = divmod(cut.feature, 2)
        cut = cut._replace(feature=feature)
        if self.features.kinds[feature] == CATEGORY:
            return self._cut_levels(cut)
        if feature not in self._missing:
            return cut
        if cut.code == 0:  # missing values alone, which go right
            whole = self.judge.tally.moved(self.judge.total, self.judge.centre)
            return Cut(feature, AFTER_ALL - 1, whole - cut.left, MISSING_RIGHT, SEEN_RIGHT)
        if missing_last:
            return cut._replace(way=MISSING_RIGHT, missing=SEEN_RIGHT)
        return cut._replace(missing=SEEN_LEFT)

    def _cut_levels(self, cut: Cut) -> Cut:
        """The cut of the order of levels after place `cut.code`, which lists those of the lighter side."""
        assert self._levels is not None
        levels, places = self._levels
        judge = self.judge
        right = 2 * judge.tally.weight(cut.left) >= judge.tally.weight(judge.total)
        listed = np.zeros(self.features.codes[cut.feature], np.bool_)
        listed[levels[(places > cut.code) == right]] = True
        bits = np.packbits(listed, bitorder="little")
        return cut._replace(code=0, way=LISTED_RIGHT if right else LISTED_LEFT, listed=bits)


def buckets_for(rows: int, parts: int, most_cells: int) -> int:
    """Buckets of the histogram of a feature in a node of so many rows, each of so many counts; at least 2."""
    wanted = min(max(rows // ROWS_PER_BUCKET, LEAST_BUCKETS), MOST_BUCKETS)
    return max(min(wanted, most_cells // parts), 2)
