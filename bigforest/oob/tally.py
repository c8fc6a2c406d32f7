"""Add up the votes of trees on out-of-bag rows, from the files of their leaves (forest/leaf_votes.py).

The *ballot* of a leaf represents its votes (kernels/predict/tally.py). A task adds the votes of all trees on the rows
of a range, in the order of the trees:

    for groups of files of leaves whose ballots fit together:
        load the ballots of the leaves, shrunk by lambda           (`_load_ballots`, on threads)
        for pieces of the range:                                   (on threads)
            for files, in order: add the votes of their leaves     (kernels/predict/tally.py)

If the ballots of a file do not fit in memory, they are mapped. The sums, and the error after each tree, depend neither
on the division of trees into files nor on the ranges.

The leaves of rows do not depend on lambda, and the ballots for each lambda follow from the statistics of the leaves. To
choose lambda, `lambda_losses` adds up only the votes for the true class (or the number) with each lambda. Then
`tally_range` adds up all votes with the chosen lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.execution.executor import Executor
from bigforest.forest.ballots import loaded_bytes, shrunk_leaves
from bigforest.forest.leaf_votes import LeafChunk, LeafFile, leaf_chunk_rows, step_rows
from bigforest.kernels.predict.accumulate import Votes
from bigforest.kernels.predict.tally import (
    ClassVotes,
    LambdaVotes,
    NumberVotes,
    OobVotes,
    RoutedRows,
    add_by_lambda,
    add_classes,
    add_numbers,
    add_spread,
)
from bigforest.oob.accumulator import (
    NumberLoss,
    OobAccumulator,
    RangeTally,
    no_votes,
    no_votes_by_lambda,
    read_tally,
    row_weights,
    write_tally,
)
from bigforest.oob.choice import ChoiceLosses, losses_by_lambda, losses_by_power
from bigforest.oob.plan import PIECES
from bigforest.options.train_config import TrainConfig
from bigforest.predict.packed_trees import leaf_votes
from bigforest.storage.array_file import mapped_array
from bigforest.storage.paths import local_workdir
from bigforest.store.store import Store

# Leaves that are converted at a time (`_converted`).
_STRETCH = 1 << 16

# Function that is called with the number of trees whose votes were added; None in another process.
Advance = Callable[[int], None] | None


class TallyInputs(NamedTuple):
    """Data shared by the tasks of a report.

    groups      groups of files of leaves whose ballots are loaded together, in the order of their trees
    lambdas     lambdas by which leaves are shrunk, in rows; empty for leaves as grown
    workers     threads of a process
    folder      scratch folder
    in_memory   True to keep tallies in memory, False to write them to files in `folder`
    most_bytes  most bytes of the ballots of a file in memory; more are mapped
    loss        loss of predicted numbers
    votes       weights of the votes of the trees, float64 [trees]; None if all trees have the same weight
    powers      powers of class shares to evaluate; a single one if the power is not chosen
    """

    store: Store
    config: TrainConfig
    groups: list[list[LeafFile]]
    lambdas: tuple[float, ...]
    workers: int
    folder: Path
    in_memory: bool
    most_bytes: int
    loss: NumberLoss
    votes: NDArray[np.float64] | None = None
    powers: tuple[float, ...] = (1.0,)

    @property
    def chunk_rows(self) -> int:
        return leaf_chunk_rows(self.store.spec)


class TalliedRange(NamedTuple):
    """The votes on a range of rows.

    tallies  the votes, by row group of the report
    changes  int64 [3, trees], changes by each tree: weight of wrong rows (for regression, weighted sum of losses, see
             NumberLoss); number of rows with a vote; weight of the rows with a vote
    losses   losses with each power; None if the power is not chosen
    """

    tallies: list[RangeTally]
    changes: NDArray[np.int64]
    losses: ChoiceLosses | None


class _LeafBallots(NamedTuple):
    """A file of leaves, and the ballots of its trees: first, ballot and mixed as in kernels/predict/tally.py.

    grown     ballots of the nodes as grown, without shrinkage
    unshrunk  float64 [leaves], values of the leaves as grown minus the offset of the target; None for classes, and for
              several lambdas
    """

    file: LeafFile
    first: NDArray[np.int64]
    ballot: NDArray[np.uint32]
    mixed: NDArray[np.float64]
    grown: NDArray[np.uint32]
    unshrunk: NDArray[np.float64] | None


class _LambdaPiece(NamedTuple):
    """Votes on some rows with each lambda: for the true class, or the predicted numbers.

    truth  uint16 [rows], true classes; 0 for regression
    """

    votes: OobAccumulator
    truth: NDArray[np.uint16]

    @classmethod
    def of(cls, store: Store, votes: OobAccumulator, start: int, stop: int) -> _LambdaPiece:
        if store.spec.target.classes:
            return cls(votes, store.labels(start, stop))
        truth = np.zeros(stop - start, np.uint16)
        truth.flags.writeable = False  # as `store.labels`: other flags would compile kernels again
        return cls(votes, truth)

    def add(self, ballots: _LeafBallots, chunk: LeafChunk, rows: slice, trees: int) -> bool:
        """Add the votes of the first `trees` trees of a file on the rows of a chunk. Return False if leaves and ballots
        do not match.

        rows  positions of the rows of the chunk in this piece
        """
        votes = LambdaVotes(ballots.mixed, self.truth[rows], *self.votes.rows(rows.start, rows.stop)[:2])
        return add_by_lambda(_leaves(ballots, chunk, trees), votes)


class _TallyPiece(NamedTuple):
    """Votes on some rows, see OobAccumulator.

    first    number of the first row
    truth    classes, uint16 [rows], or numbers, float64 [rows]
    loss     see TallyInputs
    changes  int64 [3, trees], changes by these rows, see TalliedRange
    """

    store: Store
    tally: OobAccumulator
    first: int
    truth: NDArray[Any]
    loss: NumberLoss
    changes: NDArray[np.int64]

    def add(self, ballots: _LeafBallots, chunk: LeafChunk, rows: slice, trees: int) -> bool:
        """Add votes like `_LambdaPiece.add`, and record the changes by each tree."""
        store, tally = self.store, self.tally.rows(rows.start, rows.stop)
        first, last = self.first + rows.start, self.first + rows.stop
        change, reached, weighed = self.changes[:, ballots.file.trees.start : ballots.file.trees.start + trees]
        weight, leaves = row_weights(store, first, last), _leaves(ballots, chunk, trees)
        votes = OobVotes(Votes(ballots.mixed, tally.votes), tally.voters, reached, weighed, weight)
        if ballots.unshrunk is None:
            return add_classes(leaves, ClassVotes(votes, self.truth[rows], tally.prediction, change))
        numbers = NumberVotes(votes, self.truth[rows], *self.loss, store.spec.weight_unit, change)
        sound = add_numbers(leaves, numbers)
        return sound and add_spread(leaves._replace(ballot=ballots.grown), ballots.unshrunk, tally.spread)


def lambda_losses(inputs: TallyInputs, begin: int, end: int, advance: Advance) -> ChoiceLosses:
    """Task: return the losses of rows `begin` to before `end` with each lambda."""
    store, votes, cuts = inputs.store, no_votes_by_lambda(len(inputs.lambdas), end - begin), _cut(inputs, begin, end)
    pieces = [
        _LambdaPiece.of(store, votes.rows(start - begin, stop - begin), start, stop) for start, stop in pairwise(cuts)
    ]
    _add_up(inputs, cuts, pieces, advance)
    return losses_by_lambda(store, inputs.config, begin, votes, inputs.loss, inputs.workers)


def tally_range(
    inputs: TallyInputs, begin: int, end: int, advance: Advance, before: Sequence[Path] = ()
) -> TalliedRange:
    """Task: return the votes on rows `begin` to before `end`.

    before  files of the votes of earlier trees, to which these trees add; they are not removed. Empty without earlier
            trees
    """
    store, spec, accumulator = inputs.store, inputs.store.spec, no_votes(end - begin, inputs.store.spec)
    step = step_rows(spec.target.answer_width)
    ranges = [(start, min(start + step, end)) for start in range(begin, end, step)]
    groups = [accumulator.rows(start - begin, stop - begin) for start, stop in ranges]
    for group, path in zip(groups, before, strict=bool(before)):
        group.copy_from(read_tally(path, group.voters.size, spec))
    cuts = _cut(inputs, begin, end)
    changes = np.zeros((len(cuts) - 1, 3, inputs.config.trees), np.int64)
    truth_of = store.labels if spec.target.classes else store.numbers
    pieces = [
        _TallyPiece(
            store, accumulator.rows(start - begin, stop - begin), start, truth_of(start, stop), inputs.loss, counts
        )
        for (start, stop), counts in zip(pairwise(cuts), changes, strict=True)
    ]
    _add_up(inputs, cuts, pieces, advance)
    losses = None
    if len(inputs.powers) > 1:
        losses = losses_by_power(store, inputs.config, begin, accumulator, inputs.powers, inputs.workers)
    tallies = [
        RangeTally(*rows, group if inputs.in_memory else write_tally(group, inputs.folder))
        for rows, group in zip(ranges, groups, strict=True)
    ]
    return TalliedRange(tallies, changes.sum(axis=0), losses)


def _cut(inputs: TallyInputs, begin: int, end: int) -> list[int]:
    """Cut a range into pieces of whole chunks. Return the begin of each piece, and the end of the last one."""
    step = -(-(end - begin) // (PIECES * inputs.workers * inputs.chunk_rows)) * inputs.chunk_rows
    return [*range(begin, end, step), end]


def _add_up(
    inputs: TallyInputs, cuts: Sequence[int], pieces: Sequence[_LambdaPiece | _TallyPiece], advance: Advance
) -> None:
    """Add the votes of the trees, in their order, to the pieces, whose rows are divided by `cuts` (`_cut`)."""
    for group in inputs.groups:
        ballots = Executor(inputs.workers).gather(_load_ballots, [(inputs, file) for file in group])
        tasks = [(inputs, ballots, *piece) for piece in zip(pairwise(cuts), pieces, strict=True)]
        Executor(inputs.workers).gather(_add_piece, tasks)
        del ballots, tasks  # free them before the next ballots are loaded
        if advance is not None:
            advance(sum(len(file.trees) for file in group))


def _add_piece(
    inputs: TallyInputs, group: Sequence[_LeafBallots], rows: tuple[int, int], piece: _LambdaPiece | _TallyPiece
) -> None:
    (start, stop), step = rows, inputs.chunk_rows
    for ballots in group:
        file = ballots.file
        trees = min(len(file.trees), inputs.config.trees - file.trees.start)
        with file.leaves.reading() as opened:
            for first in range(start, stop, step):
                chunk = file.chunk(opened, first // step)
                if not piece.add(ballots, chunk, slice(first - start, min(first + step, stop) - start), trees):
                    raise _mismatch(file)


def _leaves(ballots: _LeafBallots, chunk: LeafChunk, trees: int) -> RoutedRows:
    ends = np.cumsum(chunk.counts, dtype=np.int64)[:trees]
    return RoutedRows(chunk.rows, chunk.leaves, ends, ballots.first, ballots.ballot)


def _load_ballots(inputs: TallyInputs, file: LeafFile) -> _LeafBallots:
    """Load the ballots of a file, shrunk by the lambdas, and convert class counts to votes. Map ballots that do not fit
    in memory."""
    spec, lambdas = inputs.store.spec, np.array(inputs.lambdas) / inputs.store.spec.weight_unit
    nodes, impure = np.array(file.ballot_sizes(spec), np.int64)[:, None]
    fits = loaded_bytes(nodes, impure, spec.target.answer_width, lambdas.size)[0] <= inputs.most_bytes
    with local_workdir(inputs.folder) as folder:
        make: Callable[..., NDArray[Any]] = np.empty if fits else partial(mapped_array, folder)
        grown = file.ballots(spec, mapped=not fits)
        ballot, mixed, unshrunk, begins = grown.ballot, grown.mixed, None, list[int]()
        if lambdas.size:
            shrunk = shrunk_leaves(grown, lambdas, make)
            if shrunk is None:
                raise _mismatch(file)
            ballot, mixed, begins = shrunk.ballot, shrunk.value, shrunk.begins.tolist()
        mixed = _converted(mixed, lambda values: leaf_votes(values, inputs.config.vote), make)
        if begins and inputs.votes is not None:
            for tree, (begin, end) in zip(file.trees, pairwise(begins), strict=True):
                mixed[begin:end] *= inputs.votes[tree]
        if spec.target.is_regression and lambdas.size < 2:
            unshrunk = _converted(grown.mixed, lambda values: values[:, 0] - spec.target.offset, make)
    return _LeafBallots(file, grown.first, ballot, mixed, grown.ballot, unshrunk)


def _converted(
    values: NDArray[Any],
    function: Callable[[NDArray[Any]], NDArray[np.float64]],
    make: Callable[..., NDArray[Any]],
) -> NDArray[np.float64]:
    """Apply a function to the rows of an array; to _STRETCH rows at a time if the result is mapped."""
    if make is np.empty:
        return function(values)
    result = make((len(values), *function(values[:1]).shape[1:]), np.float64)
    for start in range(0, len(values), _STRETCH):
        rows = slice(start, start + _STRETCH)
        result[rows] = function(values[rows])
    return result


def _mismatch(file: LeafFile) -> FormatError:
    return FormatError(f"{file.path}: leaves and ballots do not match; remove both and resume the run")
