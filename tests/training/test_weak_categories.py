"""The default of min_level, by how much the levels of a category differ."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.options.train_config import TrainConfig
from bigforest.store.format import BLOCK_ROWS
from bigforest.training.choose import choose_min_level, sum_of_squares, variance_ratio
from tests.naive import weak_categories as naive


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=30),
    st.booleans(),
)
def test_variance_ratio__from_the_definition(rows: list[tuple[int, int, int]], classes: bool) -> None:
    levels, target, weight = zip(*rows, strict=True)
    assume(len(set(target)) > 1)  # both variances of a constant target are 0 but for rounding, and it is not split
    share = [Fraction(w * len(rows), sum(weight)) for w in weight]
    outputs = [[int(y == k) for k in range(3)] for y in target] if classes else [[y] for y in target]
    weights, codes = np.array(share, float), np.unique(np.array(levels), return_inverse=True)[1]
    if classes:
        found = [np.flatnonzero(np.array(target) == k) for k in range(3)]
        given_ = [(places, weights[places]) for places in found]
    else:
        given_ = [(np.arange(len(rows)), weights * target)]
    expected = naive.variance_ratio(levels, outputs, share)
    got = variance_ratio(codes, given_, weights, sum_of_squares(given_, weights))
    if expected > 1e6 or got > 1e6:  # the variance between levels is next to nothing, and may be rounded to it
        assert min(expected, got) > 1e6
    else:
        assert got == pytest.approx(expected, rel=1e-6, abs=1e-9)


def table(rows: int, effect: float, *, classes: bool = True) -> pl.DataFrame:
    """A category of 30 levels with effects of this size, one of single rows, and a number."""
    draw = np.random.default_rng(1)
    level, x = draw.integers(0, 30, rows), draw.normal(size=rows)
    y = draw.normal(size=30)[level] * effect + 0.5 * x + draw.normal(size=rows)
    return pl.DataFrame(
        {
            "level": [f"l{k}" for k in level],
            "x": x,
            "name": [f"n{k}" for k in range(rows)],
            "y": (y > 0).astype(int) if classes else y,
        }
    )


def chosen(frame: pl.DataFrame, folder: Path, **options: Any) -> Any:
    """min_level for a table."""
    task = "classification" if frame["y"].dtype.is_integer() else "regression"
    encoded = {name: options[name] for name in ("weight",) if name in options}
    store = bf.encode_store(frame, folder, target="y", task=task, **encoded)
    config = TrainConfig.of(**options).for_task(task)
    return choose_min_level(store, config).min_levels(len(store.spec.features))


@pytest.mark.parametrize("classes", [True, False])
def test_min_level__by_how_much_levels_differ(classes: bool, tmp_path: Path) -> None:
    assert chosen(table(2000, 2.0, classes=classes), tmp_path / "strong") == (5, 5, 1000)
    assert chosen(table(2000, 2.0, classes=classes).drop("name"), tmp_path / "alone") == (5, 5)
    weak = chosen(table(2000, 0.25, classes=classes), tmp_path / "weak")
    assert 5 < weak[0] < 100
    none = chosen(table(2000, 0.0, classes=classes), tmp_path / "none")
    assert none[0] > weak[0]


def test_min_level__that_was_given_or_has_no_category_stays(tmp_path: Path) -> None:
    assert chosen(table(500, 0.1), tmp_path / "given", min_level=7) == (7, 7, 7)
    assert chosen(table(500, 0.1).drop("level", "name"), tmp_path / "numbers") == (5,)


def test_min_level__ignores_the_scale_of_weights_and_held_out_rows(tmp_path: Path) -> None:
    frame = table(1000, 0.3).with_columns(w=pl.int_range(1000) % 3 + 1)
    one = chosen(frame, tmp_path / "one", weight="w")
    other = chosen(frame.with_columns(pl.col("w") * 64), tmp_path / "other", weight="w")
    assert one == other
    held = chosen(table(1000, 0.3), tmp_path / "held", calibration=0.5)
    whole = chosen(table(1000, 0.3), tmp_path / "whole")
    assert held != whole


def test_min_level__of_a_large_table_reads_some_blocks(tmp_path: Path) -> None:
    """Of five blocks the first, the third and the fifth."""
    rows, block = 4 * BLOCK_ROWS + 2000, pl.int_range(pl.len()) // BLOCK_ROWS
    frame = table(rows, 0.3).drop("name").with_columns(block=block)
    read = pl.col("block") % 2 == 0
    frame = frame.with_columns(y=pl.when(read).then("y").otherwise(0)).drop("block"), frame.filter(read).drop("block")
    assert chosen(frame[0], tmp_path / "large") == chosen(frame[1], tmp_path / "read")
    assert chosen(frame[0].head(2 * BLOCK_ROWS), tmp_path / "whole") != chosen(frame[1], tmp_path / "again")


def test_train__keeps_min_level_and_adds_trees_by_it(tmp_path: Path) -> None:
    frame = table(400, 0.2)
    forest = bf.train(frame, "y", task="classification", trees=4, out=tmp_path / "f")
    least = forest.config.min_level
    assert isinstance(least, str)
    assert [int(each) > 5 for each in least.split(",")] == [True, False, True]
    same = bf.train(frame, "y", task="classification", trees=4, min_level=least)
    assert same.nodes.collect().equals(forest.nodes.collect())
    nodes = forest.nodes.collect()
    more = bf.train(frame, resume=tmp_path / "f", trees=6)
    assert more.config.min_level == least
    assert more.nodes.filter(pl.col("tree") < 4).collect().equals(nodes)


def test_train__min_level_of_another_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_level is given for 2 features, and the table has 3"):
        bf.train(table(50, 0.2), "y", trees=1, min_level="5,5")
    for wrong in ("", "0,5,5", f"5,5,{2**31}", [5, "a"], 0, 2.5, "few"):
        with pytest.raises(ConfigError, match="min_level must be"):
            TrainConfig.of(min_level=wrong)
