"""The budget of memory is real: a table of four times the memory there is trains in it, and cannot be read in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigforest
from benchmarks.cgroup import evict, memory_limit, run_within, was_killed

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")

MB = 10**6
LIMIT = 440 * MB
BUDGET = 380 * MB
ROWS, SMOOTH, COARSE = 4_600_000, 12, 36
OPTIONS = {"trees": 2, "max_depth": 12, "min_leaf": 20, "seed": 3}
SECONDS = 600

TRAIN = f"""
import sys
import bigforest
from tests.measured import Peak

peak = Peak()
peak.start()
bigforest.train(sys.argv[1], out=sys.argv[2], memory={BUDGET}, threads=2, **{OPTIONS!r})
print(peak.bytes)
"""
COMPILE = f"""
import sys
from pathlib import Path
import bigforest
from bigforest.config import TrainConfig
from bigforest.grow.forest import compile_for

folder = Path(sys.argv[2])
store = bigforest.encode_store(sys.argv[1], folder / "small.store")
bigforest.train(store, out=folder / "small.forest", **{OPTIONS!r})
compile_for(store.shape.extras, TrainConfig(**{OPTIONS!r}), True, folder)
"""
READ = "import sys, polars; print(polars.read_parquet(sys.argv[1]).height)"


def write_table(path: Path, rows: int) -> None:
    """Float64 columns, some of distinct values and some of a thousand, made in pieces."""
    draw = np.random.default_rng(5)
    names = [f"x{i}" for i in range(SMOOTH + COARSE)]
    schema = pa.schema([*((name, pa.float64()) for name in names), ("target", pa.int8())])
    with pq.ParquetWriter(path, schema, compression="lz4") as writer:
        for first in range(0, rows, 200_000):
            here = min(200_000, rows - first)
            columns = [draw.standard_normal(here) for _ in range(SMOOTH)]
            columns += [draw.integers(0, 1000, here).astype(np.float64) for _ in range(COARSE)]
            signal = columns[0] + columns[1] + columns[SMOOTH] / 500 + draw.normal(0, 0.5, here)
            writer.write_table(pa.table([*columns, (signal > 1).astype(np.int8)], schema=schema))


def compile_first(folder: Path) -> None:
    """Let another process compile all that the run needs, by passes too: that takes memory of its own, once."""
    write_table(folder / "small.parquet", 2_000)
    command = [sys.executable, "-c", COMPILE, str(folder / "small.parquet"), str(folder)]
    subprocess.run(command, cwd=Path(__file__).resolve().parent.parent, check=True)


def test_train__within_a_quarter_of_the_table(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    write_table(table, ROWS)
    assert ROWS * (SMOOTH + COARSE) * 8 >= 4 * LIMIT
    compile_first(tmp_path)
    plan = bigforest.plan_training(table, memory=BUDGET, threads=2, out=tmp_path / "f", **OPTIONS)
    projected = max(stage.need.memory for stage in plan.stages)
    assert plan.fits
    assert next(stage for stage in plan.stages if stage.stage == "grow").need.passes > 1
    with memory_limit(LIMIT) as group:
        if group is None:
            pytest.skip("no control group can be made here")
        evict(table)
        control = run_within(group, ["-c", READ, str(table)], SECONDS)
        assert was_killed(control), control.stdout + control.stderr
        evict(table)
        run = run_within(group, ["-c", TRAIN, str(table), str(tmp_path / "f")], SECONDS)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) <= projected <= BUDGET
    forest = bigforest.read_forest(tmp_path / "f")
    assert forest.trees == OPTIONS["trees"]
    assert forest.oob.error < 0.25
