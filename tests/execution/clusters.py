"""What the tests of clusters share: forests to grow, and what kills a worker at a moment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from distributed import Client

from bigforest.events import Event, StageAdvanced, silent
from bigforest.execution.dask_cluster import Cluster
from bigforest.execution.resources import Resources
from bigforest.forest.parts import part_paths
from bigforest.grow.forest import ForestJob
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.options.train_config import TrainConfig
from bigforest.store.store import Store
from bigforest.training.run import grow_forest
from tests.grow.test_invariance import frame

CONFIG: dict[str, Any] = {"target": "late", "trees": 6, "seed": 11, "max_depth": 8, "min_leaf": 3}
BY_PASSES = GrowPlan(1, MemoryLimits(rows=5_000, collects=1 << 16, cells=1 << 14, room=1 << 18), 4, 0)
QUIET = {"dashboard_address": None, "silence_logs": 50}
MEANS = {"family": "sparse-oblique", "mean_difference": "all"}
PERCEPTRONS = {"family": "subspace-perceptron", "subspace": "2,1", "max_epochs": 2}


class Killer:
    """A listener that kills a worker when a stage is under way, once in each of the stages."""

    def __init__(self, client: Client, *stages: str) -> None:
        self._client = client
        self._stages = stages
        self.killed: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage in self._stages and event.stage not in self.killed:
            self.kill(event.stage)

    def kill(self, stage: str) -> None:
        self.killed.append(stage)
        pids = self._client.run(os.getpid)
        os.kill(min(pids.values()), signal.SIGKILL)


def killing_at(client: Client, task: str, monkeypatch: pytest.MonkeyPatch) -> Killer:
    """Kills a worker when a task of this kind is handed out."""
    killer = Killer(client)
    hand_out = client.map

    def handing_out(function: Callable[..., Any], *arguments: Any, key: list[tuple[str, int]], **options: Any) -> Any:
        futures = hand_out(function, *arguments, key=key, **options)
        if f"-{task}-" in key[0][0] and not killer.killed:
            time.sleep(0.02)
            killer.kill(task)
        return futures

    monkeypatch.setattr(client, "map", handing_out)
    return killer


def assert_grows_the_same(
    client: Client, store: Store, config: TrainConfig, folder: Path, way: GrowPlan = BY_PASSES
) -> None:
    """Workers grow the files a thread grows in memory: a and b in the folder, and nothing else is left there."""
    before = {path.name for path in folder.iterdir()}
    cluster = Resources(threads=way.workers, scratch=folder, cluster=Cluster(client))
    for name, resources, chosen in (("a", Resources(threads=1), None), ("b", cluster, way)):
        grow_forest(ForestJob(store, config, folder / name, resources, silent), plan=chosen)
    contents = [[path.read_bytes() for path in part_paths(folder / name)] for name in "ab"]
    assert contents[0] == contents[1]
    assert {path.name for path in folder.iterdir()} - before == {"a", "b"}


def few_columns(folder: Path) -> Path:
    """A file of three columns, of which each worker encodes pieces."""
    gaps = pl.when(pl.int_range(pl.len()) % 3 > 0).then("wind")
    text = pl.col("hour").cast(pl.String)
    data = frame().select("late", "delay", gaps=gaps, text=text)
    data.write_parquet(folder / "few.parquet", row_group_size=30_000)
    return folder / "few.parquet"


def seven_later(seconds: float) -> int:
    time.sleep(seconds)
    return 7
