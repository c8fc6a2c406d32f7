"""The forest depends on data, config and seed alone: written Parquet rows are equal in every kind of run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest

import bigforest

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")

ROWS = 70_000  # more than one block of rows, whose bags are drawn apart
CONFIG = {"target": "late", "trees": 5, "seed": 11, "max_depth": 7, "min_leaf": 3}


@cache
def frame() -> pl.DataFrame:
    """Numbers of several types and a target of three classes, named by text."""
    draw = np.random.default_rng(17)
    hour = draw.integers(0, 24, ROWS)
    delay = draw.gamma(2.0, 10.0, ROWS)
    distance = draw.integers(50, 5000, ROWS)
    signal = delay / 20 + hour / 12 + distance / 4000 + draw.normal(0, 0.5, ROWS)
    return pl.DataFrame(
        {
            "hour": hour.astype(np.int8),
            "delay": delay,
            "distance": distance.astype(np.uint32),
            "wind": draw.normal(0, 1, ROWS).astype(np.float32),
            "late": np.array(["no", "a little", "very"])[np.digitize(signal, [2.0, 3.0])],
        }
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """The rows that every other run must write."""
    out = tmp_path_factory.mktemp("expected") / "one.forest"
    bigforest.train(frame(), out=out, threads=1, **CONFIG)
    return rows_of(out)


def rows_of(forest: Path) -> dict[str, pl.DataFrame]:
    """All rows of all files of a forest, but for the file of timings."""
    folders = {"trees": "trees/*.parquet", "features": "features.parquet", "oob": "oob/*.parquet"}
    files = {name: sorted(forest.glob(pattern)) for name, pattern in folders.items()}
    assert all(files.values())
    rows = {"trees": pl.concat([pl.read_parquet(file) for file in files["trees"]])}
    return rows | {file.name: pl.read_parquet(file) for file in files["features"] + files["oob"]}


def assert_equal(found: dict[str, pl.DataFrame], expected: dict[str, pl.DataFrame]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].schema == expected[name].schema, name
        assert found[name].equals(expected[name]), name


def test_train__more_threads_than_cores(expected: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    bigforest.train(frame(), out=tmp_path / "f", threads=4, **CONFIG)
    assert_equal(rows_of(tmp_path / "f"), expected)


def small_row_groups(folder: Path) -> Path:
    frame().write_parquet(folder / "all.parquet", row_group_size=999)
    return folder / "all.parquet"


def many_files(folder: Path) -> Path:
    cuts = [0, 1, 30_000, 65_536, 65_537, ROWS]
    for start, stop in pairwise(cuts):
        frame()[start:stop].write_parquet(folder / f"part-{start:06d}.parquet")
    return folder


def arrow_file(folder: Path) -> Path:
    frame().write_ipc(folder / "all.arrow")
    return folder / "all.arrow"


@pytest.mark.parametrize("shape", [small_row_groups, many_files, arrow_file])
def test_train__any_shape_of_the_data(
    shape: Callable[[Path], object], expected: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    bigforest.train(shape(tmp_path / "data"), out=tmp_path / "f", threads=2, **CONFIG)
    assert_equal(rows_of(tmp_path / "f"), expected)


def test_train__kept_store(expected: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    store = bigforest.encode_store(frame(), tmp_path / "kept.store", target="late").path
    before = {path: path.read_bytes() for path in store.iterdir()}
    config = {name: value for name, value in CONFIG.items() if name != "target"}
    bigforest.train(store, out=tmp_path / "f", threads=2, **config)
    assert_equal(rows_of(tmp_path / "f"), expected)
    assert {path: path.read_bytes() for path in store.iterdir()} == before


@pytest.mark.parametrize(
    "options",
    [
        {"max_bins": 16, "mtry": "all"},
        {"replace": False, "sample_fraction": 0.6, "impurity": "entropy"},
        {"constants": "count", "impurity": "error", "vote": "hard"},
        {"family": "sparse-oblique", "mean_difference": "all", "normalize": "zscore"},
        {"family": "sparse-oblique", "projection_kind": "gaussian", "ranks": True, "impurity": "entropy"},
        {"family": "rotation", "axes": 3},
        {"family": "rotation", "rotation": "pca-classes", "bootstrap": True, "axis_features": 2},
        {"family": "rotation", "axes_from": ("delay", "distance")},
    ],
)
def test_train__any_options_on_four_threads_and_many_files(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    runs = {"one": (frame(), 1), "other": (many_files(tmp_path / "data"), 4)}
    for name, (data, threads) in runs.items():
        bigforest.train(data, out=tmp_path / name, threads=threads, **(CONFIG | {"trees": 4, "max_depth": 5} | options))
    assert_equal(rows_of(tmp_path / "other"), rows_of(tmp_path / "one"))


def test_train__fewer_trees_are_the_first_ones(expected: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    bigforest.train(frame(), out=tmp_path / "f", threads=2, **(CONFIG | {"trees": 3}))
    assert rows_of(tmp_path / "f")["trees"].equals(expected["trees"].filter(pl.col("tree") < 3))


def test_train__order_preserving_change_of_values_keeps_the_trees(tmp_path: Path) -> None:
    data = frame().head(5000)
    stretched = data.with_columns(pl.col("delay").exp(), pl.col("distance").cast(pl.Float64) ** 3)
    for number, table in enumerate([data, stretched]):
        bigforest.train(table, out=tmp_path / str(number), threads=1, **CONFIG)
    one, other = (rows_of(tmp_path / str(number))["trees"].drop("threshold") for number in range(2))
    assert one.equals(other)


def test_train__trees_differ(expected: dict[str, pl.DataFrame]) -> None:
    roots = expected["trees"].filter(pl.col("node") == 0)
    assert roots["counts"].n_unique() == CONFIG["trees"]
