"""Missing values filled by proximities, against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.columns.arrow_arrays import read_only
from bigforest.errors import ConfigError
from bigforest.kernels.explain.proximities import LeafRows, fill_missing
from tests.explain.made import PLAIN
from tests.naive.explain import filled, proximities
from tests.thorough import examples


def holed(rows: int, seed: int) -> pl.DataFrame:
    """Two numbers and a category with missing values, a number without, weights and a class."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=rows), random.integers(0, 5, rows).astype(float)
    c = np.array(["u", "v", "w"])[(a > 0).astype(int) + (random.random(rows) < 0.2)]
    y = np.where((a + (c == "v") + random.normal(size=rows) / 2) > 0, "yes", "no")

    def hide(values: Any, share: float) -> pl.Series:
        gaps = random.random(rows) < share
        return pl.Series([None if gap else value for gap, value in zip(gaps, values.tolist(), strict=True)])

    columns = {"a": hide(a, 0.2), "b": hide(b, 0.3), "c": hide(c, 0.2), "d": pl.Series(random.normal(size=rows))}
    return pl.DataFrame({**columns, "w": random.choice([0.5, 1.0, 2.0], rows), "y": hide(y, 0.05)})


@settings(max_examples=examples(8))
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([1, 6]))
def test_filling__is_that_of_the_definition(seed: int, weighted: bool, min_leaf: int) -> None:
    frame = holed(70, seed)
    options: dict[str, Any] = {"weight": "w"} if weighted else {"exclude": ["w"]}
    forest = bf.train(frame, "y", trees=6, min_leaf=min_leaf, threads=1, seed=seed, **PLAIN, **options)
    found = forest.explain(frame, parts="filling", threads=1)["filling"]
    kept = [row for row, label in enumerate(frame["y"]) if label is not None]
    bags = forest.inbag()
    times = [bags[str(tree)].to_list() for tree in range(6)]
    leaves = forest.apply(frame)[kept].T.tolist()
    weight = [frame["w"][row] if weighted else 1.0 for row in kept]
    expected = []
    for at, row in enumerate(kept):
        share = proximities(leaves, times, weight, at)
        for name in "abc":
            if frame[name][row] is None:
                value, mass = filled(share, [frame[name][own] for own in kept], name == "c")
                expected.append((row, name, value, mass))
    assert found.select("row", "feature").rows() == [(row, name) for row, name, _, _ in expected]
    levels = [value if name == "c" else None for _, name, value, _ in expected]
    numbers = [None if name == "c" else value for _, name, value, _ in expected]
    assert found["level"].to_list() == levels
    assert found["number"].is_null().to_list() == [number is None for number in numbers]
    np.testing.assert_allclose(found["number"].drop_nulls(), [n for n in numbers if n is not None], rtol=1e-12)
    np.testing.assert_allclose(found["known"], [mass for *_, mass in expected], atol=1e-12)


def test_filling__of_chosen_rows_with_any_resources() -> None:
    frame = holed(200, 1).drop("w")
    forest = bf.train(frame, "y", trees=10, **PLAIN)
    every = forest.explain(frame, parts="filling", threads=1)["filling"]
    assert every.equals(forest.explain(frame, parts="filling", threads=2, memory="1GB")["filling"])
    rows = every["row"].unique().sort()[[1, 9]].to_list()
    some = forest.explain(frame, parts="filling", rows=rows)["filling"]
    assert some.equals(every.filter(pl.col("row").is_in(rows)))
    drawn = forest.explain(frame, parts="filling", sample=5)["filling"]
    assert drawn["row"].n_unique() == 5
    assert drawn.equals(every.filter(pl.col("row").is_in(drawn["row"].implode())))
    with pytest.raises(ConfigError, match="drop new_rows"):
        forest.explain(frame, parts="filling", new_rows=True)


def test_filling__of_a_whole_table_is_empty() -> None:
    frame = holed(60, 2).select("d", "y").drop_nulls()
    found = bf.train(frame, "y", trees=3, **PLAIN).explain(frame, parts="filling")["filling"]
    assert found.is_empty()
    assert found.columns == ["row", "feature", "number", "level", "known"]


def test_filling__is_of_features_that_trees_split_on() -> None:
    """A boosted stage splits on others."""
    frame = holed(120, 3).drop("w")
    forest = bf.train(frame, "y", trees=2, max_depth=1, mtry=1, refine=20, seed=5)
    split_on = set(forest.nodes.collect()["feature"].drop_nulls())
    stage = forest.explain(frame, parts="permutation")["permutation"].filter(pl.col("importance") != 0)["feature"]
    assert not split_on.issuperset({"a", "b", "c"} & set(stage))
    assert set(forest.explain(frame, parts="filling")["filling"]["feature"]) == split_on & {"a", "b", "c"}


def test_fill_missing__does_not_count_levels_that_training_has_not_seen() -> None:
    """They have the code after the last; nothing is written beyond the scratch."""
    codes, beyond = 3, np.zeros(50)
    values = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [3.0, 0.0], [3.0, 0.0]])
    bag, members = np.array([[0, 1, 1, 1, 1]], np.uint16), np.array([[1, 2, 3, 4, 0]], np.uint32)
    ends = np.array([0, 4], np.uint32)
    lists = map(read_only, (np.zeros((1, 5), np.uint32), bag, members))
    known = LeafRows(*lists, np.array([0, 2]), ends, None)
    filled, mass = np.full((1, 1), np.nan), np.zeros((1, 1))
    chosen, kept = np.zeros(1, np.uint32), np.arange(5, dtype=np.uint32)
    scratch, places = (np.zeros(5), np.zeros(5, np.uint32)), np.zeros(1, np.uint32)
    tally = beyond[:codes]
    read = read_only(kept), read_only(values), places, np.array([codes])
    fill_missing(chosen, known, scratch, *read, tally, filled, mass)
    assert filled.tolist() == [[1.0]]
    assert mass.tolist() == [[0.25]]
    assert not beyond.any()
