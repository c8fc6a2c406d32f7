"""The search of a node too large for memory for its cut, in a tree in a subspace.

It requests the sums for its class means, then a perceptron, or the class counts between the stops from mean to mean,
and takes the same cut as kernels/subspace/split.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.families.subspace.perceptron import Learnt, Trial
from bigforest.grow.families.subspace.trees import some_columns
from bigforest.grow.out_of_core.node_search import NodeSplit
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.probes import Answer, DirectionLine, Histogram, HistogramCounts, Probe, StepSums
from bigforest.kernels.columns.project import LARGEST
from bigforest.kernels.out_of_core.subspace import aim_node, choose_columns, choose_stop, is_split
from bigforest.kernels.subspace.columns import Subspace


class MeanAxis(NamedTuple):
    """The line between the two class means farthest apart.

    direction, stop  float64 [steps + 1], see central_axis.place_stops; None if the means have the same projection
    far              bool [classes], those nearer to the second mean, see perceptron.choose_sides
    """

    direction: DirectionLine
    stop: NDArray[np.float64] | None
    far: NDArray[np.bool_]


class SubspaceAim(NamedTuple):
    """The search for the cut of a node.

    scratch  gives a Subspace without rows for the tree; its content is not kept between requests
    total    int64 [classes]
    """

    scratch: Callable[[], Subspace]
    key: np.uint64
    total: Counts
    min_leaf: int

    def find(self) -> Generator[Probe, Answer, NodeSplit | None]:
        """Search in the columns that the node draws, then in all; yields requests."""
        subspace = self.scratch()
        for wanted in sorted({int(subspace.drawn), subspace.column.size}):
            subspace = self._drawn(wanted)
            sums = yield StepSums(subspace.space.feature[subspace.column[:wanted]].astype(np.uint32))
            assert isinstance(sums, np.ndarray)
            axis = self._axis(wanted, sums)
            if axis is None:
                continue
            found = (yield from self._learnt(wanted, axis.far)) if subspace.epochs else None
            found = found or (yield from self._on_axis(axis))
            if found is not None:
                return found
        return None

    def _drawn(self, wanted: int) -> Subspace:
        """Scratch with this many columns drawn."""
        subspace = self.scratch()
        choose_columns(subspace, self.key, np.uint64(wanted))
        return subspace

    def _axis(self, wanted: int, sums: NDArray[np.int64]) -> MeanAxis | None:
        """The axis in this many columns from these sums; None if all means are equal."""
        subspace = self.scratch()
        found, begin, end = aim_node(subspace, self.key, np.uint64(wanted), self.total, sums)
        if not found:
            return None
        column = subspace.column[:wanted]
        direction = _line(subspace.space.feature[column], subspace.weight[column])
        return MeanAxis(direction, subspace.stop if begin < end and end - begin <= LARGEST else None, subspace.far)

    def _learnt(self, wanted: int, far: NDArray[np.bool_]) -> Generator[Probe, Answer, NodeSplit | None]:
        """A perceptron in this many columns, see perceptron.cut_perceptron."""
        subspace = self._drawn(wanted)
        space = some_columns(subspace.space, subspace.column[:wanted].astype(np.int64))
        learnt = yield Trial(space, far, self.total, subspace.epochs)
        assert isinstance(learnt, Learnt)
        if not is_split(learnt.left, self.total, self.total.sum(), self.min_leaf):
            return None
        return NodeSplit(0, learnt.cut, learnt.left, direction=_line(space.feature, learnt.weight))

    def _on_axis(self, axis: MeanAxis) -> Generator[Probe, Answer, NodeSplit | None]:
        """Central axis projection, see central_axis.cut_axis."""
        direction, stop, _ = axis
        if stop is None:
            return None
        edge = np.nextafter(stop[:-1], np.inf)  # the rows above a stop and up to the next are in one bucket
        edge[0] = -LARGEST
        counted = yield Histogram(0, direction, -LARGEST, LARGEST, 0.0, edge.size, edge)
        assert isinstance(counted, HistogramCounts)
        subspace = self.scratch()
        subspace.hist[1:] = counted.counts
        found = int(choose_stop(subspace, self.total, self.total.sum(), self.min_leaf))
        left = counted.counts[:found].sum(axis=0)
        return NodeSplit(0, float(stop[found]), left, direction=direction) if found else None


def _line(feature: NDArray[np.int32], weight: NDArray[np.float64]) -> DirectionLine:
    used = weight != 0.0
    return DirectionLine(feature[used].astype(np.uint32), weight[used])


class SubspaceSearch:
    """The search for the cut of one node, see node_search.py NodeSearch."""

    def __init__(self, aim: SubspaceAim, constant: NDArray[np.bool_]) -> None:
        self.constant = constant
        self._aim = aim
        self._heard: list[Answer] = []
        self._found: NodeSplit | None = None
        self._finding = aim.find()
        self.pending: list[Probe] = [next(self._finding)]

    def __reduce__(self) -> tuple[Callable[..., SubspaceSearch], tuple[Any, ...]]:
        """Sent as its answers, which are few and small, and which the other process replays."""
        return search_again, (self._aim, self.constant, self._heard)

    def receive(self, answers: Sequence[Answer]) -> None:
        """See NodeSearch."""
        [answer] = answers
        self._heard.append(answer)
        try:
            self.pending = [self._finding.send(answer)]
        except StopIteration as end:
            self.pending, self._found = [], end.value

    def cut(self) -> NodeSplit | None:
        """See NodeSearch."""
        return self._found


def search_again(aim: SubspaceAim, constant: NDArray[np.bool_], received: Sequence[Answer]) -> SubspaceSearch:
    """A search that has had these answers."""
    search = SubspaceSearch(aim, constant)
    for answer in received:
        search.receive([answer])
    return search
