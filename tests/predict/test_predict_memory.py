"""Prediction within a memory budget: groups of trees give the same predictions; too small a budget is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.errors import ConfigError
from bigforest.execution.resources import Resources
from bigforest.forest.nodes import TreeArrays
from bigforest.kernels.common.layout import LEAF
from bigforest.planning.memory import Shape
from bigforest.predict import groups
from bigforest.source.open import open_source
from tests.forests import forest_of, random_tree, spec_of
from tests.measured import predict_estimate
from tests.predict.test_predict import CLASSES, FEATURES, THRESHOLDS, table, trees
from tests.predictions import write_predictions
from tests.thorough import cases

ROWS = 10_000  # more than are read at a time within the smallest budget
compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


@cache
def large_trees(weights: tuple[float, ...] = ()) -> list[TreeArrays]:
    """Trees that do not all fit into the smallest budget; no test changes them."""
    random = np.random.default_rng(3)
    return [random_tree(random, FEATURES, CLASSES, 2_000, THRESHOLDS, weights) for _ in range(12)]


def _smallest(grown: list[TreeArrays], rows: int, widths: tuple[int, ...], held: int, threads: int) -> int:
    shape = Shape(rows, widths, 0, CLASSES)
    mixed = [int(((tree.counts > 0).sum(axis=1) > 1)[tree.feature == LEAF].sum()) for tree in grown]
    terms = [0 if tree.terms is None else tree.terms.feature.size for tree in grown]
    nodes = [tree.feature.size for tree in grown]
    need = predict_estimate(shape, Resources(threads=threads, memory=1), nodes, mixed, terms, held)
    assert need.memory == need.smallest
    return need.smallest


WAYS = [(("soft", "lowest"), 2), (("hard", "random"), 1)]
# Bytes beside the smallest budget; whether trees are loaded in several groups, and again for further rows.
BUDGETS = [(0, 1, 1), (100_000, 1, 1), (10**9, 0, 0)]
# Each budget and each way of voting, then all pairs of them.
PAIRS = [(*BUDGETS[number], *WAYS[(number + turn) % 2]) for turn in range(2) for number in range(3)]


@compiled
@pytest.mark.parametrize(("more", "several", "again", "way", "threads"), cases(PAIRS, quick=3))
@pytest.mark.parametrize("weights", [pytest.param((), marks=pytest.mark.slow), (1.0, -0.3)])
def test_predict__any_memory_gives_the_same(
    weights: tuple[float, ...],
    more: int,
    several: int,
    again: int,
    way: tuple[str, str],
    threads: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = table(ROWS)
    made = large_trees(weights)
    expected = forest_of(tmp_path / "a", made, spec_of(FEATURES, (5, 7, 9)))
    forest = bigforest.read_forest(expected.directory)
    loaded: list[range] = []
    load = groups.Trees.load

    def watched(self: groups.Trees, entries: range, workers: int) -> Any:
        loaded.append(entries)
        return load(self, entries, workers)

    monkeypatch.setattr(groups.Trees, "load", watched)
    memory = _smallest(made, ROWS, (8,) * FEATURES, int(frame.estimated_size()), threads) + more
    options: dict[str, Any] = {"vote": way[0], "threads": threads}
    found = forest.predict(frame, ties=way[1], keep=["id"], memory=memory, **options)
    assert found.equals(expected.predict(frame, ties=way[1], keep=["id"], **options))
    assert (len(loaded) > 1) == several
    assert (len(loaded) > len(set(loaded))) == again  # groups are loaded again for the next range of rows
    assert forest.predict_proba(frame, memory=memory, **options).equals(expected.predict_proba(frame, **options))
    matrix = frame.select("x0", "x1", "x2").to_numpy()
    memory = _smallest(made, ROWS, (8,) * FEATURES, ROWS * 8 * FEATURES, threads) + more
    given = forest.predict(matrix, ties=way[1], memory=memory, **options)
    np.testing.assert_array_equal(given, expected.predict(matrix, ties=way[1], **options))
    shares = forest.predict_proba(matrix, memory=memory, **options)
    assert np.array_equal(shares, expected.predict_proba(matrix, **options))
    frame = frame.with_columns(y=pl.lit(7, pl.Int64))
    frame.write_parquet(tmp_path / "in.parquet", row_group_size=3_700)
    source = open_source(tmp_path / "in.parquet", scratch=tmp_path)
    memory = _smallest(made, ROWS, (8,) * (FEATURES + 2), 0, threads) + more
    resources = Resources(threads=threads, memory=memory)
    arguments: dict[str, Any] = {"keep": ["id"], "proba": True}
    small = tmp_path / "small.parquet"
    done = write_predictions(forest, source, small, forest.rules.make(*way), resources=resources, **arguments)
    whole = write_predictions(expected, source, tmp_path / "whole.parquet", expected.rules.make(*way), **arguments)
    assert (done.rows, done.scored, done.accuracy) == (ROWS, ROWS, whole.accuracy)
    assert done.log_loss == pytest.approx(whole.log_loss, rel=1e-12)
    assert pl.read_parquet(tmp_path / "small.parquet").equals(pl.read_parquet(tmp_path / "whole.parquet"))


@compiled
def test_predict__float32_in_groups(tmp_path: Path) -> None:
    made = large_trees()
    forest = forest_of(tmp_path, made, spec_of(FEATURES, (5, 7, 9)))
    frame = table(ROWS).cast({f"x{i}": pl.Float32 for i in range(FEATURES)})
    expected = forest.predict(frame)
    memory = _smallest(made, ROWS, (4,) * FEATURES, int(frame.estimated_size()), 1)
    assert forest.predict(frame, memory=memory, threads=1).equals(expected)


def test_predict__too_little_memory_names_the_least(tmp_path: Path) -> None:
    forest = forest_of(tmp_path / "f", trees(), spec_of(FEATURES, (5, 7, 9)))
    for data in (table(), table().lazy(), table().select("x0", "x1", "x2").to_numpy()):
        with pytest.raises(ConfigError, match=r"needs at least \d+MB of memory and may use 1B"):
            forest.predict(data, memory=1)
    with pytest.raises(ConfigError, match="needs at least"):
        bigforest.predict_file(forest, table(), tmp_path / "out.parquet", memory="1B")
    assert not (tmp_path / "out.parquet").exists()
    with pytest.raises(ConfigError, match="size such as 4GB"):
        forest.predict(table(), memory="much")
    whole = forest.predict(table())
    assert forest.predict(table().lazy(), memory="1GB").collect().equals(whole)
