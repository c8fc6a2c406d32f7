"""Perceptrons of nodes too large for memory (kernels/subspace/perceptron.py): their rows come block by block, in order.

A pass over the rows trains, and counts the errors of the previous pass; so n training passes read the rows n + 1 times.
If the rows of a node in its columns fit into memory, all passes run there, with zeros and ones as bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.grow.families.subspace.trees import with_cells
from bigforest.grow.out_of_core.context import Counts
from bigforest.grow.out_of_core.decoded_table import column_of
from bigforest.grow.out_of_core.row_nodes import Stood, numbered
from bigforest.grow.out_of_core.upper_tree import UpperTree
from bigforest.kernels.common.node_scan import BITS32, SHIFT32
from bigforest.kernels.out_of_core.blocks import BlockValues
from bigforest.kernels.out_of_core.subspace import learn_rows
from bigforest.kernels.subspace.columns import SubspaceColumns, make_subspace

# Rows of a block that are trained on at a time.
_ROWS = 4096
# Bytes of a row in memory, besides its columns.
HELD_ROW = 8


class Trial(NamedTuple):
    """The request of a node for a perceptron, see probes.py Probe.

    space   the columns of the node, of no rows
    far     bool [classes], whether a class belongs on the right
    total   int64 [classes]
    epochs  most passes of training
    """

    space: SubspaceColumns
    far: NDArray[np.bool_]
    total: Counts
    epochs: int

    def cells(self, parts: int) -> int:
        """See Probe; nothing is counted in histograms."""
        return 0

    @property
    def bytes(self) -> int:
        """Bytes of all rows in memory."""
        space = self.space
        return int(self.total.sum()) * (8 * (space.bits.shape[1] or space.feature.size) + HELD_ROW)


class Learnt(NamedTuple):
    """The best perceptron of a Trial.

    weight  float64 [columns of the node]
    cut     rows with a projection of at most this go left; `left`, int64 [classes], are their class weights
    """

    weight: NDArray[np.float64]
    cut: float
    left: Counts


# Some rows of a node, in order: their columns, and items numbered from 0.
RowPiece = tuple[SubspaceColumns, NDArray[np.uint64]]


class Learner:
    """A perceptron in training: call `see` for all rows and `end` for the pass, until `end` says that `best` is
    final."""

    best: Learnt

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        columns, classes = trial.space.feature.size, trial.total.size
        self._now, self._before = (make_subspace(trial.space, columns, 1, trial.epochs, classes, 0) for _ in range(2))
        self._now.far[:] = trial.far
        self._cut = self._cut_before = 0.0
        self._left = np.zeros(classes, np.int64)
        self._passes = 0
        self._least = int(trial.total.sum()) + 1

    def see(self, piece: RowPiece) -> None:
        """Train on the next rows of a pass."""
        space, items = piece
        now, before = (each._replace(space=space) for each in (self._now, self._before))
        self._cut = learn_rows(before, now, items, self._cut_before, self._cut, self._left)

    def end(self) -> bool:
        """End a pass; returns whether training is over. Same rules as perceptron.train_perceptron."""
        trial, before = self._trial, self._before
        over = False
        if self._passes:
            errors = int(np.where(trial.far, self._left, trial.total - self._left).sum())
            if errors < self._least:
                self._least = errors
                weights = (before.whole if before.whole.size else before.weight)[: trial.space.feature.size]
                self.best = Learnt(weights.astype(np.float64), self._cut_before, self._left.copy())
            over = errors == 0 or self._passes == trial.epochs
        before.weight[:], before.whole[:] = self._now.weight, self._now.whole
        self._cut_before = self._cut
        self._left[:] = 0
        self._passes += 1
        return over


def train_by_passes(
    trials: dict[int, Trial], rows: Callable[[Sequence[int]], Iterator[tuple[int, RowPiece]]], most: int
) -> dict[int, Learnt]:
    """Train the requested perceptrons of some nodes.

    rows  gives the rows of some nodes, in order
    most  bytes of rows that may be held
    """
    learners = {entry: Learner(trial) for entry, trial in trials.items()}
    waiting = list(trials)
    while waiting:
        held: dict[int, list[RowPiece]] = {}
        room = most
        for entry in waiting:
            if trials[entry].bytes <= room:
                room -= trials[entry].bytes
                held[entry] = []
        streamed = [entry for entry in waiting if trials[entry].bytes > most]
        for entry, piece in rows([*held, *streamed]):
            take = held[entry].append if entry in held else learners[entry].see
            take(piece)
        over = {entry for entry in streamed if learners[entry].end()} | set(held)
        while held:
            entry, pieces = held.popitem()
            ended = False
            while not ended:
                for piece in pieces:
                    learners[entry].see(piece)
                ended = learners[entry].end()
        waiting = [entry for entry in waiting if entry not in over]
    return {entry: learner.best for entry, learner in learners.items()}


def pieces_of(cells: BlockValues, stood: Stood, trials: dict[int, Trial]) -> Iterator[tuple[int, RowPiece]]:
    """The rows of a block that are in these nodes; cells: as the tree sees them."""
    items, begin, end = stood
    for entry, trial in trials.items():
        for first in range(int(begin[entry]), int(end[entry]), _ROWS):
            here = items[first : min(first + _ROWS, int(end[entry]))]
            row = (here >> SHIFT32).astype(np.int64)
            columns = [column_of(cells, feature)[row] for feature in trial.space.feature.tolist()]
            yield entry, (with_cells(trial.space, columns, row.size), numbered(here & BITS32))


def trials_of(top: UpperTree) -> list[tuple[int, Trial]]:
    """The requested perceptrons of the nodes of a tree, by entry."""
    asked = ((entry, probe) for entry, search in top.searching() for probe in search.pending)
    return [(entry, probe) for entry, probe in asked if isinstance(probe, Trial)]
