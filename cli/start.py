"""The program `bigforest`: it loads and runs the commands. Ctrl-C ends it with one line, even while commands load."""

from __future__ import annotations

import io
import sys
from pathlib import Path

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

# Bytes of address space that a process with a few threads needs. Reading CSV needs the most. With less address space,
# libraries abort the process, some of them as soon as they are loaded.
_ADDRESSES = 3_500_000_000
_HELP = {"-h", "--help", "-V", "--version"}


def start() -> None:
    """Run the command line."""
    # Names of columns may have characters that the encoding of a terminal, or of a pipe on Windows, lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if (fault := _lack_of_addresses() or _lack_of_folder()) and not _HELP.intersection(sys.argv):
        if "--json" in sys.argv:
            print(f'{{"error": "{fault}", "kind": "ConfigError"}}')
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(2)
    try:
        from .app import main as run

        run()
    except KeyboardInterrupt:  # before a command has begun; a running command reports the interruption itself
        if sys.stderr is not None:
            print("error: interrupted", file=sys.stderr)
        sys.exit(130)


def _lack_of_folder() -> str | None:
    """Return a message if the current folder was removed: paths cannot be resolved in it."""
    try:
        Path.cwd()
    except OSError as error:
        return f"the current folder cannot be found ({error.strerror}); change to another folder"
    return None


def _lack_of_addresses() -> str | None:
    """Return a message if the limit of address space is so low that libraries would abort the process.

    Libraries reserve more address space than they use.
    """
    if resource is None or not 0 <= (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) < _ADDRESSES:
        return None
    return (
        f"the address space of processes is limited to {limit / 1e9:.1f} GB (ulimit -v), and libraries reserve up to "
        f"{_ADDRESSES / 1e9:g} GB of it, most of which they do not use; raise the limit"
    )
