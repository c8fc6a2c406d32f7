"""A node too large for memory, on its way to a split: what it asks of the next pass, and what it makes of the answer.

A node draws features (feature_search.py), or directions (directions.py), and asks for a histogram of each. Every
edge of a bucket is a split and is offered. A bucket that could hide a better one is looked into: its rows' keys are
collected (`Collect`), or, where they alone are too many, it is counted again in narrower buckets. When nothing is left
to ask, the best split stands, and it is the one that growing in memory finds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.judge import Judge
from bigforest.grow.tally import Counts, Tally
from bigforest.kernels.level import BY_CODE
from bigforest.kernels.mixed import UNSEEN

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


class Seeker(Protocol):
    """The search for the split of one node: a Search, or one that looks at no histograms for all (subspace_search.py).

    asking    what is asked of the next pass; nothing once the search is over
    constant  bool [features], known to be constant in the node
    """

    asking: list[Probe]
    constant: NDArray[np.bool_]

    def hear(self, answers: Sequence[Answer]) -> None:
        """Take the answers to `asking`, in order, and ask anew."""

    def cut(self) -> Cut | None:
        """The split, when nothing is asked any more; None where there is none."""


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


def buckets_for(rows: int, parts: int, most_cells: int) -> int:
    """Buckets of the histogram of a feature in a node of so many rows, each of so many counts; at least 2."""
    wanted = min(max(rows // ROWS_PER_BUCKET, LEAST_BUCKETS), MOST_BUCKETS)
    return max(min(wanted, most_cells // parts), 2)
