"""`bigforest explain` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import bigforest as bf
from cli.app import app
from tests.explain.made import grown_case


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["explain", *map(str, arguments)])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A forest on 150 rows and its table, on the disk."""
    case, folder = grown_case(150), tmp_path_factory.mktemp("files")
    case.forest.write(folder / "a.forest")
    case.frame.write_parquet(folder / "a.parquet")
    return folder / "a.forest", folder / "a.parquet"


def test_explain__writes_what_the_function_gives(files: tuple[Path, Path], tmp_path: Path) -> None:
    forest, data = files
    asked = ["--permutation", "--dependence", "--group", "two=a,b", "--feature", "a", "--feature", "a,b", "--grid", "4"]
    found = run(forest, data, "--out", tmp_path / "why", *asked, "--json")
    assert found.exit_code == 0, found.output
    tables = json.loads(found.stdout)["tables"]
    expected = bf.explain_forest(
        forest,
        data,
        parts=["permutation", "dependence"],
        groups={"two": ["a", "b"]},
        features=["a", ("a", "b")],
        grid=4,
    )
    assert sorted(tables) == expected.tables
    for name, rows in tables.items():
        own = pl.read_parquet(tmp_path / "why" / f"{name}.parquet")
        assert len(own) == rows and own.equals(expected[name])


def test_explain__without_rows_tells_of_the_trees(files: tuple[Path, Path], tmp_path: Path) -> None:
    forest, data = files
    found = run(forest, "--out", tmp_path / "why")
    assert found.exit_code == 0, found.output
    assert "importance" in found.stdout and "rules" in found.stdout
    stamp = (tmp_path / "why" / "importance.parquet").stat().st_mtime_ns
    assert run(forest, data, "--out", tmp_path / "why").exit_code == 0
    assert (tmp_path / "why" / "importance.parquet").stat().st_mtime_ns == stamp
    pl.read_parquet(data).write_parquet(tmp_path / "copy.parquet")
    again = run(forest, tmp_path / "copy.parquet", "--out", tmp_path / "why")
    assert again.exit_code == 2 and "--overwrite" in again.output
    asked = run(forest, tmp_path / "copy.parquet", "--out", tmp_path / "why", "--overwrite", "--strength")
    assert asked.exit_code == 0 and asked.stdout.startswith("strength ")  # not the tables that are already there


def test_explain__plans_and_does_nothing_else(files: tuple[Path, Path], tmp_path: Path) -> None:
    forest, data = files
    asked = [forest, data, "--shap", "--permutation", "--out", tmp_path / "why", "--plan"]
    found = run(*asked, "--json")
    assert found.exit_code == 0, found.output
    plan = bf.plan_explanation(forest, data, parts=["shap", "permutation"])
    told = json.loads(found.stdout)
    assert [stage["stage"] for stage in told["stages"]] == ["read", "permutation", "shap"]
    assert told["smallest"] == plan.smallest and told["seconds"] == plan.seconds and told["fits"]
    small = run(*asked, "--memory", "10MB")
    assert small.exit_code == 1 and "are needed" in small.output
    assert not (tmp_path / "why").exists()


def test_explain__errors_are_in_the_words_of_the_command_line(files: tuple[Path, Path], tmp_path: Path) -> None:
    forest, data = files
    pl.read_parquet(data).head(50).write_parquet(tmp_path / "half.parquet")
    for arguments, text in (
        ([forest, "--shap", "--out", tmp_path / "x"], "set DATA"),
        ([forest, tmp_path / "half.parquet", "--permutation", "--out", tmp_path / "x"], "--new-rows"),
        ([forest, data, "--permutation", "--loss", "mse", "--out", tmp_path / "x"], "does not fit the target"),
        ([forest, data, "--group", "a,b", "--out", tmp_path / "x"], "NAME=COL"),
        ([forest, data, "--group", "g=a", "--group", "g=b", "--out", tmp_path / "x"], "two groups are named 'g'"),
        ([forest, data, "--memory", "1MB", "--permutation", "--out", tmp_path / "x"], "--memory"),
    ):
        found = run(*arguments)
        assert found.exit_code == 2, found.output
        assert text in " ".join(found.output.split()), found.output


def test_explain__a_class_of_a_regression_is_refused(tmp_path: Path) -> None:
    case = grown_case(100, task="regression")
    case.forest.write(tmp_path / "a.forest")
    found = run(tmp_path / "a.forest", "--importance", "--class", "low", "--out", tmp_path / "x")
    assert found.exit_code == 2 and not (tmp_path / "x").exists()
    assert "--class does not apply to this forest" in found.output


def test_explain__names_with_commas(tmp_path: Path) -> None:
    first, second, third = "Height, cm", 'a "b", c', "w"
    rows = {first: [1.0, 2.0, 3.0, 4.0] * 6, second: [1.0, 2.0] * 12, third: [3.0, 1.0, 2.0] * 8, "y": [0, 1] * 12}
    bf.train(rows, "y", trees=2, out=tmp_path / "f")
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")
    quoted = '"a ""b"", c"'
    for place, texts in enumerate(([first, f"{first},{third}", second], [f'"{first}"', f'w,"{first}"', quoted])):
        out, features = tmp_path / f"why{place}", [part for text in texts for part in ("--feature", text)]
        group = ("--group", f"all={texts[0]},{texts[2]},w")
        found = run(
            tmp_path / "f", tmp_path / "t.parquet", "--dependence", "--permutation", *features, *group, "--out", out
        )
        assert found.exit_code == 0, found.output
        assert set(pl.read_parquet(out / "dependence.parquet")["feature"]) == {first, second}
        pairs = pl.read_parquet(out / "dependence-pairs.parquet")
        assert {*pairs["feature_a"], *pairs["feature_b"]} == {first, third}, pairs
        assert "all" in pl.read_parquet(out / "permutation.parquet")["feature"]
