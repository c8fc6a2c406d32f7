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
from bigforest.grow.out_of_core.row_nodes import NodeItems, numbered
from bigforest.kernels.common.node_scan import BITS32, SHIFT32
from bigforest.kernels.out_of_core.blocks import BlockValues
from bigforest.kernels.out_of_core.subspace import learn_rows
from bigforest.kernels.subspace.columns import SubspaceColumns, make_subspace

# Rows of a block that are trained on at a time.
_ROWS = 4096
# Bytes of a row in memory, besides its columns.
TRAINED_ROW = 8


class PerceptronRequest(NamedTuple):
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
        return int(self.total.sum()) * (8 * (space.bits.shape[1] or space.feature.size) + TRAINED_ROW)


class TrainedPerceptron(NamedTuple):
    """The best perceptron of a PerceptronRequest.

    weight  float64 [columns of the node]
    cut     rows with a projection of at most this go left; `left`, int64 [classes], are their class weights
    """

    weight: NDArray[np.float64]
    cut: float
    left: Counts


# Some rows of a node, in order: their columns, and items numbered from 0.
RowPiece = tuple[SubspaceColumns, NDArray[np.uint64]]


class PerceptronTrainer:
    """A perceptron in training: call `see` for all rows and `end` for the pass, until `end` says that `best` is
    final."""

    best: TrainedPerceptron

    def __init__(self, request: PerceptronRequest) -> None:
        self._request = request
        columns, classes = request.space.feature.size, request.total.size
        self._now, self._before = (
            make_subspace(request.space, columns, 1, request.epochs, classes, 0) for _ in range(2)
        )
        self._now.far[:] = request.far
        self._cut = self._cut_before = 0.0
        self._left = np.zeros(classes, np.int64)
        self._passes = 0
        self._least = int(request.total.sum()) + 1

    def see(self, piece: RowPiece) -> None:
        """Train on the next rows of a pass."""
        space, items = piece
        now, before = (each._replace(space=space) for each in (self._now, self._before))
        self._cut = learn_rows(before, now, items, self._cut_before, self._cut, self._left)

    def end(self) -> bool:
        """End a pass; returns whether training is over. Same rules as perceptron.train_perceptron."""
        request, before = self._request, self._before
        over = False
        if self._passes:
            errors = int(np.where(request.far, self._left, request.total - self._left).sum())
            if errors < self._least:
                self._least = errors
                weights = (before.whole if before.whole.size else before.weight)[: request.space.feature.size]
                self.best = TrainedPerceptron(weights.astype(np.float64), self._cut_before, self._left.copy())
            over = errors == 0 or self._passes == request.epochs
        before.weight[:], before.whole[:] = self._now.weight, self._now.whole
        self._cut_before = self._cut
        self._left[:] = 0
        self._passes += 1
        return over


def train_by_passes(
    wanted: dict[int, PerceptronRequest], rows: Callable[[Sequence[int]], Iterator[tuple[int, RowPiece]]], most: int
) -> dict[int, TrainedPerceptron]:
    """Train the requested perceptrons of some nodes.

    rows  gives the rows of some nodes, in order
    most  bytes of rows that may be held
    """
    trainers = {entry: PerceptronTrainer(request) for entry, request in wanted.items()}
    waiting = list(wanted)
    while waiting:
        in_memory: dict[int, list[RowPiece]] = {}
        room = most
        for entry in waiting:
            if wanted[entry].bytes <= room:
                room -= wanted[entry].bytes
                in_memory[entry] = []
        streamed = [entry for entry in waiting if wanted[entry].bytes > most]
        for entry, piece in rows([*in_memory, *streamed]):
            take = in_memory[entry].append if entry in in_memory else trainers[entry].see
            take(piece)
        over = {entry for entry in streamed if trainers[entry].end()} | set(in_memory)
        while in_memory:
            entry, pieces = in_memory.popitem()
            ended = False
            while not ended:
                for piece in pieces:
                    trainers[entry].see(piece)
                ended = trainers[entry].end()
        waiting = [entry for entry in waiting if entry not in over]
    return {entry: trainer.best for entry, trainer in trainers.items()}


def row_pieces(
    cells: BlockValues, node_items: NodeItems, wanted: dict[int, PerceptronRequest]
) -> Iterator[tuple[int, RowPiece]]:
    """The rows of a block that are in these nodes; cells: as the tree sees them."""
    items, begin, end = node_items
    for entry, request in wanted.items():
        for first in range(int(begin[entry]), int(end[entry]), _ROWS):
            here = items[first : min(first + _ROWS, int(end[entry]))]
            row = (here >> SHIFT32).astype(np.int64)
            columns = [column_of(cells, feature)[row] for feature in request.space.feature.tolist()]
            yield entry, (with_cells(request.space, columns, row.size), numbered(here & BITS32))
