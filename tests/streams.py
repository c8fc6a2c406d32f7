"""The standard streams of a test."""

from __future__ import annotations

from typing import Protocol


class Streams(Protocol):
    """Puts streams in place of standard input, output or errors, for a test."""

    def __call__(self, **named: object) -> None:
        """named: streams, or None for closed ones, by `stdin`, `stdout` and `stderr`."""
