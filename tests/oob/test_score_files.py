"""The area under the ROC curve by way of sorted files is that of the scores, and each task reads its own cells only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bigforest.common.errors import FormatError
from bigforest.execution.executor import Threads
from bigforest.metrics.classes import Area, Scores
from bigforest.oob.score_files import _SCORES, CELLS, area_of_files, read_area, writing_scores
from bigforest.storage.array_file import ArrayFile

FILES = 3


def written(folder: Path, *, weighted: bool) -> tuple[NDArray[np.int64], float | None]:
    """Scores in files, in two pieces each, many of them tied or between 0 and 0.1: their number by cell, and area."""
    random = np.random.default_rng(5)
    cells, every = np.zeros(CELLS, np.int64), Scores(1 << 20)
    for number in range(FILES):
        with writing_scores(folder, number) as add:
            for _ in range(2):
                scores = np.concatenate([random.integers(0, 65, 300) / 64, random.random(200) / 10, [0.0, 1.0, 1.5]])
                second = random.random(scores.size) < scores
                weight = random.integers(1, 9, scores.size) if weighted else None
                cells += add(scores, second, weight)
                every.add(scores, second, weight)
    return cells, Area().add(every).value


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("most", [2, 60, 10_000])
@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_area_of_files__is_that_of_all_scores(tmp_path: Path, weighted: bool, most: int, tasks: int) -> None:
    cells, expected = written(tmp_path, weighted=weighted)
    assert area_of_files(tmp_path, FILES, cells, most, Threads(tasks)) == expected


def test_area_of_files__of_one_class_or_no_row(tmp_path: Path) -> None:
    with writing_scores(tmp_path, 0) as add:
        assert area_of_files(tmp_path, 0, np.zeros(CELLS, np.int64), 10, Threads(2)) is None
        cells = add(np.array([0.5, 0.25]), np.array([True, True]), None)
    assert area_of_files(tmp_path, 1, cells, 10, Threads(2)) is None


def test_read_area__reads_the_scores_of_its_cells_only(tmp_path: Path) -> None:
    written(tmp_path, weighted=False)
    expected = read_area(tmp_path, FILES, 100, 10, 20)
    path = tmp_path / "scores-1.bin"
    content = bytearray(path.read_bytes())
    place = int(ArrayFile.of(path, _SCORES).table[CELLS + 20, 0])  # the second piece
    content[place] ^= 1
    path.write_bytes(content)
    assert vars(read_area(tmp_path, FILES, 100, 10, 20)) == vars(expected)
    with pytest.raises(FormatError, match=r"scores-1\.bin is damaged"):
        read_area(tmp_path, FILES, 100, 20, 21)
