"""Runs the command line within the process of the tests, on a small table."""

from __future__ import annotations

import gc
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import pytest
import typer

from cli.app import app
from cli.start import start

# Built once: `app(...)` builds all commands again, for 30 ms.
COMMANDS = typer.main.get_command(app)


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
            COMMANDS([str(arg) for arg in args], prog_name="bigforest")
        self.code = end.value.code if isinstance(end.value.code, int) else 0
        self.out, err = self._capsys.readouterr()
        self.err = re.sub(r"^note: compiling kernels .*\n", "", err, flags=re.MULTILINE)  # the first test to need them
        return self

    def json(self, *args: str | Path) -> Any:
        """The one object the command prints with --json."""
        self(*args, "--json")
        assert (self.code, self.err, self.out.count("\n")) == (0, "", 1), self.err
        return json.loads(self.out)


def exit_code(monkeypatch: pytest.MonkeyPatch, *args: str, **streams: IO[str] | None) -> int:
    """Run the command line within this process as a process of its own would, and return its exit code.

    streams  stdin, stdout or stderr of the process; flushed at its end, as the interpreter does
    """
    monkeypatch.setattr(sys, "argv", ["bigforest", *args])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit) as end:
        start()
    gc.unfreeze()  # the end of the command line freezes
    for stream in streams.values():
        if stream is not None:
            stream.flush()
    return end.value.code if isinstance(end.value.code, int) else 0


def frame(rows: int = 80) -> pl.DataFrame:
    draw = np.random.default_rng(1)
    size, noise = draw.integers(0, 40, rows), draw.normal(size=rows)
    return pl.DataFrame({"size": size, "noise": noise, "target": np.where(size < 20, "small", "large")})


def contents(folder: Path) -> dict[str, bytes]:
    """All files below the folder, hidden ones too; directories by their names."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with things.parquet in it; temporary files would go to its subfolder scratch."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    frame().write_parquet("things.parquet")
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)
