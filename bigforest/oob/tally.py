"""The votes of trees on rows, added up from the leaves in which they end (forest/votes/leaf_files.py).

Rows are processed a range at a time, each range by the trees in their order: so the sums, and the error after each
tree, do not depend on how or in which order the trees were grown, nor on the ranges. If leaves are shrunk, their
ballots by each lambda follow from the statistics of all leaves; the leaves of rows do not depend on lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.execution.executor import run_on_threads
from bigforest.forest.load.flat_tree import cast_by
from bigforest.forest.load.leaf_shrinking import weight_unit
from bigforest.forest.load.vote_rule import answer_width
from bigforest.forest.oob_report import ROWS_OF_FILE
from bigforest.forest.votes.ballots import leaf_values
from bigforest.forest.votes.leaf_files import LeafChunk, LeafFile, leaf_chunk_rows, step_rows
from bigforest.kernels.common.layout import NO_BALLOT
from bigforest.oob.accumulator import (
    OobAccumulator,
    RangeTally,
    no_votes,
    read_tally,
    row_weights,
    true_values,
    weight_share,
    write_tally,
)
from bigforest.oob.plan import PIECES
from bigforest.oob.shrinkage import LambdaLosses, losses_of
from bigforest.sampling.bags import held_out_of
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store


class TallyInputs(NamedTuple):
    """Data that the tasks of a report share.

    groups   files of leaves whose ballots are loaded together, in the order of their trees.
    amounts  the lambdas by which leaves are shrunk, in rows; none where they are as grown.
    workers  threads of a process.
    folder   for tallies, where they do not stay in the process.
    unit     factor of regression errors before they are squared.
    votes    weights of the votes of the trees, float64 [trees]; None if all votes have the same weight.
    """

    groups: list[list[LeafFile]]
    amounts: tuple[float, ...]
    workers: int
    folder: Path | None
    unit: float
    votes: NDArray[np.float64] | None = None

    @property
    def lambdas(self) -> int:
        """The number of lambdas that each row has votes by."""
        return max(1, len(self.amounts))


class JudgedRange(NamedTuple):
    """The result of the votes on a range of rows.

    tallies  of these rows, in files one for each file of rows.
    changes  int64 [lambdas + 2, trees], by how much each tree changed the weight of the rows that are wrong, or the sum
             of squared errors by weight (error_unit), by each lambda; then the number of rows that have a vote, and
             their weight.
    losses   of the lambdas, where there are several; else None.
    """

    tallies: list[RangeTally]
    changes: NDArray[np.int64]
    losses: LambdaLosses | None


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


def tally_range(
    store: Store,
    config: TrainConfig,
    work: TallyInputs,
    begin: int,
    end: int,
    advance: Callable[[int], None] | None,
) -> JudgedRange:
    """Task: the votes on rows `begin` to before `end`; `advance` is told of finished trees."""
    accumulator = no_votes(end - begin, store.spec, work.lambdas)
    changes = _add_up(store, config, work, begin, end, accumulator, advance)
    losses = None
    if work.lambdas > 1:
        held = held_out_of(store, config, begin, end)
        losses = losses_of(store, begin, accumulator, work.lambdas, work.unit, held, work.workers)
    if work.folder is None:
        return JudgedRange([RangeTally(begin, end, accumulator)], changes, losses)
    cuts = [begin, *range((begin // ROWS_OF_FILE + 1) * ROWS_OF_FILE, end, ROWS_OF_FILE), end]
    parts = ((start, stop, accumulator.part(start - begin, stop - begin)) for start, stop in pairwise(cuts))
    tallies = [RangeTally(start, stop, write_tally(part, work.folder)) for start, stop, part in parts]
    return JudgedRange(tallies, changes, losses)


def tally_further(
    store: Store, config: TrainConfig, work: TallyInputs, begin: int, end: int, before: Sequence[Path]
) -> tuple[list[Path], NDArray[np.int64]]:
    """Task: the files of the tally of these rows, one for every `step_rows`, and the changes, as in JudgedRange.

    before  the same files for the trees before these, which stay; none where there are no such trees.

    There is at most one lambda.
    """
    assert work.folder is not None and work.lambdas == 1
    step = step_rows(answer_width(store.spec))
    accumulator = no_votes(end - begin, store.spec)
    for start, path in zip(range(0, end - begin, step), before, strict=bool(before)):
        piece = accumulator.part(start, start + step)
        piece.put(read_tally(path, piece.voters.size, store.spec))
    changes = _add_up(store, config, work, begin, end, accumulator, None)
    starts = range(0, end - begin, step)
    return [write_tally(accumulator.part(start, start + step), work.folder) for start in starts], changes


def _add_up(
    store: Store,
    config: TrainConfig,
    work: TallyInputs,
    begin: int,
    end: int,
    accumulator: OobAccumulator,
    advance: Callable[[int], None] | None,
) -> NDArray[np.int64]:
    """Add the votes of the trees on rows `begin` to before `end` to their tally; the changes: see JudgedRange."""
    changes = np.zeros((work.lambdas + 2, config.trees), np.int64)
    chunk = leaf_chunk_rows(answer_width(store.spec))
    chunks = range(begin // chunk, -(-end // chunk))
    step = -(-len(chunks) // (PIECES * work.workers))
    pieces = [chunks[at : at + step] for at in range(0, len(chunks), step)]

    def collect(_: int, change: NDArray[np.int64]) -> None:
        nonlocal changes
        changes += change

    for group in work.groups:
        casts = _casts(group, work, store, config)
        parts = [accumulator.part(piece.start * chunk - begin, piece.stop * chunk - begin) for piece in pieces]
        tasks = [(store, config, work, casts, part, piece) for part, piece in zip(parts, pieces, strict=True)]
        run_on_threads(_add_chunks, tasks, workers=work.workers, on_result=collect)
        if advance is not None:
            advance(sum(len(cast.file.trees) for cast in casts))
        del casts, tasks, parts
    return changes


def _casts(files: Sequence[LeafFile], work: TallyInputs, store: Store, config: TrainConfig) -> list[_Cast]:
    """The ballots of the leaves of a group, by file."""
    found: dict[int, _Cast] = {}
    tasks = [(file, work, store, config) for file in files]
    run_on_threads(_cast, tasks, workers=work.workers, on_result=found.__setitem__)
    return [found[number] for number in range(len(files))]


def _cast(file: LeafFile, work: TallyInputs, store: Store, config: TrainConfig) -> _Cast:
    ballots = file.ballots(store.spec)
    target, grown = store.spec.target, None
    if target.is_regression:
        grown = _Grown(ballots.ballot, ballots.mixed[:, 0] - target.offset)
    if not work.amounts:
        return _Cast(file, ballots.first, ballots.ballot, cast_by(ballots.mixed, config.vote), grown)
    values = leaf_values(ballots, np.array(work.amounts) / weight_unit(store.spec))
    if values is None:
        raise _torn(file)
    cast = cast_by(values, config.vote)
    own = ballots.ballot != NO_BALLOT
    if work.votes is not None:
        leaves = np.add.reduceat(own, ballots.first[:-1], dtype=np.int64)
        cast = cast * np.repeat(work.votes[file.trees.start : file.trees.stop], leaves)[:, None]
    number = np.cumsum(own, dtype=np.uint32) + np.uint32(values.shape[1] - 1)
    ballot = np.where(own, number, NO_BALLOT)
    ballot.flags.writeable = False  # as those of files: with other flags kernels would be compiled again
    return _Cast(file, ballots.first, ballot, cast, grown)


def _torn(file: LeafFile) -> FormatError:
    return FormatError(f"{file.path}: leaves and ballots do not match; remove both and resume the run")


def _add_chunks(
    store: Store,
    config: TrainConfig,
    work: TallyInputs,
    casts: Sequence[_Cast],
    accumulator: OobAccumulator,
    chunks: range,
) -> NDArray[np.int64]:
    """Add the votes on the rows of some chunks, whose tally this is; the changes as in JudgedRange."""
    rows = leaf_chunk_rows(answer_width(store.spec))
    changes = np.zeros((work.lambdas + 2, config.trees), np.int64)
    for cast in casts:
        trees = range(cast.file.trees.start, min(cast.file.trees.stop, config.trees))
        with cast.file.reading() as file:
            for chunk in chunks:
                found, begin = cast.file.chunk(file, chunk), (chunk - chunks.start) * rows
                piece = accumulator.part(begin, begin + rows)
                change = _add_chunk(store, work, cast, found, piece, chunk * rows, len(trees))
                changes[:, trees.start : trees.stop] += change
    return changes


def _add_chunk(
    store: Store, work: TallyInputs, cast: _Cast, found: LeafChunk, tally: OobAccumulator, first: int, trees: int
) -> NDArray[np.int64]:
    """Add the votes of the first `trees` trees of a file on the rows of a chunk, which begin with row `first`.

    Returns by how much each tree changed what JudgedRange says.
    """
    from bigforest.kernels.predict.accumulate import Votes
    from bigforest.kernels.predict.tally import (
        ClassVotes,
        FoundLeaves,
        NumberVotes,
        OobVotes,
        add_classes,
        add_numbers,
        add_spread,
    )

    ends = np.cumsum(found.counts, dtype=np.int64)[:trees]
    leaves = FoundLeaves(found.rows, found.leaves, ends, cast.first, cast.ballot)
    change = np.zeros((work.lambdas + 2, trees), np.int64)
    last = first + tally.voters.size
    weight = row_weights(store, first, last)
    votes = OobVotes(Votes(cast.mixed, tally.votes), tally.voters, change[-2], change[-1], weight)
    if cast.grown is None:
        sound = add_classes(leaves, ClassVotes(votes, store.labels(first, last), tally.prediction, change[:-2]))
    else:
        numbers = NumberVotes(votes, true_values(store, first, last), work.unit, weight_share(store), change[:-2])
        as_grown = leaves._replace(ballot=cast.grown.ballot)
        sound = add_numbers(leaves, numbers) and add_spread(as_grown, cast.grown.value, tally.spread)
    if not sound:
        raise _torn(cast.file)
    return change
