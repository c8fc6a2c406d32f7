"""Growing by passes gives the files that growing in memory gives, whatever fits in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.errors import ConfigError
from bigforest.events import silent
from bigforest.execution.process_cache import BufferPool
from bigforest.execution.resources import Resources
from bigforest.forest.parts import part_paths
from bigforest.grow import forest
from bigforest.grow import forest as growing
from bigforest.grow.forest import ForestJob
from bigforest.grow.memory import GrowPlan, choose_grow_plan, grow_estimate
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.grow.out_of_core.passes import grow_by_passes
from bigforest.grow.out_of_core.row_file import SpilledRows, load_rows, writing_rows
from bigforest.grow.out_of_core.table import Passes
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import PLAIN, Shape, TableTraits
from bigforest.planning.sizes import megabytes
from bigforest.sampling.bags import distinct_rows, uniform_bag
from bigforest.store.store import Store
from bigforest.training.run import grow_forest
from tests.grown import frame_of, store_of
from tests.strategies import Data, configs, tables
from tests.thorough import cases, examples

NUMBERS = PLAIN._replace(regression=True)
WHOLE = GrowPlan(workers=1, limits=None, group=1, memory=0)


def parts(store: Store, config: TrainConfig, way: GrowPlan, threads: int = 1) -> list[bytes]:
    """The part files of the forest, grown in that way; what has to be compiled is compiled when it is called."""
    with tempfile.TemporaryDirectory() as folder, patch("bigforest.grow.forest.compile_for"):  # it grows a tree, too
        grow_forest(ForestJob(store, config, Path(folder), Resources(threads=threads), silent), plan=way)
        return [path.read_bytes() for path in part_paths(Path(folder))]


@st.composite
def ways(draw: st.DrawFn) -> GrowPlan:
    """Budgets from next to nothing to everything: nodes of any size by passes, few buckets, few keys."""
    limits = MemoryLimits(
        rows=draw(st.sampled_from([0, 1, 5, 20, 1000])),
        collects=draw(st.sampled_from([1, 2, 10, 1000])),
        cells=draw(st.sampled_from([1, 8, 60, 1 << 18])),
        room=draw(st.sampled_from([1, 500, 1 << 20])),
    )
    return GrowPlan(workers=draw(st.sampled_from([1, 2])), limits=limits, group=draw(st.integers(1, 3)), memory=0)


@given(data=tables(), config=configs(), way=ways())
@settings(deadline=None, max_examples=examples(60))
def test_passes__give_the_files_of_growing_in_memory(data: Data, config: TrainConfig, way: GrowPlan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(frame_of(data), Path(folder))
        assert parts(store, config, way) == parts(store, config, WHOLE)


@pytest.mark.parametrize("family", ["axis", "rotation"])
def test_passes__threshold_between_adjacent_numbers(tmp_path: Path, family: str) -> None:
    """Their middle may be rounded to the upper one, which goes right."""
    upper = 1.0 + 2.0**-51
    frame = pl.DataFrame({"a": [upper - 2.0**-52, upper] * 20, "b": [3.0, 5.0] * 20, "y": ["no", "yes"] * 20})
    store = store_of(frame, tmp_path)
    config = TrainConfig.of(trees=4, family=family, mtry=1, bootstrap=False, max_depth=1)
    way = GrowPlan(1, MemoryLimits(rows=0, collects=10, cells=8, room=500), 2, 0)
    assert parts(store, config, way) == parts(store, config, WHOLE)


def wide_table(rows: int, classes: int, seed: int = 3) -> pl.DataFrame:
    """Columns of one, two and four bytes, with ties, a heavy value and noise, and a class that some of them tell."""
    draw = np.random.default_rng(seed)
    heavy = np.where(draw.random(rows) < 0.6, 0.0, draw.gamma(2.0, 3.0, rows))
    smooth = draw.normal(size=rows)
    few = draw.integers(0, 5, rows)
    signal = heavy / 4 + smooth + few / 3 + draw.normal(0, 0.7, rows)
    target = np.digitize(signal, np.quantile(signal, np.linspace(0, 1, classes + 1)[1:-1]))
    return pl.DataFrame(
        {
            "few": few.astype(np.int8),
            "heavy": heavy,
            "smooth": smooth,
            "rounded": np.round(smooth, 2),
            "noise": draw.normal(size=rows).astype(np.float32),
            "y": target,
        }
    )


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(
    ("classes", "impurity"), cases([(2, "gini"), (5, "gini"), (3, "entropy"), (3, "error")], quick=2)
)
def test_passes__over_several_blocks(tmp_path: Path, classes: int, impurity: str) -> None:
    store = store_of(wide_table(140_000, classes), tmp_path)
    config = TrainConfig(trees=2, seed=7, impurity=impurity, mtry=3, min_leaf=2, max_depth=10)
    whole = parts(store, config, WHOLE)
    roomy = MemoryLimits(rows=20_000, collects=1 << 20, cells=1 << 18, room=1 << 22)
    tight = MemoryLimits(rows=40_000, collects=6_000, cells=1 << 10, room=1 << 13)
    assert parts(store, config, GrowPlan(2, roomy, 2, 0), threads=2) == whole
    assert parts(store, config, GrowPlan(3, tight, 1, 0), threads=3) == whole


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels")
@pytest.mark.parametrize(
    "options", cases([{"sampling": "stratified", "replace": False}, {"sampling": "balanced"}, {}], quick=1)
)
def test_passes__any_bags_over_several_blocks(tmp_path: Path, options: dict[str, Any]) -> None:
    table = wide_table(140_000, 3).with_columns(who=pl.int_range(pl.len()) // 7)
    group = None if options else "who"
    store = bigforest.encode_store(table, tmp_path / "s", target="y", exclude=["who"] if options else [], group=group)
    config = TrainConfig(trees=2, seed=7, group=group, sample_fraction=0.4, max_depth=8, **options)
    tight = MemoryLimits(rows=20_000, collects=6_000, cells=1 << 10, room=1 << 13)
    assert parts(store, config, GrowPlan(2, tight, 2, 0), threads=2) == parts(store, config, WHOLE)


def test_passes__skip_what_is_finished(tmp_path: Path) -> None:
    store = store_of(wide_table(500, 2), tmp_path)
    config = TrainConfig(trees=3)
    way = GrowPlan(1, MemoryLimits(50, 100, 64, 1000), 3, 0)
    once = Resources(threads=1)
    grow_forest(ForestJob(store, config, tmp_path, once, silent), plan=way)
    first, middle, last = part_paths(tmp_path)
    content, times = middle.read_bytes(), [path.stat().st_mtime_ns for path in (first, last)]
    middle.unlink()
    grow_forest(ForestJob(store, config, tmp_path, once, silent), plan=way)
    assert middle.read_bytes() == content
    assert [path.stat().st_mtime_ns for path in (first, last)] == times


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """Only `more` files in addition to the present ones may be open, unless the process asks for more."""
    resource = pytest.importorskip("resource")
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack, Path(os.devnull).open() as any_file:
        highest, newest = max(int(file.name) for file in Path("/dev/fd").iterdir()), any_file.fileno()
        while newest <= highest:  # no number below is free: files that others have closed left gaps
            newest = os.dup(newest)
            stack.callback(os.close, newest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (newest + more, most))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (before, most))
        yield


def test_passes__open_more_files_than_systems_allow_at_first(tmp_path: Path) -> None:
    """Those of 16 trees; and a node's rows from 40 runs of blocks, as of 40 workers."""
    store = store_of(wide_table(500, 2), tmp_path)
    config, way = TrainConfig(trees=16), GrowPlan(1, MemoryLimits(50, 100, 64, 1000), 16, 0)
    expected = parts(store, config, WHOLE)
    with few_files(25):
        assert parts(store, config, way) == expected
    files, none = [tmp_path / f"rows-{number}" for number in range(40)], np.zeros(1, np.uint64)
    for file in files:
        with writing_rows(file, [0], BufferPool()) as add:
            add([], (np.ones(1, np.uint64), none, none + np.uint64(1)))
    with few_files(25):
        assert load_rows(SpilledRows(files, 0), [], 40, (BufferPool(), BufferPool()))[1].size == 40


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(bytes(content))


def test_distinct_rows__bounds_every_bag() -> None:
    for rows in (1, 2, 10, 1000, 70_000):
        fractions = [{"sample_fraction": 0.3}, {"sample_fraction": 2.0}, {"replace": False, "sample_fraction": 0.5}]
        for options in ({}, *fractions, {"bootstrap": False}):
            config = TrainConfig(**options)
            bound = distinct_rows(rows, config)
            assert bound <= rows
            for tree in range(20):
                found = np.count_nonzero(uniform_bag(rows, tree, config)) if config.bootstrap else rows
                assert found <= bound


COMPILED = """
import os
import sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
import bigforest.kernels.out_of_core.blocks, bigforest.kernels.out_of_core.node_steps
from bigforest.options.train_config import TrainConfig
from bigforest.grow.forest import compile_for
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.store.store import Store
from tests.grow.test_passes import parts

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("bigforest.kernels.")]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)}
    return {f"{kernel.__name__}{each}" for kernel in found for each in kernel.signatures}

def check(store):
    oblique = {"family": "sparse-oblique", "mean_difference": "all"}
    classes = store.spec.target.task == "classification"
    others = [{"replace": False, "sample_fraction": 0.6, "impurity": "entropy" if classes else "poisson"}]
    if classes and not store.shape.extras.non_plain_features:
        others += [{**oblique, "mean_difference_scope": scope} for scope in ("tree", "node")]
        others += [{"family": "rotation", "rotation": kind} for kind in ("random", "pca")]
        others += [{"family": "subspace-cap"}, {"family": "subspace-perceptron"}]
    for options in ({}, *others):
        config = TrainConfig.of(trees=2, **options).for_task(store.spec.target.task)
        compile_for(store.shape.extras, config, True, None)
        before = compiled()
        parts(store, config, GrowPlan(1, MemoryLimits(50, 100, 64, 1000), 2, 0))
        assert not compiled() - before, (options, compiled() - before)

for path in sys.argv[1:]:
    if os.fork() == 0:  # each store has a process of its own, with nothing compiled
        try:
            check(Store.open(Path(path)))
            os._exit(0)
        except BaseException as error:
            print(path, repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    assert os.wait()[1] == 0
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_compile_for__leaves_nothing_to_compile(tmp_path: Path) -> None:
    plain = wide_table(500, 3)
    gaps = pl.when(pl.col("heavy") > 1).then("smooth").alias("smooth")
    paths = [
        bigforest.encode_store(table, tmp_path / f"{number}-{task}", target="y", task=task).path
        for number, table in enumerate([plain, plain.with_columns(gaps, pl.col("few").cast(pl.String))])
        for task in ("classification", "regression")
    ]
    home = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", COMPILED, *paths], cwd=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_compile_for__once_in_a_process(tmp_path: Path) -> None:
    config = TrainConfig.of(trees=1)
    classes, numbers = config.for_task("classification"), config.for_task("regression")
    with patch.object(forest, "_compiled", set()), patch.object(forest, "compile_passes") as compiled:
        for extras, own in ((PLAIN, classes), (PLAIN, classes), (NUMBERS, numbers)):
            forest.compile_for(extras, own, True, tmp_path)
    assert compiled.call_count == 2


@pytest.mark.parametrize("bootstrap", [True, False])
def test_passes__leave_no_files_in_scratch(tmp_path: Path, bootstrap: bool) -> None:
    store = bigforest.encode_store(wide_table(500, 2), tmp_path / "s", target="y").path
    config, left = TrainConfig.of(trees=4, bootstrap=bootstrap).for_task("classification"), []

    def grown(passes: Passes, *given: Any) -> None:
        grow_by_passes(passes, *given)
        left.append([path.name for path in passes.folder.iterdir() if path.name != "lock"])

    with patch.object(growing, "grow_by_passes", grown):
        parts(Store.open(store), config, GrowPlan(1, MemoryLimits(50, 100, 64, 1000), 2, 0))
    assert left == [[], []]


SHAPE = Shape(rows=30_000_000, widths=(4,) * 30, codes=30 * 2**24, classes=2)


ZIP = {"non_plain_features": ("zip",), "category": 50_000}
MEANS = {"family": "sparse-oblique", "mean_difference": "all", "mean_difference_scope": "node"}
CAP = {"family": "subspace-cap"}


@pytest.mark.parametrize(
    ("extras", "options"),
    [
        ({}, {}),
        ({"regression": True}, {}),
        ({"weighted": True}, {}),
        (ZIP, {}),
        ({"regression": True, "weighted": True, **ZIP}, {"splitter": "random"}),
        ({}, MEANS),
        ({}, {**MEANS, "ranks": True}),
        ({}, {"family": "rotation", "rotation": "pca"}),
        ({}, CAP),
        ({}, {**CAP, "subspace_per": "node"}),
        ({}, {"family": "subspace-perceptron"}),
    ],
)
def test_choose_grow_plan__by_passes_or_the_smallest_budget(extras: Any, options: dict[str, Any]) -> None:
    shape = replace(SHAPE, classes=1 if "regression" in extras else 2, extras=TableTraits(**extras))
    config = TrainConfig.of(trees=4, **options)
    assert choose_grow_plan(shape, config, Resources(threads=2)).limits is None
    smallest = grow_estimate(shape, config, Resources(threads=2)).smallest
    assert smallest < grow_estimate(shape, config, Resources(threads=1)).memory
    need = grow_estimate(shape, config, Resources(threads=2, memory=smallest))
    assert need.memory <= smallest
    assert need.passes > 1
    assert need.scratch > shape.rows
    assert choose_grow_plan(shape, config, Resources(threads=2, memory=smallest)).limits is not None
    with pytest.raises(ConfigError, match=f"the stage grow needs at least {megabytes(smallest)} of memory"):
        choose_grow_plan(shape, config, Resources(threads=2, memory=smallest - (4 << 20)))


def test_choose_way__more_memory_means_fewer_passes() -> None:
    config = TrainConfig(trees=4)
    budgets = [400_000_000, 800_000_000, 1_600_000_000, 20_000_000_000]
    passes_ = [grow_estimate(SHAPE, config, Resources(threads=2, memory=budget)).passes for budget in budgets]
    assert passes_ == sorted(passes_, reverse=True)
    assert passes_[-1] == 1
