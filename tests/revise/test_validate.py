"""Error against the number of trees: against predictions recounted tree by tree, for all rules and any budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError, DataError, OutputExistsError
from bigforest.predict.groups import survey
from tests.commands import Run, run
from tests.forests import forest_of, random_tree, spec_of
from tests.naive.predict import decide, sum_of_votes

__all__ = ["run"]  # a fixture

CLASSES = (5, 7, 9)
THRESHOLDS = [0.0, 0.5, -1.5, 2.0]
RULES = [(vote, ties) for vote in ("soft", "hard") for ties in ("lowest", "reject", "random")] + [("stochastic", None)]


def rows(count: int = 300) -> pl.DataFrame:
    random = np.random.default_rng(1)
    columns = {f"x{i}": random.choice([*THRESHOLDS, -9.0, 1.0, 9.0], count) for i in range(3)}
    labels = [None if label < 0 else CLASSES[label] for label in random.integers(-1, 3, count)]
    return pl.DataFrame({**columns, "y": pl.Series(labels, dtype=pl.Int64)})


def labelled(count: int, seed: int) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 4))
    y = (x[:, 0] + x[:, 1] > 0) ^ (draw.random(count) < 0.2)
    return pl.DataFrame({**{f"x{i}": x[:, i] for i in range(4)}, "y": y.astype(int)})


@pytest.mark.parametrize("weights", [[], [1.0, -1.0]], ids=["axis", "oblique"])
@pytest.mark.parametrize(("vote", "ties"), RULES)
def test_validate_forest__counts_what_the_first_trees_answer(
    weights: list[float], vote: str, ties: str | None, tmp_path: Path
) -> None:
    random = np.random.default_rng(2)
    trees = [random_tree(random, 3, 3, splits, THRESHOLDS, weights) for splits in (0, 3, 1, 8, 20, 12)]
    data = rows()
    forest = forest_of(tmp_path / "f", trees, spec_of(3, CLASSES), seed=4)
    expected = []
    for count in range(1, 7):
        wrong = rejected = known = 0
        for number, (*values, label) in enumerate(data.rows()):
            found = decide(sum_of_votes(trees[:count], values, vote), vote, ties or "lowest", 4, number)
            if label is not None:
                known += 1
                rejected += found == -1
                wrong += found == -1 or CLASSES[found] != label
        expected.append({"trees": count, "error": wrong / known, "rejected": rejected, "rows": known})
    for threads in (1, 3):
        curve = bf.validate_forest(forest, data, vote=vote, ties=ties, threads=threads)
        assert curve.to_dicts() == expected


@pytest.mark.parametrize(
    "options",
    [
        {"trees": 30},
        {"trees": 12, "family": "sparse-oblique", "ranks": True, "vote": "hard"},
        {"trees": 10, "family": "subspace-cap", "subspace": 2, "subspace_per": "node"},
    ],
)
def test_train__validation_is_the_error_of_predictions(options: dict[str, Any], tmp_path: Path) -> None:
    data, test = labelled(300, 0), labelled(500, 1)
    forest = bf.train(data, "y", out=tmp_path / "f", validate=test, **options)
    curve = forest.validation
    assert curve["trees"].to_list() == list(range(1, options["trees"] + 1))
    answers = forest.predict(test)["prediction"]
    assert curve["error"][-1] == (~answers.eq_missing(test["y"])).sum() / test.height
    assert curve["rejected"][-1] == answers.null_count()
    assert "validate" in forest.run["stage"].to_list()
    few = bf.train(data, "y", **{**options, "trees": 4})
    assert bf.validate_forest(few, test).equals(curve.head(4))
    forest.write(tmp_path / "copy")
    assert bf.read_forest(tmp_path / "copy").validation.equals(curve)


def test_train__a_resumed_run_validates_where_it_is_told_to(tmp_path: Path) -> None:
    labelled(200, 0).write_parquet(tmp_path / "data.parquet")
    test = labelled(300, 1)
    at_once = bf.train(tmp_path / "data.parquet", "y", trees=8, validate=test)
    bf.train(tmp_path / "data.parquet", "y", trees=5, out=tmp_path / "f")
    forest = bf.train(resume=tmp_path / "f", trees=8, validate=test)
    assert forest.validation.equals(at_once.validation)
    with pytest.raises(ConfigError, match="is finished and has 8 trees; evaluate it with validate_forest"):
        bf.train(resume=tmp_path / "f", validate=test)


def test_validate_forest__any_budget(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    trees = 3 * [random_tree(random, 3, 3, 12_000, THRESHOLDS)]
    forest = forest_of(tmp_path / "f", trees, spec_of(3, CLASSES))
    data = rows(3000)
    expected = bf.validate_forest(forest, data)
    with pytest.raises(ConfigError, match=r"the stage predict needs at least (\S+) of memory") as error:
        bf.validate_forest(forest, data, memory=1, threads=1)
    smallest = str(error.value).split("at least ")[1].split(" ")[0]
    sizes = survey(tmp_path / "f", 1).sizes()
    assert sizes.sum() > 10**6  # more than what is rounded away in the message, so that trees go in groups
    assert bf.validate_forest(forest, data, memory=smallest, threads=1).equals(expected)


def test_validate_forest__refuses(tmp_path: Path) -> None:
    forest = bf.train(labelled(60, 0), "y", trees=2)
    with pytest.raises(DataError, match="the validation set lacks the target 'y'"):
        bf.validate_forest(forest, labelled(9, 1).drop("y"))
    with pytest.raises(DataError, match="labels in 'y' that the forest does not know"):
        bf.validate_forest(forest, labelled(9, 1).with_columns(y=pl.lit(7)))
    with pytest.raises(DataError, match="no row of the validation set has a 'y'"):
        bf.validate_forest(forest, labelled(9, 1).with_columns(y=pl.lit(None, pl.Int64)))
    oblique = bf.train(labelled(60, 0), "y", trees=2, family="sparse-oblique", ranks=True)
    with pytest.raises(DataError, match="missing values in the features 'x0'"):
        bf.validate_forest(oblique, labelled(9, 1).with_columns(x0=pl.lit(float("nan"))))
    with pytest.raises(ConfigError, match="without a validation set"):
        _ = forest.validation
    for unfit in (pl.lit(7), pl.lit(None, pl.Int64)):  # said before a tree is grown
        with pytest.raises(DataError, match=r"does not know|has a 'y'"):
            bf.train(labelled(60, 0), "y", trees=2, out=tmp_path / "f", validate=labelled(9, 1).with_columns(y=unfit))
    with pytest.raises(DataError, match="the validation set lacks the target 'y'"):
        bf.train(labelled(60, 0), "y", trees=2, out=tmp_path / "f", validate=labelled(9, 1).drop("y"))
    assert not list(tmp_path.iterdir())
    (tmp_path / "taken").touch()
    with pytest.raises(OutputExistsError):
        bf.validate_forest(forest, labelled(9, 1), tmp_path / "taken", overwrite=True)


def test_validate__command(run: Run, tmp_path: Path) -> None:
    labelled(300, 0).write_parquet(tmp_path / "a.parquet")
    labelled(200, 1).write_parquet(tmp_path / "b.parquet")
    grown, out = str(tmp_path / "f"), str(tmp_path / "c.parquet")
    options = ["--family", "subspace-cap", "--subspace", "2", "--trees", "5", "--validate", tmp_path / "b.parquet"]
    assert run("train", tmp_path / "a.parquet", "--target", "y", "--out", grown, *options).code == 0
    assert "no estimate, because trees were grown on all rows" in run.out
    assert "on 200 rows" in run.out
    facts = run.json("validate", grown, tmp_path / "b.parquet", "--out", out)
    assert facts["curve"] == bf.read_forest(grown).validation.to_dicts()
    assert pl.read_parquet(out).to_dicts() == facts["curve"]
    assert "rejected" in run("validate", grown, tmp_path / "b.parquet").out
    assert run.json("inspect", grown)["validation"] == facts["curve"][-1]
