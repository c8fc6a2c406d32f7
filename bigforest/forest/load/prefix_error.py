"""The error of a forest by number of trees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import run_on_threads
from bigforest.forest.load.predictor import Predictor
from bigforest.forest.load.router import RowRouter, chunk_rows
from bigforest.forest.load.row_batch import RowBatch, missing_error
from bigforest.forest.load.vote_rule import REJECTED

# Pieces of the rows per thread, so that slow threads leave work to the others.
_PIECES = 4


def count_prefix_errors(
    predictor: Predictor, rows: RowBatch, first: int, truth: NDArray[np.int32], votes: NDArray[np.float64], workers: int
) -> NDArray[np.int64]:
    """How many rows are answered wrongly, and how many not at all, after each of these trees: int64 [2, trees].

    first  number of the first row, for random draws.
    truth  int32 [rows], class of each row; -1 where it is not known, and the row not counted.
    votes  of the trees before these, float64 [rows, classes]; added to.

    A row that is not answered counts as wrong too. Raises DataError where a value is missing that is needed.
    """
    from bigforest.kernels.predict.flat_tree import TILE

    if predictor.ranks is not None:
        rows = rows.ranked(predictor.ranks, predictor.packed.used)
    step = min(chunk_rows(rows), -(-rows.rows // (_PIECES * workers * TILE)) * TILE)
    tasks = [
        (predictor, rows, first, truth, votes, start, min(start + step, rows.rows))
        for start in range(0, rows.rows, max(step, 1))
    ]
    counts = np.zeros((2, predictor.packed.roots.size), np.int64)
    sound = True

    def add(_: int, found: NDArray[np.int64] | None) -> None:
        nonlocal sound
        if found is None:
            sound = False
        else:
            counts[:] += found

    run_on_threads(_judge_piece, tasks, workers=workers, on_result=add)
    if not sound:
        raise missing_error(rows, [predictor.spec.features[int(place)].name for place in predictor.packed.used])
    return counts


def _judge_piece(
    predictor: Predictor,
    rows: RowBatch,
    first: int,
    truth: NDArray[np.int32],
    votes: NDArray[np.float64],
    start: int,
    stop: int,
) -> NDArray[np.int64] | None:
    """`count_prefix_errors` of the rows from `start` to before `stop`; None if a value is missing that is needed."""
    from bigforest.kernels.predict.accumulate import Votes, vote
    from bigforest.kernels.predict.route import new_scratch

    packed = predictor.packed
    router = RowRouter(packed)
    way = router.way(rows, start, stop)
    if way is None:
        return None
    own, known = votes[start:stop], truth[start:stop]
    numbers = np.arange(first + start, first + stop, dtype=np.uint64)
    counts, scratch = np.zeros((2, packed.roots.size), np.int64), new_scratch(way)
    for tree in range(packed.roots.size):
        vote(way, packed.roots[tree : tree + 1], Votes(predictor.mixed, own), scratch)
        codes = predictor.rule.decide(own, numbers)
        counts[0, tree] = np.count_nonzero((codes != known) & (known >= 0))
        counts[1, tree] = np.count_nonzero((codes == REJECTED) & (known >= 0))
    return counts
