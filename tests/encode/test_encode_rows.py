"""Numbers to predict and weights become the whole numbers their definitions say, and rows without are left out."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import bigforest
from bigforest.columns.dataspec import MAX_WEIGHT, WeightSpec, max_number
from bigforest.encode.rows import encode_weights
from bigforest.errors import BigForestError
from bigforest.execution.resources import Resources
from bigforest.planning.memory import BASE_BYTES
from bigforest.planning.sizes import Limits
from bigforest.store.format import Manifest
from tests.encode.test_encode import content, encoded
from tests.thorough import examples

LARGEST = 2.0**500
NUMBERS = [0.0, -0.0, 1.0, 0.1, -3.5, 1e9, 1e9 + 1, 2.0**-1074, LARGEST, -LARGEST, float("nan"), None]


@settings(max_examples=examples(150))
@given(
    cells=st.lists(st.one_of(st.sampled_from(NUMBERS), st.floats(-LARGEST, LARGEST)), min_size=2, max_size=20),
    weight=st.booleans(),
)
def test_numbers__are_within_a_step(cells: list[float | None], weight: bool) -> None:
    kept = [row for row, cell in enumerate(cells) if cell is not None and cell == cell]
    values = [cells[row] for row in kept]
    if not values or max(values) / 2 - min(values) / 2 < 2.0**-451:
        cells, kept = [*cells, 1.0, 2.0], [*kept, len(cells), len(cells) + 1]
    frame = pl.DataFrame({"x": range(len(cells)), "w": [1023] * len(cells), "y": pl.Series(cells, dtype=pl.Float64)})
    with tempfile.TemporaryDirectory() as folder:
        store = encoded(frame, Path(folder), task=None, weight="w" if weight else None)
        store.verify()
        target = store.spec.target
        assert (target.task, target.classes, store.target.dtype) == ("regression", (), np.int64)
        assert (list(range(len(cells))) if store.row_numbers is None else store.row_numbers.tolist()) == kept
        for row, q in zip(kept, store.target.tolist(), strict=True):
            value = Fraction(cells[row])  # type: ignore[arg-type]
            assert abs(Fraction(target.offset) + q * Fraction(target.step) - value) < target.step
            assert abs(q) < max_number(store.rows, weighted=weight)
            assert abs(q) * store.rows * (1023 if weight else 1) < 2**61
            assert math.isfinite(target.offset + q * target.step)
        given = [cells[row] for row in kept]
        assert store.numbers(0, store.rows).tolist() == given
        assert target.exact == (target.values(store.target) == np.array(given)).all()


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([3, -7, None, 250, 3], dtype=pl.Int16),
        pl.Series([0, 2**40 + 1, None, 5, 6]),
        pl.Series([0.25, 1.5, float("nan"), -3.0, 0.25], dtype=pl.Float32),
        pl.Series([Decimal("1.50"), Decimal("-2.25"), None, Decimal("0.00"), Decimal("1.50")]),
    ],
)
def test_numbers__whole_and_dyadic_ones_are_exact(column: pl.Series, tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": range(5), "y": column})
    store = encoded(frame, tmp_path, task="regression")
    target = store.spec.target
    values = [target.offset + q * target.step for q in store.target.tolist()]
    assert values == [float(cell) for cell in column.gather([0, 1, 3, 4]).to_list()]
    assert store.spec.dropped == 1


@pytest.mark.parametrize(
    ("column", "task"),
    [
        (pl.Series([0.5, 1.5]), "regression"),
        (pl.Series([Decimal("0.5"), Decimal("1.5")]), "regression"),
        (pl.Series([0, 1]), "classification"),
        (pl.Series([0, 1], dtype=pl.Decimal(38, 0)), "classification"),
        (pl.Series([True, False]), "classification"),
        (pl.Series(["a", "b"]), "classification"),
    ],
)
def test_task__follows_the_type(column: pl.Series, task: str, tmp_path: Path) -> None:
    assert encoded(pl.DataFrame({"x": [1, 2], "y": column}), tmp_path, task=None).spec.target.task == task


def table(y: Any, **columns: Any) -> pl.DataFrame:
    return pl.DataFrame({"x": range(len(y)), **columns, "y": y})


REFUSED: dict[str, tuple[pl.DataFrame, dict[str, Any], str]] = {
    "text": (table(["a", "b"]), {"task": "regression"}, "predicts integers, floats or decimals"),
    "booleans": (table([True, False]), {"task": "regression"}, "type Boolean"),
    "dates": (table([1, 2]).cast({"y": pl.Date}), {"task": "regression"}, "type Date"),
    "durations": (table([1, 2]).cast({"y": pl.Duration("us")}), {"task": "regression"}, "type Duration"),
    "infinite": (table([1.0, math.inf]), {"task": None}, "has values up to inf"),
    "huge": (table([1.0, sys.float_info.max]), {"task": None}, "too large for a variance"),
    "missing": (table([None, math.nan]), {"task": None}, "every value is missing; choose"),
    "stratified": (
        table([1.0, 2.0]),
        {"task": None, "sampling": "stratified"},
        "is for classification, and this is a regression",
    ),
    "class weight": (
        table([1.0, 2.0]),
        {"task": None, "class_weight": "balanced"},
        "is for classification, and this is a regression",
    ),
    "entropy": (table([1.0, 2.0]), {"task": None, "impurity": "entropy"}, "entropy is for classification"),
    "variance": (table([1, 2]), {"impurity": "variance"}, "variance is for regression"),
    "negative weight": (table([1, 2], w=[1, -1]), {"weight": "w"}, "'w' has 1 value such as -1"),
    "null weight": (table([1, 2], w=[None, 1]), {"weight": "w"}, "'w' has 1 value such as None"),
    "nan weight": (table([1, 2], w=[math.nan, 1.0]), {"weight": "w"}, "such as nan"),
    "infinite weight": (table([1, 2], w=[1.0, math.inf]), {"weight": "w"}, "such as inf"),
    "text as weight": (table([1, 2], w=["1", "2"]), {"weight": "w"}, "'w' has type String"),
    "target as weight": (table([1, 2]), {"weight": "y"}, "is the target and cannot also be the weight"),
    "group as weight": (table([1, 2], w=[1, 2]), {"weight": "w", "group": "w"}, "is the column of groups and"),
    "unknown weight": (table([1, 2], heft=[1, 2]), {"weight": "hefty"}, "did you mean 'heft'"),
    "no weight at all": (table([1, 2], w=[0, 0]), {"weight": "w"}, "weight 'w': all weights are 0; give some rows"),
    "no number with weight": (
        table([1.0, 2.0], w=[0, 0]),
        {"task": None, "weight": "w"},
        "weight 'w': all weights are 0; give some rows",
    ),
    "no target with weight": (
        table([1, None], w=[0, 1]),
        {"weight": "w"},
        "'y': every value is missing in the rows with a weight above 0",
    ),
    "no number in rows with weight": (
        table([1.0, None], w=[0, 1]),
        {"task": None, "weight": "w"},
        "'y': every value is missing in the rows with a weight above 0",
    ),
    "tiny weights": (table([1, 2], w=[5e-324, 1e-310]), {"weight": "w"}, "too far from 1"),
    "equal weights without a sum": (table([1, 2], w=[1e308, 1e308]), {"weight": "w"}, "too far from 1"),
    "huge weights": (table([1, 2], w=[1e308, 1.0]), {"weight": "w", "class_weight": {1: 1e9}}, "too far from 1"),
    "weight of no class": (
        table([1, 2]),
        {"class_weight": {3: 1.0}},
        "names '3', which is not a class; the classes are 1, 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_encode__unusable_targets_and_weights(case: str, tmp_path: Path) -> None:
    frame, options, message = REFUSED[case]
    with pytest.raises(BigForestError, match=message):
        encoded(frame, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=examples(100))
@given(
    cells=st.lists(st.sampled_from([0, 1, 2, 3, 7, 0.25, 0.1, 1 / 3, 1e-9, 1e6, 1023]), min_size=2, max_size=12),
    classes=st.sampled_from([None, "balanced", {0: 2.0}, {"1": 0.1, "0": 3}]),
)
def test_weights__keep_their_proportions(cells: list[float], classes: Any) -> None:
    cells = [*cells, 1.0, 1.0]
    target = [row % 2 for row in range(len(cells))]
    frame = table(target, w=pl.Series(cells, dtype=pl.Float64))
    kept = [row for row, cell in enumerate(cells) if cell > 0]
    count = [sum(target[row] == k for row in kept) for k in (0, 1)]
    factor = {None: [1, 1], "balanced": [len(kept) / (2 * n) for n in count]}.get(
        classes if isinstance(classes, str) else None, [1, 1]
    )
    if isinstance(classes, dict):
        factor = [float({str(k): v for k, v in classes.items()}.get(str(k), 1)) for k in (0, 1)]
    expected = np.array([cells[row] * factor[target[row]] for row in kept])
    with tempfile.TemporaryDirectory() as folder:
        store = encoded(frame, Path(folder), weight="w", class_weight=classes)
        store.verify()
        spec, found = store.spec.weight, store.weight
    assert spec is not None
    assert found is not None
    assert (spec.largest, spec.total, spec.balanced) == (found.max(), found.sum(), classes == "balanced")
    assert store.spec.dropped == len(cells) - len(kept)
    exact = classes is None and all(float(cell * 4).is_integer() for cell in cells) and max(cells) <= 255
    if exact:
        assert (found * spec.step == expected).all()
    else:
        assert found.max() <= (2**58 if spec.wide else MAX_WEIGHT)
        error = np.abs(found * spec.step - expected)
        assert (error <= spec.step * np.where(expected < spec.step / 2, 1.0, 0.5) + expected * 1e-15).all()
        assert (error <= expected * 1e-15).all() or spec.step <= expected.sum() / 2**55


@pytest.mark.parametrize("whole", [False, True])
def test_encode_weights__of_many_rows_are_coarser(whole: bool) -> None:
    random = np.random.default_rng(1)
    piece = random.integers(1, 1024, 1 << 16) if whole else 1.0 + random.random(1 << 16) / 10
    slices = 40 if whole else 5
    written: list[int] = []

    def weights() -> Iterator[NDArray[np.float64]]:
        return (piece.astype(np.float64) for _ in range(slices))

    def encoded_weights(rows: int) -> WeightSpec:
        write = lambda weight: written.append(int(weight.sum()))  # noqa: E731
        return encode_weights("w", (), False, weights, rows, write, regression=False, divisor=0.0).spec

    spec = encoded_weights(slices * piece.size)
    assert spec.wide
    assert 0.9 * 2**30 < spec.searched <= 2**30
    assert spec.total == sum(written)
    assert not whole or spec.total == slices * piece.sum()
    with pytest.raises(BigForestError, match="too many for weights"):
        encoded_weights(2**30)


def test_weights__and_targets_do_not_depend_on_slices(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    rows = 3_000
    frame = pl.DataFrame(
        {
            "x": random.normal(size=rows),
            "t": [None if i % 7 == 0 else f"level {i % 311}" for i in range(rows)],
            "w": random.exponential(size=rows) * (random.random(rows) < 0.9),
            "number": np.where(random.random(rows) < 0.1, np.nan, random.normal(size=rows)),
            "kind": random.integers(0, 3, rows),
        }
    )
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=700)
    for target, options in (("number", {}), ("kind", {"class_weight": "balanced"})):
        stores = []
        for slice_rows in (1 << 18, 257):
            for data in (frame, tmp_path / "t.parquet"):
                name = f"{target}-{len(stores)}.store"
                limits = Limits(slice_rows=slice_rows)
                own: dict[str, Any] = {"task": None, "target": target, "weight": "w", **options}
                stores.append(encoded(data, tmp_path, name, limits=limits, **own))
        assert all(content(store) == content(stores[0]) for store in stores)
        Manifest.read(stores[0].path)


@pytest.mark.parametrize("target", ["number", "kind"])
def test_weights__where_a_whole_slice_is_left_out(tmp_path: Path, target: str) -> None:
    """A slice has 262,144 rows, so many in a row may have no target, or the weight 0."""
    rows = 40
    gap = (np.arange(rows) >= 8) & (np.arange(rows) < 24)
    frame = pl.DataFrame(
        {
            "x": np.arange(rows) % 9,
            "t": [f"level {i % 5}" for i in range(rows)],
            "w": np.where(gap, 0.0, 1.5),
            "g": np.arange(rows) % 6,
            "number": np.arange(rows) % 7 / 2,
            "kind": np.arange(rows) % 3,
        }
    )
    own: dict[str, Any] = {"task": None, "target": target, "weight": "w", "group": "g"}
    whole = encoded(frame, tmp_path, "whole.store", **own)
    sliced = encoded(frame, tmp_path, "sliced.store", limits=Limits(slice_rows=4), **own)
    assert content(sliced) == content(whole)


def test_categories__by_option(tmp_path: Path) -> None:
    zips = [10, 9, 10, None, -3]
    frame = table([0, 1, 0, 1, 0], zip=pl.Series(zips, dtype=pl.Int32), flag=[True, False, None, True, False])
    frame.write_parquet(tmp_path / "t.parquet")
    store = bigforest.encode_store(tmp_path / "t.parquet", tmp_path / "s", categories=["zip", "flag"])
    assert [feature.kind for feature in store.spec.features] == ["numeric", "category", "category"]
    assert store.levels().of(1).to_list() == ["-3", "9", "10"]
    assert store.levels().of(2).to_list() == ["false", "true"]
    assert store.feature_codes(1).tolist() == [3, 2, 3, 0, 1]
    assert store.feature_codes(2).tolist() == [2, 1, 0, 2, 1]


def test_categories__of_many_levels_and_too_little_memory(tmp_path: Path) -> None:
    limits = Limits(levels_waiting=100, slice_rows=1_000)
    rows = 70_000
    frame = table(np.arange(rows) % 2, name=[f"name {i * 7919 % rows}" for i in range(rows)])
    store = encoded(frame, tmp_path, limits=limits)
    store.verify()
    assert store.levels().of(1).to_list() == sorted(frame["name"].to_list())
    assert store.levels().of(1).gather(store.feature_codes(1)).to_list() == frame["name"].to_list()
    with pytest.raises(BigForestError, match="levels of 'name' do not fit in memory"):
        encoded(
            frame.with_columns(name=pl.col("name").str.pad_start(300, "_")),
            tmp_path,
            "long.store",
            resources=Resources(memory=BASE_BYTES + 60_000_000, threads=1, limits=limits),
        )


def test_categories__levels_that_many_slices_repeat_count_once(tmp_path: Path) -> None:
    limits = Limits(levels_waiting=1 << 18, slice_rows=1_000)
    names = [f"{k % 900:_>4000}" for k in range(60_000)]  # 3.6 MB of levels, and 216 MB as often as slices have them
    frame = table(np.arange(60_000) % 2, name=names)
    resources = Resources(memory=BASE_BYTES + 60_000_000, threads=1, limits=limits)
    store = encoded(frame, tmp_path, resources=resources)
    assert store.levels().of(1).to_list() == sorted(set(names))


def test_class_weight__of_a_file_and_of_a_kept_store(tmp_path: Path) -> None:
    frame = table(["late", "early", "late", "late"])
    (tmp_path / "w.json").write_text(json.dumps({"early": 3}), encoding="utf-8-sig")  # as on Windows
    store = bigforest.encode_store(frame, tmp_path / "s", class_weight=str(tmp_path / "w.json"))
    assert store.weight is not None
    assert store.weight.tolist() == [1, 3, 1, 1]
    with pytest.raises(BigForestError, match=r"with class_weight .*early.* 3\.0.*, not with 'balanced'"):
        bigforest.train(store, class_weight="balanced")
    with pytest.raises(BigForestError, match="without weight, not with 'x'"):
        bigforest.train(store, weight="x")
    with pytest.raises(BigForestError, match="with task 'classification', not with 'regression'"):
        bigforest.train(store, task="regression")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(BigForestError, match=r"broken\.json': it cannot be read"):
        bigforest.train(frame, class_weight=tmp_path / "broken.json")
    for wrong in ({"early": -1.0}, {"early": "much"}, 3, ["early"]):
        with pytest.raises(BigForestError, match="class_weight must be"):
            bigforest.train(frame, class_weight=wrong)
