"""What --help shows: arguments by their names, examples that stand alone, options that are not broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from cli.app import app
from tests.commands import Run, folder, run

__all__ = ["folder", "run"]  # fixtures

COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_help__of_every_command(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    for columns in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        shown = run(command, "--help").out
        assert run.code == 0
        # The values of an option are not broken, and may be wider.
        lines = [line for line in shown.splitlines() if not re.match(r"  --\S+ \S+$", line)]
        assert max(map(len, lines)) <= columns - 2
        assert shown.count("\n\n  Example: bigforest") == 1
        assert not re.search(r"<str>|\{[A-Z]|\[\[|\u2011", shown)
        # An option or a name with a hyphen is on one line.
        assert not [line for line in shown.splitlines() if re.search(r"\w-$", line)]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help__fits_eighty_columns(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*([command] if command else []), "--help").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines[1:] if line.endswith("...")]  # no help is cut off


def test_help__arguments_that_may_be_left_out_are_in_brackets(run: Run) -> None:
    usages = {command: run(command, "--help").out.splitlines()[0] for command in ("predict", "explain", "merge")}
    assert usages == {
        "predict": "Usage: bigforest predict [OPTIONS] FOREST DATA",
        "explain": "Usage: bigforest explain [OPTIONS] FOREST [DATA]",
        "merge": "Usage: bigforest merge [OPTIONS] FOREST...",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trees", "many"], "'many' is not a whole number"),
        (["--sample-fraction", "half"], "'half' is not a number"),
        (["--config", "run.toml"], "'many' is not a whole number, in run.toml"),
        (["--config", "run.toml", "--trees", "x"], "'x' is not a whole number"),
        (["--config", "."], "'--config': . cannot be read: Is a directory; give a TOML file"),
    ],
)
def test_value__of_the_wrong_type(folder: Path, run: Run, arguments: list[str], message: str) -> None:
    Path("run.toml").write_text('trees = "many"\n')
    run("train", "things.parquet", *arguments)
    assert run.code == 2
    assert run.err.endswith(f"{message}\n")


@pytest.mark.parametrize(
    ("typed", "own"),
    [("--n-estimators", "--trees"), ("--max_features", "--mtry"), ("--min-samples-leaf", "--min-leaf")],
)
def test_option__of_scikit_learn_is_named_as_it_is_here(folder: Path, run: Run, typed: str, own: str) -> None:
    run("train", "things.parquet", typed, "3")
    assert run.code == 2 and typed in run.err
    assert re.search(rf"{own}(?![\w-])", run.err)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("train --family s", ["sparse-oblique", "subspace-cap", "subspace-perceptron"]),
        ("train --mtry ", ["sqrt", "log2", "half", "all"]),
        ("predict --unseen ", ["larger", "missing", "error"]),
        ("train --trees ", []),
    ],
)
def test_completion__of_the_values_of_an_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, completed: list[str]
) -> None:
    monkeypatch.setenv("_BIGFOREST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"bigforest {words}")
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ") + 1))
    with pytest.raises(SystemExit):
        app(prog_name="bigforest")
    assert capsys.readouterr().out.split() == completed
