"""`bigforest.train`, `encode_store` and `predict_file`: what they accept, where outputs go, and what they refuse."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.errors import FormatError
from bigforest.events import Event, Notice, StageAdvanced, StageFinished, StageStarted
from tests.training.test_run import scratch

__all__ = ["scratch"]  # a fixture

OPTIONS = {"trees": 4, "seed": 3, "threads": 2}


def frame(rows: int = 60) -> pl.DataFrame:
    """Two features, of which one decides a class that is text."""
    draw = np.random.default_rng(1)
    size, noise = draw.integers(0, 40, rows), draw.normal(size=rows)
    return pl.DataFrame({"size": size, "noise": noise, "kind": np.where(size < 20, "small", "large")})


def nodes(forest: bigforest.Forest) -> pl.DataFrame:
    return forest.nodes.collect()


@pytest.fixture(scope="module")
def expected() -> pl.DataFrame:
    """The nodes that every way of handing over the frame must give."""
    return nodes(bigforest.train(frame(), "kind", **OPTIONS))


def parquet(folder: Path) -> Path:
    frame().write_parquet(folder / "things.parquet")
    return folder / "things.parquet"


def csv(folder: Path) -> str:
    frame().write_csv(folder / "things.csv")
    return str(folder / "things.csv")


def reader(folder: Path) -> Any:
    return frame().to_arrow().to_reader(max_chunksize=7)


def kept_store(folder: Path) -> Path:
    bigforest.encode_store(frame(), folder / "things.store", target="kind")
    return folder / "things.store"


def open_store(folder: Path) -> bigforest.Store:
    return bigforest.encode_store(frame(), folder / "things.store", target="kind")


@pytest.mark.parametrize(
    "shape",
    [
        lambda _: frame().lazy(),
        reader,
        parquet,
        kept_store,
        open_store,
    ],
    ids=["lazy", "reader", "parquet", "path", "store"],
)
def test_train__any_kind_of_table(shape: Callable[[Path], Any], expected: pl.DataFrame, tmp_path: Path) -> None:
    """Kinds of files are in tests/source/test_source.py, tables in memory in tests/source/test_beside.py."""
    assert nodes(bigforest.train(shape(tmp_path), "kind", **OPTIONS)).equals(expected)


def test_train__writes_where_told(expected: pl.DataFrame, tmp_path: Path, scratch: Path) -> None:
    forest = bigforest.train(frame(), "kind", out=tmp_path / "things.forest", **OPTIONS)
    assert forest.directory == tmp_path / "things.forest"
    assert nodes(bigforest.read_forest(tmp_path / "things.forest")).equals(expected)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["scratch", "things.forest"]
    assert not list(scratch.iterdir())


def test_train__run_lists_the_stages(tmp_path: Path) -> None:
    run = bigforest.train(frame(), "kind", **OPTIONS).run
    assert run["stage"].to_list() == ["encode", "compile", "choose", "grow", "oob"]
    assert (run["seconds"] > 0).all()
    assert (run["threads"] == 2).all()
    kept = bigforest.train(kept_store(tmp_path), bootstrap=False, **OPTIONS).run
    assert kept["stage"].to_list() == ["compile", "choose", "grow"]


def test_train__without_bootstrap_there_is_no_report(tmp_path: Path) -> None:
    forest = bigforest.train(frame(), "kind", bootstrap=False, out=tmp_path / "f", **OPTIONS)
    assert not (tmp_path / "f" / "oob").exists()
    with pytest.raises(bigforest.ConfigError, match="bootstrap"):
        _ = forest.oob


def test_train__tells_the_listener() -> None:
    seen: list[Event] = []
    data = frame().with_columns(kind=pl.when(pl.col("size") != pl.col("size").min()).then("kind"))
    dropped = data["kind"].null_count()
    forest = bigforest.train(data, "kind", listener=seen.append, mtry="sqrt", **OPTIONS)
    assert forest.spec.dropped == dropped > 0
    assert [event.message.split()[0] for event in seen if isinstance(event, Notice)] == [str(dropped)]
    for stage, times in {"encode": 1, "compile": 1, "grow": 1, "oob": 2}.items():  # votes, then the report
        started = [e for e in seen if isinstance(e, StageStarted) and e.stage == stage]
        assert [e.done for e in seen if isinstance(e, StageAdvanced) and e.stage == stage][-1] == started[-1].total
        assert sum(isinstance(e, StageFinished) and e.stage == stage for e in seen) == len(started) == times


@pytest.mark.parametrize(
    ("data", "target", "told"),
    [
        (frame().rename({"kind": "target", "noise": "y"}), None, "the target is 'target', and 'y' is a feature;"),
        (
            frame().rename({"kind": "label", "noise": "y", "size": "class"}),
            None,
            "the target is 'label', and 'class', 'y' are features;",
        ),
        (frame().rename({"kind": "target", "noise": "y"}), "target", None),
        (
            (frame().select("size", target=pl.col("kind")), frame()["kind"].to_list()),
            None,
            "the target is 'target_', and 'target' is a feature;",
        ),
        ((frame().select("size", y=pl.col("noise")), frame()["kind"].to_list()), None, None),
    ],
)
def test_train__names_columns_that_may_be_the_target(data: Any, target: str | None, told: str | None) -> None:
    heard: list[Event] = []
    bigforest.train(data, target, trees=2, listener=heard.append)
    found = [event.message for event in heard if isinstance(event, Notice) and "the target is" in event.message]
    assert [message[: len(told or "")] for message in found] == [told] * bool(told)


def test_train__temporary_forest_goes_with_the_object(scratch: Path) -> None:
    forest = bigforest.train(frame(), "kind", **OPTIONS)
    assert forest.directory.is_relative_to(scratch)
    del forest
    gc.collect()
    assert not list(scratch.iterdir())


def test_train__temporary_forest_lives_as_long_as_its_queries(scratch: Path, expected: pl.DataFrame) -> None:
    query = bigforest.train(frame(), "kind", **OPTIONS).nodes.filter(pl.col("depth") == 0)
    rows = bigforest.train(frame(), "kind", **OPTIONS).oob.rows
    gc.collect()
    assert query.collect().equals(expected.filter(pl.col("depth") == 0))
    assert query.select("weight").collect(engine="streaming").height == 4
    assert rows.collect().height == 60
    del query, rows
    gc.collect()
    assert not list(scratch.iterdir())


def test_train__temporary_forest_can_be_kept(expected: pl.DataFrame, tmp_path: Path) -> None:
    bigforest.train(frame(), "kind", **OPTIONS).write(tmp_path / "kept.forest")
    kept = bigforest.read_forest(tmp_path / "kept.forest")
    assert nodes(kept).equals(expected)
    assert kept.oob.rows.collect().height == 60


def test_train__scratch_holds_the_temporary_files(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "own").mkdir()
    forest = bigforest.train(frame(), "kind", scratch=tmp_path / "own", **OPTIONS)
    assert forest.directory.is_relative_to(tmp_path / "own")
    assert not list(scratch.iterdir())


def test_train__overwrite_replaces_a_forest(tmp_path: Path) -> None:
    out = tmp_path / "f"
    bigforest.train(frame(), "kind", out=out, trees=1)
    with pytest.raises(bigforest.OutputExistsError):
        bigforest.train(frame(), "kind", out=out, trees=2)
    assert bigforest.train(frame(), "kind", out=out, trees=2, overwrite=True).trees == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tres": 3}, "no option 'tres'; did you mean trees"),
        ({"targt": "kind"}, "did you mean target"),
        ({"xyzzy": 1}, "the options are trees, seed, family"),
        ({"trees": 0}, "trees must be"),
        ({"threads": 0}, "threads must be"),
        ({"scratch": "/nowhere/at/all"}, "scratch folder"),
        ({"bootstrap": False, "sample_fraction": 0.5}, "sample_fraction needs bags"),
        (
            {"replace": False, "sample_fraction": 1.5},
            "which needs replace; make it at most 1",
        ),
        ({"exclude": [1]}, r"exclude must be names of columns, not \[1\]"),
        ({"exclude": None}, "exclude must be names of columns, not None"),
    ],
)
def test_train__wrong_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(bigforest.ConfigError, match=message):
        bigforest.train(frame(), **{"target": "kind", **options})


def test_train__failure_leaves_nothing(tmp_path: Path, scratch: Path) -> None:
    data = frame().with_columns(gap=pl.lit(2**70 + 1, pl.Int128))
    for out in (None, tmp_path / "f"):
        with pytest.raises(bigforest.DataError):
            bigforest.train(data, "kind", out=out)
    assert not (tmp_path / "f").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["scratch"]
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_train__interrupt_leaves_an_unfinished_run(tmp_path: Path, scratch: Path, error: type[BaseException]) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow":
            raise error

    for out in (None, tmp_path / "f"):
        with pytest.raises(error):
            bigforest.train(frame(), "kind", out=out, listener=interrupt, **OPTIONS)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["f.unfinished", "scratch"]
    assert not list(scratch.iterdir())


def test_train__store_has_decided_target_and_columns(tmp_path: Path) -> None:
    store = kept_store(tmp_path)
    with pytest.raises(bigforest.ConfigError, match="with target 'kind', not with 'size'"):
        bigforest.train(store, "size")
    with pytest.raises(bigforest.ConfigError, match="excluded when a table is encoded"):
        bigforest.train(store, exclude=["noise"])
    with pytest.raises(bigforest.ConfigError, match="made with max_bins 'exact', not with 8"):
        bigforest.train(store, max_bins=8)


def test_train__store_tells_max_bins(tmp_path: Path) -> None:
    bigforest.encode_store(frame(), tmp_path / "s", target="kind", max_bins=8)
    direct = bigforest.train(frame(), "kind", max_bins=8, **OPTIONS)
    for options in ({}, {"max_bins": 8}):
        forest = bigforest.train(tmp_path / "s", **options, **OPTIONS)
        assert forest.config == direct.config
        assert nodes(forest).equals(nodes(direct))


def test_encode_store__overwrite_replaces_a_store_only(tmp_path: Path) -> None:
    store = kept_store(tmp_path)
    with pytest.raises(bigforest.OutputExistsError, match="already exists"):
        bigforest.encode_store(frame(), store, target="kind")
    again = bigforest.encode_store(frame(30), store, target="kind", overwrite=True)
    assert (again.path, again.rows) == (store, 30)
    bigforest.train(store, out=tmp_path / "f", trees=1)
    with pytest.raises(bigforest.OutputExistsError, match="not a bigforest store"):
        bigforest.encode_store(frame(), tmp_path / "f", target="kind", overwrite=True)


def test_predict_file__from_any_table(tmp_path: Path, scratch: Path) -> None:
    forest = bigforest.train(frame(), "kind", **OPTIONS)
    expected = forest.predict(frame())["prediction"]
    forest.write(tmp_path / "f")
    for number, data in enumerate([frame(), frame().lazy(), frame().to_arrow(), csv(tmp_path)]):
        out = tmp_path / f"{number}.parquet"
        report = bigforest.predict_file(tmp_path / "f", data, out, keep="noise", proba=True)
        found = pl.read_parquet(out)
        assert found.columns == ["noise", "prediction", "p_large", "p_small"]
        assert found["prediction"].equals(expected)
        assert (report.rows, report.scored) == (60, 60)
        assert report.accuracy == (expected == frame()["kind"]).mean()
    del forest
    gc.collect()
    assert not list(scratch.iterdir())


def test_predict_file__overwrite_replaces_predictions_only(tmp_path: Path) -> None:
    forest = bigforest.train(frame(), "kind", **OPTIONS)
    data = parquet(tmp_path)
    before = data.read_bytes()
    with pytest.raises(bigforest.ConfigError, match="is a file of the table to predict for"):
        bigforest.predict_file(forest, data, data, overwrite=True)
    assert data.read_bytes() == before
    other = tmp_path / "other.parquet"
    other.write_bytes(before)
    with pytest.raises(bigforest.OutputExistsError, match="not a bigforest prediction"):
        bigforest.predict_file(forest, data, other, overwrite=True)
    assert other.read_bytes() == before
    out = tmp_path / "p.parquet"
    bigforest.predict_file(forest, data, out)
    with pytest.raises(bigforest.OutputExistsError, match="already exists"):
        bigforest.predict_file(forest, data, out)
    bigforest.predict_file(forest, data, out, proba=True, overwrite=True)
    assert pl.read_parquet(out).width == 3


def test_output_that_exists__is_refused_before_a_stream_is_read(tmp_path: Path) -> None:
    """The call can be repeated with the same stream, which can be read only once."""
    forest = bigforest.train(frame(), "kind", trees=1)
    calls: dict[str, Callable[..., Any]] = {
        "forest": lambda data, out: bigforest.train(data, "kind", out=out, trees=1),
        "store": lambda data, out: bigforest.encode_store(data, out, target="kind"),
        "predictions": lambda data, out: bigforest.predict_file(forest, data, out),
    }
    for name, call in calls.items():
        call(frame(), tmp_path / name)
        stream = reader(tmp_path)
        with pytest.raises(bigforest.OutputExistsError):
            call(stream, tmp_path / name)
        assert stream.read_all().num_rows == 60, name


@pytest.mark.parametrize("shrink", ["auto", "off"])
def test_train__within_a_budget_with_room_for_them_trees_are_at_hand(shrink: str, tmp_path: Path) -> None:
    """The first answer reads nothing back, and is that of the forest that is read."""
    options = {**OPTIONS, "shrink": shrink, "out": tmp_path / "f"}
    forest = bigforest.train(frame(), "kind", memory="1GB", **options)
    expected = bigforest.read_forest(tmp_path / "f").predict_proba(frame())
    remove_trees(forest)
    assert forest.predict_proba(frame()).equals(expected)


def remove_trees(forest: bigforest.Forest) -> None:
    for part in forest.part_files:
        part.unlink()


def test_train__a_part_that_was_damaged_since_is_refused(tmp_path: Path) -> None:
    forest = bigforest.train(frame(), "kind", out=tmp_path / "f", **OPTIONS)
    part = forest.part_files[-1]
    part.write_bytes(part.read_bytes()[:-9])
    assert forest.trees == 4
    with pytest.raises(FormatError, match=part.name):
        _ = forest.nodes.collect()
    with pytest.raises(FormatError, match=part.name):
        bigforest.read_forest(tmp_path / "f")
