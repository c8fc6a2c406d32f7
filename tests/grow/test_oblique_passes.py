"""Oblique trees grown by passes are those that grow in memory, whatever fits in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.errors import FormatError
from bigforest.forest.ranks import store_with_ranks
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core import passes
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.grow.out_of_core.probes import Direction, Histogram, Spans
from bigforest.options.train_config import TrainConfig
from tests.grow.test_mixed_forest import store_of as mixed_store
from tests.grow.test_oblique_numbers import without_classes
from tests.grow.test_passes import WHOLE, flip, parts, ways, wide_table
from tests.grown import store_of
from tests.strategies import EXTREMES, Data, rotation_configs, sparse_configs, tables
from tests.thorough import examples


@given(
    data=tables(max_rows=30, max_features=4),
    config=st.one_of(sparse_configs(), sparse_configs(), rotation_configs()),
    way=ways(),
    ranks=st.booleans(),
    bins=st.sampled_from(["exact", 3]),
    numbers=st.booleans(),
    weighted=st.booleans(),
)
@settings(deadline=None, max_examples=examples(60))
def test_passes__give_the_files_of_growing_in_memory(
    data: Data, config: TrainConfig, way: GrowPlan, ranks: bool, bins: str | int, numbers: bool, weighted: bool
) -> None:
    config = replace(without_classes(config) if numbers else config, trees=2, max_bins=bins)
    with tempfile.TemporaryDirectory() as folder:
        store, config = mixed_store(data, config, Path(folder), numbers=numbers, weighted=weighted, seed=way.group)
        store = store_with_ranks(store) if ranks else store
        assert parts(store, config, way) == parts(store, config, WHOLE)


SPARSE = {"family": "sparse-oblique"}
MEANS = {**SPARSE, "mean_difference": "all", "mean_difference_scope": "node", "projection_kind": "gaussian"}
SOME_PRINCIPAL = {"family": "rotation", "rotation": "pca", "axes_from": ("few", "smooth")}
OF_CLASSES = {"family": "rotation", "rotation": "pca-classes", "bootstrap": True, "axis_features": 2}
NUMBERS = {"task": "regression"}


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize("options", [MEANS, OF_CLASSES, SPARSE | NUMBERS, SOME_PRINCIPAL | NUMBERS])
def test_passes__over_several_blocks(tmp_path: Path, options: dict[str, Any]) -> None:
    store = bigforest.encode_store(wide_table(140_000, 3), tmp_path / "s", target="y", task=options.get("task"))
    config = TrainConfig.of(trees=2, seed=7, max_depth=6, **options)
    tight = MemoryLimits(rows=40_000, collects=6_000, cells=1 << 10, room=1 << 15)
    assert parts(store, config, GrowPlan(2, tight, 2, 0), threads=2) == parts(store, config, WHOLE)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(("family", "task"), [("sparse-oblique", "regression"), ("rotation", "classification")])
def test_train__under_a_budget_gives_the_same_forest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, task: str
) -> None:
    table = wide_table(4_000, 2)
    options: dict[str, Any] = {"target": "y", "family": family, "task": task, "trees": 3, "threads": 1}
    whole = bigforest.train(table, out=tmp_path / "whole", **options)
    limits = MemoryLimits(rows=500, collects=1_000, cells=1 << 8, room=1 << 12)
    monkeypatch.setattr("bigforest.grow.forest.choose_grow_plan", lambda *_: GrowPlan(1, limits, 2, 0))
    passes = bigforest.train(table, out=tmp_path / "passes", memory="2GB", scratch=tmp_path, **options)
    assert passes.nodes.collect().equals(whole.nodes.collect())
    assert passes.oob.metrics.equals(whole.oob.metrics)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["passes", "whole"]  # nothing is left in scratch


@pytest.mark.parametrize("pattern", ["values-*.4", "rows-*.bin", "nodes-*.bin", "subtree-*.bin"])
@pytest.mark.parametrize("place", [3, 500, -1])
def test_scratch__refuses_a_flipped_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, place: int
) -> None:
    store = store_of(wide_table(500, 2), tmp_path)
    readers = {"values": "count_bags", "rows": "grow_subtree_task", "nodes": "spill", "subtree": "write_assemblies"}
    read: Callable[..., Any] = getattr(passes, readers[pattern.split("-")[0]])
    done: list[Path] = []

    def damage(*arguments: Any) -> Any:
        if not done:
            done.append(max(tmp_path.rglob(pattern), key=lambda path: path.stat().st_size))
            flip(done[0], place)
        return read(*arguments)

    monkeypatch.setattr(passes, read.__name__, damage)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = TrainConfig.of(family="sparse-oblique", trees=1)
    with pytest.raises(FormatError, match=r"damaged|checksum"):
        parts(store, config, GrowPlan(1, MemoryLimits(50, 100, 64, 1000), 3, 0))


finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(
    ends=st.lists(st.one_of(finite, st.sampled_from(EXTREMES)), min_size=1, max_size=30),
    most=st.integers(2, 40),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=examples(200))
def test_band__cuts_any_range_into_buckets_that_hold_every_value(ends: list[float], most: int, seed: int) -> None:
    values = np.sort(np.array(ends) + 0.0)
    spans = Spans(values[:1], values[-1:])
    band = Histogram.on(0, Direction(np.zeros(1, np.uint32), np.ones(1)), spans, most)
    rounds = 0
    while True:
        assert band.buckets <= most
        assert band.edge[0] == band.low <= values[0]
        assert values[-1] <= band.ends()[-1] == band.high
        assert (band.edge <= band.ends()).all()
        assert (band.edge[1:] > band.ends()[:-1]).all()
        found = band.bucket(values)
        assert (band.edge[found] <= values).all()
        assert (values <= band.ends()[found]).all()
        several = np.flatnonzero((band.starts() < band.ends())[found])
        if not several.size:
            break
        chosen = found[several[seed % several.size]]
        values = values[found == chosen]
        band = band.within(int(chosen), most, np.zeros(2, np.int64))
        rounds += 1
        assert rounds <= 66  # halved each time: the bits of a float64, after buckets of equal width


@given(
    terms=st.lists(st.tuples(finite, finite, finite), min_size=2, max_size=6),
    share=st.lists(st.integers(0, 4), min_size=6, max_size=6),
)
@settings(deadline=None, max_examples=examples(200))
def test_direction__bounds_all_projections(terms: list[tuple[float, float, float]], share: list[int]) -> None:
    weight, one, two = (np.array(column) for column in zip(*terms, strict=True))
    low, high = np.minimum(one, two), np.maximum(one, two)
    least, most = Direction(np.arange(weight.size, dtype=np.uint32), weight).range(Spans(low, high))
    with np.errstate(all="ignore"):
        for picks in (share[: weight.size], np.where(weight > 0, 4, 0), np.where(weight > 0, 0, 4)):
            value = np.choose(picks, [low, np.clip(low / 2 + high / 2, low, high), one, two, high])
            projection = 0.0
            for w, v in zip(weight, value, strict=True):
                projection += w * v
            assert not np.isfinite(projection) or least <= projection <= most


def test_range__bounds_projections_however_they_are_rounded() -> None:
    draw = np.random.default_rng(5)
    for _ in range(100):
        values, weight = draw.normal(size=12), draw.normal(size=12)
        least, most = Direction(np.arange(12, dtype=np.uint32), weight).range(Spans(values, values))
        projection = 0.0
        for each, value in zip(weight.tolist(), values.tolist(), strict=True):
            projection += each * value
        assert least <= projection <= most
