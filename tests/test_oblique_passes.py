"""Oblique trees grown by passes are those that grow in memory, whatever fits in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings

from bigforest.config import TrainConfig
from bigforest.grow.need import Way
from tests.grown import frame_of, store_of
from tests.strategies import Data, sparse_configs, tables
from tests.test_passes import WHOLE, parts, ways


@given(data=tables(), config=sparse_configs(), way=ways())
@settings(deadline=None, max_examples=100)
def test_sparse_passes__give_the_files_of_growing_in_memory(data: Data, config: TrainConfig, way: Way) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder))
        assert parts(store, config, way) == parts(store, config, WHOLE)
