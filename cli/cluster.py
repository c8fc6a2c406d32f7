"""The cluster a command runs on, if it is to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from bigforest.events import Event, Listener


@contextmanager
def scheduler_of(
    address: str | None, file: str | None, ca: str | None, cert: str | None, key: str | None
) -> Iterator[Any]:
    """What the keyword `scheduler` takes, from the options of a command; None without any of them."""
    if address is not None and file is not None:
        raise typer.BadParameter("give --scheduler or --scheduler-file, not both")
    if address is None and file is None:
        if ca or cert or key:
            raise typer.BadParameter("TLS files belong to a scheduler; give --scheduler or --scheduler-file")
        yield None
        return
    from bigforest.schedule.connect import connected

    with connected(address, file=file, ca=ca, cert=cert, key=key) as client:
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
