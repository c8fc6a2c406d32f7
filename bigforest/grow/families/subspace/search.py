"""The search of a node too large for memory for its cut, in a tree in a subspace.

It requests the sums for its class means, then a perceptron, or the class counts between the stops from mean to mean,
and takes the same cut as kernels/subspace/split.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.families.subspace.perceptron import Learnt, Trial
from bigforest.grow.families.subspace.trees import some_columns
from bigforest.grow.out_of_core.node_search import NodeSplit
from bigforest.grow.out_of_core.node_stats import Counts
from bigforest.grow.out_of_core.probes import Answer, Direction, Histogram, HistogramCounts, Probe, StepSums
from bigforest.kernels.columns.project import LARGEST
from bigforest.kernels.out_of_core.subspace import aim_node, choose_columns, choose_stop, is_split
from bigforest.kernels.subspace.columns import Subspace


class SubspaceSearch:
    """The search for the cut of one node, see node_search.py NodeSearch: in the columns that the node draws, then in
    all."""

    def __init__(
        self,
        scratch: Callable[[], Subspace],
        key: np.uint64,
        total: Counts,
        min_leaf: int,
        constant: NDArray[np.bool_],
    ) -> None:
        """scratch: gives a Subspace without rows for the tree, whose content is not kept between requests; total: int64
        [classes]."""
        self.constant = constant
        self._given = scratch, key, total, min_leaf, constant
        self._received: list[Answer] = []
        self._found: NodeSplit | None = None
        self._finding = self._find(scratch, key, total, min_leaf)
        self.pending: list[Probe] = [next(self._finding)]

    def __reduce__(self) -> tuple[Callable[..., SubspaceSearch], tuple[Any, ...]]:
        """Sent as its answers, which are few and small, and which the other process replays."""
        return search_again, (self._given, self._received)

    def receive(self, answers: Sequence[Answer]) -> None:
        """See NodeSearch."""
        [answer] = answers
        self._received.append(answer)
        try:
            self.pending = [self._finding.send(answer)]
        except StopIteration as end:
            self.pending, self._found = [], end.value

    def cut(self) -> NodeSplit | None:
        """See NodeSearch."""
        return self._found

    @staticmethod
    def _find(
        scratch: Callable[[], Subspace], key: np.uint64, total: Counts, min_leaf: int
    ) -> Generator[Probe, Answer, NodeSplit | None]:
        """Yields requests; see kernels/subspace/split.py find_cut."""
        subspace = scratch()
        epochs = subspace.epochs
        for wanted in sorted({int(subspace.drawn), subspace.column.size}):
            subspace = scratch()
            choose_columns(subspace, key, np.uint64(wanted))
            column = subspace.column[:wanted].astype(np.int64)
            space = some_columns(subspace.space, column)
            del subspace  # not to hold as many as there are nodes
            sums = yield StepSums(space.feature.astype(np.uint32))
            subspace = scratch()
            found, begin, end = aim_node(subspace, key, np.uint64(wanted), total, sums)
            line, stop, far = _line(space.feature, subspace.weight[column]), subspace.stop, subspace.far
            del subspace
            if not found:  # all means are equal
                continue
            if epochs:
                learnt = yield Trial(space, far, total, epochs)
                assert isinstance(learnt, Learnt)
                if is_split(learnt.left, total, total.sum(), min_leaf):
                    return NodeSplit(0, learnt.cut, learnt.left, direction=_line(space.feature, learnt.weight))
            if not (begin < end and end - begin <= LARGEST):  # the means have the same projection
                continue
            edge = np.nextafter(stop[:-1], np.inf)  # the rows above a stop and up to the next are in one bucket
            edge[0] = -LARGEST
            counted = yield Histogram(0, line, -LARGEST, LARGEST, 0.0, edge.size, edge)
            assert isinstance(counted, HistogramCounts)
            subspace = scratch()
            subspace.hist[1:] = counted.counts
            if at := int(choose_stop(subspace, total, total.sum(), min_leaf)):
                return NodeSplit(0, float(stop[at]), counted.counts[:at].sum(axis=0), direction=line)
        return None


def search_again(given: tuple[Any, ...], received: Sequence[Answer]) -> SubspaceSearch:
    """A search that has had these answers."""
    search = SubspaceSearch(*given)
    for answer in received:
        search.receive([answer])
    return search


def _line(feature: NDArray[np.int32], weight: NDArray[np.float64]) -> Direction:
    used = weight != 0.0
    return Direction(feature[used].astype(np.uint32), weight[used], line=True)
