"""Default display of progress: bars on a terminal and in a notebook, log lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bigforest.common.errors import ConfigError, shown
from bigforest.common.events import Compiling, Event, Listener, Notice, StageAdvanced, StageFinished, StageStarted
from bigforest.common.notebook_bars import NotebookBars, in_notebook

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
            raise ConfigError(f"listener must be a function of one event, not {shown(listener)}")
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
