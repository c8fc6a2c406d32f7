"""Passes without the calls of the system that Windows and macOS lack: their fallbacks give the same forest."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

# Names that Windows lacks, and posix_fadvise and O_DIRECT, which macOS lacks too.
FUNCTIONS = """
fork forkpty register_at_fork preadv pread pwritev pwrite posix_fadvise posix_fallocate getuid geteuid sysconf
sched_getaffinity mkfifo O_DIRECT O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_CLOEXEC
"""
MODULES = "fcntl resource pwd grp termios"
WITHOUT = """
import ctypes, importlib, os, shutil, signal, sys
import numba, numpy, polars, pyarrow, pyarrow.parquet

functions, modules, work = sys.argv[1].split(), sys.argv[2].split(), sys.argv[3]
for name in functions:
    if hasattr(os, name):
        delattr(os, name)
os.supports_dir_fd = set()
importlib.reload(shutil)  # removes folders in the way of a system without these calls
for name in modules:
    sys.modules[name] = None
del signal.SIGHUP
plain = ctypes.CDLL

def library(name, *given, **named):
    if name is None:
        raise TypeError("bad argument type for built-in operation")
    return plain(name, *given, **named)

ctypes.CDLL = library
names = {}
exec(work, names)
print(names["digest"])
"""
WORK = """
import hashlib
import bigforest, numpy, polars

draw = numpy.random.default_rng(3)
rows = 66_000  # more than a block, else there are no passes
table = polars.DataFrame({f"x{k}": draw.normal(size=rows) for k in range(3)} | {"y": draw.integers(0, 2, rows)})
table.write_parquet("table.parquet")
options = {"task": "classification", "trees": 2, "threads": 1}
memory = bigforest.plan_training("table.parquet", "y", **options).smallest
plan = bigforest.plan_training("table.parquet", "y", **options, memory=memory)
assert any(stage.stage == "grow" and stage.need.passes > 1 for stage in plan.stages)
forest = bigforest.train("table.parquet", "y", **options, memory=memory, out="a.forest")
bigforest.predict_file(forest, "table.parquet", "found.parquet", proba=True)
explained = forest.explain("table.parquet", parts="permutation")["permutation"]
frames = (forest.nodes.collect(), forest.oob.rows.lazy().collect(), polars.read_parquet("found.parquet"), explained)
digest = hashlib.sha256(repr([frame.rows() for frame in frames]).encode()).hexdigest()
"""


def test_passes__without_calls_that_other_systems_lack(tmp_path: Path) -> None:
    """The digests of a training by passes, its predictions and an explanation are equal."""
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    with chdir(tmp_path / "with"):
        here: dict[str, Any] = {}
        exec(WORK, here)
    folder = tmp_path / "without"
    command = [sys.executable, "-c", WITHOUT, FUNCTIONS, MODULES, WORK]
    # A temporary folder of its own: other processes remove folders without a lock.
    environ = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == here["digest"]
