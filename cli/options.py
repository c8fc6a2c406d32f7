"""Options and arguments that several commands share. Those in groups become one dictionary of what the user gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .streams import table_of

# The panels of --help, in their order.
COLUMNS = "columns"
RUN = "run"
PANELS = ("arguments", "options", "trees", "rows and bags", COLUMNS, "single families", RUN)


# The options of a group that the user gave, by their names of the API.
Given = dict[str, Any]


class Choice(NamedTuple):
    """An option: what typer makes of it, what --help shows as its default, and how its value is read."""

    annotation: Any
    default: Any
    read: Callable[[Any], Any] | None


def option(
    kind: Any,
    metavar: str | None,
    text: str,
    *names: str,
    default: Any = None,
    panel: str | None = None,
    read: Callable[[Any], Any] | None = None,
) -> Choice:
    """An option of type `kind` with the text of its help; `names` where --name-with-dashes will not do.

    default  what --help shows; None for what the API chooses.
    """
    # A shell completes the words in a metavar: sqrt and all of sqrt|all|INT.
    words = re.findall(r"(?<![^|])[a-z][a-z0-9_-]*(?![^|])", metavar or "")
    complete = (lambda incomplete: [word for word in words if word.startswith(incomplete)]) if words else None
    info = typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, autocompletion=complete)
    return Choice(Annotated[kind if default is not None else kind | None, info], default, read)


def flag(text: str, *names: str, panel: str | None = None) -> Choice:
    """An option that is on where it is given, by one of these names."""
    return option(bool, None, text, *names, default=False, panel=panel)


def chosen(group: Mapping[str, Choice], names: Iterable[str]) -> dict[str, Choice]:
    """Some options of a group, in its order."""
    wanted = set(names)
    assert wanted <= set(group), wanted - set(group)
    return {name: choice for name, choice in group.items() if name in wanted}


def count_or_word(text: str) -> str | int:
    """The whole number that `text` writes, else the text itself."""
    return int(text) if text.isdecimal() else text


def number_or_word(text: str) -> str | int | float:
    """The number that `text` writes, whole or not, else the text itself; whether it will do, the API says."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        help="Parquet, Arrow/Feather, CSV or NDJSON: a file, a folder or a glob; - is standard input.",
        callback=table_of,
    ),
]
ForestFolder = Annotated[
    str, typer.Argument(metavar="FOREST", show_default=False, help="A forest written by `bigforest train`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.", rich_help_panel=RUN)]

# Which columns of a table are learned from.
TABLE = {
    "target": option(
        str, "NAME", "Target column. Default: the first of target, label, class, y that exists.", panel=COLUMNS
    ),
    "exclude": option(list[str], "COL", "Column to leave out. Repeat for more.", panel=COLUMNS),
}

# Options that say how a command runs, by the names of the API.
_RUN_OPTIONS = {
    "overwrite": flag("Replace an existing output.", "--overwrite", panel=RUN),
    "json": flag("Print one JSON object and nothing else.", "--json", panel=RUN),
    "quiet": flag("Print errors only.", "--quiet", "-q", panel=RUN),
    "threads": option(int, "N", "Worker threads. Default: all processors.", panel=RUN),
    "scratch": option(str, "DIR", "Folder for temporary files. Default: that of the system.", panel=RUN),
    "memory": option(str, "SIZE", "Memory limit, such as 4GB. Default: none.", panel=RUN),
}
SCRATCH_BESIDE = option(str, "DIR", "Folder for temporary files. Default: next to the forest.", panel=RUN)
SCHEDULER = {
    "scheduler": option(str, "ADDRESS", "Dask scheduler to run on, tcp:// or tls://. Default: threads.", panel=RUN),
    "scheduler_file": option(str, "FILE", "Scheduler file of the Dask scheduler to run on.", panel=RUN),
    "tls_ca": option(str, "PEM", "For tls://: the certificate of the authority.", panel=RUN),
    "tls_cert": option(str, "PEM", "For tls://: the certificate to show the scheduler.", panel=RUN),
    "tls_key": option(str, "PEM", "For tls://: the key of that certificate.", panel=RUN),
}
VOTES = {
    "vote": option(
        str, "soft|hard|stochastic", "How the predictions of the trees are combined. Default: as in training."
    ),
    "ties": option(
        str,
        "lowest|reject|random",
        "Prediction if classes have equal votes: the lowest, none (null), or a random one. Default: as in training.",
    ),
}


def run_options(*names: str) -> dict[str, Choice]:
    """How a command runs: --json, --quiet and these options; "scheduler" stands for all that select a cluster."""
    wanted = {"json", "quiet", *names} - {"scheduler"}
    return chosen(_RUN_OPTIONS, wanted) | (SCHEDULER if "scheduler" in names else {})


def named_after(forest: str, suffix: str) -> str:
    """Default name of an output, in the current folder: DIR/flights.forest gives flights<suffix>."""
    return f"{Path(forest.rstrip('/')).name.removesuffix('.forest')}{suffix}"
