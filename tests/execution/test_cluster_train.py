"""On a Dask cluster: forests and predictions as those of threads, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import polars as pl
import pytest
from distributed import Client

import bigforest
from bigforest.errors import DataError
from bigforest.events import Event, Notice, StageAdvanced, StageStarted, WorkersUsed
from bigforest.execution.dask_cluster import Cluster
from bigforest.forest.parts import part_paths
from tests.execution.clusters import (
    CONFIG,
    Killer,
)
from tests.grow.test_invariance import assert_equal, frame, rows_of
from tests.grow.test_mixed_forest import options_of
from tests.grow.test_mixed_forest import table as mixed_table
from tests.thorough import cases
from tests.training.test_run import files

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

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


def weighted(task: str) -> pl.DataFrame:
    """A table whose rows have weights over nine orders of magnitude."""
    table = frame().with_columns(w=10.0 ** (pl.int_range(pl.len()) % 10 - 4.5))
    return table if task == "classification" else table.with_columns(late=pl.col("late").rank("dense").cast(pl.Float64))


def test_train__two_workers(client: Client, table: Path, expected: Path, tmp_path: Path, both_alive: None) -> None:
    events: list[Event] = []
    out = tmp_path / "f"
    bigforest.train(table, out=out, scheduler=client, listener=events.append, **CONFIG)
    assert_equal(rows_of(out), rows_of(expected))
    for part in part_paths(expected):
        assert (out / "trees" / part.name).read_bytes() == part.read_bytes()
    assert (out / "oob" / "rows.parquet").read_bytes() == (expected / "oob" / "rows.parquet").read_bytes()
    assert bigforest.read_forest(out).run["threads"].to_list() == [2] * 6
    used = [event for event in events if isinstance(event, WorkersUsed)]
    assert len(used) == 1
    assert {each.worker for each in used[0].workers} == set(Cluster(client).threads())
    assert sum(each.tasks for each in used[0].workers) >= 6 + 1 + 2
    assert all(each.seconds > 0 for each in used[0].workers)
    ends = [event.done for event in events if isinstance(event, StageAdvanced) and event.stage == "oob"]
    totals = [event.total for event in events if isinstance(event, StageStarted) and event.stage == "oob"]
    assert ends[-1:] == totals[-1:]  # of the report after the boosted stage


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


def test_train__boosted_stage(client: Client, tmp_path: Path, both_alive: None) -> None:
    mixed_table().write_parquet(tmp_path / "t.parquet")
    options = options_of("minutes") | {"trees": 12, "refine": 3}
    for out, scheduler in ((tmp_path / "one", "threads"), (tmp_path / "two", client)):
        assert bigforest.train(tmp_path / "t.parquet", out=out, scheduler=scheduler, **options).rounds.amount == 3.0
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_train__rows_that_repeat_are_noticed(client: Client, tmp_path: Path, both_alive: None) -> None:
    path, events = tmp_path / "twice.parquet", list[Event]()
    pl.concat([frame(), frame()]).write_parquet(path)
    bigforest.encode_store(path, tmp_path / "s", target="late", scheduler=client, listener=events.append)
    assert any("equal an earlier row" in event.message for event in events if isinstance(event, Notice))


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


def test_train__categories_gaps_and_weights(client: Client, tmp_path: Path, both_alive: None) -> None:
    """Numbers are predicted in `test_train__boosted_stage`."""
    mixed_table().write_parquet(tmp_path / "t.parquet", row_group_size=700)
    for name, scheduler in (("threads", "threads"), ("cluster", client)):
        bigforest.train(tmp_path / "t.parquet", out=tmp_path / name, scheduler=scheduler, **options_of("kind"))
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


def test_predict__two_workers_of_which_one_is_killed(
    client: Client, table: Path, expected: Path, tmp_path: Path, both_alive: None
) -> None:
    killer = Killer(client, "predict")
    options: dict[str, Any] = {"proba": True, "keep": ["hour"], "ties": "random", "reject_above": 0.1}
    options |= {"coverage": 0.8, "coverage_by": "hour"}
    here = bigforest.predict_file(expected, table, tmp_path / "here.parquet", scheduler="threads", **options)
    there = bigforest.predict_file(
        expected, table, tmp_path / "there.parquet", scheduler=client, listener=killer, **options
    )
    assert killer.killed
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
