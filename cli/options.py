"""Arguments and single options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

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
Target = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Target column. Default: the first of target, label, class, y that exists.",
        rich_help_panel=COLUMNS,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="COL", help="Column to leave out. Repeat for more.", rich_help_panel=COLUMNS),
]
Vote = Annotated[
    str | None,
    typer.Option(
        metavar="soft|hard|stochastic", help="How the predictions of the trees are combined. Default: as in training."
    ),
]
Ties = Annotated[
    str | None,
    typer.Option(
        metavar="lowest|reject|random",
        help="Prediction if classes have equal votes: the lowest, none (null), or a random one. Default: as in "
        "training.",
    ),
]
Threads = Annotated[
    int | None, typer.Option(metavar="N", help="Worker threads. Default: all processors.", rich_help_panel=RUN)
]
Scratch = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Folder for temporary files. Default: that of the system.", rich_help_panel=RUN),
]
ScratchBeside = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Folder for temporary files. Default: next to the forest.", rich_help_panel=RUN),
]
Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory limit, such as 4GB. Default: none.", rich_help_panel=RUN),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.", rich_help_panel=RUN)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.", rich_help_panel=RUN)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.", rich_help_panel=RUN)]
