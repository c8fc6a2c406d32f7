"""Forests whose folder is replaced, removed, copied or reached by another path after they were opened."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import FormatError, OutputExistsError
from bigforest.predict.forest import Forest

OPTIONS: dict[str, Any] = {"trees": 20, "keep_votes": True}
REPLACED = "was replaced by another one after it was opened"


def tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two tables of the same columns, rows and classes, in which different columns decide."""
    random = np.random.default_rng(0)
    first = pl.DataFrame(random.normal(size=(200, 3)), schema=["a", "b", "c"])
    noise = pl.Series(random.normal(size=200))
    return first.with_columns(y=(pl.col("a") > 0).cast(pl.Int64)), first.with_columns(
        y=(pl.col("b") + 3 * noise > 0).cast(pl.Int64)
    )


def numbers(frame: Any) -> list[Any]:
    """Rows of a frame without the seconds of stages."""
    return frame.drop("seconds", strict=False).rows()


QUESTIONS: dict[str, Callable[[Forest, pl.DataFrame], Any]] = {
    "predict": lambda forest, rows: numbers(forest.predict(rows)),
    "predict, hard": lambda forest, rows: numbers(forest.predict(rows, vote="hard")),
    "predict, some trees": lambda forest, rows: numbers(forest.predict(rows, trees=range(9))),
    "predict, budget": lambda forest, rows: numbers(forest.predict(rows, memory="1GB")),
    "predict, coverage": lambda forest, rows: numbers(forest.predict(rows, coverage=0.9)),
    "predict, rejection": lambda forest, rows: numbers(forest.predict(rows, reject_above=0.2)),
    "predict_proba": lambda forest, rows: numbers(forest.predict_proba(rows)),
    "expr": lambda forest, rows: numbers(rows.lazy().select(forest.expr(proba=True)).collect()),
    "apply": lambda forest, rows: forest.apply(rows).tolist(),
    "tree": lambda forest, rows: numbers(forest[3].nodes),
    "nodes": lambda forest, rows: numbers(forest.nodes.collect()),
    "features": lambda forest, rows: numbers(forest.features),
    "oob": lambda forest, rows: (forest.oob.error, numbers(forest.oob.rows.collect())),
    "oob_votes": lambda forest, rows: numbers(forest.oob_votes.collect()),
    "inbag": lambda forest, rows: numbers(forest.inbag()),
    "shap": lambda forest, rows: numbers(forest.explain(rows.head(5), parts="shap")["shap"]),
    "pickle": lambda forest, rows: numbers(pickle.loads(pickle.dumps(forest)).predict_proba(rows)),
    "shrink": lambda forest, rows: numbers(forest.shrink(5.0).predict_proba(rows)),
    "sharpen": lambda forest, rows: numbers(forest.sharpen(2.0).predict_proba(rows)),
    "to_sql": lambda forest, rows: forest.to_sql(),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forests of the first and of the second table: of OPTIONS, and `refined` ones of the same dataspec."""
    home, refined = tmp_path_factory.mktemp("replaced"), {**OPTIONS, "refine": 1, "mtry": 2, "min_leaf": 1}
    for name, table in zip(("first", "second"), tables(), strict=True):
        bf.train(table, "y", out=home / name, **OPTIONS)
        bf.train(table, "y", out=home / f"refined {name}", **refined)
    return home


def copied(home: Path, name: str, out: Path) -> Path:
    """The folder of a copy of a forest, in place of what is there."""
    shutil.rmtree(out, ignore_errors=True)
    return Path(shutil.copytree(home / name, out))


@pytest.fixture(scope="module")
def answers(home: Path) -> dict[str, Any]:
    """What the forest of the first table answers."""
    forest, (first, _) = bf.read_forest(home / "first"), tables()
    return {name: ask(forest, first) for name, ask in QUESTIONS.items()}


def test_replaced__answers_as_before_or_says_so(home: Path, answers: dict[str, Any], tmp_path: Path) -> None:
    """A forest as it was trained, one that was read, and one that has predicted."""
    first, _ = tables()
    trained = bf.train(first, "y", out=tmp_path / "f", **OPTIONS)
    read, used = bf.read_forest(tmp_path / "f"), bf.read_forest(tmp_path / "f")
    assert QUESTIONS["predict_proba"](used, first) == answers["predict_proba"]
    query = read.nodes
    copied(home, "second", tmp_path / "f")
    refused = set()
    for name, ask in QUESTIONS.items():
        for own in (trained, read, used):
            try:
                assert ask(own, first) == answers[name], name
            except (FormatError, pl.exceptions.ComputeError) as error:
                assert REPLACED in str(error), name
                refused.add(name)
    assert {"nodes", "features", "pickle", "oob_votes", "to_sql", "predict, budget"} <= refused
    with pytest.raises((FormatError, pl.exceptions.ComputeError), match="was replaced"):
        query.collect()
    with pytest.raises(FormatError, match="was replaced"):
        trained.write(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert bf.read_forest(tmp_path / "f").features.height == 3


def test_replaced__by_a_forest_of_other_columns_is_not_called_damaged(tmp_path: Path) -> None:
    first, second = tables()
    forest = bf.train(first, "y", out=tmp_path / "f", **OPTIONS)
    bf.train(second.drop("c"), "y", out=tmp_path / "f", overwrite=True, trees=5)
    for ask in (lambda: forest.features, lambda: forest.apply(first), lambda: forest.oob, lambda: forest.run):
        with pytest.raises(FormatError, match="was replaced") as raised:
            ask()
        assert "damaged" not in str(raised.value)


@pytest.mark.parametrize("part", ["trees", "oob", "features.parquet", "refine"])
def test_replaced__in_part_by_files_of_another_run(home: Path, tmp_path: Path, part: str) -> None:
    """Both runs have the same dataspec and configuration."""
    (first, _), other = tables(), home / "refined second"
    used = bf.read_forest(copied(home, "refined first", tmp_path / "f"))
    expected = {name: ask(used, first) for name, ask in QUESTIONS.items()}
    assert bf.read_forest(other).identity == used.identity
    new = bf.read_forest(tmp_path / "f")
    for path in other.rglob("*.parquet"):
        if part in path.relative_to(other).parts:
            shutil.copyfile(path, tmp_path / "f" / path.relative_to(other))
    with pytest.raises(FormatError, match="belongs to another forest"):
        bf.read_forest(tmp_path / "f")
    for name, ask in QUESTIONS.items():
        for own in (used, new):
            try:
                assert ask(own, first) == expected[name], name
            except (FormatError, pl.exceptions.ComputeError) as error:
                assert "belongs to another forest" in str(error), name


def test_replaced__pickled_before(home: Path, tmp_path: Path) -> None:
    sent = pickle.dumps(bf.read_forest(copied(home, "first", tmp_path / "f")))
    assert pickle.loads(sent).trees == 20
    copied(home, "second", tmp_path / "f")
    with pytest.raises(FormatError, match="was replaced"):
        pickle.loads(sent).features  # noqa: B018


def test_replaced__by_a_copy_of_itself_is_the_same_forest(home: Path, tmp_path: Path) -> None:
    forest = bf.read_forest(copied(home, "first", tmp_path / "f"))
    expected = forest.features
    shutil.copytree(tmp_path / "f", tmp_path / "copy")
    shutil.rmtree(tmp_path / "f")
    with pytest.raises(FormatError, match="was removed or replaced"):
        forest.features  # noqa: B018
    (tmp_path / "copy").rename(tmp_path / "f")
    os.utime(tmp_path / "f" / "run.parquet", ns=(1, 1))
    assert forest.features.equals(expected)
    assert forest.oob.error == bf.read_forest(tmp_path / "f").oob.error


@pytest.mark.parametrize("change", [lambda forest: forest.shrink(5.0), lambda forest: forest.sharpen(2.0)])
def test_replaced__written_over_itself(home: Path, tmp_path: Path, change: Callable[[Forest], Forest]) -> None:
    first, _ = tables()
    forest = bf.read_forest(copied(home, "first", tmp_path / "f"))
    changed = change(forest)
    expected = changed.predict_proba(first)
    changed.write(tmp_path / "f", overwrite=True)
    assert changed.predict_proba(first, memory="1GB").equals(expected)
    assert changed.features.height == 3
    assert bf.read_forest(tmp_path / "f").predict_proba(first).equals(expected)
    with pytest.raises(FormatError, match="was replaced"):
        forest.features  # noqa: B018


def test_directory__does_not_depend_on_the_current_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = tables()
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    copied(home, "second", there / "f")
    monkeypatch.chdir(here)
    forest = bf.train(first, "y", out="f", trees=4)
    opened = bf.read_forest("f")
    explained = opened.explain(first, "why", parts="importance")
    expected = opened.features
    monkeypatch.chdir(there)
    for own in (forest, opened):
        assert own.directory == here / "f"
        assert own.features.equals(expected)
        assert pickle.loads(pickle.dumps(own)).features.equals(expected)
    assert "importance" in explained and explained["importance"].height == 3


@pytest.mark.parametrize("change", [lambda forest: forest.shrink(50.0), lambda forest: forest.sharpen(4.0)])
def test_explanation__belongs_to_one_forest(tmp_path: Path, change: Callable[[Forest], Forest]) -> None:
    """All tables of a folder are of one lambda and power, also those that a later call does not ask for."""
    first, _ = tables()
    forest = bf.train(first, "y", trees=10, shrink="off", power="off")
    out, parts = tmp_path / "why", ["shap", "contributions"]
    before = forest.explain(first, out, parts=parts)["shap"]
    changed = change(forest)
    for asked in (parts, ["shap"], ["strength"]):
        with pytest.raises(OutputExistsError, match="for another forest"):
            changed.explain(first, out, parts=asked)
    assert forest.explain(first, out, parts=parts)["shap"].equals(before)
    told = changed.explain(first, out, parts=["shap"], overwrite=True)
    assert told.tables == ["shap"]
    assert told["shap"].equals(changed.explain(first, parts=["shap"])["shap"])
    proba = changed.predict_proba(first.head(1)).row(0)[1]
    fresh = changed.explain(first, out, parts=["contributions"])["contributions"]
    if changed.power.amount == 1:
        assert fresh["prediction"][0] == pytest.approx(proba)
