"""Default display of progress: bars on a terminal and in a notebook, log lines elsewhere.

Progress bars in a notebook: one piece of HTML below the cell, redrawn as work continues.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

from bigforest.errors import ConfigError, api, shown
from bigforest.events import Compiling, Event, Listener, Notice, StageAdvanced, StageFinished, StageStarted

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


# Seconds of work before anything is shown.
_PATIENCE = 2.0
# Columns of a bar, and of the text beside it for stages of up to a million steps.
_BAR_WIDTH = 30
_BESIDE_BAR = 50
_LOG = logging.getLogger("bigforest")


@contextmanager
def watching(listener: Listener | None) -> Iterator[Listener]:
    """The listener, or, where it is None, one that shows work of more than two seconds until the block ends.

    On a terminal and in a notebook it shows a bar for each stage. Elsewhere it writes what each stage
    took to the logger "bigforest", as information. That kernels are compiled is a warning of that logger. Raises
    ConfigError for what is no listener.
    """
    if listener is not None:
        if not callable(listener):
            raise ConfigError(f"{api('listener')} must be a function of one event, not {shown(listener)}")
        yield listener
        return
    bars = Bars(patience=_PATIENCE, compiling=_warn) if _can_draw() else None
    try:
        yield bars or _log
    finally:
        if bars is not None:
            bars.close()


def _log(event: Event) -> None:
    if isinstance(event, Compiling):
        _warn(event)
    elif isinstance(event, StageFinished) and event.seconds > _PATIENCE:
        _LOG.info("%s took %.1f s", event.stage, event.seconds)


def _warn(event: Event) -> None:
    if isinstance(event, Compiling):
        _LOG.warning(event.message)  # on stderr, unless the user has set logging up


def _can_draw() -> bool:
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


class Bars:
    """A listener with one bar per stage, on stderr or below the cell of a notebook, which vanish when it is closed.

    patience   seconds without a bar at the beginning.
    compiling  is told of notices; where it is None, they are printed.
    """

    def __init__(self, *, patience: float = 0.0, compiling: Listener | None = None, enabled: bool = True) -> None:
        self._begin = time.monotonic() + patience
        self._tell = compiling
        self._enabled = enabled
        self._waiting: dict[str, StageStarted] = {}
        self._bars: dict[str, Any] = {}  # the number of each stage's bar
        self._totals: dict[str, int] = {}
        self._progress: Any = None

    def __call__(self, event: Event) -> None:
        """Draw an event."""
        if isinstance(event, StageStarted):
            self._waiting[event.stage] = event
        elif isinstance(event, Notice):
            self._note(event)
        if not self._enabled or time.monotonic() < self._begin:
            if isinstance(event, StageFinished):
                self._waiting.pop(event.stage, None)
            return
        if self._waiting:
            self._add()
        if isinstance(event, StageAdvanced) and event.stage in self._bars:
            self._progress.update(self._bars[event.stage], completed=event.done)
        elif isinstance(event, StageFinished) and event.stage in self._bars:
            self._progress.update(self._bars[event.stage], completed=self._totals[event.stage], clock="taken")

    def close(self) -> None:
        """Take the bars away."""
        if self._progress is not None:
            self._progress.stop()

    def _add(self) -> None:
        """A bar for each stage that has begun and has none."""
        if self._progress is None:
            self._progress = _progress()
            self._progress.start()
        for name, stage in self._waiting.items():
            if name in self._bars:  # it runs again
                self._progress.remove_task(self._bars[name])
            self._bars[name] = self._progress.add_task(name, total=stage.total, unit=stage.unit, clock="left")
            self._totals[name] = stage.total
        self._waiting.clear()

    def _note(self, event: Notice) -> None:
        if self._tell is not None:
            self._tell(event)
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True, highlight=False) if self._progress is None else self._progress.console
        console.print(Text.assemble(("note:", "bold"), f" {event.message}"), soft_wrap=True)


def _progress() -> Any:
    if in_notebook():
        return NotebookBars()
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.theme import Theme

    # Times are yellow otherwise, which a light terminal hides.
    plain = Theme({"progress.elapsed": "none", "progress.remaining": "none"})
    console = Console(stderr=True, highlight=False, theme=plain)
    width = min(_BAR_WIDTH, console.width - _BESIDE_BAR)
    return Progress(
        TextColumn("{task.description:<7}"),
        *([BarColumn(bar_width=width)] if width > 0 else []),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[clock]}"),
        console=console,
        transient=True,
    )
