"""The area under the ROC curve by way of sorted files is that of the scores, and each task reads its own cells only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bigforest.execution.executor import Executor
from bigforest.metrics.classes import Area, Scores
from bigforest.oob.score_files import CELLS, area_of_files, write_scores

FILES = 6


def paths_in(folder: Path) -> list[Path]:
    """The files of scores."""
    return [folder / f"scores-{number}.bin" for number in range(FILES)]


def written(folder: Path, *, weighted: bool) -> tuple[NDArray[np.int64], float | None]:
    """Scores in files, many of them tied or between 0 and 0.1: their number by cell, and area."""
    random = np.random.default_rng(5)
    cells, every = np.zeros(CELLS, np.int64), Scores(1 << 20)
    for path in paths_in(folder):
        scores = np.concatenate([random.integers(0, 65, 120) / 64, random.random(80) / 10, [0.0, 1.0, 1.5]])
        second = random.random(scores.size) < scores
        weight = random.integers(1, 9, scores.size) if weighted else None
        cells += write_scores(path, scores, second, weight)
        every.add(scores, second, weight)
    return cells, Area().add(every).value


@pytest.mark.parametrize(
    ("most", "tasks", "weighted"),
    [(2, 1, False), (2, 7, True), (60, 2, False), (60, 7, True), (10_000, 1, True), (10_000, 2, False)],
)
def test_area_of_files__is_that_of_all_scores(tmp_path: Path, most: int, tasks: int, weighted: bool) -> None:
    cells, expected = written(tmp_path, weighted=weighted)
    assert area_of_files(paths_in(tmp_path), cells, most, Executor(tasks)) == expected


def test_area_of_files__of_one_class_or_no_row(tmp_path: Path) -> None:
    assert area_of_files([], np.zeros(CELLS, np.int64), 10, Executor(2)) is None
    cells = write_scores(tmp_path / "scores.bin", np.array([0.5, 0.25]), np.array([True, True]), None)
    assert area_of_files([tmp_path / "scores.bin"], cells, 10, Executor(2)) is None
