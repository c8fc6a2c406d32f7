"""Growing by passes on categories, missing values, regression targets and weights, with the best splits or random
ones, gives the forest of growing in memory."""

from __future__ import annotations

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
from bigforest.errors import DataError
from bigforest.execution.resources import Resources
from bigforest.grow.forest import check_draws, check_rows
from bigforest.grow.memory import GrowPlan, choose_grow_plan, grow_estimate
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape, TableTraits
from tests.grow.test_invariance import assert_equal, rows_of
from tests.grow.test_mixed_forest import store_of
from tests.grow.test_passes import WHOLE, parts, ways
from tests.strategies import Data, configs, mixed_tables, tables
from tests.thorough import cases, examples


@given(
    data=st.one_of(tables(), mixed_tables(), mixed_tables()),
    config=configs(),
    splitter=st.sampled_from(["best", "random"]),
    way=ways(),
    numbers=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=examples(140))
def test_passes__give_the_files_of_growing_in_memory(
    data: Data, config: TrainConfig, splitter: str, way: GrowPlan, numbers: bool, weighted: bool, seed: int
) -> None:
    config = replace(config, splitter=splitter)
    with tempfile.TemporaryDirectory() as folder:
        store, config = store_of(data, config, Path(folder), numbers=numbers, weighted=weighted, seed=seed)
        assert parts(store, config, way) == parts(store, config, WHOLE)


@pytest.mark.parametrize("splitter", ["best", "random"])
@pytest.mark.parametrize("cells", [["a", "b"], [1.0, None]], ids=["levels", "missing"])
def test_passes__of_two_sides_as_heavy_as_each_other(tmp_path: Path, cells: list[Any], splitter: str) -> None:
    """One of them lists the levels, or is the default."""
    frame = pl.DataFrame({"x": cells * 20, "y": ["no", "yes"] * 20})
    store = bigforest.encode_store(frame, tmp_path / "s", target="y")
    config = TrainConfig.of(trees=1, bootstrap=False, splitter=splitter).for_task("classification")
    way = GrowPlan(1, MemoryLimits(rows=0, collects=10, cells=8, room=500), 1, 0)
    assert parts(store, config, way) == parts(store, config, WHOLE)


def table(rows: int, seed: int = 5) -> pl.DataFrame:
    """Few and many levels and values, some missing for a reason, and what they tell: a number, classes, two classes."""
    random = np.random.default_rng(seed)
    zone, place = random.integers(0, 200, rows), (random.random(rows) ** 3 * 20_000).astype(np.int64)
    delay = random.gamma(2.0, 10.0, rows)
    late = zone % 7 + np.sin(place) * 3 + delay / 20 + random.normal(0, 1.0, rows)
    frame = pl.DataFrame(
        {
            "zone": zone,
            "place": place,
            "delay": delay,
            "hour": random.integers(0, 24, rows).astype(np.int8),
            "noise": random.normal(size=rows),
            "w": random.choice([0.5, 1.0, 2.0, 7.3], rows),
            "number": np.round(late, 3),
            "kind": np.digitize(late, np.quantile(late, [0.2, 0.5, 0.9])),
            "two": late > 5.0,
        }
    )
    gone = pl.Series(random.random(rows) < 0.3)
    return frame.with_columns(
        pl.when(gone).then(None).otherwise("delay").alias("delay"),
        pl.when(gone.reverse() & (pl.col("number") > 4)).then(None).otherwise("hour").alias("hour"),
        pl.when(gone.reverse()).then(None).otherwise("zone").alias("zone"),
    )


TARGETS = ["number", "kind", "two"]


def options_of(target: str, weighted: bool) -> dict[str, Any]:
    others = [name for name in (*TARGETS, "w") if name != target and (name != "w" or not weighted)]
    return {
        "target": target,
        "exclude": others,
        "categories": ["zone", "place"],
        "weight": "w" if weighted else None,
    }


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(
    ("target", "weighted", "splitter"),
    cases(
        [
            *(("number", True, "best"), ("kind", True, "random")),
            *(("kind", True, "best"), ("number", False, "best"), ("two", False, "best")),
            *(("number", False, "random"), ("two", False, "random")),
        ],
        quick=2,
    ),
)
def test_passes__over_several_blocks(tmp_path: Path, target: str, weighted: bool, splitter: str) -> None:
    options = options_of(target, weighted)
    store = bigforest.encode_store(table(140_000), tmp_path / "s", **options)
    own: dict[str, Any] = {"weight": options["weight"], "categories": tuple(options["categories"])}
    config = TrainConfig(trees=2, seed=7, mtry=3, max_depth=9, splitter=splitter, **own)  # type: ignore[arg-type]
    config = config.for_task(store.spec.target.task)
    whole = parts(store, config, WHOLE)
    tight = MemoryLimits(rows=40_000, collects=6_000, cells=1 << 10, room=1 << 13)
    if splitter == "best":
        roomy = MemoryLimits(rows=20_000, collects=1 << 20, cells=1 << 18, room=1 << 22)
        assert parts(store, config, GrowPlan(2, roomy, 2, 0), threads=2) == whole
    assert parts(store, config, GrowPlan(3, tight, 1, 0), threads=3) == whole


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(
    ("target", "splitter"), cases([("number", "best"), ("kind", "best"), ("kind", "random")], quick=1)
)
def test_train__within_a_budget(tmp_path: Path, target: str, splitter: str) -> None:
    rows = 150_000
    frame = table(rows).with_columns(pl.col("place") % 300, pl.col("w").replace(7.3, 7.5))  # no wide weights
    store = bigforest.encode_store(frame, tmp_path / "s", **options_of(target, True))
    options: dict[str, Any] = {"trees": 2, "seed": 3, "min_split": rows // 10, "threads": 2, "shrink": "off"}
    options["splitter"] = splitter
    plan = bigforest.plan_training(store, memory="2GB", **options)
    memory = max(stage.need.smallest for stage in plan.stages)
    plan = bigforest.plan_training(store, memory=memory, **options)
    assert next(stage for stage in plan.stages if stage.stage == "grow").need.passes > 1
    for name, budget in (("whole", None), ("passes", memory)):
        bigforest.train(store, out=tmp_path / name, memory=budget, scheduler="threads", **options)
    assert_equal(rows_of(tmp_path / "passes"), rows_of(tmp_path / "whole"))


# What fits.


def shape(**extras: Any) -> Shape:
    return Shape(
        30_000_000, (4, 4, 2, 1), 40_000_000, 1 if extras.get("regression") else 2, extras=TableTraits(**extras)
    )


CONFIG = TrainConfig(trees=4)


def test_choose_way__a_histogram_of_all_levels_has_to_fit() -> None:
    few, many = (
        grow_estimate(shape(non_plain_features=("zip",), category=levels), CONFIG, Resources(memory=10**12)).smallest
        for levels in (10, 2_000_000)
    )
    assert many - few > 100 * 2_000_000
    limits = choose_grow_plan(
        shape(non_plain_features=("zip",), category=2_000_000), CONFIG, Resources(threads=1, memory=many)
    ).limits
    assert limits is not None
    assert limits.room >= 2 * 2_000_000


def test_check_rows__more_than_items_can_number() -> None:
    check_rows(2**32 - 1)
    with pytest.raises(DataError, match=f"the table has {2**32} rows and at most {2**32 - 1} can grow in memory"):
        check_rows(2**32)


@pytest.mark.parametrize(
    ("draws", "bag", "most"),
    [
        (2**32, {}, f"{2**32 - 1} are possible"),
        (2**31, {"in_memory": True}, f"{2**31 - 1} can grow in memory"),
        (2**31, {"category": True}, f"{2**31 - 1} are possible with categories"),
    ],
)
def test_check_draws__too_many_rows(draws: int, bag: dict[str, bool], most: str) -> None:
    bag = {"in_memory": False, "category": False} | bag
    check_draws(draws - 1, **bag)
    with pytest.raises(DataError, match=f"a bag has {draws} rows and at most {most}"):
        check_draws(draws, **bag)
