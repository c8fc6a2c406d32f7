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
from bigforest.common.events import silent
from bigforest.common.limits import Limits
from bigforest.common.memory_estimate import Shape
from bigforest.encode.pipeline import encode
from bigforest.execution.cluster import Cluster
from bigforest.execution.resources import Resources
from bigforest.forest.format.parts import part_paths
from bigforest.grow.memory import choose_grow_plan
from bigforest.schema.config import TrainConfig
from bigforest.source import open_source
from bigforest.store.store import Store
from bigforest.training.run import grow_forest
from tests.encode.test_encode import content
from tests.execution.clusters import (
    BY_PASSES,
    MEANS,
    PERCEPTRONS,
    QUIET,
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
            *({}, MEANS, {"max_leaf_nodes": 200, "ccp_alpha": 0.00001}),
            *({"impurity": "entropy"}, {"sampling": "stratified"}, {"family": "rotation", "axes": 3}, PERCEPTRONS),
        ],
        quick=3,
    ),
)
def test_grow__by_passes(
    client: Client, store: Store, tmp_path: Path, both_alive: None, options: dict[str, Any]
) -> None:
    config = TrainConfig.of(trees=3, seed=3, max_depth=6, **options)
    cluster = Resources(threads=1, scratch=tmp_path, cluster=Cluster(client))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, BY_PASSES)):
        grow_forest(store, config, tmp_path / name, resources=resources, listener=silent, way=way)
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_grow__by_passes_on_threads_of_a_worker(one: Client, store: Store, tmp_path: Path) -> None:
    config = TrainConfig.of(trees=3, seed=3, max_depth=7)
    cluster = Resources(threads=2, scratch=tmp_path, cluster=Cluster(one))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, replace(BY_PASSES, workers=2))):
        grow_forest(store, config, tmp_path / name, resources=resources, listener=silent, way=way)
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("target", cases(["kind", "minutes"], quick=1))
def test_grow__by_passes_on_any_columns(client: Client, tmp_path: Path, both_alive: None, target: str) -> None:
    told = {name: value for name, value in options_of(target).items() if name not in ("trees", "seed")}
    data = pl.concat([mixed_table()] * 23)  # two blocks
    store = bigforest.encode_store(data, tmp_path / "s", scheduler="threads", **told)
    columns = {name: value for name, value in told.items() if name not in ("target", "exclude")}
    config = TrainConfig(trees=2, seed=3, max_depth=6, **columns).settled(store.spec.target.task)
    (tmp_path / "scratch").mkdir()
    cluster = Resources(threads=1, scratch=tmp_path / "scratch", cluster=Cluster(client))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, BY_PASSES)):
        grow_forest(store, config, tmp_path / name, resources=resources, listener=silent, way=way)
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("family", cases(["sparse-oblique", "rotation"], quick=1))
def test_grow__by_passes_on_projections_of_numbers(
    client: Client, tmp_path: Path, both_alive: None, family: str
) -> None:
    store = bigforest.encode_store(frame().drop("late"), tmp_path / "s", target="delay", scheduler="threads")
    config = TrainConfig.of(family=family, trees=2, seed=3, max_depth=6).settled("regression")
    (tmp_path / "scratch").mkdir()
    cluster = Resources(threads=1, scratch=tmp_path / "scratch", cluster=Cluster(client))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, BY_PASSES)):
        grow_forest(store, config, tmp_path / name, resources=resources, listener=silent, way=way)
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]


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


@pytest.mark.parametrize("workers", cases([1, 2, 6], quick=2))
def test_encode__few_columns_in_pieces(workers: int, tmp_path: Path) -> None:
    table = few_columns(tmp_path)
    expected = bigforest.encode_store(table, tmp_path / "e", target="late", threads=1, scheduler="threads")
    with (
        LocalCluster(n_workers=workers, threads_per_worker=12 // workers, processes=False, **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        resources = Resources(threads=12, cluster=Cluster(client), scratch=tmp_path, limits=Limits(task_rows=9_000))
        source = open_source(str(table), scratch=tmp_path)
        store = encode(source, "late", tmp_path / "s", resources=resources, listener=silent)
    assert content(store) == content(expected)
