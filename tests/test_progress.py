"""Bars on terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bigforest.events import StageAdvanced, StageStarted
from bigforest.progress import Bars


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_bars__the_time_is_whole(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """What is cut where the terminal is narrow is the bar."""
    monkeypatch.setenv("COLUMNS", str(columns))
    bars = Bars()
    bars(StageStarted("compile", 12, "columns"))
    bars(StageAdvanced("compile", 3))
    drawn = io.StringIO()
    Console(file=drawn, width=columns).print(bars._progress)
    bars.close()
    assert "3 of 12 columns -:--:-- left" in drawn.getvalue()
    assert len(drawn.getvalue().rstrip("\n")) <= columns
