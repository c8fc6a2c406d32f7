"""What the command line says of errors: in its own words, as JSON where asked for, and nothing to a closed pipe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from typer.main import get_command

import bigforest
from cli.app import app
from cli.flags import in_flags
from tests.commands import Run, folder, run

__all__ = ["folder", "run"]  # fixtures

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        ("out already exists; or replace it with overwrite", "out already exists; or replace it with --overwrite"),
        ("threads must be a whole number", "--threads must be a whole number"),
        ("memory must be a size such as 4GB", "--memory must be a size such as 4GB"),
        ("growing needs 5MB of memory and may use 4MB; raise memory to that", "...; raise --memory to that"),
        ("too little memory: lower memory, or give more", "too little memory: lower --memory, or give more"),
        ("the bag is off; drop group or sampling 'x'", "the bag is off; drop --group or --sampling 'x'"),
        ("lower projections or density", "lower --projections or --density"),
        ("f has seed 3, which resuming cannot change; drop seed", "...; drop --seed"),
        ("stop_oob looks at the error; drop it", "--stop-oob looks at the error; drop it"),
        ("sampling and class_weight are by class", "sampling and --class-weight are by class"),
        ("steps is an option of the family axis", "--steps is an option of the family axis"),
        ("target 'a' has nulls; the weight of a row", "target 'a' has nulls; the weight of a row"),
        ("the table has 2 features; lower mtry, or set it to all", "...; lower --mtry, or set it to all"),
        ("there is no column 'Late' for target; did", "there is no column 'Late' for --target; did"),
        ("there is no column 'w' for weight; the columns are", "there is no column 'w' for --weight; the columns are"),
        ("'a' is the target; it is for weight", "'a' is the target; it is for weight"),
        ("evaluate it with validate_forest", "evaluate it with `bigforest validate`"),
        (
            "coverage is not set; drop jackknife or set coverage",
            "--coverage is not set; drop --jackknife or set --coverage",
        ),
        ("this needs rows: set data to a table", "this needs rows: set DATA to a table"),
        ("use bigforest train --resume x", "use bigforest train --resume x"),
    ],
)
def test_in_flags(python: str, shell: str) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    named = "predict" if "jackknife" in python else "train"
    assert in_flags(python, commands[named]).endswith(shell.removeprefix("..."))


def test_in_flags__by_the_names_of_the_command() -> None:
    command = SimpleNamespace(params=[SimpleNamespace(name="on_ties", opts=["--on-ties", "-t"])])
    assert in_flags("on_ties must be prune or keep", command) == "--on-ties must be prune or keep"


def test_error__says_how_to_give_several_files_or_values(folder: Path, run: Run) -> None:
    pl.read_parquet("things.parquet").write_parquet("more.parquet")
    run("train", "things.parquet", "more.parquet")
    assert (run.code, run.out) == (2, "")
    assert "(more.parquet); name a folder, or put a glob in quotes, to give several files" in " ".join(run.err.split())
    run("predict", "a.forest", "things.parquet", "--quantiles", "0.1", "0.9")
    assert "(0.9); put commas between the values of an option" in " ".join(run.err.split())


def test_error__names_options_as_they_are_typed(folder: Path, run: Run) -> None:
    bigforest.train(pl.read_parquet("things.parquet"), out="things.forest", trees=2)
    run("train", "things.parquet")
    assert (run.code, run.out) == (2, "")
    assert "with --overwrite" in run.err
    run("train", "things.parquet", "--out", "b", "--threads", "1000000")
    assert (run.code, run.err) == (2, "error: --threads must be a whole number from 1 to 1024, not 1000000\n")


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
@pytest.mark.parametrize(
    "arguments", [["inspect", "f", "--features"], ["inspect", "f", "--json"], ["--help"], ["oob", "f"]]
)
def test_pipe__that_is_closed_is_silent(folder: Path, arguments: list[str]) -> None:
    bigforest.train(pl.read_parquet("things.parquet"), out="f", trees=2)
    code = "import os, sys; sys.path.insert(0, sys.argv.pop(1)); from cli.app import main; main()"
    command = [sys.executable, "-c", code, str(ROOT), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()  # before anything can have been written
        assert (child.wait(), child.stderr.read()) == (141, b"")
