"""What a pass asks about a tree that splits on projections, and what it answers: grow/out_of_core/requests.py, with
values for codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.families.oblique.upper_tree import ObliqueUpperTree
from bigforest.grow.out_of_core.node_stats import NodeStats
from bigforest.grow.out_of_core.probes import Answer, Collect, HistogramCounts, Probe
from bigforest.grow.out_of_core.projection_search import (
    CollectedProjections,
    Direction,
    ProjectionHistogram,
    Spans,
    StepSums,
    single,
)
from bigforest.grow.out_of_core.requests import Runs, each_collect, pending_searches
from bigforest.grow.shared.packed_counts import PackedCounts, packed_counts, unpacked_counts
from bigforest.kernels.common.layout import Terms
from bigforest.kernels.out_of_core.projections import ProjectionProbes, ProjectionSplits, Summands


class ProjectionRequest(NamedTuple):
    """What a pass asks about one tree.

    nodes     number of nodes, and its newest splits, on the directions `ways`; tally of what is counted
    row_nodes  TreeTop.standing
    own       what the tree has of its own, see upper_tree.py
    asked     the directions that counts and collects are about
    counts    of Bands that are counted, and of those that are collected
    wanted    bool, the wanted buckets of all collects
    sums      nodes that want sums, and of which features
    """

    tree: int
    nodes: int
    splits: ProjectionSplits
    ways: Terms
    row_nodes: dict[int, Path]
    stats: NodeStats
    own: Any
    asked: Terms
    counts: ProjectionProbes
    collects: ProjectionProbes
    wanted: NDArray[np.bool_]
    sums: Summands

    def no_reply(self) -> ProjectionResponse:
        """The reply of no blocks."""
        bands, splits = self.counts.node.size, self.splits.node.size
        return ProjectionResponse(
            counts=np.zeros(int(self.counts.buckets.sum()) * self.stats.parts, np.uint32),
            least=np.full(bands, np.inf),
            most=np.full(bands, -np.inf),
            unfit=np.zeros(bands, np.uint32),
            found=[],
            sums=np.zeros((self.sums.feature.size, self.stats.classes), np.int64),
            below=np.full(splits, -np.inf),
            above=np.full(splits, np.inf),
            row_nodes={},
        )

    def features(self) -> set[int]:
        """Columns whose values it takes to answer."""
        return {int(feature) for asked in (self.ways, self.asked, self.sums) for feature in np.unique(asked.feature)}

    def max_probes(self) -> int:
        """Most directions on which rows of one node are collected: no row is collected more often."""
        _, first = np.unique(self.collects.direction, return_index=True)
        return int(np.unique(self.collects.node[first], return_counts=True)[1].max(initial=0))

    def answers(self, response: ProjectionResponse) -> Callable[[Probe], Answer]:
        """Gives the answer to each probe, in the order in which they were asked."""
        found, sums = each_collect(response.found), iter(np.split(response.sums, self.sums.start[1:-1]))
        counted = iter(range(self.counts.node.size))
        parts = self.stats.parts

        def answered(probe: Probe) -> Answer:
            if isinstance(probe, Collect):
                return next(found)
            if isinstance(probe, StepSums):
                return next(sums)
            assert isinstance(probe, ProjectionHistogram)
            at = next(counted)
            first = int(self.counts.offset[at]) * parts
            cells = response.counts[first : first + probe.buckets * parts]
            low, high = float(response.least[at]), float(response.most[at])
            if response.unfit[at] and not probe.direction.single:
                low = high = 0.0  # as if it told no rows apart
            return HistogramCounts(cells.reshape(probe.buckets, parts).astype(np.int64), low, high)

        return answered


class ProjectionResponse(NamedTuple):
    """What the blocks of one task answer about one tree; see kernels/out_of_core/projections.py.

    found     of each task
    sums      int64 [sums.feature, classes]
    row_nodes  where the rows stand now, for TreeTop.sent; empty where there were no splits
    """

    counts: NDArray[np.uint32]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    unfit: NDArray[np.uint32]
    found: list[Runs[CollectedProjections]]
    sums: NDArray[np.int64]
    below: NDArray[np.float64]
    above: NDArray[np.float64]
    row_nodes: dict[int, Path]

    def __reduce__(self) -> tuple[Any, ...]:
        """Counts are sent to other processes in as few bytes as hold them."""
        return _response, (packed_counts(self.counts), *self[1:])

    def merged(self, other: ProjectionResponse) -> ProjectionResponse:
        """The reply of the blocks of both."""
        return ProjectionResponse(
            counts=self.counts + other.counts,
            least=np.minimum(self.least, other.least),
            most=np.maximum(self.most, other.most),
            unfit=self.unfit + other.unfit,
            found=self.found + other.found,
            sums=self.sums + other.sums,
            below=np.maximum(self.below, other.below),
            above=np.minimum(self.above, other.above),
            row_nodes=self.row_nodes | other.row_nodes,
        )


def _response(counts: PackedCounts, *others: Any) -> ProjectionResponse:
    return ProjectionResponse(unpacked_counts(counts), *others)


def request(top: ObliqueUpperTree, entries: Sequence[int]) -> ProjectionRequest:
    """What the nodes `entries` of a tree ask."""
    counts: list[tuple[int, ProjectionHistogram]] = []
    collects: list[tuple[int, ProjectionHistogram]] = []
    wanted: list[NDArray[np.bool_]] = []
    sums: list[tuple[int, StepSums]] = []
    numbers: dict[tuple[int, int], int] = {}
    asked: list[Direction] = []
    for entry in entries:
        for probe in pending_searches(top, entry):
            if isinstance(probe, StepSums):
                sums.append((entry, probe))
                continue
            band = probe.count if isinstance(probe, Collect) else probe
            assert isinstance(band, ProjectionHistogram)
            if (entry, band.number) not in numbers:
                numbers[entry, band.number] = len(asked)
                asked.append(band.direction)
            if isinstance(probe, Collect):
                collects.append((entry, band))
                wanted.append(probe.wanted)
            else:
                counts.append((entry, band))
    splits, ways = top.cuts()
    return ProjectionRequest(
        tree=top.tree,
        nodes=len(top.nodes),
        splits=splits,
        ways=terms_of(ways),
        row_nodes=top.row_nodes,
        stats=top.stats,
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


def _bands(asked: Sequence[tuple[int, ProjectionHistogram]], numbers: dict[tuple[int, int], int]) -> ProjectionProbes:
    buckets = np.array([band.buckets for _, band in asked], np.uint64)
    return ProjectionProbes(
        node=np.array([entry for entry, _ in asked], np.uint32),
        direction=np.array([numbers[entry, band.number] for entry, band in asked], np.uint32),
        low=np.array([band.low for _, band in asked], np.float64),
        high=np.array([band.high for _, band in asked], np.float64),
        slope=np.array([band.slope for _, band in asked], np.float64),
        buckets=buckets,
        offset=np.cumsum(buckets, dtype=np.uint64) - buckets,
        edge=np.concatenate([*(band.edge for _, band in asked), np.zeros(0)]),
    )


def _summands(asked: Sequence[tuple[int, StepSums]]) -> Summands:
    features = [probe.features for _, probe in asked]
    return Summands(
        node=np.array([entry for entry, _ in asked], np.uint32),
        start=np.cumsum([0, *(each.size for each in features)]).astype(np.int64),
        feature=np.concatenate([*features, np.zeros(0, np.uint32)]),
    )


def bag_question(tree: int, stats: NodeStats, features: int) -> ProjectionRequest:
    """The question for the sums of the bag of a tree."""
    return _of_root(tree, stats, None, [], [(0, StepSums(np.arange(features, dtype=np.uint32)))])


def range_question(tree: int, stats: NodeStats, own: Any, columns: int) -> ProjectionRequest:
    """The question for the range of each of the columns of the bag of a tree."""
    spans = Spans(np.zeros(columns), np.zeros(columns))
    bands = [ProjectionHistogram.first(column, single(column), spans, 2) for column in range(columns)]
    return _of_root(tree, stats, own, bands, [])


def _of_root(
    tree: int, stats: NodeStats, own: Any, bands: Sequence[ProjectionHistogram], sums: Sequence[tuple[int, StepSums]]
) -> ProjectionRequest:
    none = np.zeros(0, np.uint32)
    return ProjectionRequest(
        tree=tree,
        nodes=1,
        splits=ProjectionSplits(none, none, none, np.zeros(0)),
        ways=terms_of([]),
        row_nodes={},
        stats=stats,
        own=own,
        asked=terms_of([band.direction for band in bands]),
        counts=_bands([(0, band) for band in bands], {(0, band.number): band.number for band in bands}),
        collects=_bands([], {}),
        wanted=np.zeros(0, np.bool_),
        sums=_summands(sums),
    )
