"""What .ci/run tries with the lowest versions: digits from the file to predictions, and that those are the declared."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import polars as pl

import bigforest
from tests.commands import Run, folder, run

__all__ = ["folder", "run"]  # fixtures

ROOT = Path(__file__).resolve().parent.parent


def test_constraints__are_the_lowest_versions_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounds = dict(re.sub(r"\[.*\]", "", text).split(">=") for text in declared)
    lines = (ROOT / ".ci" / "lowest-constraints.txt").read_text().splitlines()
    exact = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert exact.pop("distributed") == exact["dask"]
    assert exact.keys() == bounds.keys()
    for name, version in exact.items():
        assert version == bounds[name] or re.fullmatch(rf"{re.escape(bounds[name])}(\.0)+", version), name


def test_digits__from_the_file_to_predictions(folder: Path, run: Run) -> None:
    data = ROOT / "examples" / "data" / "digits.parquet"
    run("train", data, "--out", "digits.forest", "--trees", "10", "--quiet")
    assert run.code == 0, run.err
    run("predict", "digits.forest", data, "--out", "p.parquet")
    assert run.code == 0, run.err
    answers = pl.read_parquet("p.parquet")["prediction"]
    assert (answers == pl.read_parquet(data)[bigforest.read_forest("digits.forest").spec.target.name]).mean() > 0.95
