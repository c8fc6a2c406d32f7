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
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_help__of_every_command(run: Run, monkeypatch: pytest.MonkeyPatch, command: str, columns: int) -> None:
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
