"""One family of errors. Every message says what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence


def reason(error: BaseException) -> str:
    """What a library says is wrong; lines after the first are context, and advice on options of its own."""
    return str(error).strip().partition("\n")[0]


def shown(value: object) -> str:
    """A value of an option as messages show it: cut short where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no numbers of more than 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:40]}...{text[-20:]}"


class BigForestError(Exception):
    """Base of every error that bigforest raises on purpose."""


class ConfigError(BigForestError, ValueError):
    """An option has a value that cannot be used, alone or together with the others."""


class DataError(BigForestError, ValueError):
    """The table given for training or prediction cannot be used as it is."""


class FormatError(BigForestError):
    """A forest or a store on disk is damaged, is something else, or was written by a newer version."""


class OutputExistsError(BigForestError):
    """The output is already there and overwriting it was not requested."""


class DiskFullError(BigForestError):
    """A disk has no room for what a run writes. What it has finished is kept."""


class BusyError(BigForestError):
    """Another run, which is still going on, is writing the output."""


class ClusterError(BigForestError):
    """A scheduler or its workers cannot be used, or were lost, or a task failed there again and again."""


class StorageError(BigForestError):
    """An object store does not answer, refuses, or has no such bucket."""


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names for a message, with the number of those left out."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
