"""Default display of progress: bars of rich on a terminal and in a notebook, log lines elsewhere."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bigforest.errors import ConfigError, api, shown, write_names
from bigforest.events import Event, Listener, Notice, StageAdvanced, StageFinished, StageStarted

# Seconds of work before bars appear, and time of a stage from which it is logged.
_PATIENCE = 2.0
# In characters: width of a bar in a notebook, and of the text beside a bar on a terminal, which fits a million steps.
_BAR_WIDTH = 30
_BESIDE_BAR = 50
# Least seconds between two drawings of the bars in a notebook: each drawing is sent to the browser.
_PAUSE = 0.2
_LOG = logging.getLogger("bigforest")


def in_notebook() -> bool:
    """Return True in a kernel of Jupyter, whose cells show HTML."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


@contextmanager
def watching(listener: Listener | None) -> Iterator[Listener]:
    """Yield `listener`. If it is None, yield a listener that shows work of more than two seconds until the block ends.

    On a terminal and in a notebook, that listener shows a bar for each stage. Elsewhere it logs the time of each stage
    of more than two seconds to the logger "bigforest", as information. It logs every notice as a warning. Raises
    ConfigError for a listener that cannot be called.
    """
    if listener is not None:
        if not callable(listener):
            raise ConfigError(f"{api('listener')} must be a function of one event, not {shown(listener)}")
        yield listener
        return
    bars = Bars(patience=_PATIENCE, notices=_warn) if _can_draw() else None
    try:
        yield bars or _log
    finally:
        if bars is not None:
            bars.close()


def _log(event: Event) -> None:
    if isinstance(event, Notice):
        _warn(event)
    elif isinstance(event, StageFinished) and event.seconds > _PATIENCE:
        _LOG.info("%s took %.1f s", event.stage, event.seconds)


def _warn(event: Event) -> None:
    if isinstance(event, Notice):
        _LOG.warning(event.message)  # on stderr, unless the user has configured logging


def _can_draw() -> bool:
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


class Bars:
    """Listener that shows a bar for each stage, on stderr or below the cell of a notebook. `close` removes the bars.

    patience  seconds without bars at the beginning.
    pause     least seconds between two drawings in a notebook.
    notices   listener for notices; None to print them.
    enabled   False to print notices only.
    name_of   function that returns the name of an option in notices, from its name in the Python API; see
              bigforest.errors.write_names.
    """

    def __init__(
        self,
        *,
        patience: float = 0.0,
        pause: float = _PAUSE,
        notices: Listener | None = None,
        enabled: bool = True,
        name_of: Callable[[str], str | None] = str,
    ) -> None:
        self._begin = time.monotonic() + patience
        self._pause = pause
        self._tell = notices
        self._enabled = enabled
        self._name_of = name_of
        self._waiting: dict[str, StageStarted] = {}  # stages without a bar yet
        self._bars: dict[str, Any] = {}  # task numbers of rich, by stage
        self._totals: dict[str, int] = {}
        self._progress: Any = None

    def __call__(self, event: Event) -> None:
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
            self._progress.update(
                self._bars[event.stage], completed=self._totals[event.stage], clock="taken", refresh=True
            )

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _add(self) -> None:
        """Add a bar for each stage that began since the last call."""
        if self._progress is None:
            self._progress = _progress(self._pause)
            self._progress.start()
        for name, stage in self._waiting.items():
            if name in self._bars:  # the stage runs again
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
        message = write_names(event.text, self._name_of)
        try:
            console.print(Text.assemble(("note:", "bold"), f" {message}"), soft_wrap=True)
        except BrokenPipeError:
            raise
        except OSError:  # a log on a full disk does not end the run
            pass


def _progress(pause: float) -> Any:
    """Return rich's display of bars, for a terminal or for the cell of a notebook, drawn every `pause` seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.theme import Theme

    # By default, times are yellow, which is hard to read on a light background.
    plain = Theme({"progress.elapsed": "none", "progress.remaining": "none"})

    class CellProgress(Progress):
        """Bars as HTML below the cell: rich's own display in notebooks needs ipywidgets."""

        def start(self) -> None:
            from IPython.display import display

            self._cell = display({"text/html": "", "text/plain": ""}, raw=True, display_id=True)
            self._cell_lock, self._drawn = threading.Lock(), 0.0

        def stop(self) -> None:
            self._cell.update({"text/html": "", "text/plain": ""}, raw=True)

        def refresh(self) -> None:
            with self._cell_lock:
                page = Console(file=io.StringIO(), record=True, width=100, theme=plain, force_jupyter=False)
                page.print(self.get_renderable())
                html = page.export_html(inline_styles=True, clear=False, code_format="<pre>{code}</pre>")
                self._cell.update({"text/html": html, "text/plain": page.export_text()}, raw=True)
                self._drawn = time.monotonic()

        def update(self, task_id: Any, *, refresh: bool = False, **changes: Any) -> None:
            super().update(task_id, **changes)
            if refresh or time.monotonic() > self._drawn + pause:
                self.refresh()

    here = in_notebook()
    console = Console(stderr=True, highlight=False, theme=plain, force_jupyter=False if here else None)
    width = _BAR_WIDTH if here else console.width - _BESIDE_BAR
    return (CellProgress if here else Progress)(
        TextColumn("{task.description:<7}"),
        *([BarColumn(bar_width=width)] if width > 0 else []),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[clock]}"),
        console=console,
        transient=True,
        auto_refresh=not here,
    )
