"""What encoding says it needs is what it takes, and a budget too small is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigforest.encode.memory import encode_estimate, plan_encode
from bigforest.errors import ConfigError
from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import BASE_BYTES, Shape
from tests.encode.test_encode import content, encoded

ROWS = 2_500_000
MB = 1_000_000
# Most bytes of what is loaded at the first call only, which are part of BASE_BYTES.
LOADED = 4 * MB
PEAK = """
import sys, threading, time
from pathlib import Path
import polars as pl
def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024
peak, ended = 0, threading.Event()
def watch():
    global peak
    while not ended.is_set():
        peak = max(peak, anonymous())
        time.sleep(0.005)
from bigforest.encode.encode import encode
from bigforest.encode.roles import column_roles
from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig
from bigforest.planning.sizes import USUAL, Limits
from bigforest.source.open import open_source
data, out, memory, threads, max_bins = sys.argv[1:]
scratch = Path(out).parent
config = TrainConfig(max_bins=max_bins if max_bins == "exact" else int(max_bins))
def write(data, out, resources):
    source = open_source(data, scratch=scratch)
    encode(source, column_roles(source, "y", (), config), out, config=config, resources=resources, listener=silent)
few = pl.read_parquet(data, n_rows=1000)
for limits in (USUAL, Limits(presort_rows=100, slice_rows=300)):  # compiles the kernels, where they are not
    write(few, Path(f"{out}-{limits.presort_rows}"), Resources(threads=1, scratch=scratch, limits=limits))
resources = Resources(memory=int(memory), threads=int(threads), scratch=scratch)
before = anonymous()
watcher = threading.Thread(target=watch)
watcher.start()
write(data, Path(out), resources)
ended.set()
watcher.join()
print(peak - before)
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two wide columns and a narrow one, in one large row group, and in a folder `small` of small files."""
    random = np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "a": random.standard_normal(ROWS),
            "b": random.standard_normal(ROWS, dtype=np.float32),
            "c": random.integers(0, 100, ROWS, dtype=np.uint8),
            "y": random.integers(0, 2, ROWS, dtype=np.uint8),
        }
    )
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    frame.write_parquet(path, row_group_size=ROWS)
    (path.parent / "small").mkdir()
    for number, part in enumerate(frame.iter_slices(ROWS // 200)):
        part.write_parquet(path.parent / "small" / f"{number:03}.parquet")
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="anonymous memory is read from /proc")
@pytest.mark.parametrize(
    ("max_bins", "budgets"), [("exact", [(150, 8), (85, 2), (57, 1)]), (65_536, [(150, 8), (57, 1)])]
)
def test_encode__takes_no_more_than_it_says_and_writes_the_same(
    table: Path, max_bins: str | int, budgets: list[tuple[int, int]], tmp_path: Path
) -> None:
    shape = Shape(ROWS, (4, 4, 1), ROWS * 2, 2, (8, 4, 1))
    stores = []
    tables = [*([table] * len(budgets)), table.with_name("small")]
    for data, (spare, threads) in zip(tables, [*budgets, budgets[-1]], strict=True):
        resources = Resources(memory=BASE_BYTES + spare * MB, threads=threads)
        need = encode_estimate(shape, TrainConfig(max_bins=max_bins), resources)
        assert need.memory <= resources.memory
        out = tmp_path / f"{data.stem}-{spare}-{threads}.store"
        command = [sys.executable, "-c", PEAK, str(data), str(out), str(resources.memory), str(threads), str(max_bins)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert int(run.stdout) <= need.memory - BASE_BYTES + LOADED
        stores.append({file.name: file.read_bytes() for file in out.iterdir()})
    assert all(store == stores[0] for store in stores)


def test_encode__budget_too_small_is_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1.5, 2.5], "y": [0, 1]})
    smallest = encode_estimate(Shape(2, (4,), 2, 2), TrainConfig(), Resources(memory=1)).smallest
    with pytest.raises(ConfigError, match=f"at least {-(-smallest // MB)}MB of memory and may use 1MB"):
        encoded(frame, tmp_path, resources=Resources(memory=MB))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError):
        encoded(frame, tmp_path, resources=Resources(memory=smallest - 1))
    store = encoded(frame, tmp_path, resources=Resources(memory=smallest, threads=1))
    assert content(store) == content(encoded(frame, tmp_path, "b.store", listener=silent))


@given(
    rows=st.sampled_from([1, 10, 10**4, 10**6, 10**7, 10**9, 2**32 - 1, 2**40]),
    sizes=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=40),
    spare=st.sampled_from([0, MB, 10**8, 10**9, 10**11]),
    threads=st.sampled_from([1, 2, 16, 200]),
)
def test_plan__never_more_than_the_budget(rows: int, sizes: list[int], spare: int, threads: int) -> None:
    shape = Shape(rows, tuple(min(4, size) for size in sizes), rows, 2, tuple(sizes))
    smallest = encode_estimate(shape, TrainConfig(), Resources(memory=1)).smallest
    resources = Resources(memory=smallest + spare, threads=threads)
    need = encode_estimate(shape, TrainConfig(), resources)
    assert need.smallest == smallest
    assert need.memory <= smallest + spare
    named = {f"x{i}": size for i, size in enumerate(sizes)}
    plan = plan_encode(rows, named, resources, binned=False)
    assert [name for group in plan.groups for name in group] == list(named)
    assert plan.memory == need.memory
    assert all(plan.in_memory(group) for group in plan.groups) or plan.rows_at_once(8) >= 2**17
    assert rows <= 2**32 - 1 or not any(plan.in_memory(group) for group in plan.groups)
    if smallest > MB:
        with pytest.raises(ConfigError):
            plan_encode(rows, named, Resources(memory=smallest - 1, threads=threads), binned=False)
