"""Wrong input on the command line: one clear line, exit code 2, nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from bigforest.storage import atomic
from tests.commands import Run, contents, folder, frame, run

__all__ = ["folder", "run"]  # fixtures


def write(data: pl.DataFrame) -> list[str]:
    data.write_parquet("bad.parquet")
    return ["bad.parquet"]


def text(content: str, name: str = "bad.csv") -> list[str]:
    Path(name).write_text(content)
    return [name]


def a_directory_of_yours() -> list[str]:
    Path("things.forest").mkdir()
    Path("things.forest/thesis.txt").write_text("years of work")
    return ["things.parquet", "--overwrite"]


def folder_with(name: str, *files: str) -> list[str]:
    """A folder of ours, as far as its names tell."""
    for file in files:
        (Path(name) / file).parent.mkdir(parents=True, exist_ok=True)
        (Path(name) / file).touch()
    return [name]


def a_forest() -> list[str]:
    return folder_with("a.forest", "run.parquet", "features.parquet", "trees/part-0000000.parquet")


def a_store() -> list[str]:
    return folder_with("a.store", "manifest.json", "checksums.bin", "levels.parquet")


def an_unfinished_run() -> list[str]:
    return folder_with("a.forest.unfinished", "state.json", "lock", "forest/run.parquet")


def a_comparison() -> list[str]:
    return folder_with("a.comparison", "race.json", "table.store/manifest.json", "winner.forest/run.parquet")


WRONG_TRAIN: dict[str, tuple[Callable[[], list[str]], str]] = {
    "missing file": (lambda: ["nowhere.parquet"], "nowhere.parquet"),
    "missing glob": (lambda: ["nowhere/*.parquet"], "no file matches"),
    "empty folder": (lambda: [str(Path("empty").mkdir() or "empty")], "no table files"),
    "unknown kind": (lambda: text("x", "bad.docx"), "unknown kind"),
    "not parquet": (lambda: text("x", "bad.parquet"), "bad.parquet"),
    "too many values": (
        lambda: text("a,b,target\n1,2,x\n1,2,3,y\n"),
        "bad.csv: line 3 has 4 values, and the header names 3 columns; mend the line",
    ),
    "an open quote": (lambda: text('a,b,target\n1,"2,x\n3,4,y\n'), "cannot be read (unexpected end of data); mend its"),
    "empty csv": (lambda: text(""), "bad.csv"),
    "no rows": (lambda: write(frame(0)), "bad.parquet: the table has no rows"),
    "no target": (lambda: write(frame().rename({"target": "kind"})), "size, noise, kind"),
    "unknown target": (lambda: ["things.parquet", "--target", "targe"], "did you mean 'target'"),
    "target all null": (lambda: write(frame().with_columns(target=pl.lit(None, pl.Int8))), "missing"),
    "no feature": (lambda: write(frame().select("target")), "feature"),
    "all excluded": (lambda: ["things.parquet", "--exclude", "size", "--exclude", "noise"], "feature"),
    "unknown exclude": (lambda: ["things.parquet", "--exclude", "sise"], "did you mean 'size'"),
    "duplicate names": (lambda: text("a,a,target\n1,2,0\n3,4,1\n"), "duplicate"),
    "unsupported type": (lambda: write(frame().with_columns(t=pl.lit([1, 2]))), "t (List(Int64))"),
    "binary feature": (lambda: write(frame().with_columns(t=pl.lit(b"x"))), "t (Binary)"),
    "bad task": (lambda: ["things.parquet", "--task", "ranking"], "task must be one of"),
    "unknown weight": (lambda: ["things.parquet", "--weight", "heft"], "no column 'heft' for --weight"),
    "no file of weights": (
        lambda: ["things.parquet", "--class-weight", "nowhere.json"],
        "'nowhere.json': there is no such file",
    ),
    "output exists": (lambda: ["things.parquet", "--out", *a_forest()], "already exists"),
    "not ours": (a_directory_of_yours, "not a bigforest forest"),
    "no parent": (lambda: ["things.parquet", "--out", "no/where/f"], "does not exist"),
    "bad mtry": (lambda: ["things.parquet", "--mtry", "most"], "mtry must be"),
    "bad impurity": (lambda: ["things.parquet", "--impurity", "giny"], "impurity must be one of"),
    "bad threads": (lambda: ["things.parquet", "--threads", "0"], "threads must be"),
    "bad scratch": (lambda: ["things.parquet", "--scratch", "nowhere"], "scratch folder"),
    "bad bins": (lambda: ["things.parquet", "--max-bins", "1"], "--max-bins must be"),
    "bad seed": (lambda: ["things.parquet", "--seed", "-1"], "seed must be"),
    "a forest": (a_forest, "a.forest is a forest, not a table; give the rows"),
    "an unfinished run": (an_unfinished_run, "a.forest.unfinished is an unfinished run, not a table; resume it"),
    "a comparison": (a_comparison, "a.comparison is a comparison, not a table; give the table whose candidates"),
    "no path": (lambda: [""], "a path was expected, not ''; give one that is not empty"),
    "the root": (lambda: ["things.parquet", "--out", "/", "--overwrite"], "/ is the root of all folders"),
    "several excluded": (
        lambda: ["things.parquet", "--exclude", "size, noise"],
        "there is no column 'size, noise' for --exclude; give each of these columns by itself",
    ),
    "no user": (lambda: ["~nobody-of-this-name/x.parquet"], "no such file"),
    "target excluded": (lambda: ["things.parquet", "--exclude", "target"], "'target' is the target and cannot be"),
    "target a category": (lambda: ["things.parquet", "--categories", "target"], "'target' is not a feature"),
    "mtry of more": (lambda: ["things.parquet", "--mtry", "3"], "the table has 2 features and a node cannot draw 3"),
    "mtry of more axes": (
        lambda: ["things.parquet", "--family", "rotation", "--axes", "3", "--mtry", "4"],
        "a rotated table has 3 axes and a node cannot draw 4",
    ),
    "more in a subspace": (
        lambda: ["things.parquet", "--family", "subspace-cap", "--subspace", "3"],
        "has 2 features and a subspace of them cannot have 3; lower --subspace",
    ),
    "a size twice": (
        lambda: ["things.parquet", "--family", "subspace-cap", "--subspace", "1, 1"],
        "--subspace must be different sizes, which the trees use in turn, not '1, 1': give each once",
    ),
    "no sizes": (
        lambda: ["things.parquet", "--family", "subspace-cap", "--subspace", "1;2"],
        "--subspace must be a whole number from 1 to 2147483647, or several of them separated by commas",
    ),
    "gini of numbers": (
        lambda: ["things.parquet", "--target", "noise", "--impurity", "gini", "--exclude", "target"],
        "the impurity gini is for classification",
    ),
    "votes on numbers": (
        lambda: ["things.parquet", "--target", "noise", "--vote", "hard", "--exclude", "target"],
        "--vote 'hard' is for classification",
    ),
    "curve of numbers": (
        lambda: ["things.parquet", "--target", "noise", "--exclude", "target", "--validate", "things.parquet"],
        "curves are for classification",
    ),
    "scope of no means": (
        lambda: ["things.parquet", "--family", "sparse-oblique", "--mean-difference-scope", "node"],
        "--mean-difference-scope applies to the means",
    ),
    "oblique components": (
        lambda: ["things.parquet", "--family", "rotation", "--rotation", "pca", "--no-orthogonal"],
        "principal components are orthogonal",
    ),
    "a set of too many features": (
        lambda: ["things.parquet", *["--family", "rotation", "--rotation", "pca-classes", "--axis-features", "99"]],
        "lower --axis-features",
    ),
    "sets for random axes": (
        lambda: ["things.parquet", "--family", "rotation", "--axis-features", "2"],
        "drop --axis-features",
    ),
    "components of numbers": (
        lambda: ["things.parquet", *["--target", "noise", "--exclude", "target", "--family", "subspace-cap"]],
        "the family subspace-cap is for classification",
    ),
    "weights in a list": (
        lambda: ["things.parquet", "--class-weight", *text("[1, 2]", "weights.json")],
        "it holds no object, but list",
    ),
    "one tree of many": (
        lambda: ["things.parquet", "--family", "tree", "--trees", "5"],
        "drop --trees and --bootstrap",
    ),
    "too many candidates": (
        lambda: ["things.parquet", "--tune", "99"],
        "--tune must be a number of default candidates",
    ),
    "bag without bootstrap": (lambda: ["things.parquet", "--no-bootstrap", "--no-replace"], "bootstrap"),
}


def assert_refused(run: Run, before: dict[str, bytes], folder: Path, message: str) -> None:
    assert run.code == 2
    assert run.err.startswith("error: ")
    assert run.err.count("\n") == 1
    assert message in run.err
    assert run.out == "" or json.loads(run.out)["error"] == run.err[len("error: ") : -1]  # with --json
    assert contents(folder) == before


@pytest.mark.parametrize("case", WRONG_TRAIN)
def test_train__wrong_input_is_one_clear_line(run: Run, folder: Path, case: str) -> None:
    make, message = WRONG_TRAIN[case]
    args = make()
    before = contents(folder)
    for extra in ([], ["--json"]):
        run("train", *args, *extra)
        assert_refused(run, before, folder, message)


def newer(forest: Path) -> list[str]:
    """A copy of the forest whose files say that they are of version 99."""
    shutil.copytree(forest, "newer.forest")
    for path in Path("newer.forest").rglob("*.parquet"):
        table = pq.read_table(path)
        header = json.loads(table.schema.metadata[b"bigforest"]) | {"version": 99}
        pq.write_table(table.replace_schema_metadata({"bigforest": json.dumps(header)}), path)
    return ["newer.forest", "things.parquet"]


def damaged(forest: Path) -> list[str]:
    """A copy of the forest of which a tree's file was cut off."""
    shutil.copytree(forest, "damaged.forest")
    part = min(Path("damaged.forest/trees").iterdir())
    part.write_bytes(part.read_bytes()[:-20])
    return ["damaged.forest", "things.parquet"]


def with_column(forest: Path, **columns: pl.Expr) -> list[str]:
    frame().with_columns(**columns).write_parquet("bad.parquet")
    return [str(forest), "bad.parquet"]


def without_column(forest: Path) -> list[str]:
    frame().rename({"size": "sise"}).write_parquet("bad.parquet")
    return [str(forest), "bad.parquet"]


WRONG_PREDICT: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "a table for a forest": (lambda forest: ["things.parquet", str(forest)], "is a forest, not a table"),
    "a file for a forest": (lambda _: ["things.parquet", "things.parquet"], "not a forest: it is a file"),
    "a store for a forest": (lambda _: [*a_store(), "things.parquet"], "not a forest: it is a store; train one"),
    "a run for a forest": (lambda _: [*an_unfinished_run(), "things.parquet"], "it is an unfinished run; resume it"),
    "a forest to be": (
        lambda _: [an_unfinished_run()[0].removesuffix(".unfinished"), "things.parquet"],
        "a.forest is not a forest: there is no such folder; its run is unfinished, resume it first",
    ),
    "a comparison for a forest": (
        lambda _: [*a_comparison(), "things.parquet"],
        "it is a comparison; give the folder winner.forest in it",
    ),
    "a store for a table": (lambda forest: [str(forest), *a_store()], "a.store is a store, not a table"),
    "no forest": (lambda _: ["nowhere.forest", "things.parquet"], "not a forest"),
    "not a forest": (lambda _: ["scratch", "things.parquet"], "not a forest"),
    "newer forest": (newer, "upgrade bigforest"),
    "damaged forest": (damaged, "damaged"),
    "missing data": (lambda forest: [str(forest), "nowhere.parquet"], "nowhere.parquet"),
    "lacks a feature": (without_column, "'size'"),
    "another type": (lambda forest: with_column(forest, size=pl.lit("x")), "'size' is String"),
    "unknown keep": (lambda forest: [str(forest), "things.parquet", "--keep", "id"], "'id'"),
    "bad vote": (lambda forest: [str(forest), "things.parquet", "--vote", "loud"], "vote must be"),
    "bad ties": (lambda forest: [str(forest), "things.parquet", "--ties", "draw"], "ties must be"),
    "input as output": (
        lambda forest: [str(forest), "things.parquet", "--out", "things.parquet", "--overwrite"],
        "things.parquet is a file of the table to predict for",
    ),
    "no parent": (lambda forest: [str(forest), "things.parquet", "--out", "no/p"], "does not exist"),
    "nothing as a quantile": (lambda forest: [str(forest), "things.parquet", "--quantiles", ""], "quantiles must be"),
}


@pytest.mark.parametrize("case", WRONG_PREDICT)
def test_predict__wrong_input_is_one_clear_line(run: Run, folder: Path, grown: Path, case: str) -> None:
    make, message = WRONG_PREDICT[case]
    args = make(grown)
    before = contents(folder)
    run("predict", *args)
    assert_refused(run, before, folder, message)


@pytest.mark.parametrize("table", ["things.parquet", "things.csv"])
def test_output__exists_is_said_after_wrong_options_and_columns(
    run: Run, folder: Path, grown: Path, table: str
) -> None:
    frame().write_csv("things.csv")
    shutil.copytree(grown, "things.forest")
    Path("things.predictions.parquet").touch()
    before = contents(folder)
    for args, message in (
        (["train", table, "--target", "sise"], "there is no column 'sise' for --target"),
        (["train", table, "--mtry", "9"], "cannot draw 9 of them"),
        (["train", table, "--tune", "2", "--group", "sise"], "there is no column 'sise' for --group"),
        (["train", table], "already exists"),
        (["encode", table, "--weight", "sise", "--out", "things.forest"], "there is no column 'sise' for --weight"),
        (["predict", "things.forest", table, "--keep", "sise"], "has no column 'sise' to keep"),
        (["predict", "things.forest", table, "--vote", "loud"], "--vote must be one of"),
        (["predict", "things.forest", table], "already exists"),
    ):
        run(*args)
        assert_refused(run, before, folder, message)


def test_train__wrong_columns_discard_no_unfinished_run(run: Run, folder: Path) -> None:
    an_unfinished_run()
    before = contents(folder)
    run("train", "things.parquet", "--target", "sise", "--out", "a.forest", "--overwrite")
    assert_refused(run, before, folder, "there is no column 'sise' for --target")


INSIDE: dict[str, tuple[str, ...]] = {
    "predict": ("{forest}", "things.parquet", "--out", "{forest}/p.parquet"),
    "explain": ("{forest}", "--out", "{forest}/trees/why"),
    "plot": ("{forest}", "--what", "depth", "--out", "{forest}/pictures"),
    "report": ("{forest}", "--out", "{forest}/report.html"),
    "export": ("{forest}", "--to", "sql", "--out", "{forest}/f.sql"),
    "train": ("things.parquet", "--out", "{forest}/f"),
    "compare": ("things.parquet", "--out", "{forest}/c"),
    "encode": ("things.parquet", "--out", "{store}/s"),
    "simulate": ("trunk", "--rows", "5", "--dims", "2", "--out", "{store}/t.parquet"),
}


@pytest.mark.parametrize("command", INSIDE)
def test_output__is_not_put_into_a_forest_or_a_store(run: Run, folder: Path, grown: Path, command: str) -> None:
    places = {"forest": shutil.copytree(grown, "f"), "store": a_store()[0]}
    before = contents(folder)
    run(command, *(arg.format(**places) for arg in INSIDE[command]))
    assert_refused(run, before, folder, "and holds nothing else; choose another output")


@pytest.mark.parametrize("command", ["oob", "inspect"])
@pytest.mark.parametrize("path", ["nowhere.forest", "scratch", "things.parquet"])
def test_look__at_what_is_no_forest(run: Run, folder: Path, command: str, path: str) -> None:
    before = contents(folder)
    run(command, path)
    assert_refused(run, before, folder, "not a forest")


def test_inspect__a_flipped_byte(run: Run, folder: Path, grown: Path) -> None:
    shutil.copytree(grown, "flipped.forest")
    part = min(Path("flipped.forest/trees").iterdir())
    content = bytearray(part.read_bytes())
    content[64] ^= 1  # of a column
    part.write_bytes(content)
    before = contents(folder)
    run("inspect", "flipped.forest")
    assert_refused(
        run,
        before,
        folder,
        "the checksum differs; the forest is damaged: restore its folder from a copy, or train it again",
    )


def test_encode__wrong_input_is_one_clear_line(run: Run, folder: Path) -> None:
    before = contents(folder)
    for args, message in (
        (["things.parquet", "--out", "no/s"], "does not exist"),
        (["things.parquet", "--out", "things.parquet", "--overwrite"], "not a bigforest store"),
        (["things.parquet", "--out", "s", "--max-bins", "many"], "--max-bins must be"),
        (["nowhere.csv", "--out", "s"], "nowhere.csv"),
    ):
        run("encode", *args)
        assert_refused(run, before, folder, message)


def other_labels(forest: Path, command: str) -> list[str]:
    frame().with_columns(target=pl.lit("huge")).write_parquet("bad.parquet")
    return [command, str(forest), "bad.parquet", *(["--out", "x"] if command != "validate" else [])]


def options_of(forest: Path, *words: str) -> list[str]:
    return [words[0], str(forest), *words[1:]]


WRONG_REST: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "labels to prune by": (
        lambda forest: other_labels(forest, "prune"),
        "such as 'huge'; its classes are large, small:",
    ),
    "labels to validate": (lambda forest: other_labels(forest, "validate"), "such as 'huge'; its classes are large"),
    "format of an ending": (
        lambda f: options_of(f, "export", "--out", "a.pdf"),
        "or --out to a file whose name",
    ),
    "training into a file": (
        lambda _: ["train", "things.parquet", "--out", "a.onnx"],
        "a.onnx is named as a file for onnx, and training writes the folder of a forest; set --out to a.forest",
    ),
    "keep of onnx": (
        lambda f: options_of(f, "export", "--to", "onnx", "--keep", "a"),
        "--keep is an option of sql, not",
    ),
    "dtype of sql": (
        lambda f: options_of(f, "export", "--to", "sql", "--dtype", "float64"),
        "--dtype is an option of onnx",
    ),
    "no name of a table": (lambda f: options_of(f, "export", "--to", "sql", "--table", ""), "--table must be the name"),
    "coverage of nothing": (
        lambda f: options_of(f, "predict", "things.parquet", "--jackknife"),
        "drop --jackknife or set --coverage",
    ),
    "rows that lack": (lambda f: options_of(f, "explain", "--permutation"), "set DATA to a table"),
    "no bag to compare by": (lambda _: ["compare", "things.parquet", "--no-bootstrap"], "or set --bootstrap"),
    "no scheduler": (
        lambda _: ["train", "things.parquet", "--scheduler", "nowhere"],
        "no scheduler answers at nowhere (missing port number in address 'nowhere'); check",
    ),
}


@pytest.mark.parametrize("case", WRONG_REST)
def test_commands__wrong_input_is_one_clear_line(run: Run, folder: Path, grown: Path, case: str) -> None:
    make, message = WRONG_REST[case]
    args = make(grown)
    before = contents(folder)
    run(*args)
    assert_refused(run, before, folder, message)


def test_shrink__without_an_estimate_names_the_option(run: Run, folder: Path) -> None:
    run("train", "things.parquet", "--family", "tree")
    before = contents(folder)
    run("shrink", "things.forest", "--out", "s.forest")
    assert_refused(run, before, folder, "; set --lambda")


def test_train__on_a_damaged_store(run: Run, folder: Path) -> None:
    run("encode", "things.parquet", "--out", "things.store")
    run("train", "things.store", "--weight", "noise")
    assert "was made without --weight, not with 'noise'" in run.err
    Path("things.store/manifest.json").write_text("{")
    before = contents(folder)
    run("train", "things.store")
    assert_refused(run, before, folder, "encode the table again")


def test_predict__with_a_damaged_record_of_the_run_writes_nothing(run: Run, folder: Path, grown: Path) -> None:
    shutil.copytree(grown, "flipped.forest")
    path = Path("flipped.forest/run.parquet")
    content = bytearray(path.read_bytes())
    content[64] ^= 255  # of a column
    path.write_bytes(content)
    before = contents(folder)
    run("predict", "flipped.forest", grown.parent / "things.parquet", "--out", "p.parquet")  # its training table
    assert_refused(run, before, folder, "the forest is damaged")


def test_inspect__config_is_alone(run: Run, folder: Path, grown: Path) -> None:
    for other in ("--json", "--trees", "--features"):
        run("inspect", grown, "--config", other)
        assert run.code == 2
        assert "drop the other options" in run.err


def test_warm_up__quiet(run: Run, folder: Path) -> None:
    assert (run("warm-up", "--quiet").code, run.out) == (0, "")


def test_compare__overwrites_only_when_the_new_one_can_begin(run: Run, folder: Path) -> None:
    options = ["--candidates", "2", "--trees", "2", "--out", "c"]
    assert run("compare", "things.parquet", *options).code == 0
    before = contents(folder)
    for wrong in (["nowhere.parquet"], ["things.parquet", "--metric", "mse"], ["things.parquet", "--target", "targe"]):
        run("compare", *wrong, *options, "--overwrite")
        assert (run.code, run.err.count("\n")) == (2, 1)
        assert contents(folder) == before, wrong
    assert run("compare", "things.parquet", *options, "--seed", "1", "--overwrite").code == 0
    assert contents(folder).keys() == before.keys()
    assert contents(folder) != before


def test_explain__into_a_folder_of_other_tables(run: Run, folder: Path, grown: Path) -> None:
    Path("tables").mkdir()
    frame().write_parquet("tables/importance.parquet")
    shutil.copytree(grown, "copy.forest")
    before = contents(folder)
    for out, message in (("tables", "holds importance.parquet"), ("copy.forest", "is a forest"), (".", "holds things")):
        run("explain", grown, "--out", out, "--overwrite")
        assert_refused(run, before, folder, message)


def test_scratch__that_cannot_be_written(run: Run, folder: Path, grown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: "scratch" not in str(path))
    before = contents(folder)
    run("predict", grown, "things.parquet", "--scratch", "scratch")
    assert_refused(run, before, folder, "scratch folder scratch cannot be written to; name another")


def test_forest__that_may_not_be_read(run: Run, folder: Path, grown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: "trees" not in str(path))
    before = contents(folder)
    run("oob", grown)
    assert_refused(run, before, folder, "may not be read by this user; check its permissions")


@pytest.mark.parametrize("command", ["predict", "merge", "export", "simulate"])
def test_output__on_a_full_disk(
    run: Run, folder: Path, grown: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    if command == "merge":
        run("train", "things.parquet", "--trees", "2", "--seed", "1", "--out", "b.forest")
    before = contents(folder)
    monkeypatch.setattr(atomic, "sync_all", full)
    arguments: dict[str, list[str | Path]] = {
        "predict": [grown, "things.parquet", "--out", "p.csv"],
        "merge": [grown, "b.forest", "--out", "m.forest"],
        "export": [grown, "--to", "sql", "--out", "a.sql"],
        "simulate": ["shapes", "--rows", "10"],
    }
    run(command, *arguments[command])
    assert_refused(
        run, before, folder, f"no space left on the disk of {folder}; free some space, or choose another folder"
    )
