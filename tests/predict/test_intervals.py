"""Intervals, sets and rejection by rows out of bag: beside the oracle, every way to ask, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import stdev
from typing import Any

import numba
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import bigforest
from bigforest.errors import ConfigError, FormatError
from bigforest.predict import certainty
from bigforest.predict.certainty import Calibration
from bigforest.predict.forest import Forest
from tests.commands import Run, folder, run
from tests.naive import conformal as naive
from tests.predict.test_quantiles import rewritten
from tests.thorough import cases

__all__ = ["folder", "run"]  # fixtures

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


def frame(rows: int, seed: int = 0) -> pl.DataFrame:
    """A number whose noise grows with it, a class that follows from it, one of few rows, and weights."""
    draw = np.random.default_rng(seed)
    a, b = draw.integers(0, 60, rows) / 10.0, draw.random(rows)
    y = a + b + draw.normal(0, 0.1 + a / 4, rows)
    rare = draw.random(rows) < 0.002
    kind = np.where(rare, "rare", np.where(y > 4, "high", np.where(y > 2, "middle", "low")))
    return pl.DataFrame({"a": a, "b": b, "y": y, "kind": kind, "w": draw.integers(1, 5, rows)})


TARGETS: dict[str, dict[str, Any]] = {
    "y": {"target": "y", "exclude": ["kind", "w"]},
    "kind": {"target": "kind", "exclude": ["y", "w"]},
    "weighted": {"target": "kind", "exclude": ["y"], "weight": "w"},
}


def grown(name: str, rows: int = 1200, **options: Any) -> Forest:
    return bigforest.train(frame(rows), scheduler="threads", **{"trees": 32, "threads": 2, **TARGETS[name], **options})


@pytest.fixture(scope="module")
def forests() -> dict[str, Forest]:
    return {name: grown(name) for name in TARGETS}


def tree_spread(forest: Forest, new: pl.DataFrame) -> list[float]:
    """The standard deviation of what the trees predict as grown, row by row."""
    nodes = forest.nodes.select("tree", "node", "value").collect()
    value = {(tree, node): number for tree, node, number in nodes.rows()}
    return [stdev([value[tree, leaf] for tree, leaf in enumerate(leaves)]) for leaves in forest.apply(new).tolist()]


@compiled
@pytest.mark.parametrize("options", cases([{}, {"shrink": "off"}, {"shrink": 3.0}], quick=2), ids=str)
@pytest.mark.parametrize("coverage", cases([0.9, 0.5, 0.95], quick=1))
def test_predict__intervals_as_the_oracle(options: dict[str, Any], coverage: float) -> None:
    forest, new = grown("y", 500, **options), frame(60, 1)
    oob = forest.oob.rows.drop_nulls("prediction").collect()
    known = oob["prediction"].to_list(), oob["truth"].to_list(), str(coverage)
    found = forest.predict(new, coverage=coverage)
    expected = [
        naive.interval(*known, value, oob["spread"].to_list(), spread)
        for value, spread in zip(found["prediction"], tree_spread(forest, new), strict=True)
    ]
    assert np.allclose(found.select("low", "high").to_numpy(), np.array(expected), rtol=1e-9)
    assert (found["high"] - found["low"]).n_unique() > 10


@compiled
def test_spread__is_that_of_the_trees_where_targets_are_of_two_scales() -> None:
    """The squares of predictions of 1e9 leave nothing of a spread of 1."""
    far = pl.col("y") + 1e9 * (pl.col("a") > 3)
    table, new = frame(500).with_columns(far), frame(60, 1).with_columns(far)
    forest = bigforest.train(table, trees=32, threads=2, refine="off", **TARGETS["y"])
    value = {
        key: number
        for *key, number in forest.nodes.select("tree", "node", "value").collect().rows()
        for key in [tuple(key)]
    }
    leaves, bags = forest.apply(table), forest.inbag().drop("row").to_numpy()
    oob = forest.oob.rows.collect()
    expected = [
        stdev([value[tree, leaf] for tree, leaf in enumerate(own) if not bag[tree]])
        for own, bag in zip(leaves.tolist(), bags, strict=True)
    ]
    assert np.allclose(oob["spread"].to_numpy(), expected, rtol=1e-9, atol=1e-6)
    assert np.median(expected) < 2
    known = oob["prediction"].to_list(), oob["truth"].to_list(), "0.9"
    found = forest.predict(new, coverage=0.9)
    intervals = [
        naive.interval(*known, value, expected, spread)
        for value, spread in zip(found["prediction"], tree_spread(forest, new), strict=True)
    ]
    assert np.allclose(found.select("low", "high").to_numpy(), np.array(intervals), rtol=1e-12, atol=1e-4)


@compiled
def test_predict__intervals_of_few_trees_or_older_forests_do_not_follow_the_spread(tmp_path: Path) -> None:
    """A spread of fewer than ten trees says little, and forests of before lack the column."""
    few, older = grown("y", 500, trees=20), grown("y", 500, out=tmp_path / "f")
    path = tmp_path / "f" / "oob" / "rows.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns("spread"), path)
    again = bigforest.read_forest(tmp_path / "f")
    assert again.oob.rows.collect_schema().names() == ["row", "truth", "prediction", "trees"]
    for forest in (few, again):
        oob = forest.oob.rows.drop_nulls("prediction").collect()
        known = oob["prediction"].to_list(), oob["truth"].to_list(), "0.9"
        found = forest.predict(frame(60, 1), coverage=0.9)
        assert found.select("low", "high").rows() == [naive.interval(*known, one) for one in found["prediction"]]
    assert older.predict(frame(60, 1))["prediction"].equals(again.predict(frame(60, 1))["prediction"])


@compiled
def test_predict__intervals_with_quantiles_are_the_same(tmp_path: Path) -> None:
    forest, new = grown("y", 3000, keep_targets=True, shrink=2.0), frame(9000, 1)
    expected = forest.predict(new, coverage=0.9)
    both = forest.predict(new, coverage=0.9, quantiles=[0.5])
    assert both.drop("q0.5").equals(expected)
    for memory in ("400MB", "1GB"):
        assert forest.predict(new, coverage=0.9, quantiles=[0.5], memory=memory, threads=1).equals(both)
        assert forest.predict(new, coverage=0.9, memory=memory, threads=1).equals(expected)


@compiled
@pytest.mark.parametrize("name", ["kind", "weighted"])
@pytest.mark.parametrize("coverage", cases([0.9, 0.5, 0.98], quick=1))
def test_predict__sets_as_the_oracle(forests: dict[str, Forest], name: str, coverage: float) -> None:
    forest, new = forests[name], frame(60, 1)
    oob = forest.oob.rows.drop_nulls("prediction").collect()
    truth = [forest.classes.index(label) for label in oob["truth"]]
    shares = [row[f"p_{row['truth']}"] for row in oob.rows(named=True)]
    found = forest.predict(new, coverage=coverage)["set"].to_list()
    rows = forest.predict_proba(new).rows()
    sets = [naive.class_set(truth, shares, str(coverage), row) or [] for row in rows]
    assert found == [[forest.classes[k] for k in one] for one in sets]


@compiled
@pytest.mark.parametrize("risk", cases([0.2, 0.05, 0.4], quick=1))
def test_predict__rejects_as_the_oracle(forests: dict[str, Forest], risk: float) -> None:
    forest, new = forests["kind"], frame(50, 1)
    oob = forest.oob.rows.drop_nulls("prediction").collect()
    confidence = oob.select(pl.max_horizontal(pl.col("^p_.*$"))).to_series().to_list()
    wrong = (oob["truth"] != oob["prediction"]).to_list()
    found = forest.predict(new, reject_above=risk)["prediction"]
    shares = forest.predict_proba(new).max_horizontal().to_list()
    answered = naive.answered(confidence, wrong, str(risk), shares)
    assert found.is_not_null().to_list() == answered
    assert found.drop_nulls().equals(forest.predict(new)["prediction"].filter(answered))


@compiled
@pytest.mark.parametrize("name", list(TARGETS))
def test_predict__every_way_gives_the_same(forests: dict[str, Forest], name: str, tmp_path: Path) -> None:
    forest, new = forests[name], frame(9_000, 1)
    asked: dict[str, Any] = {"coverage": 0.9} | ({} if name == "y" else {"reject_above": 0.2})
    expected = forest.predict(new, **asked, threads=1)
    assert expected.columns == ["prediction", *(["low", "high"] if name == "y" else ["set"])]
    assert forest.predict(new, **asked, threads=2).equals(expected)
    for memory in ("345MB", "2GB"):
        assert forest.predict(new, **asked, memory=memory, threads=1).equals(expected)
    pieces = [forest.predict(new[at : at + 700], **asked) for at in range(0, new.height, 700)]
    assert pl.concat(pieces).equals(expected)
    assert forest.predict(new.lazy(), **asked).collect(engine="streaming").equals(expected)
    assert new.select(forest.expr(**asked)).unnest("answer").equals(expected)
    assert forest.predict(new.head(0), **asked).schema == expected.schema
    assert forest.predict(new.lazy(), **asked).collect_schema() == expected.schema
    new.write_parquet(tmp_path / "new.parquet")
    for threads in (1, 2):
        out = tmp_path / f"{threads}.parquet"
        bigforest.predict_file(
            forest, tmp_path / "new.parquet", out, threads=threads, scheduler="threads", keep="a", **asked
        )
        assert pl.read_parquet(out).drop("a").equals(expected)
    features = new.select("a", "b").to_numpy()
    array = forest.predict(features, coverage=0.9)
    nothing = forest.predict(features[:0], coverage=0.9)
    assert (nothing.shape, nothing.dtype) == ((0, array.shape[1]), array.dtype)
    if name == "y":
        assert (array == expected.select("low", "high").to_numpy()).all()
    else:
        lists = [[forest.classes[k] for k in np.flatnonzero(row)] for row in array]
        assert lists == expected["set"].to_list()
        with pytest.raises(ConfigError, match="an array has either sets or predictions"):
            forest.predict(features, **asked)
        with pytest.raises(ConfigError, match="probabilities or sets"):
            forest.expr(proba=True, coverage=0.9)


@compiled
@pytest.mark.parametrize("dtype", [pl.Categorical(), pl.Enum(["low", "middle", "high", "rare"]), pl.Int16()])
def test_predict__a_set_is_a_list_of_the_type_of_the_target(dtype: pl.DataType) -> None:
    names = ["low", "middle", "high", "rare"]
    kind = pl.col("kind").replace_strict(names, range(4), return_dtype=dtype) if dtype.is_integer() else pl.col("kind")
    table = frame(300).with_columns(kind.cast(dtype))
    forest = bigforest.train(table, "kind", trees=10, task="classification", exclude=["y", "w"])
    found = forest.predict(table.lazy(), coverage=0.8).collect()
    assert found.schema["set"] == pl.List(dtype)
    assert found["set"].explode().drop_nulls().is_in(table["kind"].unique().implode()).all()


@compiled
def test_predict__covers_new_rows() -> None:
    """With 2,000 calibration and 20,000 new rows a coverage of 0.9 has a standard deviation of 0.007; seven of these,
    and the seeds are fixed. Residuals of rows in the bag would give far less."""
    new = frame(20_000, 7)
    found = grown("y", 2_000, trees=60).predict(new, coverage=0.9)
    inside = (found["low"] <= new["y"]) & (new["y"] <= found["high"])
    assert inside.mean() == pytest.approx(0.9, abs=0.05)
    assert inside.filter(new["a"] > 5).mean() == pytest.approx(0.9, abs=0.1)  # where the noise is largest
    sets = grown("kind", 2_000, trees=60).predict(new, coverage=0.9)["set"]
    inside = pl.DataFrame({"set": sets, "kind": new["kind"]}).select(pl.col("set").list.contains(pl.col("kind")))
    for kind in ("low", "middle", "high"):
        assert inside.to_series().filter(new["kind"] == kind).mean() == pytest.approx(0.9, abs=0.06)


@compiled
def test_calibration__of_many_rows_keeps_a_sample_of_all_and_of_each_class(
    forests: dict[str, Forest], monkeypatch: pytest.MonkeyPatch
) -> None:
    forest = forests["kind"]
    whole = Calibration(forest.files)._rows
    monkeypatch.setattr(certainty, "MOST_ROWS", 100)
    part = Calibration(forest.files)._rows
    assert whole.draw.size == forest.oob.rows_used
    lowest = np.sort(whole.draw)
    for code in range(4):
        own, kept = whole.draw[whole.truth == code], part.draw[part.truth == code]
        expected = {*np.sort(own)[:25].tolist(), *own[own <= lowest[99]].tolist()}
        assert {*kept.tolist()} == expected
    number = Calibration(forests["y"].files)._rows
    assert number.draw.size == 100
    monkeypatch.setattr(certainty, "MOST_ROWS", 399)
    assert Calibration(forests["y"].files).conformal(0.9).edges == ()  # and not the bins of 1,200 rows


@compiled
@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("y", {"coverage": 1.0}, "coverage must be a number above 0 and below 1"),
        ("y", {"coverage": "much"}, "coverage must be a number above 0 and below 1"),
        ("kind", {"reject_above": float("nan")}, "reject_above must be a number above 0 and below 1"),
        ("y", {"coverage": 0.9999}, "too few for a coverage of 0.9999: this needs 9999"),
        ("kind", {"coverage": 0.9999}, "too few for a coverage of 0.9999: this needs 9999"),
        ("kind", {"reject_above": 0.0001}, "this needs 10000; raise reject_above"),
        ("y", {"reject_above": 0.1}, "reject_above is for classification"),
        ("kind", {"coverage": 0.9, "vote": "hard"}, "with vote soft; drop vote"),
        ("kind", {"reject_above": 0.1, "vote": "stochastic"}, "with vote soft; drop vote"),
        ("kind", {"coverage": 0.9, "trees": [0, 1]}, "drop trees"),
        ("kind", {"coverage": 0.9, "keep": ["set"]}, "'set' has the name of a prediction column"),
    ],
)
def test_predict__refuses(forests: dict[str, Forest], name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        forests[name].predict(frame(3).with_columns(set=1), **options)


@compiled
def test_predict__refuses_forests_without_rows_out_of_bag(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"coverage and reject_above are calibrated on out-of-bag rows: .* without bootstrap"
    ):
        grown("y", 50, bootstrap=False, trees=2).predict(frame(3), coverage=0.5)
    for seed in (1, 2):
        grown("y", 50, trees=2, seed=seed, out=tmp_path / f"{seed}")
    both = bigforest.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "both")
    with pytest.raises(
        ConfigError, match=r"coverage and reject_above are calibrated on out-of-bag rows: .* was merged"
    ):
        both.predict(frame(3), coverage=0.5)
    rows = tmp_path / "1" / "oob" / "rows.parquet"
    shutil.copy(tmp_path / "2" / "oob" / "rows.parquet", rows)
    with pytest.raises(FormatError, match="belongs to another forest"):
        bigforest.read_forest(tmp_path / "1").predict(frame(3), coverage=0.5)
    rows.unlink()
    with pytest.raises(FormatError, match="is missing"):
        bigforest.read_forest(tmp_path / "1").predict(frame(3), coverage=0.5)


@compiled
@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("y", pl.lit(float("nan")).alias("truth"), "not finite"),
        ("y", pl.lit(float("inf")).alias("prediction"), "not finite"),
        ("y", pl.lit(float("nan")).alias("spread"), "negative or not finite"),
        ("y", pl.lit(-1.0).alias("spread"), "negative or not finite"),
        ("kind", pl.lit("new").alias("truth"), "none of the classes"),
        ("kind", pl.lit(1.5).alias("p_low"), "not from 0 to 1"),
        ("kind", pl.lit(float("nan")).alias("p_low"), "not from 0 to 1"),
    ],
)
def test_calibration__refuses_damaged_rows(
    forests: dict[str, Forest], name: str, change: pl.Expr, words: str, tmp_path: Path
) -> None:
    forests[name].write(tmp_path / "f")
    rewritten(tmp_path / "f" / "oob" / "rows.parquet", lambda rows: rows.with_columns(change))
    with pytest.raises(FormatError, match=words):
        bigforest.read_forest(tmp_path / "f").predict(frame(3), coverage=0.5)


@compiled
def test_cli__coverage(folder: Path, run: Run) -> None:
    frame(300).drop("w", "y").write_parquet("t.parquet")
    assert run("train", "t.parquet", "--target", "kind", "--trees", "9").code == 0, run.err
    asked = ("predict", "t.forest", "t.parquet", "--coverage", "0.9", "--reject-above", "0.2")
    assert run(*asked, "--out", "p.parquet", "--proba").code == 0, run.err
    found = pl.read_parquet("p.parquet")
    assert found.columns[:2] == ["prediction", "set"]
    rejected = found["prediction"].null_count()
    assert rejected > 0
    assert f"{found.height}, {rejected} of them without a prediction\n" in run.out
    assert "rows; rows without a prediction count as wrong\n" in run.out
    assert run(*asked, "--out", "p.csv").code == 2
    assert "nested, which CSV cannot hold; write Parquet or .ndjson" in run.err
    assert run(*asked, "--out", "p.ndjson").code == 0, run.err
    assert run("predict", "t.forest", "t.parquet", "--coverage", "0.999").code == 2
    assert "lower --coverage, or train on more rows" in run.err
    assert run.err.splitlines()[-1].startswith("error: the forest has ")


def grouped(rows: int, seed: int = 0) -> pl.DataFrame:
    """A number whose noise is that of a group, some of whose names are missing or rare."""
    draw = np.random.default_rng(seed)
    group = draw.integers(0, 3, rows)
    a = draw.random(rows)
    y = 3 * a + draw.normal(0.0, np.array([0.1, 0.5, 2.0])[group])
    names = np.array(["x", "y", "z"], object)[group]
    names[draw.random(rows) < 0.005] = "rare"
    names[draw.random(rows) < 0.1] = None
    return pl.DataFrame({"a": a, "g": names.tolist(), "y": y, "kind": np.where(y > 1.5, "up", "down")})


@pytest.fixture(scope="module")
def by_group(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Forest]:
    """Forests of the number and of the class on a Parquet file of `grouped(2000)`, without its groups."""
    file = tmp_path_factory.mktemp("grouped") / "t.parquet"
    grouped(2000).write_parquet(file)
    return {
        target: bigforest.train(file, target, trees=32, exclude=["g", other], shrink="off")
        for target, other in (("y", "kind"), ("kind", "y"))
    }


@compiled
@pytest.mark.parametrize("target", ["y", "kind"])
def test_coverage_by__each_category_as_a_forest_of_its_rows(by_group: dict[str, Forest], target: str) -> None:
    """What a category gets is what its rows out of bag say by themselves; other levels get what all rows say."""
    table, forest = grouped(2000), by_group[target]
    new = grouped(200, 1).with_columns(g=pl.col("g").replace("z", "new"))
    found = forest.predict(new, coverage=0.9, coverage_by="g")
    plain = forest.predict(new, coverage=0.9)
    oob = forest.oob.rows.collect().with_columns(table["g"])
    shares = forest.predict_proba(new).rows() if target == "kind" else []
    spread = tree_spread(forest, new) if target == "y" else []
    pools = {"x": ["x"], "y": ["y"], None: [None]}
    assert oob.filter(pl.col("g") == "rare").height >= 9
    pools["rare"] = ["rare"]
    for row, group in enumerate(new["g"]):
        if group == "new":
            assert found.row(row) == plain.row(row)
            continue
        own = oob.filter(pl.col("g").is_in(pools[group], nulls_equal=True)).drop_nulls("prediction")
        if target == "y":
            known = own["prediction"].to_list(), own["truth"].to_list(), "0.9"
            expected = naive.interval(*known, found["prediction"][row], own["spread"].to_list(), spread[row])
            assert np.allclose(found.select("low", "high").row(row), expected, rtol=1e-9)
        else:
            truth = [forest.classes.index(label) for label in own["truth"]]
            true_shares = [one[f"p_{one['truth']}"] for one in own.rows(named=True)]
            members = naive.class_set(truth, true_shares, "0.9", shares[row])
            assert members is not None
            assert found["set"][row].to_list() == [forest.classes[k] for k in members]


@compiled
def test_coverage_by__every_way_to_ask_gives_the_same(by_group: dict[str, Forest], tmp_path: Path, run: Run) -> None:
    table, new, forest = grouped(2000), grouped(6000, 1), by_group["y"]
    new.write_parquet(tmp_path / "new.parquet")
    forest.write(tmp_path / "f")
    expected = forest.predict(new, coverage=0.9, coverage_by="g", threads=1)
    given: list[Any] = ["g", table["g"], table["g"].cast(pl.Categorical), table.to_pandas()["g"]]
    for by in given:
        assert forest.predict(new, coverage=0.9, coverage_by=by, memory="400MB").equals(expected)
        assert forest.predict(new.lazy(), coverage=0.9, coverage_by=by).collect().equals(expected)
    asked = new.select(forest.expr(coverage=0.9, coverage_by="g").alias("answer")).unnest("answer")
    assert asked.equals(expected)
    with pytest.raises((bigforest.DataError, pl.exceptions.PolarsError), match="must have categories"):
        new.with_columns(g="a").select(forest.expr(coverage=0.9, coverage_by="g"))
    out = tmp_path / "p.parquet"
    command = ("predict", tmp_path / "f", tmp_path / "new.parquet", "--coverage", "0.9", "--coverage-by", "g")
    assert run(*command, "--out", out).code == 0, run.err
    assert pl.read_parquet(out).equals(expected)
    assert forest.predict(new[:0], coverage=0.9, coverage_by="g").height == 0


@compiled
@pytest.mark.parametrize("target", ["kind", "y"])
def test_coverage_by__refuses_a_training_table_that_was_replaced(tmp_path: Path, target: str) -> None:
    table = grouped(300)
    table.write_csv(file := tmp_path / "t.csv")
    forest = bigforest.train(file, target, trees=20, exclude=["g", "y" if target == "kind" else "kind"])
    expected = forest.predict(table, coverage=0.9, coverage_by="g")
    table.reverse().write_csv(file)
    with pytest.raises(
        bigforest.DataError, match=f"t.csv has other values of '{target}' than in training.*as a Series"
    ):
        bigforest.read_forest(forest.directory).predict(table, coverage=0.9, coverage_by="g")
    assert forest.predict(table, coverage=0.9, coverage_by=table["g"]).equals(expected)


@compiled
def test_coverage_by__whole_numbers_of_any_type(tmp_path: Path) -> None:
    """Databases store them as decimals, and pandas as floats where some are missing."""
    codes = pl.col("g").replace_strict({"x": 1, "y": 2, "z": 30, "rare": 4}, return_dtype=pl.Int64)
    table, new = (grouped(rows, rows).with_columns(codes) for rows in (1500, 200))
    forest = bigforest.train(table, "y", trees=12, exclude=["g", "kind"])
    expected = forest.predict(new, coverage=0.9, coverage_by=table["g"])
    assert expected.height == 200 and not expected.equals(forest.predict(new, coverage=0.9))
    for dtype in (pl.Float64(), pl.Decimal(10, 2)):
        other, asked = (frame.with_columns(pl.col("g").cast(dtype)) for frame in (table, new))
        assert forest.predict(asked, coverage=0.9, coverage_by=other["g"]).equals(expected)
        other.write_parquet(tmp_path / f"{dtype}.parquet")
        named = bigforest.train(tmp_path / f"{dtype}.parquet", "y", trees=12, exclude=["g", "kind"])
        assert named.predict(asked, coverage=0.9, coverage_by="g").equals(expected)


@compiled
def test_coverage_by__refuses_what_it_cannot_use() -> None:
    table = grouped(500)
    forest = bigforest.train(table, "y", trees=12, exclude=["g", "kind"])
    cases_: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"coverage_by": "g"}, ConfigError, "table in memory"),
        ({"coverage_by": table["g"][:9]}, bigforest.DataError, "has 9 rows"),
        ({"coverage_by": table["a"]}, bigforest.DataError, "must have categories"),
        ({"coverage_by": table["a"].cast(pl.Decimal(10, 2))}, bigforest.DataError, "must have categories"),
        ({"coverage_by": table["g"].to_list()}, ConfigError, "Series with a name"),
        ({"coverage_by": table["g"].alias("h")}, bigforest.DataError, "no column 'h'"),
        ({"coverage_by": table["g"], "coverage": None}, ConfigError, "drop coverage_by or set coverage"),
        ({"coverage_by": table["g"], "jackknife": True}, ConfigError, "drop coverage_by or jackknife"),
        ({"jackknife": True, "memory": "1GB"}, ConfigError, "drop memory"),
    ]
    for options, kind, words in cases_:
        with pytest.raises(kind, match=words):
            forest.predict(table, **{"coverage": 0.9, **options})
    with pytest.raises(ConfigError, match="an array has no column"):
        forest.predict(table.select("a").to_numpy(), coverage=0.9, coverage_by=table["g"])
    classes = bigforest.train(table, "kind", trees=12, exclude=["g", "y"])
    with pytest.raises(ConfigError, match="is for regression"):
        classes.predict(table, coverage=0.9, jackknife=True)
    groups = bigforest.train(table.drop_nulls(), "y", trees=12, exclude=["kind"], group="g")
    with pytest.raises(ConfigError, match="exchangeable"):
        groups.predict(table, coverage=0.9, jackknife=True)


@compiled
@pytest.mark.parametrize(
    "options", [{}, {"shrink": 5.0}, {"weight": "w"}, {"calibration": 0.3}, {"sample_fraction": 0.5}], ids=str
)
def test_jackknife__as_the_oracle(options: dict[str, Any]) -> None:
    table = frame(300).with_columns(y=pl.when(pl.int_range(300) % 50 == 7).then(None).otherwise("y"))
    new = frame(50, 1)
    forest = bigforest.train(
        table, "y", exclude=["kind"] + ([] if options.get("weight") else ["w"]), trees=20, **options
    )
    found = forest.predict(new, coverage=0.9, jackknife=True)
    oob = forest.oob.rows.collect()
    bags = forest.inbag().drop("row").to_numpy() == 0
    used = (oob["trees"] == 20 if "calibration" in options else oob["prediction"].is_not_null()).to_numpy()
    errors = (oob["truth"] - oob["prediction"]).abs().to_numpy()[used].tolist()
    each = np.stack([forest.predict(new, trees=[tree])["prediction"].to_numpy() for tree in range(20)], axis=1)
    expected = [naive.jackknife(errors, bags[used].tolist(), "0.9", row) for row in each.tolist()]
    assert np.allclose(found.select("low", "high").to_numpy(), np.array(expected), rtol=1e-9)
    for threads in (1, 2):
        assert forest.predict(new[7:], coverage=0.9, jackknife=True, threads=threads).equals(found[7:])
    assert forest.predict(new.lazy(), coverage=0.9, jackknife=True).collect().equals(found)


@compiled
def test_jackknife__refuses_a_report_of_other_trees(tmp_path: Path) -> None:
    grown("y", refine="off").write(tmp_path / "f")
    rewritten(tmp_path / "f" / "oob" / "rows.parquet", lambda rows: rows.with_columns(pl.col("trees") - 1))
    with pytest.raises(FormatError, match="another number of trees than there are bags without it"):
        bigforest.read_forest(tmp_path / "f").predict(frame(3), coverage=0.9, jackknife=True)


@compiled
def test_calibration__refuses_rows_that_the_table_had_not(forests: dict[str, Forest], tmp_path: Path) -> None:
    """They would be looked up in a column, and in bags."""
    changes = [lambda rows: rows.with_columns(pl.col("row") + 1), lambda rows: pl.concat([rows, rows[-5:]])]
    for number, change in enumerate(changes):
        forests["y"].write(tmp_path / f"{number}")
        rewritten(tmp_path / f"{number}" / "oob" / "rows.parquet", change)
        damaged = bigforest.read_forest(tmp_path / f"{number}")
        with pytest.raises(FormatError, match="the table"):
            damaged.predict(frame(3), coverage=0.9, coverage_by=frame(1200)["kind"])


@compiled
def test_coverage_by__rows_without_a_spread_do_not_count() -> None:
    """A category with rows enough for a bound, of which too few have a spread, is calibrated with others."""
    table = grouped(600)
    forest = bigforest.train(table, "y", trees=26, exclude=["g", "kind"])
    rows = forest.rules.calibration._rows
    alone = np.zeros(table.height, np.bool_)
    alone[rows.place[np.argsort(rows.voters)[:9]]] = True
    rows.spread[np.argsort(rows.voters)[0]] = np.nan
    again = Calibration.__new__(Calibration)
    again.__dict__ |= forest.rules.calibration.__dict__ | {"_fitting": rows.chosen(~np.isnan(rows.spread))}
    column = pl.Series("own", np.where(alone, "few", "many"))
    found = again.by_category(column, 0.9)
    assert found.calibrated[0] == found.calibrated[1] == again.conformal(0.9)


@compiled
def test_jackknife__with_quantiles_is_the_same() -> None:
    forest, new = grown("y", 400, keep_targets=True), frame(80, 1)
    both = forest.predict(new, coverage=0.9, jackknife=True, quantiles=[0.5])
    assert both.drop("q0.5").equals(forest.predict(new, coverage=0.9, jackknife=True))
    assert both["q0.5"].equals(forest.predict(new, quantiles=[0.5])["q0.5"])
