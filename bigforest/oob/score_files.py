"""Area under the ROC curve of more distinct scores than fit in memory, from sorted files.

1. The tasks that write rows write a file of scores for each row group and curve, sorted and cut into cells by value.
2. Each task of the area reads some consecutive cells of all files. The areas are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.metrics.classes import Area, Scores
from bigforest.storage.array_file import ArrayFile, writing_arrays

# Number of cells. They have the same width, except that the last cell has no upper end.
CELLS = 64
_EDGES = np.arange(1, CELLS) / CELLS
# Each cell is a block of the file. An entry has a distinct score, True for rows of the class of the curve or False for
# all other rows, and the sum of the weights of these rows with this score.
_SCORES = {"score": "<f8", "second": "|b1", "weight": "<i8"}
# Most bytes that a row takes in these files, for each curve: an entry.
ROW_BYTES = 17


def write_scores(
    path: Path, scores: NDArray[np.float64], second: NDArray[np.bool_], weight: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Write the scores of some rows. Return the number of entries of each cell, int64 [CELLS].

    second  bool [rows], mask of the rows of the class of the curve
    """
    piece = Scores(scores.size)
    piece.add(scores, second, weight)
    counts = np.array(piece.counts)
    entry, kind = np.nonzero(counts.T)
    score, counted = piece.values[entry], counts[kind, entry]
    cuts = [0, *np.searchsorted(score, _EDGES).tolist(), score.size]
    with writing_arrays(path, _SCORES) as write:
        for first, stop in pairwise(cuts):
            write(score[first:stop], kind[first:stop] == 1, counted[first:stop])
    return np.diff(cuts)


def area_of_files(paths: Sequence[Path], cells: NDArray[np.int64], most: int, executor: Executor) -> float | None:
    """Return the area under the curve of the scores in files; None if the class, or the rest, has no row.

    cells  number of entries of each cell in all files
    most   most distinct scores in memory at a time
    """
    total = int(cells.sum())
    tasks = max(1, min(executor.size, -(-total // most)))
    ends = np.searchsorted(np.cumsum(cells), total * np.arange(1, tasks) // tasks) + 1
    cuts = sorted({0, *ends.tolist(), CELLS})
    area = Area()
    for area_of_cells in executor.gather(read_area, list(pairwise(cuts)), shared=(paths, most)):
        area.join(area_of_cells)
    return area.value


def read_area(paths: Sequence[Path], most: int, first: int, stop: int) -> Area:
    """Task: return the area of the scores in some cells. A cell with more than `most` distinct scores is read several
    times.

    Raises FormatError for a damaged file.
    """
    area = Area()
    for cell in range(first, stop):
        above: float | None = -np.inf
        while above is not None:
            scores = Scores(most, above)
            for path in paths:
                scores_file = ArrayFile.of(path, _SCORES)
                with scores_file.reading() as file:
                    scores.add(*scores_file.block(file, cell))
            area.add(scores)
            above = None if scores.limit is None else float(scores.values[-1])
    return area
