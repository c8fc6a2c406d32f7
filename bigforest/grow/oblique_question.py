"""What a pass asks about a tree that splits on projections, and what it answers: question.py, with values for codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.directions import Band, Direction, Found, Spans, Sums, single
from bigforest.grow.oblique_top import DirectionTop
from bigforest.grow.probes import Answer, Collect, Counted, Probe
from bigforest.grow.question import Runs, asking, each_collect
from bigforest.grow.tally import Tally
from bigforest.kernels.layout import Terms
from bigforest.kernels.level_values import Bands, Cuts, Summands


class DirectionQuestion(NamedTuple):
    """What a pass asks about one tree.

    nodes     number of nodes, and its newest splits, on the directions `ways`; tally of what is counted
    standing  TreeTop.standing
    own       what the tree has of its own, see oblique_top.py
    asked     the directions that counts and collects are about
    counts    of Bands that are counted, and of those that are collected
    wanted    bool, the wanted buckets of all collects
    sums      nodes that want sums, and of which features
    """

    tree: int
    nodes: int
    splits: Cuts
    ways: Terms
    standing: dict[int, Path]
    tally: Tally
    own: Any
    asked: Terms
    counts: Bands
    collects: Bands
    wanted: NDArray[np.bool_]
    sums: Summands

    def no_reply(self) -> DirectionReply:
        """The reply of no blocks."""
        bands, splits = self.counts.node.size, self.splits.node.size
        return DirectionReply(
            counts=np.zeros(int(self.counts.buckets.sum()) * self.tally.parts, np.uint32),
            least=np.full(bands, np.inf),
            most=np.full(bands, -np.inf),
            unfit=np.zeros(bands, np.uint32),
            found=[],
            sums=np.zeros((self.sums.feature.size, self.tally.classes), np.int64),
            below=np.full(splits, -np.inf),
            above=np.full(splits, np.inf),
            standing={},
        )

    def features(self) -> set[int]:
        """Columns whose values it takes to answer."""
        return {int(feature) for asked in (self.ways, self.asked, self.sums) for feature in np.unique(asked.feature)}

    def most_probes(self) -> int:
        """Most directions on which rows of one node are collected: no row is collected more often."""
        _, first = np.unique(self.collects.direction, return_index=True)
        return int(np.unique(self.collects.node[first], return_counts=True)[1].max(initial=0))

    def answers(self, reply: DirectionReply) -> Callable[[Probe], Answer]:
        """Gives the answer to each probe, in the order in which they were asked."""
        found, sums = each_collect(reply.found), iter(np.split(reply.sums, self.sums.start[1:-1]))
        counted = iter(range(self.counts.node.size))
        parts = self.tally.parts

        def answered(probe: Probe) -> Answer:
            if isinstance(probe, Collect):
                return next(found)
            if isinstance(probe, Sums):
                return next(sums)
            assert isinstance(probe, Band)
            at = next(counted)
            first = int(self.counts.offset[at]) * parts
            cells = reply.counts[first : first + probe.buckets * parts]
            low, high = float(reply.least[at]), float(reply.most[at])
            if reply.unfit[at] and not probe.direction.single:
                low = high = 0.0  # as if it told no rows apart
            return Counted(cells.reshape(probe.buckets, parts).astype(np.int64), low, high)

        return answered


class DirectionReply(NamedTuple):
    """What the blocks of one task answer about one tree; see kernels/level_values.py.

    found     of each task
    sums      int64 [sums.feature, classes]
    standing  where the rows stand now, for TreeTop.sent; empty where there were no splits
    """

    counts: NDArray[np.uint32]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    unfit: NDArray[np.uint32]
    found: list[Runs[Found]]
    sums: NDArray[np.int64]
    below: NDArray[np.float64]
    above: NDArray[np.float64]
    standing: dict[int, Path]

    def merged(self, other: DirectionReply) -> DirectionReply:
        """The reply of the blocks of both."""
        return DirectionReply(
            counts=self.counts + other.counts,
            least=np.minimum(self.least, other.least),
            most=np.maximum(self.most, other.most),
            unfit=self.unfit + other.unfit,
            found=self.found + other.found,
            sums=self.sums + other.sums,
            below=np.maximum(self.below, other.below),
            above=np.minimum(self.above, other.above),
            standing=self.standing | other.standing,
        )


def question(top: DirectionTop, entries: Sequence[int]) -> DirectionQuestion:
    """What the nodes `entries` of a tree ask."""
    counts: list[tuple[int, Band]] = []
    collects: list[tuple[int, Band]] = []
    wanted: list[NDArray[np.bool_]] = []
    sums: list[tuple[int, Sums]] = []
    numbers: dict[tuple[int, int], int] = {}
    asked: list[Direction] = []
    for entry in entries:
        for probe in asking(top, entry):
            if isinstance(probe, Sums):
                sums.append((entry, probe))
                continue
            band = probe.count if isinstance(probe, Collect) else probe
            assert isinstance(band, Band)
            if (entry, band.number) not in numbers:
                numbers[entry, band.number] = len(asked)
                asked.append(band.direction)
            if isinstance(probe, Collect):
                collects.append((entry, band))
                wanted.append(probe.wanted)
            else:
                counts.append((entry, band))
    splits, ways = top.cuts()
    return DirectionQuestion(
        tree=top.tree,
        nodes=len(top.nodes),
        splits=splits,
        ways=terms_of(ways),
        standing=top.standing,
        tally=top.tally,
        own=top.own,
        asked=terms_of(asked),
        counts=_bands(counts, numbers),
        collects=_bands(collects, numbers),
        wanted=np.concatenate(wanted) if wanted else np.zeros(0, np.bool_),
        sums=_summands(sums),
    )


def terms_of(directions: Sequence[Direction]) -> Terms:
    """The terms of all directions; the weight of a feature that stands alone is 1."""
    sizes = [direction.feature.size for direction in directions]
    features = [direction.feature for direction in directions]
    weights = [np.ones(1) if direction.single else direction.weight for direction in directions]
    return Terms(
        np.cumsum([0, *sizes]).astype(np.int64),
        np.concatenate([*features, np.zeros(0, np.uint32)]).astype(np.int32),
        np.concatenate([*weights, np.zeros(0)]),
    )


def _bands(asked: Sequence[tuple[int, Band]], numbers: dict[tuple[int, int], int]) -> Bands:
    buckets = np.array([band.buckets for _, band in asked], np.uint64)
    return Bands(
        node=np.array([entry for entry, _ in asked], np.uint32),
        direction=np.array([numbers[entry, band.number] for entry, band in asked], np.uint32),
        low=np.array([band.low for _, band in asked], np.float64),
        high=np.array([band.high for _, band in asked], np.float64),
        slope=np.array([band.slope for _, band in asked], np.float64),
        buckets=buckets,
        offset=np.cumsum(buckets, dtype=np.uint64) - buckets,
        edge=np.concatenate([*(band.edge for _, band in asked), np.zeros(0)]),
    )


def _summands(asked: Sequence[tuple[int, Sums]]) -> Summands:
    features = [probe.features for _, probe in asked]
    return Summands(
        node=np.array([entry for entry, _ in asked], np.uint32),
        start=np.cumsum([0, *(each.size for each in features)]).astype(np.int64),
        feature=np.concatenate([*features, np.zeros(0, np.uint32)]),
    )


def bag_question(tree: int, tally: Tally, features: int) -> DirectionQuestion:
    """The question for the sums of the bag of a tree."""
    return _of_root(tree, tally, None, [], [(0, Sums(np.arange(features, dtype=np.uint32)))])


def range_question(tree: int, tally: Tally, own: Any, columns: int) -> DirectionQuestion:
    """The question for the range of each of the columns of the bag of a tree."""
    spans = Spans(np.zeros(columns), np.zeros(columns))
    bands = [Band.first(column, single(column), spans, 2) for column in range(columns)]
    return _of_root(tree, tally, own, bands, [])


def _of_root(
    tree: int, tally: Tally, own: Any, bands: Sequence[Band], sums: Sequence[tuple[int, Sums]]
) -> DirectionQuestion:
    none = np.zeros(0, np.uint32)
    return DirectionQuestion(
        tree=tree,
        nodes=1,
        splits=Cuts(none, none, none, np.zeros(0)),
        ways=terms_of([]),
        standing={},
        tally=tally,
        own=own,
        asked=terms_of([band.direction for band in bands]),
        counts=_bands([(0, band) for band in bands], {(0, band.number): band.number for band in bands}),
        collects=_bands([], {}),
        wanted=np.zeros(0, np.bool_),
        sums=_summands(sums),
    )
