"""Every command on a terminal, where it draws bars: the other tests read what is printed, and see none."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cli.app import app
from tests.commands import folder
from tests.streams import Streams

__all__ = ["folder"]

# In this order: what a command writes, those after it read.
WORDS = [
    "train things.parquet --trees 6 --out a.forest",
    "train things.parquet --trees 6 --seed 1 --out b.forest --memory 1GB",
    "train things.parquet --trees 4 --tune 2 --out tuned.forest",
    "encode things.parquet --target target --out things.store",
    "plan things.parquet",
    "compare things.parquet --target target --candidates 2 --trees 4 --out compared",
    "inspect a.forest --trees --features",
    "oob a.forest",
    "predict a.forest things.parquet --proba",
    "validate a.forest things.parquet",
    "calibrate a.forest things.parquet --out calibrated.forest",
    "prune a.forest things.parquet --out pruned.forest",
    "shrink a.forest --out shrunk.forest",
    "merge a.forest b.forest --out both.forest",
    "explain a.forest things.parquet --importance --unbiased --permutation --strength --shap --proximities --trees",
    "plot a.forest things.parquet --what error,swarm --out pictures",
    "report a.forest things.parquet --out a.html",
    "export a.forest --to sql --out a.sql",
    "simulate trunk --rows 50 --dims 4 --out trunk.parquet",
]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_commands__run_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch, streams: Streams) -> None:
    pytest.importorskip("altair")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    drawn = set()
    for words in WORDS:
        out, err = Terminal(), Terminal()
        streams(stdout=out)
        streams(stderr=err)
        with pytest.raises(SystemExit) as end:
            app(words.split(), prog_name="bigforest")
        assert not end.value.code, f"{words}: {err.getvalue()[-2000:]}"
        assert out.getvalue(), words
        if "\x1b[" in err.getvalue():  # the cursor is moved for bars
            drawn.add(words.split()[0])
    assert drawn >= {"train", "compare", "predict", "explain", "plot", "report", "prune", "calibrate"}
