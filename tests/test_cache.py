"""The compile cache helps where it can and never stands in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALL = """
import numpy as np
from bigforest.kernels.rng import PURPOSE_BAG, stream_key
from bigforest.kernels import jit
one = np.uint64(1)
print(int(stream_key(one, PURPOSE_BAG, one, one)), sum(stream_key.stats.cache_hits.values()))
"""

needs_compiler = pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")


def call(folder: Path) -> tuple[int, int]:
    """The key computed by a fresh process with its cache in `folder`, and how often the cache served."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", CALL], env=environment, capture_output=True, text=True, check=True)
    key, hits = done.stdout.split()
    return int(key), int(hits)


@needs_compiler
def test_cache__serves_the_second_process(tmp_path: Path) -> None:
    first, hits = call(tmp_path)
    assert hits == 0
    assert call(tmp_path) == (first, 1)


@needs_compiler
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_cache__damaged_files_cost_a_compilation(tmp_path: Path, suffix: str) -> None:
    first, _ = call(tmp_path)
    damaged = list(tmp_path.rglob(f"*stream_key*{suffix}"))
    assert damaged
    for path in damaged:
        path.write_bytes(b"\x80\x04cnowhere\nNothing\n.")
    assert call(tmp_path) == (first, 0)
    assert call(tmp_path) == (first, 1)  # and are mended by it


@needs_compiler
def test_cache__a_folder_that_is_a_file_is_passed_over(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert call(blocked)[0] == call(tmp_path)[0]


COMPILED = """
import sys
from pathlib import Path
import polars as pl
import bigforest
from bigforest.config import TrainConfig
from bigforest.grow.forest import compile_for
from bigforest.grow.whole import grow_tree
from bigforest.kernels.grow import grow_while_room
from bigforest.kernels.values import fill_values

plain = pl.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [4.0, 1.0, 2.0, 2.5]})
mixed = plain.with_columns(c=pl.Series(list("abab")))
classes, numbers = pl.Series("y", [0, 1, 0, 1]), pl.Series("y", [0.5, 1.0, 0.25, 1.5])
for place, (table, target, options) in enumerate([
    (plain, classes, {}),
    (mixed, classes, {}),
    (plain, numbers, {}),
    (mixed, numbers, {"min_leaf": 1}),
    (plain, classes, {"splitter": "random"}),
    (mixed, numbers, {"splitter": "random"}),
    (plain, classes, {"family": "sparse-oblique"}),
    (plain, classes, {"family": "rotation"}),
    (plain, classes, {"family": "subspace-cap"}),
    (plain, classes, {"family": "subspace-perceptron"}),
]):
    store = bigforest.encode_store(table.with_columns(target), Path(sys.argv[1]) / str(place), target="y")
    config = TrainConfig.of(trees=1, **options).settled(store.spec.target.task)
    compile_for(store.shape.extras, config, False, None)
    before = [len(kernel.signatures) for kernel in (grow_while_room, fill_values)]
    grow_tree(store, config, 0)
    after = [len(kernel.signatures) for kernel in (grow_while_room, fill_values)]
    assert before == after, (options, before, after)
"""


@needs_compiler
def test_compile_for__leaves_nothing_to_compile(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", COMPILED, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
