"""The errors of bigforest. Every message says what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence


def reason(error: BaseException) -> str:
    """What the system or a library says is wrong; lines after the first are context, and advice on its own options."""
    return str((isinstance(error, OSError) and error.strerror) or error).strip().partition("\n")[0]


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
    """An option has an invalid value, or contradicts other options."""


class DataError(BigForestError, ValueError):
    """The table given for training or prediction cannot be used as it is."""


class FormatError(BigForestError):
    """A forest or a store on disk is damaged, has another format, or was written by a newer version."""


class OutputExistsError(BigForestError):
    """The output exists and overwriting was not requested."""


class DiskFullError(BigForestError):
    """The disk is full. The finished parts of the run are kept."""


class BusyError(BigForestError):
    """Another run is writing the output."""


class ClusterError(BigForestError):
    """A scheduler or its workers cannot be used, were lost, or a task failed repeatedly."""


class StorageError(BigForestError):
    """An object store does not respond, denies access, or has no such bucket."""


def damaged_forest(what: str) -> FormatError:
    """The error of a damaged forest; what: its file or folder, and what is wrong with it."""
    return FormatError(f"{what}; the forest is damaged: restore its folder from a copy, or train it again")


def damaged_store(what: str) -> FormatError:
    """The error of a damaged store; what: its file or folder, and what is wrong with it."""
    return FormatError(f"{what}; the store is damaged: encode the table again")


def counted(number: int, noun: str) -> str:
    """1 tree, 12,345 trees, 2 classes, 2 leaves."""
    plural = "leaves" if noun == "leaf" else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names for a message, with the number of those left out."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
