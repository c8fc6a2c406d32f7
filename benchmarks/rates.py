"""What each kind of task of the grain of rows costs, on one thread and in CPU time, for projection.py.

A forest of the synthetic set is grown by passes, to subtrees of an eighth of the rows; what a Dask task costs besides
its work is measured with two workers on this machine.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from datasets import TARGET
from projection_model import DISTINCT, Rates
from scaling import cluster, table

import bigforest
from bigforest.events import silent
from bigforest.execution.dask_cluster import Cluster, ClusterExecutor, name_of
from bigforest.execution.executor import Executor
from bigforest.execution.resources import Resources
from bigforest.grow import memory
from bigforest.grow.families.registry import family_of
from bigforest.grow.forest import ForestJob
from bigforest.grow.memory import limits_for
from bigforest.grow.out_of_core import passes
from bigforest.grow.out_of_core.table import TableView
from bigforest.oob.report import write_oob
from bigforest.options.train_config import TrainConfig
from bigforest.store.store import Store
from bigforest.training.run import grow_forest

TASKS = 400
# Subtrees have at most such a part of the rows while rates are measured.
ROWS_SHARE = 8
# The tasks that grow subtrees and finish them.
SUBTREES = ("grow_subtree_task", "look_up_thresholds", "write_assemblies")
# Those that find and count the votes of rows out of bag, and those that write the rows of the report.
VOTING = ("cut_exactly", "route_left_out", "join_runs", "tally_range")
WRITING = ("write_report_rows", "read_area")


@contextmanager
def timed_tasks() -> Iterator[tuple[Counter[str], Counter[str]]]:
    """CPU seconds by task function; trees that passes have sent down, bytes of histograms, nodes that asked."""
    spent: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    kept = Executor.run, Executor.map, Executor.reduce_parts, passes.score_responses, passes._ask

    def timed(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            begin = time.process_time()
            result = function(*arguments)
            spent[name_of(function)] += time.process_time() - begin
            if function is TableView.answer:
                asked["trees"] += len(result)
                asked["bytes"] += sum(reply.counts.nbytes for reply in result)
            return result

        return call

    def timing(method: Any) -> Any:
        return lambda executor, function, *given, **named: method(executor, timed(function), *given, **named)

    def score(*arguments: Any) -> Any:
        begin = time.process_time()
        scored = kept[3](*arguments)
        spent["score"] += time.process_time() - begin
        return scored

    def ask(*arguments: Any) -> None:
        before = spent["score"] + spent["answer"]
        begin = time.process_time()
        kept[4](*arguments)
        spent["client"] += time.process_time() - begin - (spent["score"] + spent["answer"] - before)
        asked["nodes"] += sum(len(searches) for _, searches in arguments[1])

    passes.score_responses, passes._ask = score, ask
    Executor.run, Executor.map, Executor.reduce_parts = map(timing, kept[:3])  # type: ignore[method-assign]
    try:
        yield spent, asked
    finally:
        Executor.run, Executor.map, Executor.reduce_parts, passes.score_responses, passes._ask = kept  # type: ignore[method-assign]


def measure(rows: int, trees: int) -> Rates:
    """The rates on this machine."""
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
        home = Path(scratch)
        table(rows).write_parquet(home / "table.parquet")
        alone = Resources(threads=1, scratch=home)
        bigforest.encode_store(home / "table.parquet", home / "first.store", target=TARGET, threads=1)
        begin = time.process_time()
        place = bigforest.encode_store(home / "table.parquet", home / "table.store", target=TARGET, threads=1).path
        encode = (time.process_time() - begin) / (rows * 28)
        store, config = Store.open(place), TrainConfig(trees=trees)
        way = by_passes(store, config)
        grow_forest(ForestJob(store, TrainConfig(trees=1), home / "first", alone, silent), plan=way)
        with timed_tasks() as (spent, asked):
            grow_forest(ForestJob(store, config, home / "forest", alone, silent), plan=way)
            shutil.copytree(home / "forest", home / "again")
            write_oob(ForestJob(store, config, home / "forest", alone, silent))
        client, task = _client_seconds(store, config, home)
        levels, below = _levels(home / "forest", way.limits.rows)
        mtry, bag = config.drawn_features(28), DISTINCT * rows * trees
        return Rates(
            encode=encode,
            route=spent["answer"] / (asked["trees"] * DISTINCT * rows),
            spill=spent["spill"] / (bag * 28),
            visit=sum(spent[name] for name in SUBTREES) / (bag * mtry * below),
            vote=sum(spent[name] for name in VOTING) / ((1.0 - DISTINCT) * rows * trees * levels),
            score=spent["score"] / asked["bytes"],
            report=sum(spent[name] for name in WRITING) / rows,
            client=client / rows,
            node=spent["client"] / asked["nodes"],
            task=task,
            levels=levels,
            rows=rows,
        )


def by_passes(store: Store, config: TrainConfig) -> memory.GrowPlan:
    """A way by passes, with subtrees of an eighth of the rows."""
    shape = store.shape
    smallest = memory.grow_estimate(shape, config, Resources(threads=1)).smallest
    limits = limits_for(shape, config, family_of(config).pass_memory(shape, config), 1, 2 * smallest)
    assert limits is not None
    return memory.GrowPlan(1, limits._replace(rows=store.rows // ROWS_SHARE), config.trees, 0)


def _levels(forest: Path, most: int) -> tuple[float, float]:
    """Levels that a row of a bag passes on its way to its leaf, and those below nodes of at most `most` rows."""
    nodes = pl.scan_parquet(forest / "trees" / "*.parquet", glob=True)
    inner = nodes.filter(pl.col("kind") != "leaf")
    small = inner.filter(pl.col("weight") <= most)
    roots = nodes.filter(pl.col("depth") == 0)
    found = [frame.select(pl.col("weight").sum()).collect().item() for frame in (inner, small, roots)]
    return found[0] / found[2], found[1] / found[2]


def _client_seconds(store: Store, config: TrainConfig, home: Path) -> tuple[float, float]:
    """Processor seconds of the client's own thread for the report on the forest `again`; and of the client and the
    scheduler for a task that does nothing, of many."""
    with cluster(2) as client:
        resources = Resources(threads=1, scratch=home, cluster=Cluster(client))
        begin = time.thread_time()
        write_oob(ForestJob(store, config, home / "again", resources, silent))
        report = time.thread_time() - begin
        executor = ClusterExecutor(Cluster(client), 1)
        begin = time.process_time()
        for _ in executor.map(abs, [(-number,) for number in range(TASKS)]):
            pass
        return report, (time.process_time() - begin) / TASKS
