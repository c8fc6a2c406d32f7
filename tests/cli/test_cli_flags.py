"""What the command line says of errors: in its own words, as JSON where asked for, and nothing to a closed pipe."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import bigforest
from tests.commands import Run, exit_code, folder, run

__all__ = ["folder", "run"]  # fixtures

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "things.parquet", "--out", "a.forest"], "choose another output, or replace it with --overwrite"),
        (
            ["train", "things.parquet", "--threads", "1000000"],
            "error: --threads must be a whole number from 1 to 1024, not 1000000\n",
        ),
        (["train", "things.parquet", "--memory", "lots"], "--memory must be a size such as 4GB"),
        (["train", "things.parquet", "--memory", "1KB"], "; raise --memory to that"),
        (["train", "things.parquet", "--mtry", "50"], "lower --mtry, or set it to all"),
        (["train", "things.parquet", "--steps", "7"], "--steps is an option of the family subspace-"),
        (
            ["train", "things.parquet", "--no-bootstrap", "--stop-oob", "0.1"],
            "--stop-oob needs bags, and --bootstrap is off; drop --stop-oob, or turn --bootstrap on",
        ),
        (
            ["train", "things.parquet", "--sampling", "balanced", "--group", "x"],
            "whole groups cannot be drawn by class; drop --group or --sampling 'balanced'",
        ),
    ],
)
def test_error__names_options_as_users_type_them(
    folder: Path, run: Run, grown: Path, arguments: list[str], message: str
) -> None:
    shutil.copytree(grown, "a.forest")
    run(*arguments)
    assert run.code == 2
    assert message in run.err


def test_error__carries_the_options_that_it_is_about() -> None:
    with pytest.raises(bigforest.BigForestError, match=r"^feature_fraction replaces mtry; drop one of them$") as caught:
        bigforest.TrainConfig.of(feature_fraction=0.5, mtry=3)
    assert caught.value.options == ("feature_fraction", "mtry")
    there = pickle.loads(pickle.dumps(caught.value))
    assert (str(there), there.options) == (str(caught.value), caught.value.options)


def test_error__says_how_to_give_several_files_or_values(folder: Path, run: Run) -> None:
    pl.read_parquet("things.parquet").write_parquet("more.parquet")
    run("train", "things.parquet", "more.parquet")
    assert (run.code, run.out) == (2, "")
    assert "(more.parquet); name a folder, or put a glob in quotes, to give several files" in " ".join(run.err.split())
    run("predict", "a.forest", "things.parquet", "--quantiles", "0.1", "0.9")
    assert "(0.9); put commas between the values of an option" in " ".join(run.err.split())


def test_lists__of_an_option_that_is_repeated_are_joined(folder: Path, run: Run) -> None:
    options = ["--target", "noise", "--keep-targets", "--trees", "4", "--out", "a.forest"]
    assert run("train", "things.parquet", *options).code == 0, run.err
    quantiles = ["--quantiles", "0.1,0.5", "--quantiles", "0.9"]
    assert run("predict", "a.forest", "things.parquet", *quantiles, "--out", "p.parquet").code == 0, run.err
    assert pl.read_parquet("p.parquet").columns == ["prediction", "q0.1", "q0.5", "q0.9"]
    assert run("plot", "a.forest", "--what", "depth", "--what", "leaves", "--out", "plots").code == 0, run.err
    assert sorted(path.name for path in Path("plots").iterdir()) == ["depth.svg", "leaves.svg"]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["train", "nothing.parquet"], "DataError"),
        (["train", "things.parquet", "--mtry", "0"], "ConfigError"),
        (["inspect", "nothing.forest"], "FormatError"),
        (["oob", "nothing.forest"], "FormatError"),
        (["predict", "nothing.forest", "things.parquet"], "FormatError"),
        (["plan", "nothing.parquet"], "DataError"),
        (["train", "things.parquet", "--trees", "many"], "UsageError"),
        (["train", "things.parquet", "--tres", "5"], "UsageError"),
    ],
)
def test_json__an_error_is_an_object_too(folder: Path, run: Run, arguments: list[str], kind: str) -> None:
    run(*arguments, "--json")
    assert (run.code, run.out.count("\n")) == (2, 1)
    error = json.loads(run.out)
    assert error["kind"] == kind
    assert error["error"].split()[0] in run.err
    run(*arguments)
    assert (run.code, run.out) == (2, "")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals of closed pipes")
@pytest.mark.parametrize("arguments", ["inspect things.forest --features", "inspect things.forest --json", "--help"])
def test_pipe__that_is_closed_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], grown: Path, arguments: str
) -> None:
    monkeypatch.chdir(grown.parent)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        assert exit_code(monkeypatch, *arguments.split(), stdout=closed) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals of closed pipes")
def test_pipe__that_is_closed_ends_a_process_silently() -> None:
    code = "import os, sys; sys.path.insert(0, sys.argv.pop(1)); from cli.app import main; main()"
    command = [sys.executable, "-c", code, str(ROOT), "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()  # before anything can have been written
        assert (child.wait(), child.stderr.read()) == (141, b"")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trees", "5", "--trees", "50"], "--trees is given several times; keep one"),
        (["--trees=5", "--trees=5"], "--trees is given several times; keep one"),
        (["--bootstrap", "--no-bootstrap"], "--bootstrap and --no-bootstrap exclude each other; keep one"),
        (["--exclude", "size", "--exclude", "noise", "--quiet", "-q"], "no feature is left"),
        (["--trees", "5", "--trees", "50", "--help"], ""),
    ],
)
def test_options__given_twice_are_refused_unless_they_are_lists(
    folder: Path, run: Run, options: list[str], message: str
) -> None:
    run("train", "things.parquet", *options)
    assert (run.code, run.err.count("\n")) == ((2, 1) if message else (0, 0))
    assert message in run.err
