"""Standard streams as tables, and the progress display and the cluster of a command."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from bigforest.events import Event, Listener, Notice


STREAM = "-"
# Name of the copy of standard input in messages, and key of its path in the `meta` of the context.
STANDARD_INPUT = "standard input"


def table_of(context: typer.Context, data: str | None) -> str | None:
    """Return the path of a table: `data`, or, for "-", a temporary file with a copy of standard input."""
    if data != STREAM or context.resilient_parsing:
        return data
    from bigforest.storage.atomic import TemporaryFolder, naming_full_disk
    from bigforest.storage.file_kinds import suffix_of_content

    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed; give a file, or send a table to it")
    folder = context.with_resource(TemporaryFolder(None))
    begin = sys.stdin.buffer.read(8)
    path = folder / f"stdin{suffix_of_content(begin)}"
    context.meta[STANDARD_INPUT] = str(path)
    with naming_full_disk(path.parent), path.open("wb") as file:
        file.write(begin)
        shutil.copyfileobj(sys.stdin.buffer, file)
    return str(path)


@contextmanager
def output_at(out: str, scratch: str | None) -> Iterator[str]:
    """Yield the path of an output: `out`, or, for "-", a temporary CSV file that is printed after the block."""
    if out != STREAM:
        yield out
        return
    if sys.stdout is None:
        raise typer.BadParameter("standard output is closed; give a file as --out")
    from bigforest.storage.atomic import TemporaryFolder
    from bigforest.storage.paths import as_path

    with TemporaryFolder(None if scratch is None else as_path(scratch)) as folder:
        path = folder / "stdout.csv"
        yield str(path)
        sys.stdout.flush()
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def default_output(data: str, suffix: str) -> str:
    """Return the default path of an output, in the current folder: flights<suffix> for flights.csv or flights.store.

    Raises DataError if there is no table at `data`.
    """
    from bigforest.source.find import find_files
    from bigforest.storage.paths import as_path
    from bigforest.store.format import is_meant_as_store

    path = as_path(data)
    name = path.resolve().name.removesuffix(".store") if is_meant_as_store(path) else find_files(data)[0]
    return name + suffix


@contextmanager
def running(
    scheduler: dict[str, Any], *, quiet: bool, json: bool, name_of: Callable[[str], str | None]
) -> Iterator[tuple[Any, Ledger]]:
    """Yield the client of a cluster, or None for threads, and the listener of the command.

    scheduler  options that select a cluster; empty for threads.
    quiet      show no progress.
    json       put notices into the printed object instead of showing them.
    name_of    function that returns the name of an option on the command line, for notices.
    """
    from bigforest.events import silent
    from bigforest.progress import Bars

    bars = None if quiet else Bars(enabled=sys.stderr is not None and sys.stderr.isatty(), name_of=name_of)
    listener = bars or silent
    try:
        with _scheduler(listener, **scheduler) as client:
            ledger = Ledger(listener, name_of if json else None)
            try:
                yield client, ledger
            except BaseException:  # no object will be printed
                ledger.pass_notices_on()
                raise
    finally:
        if bars is not None:
            bars.close()


@contextmanager
def _scheduler(
    listener: Listener,
    scheduler: str | None = None,
    scheduler_file: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
) -> Iterator[Any]:
    """Yield the client of a cluster, or None without a scheduler. SCHEDULER in options.py describes the options."""
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
    """Listener that keeps the statistics of workers and, with `name_of`, the notices, except those about compiling.

    It passes all events on, except for the notices that it keeps.

    name_of  function that returns the name of an option in notices; None to keep no notices.
    """

    def __init__(self, listener: Listener, name_of: Callable[[str], str | None] | None) -> None:
        self._listener = listener
        self._name_of = name_of
        self._workers: list[dict[str, Any]] = []
        self._notices: list[Notice] = []

    def __call__(self, event: Event) -> None:
        from bigforest.events import Compiling, Notice, WorkersUsed

        if isinstance(event, WorkersUsed):
            self._workers = [asdict(worker) for worker in event.workers]
        if self._name_of is not None and isinstance(event, Notice) and not isinstance(event, Compiling):
            self._notices.append(event)
        else:
            self._listener(event)

    @property
    def facts(self) -> dict[str, Any]:
        """Entries `workers` and `notices` for the printed object; empty entries are left out."""
        from bigforest.errors import write_names

        notices = [write_names(notice.text, self._name_of) for notice in self._notices if self._name_of is not None]
        found = {"workers": self._workers, "notices": notices}
        return {name: entries for name, entries in found.items() if entries}

    def pass_notices_on(self) -> None:
        """Pass the kept notices on to the listener."""
        for notice in self._notices:
            self._listener(notice)
