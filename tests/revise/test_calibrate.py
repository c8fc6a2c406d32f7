"""Posteriors estimated anew: against the oracle, for forests of any family; and what becomes of ties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError, DataError
from tests.commands import Run, run
from tests.forests import forest_of, random_tree, spec_of
from tests.naive.calibrate import calibrated, decreases
from tests.revise.test_validate import CLASSES, THRESHOLDS, labelled, rows

__all__ = ["run"]  # a fixture


@pytest.mark.parametrize("weights", [[], [1.0, -1.0]], ids=["axis", "oblique"])
@pytest.mark.parametrize("threads", [1, 3])
def test_calibrate_forest__counts_as_the_oracle(weights: list[float], threads: int, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    trees = [random_tree(random, 3, 3, splits, THRESHOLDS, weights) for splits in (0, 3, 1, 8, 20, 40)]
    forest, data = forest_of(tmp_path / "grown", trees, spec_of(3, CLASSES)), rows(150)
    found = bf.calibrate_forest(forest, data, tmp_path / "c", threads=threads)
    found.check()
    truth = [-1 if label is None else CLASSES.index(label) for label in data["y"]]
    values = data.select("x0", "x1", "x2").rows()
    by_tree = [calibrated(tree, values, truth) for tree in trees]
    expected = [counts for tree_counts in by_tree for counts in tree_counts]
    nodes, before = found.nodes.collect(), forest.nodes.collect()
    assert nodes["counts"].to_list() == expected
    assert nodes["weight"].to_list() == [sum(counts) for counts in expected]
    gains = [gain for pair in zip(trees, by_tree, strict=True) for gain in decreases(*pair)]
    assert nodes["gain"].to_list() == [None if gain is None else pytest.approx(gain, abs=1e-12) for gain in gains]
    changed = ("counts", "weight", "gain")
    assert nodes.drop(changed).equals(before.drop(changed))
    assert not nodes["counts"].equals(before["counts"])


@pytest.mark.parametrize(
    "options", [{"trees": 5}, {"family": "sparse-oblique", "trees": 5, "ranks": True}, {"family": "subspace-cap"}]
)
def test_calibrate_forest__is_a_forest(options: dict[str, Any], tmp_path: Path) -> None:
    grown = bf.train(labelled(300, 0), "y", out=tmp_path / "f", **{"trees": 4, **options})
    found = bf.calibrate_forest(tmp_path / "f", labelled(300, 1), tmp_path / "c")
    test = labelled(500, 2)
    assert found.config == grown.config
    assert found.run["stage"].to_list()[-1] == "calibrate"
    assert not found.predict_proba(test).equals(grown.predict_proba(test))
    assert not found.has_oob
    with pytest.raises(ConfigError, match=r"no row is out of bag|was calibrated"):
        _ = found.oob
    with pytest.raises(ConfigError, match="was calibrated, so no trees can be added"):
        bf.train(labelled(300, 0), resume=tmp_path / "c", trees=9)


def test_calibrate_forest__mends_the_dip_at_two_trees(tmp_path: Path) -> None:
    """Ho 1995, section 5: pure leaves of two trees that differ are a tie; estimated posteriors are hardly ever."""
    options = {"family": "subspace-cap", "subspace": 2, "trees": 2}
    grown = bf.train(labelled(1000, 0), "y", **options)
    found = bf.calibrate_forest(grown, labelled(2000, 1), tmp_path / "c")
    test = labelled(2000, 2)
    before, after = (bf.validate_forest(one, test) for one in (grown, found))
    assert before["error"][1] > before["error"][0]
    assert after["error"][1] < before["error"][1]
    assert after["rejected"][1] < before["rejected"][1] / 2


def test_calibrate_forest__weighs_rows_as_training_did(tmp_path: Path) -> None:
    """Leaves are shrunk by rows: as many rows of another unit of weight are shrunk as much."""
    table, rows, test = labelled(300, 0), labelled(300, 1), labelled(100, 2)
    weights = np.where(np.arange(300) == 0, 0.2500001, 0.25)  # as good as equal, in tiny steps
    shares, sizes = [], []
    for own, options in ((table, {}), (table.with_columns(w=pl.Series(weights)), {"weight": "w"})):
        forest = bf.train(own, "y", trees=4, shrink=3.0, **options)
        found = bf.calibrate_forest(forest, rows, tmp_path / "c", overwrite=True)
        found.check()
        root = found.nodes.filter(pl.col("node") == 0).collect()["weight"].to_numpy()
        sizes.append(root * forest.spec.weight_unit)
        shares.append(found.predict_proba(test).to_numpy())
    np.testing.assert_allclose(sizes[1], sizes[0], rtol=0.1)
    np.testing.assert_allclose(shares[1].std(axis=0), shares[0].std(axis=0), rtol=0.2)


def test_calibrate_forest__refuses(tmp_path: Path) -> None:
    forest = bf.train(labelled(60, 0), "y", trees=2)
    with pytest.raises(DataError, match="the secondary set lacks the target 'y'; calibrating needs"):
        bf.calibrate_forest(forest, labelled(9, 1).drop("y"), tmp_path / "c")
    with pytest.raises(DataError, match="no row of the secondary set has a 'y'"):
        bf.calibrate_forest(forest, labelled(9, 1).with_columns(y=pl.lit(None, pl.Int64)), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_calibrate__command(run: Run, tmp_path: Path) -> None:
    labelled(300, 0).write_parquet(tmp_path / "a.parquet")
    labelled(200, 1).write_parquet(tmp_path / "b.parquet")
    grown, out = str(tmp_path / "f"), str(tmp_path / "c")
    assert run("train", tmp_path / "a.parquet", "--target", "y", "--trees", "3", "--out", grown).code == 0
    facts = run.json("calibrate", grown, tmp_path / "b.parquet", "--out", out)
    assert (facts["forest"], facts["trees"]) == (out, 3)
    assert "no estimate" in run("inspect", out).out
