"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .groups import Choice, chosen, flag, option
from .streams import table_of

# The panels of --help, in their order.
COLUMNS = "columns"
RUN = "run"
PANELS = ("arguments", "options", "trees", "rows and bags", COLUMNS, "single families", RUN)

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
