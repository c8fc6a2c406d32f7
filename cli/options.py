"""Options and arguments that several commands share, and how their text becomes values."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        help="Parquet, Arrow/Feather, CSV or NDJSON: a file, a folder or a glob.",
    ),
]
ForestFolder = Annotated[
    str, typer.Argument(metavar="FOREST", show_default=False, help="A forest written by `bigforest train`.")
]
Target = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column to learn; unless given, the one column named target, label, class or y."),
]
Exclude = Annotated[list[str] | None, typer.Option(metavar="COL", help="Column to leave out; repeat for more.")]
Trees = Annotated[int, typer.Option(metavar="N", help="Number of trees.")]
Mtry = Annotated[str, typer.Option(metavar="sqrt|log2|all|INT|FRACTION", help="Features drawn per node.")]
MaxDepth = Annotated[
    int | None, typer.Option(metavar="N", help="Deepest level, the root being 0; unlimited unless given.")
]
Bootstrap = Annotated[bool, typer.Option(help="Grow each tree on a random bag of rows, or on all rows.")]
SampleFraction = Annotated[float, typer.Option(metavar="F", help="Size of a bag as a fraction of the rows.")]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="COL", help="Column of groups of rows, such as a patient: whole groups are in or out of a bag."
    ),
]
Sampling = Annotated[
    str,
    typer.Option(
        metavar="uniform|stratified|balanced",
        help="Draw all rows alike, each class by its share, or as many of each class as the smallest has.",
    ),
]
Replace = Annotated[bool, typer.Option(help="Draw a bag with replacement.")]
MaxBins = Annotated[
    str,
    typer.Option(
        metavar="exact|INT",
        help="Values per feature that may be thresholds: all, or at most INT, by quantiles.",
    ),
]
Threads = Annotated[int | None, typer.Option(metavar="N", help="Worker threads; all processors unless given.")]
Scratch = Annotated[
    str | None, typer.Option(metavar="DIR", help="Folder for temporary files; the system's unless given.")
]
ScratchBeside = Annotated[
    str | None, typer.Option(metavar="DIR", help="Folder for temporary files; beside the forest unless given.")
]
Memory = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Most memory to use, such as 4GB; unlimited unless given.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Dask scheduler to run on, tcp:// or tls://; threads unless given."),
]
SchedulerFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="The scheduler file of the Dask scheduler to run on.")
]
TlsCa = Annotated[str | None, typer.Option(metavar="PEM", help="For tls://: the certificate authority.")]
TlsCert = Annotated[str | None, typer.Option(metavar="PEM", help="For tls://: our certificate.")]
TlsKey = Annotated[str | None, typer.Option(metavar="PEM", help="For tls://: our key.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that is already there.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]


def given(context: typer.Context) -> dict[str, Any]:
    """The options of the configuration that were given, as keywords; the rest is for the API to choose."""
    from dataclasses import fields

    from bigforest.config import TrainConfig

    names = [field.name for field in fields(TrainConfig)]
    chosen = {name: context.params[name] for name in names if name in context.params and _is_given(context, name)}
    words = {"mtry": number_or_word, "max_bins": count_or_word, "projections": count_or_word}
    return chosen | {name: read(chosen[name]) for name, read in words.items() if name in chosen}


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def count_or_word(text: str) -> str | int:
    """The whole number that `text` writes, else the text itself; whether it will do, the API judges."""
    try:
        return int(text)
    except ValueError:
        return text


def number_or_word(text: str) -> str | int | float:
    """The number that `text` writes, whole or not, else the text itself."""
    whole = count_or_word(text)
    if isinstance(whole, int):
        return whole
    try:
        return float(text)
    except ValueError:
        return text
