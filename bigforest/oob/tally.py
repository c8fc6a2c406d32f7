"""The votes of trees on rows, added up from the leaves in which they end (forest/leaf_votes.py).

Rows are processed a range at a time, each range by the trees in their order: so the sums, and the error after each
tree, do not depend on how or in which order the trees were grown, nor on the ranges. If leaves are shrunk, their
ballots follow from the statistics of all leaves; the leaves of rows do not depend on lambda. Where lambda is to be
chosen, the votes for what each row is are added up first, by each lambda, then all votes by the one chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.execution.executor import map_on_threads
from bigforest.forest.ballots import shrunk_leaves
from bigforest.forest.leaf_votes import LeafChunk, LeafFile, leaf_chunk_rows, step_rows
from bigforest.forest.oob_report import ROWS_OF_FILE
from bigforest.kernels.predict.accumulate import Votes
from bigforest.kernels.predict.tally import (
    ClassVotes,
    FoundLeaves,
    LambdaVotes,
    NumberVotes,
    OobVotes,
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
    no_votes_by,
    read_tally,
    row_weights,
    write_tally,
)
from bigforest.oob.choice import ChoiceLosses, losses_by_lambda, losses_by_power
from bigforest.oob.plan import PIECES
from bigforest.options.train_config import TrainConfig
from bigforest.predict.packed_trees import leaf_votes
from bigforest.sampling.bags import held_out_of
from bigforest.store.store import Store


class TallyInputs(NamedTuple):
    """Data that the tasks of a report share.

    groups   files of leaves whose ballots are loaded together, in the order of their trees.
    amounts  the lambdas by which leaves are shrunk, in rows; none where they are as grown.
    workers  threads of a process.
    folder   for tallies, where they do not stay in the process.
    loss     of predicted numbers.
    votes    weights of the votes of the trees, float64 [trees]; None if all votes have the same weight.
    powers   by which the shares of classes are evaluated; one where it is not chosen.
    """

    store: Store
    config: TrainConfig
    groups: list[list[LeafFile]]
    amounts: tuple[float, ...]
    workers: int
    folder: Path | None
    loss: NumberLoss
    votes: NDArray[np.float64] | None = None
    powers: tuple[float, ...] = (1.0,)

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk of a file of leaves."""
        return leaf_chunk_rows(self.store.rows, self.store.spec.target.answer_width)


# Is told of finished trees; None where the process is another.
Advance = Callable[[int], None] | None


class TalliedRange(NamedTuple):
    """The result of the votes on a range of rows.

    tallies  of these rows, in files one for each file of rows.
    changes  int64 [3, trees], by how much each tree changed the weight of the rows that are wrong, or the sum of the
             losses of numbers by weight (NumberLoss); the number of rows that have a vote; and their weight.
    losses   by each power; None where there is one to use.
    """

    tallies: list[RangeTally]
    changes: NDArray[np.int64]
    losses: ChoiceLosses | None


class _Grown(NamedTuple):
    """Unshrunk values of leaves, minus the offset of the target: `value`, float64, by 1 less than `ballot`."""

    ballot: NDArray[np.uint32]
    value: NDArray[np.float64]


class _Cast(NamedTuple):
    """A file of leaves, and their ballots: arrays of kernels/predict/tally.py. grown: for regression."""

    file: LeafFile
    first: NDArray[np.int64]
    ballot: NDArray[np.uint32]
    mixed: NDArray[np.float64]
    grown: _Grown | None


class _LambdaPiece(NamedTuple):
    """Votes for what rows are by each lambda; truth: uint16 [rows], 0 for regression."""

    votes: OobAccumulator
    truth: NDArray[np.uint16]

    @classmethod
    def of(cls, store: Store, votes: OobAccumulator, start: int, stop: int) -> _LambdaPiece:
        """The piece of rows `start` to before `stop`, with these votes."""
        if store.spec.target.classes:
            return cls(votes, store.labels(start, stop))
        truth = np.zeros(stop - start, np.uint16)
        truth.flags.writeable = False  # as labels: with other flags kernels would be compiled again
        return cls(votes, truth)

    def add(self, cast: _Cast, found: LeafChunk, rows: slice, trees: int) -> bool:
        """Add the votes of the first `trees` trees of a file on the rows of a chunk, `rows` of the piece.

        False where leaves and ballots do not match.
        """
        votes = LambdaVotes(cast.mixed, self.truth[rows], *self.votes.part(rows.start, rows.stop)[:2])
        return add_by_lambda(_leaves(cast, found, trees), votes)


class _TallyPiece(NamedTuple):
    """Votes of rows, as in OobAccumulator.

    first    the number of the first row.
    truth    uint16, or float64 of numbers [rows].
    loss     see TallyInputs.
    changes  see TalliedRange.
    """

    store: Store
    tally: OobAccumulator
    first: int
    truth: NDArray[Any]
    loss: NumberLoss
    changes: NDArray[np.int64]

    def add(self, cast: _Cast, found: LeafChunk, rows: slice, trees: int) -> bool:
        """As `_LambdaPiece.add`."""
        store, tally = self.store, self.tally.part(rows.start, rows.stop)
        first, last = self.first + rows.start, self.first + rows.stop
        change, reached, weighed = self.changes[:, cast.file.trees.start : cast.file.trees.start + trees]
        weight, leaves = row_weights(store, first, last), _leaves(cast, found, trees)
        votes = OobVotes(Votes(cast.mixed, tally.votes), tally.voters, reached, weighed, weight)
        if cast.grown is None:
            return add_classes(leaves, ClassVotes(votes, self.truth[rows], tally.prediction, change))
        numbers = NumberVotes(votes, self.truth[rows], *self.loss, store.spec.weight_unit, change)
        as_grown = leaves._replace(ballot=cast.grown.ballot)
        sound = add_numbers(leaves, numbers)
        return sound and add_spread(as_grown, cast.grown.value, tally.spread)


def lambda_losses(work: TallyInputs, begin: int, end: int, advance: Advance) -> ChoiceLosses:
    """Task: the losses of rows `begin` to before `end` by each lambda; `advance` is told of finished trees."""
    store, votes, cuts = work.store, no_votes_by(len(work.amounts), end - begin), _cut(work, begin, end)
    pieces = [
        _LambdaPiece.of(store, votes.part(start - begin, stop - begin), start, stop) for start, stop in pairwise(cuts)
    ]
    _add_up(work, cuts, pieces, advance)
    return losses_by_lambda(store, begin, votes, work.loss, held_out_of(store, work.config, begin, end), work.workers)


def tally_range(work: TallyInputs, begin: int, end: int, advance: Advance) -> TalliedRange:
    """Task: the votes on rows `begin` to before `end`; `advance` is told of finished trees."""
    accumulator = no_votes(end - begin, work.store.spec)
    changes = _tally(work, begin, end, accumulator, advance)
    losses = None
    if len(work.powers) > 1:
        held = held_out_of(work.store, work.config, begin, end)
        losses = losses_by_power(work.store, begin, accumulator, work.powers, held, work.workers)
    if work.folder is None:
        return TalliedRange([RangeTally(begin, end, accumulator)], changes, losses)
    cuts = [begin, *range((begin // ROWS_OF_FILE + 1) * ROWS_OF_FILE, end, ROWS_OF_FILE), end]
    parts = ((start, stop, accumulator.part(start - begin, stop - begin)) for start, stop in pairwise(cuts))
    tallies = [RangeTally(start, stop, write_tally(part, work.folder)) for start, stop, part in parts]
    return TalliedRange(tallies, changes, losses)


def tally_further(
    work: TallyInputs, begin: int, end: int, before: Sequence[Path]
) -> tuple[list[Path], NDArray[np.int64]]:
    """Task: the files of the tally of these rows, one for every `step_rows`, and the changes, as in TalliedRange.

    before  the same files for the trees before these, which stay; none where there are no such trees.
    """
    assert work.folder is not None
    spec = work.store.spec
    step = step_rows(spec.target.answer_width)
    accumulator = no_votes(end - begin, spec)
    for start, path in zip(range(0, end - begin, step), before, strict=bool(before)):
        piece = accumulator.part(start, start + step)
        piece.put(read_tally(path, piece.voters.size, spec))
    changes = _tally(work, begin, end, accumulator, None)
    starts = range(0, end - begin, step)
    return [write_tally(accumulator.part(start, start + step), work.folder) for start in starts], changes


def _tally(work: TallyInputs, begin: int, end: int, accumulator: OobAccumulator, advance: Advance) -> NDArray[np.int64]:
    """Add the votes of the trees on rows `begin` to before `end` to their tally; the changes: see TalliedRange."""
    store, cuts = work.store, _cut(work, begin, end)
    changes = np.zeros((len(cuts) - 1, 3, work.config.trees), np.int64)
    truth_of = store.labels if store.spec.target.classes else store.numbers
    pieces = [
        _TallyPiece(store, accumulator.part(start - begin, stop - begin), start, truth_of(start, stop), work.loss, own)
        for (start, stop), own in zip(pairwise(cuts), changes, strict=True)
    ]
    _add_up(work, cuts, pieces, advance)
    return changes.sum(axis=0)


def _cut(work: TallyInputs, begin: int, end: int) -> list[int]:
    """Where the pieces of a range begin, of whole chunks, and where the last one ends."""
    step = -(-(end - begin) // (PIECES * work.workers * work.chunk_rows)) * work.chunk_rows
    return [*range(begin, end, step), end]


def _add_up(
    work: TallyInputs, cuts: Sequence[int], pieces: Sequence[_LambdaPiece | _TallyPiece], advance: Advance
) -> None:
    """Add the votes of the trees, in their order, on the rows of these pieces."""
    for group in work.groups:
        casts = map_on_threads(_cast, [(work, file) for file in group], work.workers)
        tasks = [(work, casts, *own) for own in zip(pairwise(cuts), pieces, strict=True)]
        map_on_threads(_add_piece, tasks, work.workers)
        if advance is not None:
            advance(sum(len(cast.file.trees) for cast in casts))
        del casts, tasks


def _add_piece(
    work: TallyInputs, casts: Sequence[_Cast], rows: tuple[int, int], piece: _LambdaPiece | _TallyPiece
) -> None:
    """Add the votes of some files on the rows of a piece."""
    (start, stop), step = rows, work.chunk_rows
    for cast in casts:
        trees = min(len(cast.file.trees), work.config.trees - cast.file.trees.start)
        with cast.file.leaves.reading() as opened:
            for first in range(start, stop, step):
                found = cast.file.chunk(opened, first // step)
                if not piece.add(cast, found, slice(first - start, min(first + step, stop) - start), trees):
                    raise _torn(cast.file)


def _leaves(cast: _Cast, found: LeafChunk, trees: int) -> FoundLeaves:
    """The leaves of the first `trees` trees of a file in a chunk."""
    ends = np.cumsum(found.counts, dtype=np.int64)[:trees]
    return FoundLeaves(found.rows, found.leaves, ends, cast.first, cast.ballot)


def _cast(work: TallyInputs, file: LeafFile) -> _Cast:
    """The ballots of the leaves of a file."""
    spec, vote, grown = work.store.spec, work.config.vote, None
    ballots = file.ballots(spec)
    if spec.target.is_regression and len(work.amounts) < 2:
        grown = _Grown(ballots.ballot, ballots.mixed[:, 0] - spec.target.offset)
    if not work.amounts:
        return _Cast(file, ballots.first, ballots.ballot, leaf_votes(ballots.mixed, vote), grown)
    shrunk = shrunk_leaves(ballots, np.array(work.amounts) / spec.weight_unit)
    if shrunk is None:
        raise _torn(file)
    cast = leaf_votes(shrunk.value, vote)
    if work.votes is not None:
        cast = cast * np.repeat(work.votes[file.trees.start : file.trees.stop], np.diff(shrunk.begins))[:, None]
    return _Cast(file, ballots.first, shrunk.ballot, cast, grown)


def _torn(file: LeafFile) -> FormatError:
    return FormatError(f"{file.path}: leaves and ballots do not match; remove both and resume the run")
