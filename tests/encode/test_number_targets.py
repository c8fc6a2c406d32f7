"""Numbers to predict of any size: tiny ones, outliers, and targets that come back as they were given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.errors import DataError
from bigforest.events import Event, Notice


def table(rows: int = 200) -> pl.DataFrame:
    random = np.random.default_rng(6)
    x, z = random.normal(size=(2, rows))
    return pl.DataFrame({"x": x, "z": z, "y": np.sin(3 * x) + random.normal(0, 0.1, rows)})


@pytest.mark.parametrize("power", [-440, -300, 0, 400])
def test_scale__changes_nothing_but_the_scale(power: int) -> None:
    frame = table()
    plain = bigforest.train(frame, "y", trees=8, task="regression")
    scaled = bigforest.train(frame.with_columns(pl.col("y") * 2.0**power), "y", trees=8, task="regression")
    assert scaled.features["importance"].to_list() == plain.features["importance"].to_list()
    assert plain.features["importance"].sum() == pytest.approx(1.0)
    assert (scaled.predict(frame)["prediction"] == plain.predict(frame)["prediction"] * 2.0**power).all()
    assert scaled.oob.metrics["r2"].to_list() == pytest.approx(plain.oob.metrics["r2"].to_list(), rel=1e-9)
    assert scaled.oob.error == pytest.approx(plain.oob.error * 2.0 ** (2 * power), rel=1e-9)


@pytest.mark.parametrize("size", [1e-140, 1e-148, 1e-200, 1e-310, 5e-324])
def test_tiny__is_refused_in_one_line(size: float, tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": range(60), "y": [size * (row % 3) for row in range(60)]})
    with pytest.raises(DataError, match=r"^target 'y' has values from 0\.0 to .*multiply them by a number$"):
        bigforest.train(frame, "y", trees=2, task="regression", out=tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("outlier", "told"), [(1e3, False), (1e12, True), (1e16, True)])
def test_outliers__that_drown_the_rest_are_told_of(outlier: float, told: bool) -> None:
    frame = pl.DataFrame({"x": range(400), "y": [float(row % 2) + 0.1 for row in range(399)] + [outlier]})
    heard: list[Event] = []
    bigforest.train(frame, "y", trees=1, task="regression", listener=heard.append)
    notices = [event.message for event in heard if isinstance(event, Notice)]
    assert [("so far apart that they are kept in steps of" in notice) for notice in notices] == [True] * told


@pytest.mark.parametrize(
    ("values", "dtype", "example"),
    [
        ([2**63 - 1, 2**63 - 2, 5], pl.Int64, "far apart .* as in 5.0, which becomes 0.0; drop or transform outliers"),
        ([5] * 399 + [2**63 - 1], pl.Int64, "far apart .* as in 5.0, which becomes 0.0; drop or"),
        ([1e-9, 2e-9, 3e12, 4e12], pl.Float64, "far apart .* as in 2e-09, which becomes 0.0; drop or"),
        ([10.0**power for power in range(-60, 60)], pl.Float64, "far apart .* as in 1e[+]42, which becomes 0.0; drop"),
        ([2**60 + row for row in range(201)], pl.Int64, "large .* in steps of 128, .*lost; subtract a constant"),
        ([2.0**60 + 256 * row for row in range(9)], pl.Decimal(38, 2), None),
        ([2**62, 2**61, 2**60, 0], pl.Int64, None),
        ([-(10**15), 3, 10**15], pl.Int64, None),
        (np.random.default_rng(0).normal(size=100_000), pl.Float64, None),
        (np.random.default_rng(0).lognormal(sigma=2, size=100_000), pl.Float64, None),
    ],
)
def test_digits__that_are_lost_are_told(values: Any, dtype: pl.DataType, example: str | None, tmp_path: Path) -> None:
    y = pl.Series(values).cast(dtype)
    heard: list[Event] = []
    frame = pl.DataFrame({"x": np.arange(len(y)) // 2, "y": y})
    bigforest.encode_store(frame, tmp_path / "s", target="y", task="regression", listener=heard.append)
    told = [event.message for event in heard if isinstance(event, Notice) and "'y'" in event.message]
    assert len(told) == (example is not None)
    assert example is None or re.search(example, told[0])


def test_quantiles__are_targets_bit_for_bit(tmp_path: Path) -> None:
    frame = table(500)
    forest = bigforest.train(frame, "y", trees=20, task="regression", keep_targets=True, out=tmp_path / "f")
    found = forest.predict(frame, quantiles=[0.1, 0.5, 0.9])
    targets = set(frame["y"].to_list())
    for name in ("q0.1", "q0.5", "q0.9"):
        assert set(found[name].to_list()) <= targets
    assert forest.oob.rows.collect()["truth"].to_list() == frame["y"].to_list()


def test_numbers__kept_where_they_are_not_exact(tmp_path: Path) -> None:
    whole = bigforest.encode_store(table().with_columns(y=pl.int_range(200)), tmp_path / "w", task="regression")
    store = bigforest.encode_store(table(), tmp_path / "s", task="regression")
    assert whole.spec.target.exact
    assert not (tmp_path / "w" / "numbers.bin").exists()
    assert not store.spec.target.exact
    assert store.numbers(0, 200).tolist() == table()["y"].to_list()
    store.verify()


@pytest.mark.parametrize("dtype", [pl.Int64, pl.Decimal(38, 2)])
def test_numbers__that_are_one_float_are_not_called_constant(dtype: pl.DataType) -> None:
    y = pl.Series([2**62 + row % 60 for row in range(200)], dtype=pl.Int64).cast(dtype)
    frame = pl.DataFrame({"x": range(200), "y": y})
    with pytest.raises(DataError, match=r"'y' has different values that are one float64, 4\.6.*subtract their mean"):
        bigforest.train(frame, "y", trees=2, task="regression")
    one = frame.with_columns(y=pl.lit(2**62).cast(dtype))
    assert bigforest.train(one, "y", trees=2, task="regression").predict(one)["prediction"].unique().to_list() == [
        2.0**62
    ]
