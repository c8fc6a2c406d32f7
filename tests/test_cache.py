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
