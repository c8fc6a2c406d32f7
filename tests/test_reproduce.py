"""`python -m benchmarks.reproduce`: what it refuses, that options are taken exactly, and the sets that it draws."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from tests.thorough import cases

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "measured" / "reproduced"
sys.path.append(str(ROOT / "benchmarks" / "reproduce"))

outcome = pytest.importorskip("outcome")
set_items = pytest.importorskip("set_items")
rerf_items = pytest.importorskip("rerf_items")
cells = pytest.importorskip("cells")
claims = pytest.importorskip("claims")


def reproduce(*given: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.reproduce", *given]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_list__names_every_item() -> None:
    from benchmarks.reproduce.__main__ import ITEMS

    found = reproduce("--list")
    assert found.returncode == 0
    assert [line.split()[0] for line in found.stdout.splitlines()] == list(ITEMS)
    for item in ITEMS.values():
        assert callable(getattr(__import__(item.module), item.function))


@pytest.mark.parametrize("item", ["ho-table-1", "ho-figure-2", "rerf-figure-4a", "breiman-2001", "tomasi"])
def test_item__without_its_data_is_one_line_and_exit_2(item: str, tmp_path: Path) -> None:
    found = reproduce(item, "--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out"))
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.count("\n") == 1
    assert "nowhere" in found.stderr
    assert not (tmp_path / "out").exists()


def test_item__a_set_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "uci").mkdir()
    found = reproduce("arcing", "--data", str(tmp_path), "--out", str(tmp_path / "out"))
    assert found.returncode == 2
    assert "glass.parquet is not there" in found.stderr


def test_options__that_cannot_be_are_refused() -> None:
    for given in ([], ["nothing"], ["tomasi", "nothing"], ["tomasi", "--draws", "0"], ["tomasi", "--trees", "-1"]):
        assert reproduce(*given).returncode == 2


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Two drawn sets alone; what forests are trained with."""
    drawn = {name: own for name, own in set_items.TABLE_2.items() if name in ("twonorm", "ringnorm")}
    monkeypatch.setattr(set_items, "TABLE_2", drawn)
    monkeypatch.setattr(set_items, "SETS_OF_TOMASI", ("twonorm",))
    asked: list[dict[str, Any]] = []
    train = bigforest.train

    def noted(*given: Any, **options: Any) -> Any:
        asked.append(options)
        return train(*given, **options)

    monkeypatch.setattr(bigforest, "train", noted)
    return asked


@pytest.mark.parametrize("item", cases(["arcing", "breiman_2001", "tomasi"], quick=1))
def test_item__takes_options_exactly_and_writes_its_files(
    item: str, small: list[dict[str, Any]], tmp_path: Path
) -> None:
    given = outcome.Given(tmp_path, 2, 3, 7)
    found = getattr(set_items, item)(given)
    assert {options["trees"] for options in small if options.get("family") != "tree"} == {3}
    assert found.numbers["draw"].unique().to_list() == [0, 1]
    text = outcome.write("item", "An item", "the command", found, tmp_path / "out", 0.0)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"item.md", "item.parquet", "item.svg"}
    assert "| verdict |" in text
    again = getattr(set_items, item)(given)
    assert found.numbers.equals(again.numbers)
    other = getattr(set_items, item)(outcome.Given(tmp_path, 2, 3, 8))
    assert not found.numbers.equals(other.numbers)


def test_simulations__take_trees_and_draws_exactly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cells import Setting

    wanted = [Setting("trunk", 2, "raw"), Setting("parity", 2, "raw")]
    monkeypatch.setattr(rerf_items, "settings", lambda: wanted)
    found = rerf_items.figure_1(outcome.Given(tmp_path, 2, 4, 1))
    forests = found.numbers.filter(pl.col("method") != "Bayes")
    assert forests["trees"].unique().to_list() == [4]
    assert forests.group_by("kind", "method").len()["len"].unique().to_list() == [2]
    assert found.compared.filter(pl.col("reference").is_not_null()).height == 8
    found.draw(tmp_path / "picture.svg")
    assert (tmp_path / "picture-scatter.svg").exists()


def test_judged__says_which_numbers_agree() -> None:
    compared = pl.DataFrame(
        {"ours": [1.0, 1.0, 1.0, 1.0, 1.0], "standard_error": [0.5, 0.1, 0.1, 0.0, 0.1]}
    ).with_columns(reference=pl.Series([1.9, 1.3, 0.7, 0.9, None]))
    verdicts = ["agrees", "below", "above", "no standard error", "no reference"]
    assert outcome.judged(compared)["verdict"].to_list() == verdicts
    assert outcome.judged(compared, 1.0)["distance"][1] == pytest.approx(-3.0 / 2**0.5)


@pytest.mark.parametrize(("name", "bayes"), [("twonorm", 0.023), ("threenorm", 0.105), ("ringnorm", 0.013)])
def test_drawn_set__has_the_bayes_error_of_its_distribution(name: str, bayes: float) -> None:
    frame = set_items.drawn_set(name, 20_000, np.random.default_rng(1))
    values, truth = frame.drop("target").to_numpy(), frame["target"].to_numpy()
    a = 2 / 20**0.5
    signs = np.where(np.arange(20) % 2, -a, a)

    def density(centre: Any, variance: float) -> Any:
        return -((values - centre) ** 2).sum(axis=1) / (2 * variance) - 10 * np.log(variance)

    first, second = {
        "twonorm": lambda: (density(a, 1.0), density(-a, 1.0)),
        "threenorm": lambda: (np.logaddexp(density(a, 1.0), density(-a, 1.0)) - np.log(2), density(signs, 1.0)),
        "ringnorm": lambda: (density(0.0, 4.0), density(a / 2, 1.0)),
    }[name]()
    assert ((second > first) != truth).mean() == pytest.approx(bayes, abs=0.01)


def test_index__is_what_the_committed_results_say(tmp_path: Path) -> None:
    for path in RESULTS.iterdir():
        if path.suffix != ".svg" and path.name != "index.md":
            shutil.copyfile(path, tmp_path / path.name)
    found = reproduce("--index", str(tmp_path))
    assert found.returncode == 0, found.stderr
    text = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert text == (RESULTS / "index.md").read_text(encoding="utf-8")
    assert {one.item for one in claims.CLAIMS} <= {path.stem for path in RESULTS.glob("*.md")}


def test_index__names_what_is_missing(tmp_path: Path) -> None:
    found = reproduce("--index", str(tmp_path))
    assert (found.returncode, found.stdout) == (2, "")
    assert "ho-table-1.parquet is not there; reproduce ho-table-1 first" in found.stderr
