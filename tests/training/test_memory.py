"""Measured against projected memory, in processes of their own; /proc/self/status is Linux's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.encode.encode import encode_store
from tests.thorough import cases

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or numba.config.DISABLE_JIT, reason="needs /proc/self/status and compiled kernels"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a store and a forest whose votes take 180 MB."""
    home = tmp_path_factory.mktemp("measured")
    random = np.random.default_rng(1)
    rows, classes = 90_000, 250
    frame = pl.DataFrame({"x": random.normal(size=rows), "y": random.integers(0, classes, rows)})
    frame.write_parquet(home / "table.parquet", row_group_size=20_000)
    store = encode_store(frame, home / "store", target="y", task="classification")
    bigforest.train(store, trees=3, max_depth=3, out=home / "forest", threads=2)
    return home


def _measure(stage: str, home: Path, memory: int | None) -> tuple[int, int, int]:
    """Peak, projected, and the smallest budget, in bytes."""
    data = home / ("store" if stage == "oob" else "table.parquet")
    command = [sys.executable, "-m", "tests.measured", stage, data, home / "forest", memory or "none"]
    run = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=True)
    peak, projected, smallest = map(int, run.stdout.split())
    return peak, projected, smallest


@pytest.mark.parametrize("stage", cases(["oob", "predict"], quick=1))
def test_need__is_not_exceeded(stage: str, home: Path) -> None:
    free, projected, smallest = _measure(stage, home, None)
    assert free <= projected
    memory = smallest + 10_000_000
    peak, projected, _ = _measure(stage, home, memory)
    assert peak <= projected <= memory
    assert free > memory  # without the budget it takes more
