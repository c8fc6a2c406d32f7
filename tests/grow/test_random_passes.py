"""Random splits by passes give the forest of growing in memory."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numba
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.options.train_config import TrainConfig
from tests.grow.test_invariance import assert_equal, rows_of
from tests.grow.test_mixed_forest import store_of
from tests.grow.test_mixed_passes import options_of, table
from tests.grow.test_passes import WHOLE, parts, ways
from tests.strategies import Data, configs, mixed_tables, tables
from tests.thorough import cases, examples


@given(
    data=st.one_of(tables(), mixed_tables()),
    config=configs(),
    way=ways(),
    numbers=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=examples(100))
def test_passes__of_random_splits_give_the_files_of_growing_in_memory(
    data: Data, config: TrainConfig, way: GrowPlan, numbers: bool, weighted: bool, seed: int
) -> None:
    config = replace(config, splitter="random")
    with tempfile.TemporaryDirectory() as folder:
        store, config = store_of(data, config, Path(folder), numbers=numbers, weighted=weighted, seed=seed)
        assert parts(store, config, way) == parts(store, config, WHOLE)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(("target", "weighted"), cases([("kind", True), ("number", False), ("two", False)], quick=1))
def test_passes__of_random_splits_over_several_blocks(tmp_path: Path, target: str, weighted: bool) -> None:
    options = options_of(target, weighted)
    store = bigforest.encode_store(table(140_000), tmp_path / "s", **options)
    config = TrainConfig(
        trees=2,
        seed=7,
        mtry=3,
        max_depth=12,
        splitter="random",
        weight=options["weight"],
        categories=tuple(options["categories"]),
    ).for_task(store.spec.target.task)
    limits = MemoryLimits(rows=20_000, keys=1, cells=1 << 10, room=1 << 13)
    assert parts(store, config, GrowPlan(2, limits, 2, 0), threads=2) == parts(store, config, WHOLE)


@pytest.mark.slow
def test_train__random_splits_within_a_budget(tmp_path: Path) -> None:
    frame = table(400_000)
    store = bigforest.encode_store(frame, tmp_path / "s", **options_of("two", False) | {"categories": ["zone"]})
    options = {"trees": 2, "seed": 3, "min_split": 30_000, "threads": 2, "splitter": "random", "shrink": "off"}
    memory = max(stage.need.smallest for stage in bigforest.plan_training(store, memory="2GB", **options).stages)
    plan = bigforest.plan_training(store, memory=memory, **options)
    assert next(stage for stage in plan.stages if stage.stage == "grow").need.passes > 1
    for name, budget in (("whole", None), ("passes", memory)):
        bigforest.train(store, out=tmp_path / name, memory=budget, scheduler="threads", **options)
    assert_equal(rows_of(tmp_path / "passes"), rows_of(tmp_path / "whole"))
