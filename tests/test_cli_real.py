"""The command line with everything behind it: real tables, wrong tables, signals, terminals."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from cli.app import app

ROOT = Path(__file__).resolve().parent.parent


def frame(rows: int = 80) -> pl.DataFrame:
    draw = np.random.default_rng(1)
    size, noise = draw.integers(0, 40, rows), draw.normal(size=rows)
    return pl.DataFrame({"size": size, "noise": noise, "target": np.where(size < 20, "small", "large")})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with things.parquet in it; temporary files would go to its subfolder scratch."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    frame().write_parquet("things.parquet")
    return tmp_path


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A forest on things.parquet."""
    out = tmp_path_factory.mktemp("grown") / "things.forest"
    frame().write_parquet(out.parent / "things.parquet")
    with pytest.raises(SystemExit) as end:
        app(["train", str(out.parent / "things.parquet"), "--out", str(out), "--trees", "5", "--quiet"])
    assert not end.value.code
    return out


class Run:
    """Runs the command line within this process; keeps its exit code and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.code = -1
        self.out = ""
        self.err = ""

    def __call__(self, *args: str | Path) -> Run:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            app([str(arg) for arg in args], prog_name="bigforest")
        self.code = end.value.code if isinstance(end.value.code, int) else 0
        self.out, self.err = self._capsys.readouterr()
        return self

    def json(self, *args: str | Path) -> Any:
        """The one object the command prints with --json."""
        self(*args, "--json")
        assert (self.code, self.err, self.out.count("\n")) == (0, "", 1), self.err
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def contents(folder: Path) -> dict[str, bytes]:
    """All files below the folder, hidden ones too; directories by their names."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def test_tour__train_oob_inspect_predict(run: Run, folder: Path) -> None:
    run("train", "things.parquet", "--trees", "12")
    assert (run.code, run.err) == (0, "")
    words = run.out.split()
    for expected in ("80", "features", "2", "trees", "12", "bag", "things.forest", "encode", "grow", "oob"):
        assert expected in words
    run("oob", "things.forest")
    assert run.code == 0
    assert [line.split()[0] for line in run.out.splitlines()[-6:]] == ["trees", "1", "2", "5", "10", "12"]
    run("inspect", "things.forest", "--trees", "--features")
    assert run.code == 0
    assert "importance" in run.out
    assert len(run.out.split("leaves  depth")[1].splitlines()) == 13
    run("predict", "things.forest", "things.parquet", "--proba", "--keep", "size")
    assert (run.code, run.err) == (0, "")
    assert "accuracy" in run.out
    assert "log loss" in run.out
    found = pl.read_parquet("things.predictions.parquet")
    assert found.columns == ["size", "prediction", "p_large", "p_small"]
    assert found["size"].equals(frame()["size"])
    assert not any(line != line.rstrip() for line in run.out.splitlines())
    assert not list(Path("scratch").iterdir())


def test_tour__encode_then_train(run: Run, folder: Path) -> None:
    facts = run.json("encode", "things.parquet", "--out", "things.store", "--max-bins", "16")
    assert (facts["store"], facts["rows"], facts["features"]) == ("things.store", 80, 2)
    facts = run.json("train", "things.store", "--trees", "3")
    assert facts["forest"] == "things.forest"
    assert list(facts["seconds"]) == ["grow", "oob"]
    assert run.json("inspect", "things.forest")["config"]["max_bins"] == 16


def test_json__of_every_command(run: Run, folder: Path) -> None:
    facts = run.json("train", "things.parquet", "--trees", "4", "--out", "f")
    assert (facts["rows"], facts["dropped"], facts["features"], facts["classes"]) == (80, 0, 2, 2)
    assert (facts["trees"], facts["target"], list(facts["oob"])) == (4, "target", ["error", "rows"])
    report = run.json("oob", "f")
    assert (report["error"], report["rows"]) == tuple(facts["oob"].values())
    assert [row["trees"] for row in report["curve"]] == [1, 2, 3, 4]
    assert sum(pair["rows"] for pair in report["confusion"]) == report["rows"]
    details = run.json("inspect", "f", "--trees", "--features")
    assert sum(tree["nodes"] for tree in details["by_tree"]) == facts["nodes"]
    assert [feature["name"] for feature in details["by_feature"]] == ["size", "noise"]
    assert details["labels"] == ["large", "small"]
    scores = run.json("predict", "f", "things.parquet", "--out", "p")
    assert (scores["predictions"], scores["rows"], scores["scored"]) == ("p", 80, 80)
    assert 0.8 < scores["accuracy"] <= 1.0
    frame().drop("target").write_parquet("new.parquet")
    assert run.json("predict", "f", "new.parquet", "--out", "q")["accuracy"] is None


def test_train__without_bootstrap_says_so(run: Run, folder: Path) -> None:
    run("train", "things.parquet", "--trees", "2", "--no-bootstrap")
    assert run.code == 0
    assert "no estimate" in run.out
    assert run.json("inspect", "things.forest")["oob"] is None
    run("oob", "things.forest")
    assert run.code == 2
    assert "without bootstrap" in run.err


def test_quiet__prints_nothing(run: Run, folder: Path) -> None:
    data = frame().with_columns(target=pl.when(pl.int_range(pl.len()) > 3).then("target"))
    data.write_parquet("gaps.parquet")
    for args in (
        ["train", "gaps.parquet", "--trees", "2"],
        ["predict", "gaps.forest", "gaps.parquet"],
        ["encode", "gaps.parquet", "--out", "gaps.store"],
    ):
        run(*args, "--quiet")
        assert (run.code, run.out, run.err) == (0, "", "")


def test_train__rows_without_target_are_counted(run: Run, folder: Path) -> None:
    data = frame().with_columns(target=pl.when(pl.int_range(pl.len()) > 3).then("target"))
    data.write_parquet("gaps.parquet")
    run("train", "gaps.parquet", "--trees", "2", "--json")
    assert run.err.startswith("note: 4 rows")
    facts = json.loads(run.out)
    assert (facts["rows"], facts["dropped"]) == (76, 4)


def test_overwrite__replaces_a_forest_and_predictions(run: Run, folder: Path) -> None:
    for _ in range(2):
        run("train", "things.parquet", "--trees", "2", "--overwrite")
        assert run.code == 0
        run("predict", "things.forest", "things.parquet", "--overwrite")
        assert run.code == 0


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


def an_existing_forest() -> list[str]:
    with pytest.raises(SystemExit):
        app(["train", "things.parquet", "--trees", "1", "--quiet"])
    return ["things.parquet"]


WRONG_TRAIN: dict[str, tuple[Callable[[], list[str]], str]] = {
    "missing file": (lambda: ["nowhere.parquet"], "nowhere.parquet"),
    "missing glob": (lambda: ["nowhere/*.parquet"], "no file matches"),
    "empty folder": (lambda: [str(Path("empty").mkdir() or "empty")], "no table files"),
    "unknown kind": (lambda: text("x", "bad.docx"), "unknown kind"),
    "not parquet": (lambda: text("x", "bad.parquet"), "bad.parquet"),
    "empty csv": (lambda: text(""), "bad.csv"),
    "no rows": (lambda: write(frame(0)), "no rows"),
    "no target": (lambda: write(frame().rename({"target": "kind"})), "size, noise, kind"),
    "unknown target": (lambda: ["things.parquet", "--target", "targe"], "did you mean 'target'"),
    "target all null": (lambda: write(frame().with_columns(target=pl.lit(None, pl.Int8))), "missing"),
    "one class": (lambda: write(frame().with_columns(target=pl.lit(1))), "one class"),
    "no feature": (lambda: write(frame().select("target")), "feature"),
    "all excluded": (lambda: ["things.parquet", "--exclude", "size", "--exclude", "noise"], "feature"),
    "unknown exclude": (lambda: ["things.parquet", "--exclude", "sise"], "did you mean 'size'"),
    "duplicate names": (lambda: text("a,a,target\n1,2,0\n3,4,1\n"), "duplicate"),
    "unsupported type": (lambda: write(frame().with_columns(t=pl.lit([1, 2]))), "t (List(Int64))"),
    "text feature": (lambda: write(frame().with_columns(t=pl.lit("x"))), "t (String)"),
    "null feature": (lambda: write(frame().with_columns(t=pl.lit(None, pl.Float64))), "t (80 null"),
    "nan feature": (lambda: write(frame().with_columns(t=pl.lit(float("nan")))), "t (80 NaN)"),
    "output exists": (an_existing_forest, "already exists"),
    "not ours": (a_directory_of_yours, "not a bigforest forest"),
    "no parent": (lambda: ["things.parquet", "--out", "no/where/f"], "does not exist"),
    "bad mtry": (lambda: ["things.parquet", "--mtry", "half"], "mtry must be"),
    "bad impurity": (lambda: ["things.parquet", "--impurity", "giny"], "impurity must be one of"),
    "bad threads": (lambda: ["things.parquet", "--threads", "0"], "threads must be"),
    "bad scratch": (lambda: ["things.parquet", "--scratch", "nowhere"], "scratch folder"),
    "bad bins": (lambda: ["things.parquet", "--max-bins", "1"], "max_bins must be"),
    "bad seed": (lambda: ["things.parquet", "--seed", "-1"], "seed must be"),
    "bag without bootstrap": (lambda: ["things.parquet", "--no-bootstrap", "--no-replace"], "bootstrap"),
}


def assert_refused(run: Run, before: dict[str, bytes], folder: Path, message: str) -> None:
    assert run.code == 2
    assert run.out == ""
    assert run.err.startswith("error: ")
    assert run.err.count("\n") == 1
    assert message in run.err
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
    "no forest": (lambda _: ["nowhere.forest", "things.parquet"], "not a forest"),
    "not a forest": (lambda _: ["scratch", "things.parquet"], "not a forest"),
    "newer forest": (newer, "upgrade bigforest"),
    "damaged forest": (damaged, "damaged"),
    "missing data": (lambda forest: [str(forest), "nowhere.parquet"], "nowhere.parquet"),
    "lacks a feature": (without_column, "'size'"),
    "another type": (lambda forest: with_column(forest, size=pl.lit("x")), "'size' is String"),
    "null": (lambda forest: with_column(forest, size=pl.lit(None, pl.Int64)), "'size'"),
    "nan": (lambda forest: with_column(forest, noise=pl.lit(float("nan"))), "'noise'"),
    "unknown keep": (lambda forest: [str(forest), "things.parquet", "--keep", "id"], "'id'"),
    "bad vote": (lambda forest: [str(forest), "things.parquet", "--vote", "loud"], "vote must be"),
    "bad ties": (lambda forest: [str(forest), "things.parquet", "--ties", "draw"], "ties must be"),
    "input as output": (
        lambda forest: [str(forest), "things.parquet", "--out", "things.parquet", "--overwrite"],
        "not a bigforest prediction",
    ),
    "output exists": (
        lambda forest: [str(forest), "things.parquet", "--out", "things.parquet"],
        "already exists",
    ),
    "no parent": (lambda forest: [str(forest), "things.parquet", "--out", "no/p"], "does not exist"),
}


@pytest.mark.parametrize("case", WRONG_PREDICT)
def test_predict__wrong_input_is_one_clear_line(run: Run, folder: Path, grown: Path, case: str) -> None:
    make, message = WRONG_PREDICT[case]
    args = make(grown)
    before = contents(folder)
    run("predict", *args)
    assert_refused(run, before, folder, message)


@pytest.mark.parametrize("command", ["oob", "inspect"])
@pytest.mark.parametrize("path", ["nowhere.forest", "scratch", "things.parquet"])
def test_look__at_what_is_no_forest(run: Run, folder: Path, command: str, path: str) -> None:
    before = contents(folder)
    run(command, path)
    assert_refused(run, before, folder, "not a forest")


def test_encode__wrong_input_is_one_clear_line(run: Run, folder: Path) -> None:
    before = contents(folder)
    for args, message in (
        (["things.parquet", "--out", "no/s"], "does not exist"),
        (["things.parquet", "--out", "things.parquet", "--overwrite"], "not a bigforest store"),
        (["things.parquet", "--out", "s", "--max-bins", "many"], "max_bins must be"),
        (["nowhere.csv", "--out", "s"], "nowhere.csv"),
    ):
        run("encode", *args)
        assert_refused(run, before, folder, message)


def process(*args: str, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(Path("scratch").resolve())}
    command = [sys.executable, "-m", "cli", *args]
    return subprocess.Popen(command, text=True, env=environment, stdout=subprocess.PIPE, **options)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["interrupt", "terminate"]
)
def test_signal__leaves_nothing(folder: Path, number: int, code: int) -> None:
    frame(20_000).write_parquet("things.parquet")  # of which only few trees make a part
    before = contents(folder)
    args = ["train", "things.parquet", "--trees", "1000000", "--max-depth", "3"]
    running = process(*args, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list(folder.glob(".things.forest.*/things.forest/trees/*.parquet")):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (code, "")
    assert "Traceback" not in err
    assert contents(folder) == before


def test_terminal__shows_progress_on_stderr_only(folder: Path) -> None:
    ours, theirs = pty.openpty()
    running = process("train", "things.parquet", "--trees", "300", "--json", stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    out, _ = running.communicate(timeout=60)
    os.close(ours)
    assert running.returncode == 0
    assert json.loads(out)["trees"] == 300
    assert b"300 trees" in shown
    assert b"left" in shown
