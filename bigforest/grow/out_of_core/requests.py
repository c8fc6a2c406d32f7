"""What a pass asks about a tree, for its searching nodes (node_search.py), and what it answers.

Answers of runs of blocks are added up, in integers, so it does not matter how the blocks are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.out_of_core.feature_search import CodeHistogram
from bigforest.grow.out_of_core.node_search import NodeSearch
from bigforest.grow.out_of_core.node_stats import NodeStats
from bigforest.grow.out_of_core.probes import Answer, Collect, HistogramCounts, Probe
from bigforest.grow.out_of_core.split_scorer import CollectedCodes
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.grow.shared.packed_counts import PackedCounts, packed_counts, unpacked_counts
from bigforest.kernels.out_of_core.codes import CodeProbes, CodeSplits

# Rows that were collected: a named tuple of arrays of as many entries, or of none.
Rows = TypeVar("Rows", bound=tuple[Any, ...])
Answered = TypeVar("Answered", bound="Mergeable")


class Mergeable(Protocol):
    """A reply."""

    def merged(self: Answered, other: Answered) -> Answered:
        """The reply of the blocks of both."""


class SplitRequest(NamedTuple):
    """What a pass asks about one tree.

    nodes     number of nodes, and its newest splits; what is counted
    row_nodes  UpperTree.standing
    counts    probes of Count
    collects  probes of Collect; wanted bool, the wanted buckets of all of them
    """

    tree: int
    nodes: int
    splits: CodeSplits
    row_nodes: dict[int, Path]
    stats: NodeStats
    counts: CodeProbes
    collects: CodeProbes
    wanted: NDArray[np.bool_]

    def no_reply(self) -> SplitResponse:
        """The reply of no blocks."""
        cells = int(self.counts.buckets.sum()) * self.stats.parts
        probes, splits = self.counts.node.size, self.splits.node.size
        return SplitResponse(
            counts=np.zeros(cells, self.stats.cell),
            low=np.full(probes, 0xFFFFFFFF, np.uint32),
            high=np.zeros(probes, np.uint32),
            spread=np.zeros(probes, np.int64),
            keys=[],
            below=np.zeros(splits, np.uint32),
            above=np.full(splits, 0xFFFFFFFF, np.uint32),
            row_nodes={},
        )

    def features(self) -> set[int]:
        """Those whose codes it takes to answer."""
        parts = (self.counts.feature, self.collects.feature, self.splits.feature)
        return {int(feature) for part in parts for feature in part}

    def max_probes(self) -> int:
        """Most Collects of one node: no row is collected more often."""
        return int(np.unique(self.collects.node, return_counts=True)[1].max(initial=0))

    def answers(self, response: SplitResponse) -> Callable[[Probe], Answer]:
        """Gives the answer to each probe, in the order in which they were asked."""
        keys = each_collect(response.keys)
        counted = iter(
            zip(self.counts.offset, self.counts.buckets, response.low, response.high, response.spread, strict=True)
        )
        parts = self.stats.parts

        def answered(probe: Probe) -> Answer:
            if isinstance(probe, Collect):
                return next(keys)
            offset, buckets, low, high, spread = (int(number) for number in next(counted))
            cells = response.counts[offset * parts : (offset + buckets) * parts].reshape(buckets, parts)
            return HistogramCounts(cells.astype(np.int64), low, high, self.stats.numbers and spread == 0)

        return answered


class SplitResponse(NamedTuple):
    """What the blocks of one task answer about one tree; see kernels/out_of_core/codes.py.

    keys            of each task
    below, above    of the newest splits
    row_nodes        where the rows stand now, for UpperTree.sent; empty where there were no splits
    """

    counts: NDArray[Any]
    low: NDArray[np.uint32]
    high: NDArray[np.uint32]
    spread: NDArray[np.int64]
    keys: list[Runs[CollectedCodes]]
    below: NDArray[np.uint32]
    above: NDArray[np.uint32]
    row_nodes: dict[int, Path]

    def __reduce__(self) -> tuple[Any, ...]:
        """Counts are sent to other processes in as few bytes as hold them."""
        return _response, (packed_counts(self.counts), *self[1:])

    def merged(self, other: SplitResponse) -> SplitResponse:
        """The reply of the blocks of both."""
        return SplitResponse(
            counts=self.counts + other.counts,
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
            spread=self.spread | other.spread,
            keys=self.keys + other.keys,
            below=np.maximum(self.below, other.below),
            above=np.minimum(self.above, other.above),
            row_nodes=self.row_nodes | other.row_nodes,
        )


def _response(counts: PackedCounts, *others: Any) -> SplitResponse:
    return SplitResponse(unpacked_counts(counts), *others)


def choose(tops: Sequence[UpperTree], room: int) -> list[tuple[int, list[int]]]:
    """Trees and those of their searching nodes whose histograms fit, in order; at least one node if any searches."""
    chosen: list[tuple[int, list[int]]] = []
    left = room
    for at, top in enumerate(tops):
        entries: list[int] = []
        for entry in top.searching():
            size = sum(probe.cells(top.stats.parts) for probe in pending_searches(top, entry))
            if size > left and (chosen or entries):
                return [*chosen, (at, entries)] if entries else chosen
            left -= size
            entries.append(entry)
        if entries:
            chosen.append((at, entries))
    return chosen


def pending_searches(top: UpperTree, entry: int) -> list[Probe]:
    """What a searching node asks."""
    search = top.nodes[entry].search
    assert search is not None
    return search.pending


def request(top: UpperTree, entries: Sequence[int]) -> SplitRequest:
    """What the nodes `entries` of a tree ask."""
    counts: list[tuple[int, CodeHistogram]] = []
    collects: list[tuple[int, Collect]] = []
    for entry in entries:
        for probe in pending_searches(top, entry):
            if isinstance(probe, Collect):
                collects.append((entry, probe))
            elif isinstance(probe, CodeHistogram):
                counts.append((entry, probe))
    wanted = [probe.wanted for _, probe in collects]
    return SplitRequest(
        tree=top.tree,
        nodes=len(top.nodes),
        splits=top.splits(),
        row_nodes=top.row_nodes,
        stats=top.stats,
        counts=_probes(top, counts),
        collects=_probes(
            top, [(entry, probe.count) for entry, probe in collects if isinstance(probe.count, CodeHistogram)]
        ),
        wanted=np.concatenate(wanted) if wanted else np.zeros(0, np.bool_),
    )


def _probes(top: UpperTree, asked: Sequence[tuple[int, CodeHistogram]]) -> CodeProbes:
    buckets = np.array([probe.buckets for _, probe in asked], np.uint64)
    return CodeProbes(
        node=np.array([entry for entry, _ in asked], np.uint32),
        feature=np.array([probe.number for _, probe in asked], np.uint32),
        low=np.array([probe.low for _, probe in asked], np.uint32),
        shift=np.array([probe.shift for _, probe in asked], np.uint32),
        buckets=buckets,
        offset=np.cumsum(buckets, dtype=np.uint64) - buckets,
        centre=np.array([top.stats.centre(top.nodes[entry].total) for entry, _ in asked], np.int64),
    )


def merged(one: Answered, two: Answered) -> Answered:
    """The reply of the blocks of both."""
    return one.merged(two)


def merged_all(one: list[Answered], two: list[Answered]) -> list[Answered]:
    """The replies of the blocks of both, question by question."""
    return [first.merged(second) for first, second in zip(one, two, strict=True)]


class Runs(NamedTuple, Generic[Rows]):
    """The rows of some Collects, one Collect after the other: those of Collect c are before ends[c], int64."""

    rows: Rows
    ends: NDArray[np.int64]

    @classmethod
    def copied(cls, rows: Rows, ends: NDArray[np.uint64]) -> Self:
        """A copy of what kernels have written up to the last of `ends`."""
        return cls(_like(rows, [array[: int(ends[-1])].copy() for array in rows]), ends.astype(np.int64))

    def of(self, number: int) -> Rows:
        """The rows of one Collect."""
        here = slice(int(self.ends[number - 1]) if number else 0, int(self.ends[number]))
        return _like(self.rows, [array[here] for array in self.rows])


def gathered(pieces: Sequence[Runs[Rows]]) -> Runs[Rows]:
    """The rows of all pieces, one at least. A Collect has few rows in a block, so none is looked at by itself."""
    ends = np.stack([piece.ends for piece in pieces])
    sizes = np.diff(ends, axis=1, prepend=0)
    stops = np.cumsum(sizes.sum(axis=0))
    begins = stops - sizes.sum(axis=0) + np.cumsum(sizes, axis=0) - sizes
    several = list(zip(*(piece.rows for piece in pieces), strict=True))
    arrays = [np.empty(sum(array.size for array in own), own[0].dtype) for own in several]
    for number, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
        place = np.arange(ends[number, -1]) + np.repeat(begin - ends[number] + size, size)
        for out, own in zip(arrays, several, strict=True):
            if out.size:
                out[place] = own[number]
    return Runs(_like(pieces[0].rows, arrays), stops)


def each_collect(several: Sequence[Runs[Rows]]) -> Iterator[Rows]:
    """The rows of one Collect after the other, those of all runs together."""
    for number in range(several[0].ends.size if several else 0):
        arrays = zip(*(runs.of(number) for runs in several), strict=True)
        yield _like(several[0].rows, [np.concatenate(own) for own in arrays])


def _like(rows: Rows, arrays: Sequence[NDArray[Any]]) -> Rows:
    return type(rows)(*arrays)


def searches_of(top: UpperTree, entries: Sequence[int]) -> list[NodeSearch]:
    """The searches of some searching nodes."""
    return [search for entry in entries if (search := top.nodes[entry].search) is not None]


def take(top: UpperTree, entries: Sequence[int], searches: Sequence[NodeSearch]) -> None:
    """Give nodes their searches back, which have had their answers, and settle those that know their split."""
    for entry, search in zip(entries, searches, strict=True):
        top.nodes[entry].search = search
        top.settle(entry)


def hear(top: UpperTree, entry: int, answers: Sequence[Answer]) -> None:
    """Hand a node its answers and settle it, if it knows its split."""
    search = top.nodes[entry].search
    assert search is not None
    search.hear(answers)
    top.settle(entry)
