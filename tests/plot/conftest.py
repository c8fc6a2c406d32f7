"""A report that several tests read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import bigforest as bf
from tests.plot.test_pictures import table


class Report(NamedTuple):
    """A forest, its training table, and its report with the rows of this table."""

    forest: bf.Forest
    frame: pl.DataFrame
    page: Path


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Five trees and two rounds of a boosted stage on `table`, whose names are patterns for Polars too."""
    frame = table().rename({"a<b>": "^a$", "c": "*", "y": "^y$"})
    forest = bf.train(frame, target="^y$", trees=5, threads=1, refine=2)
    return Report(forest, frame, forest.report(frame, tmp_path_factory.mktemp("report") / "report.html", threads=1))
