"""Request of a pass about one tree, packed into arrays for kernels, and the response.

A request has the newest splits of the tree, through which rows are routed, and the probes of the nodes that were chosen
for the pass (`choose_nodes`). Each task responds for a run of consecutive blocks. The responses are added up
(`SplitResponse.merged`), and `SplitRequest.answers` unpacks the sum into an answer to each probe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.execution.executor import merge_lists
from bigforest.grow.out_of_core.context import CODES, PROJECTIONS, ColumnKind, GrowContext
from bigforest.grow.out_of_core.node_search import NodeSearch
from bigforest.grow.out_of_core.probes import (
    Answer,
    Collect,
    CollectedRows,
    Histogram,
    HistogramCounts,
    Probe,
    StepSums,
    joined_pieces,
    terms_of,
)
from bigforest.grow.out_of_core.upper_tree import UpperNode, UpperTree
from bigforest.kernels.common.layout import Terms
from bigforest.kernels.out_of_core.blocks import Probes, Splits, Summands

_CODEC = "zstd"


class SplitRequest(NamedTuple):
    """The request of a pass about one tree; arrays are described in kernels/out_of_core/blocks.py.

    nodes             number of nodes of the upper tree so far
    splits            newest splits
    split_directions  directions of `splits`; None if nodes split on features
    row_nodes         see UpperTree
    tree_data         see UpperTree
    probe_directions  directions of `counts` and `collects`; None if nodes split on features
    counts            probes for histograms
    collects          probes for the rows of some buckets
    wanted            bool, the buckets of all `collects` whose rows are wanted
    sums              probes for sums of features: nodes, and the features of each node
    small             nodes whose rows the last pass writes, with all columns that the tree grows on. None in all
                      earlier passes: they write the node of each row, which the next pass reads. An empty list if a
                      pass writes no rows, such as a pass that trains perceptrons
    """

    tree: int
    nodes: int
    splits: Splits
    split_directions: Terms | None
    row_nodes: dict[int, Path]
    tree_data: Any
    probe_directions: Terms | None
    counts: Probes
    collects: Probes
    wanted: NDArray[np.bool_]
    sums: Summands
    small: list[int] | None

    def no_response(self, context: GrowContext) -> SplitResponse:
        """Return the response of no blocks."""
        kind, stats = context.kind, context.stats
        probes, splits = self.counts.node.size, self.splits.node.size
        return SplitResponse(
            counts=np.zeros(int(self.counts.buckets.sum()) * stats.slots, stats.cell_type),
            low=np.full(probes, kind.greatest, kind.dtype),
            high=np.full(probes, kind.least, kind.dtype),
            mark=np.zeros(probes, np.int64),
            collected=[],
            sums=np.zeros((self.sums.feature.size, stats.classes), np.int64),
            below=np.full(splits, kind.least, kind.dtype),
            above=np.full(splits, kind.greatest, kind.dtype),
            row_nodes={},
        )

    def needed_columns(self) -> set[int] | None:
        """Return the columns of the tree's view of the table (TableView.view) that the answers need; None for all."""
        if self.small is not None:
            return None
        if self.split_directions is None or self.probe_directions is None:
            arrays: list[NDArray[Any]] = [self.counts.column, self.collects.column, self.splits.column]
        else:
            arrays = [self.split_directions.feature, self.probe_directions.feature, self.sums.feature]
        return {int(column) for array in arrays for column in np.unique(array)}

    def max_collects(self) -> int:
        """Return the largest number of columns on which rows of the same node are collected."""
        node_columns = np.unique(np.stack([self.collects.node, self.collects.column]), axis=1)
        return int(np.unique(node_columns[0], return_counts=True)[1].max(initial=0))

    def answers(self, response: SplitResponse, slots: int) -> dict[type, Iterator[Answer]]:
        """Return the answers to the probes of each kind, in their order; slots: see NodeStats."""
        cells = np.split(response.counts.reshape(-1, slots), self.counts.offset[1:].astype(np.int64))
        counted = zip(cells, response.low.tolist(), response.high.tolist(), response.mark.tolist(), strict=False)
        return {
            Histogram: (HistogramCounts(counts.astype(np.int64), *rest) for counts, *rest in counted),
            Collect: joined_pieces(response.collected).each() if response.collected else iter(()),
            StepSums: iter(np.split(response.sums, self.sums.start[1:-1])),
        }


class SplitResponse(NamedTuple):
    """The response of some blocks about one tree; arrays are described in kernels/out_of_core/blocks.py.

    collected     collected rows, in pieces of some blocks
    sums          int64 [sums.feature, classes]
    below, above  for each of the newest splits, the largest value that went left and the smallest that went right
    row_nodes     written files, by the first block of the run of blocks. A file has the new node of each row, or in the
                  last pass the rows of small nodes. Empty if no node was split. In the last pass, empty if no node is
                  small
    """

    counts: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    mark: NDArray[np.int64]
    collected: list[CollectedRows]
    sums: NDArray[np.int64]
    below: NDArray[Any]
    above: NDArray[Any]
    row_nodes: dict[int, Path]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle counts in the narrowest type, compressed, and collected rows in one piece."""
        collected = [joined_pieces(self.collected)] if self.collected else []
        return _response, (packed_counts(self.counts), *self._replace(collected=collected)[1:])

    def merged(self, other: SplitResponse) -> SplitResponse:
        """Return the response of the blocks of both responses."""
        return SplitResponse(
            counts=self.counts + other.counts,
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
            mark=self.mark | other.mark,
            collected=self.collected + other.collected,
            sums=self.sums + other.sums,
            below=np.maximum(self.below, other.below),
            above=np.minimum(self.above, other.above),
            row_nodes=self.row_nodes | other.row_nodes,
        )


def _response(counts: PackedCounts, *others: Any) -> SplitResponse:
    return SplitResponse(unpacked_counts(counts), *others)


# Counts for another process: their type, the narrowest type that holds them, their number, and their compressed bytes.
# The lowest bytes of all counts come first, then the next bytes, and so on: with many workers most counts are small.
PackedCounts = tuple[str, str, int, bytes]


def packed_counts(counts: NDArray[Any]) -> PackedCounts:
    """Pack integers [n]."""
    least = np.result_type(*map(np.min_scalar_type, (counts.min(initial=0), counts.max(initial=0))))
    kind = least if least.kind in "iu" else counts.dtype
    narrow = counts.astype(kind.newbyteorder("<"), copy=False)
    planes = np.ascontiguousarray(narrow.view(np.uint8).reshape(counts.size, kind.itemsize).T)
    return counts.dtype.str, narrow.dtype.str, counts.size, pa.compress(planes, _CODEC, asbytes=True)


def unpacked_counts(packed: PackedCounts) -> NDArray[Any]:
    """Invert `packed_counts`."""
    kind, narrow, size, planes = packed
    width = np.dtype(narrow).itemsize
    by_plane = np.frombuffer(pa.decompress(planes, size * width, _CODEC), np.uint8).reshape(width, size)
    return np.ascontiguousarray(by_plane.T).view(narrow).reshape(size).astype(kind)


def choose_nodes(tops: Sequence[UpperTree], room: int) -> list[tuple[UpperTree, dict[int, NodeSearch]]]:
    """Choose searching nodes, in order, until the answers to their probes fill `room`; at least one if there are any.

    room  number of counts of histograms; a collected row is one count

    Return each tree with the searches of its chosen nodes, by entry of the node.
    """
    chosen: list[tuple[UpperTree, dict[int, NodeSearch]]] = []
    left = room
    waiting = [(top, *node_search) for top in tops for node_search in top.searching()]
    for top, entry, search in waiting:
        size = sum(probe.cells(top.stats.slots) for probe in search.pending)
        if size > left and chosen:
            break
        left -= size
        if not chosen or chosen[-1][0] is not top:
            chosen.append((top, {}))
        chosen[-1][1][entry] = search
    return chosen


def request(top: UpperTree, searches: Mapping[int, NodeSearch], small: list[int] | None = None) -> SplitRequest:
    """Return the request of the `searches` of a tree, by entry of the node; small: see SplitRequest."""
    split = [(entry, top.nodes[entry]) for entry in top.newest]
    probes = [
        (entry, top.stats.centre(top.nodes[entry].total), probe)
        for entry, search in searches.items()
        for probe in search.pending
    ]
    tree = (top.tree, len(top.nodes), *_splits(split, top.context.kind), top.row_nodes, top.tree_data)
    return SplitRequest(*tree, *_pack_probes(probes, top.context.kind), small)


def root_request(tree: int, tree_data: Any, *probes: Probe) -> SplitRequest:
    """Return a request about the whole bag of a tree that splits on directions, before the tree grows."""
    asked = _pack_probes([(0, 0, probe) for probe in probes], PROJECTIONS)
    return SplitRequest._make((tree, 1, *_splits([], PROJECTIONS), {}, tree_data, *asked, None))


def _splits(split_nodes: Sequence[tuple[int, UpperNode]], kind: ColumnKind) -> tuple[Splits, Terms | None]:
    """Pack the splits of nodes, given as (entry, node). Also return their directions; None for splits on features."""
    nodes = [node for _, node in split_nodes]
    found = [node.split for node in nodes if node.split is not None]
    lists = [np.empty(0, np.uint8) if split.listed is None else split.listed for split in found]
    sizes = np.array([listed.size for listed in lists], np.uint64)
    splits = Splits(
        node=np.array([entry for entry, _ in split_nodes], np.uint32),
        column=np.array([split.feature if kind == CODES else at for at, split in enumerate(found)], np.uint32),
        cut=np.array([split.code for split in found], kind.dtype),
        left=np.array([node.left for node in nodes], np.uint32),
        right=np.array([node.right for node in nodes], np.uint32),
        way=np.array([split.way for split in found], np.uint8),
        start=np.cumsum(sizes, dtype=np.uint64) - sizes,
        listed=np.concatenate([*lists, np.empty(0, np.uint8)]),
    )
    directions = [split.direction for split in found if split.direction is not None]
    return splits, None if kind == CODES else terms_of(directions)


def _pack_probes(
    asked: Sequence[tuple[int, int, Probe]], kind: ColumnKind
) -> tuple[Terms | None, Probes, Probes, NDArray[np.bool_], Summands]:
    """Pack probes, given as (entry of the node, centre of the node, probe), into the last fields of a request."""
    counts = [(entry, centre, probe) for entry, centre, probe in asked if isinstance(probe, Histogram)]
    collects = [(entry, centre, probe) for entry, centre, probe in asked if isinstance(probe, Collect)]
    of_collects = [(entry, centre, probe.count) for entry, centre, probe in collects]
    sums = [(entry, probe.features) for entry, _, probe in asked if isinstance(probe, StepSums)]
    directions = {(entry, probe.number): probe.direction for entry, _, probe in (*counts, *of_collects)}
    columns = {key: key[1] if kind == CODES else place for place, key in enumerate(directions)}
    return (
        None if kind == CODES else terms_of([each for each in directions.values() if each is not None]),
        _probes(counts, columns, kind),
        _probes(of_collects, columns, kind),
        np.concatenate([*(probe.wanted for _, _, probe in collects), np.zeros(0, np.bool_)]),
        Summands(
            node=np.array([entry for entry, _ in sums], np.uint32),
            start=np.cumsum([0, *(features.size for _, features in sums)]).astype(np.int64),
            feature=np.concatenate([*(features for _, features in sums), np.zeros(0, np.uint32)]),
        ),
    )


def _probes(
    asked: Sequence[tuple[int, int, Histogram]], columns: dict[tuple[int, int], int], kind: ColumnKind
) -> Probes:
    buckets = np.array([probe.buckets for _, _, probe in asked], np.uint64)
    return Probes(
        node=np.array([entry for entry, _, _ in asked], np.uint32),
        column=np.array([columns[entry, probe.number] for entry, _, probe in asked], np.uint32),
        low=np.array([probe.low for _, _, probe in asked], kind.dtype),
        high=np.array([probe.high for _, _, probe in asked], kind.dtype),
        scale=np.array([probe.scale for _, _, probe in asked], kind.dtype),
        buckets=buckets,
        offset=np.cumsum(buckets, dtype=np.uint64) - buckets,
        edge=np.concatenate([*(probe.edge for _, _, probe in asked), np.zeros(0)]),
        centre=np.array([centre for _, centre, _ in asked], np.int64),
    )


# Function that merges the responses of two tasks, request by request.
merged_all = partial(merge_lists, SplitResponse.merged)
