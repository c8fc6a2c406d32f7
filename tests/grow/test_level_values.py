"""Categories where trees split on projections: their levels have numbers, everywhere and always the same."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.errors import ConfigError, DataError, FormatError
from bigforest.events import Notice
from bigforest.grow.families.sparse_oblique import feature_scale
from bigforest.grow.filled_store import filled_store, ordered_store
from bigforest.grow.filled_store import level_values as find_values
from bigforest.grow.forest import grow_tree
from bigforest.grow.memory import GrowPlan
from bigforest.options.train_config import TrainConfig
from tests.grow.test_filled_store import (
    FAMILIES,
    ONE,
    assert_same,
    assert_same_by_any_run,
    projected,
)
from tests.grow.test_mixed_forest import store_of
from tests.grow.test_passes import WHOLE, parts, ways
from tests.naive.level_values import level_values
from tests.strategies import Data, mixed_tables
from tests.thorough import cases, examples


@given(
    data=mixed_tables(max_rows=30),
    numbers=st.booleans(),
    least=st.integers(1, 4),
    calibration=st.sampled_from([None, 0.3]),
)
@settings(deadline=None, max_examples=examples(200))
def test_values__are_the_oracles(data: Data, numbers: bool, least: int, calibration: float | None) -> None:
    data = data._replace(categories=frozenset(range(data.values.shape[1])))
    with tempfile.TemporaryDirectory() as folder:
        store, config = store_of(data, TrainConfig(), Path(folder), numbers=numbers, weighted=False, seed=least)
        config = replace(config, min_level=least, calibration=calibration)
        kept = range(store.rows)
        if calibration is not None:
            from bigforest.sampling.bags import held_out_of

            held_out = held_out_of(store, config, 0, store.rows)
            assert held_out is not None
            kept = np.flatnonzero(~held_out).tolist()
            if not kept:
                return
        targets = store.target[list(kept)].tolist()
        for place, feature in enumerate(store.spec.features):
            codes = store.feature_codes(place).tolist()
            cells = [None if feature.missing and codes[row] == 0 else codes[row] for row in kept]
            known, other = level_values(cells, targets, len(store.spec.target.classes), least)
            found = find_values(store, config, place)
            assert found.other == other
            for code, value in enumerate(found.by_code().tolist()):
                assert value == known.get(None if feature.missing and code == 0 else code, other)


@given(case=projected(max_rows=30, max_features=4, categories=True), least=st.integers(1, 3))
@settings(deadline=None, max_examples=examples(100))
def test_trees__are_those_of_the_table_of_numbers(case: tuple[Data, TrainConfig, bool], least: int) -> None:
    """But for where missing cells go at a node on one feature: there, as their value."""
    data, config, numbers = case
    config = replace(config, min_level=least)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        gaps, own = store_of(data, config, Path(one), numbers=numbers, weighted=False, seed=1)
        gaps = filled_store(gaps, own, ONE)
        assert gaps.spec.fills is not None
        fills = np.where([feature.missing for feature in gaps.spec.features], gaps.spec.fills, np.nan)
        filled = Data(gaps.values(0, gaps.rows), data.target)
        whole, _ = store_of(filled, config, Path(other), numbers=numbers, weighted=False, seed=1)
        assert np.array_equal(gaps.values(0, gaps.rows), whole.values(0, whole.rows))
        assert_same(grow_tree(gaps, own, 0), grow_tree(whole, own, 0), fills)


@given(
    case=projected(max_rows=30, max_features=4, categories=True),
    way=ways(),
    bins=st.sampled_from(["exact", 3]),
    least=st.integers(1, 3),
)
@settings(deadline=None, max_examples=examples(60))
def test_passes__give_the_files_of_growing_in_memory(
    case: tuple[Data, TrainConfig, bool], way: GrowPlan, bins: str | int, least: int
) -> None:
    data, config, numbers = case
    config = replace(config, max_bins=bins, min_level=least)
    with tempfile.TemporaryDirectory() as folder:
        store, config = store_of(data, config, Path(folder), numbers=numbers, weighted=False, seed=way.group)
        store = filled_store(store, config, ONE)
        assert parts(store, config, way) == parts(store, config, WHOLE)


@pytest.mark.parametrize("seed", [62, 120, 132])
def test_scale__is_the_same_in_memory_and_by_passes_if_levels_have_equal_values(seed: int, tmp_path: Path) -> None:
    """In memory, levels of equal values are one code; by passes they are several. The sums are rounded as one."""
    draw, rows = np.random.default_rng(seed), 200
    levels, x, y = draw.integers(0, 30, rows), draw.integers(0, 5, rows), draw.integers(0, 2, rows)
    frame = pl.DataFrame({"c": [f"l{level:02}" for level in levels], "x": x, "y": y})
    config = TrainConfig(family="sparse-oblique", normalize="zscore", min_level=1).for_task("classification")
    encoded = bigforest.encode_store(frame, tmp_path / "store", target="y", task="classification")
    store = filled_store(encoded, config, ONE)
    assert np.unique(store.low(0)).size < store.low(0).size
    scale = feature_scale(store, "zscore")
    for other, most in ((ordered_store(store), None), (store, 7), (store, 1)):
        assert feature_scale(other, "zscore", most).tobytes() == scale.tobytes()


def table(rows: int = 600) -> pl.DataFrame:
    """Categories of each type, of few and many levels, one missing in some rows, numbers, and targets of all kinds."""
    draw = np.random.default_rng(8)
    color, many, size = draw.integers(0, 5, rows), draw.integers(0, rows // 4, rows), draw.integers(0, 3, rows)
    gap = draw.random(rows) < 0.2
    x = draw.normal(size=rows)
    signal = x + np.array([0.0, 1.5, -1.5, 0.7, -0.7])[color] + (many % 3 - 1) + np.where(gap, 1.0, 0.0)
    names = pl.Series(np.array(["red", "green", "blue", "grey", "pink"])[color])
    sizes = pl.Series(np.array(["small", "medium", "large"])[size], dtype=pl.Enum(["small", "medium", "large"]))
    return pl.DataFrame(
        {
            "color": names.set(pl.Series(gap), None),
            "many": pl.Series([f"n{number}" for number in many]).cast(pl.Categorical),
            "size": sizes,
            "zip": pl.Series(draw.integers(0, 4, rows), dtype=pl.Int32),
            "x": pl.Series(x).set(pl.Series(draw.random(rows) < 0.1), None),
            "class": np.digitize(signal, [-1.0, 1.0]).astype(np.int8),
            "number": signal,
        }
    )


OPTIONS: dict[str, Any] = {"trees": 5, "seed": 3, "shrink": "off", "categories": ["zip"]}


def numbered(frame: pl.DataFrame, forest: bigforest.Forest) -> pl.DataFrame:
    """The table with the numbers of the forest in place of levels and missing values."""
    columns = []
    for place, feature in enumerate(forest.spec.features):
        column = pl.col(feature.name)
        if feature.kind == "category":
            values = forest.levels.code_values(place, feature)[int(feature.missing) : -1].tolist()
            levels = dict(zip(forest.levels.of(place).to_list(), values, strict=True))
            column = column.cast(pl.String).replace_strict(levels, default=feature.other, return_dtype=pl.Float64)
            column = pl.when(pl.col(feature.name).is_null()).then(feature.fill).otherwise(column).alias(feature.name)
        else:
            column = column.cast(pl.Float64).fill_null(feature.fill)
        columns.append(column)
    return frame.with_columns(columns)


@pytest.mark.parametrize("options", cases([{**FAMILIES[0], "task": "regression"}, *FAMILIES[1:]], quick=3))
def test_forest__predicts_reports_and_explains_as_for_the_table_of_numbers(
    options: dict[str, Any], tmp_path: Path
) -> None:
    regression = options.get("task") == "regression"
    target, drop = ("number", "class") if regression else ("class", "number")
    frame, said = table().drop(drop), list[Any]()
    options = {"target": target, **OPTIONS, **options}
    forest = bigforest.train(frame, out=tmp_path / "f.forest", listener=said.append, **options)
    notices = [event.message for event in said if isinstance(event, Notice)]
    assert sum("replaced by numbers" in one and "'color', 'many', 'size', 'zip'" in one for one in notices) == 1
    forest = bigforest.read_forest(tmp_path / "f.forest")
    whole = numbered(frame, forest)
    assert whole.drop(target).null_count().sum_horizontal().item() == 0
    other = bigforest.train(whole, **(options | {"categories": ()}))
    assert forest.nodes.drop("default_left").collect().equals(other.nodes.drop("default_left").collect())
    assert forest.features["name"].to_list() == other.features["name"].to_list()
    assert forest.features["importance"].equals(other.features["importance"])
    if forest.has_oob:
        assert forest.oob.rows.collect().equals(other.oob.rows.collect())
    new = pl.concat([frame, frame[:20].with_columns(color=pl.lit("odd"), many=pl.lit(None, pl.Categorical))])
    expected = other.predict(numbered(new, forest))
    assert forest.predict(new).equals(expected)
    assert forest.predict(new.lazy()).collect().equals(expected)
    assert pl.concat([forest.predict(row) for row in new[-30:].iter_slices(1)]).equals(expected[-30:])
    cells = new.drop(target).with_columns(pl.col("many", "size").cast(pl.String)).to_numpy().astype(object)
    assert forest.predict(cells).equals(expected) if isinstance(forest.predict(cells), pl.DataFrame) else True
    new.write_parquet(tmp_path / "t.parquet")
    bigforest.predict_file(forest, tmp_path / "t.parquet", tmp_path / "p.parquet", memory="1GB")
    assert pl.read_parquet(tmp_path / "p.parquet", columns=expected.columns).equals(expected)
    assert np.array_equal(forest.apply(new), other.apply(numbered(new, forest)))
    for part in ["contributions", "permutation"] if forest.has_oob else ["contributions"]:
        own = [
            bigforest.explain_forest(one, rows, tmp_path / f"{part}-{number}", parts=[part], new_rows=True)[part]
            for number, (one, rows) in enumerate(((forest, frame), (other, whole)))
        ]
        assert own[0].equals(own[1])


def test_predict__treats_levels_that_did_not_occur_as_asked() -> None:
    frame = table().drop("number")
    forest = bigforest.train(frame, target="class", family="sparse-oblique", **OPTIONS)
    [color] = [feature for feature in forest.spec.features if feature.name == "color"]
    assert color.missing and color.fill != color.other
    odd, gone = frame.with_columns(color=pl.lit("odd")), frame.with_columns(color=pl.lit(None, pl.String))
    larger, missing = (forest.predict_proba(odd, unseen=unseen) for unseen in ("larger", "missing"))
    assert missing.equals(forest.predict_proba(gone)) and not larger.equals(missing)
    with pytest.raises(DataError, match="'color' has levels that did not occur in training"):
        forest.predict(odd, unseen="error")


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(
    "options", cases([{**FAMILIES[0], "max_bins": 50, "task": "regression"}, FAMILIES[2], FAMILIES[1]], quick=2)
)
def test_train__any_kind_of_run_gives_the_same_rows(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(options)
    regression = options.pop("task", None) is not None
    target, drop = ("number", "class") if regression else ("class", "number")
    options = {"target": target, **OPTIONS, "trees": 3, "max_depth": 6, **options}
    assert_same_by_any_run(table(70_000).drop(drop), options, tmp_path, monkeypatch)


def test_train__takes_a_category_without_a_level(tmp_path: Path) -> None:
    frame = table().select("x", "class", none=pl.lit(None, pl.String), few=pl.lit("a"))
    options: dict[str, Any] = {"target": "class", "family": "sparse-oblique", "trees": 3, "seed": 3}
    for own in (frame, frame.drop("few")):
        forest = bigforest.train(own, out=tmp_path / f"{own.width}", **options)
        again = bigforest.read_forest(tmp_path / f"{own.width}")
        new = own.with_columns(none=pl.lit("some"))
        assert forest.predict(new).equals(again.predict(own))


def test_explain__names_levels(tmp_path: Path) -> None:
    frame = table().drop("number").with_columns(pl.col("color").replace("grey", ""))
    forest = bigforest.train(frame, target="class", family="sparse-oblique", **OPTIONS)
    found = bigforest.explain_forest(forest, frame, parts=["dependence", "trees"], features=["color", "many"])
    curve = found["dependence"].filter(pl.col("feature") == "color", pl.col("class") == 0)
    assert set(curve["level"]) == {"red", "green", "blue", "", "pink", None}
    assert curve["value"].null_count() == curve.height
    # Levels of fewer rows than min_level have one value.
    many = found["dependence"].filter(pl.col("feature") == "many", pl.col("class") == 0)["level"]
    assert any(" and " in level and level.endswith(" more") for level in many.drop_nulls())


def test_rules_and_pictures__name_levels() -> None:
    frame = table().select("color", "class")
    forest = bigforest.train(frame, target="class", family="sparse-oblique", **(OPTIONS | {"categories": ()}))
    rules = bigforest.explain_forest(forest, frame, parts=["trees"])["rules"]["rule"].to_list()
    assert any(rule.startswith("color in {") for rule in rules) and not any("<=" in rule for rule in rules)
    text = forest.plot.tree(0).to_json()
    assert "in {" in text and "\\u2264" not in text


def test_export__refuses_values_of_levels() -> None:
    forest = bigforest.train(table().select("color", "class"), target="class", family="sparse-oblique", trees=2)
    with pytest.raises(ConfigError, match="train the family axis or tree"):
        forest.to_sql()


def test_merge__joins_forests_with_the_same_values_and_fills(tmp_path: Path) -> None:
    frame = table().drop("number")
    options = {**OPTIONS, "target": "class", "family": "sparse-oblique"}
    forests = [bigforest.train(frame, out=tmp_path / f"{seed}", **(options | {"seed": seed})) for seed in (1, 2)]
    merged = bigforest.merge(forests, tmp_path / "merged")
    assert np.array_equal(merged.levels.value, forests[0].levels.value)
    assert np.array_equal(merged.spec.fills, forests[0].spec.fills)
    assert merged.predict(frame).height == frame.height
    other = bigforest.train(frame, out=tmp_path / "3", **(options | {"min_level": 40}))
    with pytest.raises(ConfigError):
        bigforest.merge([forests[0], other], tmp_path / "none")


def test_compare__has_candidates_of_both_kinds(tmp_path: Path) -> None:
    candidates = {"axis": {"family": "axis"}, "sparse": {"family": "sparse-oblique"}}
    frame, options = table().drop("number"), {"trees": 4, "family": "rotation"}
    found = bigforest.compare(frame, "class", out=tmp_path / "c", candidates=candidates, options=options)
    assert sorted(found.candidates["candidate"]) == ["axis", "sparse"]


def test_read__refuses_damaged_values(tmp_path: Path) -> None:
    forest = bigforest.train(
        table().drop("number"), out=tmp_path / "f", target="class", family="sparse-oblique", **OPTIONS
    )
    path = tmp_path / "f" / "levels.parquet"
    import pyarrow as pa
    import pyarrow.parquet as pq

    for value in (float("nan"), float("inf")):
        whole = pq.read_table(path)
        values = [value, *whole["value"].to_pylist()[1:]]
        field = whole.schema.field("value")
        pq.write_table(whole.set_column(3, field, pa.array(values, pa.float32())), path)
        with pytest.raises(FormatError, match=r"levels\.parquet"):
            bigforest.read_forest(tmp_path / "f").predict(table())
        pq.write_table(whole, path)
    assert bigforest.read_forest(tmp_path / "f").predict(table()).equals(forest.predict(table()))


def test_store__comes_to_workers_with_its_values(tmp_path: Path) -> None:
    encoded = bigforest.encode_store(table().drop("number"), tmp_path / "s", target="class")
    store = filled_store(encoded, TrainConfig(family="sparse-oblique", task="classification"), ONE)
    again = pickle.loads(pickle.dumps(store))
    assert again.spec == store.spec
    assert np.array_equal(again.values(0, store.rows), store.values(0, store.rows))
    assert encoded.fingerprint == again.fingerprint
