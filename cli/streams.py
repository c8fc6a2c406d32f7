"""Standard input as a table, and predictions to standard output."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

STREAM = "-"
# What messages call the file that standard input was copied to; its path is in the `meta` of the context by this name.
STANDARD_INPUT = "standard input"
# What files begin with, and how their names end; any other is CSV.
_KINDS = ((b"PAR1", ".parquet"), (b"ARROW1", ".arrow"), (b"{", ".ndjson"))


def table_of(context: typer.Context, data: str | None) -> str | None:
    """The path of a table: `data` itself, or, for "-", a temporary file with what comes by standard input."""
    if data != STREAM or context.resilient_parsing:
        return data
    from bigforest.storage.atomic import naming_full_disk

    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed; give a file, or send a table to it")
    folder = tempfile.TemporaryDirectory(prefix="bigforest-")
    context.call_on_close(folder.cleanup)
    begin = sys.stdin.buffer.read(8)
    suffix = next((suffix for mark, suffix in _KINDS if begin.startswith(mark)), ".csv")
    path = Path(folder.name) / f"stdin{suffix}"
    context.meta[STANDARD_INPUT] = str(path)
    with naming_full_disk(path.parent), path.open("wb") as file:
        file.write(begin)
        shutil.copyfileobj(sys.stdin.buffer, file)
    return str(path)


@contextmanager
def output_at(out: str, scratch: str | None) -> Iterator[str]:
    """The path of an output: `out` itself, or, for "-", a CSV file that goes to standard output when the block ends."""
    if out != STREAM:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="bigforest-", dir=scratch) as folder:
        path = Path(folder) / "stdout.csv"
        yield str(path)
        sys.stdout.flush()
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def default_output(data: str, suffix: str) -> str:
    """Return the default path of the output, in the current folder: flights<suffix> for flights.csv.

    Raises DataError if nothing exists at `data`.
    """
    from bigforest.source.files import find_files
    from bigforest.storage.paths import as_path
    from bigforest.store.format import is_meant_as_store

    path = as_path(data)
    name = path.resolve().name.removesuffix(".store") if is_meant_as_store(path) else find_files(data)[0]
    return name + suffix
