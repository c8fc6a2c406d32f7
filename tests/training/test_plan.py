"""What the plan says holds: bounds are bounds, and it says no when a run would."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigforest
from bigforest.encode.roles import column_roles, shape_of
from bigforest.errors import ConfigError
from bigforest.execution.resources import Resources
from bigforest.grow.memory_model import extra_bytes
from bigforest.options.train_config import TASKS, TrainConfig
from bigforest.planning.memory import MemoryEstimate, Shape, TableTraits, machine_bytes
from bigforest.source.open import open_source
from bigforest.training import plan as plan_module
from bigforest.training.plan import resolve, store_disk_bytes
from bigforest.training.run_folder import Run as TrainingRun
from tests.commands import Run, folder, run
from tests.strategies import mixed_frames

__all__ = ["folder", "run"]  # fixtures

MANY = TableTraits(many=True)


def frame(rows: int = 400) -> pl.DataFrame:
    """Columns of every kind of bound: by type, by statistics, by rows."""
    draw = np.random.default_rng(3)
    return pl.DataFrame(
        {
            "flag": draw.integers(0, 2, rows).astype(bool),
            "byte": draw.integers(-5, 5, rows).astype(np.int8),
            "year": draw.integers(1990, 2020, rows),
            "wide": draw.integers(0, 10**9, rows),
            "real": draw.normal(size=rows).astype(np.float32),
            "kind": draw.choice(["a", "b", "c"], rows),
        }
    )


def shape(data: Any, target: str, scratch: Path, exclude: Sequence[str] = (), **options: Any) -> Shape:
    source, config = open_source(data, scratch=scratch), TrainConfig(**options)
    return shape_of(source, column_roles(source, target, exclude, config), config)


def test_check_machine__refuses_what_it_cannot_hold_however_it_goes(tmp_path: Path) -> None:
    """20,000 classes of a row each: the counts of the nodes alone are gigabytes, and so are the votes."""
    rows = np.arange(20_000)
    table = pl.DataFrame({"x": rows, "y": rows.astype(str)})
    store = bigforest.encode_store(table, tmp_path / "s", target="y")
    plan = resolve(TrainingRun(store, None, (), TrainConfig()), store, Resources())
    with pytest.raises(
        ConfigError,
        match=r"the stage grow needs up to \d+MB .*, 1 feature, 20,000 classes and \d+ threads?,",
    ):
        plan.check_machine(4 << 30)
    plan.check_machine(1 << 50)
    machine = machine_bytes()
    if machine is not None and machine < 40e9:
        with pytest.raises(ConfigError, match="and this machine has"):
            bigforest.train(store)


def test_shape__of_parquet_files_by_their_statistics(tmp_path: Path) -> None:
    frame().head(150).write_parquet(tmp_path / "a.parquet", row_group_size=40)
    frame().tail(250).write_parquet(tmp_path / "b.parquet")
    found = shape(tmp_path, "kind", tmp_path)
    assert found == Shape(400, (1, 1, 1, 2, 2), 2 + 10 + 30 + 400 + 400, 3, (1, 1, 8, 8, 4), extras=MANY)


def test_shape__without_statistics_is_bounded_by_types_and_rows(tmp_path: Path) -> None:
    frame().write_parquet(tmp_path / "a.parquet", statistics=False)
    found = shape(frame(), "kind", tmp_path)
    assert found == Shape(400, (1, 1, 2, 2, 2), 2 + 256 + 3 * 400, 3, (1, 1, 8, 8, 4), extras=MANY)
    found = shape(tmp_path / "a.parquet", "kind", tmp_path)
    assert found == Shape(
        400, (1, 2, 2, 2, 2), 3 + 257 + 3 * 400, 3, (1, 1, 8, 8, 4), extras=MANY, dropped=True
    )  # values may be missing
    binned = shape(frame(), "kind", tmp_path, max_bins=10)
    assert binned == Shape(400, (1,) * 5, 2 + 4 * 10, 3, (1, 1, 8, 8, 4), extras=MANY)


@pytest.mark.parametrize("dtype", [pl.Int128, pl.UInt128])
def test_shape__of_parquet_files_with_integers_of_128_bits(dtype: type[pl.DataType], tmp_path: Path) -> None:
    """Which Arrow does not read."""
    long = frame().with_columns(long=pl.col("year").cast(dtype))
    long.write_parquet(tmp_path / "a.parquet")
    found = shape(tmp_path / "a.parquet", "kind", tmp_path)
    assert found.features == 6 and found.rows == 400


@pytest.mark.parametrize(
    ("target", "task", "classes"),
    [
        ("flag", None, 2),
        ("year", None, 1),
        ("year", "classification", 30),
        ("kind", None, 3),
        ("wide", None, 1),
        ("wide", "classification", 400),
        ("real", None, 1),
    ],
)
def test_shape__classes(tmp_path: Path, target: str, task: Any, classes: int) -> None:
    table = tmp_path / "a.parquet"
    frame().write_parquet(table)
    exclude = [] if target == "kind" else ["kind"]
    assert shape(table, target, tmp_path, exclude, task=task).classes == classes


@given(mixed_frames(), st.sampled_from(["exact", 2, 5]), st.booleans(), st.data())
def test_shape__is_never_less_than_that_of_the_store(
    data: pl.DataFrame, max_bins: str | int, in_file: bool, drawn: st.DataObject
) -> None:
    """Rows without a target, weights, groups and the numbers of a regression included."""
    task = drawn.draw(st.sampled_from([*TASKS]))
    options: dict[str, Any] = {"max_bins": max_bins, "task": task}
    if task == "regression":
        numbers = st.lists(st.sampled_from([0.0, 0.1, 7.0, None]), min_size=data.height, max_size=data.height)
        data = data.with_columns(target=pl.Series(drawn.draw(numbers.filter(any)), dtype=pl.Float64))
    for role in drawn.draw(st.sets(st.sampled_from(["weight", "group"]))):
        data = data.with_columns((pl.int_range(data.height) % 3 + 1).alias(f"own {role}"))
        options[role] = f"own {role}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table: Any = data
        if in_file and pl.Int128 not in data.dtypes:
            table = folder / "table.parquet"
            data.write_parquet(table)
        most = shape(table, "target", folder, **options)
        store = bigforest.encode_store(data, folder / "s", target="target", **options)
        exact = store.shape
        assert exact.codes <= most.codes
        assert exact.classes <= most.classes
        assert all(ours <= bound for ours, bound in zip(exact.widths, most.widths, strict=True))
        files = sum(path.stat().st_size for path in store.path.iterdir() if path.suffix == ".bin")
        narrow = 6 * store.rows if store.spec.weight is not None and not store.spec.wide_weights else 0
        whole = 8 * store.rows if task == "regression" and store.spec.target.exact else 0
        same = replace(exact, dropped=store.spec.dropped > 0)
        assert store_disk_bytes(same, TrainConfig(**options)) - narrow - whole == files
        assert store_disk_bytes(most, TrainConfig(**options)) >= files


def test_plan__of_a_table_and_of_a_store(tmp_path: Path) -> None:
    frame().write_parquet(tmp_path / "a.parquet")
    found = bigforest.plan_training(tmp_path / "a.parquet", "kind", trees=7, out=tmp_path / "f", threads=1)
    assert (found.rows, found.features, found.classes, found.widths) == (400, 5, 3, {1: 3, 2: 2, 4: 0})
    assert [stage.stage for stage in found.stages] == ["encode", "choose", "grow", "oob"]
    assert found.fits
    assert 0 < found.seconds == found.compiling + sum(stage.seconds for stage in found.stages)
    assert found.store <= found.scratch
    assert not list(tmp_path.glob("f*"))
    bigforest.encode_store(tmp_path / "a.parquet", tmp_path / "s", target="kind")
    kept = bigforest.plan_training(tmp_path / "s", bootstrap=False)
    assert [stage.stage for stage in kept.stages] == ["choose", "grow"]
    assert kept.store == 0


def test_plan__wrong_input(tmp_path: Path) -> None:
    for options, message in (
        ({"target": "kin"}, "did you mean 'kind'"),
        ({"target": "flag", "categories": ["real"]}, "'real' has type Float32"),
        ({"target": "real", "sampling": "balanced"}, "is for classification, and this is a regression"),
        ({"target": "kind", "memory": "much"}, "memory must be a size"),
        ({"target": "kind", "out": tmp_path / "no/f"}, "does not exist"),
        ({"target": "kind", "tres": 3}, "did you mean trees"),
        ({"target": "list", "task": "classification"}, "'list' has type List"),
        ({"target": "huge", "task": "classification"}, "'huge' has type Int128"),
    ):
        with pytest.raises(bigforest.BigForestError, match=message):
            table = frame().with_columns(
                list=pl.concat_list("real"), huge=pl.col("real").fill_nan(None).cast(pl.Int128)
            )
            bigforest.plan_training(table, exclude={"list", "huge"} - {options["target"]}, **options)


def needs(*smallest: int, scratch: int = 0) -> tuple[Any, ...]:
    names = ("encode", "grow", "oob")
    return tuple(
        lambda shape, config, resources, name=name, least=least: MemoryEstimate(name, least + 7, least, scratch, 3)
        for name, least in zip(names, smallest, strict=True)
    )


def test_plan__says_no_with_the_smallest_budget_that_would_do(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "STAGES", needs(3 * 10**8, 512_345_678, 4 * 10**8))
    facts = json.loads(run("plan", "things.parquet", "--memory", "500MB", "--json").out)
    assert (run.code, run.err) == (1, "")
    assert (facts["fits"], facts["smallest"], facts["memory"]) == (False, 512_345_678, 500_000_000)
    assert [stage["need"]["smallest"] for stage in facts["stages"]] == [3 * 10**8, 512_345_678, 4 * 10**8]
    run("plan", "things.parquet", "--memory", "500MB")
    assert "it does not fit; not enough memory: at least 513MB are needed" in run.out
    run("train", "things.parquet", "--memory", "500MB")
    assert (run.code, run.out) == (2, "")
    assert "the stage grow needs at least 513MB of memory and may use 500MB" in run.err
    assert sorted(path.name for path in folder.iterdir()) == ["scratch", "things.parquet"]
    assert run("plan", "things.parquet", "--memory", "513MB").code == 0
    assert "it fits" in run.out
    assert run("train", "things.parquet", "--memory", "513MB", "--trees", "2", "--no-bootstrap").code == 0


def test_plan__says_no_when_the_disk_is_too_small(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "STAGES", needs(1, 1, 1, scratch=10**18))
    assert run("plan", "things.parquet").code == 1
    assert "not enough disk space" in run.out
    assert run("plan", "things.parquet", "--quiet").code == 1  # as all commands have the option
    stages = bigforest.plan_training("things.parquet", bootstrap=False).stages
    assert [stage.stage for stage in stages] == ["encode", "grow"]


def test_plan__is_of_resources_and_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Shape, TrainConfig, Resources]] = []

    def note(shape: Shape, config: TrainConfig, resources: Resources) -> MemoryEstimate:
        seen.append((shape, config, resources))
        return MemoryEstimate("grow", 1, 1)

    monkeypatch.setattr(plan_module, "STAGES", (note,))
    bigforest.plan_training(frame(), "kind", memory="1GiB", threads=3, trees=5, max_bins=4)
    [(shape, config, resources)] = seen
    assert (shape.rows, config.trees, config.max_bins) == (400, 5, 4)
    assert resources == Resources(threads=3, memory=2**30)


def test_extra_bytes__hold_all_levels_but_the_heavy_one() -> None:
    """A split lists the levels of its lighter child, which may be all levels but one."""
    names = ["heavy"] * 60 + [f"light {number}" for number in range(40)]
    table = {"x": names, "y": [name == "heavy" for name in names]}
    forest = bigforest.train(table, "y", trees=1, bootstrap=False, min_level=1)
    listed = forest.nodes.collect()["levels"].list.len().max()
    assert listed == 40
    sizes = [extra_bytes(Shape(100, (1,), 41, 2, extras=TableTraits(("x",), 41)), 100, nodes) for nodes in (1, 3)]
    assert sizes[1] - sizes[0] >= (8 + 24) * listed  # in memory, and on their way into a file
