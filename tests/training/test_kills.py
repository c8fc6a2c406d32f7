"""Some kills of every command; `python -m tests.kills` does as many as one likes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="kills are of forked children"),
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="too many rows for uncompiled kernels"),
]
ROOT = Path(__file__).resolve().parents[2]


def test_kills__leave_nothing_and_change_nothing(tmp_path: Path) -> None:
    """In a process of its own, as it forks."""
    command = [sys.executable, "-m", "tests.kills", "--kills", "15", "--seed", "7", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(int(count) for count in re.findall(r": killed (\d+) of", done.stdout)) == 15
    assert done.stdout.count(": killed") == 15
    assert not list(tmp_path.iterdir())
