"""The projection of a training on a cluster follows from the table, the cluster and the rates."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import bigforest
from bigforest.errors import ConfigError
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.planning.sizes import parse_link
from bigforest.training.projection import MEASURED, Machines, Projection, project_training
from tests.commands import Run

LARGE = Shape(rows=10**8, widths=(4,) * 50, codes=50 * 10**8, classes=2)
MEMORY = 8_000_000_000


def projected(workers: int, memory: int | None = MEMORY, shape: Shape = LARGE, trees: int = 100) -> Projection:
    return project_training(shape, TrainConfig(trees=trees), Machines(workers, 4, memory), MEASURED)


def stage(found: Projection, name: str) -> dict[str, float]:
    [one] = [stage for stage in found.stages if stage.stage == name]
    return {field: getattr(one, field) for field in ("computing", "work", "client", "network", "disk", "tasks")}


def test_project__more_workers_share_the_work() -> None:
    few, many = projected(10), projected(100)
    assert few.by_passes
    assert many.passes == few.passes
    for name in ("passes", "subtrees", "rows of small nodes"):
        assert stage(many, name)["work"] == stage(few, name)["work"]
        assert stage(many, name)["computing"] == pytest.approx(stage(few, name)["computing"] / 10)
    assert stage(many, "rows of small nodes")["disk"] == pytest.approx(stage(few, "rows of small nodes")["disk"] / 10)
    assert many.seconds < few.seconds


def test_project__a_tree_is_scored_by_one_worker() -> None:
    assert projected(100).group == 25
    work = stage(projected(100), "scoring")["work"]
    assert stage(projected(4), "scoring")["computing"] == pytest.approx(work / 4)
    assert stage(projected(100), "scoring")["computing"] == pytest.approx(work / 25)
    assert stage(projected(1000), "scoring")["computing"] == pytest.approx(work / 25)


@pytest.mark.parametrize(("rows", "memory", "group"), [(10**6, 480, 100), (4 * 10**6, 1500, 50), (10**8, 8000, 25)])
def test_project__more_trees_share_passes_where_their_rows_take_little_room(rows: int, memory: int, group: int) -> None:
    shape = Shape(rows=rows, widths=(4,) * 28, codes=28 * rows, classes=2)
    found = projected(2, memory * 10**6, shape)
    assert found.by_passes
    assert found.group == group
    assert group == 25 or found.scratch < 16 << 30


def test_project__tasks_of_a_pass_are_those_of_workers_and_owners() -> None:
    for workers, owners in ((3, 3), (100, 25)):
        found = projected(workers)
        assert stage(found, "passes")["tasks"] == found.passes * (workers + owners)


def test_project__counts_of_many_workers_are_narrower() -> None:
    per_worker = [stage(projected(workers), "passes")["network"] for workers in (1, 1000)]
    assert per_worker[1] < per_worker[0] / 2


def test_project__small_tables_grow_whole() -> None:
    found = projected(10, None, Shape(rows=10_000, widths=(2,) * 8, codes=10_000, classes=2))
    assert not found.by_passes
    assert [one.stage for one in found.stages] == ["encode", "grow", "oob"]
    assert found.histograms == 0
    assert found.client_share > 0


def test_project__the_client_copies_nothing_of_the_store() -> None:
    found = stage(projected(100), "encode")
    assert found["client"] == MEASURED.task * found["tasks"]
    assert found["tasks"] > 50


def test_project__too_little_memory() -> None:
    with pytest.raises(ConfigError, match="at least"):
        projected(10, 200_000_000)


@pytest.mark.parametrize(
    ("link", "speed"), [("10Gbit", 1.25e9), ("8 mbit", 1e6), ("2.5gbit/s", 312.5e6), ("800bit", 100)]
)
def test_parse_link(link: str, speed: float) -> None:
    assert parse_link(link) == speed


@pytest.mark.parametrize("link", ["fast", "10GB", "", "-1Gbit", "0bit", "10 G", 7])
def test_parse_link__refuses(link: str) -> None:
    with pytest.raises(ConfigError, match="link must be bits per second"):
        parse_link(link)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = pl.int_range(500, eager=True)
    pl.DataFrame({"a": rows, "b": rows * 7 % 500, "late": rows % 2}).write_parquet(tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_plan__on_a_cluster(table: Path) -> None:
    assert bigforest.plan_training(table, "late").cluster is None
    found = bigforest.plan_training(table, "late", workers=5, threads=3, link="1Gbit").cluster
    assert found is not None
    assert (found.workers, found.threads, found.link) == (5, 3, 1.25e8)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, 10**9])
def test_plan__refuses_workers(table: Path, workers: int) -> None:
    with pytest.raises(ConfigError, match="workers must be a whole number"):
        bigforest.plan_training(table, "late", workers=workers)


def test_plan__a_link_without_workers(table: Path) -> None:
    with pytest.raises(ConfigError, match="set workers, the number of them, too"):
        bigforest.plan_training(table, "late", link="1Gbit")


def test_plan__on_the_command_line(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys)
    asked = ("plan", table, "--target", "late", "--workers", 7, "--threads", 2, "--link", "10Gbit")
    facts = run.json(*asked)["cluster"]
    assert (facts["workers"], facts["threads"]) == (7, 2)
    assert facts["seconds"] > 0
    assert [one["stage"] for one in facts["stages"]] == ["encode", "grow", "oob"]
    assert run(*asked).code == 0
    assert "7 workers of 2 threads" in run.out
    assert run("plan", table, "--target", "late", "--link", "fast", "--workers", 2).code == 2
    assert "--link must be bits per second" in run.err
