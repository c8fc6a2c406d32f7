"""What a command runs with: its progress on stderr, the cluster it is connected to, statistics of the workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from bigforest.events import Event, Listener


@contextmanager
def running(scheduler: dict[str, Any], *, quiet: bool) -> Iterator[tuple[Any, Ledger]]:
    """What the API takes as `scheduler`, from the options that select it, and the listener that shows the work."""
    from bigforest.events import silent
    from bigforest.progress import Bars

    bars = None if quiet else Bars(enabled=sys.stderr is not None and sys.stderr.isatty())
    listener = bars or silent
    try:
        with _scheduler(listener, **scheduler) as client:
            yield client, Ledger(listener)
    finally:
        if bars is not None:
            bars.close()  # which makes them vanish


@contextmanager
def _scheduler(
    listener: Listener,
    scheduler: str | None = None,
    scheduler_file: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
) -> Iterator[Any]:
    if scheduler is not None and scheduler_file is not None:
        raise typer.BadParameter("give --scheduler or --scheduler-file, not both")
    if scheduler is None and scheduler_file is None:
        if tls_ca or tls_cert or tls_key:
            raise typer.BadParameter("TLS files belong to a scheduler; give --scheduler or --scheduler-file")
        yield None
        return
    from bigforest.execution.connect import connected

    files = {"file": scheduler_file, "ca": tls_ca, "cert": tls_cert, "key": tls_key}
    with connected(scheduler, **files, listener=listener) as client:
        yield client


class Ledger:
    """A listener that keeps what the workers did and hands all events on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._workers: list[dict[str, Any]] = []

    def __call__(self, event: Event) -> None:
        from bigforest.events import WorkersUsed

        if isinstance(event, WorkersUsed):
            self._workers = [asdict(worker) for worker in event.workers]
        self._listener(event)

    @property
    def facts(self) -> dict[str, Any]:
        """An entry `workers` for --json; nothing without a cluster."""
        return {"workers": self._workers} if self._workers else {}
