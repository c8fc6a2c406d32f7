"""A node too large for memory, on its way to a split: what it asks of the next pass, and what it makes of the answer.

A node draws features as kernels/axis.py does and asks for a histogram of each (`Count`). Every edge of a bucket is a
split and is offered. A bucket that could hide a better one is looked into: its rows' keys are collected (`Collect`),
or, where they alone are too many, it is counted again in narrower buckets. When nothing is left to ask, the best
split stands, and it is the one that growing in memory finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.judge import Judge, Keys, boundaries
from bigforest.grow.tally import Counts
from bigforest.kernels.axis import make_draw
from bigforest.kernels.level import draw_order
from bigforest.kernels.tree import Rules

# A histogram of a node has about one bucket for so many bag rows, within these limits. More buckets cost memory, fewer
# make more rows be looked at twice.
ROWS_PER_BUCKET = 256
LEAST_BUCKETS = 64
MOST_BUCKETS = 1 << 16


@dataclass(frozen=True, slots=True)
class Count:
    """Ask what rows with codes low .. low + (buckets << shift) - 1 of a feature hold, in buckets of 1 << shift codes.

    left int64 [parts]: what those of the codes below `low` hold; None for a feature that is looked at the first time.
    """

    feature: int
    low: int
    shift: int
    buckets: int
    left: Counts | None = None


@dataclass(frozen=True, slots=True)
class Collect:
    """Ask for the sort keys of the rows in the buckets that are `wanted`, bool [buckets]; the buckets are of `count`.

    left int64 [wanted buckets, parts]: what lies before each of them. rows: most rows there can be.
    """

    count: Count
    wanted: NDArray[np.bool_]
    left: Counts
    rows: int


Probe = Count | Collect


@dataclass(frozen=True, slots=True)
class Counted:
    """The answer to a Count.

    counts     int64 [buckets, parts] (tally.py)
    low, high  smallest and largest code of the feature in the node
    spread     of numbers to predict: whether any of the node is not its centre
    """

    counts: Counts
    low: int
    high: int
    spread: bool


Answer = Counted | Keys


@dataclass(slots=True)
class Hidden:
    """What a histogram does not show: the order of the rows inside its buckets.

    before, counts  int64 [buckets, parts], what lies before and in each bucket
    waiting         bool [buckets], still to be looked into
    """

    probe: Count
    before: Counts
    counts: Counts
    waiting: NDArray[np.bool_]


@dataclass(slots=True)
class Search:
    """The search for the split of one node.

    codes       codes of each feature in the table
    constant    bool [features], known to be constant in the node; found ones are added
    order       int64 [features], in which they are drawn
    wanted      how many are
    most_keys   rows that may be collected at once
    most_cells  counts of the histogram of one feature
    """

    judge: Judge
    rules: Rules
    codes: Sequence[int]
    constant: NDArray[np.bool_]
    order: NDArray[np.int64]
    wanted: int
    most_keys: int
    most_cells: int
    asking: list[Probe] = field(default_factory=list)
    _drawn: int = 0
    _usable: int = 0
    _open: list[Hidden] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        key: np.uint64,
        judge: Judge,
        rules: Rules,
        codes: Sequence[int],
        constant: NDArray[np.bool_],
        most_keys: int,
        most_cells: int,
    ) -> Search:
        """Begin: `asking` holds the first probes, or none when every feature is known to be constant."""
        draw = make_draw(len(codes))
        wanted = int(draw_order(key, rules, draw))
        search = cls(judge, rules, codes, constant.copy(), draw.perm, wanted, most_keys, most_cells)
        search._draw()
        return search

    def hear(self, answers: Sequence[Answer]) -> None:
        """Take the answers to `asking`, in order, and ask anew; `asking` is empty when the best split is known."""
        asked, self.asking = self.asking, []
        if self.judge.tally.numbers and not all(isinstance(answer, Keys) or answer.spread for answer in answers):
            return  # a leaf, as all numbers are the same
        for probe, answer in zip(asked, answers, strict=True):
            if isinstance(probe, Collect):
                self._offer_keys(probe, answer)
            else:
                self._offer_edges(probe, answer)
        self._draw()
        if not self.asking:
            self._look_inside()

    def _draw(self) -> None:
        """Ask for features until as many usable ones are drawn as are wanted, if none of those asked is constant.

        Features found constant afterwards are replaced in the next round.
        """
        hoped = self._usable
        while self._drawn < self.order.size and (
            hoped < self.wanted if self.rules.redraw else (self._drawn < self.wanted or hoped == 0)
        ):
            feature = int(self.order[self._drawn])
            self._drawn += 1
            if not self.constant[feature]:
                hoped += 1
                self.asking.append(self._count(feature, 0, self.codes[feature], self.judge.rows, None))

    def _count(self, feature: int, low: int, codes: int, rows: int, left: Counts | None) -> Count:
        """A Count of `codes` codes from `low` on, with buckets for so many rows."""
        most = buckets_for(rows, self.judge.tally.parts, self.most_cells)
        shift = 0
        while ((codes - 1) >> shift) >= most:
            shift += 1
        return Count(feature, low, shift, ((codes - 1) >> shift) + 1, left)

    def _offer_edges(self, probe: Count, answer: Answer) -> None:
        assert isinstance(answer, Counted)
        left = probe.left
        if left is None:
            if answer.low == answer.high:
                self.constant[probe.feature] = True
                return
            self._usable += 1
            left = np.zeros(self.judge.tally.parts, np.int64)
        after = left + np.cumsum(answer.counts, axis=0)
        edges = probe.low + (np.arange(1, probe.buckets + 1) << probe.shift) - 1
        self.judge.offer(probe.feature, edges, after)
        if probe.shift > 0:
            several = self.judge.tally.rows(answer.counts) > 1
            self._open.append(Hidden(probe, after - answer.counts, answer.counts, several))

    def _look_inside(self) -> None:
        """Ask about the buckets that could hide a better split than the best, the most promising first.

        What is too much for now has to wait, and has often lost its promise when its turn comes.
        """
        found = []
        for hidden in self._open:
            bounds = self.judge.bounds(hidden.before, hidden.counts)
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
        cells, parts = self.most_cells, self.judge.tally.parts
        for at, bucket in buckets:
            hidden = self._open[at]
            narrower = self._narrower(hidden, bucket, int(self.judge.tally.rows(hidden.counts[bucket])))
            if cells < self.most_cells and narrower.buckets * parts > cells:
                continue
            cells -= narrower.buckets * parts
            self.asking.append(narrower)
            hidden.waiting[bucket] = False

    def _narrower(self, hidden: Hidden, bucket: int, rows: int) -> Count:
        """A Count of the codes of one bucket."""
        probe = hidden.probe
        low = probe.low + (bucket << probe.shift)
        codes = min(1 << probe.shift, self.codes[probe.feature] - low)
        return self._count(probe.feature, low, codes, rows, hidden.before[bucket])

    def _offer_keys(self, probe: Collect, answer: Answer) -> None:
        assert isinstance(answer, Keys)
        count = probe.count
        buckets = np.cumsum(probe.wanted) - 1  # number of each wanted bucket among them
        passed = np.zeros(self.judge.tally.parts, np.int64)
        bases = np.zeros_like(probe.left)
        last = -1
        for codes, upto in boundaries(answer.sorted(), self.judge.tally):
            number = buckets[(codes - count.low) >> count.shift]
            starts = np.flatnonzero(np.diff(number, prepend=last))
            ahead = np.concatenate([passed[None], upto[:-1]])
            bases[number[starts]] = probe.left[number[starts]] - ahead[starts]
            self.judge.offer(count.feature, codes, upto + bases[number])
            passed, last = upto[-1], int(number[-1])


def buckets_for(rows: int, parts: int, most_cells: int) -> int:
    """Buckets of the histogram of a feature in a node of so many rows, each of so many counts; at least 2."""
    wanted = min(max(rows // ROWS_PER_BUCKET, LEAST_BUCKETS), MOST_BUCKETS)
    return max(min(wanted, most_cells // parts), 2)
