"""On a Dask cluster: trees grown by passes and columns encoded in pieces, as threads do it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import polars as pl
import pytest
from distributed import Client, LocalCluster

import bigforest
from bigforest.events import silent
from bigforest.execution.dask_cluster import Cluster
from bigforest.execution.resources import Resources
from bigforest.grow.memory import choose_grow_plan
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.planning.sizes import Limits
from bigforest.source.open import open_source
from bigforest.store.store import Store
from tests.encode.test_encode import content
from tests.encoded import encode
from tests.execution.clusters import (
    BY_PASSES,
    MEANS,
    PERCEPTRONS,
    QUIET,
    assert_grows_the_same,
    few_columns,
)
from tests.grow.test_invariance import frame
from tests.grow.test_mixed_forest import options_of
from tests.grow.test_mixed_forest import table as mixed_table
from tests.thorough import cases

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.mark.parametrize(
    "options",
    cases(
        [
            *(MEANS, {"max_leaf_nodes": 200, "ccp_alpha": 0.00001}, PERCEPTRONS),
            *({"impurity": "entropy"}, {"sampling": "stratified"}, {"family": "rotation", "axes": 3}),
        ],
        quick=2,
    ),
)
def test_grow__by_passes(
    client: Client, store: Store, tmp_path: Path, both_alive: None, options: dict[str, Any]
) -> None:
    config = TrainConfig.of(trees=3, seed=3, max_depth=6, **options)
    assert_grows_the_same(client, store, config, tmp_path)


def test_grow__by_passes_on_threads_of_a_worker(one: Client, store: Store, tmp_path: Path) -> None:
    config = TrainConfig.of(trees=3, seed=3, max_depth=7)
    assert_grows_the_same(one, store, config, tmp_path, replace(BY_PASSES, workers=2))


@pytest.mark.parametrize("target", cases(["kind", "minutes"], quick=1))
def test_grow__by_passes_on_any_columns(client: Client, tmp_path: Path, both_alive: None, target: str) -> None:
    told = {name: value for name, value in options_of(target).items() if name not in ("trees", "seed")}
    data = pl.concat([mixed_table()] * 23)  # two blocks
    store = bigforest.encode_store(data, tmp_path / "s", scheduler="threads", **told)
    columns = {name: value for name, value in told.items() if name not in ("target", "exclude")}
    config = TrainConfig(trees=2, seed=3, max_depth=6, **columns).for_task(store.spec.target.task)
    assert_grows_the_same(client, store, config, tmp_path)


@pytest.mark.parametrize(
    "options", cases([{"impurity": "poisson"}, {"family": "sparse-oblique"}, {"family": "rotation"}], quick=1)
)
def test_grow__by_passes_of_numbers(client: Client, tmp_path: Path, both_alive: None, options: dict[str, Any]) -> None:
    table = frame().select(pl.exclude("late", "delay"), delay=pl.col("delay").abs())
    store = bigforest.encode_store(table, tmp_path / "s", target="delay", scheduler="threads")
    config = TrainConfig.of(trees=2, seed=3, max_depth=6, **options).for_task("regression")
    assert_grows_the_same(client, store, config, tmp_path)


def test_choose_way__few_large_trees_are_divided() -> None:
    class Many:
        def threads(self) -> dict[str, int]:
            return {str(number): 2 for number in range(20)}

    shape = Shape(rows=40_000_000, widths=(2,) * 30, codes=10**6, classes=2)
    resources = Resources(threads=2, cluster=Many())  # type: ignore[arg-type]
    few = choose_grow_plan(shape, TrainConfig(trees=2), resources)
    assert few.limits is not None
    assert few.limits.rows * 40 * 2 < 2 * shape.rows
    assert choose_grow_plan(shape, TrainConfig(trees=400), resources).limits is None
    small = Shape(rows=10_000, widths=(2,) * 30, codes=10**4, classes=2)
    assert choose_grow_plan(small, TrainConfig(trees=2), resources).limits is None


@pytest.mark.parametrize("workers", cases([2, 1, 6], quick=1))
def test_encode__few_columns_in_pieces(workers: int, tmp_path: Path) -> None:
    table = few_columns(tmp_path)
    expected = bigforest.encode_store(table, tmp_path / "e", target="late", threads=1, scheduler="threads")
    with (
        LocalCluster(n_workers=workers, threads_per_worker=12 // workers, processes=False, **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        resources = Resources(threads=12, cluster=Cluster(client), scratch=tmp_path, limits=Limits(presort_rows=9_000))
        source = open_source(str(table), scratch=tmp_path)
        store = encode(source, "late", tmp_path / "s", resources=resources, listener=silent)
    assert content(store) == content(expected)
