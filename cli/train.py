"""bigforest train"""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .command import command
from .config import CONFIG
from .options import CONFIG_FILE, RUN, Given, count_or_word, option
from .running import table_of
from .show import Facts, choice_lines, count, duration, lines, out_of_bag, stop_lines, table_size, validation_lines


def _draw(facts: Facts) -> None:
    seconds = facts["seconds"]
    stages = " · ".join(f"{stage} {duration(spent)}" for stage, spent in seconds.items())
    lines(
        *table_size(facts),
        ("trees", f"{count(facts['trees'])} with {count(facts['nodes'], 'node')}"),
        *stop_lines(facts),
        ("out of bag", out_of_bag(facts["oob"], facts["classes"])),
        *choice_lines(facts),
        *validation_lines(facts["validation"], facts["refine"]["rounds"]),
        ("time", f"{stages} · total {duration(sum(seconds.values()))}"),
        ("forest", facts["forest"]),
    )


# Options by argument of `train`, in the order of --help.
TRAIN = {
    "out": option(str, "DIR", "The forest, a folder. Default: <stem of DATA>.forest.", panel=RUN),
    "resume": option(str, "FOREST", "Continue an interrupted run, or add trees to a forest up to --trees.", panel=RUN),
    "validate": option(str, "TABLE", "Also measure the error on the rows of this table, tree by tree.", panel=RUN),
    "tune": option(
        str,
        "N|TIME",
        "First compare N configurations, or as many as fit in a time such as 10m, and keep the best; see compare.",
        panel=RUN,
        read=count_or_word,
    ),
    **CONFIG_FILE,
}


@command(
    _draw,
    table=options.TABLE,
    config=CONFIG,
    settings=TRAIN,
    run={
        **options.run_options("overwrite", "threads", "scratch", "memory", "scheduler"),
        "scratch": options.SCRATCH_BESIDE,
    },
)
def train(
    data: Annotated[str | None, options.argument("DATA", f"{options.TABLE_KINDS} Or a store.", table_of)] = None,
    *,
    table: Given,
    config: Given,
    settings: Given,
    run: Given,
) -> Facts:
    """Train a forest on a table or a store.

    DATA may also be a store made by `bigforest encode`. An interrupted run continues with --resume
    and gives the same forest.

    Example: bigforest train flights.parquet --target late --trees 200
    """
    import bigforest

    from .facts import training_facts
    from .running import default_output

    if data is None and "resume" not in settings:
        raise typer.BadParameter("it is missing; give a table, or a forest to --resume", param_hint="DATA")
    if data is not None and not {"resume", "out"} & set(settings):
        settings["out"] = default_output(data, ".forest")
    forest = bigforest.train(data, **table, **config, **settings, **run)
    return training_facts(forest)
