"""Pruning against the oracle, for forests of any family; what a pruned forest is; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest as bf
from bigforest.errors import ConfigError, DataError
from bigforest.forest.nodes import TreeArrays, join_trees
from bigforest.forest.parts import check_parts, read_span
from tests.commands import Run, run
from tests.forests import forest_of, random_tree, spec_of
from tests.naive.prune import Shape, pruned
from tests.revise.test_validate import CLASSES, THRESHOLDS, labelled, rows

__all__ = ["run"]  # a fixture


def trees(weights: list[float]) -> list[TreeArrays]:
    random = np.random.default_rng(2)
    return [random_tree(random, 3, 3, splits, THRESHOLDS, weights) for splits in (0, 1, 3, 8, 20, 40)]


def shape(part: Any, tree: int, node: int = 0) -> Shape:
    """A tree that was read, in the form of the oracle."""
    at = part.roots[tree] + node
    counts = part.counts[at].tolist()
    if part.feature[at] == -1:
        return counts
    return counts, shape(part, tree, node + 1), shape(part, tree, int(part.right[at]))


@pytest.mark.parametrize("weights", [[], [1.0, -1.0]], ids=["axis", "oblique"])
@pytest.mark.parametrize("ties", ["keep", "prune"])
@pytest.mark.parametrize("threads", [1, 3])
def test_prune_forest__is_what_the_oracle_prunes(weights: list[float], ties: str, threads: int, tmp_path: Path) -> None:
    grown, data = trees(weights), rows(150)
    forest = forest_of(tmp_path / "grown", grown, spec_of(3, CLASSES))
    found = bf.prune_forest(forest, data, tmp_path / "pruned", on_ties=ties, threads=threads)
    found.check()
    cells = data.select("x0", "x1", "x2").rows()
    truth = [-1 if label is None else CLASSES.index(label) for label in data["y"]]
    shapes = []
    header, spans = check_parts(tmp_path / "pruned")
    for span in spans:
        part = join_trees(list(read_span(span, header)))
        shapes += [shape(part, tree) for tree in range(part.roots.size)]
    assert shapes == [pruned(tree, cells, truth, ties) for tree in grown]
    before, after = (one.nodes.select(pl.len()).collect().item() for one in (forest, found))
    assert after < before


@pytest.mark.parametrize("options", [{"family": "tree"}, {"family": "sparse-oblique", "trees": 5, "ranks": True}])
def test_prune_forest__a_noisy_tree_gains_by_it(options: dict[str, Any], tmp_path: Path) -> None:
    forest = bf.train(labelled(600, 0), "y", **options)
    found = bf.prune_forest(forest, labelled(400, 1), tmp_path / "p")
    test = labelled(3000, 2)
    errors = [(one.predict(test)["prediction"] != test["y"]).mean() for one in (forest, found)]
    assert errors[1] < errors[0] if options["family"] == "tree" else errors[1] < errors[0] + 0.02
    assert found.config == forest.config
    assert found.run["stage"].to_list()[-1] == "prune"
    assert not found.has_oob
    assert abs(found.features["importance"].sum() - 1) < 1e-9
    with pytest.raises(ConfigError, match=r"no row is out of bag|was pruned"):
        _ = found.oob
    found.write(tmp_path / "copy")
    assert bf.read_forest(tmp_path / "copy").predict(test).equals(found.predict(test))


def test_prune_forest__reads_nested_columns(tmp_path: Path) -> None:
    flat, own = labelled(200, 1), labelled(100, 2)
    names = [name for name in flat.columns if name != "y"]
    data, tuning = (frame.select(pl.struct(names).alias("s"), "y") for frame in (flat, own))
    forest = bf.train(data, "y", trees=2, out=tmp_path / "grown")
    found = bf.prune_forest(forest, tuning, tmp_path / "pruned")
    expected = bf.prune_forest(bf.train(flat, "y", trees=2), own, tmp_path / "flat")
    shapes = [kept.nodes.select("tree", "node", "counts").collect() for kept in (found, expected)]
    assert shapes[0].equals(shapes[1])


def test_prune_forest__refuses(tmp_path: Path) -> None:
    forest = bf.train(labelled(60, 0), "y", family="tree")
    with pytest.raises(DataError, match="lacks the target 'y'"):
        bf.prune_forest(forest, labelled(9, 1).drop("y"), tmp_path / "p")
    with pytest.raises(DataError, match="labels in 'y' that the forest does not know"):
        bf.prune_forest(forest, labelled(9, 1).with_columns(y=pl.lit(7)), tmp_path / "p")
    with pytest.raises(DataError, match="no row of the tuning set has a 'y'"):
        bf.prune_forest(forest, labelled(9, 1).with_columns(y=pl.lit(None, pl.Int64)), tmp_path / "p")
    oblique = bf.train(labelled(60, 0), "y", family="sparse-oblique", ranks=True, trees=2)
    with pytest.raises(DataError, match="missing values in the features 'x0'"):
        bf.prune_forest(oblique, labelled(9, 1).with_columns(x0=pl.lit(float("nan"))), tmp_path / "p")
    with pytest.raises(ConfigError, match="on_ties must be one of keep, prune"):
        bf.prune_forest(forest, labelled(9, 1), tmp_path / "p", on_ties="maybe")
    assert not (tmp_path / "p").exists()


def test_prune__command(run: Run, tmp_path: Path) -> None:
    labelled(300, 0).write_parquet(tmp_path / "a.parquet")
    labelled(200, 1).write_parquet(tmp_path / "b.parquet")
    grown, out = str(tmp_path / "f"), str(tmp_path / "p")
    assert run("train", tmp_path / "a.parquet", "--target", "y", "--family", "tree", "--out", grown).code == 0
    facts = run.json("prune", grown, tmp_path / "b.parquet", "--out", out, "--on-ties", "prune")
    assert facts["leaves"] < facts["leaves_before"]
    assert facts["forest"] == out
    assert "no estimate" in run("inspect", out).out
