"""Rows that no bag has: which these are, bags of the others, and certainty that is calibrated by them alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import ConfigError
from bigforest.options.train_config import TrainConfig
from bigforest.sampling.bags import Sampler, are_held_out
from bigforest.store.format import BLOCK_ROWS
from tests.naive import conformal as naive
from tests.naive.bag import bag_of, is_held_out
from tests.thorough import cases, examples

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


def frame(rows: int, seed: int = 0) -> pl.DataFrame:
    """Numbers, a class, and groups of four."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 3))
    y = x[:, 0] + draw.normal(size=rows)
    kind = np.where(y > 1, "high", np.where(y > -1, "middle", "low"))
    return pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y, "kind": kind, "g": np.arange(rows) // 4})


@given(st.lists(st.integers(0, 2**40), max_size=30), st.sampled_from([0.01, 0.3, 0.5, 0.99]))
def test_are_held_out__as_the_oracle(numbers: list[int], share: float) -> None:
    found = are_held_out(np.array(numbers, np.uint64), share)
    assert found.tolist() == [is_held_out(number, share) for number in numbers]


def test_are_held_out__are_as_many_as_was_asked_for() -> None:
    for share in (0.05, 0.3, 0.9):
        found = are_held_out(np.arange(100_000, dtype=np.uint64), share)
        assert abs(found.mean() - share) < 5 * (share * (1 - share) / 100_000) ** 0.5


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_bag__as_the_oracle(data: st.DataObject) -> None:
    target = [0, 1, 2, *data.draw(st.lists(st.integers(0, 2), min_size=30, max_size=80))]
    options: dict[str, Any] = {
        "seed": data.draw(st.integers(0, 5)),
        "calibration": data.draw(st.sampled_from([0.1, 0.4])),
        "replace": data.draw(st.booleans()),
        "sample_fraction": data.draw(st.sampled_from([1.0, 0.5])),
        "sampling": data.draw(st.sampled_from(["uniform", "stratified", "balanced"])),
    }
    others = {label for row, label in enumerate(target) if not is_held_out(row, options["calibration"])}
    if others != {0, 1, 2} and options["sampling"] != "uniform":
        return  # the oracle knows no classes without rows
    table = pl.DataFrame({"x": range(len(target)), "y": target})
    forest = bf.train(table, "y", trees=2, shrink="off", **options)
    for tree in range(2):
        assert forest.inbag([tree])[str(tree)].to_list() == bag_of(target, tree, forest.config)


@compiled
@pytest.mark.parametrize("options", [{}, {"replace": False}, {"sampling": "stratified"}, {"group": "g"}], ids=str)
def test_bag__of_several_blocks(options: dict[str, Any], tmp_path: Path) -> None:
    rows = 2 * BLOCK_ROWS + 500
    store = bf.encode_store(frame(rows).drop("y"), tmp_path / "s", target="kind", group=options.get("group"))
    config = TrainConfig.of(calibration=0.2, sample_fraction=0.5, **options).for_task("classification")
    sampler = Sampler(store, config)
    held = are_held_out(np.arange(-(-rows // 4) if "group" in options else rows, dtype=np.uint64), 0.2)
    held = held[store.groups_of(0, rows)] if "group" in options else held
    for tree in range(3):
        bag = sampler.bag(tree)
        assert not bag[held].any()
        assert abs(int(bag.sum()) - (~held).sum() / 2) <= (1000 if "group" in options else 2)
        assert np.array_equal(sampler.block(tree, 1), bag[BLOCK_ROWS : 2 * BLOCK_ROWS])
    again = Sampler(store, replace(config, seed=9)).bag(0)
    assert not again[held].any() and again.any()


def test_bag__a_class_may_be_held_out_whole(tmp_path: Path) -> None:
    held = are_held_out(np.arange(40, dtype=np.uint64), 0.4)
    table = pl.DataFrame({"x": range(40), "y": np.where(held, "held", np.where(np.arange(40) % 2, "a", "b"))})
    for sampling in ("stratified", "balanced"):
        forest = bf.train(table, "y", trees=3, calibration=0.4, sampling=sampling)
        bags = forest.inbag().drop("row").to_numpy()
        assert not bags[held].any() and bags.any(axis=0).all()


@compiled
@pytest.mark.parametrize("target", ["y", "kind"])
def test_predict__certainty_is_that_of_the_rows_held_out(target: str) -> None:
    table, new = frame(3000), frame(400, 1)
    exclude = [name for name in ("y", "kind", "g") if name != target]
    forest = bf.train(table, target, trees=40, calibration=0.3, exclude=exclude, shrink=2.0)
    held = are_held_out(np.arange(3000, dtype=np.uint64), 0.3)
    rows = forest.oob.rows.collect()
    assert np.array_equal((rows["trees"] == 40).to_numpy(), held)
    own, whole = rows.filter(held), forest.predict(table.filter(held))["prediction"]
    found = forest.predict(new, coverage=0.8)
    if target == "y":
        assert whole.to_list() == pytest.approx(own["prediction"].to_list())
        # An interval of a row with the mean spread has twice the radius of the scaled errors.
        known, scale = (own["prediction"].to_list(), own["truth"].to_list(), "0.8"), own["spread"].mean()
        plain = [naive.interval(*known, value, own["spread"].to_list(), scale) for value in found["prediction"]]
        ratio = 2.0 * (found["high"] - found["low"]).to_numpy() / np.diff(np.array(plain), axis=1)[:, 0]
        assert (ratio > 1.0).all() and ratio.mean() == pytest.approx(2.0, rel=0.1)
    else:
        assert whole.equals(own["prediction"])
        truth = [forest.classes.index(label) for label in own["truth"]]
        shares = [row[f"p_{row['truth']}"] for row in own.rows(named=True)]
        sets = [naive.class_set(truth, shares, "0.8", row) or [] for row in forest.predict_proba(new).rows()]
        assert found["set"].to_list() == [[forest.classes[k] for k in one] for one in sets]


@compiled
def test_shrink__is_not_chosen_by_rows_held_out() -> None:
    """Other targets of the rows held out change neither trees nor lambda, which they would if they were asked."""
    table = frame(3000).drop("g", "kind")
    held = are_held_out(np.arange(3000, dtype=np.uint64), 0.3)
    order = np.arange(3000)
    order[held] = np.random.default_rng(1).permutation(order[held])
    other = table.with_columns(y=table["y"].gather(order))
    first, second = (bf.train(one, "y", trees=20, calibration=0.3) for one in (table, other))
    assert first.nodes.collect().equals(second.nodes.collect())
    assert first.shrinkage == second.shrinkage
    assert first.config == second.config
    assert first.oob.error != second.oob.error


@compiled
@pytest.mark.parametrize(
    "options",
    cases([{"threads": 1}, {"memory": "300MB"}, {"family": "rotation", "axes_from": "auto"}], quick=2),
    ids=str,
)
def test_train__however_it_runs(options: dict[str, Any], tmp_path: Path) -> None:
    table = frame(3000).drop("g", "y")
    same = {name: value for name, value in options.items() if name not in ("threads", "memory")}
    one = bf.train(table, "kind", trees=6, calibration=0.3, threads=2, **same)
    other = bf.train(table, "kind", trees=6, calibration=0.3, out=tmp_path / "f", **options)
    assert one.nodes.collect().equals(other.nodes.collect())
    assert one.oob.rows.collect().equals(other.oob.rows.collect())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"calibration": 1.0}, "calibration must be above 0 and below 1"),
        ({"calibration": 0.9999}, "leaves no row to learn from; lower it, or train on more rows"),
        (
            {"calibration": 0.2, "bootstrap": False},
            "calibration needs bags, and bootstrap is off; drop calibration, or",
        ),
        ({"calibration": 0.2, "stop_oob": 0.01}, "stop_oob uses the rows that calibration holds out"),
        ({"calibration": 0.2, "sampling": "arc-x4", "vote": "hard", "shrink": "off"}, "use another sampling"),
    ],
)
def test_train__refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        bf.train(frame(8).drop("g", "y"), "kind", trees=2, **options)
