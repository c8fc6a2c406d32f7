"""Bars on terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bigforest.events import StageAdvanced, StageStarted
from bigforest.progress import Bars


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_bars__the_time_is_whole(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Cut only the bar on a narrow terminal, and widen it on a wide one."""
    monkeypatch.setenv("COLUMNS", str(columns))
    bars = Bars()
    bars(StageStarted("compile", 12, "columns"))
    bars(StageAdvanced("compile", 3))
    drawn = io.StringIO()
    Console(file=drawn, width=columns).print(bars._progress)
    bars.close()
    assert "3 of 12 columns -:--:-- left" in drawn.getvalue()
    length = len(drawn.getvalue().rstrip("\n"))
    assert min(columns, 60) - 20 < length <= columns
    assert length > 0.85 * columns or columns < 120
