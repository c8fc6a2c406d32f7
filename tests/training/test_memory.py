"""Measured against projected memory, in processes of their own; /proc/self/smaps_rollup is Linux's."""

from __future__ import annotations

import resource
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
    sys.platform != "linux" or numba.config.DISABLE_JIT, reason="needs smaps_rollup and compiled kernels"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a store and a forest whose votes take 140 MB."""
    home = tmp_path_factory.mktemp("measured")
    random = np.random.default_rng(1)
    rows, classes = 70_000, 250
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


def test_keep_freed__arrays_of_a_tree_find_the_pages_of_the_last() -> None:
    code = """
import resource, sys
import numpy as np
from bigforest.planning.memory import keep_freed, release_freed
way = sys.argv[1]
{"kept": keep_freed, "large kept": lambda: keep_freed(16 << 20)}.get(way, release_freed)()
size, count = (4_000_000, 2) if "large" in way else (1_000_000, 8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    arrays = [np.ones(size, np.uint8) for _ in range(count)]
    del arrays
    if way == "given back":
        release_freed()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = {
        way: int(subprocess.run([sys.executable, "-c", code, way], cwd=ROOT, capture_output=True, check=True).stdout)
        for way in ("kept", "kept once given back", "given back", "large kept", "large")
    }
    pages = 8_000_000 // resource.getpagesize()
    assert faults["kept"] < 2 * pages
    assert faults["kept once given back"] < 2 * pages
    assert faults["given back"] > 10 * pages
    assert faults["large kept"] < 2 * pages
    assert faults["large"] > 10 * pages
