"""Some kills of every command; `python -m tests.kills` does as many as one likes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from tests.kills import CASES
from tests.thorough import cases

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="kills are of forked children"),
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
]
ROOT = Path(__file__).resolve().parents[2]


SOME = ["passes", "encode", "predict", "compare"]


@pytest.mark.parametrize("chosen", cases([SOME, list(CASES)], quick=1), ids=["some", "all"])
def test_kills__leave_nothing_and_change_nothing(tmp_path: Path, chosen: list[str]) -> None:
    """In a process of its own, as it forks."""
    kills = str(len(chosen))
    command = [sys.executable, "-m", "tests.kills", "--kills", kills, "--seed", "7", "--folder", str(tmp_path)]
    command += [word for case in chosen for word in ("--case", case)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"(\w+): killed \d+ of", done.stdout) == chosen
    assert sum(int(count) for count in re.findall(r": killed (\d+) of", done.stdout)) >= len(chosen)
    assert not list(tmp_path.iterdir())
