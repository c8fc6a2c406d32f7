"""Trees in subspaces grown by passes are those that grow in memory, whatever fits in memory."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigforest.config import TrainConfig
from bigforest.grow.need import Way
from bigforest.grow.top import Limits
from tests.grown import frame_of, store_of
from tests.strategies import Data, binary_tables, subspace_configs, tables
from tests.test_passes import WHOLE, parts, ways, wide_table

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")


@given(data=st.one_of(tables(max_rows=30, max_features=4), binary_tables(max_rows=40)), way=ways(), draw=st.data())
@settings(deadline=None, max_examples=60)
def test_passes__give_the_files_of_growing_in_memory(data: Data, way: Way, draw: st.DataObject) -> None:
    features = data.values.shape[1]
    config = draw.draw(subspace_configs(features).filter(lambda config: config.family == "subspace-cap"))
    size = config.subspace_size(features)
    trees = 1 if size == features else 2
    config = replace(config, trees=trees)
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder), draw.draw(st.sampled_from(["exact", 3])))
        assert parts(store, config, way) == parts(store, config, WHOLE)


def wide_bits(rows: int) -> pl.DataFrame:
    """Zeros and ones in two words of columns, and a class that some of them tell."""
    draw = np.random.default_rng(5)
    bits = draw.random((rows, 70)) < 0.4
    raw = bits[:, :6].sum(axis=1) + draw.integers(0, 2, rows)
    return pl.DataFrame({f"x{i}": column for i, column in enumerate(bits.T)}).with_columns(y=pl.Series(raw % 4))


@compiled
@pytest.mark.parametrize("per", ["tree", "node"])
@pytest.mark.parametrize("bits", [False, True])
def test_passes__over_several_blocks(tmp_path: Path, per: str, bits: bool) -> None:
    store = store_of(wide_bits(140_000) if bits else wide_table(140_000, 3), tmp_path)
    assert store.shape.bits == bits
    config = TrainConfig.of(
        family="subspace-cap", trees=3, seed=7, max_depth=6, subspace=20 if bits else 2, subspace_per=per
    )
    tight = Limits(rows=40_000, keys=1, cells=4, room=1)
    assert parts(store, config, Way(2, tight, 2, 0), threads=2) == parts(store, config, WHOLE)
