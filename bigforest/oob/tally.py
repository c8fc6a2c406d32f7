"""The votes of trees on rows, added up from the leaves in which they ended (forest/votes/leaf_files.py).

Rows are gone over a range at a time, each range by the trees in their order: so the sums, and the error after each
tree, do not depend on how the trees were grown or in which order, nor on the ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.execution.threads import run
from bigforest.forest.load.flat_tree import cast_by
from bigforest.forest.load.vote_rule import answer_width
from bigforest.forest.votes.leaf_files import LeafFile, chunk_rows, step_rows
from bigforest.oob.accumulator import (
    OobAccumulator,
    no_votes,
    read_tally,
    row_weights,
    true_values,
    weight_share,
    write_tally,
)
from bigforest.oob.plan import PIECES
from bigforest.schema.config import TrainConfig
from bigforest.store.store import Store


class TallyInputs(NamedTuple):
    """What the tasks of a report share.

    groups   files of leaves, in the order of their trees, of which the ballots are loaded together.
    workers  threads of a process.
    folder   for tallies, where they do not stay in the process.
    unit     by what errors of numbers are multiplied before they are squared.
    """

    groups: list[list[LeafFile]]
    workers: int
    folder: Path | None
    unit: float


class _Cast(NamedTuple):
    """A file of leaves, and what these cast: the arrays of kernels/predict/tally.py."""

    file: LeafFile
    first: NDArray[np.int64]
    ballot: NDArray[np.uint32]
    mixed: NDArray[np.float64]


def tally_range(
    store: Store,
    config: TrainConfig,
    work: TallyInputs,
    begin: int,
    end: int,
    advance: Callable[[int], None] | None,
) -> tuple[OobAccumulator | Path, NDArray[np.int64]]:
    """Task: the tally of rows `begin` to before `end`, or the file it is in, and the changes, int64 [3, trees].

    The changes are by how much each tree changed the weight of the rows that are wrong, or the sum of squared errors by
    weight (error_unit), the number of rows that have a vote, and their weight. `advance` is told of finished trees.
    """
    accumulator = no_votes(end - begin, store.spec)
    changes = _add_up(store, config, work, begin, end, accumulator, advance)
    return accumulator if work.folder is None else write_tally(accumulator, work.folder), changes


def tally_further(
    store: Store, config: TrainConfig, work: TallyInputs, begin: int, end: int, before: Sequence[Path]
) -> tuple[list[Path], NDArray[np.int64]]:
    """Task: the files of the tally of these rows, one for every `step_rows`, and the changes, as in `tally_range`.

    before  the same files for the trees before these, which stay; none where there are no such trees.
    """
    assert work.folder is not None
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
    """Add the votes of the trees on rows `begin` to before `end` to their tally; the changes, int64 [3, trees]."""
    changes = np.zeros((3, config.trees), np.int64)
    chunk = chunk_rows(answer_width(store.spec))
    chunks = range(begin // chunk, -(-end // chunk))
    step = -(-len(chunks) // (PIECES * work.workers))
    pieces = [chunks[at : at + step] for at in range(0, len(chunks), step)]

    def collect(_: int, change: NDArray[np.int64]) -> None:
        nonlocal changes
        changes += change

    for group in work.groups:
        casts = [_cast(file, store, config) for file in group]
        parts = [accumulator.part(own.start * chunk - begin, own.stop * chunk - begin) for own in pieces]
        tasks = [(store, config, casts, part, work.unit, own) for part, own in zip(parts, pieces, strict=True)]
        run(_add_chunks, tasks, workers=work.workers, on_result=collect)
        if advance is not None:
            advance(sum(len(file.trees) for file in group))
        del casts, tasks, parts
    return changes


def _cast(file: LeafFile, store: Store, config: TrainConfig) -> _Cast:
    ballots = file.ballots(store.spec)
    return _Cast(file, ballots.first, ballots.ballot, cast_by(ballots.mixed, config.vote))


def _add_chunks(
    store: Store, config: TrainConfig, casts: Sequence[_Cast], accumulator: OobAccumulator, unit: float, chunks: range
) -> NDArray[np.int64]:
    """Add the votes on the rows of some chunks, whose tally this is; the changes as in `tally_range`."""
    chunk = chunk_rows(answer_width(store.spec))
    changes = np.zeros((3, config.trees), np.int64)
    for cast in casts:
        with cast.file.reading() as file:
            for number in chunks:
                at = (number - chunks.start) * chunk
                here = accumulator.part(at, at + chunk)
                first = number * chunk
                _add_chunk(store, config, cast, file, number, here, first, unit, changes)
    return changes


def _add_chunk(
    store: Store,
    config: TrainConfig,
    cast: _Cast,
    file: Any,
    number: int,
    here: OobAccumulator,
    first: int,
    unit: float,
    changes: NDArray[np.int64],
) -> None:
    """Add the votes on the rows of a chunk, which begin with row `first`, to their tally and the changes."""
    from bigforest.kernels.predict.accumulate import Votes
    from bigforest.kernels.predict.tally import ClassVotes, FoundLeaves, NumberVotes, OobVotes, add_classes, add_numbers

    trees = range(cast.file.trees.start, min(cast.file.trees.stop, config.trees))
    found = cast.file.chunk(file, number)
    ends = np.cumsum(found.counts, dtype=np.int64)[: len(trees)]
    leaves = FoundLeaves(found.rows, found.leaves, ends, cast.first, cast.ballot)
    change = changes[:, trees.start : trees.stop]
    last = first + here.voters.size
    weight = row_weights(store, first, last)
    votes = OobVotes(Votes(cast.mixed, here.votes), here.voters, change[1], change[2], weight)
    if store.spec.target.task == "regression":
        numbers = NumberVotes(votes, true_values(store, first, last), unit, weight_share(store), change[0])
        sound = add_numbers(leaves, numbers)
    else:
        sound = add_classes(leaves, ClassVotes(votes, store.labels(first, last), here.prediction, change[0]))
    if not sound:
        raise FormatError(f"{cast.file.path}: leaves and ballots do not hold together; remove both and resume the run")
