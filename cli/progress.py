"""Draws the events of a run on stderr: bars on a terminal, notices everywhere, nothing when quiet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from bigforest.common.events import Event, Listener, Notice, StageAdvanced, StageFinished, StageStarted, silent


@contextmanager
def watching(*, quiet: bool) -> Iterator[Listener]:
    """Yield the listener that suits stderr; its bars vanish when the block ends."""
    if quiet:
        yield silent
        return
    console = Console(stderr=True, highlight=False)
    with _progress(console) as progress:
        yield _Bars(progress)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<7}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[clock]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


class _Bars:
    """A listener with one bar per stage."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageStarted):
            self._bars[event.stage] = self._progress.add_task(
                event.stage, total=event.total, unit=event.unit, clock="left"
            )
        elif isinstance(event, StageAdvanced):
            self._progress.update(self._bars[event.stage], completed=event.done)
        elif isinstance(event, StageFinished):
            bar = self._bars[event.stage]
            total = self._progress.tasks[bar].total
            self._progress.update(bar, completed=total, clock="taken")
        elif isinstance(event, Notice):
            self._progress.console.print(Text(f"note: {event.message}", style="yellow"), soft_wrap=True)
