"""Progress bars in a notebook: one piece of HTML below the cell, redrawn as work continues."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from html import escape
from typing import Any

# Seconds between two drawings, at least: each goes to the browser.
_PAUSE = 0.2


def in_notebook() -> bool:
    """Whether this process is a kernel of Jupyter, whose cells show HTML."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


@dataclass(slots=True)
class _Bar:
    """What a bar shows."""

    name: str
    total: float
    unit: str
    clock: str
    begin: float
    end: float | None = None
    completed: float = 0.0

    def html(self) -> str:
        """A line of the table."""
        now = time.monotonic() if self.end is None else self.end
        seconds = now - self.begin
        if self.clock == "left":
            share = self.completed / self.total if self.total else 1.0
            told = f"{seconds * (1.0 - share) / share:,.0f} s left" if share > 0 else ""
        else:
            told = f"{seconds:,.0f} s taken"
        return (
            f"<tr><td>{escape(self.name)}</td>"
            f'<td><progress max="{self.total or 1}" value="{self.completed}"></progress></td>'
            f"<td>{self.completed:,.0f} of {self.total:,.0f} {escape(self.unit)}</td><td>{told}</td></tr>"
        )


class NotebookBars:
    """The part of rich.progress.Progress that `Bars` uses (progress.py). May be called from several threads."""

    def __init__(self) -> None:
        self.tasks: dict[int, _Bar] = {}
        self._lock = threading.Lock()
        self._handle: Any = None
        self._drawn = 0.0

    def start(self) -> None:
        """Make room below the cell."""
        from IPython.display import display

        self._handle = display({"text/html": "", "text/plain": ""}, raw=True, display_id=True)

    def add_task(self, name: str, *, total: float, unit: str, clock: str) -> int:
        """A bar, and its number."""
        with self._lock:
            number = len(self.tasks) + 1
            self.tasks[number] = _Bar(name, total, unit, clock, time.monotonic())
            self._draw()
        return number

    def update(self, number: int, *, completed: float, clock: str = "left") -> None:
        """How far a bar is; it stands still where its clock says "taken"."""
        with self._lock:
            bar = self.tasks[number]
            bar.completed, bar.clock = completed, clock
            if clock == "taken":
                bar.end = time.monotonic()
            if clock == "taken" or time.monotonic() > self._drawn + _PAUSE:
                self._draw()

    def remove_task(self, number: int) -> None:
        """Take a bar away."""
        with self._lock:
            self.tasks[number].name = ""

    def stop(self) -> None:
        """Take all bars away."""
        self._handle.update({"text/html": "", "text/plain": ""}, raw=True)

    def _draw(self) -> None:
        rows = [bar for bar in self.tasks.values() if bar.name]
        text = "\n".join(f"{bar.name} {bar.completed:,.0f} of {bar.total:,.0f} {bar.unit}" for bar in rows)
        table = f"<table>{''.join(bar.html() for bar in rows)}</table>"
        self._handle.update({"text/html": table, "text/plain": text}, raw=True)
        self._drawn = time.monotonic()
