"""A store that is cut short while it is trained on: the run ends with a message, not by a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.kernels.compiler.mapped_files import GuardedMap
from tests.thorough import cases

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the signal is not handled")

# Trains on a store, of which a file is cut short right after it was last found to be as it was.
TRAIN = """
import os
import sys

from bigforest.store.store import Store
from cli.app import main

look = Store.check_unchanged
file = sys.argv.pop(1)


def cut(store):
    look(store)
    os.truncate(store.path / file, 64)


Store.check_unchanged = cut
main()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every file that training reads."""
    draw, rows = np.random.default_rng(0), 80_000
    table = pl.DataFrame(
        {
            "few": draw.integers(0, 9, rows),
            "many": draw.normal(size=rows),
            "hole": [None if n % 7 == 0 else float(n % 500) for n in range(rows)],
            "name": pl.Series(draw.integers(0, 300, rows)).cast(pl.String),
            "g": draw.integers(0, 9_000, rows),
            "w": draw.integers(1, 9, rows),
            "y": [None if n % 11 == 0 else n % 3 for n in range(rows)],
        }
    )
    out = tmp_path_factory.mktemp("store") / "t.store"
    bigforest.encode_store(table, out, target="y", weight="w", group="g")
    return out


@pytest.mark.parametrize(
    "file",
    cases(
        ["codes-u16.bin", "target.bin", "codes-u8.bin", "codes-u32.bin", "low.bin", "weight.bin", "groups.bin"], quick=2
    ),
)
def test_train__a_store_that_is_cut_short_says_so(store: Path, tmp_path: Path, file: str) -> None:
    copy = tmp_path / "t.store"
    subprocess.run(["cp", "-r", store, copy], check=True)
    arguments = ["train", copy, "--out", "f.forest", "--trees", "3", "--threads", "2", "--max-depth", "6"]
    command = [sys.executable, "-c", TRAIN, file, *arguments, "--group", "g", "--weight", "w"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 2, (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(lines) == 1
    assert f"{copy / file} was cut short while it was read" in lines[0]
    assert not (tmp_path / "f.forest").exists()


def test_guarded_map__zeros_from_where_the_file_ends(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    numbers = np.arange(1, page + 1)
    numbers.tofile(tmp_path / "numbers")
    kept, other = (GuardedMap(np.memmap(tmp_path / "numbers", numbers.dtype, "r")) for _ in range(2))
    assert not kept.was_lost()
    os.truncate(tmp_path / "numbers", 3 * page)
    expected = np.where(np.arange(page) < 3 * page // numbers.itemsize, numbers, 0)
    assert np.array_equal(kept.array, expected)
    assert kept.was_lost()
    assert not other.was_lost()  # nobody has read what it lost


@pytest.mark.parametrize("handler", ["", "import faulthandler; faulthandler.enable()\n"])
def test_guarded_map__other_bus_errors_end_the_process(tmp_path: Path, handler: str) -> None:
    np.arange(1 << 12).tofile(tmp_path / "numbers")
    code = f"""{handler}
import os
import numpy as np
from bigforest.kernels.compiler.mapped_files import GuardedMap
kept, other = (np.memmap("numbers", np.int64, "r") for _ in range(2))
kept = GuardedMap(kept)
os.truncate("numbers", 0)
assert kept.array[-1] == 0
print("read", flush=True)
other[0]
"""
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "read\n")
    assert ("Fatal Python error: Bus error" in done.stderr) == bool(handler)
