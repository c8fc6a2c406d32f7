"""Choosing the power of shares out of bag, against a recomputation row by row; and what it changes and what not."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import ConfigError, FormatError
from bigforest.forest.files import write_tables
from bigforest.forest.format import RUN
from bigforest.forest.run_file import Choices, Power, Shrinkage, read_choices
from bigforest.kernels.predict.powers import raise_shares, true_probabilities
from bigforest.oob.choice import POWERS
from bigforest.options.train_config import TrainConfig
from tests.naive.power import chosen, losses, raised
from tests.naive.shrinkage import half, mean_loss

SHARES = st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1.0)), min_size=1, max_size=6)


def weak(rows: int, seed: int = 0, classes: int = 3) -> pl.DataFrame:
    """Many weak features share the signal, so means over trees are too cautious."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, rows)
    cells = draw.normal(size=(rows, 24)) + 1.5 * (np.arange(24) % classes == y[:, None])
    frame = pl.DataFrame({f"x{place}": cells[:, place] for place in range(24)})
    return frame.with_columns(w=draw.integers(1, 5, rows), y=pl.Series(y).cast(pl.String))


@pytest.fixture(scope="module")
def forest() -> bf.Forest:
    return bf.train(weak(240).drop("w"), "y", trees=20)


@given(rows=st.lists(SHARES, min_size=1, max_size=4), quarters=st.integers(1, 64))
def test_raise_shares__is_the_formula(rows: list[list[float]], quarters: int) -> None:
    for row in rows:
        table = np.array([row])
        raise_shares(table, np.int64(quarters))
        assert table[0] == pytest.approx(raised(row, quarters / 4), rel=1e-13, abs=1e-300)
        assert not table[0][np.array(row) == 0.0].any()
        if max(row):
            assert table.sum() == pytest.approx(1.0)
            assert row[int(table[0].argmax())] == pytest.approx(max(row), rel=1e-12)


@given(rows=st.lists(st.lists(st.floats(0, 9), min_size=3, max_size=3), min_size=1, max_size=5), draws=st.data())
def test_true_probabilities__are_those_of_the_raised_shares(rows: list[list[float]], draws: st.DataObject) -> None:
    votes = np.array(rows)
    truth = np.array(draws.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))), np.uint16)
    used = np.flatnonzero(draws.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    quarters = np.array([4, 7, 40], np.int64)
    found = np.empty((used.size, 3))
    true_probabilities(votes, used, truth, quarters, found)
    for place, power in enumerate(quarters):
        expected = [raised(rows[row], power / 4)[truth[row]] if max(rows[row]) else 0.0 for row in used]
        assert found[:, place] == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("options", [{}, {"weight": "w"}, {"vote": "hard"}, {"shrink": 2.0}, {"classes": 2}], ids=str)
def test_auto__chooses_as_a_recomputation_does(options: dict[str, Any]) -> None:
    frame = weak(240, classes=options.pop("classes", 3))
    weights = frame["w"].to_list() if "weight" in options else [1.0] * 240
    frame = frame if "weight" in options else frame.drop("w")
    auto = bf.train(frame, "y", trees=20, **options)
    plain = bf.train(frame, "y", trees=20, power="off", **options)
    report = plain.oob.rows.collect()
    names = [name for name in report.columns if name.startswith("p_")]
    shares = [row if voters else None for voters, row in zip(report["trees"], report.select(names).rows(), strict=True)]
    truth = [names.index(f"p_{label}") for label in report["truth"]]
    each = [losses(shares, truth, power) for power in POWERS]
    assert auto.power.tried == POWERS
    assert auto.power.losses == pytest.approx([mean_loss(own, weights) for own in each], rel=1e-9)
    assert auto.power.amount == POWERS[chosen(each, weights)] > 1.0
    sides = [[[loss if half(row) == k else None for row, loss in enumerate(own)] for own in each] for k in (0, 1)]
    one, two = (chosen(side, weights) for side in sides)
    crossed = [each[one if half(row) else two][row] for row in range(240)]
    assert auto.power.cross_fitted == pytest.approx(mean_loss(crossed, weights), rel=1e-9)
    found = auto.oob.rows.collect()
    for row, own in zip(found.select(names).rows(), shares, strict=True):
        assert row == (pytest.approx(raised(own, auto.power.amount), rel=1e-12) if own else (None,) * len(names))
    assert found.drop(names).equals(report.drop(names))
    assert auto.oob.curve.equals(plain.oob.curve)
    assert auto.oob.confusion.equals(plain.oob.confusion)
    own, before = (one.oob.metrics.tail(1) for one in (auto, plain))
    assert own["log_loss"][0] == pytest.approx(auto.power.losses[POWERS.index(auto.power.amount)], rel=1e-9)
    assert own["brier"][0] < before["brier"][0]
    if len(names) == 2:  # the order of the probabilities is that of the shares
        assert own["auc"][0] == pytest.approx(before["auc"][0], abs=1e-9)


def test_auto__changes_probabilities_of_new_rows_and_no_class(forest: bf.Forest, tmp_path: Path) -> None:
    frame, new = weak(240).drop("w"), weak(90, seed=1).drop("w")
    plain, power = bf.train(frame, "y", trees=20, power="off"), forest.power.amount
    assert plain.nodes.collect().equals(forest.nodes.collect())
    assert plain.predict(new).equals(forest.predict(new))
    shares = plain.predict_proba(new).to_numpy()
    found = forest.predict_proba(new)
    np.testing.assert_allclose(found.to_numpy(), [raised(row, power) for row in shares], rtol=1e-12)
    assert forest.sharpen(1).predict_proba(new).equals(plain.predict_proba(new))
    given = bf.train(frame, "y", trees=20, power=power, out=tmp_path / "given")
    assert given.power == Power(power)
    for other in (given, bf.read_forest(tmp_path / "given"), plain.sharpen(power), pickle.loads(pickle.dumps(forest))):
        assert other.predict_proba(new).equals(found)
    assert given.oob.rows.collect().equals(forest.oob.rows.collect())
    lazily = new.lazy().select(forest.expr(proba=True)).collect().unnest("probabilities")
    assert lazily.equals(found)
    assert np.array_equal(forest.predict_proba(new.drop("y").to_numpy()), found.to_numpy())
    new.write_parquet(tmp_path / "new.parquet")
    bf.predict_file(forest, tmp_path / "new.parquet", tmp_path / "answers.parquet", proba=True)
    assert pl.read_parquet(tmp_path / "answers.parquet").select(found.columns).equals(found)
    assert forest.predict_proba(new, memory="4GB").equals(found)


def test_other_votes_and_some_trees__give_shares(forest: bf.Forest) -> None:
    new = weak(90, seed=1).drop("w")
    plain = forest.sharpen(1)
    for options in ({"vote": "hard"}, {"vote": "stochastic"}, {"trees": [3]}, {"trees": range(10)}):
        assert forest.predict_proba(new, **options).equals(plain.predict_proba(new, **options))
        assert forest.predict(new, **options).equals(plain.predict(new, **options))
    assert forest[3].predict_proba(new).equals(plain[3].predict_proba(new))


def test_sets_and_rejection__are_calibrated_on_the_probabilities(forest: bf.Forest) -> None:
    new = weak(400, seed=1).drop("w")
    report = forest.oob.rows.filter(pl.col("trees") > 0).collect()
    own = forest.predict(new, coverage=0.9)
    covered = own.select(pl.col("set").list.contains(new["y"].cast(own["set"].dtype.inner)))["set"].mean()
    assert covered > 0.85
    some = forest.predict(new, reject_above=0.02)["prediction"]
    least = forest.rules.calibration.reject_curve().least_share(0.02)
    assert some.null_count() == (forest.predict_proba(new).to_numpy().max(axis=1) < least).sum()
    assert report.select(pl.max_horizontal("^p_.*$")).to_series().max() >= least


def test_power__of_any_threads_and_budget(forest: bf.Forest, tmp_path: Path) -> None:
    frame = weak(240).drop("w")
    for options in ({"threads": 1}, {"threads": 2}, {"memory": "600MB"}):
        assert bf.train(frame, "y", trees=20, **options).power == forest.power
    frame.write_parquet(tmp_path / "t.parquet")
    bf.train(tmp_path / "t.parquet", "y", trees=8, out=tmp_path / "f")
    more = bf.train(resume=tmp_path / "f", trees=20)
    assert (more.power, more.choices) == (forest.power, forest.choices)


@pytest.mark.parametrize(
    "options", [{"family": "tree"}, {"bootstrap": False}, {"power": "off"}, {"sampling": "arc-x4"}], ids=str
)
def test_nothing_is_chosen__where_nothing_can_be(options: dict[str, Any]) -> None:
    forest = bf.train(weak(80).drop("w"), "y", trees=3 if options.get("family") != "tree" else 1, **options)
    assert forest.power == Power()
    assert "power" not in forest.choices.entries()


def test_no_row_out_of_bag__and_chance__keep_shares() -> None:
    draw = np.random.default_rng(3)
    frame = pl.DataFrame({"x": draw.normal(size=200), "y": draw.permutation(200) % 2})
    assert bf.train(frame, "y", trees=3, replace=False).power == Power(1.0, POWERS)
    assert bf.train(frame, "y", trees=20).power.amount == 1.0


@pytest.mark.parametrize("power", [0.3, 0.0, 17, float("nan"), True, None, "x", 10**400])
def test_power__refuses_what_it_cannot_be(forest: bf.Forest, power: Any) -> None:
    with pytest.raises(ConfigError, match="power must be a whole number of quarters"):
        forest.sharpen(power)
    with pytest.raises(ConfigError, match=r'power must be (a whole number of quarters|"auto", "off" or)'):
        TrainConfig(power=power)


def test_power__is_of_classes_and_not_of_boosting() -> None:
    frame = weak(60).drop("w")
    with pytest.raises(ConfigError, match=r"power 2\.0 is for classification, and this is a regression"):
        bf.train(frame.drop("y"), "x0", trees=2, power=2)
    with pytest.raises(ConfigError, match="regression target, without class probabilities"):
        bf.train(frame.drop("y"), "x0", trees=2).sharpen(2)
    boosted = bf.train(frame, "y", trees=4, sampling="adaboost", power=2)
    shares = bf.train(frame, "y", trees=4, sampling="adaboost").predict_proba(frame).to_numpy()
    found = boosted.predict_proba(frame).to_numpy()
    np.testing.assert_allclose(found, [raised(row, 2.0) for row in shares], rtol=1e-12)


def test_other_leaves__drop_a_chosen_power_and_keep_a_given_one(forest: bf.Forest, tmp_path: Path) -> None:
    frame = weak(240).drop("w")
    given = bf.train(frame, "y", trees=20, power=1.5)
    assert forest.power.tried
    for number, (own, kept) in enumerate(((forest, Power()), (given, Power(1.5)), (forest.sharpen(3), Power(3.0)))):
        assert own.shrink(2.0).power == kept
        assert bf.prune_forest(own, frame, tmp_path / f"p{number}").power == kept
        assert bf.calibrate_forest(own, frame, tmp_path / f"c{number}").power == kept
    changed = forest.shrink(2.0).sharpen(2.5)
    assert (changed.choices, changed.revised) == (Choices(Shrinkage(2.0), Power(2.5)), "shrunk")
    changed.write(tmp_path / "changed")
    again = bf.read_forest(tmp_path / "changed")
    assert (again.choices, again.has_oob) == (changed.choices, False)
    sharp = forest.sharpen(2.5)
    assert (sharp.revised, sharp.has_oob, sharp.shrinkage) == ("sharpened", False, forest.shrinkage)
    assert pickle.loads(pickle.dumps(sharp)).choices == sharp.choices
    found = bf.shrink_forest(changed, tmp_path / "s", data=frame)
    assert found.choices == forest.choices


def test_merged_forests__have_the_mean(tmp_path: Path) -> None:
    frame = weak(120).drop("w")
    first, second = (bf.train(frame, "y", trees=4 * (2 - seed), seed=seed).sharpen(3 - seed) for seed in (0, 1))
    assert bf.merge([first, second], tmp_path / "m").power == Power(2.75)
    assert bf.merge([first, second.sharpen(3)], tmp_path / "n").power == Power(3.0)


@pytest.mark.parametrize(
    "change",
    [
        {"power": 2.1},
        {"power": 0.0},
        {"power": 99.0},
        {"power": "2"},
        {"power": 2.0},
        {"tried": [1.0, 1.5, 1.5]},
        {"tried": [1.0, 1.6]},
        {"losses": [0.1]},
        {"losses": [0.1, -0.1]},
        {"cross_fitted": None},
        {"more": 1},
    ],
)
def test_read_choices__refuses_damage(forest: bf.Forest, tmp_path: Path, change: dict[str, Any]) -> None:
    sound = {"power": 1.5, "tried": [1.0, 1.5], "losses": [0.2, 0.1], "cross_fitted": 0.1}
    table = pq.read_table(forest.directory / "run.parquet").cast(RUN.columns)
    write_tables([table], tmp_path / "run.parquet", RUN, forest.files.header, {"power": sound})
    assert read_choices(tmp_path) == Choices(power=Power(1.5, (1.0, 1.5), (0.2, 0.1), 0.1))
    write_tables([table], tmp_path / "run.parquet", RUN, forest.files.header, {"power": sound | change})
    with pytest.raises(FormatError, match="'power' of its metadata cannot be read"):
        read_choices(tmp_path)


def test_choices__write_what_they_read(forest: bf.Forest, tmp_path: Path) -> None:
    table = pq.read_table(forest.directory / "run.parquet").cast(RUN.columns)
    for power in (Power(), Power(2.5), Power(1.0, (1.0, 2.0)), Power(2.0, (1.0, 2.0), (2.0, 1.0), 1.5)):
        entries = json.loads(json.dumps(Choices(power=power).entries()))
        write_tables([table], tmp_path / "run.parquet", RUN, forest.files.header, entries)
        assert read_choices(tmp_path).power == power
