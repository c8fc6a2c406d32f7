"""The trees of a forest ready to answer rows, from any number of threads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.encode.dataspec import DataSpec
from bigforest.forest.packed import Packed
from bigforest.forest.values import Columns, chunk_rows, fill, nan_error, tiles_for
from bigforest.forest.votes import Rule

# Fewer visits of a tree by a row than this take less time than starting threads does.
SMALL = 300_000

# Pieces per thread, so that threads which are held up leave work to the others.
PIECES = 4


class Answers(NamedTuple):
    """Answers to rows, in order.

    codes  int32 [rows], class of each row or REJECTED.
    proba  float64 [rows, classes], votes over trees; None if not asked for.
    """

    codes: NDArray[np.int32]
    proba: NDArray[np.float64] | None


class Voting(NamedTuple):
    """A forest, packed, with a rule. `mixed` is what the mixed leaves cast, see Packed.ballots."""

    packed: Packed
    mixed: NDArray[np.float64]
    rule: Rule
    spec: DataSpec

    def answer(self, columns: Columns, numbers: NDArray[np.uint64] | int, *, proba: bool, workers: int = 1) -> Answers:
        """Answers to all rows.

        columns  the used features (packed.used), [rows] each.
        numbers  numbers of the rows for random draws, uint64 [rows]; or the number of the first row.
        Rows are independent: the answers do not depend on how many come together, nor on the number of
        threads. Raises DataError where a value is NaN.
        """
        from bigforest.kernels.route import TILE

        rows = len(columns[0])
        classes = len(self.spec.target.classes)
        answers = Answers(np.empty(rows, np.int32), np.empty((rows, classes)) if proba else None)
        if workers == 1 or rows * self.packed.roots.size < SMALL:
            sound = self._answer_rows(columns, numbers, answers, 0, rows)
        else:
            from bigforest.schedule.tasks import run

            step = -(-rows // (PIECES * workers * TILE)) * TILE
            found = []
            tasks = [(columns, numbers, answers, start, min(start + step, rows)) for start in range(0, rows, step)]
            run(self._answer_rows, tasks, workers=workers, on_result=lambda _, ok: found.append(ok))
            sound = all(found)
        if not sound:
            features = self.spec.features
            raise nan_error(columns, lambda place: features[int(self.packed.used[place])].name)
        return answers

    def _answer_rows(
        self, columns: Columns, numbers: NDArray[np.uint64] | int, answers: Answers, start: int, stop: int
    ) -> bool:
        """Write the answers to the rows from `start` to before `stop`; False if there was a NaN."""
        from bigforest.kernels.route import TILE, vote

        packed = self.packed
        step = min(chunk_rows(len(columns), TILE), -(-(stop - start) // TILE) * TILE)
        tiles = tiles_for(step, len(columns), TILE)
        classes = len(self.spec.target.classes)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            if not fill(tiles, columns, first, last):
                return False
            votes = np.zeros((last - first, classes))
            thresholds = packed.words.view(np.float64)
            needed = tiles[: -(-(last - first) // TILE)]
            vote(needed, last - first, thresholds, packed.words, packed.roots, self.mixed, votes)
            answers.codes[first:last] = self.rule.decide(votes, self._numbers(numbers, first, last))
            if answers.proba is not None:
                answers.proba[first:last] = votes / packed.roots.size
        return True

    def _numbers(self, numbers: NDArray[np.uint64] | int, first: int, last: int) -> NDArray[np.uint64] | None:
        if not self.rule.draws:
            return None
        if isinstance(numbers, int):
            return np.arange(numbers + first, numbers + last, dtype=np.uint64)
        return numbers[first:last]
