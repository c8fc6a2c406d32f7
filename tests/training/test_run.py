"""Runs that go on: what resuming accepts and refuses, what an interrupted run leaves, and adding trees."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest
from bigforest.events import Event, Notice, StageAdvanced
from bigforest.forest import nodes as forest_nodes
from bigforest.storage import locks
from bigforest.storage.regular_files import MAX_JSON
from bigforest.training import run_folder
from bigforest.training.run_folder import RunState
from tests.thorough import examples

OPTIONS: dict[str, Any] = {"trees": 9, "seed": 3, "threads": 2}


def frame(rows: int = 200) -> pl.DataFrame:
    draw = np.random.default_rng(1)
    size, noise = draw.integers(0, 40, rows), draw.normal(size=rows)
    return pl.DataFrame({"size": size, "noise": noise, "kind": np.where(size + noise < 20, "small", "large")})


def files(forest: Path) -> dict[str, bytes]:
    """The content of every file but run.parquet, which holds timings."""
    return {
        str(path.relative_to(forest)): path.read_bytes()
        for path in sorted(forest.rglob("*"))
        if path.is_file() and path.name != "run.parquet"
    }


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's folder for temporary files, empty, of this test alone."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    frame().write_parquet(tmp_path / "things.parquet")
    return tmp_path / "things.parquet"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole") / "f"
    bigforest.train(frame(), "kind", out=out, **OPTIONS)
    return files(out)


def stop_in(stage: str, done: int = 1) -> Callable[[Event], None]:
    def stop(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == stage and event.done >= done:
            raise KeyboardInterrupt

    return stop


def interrupted(data: Any, out: Path, stage: str = "grow", **options: Any) -> Path:
    """The folder of a run that was interrupted in a stage."""
    with pytest.raises(KeyboardInterrupt) as caught:
        bigforest.train(data, "kind", out=out, listener=stop_in(stage), **{**OPTIONS, **options})
    assert caught.value.__notes__ == [f"continue with train(resume='{out}')"]
    return out.with_name(out.name + ".unfinished")


@pytest.mark.parametrize("stage", ["encode", "compile", "grow", "oob"])
def test_resume__ends_in_the_same_forest(
    table: Path, tmp_path: Path, scratch: Path, expected: dict[str, bytes], stage: str
) -> None:
    out = tmp_path / "f"
    interrupted(table, out, stage)
    assert not out.exists()
    forest = bigforest.train(resume=out)
    assert forest.trees == 9
    assert files(out) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "scratch", "things.parquet"]
    assert not list(scratch.iterdir())


def test_resume__keeps_what_is_finished(table: Path, tmp_path: Path) -> None:
    folder = interrupted(table, tmp_path / "f")
    parts = sorted((folder / "forest/trees").iterdir())
    times = [part.stat().st_mtime_ns for part in parts]
    seen: list[Event] = []
    bigforest.train(resume=tmp_path / "f", listener=seen.append)
    assert len(parts) >= 1
    assert [(tmp_path / "f/trees" / part.name).stat().st_mtime_ns for part in parts] == times
    assert not [event for event in seen if getattr(event, "stage", "") == "encode"]
    grown = [event.done for event in seen if isinstance(event, StageAdvanced) and event.stage == "grow"]
    assert (grown[0], grown[-1]) == (3 * len(parts), 9)


def test_train__what_lost_workers_were_writing_is_removed(
    table: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """A worker that is killed leaves the part that it was writing, while the run goes on."""
    half = tmp_path / "f.unfinished/forest/trees/.part-0000003.parquet.0123456789abcdef.tmp"

    def leave(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow":
            half.write_bytes(b"half")

    bigforest.train(table, "kind", out=tmp_path / "f", listener=leave, **OPTIONS)
    assert files(tmp_path / "f") == expected


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"seed": 4}, "has seed 3, which resuming cannot change to 4; drop seed"),
    ({"trees": 20}, "has trees 9, which"),
    ({"mtry": "all"}, "has mtry 'sqrt'"),
    ({"max_bins": 8}, "has max_bins 'exact'"),
    ({"target": "size"}, "has target 'kind'"),
    ({"exclude": ["noise"]}, "has exclude"),
    ({"out": "g"}, "needs neither out nor overwrite"),
    ({"overwrite": True}, "needs neither out nor overwrite"),
    ({"impurity": "giny"}, "impurity must be one of"),
]


def test_resume__refuses_what_contradicts(table: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    out = tmp_path / "f"
    interrupted(table, out)
    for options, message in CONTRADICTIONS:
        with pytest.raises(bigforest.ConfigError, match=message):
            bigforest.train(resume=out, **options)
    bigforest.train(resume=out, target="kind", seed=3, trees=9, threads=1)
    assert files(out) == expected


@pytest.mark.parametrize("stage", ["encode", "grow"])
def test_resume__a_table_in_memory_is_given_again(tmp_path: Path, expected: dict[str, bytes], stage: str) -> None:
    out = tmp_path / "f"
    interrupted(frame(), out, stage)
    if stage == "encode":
        with pytest.raises(bigforest.ConfigError, match=r"started with a table in memory .*; give it again"):
            bigforest.train(resume=out)
    bigforest.train(frame().lazy(), resume=out)
    assert files(out) == expected


def test_resume__another_table_is_refused(table: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    out, noise = tmp_path / "f", pl.col("noise")
    folder = interrupted(table, out)
    for change in (noise + 1.0, noise.cast(pl.Float32), noise.alias("n")):
        with pytest.raises(bigforest.DataError, match=r"not the one that .*f was started with"):
            bigforest.train(frame().select("size", change, "kind"), resume=out)
    assert folder.exists()
    table.rename(tmp_path / "moved.parquet")
    bigforest.train(tmp_path / "moved.parquet", resume=folder)  # by the name of the folder
    assert files(out) == expected
    origin = bigforest.read_forest(out).origin
    assert origin is not None
    assert origin.data == str(tmp_path / "moved.parquet")


def test_add_trees__arrays_beside_the_table_are_given_again(tmp_path: Path) -> None:
    table, out, rows = frame().drop("kind"), tmp_path / "f", np.arange(frame().height)
    beside: dict[str, Any] = {"target": frame()["kind"].to_numpy(), "weight": rows % 3 + 1.0, "group": rows // 2}
    bigforest.train(table, **beside, trees=2, out=out)
    for name in beside:
        others = {other: values for other, values in beside.items() if other != name}
        message = f"the table lacks '{name}', the {name} of training; add the column, or give the array again as {name}"
        with pytest.raises(bigforest.DataError, match=message):
            bigforest.train(table, **others, trees=3, resume=out)
        with pytest.raises(bigforest.DataError, match="columns, values, weights or groups differ"):
            bigforest.train(table, **others, **{name: beside[name][::-1]}, trees=3, resume=out)
    with pytest.raises(bigforest.ConfigError, match="target is an array beside a table; give the table, too, as data"):
        bigforest.train(**beside, trees=3, resume=out)
    assert bigforest.train(table, **beside, trees=3, resume=out).trees == 3


def test_resume__a_file_that_has_changed_under_its_name_is_refused(
    table: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """A table that is given again is compared with the one that the run was started with, whatever its path."""
    out = tmp_path / "f"
    interrupted(table, out)
    frame().with_columns(pl.col("noise") + 1.0).write_parquet(table)
    with pytest.raises(bigforest.DataError, match=r"not the one that .*f was started with"):
        bigforest.train(table, resume=out)
    frame().write_parquet(table)
    bigforest.train(table, resume=out)
    assert files(out) == expected


def test_resume__with_a_kept_store(table: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    bigforest.encode_store(table, tmp_path / "s", target="kind")
    with pytest.raises(KeyboardInterrupt):
        bigforest.train(tmp_path / "s", out=tmp_path / "f", listener=stop_in("grow"), **OPTIONS)
    assert not (tmp_path / "f.unfinished/work/table.store").exists()
    bigforest.train(resume=tmp_path / "f")
    assert files(tmp_path / "f") == expected


@pytest.mark.parametrize("emptied", [False, True])
def test_resume__scratch_holds_the_store_and_may_change(
    table: Path, tmp_path: Path, expected: dict[str, bytes], emptied: bool
) -> None:
    """The store stays where it is, and is made again in the present folder if it is gone."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    folder = interrupted(table, tmp_path / "f", scratch=tmp_path / "a")
    assert not (folder / "work").exists()
    assert len(list((tmp_path / "a").glob("*/table.store/manifest.json"))) == 1
    with pytest.raises(KeyboardInterrupt):
        bigforest.train(resume=tmp_path / "f", scratch=tmp_path / "b", listener=stop_in("grow", 9))
    assert len(list((tmp_path / "a").glob("*/table.store/manifest.json"))) == 1
    assert len(list((tmp_path / "b").glob("*/temporary"))) == 1
    if emptied:
        shutil.rmtree(tmp_path / "a")
        (tmp_path / "a").mkdir()
        with pytest.raises(KeyboardInterrupt):
            bigforest.train(resume=tmp_path / "f", listener=stop_in("grow", 9))
    bigforest.train(resume=tmp_path / "f")
    assert files(tmp_path / "f") == expected
    assert not [*(tmp_path / "a").iterdir(), *(tmp_path / "b").iterdir()]


def test_resume__nothing_there(tmp_path: Path, table: Path) -> None:
    with pytest.raises(bigforest.ConfigError, match="no unfinished run and no forest"):
        bigforest.train(resume=tmp_path / "f")
    with pytest.raises(bigforest.ConfigError, match="no table to train on"):
        bigforest.train()
    (tmp_path / "f.unfinished").mkdir()
    (tmp_path / "f.unfinished/thesis").touch()
    for options in ({"resume": tmp_path / "f"}, {"data": table, "target": "kind", "out": tmp_path / "f"}):
        with pytest.raises(bigforest.OutputExistsError, match="not an unfinished run"):
            bigforest.train(**options)
    assert (tmp_path / "f.unfinished/thesis").exists()


def test_train__an_unfinished_run_is_not_discarded_unasked(
    table: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    out = tmp_path / "f"
    folder = interrupted(table, out, seed=8)
    with pytest.raises(
        bigforest.OutputExistsError, match=r"is an unfinished run: continue with .* or start again with"
    ):
        bigforest.train(table, "kind", out=out, **OPTIONS)
    (folder / "thesis").touch()
    with pytest.raises(bigforest.OutputExistsError, match="holds thesis"):
        bigforest.train(table, "kind", out=out, overwrite=True, **OPTIONS)
    (folder / "thesis").unlink()
    bigforest.train(table, "kind", out=out, overwrite=True, **OPTIONS)
    assert files(out) == expected
    assert not folder.exists()


def test_train__wrong_input_leaves_nothing_but_an_earlier_run_stays(table: Path, tmp_path: Path) -> None:
    folder = interrupted(table, tmp_path / "f", "encode")
    table.unlink()
    with pytest.raises(bigforest.DataError, match="no such file"):
        bigforest.train(resume=tmp_path / "f")
    assert folder.exists()
    with pytest.raises(bigforest.DataError):
        bigforest.train(frame(), "nonsense", out=tmp_path / "g")
    assert not list(tmp_path.glob("g*"))


def test_train__over_a_run_that_was_killed_while_it_replaced_a_forest(table: Path, tmp_path: Path) -> None:
    """The old forest is back until the next run is complete."""
    out = tmp_path / "f"
    bigforest.train(table, "kind", out=out, trees=4, seed=8)
    old = files(out)
    folder = interrupted(table, out, overwrite=True)
    out.rename(folder / "replaced")  # as a kill between the two renames leaves it
    interrupted(table, out, overwrite=True)
    assert files(out) == old


def test_train__output_that_appears_meanwhile_is_not_replaced(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"

    def appear(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "oob":
            out.write_text("theirs")

    with pytest.raises(bigforest.OutputExistsError, match="during the run"):
        bigforest.train(table, "kind", out=out, listener=appear, **OPTIONS)
    out.unlink()
    assert bigforest.train(resume=out).trees == 9


def test_train__error_of_a_worker_leaves_a_run_to_go_on_with(
    table: Path, tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bigforest.grow import forest as growing

    def fail(directory: Path, first_tree: int, *rest: Any) -> None:
        if first_tree == 6:
            raise RuntimeError("boom")
        original(directory, first_tree, *rest)

    original = growing.write_part
    monkeypatch.setattr(growing, "write_part", fail)
    with pytest.raises(RuntimeError, match="boom") as caught:
        bigforest.train(table, "kind", out=tmp_path / "f", **OPTIONS)
    assert "resume=" in caught.value.__notes__[0]
    monkeypatch.undo()
    bigforest.train(resume=tmp_path / "f")
    assert files(tmp_path / "f") == expected


def test_resume__another_version_may_grow_other_trees(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bigforest.training import run

    out = tmp_path / "f"
    interrupted(table, out)
    monkeypatch.setattr(run, "versions", lambda: {"bigforest": "0.0.9", "numpy": "2.4"})
    with pytest.raises(bigforest.ConfigError, match=r"was grown with bigforest .* and this is 0\.0\.9"):
        bigforest.train(resume=out)
    monkeypatch.undo()
    bigforest.train(resume=out)
    monkeypatch.setattr(run, "versions", lambda: {"bigforest": bigforest.__version__, "numpy": "1.0"})
    with pytest.raises(bigforest.ConfigError, match=r"was grown with numpy"):
        bigforest.train(resume=out, trees=20)


@settings(max_examples=examples(12))
@given(st.integers(1, 20), st.integers(1, 20), st.booleans())
def test_add_trees__equals_all_at_once(first: int, more: int, bootstrap: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out, whole = Path(folder) / "f", Path(folder) / "whole"
        options = {"seed": 5, "bootstrap": bootstrap, "threads": 2}
        frame().write_parquet(f"{folder}/t.parquet")
        bigforest.train(f"{folder}/t.parquet", "kind", out=out, trees=first, **options)
        bigforest.train(resume=out, trees=first + more)
        bigforest.train(f"{folder}/t.parquet", "kind", out=whole, trees=first + more, **options)
        assert files(out) == files(whole)


FAMILIES: list[dict[str, Any]] = [
    {"family": "sparse-oblique", "mean_difference": "all", "ranks": True},
    {"family": "rotation"},
    {"family": "rotation", "rotation": "pca", "feature_fraction": 0.5},
    {"family": "rotation", "rotation": "pca-classes", "bootstrap": True, "axis_features": 2},
    {"family": "rotation", "axes_from": "auto"},
    {"family": "axis", "max_leaf_nodes": 6, "min_impurity_decrease": 0.001, "ccp_alpha": 0.002},
]


@pytest.mark.parametrize("options", FAMILIES)
def test_add_trees__of_families_equals_all_at_once(
    options: dict[str, Any], table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is interrupted, resumed, and then trees are added."""
    monkeypatch.setattr(forest_nodes, "GROUP_ENTRIES", 20)
    bigforest.train(table, "kind", out=tmp_path / "whole", **{**OPTIONS, **options, "trees": 15})
    interrupted(table, tmp_path / "f", "grow", **options)
    assert bigforest.train(resume=tmp_path / "f", family=options["family"]).config.family == options["family"]
    bigforest.train(resume=tmp_path / "f", trees=15)
    assert files(tmp_path / "f") == files(tmp_path / "whole")


def test_add_trees__not_to_a_pruned_forest(table: Path, tmp_path: Path) -> None:
    bigforest.train(table, "kind", out=tmp_path / "f", **OPTIONS)
    bigforest.prune_forest(tmp_path / "f", frame(99), tmp_path / "p")
    with pytest.raises(bigforest.ConfigError, match="was pruned, so no trees can be added"):
        bigforest.train(resume=tmp_path / "p", trees=12)


def test_add_trees__to_a_finished_forest(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"
    bigforest.train(frame(), "kind", out=out, **OPTIONS)
    with pytest.raises(bigforest.ConfigError, match="9 trees, more than 8"):
        bigforest.train(resume=out, trees=8)
    with pytest.raises(bigforest.ConfigError, match="seed 3, which resuming cannot change"):
        bigforest.train(resume=out, trees=12, seed=1)
    with pytest.raises(bigforest.ConfigError, match=r"table in memory .*; give it again"):
        bigforest.train(resume=out, trees=12)
    with pytest.raises(bigforest.DataError, match="not the one"):
        bigforest.train(frame(199), resume=out, trees=12)
    seen: list[Event] = []
    assert bigforest.train(resume=out, listener=seen.append).trees == 9
    assert next(event.message for event in seen if isinstance(event, Notice)).startswith(f"{out} is finished")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "scratch", "things.parquet"]
    assert bigforest.train(table, resume=out, trees=12).trees == 12
    assert bigforest.train(resume=out, trees=13).trees == 13  # the path is known now


def test_add_trees__of_a_forest_with_excluded_columns_and_bins(table: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"exclude": ["noise"], "max_bins": 8, "seed": 2}
    bigforest.train(table, "kind", out=tmp_path / "f", trees=3, **options)
    bigforest.train(resume=tmp_path / "f", trees=7, exclude="noise")
    bigforest.train(table, "kind", out=tmp_path / "g", trees=7, **options)
    assert files(tmp_path / "f") == files(tmp_path / "g")


def test_add_trees__interrupted_keeps_the_forest_until_the_end(
    table: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    out = tmp_path / "f"
    bigforest.train(table, "kind", out=out, trees=4, seed=3)
    before = files(out)
    with pytest.raises(KeyboardInterrupt):
        bigforest.train(resume=out, trees=9, listener=stop_in("grow", 9))
    assert files(out) == before
    with pytest.raises(bigforest.ConfigError, match="has trees 9"):
        bigforest.train(resume=out, trees=12)
    bigforest.train(resume=out)
    assert files(out) == expected


@pytest.mark.usefixtures("no_collection")
def test_state__is_read_as_written_or_refused(table: Path, tmp_path: Path) -> None:
    path = interrupted(table, tmp_path / "f") / "state.json"
    state = RunState.read(path)
    state.write(tmp_path / "again.json")
    assert path.read_text() == (tmp_path / "again.json").read_text()
    raw = json.loads(path.read_text())
    changes = [
        ({"version": 5}, "upgrade"),
        ({"version": 1}, "older"),
        ({"tree": 1}, "damaged"),
        ({"format": "x"}, "damaged"),
    ]
    for change, message in changes:
        path.write_text(json.dumps({**raw, **change}))
        with pytest.raises(bigforest.FormatError, match=message):
            RunState.read(path)
    for text in ("", "[]", "null", '"x"', "{}", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(bigforest.FormatError, match="damaged"):
            RunState.read(path)
    made = [
        (lambda: None, "is missing"),
        (path.mkdir, "it is not a regular file"),
        (lambda: os.mkfifo(path), "it is not a regular file"),
        (lambda: path.symlink_to(tmp_path / "again.json"), "it is a link"),
        (lambda: (path.touch(), os.truncate(path, MAX_JSON + 1)), "has 268,435,457 bytes, more than"),
    ]
    path.unlink()
    for make, message in made:
        make()
        with pytest.raises(bigforest.FormatError, match=f"{message}.*; restore it .*, or start again with overwrite"):
            RunState.read(path)
        if message != made[0][1]:
            path.rmdir() if path.is_dir() else path.unlink()
    path.touch()
    bigforest.train(table, "kind", out=tmp_path / "f", overwrite=True, **OPTIONS)
    assert not path.exists()


def test_lock__is_held_until_the_run_ends(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"
    tried: list[type[BaseException]] = []

    def second(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow" and event.done == 6:
            for options in ({"resume": out}, {"data": table, "target": "kind", "out": out, "overwrite": True}):
                with pytest.raises(bigforest.BusyError, match="another run is writing") as caught:
                    bigforest.train(**options)
                tried.append(caught.type)

    bigforest.train(table, "kind", out=out, listener=second, **OPTIONS)
    assert len(tried) == 2


def test_lock__works_where_the_system_has_none(
    table: Path, tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    interrupted(table, tmp_path / "f")
    bigforest.train(resume=tmp_path / "f")
    assert files(tmp_path / "f") == expected


def test_memory__too_little_is_refused_before_any_work(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bigforest.planning.memory import MemoryEstimate
    from bigforest.training import plan

    monkeypatch.setattr(plan, "STAGES", (lambda *_: MemoryEstimate("grow", 10**9, 600 * 10**6),))
    with pytest.raises(bigforest.ConfigError, match="the stage grow needs at least 600MB of memory and may use 500MB"):
        bigforest.train(table, "kind", out=tmp_path / "f", memory="500MB", **OPTIONS)
    assert not list(tmp_path.glob("f*"))
    assert bigforest.train(table, "kind", out=tmp_path / "f", memory="600MB", **OPTIONS).trees == 9


def test_forest__of_other_files_does_not_mix(table: Path, tmp_path: Path) -> None:
    """A part of another forest among the finished ones is not taken for ours."""
    folder = interrupted(table, tmp_path / "f")
    bigforest.train(table, "kind", out=tmp_path / "g", trees=9, seed=4)
    shutil.copy(tmp_path / "g/trees/part-0000000.parquet", folder / "forest/trees/part-0000000.parquet")
    with pytest.raises(bigforest.FormatError, match=r"belongs to another forest.*remove this file"):
        bigforest.train(resume=tmp_path / "f")


def test_train__what_a_worker_writes_too_late_is_not_in_the_forest(
    table: Path, tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_output = run_folder.replace_output

    def after_another_worker(made: Path, place: Path, aside: Path) -> None:
        for late in (made / "votes" / "part-0000000.ballots", made / "trees" / f".part-0000000.{'0' * 16}.tmp"):
            late.parent.mkdir(exist_ok=True)
            late.touch()
        replace_output(made, place, aside)

    monkeypatch.setattr(run_folder, "replace_output", after_another_worker)
    bigforest.train(table, "kind", out=tmp_path / "f", **OPTIONS)
    assert files(tmp_path / "f") == expected
    assert not (tmp_path / "f" / "votes").exists()
