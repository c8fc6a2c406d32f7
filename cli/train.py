"""bigforest train"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import options
from .command import command
from .config import CONFIG
from .config_file import ConfigFile
from .show import Facts, count, duration, lines, out_of_bag, shrinkage_lines, stop_lines, table_size, validation_lines
from .streams import table_of


def _draw(facts: Facts) -> None:
    seconds = facts["seconds"]
    stages = " · ".join(f"{stage} {duration(spent)}" for stage, spent in seconds.items())
    lines(
        *table_size(facts),
        ("trees", f"{count(facts['trees'])} with {count(facts['nodes'], 'node')}"),
        *stop_lines(facts),
        ("out of bag", out_of_bag(facts["oob"])),
        *shrinkage_lines(facts["shrinkage"]),
        *validation_lines(facts["validation"]),
        ("time", f"{stages} · total {duration(sum(seconds.values()))}"),
        ("forest", facts["forest"]),
    )


@command(
    _draw,
    config=CONFIG,
    run={
        **options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"),
        "scratch": options.SCRATCH_BESIDE,
    },
)
def train(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="Parquet, Arrow/Feather, CSV or NDJSON: a file, a folder or a glob; - is standard input. Or a store.",
            callback=table_of,
        ),
    ] = None,
    target: options.Target = None,
    exclude: options.Exclude = None,
    *,
    config: dict[str, Any],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The forest, a folder. Default: <stem of DATA>.forest.",
            rich_help_panel=options.RUN,
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="FOREST",
            help="Continue an interrupted run, or add trees to a forest up to --trees.",
            rich_help_panel=options.RUN,
        ),
    ] = None,
    validate: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Also measure the error on the rows of this table, tree by tree.",
            rich_help_panel=options.RUN,
        ),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="N|TIME",
            help="First compare N configurations, or all in a time such as 10m, and keep the best; see compare.",
            rich_help_panel=options.RUN,
        ),
    ] = None,
    config_file: ConfigFile = None,
    run: dict[str, Any],
) -> Facts:
    """Train a forest on a table or a store.

    DATA may also be a store made by `bigforest encode`. An interrupted run continues with --resume
    and gives the same forest.

    Example: bigforest train flights.parquet --target late --trees 200
    """
    del config_file  # its options have become those of the command
    import bigforest
    from bigforest.api.files import default_output

    from .facts import training_facts

    if data is None and resume is None:
        raise typer.BadParameter("it is missing; give a table, or a forest to --resume", param_hint="DATA")
    if resume is None and out is None and data is not None:
        out = str(default_output(data, ".forest"))
    forest = bigforest.train(
        data,
        target,
        out=out,
        exclude=exclude or (),
        resume=resume,
        validate=validate,
        tune=int(tune) if tune is not None and tune.isdecimal() else tune,
        **config,
        **run,
    )
    return training_facts(forest)
