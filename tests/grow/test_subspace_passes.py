"""Trees in subspaces grown by passes are those that grow in memory, whatever fits in memory."""

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
from bigforest.execution.resources import Resources
from bigforest.forest.parts import part_paths
from bigforest.grow.families.projection import _width_of, decoded_bytes
from bigforest.grow.memory import GrowPlan, grow_estimate
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.options.train_config import TrainConfig
from tests.grow.test_passes import WHOLE, parts, ways, wide_table
from tests.grow.test_subspace import most_trees
from tests.grown import frame_of, store_of
from tests.strategies import Data, binary_tables, subspace_configs, tables
from tests.thorough import examples

CAP: dict[str, Any] = {"family": "subspace-cap"}
PERCEPTRON: dict[str, Any] = {"family": "subspace-perceptron", "max_epochs": 9}
compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


@given(data=st.one_of(tables(max_rows=30, max_features=4), binary_tables(max_rows=40)), way=ways(), draw=st.data())
@settings(deadline=None, max_examples=examples(60))
def test_passes__give_the_files_of_growing_in_memory(data: Data, way: GrowPlan, draw: st.DataObject) -> None:
    features = data.values.shape[1]
    config = draw.draw(subspace_configs(features))
    config = replace(config, trees=most_trees(config, features, 4))
    assert way.limits is not None
    way = replace(way, limits=way.limits._replace(training=draw.draw(st.sampled_from([0, 400, 1 << 20]))))
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder), draw.draw(st.sampled_from(["exact", 3])))
        assert parts(store, config, way) == parts(store, config, WHOLE)


def wide_bits(rows: int) -> pl.DataFrame:
    """Zeros and ones in two words of columns, and a class that some of them tell."""
    draw = np.random.default_rng(5)
    bits = draw.random((rows, 70)) < 0.4
    raw = bits[:, :6].sum(axis=1) + draw.integers(0, 2, rows)
    return pl.DataFrame({f"x{i}": column for i, column in enumerate(bits.T)}).with_columns(y=pl.Series(raw % 4))


@pytest.mark.parametrize(("constant", "bits"), [(7.0, True), (7.5, False), (-1.0, False), (300.0, False)])
def test_bits__take_a_byte(constant: float, bits: bool, tmp_path: Path) -> None:
    """Values of a byte: otherwise the memory of decoded values would be planned too small."""
    frame = wide_bits(300).with_columns(x70=pl.lit(constant))
    store = store_of(frame, tmp_path)
    widths = [_width_of(store.low(feature), *store.ends(feature)) for feature in range(71)]
    assert (decoded_bytes(store.shape) == 1) == (max(widths) == 1) == bits


@compiled
@pytest.mark.parametrize(
    ("family", "per", "bits"), [("cap", "node", False), ("cap", "tree", True), ("perceptron", "tree", False)]
)
def test_passes__over_several_blocks(tmp_path: Path, family: str, per: str, bits: bool) -> None:
    store = store_of(wide_bits(140_000) if bits else wide_table(140_000, 3), tmp_path)
    assert store.shape.bits == bits
    family = f"subspace-{family}"
    epochs = {"max_epochs": 2} if family == "subspace-perceptron" else {}
    config = TrainConfig.of(
        family=family, trees=3, seed=7, max_depth=5, subspace=20 if bits else 2, subspace_per=per, **epochs
    )
    tight = MemoryLimits(rows=40_000, collects=1, cells=4, room=1, training=2_000_000)
    assert parts(store, config, GrowPlan(2, tight, 2, 0), threads=2) == parts(store, config, WHOLE)


@compiled
@pytest.mark.parametrize("options", [CAP, PERCEPTRON], ids=["cap", "perceptron"])
def test_train__under_a_budget_and_on(tmp_path: Path, options: dict[str, Any]) -> None:
    """A budget below what trees take in memory, trees that are added under it, and no budget."""
    store = bigforest.encode_store(wide_bits(20_000), tmp_path / "s", target="y")
    options = {**options, "subspace": 60, "threads": 1, "min_leaf": 1}
    config = TrainConfig.of(**{name: value for name, value in options.items() if name != "threads"}, trees=2)
    need = grow_estimate(store.shape, config, Resources(threads=1))
    assert need.smallest < need.memory
    grown = bigforest.train(store, out=tmp_path / "grown", memory=need.smallest, trees=1, **options)
    bigforest.train(resume=grown.directory, trees=2, memory=need.smallest, threads=1)
    whole = bigforest.train(store, out=tmp_path / "whole", trees=2, **options)
    contents = [[part.read_bytes() for part in part_paths(forest)] for forest in (grown.directory, whole.directory)]
    assert contents[0] == contents[1]
