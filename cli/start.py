"""The program `bigforest`: it loads and runs the commands. Ctrl-C ends it with one line, even while it loads them."""

from __future__ import annotations

import sys


def start() -> None:
    """Run the command line."""
    try:
        from .app import main as run

        run()
    except KeyboardInterrupt:  # before a command has begun, which says itself what is left
        if sys.stderr is not None:
            print("error: interrupted", file=sys.stderr)
        sys.exit(130)
