"""On a Dask cluster: the files that threads give, whatever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import dask
import numba
import polars as pl
import pytest
from distributed import Client, LocalCluster

import bigforest
from bigforest.common.errors import ClusterError, ConfigError, DataError, FormatError
from bigforest.common.events import Event, Notice, StageAdvanced, StageStarted, WorkersUsed, silent
from bigforest.common.limits import Limits
from bigforest.common.memory_estimate import Shape
from bigforest.encode.pipeline import encode
from bigforest.execution import arguments, pace, worker
from bigforest.execution.cluster import Cluster
from bigforest.execution.dask_cluster import ClusterExecutor, share_out
from bigforest.execution.executor import Threads
from bigforest.execution.resources import Resources
from bigforest.execution.task_run import TaskRun
from bigforest.forest.format.parts import part_paths
from bigforest.grow.memory import GrowPlan, choose_grow_plan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.schema.config import TrainConfig
from bigforest.source import open_source
from bigforest.store.store import Store
from bigforest.training.run import grow_forest
from tests.commands import Run
from tests.encode.test_encode import content
from tests.grow.test_invariance import assert_equal, frame, rows_of
from tests.grow.test_mixed_forest import options_of
from tests.grow.test_mixed_forest import table as mixed_table
from tests.thorough import cases
from tests.training.test_run import files

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

CONFIG: dict[str, Any] = {"target": "late", "trees": 6, "seed": 11, "max_depth": 8, "min_leaf": 3}
OTHERS: dict[str, Any] = {
    "impurity": "entropy",
    "replace": False,
    "sample_fraction": 0.6,
    "vote": "hard",
    "constants": "count",
    "max_bins": 64,
    "mtry": "all",
}
WEIGHTED: dict[str, Any] = {"target": "late", "weight": "w", "max_depth": 8, "seed": 3, "min_leaf": 2}
BY_PASSES = GrowPlan(1, MemoryLimits(rows=5_000, keys=1 << 16, cells=1 << 14, room=1 << 18), 4, 0)
QUIET = {"dashboard_address": None, "silence_logs": 50}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two processes with a thread each, started by spawn."""
    with (
        # Otherwise a killed worker is given up after 15 seconds, and a busy machine takes longer to start another.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"}),
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def one(client: Client) -> Iterator[Client]:
    """One worker of two threads."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, memory_limit="3GB", **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "flights.parquet"
    frame().with_columns(late=pl.when(pl.int_range(pl.len()) % 1000 > 0).then("late")).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def expected(table: Path) -> Path:
    """The forest that threads grow."""
    bigforest.train(table, out=table.with_name("expected"), threads=2, scheduler="threads", **CONFIG)
    return table.with_name("expected")


@pytest.fixture(scope="module")
def store(table: Path) -> Store:
    return bigforest.encode_store(table, table.with_name("t.store"), target="late", scheduler="threads")


@pytest.fixture
def all_columns_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = partial(Resources, limits=Limits(cells_per_read=1))
    monkeypatch.setattr(arguments, "Resources", apart)


def weighted(task: str) -> pl.DataFrame:
    """A table whose rows have weights over nine orders of magnitude."""
    table = frame().with_columns(w=10.0 ** (pl.int_range(pl.len()) % 10 - 4.5))
    return table if task == "classification" else table.with_columns(late=pl.col("late").rank("dense").cast(pl.Float64))


class Killer:
    """A listener that kills a worker when a stage is under way."""

    def __init__(self, client: Client, stage: str) -> None:
        self._client = client
        self._stage = stage
        self.killed = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == self._stage and not self.killed:
            self.kill()

    def kill(self) -> None:
        self.killed = True
        pids = self._client.run(os.getpid)
        os.kill(min(pids.values()), signal.SIGKILL)


def killing_at(client: Client, task: str, monkeypatch: pytest.MonkeyPatch) -> Killer:
    """Kills a worker when a task of this kind is handed out."""
    killer = Killer(client, "none")
    hand_out = client.map

    def handing_out(function: Callable[..., Any], *arguments: Any, key: list[str], **options: Any) -> Any:
        futures = hand_out(function, *arguments, key=key, **options)
        if f"-{task}-" in key[0] and function is not worker.unpack and not killer.killed:
            time.sleep(0.02)
            killer.kill()
        return futures

    monkeypatch.setattr(client, "map", handing_out)
    return killer


@pytest.fixture
def both_alive(client: Client) -> None:
    """Wait for a worker that an earlier test has killed."""
    client.wait_for_workers(2, timeout=300)


def test_train__two_workers(client: Client, table: Path, expected: Path, tmp_path: Path, both_alive: None) -> None:
    events: list[Event] = []
    out = tmp_path / "f"
    bigforest.train(table, out=out, scheduler=client, listener=events.append, **CONFIG)
    assert_equal(rows_of(out), rows_of(expected))
    for part in part_paths(expected):
        assert (out / "trees" / part.name).read_bytes() == part.read_bytes()
    assert (out / "oob" / "rows.parquet").read_bytes() == (expected / "oob" / "rows.parquet").read_bytes()
    assert bigforest.read_forest(out).run["threads"].to_list() == [2] * 4
    used = [event for event in events if isinstance(event, WorkersUsed)]
    assert len(used) == 1
    assert {each.worker for each in used[0].workers} == set(Cluster(client).threads())
    assert sum(each.tasks for each in used[0].workers) >= 6 + 1 + 2
    assert all(each.seconds > 0 for each in used[0].workers)
    ends = [event.done for event in events if isinstance(event, StageAdvanced) and event.stage == "oob"]
    totals = [event.total for event in events if isinstance(event, StageStarted) and event.stage == "oob"]
    assert ends[-1:] == totals


@pytest.mark.parametrize("task", cases(["classification", "regression"], quick=0))
def test_train__wide_weights(client: Client, tmp_path: Path, both_alive: None, task: str) -> None:
    weighted(task).write_parquet(tmp_path / "t.parquet")
    options = WEIGHTED | {"task": task, "trees": 24}
    one = bigforest.train(tmp_path / "t.parquet", out=tmp_path / "one", scheduler="threads", threads=2, **options)
    bigforest.train(tmp_path / "t.parquet", out=tmp_path / "two", scheduler=client, **options)
    assert one.spec.wide_weights
    assert files(tmp_path / "one") == files(tmp_path / "two")
    for out, scheduler in ((tmp_path / "one.p", "threads"), (tmp_path / "two.p", client)):
        score = bigforest.predict_file(one, tmp_path / "t.parquet", out, scheduler=scheduler)
        assert score.weighted
        assert score == bigforest.predict_file(one, tmp_path / "t.parquet", tmp_path / "again.p", overwrite=True)
    plan = bigforest.plan_training(tmp_path / "t.parquet", **options)
    assert "weigh" in [stage.stage for stage in plan.stages]
    limit = {"memory": str(plan.smallest), "scheduler": client}
    bigforest.train(tmp_path / "t.parquet", out=tmp_path / "three", **options, **limit)
    assert files(tmp_path / "one") == files(tmp_path / "three")


def test_train__again_to_the_same_place(client: Client, table: Path, tmp_path: Path, both_alive: None) -> None:
    """Its store is where another was that workers still hold, with the same content."""
    for _ in range(2):
        bigforest.train(table, out=tmp_path / "f", scheduler=client, overwrite=True, **CONFIG | {"trees": 2})


def test_train__until_settled_with_targets(client: Client, tmp_path: Path, both_alive: None) -> None:
    path = tmp_path / "t.parquet"
    mixed_table().write_parquet(path)
    options = options_of("minutes") | {"trees": 60, "stop_oob": 0.5, "keep_targets": True}
    for out, scheduler in ((tmp_path / "one", "threads"), (tmp_path / "two", client)):
        forest = bigforest.train(path, out=out, scheduler=scheduler, **options)
        bigforest.predict_file(forest, path, out.with_suffix(".q"), quantiles=[0.5], scheduler=scheduler)
    assert 40 <= forest.trees < 60
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert pl.read_parquet(tmp_path / "one.q").equals(pl.read_parquet(tmp_path / "two.q"))


@pytest.mark.parametrize("target", ["kind", "minutes"])
def test_train__categories_gaps_weights_and_numbers(
    client: Client, target: str, tmp_path: Path, both_alive: None
) -> None:
    mixed_table().write_parquet(tmp_path / "t.parquet", row_group_size=700)
    for name, scheduler in (("threads", "threads"), ("cluster", client)):
        bigforest.train(tmp_path / "t.parquet", out=tmp_path / name, scheduler=scheduler, **options_of(target))
    assert_equal(rows_of(tmp_path / "cluster"), rows_of(tmp_path / "threads"))
    for part in [*part_paths(tmp_path / "threads"), tmp_path / "threads" / "levels.parquet"]:
        found = tmp_path / "cluster" / part.relative_to(tmp_path / "threads")
        assert found.read_bytes() == part.read_bytes()


@pytest.mark.parametrize("family", cases(["axis", "sparse-oblique"], quick=1))
def test_train__on_ranks(client: Client, table: Path, tmp_path: Path, both_alive: None, family: str) -> None:
    options = {**CONFIG, "trees": 4, "ranks": True, "family": family}
    bigforest.train(table, out=tmp_path / "threads", scheduler="threads", **options)
    bigforest.train(table, out=tmp_path / "workers", scheduler=client, **options)
    assert_equal(rows_of(tmp_path / "workers"), rows_of(tmp_path / "threads"))


@pytest.mark.parametrize(
    "options",
    cases(
        [{}, {"family": "rotation"}, OTHERS, {"family": "sparse-oblique"}, {"sampling": "balanced"}, {"group": "hour"}],
        quick=2,
    ),
)
def test_train__one_worker_is_warned_about(
    one: Client, table: Path, expected: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    notices: list[Event] = []
    bigforest.train(table, out=tmp_path / "one", scheduler=one, listener=notices.append, **(CONFIG | options))
    if options:
        bigforest.train(table, out=tmp_path / "two", threads=1, scheduler="threads", **(CONFIG | options))
        expected = tmp_path / "two"
    assert_equal(rows_of(tmp_path / "one"), rows_of(expected))
    assert any("--memory-limit 0" in event.message for event in notices if isinstance(event, Notice))


@pytest.mark.parametrize("family", cases(["subspace-cap", "subspace-perceptron"], quick=1))
def test_train__in_subspaces(client: Client, table: Path, tmp_path: Path, both_alive: None, family: str) -> None:
    options = {**CONFIG, "family": family, "subspace": "2,3"}
    bigforest.train(table, out=tmp_path / "threads", scheduler="threads", **options)
    bigforest.train(table, out=tmp_path / "workers", scheduler=client, **options)
    threads, workers = (part_paths(tmp_path / name) for name in ("threads", "workers"))
    assert [part.read_bytes() for part in threads] == [part.read_bytes() for part in workers]


MEANS = {"family": "sparse-oblique", "mean_difference": "all"}
PERCEPTRONS = {"family": "subspace-perceptron", "subspace": "2,1", "max_epochs": 2}


@pytest.mark.parametrize(
    "options",
    cases(
        [
            *({}, MEANS),
            *({"impurity": "entropy"}, {"sampling": "stratified"}, {"family": "rotation", "axes": 3}, PERCEPTRONS),
        ],
        quick=2,
    ),
)
def test_grow__by_passes(
    client: Client, store: Store, tmp_path: Path, both_alive: None, options: dict[str, Any]
) -> None:
    config = TrainConfig.of(trees=3, seed=3, max_depth=6, **options)
    cluster = Resources(threads=1, scratch=tmp_path, cluster=Cluster(client))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, BY_PASSES)):
        grow_forest(store, config, tmp_path / name, resources=resources, listener=silent, way=way)
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_grow__by_passes_on_threads_of_a_worker(one: Client, store: Store, tmp_path: Path) -> None:
    config = TrainConfig.of(trees=3, seed=3, max_depth=7)
    cluster = Resources(threads=2, scratch=tmp_path, cluster=Cluster(one))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, replace(BY_PASSES, workers=2))):
        grow_forest(store, config, tmp_path / name, resources=resources, listener=silent, way=way)
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("target", cases(["kind", "minutes"], quick=1))
def test_grow__by_passes_on_any_columns(client: Client, tmp_path: Path, both_alive: None, target: str) -> None:
    told = {name: value for name, value in options_of(target).items() if name not in ("trees", "seed")}
    data = pl.concat([mixed_table()] * 23)  # two blocks
    store = bigforest.encode_store(data, tmp_path / "s", scheduler="threads", **told)
    columns = {name: value for name, value in told.items() if name not in ("target", "exclude")}
    config = TrainConfig(trees=2, seed=3, max_depth=6, **columns).settled(store.spec.target.task)
    (tmp_path / "scratch").mkdir()
    cluster = Resources(threads=1, scratch=tmp_path / "scratch", cluster=Cluster(client))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, BY_PASSES)):
        grow_forest(store, config, tmp_path / name, resources=resources, listener=silent, way=way)
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]


def test_choose_way__few_large_trees_are_divided() -> None:
    class Many:
        def threads(self) -> dict[str, int]:
            return {str(number): 2 for number in range(20)}

    shape = Shape(rows=40_000_000, widths=(2,) * 30, codes=10**6, classes=2)
    resources = Resources(threads=2, cluster=Many())  # type: ignore[arg-type]
    few = choose_grow_plan(shape, TrainConfig(trees=2), resources)
    assert few.limits is not None
    assert few.limits.rows * 40 * 2 < 2 * shape.rows
    assert choose_grow_plan(shape, TrainConfig(trees=400), resources).limits is None
    small = Shape(rows=10_000, widths=(2,) * 30, codes=10**4, classes=2)
    assert choose_grow_plan(small, TrainConfig(trees=2), resources).limits is None


@pytest.mark.parametrize("stage", ["encode", "grow", "oob"])
def test_train__a_worker_is_killed(
    client: Client,
    table: Path,
    expected: Path,
    tmp_path: Path,
    stage: str,
    both_alive: None,
    all_columns_apart: None,
) -> None:
    killer = Killer(client, stage)
    bigforest.train(table, out=tmp_path / "f", scheduler=client, listener=killer, **CONFIG)
    assert killer.killed
    assert_equal(rows_of(tmp_path / "f"), rows_of(expected))
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def few_columns(folder: Path) -> Path:
    """A file of three columns, of which each worker encodes pieces."""
    gaps = pl.when(pl.int_range(pl.len()) % 3 > 0).then("wind")
    text = pl.col("hour").cast(pl.String)
    data = frame().select("late", "delay", gaps=gaps, text=text)
    data.write_parquet(folder / "few.parquet", row_group_size=30_000)
    return folder / "few.parquet"


@pytest.mark.parametrize("workers", cases([1, 2, 6], quick=2))
def test_encode__few_columns_in_pieces(workers: int, tmp_path: Path) -> None:
    table = few_columns(tmp_path)
    expected = bigforest.encode_store(table, tmp_path / "e", target="late", threads=1, scheduler="threads")
    with (
        LocalCluster(n_workers=workers, threads_per_worker=12 // workers, processes=False, **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        resources = Resources(threads=12, cluster=Cluster(client), scratch=tmp_path, limits=Limits(task_rows=9_000))
        source = open_source(str(table), scratch=tmp_path)
        store = encode(source, "late", tmp_path / "s", resources=resources, listener=silent)
    assert content(store) == content(expected)


@pytest.mark.parametrize("task", ["rank-rows", "merge-runs", "write-codes"])
def test_encode__few_columns_a_worker_is_killed(
    client: Client, tmp_path: Path, both_alive: None, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    table = few_columns(tmp_path)
    expected = bigforest.encode_store(table, tmp_path / "e", target="late", threads=1, scheduler="threads")
    killer = killing_at(client, task, monkeypatch)
    resources = Resources(
        threads=1, cluster=Cluster(client), scratch=tmp_path, limits=Limits(presort_rows=20_000, slice_rows=7_000)
    )
    source = open_source(str(table), scratch=tmp_path)
    store = encode(source, "late", tmp_path / "s", resources=resources, listener=silent)
    assert killer.killed
    assert content(store) == content(expected)


PRINCIPAL = {"family": "rotation", "rotation": "pca-classes", "bootstrap": True}


@pytest.mark.parametrize(
    ("task", "options"),
    cases(
        [
            *((task, {}) for task in ("answer", "score", "grow-subtree")),
            *((task, {}) for task in ("spill", "write-assemblies")),
            *((task, MEANS) for task in ("decode-blocks", "answer", "score")),
            *((task, PRINCIPAL) for task in ("sum-moments", "grow-subtree")),
            *((task, PERCEPTRONS) for task in ("score", "learn")),
        ],
        quick=2,
    ),
)
def test_grow__by_passes_a_worker_is_killed(
    client: Client,
    store: Store,
    tmp_path: Path,
    both_alive: None,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    options: dict[str, Any],
) -> None:
    config = TrainConfig.of(trees=2, seed=3, max_depth=6, **options)
    killer = killing_at(client, task, monkeypatch)
    cluster = Resources(threads=1, scratch=tmp_path, cluster=Cluster(client))
    for name, resources, way in (("a", Resources(threads=1), None), ("b", cluster, BY_PASSES)):
        grow_forest(store, config, tmp_path / name, resources=resources, listener=silent, way=way)
    assert killer.killed
    contents = [[path.read_bytes() for path in part_paths(tmp_path / name)] for name in "ab"]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("kill", [False, True])
def test_predict__two_workers(
    client: Client, table: Path, expected: Path, tmp_path: Path, both_alive: None, kill: bool
) -> None:
    killer = Killer(client, "predict" if kill else "none")
    options: dict[str, Any] = {"proba": True, "keep": ["hour"], "ties": "random", "reject_above": 0.1}
    options |= {"coverage": 0.8, "coverage_by": "hour"}
    here = bigforest.predict_file(expected, table, tmp_path / "here.parquet", scheduler="threads", **options)
    there = bigforest.predict_file(
        expected, table, tmp_path / "there.parquet", scheduler=client, listener=killer, **options
    )
    assert killer.killed == kill
    assert there == here
    assert pl.read_parquet(tmp_path / "there.parquet").equals(pl.read_parquet(tmp_path / "here.parquet"))


@pytest.mark.slow
def test_train__nested_columns(client: Client, tmp_path: Path, both_alive: None) -> None:
    wide = pl.col("delay", "wind").cast(pl.Float64)
    nested = frame().head(5_000).select("late", at=pl.struct("hour", "distance"), air=pl.concat_arr(wide))
    nested.write_parquet(tmp_path / "nested.parquet")
    for name, scheduler in (("here", "threads"), ("there", client)):
        bigforest.train(tmp_path / "nested.parquet", out=tmp_path / name, scheduler=scheduler, **CONFIG)
        bigforest.predict_file(
            tmp_path / name, tmp_path / "nested.parquet", tmp_path / f"{name}.parquet", scheduler=scheduler
        )
    assert_equal(rows_of(tmp_path / "there"), rows_of(tmp_path / "here"))
    assert pl.read_parquet(tmp_path / "there.parquet").equals(pl.read_parquet(tmp_path / "here.parquet"))


def test_predict__small_memory_and_tables_in_memory(
    client: Client, expected: Path, table: Path, tmp_path: Path
) -> None:
    bigforest.predict_file(expected, table, tmp_path / "a.parquet", scheduler=client, memory="400MB")
    data = pl.read_parquet(table)
    bigforest.predict_file(expected, data, tmp_path / "b.parquet", scheduler=client)
    assert pl.read_parquet(tmp_path / "a.parquet").equals(pl.read_parquet(tmp_path / "b.parquet"))


def test_predict__an_error_of_the_data_is_ours(client: Client, tmp_path: Path) -> None:
    forest, out = tmp_path / "f", tmp_path / "out.parquet"
    bigforest.train(mixed_table(), out=forest, scheduler="threads", **options_of("kind"))
    last = pl.int_range(pl.len()) == pl.len() - 1
    broken = mixed_table().with_columns(carrier=pl.when(last).then(pl.lit("nobody")).otherwise("carrier"))
    broken.write_parquet(tmp_path / "broken.parquet")
    with pytest.raises(DataError, match=r"'carrier' has levels .* 'nobody'"):
        bigforest.predict_file(forest, tmp_path / "broken.parquet", out, unseen="error", scheduler=client)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.parquet", "f"]


def test_train__the_ambient_client(client: Client, tmp_path: Path, both_alive: None) -> None:
    data = frame().head(500)
    events: list[Event] = []
    with client.as_current():
        there = bigforest.train(data, listener=events.append, **CONFIG)
        here = bigforest.train(data, scheduler="threads", **CONFIG)
    assert there.nodes.collect().equals(here.nodes.collect())
    assert sum(isinstance(event, WorkersUsed) for event in events) == 1


def test_train__by_address_on_the_command_line(
    client: Client, table: Path, tmp_path: Path, both_alive: None, capsys: pytest.CaptureFixture[str]
) -> None:
    address = client.scheduler.address
    run = Run(capsys)
    facts = run.json(
        *("train", table, "--target", "late", "--trees", 2, "--max-depth", 3, "--out", tmp_path / "f"),
        *("--scheduler", address, "--quiet"),
    )
    assert {"worker", "tasks", "seconds", "bytes"} == set(facts["workers"][0])
    facts = run.json("predict", tmp_path / "f", table, "--out", tmp_path / "p.parquet", "--scheduler", address, "-q")
    assert sum(each["tasks"] for each in facts["workers"]) == 8
    assert run("train", table, "--scheduler-file", tmp_path / "no").code == 2
    assert "no scheduler file" in run.err
    (tmp_path / "empty.json").write_text("{}")
    assert run("train", table, "--scheduler-file", tmp_path / "empty.json").code == 2
    assert "is not a scheduler file" in run.err
    assert run("train", table, "--tls-ca", "x").code == 2


def test_train__versions_that_differ_are_refused(
    client: Client, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = worker.versions_here()
    monkeypatch.setattr(worker, "versions_here", lambda: there | {"numba": "0.1"})
    with pytest.raises(ClusterError, match=r"worker tcp://.* has numba .* and the client has 0\.1; install"):
        bigforest.train(table, out=tmp_path / "f", scheduler=client, **CONFIG)
    with pytest.raises(ClusterError, match=r"has numba"):  # of a worker that comes later
        ClusterExecutor(Cluster(client), 1).run(os.getpid, [()], lambda *_: None)
    assert not list(tmp_path.iterdir())


def test_train__a_folder_that_workers_do_not_see(
    client: Client, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "look", _elsewhere)
    with pytest.raises(ClusterError, match=r"cannot use the folder .*No such file.*as out a folder on a disk that"):
        bigforest.train(table, out=tmp_path / "f", scheduler=client, **CONFIG)
    assert not list(tmp_path.iterdir())


def _elsewhere(path: str, content: str, answer: str) -> str:
    return worker.look(f"/elsewhere{path}", content, answer)


def test_store__is_mapped_once_and_checked(store: Store, tmp_path: Path) -> None:
    import pickle

    packed = pickle.dumps(store)
    assert len(packed) < 1000
    assert pickle.loads(packed) is pickle.loads(packed)
    again, (path, _, opened, made_by) = store.__reduce__()
    with pytest.raises(FormatError, match="not the store"):
        again(path, "0" * 32, opened, made_by)


@pytest.mark.parametrize("scheduler", [3, "tcp://127.0.0.1:1", "nonsense://x", "nonsense", "tls://127.0.0.1:1"])
def test_train__no_scheduler(scheduler: object, table: Path) -> None:
    short = dask.config.set({"distributed.comm.timeouts.connect": "300ms"})
    with short, pytest.raises((ConfigError, ClusterError), match=r"scheduler"):
        bigforest.train(table, scheduler=scheduler, **CONFIG)


def test_run__a_task_that_fails_is_tried_again_and_reported(client: Client, tmp_path: Path) -> None:
    executor = ClusterExecutor(Cluster(client), 1)
    found: list[int] = []
    executor.run(_fails_once, [(str(tmp_path / "tried"), 7)], lambda _, result: found.append(result))
    assert found == [7]
    with pytest.raises(ClusterError, match=r"listdir failed 3 times \(FileNotFoundError.*missing") as caught:
        executor.run(os.listdir, [(str(tmp_path / "missing"),)], lambda *_: None)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_run__a_result_whose_worker_dies_before_it_is_taken(
    client: Client, both_alive: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, taken = TaskRun.result, []

    def too_late(run: TaskRun, future: Any) -> Any:
        if not taken:
            [holders] = client.who_has([future]).values()
            [pid] = client.run(os.getpid, workers=list(holders)).values()
            os.kill(pid, signal.SIGKILL)
            end = time.monotonic() + 60
            while future.status == "finished" and time.monotonic() < end:  # the task takes long enough to be seen again
                time.sleep(0.01)
        taken.append(future.key)
        return take(run, future)

    monkeypatch.setattr(TaskRun, "result", too_late)
    found: list[int] = []
    ClusterExecutor(Cluster(client), 1).run(_seven_later, [(1.0,)], lambda _, result: found.append(result))
    assert found == [7]


def _seven_later(seconds: float) -> int:
    time.sleep(seconds)
    return 7


def test_reduce__a_task_is_done_where_it_was_done_before(
    client: Client, both_alive: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "LEAST_SECONDS", 600.0)  # a new worker loads modules first
    executor = ClusterExecutor(Cluster(client), 1)
    first, *others = (executor.reduce(_where, [(number,) for number in range(2)], _both) for _ in range(5))
    assert sorted(first.values()) == sorted(client.scheduler_info()["workers"])
    assert others == [first] * 4


@pytest.mark.parametrize(("size", "tasks"), [(10, 2), (1 << 16, 3)])
def test_reduce__small_results_are_merged_here_and_fetched_together(
    client: Client, both_alive: None, size: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    gather = client.gather

    def gathering(several: dict[str, Any], **options: Any) -> Any:
        fetched.append(len(several))
        return gather(several, **options)

    monkeypatch.setattr(client, "gather", gathering)
    cluster = Cluster(client)
    assert ClusterExecutor(cluster, 1).reduce(_bytes_of, [(size,), (size,)], add) == bytes(2 * size)
    assert sum(spent.tasks for spent in cluster.spent.values()) == tasks
    assert fetched == [2, 1][: tasks - 1]


def _bytes_of(size: int) -> bytes:
    return bytes(size)


def test_reduce__all_workers_die_at_once(client: Client, both_alive: None) -> None:
    executor = ClusterExecutor(Cluster(client), 1)
    pids = sorted(client.run(os.getpid).values())

    found: list[int] = []
    reduced = threading.Thread(
        target=lambda: found.append(executor.reduce(_seven_later, [(3.0,), (3.0,)], max)), daemon=True
    )
    reduced.start()
    time.sleep(1.0)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    reduced.join(240)
    assert found == [7]


def test_reduce_parts__each_part_is_finished_once_from_all_tasks(client: Client, both_alive: None) -> None:
    for executor in (ClusterExecutor(Cluster(client), 1), Threads(2)):
        found = executor.reduce_parts(
            _thrice, [(number,) for number in range(5)], max, _joined, [("a",), ("b",), ("c",)], (1,)
        )
        assert found == ["a 1 4", "b 1 8", "c 1 12"]


def _thrice(shared: int, number: int) -> list[int]:
    return [number * times * shared for times in (1, 2, 3)]


def _joined(*given: object) -> str:
    shared, name, part = given
    return f"{name} {shared} {part}"


def test_reduce_parts__held_by_a_worker_that_dies(client: Client, both_alive: None, tmp_path: Path) -> None:
    """The first time a part is finished, the worker dies that holds the share of the other."""
    executor = ClusterExecutor(Cluster(client), 1)
    pids = sorted(client.run(os.getpid).values())
    shared = (str(tmp_path / "killed"), pids)
    found = executor.reduce_parts(_twice, [(number,) for number in range(4)], max, _finish_or_kill, [(), ()], shared)
    assert found == [3, 6]
    assert (tmp_path / "killed").exists()


def _twice(_: str, pids: list[int], number: int) -> list[int]:
    return [number, 2 * number]


def _finish_or_kill(place: str, pids: list[int], part: int) -> int:
    with suppress(FileExistsError):
        Path(place).touch(exist_ok=False)  # by one of them
        os.kill(next(pid for pid in pids if pid != os.getpid()), signal.SIGKILL)
    return part


def test_reduce_parts__errors_of_ours_come_out(client: Client, both_alive: None) -> None:
    executor = ClusterExecutor(Cluster(client), 1)
    with pytest.raises(DataError, match="no such number"):
        executor.reduce_parts(_refuses, [(0,), (1,)], max, _joined, [("a",)], (1,))


def _refuses(shared: int, number: int) -> list[int]:
    raise DataError("no such number")


@pytest.mark.parametrize(("calls", "processes", "slots"), [(0, 1, 1), (7, 2, 1), (5000, 3, 16), (5, 100, 8)])
def test_share_out__makes_all_calls_and_gets_smaller(calls: int, processes: int, slots: int) -> None:
    sizes = share_out(calls, processes, slots)
    assert sum(sizes) == calls
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes, default=0) <= 8 * slots
    assert calls < 5000 or len(sizes) < calls / 32


@pytest.mark.parametrize(
    ("calls", "processes", "slots", "sizes"),
    [(0, 2, 1, []), (8, 2, 1, [4, 4]), (7, 3, 16, [2, 2, 3]), (2, 5, 4, [1, 1]), (40, 2, 1, [8, 8, 8, 8, 8])],
)
def test_share_out__even_calls(calls: int, processes: int, slots: int, sizes: list[int]) -> None:
    assert share_out(calls, processes, slots, even=True) == sizes


def _where(number: int) -> dict[int, str]:
    return {number: worker._address()}


def _both(one: dict[int, str], two: dict[int, str]) -> dict[int, str]:
    return one | two


def _fails_once(place: str, number: int) -> int:
    if not Path(place).exists():
        Path(place).touch()
        raise OSError("the disk does not answer")
    return number


def test_run__an_error_leaves_nothing_running(client: Client, tmp_path: Path) -> None:
    executor = ClusterExecutor(Cluster(client), 1)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.run(_slow, [(str(tmp_path), number) for number in range(30)], fail)
    begun = len(list(tmp_path.iterdir()))
    assert 1 <= begun < 16  # the first task of each worker
    assert all(path.read_text() == "end" for path in tmp_path.iterdir())
    time.sleep(0.5)
    assert len(list(tmp_path.iterdir())) == begun


def _slow(folder: str, number: int) -> None:
    path = Path(folder) / str(number)
    path.write_text("begin")
    time.sleep(0.3)
    path.write_text("end")


def test_run__a_task_that_kills_its_workers(client: Client, monkeypatch: pytest.MonkeyPatch, both_alive: None) -> None:
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(ClusterError, match=r"the task _die has lost 1 workers.*memory"):
        ClusterExecutor(Cluster(client), 1).run(_die, [()], lambda *_: None)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_resume__after_the_scheduler_is_killed(table: Path, expected: Path, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    alone = ["--no-nanny", "--memory-limit", "0", "--nthreads", "1", "--local-directory", str(tmp_path / "dask")]
    commands = [["scheduler", "--port", "0", "--host", "127.0.0.1", *common], ["worker", *common, *alone]]
    scheduler, one_worker = (
        subprocess.Popen([sys.executable, "-m", "dask", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    )

    def kill(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow":
            scheduler.kill()

    try:
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        client = Client(scheduler_file=str(file), set_as_default=False, timeout=5)
        with client, pytest.raises(ClusterError, match=r"connection to the scheduler was lost") as caught:
            bigforest.train(table, out=tmp_path / "f", scheduler=client, listener=kill, **CONFIG)
        assert "--resume" in caught.value.__notes__[0]
    finally:
        for process in (scheduler, one_worker):
            process.kill()
            process.wait()
    bigforest.train(resume=tmp_path / "f", threads=1, scheduler="threads")
    assert_equal(rows_of(tmp_path / "f"), rows_of(expected))
