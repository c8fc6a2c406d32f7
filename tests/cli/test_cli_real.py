"""The command line with everything behind it: real tables, signals, terminals."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import bigforest
from tests.commands import Run, contents, folder, frame, run

__all__ = ["folder", "run"]  # fixtures

ROOT = Path(__file__).resolve().parents[2]


def test_tour__train_oob_inspect_predict(run: Run, folder: Path) -> None:
    run("train", "things.parquet", "--trees", "12")
    assert (run.code, run.err) == (0, "")
    words = run.out.split()
    for expected in (
        "80",
        "features",
        "2",
        "trees",
        "12",
        "bag",
        str(folder / "things.forest"),
        "encode",
        "grow",
        "oob",
    ):
        assert expected in words
    run("oob", "things.forest")
    assert run.code == 0
    assert [line.split()[0] for line in run.out.splitlines()[-6:]] == ["trees", "1", "2", "5", "10", "12"]
    run("inspect", "things.forest", "--trees", "--features")
    assert max(len(line) for line in run.out.splitlines() if str(folder) not in line) <= 120  # also in a pipe
    assert run.code == 0
    assert "importance" in run.out
    assert "seed 0, family axis, mtry sqrt, splitter best, impurity gini, min_split 2, min_leaf 1" in run.out
    assert "max_depth" not in run.out and "projections" not in run.out  # without a value; of another family
    assert len(run.out.split("leaves  depth")[1].splitlines()) == 13
    run("predict", "things.forest", "things.parquet", "--proba", "--keep", "size")
    assert run.code == 0
    assert run.err.startswith("note: the forest was trained on these rows")
    assert "accuracy" in run.out
    assert "log loss" in run.out
    assert "AUC" in run.out
    found = pl.read_parquet("things.predictions.parquet")
    assert found.columns == ["size", "prediction", "p_large", "p_small"]
    assert found["size"].equals(frame()["size"])
    assert not any(line != line.rstrip() for line in run.out.splitlines())
    assert not list(Path("scratch").iterdir())


def test_tour__encode_then_train(run: Run, folder: Path) -> None:
    facts = run.json("encode", "things.parquet", "--out", "things.store", "--max-bins", "16")
    assert (facts["store"], facts["rows"], facts["features"]) == ("things.store", 80, 2)
    facts = run.json("train", "things.store", "--trees", "3")
    assert facts["forest"] == str(folder / "things.forest")
    assert list(facts["seconds"]) == ["compile", "choose", "grow", "oob"]
    assert run.json("inspect", "things.forest")["config"]["max_bins"] == 16


def test_json__of_every_command(run: Run, folder: Path) -> None:
    facts = run.json("train", "things.parquet", "--trees", "4", "--out", "f")
    assert (facts["rows"], facts["dropped"], facts["features"], facts["classes"]) == (80, 0, 2, 2)
    assert (facts["trees"], facts["target"], list(facts["oob"])) == (4, "target", ["error", "log_loss", "auc", "rows"])
    report = run.json("oob", "f")
    assert {name: report[name] for name in facts["oob"]} == facts["oob"]
    assert [row["trees"] for row in report["curve"]] == [1, 2, 3, 4]
    assert sum(pair["rows"] for pair in report["confusion"]) == report["rows"]
    details = run.json("inspect", "f", "--trees", "--features")
    assert sum(tree["nodes"] for tree in details["by_tree"]) == facts["nodes"]
    assert [feature["name"] for feature in details["by_feature"]] == ["size", "noise"]
    assert details["labels"] == ["large", "small"]
    frame().write_parquet("again.parquet")  # rows of training would be told of
    scores = run.json("predict", "f", "again.parquet", "--out", "p")
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
    assert run.err == ""
    facts = json.loads(run.out)
    assert facts["notices"][0].startswith("4 rows")
    assert (facts["rows"], facts["dropped"], facts["weight"]) == (76, 4, None)
    assert "76 (and 4 without a target left out)\n" in run("inspect", "gaps.forest").out


def test_train__rows_of_weight_0_are_counted(run: Run, folder: Path) -> None:
    frame().with_columns(weight=pl.int_range(pl.len()).clip(0, 1)).write_parquet("weighted.parquet")
    run("train", "weighted.parquet", "--trees", "2", "--weight", "weight")
    assert "79 (and 1 without a target or of weight 0 left out)\n" in run.out
    run("encode", "weighted.parquet", "--weight", "weight", "--out", "w.store", "--json")
    assert json.loads(run.out)["weight"] == "weight"


def test_overwrite__replaces_a_forest_and_predictions(run: Run, folder: Path) -> None:
    for _ in range(2):
        run("train", "things.parquet", "--trees", "2", "--overwrite")
        assert run.code == 0
        run("predict", "things.forest", "things.parquet", "--overwrite")
        assert run.code == 0


def process(*args: str, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(Path("scratch").resolve())}
    command = [sys.executable, "-m", "cli", *args]
    return subprocess.Popen(command, text=True, env=environment, stdout=subprocess.PIPE, **options)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["interrupt", "terminate"]
)
def test_signal__leaves_an_unfinished_run_and_says_so(folder: Path, number: int, code: int) -> None:
    frame(20_000).write_parquet("things.parquet")  # of which only few trees make a part
    before = contents(folder)
    args = ["train", "things.parquet", "--trees", "1000000", "--max-depth", "3"]
    running = process(*args, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300  # the first time kernels are compiled
    while not list(folder.glob("things.forest.unfinished/forest/trees/*.parquet")):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (code, "")
    assert err.splitlines()[-1].endswith("; continue with `bigforest train --resume things.forest`")
    assert "Traceback" not in err
    assert bigforest.train(frame(), out="things.forest", trees=2, overwrite=True).trees == 2
    shutil.rmtree("things.forest")
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
