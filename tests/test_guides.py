"""The examples of docs/guide do what their text says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from tests.commands import Run, run

__all__ = ["run"]

GUIDES = Path(__file__).resolve().parent.parent / "docs" / "guide"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    """table.parquet in the current folder, with noise."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(5)
    a, b = draw.random((2, 200))
    frame = pl.DataFrame({"a": a, "b": b, "y": np.where(a + draw.normal(0, 0.4, 200) > 0.5, "u", "v")})
    frame.write_parquet("table.parquet")
    return frame


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (GUIDES / guide).read_text(encoding="utf-8"), re.DOTALL | re.M)


def test_shrinkage__its_commands_run(table: pl.DataFrame, run: Run) -> None:
    for line in blocks("shrinkage.md", "sh")[0].splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "bigforest"
        extra = ["--trees", "5"] if words[1] == "train" else []
        assert run(*words[1:], *extra, "--overwrite").code == 0, run.err


def test_shrinkage__values_follow_from_the_tables(table: pl.DataFrame) -> None:
    forest = bf.train("table.parquet", "y", trees=7, shrink="auto", out="table.forest")
    assert forest.shrinkage.amount > 0
    found: dict[str, pl.DataFrame] = {}
    exec(blocks("shrinkage.md", "python")[0], found)
    values = {(tree, node): f for tree, node, f in found["values"].rows()}
    leaves = forest.apply(table)
    expected = [np.mean([values[tree, leaf] for tree, leaf in enumerate(row)], axis=0) for row in leaves.tolist()]
    np.testing.assert_allclose(forest.predict_proba(table).to_numpy(), expected, rtol=0, atol=1e-12)


def test_cluster__tasks_on_the_dashboard_are_functions() -> None:
    tasks = re.findall(r"`bigforest-([a-z-]+)`", (GUIDES / "cluster.md").read_text(encoding="utf-8"))
    package = "".join(path.read_text(encoding="utf-8") for path in Path(bf.__file__).parent.rglob("*.py"))
    functions = set(re.findall(r"^ *def (\w+)\(", package, re.MULTILINE))
    assert len(tasks) > 10
    assert [task for task in tasks if not {task.replace("-", "_"), f"{task.replace('-', '_')}_task"} & functions] == []
