"""The errors of bigforest. Every message says what is wrong, where, and what to do about it.

Messages mark the names of options and functions, so that each interface writes them as its users type them:

    error = ConfigError(f"lower {api('mtry')}, or set it to all")
    str(error)                                           # lower mtry, or set it to all
    error.options                                        # ("mtry",)
    write_names(error.text, {"mtry": "--mtry"}.get)      # lower --mtry, or set it to all
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

# Encloses a marked name: the control character "unit separator", which no option and no readable text contains.
_MARK = "\x1f"
# Separates the function, the option and the value of a marked call.
_PART = "\x1e"
# The number of an error of the operating system, in the message of an error of Polars or Arrow.
_NUMBER = re.compile(r"\(os error (\d+)\)|\[[Ee]rrno (\d+)\]")
# Advice for errors of the operating system, by number.
_ADVICE = {
    errno.EACCES: "change its permissions",
    errno.EPERM: "change its permissions",
    errno.ENOENT: "check what removed it",
    errno.EMFILE: "raise the number of open files that the system allows (ulimit -n)",
    errno.ENFILE: "close other programs, which have too many files open",
    errno.ENOMEM: "free some memory",
    errno.ENOLCK: "choose a folder on a disk that has locks (flock)",
    errno.ENOSPC: "free some space on its disk",
    errno.EDQUOT: "free some space on its disk",
    errno.EFBIG: "raise the largest size of a file that the system allows (ulimit -f)",
}


def api(name: str) -> str:
    """Mark a name of the Python API, such as that of an option, in a message."""
    return f"{_MARK}{name}{_MARK}"


def call(function: str, option: str, value: str) -> str:
    """Mark a call with one option in a message.

    `write_names` writes it as train(resume='f') in Python, and as `bigforest train --resume f` on the command line.
    """
    return f"{_MARK}{function}{_PART}{option}{_PART}{value}{_MARK}"


def write_names(message: str, name_of: Callable[[str], str | None] = str) -> str:
    """Return the message with each marked name replaced by `name_of(name)`, or kept if that is None."""
    pieces = message.split(_MARK)
    pieces[1::2] = [_written(marked, name_of) for marked in pieces[1::2]]
    return "".join(pieces)


def _written(marked: str, name_of: Callable[[str], str | None]) -> str:
    """Return a marked name or call as the users of an interface type it."""
    if marked.count(_PART) < 2:  # a name
        return name_of(marked) or marked
    function, option, value = marked.split(_PART, 2)
    function, option = name_of(function) or function, name_of(option) or option
    if option.startswith("--"):
        return f"{function.removesuffix('`')} {option} {shlex.quote(value)}`"
    return f"{function}({option}={value!r})"


class Note(str):
    """A note on an error. Python shows it without the marks of names; `text` has the marks."""

    def __new__(cls, text: str) -> Note:
        note = super().__new__(cls, write_names(text))
        note.text = text
        return note

    text: str


def reason(error: BaseException) -> str:
    """Return the first line of an error's message. Further lines of a library's error are about its own options."""
    return str((isinstance(error, OSError) and error.strerror) or error).strip().partition("\n")[0]


def system_error(error: BaseException, path: str | os.PathLike[str]) -> OSError | None:
    """Return the error of the operating system that caused `error`, with advice and the file name `path`.

    Libraries wrap these errors, for example of a broken disk, in errors of their own. Return None if another error is
    the cause. Also return None for EINVAL, which is a sign of a damaged file: a library tried to seek to an invalid
    position that it had read from the file.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := _NUMBER.search(str(error))):
        number = int(found[1] or found[2])
    if number in (None, errno.EINVAL):
        return None
    named = OSError(number, os.strerror(number), str(path))
    named.add_note(advice_on(number))
    return named


def advice_on(number: int | None) -> str:
    return _ADVICE.get(number or 0, "check its disk, and try again")


@contextmanager
def naming_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add advice to an OSError that the block raises, and the name `path` if the error names no file."""
    try:
        yield
    except OSError as error:
        named = system_error(error, error.filename or path)
        if named is None or hasattr(error, "__notes__"):
            raise
        try:
            raise named from error
        finally:
            # Otherwise this frame, and the frames of all callers, would live until the garbage is collected.
            del named


def names_other_file(error: BaseException, path: str | os.PathLike[str] | None) -> bool:
    """Return True for an error that `naming_file` raised about a file other than `path`, such as a copy of it."""
    return isinstance(error, OSError) and hasattr(error, "__notes__") and str(error.filename) != str(path)


def shown(value: object) -> str:
    """Return the value of an option as a text for messages, of at most 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no numbers of more than 4,300 digits
        text = "a number of thousands of digits"
    text = " ".join(text.split("\n"))
    return text if len(text) <= 80 else f"{text[:40]}...{text[-20:]}"


class BigForestError(Exception):
    """Base of every error that bigforest raises on purpose.

    Examples
    --------
    >>> import bigforest as bf
    >>> try:
    ...     bf.TrainConfig.of(mtry=0)
    ... except bf.BigForestError as error:
    ...     print(error.options)
    ('mtry',)
    """

    def __str__(self) -> str:
        return write_names(self.text)

    @property
    def text(self) -> str:
        """The message with the marks."""
        return super().__str__()

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options and functions that the message marks, as in the Python API."""
        return tuple(name for marked in self.text.split(_MARK)[1::2] for name in marked.split(_PART)[:2])


class ConfigError(BigForestError, ValueError):
    """An option has an invalid value, or contradicts other options.

    Examples
    --------
    >>> import bigforest as bf
    >>> try:
    ...     bf.TrainConfig.of(feature_fraction=0.5, mtry=3)
    ... except bf.ConfigError as error:
    ...     print(error)
    feature_fraction replaces mtry; drop one of them
    """


class DataError(BigForestError, ValueError):
    """The table given for training or prediction cannot be used as it is.

    Examples
    --------
    >>> import bigforest as bf
    >>> try:
    ...     bf.train({"size": [1.0, 2.0]}, "kind")
    ... except bf.DataError as error:
    ...     print(error)
    there is no column 'kind' for target; the columns are size
    """


class FormatError(BigForestError):
    """A forest or a store on disk is damaged, has another format, or was written by a newer version.

    Examples
    --------
    >>> import bigforest as bf
    >>> try:
    ...     bf.read_forest("nothing.forest")
    ... except bf.FormatError as error:
    ...     print(type(error).__name__)
    FormatError
    """


class OutputExistsError(BigForestError):
    """The output exists and overwriting was not requested.

    Examples
    --------
    >>> import bigforest as bf
    >>> forest = bf.train({"size": [1.0, 2.0], "kind": ["a", "b"]}, "kind", trees=1)
    >>> forest.write("one.forest")
    >>> try:
    ...     forest.write("one.forest")
    ... except bf.OutputExistsError as error:
    ...     print(error)
    one.forest already exists; choose another output, or replace it with overwrite
    """


class DiskFullError(BigForestError):
    """The disk is full. The finished parts of the run are kept."""


class BusyError(BigForestError):
    """Another run is writing the output."""


class ClusterError(BigForestError):
    """A scheduler or its workers cannot be used, were lost, or a task failed repeatedly."""


class StorageError(BigForestError):
    """An object store does not respond, denies access, or has no such bucket."""


def damaged_forest(what: str) -> FormatError:
    """Return the error of a damaged forest; `what` names its file or folder and what is wrong."""
    return FormatError(f"{what}; the forest is damaged: restore its folder from a copy, or train it again")


def damaged_store(what: str) -> FormatError:
    """Return the error of a damaged store; `what` names its file or folder and what is wrong."""
    return FormatError(f"{what}; the store is damaged: encode the table again")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 tree, 12,345 trees, 2 classes, 2 leaves."""
    plural = "leaves" if noun == "leaf" else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def similar_names(name: str, names: Collection[str], cutoff: float = 0.75) -> list[str]:
    """Return the names that differ only in case or in spaces around them; if there are none, up to 3 similar names.

    cutoff  least similarity, from 0 to 1.
    """
    same = sorted(other for other in names if other.strip().lower() == name.strip().lower())
    return same or get_close_matches(name, sorted(names), n=3, cutoff=cutoff)


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names for a message: the first `most` names, and the number of further names."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
