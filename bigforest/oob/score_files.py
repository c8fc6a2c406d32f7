"""The area under the ROC curve of more different scores than are held: sorted into files, and read again by value.

The task that writes a file of rows writes their scores too, piece by piece: sorted, and cut into cells by their values.
Each task of the area reads some cells of all files, so every score is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.metrics.classes import Area, Scores
from bigforest.storage.array_file import ArrayFile, writing_arrays

# Cells of equal width, but for the last one, which has no upper end.
CELLS = 64
_EDGES = np.arange(1, CELLS) / CELLS
# A block for each cell of each piece: different scores, the class they were given to, and the sum of weights.
_SCORES = {"score": "<f8", "second": "|b1", "weight": "<i8"}
# Bytes of a row in these files at most.
ROW_BYTES = 17

# Takes scores, whether they are of the second class, and weights; gives how many it has written to each cell.
AddScores = Callable[[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64] | None], NDArray[np.int64]]


@contextmanager
def writing_scores(folder: Path, number: int) -> Iterator[AddScores]:
    """Write the scores of file `number` of the rows; gives what takes a piece of them."""
    with writing_arrays(_path(folder, number), _SCORES) as write:

        def add(
            scores: NDArray[np.float64], second: NDArray[np.bool_], weight: NDArray[np.int64] | None
        ) -> NDArray[np.int64]:
            piece = Scores(scores.size)
            piece.add(scores, second, weight)
            counts = np.array(piece.counts)
            entry, kind = np.nonzero(counts.T)
            score, given = piece.values[entry], counts[kind, entry]
            ends = np.searchsorted(score, _EDGES)
            cuts = [0, *ends.tolist(), score.size]
            for first, stop in pairwise(cuts):
                write(score[first:stop], kind[first:stop] == 1, given[first:stop])
            return np.diff(cuts)

        yield add


def area_of_files(folder: Path, files: int, cells: NDArray[np.int64], most: int, executor: Executor) -> float | None:
    """The area of the scores in this number of files; None where a class has no row.

    cells  how many scores each cell has in all files.
    most   different scores held at a time.
    """
    total = int(cells.sum())
    tasks = max(1, min(executor.size, -(-total // most)))
    ends = np.searchsorted(np.cumsum(cells), total * np.arange(1, tasks) // tasks) + 1
    cuts = sorted({0, *ends.tolist(), CELLS})
    area = Area()
    for own in executor.gather(read_area, list(pairwise(cuts)), shared=(folder, files, most), even=True):
        area.join(own)
    return area.value


def read_area(folder: Path, files: int, most: int, first: int, stop: int) -> Area:
    """Task: the area of the scores in some cells; where one has too many, those that may be held at a time."""
    area = Area()
    for cell in range(first, stop):
        above: float | None = -np.inf
        while above is not None:
            scores = Scores(most, above)
            for number in range(files):
                _read_scores(scores, _path(folder, number), cell)
            area.add(scores)
            above = None if scores.limit is None else float(scores.values[-1])
    return area


def _read_scores(scores: Scores, path: Path, cell: int) -> None:
    """Add the scores of a cell. Raises FormatError for a damaged file."""
    found = ArrayFile.of(path, _SCORES)
    with found.reading() as file:
        for block in range(cell, found.blocks, CELLS):
            scores.add(*found.block(file, block))


def _path(folder: Path, number: int) -> Path:
    return folder / f"scores-{number}.bin"
